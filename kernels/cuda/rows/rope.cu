/* Rotary embedding (Su et al. 2021) in place: x₁' = x₁·cos − x₂·sin, x₂' = x₂·cos + x₁·sin. A thread has 8
 * pairs of a head. Bytes moved: the rotated elements twice, a row of each table per token. */
#include "kernels/cuda/vector.cuh"

struct rotation {
    vector_rows<float> cos, sin;
    const int32_t *positions;
    int64_t half, first, head_dim, items; /* items of a row: 8 pairs each */
    bool inverse;
};

/* The 8 pairs are one[i] and two[i]; of neighbors, `one` has the first 4 pairs and `two` the others. */
template <class E, bool Interleaved> __global__ void rope_kernel(vector_rows<E> x, rotation r) {
    const int64_t t = blockIdx.x, item = item_number();
    if (item >= r.items)
        return;
    const int per_head = (int)vectors_in(r.half);
    const int64_t pair = (int)item % per_head * AX_NEIGHBORS;
    const int64_t head = (int)item / per_head * r.head_dim + r.first, end = head + 2 * r.half;
    const int64_t a = head + (Interleaved ? 2 * pair : pair);
    const int64_t b = a + (Interleaved ? AX_NEIGHBORS : r.half);
    const int64_t a_end = Interleaved ? end : head + r.half;
    const int32_t position = r.positions[t];
    float c[AX_NEIGHBORS], s[AX_NEIGHBORS], one[AX_NEIGHBORS], two[AX_NEIGHBORS];
    r.cos.load(position, pair, c);
    r.sin.load(position, pair, s);
    x.load(t, a, a_end, one);
    x.load(t, b, end, two);
    for (int i = 0; i < AX_NEIGHBORS; i++) {
        float &x1 = !Interleaved ? one[i] : i < 4 ? one[2 * i] : two[2 * i - 8];
        float &x2 = !Interleaved ? two[i] : i < 4 ? one[2 * i + 1] : two[2 * i - 7];
        const float sine = r.inverse ? -s[i] : s[i], turned = x1 * c[i] - x2 * sine;
        x2 = x2 * c[i] + x1 * sine;
        x1 = turned;
    }
    x.store(t, a, a_end, one);
    x.store(t, b, end, two);
}

extern "C" enum ax_status ax_cuda_rope(struct ax_queue *q, const struct ax_rope *a, void *work) {
    (void)work;
    const int64_t half = a->cos.shape[1], items = a->x.shape[1] * vectors_in(half);
    const rotation r = {as_vectors<float>(&a->cos),
                        as_vectors<float>(&a->sin),
                        (const int32_t *)a->positions.data,
                        half,
                        a->first,
                        a->x.shape[2],
                        items,
                        a->inverse};
    const row_launch l = items_of(a->x.shape[0], items);
    if (a->x.shape[0] == 0 || items == 0)
        return AX_OK;
    return by_real(a->x.dtype, [&](auto *p) {
        typedef AX_TYPE(p) E;
        const vector_rows<E> x = as_vectors<E>(&a->x, half | a->first | a->x.shape[2]);
        return a->interleaved ? AX_LAUNCH(q, (rope_kernel<E, true>), l.grid, l.threads, 0, x, r)
                              : AX_LAUNCH(q, (rope_kernel<E, false>), l.grid, l.threads, 0, x, r);
    });
}
