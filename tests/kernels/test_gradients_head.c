/* Backward ops of the head and of its losses against finite differences (gradients.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/ops/head.h"
#include "tests/kernels/gradients.h"

/* Logits in two vocabulary shards, as a split head has them. */
struct head {
    struct ax_tensor logits, stats, labels, logprob, lse, lse_rest, entropy, mean;
    struct ax_tensor g_logprob, g_lse, g_entropy, g_mean;
    int64_t split;
};

#define HEAD_TEMPERATURE 0.8

static double head_loss(void *context) {
    struct head *h = context;
    for (int64_t s = 0; s < 2; s++) {
        int64_t first = s == 0 ? 0 : h->split;
        int64_t n = s == 0 ? h->split : h->logits.shape[1] - h->split;
        struct ax_tensor stats =
            ax_tensor_2d(AX_F64, ax_tensor_row(&h->stats, s), h->logits.shape[0], AX_SOFTMAX_STATS);
        assert_int_equal(
            ax_run_softmax_stats(
                ref.q, &(struct ax_softmax_stats){ax_tensor_cols(&h->logits, first, n), h->labels,
                                                  stats, first, HEAD_TEMPERATURE}),
            AX_OK);
    }
    assert_int_equal(ax_run_softmax_merge(
                         ref.q, &(struct ax_softmax_merge){.stats = h->stats,
                                                           h->labels,
                                                           h->logprob,
                                                           h->lse,
                                                           h->entropy,
                                                           h->mean,
                                                           h->logits.shape[1],
                                                           .lse_rest = h->lse_rest,
                                                           .inv_temperature = HEAD_TEMPERATURE}),
                     AX_OK);
    double loss = dot(&h->lse, &h->g_lse) + dot(&h->entropy, &h->g_entropy);
    loss += dot(&h->mean, &h->g_mean);
    return loss + dot(&h->logprob, &h->g_logprob);
}

static void head_gradient(void **state) {
    (void)state;
    const struct ax_shape shape = {
        .name = "head",
        .rows = 6,
        .cols = 11,
        .pad = 2,
        .options = &(struct ax_head_options){.all_grads = true, .smoothing = true}};
    struct ax_case c;
    case_open(&c, AX_OP_softmax_backward, &shape, AX_F64, &ref);
    struct ax_softmax_backward *b = c.args;
    ((int32_t *)b->labels.data)[2] = -1;
    struct head h = {.logits = b->logits,
                     .labels = b->labels,
                     .lse = b->lse,
                     .lse_rest = b->lse_rest,
                     .entropy = b->entropy,
                     .g_logprob = b->g_logprob,
                     .g_lse = b->g_lse,
                     .g_entropy = b->g_entropy,
                     .g_mean = b->g_mean,
                     .split = 4};
    h.stats = like(&(struct ax_tensor){.ndim = 3, .shape = {2, 6, AX_SOFTMAX_STATS}});
    h.logprob = like(&b->lse);
    h.mean = like(&b->lse);
    head_loss(&h); /* lse and entropy */
    for (int64_t s = 0; s < 2; s++) {
        struct ax_softmax_backward part = *b;
        part.first_col = s == 0 ? 0 : h.split;
        int64_t n = s == 0 ? h.split : 11 - h.split;
        part.logits = ax_tensor_cols(&b->logits, part.first_col, n);
        part.dlogits = ax_tensor_cols(&b->dlogits, part.first_col, n);
        part.inv_temperature = HEAD_TEMPERATURE;
        assert_int_equal(ax_run_softmax_backward(ref.q, &part), AX_OK);
    }
    check("logits", &b->logits, &b->dlogits, head_loss, &h);
    ax_case_free(&c);
}

static double nll(void *context) {
    struct ax_nll_loss *n = context;
    n->scalars->loss = 0;
    assert_int_equal(ax_run_nll_loss(ref.q, n), AX_OK);
    return n->scalars->loss;
}

static void nll_gradient(void **state) {
    (void)state;
    static const struct ax_head_options kinds[] = {{.smoothing = true, .z_loss = true},
                                                   {.soft = true, .z_loss = true}};
    for (int i = 0; i < 2; i++) {
        const struct ax_shape shape = {.name = "nll", .rows = 20, .options = &kinds[i]};
        struct ax_case c;
        case_open(&c, AX_OP_nll_loss, &shape, AX_F64, &ref);
        struct ax_nll_loss *n = c.args;
        case_run(&c, &ref);
        struct ax_tensor grad = copy_of(&n->g_logprob), mean = copy_of(&n->g_mean);
        struct ax_tensor lse = copy_of(&n->g_lse);
        check("logprob", &n->logprob, &grad, nll, n);
        check("mean logprob", &n->mean_logprob, &mean, nll, n);
        check("lse", &n->lse, &lse, nll, n);
        ax_case_free(&c);
    }
}

/* Of two shards, as tensor parallelism has them. */
struct distilled {
    struct ax_distill_backward *b;
    struct ax_tensor lse, parts, divergence, student_kl, stats, logprob, entropy;
    int64_t split;
};

