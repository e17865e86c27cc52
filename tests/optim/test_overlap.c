/* Rows that travel over tp or to experts behind products are those that are waited for in line, to the bit
 * where sums have the same order; each transfer has a product to hide behind; and one rank does nothing more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "optim/plan/plan.h"
#include "parallel/fabric/comm_local.h"
#include "tests/tiny.h"

enum { STEPS = 3, MICRO = 2, MAX_WORLD = 4 };
static const int64_t lengths[] = {9, 1, 14, 0};
static const struct ax_peft_config lora = {
    .r = 3, .alpha = 6, .targets = {1, (char *[]){"q_proj"}}};
static const struct ax_peft_config all_lora = {
    .r = 3, .alpha = 6, .dropout = 0.2, .all_linear = true};
static const struct ax_peft_config dora = {.r = 3, .alpha = 6, .all_linear = true, .dora = true};
static const struct ax_peft_config dropped_dora = {
    .r = 3, .alpha = 6, .dropout = 0.2, .all_linear = true, .dora = true};
static const struct ax_peft_config expert_lora = {
    .r = 3,
    .alpha = 6,
    .targets = {1, (char *[]){"q_proj"}},
    .parameters = {2, (char *[]){"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}}};

struct run {
    const char *type, *extra; /* more of config.json; NULL: none */
    struct ax_mesh_sizes sizes;
    enum ax_dtype dtype;
    enum ax_recompute recompute;
    bool overlap, prefetch;
    const struct ax_peft_config *adapter;
    enum ax_cp_method cp_method;
    enum ax_pipeline_kind pipeline;
    double room;          /* of a round of experts; 0 = the default */
    enum ax_storage base; /* of frozen matrices, of experts, too */
    struct ax_arch arch;
    /* out */
    uint64_t masters[MAX_WORLD], messages, exchanges, started, waits, host_waits;
    uint64_t launches[AX_OP_COUNT], blocks, allocations;
    double loss[STEPS], norm[STEPS];
    struct ax_arena_plan plan;
};

