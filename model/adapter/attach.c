/* Adds the parameters of adapters; checks that every name in their configs is one of the
 * model's. */
#include "model/adapter/attach.h"

#include <stdio.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/log.h"
#include "ckpt/hf/hf.h"
#include "model/core/adapters.h"
#include "model/core/model.h"
#include "model/lora/match.h"
#include "parallel/units/packed.h"

/* ---- patterns that select nothing: a slip in one would change what trains without a word ---- */

/* The module that a parameter is of, or its weight, as the adapter's config names it. */
static void module_of(const struct ax_peft_config *c, const struct ax_param *p, char *out,
                      size_t size) {
    const char *name = p->name;
    const size_t prefix = strlen(AX_PEFT_PREFIX);
    if (strncmp(name, AX_PEFT_PREFIX, prefix) == 0)
        name += prefix;
    ax_adapter_full_name(c, name, out, size);
    char *end = strstr(out, ".lora_");
    end = end ? end : strrchr(out, '.');
    if (end)
        *end = '\0';
    if (ax_adapter_names_weight(c, out))
        snprintf(out + strlen(out), size - strlen(out), ".weight");
}

/* Of an adapter's modules, or of the base's; `suffix` as in rank_pattern. */
static enum ax_status pattern_selects(const struct ax_model *m, const struct ax_peft_config *c,
                                      int number, const char *pattern, bool suffix, bool *yes) {
    char module[AX_NAME_MAX + 32];
    *yes = false;
    for (int i = 0; i < m->n_params && !*yes; i++) {
        if (m->params[i].adapter != number)
            continue;
        module_of(c, &m->params[i], module, sizeof module);
        AX_TRY(ax_adapter_matches(pattern, suffix, module, yes));
    }
    for (int i = 0; i < (int)m->arch.n_layers && c->parameters.n > 0 && !*yes; i++)
        for (int k = 0; k < AX_EXPERT_WEIGHTS && m->layers[i].moe.router && !*yes; k++)
            AX_TRY(ax_adapter_matches(pattern, suffix,
                                      ax_expert_weight_name(i, ax_moe_module(&m->arch),
                                                            (enum ax_expert_weight)k, module,
                                                            AX_NAME_MAX),
                                      yes));
    return AX_OK;
}

/* PEFT takes what others wrote without a word, and models with more parts have more modules. */
static enum ax_status say_unmatched(const struct ax_model *m, const struct ax_peft_config *c,
                                    const char *key, const char *pattern) {
    static const char text[] = "%s: \"%s\" matches no module of this %s model";
    if (!c->json)
        return ax_error(AX_ERR_CONFIG, text, key, pattern, m->arch.family->model_type);
    if (!ax_runtime_planning(m->rt))
        ax_log_warn(text, key, pattern, m->arch.family->model_type);
    return AX_OK;
}

static enum ax_status check_list(const struct ax_model *m, const struct ax_peft_config *c,
                                 int number, const char *key, const struct ax_peft_pattern *list,
                                 int n) {
    for (int i = 0; i < n; i++) {
        bool yes;
        AX_TRY(pattern_selects(m, c, number, list[i].pattern, true, &yes));
        if (yes)
            continue;
        AX_TRY(pattern_selects(m, c, 0, list[i].pattern, true, &yes));
        if (yes && !ax_runtime_planning(m->rt))
            ax_log_warn("%s: \"%s\" matches no module that has an adapter", key, list[i].pattern);
        if (!yes)
            AX_TRY(say_unmatched(m, c, key, list[i].pattern));
    }
    return AX_OK;
}

static bool ends_a_module(const struct ax_model *m, const char *name) {
    char module[AX_NAME_MAX];
    bool found = false;
    for (int i = 0; i < m->n_params && !found; i++) {
        ax_adapter_module_of(m->params[i].name, module, sizeof module);
        found = m->params[i].adapter == 0 && ax_adapter_ends_in(module, name);
    }
    return found;
}

