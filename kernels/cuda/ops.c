/* The table of the backend: its entries, what they take, and their workspaces. */
#include "base/mem.h"
#include "kernels/cuda/find.h"
#include "kernels/cuda/graphs.h"
#include "kernels/cuda/state.h"
#include "kernels/operands.h"

/* Ops that take F64 among their operands. Otherwise it is ref's. */
static const bool takes_f64[AX_OP_COUNT] = {
    [AX_OP_fill] = true,
    [AX_OP_copy] = true,
    [AX_OP_merge_low_rank] = true,
    [AX_OP_merged_squares] = true,
};

static void cuda_close(struct ax_queue *q) {
    struct ax_cuda_state *s = q->state;
    if (!s)
        return;
    ax_dnn_close(s->dnn);
    ax_blas_close(s->blas);
    ax_free(s);
}

static enum ax_status open_gpu(struct ax_queue *q) {
    struct ax_cuda_state *s = q->state;
    struct cudaDeviceProp properties;
    int gpu;
    AX_TRY(ax_cuda_usable());
    AX_TRY(ax_cuda_use());
    AX_TRY(ax_cuda_own(&gpu));
    AX_CUDA_TRY(cudaGetDeviceProperties(&properties, gpu));
    s->processors = properties.multiProcessorCount;
    s->wgmma = ax_cuda_uses_wgmma(properties.major, properties.minor);
    AX_TRY(ax_blas_open(&s->blas, &q->counters));
    return ax_dnn_open(&s->dnn);
}

/* A plan of memory needs neither GPU nor libraries. */
static enum ax_status cuda_open(struct ax_queue *q) {
    struct ax_cuda_state *s;
    AX_TRY(ax_alloc(&s, 1, sizeof *s));
    q->state = s;
    const enum ax_status st = ax_queue_is_meta(q) ? AX_OK : open_gpu(q);
    if (st != AX_OK) {
        cuda_close(q);
        q->state = NULL;
    }
    return st;
}

/* ---- products of 8-bit floats ---- */

#define OLDEST_FP8 89 /* compute capability 8.9: Ada */
#define ROWS_FP8   90 /* the only one for which cuBLASLt's documentation has scales of rows */

/* The library's answer. A queue that plans opens it for that, so that the run has the memory of its plan. */
static bool ask_for_row_scales(const struct ax_queue *q) {
    struct ax_queue_counters unused = {0};
    struct ax_blas *b = NULL;
    bool has = false;
    if (!ax_queue_is_meta(q))
        return ax_blas_has_row_scales(ax_cuda_state(q)->blas);
    if (ax_cuda_use() == AX_OK && ax_blas_open(&b, &unused) == AX_OK)
        has = ax_blas_has_row_scales(b);
    ax_error_clear();
    ax_blas_close(b);
    return has;
}

static bool has_row_scales(const struct ax_queue *q) {
    struct ax_cuda_state *s = ax_cuda_state(q);
    if (s->row_scales == AX_NOT_ASKED)
        s->row_scales = ask_for_row_scales(q) ? AX_HAS : AX_LACKS;
    return s->row_scales == AX_HAS;
}

/* Without a GPU, of the one that is planned for; of an unknown one, all. */
static bool has_fp8(const struct ax_queue *q, const struct ax_fp8_gemm *g) {
    struct ax_cuda_state *s = ax_cuda_state(q);
    if (q->gpu == 0 && s->capability == 0)
        s->capability = ax_cuda_capability();
    const int gpu = q->gpu > 0 ? q->gpu : s->capability;
    if (gpu == 0)
        return true;
    if (!ax_fp8_gemm_by_rows(g))
        return gpu >= OLDEST_FP8;
    return gpu == ROWS_FP8 && (q->gpu > 0 || has_row_scales(q));
}

static bool cuda_supports(const struct ax_queue *q, enum ax_op op, const void *args) {
    bool fits = op != AX_OP_fp8_gemm || has_fp8(q, args);
    for (const struct ax_operand *o = ax_op_operands(op); fits && o->name != NULL; o++) {
        const struct ax_tensor *t = (const struct ax_tensor *)((const char *)args + o->offset);
        fits = t->data == NULL || ((t->dtype != AX_F64 || takes_f64[op]) && !t->panels);
    }
    return fits;
}

static size_t cuda_workspace(struct ax_queue *q, enum ax_op op, const void *args) {
    (void)q;
    switch (op) {
#define CASE(name)                                                                                 \
    case AX_OP_##name:                                                                             \
        return ax_cuda_##name##_work(args);
        AX_CUDA_WORK(CASE)
#undef CASE
    default:
        return 0;
    }
}

static enum ax_status cuda_choices(struct ax_queue *q, struct ax_buf *out) {
    return ax_blas_choices(ax_cuda_state(q)->blas, out);
}

static enum ax_status cuda_choose(struct ax_queue *q, const char *text) {
    (void)ax_cuda_stream(q); /* what was enqueued is computed as it would have been */
    ax_graphs_forget(ax_cuda_graphs(q));
    return ax_blas_choose(ax_cuda_state(q)->blas, text);
}

/* ---- entries: each op goes through graphs.c, which compares its arguments and calls it now or later ---- */

/* What is between the members of a struct may be anything. Without the builtin (GCC's), ops that are the same may
 * look different, and are launched one by one. */
#ifdef __has_builtin
#if __has_builtin(__builtin_clear_padding)
#define CLEAR_PADDING(args) __builtin_clear_padding(args)
#endif
#endif
#ifndef CLEAR_PADDING
#define CLEAR_PADDING(args) ((void)(args))
#endif

#define ENQUEUE(op)                                                                                \
    static enum ax_status run_##op(struct ax_queue *q, const void *args, void *work) {             \
        return ax_cuda_##op(q, args, work);                                                        \
    }                                                                                              \
    static enum ax_status enqueue_##op(struct ax_queue *q, const struct ax_##op *args,             \
                                       void *work) {                                               \
        struct ax_##op plain = *args;                                                              \
        CLEAR_PADDING(&plain);                                                                     \
        return ax_graphs_enqueue(                                                                  \
            ax_cuda_graphs(q),                                                                     \
            &(struct ax_graphs_op){AX_OP_##op, run_##op, &plain, sizeof plain, work});             \
    }
AX_OP_LIST(ENQUEUE)
#undef ENQUEUE

const struct ax_ops ax_ops_cuda = {.name = "cuda",
                                   .device = &ax_device_cuda,
                                   .rounding = {.head_chunk = 2048},
                                   .whole_blocks = true,
                                   .fp8_products = true,
                                   .open = cuda_open,
                                   .close = cuda_close,
                                   .supports = cuda_supports,
                                   .workspace = cuda_workspace,
                                   .choices = cuda_choices,
                                   .choose = cuda_choose,
#define ENTRY(op) .op = enqueue_##op,
                                   AX_OP_LIST(ENTRY)
#undef ENTRY
};

enum ax_status ax_cuda_find(const struct ax_ops **out) {
    *out = &ax_ops_cuda;
    return AX_OK;
}

bool ax_cuda_is_built(void) {
    return true;
}
