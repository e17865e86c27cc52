/* The routers' loss by sequence is that of a step's documents, whatever micro-batches and data ranks have
 * them, in any order: loss, its part by sequence and all gradients are those of one micro-batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "parallel/fabric/comm_local.h"
#include "tests/tiny.h"

enum { DOCS = 5, TOKENS = 29, MOST = 1 << 18 };
static const int64_t lengths[DOCS + 1] = {9, 1, 6, 11, 2, 0};

/* Documents of each micro-batch of each data rank, −1 = the next one. */
struct grouping {
    const char *name;
    struct ax_mesh_sizes sizes;
    int micro;              /* of each data rank */
    int docs[DOCS * 2 + 4]; /* rank by rank */
};

static const struct grouping groupings[] = {
    {"one micro-batch", {1, 1, 1, 1, 1, 1}, 1, {0, 1, 2, 3, 4, -1}},
    {"another order", {1, 1, 1, 1, 1, 1}, 1, {3, 4, 1, 0, 2, -1}},
    {"a micro-batch each", {1, 1, 1, 1, 1, 1}, 5, {0, -1, 1, -1, 2, -1, 3, -1, 4, -1}},
    {"two", {1, 1, 1, 1, 1, 1}, 2, {0, 1, 2, -1, 3, 4, -1}},
    {"one of them without labels", {1, 1, 1, 1, 1, 1}, 2, {2, -1, 0, 1, 3, 4, -1}},
    {"one of them empty", {1, 1, 1, 1, 1, 1}, 3, {3, 4, -1, -1, 0, 1, 2, -1}},
    {"two data ranks", {1, 2, 1, 1, 1, 1}, 1, {0, 1, 2, -1, 3, 4, -1}},
    {"unequal data ranks", {1, 2, 1, 1, 1, 1}, 2, {0, -1, 1, -1, 2, 3, -1, 4, -1}},
    {"sharded data ranks", {1, 1, 2, 1, 1, 1}, 2, {-1, 0, -1, 1, 2, 3, -1, 4, -1}},
    {"parts of sequences", {1, 1, 2, 2, 1, 1}, 1, {0, 1, -1, 2, 3, 4, -1}},
    {"parts of rows", {1, 2, 1, 1, 2, 2}, 1, {0, 1, 2, 3, -1, 4, -1}},
    {"stages", {3, 2, 1, 1, 1, 1}, 2, {4, -1, 2, -1, 3, 0, -1, 1, -1}},
    {"a data rank without labels", {1, 2, 1, 1, 1, 1}, 1, {2, -1, 4, 3, 1, 0, -1}},
};

struct run {
    const struct ax_arch *arch;
    const struct grouping *g;
    struct ax_step_result r;
    double gradient[MOST];
    int64_t n;
};

/* Documents at `docs` up to −1; returns what follows. */
static const int *fill(struct ax_step *s, int m, const int *at, enum ax_status *st) {
    int32_t tokens[TOKENS], labels[TOKENS];
    float weight[TOKENS];
    struct ax_document docs[DOCS];
    int n = 0;
    int64_t used = 0;
    for (; *at >= 0; at++) {
        const int64_t len = lengths[*at];
        docs[n++] = (struct ax_document){
            .n = len, .tokens = tokens + used, .labels = labels + used, .weight = weight + used};
        for (int64_t i = 0; i < len; i++) {
            const int64_t k = *at * 17 + i * 5;
            tokens[used + i] = (int32_t)(k * k % s->model.arch.vocab_size);
            labels[used + i] = *at == 2 || i % 4 == 3 ? -1 : (int32_t)(k % 7);
            weight[used + i] = 0.5f + 0.25f * (float)(k % 3);
        }
        used += len;
    }
    *st = ax_batch_fill(&s->batches[m], s->rt->q, s->model.arch.vocab_size, n, docs);
    return at + 1;
}

static struct ax_step_options options_of(const struct grouping *g) {
    struct ax_step_options o = tiny_options(AX_F64, AX_RECOMPUTE_OFF, g->micro, lengths);
    o.sequence_coef = 0.2;
    return o;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct run *run = ctx;
    const struct grouping *g = run->g;
    const int rank = rt->mesh.coord[AX_ROLE_BATCH];
    struct ax_step s;
    struct ax_step_result r;
    const struct ax_step_options o = options_of(g);
    AX_TRY(ax_step_create(&s, rt, run->arch, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&s.model, 4), st, done);
    const int *at = g->docs;
    for (int other = 0; other < rank * g->micro; at++)
        other += *at < 0;
    for (int m = 0; m < g->micro; m++) {
        at = fill(&s, m, at, &st);
        if (st != AX_OK)
            goto done;
    }
    AX_TRY_GOTO(ax_step_gradients(&s, &r), st, done);
    if (ax_runtime_planning(rt) || rt->mesh.rank > 0)
        goto done;
    run->r = r;
    run->n = 0;
    for (int i = 0; rt->mesh.world == 1 && i < s.model.n_params; i++) {
        const struct ax_tensor grad = ax_model_grad(&s.model, &s.model.params[i]);
        AX_ASSERT(run->n + ax_tensor_numel(&grad) <= MOST);
        memcpy(run->gradient + run->n, grad.data, ax_tensor_bytes(&grad));
        run->n += ax_tensor_numel(&grad);
    }
done:
    ax_step_free(&s);
    return st;
}

static int ranks_of(const struct ax_mesh_sizes *s) {
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

static enum ax_status rank_body(struct ax_fabric *fabric, void *ctx) {
    struct run *run = ctx;
    const struct ax_mesh_sizes *sizes = &run->g->sizes;
    const struct ax_step_options so = options_of(run->g);
    struct ax_runtime_options o = {
        .backend = "ref", .threads = 1, .sizes = *sizes, .fabric = fabric};
    const int stage = fabric->rank / (ranks_of(sizes) / sizes->pp);
    AX_TRY(ax_step_slots(&so, stage, sizes->pp, &o.n_slots));
    return ax_runtime_run(&o, body, run, NULL);
}

static void expect(const struct grouping *g, const char *what, double got, double want) {
    if (!(fabs(got - want) <= 1e-12 * fmax(1, fabs(want))))
        fail_msg("%s: %s is %.15g, not %.15g", g->name, what, got, want);
}

static void grouping_changes_nothing(void **state) {
    (void)state;
    static struct run one, other;
    struct ax_arch arch;
    assert_int_equal(tiny_arch(&arch, "mixtral", true, ", \"num_local_experts\": 6"), AX_OK);
    for (size_t i = 0; i < sizeof groupings / sizeof *groupings; i++) {
        struct run *run = i == 0 ? &one : &other;
        *run = (struct run){.arch = &arch, .g = &groupings[i]};
        if (ax_local_run(ranks_of(&run->g->sizes), NULL, rank_body, run) != AX_OK)
            fail_msg("%s: %s", run->g->name, ax_error_text());
        expect(run->g, "the loss", run->r.loss, one.r.loss);
        expect(run->g, "the loss by sequence", run->r.sequence_loss, one.r.sequence_loss);
        expect(run->g, "the norm", run->r.grad_norm, one.r.grad_norm);
        for (int64_t k = 0; k < run->n; k++)
            expect(run->g, "a gradient", run->gradient[k], one.gradient[k]);
    }
    assert_true(one.n > 0 && one.r.sequence_loss >= 1);
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grouping_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
