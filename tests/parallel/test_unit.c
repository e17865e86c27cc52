/* Units: where parameters lie, which buffers are one, and that the ranks of a group hold each
 * element once. Ranks of larger groups are laid out one after the other in this process. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "parallel/fabric/comm_local.h"
#include "parallel/units/unit.h"

#define N_PARAMS 6

/* q, k, v and gate, up are read as one matrix each, so k, v and up are glued. */
static const struct {
    int64_t rows, cols;
    int tp_dim;
    bool glue;
} shapes[N_PARAMS] = {{24, 20, 0, false}, {12, 20, 0, true},  {12, 20, 0, true},
                      {20, 24, 1, false}, {20, 0, -1, false}, {7, 3, -1, false}};

static const struct ax_mesh_sizes meshes[] = {
    {1, 1, 1, 1, 1, 1}, {1, 1, 2, 1, 1, 1}, {1, 2, 3, 1, 1, 1}, {1, 1, 2, 2, 1, 1},
    {1, 1, 1, 1, 2, 1}, {1, 2, 2, 1, 2, 1}, {1, 1, 5, 1, 4, 1}, {2, 1, 64, 1, 1, 1},
};
#define N_MESHES ((int)(sizeof meshes / sizeof *meshes))

static int world_of(const struct ax_mesh_sizes *s) {
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

/* One rank's unit, in a real arena of exactly the planned size. */
struct rank {
    struct ax_runtime rt;
    struct ax_unit unit;
    struct ax_param params[N_PARAMS];
    struct ax_param *list[N_PARAMS];
    bool glue[N_PARAMS];
};

static void set_params(struct rank *r) {
    for (int i = 0; i < N_PARAMS; i++) {
        r->params[i] = (struct ax_param){.ndim = shapes[i].cols > 0 ? 2 : 1,
                                         .shape = {shapes[i].rows, shapes[i].cols},
                                         .tp_dim = (int8_t)shapes[i].tp_dim,
                                         .ep_dim = -1,
                                         .trainable = true};
        snprintf(r->params[i].name, AX_NAME_MAX, "p%d", i);
        r->list[i] = &r->params[i];
        r->glue[i] = shapes[i].glue;
    }
}

static void lay_out(struct rank *r, struct ax_runtime *rt, const struct ax_unit_options *o, int n) {
    memset(&r->unit, 0, sizeof r->unit);
    ax_unit_layout(&r->unit, &rt->mesh, o, n, r->list, r->glue);
    ax_unit_allocate(&r->unit, rt, o, NULL, 0);
}

/* A unit of the list's first n parameters. */
static void open_unit(struct rank *r, const struct ax_mesh_sizes *sizes, int rank,
                      const struct ax_unit_options *o, int n) {
    struct ax_arena_plan plan, reached;
    assert_int_equal(ax_mesh_create(&r->rt.mesh, *sizes, world_of(sizes), rank), AX_OK);
    assert_int_equal(ax_arena_create_planning(&r->rt.arena, 1), AX_OK);
    lay_out(r, &r->rt, o, n);
    ax_arena_measure(&r->rt.arena, &plan);
    ax_arena_free(&r->rt.arena);
    assert_int_equal(ax_arena_create(&r->rt.arena, &plan, &ax_device_host), AX_OK);
    lay_out(r, &r->rt, o, n);
    ax_arena_measure(&r->rt.arena, &reached);
    assert_int_equal(plan.persistent, reached.persistent);
    assert_int_equal(ax_queue_create(&r->rt.q, "ref", NULL, 2, &r->rt.arena.scratch), AX_OK);
}

static void open_rank(struct rank *r, const struct ax_mesh_sizes *sizes, int rank,
                      const struct ax_unit_options *o) {
    memset(r, 0, sizeof *r);
    set_params(r);
    open_unit(r, sizes, rank, o, N_PARAMS);
}

static void close_rank(struct rank *r) {
    ax_queue_free(r->rt.q);
    ax_arena_free(&r->rt.arena);
}

static struct ax_unit_options options(enum ax_dtype compute, bool train) {
    return (struct ax_unit_options){.compute = compute, .train = train};
}

static void parameters_are_aligned_or_glued(void **state) {
    (void)state;
    const struct ax_unit_options o = options(AX_F32, true);
    for (int m = 0; m < N_MESHES; m++) {
        static struct rank r;
        open_rank(&r, &meshes[m], world_of(&meshes[m]) - 1, &o);
        const struct ax_segment *seg = &r.unit.segments[0];
        int64_t end = 0;
        assert_int_equal(r.unit.n_segments, 1);
        for (int i = 0; i < N_PARAMS; i++) {
            const struct ax_param *p = &r.params[i];
            assert_int_equal(p->segment, 0);
            assert_int_equal(p->local_shape[0],
                             shapes[i].rows / (shapes[i].tp_dim == 0 ? meshes[m].tp : 1));
            if (shapes[i].glue) {
                assert_int_equal(p->offset, end);
            } else {
                assert_int_equal(p->offset % seg->align, 0);
                assert_in_range(p->offset - end, 0, seg->align - 1);
            }
            end = p->offset + ax_param_local_numel(p);
        }
        assert_int_equal(seg->align, 256);
        assert_int_equal(seg->shard_numel % seg->align, 0);
        assert_int_equal(seg->numel, seg->shard_numel * r.rt.mesh.size[AX_ROLE_FSDP]);
        assert_true(seg->numel >= end);
        assert_in_range(seg->numel - end, 0, seg->align * (r.rt.mesh.size[AX_ROLE_FSDP] + 1));
        close_rank(&r);
    }
}

/* What only the original has is apart there, so that the rest is laid out as in the copy, where it has no elements. */
static void a_copy_lacks_what_is_uncopied(void **state) {
    (void)state;
    static struct rank r;
    struct ax_mesh mesh;
    int64_t shared[2];
    const struct ax_unit_options o = options(AX_F32, true);
    assert_int_equal(ax_mesh_create(&mesh, meshes[0], 1, 0), AX_OK);
    set_params(&r);
    for (int i = 3; i < N_PARAMS; i++)
        r.params[i].uncopied = true;
    for (int copy = 0; copy < 2; copy++) {
        struct ax_unit unit = {.copy = copy > 0};
        ax_unit_layout(&unit, &mesh, &o, N_PARAMS, r.list, r.glue);
        assert_int_equal(unit.n_segments, 2 - copy);
        shared[copy] = unit.segments[0].numel;
        for (int i = 0; i < N_PARAMS; i++) {
            const int64_t n = i >= 3 && copy ? 0 : ax_param_numel(&r.params[i]);
            assert_int_equal(ax_param_local_numel(&r.params[i]), n);
            assert_int_equal(r.params[i].segment, i >= 3 && !copy);
            assert_int_equal(unit.segments[r.params[i].segment].uncopied, i >= 3 && !copy);
        }
    }
    assert_int_equal(shared[0], shared[1]);
}

/* The value of global element `at` of parameter i: no two are the same. */
static float value_of(int i, int64_t at) {
    return (float)(1 + i) * 4096 + (float)at;
}

/* Loads every parameter and counts, over the ranks of one replica, how often each element is owned.
 */
static void check_rank(struct rank *r, enum ax_dtype compute, unsigned char seen[][512]) {
    const struct ax_segment *seg = &r->unit.segments[0];
    int64_t loaded = 0;
    for (int i = 0; i < N_PARAMS; i++) {
        const struct ax_param *p = &r->params[i];
        float global[512];
        int64_t first, n, at, run;
        for (int64_t k = 0; k < ax_param_numel(p); k++)
            global[k] = value_of(i, k);
        const struct ax_elements elements = ax_elements_of(AX_F32, global);
        assert_int_equal(ax_unit_load(&r->unit, &r->rt, p, &elements), AX_OK);
        ax_unit_owned(&r->unit, &r->rt.mesh, p, &first, &n, &at);
        if (n > 0) {
            assert_in_range(first, 0, ax_param_local_numel(p) - n);
            assert_in_range(at, 0, seg->shard_numel - n);
            assert_int_equal(at + r->rt.mesh.coord[AX_ROLE_FSDP] * seg->shard_numel,
                             p->offset + first);
        }
        for (int64_t k = 0; k < n; k++) {
            const int64_t g = ax_param_global_index(p, &r->rt.mesh, first + k, &run);
            float rounded = value_of(i, g);
            if (compute == AX_BF16)
                rounded = ax_bf16_to_f32(ax_f32_to_bf16(rounded));
            assert_true(ax_load(compute, seg->shard.data, at + k) == (double)rounded);
            assert_true(ax_load(seg->accum, seg->master.data, at + k) == (double)value_of(i, g));
            seen[i][g]++;
        }
        loaded += n;
    }
    int64_t zeros = 0; /* padding stays zero, or it would count in a norm */
    for (int64_t k = 0; k < seg->shard_numel; k++)
        zeros += ax_load(seg->accum, seg->master.data, k) == 0;
    assert_int_equal(zeros, seg->shard_numel - loaded);
}

static void a_group_holds_every_element_once(void **state) {
    (void)state;
    static const enum ax_dtype computes[] = {AX_F64, AX_F32, AX_BF16};
    int ranks = 0;
    for (int m = 0; m < N_MESHES; m++) {
        for (int c = 0; c < 3; c++) {
            const struct ax_unit_options o = options(computes[c], true);
            static unsigned char seen[N_PARAMS][512];
            memset(seen, 0, sizeof seen);
            for (int rank = 0; rank < world_of(&meshes[m]); rank++, ranks++) {
                static struct rank r;
                open_rank(&r, &meshes[m], rank, &o);
                check_rank(&r, computes[c], seen);
                close_rank(&r);
            }
            const int copies = meshes[m].pp * meshes[m].dp_replicate;
            for (int i = 0; i < N_PARAMS; i++) {
                const int64_t n = shapes[i].rows * (shapes[i].cols > 0 ? shapes[i].cols : 1);
                for (int64_t k = 0; k < n; k++) {
                    assert_int_equal(seen[i][k],
                                     copies * (shapes[i].tp_dim < 0 ? meshes[m].tp : 1));
                }
            }
        }
    }
    print_message("%d ranks\n", ranks);
}

/* A file may hold its tensors at any byte. */
static void unaligned_tensors_are_loaded(void **state) {
    (void)state;
    static const enum ax_dtype from[] = {AX_F64, AX_F32, AX_BF16, AX_F16};
    static const enum ax_dtype to[] = {AX_F64, AX_F32, AX_BF16};
    for (int i = 0; i < 12; i++) {
        static struct rank r;
        static char file[60 * 8 + 1];
        const struct ax_unit_options o = options(to[i % 3], true);
        const struct ax_param *p = &r.params[4];
        open_rank(&r, &meshes[0], 0, &o);
        for (int64_t k = 0; k < 20; k++) {
            const double x = (double)(k - 10) / 4; /* exact in every type */
            double room;
            char *element = (char *)&room;
            ax_store(from[i / 3], element, 0, x);
            const size_t size = ax_dtype_size(from[i / 3]);
            memcpy(file + 1 + (size_t)k * size, element, size);
        }
        const struct ax_elements elements = ax_elements_of(from[i / 3], file + 1);
        assert_int_equal(ax_unit_load(&r.unit, &r.rt, p, &elements), AX_OK);
        const struct ax_segment *s = &r.unit.segments[0];
        for (int64_t k = 0; k < 20; k++) {
            const double x = (double)(k - 10) / 4;
            assert_true(ax_load(s->compute, s->shard.data, p->offset + k) == x);
            assert_true(ax_load(s->accum, s->master.data, p->offset + k) == x);
        }
        close_rank(&r);
    }
}

/* Tensors so large that several threads load parts of them: a matrix split by columns, and by
 * rows. */
static void large_tensors_are_loaded(void **state) {
    (void)state;
    const struct ax_mesh_sizes sizes = {1, 1, 1, 1, 2, 1};
    const struct ax_unit_options o = options(AX_BF16, true);
    const int64_t rows = 1202, cols = 1000;
    float *global;
    assert_int_equal(ax_alloc(&global, (size_t)(rows * cols), sizeof *global), AX_OK);
    for (int64_t k = 0; k < rows * cols; k++)
        global[k] = (float)(k + 1); /* below 2^24: exact */
    for (int i = 0; i < 4; i++) {
        const int tp_dim = i / 2, rank = i % 2;
        struct ax_param p = {.name = "large",
                             .ndim = 2,
                             .shape = {rows, cols},
                             .tp_dim = (int8_t)tp_dim,
                             .ep_dim = -1,
                             .trainable = true};
        static struct rank r;
        memset(&r, 0, sizeof r);
        r.list[0] = &p;
        open_unit(&r, &sizes, rank, &o, 1);
        const struct ax_elements elements = ax_elements_of(AX_F32, global);
        assert_int_equal(ax_unit_load(&r.unit, &r.rt, &p, &elements), AX_OK);
        const struct ax_segment *seg = &r.unit.segments[0];
        const int64_t n = ax_param_local_numel(&p);
        assert_int_equal(n, rows * cols / 2);
        int64_t wrong = 0;
        for (int64_t k = 0; k < n; k++) {
            const int64_t half = cols / 2;
            const int64_t from =
                tp_dim == 0 ? rank * n + k : k / half * cols + rank * half + k % half;
            wrong += ax_load(AX_F32, seg->master.data, p.offset + k) != (double)global[from];
            wrong += ax_load(AX_BF16, seg->shard.data, p.offset + k) !=
                     ax_bf16_to_f32(ax_f32_to_bf16(global[from]));
        }
        assert_int_equal(wrong, 0);
        close_rank(&r);
    }
    ax_free(global);
}

/* Whether two buffers share no byte. */
static bool apart(const struct ax_tensor *a, const struct ax_tensor *b) {
    const char *p = a->data, *q = b->data;
    return p + ax_tensor_bytes(a) <= q || q + ax_tensor_bytes(b) <= p;
}

static void buffers_of_equal_values_are_one(void **state) {
    (void)state;
    static const enum ax_dtype computes[] = {AX_F64, AX_F32, AX_BF16};
    for (int m = 0; m < 2; m++) { /* a group of one, and of two */
        for (int c = 0; c < 3; c++) {
            static struct rank r;
            const struct ax_unit_options o = options(computes[c], true);
            open_rank(&r, &meshes[m], m, &o);
            const struct ax_segment *s = &r.unit.segments[0];
            const bool alone = m == 0, exact = computes[c] != AX_BF16;
            assert_int_equal(s->full.data == s->shard.data, alone);
            assert_int_equal(s->grad_full.data == s->grad.data, alone);
            assert_int_equal(s->shard.data == s->master.data, exact);
            assert_int_equal(s->full.dtype, computes[c]);
            assert_int_equal(s->shard.dtype, computes[c]);
            assert_int_equal(s->master.dtype, ax_dtype_accum(computes[c]));
            assert_int_equal(s->grad.dtype, ax_dtype_accum(computes[c]));
            assert_int_equal(s->full.shape[0], s->numel);
            assert_int_equal(s->grad.shape[0], s->shard_numel);
            const struct ax_tensor *all[] = {&s->full, &s->master, &s->grad_full, &s->grad,
                                             &s->shard};
            for (int i = 0; i < 5; i++)
                for (int k = 0; k < i; k++)
                    assert_true(all[i]->data == all[k]->data || apart(all[i], all[k]));
            close_rank(&r);
        }
    }
}

static void a_frozen_unit_has_weights_only(void **state) {
    (void)state;
    static struct rank r;
    const struct ax_unit_options o = options(AX_BF16, false);
    open_rank(&r, &meshes[0], 0, &o);
    const struct ax_segment *s = &r.unit.segments[0];
    assert_false(s->trainable);
    assert_non_null(s->full.data);
    assert_null(s->master.data);
    assert_null(s->grad_full.data);
    assert_null(s->grad.data);
    assert_null(ax_unit_grad(&r.unit, &r.params[0]).data);
    assert_int_equal(r.rt.arena.persistent.top, (size_t)s->numel * 2);
    close_rank(&r);
}

/* One rank for real: gather, compute with, reduce. */
static enum ax_status use_unit(struct ax_runtime *rt, void *ctx) {
    static struct rank r;
    (void)ctx;
    const struct ax_unit_options o = options(AX_BF16, true);
    set_params(&r);
    lay_out(&r, rt, &o, N_PARAMS);
    const struct ax_param *down = &r.params[3];
    struct ax_comm *comm = &rt->comms[AX_ROLE_FSDP];
    if (!ax_runtime_planning(rt)) {
        float global[480];
        for (int i = 0; i < 480; i++)
            global[i] = (float)i;
        const struct ax_elements elements = ax_elements_of(AX_F32, global);
        assert_int_equal(ax_unit_load(&r.unit, rt, down, &elements), AX_OK);
    }
    AX_TRY(ax_unit_gather(&r.unit, rt));
    AX_TRY(ax_unit_gather(&r.unit, rt)); /* a second user */
    assert_int_equal(comm->calls[AX_ALL_GATHER], 1);
    const struct ax_tensor w = ax_unit_weight(&r.unit, down);
    AX_TRY(ax_unit_begin_gradients(&r.unit, rt));
    struct ax_tensor g = ax_unit_grad(&r.unit, down);
    assert_int_equal(w.ndim, 2);
    assert_int_equal(w.shape[0], 20);
    assert_int_equal(w.shape[1], 24);
    assert_int_equal(g.dtype, AX_F32);
    if (!ax_runtime_planning(rt)) {
        assert_true(ax_load(w.dtype, w.data, 255) == 255);
        ax_store(g.dtype, g.data, 17, 2.5);
    }
    ax_unit_release(&r.unit);
    (void)ax_unit_weight(&r.unit, down); /* still whole for the first */
    ax_unit_release(&r.unit);
    assert_int_equal(r.unit.gathered, 0);
    struct ax_unit_sum sum = {0};
    AX_TRY(ax_unit_start_reduce(&sum, &r.unit, rt, true));
    AX_TRY(ax_unit_finish_reduce(&sum, rt));
    assert_int_equal(comm->calls[AX_REDUCE_SCATTER], 0); /* grad is grad_full */
    if (!ax_runtime_planning(rt))
        assert_true(ax_load(g.dtype, g.data, 17) == 2.5);
    return AX_OK;
}

static void one_rank_gathers_and_reduces(void **state) {
    (void)state;
    const struct ax_runtime_options o = {.backend = "ref", .threads = 1};
    if (ax_runtime_run(&o, use_unit, NULL, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* Replicas × shards × cp: parameters travel within the fsdp group, gradients over all of the three.
 */
static void collectives_run_over_the_right_roles(void **state) {
    (void)state;
    static struct rank r;
    struct ax_runtime rt;
    const struct ax_runtime_options ro = {
        .backend = "ref", .threads = 1, .sizes = {1, 2, 2, 2, 2, 1}, .world = 16, .rank = 5};
    const struct ax_unit_options o = options(AX_BF16, true);
    assert_int_equal(ax_runtime_open_planning(&rt, &ro), AX_OK);
    set_params(&r);
    lay_out(&r, &rt, &o, N_PARAMS);
    const struct ax_segment *s = &r.unit.segments[0];
    assert_int_equal(ax_unit_gather(&r.unit, &rt), AX_OK);
    assert_true(rt.comms[AX_ROLE_FSDP].bytes_sent[AX_ALL_GATHER] == 3 * 2 * (double)s->shard_numel);
    struct ax_unit_sum sum = {0};
    assert_int_equal(ax_unit_start_reduce(&sum, &r.unit, &rt, true), AX_OK);
    assert_int_equal(ax_unit_finish_reduce(&sum, &rt), AX_OK);
    for (enum ax_role role = 0; role < AX_ROLE_COUNT; role++) {
        const struct ax_comm *c = &rt.comms[role];
        assert_int_equal(c->calls[AX_ALL_GATHER], role == AX_ROLE_FSDP);
        assert_int_equal(c->calls[AX_REDUCE_SCATTER], role == AX_ROLE_FSDP);
        assert_int_equal(c->calls[AX_ALL_REDUCE], role == AX_ROLE_DP_REPLICATE);
    }
    const double gradients = 4 * (double)s->shard_numel;
    assert_true(rt.comms[AX_ROLE_FSDP].bytes_sent[AX_REDUCE_SCATTER] == 3 * gradients);
    assert_true(rt.comms[AX_ROLE_DP_REPLICATE].bytes_sent[AX_ALL_REDUCE] ==
                2 * (2 - 1) / 2.0 * gradients);
    ax_runtime_close(&rt);
}

/* A product of ones: writes, or adds. */
static enum ax_status multiply(struct ax_runtime *rt, const struct ax_unit *unit,
                               const struct ax_param *p, bool begins) {
    const struct ax_tensor d = ax_unit_grad(unit, p);
    for (int64_t i = 0; i < ax_tensor_numel(&d) && !begins && !ax_runtime_planning(rt); i++)
        ax_store(AX_F32, d.data, i, ax_load(AX_F32, d.data, i) + 1);
    return begins ? ax_run_fill(rt->q, &(struct ax_fill){d, 1}) : AX_OK;
}

/* Two steps of two micro-batches, in memory that begins as NaNs. Of two matrices whose gradients products write, one is
 * never written. */
static enum ax_status two_steps(struct ax_runtime *rt, void *ctx) {
    static struct rank ranks[2];
    struct rank *r = &ranks[rt->mesh.rank];
    const struct ax_unit_options o = options(AX_BF16, true);
    const int world = rt->mesh.size[AX_ROLE_FSDP];
    (void)ctx;
    set_params(r);
    r->params[3].linear = r->params[5].linear = true;
    lay_out(r, rt, &o, N_PARAMS);
    const struct ax_segment *seg = &r->unit.segments[0];
    const struct ax_param *written = &r->params[3];
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){seg->grad, NAN}));
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){seg->grad_full, NAN}));
    for (int i = 0; i < 4; i++) {
        struct ax_unit_sum sum = {0};
        AX_TRY(ax_unit_begin_gradients(&r->unit, rt));
        assert_false(ax_unit_grad_begins(&r->unit, &r->params[0]));
        const bool begins = ax_unit_grad_begins(&r->unit, written);
        assert_int_equal(begins, world > 1 || i % 2 == 0);
        AX_TRY(multiply(rt, &r->unit, written, begins));
        AX_TRY(ax_unit_begin_gradients(&r->unit, rt)); /* nothing has used them since */
        assert_false(ax_unit_grad_begins(&r->unit, written));
        AX_TRY(ax_unit_start_reduce(&sum, &r->unit, rt, true));
        AX_TRY(ax_unit_finish_reduce(&sum, rt));
        for (int64_t k = 0; k < seg->shard_numel && !ax_runtime_planning(rt); k++) {
            const int64_t at = rt->mesh.rank * seg->shard_numel + k - written->offset;
            const bool inside = at >= 0 && at < ax_param_local_numel(written);
            assert_true(ax_load(AX_F32, seg->grad.data, k) == (inside ? world * (1 + i % 2) : 0));
        }
        if (i == 1)
            ax_unit_drop_gradients(&r->unit);
    }
    return AX_OK;
}

