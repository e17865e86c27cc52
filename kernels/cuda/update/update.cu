/* adamw, sgd, lion, muon_apply: one pass that reads and writes everything once (kernels/ops.h has the
 * formulas). adamw moves 30 bytes per weight with F32 masters, moments and gradients and a BF16 copy,
 * 22 with BF16 moments. */
#include "kernels/cuda/update/update.cuh"

/* ---- adamw ---- */

struct adamw_rule {
    void *m, *v;
    enum ax_dtype dtype; /* of both */
    bool nearest;
    double beta1, beta2, eps, decay;

    struct constants {
        float keep, blend1, beta2, blend2; /* 1 − lr·decay; blend: 1 − β */
        float step_size, root, eps;        /* lr/(1−β₁ᵗ), √(1−β₂ᵗ) */
    };
    __device__ constants of(const ax_step_scalars &s) const {
        const double step = (double)s.step;
        return {(float)(1 - s.lr * decay),
                (float)(1 - beta1),
                (float)beta2,
                (float)(1 - beta2),
                (float)(s.lr / (1 - pow(beta1, step))),
                (float)sqrt(1 - pow(beta2, step)),
                (float)eps};
    }

    struct moments {
        raw_four m, v;
    };
    __device__ moments load(int64_t i, int64_t n) const {
        return {load_raw(dtype, m, i, n), load_raw(dtype, v, i, n)};
    }

    __device__ void apply(const constants &c, const weights &w, int64_t i, int64_t n,
                          const moments &old, const four &g, four &x) const {
        four new_m = values_of(dtype, old.m), new_v = values_of(dtype, old.v);
        AX_UNROLL
        for (int k = 0; k < 4; k++) {
            new_m.x[k] += c.blend1 * (g.x[k] - new_m.x[k]);
            new_v.x[k] = c.beta2 * new_v.x[k] + c.blend2 * (g.x[k] * g.x[k]);
            x.x[k] =
                x.x[k] * c.keep - c.step_size * (new_m.x[k] / (sqrtf(new_v.x[k]) / c.root + c.eps));
        }
        if (dtype == AX_F32 || nearest) {
            store_four(dtype, m, i, n, new_m);
            store_four(dtype, v, i, n, new_v);
            return;
        }
        const words random = words_of(w.draw, w.scalars, 0, i);
        store_random(m, i, n, new_m, random, 16);
        store_random(v, i, n, new_v, random, 0);
    }
};

extern "C" enum ax_status ax_cuda_adamw(struct ax_queue *q, const struct ax_adamw *a, void *work) {
    (void)work;
    const adamw_rule rule = {a->exp_avg.data, a->exp_avg_sq.data, a->exp_avg.dtype,
                             a->nearest,      a->beta1,           a->beta2,
                             a->eps,          a->weight_decay};
    return run_update(q, a, (const float *)a->grad.data, rule);
}

/* ---- sgd ---- */

struct sgd_rule {
    float *buffer; /* NULL: no momentum */
    double momentum, decay;
    bool nesterov;

    struct constants {
        float lr, decay, momentum;
        bool first;
    };
    __device__ constants of(const ax_step_scalars &s) const {
        return {(float)s.lr, (float)decay, (float)momentum, s.step == 1};
    }

    struct moments {
        raw_four buffer;
    };
    __device__ moments load(int64_t i, int64_t n) const {
        return {buffer != nullptr ? load_raw(AX_F32, buffer, i, n) : raw_four{}};
    }

    __device__ void apply(const constants &c, const weights &, int64_t i, int64_t n,
                          const moments &old, const four &g, four &x) const {
        four d, b = {};
        if (!c.first)
            b = values_of(AX_F32, old.buffer);
        AX_UNROLL
        for (int k = 0; k < 4; k++) {
            d.x[k] = fmaf(x.x[k], c.decay, g.x[k]);
            b.x[k] = b.x[k] * c.momentum + d.x[k];
            if (buffer != nullptr)
                d.x[k] = nesterov ? fmaf(b.x[k], c.momentum, d.x[k]) : b.x[k];
            x.x[k] = fmaf(-c.lr, d.x[k], x.x[k]);
        }
        if (buffer != nullptr)
            store_four(buffer + i, n - i, b);
    }
};

extern "C" enum ax_status ax_cuda_sgd(struct ax_queue *q, const struct ax_sgd *a, void *work) {
    (void)work;
    const sgd_rule rule = {(float *)a->momentum_buffer.data, a->momentum, a->weight_decay,
                           a->nesterov};
    return run_update(q, a, (const float *)a->grad.data, rule);
}

/* ---- lion ---- */

struct lion_rule {
    void *m;
    enum ax_dtype dtype;
    double beta1, beta2, decay;

    struct constants {
        float beta1, blend1, blend2, lr, decay;
    };
    __device__ constants of(const ax_step_scalars &s) const {
        return {(float)beta1, (float)(1 - beta1), (float)(1 - beta2), (float)s.lr, (float)decay};
    }

    struct moments {
        raw_four m;
    };
    __device__ moments load(int64_t i, int64_t n) const {
        return {load_raw(dtype, m, i, n)};
    }

    __device__ void apply(const constants &c, const weights &w, int64_t i, int64_t n,
                          const moments &before, const four &g, four &x) const {
        four old = values_of(dtype, before.m);
        AX_UNROLL
        for (int k = 0; k < 4; k++) {
            const float toward = fmaf(old.x[k], c.beta1, g.x[k] * c.blend1);
            const float sign = toward > 0 ? 1 : toward < 0 ? -1 : toward; /* NaN stays NaN */
            x.x[k] = fmaf(-c.lr, fmaf(x.x[k], c.decay, sign), x.x[k]);
            old.x[k] = fmaf(c.blend2, g.x[k] - old.x[k], old.x[k]);
        }
        if (dtype == AX_F32)
            store_four((float *)m + i, n - i, old);
        else
            store_random(m, i, n, old, words_of(w.draw, w.scalars, 0, i), 16);
    }
};

extern "C" enum ax_status ax_cuda_lion(struct ax_queue *q, const struct ax_lion *a, void *work) {
    (void)work;
    const lion_rule rule = {a->exp_avg.data, a->exp_avg.dtype, a->beta1, a->beta2, a->weight_decay};
    return run_update(q, a, (const float *)a->grad.data, rule);
}

/* ---- muon_apply ---- */

struct muon_rule {
    const void *update;
    enum ax_dtype dtype;
    double ratio, decay;

    struct constants {
        float keep, size;
    };
    __device__ constants of(const ax_step_scalars &s) const {
        return {(float)(1 - s.lr * decay), (float)(s.lr * ratio)};
    }

    struct moments {
        raw_four update;
    };
    __device__ moments load(int64_t i, int64_t n) const {
        return {load_raw(dtype, update, i, n)};
    }

    __device__ void apply(const constants &c, const weights &, int64_t, int64_t, const moments &at,
                          const four &, four &x) const {
        const four u = values_of(dtype, at.update);
        AX_UNROLL
        for (int k = 0; k < 4; k++)
            x.x[k] = fmaf(-c.size, u.x[k], x.x[k] * c.keep);
    }
};

extern "C" enum ax_status ax_cuda_muon_apply(struct ax_queue *q, const struct ax_muon_apply *a,
                                             void *work) {
    (void)work;
    const muon_rule rule = {a->update.data, a->update.dtype, a->ratio, a->weight_decay};
    return run_update(q, a, nullptr, rule);
}
