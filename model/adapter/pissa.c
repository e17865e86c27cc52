/* PiSSA (Meng et al. 2024): an adapter starts as the largest singular triplets of its matrix,
 *
 *   W = U·S·Vᵀ,  B = U_r·√(S_r/s),  A = √(S_r/s)·V_rᵀ,  the base becomes W − s·B·A
 *
 * so the model starts unchanged but trains its principal directions. A packed base packs the
 * remainder. Saved folders fit the original base, as PEFT converts them: with the initial A0, B0
 * kept, s·(B·A − B0·A0) is a plain LoRA of twice the rank, [A; A0] and [B, −B0]. */
#include <math.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/mem.h"
#include "kernels/transfer.h"
#include "model/adapter/pissa.h"
#include "model/core/model.h"
#include "model/lora/low_rank.h"

static bool is_a(const struct ax_param *p) {
    return strstr(p->name, ".lora_A.") || strstr(p->name, ".lora_embedding_A");
}

/* Calls `work` for every adapter. */
static enum ax_status
each(struct ax_model *m,
     enum ax_status (*work)(struct ax_model *m, const struct ax_adapter *a, void *ctx), void *ctx) {
    if (m->embed_adapter.a && ax_unit_present(&m->units[0]))
        AX_TRY(work(m, &m->embed_adapter, ctx));
    for (int unit = 0; unit < m->n_units; unit++) {
        const struct ax_adapter *adapters[AX_UNIT_MAX_ADAPTERS];
        const int n = ax_adapter_of_unit(m, unit, adapters);
        for (int i = 0; i < n; i++) {
            if (adapters[i]->weight == m->embed)
                return ax_error(
                    AX_ERR_UNSUPPORTED,
                    "pissa: this %s model ties lm_head to the embedding, and PiSSA of the head "
                    "would change the embedding: remove lm_head from the target modules",
                    m->arch.family->model_type);
            AX_TRY(work(m, adapters[i], ctx));
        }
    }
    return AX_OK;
}

static enum ax_status keep_start(struct ax_model *m, const struct ax_adapter *a, void *ctx) {
    (void)ctx;
    const struct ax_param *both[] = {a->a, a->b};
    for (int i = 0; i < 2; i++) {
        struct ax_tensor *t = &m->starts[both[i] - m->params];
        *t = ax_stack_take(&m->rt->arena.persistent, "adapter start",
                           ax_tensor_nd(m->accum, NULL, 2, both[i]->shape));
    }
    return AX_OK;
}

enum ax_status ax_adapter_pissa_allocate(struct ax_model *m) {
    if (!m->train || !m->adapter || m->adapter->start != AX_LORA_PISSA)
        return AX_OK;
    AX_TRY(ax_alloc(&m->starts, (size_t)m->n_params, sizeof *m->starts));
    return each(m, keep_start, NULL);
}

struct source {
    const struct ax_hf *hf;
    uint64_t seed;
};

/* A and B in accumulation dtype. */
struct halves {
    enum ax_dtype dtype;
    void *a, *b;
};

static void split(const struct ax_low_rank *l, double scale, const struct halves *h) {
    for (int64_t j = 0; j < l->r; j++) {
        const double root = sqrt(l->s[j] / scale);
        for (int64_t k = 0; k < l->cols; k++)
            ax_store(h->dtype, h->a, j * l->cols + k, root * l->v[j * l->cols + k]);
        for (int64_t i = 0; i < l->rows; i++)
            ax_store(h->dtype, h->b, i * l->r + j, root * l->u[j * l->rows + i]);
    }
}

/* w − s·B·A. */
static void subtract(const struct ax_low_rank *l, double scale, const struct halves *h,
                     double *rest) {
#pragma omp parallel for schedule(static) if (l->rows * l->cols >= 1 << 16)
    for (int64_t i = 0; i < l->rows; i++) {
        double *row = rest + i * l->cols;
        for (int64_t k = 0; k < l->cols; k++)
            row[k] = (double)l->w[i * l->cols + k];
        for (int64_t j = 0; j < l->r; j++) {
            const double by = scale * ax_load(h->dtype, h->b, i * l->r + j);
            for (int64_t k = 0; k < l->cols; k++)
                row[k] -= by * ax_load(h->dtype, h->a, j * l->cols + k);
        }
    }
}

static enum ax_status load_rest(struct ax_model *m, const struct ax_param *w, const double *rest) {
    struct ax_unit *unit = &m->units[w->unit];
    const struct ax_elements from = ax_elements_of(AX_F64, rest);
    return w->storage == AX_STORAGE_PLAIN ? ax_unit_load(unit, m->rt, w, &from)
                                          : ax_unit_load_packed(unit, m->rt, w, &from);
}

