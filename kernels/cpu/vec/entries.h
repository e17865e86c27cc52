/* What one instruction set's copy of this folder exports: an entry per op, plus a hook each for ops
 * that support only some arguments or need workspace. table.c builds the op table from them. Read
 * vec.h first. */
#ifndef AX_KERNELS_CPU_VEC_ENTRIES_H
#define AX_KERNELS_CPU_VEC_ENTRIES_H

#include "kernels/cpu/vec/vec.h"
#include "kernels/ops.h"
#include "kernels/queue.h"

/* enum ax_status ax_cpu_NAME_ISA(q, args, work): the op itself. */
#define AX_CPU_ENTRY(name)                                                                         \
    enum ax_status AX_VEC(ax_cpu_##name)(struct ax_queue * q, const struct ax_##name *args,        \
                                         void *work);
AX_OP_LIST(AX_CPU_ENTRY)
#undef AX_CPU_ENTRY

/* Ops that support only some dtypes and shapes have bool ax_cpu_NAME_supports_ISA(q, args); the
 * others support everything ops.h allows with F32 or BF16 as the dtype of their first operand
 * (table.c). */
#define AX_CPU_SUPPORTS_LIST(X)                                                                    \
    X(gemm)                                                                                        \
    X(attention_forward)                                                                           \
    X(attention_backward) X(top_keys) X(grouped_gemm) X(packed_gemm) X(fp8_gemm)

/* Ops that need workspace have size_t ax_cpu_NAME_workspace_ISA(q, args): bytes, from shapes,
 * dtypes and q->threads only. */
#define AX_CPU_WORKSPACE_LIST(X)                                                                   \
    X(gemm)                                                                                        \
    X(attention_forward)                                                                           \
    X(attention_backward)                                                                          \
    X(top_keys)                                                                                    \
    X(conv_forward)                                                                                \
    X(conv_backward)                                                                               \
    X(delta_gates_backward)                                                                        \
    X(ssd_gates_backward)                                                                          \
    X(delta_forward)                                                                               \
    X(delta_backward)                                                                              \
    X(colsum)                                                                                      \
    X(rmsnorm_backward)                                                                            \
    X(sumsq)                                                                                       \
    X(router_forward)                                                                              \
    X(grouped_gemm)                                                                                \
    X(packed_gemm) X(fp8_gemm) X(coldot) X(adafactor) X(muon_momentum) X(sample) X(truncate)

#define AX_CPU_SUPPORTS(name)                                                                      \
    bool AX_VEC(ax_cpu_##name##_supports)(const struct ax_queue *q, const struct ax_##name *args);
AX_CPU_SUPPORTS_LIST(AX_CPU_SUPPORTS)
#undef AX_CPU_SUPPORTS

#define AX_CPU_WORKSPACE(name)                                                                     \
    size_t AX_VEC(ax_cpu_##name##_workspace)(struct ax_queue * q, const struct ax_##name *args);
AX_CPU_WORKSPACE_LIST(AX_CPU_WORKSPACE)
#undef AX_CPU_WORKSPACE

#endif