static int world_of(const struct run *r) {
    const struct ax_mesh_sizes *s = &r->sizes;
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

static struct ax_step_options options(const struct run *r) {
    struct ax_step_options o = tiny_options(r->dtype, r->recompute, MICRO, lengths);
    o.model.tp_overlap = o.model.expert_overlap = r->overlap;
    o.model.sharding.prefetch = r->prefetch;
    o.pipeline = r->pipeline;
    o.model.expert_room = r->room;
    o.model.base_store = r->base;
    o.model.store_experts = r->base != AX_STORAGE_PLAIN;
    o.model.cp_method = r->cp_method;
    o.model.adapter = r->adapter;
    return o;
}

static enum ax_status take_steps(struct run *r, struct ax_step *s) {
    const int rank = s->rt->mesh.rank;
    const bool planning = ax_runtime_planning(s->rt);
    AX_TRY(ax_model_init_random(&s->model, 5));
    if (r->adapter)
        AX_TRY(tiny_adapters(&s->model, 7));
    for (int i = 0; i < STEPS; i++) {
        struct ax_step_result result;
        AX_TRY(tiny_fill(s, lengths, (uint64_t)(10 * i)));
        const uint64_t blocks = ax_mem_live_blocks(), calls = ax_mem_calls();
        AX_TRY(ax_step_run(s, 1e-2, &result));
        if (rank > 0 || planning)
            continue;
        r->blocks = ax_mem_live_blocks() - blocks;
        r->allocations = ax_mem_calls() - calls;
        r->loss[i] = result.loss;
        r->norm[i] = result.grad_norm;
    }
    if (planning)
        return AX_OK;
    if (rank == 0) {
        for (int role = 0; role < AX_ROLE_COUNT; role++) {
            r->messages += s->rt->comms[role].calls[AX_SEND_RECV];
            r->exchanges += s->rt->comms[role].calls[AX_ALL_TO_ALL_V];
            r->started += s->rt->comms[role].sequence;
            r->waits += s->rt->comms[role].waits;
        }
        r->host_waits = s->rt->q->counters.waits;
        memcpy(r->launches, s->rt->q->counters.launches, sizeof r->launches);
    }
    return tiny_hash_masters(s, &r->masters[rank]);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct run *r = ctx;
    struct ax_step s;
    const struct ax_step_options o = options(r);
    AX_TRY(ax_step_create(&s, rt, &r->arch, &o));
    const enum ax_status st = take_steps(r, &s);
    ax_step_free(&s);
    return st;
}

static enum ax_status run_rank(struct ax_fabric *fabric, void *ctx) {
    struct run *r = ctx;
    const struct ax_runtime_options o = {.backend = r->dtype == AX_F64 ? "ref" : "cpu",
                                         .threads = 1,
                                         .n_slots = MICRO,
                                         .sizes = r->sizes,
                                         .fabric = fabric};
    return ax_runtime_run(&o, body, r, fabric->rank == 0 ? &r->plan : NULL);
}

static void run(struct run *r) {
    const uint64_t live = ax_mem_live_blocks();
    assert_int_equal(tiny_arch(&r->arch, r->type, true, r->extra ? r->extra : ""), AX_OK);
    if (ax_local_run(world_of(r), NULL, run_rank, r) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_arch_free(&r->arch);
    assert_int_equal(ax_mem_live_blocks(), live);
}

#define BIASES ", \"attention_bias\": true, \"mlp_bias\": true"

/* Two parts have one order. More are summed one by one in accumulation dtype, where the sum in line is
 * rounded once: three additions, each within half a unit in the last place. */
static void traveling_changes_no_bit(void **state) {
    (void)state;
    static const struct run kinds[] = {
        {.type = "llama", .sizes = {1, 1, 1, 1, 2, 1}, .dtype = AX_F32},
        {.type = "llama",
         .sizes = {1, 1, 1, 1, 2, 1},
         .dtype = AX_F64,
         .recompute = AX_RECOMPUTE_ON},
        {.type = "qwen3",
         .sizes = {1, 1, 1, 1, 2, 1},
         .dtype = AX_BF16,
         .recompute = AX_RECOMPUTE_SELECTIVE},
        {.type = "qwen3", .sizes = {1, 1, 2, 1, 2, 1}, .dtype = AX_F32},
        {.type = "llama", .sizes = {1, 1, 1, 2, 2, 1}, .dtype = AX_F32},
        {.type = "llama", .sizes = {1, 1, 1, 1, 2, 1}, .dtype = AX_F32, .adapter = &lora},
        {.type = "llama",
         .extra = BIASES,
         .sizes = {1, 1, 2, 1, 2, 1},
         .dtype = AX_F32,
         .adapter = &all_lora},
        {.type = "qwen3",
         .sizes = {1, 1, 1, 1, 2, 1},
         .dtype = AX_BF16,
         .adapter = &all_lora,
         .recompute = AX_RECOMPUTE_ON,
         .base = AX_STORAGE_NF4},
        {.type = "llama",
         .extra = BIASES,
         .sizes = {1, 1, 2, 1, 2, 1},
         .dtype = AX_F32,
         .adapter = &dora,
         .base = AX_STORAGE_INT8},
        {.type = "llama",
         .extra = BIASES,
         .sizes = {1, 1, 1, 1, 2, 1},
         .dtype = AX_F32,
         .adapter = &dropped_dora},
        {.type = "llama",
         .sizes = {1, 1, 2, 1, 2, 1},
         .dtype = AX_BF16,
         .adapter = &lora,
         .base = AX_STORAGE_INT4},
        {.type = "qwen3",
         .sizes = {1, 1, 1, 1, 4, 1},
         .dtype = AX_F32,
         .adapter = &dora,
         .base = AX_STORAGE_NF4},
        {.type = "llama", .sizes = {1, 1, 1, 1, 4, 1}, .dtype = AX_F32},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct run off = kinds[i], on = kinds[i];
        on.overlap = true;
        run(&off);
        run(&on);
        assert_true(off.messages == 0 && on.messages > 0);
        assert_true(off.loss[0] != off.loss[STEPS - 1]);
        if (kinds[i].sizes.tp == 2) {
            assert_memory_equal(on.loss, off.loss, sizeof off.loss);
            assert_memory_equal(on.norm, off.norm, sizeof off.norm);
            assert_memory_equal(on.masters, off.masters, sizeof off.masters);
        }
        for (int k = 0; k < STEPS; k++) {
            assert_true(fabs(on.loss[k] - off.loss[k]) <= 1e-6 * off.loss[k]);
            assert_true(fabs(on.norm[k] - off.norm[k]) <= 1e-5 * off.norm[k]);
        }
    }
}

/* What a planned step enqueues. Returns the number of layers. */
static uint64_t record(struct run r, struct ax_recording *recording) {
    struct ax_plan *plan;
    assert_int_equal(tiny_arch(&r.arch, r.type, true, r.extra ? r.extra : ""), AX_OK);
    assert_int_equal(ax_alloc(&plan, 1, sizeof *plan), AX_OK);
    const struct ax_step_options o = options(&r);
    const struct ax_runtime_options ro = {
        .backend = "cpu", .threads = 1, .n_slots = MICRO, .sizes = r.sizes, .world = world_of(&r)};
    *recording = (struct ax_recording){0};
    assert_int_equal(ax_plan_record(plan, recording, &ro, &r.arch, &o), AX_OK);
    const uint64_t layers = (uint64_t)r.arch.n_layers;
    ax_free(plan);
    ax_arch_free(&r.arch);
    return layers;
}

/* Transfers of a role in a planned step, of tp in its layers; those with a matrix product between start and
 * wait. Returns the number of layers. */
static uint64_t count_of(struct run r, enum ax_role role, enum ax_collective_kind kind,
                         uint64_t *all, uint64_t *hidden) {
    struct ax_recording recording;
    const uint64_t layers = record(r, &recording);
    *all = *hidden = 0;
    for (size_t i = 0; i < recording.n; i++) {
        const struct ax_event *e = &recording.events[i];
        const bool outside = e->unit < 2 || e->unit > (int)layers + 1;
        bool product = false;
        if (e->kind != AX_EVENT_START || (role == AX_ROLE_TP && outside) ||
            e->transfer.lane != (int)role || e->transfer.bytes == 0 ||
            (kind != AX_COLLECTIVE_COUNT && e->transfer.kind != (int)kind))
            continue;
        for (size_t k = i + 1; k < recording.n; k++) {
            const struct ax_event *next = &recording.events[k];
            if (next->kind == AX_EVENT_WAIT && next->transfer.lane == (int)role &&
                next->transfer.ticket == e->transfer.ticket)
                break;
            product |= next->kind == AX_EVENT_OP &&
                       (next->op.op == AX_OP_gemm || next->op.op == AX_OP_grouped_gemm ||
                        next->op.op == AX_OP_packed_gemm);
        }
        ++*all;
        *hidden += product;
    }
    ax_recording_free(&recording);
    return layers;
}

/* A layer's micro-batch has ten: two gathers and two sums forward, the same backward, and there two more
 * gathers of what columns read. The last part of a sum hides behind the product of the own rows. Of frozen
 * weights dx is summed in parts, too; without an adapter nothing reads x again; and below the lowest
 * adapters, those of q, k and v, there is no dx. In line are only the norms of DoRA's rows where ranks share
 * them, a number per output, in both directions. */
static void each_transfer_has_a_product(void **state) {
    (void)state;
    static const struct {
        struct run run;
        int tp;
        uint64_t each, less, sums; /* of a layer's micro-batch; of the lowest's; each, in line */
    } cases[] = {
        {{.type = "llama"}, 2, 10, 0, 0},
        {{.type = "llama"}, 4, 4 + 3 * 6, 0, 0},
        {{.type = "llama", .adapter = &all_lora}, 2, 10, 1, 0},
        {{.type = "llama", .adapter = &all_lora}, 4, 2 + 3 * 8, 3, 0},
        {{.type = "llama", .adapter = &dora, .base = AX_STORAGE_NF4}, 2, 14, 1, 4},
        {{.type = "llama", .adapter = &lora, .base = AX_STORAGE_INT8}, 2, 9, 1, 0},
        {{.type = "llama", .adapter = &lora, .base = AX_STORAGE_INT4}, 4, 1 + 3 * 8, 3, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run r = cases[i].run;
        uint64_t all, hidden;
        r.sizes = (struct ax_mesh_sizes){1, 1, 1, 1, cases[i].tp, 1};
        r.dtype = AX_BF16;
        count_of(r, AX_ROLE_TP, AX_COLLECTIVE_COUNT, &all, &hidden);
        assert_true(all > 0 && hidden == 0);
        r.overlap = true;
        const uint64_t layers = count_of(r, AX_ROLE_TP, AX_COLLECTIVE_COUNT, &all, &hidden);
        assert_int_equal(all, MICRO * (cases[i].each * layers - cases[i].less));
        assert_int_equal(hidden, all - MICRO * cases[i].sums * layers);
    }
}

/* A unit's second sum travels while the backward after the next one runs: not those of the last layers, for which the
 * embedding's is too short. */
static void sums_over_replicas_have_a_product(void **state) {
    (void)state;
    struct run r = {.type = "llama", .sizes = {1, 2, 2, 1, 1, 1}, .dtype = AX_BF16};
    uint64_t all, hidden;
    const uint64_t layers = count_of(r, AX_ROLE_DP_REPLICATE, AX_ALL_REDUCE, &all, &hidden);
    assert_true(all == layers + 2 && hidden == 0);
    r.prefetch = true;
    (void)count_of(r, AX_ROLE_DP_REPLICATE, AX_ALL_REDUCE, &all, &hidden);
    assert_true(all == layers + 2 && hidden == layers - 1);
}

#define SIX   ", \"num_local_experts\": 6, \"num_experts_per_tok\": 3"
#define EIGHT ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 24"
#define GATED EIGHT ", \"shared_expert_intermediate_size\": 30"
#define OSS   ", \"num_local_experts\": 8, \"num_experts_per_tok\": 3"
#define DEEP                                                                                       \
    ", \"kv_lora_rank\": 10, \"q_lora_rank\": null, \"qk_nope_head_dim\": 7, "                     \
    "\"qk_rope_head_dim\": 6, \"v_head_dim\": 5, \"n_routed_experts\": 8, "                        \
    "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, \"n_shared_experts\": 2, "         \
    "\"n_group\": 1, \"topk_group\": 1, \"first_k_dense_replace\": 0"

/* An expert's products have the same rows, whichever half they come in. */
static void halves_change_no_bit(void **state) {
    (void)state;
    static const struct run kinds[] = {
        {.type = "mixtral", .extra = SIX, .sizes = {1, 1, 2, 1, 1, 2}, .dtype = AX_F32},
        {.type = "qwen2_moe",
         .extra = GATED,
         .sizes = {1, 1, 4, 1, 1, 2},
         .dtype = AX_BF16,
         .recompute = AX_RECOMPUTE_SELECTIVE},
        {.type = "qwen3_moe",
         .extra = EIGHT,
         .sizes = {1, 1, 2, 1, 2, 4},
         .dtype = AX_F32,
         .recompute = AX_RECOMPUTE_ON,
         .room = 0.4},
        {.type = "deepseek_v3",
         .extra = DEEP,
         .sizes = {1, 1, 1, 1, 2, 2},
         .dtype = AX_F64,
         .recompute = AX_RECOMPUTE_ON},
        {.type = "gpt_oss",
         .extra = OSS,
         .sizes = {1, 2, 2, 1, 1, 2},
         .dtype = AX_F32,
         .room = 0.4},
        {.type = "qwen3_moe",
         .extra = EIGHT,
         .sizes = {1, 1, 2, 1, 1, 2},
         .dtype = AX_F32,
         .adapter = &expert_lora,
         .recompute = AX_RECOMPUTE_SELECTIVE},
        {.type = "mixtral",
         .extra = SIX,
         .sizes = {1, 1, 1, 2, 1, 2},
         .dtype = AX_BF16,
         .adapter = &expert_lora,
         .base = AX_STORAGE_NF4,
         .room = 0.4},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct run off = kinds[i], on = kinds[i];
        on.overlap = true;
        run(&off);
        run(&on);
        assert_true(on.exchanges == 2 * off.exchanges && off.exchanges > 0);
        assert_true(off.loss[0] != off.loss[STEPS - 1]);
        assert_memory_equal(on.loss, off.loss, sizeof off.loss);
        assert_memory_equal(on.norm, off.norm, sizeof off.norm);
        assert_memory_equal(on.masters, off.masters, sizeof off.masters);
    }
}

/* Of the eight exchanges of a layer's micro-batch, one half's ways are behind the other's products. The first
 * half's way there, and forward the last one's back, need a shared expert. With one expert a rank there is
 * one half, whose way back in backward is behind the gradient of gate and up. */
static void each_half_has_a_product(void **state) {
    (void)state;
    static const struct {
        struct run run;
        uint64_t all, hidden; /* of a layer's micro-batch */
    } cases[] = {
        {{.type = "mixtral", .extra = SIX, .sizes = {1, 1, 2, 1, 1, 2}}, 4, 0},
        {{.type = "mixtral", .extra = SIX, .sizes = {1, 1, 2, 1, 1, 2}, .overlap = true}, 8, 5},
        {{.type = "mixtral", .extra = SIX, .sizes = {1, 1, 6, 1, 1, 6}, .overlap = true}, 4, 1},
        {{.type = "qwen2_moe", .extra = GATED, .sizes = {1, 1, 2, 1, 1, 2}}, 4, 0},
        {{.type = "qwen2_moe", .extra = GATED, .sizes = {1, 1, 2, 1, 1, 2}, .overlap = true}, 8, 8},
        {{.type = "deepseek_v3", .extra = DEEP, .sizes = {1, 1, 2, 1, 1, 2}, .overlap = true},
         8,
         8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct run r = cases[i].run;
        uint64_t all, hidden;
        r.dtype = AX_BF16;
        const uint64_t layers = MICRO * count_of(r, AX_ROLE_EP, AX_ALL_TO_ALL_V, &all, &hidden);
        assert_int_equal(all, cases[i].all * layers);
        assert_int_equal(hidden, cases[i].hidden * layers);
    }
}

static void must_enqueue_the_same(struct run a, struct run b) {
    struct ax_recording first, second;
    record(a, &first);
    record(b, &second);
    assert_true(first.n > 0);
    assert_int_equal(first.n, second.n);
    for (size_t i = 0; i < first.n; i++) {
        const struct ax_event *x = &first.events[i], *y = &second.events[i];
        assert_int_equal(x->kind, y->kind);
        if (x->kind == AX_EVENT_OP)
            assert_true(x->op.op == y->op.op && x->op.flops == y->op.flops &&
                        x->op.bytes == y->op.bytes);
        else /* nothing travels, and the host has no tier to copy to */
            fail_msg("event %zu is of kind %d", i, (int)x->kind);
    }
    ax_recording_free(&first);
    ax_recording_free(&second);
}

/* With one rank nothing is launched, copied, allocated or waited for besides; no key has an effect. */
static void one_rank_pays_nothing(void **state) {
    (void)state;
    struct run plain = {.type = "llama",
                        .sizes = {1, 1, 1, 1, 1, 1},
                        .dtype = AX_F32,
                        .cp_method = AX_CP_GATHER},
               both = plain;
    both.overlap = both.prefetch = true;
    both.cp_method = AX_CP_RING;
    both.pipeline = AX_PIPELINE_ZERO_BUBBLE;
    for (int experts = 0; experts < 2; experts++) {
        if (experts) {
            plain.type = both.type = "qwen2_moe";
            plain.extra = both.extra = GATED;
        }
        run(&plain);
        run(&both);
        assert_memory_equal(both.launches, plain.launches, sizeof plain.launches);
        assert_memory_equal(both.masters, plain.masters, sizeof plain.masters);
        assert_memory_equal(&both.plan, &plain.plan, sizeof plain.plan);
        assert_int_equal(both.started, plain.started);
        assert_int_equal(both.waits, plain.waits);
        assert_int_equal(both.host_waits, plain.host_waits);
        assert_int_equal(both.blocks, plain.blocks);
        assert_int_equal(both.allocations, plain.allocations);
        must_enqueue_the_same(both, plain);
        assert_int_equal(both.messages, 0);
        assert_int_equal(both.launches[AX_OP_attention_merge], 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traveling_changes_no_bit),
        cmocka_unit_test(each_transfer_has_a_product),
        cmocka_unit_test(halves_change_no_bit),
        cmocka_unit_test(each_half_has_a_product),
        cmocka_unit_test(sums_over_replicas_have_a_product),
        cmocka_unit_test(one_rank_pays_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
