/* A bias that the library does not add: of BF16 to F32 sums, or to sums of nothing. One thread per
 * element. Bytes moved: c twice. */
#include "kernels/cuda/gemm/blas.h"
#include "kernels/cuda/elements.cuh"

#define THREADS 256

template <class C, class B> __global__ void add_bias_kernel(rows_of<C> c, const B *bias, extent e) {
    const int64_t i = thread_number();
    if (i >= e.n)
        return;
    C &to = c.at(i / e.cols, i % e.cols);
    to = C((float)to + (float)bias[i % e.cols]);
}

extern "C" enum ax_status ax_cuda_add_bias(struct ax_queue *q, const struct ax_tensor *c,
                                           const struct ax_tensor *bias) {
    const extent e = extent_of(c);
    return by_real(c->dtype, [&](auto *to) {
        return by_real(bias->dtype, [&](auto *from) {
            typedef AX_TYPE(to) C;
            typedef AX_TYPE(from) B;
            return AX_LAUNCH(q, (add_bias_kernel<C, B>), blocks_of(e.n, THREADS), THREADS, 0,
                             as_rows<C>(c), (const B *)bias->data, e);
        });
    });
}
