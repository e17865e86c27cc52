/* What ranks keep of a model between its uses (ax_sharding): how often they gather and reduce, what
 * that costs in memory and saves in traffic, and that it changes no bit it should not. Whether sums
 * are right: tests/cmd/test_mesh.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "parallel/fabric/comm_local.h"
#include "tests/tiny.h"

enum { STEPS = 3, MICRO = 3, MAX_WORLD = 6 };

static const int64_t lengths[] = {9, 1, 14, 0};
static const struct ax_peft_config lora = {.r = 3, .alpha = 6, .all_linear = true};

struct sharded {
    struct ax_mesh_sizes sizes;
    struct ax_sharding sharding;
    enum ax_dtype dtype;
    int micro; /* 0: MICRO */
    bool adapter, tied, fp8;
    enum ax_recompute recompute;
    struct ax_arch arch;
    /* out; of rank 0 where not per rank */
    uint64_t masters[MAX_WORLD];
    double loss[STEPS], norm[STEPS];
    uint64_t gathers[MAX_WORLD], reductions[MAX_WORLD]; /* on fsdp, of the last step */
    uint64_t segments[MAX_WORLD], trained[MAX_WORLD];   /* of this rank's units */
    double sent[MAX_WORLD];                             /* bytes of these reductions */
    double brought[MAX_WORLD];                          /* … and of these gathers */
    double plain[MAX_WORLD], coded[MAX_WORLD];    /* elements of a shard's segments: bytes if … */
    int64_t trained_shard[MAX_WORLD];             /* elements */
    size_t layers[MAX_WORLD], largest[MAX_WORLD]; /* gathered bytes: all, of one */
    size_t layer_grads[MAX_WORLD], largest_grad[MAX_WORLD]; /* unsharded gradients */
    bool bf16_gradients;                                    /* none needs more bits */
    uint64_t arriving[MAX_WORLD], summed[MAX_WORLD];        /* units, seen at each forward of one */
    uint64_t units;
    struct ax_arena_plan plan[MAX_WORLD];
};

struct ranked {
    struct sharded *s;
    int rank;
};

static enum ax_status look_for_long_gradients(const struct ax_step *s, bool *none) {
    *none = true;
    for (int u = 0; u < s->model.n_units; u++)
        for (int k = 0; k < s->model.units[u].n_segments; k++) {
            const struct ax_tensor *t = &s->model.units[u].segments[k].grad;
            uint32_t *bits;
            if (!t->data || !ax_chunks_have(&s->model.chunks, u))
                continue;
            AX_TRY(ax_alloc(&bits, (size_t)t->shape[0], sizeof *bits));
            const enum ax_status st =
                ax_queue_read(s->rt->q, t->data, bits, ax_tensor_bytes(t), NULL);
            for (int64_t i = 0; st == AX_OK && i < t->shape[0]; i++)
                *none &= (bits[i] & 0xFFFF) == 0;
            ax_free(bits);
            AX_TRY(st);
        }
    return AX_OK;
}

/* Sizes by hand, from the segments' numbers. */
static void measure(struct sharded *s, int rank, const struct ax_step *step) {
    for (int u = 0; u < step->model.n_units; u++) {
        const struct ax_unit *unit = &step->model.units[u];
        size_t full = 0, grad = 0;
        if (!ax_chunks_have(&step->model.chunks, u))
            continue;
        for (int k = 0; k < unit->n_segments; k++) {
            const struct ax_segment *seg = &unit->segments[k];
            full += ax_arena_round((size_t)seg->numel * ax_dtype_size(seg->compute));
            grad += seg->trainable ? ax_arena_round((size_t)seg->numel * sizeof(float)) : 0;
            s->segments[rank]++;
            s->plain[rank] += (double)seg->shard_numel * (double)ax_dtype_size(seg->compute);
            s->coded[rank] += seg->n_coded > 0 ? (double)seg->shard_numel : 0;
            s->trained[rank] += seg->trainable;
            s->trained_shard[rank] += seg->trainable ? seg->shard_numel : 0;
        }
        if (u == 0 || u == step->model.n_units - 1)
            continue; /* they have buffers of their own in any case */
        s->layers[rank] += full;
        s->layer_grads[rank] += grad;
        s->largest[rank] = full > s->largest[rank] ? full : s->largest[rank];
        s->largest_grad[rank] = grad > s->largest_grad[rank] ? grad : s->largest_grad[rank];
    }
}

