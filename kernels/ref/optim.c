/* The update: begin_step, sumsq, clip, adamw, adamw_8bit, sgd, lion. */
#include <math.h>

#include "kernels/quant/dynamic_map.h"
#include "kernels/ref/update.h"

enum ax_status ax_ref_begin_step(struct ax_queue *q, const struct ax_begin_step *a, void *work) {
    (void)q;
    (void)work;
    struct ax_step_scalars *s = a->scalars;
    s->inv_weight = s->weight > 0 ? 1 / s->weight : 0;
    if (!a->repeat && s->skip == 0)
        s->step++;
    s->sumsq = s->loss = s->aux_loss = s->sequence_loss = s->index_loss = 0;
    s->skip = 0;
    return AX_OK;
}

enum ax_status ax_ref_sumsq(struct ax_queue *q, const struct ax_sumsq *a, void *work) {
    (void)q;
    (void)work;
    double sum = 0;
    for (int64_t i = 0; i < a->x.shape[0]; i++) {
        double x = ax_ref_get(&a->x, i, 0);
        sum += x * x;
    }
    a->scalars->sumsq += sum;
    return AX_OK;
}

enum ax_status ax_ref_clip(struct ax_queue *q, const struct ax_clip *a, void *work) {
    (void)q;
    (void)work;
    struct ax_step_scalars *s = a->scalars;
    s->grad_norm = sqrt(s->sumsq);
    s->clip = s->max_norm > 0 ? fmin(1, s->max_norm / (s->grad_norm + 1e-6)) : 1;
    const bool finite = isfinite(s->grad_norm) && isfinite(s->loss);
    s->skip = s->inv_weight == 0 || !finite || s->loss > s->hold_above ? 1 : 0;
    return AX_OK;
}

double ax_ref_weight(const struct ax_ref_weights *w, int64_t i) {
    if (!ax_ref_given(w->remainder))
        return ax_ref_at(w->master, i);
    const uint16_t *high = w->master->data;
    const int16_t *low = w->remainder->data;
    return (double)ax_f32_join(high[i], low[i]);
}

/* The random word of element i. */
static uint32_t word_of(const struct ax_draw *draw, const struct ax_step_scalars *s, int64_t i) {
    const struct ax_rng_key key = {s->seed, (uint32_t)s->step, draw->stream};
    const int64_t skipped = draw->row > 0 ? (i + draw->column) / draw->row * draw->gap : 0;
    return ax_rng_u32(key, (uint64_t)(draw->first + i + skipped));
}

void ax_ref_set_weight(const struct ax_ref_weights *w, int64_t i, double value) {
    if (ax_ref_given(w->remainder)) {
        uint16_t *high = w->master->data;
        int16_t *low = w->remainder->data;
        high[i] = ax_f32_split((float)value, &low[i]);
        return;
    }
    const struct ax_tensor *drawn = w->master->dtype == AX_BF16 ? w->master : w->copy;
    if (drawn == w->copy) {
        ax_store(w->master->dtype, w->master->data, i, value);
        value = ax_ref_at(w->master, i); /* the copy rounds the stored master */
    }
    if (ax_ref_given(drawn) && drawn->dtype == AX_BF16) {
        struct ax_draw own = *w->draw;
        own.stream++;
        ((uint16_t *)drawn->data)[i] =
            ax_f32_to_bf16_random((float)value, word_of(&own, w->scalars, i));
    } else if (ax_ref_given(drawn)) {
        ax_store(drawn->dtype, drawn->data, i, value);
    }
}

/* Stores a moment; one kept in BF16 is rounded with these 16 bits. */
static void set_moment(const struct ax_tensor *moment, int64_t i, double value, uint32_t random) {
    if (moment->dtype == AX_BF16)
        ((uint16_t *)moment->data)[i] = ax_f32_to_bf16_random((float)value, random);
    else
        ax_store(moment->dtype, moment->data, i, value);
}

/* AdamW's update of one weight, with any kind of moments. */
struct adamw_step {
    double lr, decay, beta1, beta2, eps, correct1, correct2;
};

#define ADAMW_STEP(a)                                                                              \
    {                                                                                              \
        (a)->scalars->lr, (a)->weight_decay, (a)->beta1, (a)->beta2, (a)->eps,                     \
            1 - pow((a)->beta1, (double)(a)->scalars->step),                                       \
            1 - pow((a)->beta2, (double)(a)->scalars->step)                                        \
    }

static double adamw_weight(const struct adamw_step *o, double w, double m, double v) {
    return w * (1 - o->lr * o->decay) -
           o->lr * (m / o->correct1) / (sqrt(v / o->correct2) + o->eps);
}

