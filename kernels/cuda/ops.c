/* The table of the backend: its entries, what they take, and their workspaces. */
#include "kernels/cuda/blas.h"
#include "kernels/operands.h"

/* Ops that take F64 among their operands. Otherwise it is ref's. */
static const bool takes_f64[AX_OP_COUNT] = {
    [AX_OP_fill] = true,
    [AX_OP_copy] = true,
    [AX_OP_merge_low_rank] = true,
    [AX_OP_merged_squares] = true,
};

/* A plan of memory needs neither GPU nor libraries. */
static enum ax_status cuda_open(struct ax_queue *q) {
    struct ax_blas *blas;
    if (ax_queue_is_meta(q))
        return AX_OK;
    AX_TRY(ax_cuda_use());
    AX_TRY(ax_blas_open(&blas));
    q->state = blas;
    return AX_OK;
}

static void cuda_close(struct ax_queue *q) {
    ax_blas_close(q->state);
}

static bool cuda_supports(const struct ax_queue *q, enum ax_op op, const void *args) {
    (void)q;
    bool fits = true;
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

const struct ax_ops ax_ops_cuda = {.name = "cuda",
                                   .device = &ax_device_cuda,
                                   .rounding = {.head_chunk = 2048},
                                   .open = cuda_open,
                                   .close = cuda_close,
                                   .supports = cuda_supports,
                                   .workspace = cuda_workspace,
#define ENTRY(op) .op = ax_cuda_##op,
                                   AX_OP_LIST(ENTRY)
#undef ENTRY
};
