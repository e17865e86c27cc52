/* Which modules an adapter is for, as PEFT decides it, and the parameters they get. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/regex.h"
#include "model/layer.h"

/* Does the expression match the whole name, or, with `suffix`, all of it behind some dot? */
static enum ax_status matches(const char *pattern, bool suffix, const char *name, bool *yes) {
    struct ax_regex *re = NULL;
    struct ax_regex_work work = {0};
    struct ax_buf text = {0};
    enum ax_status st;
    size_t start, end;
    AX_TRY_GOTO(ax_buf_printf(&text, "\\A%s(?:%s)\\z", suffix ? "(?:.*\\.)?" : "", pattern), st,
                done);
    AX_TRY_GOTO(ax_regex_compile(&re, text.data, text.len, false), st, done);
    struct ax_regex_iter it = ax_regex_search(re, &work, name, strlen(name));
    AX_TRY_GOTO(ax_regex_next(&it, yes, &start, &end), st, done);
done:
    ax_regex_work_free(&work);
    ax_regex_free(re);
    ax_buf_free(&text);
    return st;
}

bool ax_adapter_ends_in(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0 && (n == m || name[n - m - 1] == '.');
}

static bool in_list(const struct ax_peft_names *list, const char *name) {
    bool found = false;
    for (int i = 0; i < list->n && !found; i++)
        found = ax_adapter_ends_in(name, list->names[i]);
    return found;
}

static bool in_layers(const struct ax_peft_config *c, int layer) {
    bool found = c->n_layers == 0;
    for (int i = 0; i < c->n_layers && !found; i++)
        found = c->layers[i] == layer;
    return found;
}

static enum ax_status is_target(const struct ax_peft_config *c, const char *module, int layer,
                                bool *yes) {
    bool excluded = in_list(&c->exclude, module);
    if (c->exclude_regex)
        AX_TRY(matches(c->exclude_regex, false, module, &excluded));
    *yes = false;
    if (excluded)
        return AX_OK;
    if (c->target_regex)
        return matches(c->target_regex, false, module, yes);
    /* "all-linear" leaves out the head */
    *yes = ((c->all_linear && layer >= 0) || in_list(&c->targets, module)) && in_layers(c, layer);
    return AX_OK;
}

/* The value of the first pattern that fits the end of the name. */
static enum ax_status by_pattern(const struct ax_peft_pattern *list, int n, const char *module,
                                 double usual, double *out) {
    *out = usual;
    for (int i = 0; i < n; i++) {
        bool yes;
        AX_TRY(matches(list[i].pattern, true, module, &yes));
        if (yes) {
            *out = list[i].value;
            return AX_OK;
        }
    }
    return AX_OK;
}

enum ax_status ax_adapter_match(const struct ax_peft_config *c, const char *module, int layer,
                                struct ax_adapter_target *out) {
    double r, alpha;
    *out = (struct ax_adapter_target){0};
    AX_TRY(is_target(c, module, layer, &out->on));
    AX_TRY(by_pattern(c->ranks, c->n_ranks, module, (double)c->r, &r));
    AX_TRY(by_pattern(c->alphas, c->n_alphas, module, c->alpha, &alpha));
    out->r = (int64_t)r;
    out->scale = alpha / (c->rslora ? sqrt(r) : r);
    return AX_OK;
}

/* "a.b.c.weight" → "a.b.c". */
static void module_of(const char *param, char *out, size_t size) {
    const char *dot = strrchr(param, '.');
    snprintf(out, size, "%.*s", (int)(dot - param), param);
}

