/* Adapter values: initial ones, and from and to PEFT folders. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/transfer.h"
#include "model/adapter/load.h"
#include "model/adapter/pissa.h"
#include "model/core/adapters.h"
#include "model/core/model.h"

const char *ax_adapter_tensor_name(const struct ax_param *p, char *buf, size_t size) {
    snprintf(buf, size, "%s%s", p->adapter ? "" : AX_PEFT_PREFIX, p->name);
    return buf;
}

/* True if it is trained, and so belongs to the adapter. */
static bool is_part(const struct ax_param *p) {
    return p->adapter || p->trainable;
}

static enum ax_status start_matrices(const struct ax_model *m, const struct ax_adapter *a,
                                     uint64_t seed) {
    const enum ax_lora_start start = m->adapter->start;
    const double inputs = (double)a->a->shape[1], r = (double)a->a->shape[0];
    if (start == AX_LORA_GAUSSIAN)
        AX_TRY(ax_model_draw(m, a->a, AX_VALUES_NORMAL, 1 / r, seed));
    else
        AX_TRY(ax_model_draw(m, a->a, AX_VALUES_UNIFORM, 1 / sqrt(inputs), seed));
    return ax_model_draw(m, a->b, AX_VALUES_UNIFORM, start == AX_LORA_RANDOM ? 1 / sqrt(r) : 0,
                         seed);
}

/* Sets local elements of p, which has one dimension, to the roots of x [local numel]. */
static enum ax_status set_roots(struct ax_model *m, const struct ax_param *p,
                                const struct ax_tensor *x) {
    double *all; /* of the global parameter: x's elements follow each other there, too */
    int64_t run;
    const int64_t first = ax_param_global_index(p, &m->rt->mesh, 0, &run);
    AX_TRY(ax_alloc(&all, (size_t)ax_param_numel(p), sizeof *all));
    enum ax_status st = ax_tensor_read(m->rt->q, x, AX_F64, all + first);
    for (int64_t i = first; i < first + run; i++) /* the shard rounds the stored master */
        all[i] = m->accum == AX_F64 ? sqrt(all[i]) : (double)(float)sqrt(all[i]);
    const struct ax_elements roots = ax_elements_of(AX_F64, all);
    if (st == AX_OK)
        st = ax_unit_load(&m->units[p->unit], m->rt, p, &roots);
    ax_free(all);
    return st;
}