/* AX_ERR_CONFIG names a pattern of rank_pattern, alpha_pattern or exclude_modules that matches no
 * module; for a config that was read from a folder that is only a warning. `number`: the adapter's
 * number in the model. */
static enum ax_status check_patterns(const struct ax_model *m, const struct ax_peft_config *c,
                                     int number) {
    bool yes = true;
    AX_TRY(check_list(m, c, number, "rank_pattern", c->ranks, c->n_ranks));
    AX_TRY(check_list(m, c, number, "alpha_pattern", c->alphas, c->n_alphas));
    for (int i = 0; i < c->exclude.n; i++)
        if (!ends_a_module(m, c->exclude.names[i]))
            AX_TRY(say_unmatched(m, c, "exclude_modules", c->exclude.names[i]));
    if (c->exclude_regex)
        AX_TRY(pattern_selects(m, c, 0, c->exclude_regex, false, &yes));
    if (!yes)
        AX_TRY(say_unmatched(m, c, "exclude_modules", c->exclude_regex));
    return AX_OK;
}

/* ---- places of a bank (adapters.h) ---- */

enum ax_status ax_adapter_bank_begin(struct ax_model *m) {
    struct ax_adapter_bank *b = m->bank;
    const size_t layers = (size_t)m->arch.n_layers;
    if (!b)
        return AX_OK;
    AX_ASSERT(b->n > 0 && !m->adapter && !m->train);
    *b = (struct ax_adapter_bank){
        .n = b->n, .pefts = b->pefts, .active = AX_ADAPTER_NONE, .tied = m->arch.tied};
    const size_t places = layers * AX_LAYER_MAX_LINEARS * AX_LINEAR_MAX_PARTS + 2;
    AX_TRY(ax_alloc(&b->places, places, sizeof *b->places));
    AX_TRY(ax_alloc(&b->experts, layers * AX_EXPERT_WEIGHTS, sizeof *b->experts));
    AX_TRY(ax_alloc(&b->places[0].of, places * (size_t)b->n, sizeof *b->places[0].of));
    AX_TRY(ax_alloc(&b->experts[0].of, layers * AX_EXPERT_WEIGHTS * (size_t)b->n,
                    sizeof *b->experts[0].of));
    for (size_t i = 1; i < places; i++)
        b->places[i].of = b->places[0].of + i * (size_t)b->n;
    for (size_t i = 1; i < layers * AX_EXPERT_WEIGHTS; i++)
        b->experts[i].of = b->experts[0].of + i * (size_t)b->n;
    return AX_OK;
}

void ax_adapter_bank_end(struct ax_model *m) {
    struct ax_adapter_bank *b = m->bank;
    if (!b)
        return;
    ax_free(b->places ? b->places[0].of : NULL);
    ax_free(b->experts ? b->experts[0].of : NULL);
    ax_free(b->places);
    ax_free(b->experts);
    ax_free(b->replaced);
    *b = (struct ax_adapter_bank){.n = b->n, .pefts = b->pefts};
}

/* While a place is built, for each k = 0 … n − 1: where adapter k is stored. Without a bank, the
 * place itself. */
static struct ax_adapter *bank_place(struct ax_model *m, int k, struct ax_adapter *at) {
    struct ax_adapter_bank *b = m->bank;
    if (!b)
        return at;
    if (k == 0)
        b->places[b->n_places++].at = at;
    return &b->places[b->n_places - 1].of[k];
}

/* Adapter k of the last that has one among n places before that one, which is at `at`; or NULL. */
static const struct ax_adapter *bank_before(const struct ax_model *m, int k, int n,
                                            const struct ax_adapter *at) {
    const struct ax_adapter_bank *b = m->bank;
    for (int i = 1; i <= n; i++) {
        const struct ax_adapter *a = b ? &b->places[b->n_places - 1 - i].of[k] : at - i;
        if (a->a)
            return a;
    }
    return NULL;
}

