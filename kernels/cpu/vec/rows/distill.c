/* Distillation: two rows of logits side by side, in blocks whose sums are taken in float32 and added
 * up in double, as in softmax.c. A mixture of the two distributions needs its logarithm; the two
 * ends, where the mixture is one of them, do not. */
#include <math.h>

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/simd.h"
#include "kernels/cpu/vec/split.h"

/* Columns; a lane sums at most 256 of them in float32. */
#define BLOCK (AX_LANES < 8 ? 1024 : 2048)

/* A few values of each row: not worth threads. */
enum ax_status AX_VEC(ax_cpu_scatter_topk)(struct ax_queue *q, const struct ax_scatter_topk *args,
                                           void *work) {
    (void)q;
    (void)work;
    const int64_t k = args->ids.shape[1], cols = args->logits.shape[1];
    const int32_t *ids = args->ids.data;
    const float *values = args->values.data;
    for (int64_t t = 0; t < args->ids.shape[0]; t++) {
        float *row = ax_tensor_row(&args->logits, t);
        for (int64_t i = t * k; i < (t + 1) * k; i++) {
            const int64_t c = ids[i] - args->first_col;
            if (c >= 0 && c < cols)
                row[c] = values[i];
        }
    }
    return AX_OK;
}

/* ---- part of the vocabulary ---- */

/* Marks of a row; more NULL: none. */
struct support {
    const float *marks, *more;
};

static struct support support_of(const struct ax_tensor *marks, const struct ax_tensor *more,
                                 int64_t t) {
    return (struct support){ax_tensor_row(marks, t), more->data ? ax_tensor_row(more, t) : NULL};
}

/* x in the support, y outside. */
AX_INLINE v_float choose(const struct support *s, v_float x, v_float y, int64_t i, int64_t n) {
    const v_float half = v_set((float)(AX_TRUNCATED / 2));
    v_float mark = v_load_f32(s->marks + i, n);
    if (s->more != NULL)
        mark = v_max(mark, v_load_f32(s->more + i, n));
    return v_above(mark, half, x) + v_above(half, mark, y);
}

AX_INLINE void support_vector(const struct support *s, float *row, bool inside, int64_t i,
                              int64_t n) {
    const v_float x = v_load_f32(row + i, n), none = v_set((float)AX_TRUNCATED);
    v_store(AX_F32, row, i, n, inside ? choose(s, x, none, i, n) : choose(s, none, x, i, n));
}

enum ax_status AX_VEC(ax_cpu_support_logits)(struct ax_queue *q,
                                             const struct ax_support_logits *args, void *work) {
    (void)work;
    const struct ax_tensor *logits = &args->logits;
    const int64_t cols = logits->shape[1];
    AX_PARALLEL_FOR (team(q, logits->shape[0] * cols), t, logits->shape[0]) {
        const struct support s = support_of(&args->marks, &args->more, t);
        float *row = ax_tensor_row(logits, t);
        AX_EACH_VECTOR(cols, support_vector, &s, row, args->inside);
    }
    return AX_OK;
}

AX_INLINE void tail_vector(const struct support *s, const float *logits, float *teacher,
                           float shift, int64_t i, int64_t n) {
    const v_float x = v_load_f32(teacher + i, n), y = v_load_f32(logits + i, n) + v_set(shift);
    v_store(AX_F32, teacher, i, n, choose(s, x, y, i, n));
}

enum ax_status AX_VEC(ax_cpu_tail_logits)(struct ax_queue *q, const struct ax_tail_logits *args,
                                          void *work) {
    (void)work;
    const float *tail = args->tail.data, *teacher_tail = args->teacher_tail.data;
    const int64_t cols = args->logits.shape[1];
    AX_PARALLEL_FOR (team(q, args->logits.shape[0] * cols), t, args->logits.shape[0]) {
        const struct support s = support_of(&args->marks, &args->more, t);
        const float *logits = ax_tensor_row(&args->logits, t);
        float *teacher = ax_tensor_row(&args->teacher, t);
        const float shift =
            (float)(args->temperature * ((double)teacher_tail[t] - (double)tail[t]));
        AX_EACH_VECTOR(cols, tail_vector, &s, logits, teacher, shift);
    }
    return AX_OK;
}

