/* ssd_gates_forward, ssd_gates_backward: a thread per element; sums over tokens by columns.cuh, of which a token is
 * a row. */
#include "kernels/cuda/delta/gates.cuh"
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/rows/columns.cuh"

#define THREADS 256

template <class E> struct steps {
    rows_of<const E> a;
    const E *log, *bias;
    int64_t tokens, heads;
    float low, high;
    __device__ float input(int64_t t, int64_t h) const {
        return (float)a.at(t, h) + (float)bias[h];
    }
    __device__ float rate(int64_t h) const {
        return expf((float)log[h]);
    }
    __device__ float bounded(float x) const {
        return fminf(fmaxf(x, low), high);
    }
};
template <class E, class Args> static steps<E> steps_of(const Args *f) {
    return {as_rows<const E>(&f->a), (const E *)f->log.data, (const E *)f->bias.data, f->a.shape[0],
            f->a.shape[1],           (float)f->low,          (float)f->high};
}

template <class E>
__global__ void __launch_bounds__(THREADS)
    ssd_gates_forward_kernel(steps<E> v, rows_of<float> g, rows_of<float> step) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= v.tokens * v.heads)
        return;
    const int64_t t = i / v.heads, h = i % v.heads;
    const float s = v.bounded(softplus(v.input(t, h)));
    g.at(t, h) = -v.rate(h) * s;
    step.at(t, h) = s;
}

extern "C" enum ax_status
ax_cuda_ssd_gates_forward(struct ax_queue *q, const struct ax_ssd_gates_forward *f, void *work) {
    (void)work;
    return by_real(f->a.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        const steps<E> v = steps_of<E>(f);
        const int64_t n = v.tokens * v.heads;
        return n == 0 ? AX_OK
                      : AX_LAUNCH(q, ssd_gates_forward_kernel<E>, blocks_of(n, THREADS), THREADS, 0,
                                  v, as_rows<float>(&f->g), as_rows<float>(&f->step));
    });
}

template <class E> struct step_gradients {
    steps<E> v;
    rows_of<const float> dg, dstep, shares;
    __device__ float da(int64_t t, int64_t h) const {
        const float x = v.input(t, h), raw = softplus(x);
        return v.bounded(raw) == raw ? (dstep.at(t, h) - v.rate(h) * dg.at(t, h)) / (1 + expf(-x))
                                     : 0;
    }
};

template <class E>
__global__ void __launch_bounds__(THREADS)
    ssd_gates_backward_kernel(step_gradients<E> in, rows_of<E> da) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < in.v.tokens * in.v.heads)
        da.at(i / in.v.heads, i % in.v.heads) = E(in.da(i / in.v.heads, i % in.v.heads));
}

/* Terms of dlog, dbias or dskip. */
enum step_sum { OF_LOG, OF_BIAS, OF_SKIP };
template <class E, step_sum Sum> struct step_term {
    step_gradients<E> in;
    __device__ float term(int64_t t, int64_t h) const {
        if (Sum == OF_SKIP)
            return in.shares.at(t, h);
        return Sum == OF_BIAS
                   ? in.da(t, h)
                   : -in.dg.at(t, h) * in.v.rate(h) * in.v.bounded(softplus(in.v.input(t, h)));
    }
    __device__ void operator()(int64_t t, int64_t col, float (&out)[AX_NEIGHBORS]) const {
        for (int i = 0; i < AX_NEIGHBORS; i++)
            out[i] = col + i < in.v.heads ? term(t, col + i) : 0;
    }
};

extern "C" size_t ax_cuda_ssd_gates_backward_work(const struct ax_ssd_gates_backward *b) {
    return column_sums_bytes(b->a.shape[0], b->a.shape[1]);
}

template <class E, step_sum Sum>
static enum ax_status add_sums(struct ax_queue *q, const step_gradients<E> &in,
                               const struct ax_tensor *to, void *work) {
    return to->data ? column_sums(q, step_term<E, Sum>{in}, in.v.tokens, in.v.heads,
                                  (float *)to->data, work)
                    : AX_OK;
}

template <class E>
static enum ax_status run_backward(struct ax_queue *q, const struct ax_ssd_gates_backward *b,
                                   void *work) {
    const step_gradients<E> in = {steps_of<E>(b), as_rows<const float>(&b->dg),
                                  as_rows<const float>(&b->dstep),
                                  as_rows<const float>(&b->shares)};
    const int64_t n = in.v.tokens * in.v.heads;
    if (n == 0)
        return AX_OK;
    AX_TRY(AX_LAUNCH(q, ssd_gates_backward_kernel<E>, blocks_of(n, THREADS), THREADS, 0, in,
                     as_rows<E>(&b->da)));
    AX_TRY((add_sums<E, OF_LOG>(q, in, &b->dlog, work)));
    AX_TRY((add_sums<E, OF_BIAS>(q, in, &b->dbias, work)));
    return add_sums<E, OF_SKIP>(q, in, &b->dskip, work);
}

extern "C" enum ax_status
ax_cuda_ssd_gates_backward(struct ax_queue *q, const struct ax_ssd_gates_backward *b, void *work) {
    return by_real(b->a.dtype, [&](auto *e) { return run_backward<AX_TYPE(e)>(q, b, work); });
}