static struct ax_expert_adapter *bank_experts(struct ax_model *m, int k,
                                              struct ax_expert_adapter *at) {
    struct ax_adapter_bank *b = m->bank;
    if (!b)
        return at;
    if (k == 0)
        b->experts[b->n_experts++].at = at;
    return &b->experts[b->n_experts - 1].of[k];
}

/* ---- adding adapters ---- */

/* Adds a tensor of the module's adapter to the unit that is being built. */
static const struct ax_param *add(struct ax_builder *b, const char *module, const char *what,
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
    mine->decay = true; /* DoRA's magnitudes, too, as in PEFT with transformers' trainer */
    return p;
}

/* lora_A, lora_B … of a matrix; their unit is the one that is being built. */
struct place {
    const char *module;
    int layer; /* −1: none */
    int unit;
    const struct ax_param *weight;
    bool own_rows; /* of tp, is what it multiplies */
    int part;      /* number of places before it with the same input */
};

/* If the config targets the place, sets everything except its parameters. */
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
        return ax_error(
            AX_ERR_UNSUPPORTED,
            "DoRA of %s is not implemented: remove it from the target modules, or use LoRA",
            at->module);
    *a = (struct ax_adapter){.run = &b->model->adapter_run,
                             .unit = &b->model->units[at->unit],
                             .weight = at->weight,
                             .scale = target->scale,
                             .dropout = c->dropout,
                             .own_rows = at->own_rows,
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
    a->a = add(b, at->module, "lora_A.weight", target.r, w->shape[1], w->tp_dim == 1 ? 1 : -1);
    a->b = add(b, at->module, "lora_B.weight", w->shape[0], target.r, w->tp_dim == 0 ? 0 : -1);
    if (b->adapter->dora)
        a->magnitude =
            add(b, at->module, "lora_magnitude_vector", w->shape[0], 0, w->tp_dim == 0 ? 0 : -1);
    return AX_OK;
}

static enum ax_status attach_embedding(struct ax_builder *b, const struct place *at,
                                       struct ax_adapter *a) {
    const struct ax_param *w = at->weight;
    struct ax_adapter_target target;
    AX_TRY(target_at(b, at, a, &target));
    if (!target.on)
        return AX_OK;
    a->a = add(b, at->module, "lora_embedding_A", target.r, w->shape[0], 1);
    a->b = add(b, at->module, "lora_embedding_B", w->shape[1], target.r, -1);
    return AX_OK;
}

/* Attaches a place for each of the model's adapters. A's that read the same input are stored as one
 * matrix (ax_adapter_call). */
static enum ax_status attach_all(struct ax_builder *b, const struct place *at, struct ax_adapter *a,
                                 enum ax_status (*one)(struct ax_builder *b, const struct place *at,
                                                       struct ax_adapter *a)) {
    struct ax_model *m = b->model;
    for (int k = 0; ax_builder_next_adapter(b, k); k++) {
        struct ax_adapter *own = bank_place(m, k, a);
        const struct ax_adapter *before = bank_before(m, k, at->part, a);
        AX_TRY(ax_adapter_named(m, k, one(b, at, own)));
        if (own->a && before)
            ax_builder_store_after(b, own->a, before->a);
    }
    return AX_OK;
}

static const char *head_module(const struct ax_model *m) {
    return m->arch.classifier ? "score" : "lm_head";
}

enum ax_status ax_adapter_attach_end(struct ax_builder *b, int unit) {
    struct ax_model *m = b->model;
    char module[AX_NAME_MAX];
    ax_adapter_module_of(m->embed->name, module, sizeof module);
    const struct place embed = {.module = module, .layer = -1, .unit = 0, .weight = m->embed};
    if (unit == 0)
        return attach_all(b, &embed, &m->embed_adapter, attach_embedding);
    const struct place at = {
        .module = head_module(m), .layer = -1, .unit = unit, .weight = m->lm_head};
    return attach_all(b, &at, &m->head.adapter[0], attach);
}