/* m = ‖W‖ = √(Σ w²) per row, which equals ‖V‖ while B = 0: g = 1/inverse with m = 1. */
static enum ax_status start_magnitude(struct ax_model *m, const struct ax_linear *l, int part) {
    struct ax_runtime *rt = m->rt;
    struct ax_stack *scratch = &rt->arena.scratch;
    const struct ax_adapter *a = &l->adapter[part];
    const size_t mark = ax_stack_mark(scratch);
    struct ax_tensor sumsq = ax_stack_take(scratch, "dora norms",
                                           ax_tensor_1d(m->accum, NULL, a->weight->local_shape[0]));
    AX_TRY(ax_linear_row_squares(rt, l, part, &sumsq));
    if (a->weight->tp_dim == 1)
        AX_TRY(ax_tp_sum(rt, &sumsq));
    if (!ax_runtime_planning(rt))
        AX_TRY(set_roots(m, a->magnitude, &sumsq));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

static enum ax_status start_linear(struct ax_model *m, const struct ax_linear *l, uint64_t seed) {
    for (int i = 0; i < l->n_parts; i++) {
        if (!l->adapter[i].a)
            continue;
        if (!ax_runtime_planning(m->rt))
            AX_TRY(start_matrices(m, &l->adapter[i], seed));
        if (l->adapter[i].magnitude)
            AX_TRY(start_magnitude(m, l, i));
    }
    return AX_OK;
}

/* As PEFT: A = 0, B normal. */
static enum ax_status start_embedding(struct ax_model *m, uint64_t seed) {
    const struct ax_adapter *a = &m->embed_adapter;
    if (!a->a || !ax_unit_present(a->unit) || ax_runtime_planning(m->rt))
        return AX_OK;
    AX_TRY(ax_model_draw(m, a->a, AX_VALUES_NORMAL, m->adapter->start == AX_LORA_RANDOM ? 1 : 0,
                         seed));
    return ax_model_draw(m, a->b, AX_VALUES_NORMAL, 1, seed);
}

static enum ax_status start_head(struct ax_model *m, uint64_t seed) {
    const struct ax_adapter *a = &m->head.adapter[0];
    if (!a->a || !ax_unit_present(a->unit) || ax_runtime_planning(m->rt))
        return AX_OK;
    return start_matrices(m, a, seed);
}

static enum ax_status start_experts(struct ax_model *m, const struct ax_expert_adapter *a,
                                    uint64_t seed) {
    if (!a->a || ax_runtime_planning(m->rt))
        return AX_OK;
    const enum ax_lora_start start = m->adapter->start;
    const double inputs = (double)a->a->shape[1], r = (double)a->r;
    const bool normal = start == AX_LORA_GAUSSIAN;
    AX_TRY(ax_model_draw(m, a->a, normal ? AX_VALUES_NORMAL : AX_VALUES_UNIFORM,
                         normal ? 1 / r : 1 / sqrt(inputs), seed));
    const double columns = (double)a->b->shape[1]; /* of all experts together, like PEFT's linear */
    return ax_model_draw(m, a->b, AX_VALUES_UNIFORM,
                         start == AX_LORA_RANDOM ? 1 / sqrt(columns) : 0, seed);
}

enum ax_status ax_adapter_init(struct ax_model *m, uint64_t seed) {
    AX_TRY(start_embedding(m, seed));
    AX_TRY(start_head(m, seed));
    for (int i = 0; i < (int)m->arch.n_layers; i++) {
        struct ax_layer *layer = &m->layers[i];
        struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
        const int n = ax_layer_linears(layer, linears);
        if (!ax_unit_present(layer->unit))
            continue;
        AX_TRY(ax_unit_gather(layer->unit, m->rt));
        for (int k = 0; k < n; k++)
            AX_TRY(start_linear(m, linears[k], seed));
        AX_TRY(start_experts(m, &layer->moe.gate_up_adapter, seed));
        AX_TRY(start_experts(m, &layer->moe.down_adapter, seed));
        ax_unit_release(layer->unit);
    }
    return AX_OK;
}

/* Explains a tensor of another shape. */
static void misshapen(const struct ax_peft *peft, const struct ax_param *p, const int64_t *shape,
                      const struct ax_st_entry *e) {
    const bool is_a = strstr(p->name, ".lora_A.weight") || strstr(p->name, ".lora_embedding_A");
    const bool is_b = strstr(p->name, ".lora_B.weight") || strstr(p->name, ".lora_embedding_B");
    const int rank_dim = is_a ? 0 : 1;
    if ((is_a || is_b) && e->ndim == 2 && e->shape[rank_dim] != shape[rank_dim])
        (void)ax_error(AX_ERR_DATA,
                       "%s: %s has rank %lld, but adapter_config.json says %lld (r, rank_pattern): "
                       "the two files are from different runs. Take both from the same folder.",
                       peft->dir, e->name, (long long)e->shape[rank_dim],
                       (long long)shape[rank_dim]);
    else
        (void)ax_error(
            AX_ERR_DATA,
            "%s: %s is [%lld, %lld], but the base model needs [%lld, %lld]: the adapter is for "
            "another model (its config says %s). Use the base model that it was trained on.",
            peft->dir, e->name, (long long)e->shape[0], (long long)(e->ndim > 1 ? e->shape[1] : 1),
            (long long)shape[0], (long long)(p->ndim > 1 ? shape[1] : 1),
            peft->config.base ? peft->config.base : "none");
}

/* The tensor of a parameter; NULL: it does not fit, and ax_error is set (AX_ERR_DATA). */
static const struct ax_st_entry *find(const struct ax_peft *peft, const struct ax_param *p,
                                      const int64_t *shape) {
    char name[AX_NAME_MAX + 32];
    ax_adapter_tensor_name(p, name, sizeof name);
    const struct ax_st_entry *e = ax_safetensors_find(&peft->weights, name);
    if (!e) {
        (void)ax_error(AX_ERR_DATA,
                       "%s: tensor %s is missing, but adapter_config.json requires it with this "
                       "base (its config says %s)",
                       peft->dir, name, peft->config.base ? peft->config.base : "none");
        return NULL;
    }
    bool same = e->ndim == p->ndim && ax_dtype_info(e->dtype)->is_float;
    for (int d = 0; same && d < p->ndim; d++)
        same = e->shape[d] == shape[d];
    if (!same)
        misshapen(peft, p, shape, e);
    return same ? e : NULL;
}

/* PEFT stores the matrices of embedding and head next to their adapters; like PEFT, we use them as
 * the base's. A tied head is the embedding. */
static bool is_base_layer(const struct ax_model *m, const char *name, const struct ax_param **out) {
    char embed[AX_NAME_MAX];
    ax_adapter_module_of(m->embed->name, embed, sizeof embed);
    const char *const modules[] = {embed, "lm_head"};
    *out = NULL;
    for (int i = 0; i < 2; i++) {
        char own[2 * AX_NAME_MAX];
        snprintf(own, sizeof own, AX_PEFT_PREFIX "%s.base_layer.weight", modules[i]);
        if (strcmp(name, own) != 0)
            continue;
        *out = i == 0 ? m->embed : m->lm_head;
        return true;
    }
    return false;
}

/* The state of loading a folder into a model. */
struct reading {
    struct ax_model *m;
    const struct ax_peft *peft;
    int number;     /* of the adapter */
    bool *replaced; /* set where no longer the base's; NULL: not requested */
};

static enum ax_status load_tensor(const struct reading *r, const struct ax_param *p,
                                  const struct ax_st_entry *e) {
    const struct ax_elements from = ax_st_elements(e);
    if (ax_runtime_planning(r->m->rt))
        return AX_OK;
    if (ax_unit_present(&r->m->units[p->unit]))
        AX_TRY(ax_unit_load(&r->m->units[p->unit], r->m->rt, p, &from));
    if (r->replaced)
        r->replaced[p - r->m->params] = true;
    return AX_OK;
}

/* `one`: for this adapter, embedding and head are one matrix. */
static enum ax_status load_base_layers(const struct reading *r, bool one) {
    struct ax_model *m = r->m;
    for (int i = 0; i < r->peft->weights.n; i++) {
        const struct ax_st_entry *e = &r->peft->weights.entries[i];
        const struct ax_param *p;
        if (!is_base_layer(m, e->name, &p))
            continue;
        if (e->ndim != 2 || e->shape[0] != p->shape[0] || e->shape[1] != p->shape[1] ||
            !ax_dtype_info(e->dtype)->is_float) {
            misshapen(r->peft, p, p->shape, e);
            return AX_ERR_DATA;
        }
        AX_TRY(load_tensor(r, p, e));
        if (one && m->lm_head != m->embed)
            AX_TRY(load_tensor(r, p == m->embed ? m->lm_head : m->embed, e));
    }
    return AX_OK;
}

/* True if the parameter is one of the adapter's tensors. */
static bool is_of(const struct reading *r, const struct ax_param *p) {
    if (p->adapter || !p->trainable)
        return p->adapter == r->number;
    return !r->m->bank || ax_adapter_saves(&r->peft->config, p->name);
}

static enum ax_status check_left_over(const struct reading *r) {
    const struct ax_model *m = r->m;
    const struct ax_peft *peft = r->peft;
    for (int i = 0; i < peft->weights.n; i++) {
        const char *name = peft->weights.entries[i].name;
        const struct ax_param *base;
        bool known = is_base_layer(m, name, &base);
        for (int k = 0; k < m->n_params && !known; k++) {
            char own[AX_NAME_MAX + 32];
            known = is_of(r, &m->params[k]) &&
                    strcmp(name, ax_adapter_tensor_name(&m->params[k], own, sizeof own)) == 0;
        }
        if (!known)
            return ax_error(AX_ERR_DATA,
                            "%s: unexpected tensor %s: adapter_config.json does not list it, or "
                            "the adapter is for another model (its config says %s). Use the base "
                            "model that it was trained on.",
                            peft->dir, name, peft->config.base ? peft->config.base : "none");
    }
    return AX_OK;
}

/* Loads the trained part of a tensor that also stores its initial value. */
static enum ax_status load_first(struct ax_model *m, const struct ax_param *p,
                                 const struct ax_st_entry *e) {
    struct ax_block own = ax_block_whole(p->ndim, p->shape);
    const size_t size = ax_dtype_size(e->dtype);
    char *first;
    if (ax_runtime_planning(m->rt))
        return AX_OK;
    memcpy(own.shape, e->shape, sizeof own.shape);
    AX_TRY(ax_alloc(&first, (size_t)own.n, size));
    for (int64_t i = 0, run; i < own.n; i += run) {
        const int64_t at = ax_block_index(&own, i, &run);
        memcpy(first + (size_t)i * size, (const char *)e->data + (size_t)at * size,
               (size_t)run * size);
    }
    const struct ax_elements from = ax_elements_of(e->dtype, first);
    const enum ax_status st = ax_unit_load(&m->units[p->unit], m->rt, p, &from);
    ax_free(first);
    return st;
}

enum ax_status ax_adapter_vocabulary(struct ax_arch *arch, const struct ax_peft *peft) {
    const struct ax_st_entry *e = NULL;
    static const char *const words[] = {"", ".base_layer"}; /* below an adapter of the embedding */
    for (int i = 0; ax_hf_embeddings[i / 2] && !e; i++) {
        char name[AX_NAME_MAX];
        snprintf(name, sizeof name, AX_PEFT_PREFIX "%s%s.weight", ax_hf_embeddings[i / 2],
                 words[i % 2]);
        e = ax_safetensors_find(&peft->weights, name);
    }
    if (!e || e->ndim != 2 || e->shape[0] <= arch->vocab_size || arch->vocab_stored > 0)
        return AX_OK;
    if (ax_arch_grows_inputs(arch, e->shape[0]) &&
        !ax_safetensors_find(&peft->weights, AX_PEFT_PREFIX AX_PER_LAYER_TABLE))
        return ax_error(AX_ERR_DATA,
                        "%s: the adapter was trained with a vocabulary of %lld tokens, and lacks "
                        "the per-layer inputs of those after %lld. Train it with modules_to_save: "
                        "[embed_tokens, lm_head, embed_tokens_per_layer].",
                        peft->dir, (long long)e->shape[0], (long long)arch->per_layer.rows);
    ax_arch_grow(arch, e->shape[0]);
    return AX_OK;
}

/* Loads the adapter's tensors, or those it has in place of the base's. */
static enum ax_status load_tensors(const struct reading *r, bool own, bool replaced) {
    struct ax_model *m = r->m;
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        if (!is_of(r, p))
            continue;
        int64_t shape[AX_MAX_DIMS];
        struct ax_tensor start;
        struct ax_block at;
        const bool joined = ax_adapter_start(m, p, shape, &start, &at);
        const struct ax_st_entry *e = find(r->peft, p, shape);
        if (!e)
            return AX_ERR_DATA;
        if (!(p->adapter ? own : replaced))
            continue;
        if (joined)
            AX_TRY(load_first(m, p, e));
        else
            AX_TRY(load_tensor(r, p, e));
    }
    return AX_OK;
}

