/* Packed parameters: on every mesh the ranks together read back the numbers that one rank does,
 * which are those of quantizing the whole matrix; and packed segments have nothing to train. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "parallel/units/packed.h"
#include "parallel/units/unit.h"

#define N_PARAMS 5
#define CAP      40000

/* The last is not packed. 150 × 200 is more than a group of second scales. */
static const struct {
    int64_t rows, cols;
    int tp_dim;
} shapes[N_PARAMS] = {{24, 64, 0}, {150, 200, 1}, {36, 33, 0}, {24, 36, 1}, {20, 0, -1}};

static const struct ax_mesh_sizes meshes[] = {
    {1, 1, 1, 1, 1, 1}, {1, 1, 2, 1, 1, 1}, {1, 1, 3, 1, 1, 1}, {1, 1, 1, 1, 2, 1},
    {1, 1, 2, 1, 2, 1}, {1, 1, 1, 1, 4, 1}, {1, 1, 1, 1, 5, 1},
};
#define N_MESHES ((int)(sizeof meshes / sizeof *meshes))

static const enum ax_storage stores[] = {AX_STORAGE_NF4, AX_STORAGE_NF4_DOUBLE, AX_STORAGE_INT8,
                                         AX_STORAGE_FP8, AX_STORAGE_INT4};

/* One queue for all: ranks come one after the other. */
static struct ax_arena tools;
static struct ax_queue *queue;
static float global[N_PARAMS][CAP];

struct rank {
    struct ax_runtime rt;
    struct ax_unit unit;
    struct ax_param params[N_PARAMS];
};

static int world_of(const struct ax_mesh_sizes *s) {
    return s->dp_shard * s->tp;
}

static void lay_out(struct rank *r, enum ax_storage store) {
    const struct ax_unit_options o = {.compute = AX_F64, .train = true};
    struct ax_param *list[N_PARAMS];
    const bool glue[N_PARAMS] = {false, true, true, false};
    for (int i = 0; i < N_PARAMS; i++) {
        const bool packed = i < N_PARAMS - 1;
        r->params[i] = (struct ax_param){.ndim = shapes[i].cols > 0 ? 2 : 1,
                                         .shape = {shapes[i].rows, shapes[i].cols},
                                         .tp_dim = (int8_t)shapes[i].tp_dim,
                                         .ep_dim = -1,
                                         .trainable = !packed,
                                         .storage = packed ? store : AX_STORAGE_PLAIN};
        snprintf(r->params[i].name, AX_NAME_MAX, "p%d", i);
        list[i] = &r->params[i];
    }
    memset(&r->unit, 0, sizeof r->unit);
    ax_unit_layout(&r->unit, &r->rt.mesh, &o, N_PARAMS, list, glue);
    ax_unit_allocate(&r->unit, &r->rt, &o, NULL, 0);
}

static int64_t was_read; /* elements, of one parameter on one rank */

static enum ax_status read_elements(void *ctx, int64_t first, int64_t n, void *out) {
    memcpy(out, (const float *)ctx + first, (size_t)n * sizeof(float));
    was_read += n;
    return AX_OK;
}

/* A file that has int4 codes in groups of 64, twice those of the packing; NULL: it has numbers. */
#define FILE_GROUP 64
static const struct ax_element_codes *file_codes;

static int file_code(int64_t i) {
    return (int)(i * 7 % 16) - 8;
}

static float file_scale(int64_t i) {
    return 0.01F * (float)(1 + i / FILE_GROUP % 31);
}

static enum ax_status read_codes(void *ctx, int64_t first, int64_t n, unsigned char *codes,
                                 float *scale) {
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        codes[i] = (unsigned char)file_code(first + i);
    for (int64_t i = 0; i < n; i += FILE_GROUP)
        scale[i / FILE_GROUP] = file_scale(first + i);
    return AX_OK;
}

/* However short a rank's runs are, the file is read once, and once more for the mean of scales. */
static void load(struct rank *r, int i, enum ax_storage store) {
    const struct ax_elements from = {
        .dtype = AX_F32, .read = read_elements, .ctx = global[i], .codes = file_codes};
    const int64_t numel = ax_param_numel(&r->params[i]);
    was_read = 0;
    assert_int_equal(ax_unit_load_packed(&r->unit, &r->rt, &r->params[i], &from), AX_OK);
    assert_true(was_read <= (store == AX_STORAGE_NF4_DOUBLE ? 2 * numel : numel));
}