enum ax_status ax_ref_adamw(struct ax_queue *q, const struct ax_adamw *a, void *work) {
    (void)q;
    (void)work;
    const struct ax_step_scalars *s = a->scalars;
    const struct ax_ref_weights weights = AX_REF_WEIGHTS(a);
    const struct adamw_step step = ADAMW_STEP(a);
    const int64_t n = s->skip != 0 ? 0 : a->master.shape[0];
    for (int64_t i = 0; i < n; i++) {
        double g = ax_ref_grad(&a->grad, i, s);
        double m = a->beta1 * ax_ref_at(&a->exp_avg, i) + (1 - a->beta1) * g;
        double v = a->beta2 * ax_ref_at(&a->exp_avg_sq, i) + (1 - a->beta2) * g * g;
        ax_ref_set_weight(&weights, i, adamw_weight(&step, ax_ref_weight(&weights, i), m, v));
        if (a->nearest) {
            ax_store(a->exp_avg.dtype, a->exp_avg.data, i, m);
            ax_store(a->exp_avg_sq.dtype, a->exp_avg_sq.data, i, v);
        } else {
            const uint32_t word = word_of(&a->draw, s, i);
            set_moment(&a->exp_avg, i, m, word >> 16);
            set_moment(&a->exp_avg_sq, i, v, word & 0xffff);
        }
    }
    return AX_OK;
}

/* Encodes a block's moments, and sets their scale. */
static void encode_block(const struct ax_dynamic_map *map, const double *x, int64_t n,
                         uint8_t *codes, const struct ax_tensor *scales, int64_t block) {
    double scale = 1e-12;
    for (int64_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(x[i]));
    ax_store(scales->dtype, scales->data, block, scale);
    scale = ax_ref_at(scales, block);
    for (int64_t i = 0; i < n; i++)
        codes[i] = ax_dynamic_encode(map, (float)(x[i] / scale));
}

static void adamw_block(const struct ax_adamw_8bit *a, int64_t block, int64_t first, int64_t n) {
    const struct ax_ref_weights weights = AX_REF_WEIGHTS(a);
    const struct adamw_step step = ADAMW_STEP(a);
    uint8_t *code1 = (uint8_t *)a->exp_avg.data + first;
    uint8_t *code2 = (uint8_t *)a->exp_avg_sq.data + first;
    const double scale1 = ax_ref_at(&a->exp_avg_scale, block);
    const double scale2 = ax_ref_at(&a->exp_avg_sq_scale, block);
    double m[AX_8BIT_BLOCK], v[AX_8BIT_BLOCK];
    for (int64_t i = 0; i < n; i++) {
        double g = ax_ref_grad(&a->grad, first + i, a->scalars);
        m[i] = a->beta1 * ((double)ax_dynamic_signed.value[code1[i]] * scale1) + (1 - a->beta1) * g;
        v[i] = a->beta2 * ((double)ax_dynamic_unsigned.value[code2[i]] * scale2) +
               (1 - a->beta2) * g * g;
        const double w = ax_ref_weight(&weights, first + i);
        ax_ref_set_weight(&weights, first + i, adamw_weight(&step, w, m[i], v[i]));
    }
    encode_block(&ax_dynamic_signed, m, n, code1, &a->exp_avg_scale, block);
    encode_block(&ax_dynamic_unsigned, v, n, code2, &a->exp_avg_sq_scale, block);
}

enum ax_status ax_ref_adamw_8bit(struct ax_queue *q, const struct ax_adamw_8bit *a, void *work) {
    (void)q;
    (void)work;
    const int64_t n = a->scalars->skip != 0 ? 0 : a->master.shape[0];
    int64_t first = 0;
    for (int64_t block = 0; first < n; block++) {
        int64_t len = AX_8BIT_BLOCK - (block == 0 ? a->phase : 0);
        len = len < n - first ? len : n - first;
        adamw_block(a, block, first, len);
        first += len;
    }
    return AX_OK;
}

enum ax_status ax_ref_sgd(struct ax_queue *q, const struct ax_sgd *a, void *work) {
    (void)q;
    (void)work;
    const struct ax_step_scalars *s = a->scalars;
    const struct ax_ref_weights weights = AX_REF_WEIGHTS(a);
    const int64_t n = s->skip != 0 ? 0 : a->master.shape[0];
    for (int64_t i = 0; i < n; i++) {
        double g = ax_ref_grad(&a->grad, i, s);
        double w = ax_ref_weight(&weights, i);
        g += a->weight_decay * w;
        if (ax_ref_given(&a->momentum_buffer)) {
            double buf = s->step == 1 ? g : a->momentum * ax_ref_at(&a->momentum_buffer, i) + g;
            ax_ref_set(&a->momentum_buffer, i, 0, buf);
            g = a->nesterov ? g + a->momentum * buf : buf;
        }
        ax_ref_set_weight(&weights, i, w - s->lr * g);
    }
    return AX_OK;
}

enum ax_status ax_ref_lion(struct ax_queue *q, const struct ax_lion *a, void *work) {
    (void)q;
    (void)work;
    const struct ax_step_scalars *s = a->scalars;
    const struct ax_ref_weights weights = AX_REF_WEIGHTS(a);
    const int64_t n = s->skip != 0 ? 0 : a->master.shape[0];
    for (int64_t i = 0; i < n; i++) {
        double g = ax_ref_grad(&a->grad, i, s);
        double m = ax_ref_at(&a->exp_avg, i), w = ax_ref_weight(&weights, i);
        double c = a->beta1 * m + (1 - a->beta1) * g;
        double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
        ax_ref_set_weight(&weights, i, w - s->lr * (sign + a->weight_decay * w));
        set_moment(&a->exp_avg, i, a->beta2 * m + (1 - a->beta2) * g,
                   word_of(&a->draw, s, i) >> 16);
    }
    return AX_OK;
}
