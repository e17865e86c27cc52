/* Steps of a mixture of experts on emulated GPUs, on one and on two of ep (threads): the cpu's losses, and
 * the host waits for each layer's and micro-batch's counts once, whatever the number of products and rounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "parallel/comm_local.h"
#include "tests/tiny.h"

#define STEPS 2
#define MICRO 2

static const int64_t lengths[] = {9, 17, 5, 0};
static const char experts[] = ", \"num_local_experts\": 6, \"num_experts_per_tok\": 2";

struct runs {
    struct ax_arch arch;
    const char *backend;
    struct ax_mesh_sizes sizes;
    enum ax_recompute recompute;
    double room;
    bool adapter;
    /* out */
    double loss[STEPS], norm[STEPS];
    uint64_t waits[STEPS]; /* of the last rank */
    int rounds;
};

static const struct ax_peft_config lora = {
    .r = 4,
    .alpha = 8,
    .parameters = {2, (char *[]){"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}}};

static enum ax_status take_steps(struct ax_step *s, struct runs *r) {
    for (int i = 0; i < STEPS; i++) {
        struct ax_step_result result;
        AX_TRY(tiny_fill(s, lengths, (uint64_t)(10 * i + s->rt->mesh.rank)));
        const uint64_t before = s->rt->q->counters.waits;
        AX_TRY(ax_step_run(s, 1e-2, &result));
        if (ax_runtime_planning(s->rt) || s->rt->mesh.rank < s->rt->mesh.world - 1)
            continue;
        r->waits[i] = s->rt->q->counters.waits - before;
        r->loss[i] = result.loss;
        r->norm[i] = result.grad_norm;
    }
    for (int64_t i = 0; i < s->model.arch.n_layers && s->rt->mesh.rank == 0; i++)
        r->rounds =
            s->slots[0].expert_rounds[i].n > r->rounds ? s->slots[0].expert_rounds[i].n : r->rounds;
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct runs *r = ctx;
    struct ax_step s;
    struct ax_step_options o = tiny_options(AX_F32, r->recompute, MICRO, lengths);
    o.expert_room = r->room;
    o.expert_overlap = true;
    o.adapter = r->adapter ? &lora : NULL;
    AX_TRY(ax_step_create(&s, rt, &r->arch, &o));
    enum ax_status st = ax_model_init_random(&s.model, 5);
    if (st == AX_OK)
        st = tiny_adapters(&s.model, 7);
    if (st == AX_OK)
        st = take_steps(&s, r);
    ax_step_free(&s);
    return st;
}

static enum ax_status one_rank(struct ax_fabric *fabric, void *ctx) {
    struct runs *r = ctx;
    const struct ax_runtime_options o = {
        .backend = r->backend, .threads = 1, .sizes = r->sizes, .fabric = fabric};
    return ax_runtime_run(&o, body, r, NULL);
}

static void run(struct runs *r, const char *backend) {
    r->backend = backend;
    const enum ax_status st =
        r->sizes.ep > 1 ? ax_local_run(r->sizes.ep, NULL, one_rank, r) : one_rank(NULL, r);
    if (st != AX_OK)
        fail_msg("%s: %s", backend, ax_error_text());
}

static void check(int ep, enum ax_recompute recompute, double room, bool adapter) {
    struct runs cpu = {
        .sizes = {1, 1, ep, 1, 1, ep}, .recompute = recompute, .room = room, .adapter = adapter};
    assert_int_equal(tiny_arch(&cpu.arch, "mixtral", true, experts), AX_OK);
    struct runs cuda = cpu;
    run(&cpu, "cpu");
    run(&cuda, "cuda");
    assert_true(room == 0 || cuda.rounds > 1);
    for (int i = 0; i < STEPS; i++) {
        if (fabs(cuda.loss[i] / cpu.loss[i] - 1) > 1e-5 ||
            fabs(cuda.norm[i] / cpu.norm[i] - 1) > 1e-4)
            fail_msg("ep %d, step %d: loss %.9g, norm %.9g; on the cpu %.9g, %.9g", ep, i + 1,
                     cuda.loss[i], cuda.norm[i], cpu.loss[i], cpu.norm[i]);
        assert_int_equal(cuda.waits[i], cpu.arch.n_layers * MICRO + 1);
    }
    ax_arch_free(&cpu.arch);
}

static void counts_are_waited_for_once(void **state) {
    (void)state;
    check(1, AX_RECOMPUTE_OFF, 0, false);
    check(1, AX_RECOMPUTE_ON, 0, false);
    check(1, AX_RECOMPUTE_SELECTIVE, 0, true);
}

static void counts_of_ranks_are_waited_for_once(void **state) {
    (void)state;
    check(2, AX_RECOMPUTE_OFF, 0, false);
    check(2, AX_RECOMPUTE_ON, 0.3, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_waited_for_once),
        cmocka_unit_test(counts_of_ranks_are_waited_for_once),
    };
    return cmocka_run_group_tests_name("cuda experts", tests, NULL, NULL);
}