static enum ax_status run_rank(struct ax_fabric *fabric, void *ctx) {
    const struct ax_runtime_options o = {
        .backend = "ref", .threads = 1, .sizes = {1, 1, 2, 1, 1, 1}, .fabric = fabric};
    return ax_runtime_run(&o, two_steps, ctx, NULL);
}

static void products_write_what_is_not_zeroed(void **state) {
    const struct ax_runtime_options alone = {.backend = "ref", .threads = 1};
    (void)state;
    if (ax_local_run(2, NULL, run_rank, NULL) != AX_OK ||
        ax_runtime_run(&alone, two_steps, NULL, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* Without a backward, as of a unit that a step leaves out. */
static enum ax_status no_backward(struct ax_runtime *rt, void *ctx) {
    static struct rank r;
    const struct ax_unit_options o = options(AX_BF16, true);
    (void)ctx;
    set_params(&r);
    r.params[3].linear = true;
    lay_out(&r, rt, &o, N_PARAMS);
    const struct ax_segment *seg = &r.unit.segments[0];
    struct ax_unit_sum sum = {0};
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){seg->grad, NAN}));
    AX_TRY(ax_unit_start_reduce(&sum, &r.unit, rt, true));
    AX_TRY(ax_unit_finish_reduce(&sum, rt));
    for (int64_t k = 0; k < seg->shard_numel && !ax_runtime_planning(rt); k++)
        assert_true(ax_load(AX_F32, seg->grad.data, k) == 0);
    return AX_OK;
}