/* ---- divergences ---- */

enum mixture { STUDENT, TEACHER, BOTH };

static enum mixture mixture_of(double beta) {
    return beta == 0 ? STUDENT : beta == 1 ? TEACHER : BOTH;
}

/* One row of both models. */
struct pair {
    float temper, lse, teacher_lse;
    float log_student, log_teacher; /* log(1−β), log β */
};

static struct pair pair_of(double inv_temperature, double beta, float lse, float teacher_lse) {
    return (struct pair){.temper = (float)inv_temperature,
                         .lse = lse,
                         .teacher_lse = teacher_lse,
                         .log_student = (float)log(1 - beta),
                         .log_teacher = (float)log(beta)};
}

AX_INLINE v_float log_prob(v_float z, float temper, float lse) {
    return v_max(v_set((float)AX_LOG_FLOOR), z * v_set(temper) - v_set(lse));
}

/* log(1 + x), 0 ≤ x ≤ 1: 2·artanh(y) with y = x/(2 + x) ≤ 1/3, whose series in y² is cut after y^15
 * (relative error 2e-9). */
AX_INLINE v_float log_1_plus(v_float x) {
    const v_float y = x / (v_set(2) + x), s = y * y;
    v_float sum = v_set(2.0f / 15);
    sum = v_fma(sum, s, v_set(2.0f / 13));
    sum = v_fma(sum, s, v_set(2.0f / 11));
    sum = v_fma(sum, s, v_set(2.0f / 9));
    sum = v_fma(sum, s, v_set(2.0f / 7));
    sum = v_fma(sum, s, v_set(2.0f / 5));
    sum = v_fma(sum, s, v_set(2.0f / 3));
    return v_fma(sum * s, y, y + y);
}

AX_INLINE v_float log_mixture(enum mixture of, const struct pair *p, v_float ls, v_float lt) {
    if (of != BOTH)
        return of == STUDENT ? ls : lt;
    const v_float a = ls + v_set(p->log_student), b = lt + v_set(p->log_teacher);
    const v_float high = v_max(a, b), low = v_min(a, b);
    return high + log_1_plus(v_exp(low - high));
}

struct part_sums {
    v_float teacher, student;
};

AX_INLINE void part_vector(enum ax_dtype dtype, enum mixture of, const void *logits,
                           const void *teacher, const struct pair *p, struct part_sums *sums,
                           int64_t i, int64_t n) {
    const v_float ls = log_prob(v_load(dtype, logits, i, n), p->temper, p->lse);
    const v_float lt = log_prob(v_load(dtype, teacher, i, n), p->temper, p->teacher_lse);
    const v_float lm = log_mixture(of, p, ls, lt);
    sums->teacher += v_keep(n, v_exp(lt) * (lt - lm), 0);
    sums->student += v_keep(n, v_exp(ls) * (ls - lm), 0);
}

AX_INLINE void parts_row(enum ax_dtype dtype, enum mixture of, const char *logits,
                         const char *teacher, int64_t cols, struct pair p, float *out) {
    const int64_t size = dtype == AX_BF16 ? 2 : 4;
    double sum_teacher = 0, sum_student = 0;
    for (int64_t first = 0; first < cols; first += BLOCK) {
        struct part_sums sums = {v_set(0), v_set(0)};
        AX_EACH_VECTOR(least(BLOCK, cols - first), part_vector, dtype, of, logits + first * size,
                       teacher + first * size, &p, &sums);
        sum_teacher += v_sum(sums.teacher);
        sum_student += v_sum(sums.student);
    }
    out[0] = (float)sum_teacher;
    out[1] = (float)sum_student;
}

/* A copy of a row's loop for each dtype and kind of mixture. */
#define BY_MIXTURE(of, by, ...)                                                                    \
    ((of) == STUDENT   ? by(STUDENT, __VA_ARGS__)                                                  \
     : (of) == TEACHER ? by(TEACHER, __VA_ARGS__)                                                  \
                       : by(BOTH, __VA_ARGS__))