static void find_lse(const struct distilled *d, const struct ax_tensor *logits, double temper,
                     const struct ax_tensor *lse) {
    const int64_t rows = logits->shape[0];
    const struct ax_softmax_stats stats = {
        .logits = *logits, .labels = d->b->labels, .stats = d->stats, .inv_temperature = temper};
    assert_int_equal(ax_run_softmax_stats(ref.q, &stats), AX_OK);
    const struct ax_softmax_merge merge = {
        .stats = ax_tensor_3d(AX_F64, d->stats.data, 1, rows, AX_SOFTMAX_STATS),
        .labels = d->b->labels,
        .logprob = d->logprob,
        .lse = *lse,
        .entropy = d->entropy,
        .inv_temperature = temper};
    assert_int_equal(ax_run_softmax_merge(ref.q, &merge), AX_OK);
}

/* Σ g_logprob·logprob + g_divergence·D */
static double distilled_loss(void *context) {
    struct distilled *d = context;
    struct ax_distill_backward *b = d->b;
    const int64_t rows = b->logits.shape[0], cols = b->logits.shape[1];
    find_lse(d, &b->teacher, b->inv_temperature, &b->teacher_lse);
    find_lse(d, &b->logits, b->inv_temperature, &b->lse);
    for (int s = 0; s < 2; s++) {
        const int64_t first = s * d->split, n = s ? cols - d->split : d->split;
        const struct ax_divergence part = {.logits = ax_tensor_cols(&b->logits, first, n),
                                           .teacher = ax_tensor_cols(&b->teacher, first, n),
                                           .lse = b->lse,
                                           .teacher_lse = b->teacher_lse,
                                           .parts = ax_tensor_rows(&d->parts, s * rows, rows),
                                           .beta = b->beta,
                                           .inv_temperature = b->inv_temperature};
        assert_int_equal(ax_run_divergence(ref.q, &part), AX_OK);
    }
    const struct ax_divergence_merge merge = {.parts =
                                                  ax_tensor_3d(AX_F64, d->parts.data, 2, rows, 2),
                                              .divergence = d->divergence,
                                              .student_kl = b->student_kl,
                                              .beta = b->beta};
    assert_int_equal(ax_run_divergence_merge(ref.q, &merge), AX_OK);
    find_lse(d, &b->logits, 1, &b->nll_lse); /* last: it leaves the log-probs */
    return dot(&d->logprob, &b->g_logprob) + dot(&d->divergence, &b->g_divergence);
}

/* Of each row's logits; the others get those of tokens without probability. */
static void keep_three(const struct ax_tensor *logits) {
    const int32_t ids[] = {3, 8, 5, 0, 10, 2, 4, 3, -1, 1, 6, 9, 7, 5, 3, 10, 9, 8};
    const float values[] = {-1, -2, -4, -1, -0.5F, -3, -2, -2, 0,
                            -1, -1, -1, 0,  -7,    -9, -3, -1, -2};
    const struct ax_scatter_topk put = {.logits = *logits,
                                        .ids = ax_tensor_2d(AX_I32, (void *)(uintptr_t)ids, 6, 3),
                                        .values =
                                            ax_tensor_2d(AX_F32, (void *)(uintptr_t)values, 6, 3)};
    assert_int_equal(ax_run_fill(ref.q, &(struct ax_fill){*logits, -1e30}), AX_OK);
    assert_int_equal(ax_run_scatter_topk(ref.q, &put), AX_OK);
}

static void distill_gradient(void **state) {
    (void)state;
    static const struct ax_head_options kinds[] = {{.beta = 0}, {.beta = 0.3}, {.beta = 1}, {0}};
    for (int i = 0; i < 4; i++) {
        const struct ax_shape shape = {
            .name = "distill", .rows = 6, .cols = 11, .options = &kinds[i]};
        struct ax_case c;
        case_open(&c, AX_OP_distill_backward, &shape, AX_F64, &ref);
        struct ax_distill_backward *b = c.args;
        struct distilled d = {.b = b, .split = 4};
        if (i == 3)
            keep_three(&b->teacher);
        struct ax_tensor stats = ax_tensor_2d(AX_F64, NULL, 6, AX_SOFTMAX_STATS),
                         parts = ax_tensor_2d(AX_F64, NULL, 12, 2);
        d.stats = like(&stats);
        d.parts = like(&parts);
        d.divergence = like(&b->lse);
        d.logprob = like(&b->lse);
        d.entropy = like(&b->lse);
        (void)distilled_loss(&d);
        for (int s = 0; s < 2; s++) {
            struct ax_distill_backward part = *b;
            part.first_col = s * d.split;
            const int64_t n = s ? 11 - d.split : d.split;
            part.logits = ax_tensor_cols(&b->logits, part.first_col, n);
            part.teacher = ax_tensor_cols(&b->teacher, part.first_col, n);
            part.dlogits = ax_tensor_cols(&b->dlogits, part.first_col, n);
            assert_int_equal(ax_run_distill_backward(ref.q, &part), AX_OK);
        }
        struct ax_tensor grad = copy_of(&b->dlogits);
        check("student's logits", &b->logits, &grad, distilled_loss, &d);
        ax_case_free(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(head_gradient, reset_pool),
        cmocka_unit_test_setup(nll_gradient, reset_pool),
        cmocka_unit_test_setup(distill_gradient, reset_pool),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