enum ax_status ax_adapter_load(struct ax_model *m, const struct ax_peft *peft) {
    const struct reading r = {.m = m, .peft = peft, .number = 1};
    if (ax_runtime_planning(m->rt))
        return AX_OK;
    AX_TRY(load_tensors(&r, true, true));
    AX_TRY(check_left_over(&r));
    return load_base_layers(&r, false);
}

/* The two halves of ax_adapter_load, for adapter `number` of a bank: first the adapter's own
 * tensors, then those that replace the base's, which are marked in `replaced` [n_params] (`one`:
 * embedding and head are one matrix in this adapter). */
static enum ax_status load_own(struct ax_model *m, const struct ax_peft *peft, int number) {
    const struct reading r = {.m = m, .peft = peft, .number = number};
    AX_TRY(load_tensors(&r, true, false));
    return check_left_over(&r);
}

static enum ax_status load_replaced(struct ax_model *m, const struct ax_peft *peft, int number,
                                    bool one, bool *replaced) {
    const struct reading r = {.m = m, .peft = peft, .number = number, .replaced = replaced};
    AX_TRY(load_tensors(&r, false, true));
    return load_base_layers(&r, one);
}

/* A tensor to write: the value, and what it started from. */
struct source {
    struct ax_st_source of[2];
    struct ax_st_part parts[2];
    char name[AX_NAME_MAX + 32];
};