static enum ax_status load_half(struct ax_model *m, const struct ax_param *p, const void *values) {
    const struct ax_elements from = ax_elements_of(m->accum, values);
    return ax_unit_load(&m->units[p->unit], m->rt, p, &from);
}

/* Both are trained, and kept as they start: B negated, as saved folders subtract it. */
static enum ax_status load_halves(struct ax_model *m, const struct ax_adapter *adapter,
                                  const struct halves *h) {
    const struct ax_param *A = adapter->a, *B = adapter->b;
    AX_TRY(load_half(m, A, h->a));
    AX_TRY(load_half(m, B, h->b));
    for (int64_t i = 0; i < ax_param_numel(B); i++)
        ax_store(h->dtype, h->b, i, -ax_load(h->dtype, h->b, i));
    AX_TRY(ax_tensor_write(m->rt->q, &m->starts[A - m->params], h->dtype, h->a));
    return ax_tensor_write(m->rt->q, &m->starts[B - m->params], h->dtype, h->b);
}

/* The embedding's adapter starts as any other, without effect, as in PEFT: what a folder subtracts is 0. */
static enum ax_status keep_zeros(struct ax_model *m, const struct ax_adapter *adapter) {
    const struct ax_param *both[] = {adapter->a, adapter->b};
    for (int i = 0; i < 2; i++) {
        void *zeros;
        AX_TRY(ax_alloc(&zeros, (size_t)ax_param_numel(both[i]), ax_dtype_size(m->accum)));
        const enum ax_status st =
            ax_tensor_write(m->rt->q, &m->starts[both[i] - m->params], m->accum, zeros);
        ax_free(zeros);
        AX_TRY(st);
    }
    return AX_OK;
}

static enum ax_status decompose(struct ax_model *m, const struct ax_adapter *adapter, void *ctx) {
    const struct source *from = ctx;
    if (adapter == &m->embed_adapter)
        return keep_zeros(m, adapter);
    const struct ax_param *w = adapter->weight, *A = adapter->a, *B = adapter->b;
    const struct ax_st_entry *e = ax_hf_find(from->hf, w->name);
    struct ax_low_rank l = {.rows = w->shape[0],
                            .cols = w->shape[1],
                            .r = A->shape[0],
                            .iterations = m->adapter->iterations,
                            .key = {from->seed, 0, ax_hash32(A->name)}};
    if (l.r > l.rows || l.r > l.cols)
        return ax_error(
            AX_ERR_CONFIG,
            "pissa: rank %lld exceeds the rank of %s ([%lld, %lld]). Use a smaller rank.",
            (long long)l.r, w->name, (long long)l.rows, (long long)l.cols);
    struct halves h = {.dtype = m->accum};
    float *values;
    double *rest = NULL;
    AX_TRY(ax_alloc(&values, (size_t)e->numel, sizeof *values));
    enum ax_status st;
    AX_TRY_GOTO(ax_st_read(e, 0, e->numel, AX_F32, values), st, done);
    l.w = values;
    AX_TRY_GOTO(ax_low_rank_find(&l), st, done);
    AX_TRY_GOTO(ax_alloc(&rest, (size_t)e->numel, sizeof *rest), st, done);
    AX_TRY_GOTO(ax_alloc(&h.a, (size_t)ax_param_numel(A), ax_dtype_size(h.dtype)), st, done);
    AX_TRY_GOTO(ax_alloc(&h.b, (size_t)ax_param_numel(B), ax_dtype_size(h.dtype)), st, done);
    split(&l, adapter->scale, &h);
    subtract(&l, adapter->scale, &h, rest);
    AX_TRY_GOTO(load_rest(m, w, rest), st, done);
    AX_TRY_GOTO(load_halves(m, adapter, &h), st, done);
done:
    ax_low_rank_free(&l);
    ax_free(h.a);
    ax_free(h.b);
    ax_free(rest);
    ax_free(values);
    return st;
}

enum ax_status ax_adapter_pissa_start(struct ax_model *m, const struct ax_hf *hf, uint64_t seed) {
    if (!m->starts || ax_runtime_planning(m->rt))
        return AX_OK;
    return each(m, decompose, &(struct source){hf, seed});
}

bool ax_adapter_start(const struct ax_model *m, const struct ax_param *p,
                      int64_t shape[AX_MAX_DIMS], struct ax_tensor *start, struct ax_block *at) {
    memcpy(shape, p->shape, sizeof p->shape);
    *start = (struct ax_tensor){0};
    if (!m->starts || p->adapter == 0)
        return false;
    const int dim = is_a(p) ? 0 : 1;
    *at = ax_block_whole(p->ndim, shape);
    at->start[dim] = p->shape[dim];
    at->shape[dim] = shape[dim] = 2 * p->shape[dim];
    *start = m->starts[p - m->params];
    return true;
}