static void what_nothing_wrote_is_zero(void **state) {
    const struct ax_runtime_options alone = {.backend = "ref", .threads = 1};
    (void)state;
    if (ax_runtime_run(&alone, no_backward, NULL, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* Frozen segments are borrowed where all parameters lie at the same places under the same names. */
static void equal_segments_are_borrowed(void **state) {
    (void)state;
    static struct rank one, two;
    const struct ax_unit_options o = options(AX_F32, false);
    struct rank *const both[] = {&one, &two};
    for (int k = 0; k < 2; k++)
        open_rank(both[k], &meshes[0], 0, &o);
    ax_unit_borrow(&two.unit, N_PARAMS, two.params, &one.unit, N_PARAMS, one.params);
    for (int s = 0; s < two.unit.n_segments; s++)
        assert_ptr_equal(two.unit.segments[s].lender, &one.unit.segments[s]);
    for (int i = 0; i < N_PARAMS; i++) { /* any of them at another place, or absent */
        for (int absent = 0; absent < 2; absent++) {
            struct ax_segment *seg = &two.unit.segments[two.params[i].segment];
            const struct ax_param was = one.params[i];
            seg->lender = NULL;
            if (absent)
                snprintf(one.params[i].name, AX_NAME_MAX, "other");
            else
                one.params[i].offset++;
            ax_unit_borrow(&two.unit, N_PARAMS, two.params, &one.unit, N_PARAMS, one.params);
            assert_null(seg->lender);
            one.params[i] = was;
        }
    }
    for (int k = 0; k < 2; k++)
        close_rank(both[k]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_aligned_or_glued),
        cmocka_unit_test(a_copy_lacks_what_is_uncopied),
        cmocka_unit_test(a_group_holds_every_element_once),
        cmocka_unit_test(unaligned_tensors_are_loaded),
        cmocka_unit_test(large_tensors_are_loaded),
        cmocka_unit_test(buffers_of_equal_values_are_one),
        cmocka_unit_test(a_frozen_unit_has_weights_only),
        cmocka_unit_test(one_rank_gathers_and_reduces),
        cmocka_unit_test(collectives_run_over_the_right_roles),
        cmocka_unit_test(products_write_what_is_not_zeroed),
        cmocka_unit_test(what_nothing_wrote_is_zero),
        cmocka_unit_test(equal_segments_are_borrowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
