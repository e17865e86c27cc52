/* The op table of a set with tiles: bf16 products use them; everything else, float32 included, is
 * what AVX-512 with BF16 does. */
#include "kernels/cpu/vec/entries.h"

#define OTHER(name) ax_cpu_##name##_avx512bf16

extern const struct ax_ops ax_ops_cpu_avx512bf16;

/* Ops with tiles. */
#define TILE_LIST(X)                                                                               \
    X(gemm) X(grouped_gemm) X(packed_gemm) X(attention_forward) X(attention_backward)

/* Their first operand decides. */
#define ENTRY(name)                                                                                \
    enum ax_status OTHER(name)(struct ax_queue * q, const struct ax_##name *args, void *work);     \
    static enum ax_status name(struct ax_queue *q, const struct ax_##name *args, void *work) {     \
        const bool tiles = ((const struct ax_tensor *)args)->dtype == AX_BF16;                     \
        return tiles ? AX_VEC(ax_cpu_##name)(q, args, work) : OTHER(name)(q, args, work);          \
    }
TILE_LIST(ENTRY)

static bool has_tiles(enum ax_op op, const void *args) {
#define IS(name) || op == AX_OP_##name
    return (false TILE_LIST(IS)) && ((const struct ax_tensor *)args)->dtype == AX_BF16;
}

static size_t workspace(struct ax_queue *q, enum ax_op op, const void *args) {
#define WORKSPACE(name)                                                                            \
    if (op == AX_OP_##name)                                                                        \
        return AX_VEC(ax_cpu_##name##_workspace)(q, args);
    if (!has_tiles(op, args))
        return ax_ops_cpu_avx512bf16.workspace(q, op, args);
    TILE_LIST(WORKSPACE)
    return 0;
}

static bool supports(const struct ax_queue *q, enum ax_op op, const void *args) {
    return ax_ops_cpu_avx512bf16.supports(q, op, args);
}

#define DECLARE(name)                                                                              \
    enum ax_status OTHER(name)(struct ax_queue * q, const struct ax_##name *args, void *work);
AX_OP_LIST(DECLARE)

#pragma GCC diagnostic ignored "-Woverride-init"
const struct ax_ops AX_VEC(ax_ops_cpu) = {.name = "cpu",
                                          .device = &ax_device_host,
                                          .supports = supports,
                                          .workspace = workspace,
#define OTHERS(name) .name = OTHER(name),
#define OWN(name)    .name = name,
                                          AX_OP_LIST(OTHERS) TILE_LIST(OWN)};
