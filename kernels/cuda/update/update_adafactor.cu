/* adafactor: moments of rows and columns, the size of the update, the update (kernels/ops.h has the
 * formulas). Reads the gradient three times and the weights once, or twice where the step's size is
 * relative to theirs. Results of sums stay on the device, where the next kernel reads them. */
#include "kernels/cuda/totals.cuh"
#include "kernels/cuda/update/update.cuh"

#define THREADS 256
#define ROWS    16 /* that a block adds up for the columns' sums */

/* Numbers that kernels pass on. */
struct found {
    double weight_squares, row_sum, update_squares;
};

struct adafactor {
    float *row, *col, *exp_avg_sq; /* a matrix has the first two, a vector the last */
    double decay, eps1, eps2, threshold, weight_decay;
    bool torch, scale;
    int64_t rows, cols, n; /* cols 0: a vector */
    const found *sums;
    const ax_step_scalars *s;
};

__device__ static inline double blend_of(const adafactor &a) {
    return pow((double)a.s->step, a.decay);
}
__device__ static inline float blended(double b, float moment, double mean) {
    return (float)((1 - b) * (double)moment + b * mean);
}

/* Four elements of the update before it is scaled, from the clipped gradient. The factors of row and
 * column are apart, as their product would underflow. */
__device__ static inline four direction(const adafactor &a, int64_t i, const four &g) {
    const float least = a.torch ? (float)a.eps1 : 0; /* of a root of a second moment */
    four u = {};
    if (a.cols == 0) {
        const four v = load_four(a.exp_avg_sq + i, a.n - i);
        AX_UNROLL
        for (int k = 0; k < 4; k++)
            if (i + k < a.n)
                u.x[k] = g.x[k] / fmaxf(sqrtf(v.x[k]), least);
        return u;
    }
    double mean = a.sums->row_sum / (double)a.rows;
    mean = a.torch ? fmax(mean, a.eps1) : mean;
    int64_t row = i / a.cols, col = i % a.cols;
    AX_UNROLL
    for (int k = 0; k < 4; k++) {
        if (i + k >= a.n)
            break;
        const float of_row = sqrtf(a.row[row] / (float)mean), of_col = sqrtf(a.col[col]);
        u.x[k] = a.torch && of_row * of_col < least ? g.x[k] / least : g.x[k] / of_row / of_col;
        if (++col == a.cols) {
            col = 0;
            row++;
        }
    }
    return u;
}

/* ---- moments ---- */

/* Sums of g² + eps1 over rows, complete, and over columns, of each ROWS rows. */
__global__ void __launch_bounds__(THREADS, 2)
    row_moments(adafactor a, const float *grad, float *parts) {
    const int64_t first = blockIdx.x * (int64_t)ROWS;
    if (a.s->skip != 0)
        return;
    const float clip = (float)a.s->clip, extra = a.torch ? 0 : (float)a.eps1;
    double sums[ROWS] = {};
    for (int64_t c = threadIdx.x; c < a.cols; c += THREADS) {
        float sum = 0;
        AX_UNROLL
        for (int r = 0; r < ROWS; r++) {
            if (first + r < a.rows) {
                const float g = grad[(first + r) * a.cols + c] * clip, square = g * g + extra;
                sums[r] += (double)square;
                sum += square;
            }
        }
        parts[blockIdx.x * a.cols + c] = sum;
    }
    const double b = blend_of(a);
    AX_UNROLL
    for (int r = 0; r < ROWS; r++) {
        const double sum = block_sum(sums[r]);
        if (threadIdx.x == 0 && first + r < a.rows)
            a.row[first + r] = blended(b, a.row[first + r], sum / (double)a.cols);
    }
}

__global__ void __launch_bounds__(THREADS)
    col_moments(adafactor a, const float *parts, int64_t count) {
    const int64_t c = thread_number();
    if (c >= a.cols || a.s->skip != 0)
        return;
    double sum = 0;
    for (int64_t p = 0; p < count; p++)
        sum += (double)parts[p * a.cols + c];
    a.col[c] = blended(blend_of(a), a.col[c], sum / (double)a.rows);
}

__global__ void __launch_bounds__(THREADS) vector_moments(adafactor a, const float *grad) {
    const int64_t i = thread_number();
    if (i >= a.n || a.s->skip != 0)
        return;
    const double g = (double)(grad[i] * (float)a.s->clip);
    a.exp_avg_sq[i] = blended(blend_of(a), a.exp_avg_sq[i], g * g + (a.torch ? 0 : a.eps1));
}

/* ---- sizes ---- */