/* True if base_store is only of matrices whose codes a folder has, and it has none of this one. */
static bool lacks_codes(const struct ax_model_options *o, const struct ax_param *w) {
    const struct ax_st_entry *e = o->coded ? ax_hf_find(o->coded, w->name) : NULL;
    return o->coded && !(e && ax_storage_has_codes(o->base_store, w->shape[w->ndim - 1], e->codes));
}

/* Storage as the builder says; a parameter that an adapter saves in full is plain, because it could
 * not be exchanged with a packed one. */
static enum ax_status store(const struct ax_builder *b, struct ax_param *w) {
    const struct ax_model *m = b->model;
    const struct ax_peft_config *c;
    if (b->options->base_store == AX_STORAGE_PLAIN || (m->adapter && w->trainable) ||
        lacks_codes(b->options, w))
        return AX_OK;
    for (int k = 0; m->bank && (c = ax_adapter_config(m, k)) != NULL; k++)
        if (ax_adapter_saves(c, w->name))
            return ax_adapter_named(
                m, k,
                ax_error(AX_ERR_UNSUPPORTED,
                         "modules_to_save: the adapter contains a full %s, but the base is "
                         "quantized. Use the adapter with a base that is not quantized.",
                         w->name));
    w->storage = b->options->base_store;
    w->trainable = false;
    return AX_OK;
}

static enum ax_status attach_linear(struct ax_builder *b, int layer, struct ax_linear *l) {
    struct ax_model *m = b->model;
    for (int i = 0; i < l->n_parts; i++) {
        struct ax_param *w = &m->params[l->weight[i] - m->params];
        AX_TRY(store(b, w));
        char module[AX_NAME_MAX];
        ax_adapter_module_of(w->name, module, sizeof module);
        const struct place at = {.module = module,
                                 .layer = layer,
                                 .unit = layer + 1,
                                 .weight = w,
                                 .own_rows = l->split == AX_SPLIT_NONE,
                                 .part = i};
        AX_TRY(attach_all(b, &at, &l->adapter[i], attach));
    }
    return AX_OK;
}

/* Is there an adapter of a part, not of a bank? */
static bool has_adapter(const struct ax_linear *l) {
    bool any = false;
    for (int i = 0; i < l->n_parts; i++)
        any = any || l->adapter[i].a;
    return any;
}

static enum ax_status store_linear(struct ax_builder *b, const struct ax_linear *l) {
    for (int i = 0; i < l->n_parts; i++)
        AX_TRY(store(b, &b->model->params[l->weight[i] - b->model->params]));
    return AX_OK;
}

static enum ax_status check_experts(const struct ax_peft_config *c) {
    const char *why = c->dora                     ? "with DoRA"
                      : c->dropout > 0            ? "with dropout"
                      : c->start == AX_LORA_PISSA ? "with PiSSA"
                                                  : NULL;
    if (!why)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "target_parameters: adapters of experts %s are not implemented", why);
}

static enum ax_status attach_weight(struct ax_builder *b, struct ax_layer *l,
                                    enum ax_expert_weight which, int64_t out, int64_t in,
                                    struct ax_expert_adapter *a) {
    struct ax_model *m = b->model;
    const int64_t E = b->arch->moe.n_experts;
    struct ax_adapter_target target;
    char module[AX_NAME_MAX];
    AX_TRY(ax_adapter_experts_match(b->adapter, l->index, ax_moe_module(b->arch), which, &target,
                                    module, sizeof module));
    if (!target.on)
        return AX_OK;
    AX_TRY(check_experts(b->adapter));
    *a = (struct ax_expert_adapter){.rt = m->rt,
                                    .run = &m->adapter_run,
                                    .unit = l->unit,
                                    .n_experts = E,
                                    .first = m->experts.first,
                                    .n_local = m->experts.n_local,
                                    .r = target.r,
                                    .scale = target.scale};
    a->a = add(b, module, "lora_A.weight", E * target.r, in, -1);
    a->b = add(b, module, "lora_B.weight", out, E * target.r, -1);
    return AX_OK;
}

