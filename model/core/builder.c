#include "model/core/builder.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/lora/match.h"
#include "model/core/adapters.h"
#include "model/core/freeze.h"

#define MAX_DENSE_PARAMS   48 /* of a layer and its adapters, without experts */
#define MAX_ADAPTER_PARAMS 32 /* of a layer, for each further adapter */

static size_t most_params(const struct ax_model *m) {
    const size_t more = m->bank ? (size_t)m->bank->n - 1 : 0;
    return MAX_DENSE_PARAMS + MAX_ADAPTER_PARAMS * more + 3 * (size_t)m->arch.moe.n_experts;
}

enum ax_status ax_builder_begin(struct ax_builder *b, struct ax_model *m,
                                const struct ax_model_options *o) {
    const size_t n = most_params(m);
    *b = (struct ax_builder){.model = m,
                             .arch = &m->arch,
                             .mesh = &m->rt->mesh,
                             .options = o,
                             .units = {.compute = o->dtype,
                                       .train = o->train,
                                       .masters = o->masters,
                                       .offload = o->offload,
                                       .sharding = o->sharding}};
    AX_TRY(ax_alloc(&m->params, (size_t)m->n_units * n, sizeof *m->params));
    AX_TRY(ax_alloc(&b->glue, n, sizeof *b->glue));
    return ax_alloc(&b->list, n, sizeof(struct ax_param *));
}

void ax_builder_end(struct ax_builder *b) {
    ax_free(b->list);
    ax_free(b->glue);
    *b = (struct ax_builder){0};
}

/* True if an adapter has its own copy of this base parameter. */
static bool any_adapter_saves(const struct ax_model *m, const char *param) {
    const struct ax_peft_config *c;
    bool any = false;
    for (int k = 0; (c = ax_adapter_config(m, k)) != NULL; k++)
        any = any || ax_adapter_saves(c, param);
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
                           .buffer = decl->buffer,
                           .trainable = !decl->buffer && !ax_adapter_config(m, 0),
                           .decay = decl->cols > 0};
    if (!decl->cols)
        p->shape[1] = 0;
    if (decl->stack > 0) {
        memmove(p->shape + 1, p->shape, (size_t)p->ndim++ * sizeof *p->shape);
        p->shape[0] = decl->stack;
        p->ep_dim = 0;
    }
    const char *number = strstr(decl->name, "%d");
    if (number)
        snprintf(p->name, sizeof p->name, "%.*s%d%s", (int)(number - decl->name), decl->name, layer,
                 number + 2);
    else
        snprintf(p->name, sizeof p->name, "%s", decl->name);
    p->trainable = !p->buffer && (p->trainable || any_adapter_saves(m, p->name));
    return p;
}

const struct ax_param *ax_builder_add_norm(struct ax_builder *b, int layer, const char *name,
                                           int64_t n) {
    const struct ax_param_decl decl = {
        .name = name, .rows = n, .tp_dim = -1, .grad_partial_over = AX_TP_PARTIAL};
    return ax_builder_add(b, layer, &decl);
}

bool ax_builder_next_adapter(struct ax_builder *b, int k) {
    b->adapter = ax_adapter_config(b->model, k);
    b->number = k + 1;
    return b->adapter != NULL;
}

/* True for units of this stage: its own, and the embedding if the head needs it. */
static bool holds(const struct ax_model *m, int unit) {
    return ax_chunks_have(&m->chunks, unit) ||
           (unit == 0 && m->arch.tied && ax_chunks_have(&m->chunks, m->n_units - 1));
}

enum ax_status ax_builder_finish_unit(struct ax_builder *b, int unit) {
    struct ax_model *m = b->model;
    const int n = m->n_params - b->first;
    if (b->options->unfrozen)
        AX_TRY(ax_freeze_except(b->options->unfrozen, n, &m->params[b->first]));
    for (int i = 0; i < n; i++) {
        b->list[i] = &m->params[b->first + i];
        b->list[i]->unit = unit;
    }
    if (holds(m, unit))
        ax_unit_layout(&m->units[unit], b->mesh, &b->units, n, b->list, b->glue);
    b->first = m->n_params;
    return AX_OK;
}