#define PARTS(of, dtype, ...) AX_BY_DTYPE(dtype, parts_row, of, __VA_ARGS__)

enum ax_status AX_VEC(ax_cpu_divergence)(struct ax_queue *q, const struct ax_divergence *args,
                                         void *work) {
    (void)work;
    const struct ax_tensor *logits = &args->logits;
    const float *lse = args->lse.data, *teacher_lse = args->teacher_lse.data;
    const enum mixture of = mixture_of(args->beta);
    const int64_t cols = logits->shape[1];
    AX_PARALLEL_FOR (team(q, 2 * logits->shape[0] * cols), t, logits->shape[0])
        BY_MIXTURE(of, PARTS, logits->dtype, ax_tensor_row(logits, t),
                   ax_tensor_row(&args->teacher, t), cols,
                   pair_of(args->inv_temperature, args->beta, lse[t], teacher_lse[t]),
                   ax_tensor_row(&args->parts, t));
    return AX_OK;
}

/* Two values per token here and below: not worth threads. */
enum ax_status AX_VEC(ax_cpu_divergence_merge)(struct ax_queue *q,
                                               const struct ax_divergence_merge *args, void *work) {
    (void)q;
    (void)work;
    const struct ax_tensor *parts = &args->parts;
    const enum mixture of = mixture_of(args->beta);
    const double a = of == STUDENT ? 1 : of == TEACHER ? 0 : args->beta;
    float *divergence = args->divergence.data, *student_kl = args->student_kl.data;
    for (int64_t t = 0; t < parts->shape[1]; t++) {
        const float *first = (const float *)parts->data + 2 * t;
        double teacher = 0, student = 0;
        for (int64_t s = 0; s < parts->shape[0]; s++) {
            teacher += (double)first[s * parts->row_stride];
            student += (double)first[s * parts->row_stride + 1];
        }
        divergence[t] = (float)(a * teacher + (1 - a) * student);
        student_kl[t] = (float)student;
    }
    return AX_OK;
}

enum ax_status AX_VEC(ax_cpu_distill_loss)(struct ax_queue *q, const struct ax_distill_loss *args,
                                           void *work) {
    (void)q;
    (void)work;
    const float *logprob = args->logprob.data, *each = args->divergence.data,
                *weight = args->weight.data, *entropies = args->entropy.data;
    const int32_t *labels = args->labels.data;
    float *g_logprob = args->g_logprob.data, *g_divergence = args->g_divergence.data;
    const double inv_weight = args->scalars->inv_weight;
    double total = 0, divergence = 0, nll = 0, entropy = 0;
    for (int64_t t = 0; t < args->logprob.shape[0]; t++) {
        const double w = labels[t] >= 0 ? (double)weight[t] : 0;
        g_logprob[t] = (float)(-args->nll_weight * w * inv_weight);
        g_divergence[t] = (float)(args->divergence_weight * w * inv_weight);
        total += w;
        divergence += labels[t] >= 0 ? w * (double)each[t] : 0;
        nll -= labels[t] >= 0 ? w * (double)logprob[t] : 0;
        entropy += labels[t] >= 0 && entropies != NULL ? w * (double)entropies[t] : 0;
    }
    args->scalars->loss +=
        inv_weight * (args->divergence_weight * divergence + args->nll_weight * nll);
    if (args->measures != NULL) {
        args->measures->sum[0] += divergence;
        args->measures->sum[1] += nll;
        args->measures->of[0] += total;
        args->measures->of[1] += total;
        args->measures->sum[2] += entropy;
        args->measures->of[2] += entropies != NULL ? total : 0;
    }
    return AX_OK;
}

/* What a row's gradient is computed with besides the pair: distill_ops.h. */
struct row_gradient {
    struct pair p;
    float nll_lse, g_logprob, scale, student_kl;
};