/* gate and up of every expert, then down. Experts are multiplied as one, so they are stored alike. */
static enum ax_status store_experts(struct ax_builder *b, const struct ax_layer *l) {
    struct ax_model *m = b->model;
    struct ax_param *first = &m->params[l->moe.gate_up - m->params];
    struct ax_param *down = &m->params[l->moe.down - m->params];
    const int64_t all = (ax_arch_ups(b->arch) + 1) * b->arch->moe.n_experts;
    if (!b->options->store_experts)
        return AX_OK;
    if (b->arch->moe.stacked) {
        if (lacks_codes(b->options, first) || lacks_codes(b->options, down))
            return AX_OK;
        AX_TRY(store(b, first));
        return store(b, down);
    }
    for (int64_t i = 0; i < all; i++)
        if (lacks_codes(b->options, &first[i]))
            return AX_OK;
    for (int64_t i = 0; i < all; i++)
        AX_TRY(store(b, &first[i]));
    return AX_OK;
}

static enum ax_status attach_experts(struct ax_builder *b, struct ax_layer *l) {
    const int64_t D = ax_arch_expert_size(b->arch), F = b->arch->moe.width;
    const int64_t ups = ax_arch_ups(b->arch) * F;
    struct ax_model *m = b->model;
    struct ax_moe_part *moe = &l->moe;
    AX_TRY(store_experts(b, l));
    for (int k = 0; ax_builder_next_adapter(b, k); k++)
        AX_TRY(ax_adapter_named(
            m, k,
            attach_weight(b, l, AX_GATE_UP, ups, D, bank_experts(m, k, &moe->gate_up_adapter))));
    for (int k = 0; ax_builder_next_adapter(b, k); k++)
        AX_TRY(ax_adapter_named(
            m, k, attach_weight(b, l, AX_DOWN, D, F, bank_experts(m, k, &moe->down_adapter))));
    return AX_OK;
}

/* The layer for multi-token prediction has none: PEFT would find no modules for them. */
enum ax_status ax_adapter_attach(struct ax_builder *b, struct ax_layer *l) {
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
    const int n = ax_layer_linears(l, linears);
    const bool never = l->spec.predicts;
    for (int i = 0; i < n; i++) {
        AX_TRY(never ? store_linear(b, linears[i]) : attach_linear(b, l->index, linears[i]));
        if (!has_adapter(linears[i]))
            continue;
        linears[i]->place = l->n_adapted;
        l->adapted[l->n_adapted++] = linears[i];
    }
    if (!l->moe.router)
        return AX_OK;
    return never ? store_experts(b, l) : attach_experts(b, l);
}

/* True for the name of a module that is saved in full. PEFT lists both names that the head of a
 * classifier can have. */
static bool names_saved(const struct ax_model *m, const char *name) {
    bool found = m->arch.classifier && strcmp(name, "classifier") == 0;
    for (int i = 0; i < m->n_params && !found; i++) {
        char module[AX_NAME_MAX];
        ax_adapter_module_of(m->params[i].name, module, sizeof module);
        found = !m->params[i].adapter && m->params[i].trainable &&
                ax_adapter_saves_module(module, name);
    }
    return found;
}

static bool names_linear(const struct ax_model *m, const struct ax_peft_config *c,
                         const char *name) {
    bool found = false;
    for (int i = 0; i < (int)m->arch.n_layers && !found; i++) {
        struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
        const int n = m->layers[i].spec.predicts ? 0 : ax_layer_linears(&m->layers[i], linears);
        for (int k = 0; k < n; k++)
            for (int part = 0; part < linears[k]->n_parts && !found; part++) {
                char own[AX_NAME_MAX], module[AX_NAME_MAX];
                ax_adapter_module_of(linears[k]->weight[part]->name, own, sizeof own);
                ax_adapter_full_name(c, own, module, sizeof module);
                found = ax_adapter_ends_in(module, name);
            }
    }
    return found;
}