static void open_rank(struct rank *r, const struct ax_mesh_sizes *sizes, int rank,
                      enum ax_storage store) {
    struct ax_arena_plan plan;
    memset(r, 0, sizeof *r);
    assert_int_equal(ax_mesh_create(&r->rt.mesh, *sizes, world_of(sizes), rank), AX_OK);
    assert_int_equal(ax_arena_create_planning(&r->rt.arena, 1), AX_OK);
    lay_out(r, store);
    ax_arena_measure(&r->rt.arena, &plan);
    ax_arena_free(&r->rt.arena);
    assert_int_equal(ax_arena_create(&r->rt.arena, &plan, &ax_device_host), AX_OK);
    r->rt.q = queue;
    lay_out(r, store);
    for (int i = 0; i < N_PARAMS - 1; i++)
        load(r, i, store);
}

/* The whole matrix quantized and read back, one block of 64 or one row at a time, by the formulas
 * of the ops. */
static void expect(double *out, int i, enum ax_storage store) {
    static float scale[CAP], meant[CAP], top[8], offset[8], value[CAP];
    static unsigned char codes[CAP], scale_codes[CAP];
    const int64_t n = shapes[i].rows * shapes[i].cols;
    for (int64_t k = 0; file_codes && k < n; k++)
        out[k] = (double)((float)file_code(k) * file_scale(k));
    if (file_codes)
        return;
    const bool rows = store == AX_STORAGE_INT8 || store == AX_STORAGE_FP8;
    struct ax_quantize a = {.x = ax_tensor_1d(AX_F32, global[i], n),
                            .block = rows                       ? shapes[i].cols
                                     : store == AX_STORAGE_INT4 ? 32
                                                                : 64,
                            .kind = store == AX_STORAGE_INT8   ? AX_QUANT_INT8
                                    : store == AX_STORAGE_FP8  ? AX_QUANT_FP8
                                    : store == AX_STORAGE_INT4 ? AX_QUANT_INT4X2
                                                               : AX_QUANT_NF4};
    const int64_t scales = (n + a.block - 1) / a.block, groups = (scales + 255) / 256;
    a.codes = ax_tensor_1d(store == AX_STORAGE_INT8 ? AX_I8 : AX_U8, codes, rows ? n : (n + 1) / 2);
    a.scale = ax_tensor_1d(AX_F32, scale, scales);
    assert_int_equal(ax_run_quantize(queue, &a), AX_OK);
    struct ax_dequantize d = {.out = ax_tensor_1d(AX_F32, value, n),
                              .codes = a.codes,
                              .scale = a.scale,
                              .block = a.block,
                              .kind = a.kind};
    if (store == AX_STORAGE_NF4_DOUBLE) {
        double sum = 0;
        for (int64_t k = 0; k < scales; k++)
            sum += (double)scale[k];
        for (int64_t k = 0; k < groups; k++)
            offset[k] = (float)(sum / (double)scales);
        struct ax_quantize b = {.x = a.scale,
                                .codes = ax_tensor_1d(AX_U8, scale_codes, scales),
                                .scale = ax_tensor_1d(AX_F32, top, groups),
                                .offset = ax_tensor_1d(AX_F32, offset, groups),
                                .block = 256,
                                .kind = AX_QUANT_MAP8};
        assert_int_equal(ax_run_quantize(queue, &b), AX_OK);
        d.scale = ax_tensor_1d(AX_F32, meant, scales);
        assert_int_equal(
            ax_run_dequantize(queue,
                              &(struct ax_dequantize){
                                  d.scale, b.codes, b.scale, b.offset, 256, AX_QUANT_MAP8, {0}}),
            AX_OK);
    }
    assert_int_equal(ax_run_dequantize(queue, &d), AX_OK);
    for (int64_t k = 0; k < n; k++)
        out[k] = (double)value[k];
}

/* What the ranks of one gather group hold, put together as the gather does. */
static void gather(struct rank *ranks, int n, int tp, int at) {
    struct ax_segment *to = &ranks[at].unit.segments[0];
    for (int b = 0; b < AX_PACKED_BUFFERS && to->packed[b].data; b++) {
        for (int r = 0; r < n; r++) {
            if (ranks[r].rt.mesh.coord[AX_ROLE_TP] != tp)
                continue;
            const struct ax_tensor *part = &ranks[r].unit.segments[0].packed_shard[b];
            const size_t bytes = ax_tensor_bytes(part);
            char *into = to->packed[b].data;
            into += bytes * (size_t)ranks[r].rt.mesh.coord[AX_ROLE_FSDP];
            memmove(into, part->data, bytes);
        }
    }
    ranks[at].unit.gathered = 1;
}

