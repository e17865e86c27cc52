/* Distillation: support_logits, tail_logits, divergence, divergence_merge, distill_loss, distill_backward (kernels/distill_ops.h has the
 * formulas). Rows of both models are read once; terms are F32, sums double. */
#include "kernels/cuda/elements.cuh"

#define THREADS 256

/* ---- part of the vocabulary: a thread per element ---- */

struct support {
    rows_of<const float> marks, more;
    bool two;
};
static inline support support_of(const struct ax_tensor *marks, const struct ax_tensor *more) {
    return {as_rows<const float>(marks), as_rows<const float>(more->data ? more : marks),
            more->data != nullptr};
}
__device__ static inline bool is_marked(const support &s, int64_t t, int64_t c) {
    const float half = (float)(AX_TRUNCATED / 2);
    return s.marks.at(t, c) > half || (s.two && s.more.at(t, c) > half);
}

__global__ void __launch_bounds__(THREADS)
    support_kernel(support s, rows_of<float> logits, extent e, bool inside) {
    const int64_t i = thread_number(), t = i / e.cols, c = i % e.cols;
    if (i < e.n && is_marked(s, t, c) != inside)
        logits.at(t, c) = (float)AX_TRUNCATED;
}

extern "C" enum ax_status ax_cuda_support_logits(struct ax_queue *q,
                                                 const struct ax_support_logits *a, void *work) {
    (void)work;
    const extent e = extent_of(&a->logits);
    return e.n == 0 ? AX_OK
                    : AX_LAUNCH(q, support_kernel, blocks_of(e.n, THREADS), THREADS, 0,
                                support_of(&a->marks, &a->more), as_rows<float>(&a->logits), e,
                                a->inside);
}

__global__ void __launch_bounds__(THREADS)
    tail_kernel(support s, rows_of<const float> logits, rows_of<float> teacher, extent e,
                const float *tail, const float *teacher_tail, double temperature) {
    const int64_t i = thread_number(), t = i / e.cols, c = i % e.cols;
    if (i < e.n && !is_marked(s, t, c))
        teacher.at(t, c) =
            logits.at(t, c) + (float)(temperature * ((double)teacher_tail[t] - (double)tail[t]));
}

extern "C" enum ax_status ax_cuda_tail_logits(struct ax_queue *q, const struct ax_tail_logits *a,
                                              void *work) {
    (void)work;
    const extent e = extent_of(&a->logits);
    return e.n == 0 ? AX_OK
                    : AX_LAUNCH(q, tail_kernel, blocks_of(e.n, THREADS), THREADS, 0,
                                support_of(&a->marks, &a->more), as_rows<const float>(&a->logits),
                                as_rows<float>(&a->teacher), e, (const float *)a->tail.data,
                                (const float *)a->teacher_tail.data, a->temperature);
}

/* How both models are mixed, for all rows. */
struct mixing {
    bool forward, reverse;          /* β is 0, or 1 */
    float inv_temperature, student; /* of the KL of the student: 1 − β, or 1 in reverse */
    float log_student, log_teacher; /* log(1 − β), log β */
};
static inline mixing mixing_of(double beta, double inv_temperature) {
    return {beta == 0,
            beta == 1,
            (float)inv_temperature,
            beta == 1 ? 1.0f : (float)(1 - beta),
            beta < 1 ? (float)log(1 - beta) : 0.0f,
            beta > 0 ? (float)log(beta) : 0.0f};
}

/* NaN stays. */
__device__ static inline float log_prob(float z, const mixing &m, float lse) {
    const float x = z * m.inv_temperature - lse;
    return x < (float)AX_LOG_FLOOR ? (float)AX_LOG_FLOOR : x;
}

/* log((1−β)·e^s + β·e^t) */
__device__ static inline float log_mixture(float s, float t, const mixing &m) {
    if (m.forward || m.reverse)
        return m.forward ? s : t;
    const float x = s + m.log_student, y = t + m.log_teacher;
    return fmaxf(x, y) + log1pf(expf(-fabsf(x - y)));
}

/* ---- divergence: a block per row ---- */

