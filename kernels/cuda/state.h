/* What a queue of the backend keeps: its libraries. */
#ifndef AX_KERNELS_CUDA_STATE_H
#define AX_KERNELS_CUDA_STATE_H

#include "kernels/cuda/gemm/blas.h"
#include "kernels/cuda/attention/cudnn.h"

struct ax_cuda_state {
    struct ax_blas *blas;
    struct ax_dnn *dnn;
};
/* From any thread: whoever waits for the queue from now on gets this error, unless there was another, and calls
 * that have not begun do not run. */
void ax_cuda_fail(struct ax_queue *q, const struct ax_error_record *why);

static inline struct ax_cuda_state *ax_cuda_state(const struct ax_queue *q) {
    return q->state;
}

#endif
