#include "model/core/builder.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/regex.h"
#include "model/lora/match.h"
#include "model/core/adapters.h"
#include "model/core/pass.h"

#define MAX_DENSE_PARAMS   64 /* of a layer and its adapters, without experts */
#define MAX_ADAPTER_PARAMS 40 /* of a layer, for each further adapter */

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

/* ---- which parameters train, by name (unfrozen_parameters) ---- */

/* "name[3:7]", or "name[3]", selects rows of a matrix in axolotl: the range, or NULL. */
static const char *find_range(const char *pattern) {
    const char *open = strrchr(pattern, '[');
    const size_t n = open ? strspn(open + 1, "0123456789:") : 0;
    return n > 0 && strcmp(open + 1 + n, "]") == 0 ? open : NULL;
}

/* As Python's re has it, but a dot is a dot unless a quantifier follows: names are full of them. */
static enum ax_status put_pattern(struct ax_buf *text, const char *c) {
    for (; *c; c++) {
        if (*c == '\\' && c[1]) {
            AX_TRY(ax_buf_append(text, c++, 2));
            continue;
        }
        if (*c == '.' && strspn(c + 1, "+*?{") == 0)
            AX_TRY(ax_buf_puts(text, "\\"));
        AX_TRY(ax_buf_append(text, c, 1));
    }
    return AX_OK;
}

static enum ax_status compile_pattern(const char *pattern, struct ax_regex **out) {
    struct ax_buf text = {0};
    enum ax_status st;
    const char *range = find_range(pattern);
    if (range)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "unfrozen_parameters: \"%s\": %s at its end are rows of a matrix, and "
                        "training only some rows is not implemented; remove it, or write "
                        "characters as (1|2)",
                        pattern, range);
    AX_TRY_GOTO(ax_buf_puts(&text, "\\A(?:"), st, done);
    AX_TRY_GOTO(put_pattern(&text, pattern), st, done);
    AX_TRY_GOTO(ax_buf_puts(&text, ")"), st, done);
    st = ax_regex_compile_python(out, text.data, text.len);
    if (st != AX_OK)
        st = ax_error_prefix(st == AX_ERR_DATA ? AX_ERR_CONFIG : st, "unfrozen_parameters: \"%s\"",
                             pattern);
done:
    ax_buf_free(&text);
    return st;
}

/* Marks the names whose beginning matches the pattern; sets *any if there are any. */
static enum ax_status mark_matches(const char *pattern, int n, const struct ax_param *params,
                                   bool *marks, bool *any) {
    struct ax_regex *re = NULL;
    struct ax_regex_work work = {0};
    size_t start, end;
    AX_TRY(compile_pattern(pattern, &re));
    enum ax_status st = AX_OK;
    for (int i = 0; i < n && st == AX_OK; i++) {
        struct ax_regex_iter it =
            ax_regex_search(re, &work, params[i].name, strlen(params[i].name));
        bool yes;
        st = ax_regex_next(&it, &yes, &start, &end);
        if (st == AX_OK && yes) {
            *any = true;
            if (marks)
                marks[i] = true;
        }
    }
    ax_regex_work_free(&work);
    ax_regex_free(re);
    return st;
}

enum ax_status ax_unfrozen_has(const struct ax_peft_names *patterns, const char *name, bool *yes) {
    struct ax_param named = {0};
    snprintf(named.name, sizeof named.name, "%s", name);
    *yes = false;
    for (int i = 0; i < patterns->n; i++)
        AX_TRY(mark_matches(patterns->names[i], 1, &named, NULL, yes));
    return AX_OK;
}

/* Makes those of n parameters trainable whose name matches one of the expressions from its start. */
static enum ax_status freeze_except(const struct ax_peft_names *patterns, int n,
                                    struct ax_param *params) {
    bool *marks, any;
    AX_TRY(ax_alloc(&marks, (size_t)n, sizeof *marks));
    enum ax_status st = AX_OK;
    for (int i = 0; i < patterns->n && st == AX_OK; i++)
        st = mark_matches(patterns->names[i], n, params, marks, &any);
    for (int i = 0; i < n && st == AX_OK; i++)
        params[i].trainable = marks[i] && !params[i].buffer && !params[i].frozen;
    ax_free(marks);
    return st;
}

/* The experts' matrices and gradients are used as one; a stack of them is one parameter. */
static enum ax_status check_frozen_experts(const struct ax_layer *l, const struct ax_param *first,
                                           int64_t n) {
    for (int64_t i = 1; first && first->ndim == 2 && i < n; i++)
        if (first[i].trainable != first->trainable)
            return ax_error(AX_ERR_CONFIG,
                            "unfrozen_parameters: %s is trained but %s is frozen; all experts of "
                            "layer %d must be trained together, and gate with up",
                            first[first[i].trainable ? i : 0].name,
                            first[first[i].trainable ? 0 : i].name, l->index);
    return AX_OK;
}

enum ax_status ax_freeze_check(const struct ax_model *m, const struct ax_peft_names *patterns) {
    const int64_t E = m->arch.moe.n_experts;
    for (int i = 0; i < patterns->n; i++) {
        bool any = false;
        AX_TRY(mark_matches(patterns->names[i], m->n_params, m->params, NULL, &any));
        if (!any)
            return ax_error(AX_ERR_CONFIG,
                            "unfrozen_parameters: \"%s\" matches no parameter of this %s model "
                            "(its names look like %s)",
                            patterns->names[i], m->arch.family->model_type, m->params[1].name);
    }
    for (int i = 0; i < (int)m->arch.n_layers; i++) {
        const struct ax_moe_part *moe = &m->layers[i].moe;
        AX_TRY(check_frozen_experts(&m->layers[i], moe->gate_up, ax_arch_ups(&m->arch) * E));
        AX_TRY(check_frozen_experts(&m->layers[i], moe->down, E));
    }
    return AX_OK;
}