/* PEFT compares the ends of names here without looking for a dot: "norm" is every norm. */
static bool saves(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

bool ax_adapter_saves(const struct ax_peft_config *c, const char *param) {
    char module[AX_NAME_MAX];
    bool found = false;
    module_of(param, module, sizeof module);
    for (int i = 0; i < c->save.n && !found; i++)
        found = saves(module, c->save.names[i]);
    return found;
}

bool ax_adapter_unties(const struct ax_peft_config *c) {
    return ax_adapter_saves(c, "model.embed_tokens.weight") ||
           ax_adapter_saves(c, "lm_head.weight");
}

const struct ax_param *ax_adapter_add(struct ax_builder *b, const char *module, const char *what,
                                      int64_t rows, int64_t cols, int tp_dim) {
    char name[AX_NAME_MAX];
    const int n = snprintf(name, sizeof name, AX_PEFT_PREFIX "%s.%s", module, what);
    AX_ASSERT(n < AX_NAME_MAX);
    const struct ax_param_decl decl = {.name = name,
                                       .rows = rows,
                                       .cols = cols,
                                       .tp_dim = (int8_t)tp_dim,
                                       .grad_partial_over = tp_dim < 0 ? AX_TP_PARTIAL : 0};
    const struct ax_param *p = ax_builder_add(b, -1, &decl);
    struct ax_param *mine = &b->model->params[b->model->n_params - 1];
    mine->adapter = b->number;
    mine->trainable = true;
    return p;
}

/* lora_A, lora_B … of a matrix; their unit is the one that is being built. */
struct place {
    const char *module;
    int layer; /* −1: none */
    int unit;
    const struct ax_param *weight;
};

/* Is it meant? Then everything but its parameters. */
static enum ax_status target_at(struct ax_builder *b, const struct place *at, struct ax_adapter *a,
                                struct ax_adapter_target *target) {
    const struct ax_peft_config *c = b->adapter;
    AX_TRY(ax_adapter_match(c, at->module, at->layer, target));
    if (!target->on)
        return AX_OK;
    if (ax_adapter_saves(c, at->weight->name))
        return ax_error(AX_ERR_CONFIG, "%s is both a target module and in modules_to_save",
                        at->module);
    if (c->dora && at->layer < 0)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "DoRA of %s is not implemented: leave it out of the target modules, or use "
                        "LoRA",
                        at->module);
    *a = (struct ax_adapter){.run = &b->model->adapter_run,
                             .unit = &b->model->units[at->unit],
                             .weight = at->weight,
                             .scale = target->scale,
                             .dropout = c->dropout,
                             .stream = ax_hash32(at->module)};
    return AX_OK;
}

/* A split over the outputs splits B and m, one over the inputs splits A. */
static enum ax_status attach(struct ax_builder *b, const struct place *at, struct ax_adapter *a) {
    const struct ax_param *w = at->weight;
    struct ax_adapter_target target;
    AX_TRY(target_at(b, at, a, &target));
    if (!target.on)
        return AX_OK;
    a->a = ax_adapter_add(b, at->module, "lora_A.weight", target.r, w->shape[1],
                          w->tp_dim == 1 ? 1 : -1);
    a->b = ax_adapter_add(b, at->module, "lora_B.weight", w->shape[0], target.r,
                          w->tp_dim == 0 ? 0 : -1);
    if (b->adapter->dora)
        a->magnitude = ax_adapter_add(b, at->module, "lora_magnitude_vector", w->shape[0], 0,
                                      w->tp_dim == 0 ? 0 : -1);
    return AX_OK;
}

static enum ax_status attach_embedding(struct ax_builder *b, const struct place *at,
                                       struct ax_adapter *a) {
    const struct ax_param *w = at->weight;
    struct ax_adapter_target target;
    AX_TRY(target_at(b, at, a, &target));
    if (!target.on)
        return AX_OK;
    a->a = ax_adapter_add(b, at->module, "lora_embedding_A", target.r, w->shape[0], 1);
    a->b = ax_adapter_add(b, at->module, "lora_embedding_B", w->shape[1], target.r, -1);
    return AX_OK;
}

bool ax_builder_next_adapter(struct ax_builder *b, int k) {
    b->adapter = ax_adapter_config(b->model, k);
    b->number = k + 1;
    return b->adapter != NULL;
}

enum ax_status ax_adapter_named(const struct ax_model *m, int k, enum ax_status st) {
    return m->bank && st != AX_OK ? ax_error_prefix(st, "%s", m->bank->pefts[k].dir) : st;
}

/* A place for each of the model's adapters. */
static enum ax_status attach_all(struct ax_builder *b, const struct place *at, struct ax_adapter *a,
                                 enum ax_status (*one)(struct ax_builder *b, const struct place *at,
                                                       struct ax_adapter *a)) {
    struct ax_model *m = b->model;
    for (int k = 0; ax_builder_next_adapter(b, k); k++)
        AX_TRY(ax_adapter_named(m, k, one(b, at, ax_adapter_bank_place(m, k, a))));
    return AX_OK;
}

enum ax_status ax_adapter_attach_end(struct ax_builder *b, int unit) {
    struct ax_model *m = b->model;
    const struct place embed = {"model.embed_tokens", -1, 0, m->embed};
    if (unit == 0)
        return attach_all(b, &embed, &m->embed_adapter, attach_embedding);
    m->head = (struct ax_linear){
        .unit = &m->units[m->lm_head == m->embed ? 0 : unit], .n_parts = 1, .weight = {m->lm_head}};
    const struct place at = {"lm_head", -1, unit, m->lm_head};
    return attach_all(b, &at, &m->head.adapter[0], attach);
}

/* As the builder says; what an adapter saves whole is plain, and so cannot change places with what
 * is packed. */
