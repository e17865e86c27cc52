/* attention_merge: one warp per row and head, whose lanes have every 32nd column. Moves out twice, part
 * once. */
#include "kernels/cuda/kernel.cuh"

#define WARPS 8

template <class E> struct merge_args {
    rows_of<float> out, lse;
    rows_of<const E> part;
    rows_of<const float> part_lse;
    int64_t rows, heads, size;
};

template <class E>
__global__ void __launch_bounds__(32 * WARPS) attention_merge_kernel(merge_args<E> m) {
    const int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (i >= m.rows * m.heads)
        return;
    const int64_t t = i / m.heads, h = i % m.heads;
    const int lane = threadIdx.x % 32;
    const float a = m.lse.at(t, h), b = m.part_lse.at(t, h), most = fmaxf(a, b);
    const bool none = most == -INFINITY;
    const float all = none ? most : most + logf(expf(a - most) + expf(b - most));
    const float of_out = none ? 0 : expf(a - all), of_part = none ? 0 : expf(b - all);
    for (int64_t c = h * m.size + lane; c < (h + 1) * m.size; c += 32) {
        float &out = m.out.at(t, c);
        out = none ? 0 : out * of_out + (float)m.part.at(t, c) * of_part;
    }
    __syncwarp(); /* all lanes have read lse */
    if (lane == 0)
        m.lse.at(t, h) = all;
}

extern "C" enum ax_status ax_cuda_attention_merge(struct ax_queue *q,
                                                  const struct ax_attention_merge *a, void *work) {
    (void)work;
    const int64_t rows = a->part.shape[0], heads = a->part.shape[1], size = a->part.shape[2];
    if (rows * heads == 0)
        return AX_OK;
    return by_real(a->part.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        const merge_args<E> args = {as_rows<float>(&a->out),
                                    as_rows<float>(&a->lse),
                                    as_rows<const E>(&a->part),
                                    as_rows<const float>(&a->part_lse),
                                    rows,
                                    heads,
                                    size};
        return AX_LAUNCH(q, attention_merge_kernel<E>, blocks_of(rows * heads, WARPS), 32 * WARPS,
                         0, args);
    });
}
