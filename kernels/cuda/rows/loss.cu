/* nll_loss (kernels/ops.h): one block takes the rows in turn and adds the loss in double. Bytes moved: each
 * operand once. scatter_topk writes a few logits of each row. */
#include "kernels/cuda/kernel.cuh"

struct loss_rows {
    const float *logprob, *weight, *mean_logprob, *lse, *targets;
    const int32_t *labels;
    float *g_logprob, *g_mean, *g_lse;
    double label_smoothing, z_loss;
    bool dynamic;
};

/* The loss of row t; writes its gradients. */
__device__ static inline double row_loss(const loss_rows &r, int64_t t, double inv_weight) {
    const bool labeled = r.labels[t] >= 0;
    const double w = labeled ? (double)r.weight[t] * inv_weight : 0;
    const double p = r.targets && labeled ? (double)r.targets[t] : 0;
    const double e = r.targets ? 2 * fmin(p, 1 - p) : r.label_smoothing;
    const double logprob = labeled ? (double)r.logprob[t] : 0;
    const double s = r.dynamic ? exp(logprob) : 1;
    double loss = -w * (1 - e) * s * logprob;
    r.g_logprob[t] = (float)(-w * (1 - e) * s);
    if (r.targets || e != 0) {
        r.g_mean[t] = (float)(-w * e);
        loss -= labeled ? w * e * (double)r.mean_logprob[t] : 0;
    }
    if (r.z_loss != 0) {
        const double lse = labeled ? (double)r.lse[t] : 0;
        r.g_lse[t] = (float)(2 * w * r.z_loss * lse);
        loss += w * r.z_loss * lse * lse;
    }
    return loss;
}

#define THREADS 512

__global__ void __launch_bounds__(THREADS)
    nll_loss_kernel(loss_rows r, int64_t rows, ax_step_scalars *scalars,
                    ax_step_measures *measures) {
    double loss = 0, right = 0, labels = 0;
    for (int64_t t = threadIdx.x; t < rows; t += blockDim.x) {
        const bool labeled = r.labels[t] >= 0;
        loss += row_loss(r, t, scalars->inv_weight);
        labels += labeled;
        right += labeled && (double)r.logprob[t] > -M_LN2;
    }
    loss = block_sum(loss);
    if (measures != nullptr) {
        right = block_sum(right);
        labels = block_sum(labels);
    }
    if (threadIdx.x != 0)
        return;
    scalars->loss += loss;
    if (measures != nullptr) {
        measures->sum[0] += right;
        measures->of[0] += labels;
    }
}

extern "C" enum ax_status ax_cuda_nll_loss(struct ax_queue *q, const struct ax_nll_loss *a,
                                           void *work) {
    (void)work;
    const loss_rows r = {(const float *)a->logprob.data,
                         (const float *)a->weight.data,
                         (const float *)a->mean_logprob.data,
                         (const float *)a->lse.data,
                         (const float *)a->targets.data,
                         (const int32_t *)a->labels.data,
                         (float *)a->g_logprob.data,
                         (float *)a->g_mean.data,
                         (float *)a->g_lse.data,
                         a->label_smoothing,
                         a->z_loss,
                         a->dynamic};
    const int64_t rows = a->logprob.shape[0];
    return rows == 0
               ? AX_OK
               : AX_LAUNCH(q, nll_loss_kernel, 1, THREADS, 0, r, rows, a->scalars, a->measures);
}

__global__ void scatter_topk_kernel(rows_of<float> logits, int64_t cols, const int32_t *ids,
                                    const float *values, int64_t n, int64_t k, int64_t first_col) {
    const int64_t i = thread_number();
    if (i >= n)
        return;
    const int64_t col = ids[i] - first_col;
    if (col >= 0 && col < cols)
        logits.at(i / k, col) = values[i];
}

extern "C" enum ax_status ax_cuda_scatter_topk(struct ax_queue *q, const struct ax_scatter_topk *a,
                                               void *work) {
    (void)work;
    const int64_t k = a->ids.shape[1], n = a->ids.shape[0] * k;
    return n == 0 ? AX_OK
                  : AX_LAUNCH(q, scatter_topk_kernel, blocks_of(n, THREADS), THREADS, 0,
                              as_rows<float>(&a->logits), a->logits.shape[1],
                              (const int32_t *)a->ids.data, (const float *)a->values.data, n, k,
                              a->first_col);
}