/* True for the name of a module that can have an adapter. */
static bool names_target(const struct ax_model *m, const struct ax_peft_config *c,
                         const char *name) {
    char embed[AX_NAME_MAX];
    ax_adapter_module_of(m->embed->name, embed, sizeof embed);
    return ax_adapter_ends_in(embed, name) || ax_adapter_ends_in(head_module(m), name) ||
           names_linear(m, c, name);
}

/* The same for a weight: of experts, or "….down_proj.weight" of a linear. */
static bool names_weight(const struct ax_model *m, const struct ax_peft_config *c,
                         const char *name) {
    char module[AX_NAME_MAX];
    bool found = false;
    if (ax_adapter_ends_in(name, "weight")) {
        ax_adapter_module_of(name, module, sizeof module);
        found = names_linear(m, c, module);
    }
    for (int i = 0; i < (int)m->arch.n_layers; i++)
        for (int k = 0; k < AX_EXPERT_WEIGHTS && m->layers[i].moe.router && !found; k++) {
            char key[AX_NAME_MAX];
            ax_expert_weight_name(i, ax_moe_module(&m->arch), (enum ax_expert_weight)k, key,
                                  sizeof key);
            found = ax_adapter_ends_in(key, name);
        }
    return found;
}

static enum ax_status check(const struct ax_model *m, const struct ax_peft_config *c, int number) {
    char experts[96] = "";
    if (m->arch.moe.n_experts > 0)
        snprintf(experts, sizeof experts, "%s.%s, %s.down_proj", ax_moe_module(&m->arch),
                 m->arch.ungated ? "up_proj" : "gate_up_proj", ax_moe_module(&m->arch));
    bool any = false;
    for (int i = 0; i < m->n_params; i++)
        any = any || m->params[i].adapter == number;
    for (int i = 0; i < c->targets.n; i++)
        if (!names_target(m, c, c->targets.names[i]))
            return ax_error(
                AX_ERR_CONFIG,
                "target_modules: \"%s\" matches no module of this %s model that can have an "
                "adapter (the projections of attention and MLP, embed_tokens and %s)%s%s",
                c->targets.names[i], m->arch.family->model_type, head_module(m),
                *experts ? "; experts are named in lora_target_parameters: " : "", experts);
    for (int i = 0; i < c->parameters.n; i++)
        if (!names_weight(m, c, c->parameters.names[i]))
            return ax_error(
                AX_ERR_CONFIG,
                "target_parameters: \"%s\" matches no stacked expert weight of this %s model%s%s%s",
                c->parameters.names[i], m->arch.family->model_type,
                *experts ? " (" : ", which has no experts", experts, *experts ? ")" : "");
    for (int i = 0; i < c->save.n; i++)
        if (!names_saved(m, c->save.names[i]))
            return ax_error(AX_ERR_CONFIG,
                            "modules_to_save: \"%s\" matches no module of this %s model",
                            c->save.names[i], m->arch.family->model_type);
    if (!any)
        return ax_error(AX_ERR_CONFIG, "target_modules: no module of this %s model is selected%s%s",
                        m->arch.family->model_type, c->target_regex ? " by the expression " : "",
                        c->target_regex ? c->target_regex : "");
    return check_patterns(m, c, number);
}

enum ax_status ax_adapter_check(const struct ax_model *m) {
    const struct ax_peft_config *c;
    for (int k = 0; (c = ax_adapter_config(m, k)) != NULL; k++)
        AX_TRY(ax_adapter_named(m, k, check(m, c, k + 1)));
    return AX_OK;
}