static void describe(const struct ax_model *m, const struct ax_param *p, enum ax_dtype dtype,
                     struct source *s, struct ax_st_output *t) {
    int64_t shape[AX_MAX_DIMS];
    struct ax_tensor values[] = {ax_model_value(m, p), {0}};
    s->parts[0].block = ax_block_whole(p->ndim, p->shape);
    const bool joined = ax_adapter_start(m, p, shape, &values[1], &s->parts[1].block);
    *t = (struct ax_st_output){.name = ax_adapter_tensor_name(p, s->name, sizeof s->name),
                               .dtype = p->adapter ? AX_F32 : dtype,
                               .ndim = p->ndim,
                               .n_parts = joined ? 2 : 1,
                               .parts = s->parts};
    memcpy(t->shape, shape, (size_t)p->ndim * sizeof *shape);
    memcpy(s->parts[0].block.shape, shape, (size_t)p->ndim * sizeof *shape);
    for (int i = 0; i < t->n_parts; i++) {
        s->of[i] = (struct ax_st_source){.value = values[i], .dtype = t->dtype, .q = m->rt->q};
        s->parts[i].fill = ax_st_fill;
        s->parts[i].ctx = &s->of[i];
    }
}

enum ax_status ax_adapter_save(const struct ax_model *m, const char *dir, enum ax_dtype dtype) {
    struct ax_st_output *tensors = NULL;
    struct source *sources = NULL;
    const size_t cap = (size_t)m->n_params;
    int n = 0;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&tensors, cap, sizeof *tensors), st, done);
    AX_TRY_GOTO(ax_alloc(&sources, cap, sizeof *sources), st, done);
    for (int i = 0; i < m->n_params; i++)
        if (is_part(&m->params[i])) {
            describe(m, &m->params[i], dtype, &sources[n], &tensors[n]);
            n++;
        }
    AX_TRY_GOTO(ax_peft_write(dir, m->adapter, n, tensors), st, done);