static void check_rank(struct rank *r, enum ax_storage store, const char *what) {
    static double want[CAP], got[CAP];
    for (int i = 0; i < N_PARAMS - 1; i++) {
        const struct ax_param *p = &r->params[i];
        const int64_t n = ax_param_local_numel(p);
        const struct ax_packed packed = ax_unit_packed(&r->unit, p);
        const struct ax_tensor out = ax_tensor_nd(AX_F64, got, 2, p->local_shape);
        assert_int_equal(ax_packed_read(queue, &packed, &out), AX_OK);
        expect(want, i, store);
        for (int64_t k = 0; k < n; k++) {
            int64_t run;
            const int64_t g = ax_param_global_index(p, &r->rt.mesh, k, &run);
            if (got[k] != want[g])
                fail_msg("%s %s rank %d: %s[%lld] is %.9g, expected %.9g", ax_storage_name(store),
                         what, r->rt.mesh.rank, p->name, (long long)k, got[k], want[g]);
        }
    }
}

static void check_mesh(const struct ax_mesh_sizes *sizes, enum ax_storage store) {
    static struct rank ranks[8];
    const int n = world_of(sizes);
    char what[64];
    snprintf(what, sizeof what, "dp_shard %d tp %d", sizes->dp_shard, sizes->tp);
    for (int r = 0; r < n; r++)
        open_rank(&ranks[r], sizes, r, store);
    for (int r = 0; r < n; r++)
        gather(ranks, n, ranks[r].rt.mesh.coord[AX_ROLE_TP], r);
    for (int r = 0; r < n; r++)
        check_rank(&ranks[r], store, what);
    for (int r = 0; r < n; r++)
        ax_arena_free(&ranks[r].rt.arena);
}

static void every_mesh_reads_the_same_numbers(void **state) {
    (void)state;
    for (int m = 0; m < N_MESHES; m++)
        for (size_t s = 0; s < sizeof stores / sizeof *stores; s++)
            check_mesh(&meshes[m], stores[s]);
}

/* Its numbers are not asked for. */
static void every_mesh_keeps_a_files_codes(void **state) {
    (void)state;
    const struct ax_element_codes codes = {AX_QUANT_INT4, FILE_GROUP, read_codes};
    file_codes = &codes;
    for (int m = 0; m < N_MESHES; m++)
        check_mesh(&meshes[m], AX_STORAGE_INT4);
    file_codes = NULL;
}

/* Pieces of more elements than are quantized together, 2^20: the first and one after it. */
static void long_runs_are_read_in_parts(void **state) {
    (void)state;
    enum { COLS = 1024, FIRST = 100 * COLS, NUMEL = 3100 * COLS };
    const struct ax_element_codes codes = {AX_QUANT_INT4, FILE_GROUP, read_codes};
    const struct ax_elements from = {.dtype = AX_F32, .codes = &codes};
    const struct ax_param p = {.ndim = 2,
                               .shape = {NUMEL / COLS, COLS},
                               .local_shape = {NUMEL / COLS, COLS},
                               .tp_dim = -1,
                               .ep_dim = -1};
    struct ax_mesh mesh;
    struct ax_packing k;
    struct ax_tensor buffers[AX_PACKED_BUFFERS];
    float *got;
    assert_int_equal(ax_mesh_create(&mesh, meshes[0], 1, 0), AX_OK);
    ax_packing_start(&k, AX_STORAGE_INT4);
    ax_packing_add(&k, &mesh, &p);
    const int n = ax_packing_buffers(&k, NUMEL, buffers);
    for (int b = 0; b < n; b++) {
        char *bytes;
        assert_int_equal(ax_alloc(&bytes, ax_tensor_bytes(&buffers[b]), 1), AX_OK);
        buffers[b].data = bytes;
    }
    assert_int_equal(ax_alloc(&got, NUMEL, sizeof *got), AX_OK);
    const struct ax_packed_source source = {&p, &mesh, &from};
    assert_int_equal(ax_packing_load(&k, queue, buffers, &source, 0, FIRST, 0), AX_OK);
    const unsigned char *after = (const unsigned char *)buffers[0].data + FIRST / 2;
    for (int i = 0; i < COLS; i++)
        assert_int_equal(after[i], 0); /* no more than that */
    assert_int_equal(ax_packing_load(&k, queue, buffers, &source, FIRST, NUMEL - FIRST, FIRST),
                     AX_OK);
    const struct ax_packed packed = ax_packing_view(&k, buffers, 0, NUMEL);
    const struct ax_tensor out = ax_tensor_2d(AX_F32, got, NUMEL / COLS, COLS);
    assert_int_equal(ax_packed_read(queue, &packed, &out), AX_OK);
    for (int64_t i = 0; i < NUMEL; i++)
        if (got[i] != (float)file_code(i) * file_scale(i))
            fail_msg("element %lld is %g", (long long)i, (double)got[i]);
    for (int b = 0; b < n; b++)
        ax_free((void *)buffers[b].data);
    ax_free(got);
}

