/* Builds a model: parameters per unit in reading order, their layout, rope tables; loads and
 * initialises it. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/layer.h"

#define MAX_PARAMS_PER_LAYER 24

const struct ax_param *ax_builder_add(struct ax_builder *b, int layer,
                                      const struct ax_param_decl *decl) {
    struct ax_model *m = b->model;
    struct ax_param *p = &m->params[m->n_params];
    b->glue[m->n_params - b->first] = decl->glue;
    AX_ASSERT(m->n_params - b->first < MAX_PARAMS_PER_LAYER);
    m->n_params++;
    *p = (struct ax_param){.ndim = decl->cols ? 2 : 1,
                           .shape = {decl->rows, decl->cols},
                           .tp_dim = decl->tp_dim,
                           .ep_dim = -1,
                           .grad_partial_over = decl->grad_partial_over,
                           .alias_of = -1,
                           .trainable = true,
                           .decay = decl->cols > 0};
    if (!decl->cols)
        p->shape[1] = 0;
    const char *number = strstr(decl->name, "%d");
    if (number)
        snprintf(p->name, sizeof p->name, "%.*s%d%s", (int)(number - decl->name), decl->name, layer,
                 number + 2);
    else
        snprintf(p->name, sizeof p->name, "%s", decl->name);
    return p;
}

/* Lays the parameters added since b->first out as one unit and takes its memory. */
static void finish_unit(struct ax_builder *b, int unit, const struct ax_unit_options *o) {
    struct ax_model *m = b->model;
    struct ax_param *list[MAX_PARAMS_PER_LAYER];
    const int n = m->n_params - b->first;
    for (int i = 0; i < n; i++)
        list[i] = &m->params[b->first + i];
    ax_unit_layout(&m->units[unit], unit, b->mesh, o, n, list, b->glue);
    ax_unit_allocate(&m->units[unit], m->rt, o);
    b->first = m->n_params;
}

static void build(struct ax_model *m, const struct ax_unit_options *o) {
    const struct ax_arch *a = &m->arch;
    bool glue[MAX_PARAMS_PER_LAYER];
    struct ax_builder b = {.model = m, .arch = a, .mesh = &m->rt->mesh, .glue = glue};
    const struct ax_param_decl embed = {
        .name = "model.embed_tokens.weight", .rows = a->vocab_size, .cols = a->hidden_size};
    const struct ax_param_decl norm = {.name = "model.norm.weight",
                                       .rows = a->hidden_size,
                                       .tp_dim = -1,
                                       .grad_partial_over = 1u << AX_ROLE_TP};
    const struct ax_param_decl head = {
        .name = "lm_head.weight", .rows = a->vocab_size, .cols = a->hidden_size};
    snprintf(m->units[0].name, AX_NAME_MAX, "embedding");
    m->embed = ax_builder_add(&b, -1, &embed);
    finish_unit(&b, 0, o);
    for (int i = 0; i < (int)a->n_layers; i++) {
        struct ax_layer *l = &m->layers[i];
        *l = (struct ax_layer){.index = i, .spec = a->layers[i], .unit = &m->units[i + 1]};
        snprintf(l->unit->name, AX_NAME_MAX, "layer %d", i);
        ax_layer_init(&b, l);
        finish_unit(&b, i + 1, o);
    }
    snprintf(m->units[m->n_units - 1].name, AX_NAME_MAX, "head");
    m->final_norm = ax_builder_add(&b, -1, &norm);
    m->lm_head = a->tied ? m->embed : ax_builder_add(&b, -1, &head);
    finish_unit(&b, m->n_units - 1, o);
}

static void rope_tables(struct ax_model *m, int64_t positions) {
    const int64_t half = m->arch.rope.dim / 2;
    m->rope_cos = ax_tensor_2d(m->accum, NULL, positions, half);
    m->rope_sin = m->rope_cos;
    const size_t bytes = ax_tensor_bytes(&m->rope_cos);
    m->rope_cos.data = ax_stack_push(&m->rt->arena.persistent, "rope tables", bytes);
    m->rope_sin.data = ax_stack_push(&m->rt->arena.persistent, "rope tables", bytes);
    m->rope_seq_len = m->arch.rope.max_positions;
    if (!ax_runtime_planning(m->rt))
        ax_rope_tables(&m->arch.rope, m->rope_seq_len, &m->rope_cos, &m->rope_sin);
}

enum ax_status ax_model_create(struct ax_model *m, const struct ax_arch *arch,
                               struct ax_runtime *rt, const struct ax_model_options *o) {
    *m = (struct ax_model){.arch = *arch,
                           .rt = rt,
                           .dtype = o->dtype,
                           .accum = ax_dtype_accum(o->dtype),
                           .train = o->train,
                           .n_units = (int)arch->n_layers + 2};
    const size_t layers = (size_t)arch->n_layers;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&m->params, layers * MAX_PARAMS_PER_LAYER + 4, sizeof *m->params), st,
                fail);
    AX_TRY_GOTO(ax_alloc(&m->units, layers + 2, sizeof *m->units), st, fail);
    AX_TRY_GOTO(ax_alloc(&m->layers, layers, sizeof *m->layers), st, fail);
    struct ax_unit_options uo = {
        .compute = o->dtype, .train = o->train, .n_state = o->n_state, .masters = o->masters};
    memcpy(uo.slots, o->slots, sizeof uo.slots);
    build(m, &uo);
    rope_tables(m, o->max_positions);
    return AX_OK;