done:
    ax_free(sources);
    ax_free(tensors);
    return st;
}

/* ---- a bank (model/core/adapters.h) ---- */

/* An adapter that leaves a tied base tied sees one matrix, even if another adapter separated
 * them. */
static bool sees_one(const struct ax_model *m, int which) {
    return m->bank->tied && !ax_adapter_unties(ax_adapter_config(m, which));
}

enum ax_status ax_adapter_bank_load(struct ax_model *m, const struct ax_hf *hf) {
    struct ax_adapter_bank *b = m->bank;
    b->hf = hf;
    AX_TRY(ax_alloc(&b->replaced, (size_t)m->n_params, sizeof *b->replaced));
    for (int k = 0; k < b->n; k++) {
        AX_TRY(load_own(m, &b->pefts[k], k + 1));
        if (ax_runtime_planning(m->rt)) /* checks those that ax_adapter_bank_use will read */
            AX_TRY(load_replaced(m, &b->pefts[k], k + 1, sees_one(m, k), b->replaced));
    }
    return AX_OK;
}

static enum ax_status restore_base(struct ax_model *m) {
    struct ax_adapter_bank *b = m->bank;
    for (int i = 0; i < m->n_params; i++) {
        if (b->replaced[i])
            AX_TRY(ax_model_load_param(m, b->hf, &m->params[i]));
        b->replaced[i] = false;
    }
    return AX_OK;
}

static enum ax_status switch_numbers(struct ax_model *m, int which) {
    struct ax_adapter_bank *b = m->bank;
    AX_TRY(ax_queue_finish(m->rt->q));
    AX_TRY(restore_base(m));
    if (which == AX_ADAPTER_NONE)
        return AX_OK;
    return load_replaced(m, &b->pefts[which], which + 1, sees_one(m, which), b->replaced);
}

enum ax_status ax_adapter_bank_use(struct ax_model *m, int which) {
    struct ax_adapter_bank *b = m->bank;
    AX_ASSERT(which >= AX_ADAPTER_NONE && which < b->n);
    if (which == b->active)
        return AX_OK;
    if (!ax_runtime_planning(m->rt))
        AX_TRY(switch_numbers(m, which));
    const bool none = which == AX_ADAPTER_NONE;
    for (int i = 0; i < b->n_places; i++)
        *b->places[i].at = none ? (struct ax_adapter){0} : b->places[i].of[which];
    for (int i = 0; i < b->n_experts; i++)
        *b->experts[i].at = none ? (struct ax_expert_adapter){0} : b->experts[i].of[which];
    b->active = which;
    return AX_OK;
}

enum ax_status ax_adapter_bank_fill(struct ax_model *m, int which, const struct ax_peft *peft) {
    AX_ASSERT(which >= 0 && which < m->bank->n);
    AX_TRY(ax_queue_finish(m->rt->q));
    AX_TRY(ax_adapter_bank_use(m, AX_ADAPTER_NONE));
    return load_own(m, peft, which + 1);
}
