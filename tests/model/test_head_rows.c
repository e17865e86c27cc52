/* The head looks at tokens with a label only: with a batch whose size may vary (`round`) loss and
 * gradients are those of the head over all tokens, whatever is labeled, in one walk and in two,
 * with smoothing, and dropout of the head's adapter, which is numbered by token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tests/tiny.h"

#define TOKENS 45 /* of the documents, and 3 of padding */
#define ROUND  16

static const int64_t lengths[] = {20, 7, 18, 0};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* Which tokens have a label. */
enum pattern { SOME, ALL, ONE, LAST, NOT_IN_THE_SECOND, NONE, PATTERNS };

static bool is_labeled(enum pattern pattern, int64_t t) {
    switch (pattern) {
    case ALL:
        return true;
    case ONE:
        return t == 23;
    case LAST:
        return t == TOKENS - 1;
    case NOT_IN_THE_SECOND:
        return (t < 20 || t >= 27) && t % 3 != 0;
    case SOME:
        return t % 5 < 2;
    default:
        return false;
    }
}

struct probe {
    const struct ax_arch *arch;
    struct ax_step_options o;
    enum pattern pattern;
    bool varies;
    /* out */
    double loss, *grads;
    int64_t n, n_rows;
    bool skipped;
};

static enum ax_status fill(struct ax_step *s, const struct probe *p) {
    static int32_t tokens[TOKENS], labels[TOKENS];
    static float weight[TOKENS];
    struct ax_document docs[3];
    int64_t at = 0;
    for (int64_t t = 0; t < TOKENS; t++) {
        const struct ax_rng_key key = {5, 0, 0};
        tokens[t] = (int32_t)ax_rng_below(key, 3 * (uint64_t)t, 97);
        labels[t] = (int32_t)ax_rng_below(key, 3 * (uint64_t)t + 1, 97);
        weight[t] = 0.5f + ax_rng_uniform(key, 3 * (uint64_t)t + 2);
        if (is_labeled(p->pattern, t))
            continue;
        if (t % 2 == 0) /* a weight of 0 is no label either */
            labels[t] = -1;
        else
            weight[t] = 0;
    }
    for (int d = 0; d < 3; at += lengths[d++])
        docs[d] = (struct ax_document){
            .n = lengths[d], .tokens = tokens + at, .labels = labels + at, .weight = weight + at};
    s->batches[0].round = p->varies ? ROUND : 0;
    return ax_batch_fill(&s->batches[0], s->rt->q, 97, 3, docs);
}

/* The labeled tokens in order, then, where the size is fixed, the others. */
static void check_rows(const struct ax_batch *b, const struct probe *p) {
    const int32_t *rows = b->rows.data, *labels = b->labels.data;
    const float *weight = b->weight.data;
    bool seen[3 * ROUND] = {false};
    int64_t labeled = 0;
    for (int64_t t = 0; t < TOKENS; t++)
        labeled += is_labeled(p->pattern, t);
    assert_int_equal(b->trained, labeled);
    assert_int_equal(b->n_rows, p->varies ? labeled : b->T);
    assert_int_equal(b->labels.shape[0], b->n_rows);
    for (int64_t i = 0; i < b->n_rows; i++) {
        assert_in_range(rows[i], 0, b->T - 1);
        assert_false(seen[rows[i]]);
        seen[rows[i]] = true;
        assert_int_equal(i < labeled, rows[i] < TOKENS && is_labeled(p->pattern, rows[i]));
        assert_int_equal(labels[i] >= 0, i < labeled);
        assert_int_equal(weight[i] > 0, i < labeled);
        if (i > 0 && i != labeled)
            assert_true(rows[i] > rows[i - 1]);
    }
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct probe *p = ctx;
    struct ax_step s;
    struct ax_step_result r;
    AX_TRY(ax_step_create(&s, rt, p->arch, &p->o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&s.model, 3), st, done);
    AX_TRY_GOTO(tiny_adapters(&s.model, 3), st, done);
    AX_TRY_GOTO(fill(&s, p), st, done);
    AX_TRY_GOTO(ax_step_gradients(&s, &r), st, done);
    if (ax_runtime_planning(rt))
        goto done;
    check_rows(&s.batches[0], p);
    p->n_rows = s.batches[0].n_rows;
    p->loss = r.loss;
    p->skipped = r.skipped;
    p->n = ax_model_trainable(&s.model);
    AX_TRY_GOTO(ax_alloc(&p->grads, (size_t)p->n, sizeof *p->grads), st, done);
    double *out = p->grads;
    for (int i = 0; i < s.model.n_params; i++) {
        const struct ax_tensor g = ax_model_grad(&s.model, &s.model.params[i]);
        if (!g.data)
            continue;
        ax_convert(AX_F64, out, g.dtype, g.data, ax_tensor_numel(&g));
        out += ax_tensor_numel(&g);
    }
done:
    ax_step_free(&s);
    return st;
}

