/* This instruction set's op table. */
#include "kernels/cpu/vec/entries.h"

/* The dtype an op computes in: that of its first tensor, which every argument struct begins with,
 * except begin_step and clip, which have none, group_rows, which has only integers, and fill, which has
 * any. */
static bool computes(enum ax_op op, const void *args) {
    if (op == AX_OP_begin_step || op == AX_OP_clip || op == AX_OP_group_rows || op == AX_OP_fill)
        return true;
    const enum ax_dtype dtype = ((const struct ax_tensor *)args)->dtype;
    if (op == AX_OP_copy || op == AX_OP_scatter_rows)
        return dtype != AX_F64;
    return dtype == AX_F32 || dtype == AX_BF16;
}

static bool supports(const struct ax_queue *q, enum ax_op op, const void *args) {
    switch (op) {
#define SUPPORTS(name)                                                                             \
    case AX_OP_##name:                                                                             \
        return AX_VEC(ax_cpu_##name##_supports)(q, args);
        AX_CPU_SUPPORTS_LIST(SUPPORTS)
    default:
        return computes(op, args);
    }
}

static size_t workspace(struct ax_queue *q, enum ax_op op, const void *args) {
    switch (op) {
#define WORKSPACE(name)                                                                            \
    case AX_OP_##name:                                                                             \
        return AX_VEC(ax_cpu_##name##_workspace)(q, args);
        AX_CPU_WORKSPACE_LIST(WORKSPACE)
    default:
        return 0;
    }
}

const struct ax_ops AX_VEC(ax_ops_cpu) = {.name = "cpu",
                                          .device = &ax_device_host,
                                          .supports = supports,
                                          .workspace = workspace,
#define ENTRY(op) .op = AX_VEC(ax_cpu_##op),
                                          AX_OP_LIST(ENTRY)};