/* FP8 codes of which one is no number. */
static int64_t no_number;

static enum ax_status read_fp8(void *ctx, int64_t first, int64_t n, unsigned char *codes,
                               float *scale) {
    const int64_t block = *(int64_t *)ctx;
    for (int64_t i = 0; i < n; i++)
        codes[i] = first + i == no_number ? 0xff : 0x38;
    for (int64_t i = 0; i < n; i += block)
        scale[i / block] = 1;
    return AX_OK;
}

static enum ax_status read_fp8_values(void *ctx, int64_t first, int64_t n, void *out) {
    (void)ctx;
    for (int64_t i = 0; i < n; i++)
        ((float *)out)[i] = first + i == no_number ? NAN : 1;
    return AX_OK;
}

/* Wherever in a piece it is. */
static void a_code_without_a_value_is_refused(void **state) {
    (void)state;
    static struct rank r;
    char want[64];
    open_rank(&r, &meshes[0], 0, AX_STORAGE_FP8);
    for (int i = 0; i < N_PARAMS - 1; i++) {
        const int64_t n = ax_param_numel(&r.params[i]), at[] = {0, n / 2, n - 1, n};
        int64_t block = ax_storage_block(AX_STORAGE_FP8, shapes[i].cols);
        const struct ax_element_codes codes = {AX_QUANT_FP8, block, read_fp8};
        const struct ax_elements from = {.dtype = AX_F32,
                                         .read = read_fp8_values,
                                         .ctx = &block,
                                         .codes = &codes,
                                         .file = "f",
                                         .name = "p"};
        for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
            no_number = at[k];
            const enum ax_status st = ax_unit_load_packed(&r.unit, &r.rt, &r.params[i], &from);
            snprintf(want, sizeof want, "element %lld is", (long long)at[k]);
            assert_int_equal(st, at[k] < n ? AX_ERR_DATA : AX_OK);
            assert_true(st == AX_OK || strstr(ax_error_text(), want));
        }
    }
    ax_arena_free(&r.rt.arena);
}

static void packed_segments_are_small_and_frozen(void **state) {
    (void)state;
    static struct rank r;
    open_rank(&r, &meshes[0], 0, AX_STORAGE_NF4_DOUBLE);
    const struct ax_segment *seg = &r.unit.segments[0];
    assert_int_equal(r.unit.n_segments, 2);
    assert_false(seg->trainable);
    assert_null(seg->master.data);
    assert_null(seg->grad.data);
    assert_null(seg->full.data);
    assert_null(ax_unit_grad(&r.unit, &r.params[0]).data);
    size_t bytes = 0;
    for (int b = 0; b < AX_PACKED_BUFFERS; b++)
        bytes += ax_tensor_bytes(&seg->packed[b]);
    /* four bits, a byte for 64, two floats for 16384 */
    assert_int_equal(bytes, seg->numel / 2 + seg->numel / 64 + 8 * seg->numel / 16384);
    ax_arena_free(&r.rt.arena);
}

static int start(void **state) {
    (void)state;
    const struct ax_arena_plan plan = {.scratch[AX_PHASE_TRAIN] = 1 << 22};
    assert_int_equal(ax_arena_create(&tools, &plan, &ax_device_host), AX_OK);
    assert_int_equal(ax_queue_create(&queue, "ref", NULL, 1, &tools.scratch), AX_OK);
    for (int i = 0; i < N_PARAMS; i++)
        for (int64_t k = 0; k < CAP; k++)
            global[i][k] = ax_rng_normal((struct ax_rng_key){5, 0, (uint32_t)i}, (uint64_t)k) *
                           (float)(1 + k / 1000);
    return 0;
}

static int stop(void **state) {
    (void)state;
    ax_queue_free(queue);
    ax_arena_free(&tools);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mesh_reads_the_same_numbers),
        cmocka_unit_test(every_mesh_keeps_a_files_codes),
        cmocka_unit_test(long_runs_are_read_in_parts),
        cmocka_unit_test(a_code_without_a_value_is_refused),
        cmocka_unit_test(packed_segments_are_small_and_frozen),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