struct watched {
    const struct ax_step *step;
    uint64_t *arriving, *summed;
};

/* What is under way as a unit's forward begins: the next unit, and the sum of the last backward. */
static void watch(void *ctx, const char *what, int layer, const struct ax_tensor *t) {
    const struct watched *w = ctx;
    const struct ax_model *m = &w->step->model;
    const int next = layer + 2;
    (void)t;
    if (strcmp(what, "hidden") != 0)
        return;
    *w->arriving +=
        next < m->n_units && ax_chunks_have(&m->chunks, next) && m->units[next].arriving;
    *w->summed += w->step->reduction.unit != NULL;
}

static enum ax_status run_steps(const struct ranked *r, struct ax_step *step) {
    struct sharded *s = r->s;
    struct ax_comm *c = &step->rt->comms[AX_ROLE_FSDP];
    const int data_rank = step->rt->mesh.coord[AX_ROLE_BATCH];
    const bool planning = ax_runtime_planning(step->rt);
    struct watched watched = {step, &s->arriving[r->rank], &s->summed[r->rank]};
    for (int m = 0; m < step->o.n_microbatches && !planning; m++) {
        step->passes[m].tap = watch;
        step->passes[m].tap_ctx = &watched;
    }
    AX_TRY(ax_model_init_random(&step->model, 5));
    if (s->adapter)
        AX_TRY(tiny_adapters(&step->model, 7));
    for (int i = 0; i < STEPS; i++) {
        struct ax_step_result result;
        AX_TRY(tiny_fill(step, lengths, (uint64_t)(10 * i + data_rank)));
        const uint64_t gathers = c->calls[AX_ALL_GATHER], sums = c->calls[AX_REDUCE_SCATTER];
        const double brought = c->bytes_sent[AX_ALL_GATHER];
        AX_TRY(ax_step_gradients(step, &result));
        s->gathers[r->rank] = c->calls[AX_ALL_GATHER] - gathers;
        s->reductions[r->rank] = c->calls[AX_REDUCE_SCATTER] - sums;
        s->brought[r->rank] = c->bytes_sent[AX_ALL_GATHER] - brought;
        if (r->rank == 0) {
            s->units = (uint64_t)step->model.n_units;
            s->loss[i] = result.loss;
            s->norm[i] = result.grad_norm;
        }
        if (r->rank == 0 && i == 0 && !planning)
            AX_TRY(look_for_long_gradients(step, &s->bf16_gradients));
        AX_TRY(ax_step_update(step, 1e-2, &result));
    }
    s->sent[r->rank] = c->bytes_sent[AX_REDUCE_SCATTER];
    if (planning)
        return AX_OK;
    measure(s, r->rank, step);
    return tiny_hash_masters(step, &s->masters[r->rank]);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    const struct ranked *r = ctx;
    struct ax_step step;
    struct ax_step_options o =
        tiny_options(r->s->dtype, r->s->recompute, r->s->micro ? r->s->micro : MICRO, lengths);
    struct ax_scheme scheme;
    AX_TRY(ax_fp8_recipe("tensorwise", false, &scheme));
    o.model.qat = r->s->fp8 ? &scheme : NULL;
    o.model.unquantized_last = 1;
    o.model.sharding = r->s->sharding;
    o.model.adapter = r->s->adapter ? &lora : NULL;
    AX_TRY(ax_step_create(&step, rt, &r->s->arch, &o));
    const enum ax_status st = run_steps(r, &step);
    ax_step_free(&step);
    return st;
}

static struct ax_runtime_options options(const struct sharded *s, struct ax_fabric *fabric) {
    return (struct ax_runtime_options){.backend = "cpu",
                                       .threads = 1,
                                       .n_slots = s->micro ? s->micro : MICRO,
                                       .sizes = s->sizes,
                                       .fabric = fabric};
}

static enum ax_status run_rank(struct ax_fabric *fabric, void *ctx) {
    struct ranked r = {ctx, fabric->rank};
    struct ax_runtime_options o = options(r.s, fabric);
    struct ax_mesh mesh;
    AX_TRY(ax_mesh_create(&mesh, r.s->sizes, fabric->world, fabric->rank));
    const struct ax_step_options so = {.n_microbatches = o.n_slots};
    AX_TRY(ax_step_slots(&so, mesh.coord[AX_ROLE_PP], mesh.size[AX_ROLE_PP], &o.n_slots));
    return ax_runtime_run(&o, body, &r, &r.s->plan[fabric->rank]);
}

