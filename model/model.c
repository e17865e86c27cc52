/* Builds a model: parameters per unit in reading order, their layout, rope tables. */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/freeze.h"
#include "model/layer.h"
#include "model/tensor_parallel.h"
#include "parallel/schedule.h"

#define MAX_DENSE_PARAMS 48 /* of a layer and its adapters, without experts */

#define MAX_ADAPTER_PARAMS 32 /* of a layer, for each further adapter */

static size_t most_params(const struct ax_model *m) {
    const size_t more = m->bank ? (size_t)m->bank->n - 1 : 0;
    return MAX_DENSE_PARAMS + MAX_ADAPTER_PARAMS * more + 3 * (size_t)m->arch.moe.n_experts;
}

bool ax_model_untied(const struct ax_model *m) {
    const struct ax_peft_config *c;
    bool any = false;
    for (int k = 0; (c = ax_adapter_config(m, k)) != NULL; k++)
        any = any || ax_adapter_unties(c);
    return any;
}

/* Does an adapter have its own of this parameter of the base? */
static bool saved(const struct ax_model *m, const char *name) {
    const struct ax_peft_config *c;
    bool any = false;
    for (int k = 0; (c = ax_adapter_config(m, k)) != NULL; k++)
        any = any || ax_adapter_saves(c, name);
    return any;
}

const struct ax_param *ax_builder_add(struct ax_builder *b, int layer,
                                      const struct ax_param_decl *decl) {
    struct ax_model *m = b->model;
    struct ax_param *p = &m->params[m->n_params];
    b->glue[m->n_params - b->first] = decl->glue;
    AX_ASSERT(m->n_params - b->first < (int)most_params(m));
    m->n_params++;
    *p = (struct ax_param){.ndim = decl->cols ? 2 : 1,
                           .shape = {decl->rows, decl->cols},
                           .tp_dim = decl->tp_dim,
                           .ep_dim = decl->expert ? 0 : -1,
                           .expert = decl->expert,
                           .ep_owner = decl->ep_owner,
                           .grad_partial_over = decl->grad_partial_over,
                           .alias_of = -1,
                           .trainable = !ax_adapter_config(m, 0),
                           .decay = decl->cols > 0};
    if (!decl->cols)
        p->shape[1] = 0;
    const char *number = strstr(decl->name, "%d");
    if (number)
        snprintf(p->name, sizeof p->name, "%.*s%d%s", (int)(number - decl->name), decl->name, layer,
                 number + 2);
    else
        snprintf(p->name, sizeof p->name, "%s", decl->name);
    p->trainable = p->trainable || saved(m, p->name);
    return p;
}

/* Units that this stage holds: its own, and the embedding where the head needs it. */
static bool holds(const struct ax_model *m, int unit) {
    return (unit >= m->first_unit && unit < m->end_unit) ||
           (unit == 0 && m->arch.tied && m->end_unit == m->n_units);
}

/* Lays the parameters added since b->first out as one unit. */
static enum ax_status finish_unit(struct ax_builder *b, int unit, const struct ax_unit_options *o) {
    struct ax_model *m = b->model;
    const int n = m->n_params - b->first;
    if (b->unfrozen)
        AX_TRY(ax_freeze_except(b->unfrozen, n, &m->params[b->first]));
    for (int i = 0; i < n; i++) {
        b->list[i] = &m->params[b->first + i];
        b->list[i]->unit = unit;
    }
    if (holds(m, unit))
        ax_unit_layout(&m->units[unit], unit, b->mesh, o, n, b->list, b->glue);
    b->first = m->n_params;
    return AX_OK;
}

static enum ax_status build_units(struct ax_builder *builder, const struct ax_unit_options *o) {
    struct ax_builder b = *builder;
    struct ax_model *m = b.model;
    const struct ax_arch *a = b.arch;
    const struct ax_param_decl embed = {
        .name = "model.embed_tokens.weight", .rows = a->vocab_size, .cols = a->hidden_size};
    const struct ax_param_decl norm = {.name = "model.norm.weight",
                                       .rows = a->hidden_size,
                                       .tp_dim = -1,
                                       .grad_partial_over = AX_TP_PARTIAL};
    const struct ax_param_decl head = {
        .name = "lm_head.weight", .rows = a->vocab_size, .cols = a->hidden_size};
    snprintf(m->units[0].name, AX_NAME_MAX, "embedding");
    m->embed = ax_builder_add(&b, -1, &embed);
    AX_TRY(ax_adapter_attach_end(&b, 0));
    AX_TRY(finish_unit(&b, 0, o));
    for (int i = 0; i < (int)a->n_layers; i++) {
        struct ax_layer *l = &m->layers[i];
        *l = (struct ax_layer){.index = i, .spec = a->layers[i], .unit = &m->units[i + 1]};
        snprintf(l->unit->name, AX_NAME_MAX, "layer %d", i);
        AX_TRY(ax_layer_init(&b, l));
        AX_TRY(finish_unit(&b, i + 1, o));
    }
    snprintf(m->units[m->n_units - 1].name, AX_NAME_MAX, "head");
    m->final_norm = ax_builder_add(&b, -1, &norm);
    m->lm_head = a->tied ? m->embed : ax_builder_add(&b, -1, &head);
    AX_TRY(ax_adapter_attach_end(&b, m->n_units - 1));
    AX_TRY(finish_unit(&b, m->n_units - 1, o));
    if (b.unfrozen)
        AX_TRY(ax_freeze_check(m, b.unfrozen));
    return ax_adapter_check(m);
}