__device__ static inline double squares(const four &v) {
    double sum = 0;
    AX_UNROLL
    for (int k = 0; k < 4; k++)
        sum += (double)v.x[k] * (double)v.x[k];
    return sum;
}

struct weight_term {
    weights w;
    __device__ double operator()(int64_t i, int64_t n) const {
        return squares(load_weights(w, i, n));
    }
};

struct update_term {
    adafactor a;
    const float *grad;
    __device__ double operator()(int64_t i, int64_t n) const {
        four g = load_four(grad + i, n - i);
        AX_UNROLL
        for (int k = 0; k < 4; k++)
            g.x[k] *= (float)a.s->clip;
        return a.s->skip != 0 ? 0 : squares(direction(a, i, g));
    }
};

/* ---- the update ---- */

struct adafactor_rule {
    adafactor a;

    struct constants {
        float keep, size;
    };
    __device__ constants of(const ax_step_scalars &s) const {
        const double n = (double)a.n;
        double size = s.lr, decay = s.lr * a.weight_decay;
        if (a.torch || a.scale) {
            size = a.torch ? fmin(s.lr, 1 / sqrt((double)s.step)) : s.lr;
            size *= fmax(a.eps2, sqrt(a.sums->weight_squares / n));
            decay = a.torch ? decay : size * a.weight_decay;
        }
        size /= fmax(1.0, sqrt(a.sums->update_squares / n) / a.threshold);
        return {(float)(1 - decay), (float)size};
    }

    struct moments {};
    __device__ moments load(int64_t, int64_t) const {
        return {};
    }

    __device__ void apply(const constants &c, const weights &, int64_t i, int64_t, const moments &,
                          const four &g, four &x) const {
        const four u = direction(a, i, g);
        AX_UNROLL
        for (int k = 0; k < 4; k++)
            x.x[k] = fmaf(-c.size, u.x[k], x.x[k] * c.keep);
    }
};

/* ---- launching ---- */

static int64_t cols_of(const struct ax_adafactor *a) {
    return a->master.ndim == 1 ? 0 : a->master.shape[1];
}

/* found, the sums of pieces, the columns' sums of parts. */
static size_t sums_bytes(const struct ax_adafactor *a) {
    return total_pieces(ax_tensor_numel(&a->master)) * sizeof(double);
}
extern "C" size_t ax_cuda_adafactor_work(const struct ax_adafactor *a) {
    return sizeof(found) + sums_bytes(a) +
           (size_t)blocks_of(a->master.shape[0], ROWS) * (size_t)cols_of(a) * sizeof(float);
}

static enum ax_status run_moments(struct ax_queue *q, const adafactor &a, const float *grad,
                                  float *parts, double *row_sum) {
    const unsigned count = blocks_of(a.rows, ROWS);
    if (a.cols == 0)
        return AX_LAUNCH(q, vector_moments, blocks_of(a.n, THREADS), THREADS, 0, a, grad);
    AX_TRY(AX_LAUNCH(q, row_moments, count, THREADS, 0, a, grad, parts));
    AX_TRY(AX_LAUNCH(q, col_moments, blocks_of(a.cols, THREADS), THREADS, 0, a,
                     (const float *)parts, (int64_t)count));
    return AX_LAUNCH(q, total_of<float>, 1, TOTAL_THREADS, 0, (const float *)a.row, a.rows,
                     row_sum);
}

extern "C" enum ax_status ax_cuda_adafactor(struct ax_queue *q, const struct ax_adafactor *a,
                                            void *work) {
    found *sums = (found *)work;
    double *pieces = (double *)(sums + 1);
    float *parts = (float *)((char *)pieces + sums_bytes(a));
    const float *grad = (const float *)a->grad.data;
    const adafactor args = {(float *)a->row.data,
                            (float *)a->col.data,
                            (float *)a->exp_avg_sq.data,
                            a->decay,
                            a->eps1,
                            a->eps2,
                            a->threshold,
                            a->weight_decay,
                            a->torch,
                            a->scale_parameter,
                            a->master.shape[0],
                            cols_of(a),
                            ax_tensor_numel(&a->master),
                            sums,
                            a->scalars};
    if (args.n == 0)
        return AX_OK;
    if (args.torch || args.scale)
        AX_TRY(run_total(q, weight_term{weights_of(a)}, args.n, pieces, &sums->weight_squares));
    AX_TRY(run_moments(q, args, grad, parts, &sums->row_sum));
    AX_TRY(run_total(q, update_term{args, grad}, args.n, pieces, &sums->update_squares));
    return run_update(q, a, grad, adafactor_rule{args});
}
