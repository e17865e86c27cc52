/* The range of what a kernel writes (struct ax_range_of): each thread sees its numbers, before they are rounded to
 * their dtype E, which keeps their order; then blocks, or the teams of vector.cuh, raise the two floats in memory. */
#ifndef AX_KERNELS_CUDA_RANGES_CUH
#define AX_KERNELS_CUDA_RANGES_CUH

#include "kernels/cuda/vector.cuh"

/* The larger one; NaN counts for nothing, and no zero is negative. */
__device__ static inline float raise(float most, float v) {
    return v > most ? v : most;
}

/* Numbers ≥ 0 are ordered as their bits, whose maximum no order changes. What was there before saves most blocks the
 * atomic operation: it never falls. */
__device__ static inline void raise_to(float *to, float v) {
    if (v > *to)
        atomicMax((unsigned *)to, __float_as_uint(v));
}

/* Where the range of the first `rows` rows goes; at NULL: nobody asks. */
struct range_to {
    float *at;
    int64_t rows;
    bool two; /* two parts, a range for each */
};

/* Ranges begin at 0. */
static inline enum ax_status begin_range(struct ax_queue *q, const struct ax_range_of *range,
                                         range_to *to) {
    struct ax_fill clear = {};
    *to = {(float *)range->t.data, range->rows, range->t.shape[0] == 2};
    clear.dst = range->t;
    return to->at != nullptr ? ax_cuda_fill(q, &clear, NULL) : AX_OK;
}

struct seen_range {
    float less, more; /* the largest −x and x, at least 0 */
    __device__ void see(float x) {
        less = raise(less, -x);
        more = raise(more, x);
    }
    __device__ void see(const float (&x)[AX_NEIGHBORS]) {
        AX_UNROLL
        for (int i = 0; i < AX_NEIGHBORS; i++)
            see(x[i]);
    }
};

/* By all threads of a team. */
template <class E> __device__ static inline void raise_range(float *at, seen_range s) {
    s.less = team_reduce<max_op>((float)E(s.less), 0.0f);
    s.more = team_reduce<max_op>((float)E(s.more), 0.0f);
    if (threadIdx.x == 0) {
        raise_to(at, s.less);
        raise_to(at + 1, s.more);
    }
}

#endif
