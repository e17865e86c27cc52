/* muon_momentum: the update is built in the gradient's place while its squares are summed, then divided by
 * its norm. Moves 26 bytes per weight with a BF16 result. */
#include "kernels/cuda/four.cuh"
#include "kernels/cuda/totals.cuh"

struct momentum_term {
    float *grad, *buffer;
    double momentum;
    bool nesterov;
    const ax_step_scalars *s;

    /* Four elements of the update, and Σ of their squares. */
    __device__ double operator()(int64_t i, int64_t n) const {
        if (s->skip != 0)
            return 0;
        const float clip = (float)s->clip, keep = (float)momentum, blend = (float)(1 - momentum);
        four g = load_four(grad + i, n - i), b = load_four(buffer + i, n - i);
        double sum = 0;
        AX_UNROLL
        for (int k = 0; k < 4; k++) {
            const float clipped = g.x[k] * clip;
            b.x[k] = fmaf(blend, clipped - b.x[k], b.x[k]);
            g.x[k] = nesterov ? fmaf(keep, b.x[k] - clipped, clipped) : b.x[k];
            sum += (double)g.x[k] * (double)g.x[k];
        }
        store_four(buffer + i, n - i, b);
        store_four(grad + i, n - i, g);
        return sum;
    }
};

#define THREADS 256

template <class E>
__global__ void __launch_bounds__(THREADS)
    muon_divide(E *out, float *grad, int64_t n, const double *sumsq, double eps,
                const ax_step_scalars *s) {
    const int64_t i = 4 * thread_number();
    if (i >= n)
        return;
    four u = {};
    if (s->skip == 0) {
        const float norm = (float)fmax(sqrt(*sumsq), eps);
        u = load_four(grad + i, n - i);
        AX_UNROLL
        for (int k = 0; k < 4; k++)
            u.x[k] /= norm;
    }
    store_four(out + i, n - i, u);
    store_four(grad + i, n - i, {});
}

extern "C" size_t ax_cuda_muon_momentum_work(const struct ax_muon_momentum *a) {
    return (1 + total_pieces(ax_tensor_numel(&a->grad))) * sizeof(double);
}

extern "C" enum ax_status ax_cuda_muon_momentum(struct ax_queue *q,
                                                const struct ax_muon_momentum *a, void *work) {
    const int64_t n = ax_tensor_numel(&a->grad);
    double *total = (double *)work;
    float *grad = (float *)a->grad.data;
    if (n == 0)
        return AX_OK;
    const momentum_term term = {grad, (float *)a->momentum_buffer.data, a->momentum, a->nesterov,
                                a->scalars};
    AX_TRY(run_total(q, term, n, total + 1, total));
    return by_real(a->out.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        return AX_LAUNCH(q, muon_divide<E>, blocks_of(n, 4 * THREADS), THREADS, 0, (E *)a->out.data,
                         grad, n, (const double *)total, a->eps, a->scalars);
    });
}