static void run(struct probe *p, const char *backend, bool varies) {
    const struct ax_runtime_options ro = {
        .backend = backend, .threads = 2, .may_stay_below = varies};
    p->varies = varies;
    must(ax_runtime_run(&ro, body, p, NULL));
}

/* Some labeled rows against all rows; the order of the sums differs. */
static void compare(struct probe p, const char *backend, double tolerance) {
    struct probe whole = p;
    run(&p, backend, true);
    run(&whole, backend, false);
    assert_true(p.skipped == whole.skipped && p.skipped == (p.pattern == NONE));
    assert_true(p.n_rows <= whole.n_rows && p.n == whole.n);
    if (fabs(p.loss - whole.loss) > tolerance * fabs(whole.loss))
        fail_msg("pattern %d: loss %.17g, over all tokens %.17g", p.pattern, p.loss, whole.loss);
    double largest = 0, apart = 0;
    for (int64_t i = 0; i < p.n; i++) {
        largest = fmax(largest, fabs(whole.grads[i]));
        apart = fmax(apart, fabs(p.grads[i] - whole.grads[i]));
    }
    if (apart > tolerance * largest || (largest > 0) != (p.pattern != NONE))
        fail_msg("pattern %d: gradients are %g apart, the largest is %g", p.pattern, apart,
                 largest);
    ax_free(p.grads);
    ax_free(whole.grads);
}

/* The step's documents fill TOKENS of the 3·ROUND it has room for. */
static struct ax_step_options options(enum ax_dtype dtype) {
    struct ax_step_options o = tiny_options(dtype, AX_RECOMPUTE_SELECTIVE, 1, lengths);
    o.tokens = 3 * ROUND;
    return o;
}

static void any_labels(void **state) {
    (void)state;
    static const struct {
        const char *backend;
        enum ax_dtype dtype;
        double tolerance;
    } kinds[] = {{"ref", AX_F64, 1e-12}, {"cpu", AX_F32, 1e-5}, {"cpu", AX_BF16, 2e-2}};
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", true, ""));
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int pattern = 0; pattern < PATTERNS; pattern++)
            compare((struct probe){.arch = &arch,
                                   .o = options(kinds[k].dtype),
                                   .pattern = (enum pattern)pattern},
                    kinds[k].backend, kinds[k].tolerance);
    ax_arch_free(&arch);
}

/* With smoothing and z-loss, in one walk and in two. */
static void other_objectives(void **state) {
    (void)state;
    struct ax_sft_options smooth = {.label_smoothing = 0.1, .z_loss = 0.01};
    struct ax_objective objective = ax_objective_sft_with(&smooth);
    struct ax_arch arch;
    must(tiny_arch(&arch, "qwen3", false, ""));
    for (int linear = 0; linear < 2; linear++) {
        objective.head.linear = linear;
        for (int pattern = 0; pattern < PATTERNS; pattern++) {
            struct probe p = {
                .arch = &arch, .o = options(AX_F64), .pattern = (enum pattern)pattern};
            p.o.objective = &objective;
            compare(p, "ref", 1e-12);
        }
    }
    ax_arch_free(&arch);
}

static void dropout_is_numbered_by_token(void **state) {
    (void)state;
    static char *head[] = {"lm_head"};
    const struct ax_peft_config config = {.r = 3, .alpha = 6, .dropout = 0.4, .targets = {1, head}};
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    for (int pattern = 0; pattern < PATTERNS; pattern++) {
        struct probe p = {.arch = &arch, .o = options(AX_F64), .pattern = (enum pattern)pattern};
        p.o.model.adapter = &config;
        compare(p, "ref", 1e-12);
        p.o.model.dtype = AX_F32;
        compare(p, "cpu", 1e-5);
    }
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_labels),
        cmocka_unit_test(other_objectives),
        cmocka_unit_test(dropout_is_numbered_by_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