/* ---- a unit ---- */

/* True if an adapter has its own copy of this base parameter. */
static bool any_adapter_saves(const struct ax_model *m, const char *param) {
    const struct ax_peft_config *c;
    bool any = false;
    for (int k = 0; (c = ax_adapter_config(m, k)) != NULL; k++)
        any = any || ax_adapter_saves(c, param);
    return any;
}

/* The name in the family's words, with the layer's number. */
static void name_param(const struct ax_model *m, const char *name, int layer,
                       char out[AX_NAME_MAX]) {
    char own[AX_NAME_MAX];
    snprintf(own, sizeof own, "%s", name);
    for (const struct ax_rename *r = m->arch.renames; r && r->from; r++) {
        const char *at = strstr(name, r->from);
        if (at)
            snprintf(own, sizeof own, "%.*s%s%s", (int)(at - name), name, r->to,
                     at + strlen(r->from));
    }
    const char *number = strstr(own, "%d");
    if (number)
        snprintf(out, AX_NAME_MAX, "%.*s%d%s", (int)(number - own), own, layer, number + 2);
    else
        snprintf(out, AX_NAME_MAX, "%s", own);
}

const struct ax_param *ax_builder_add(struct ax_builder *b, int layer,
                                      const struct ax_param_decl *decl) {
    struct ax_model *m = b->model;
    const enum ax_indexer_mode mode = m->indexers;
    struct ax_param *p = &m->params[m->n_params];
    b->list[m->n_params - b->first] = p;
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
                           .buffer = decl->buffer,
                           .frozen = decl->indexer && mode == AX_INDEXERS_FROZEN,
                           .start = decl->start,
                           .trainable = !decl->buffer && !ax_adapter_config(m, 0) &&
                                        (decl->indexer || mode != AX_INDEXERS_WARM_UP),
                           .decay = decl->cols > 0};
    if (!decl->cols)
        p->shape[1] = 0;
    if (decl->stack > 0) {
        memmove(p->shape + 1, p->shape, (size_t)p->ndim++ * sizeof *p->shape);
        p->shape[0] = decl->stack;
        p->ep_dim = 0;
    }
    if (decl->middle) {
        p->shape[2] = p->shape[1];
        p->shape[1] = 1;
        p->ndim++;
    }
    if (decl->lifted) {
        const int64_t shape[] = {1, 1, decl->rows, 1};
        memcpy(p->shape, shape, sizeof shape);
        p->ndim = 4;
        p->decay = true;
    }
    name_param(m, decl->name, layer, p->name);
    /* PEFT finds no modules of the layer for multi-token prediction */
    const bool found = layer < 0 || !m->arch.layers[layer].predicts;
    p->trainable =
        !p->buffer && !p->frozen && (p->trainable || (found && any_adapter_saves(m, p->name)));
    return p;
}

void ax_builder_store_after(struct ax_builder *b, const struct ax_param *p,
                            const struct ax_param *before) {
    struct ax_param *moved = &b->model->params[p - b->model->params];
    int at = 0;
    while (b->list[at] != p)
        at++;
    for (; b->list[at - 1] != before; at--) {
        b->list[at] = b->list[at - 1];
        b->glue[at] = b->glue[at - 1];
    }
    b->list[at] = moved;
    b->glue[at] = true;
}

const struct ax_param *ax_builder_add_norm(struct ax_builder *b, int layer, const char *name,
                                           int64_t n) {
    const struct ax_param_decl decl = {.name = name,
                                       .rows = n,
                                       .tp_dim = -1,
                                       .grad_partial_over = AX_TP_PARTIAL,
                                       .start = 1 - b->arch->norm.offset};
    return ax_builder_add(b, layer, &decl);
}

bool ax_builder_next_adapter(struct ax_builder *b, int k) {
    b->adapter = ax_adapter_config(b->model, k);
    b->number = k + 1;
    return b->adapter != NULL;
}

/* True for units of this stage: its own, and the embedding if the head, or the layer before it, needs it. */
static bool holds(const struct ax_model *m, int unit) {
    return ax_chunks_have(&m->chunks, unit) ||
           (unit == 0 && (m->arch.tied || ax_arch_predicts(&m->arch)) &&
            ax_chunks_have(&m->chunks, m->n_units - 1));
}

enum ax_status ax_builder_finish_unit(struct ax_builder *b, int unit) {
    struct ax_model *m = b->model;
    const int n = m->n_params - b->first;
    if (b->options->unfrozen)
        AX_TRY(freeze_except(b->options->unfrozen, n, &m->params[b->first]));
    for (int i = 0; i < n; i++) {
        b->list[i]->unit = unit;
        b->list[i]->uncopied = unit == 0 && b->list[i] != m->embed && !b->list[i]->adapter;
    }
    if (holds(m, unit))
        ax_unit_layout(&m->units[unit], b->mesh, &b->units, n, b->list, b->glue);
    b->first = m->n_params;
    return AX_OK;
}