fail:
    ax_model_free(m);
    return st;
}

void ax_model_free(struct ax_model *m) {
    ax_free(m->params);
    ax_free(m->units);
    ax_free(m->layers);
    *m = (struct ax_model){0};
}

int ax_model_unit_needs(const struct ax_model *m, int unit) {
    return unit == m->n_units - 1 && m->lm_head == m->embed ? 0 : -1;
}

int64_t ax_model_parameters(const struct ax_model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += ax_param_numel(&m->params[i]);
    return n;
}

static enum ax_status check_tensor(const struct ax_hf *hf, const struct ax_param *p,
                                   const struct ax_st_entry **found) {
    const struct ax_st_entry *e = ax_hf_find(hf, p->name);
    if (!e)
        return ax_error(AX_ERR_DATA, "%s: tensor %s is missing", hf->dir, p->name);
    bool same = e->ndim == p->ndim && ax_dtype_info(e->dtype)->is_float;
    for (int d = 0; same && d < p->ndim; d++)
        same = e->shape[d] == p->shape[d];
    if (!same)
        return ax_error(
            AX_ERR_DATA,
            "%s: tensor %s is %s [%lld, %lld] (%d dimensions), but config.json asks for "
            "[%lld, %lld] floats (%d dimensions)",
            hf->dir, p->name, ax_dtype_info(e->dtype)->name, (long long)e->shape[0],
            (long long)(e->ndim > 1 ? e->shape[1] : 1), e->ndim, (long long)p->shape[0],
            (long long)(p->ndim > 1 ? p->shape[1] : 1), p->ndim);
    *found = e;
    return AX_OK;
}

/* Tensors nobody asked for would be training that silently starts from something else. Known
 * left-overs: rope buffers of old files, and the copy of a tied head. */
static enum ax_status check_left_over(const struct ax_model *m, const struct ax_hf *hf) {
    const int n = ax_hf_count(hf);
    for (int i = 0; i < n; i++) {
        const char *name = ax_hf_at(hf, i)->name;
        if (strstr(name, "rotary_emb.inv_freq") ||
            (m->arch.tied && !strcmp(name, "lm_head.weight")))
            continue;
        bool known = false;
        for (int k = 0; k < m->n_params && !known; k++) {
            const char *full = m->params[k].name;
            known = !strcmp(name, full) ||
                    (!strncmp(full, "model.", 6) && !strcmp(name, full + 6)); /* see ax_hf_find */
        }
        if (!known)
            return ax_error(AX_ERR_DATA, "%s: tensor %s has no place in a %s model", hf->dir, name,
                            m->arch.family->model_type);
    }
    return AX_OK;
}

enum ax_status ax_model_load(struct ax_model *m, const struct ax_hf *hf) {
    if (ax_runtime_planning(m->rt))
        return AX_OK;
    AX_TRY(check_left_over(m, hf));
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        const struct ax_st_entry *e;
        AX_TRY(check_tensor(hf, p, &e));
        ax_unit_load(&m->units[p->unit], &m->rt->mesh, p, e->dtype, e->data);
        ax_map_drop(e->data, e->bytes);
    }
    return AX_OK;
}

void ax_model_init_random(struct ax_model *m, uint64_t seed) {
    if (ax_runtime_planning(m->rt))
        return;
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        struct ax_unit *unit = &m->units[p->unit];
        const struct ax_segment *seg = &unit->segments[p->segment];
        const bool norm = p->ndim == 1 && strstr(p->name, "norm.weight");
        const struct ax_rng_key key = {seed, 0, ax_hash32(p->name)};
        int64_t first, n, at, run;
        ax_unit_owned(unit, &m->rt->mesh, p, &first, &n, &at);
        for (int64_t k = 0; k < n; k++) {
            const int64_t global = ax_param_global_index(p, &m->rt->mesh, first + k, &run);
            double v = norm ? 1 : 0;
            if (p->ndim == 2)
                v = (double)ax_rng_normal(key, (uint64_t)global) * m->arch.init_range;
            ax_store(seg->compute, seg->shard.data, at + k, v);
            if (seg->master.data && seg->master.data != seg->shard.data)
                ax_store(seg->accum, seg->master.data, at + k, v);
        }
    }
}

static struct ax_tensor param_part(const struct ax_tensor *flat, const struct ax_param *p) {
    char *data = flat->data;
    data += (size_t)p->offset * ax_dtype_size(flat->dtype);
    return ax_tensor_nd(flat->dtype, data, p->ndim, p->shape);
}

struct ax_tensor ax_model_value(const struct ax_model *m, const struct ax_param *p) {
    const struct ax_segment *seg = &m->units[p->unit].segments[p->segment];
    return param_part(seg->master.data ? &seg->master : &seg->shard, p);
}

struct ax_tensor ax_model_grad(const struct ax_model *m, const struct ax_param *p) {
    return param_part(&m->units[p->unit].segments[p->segment].grad, p);
}
