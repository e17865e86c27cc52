/* The state of a queue of this backend: its libraries, and what its kernels ask of the GPU. Of a queue that plans,
 * only what products there are. */
#ifndef AX_KERNELS_CUDA_STATE_H
#define AX_KERNELS_CUDA_STATE_H

#include "kernels/cuda/gemm/blas.h"
#include "kernels/cuda/attention/cudnn.h"

struct ax_cuda_state {
    int capability; /* the GPU's (find.h), once an 8-bit product was asked for; 0: none is known */
    /* the library's products of codes with scales of rows, on this GPU */
    enum { AX_NOT_ASKED, AX_HAS, AX_LACKS } row_scales;
    struct ax_blas *blas;
    struct ax_dnn *dnn;
    int processors;
    bool wgmma; /* kernels use it (find.h) */
};
/* Fails the queue, from any thread: every later wait returns this error, unless there was an
 * earlier one, and calls that have not begun do not run. */
void ax_cuda_fail(struct ax_queue *q, const struct ax_error_record *why);

static inline struct ax_cuda_state *ax_cuda_state(const struct ax_queue *q) {
    return q->state;
}

#endif