static enum ax_status build(struct ax_model *m, const struct ax_unit_options *o,
                            const struct ax_model_options *mo) {
    const size_t n = most_params(m);
    struct ax_builder b = {.model = m,
                           .arch = &m->arch,
                           .mesh = &m->rt->mesh,
                           .store = mo->base_store,
                           .unfrozen = mo->unfrozen};
    AX_TRY(ax_alloc(&b.glue, n, sizeof *b.glue));
    enum ax_status st = ax_alloc(&b.list, n, sizeof(struct ax_param *));
    if (st == AX_OK)
        st = build_units(&b, o);
    ax_free(b.list);
    ax_free(b.glue);
    return st;
}

/* Memory for all units, once the largest block is known. */
static void allocate(struct ax_model *m, const struct ax_unit_options *o) {
    ax_unit_pool_create(&m->pool, m->rt, o, m->units + 1, m->n_units - 2);
    for (int u = 0; u < m->n_units; u++) {
        const bool block = u > 0 && u < m->n_units - 1;
        ax_unit_allocate(&m->units[u], m->rt, o, block ? &m->pool : NULL, u & 1);
    }
}

static int lowest_trained_unit(const struct ax_model *m) {
    int lowest = m->n_units;
    for (int i = 0; i < m->n_params; i++)
        if (m->params[i].trainable && m->params[i].unit < lowest)
            lowest = m->params[i].unit;
    return lowest < m->n_units ? lowest : 0;
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
                           .adapter = o->adapter,
                           .bank = o->bank,
                           .n_units = (int)arch->n_layers + 2};
    const size_t layers = (size_t)arch->n_layers;
    const struct ax_mesh *mesh = &rt->mesh;
    enum ax_status st;
    AX_TRY(ax_tp_check(arch, mesh));
    if (mesh->size[AX_ROLE_PP] > arch->n_layers)
        return ax_error(AX_ERR_CONFIG, "mesh: pp %d is more than %lld layers. Nearest: pp %lld.",
                        mesh->size[AX_ROLE_PP], (long long)arch->n_layers,
                        (long long)arch->n_layers);
    ax_schedule_stage_units(m->n_units, mesh->size[AX_ROLE_PP], mesh->coord[AX_ROLE_PP],
                            &m->first_unit, &m->end_unit);
    AX_TRY_GOTO(ax_adapter_bank_begin(m), st, fail);
    AX_TRY_GOTO(ax_alloc(&m->params, (layers + 2) * most_params(m), sizeof *m->params), st, fail);
    AX_TRY_GOTO(ax_alloc(&m->units, layers + 2, sizeof *m->units), st, fail);
    AX_TRY_GOTO(ax_alloc(&m->layers, layers, sizeof *m->layers), st, fail);
    const struct ax_unit_options uo = {
        .compute = o->dtype, .train = o->train, .masters = o->masters};
    if (ax_model_untied(m))
        m->arch.tied = false;
    m->adapter_run = (struct ax_adapter_run){.rt = rt};
    if (arch->moe.n_experts > 0)
        AX_TRY_GOTO(ax_expert_group_create(&m->experts, rt, arch->moe.n_experts), st, fail);
    AX_TRY_GOTO(build(m, &uo, o), st, fail);
    allocate(m, &uo);
    AX_TRY_GOTO(ax_adapter_pissa_allocate(m), st, fail);
    m->lowest_unit = lowest_trained_unit(m);
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
    ax_free(m->starts);
    ax_expert_group_free(&m->experts);
    ax_adapter_bank_end(m);
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

int64_t ax_model_trainable(const struct ax_model *m) {
    int64_t n = 0;
    for (int i = 0; i < m->n_params; i++)
        n += m->params[i].trainable ? ax_param_numel(&m->params[i]) : 0;
    return n;
}

static struct ax_tensor param_part(const struct ax_tensor *flat, const struct ax_param *p) {
    if (!flat->data)
        return (struct ax_tensor){.dtype = flat->dtype};
    char *data = flat->data;
    data += (size_t)p->offset * ax_dtype_size(flat->dtype);
    return ax_tensor_nd(flat->dtype, data, p->ndim, p->shape);
}

struct ax_tensor ax_model_value(const struct ax_model *m, const struct ax_param *p) {
    AX_ASSERT(!p->panels);
    const struct ax_segment *seg = &m->units[p->unit].segments[p->segment];
    return param_part(seg->master.data ? &seg->master : &seg->shard, p);
}

struct ax_tensor ax_model_grad(const struct ax_model *m, const struct ax_param *p) {
    return param_part(&m->units[p->unit].segments[p->segment].grad, p);
}