static enum ax_status store(const struct ax_builder *b, struct ax_param *w) {
    const struct ax_model *m = b->model;
    const struct ax_peft_config *c;
    if (b->store == AX_STORE_PLAIN || (m->adapter && w->trainable))
        return AX_OK;
    for (int k = 0; m->bank && (c = ax_adapter_config(m, k)) != NULL; k++)
        if (ax_adapter_saves(c, w->name))
            return ax_adapter_named(
                m, k,
                ax_error(AX_ERR_UNSUPPORTED,
                         "modules_to_save: it has its own %s, a matrix that is quantised in the "
                         "base. Use it on a base that is not quantised.",
                         w->name));
    w->storage = b->store;
    w->trainable = false;
    return AX_OK;
}

enum ax_status ax_adapter_attach(struct ax_builder *b, int layer, struct ax_linear *l) {
    struct ax_model *m = b->model;
    for (int i = 0; i < l->n_parts; i++) {
        struct ax_param *w = &m->params[l->weight[i] - m->params];
        AX_TRY(store(b, w));
        char module[AX_NAME_MAX];
        module_of(w->name, module, sizeof module);
        const struct place at = {module, layer, layer + 1, w};
        AX_TRY(attach_all(b, &at, &l->adapter[i], attach));
    }
    return AX_OK;
}

/* Is it the name of a module that is saved whole? */
static bool names_saved(const struct ax_model *m, const char *name) {
    bool found = false;
    for (int i = 0; i < m->n_params && !found; i++) {
        char module[AX_NAME_MAX];
        module_of(m->params[i].name, module, sizeof module);
        found = !m->params[i].adapter && saves(module, name);
    }
    return found;
}

/* Is it the name of a module that can have an adapter? */
static bool names_target(const struct ax_model *m, const char *name) {
    bool found =
        ax_adapter_ends_in("model.embed_tokens", name) || ax_adapter_ends_in("lm_head", name);
    for (int i = 0; i < (int)m->arch.n_layers && !found; i++) {
        struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
        const int n = ax_layer_linears(&m->layers[i], linears);
        for (int k = 0; k < n; k++)
            for (int part = 0; part < linears[k]->n_parts && !found; part++) {
                char module[AX_NAME_MAX];
                module_of(linears[k]->weight[part]->name, module, sizeof module);
                found = ax_adapter_ends_in(module, name);
            }
    }
    return found;
}

static bool names_experts(const struct ax_model *m, const char *name) {
    bool found = false;
    for (int i = 0; i < (int)m->arch.n_layers; i++)
        for (int k = 0; k < AX_EXPERT_WEIGHTS && m->layers[i].moe.router && !found; k++) {
            char key[AX_NAME_MAX];
            snprintf(key, sizeof key, "model.layers.%d.mlp.experts.%s", i,
                     ax_expert_weight_name((enum ax_expert_weight)k));
            found = ax_adapter_ends_in(key, name);
        }
    return found;
}

static enum ax_status check(const struct ax_model *m, const struct ax_peft_config *c, int number) {
    bool any = false;
    for (int i = 0; i < m->n_params; i++)
        any = any || m->params[i].adapter == number;
    for (int i = 0; i < c->targets.n; i++)
        if (!names_target(m, c->targets.names[i]))
            return ax_error(AX_ERR_CONFIG,
                            "target_modules: \"%s\" is no module of this %s model that can have an "
                            "adapter (those are the projections of attention and MLP, embed_tokens "
                            "and lm_head)",
                            c->targets.names[i], m->arch.family->model_type);
    for (int i = 0; i < c->parameters.n; i++)
        if (!names_experts(m, c->parameters.names[i]))
            return ax_error(AX_ERR_CONFIG,
                            "target_parameters: \"%s\" is no stacked weight of this %s model%s",
                            c->parameters.names[i], m->arch.family->model_type,
                            m->arch.moe.n_experts > 0 ? " (those are mlp.experts.gate_up_proj and "
                                                        "mlp.experts.down_proj)"
                                                      : ": it has no experts");
    for (int i = 0; i < c->save.n; i++)
        if (!names_saved(m, c->save.names[i]))
            return ax_error(AX_ERR_CONFIG, "modules_to_save: \"%s\" is no module of this %s model",
                            c->save.names[i], m->arch.family->model_type);
    if (!any)
        return ax_error(AX_ERR_CONFIG,
                        "target_modules: no module of this %s model is left to adapt%s%s",
                        m->arch.family->model_type, c->target_regex ? " by the expression " : "",
                        c->target_regex ? c->target_regex : "");
    return AX_OK;
}

enum ax_status ax_adapter_check(const struct ax_model *m) {
    const struct ax_peft_config *c;
    for (int k = 0; (c = ax_adapter_config(m, k)) != NULL; k++)
        AX_TRY(ax_adapter_named(m, k, check(m, c, k + 1)));
    return AX_OK;
}