static int world_of(const struct ax_mesh_sizes *s) {
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

static void run(struct sharded *s) {
    const uint64_t live = ax_mem_live_blocks();
    assert_int_equal(tiny_arch(&s->arch, "llama", s->tied, ""), AX_OK);
    if (ax_local_run(world_of(&s->sizes), NULL, run_rank, s) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_arch_free(&s->arch);
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* Weights that are gathered once are those that were gathered for each use. */
static void weights_gathered_once_change_no_bit(void **state) {
    (void)state;
    static const struct sharded kinds[] = {
        {.sizes = {1, 1, 2, 1, 1, 1}, .dtype = AX_F32},
        {.sizes = {1, 1, 2, 1, 1, 1}, .dtype = AX_BF16, .tied = true},
        {.sizes = {1, 2, 2, 1, 1, 1}, .dtype = AX_F32, .adapter = true},
        {.sizes = {2, 1, 2, 1, 1, 1}, .dtype = AX_F32},
        {.sizes = {1, 1, 2, 1, 2, 1}, .dtype = AX_F32},
        {.sizes = {1, 1, 1, 2, 1, 1}, .dtype = AX_F32},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct sharded each = kinds[i], once = kinds[i];
        each.sharding = ax_zero_stage(3);
        once.sharding = ax_zero_stage(2);
        run(&each);
        run(&once);
        assert_memory_equal(each.loss, once.loss, sizeof each.loss);
        assert_memory_equal(each.norm, once.norm, sizeof each.norm);
        assert_memory_equal(each.masters, once.masters, sizeof each.masters);
        assert_true(each.masters[0] != 0 && each.loss[0] != each.loss[STEPS - 1]);
        for (int r = 0; r < world_of(&kinds[i].sizes); r++) {
            assert_true(each.gathers[r] > MICRO * once.gathers[r]);
            assert_int_equal(once.gathers[r], once.segments[r]);
            assert_int_equal(once.reductions[r], each.reductions[r]);
            assert_int_equal(once.plan[r].persistent - each.plan[r].persistent,
                             once.layers[r] - 2 * once.largest[r]);
            for (int phase = 0; phase < AX_PHASE_COUNT; phase++)
                assert_int_equal(once.plan[r].scratch[phase], each.plan[r].scratch[phase]);
        }
    }
}

/* Gathers and sums that travel while a neighbor computes are those that are waited for in line. */
static void traveling_changes_no_bit(void **state) {
    (void)state;
    static const struct sharded kinds[] = {
        {.sizes = {1, 1, 2, 1, 1, 1}, .dtype = AX_F32},
        {.sizes = {1, 1, 2, 1, 1, 1}, .dtype = AX_BF16, .tied = true},
        {.sizes = {1, 2, 2, 1, 1, 1}, .dtype = AX_F32, .adapter = true},
        {.sizes = {1, 2, 1, 1, 1, 1}, .dtype = AX_F32, .tied = true},
        {.sizes = {2, 1, 2, 1, 1, 1}, .dtype = AX_F32},
        {.sizes = {1, 1, 2, 1, 2, 1}, .dtype = AX_F32},
        {.sizes = {1, 1, 1, 2, 1, 1}, .dtype = AX_F32},
        {.sizes = {3, 1, 2, 1, 1, 1}, .dtype = AX_F32},               /* a stage of one layer */
        {.sizes = {2, 1, 2, 1, 1, 1}, .dtype = AX_F32, .tied = true}, /* both have a copy */
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int stage = 1; stage <= 3; stage++) {
            struct sharded travels = kinds[i], waits = kinds[i];
            travels.sharding = waits.sharding = ax_zero_stage(stage);
            waits.sharding.prefetch = false;
            run(&travels);
            run(&waits);
            assert_memory_equal(travels.loss, waits.loss, sizeof waits.loss);
            assert_memory_equal(travels.norm, waits.norm, sizeof waits.norm);
            assert_memory_equal(travels.masters, waits.masters, sizeof waits.masters);
            assert_memory_equal(travels.gathers, waits.gathers, sizeof waits.gathers);
            assert_memory_equal(travels.reductions, waits.reductions, sizeof waits.reductions);
            assert_int_equal(travels.plan[0].persistent, waits.plan[0].persistent);
            assert_true(waits.arriving[0] == 0 && waits.summed[0] == 0);
            if (i > 0 || stage < 3)
                continue;
            const uint64_t passes = (uint64_t)STEPS * MICRO, units = travels.units;
            assert_int_equal(travels.arriving[0],
                             passes * (units - 2)); /* the last has no next one */
            assert_int_equal(travels.summed[0],
                             (passes - STEPS) * (units - 1)); /* not of the first */
        }
}

/* Weights of linears in 8-bit floats that arrive as codes are those that are quantized where they are read:
 * with two ranks, which send each other one byte for each. Not those of the last layer. */
static void codes_change_no_bit(void **state) {
    (void)state;
    static const struct sharded kinds[] = {
        {.sizes = {1, 1, 2, 1, 1, 1}, .dtype = AX_BF16},
        {.sizes = {1, 1, 3, 1, 1, 1}, .dtype = AX_F32, .tied = true},
        {.sizes = {1, 2, 2, 1, 1, 1}, .dtype = AX_BF16, .adapter = true},
        {.sizes = {2, 1, 2, 1, 1, 1}, .dtype = AX_BF16},
        {.sizes = {1, 1, 2, 1, 2, 1}, .dtype = AX_BF16},
        {.sizes = {1, 1, 1, 2, 1, 1}, .dtype = AX_BF16},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int stage = 2; stage <= 3; stage++) {
            struct sharded values = kinds[i], codes;
            values.fp8 = true;
            values.sharding = ax_zero_stage(stage);
            values.sharding.prefetch = i % 2;
            values.recompute = (enum ax_recompute)(i % 3);
            codes = values;
            codes.sharding.coded = true;
            run(&values);
            run(&codes);
            assert_memory_equal(codes.loss, values.loss, sizeof values.loss);
            assert_memory_equal(codes.norm, values.norm, sizeof values.norm);
            assert_memory_equal(codes.masters, values.masters, sizeof values.masters);
            assert_true(codes.coded[0] > 0);
            for (int r = 0; r < world_of(&kinds[i].sizes); r++) {
                const double size = (double)ax_dtype_size(kinds[i].dtype),
                             others = kinds[i].sizes.dp_shard * kinds[i].sizes.cp - 1;
                if (stage == 3)
                    continue;
                assert_true(values.brought[r] == others * values.plain[r]);
                assert_true(codes.brought[r] ==
                            others * (codes.plain[r] - (size - 1) * codes.coded[r]));
            }
        }
}

/* The order of a sum changes its last bits, not more. */
static void gradients_are_reduced_once(void **state) {
    (void)state;
    static const struct ax_mesh_sizes meshes[] = {
        {1, 1, 2, 1, 1, 1}, {1, 2, 2, 1, 1, 1}, {2, 1, 2, 1, 1, 1}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        struct sharded each = {.sizes = meshes[i], .dtype = AX_F32}, once = each;
        once.sharding = ax_zero_stage(1);
        run(&each);
        run(&once);
        for (int k = 0; k < STEPS; k++) {
            assert_true(fabs(once.loss[k] - each.loss[k]) < 1e-5 * each.loss[k]);
            assert_true(fabs(once.norm[k] - each.norm[k]) < 1e-4 * each.norm[k]);
        }
        for (int r = 0; r < world_of(&meshes[i]); r++) {
            assert_int_equal(each.reductions[r], MICRO * each.trained[r]);
            assert_int_equal(once.reductions[r], once.trained[r]);
            assert_int_equal(once.plan[r].persistent - each.plan[r].persistent,
                             once.layers[r] - 2 * once.largest[r] + once.layer_grads[r] -
                                 2 * once.largest_grad[r]);
        }
        assert_true(once.masters[0] != each.masters[0]); /* it was another sum */
    }
}

/* With one micro-batch there is nothing to save, so nothing is kept for it. */
static void one_micro_batch_is_reduced_as_ever(void **state) {
    (void)state;
    struct sharded two = {.sizes = {1, 1, 2, 1, 1, 1}, .dtype = AX_F32, .micro = 1}, one = two;
    two.sharding = ax_zero_stage(2);
    one.sharding = ax_zero_stage(1);
    run(&two);
    run(&one);
    assert_memory_equal(two.masters, one.masters, sizeof two.masters);
    assert_int_equal(two.plan[0].persistent, one.plan[0].persistent);
}

/* Gradients are sent in BF16, and their sum is rounded to it: half the bytes. */
static void sums_in_bf16(void **state) {
    (void)state;
    static const struct ax_mesh_sizes meshes[] = {{1, 1, 2, 1, 1, 1}, {1, 2, 2, 1, 1, 1}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        struct sharded f32 = {.sizes = meshes[i], .dtype = AX_F32, .micro = 1};
        f32.sharding = ax_zero_stage(2);
        struct sharded bf16 = f32;
        bf16.sharding.bf16_sums = true;
        run(&f32);
        run(&bf16);
        assert_true(bf16.bf16_gradients && !f32.bf16_gradients);
        assert_memory_equal(&f32.loss[0], &bf16.loss[0], sizeof f32.loss[0]);
        assert_true(f32.norm[0] != bf16.norm[0]);
        /* at most half a unit in the last of 8 bits for each summand, and for the sum */
        assert_true(fabs(f32.norm[0] - bf16.norm[0]) < f32.norm[0] / 128);
        assert_true(f32.sent[0] - bf16.sent[0] == STEPS * 2.0 * (double)f32.trained_shard[0]);
    }
}

/* Scratch of two sums over two ranks: of all-reduce and reduce-scatter. */
static enum ax_status sum(struct ax_runtime *rt, size_t *bytes) {
    enum { N = 1001, SHARE = 501 };
    struct ax_comm *c = &rt->comms[AX_ROLE_FSDP];
    struct ax_arena_plan plan;
    void AX_DEVICE *data = ax_stack_push(&rt->arena.persistent, "data", 2 * N * sizeof(float));
    const struct ax_collective scatter = {
        .kind = AX_REDUCE_SCATTER, .dtype = AX_F32, .send = data, .recv = data, .count = N};
    AX_TRY(ax_comm_sum(c, rt->q, AX_F32, data, N));
    ax_arena_measure(&rt->arena, &plan);
    bytes[0] = plan.scratch[AX_PHASE_TRAIN];
    AX_TRY(ax_comm_run(c, rt->q, &scatter));
    ax_arena_measure(&rt->arena, &plan);
    bytes[1] = plan.scratch[AX_PHASE_TRAIN];
    assert_int_equal(ax_arena_round(SHARE * sizeof(float)), 2048);
    assert_int_equal(ax_arena_round(N * sizeof(float)), 4032);
    return AX_OK;
}

static enum ax_status sum_on_threads(struct ax_fabric *fabric, void *ctx) {
    struct ax_runtime rt;
    const struct ax_runtime_options o = {
        .backend = "cpu", .threads = 1, .sizes = {.dp_shard = 2}, .fabric = fabric};
    AX_TRY(ax_runtime_open_planning(&rt, &o));
    size_t bytes[2] = {0};
    const enum ax_status st = sum(&rt, bytes);
    if (fabric->rank == 0)
        memcpy(ctx, bytes, sizeof bytes);
    ax_runtime_close(&rt);
    return st;
}

/* What a rank needs for what others send is planned: processes need it, threads add up in place. */
static void memory_for_sums_is_planned(void **state) {
    (void)state;
    size_t processes[2] = {0}, threads[2] = {1, 1};
    struct ax_runtime rt;
    const struct ax_runtime_options o = {
        .backend = "cpu", .threads = 1, .sizes = {.dp_shard = 2}, .world = 2};
    assert_int_equal(ax_runtime_open_planning(&rt, &o), AX_OK);
    assert_int_equal(sum(&rt, processes), AX_OK);
    ax_runtime_close(&rt);
    assert_int_equal(ax_local_run(2, NULL, sum_on_threads, threads), AX_OK);
    assert_int_equal(processes[0], 2048);
    assert_int_equal(processes[1], 4032);
    assert_int_equal(threads[0], 0);
    assert_int_equal(threads[1], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_gathered_once_change_no_bit),
        cmocka_unit_test(traveling_changes_no_bit),
        cmocka_unit_test(codes_change_no_bit),
        cmocka_unit_test(gradients_are_reduced_once),
        cmocka_unit_test(one_micro_batch_is_reduced_as_ever),
        cmocka_unit_test(sums_in_bf16),
        cmocka_unit_test(memory_for_sums_is_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
