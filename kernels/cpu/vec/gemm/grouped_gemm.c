/* One matrix product per group of rows. */
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/gemm/gemm.h"
#include "kernels/operands.h"

bool AX_VEC(ax_cpu_grouped_gemm_supports)(const struct ax_queue *q,
                                          const struct ax_grouped_gemm *args) {
    (void)q;
    return args->a.dtype == AX_F32 || args->a.dtype == AX_BF16;
}

/* Enough for any number of rows in a group. */
size_t AX_VEC(ax_cpu_grouped_gemm_workspace)(struct ax_queue *q,
                                             const struct ax_grouped_gemm *args) {
    const int64_t rows = args->a.shape[0], width = args->a.shape[1];
    const enum ax_dtype dtype = args->a.dtype;
    if (args->trans_a)
        return AX_VEC(ax_gemm_most_room)(dtype, width, args->b.shape[1], rows, q->threads);
    return AX_VEC(ax_gemm_most_room)(dtype, rows, args->c.shape[1], width, q->threads);
}

/* One GEMM after the other, each on all threads: its bits depend on its own rows only. */
enum ax_status AX_VEC(ax_cpu_grouped_gemm)(struct ax_queue *q, const struct ax_grouped_gemm *args,
                                           void *work) {
    const int32_t *offsets = args->offsets.data;
    const size_t room = AX_VEC(ax_cpu_grouped_gemm_workspace)(q, args);
    for (int64_t g = 0; g + 1 < args->offsets.shape[0]; g++) {
        if (offsets[g + 1] > offsets[g]) {
            const struct ax_gemm one = ax_grouped_gemm_of(args, g);
            AX_VEC(ax_gemm_run)(&one, q->threads, work, room);
        }
    }
    return AX_OK;
}
