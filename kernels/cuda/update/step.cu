/* The scalars of a step: begin_step, sumsq, clip, and the device's clock. */
#include "kernels/cuda/kernel.cuh"

__global__ void begin_step_kernel(struct ax_step_scalars *s, bool repeat) {
    s->inv_weight = s->weight > 0 ? 1 / s->weight : 0;
    s->step += !repeat && s->skip == 0;
    s->sumsq = s->loss = s->aux_loss = s->sequence_loss = s->index_loss = 0;
    s->skip = 0;
}

extern "C" enum ax_status ax_cuda_begin_step(struct ax_queue *q, const struct ax_begin_step *a,
                                             void *work) {
    (void)work;
    return AX_LAUNCH(q, begin_step_kernel, 1, 1, 0, a->scalars, a->repeat);
}

/* One double per piece of the operand. */
#define THREADS 256
#define PIECE   ((int64_t)THREADS * 32)

extern "C" size_t ax_cuda_sumsq_work(const struct ax_sumsq *a) {
    return blocks_of(a->x.shape[0], PIECE) * sizeof(double);
}

__global__ void sumsq_pieces(const float *x, int64_t n, double *sums) {
    const int64_t first = blockIdx.x * PIECE, end = min(n, first + PIECE);
    double sum = 0;
    for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x)
        sum += (double)x[i] * (double)x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

__global__ void sumsq_total(const double *sums, int64_t n, struct ax_step_scalars *s) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += sums[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        s->sumsq += sum;
}

extern "C" enum ax_status ax_cuda_sumsq(struct ax_queue *q, const struct ax_sumsq *a, void *work) {
    const int64_t n = a->x.shape[0];
    const unsigned pieces = blocks_of(n, PIECE);
    if (n == 0)
        return AX_OK;
    AX_TRY(AX_LAUNCH(q, sumsq_pieces, pieces, THREADS, 0, (const float *)a->x.data, n,
                     (double *)work));
    return AX_LAUNCH(q, sumsq_total, 1, THREADS, 0, (const double *)work, (int64_t)pieces,
                     a->scalars);
}

__global__ void clip_kernel(struct ax_step_scalars *s) {
    s->grad_norm = sqrt(s->sumsq);
    s->clip = s->max_norm > 0 ? fmin(1.0, s->max_norm / (s->grad_norm + 1e-6)) : 1;
    const bool finite = isfinite(s->grad_norm) && isfinite(s->loss);
    s->skip = s->inv_weight == 0 || !finite || s->loss > s->hold_above ? 1 : 0;
}

extern "C" enum ax_status ax_cuda_clip(struct ax_queue *q, const struct ax_clip *a, void *work) {
    (void)work;
    return AX_LAUNCH(q, clip_kernel, 1, 1, 0, a->scalars);
}

__global__ void time_kernel(struct ax_times *t, int into) {
    const double now = device_seconds();
    if (into >= 0)
        t->seconds[into] += now - t->last;
    t->last = now;
}

extern "C" enum ax_status ax_cuda_time(struct ax_queue *q, const struct ax_cuda_time *a) {
    return AX_LAUNCH(q, time_kernel, 1, 1, 0, a->t, (int)a->into);
}

/* A piece by each row of blocks. */
__global__ void copies_kernel(AX_INDEXED struct ax_cuda_copies c) {
    const struct ax_cuda_copy piece = c.piece[blockIdx.y];
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < piece.words; i += stride)
        piece.to[i] = piece.from[i];
}

extern "C" enum ax_status ax_cuda_copy_all(struct ax_queue *q, const struct ax_cuda_copies *c) {
    size_t most = 1;
    for (int i = 0; i < c->n; i++)
        most = max(most, c->piece[i].words);
    return AX_LAUNCH(q, copies_kernel, dim3(blocks_of(most, THREADS), (unsigned)c->n), THREADS, 0,
                     *c);
}