template <class E>
__global__ void __launch_bounds__(THREADS)
    divergence_kernel(rows_of<const E> logits, rows_of<const E> teacher, int64_t cols,
                      const float *lse, const float *teacher_lse, rows_of<float> parts, mixing m) {
    const int64_t t = blockIdx.x;
    double of_teacher = 0, of_student = 0;
    for (int64_t c = threadIdx.x; c < cols; c += THREADS) {
        const float ls = log_prob((float)logits.at(t, c), m, lse[t]);
        const float lt = log_prob((float)teacher.at(t, c), m, teacher_lse[t]);
        const float lm = log_mixture(ls, lt, m);
        of_teacher += (double)(expf(lt) * (lt - lm));
        of_student += (double)(expf(ls) * (ls - lm));
    }
    of_teacher = block_sum(of_teacher);
    of_student = block_sum(of_student);
    if (threadIdx.x == 0) {
        parts.at(t, 0) = (float)of_teacher;
        parts.at(t, 1) = (float)of_student;
    }
}

extern "C" enum ax_status ax_cuda_divergence(struct ax_queue *q, const struct ax_divergence *a,
                                             void *work) {
    (void)work;
    if (a->logits.shape[0] == 0)
        return AX_OK;
    return by_real(a->logits.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        return AX_LAUNCH(q, divergence_kernel<E>, (unsigned)a->logits.shape[0], THREADS, 0,
                         as_rows<const E>(&a->logits), as_rows<const E>(&a->teacher),
                         a->logits.shape[1], (const float *)a->lse.data,
                         (const float *)a->teacher_lse.data, as_rows<float>(&a->parts),
                         mixing_of(a->beta, a->inv_temperature));
    });
}

/* ---- divergence_merge ---- */

__global__ void __launch_bounds__(THREADS)
    merge_kernel(rows_of<const float> parts, int64_t shards, int64_t rows, float *divergence,
                 float *student_kl, double beta) {
    const int64_t t = thread_number();
    if (t >= rows)
        return;
    double teacher = 0, student = 0;
    for (int64_t s = 0; s < shards; s++) {
        teacher += (double)parts.at(s, 2 * t);
        student += (double)parts.at(s, 2 * t + 1);
    }
    const double mixed = beta * teacher + (1 - beta) * student;
    divergence[t] = (float)(beta == 0 ? teacher : beta == 1 ? student : mixed);
    student_kl[t] = (float)student;
}

extern "C" enum ax_status
ax_cuda_divergence_merge(struct ax_queue *q, const struct ax_divergence_merge *a, void *work) {
    (void)work;
    const int64_t rows = a->parts.shape[1];
    return rows == 0 ? AX_OK
                     : AX_LAUNCH(q, merge_kernel, blocks_of(rows, THREADS), THREADS, 0,
                                 as_rows<const float>(&a->parts), a->parts.shape[0], rows,
                                 (float *)a->divergence.data, (float *)a->student_kl.data, a->beta);
}

/* ---- distill_loss: one block takes the rows in turn ---- */

struct loss_rows {
    const float *logprob, *divergence, *weight, *entropy; /* entropy may be NULL */
    const int32_t *labels;
    float *g_logprob, *g_divergence;
    double divergence_weight, nll_weight;
};

__global__ void __launch_bounds__(THREADS)
    distill_loss_kernel(loss_rows r, int64_t rows, ax_step_scalars *s, ax_step_measures *measures) {
    double weight = 0, divergence = 0, nll = 0, entropy = 0;
    for (int64_t t = threadIdx.x; t < rows; t += THREADS) {
        const bool labeled = r.labels[t] >= 0;
        const double w = labeled ? (double)r.weight[t] : 0;
        r.g_logprob[t] = (float)(-r.nll_weight * w * s->inv_weight);
        r.g_divergence[t] = (float)(r.divergence_weight * w * s->inv_weight);
        weight += w;
        divergence += labeled ? w * (double)r.divergence[t] : 0;
        nll -= labeled ? w * (double)r.logprob[t] : 0;
        entropy += labeled && r.entropy != nullptr ? w * (double)r.entropy[t] : 0;
    }
    weight = block_sum(weight);
    divergence = block_sum(divergence);
    nll = block_sum(nll);
    entropy = block_sum(entropy);
    if (threadIdx.x != 0)
        return;
    s->loss += s->inv_weight * (r.divergence_weight * divergence + r.nll_weight * nll);
    if (measures != nullptr) {
        measures->sum[0] += divergence;
        measures->sum[1] += nll;
        measures->of[0] += weight;
        measures->of[1] += weight;
        measures->sum[2] += entropy;
        measures->of[2] += r.entropy != nullptr ? weight : 0;
    }
}