AX_INLINE v_float slopes(enum mixture of, v_float z, v_float teacher,
                         const struct row_gradient *g) {
    const v_float ls = log_prob(z, g->p.temper, g->p.lse);
    const v_float lt = log_prob(teacher, g->p.temper, g->p.teacher_lse);
    const v_float s = v_exp(ls), nll = v_set(g->g_logprob) * v_exp(z - v_set(g->nll_lse));
    const v_float dz = of == STUDENT
                           ? s - v_exp(lt)
                           : s * (ls - log_mixture(of, &g->p, ls, lt) - v_set(g->student_kl));
    return v_fma(v_set(g->scale), dz, v_set(0) - nll);
}

AX_INLINE void slope_vector(enum ax_dtype to, enum ax_dtype from, enum mixture of,
                            const void *logits, const void *teacher, void *out,
                            const struct row_gradient *g, int64_t i, int64_t n) {
    v_store(to, out, i, n, slopes(of, v_load(from, logits, i, n), v_load(from, teacher, i, n), g));
}

AX_INLINE const char *element(enum ax_dtype dtype, const char *row, int64_t i) {
    return row + i * (dtype == AX_BF16 ? 2 : 4);
}

/* label: column, −1 = not here. Its logit is read first: out may be the logits themselves. */
AX_INLINE void slopes_row(enum ax_dtype to, enum ax_dtype from, enum mixture of, const char *logits,
                          const char *teacher, char *out, int64_t cols, int64_t label,
                          struct row_gradient g) {
    v_float at_label = v_set(0);
    if (label >= 0) /* every lane has it */
        at_label = v_set(g.g_logprob) + slopes(of, v_set(v_lane0(v_load(from, logits, label, 1))),
                                               v_set(v_lane0(v_load(from, teacher, label, 1))), &g);
    if (g.g_logprob == 0 && g.scale == 0) /* a row without a label: no exponentials */
        memset(out, 0, (size_t)(element(to, out, cols) - out));
    else
        AX_EACH_VECTOR(cols, slope_vector, to, from, of, logits, teacher, out, &g);
    if (label >= 0)
        v_store(to, out, label, 1, at_label);
}
#define SLOPES(of, from, to, ...) AX_BY_DTYPES(from, to, slopes_row, of, __VA_ARGS__)

static struct row_gradient gradient_of(const struct ax_distill_backward *args, int64_t t,
                                       bool labeled) {
    const float *lse = args->lse.data, *teacher_lse = args->teacher_lse.data,
                *nll_lse = args->nll_lse.data, *student_kl = args->student_kl.data,
                *g_logprob = args->g_logprob.data, *g_divergence = args->g_divergence.data;
    const double share = mixture_of(args->beta) == BOTH ? 1 - args->beta : 1;
    return (struct row_gradient){
        .p = pair_of(args->inv_temperature, args->beta, lse[t], teacher_lse[t]),
        .nll_lse = nll_lse[t],
        .g_logprob = labeled ? g_logprob[t] : 0,
        .scale = (float)(share * args->inv_temperature * (double)g_divergence[t]),
        .student_kl = student_kl[t]};
}

enum ax_status AX_VEC(ax_cpu_distill_backward)(struct ax_queue *q,
                                               const struct ax_distill_backward *args, void *work) {
    (void)work;
    const struct ax_tensor *logits = &args->logits, *out = &args->dlogits;
    const int32_t *labels = args->labels.data;
    const enum mixture of = mixture_of(args->beta);
    const int64_t cols = logits->shape[1];
    AX_PARALLEL_FOR (team(q, 2 * logits->shape[0] * cols), t, logits->shape[0]) {
        const int64_t c = labels[t] - args->first_col;
        BY_MIXTURE(of, SLOPES, logits->dtype, out->dtype, ax_tensor_row(logits, t),
                   ax_tensor_row(&args->teacher, t), ax_tensor_row(out, t), cols,
                   labels[t] >= 0 && c >= 0 && c < cols ? c : -1,
                   gradient_of(args, t, labels[t] >= 0));
    }
    return AX_OK;
}