extern "C" enum ax_status ax_cuda_distill_loss(struct ax_queue *q, const struct ax_distill_loss *a,
                                               void *work) {
    (void)work;
    const loss_rows r = {(const float *)a->logprob.data,
                         (const float *)a->divergence.data,
                         (const float *)a->weight.data,
                         (const float *)a->entropy.data,
                         (const int32_t *)a->labels.data,
                         (float *)a->g_logprob.data,
                         (float *)a->g_divergence.data,
                         a->divergence_weight,
                         a->nll_weight};
    const int64_t rows = a->logprob.shape[0];
    return rows == 0
               ? AX_OK
               : AX_LAUNCH(q, distill_loss_kernel, 1, THREADS, 0, r, rows, a->scalars, a->measures);
}

/* ---- distill_backward: a block per row, as of softmax_backward ---- */

struct gradient_rows {
    const int32_t *labels;
    const float *nll_lse, *lse, *teacher_lse, *student_kl, *g_logprob, *g_divergence;
    int64_t first_col;
};

__device__ static inline float slope_at(float z, float teacher, const gradient_rows &r, int64_t t,
                                        int64_t c, const mixing &m) {
    const int64_t label = r.labels[t];
    const float g_logprob = label >= 0 ? r.g_logprob[t] : 0;
    const float ls = log_prob(z, m, r.lse[t]), lt = log_prob(teacher, m, r.teacher_lse[t]);
    const float s = expf(ls);
    const float slope =
        m.forward ? s - expf(lt) : m.student * s * (ls - log_mixture(ls, lt, m) - r.student_kl[t]);
    const float hit = label == r.first_col + c ? 1 : 0;
    return g_logprob * (hit - expf(z - r.nll_lse[t])) +
           r.g_divergence[t] * m.inv_temperature * slope;
}

template <class E, class D>
__global__ void __launch_bounds__(THREADS)
    distill_backward_kernel(rows_of<const E> logits, rows_of<const E> teacher, rows_of<D> dlogits,
                            int64_t cols, gradient_rows r, mixing m) {
    const int64_t t = blockIdx.x;
    for (int64_t first = 0; first < cols; first += THREADS) {
        const int64_t c = first + threadIdx.x;
        const float z = c < cols ? (float)logits.at(t, c) : 0;
        __syncthreads(); /* dlogits may lie over logits: all of a tile is read before it is stored */
        if (c < cols)
            dlogits.at(t, c) = D(slope_at(z, (float)teacher.at(t, c), r, t, c, m));
    }
}

extern "C" enum ax_status
ax_cuda_distill_backward(struct ax_queue *q, const struct ax_distill_backward *a, void *work) {
    (void)work;
    const int64_t rows = a->logits.shape[0], cols = a->logits.shape[1];
    const gradient_rows r = {
        (const int32_t *)a->labels.data,     (const float *)a->nll_lse.data,
        (const float *)a->lse.data,          (const float *)a->teacher_lse.data,
        (const float *)a->student_kl.data,   (const float *)a->g_logprob.data,
        (const float *)a->g_divergence.data, a->first_col};
    if (rows == 0)
        return AX_OK;
    return by_real(a->logits.dtype, [&](auto *x) {
        return by_real(a->dlogits.dtype, [&](auto *d) {
            typedef AX_TYPE(x) E;
            typedef AX_TYPE(d) D;
            return AX_LAUNCH(q, (distill_backward_kernel<E, D>), (unsigned)rows, THREADS, 0,
                             as_rows<const E>(&a->logits), as_rows<const E>(&a->teacher),
                             as_rows<D>(&a->dlogits), cols, r,
                             mixing_of(a->beta, a->inv_temperature));
        });
    });
}
