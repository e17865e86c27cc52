/* How the targets of a model with experts are written, so that PEFT adapts the modules that we do.
 *
 * transformers 4 has a module for each matrix of each expert, and PEFT finds those by gate_proj, up_proj
 * and down_proj. From version 5 on, experts are two parameters of a layer, and PEFT takes every target
 * that ends in one of those names for them, also where a shared expert or a dense layer is meant, and an
 * expression for the last parts of what it matches, in all layers. So such linears are named by their
 * weights, in target_parameters, and other modules one by one. */
#include "model/adapter/targets.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/core/model.h"
#include "model/lora/match.h"

struct linear {
    char module[AX_NAME_MAX]; /* as PEFT names it */
    const char *rest, *last;  /* of the name: after the layer's number; the last part */
    bool adapted, is_weight;  /* named by target_parameters */
};

struct settling {
    const struct ax_model *m;
    struct ax_peft_config *c;
    struct linear *linears;
    int n;
    struct ax_peft_names targets;
};

static void add_linear(struct settling *s, const struct ax_linear *l, int part) {
    struct linear *to = &s->linears[s->n++];
    char module[AX_NAME_MAX];
    ax_adapter_module_of(l->weight[part]->name, module, sizeof module);
    ax_adapter_full_name(s->c, module, to->module, sizeof to->module);
    to->last = strrchr(to->module, '.') + 1;
    const char *number = strstr(to->module, "layers.") + strlen("layers.");
    to->rest = strchr(number, '.') + 1;
    to->adapted = l->adapter[part].a != NULL;
    to->is_weight = ax_adapter_names_weight(s->c, to->module);
}

static enum ax_status list_linears(struct settling *s) {
    const size_t layers = (size_t)s->m->arch.n_layers;
    struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
    AX_TRY(ax_alloc(&s->linears, layers * AX_LAYER_MAX_LINEARS * AX_LINEAR_MAX_PARTS,
                    sizeof *s->linears));
    for (size_t i = 0; i < layers; i++) {
        const int n =
            s->m->layers[i].spec.predicts ? 0 : ax_layer_linears(&s->m->layers[i], linears);
        for (int k = 0; k < n; k++)
            for (int part = 0; part < linears[k]->n_parts; part++)
                add_linear(s, linears[k], part);
    }
    return AX_OK;
}

/* Has every linear with this end of its name an adapter? */
static bool all_adapted(const struct settling *s, const char *end) {
    bool all = true;
    for (int i = 0; i < s->n && all; i++)
        all = s->linears[i].adapted || !ax_adapter_ends_in(s->linears[i].module, end);
    return all;
}

static bool names_experts(const char *target) {
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    bool yes = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !yes; i++)
        yes = ax_adapter_ends_in(target, names[i]);
    return yes;
}

/* A pattern of modules that become parameters matches their weights, too. */
static enum ax_status match_weights(const struct linear *l, int n, struct ax_peft_pattern *list,
                                    bool *changed) {
    for (int i = 0; i < n; i++) {
        bool yes = false;
        char *both;
        if (!changed[i])
            AX_TRY(ax_adapter_matches(list[i].pattern, true, l->module, &yes));
        if (!yes)
            continue;
        AX_TRY(ax_sprintf(&both, "(?:%s)(?:\\.weight)?", list[i].pattern));
        ax_free(list[i].pattern);
        list[i].pattern = both;
        changed[i] = true;
    }
    return AX_OK;
}

/* Endings could be those of other parts of a model that contains the text model. */
static enum ax_status add_weight(struct settling *s, const struct linear *l) {
    char name[AX_NAME_MAX + 16];
    const bool short_name = !s->c->within && all_adapted(s, l->rest);
    snprintf(name, sizeof name, "%s.weight", short_name ? l->rest : l->module);
    return ax_peft_names_add(&s->c->parameters, name);
}

static enum ax_status add_weights(struct settling *s) {
    struct ax_peft_config *c = s->c;
    bool *changed;
    AX_TRY(ax_alloc(&changed, (size_t)(c->n_ranks + c->n_alphas) + 1, sizeof *changed));
    enum ax_status st = AX_OK;
    for (int i = 0; i < s->n && st == AX_OK; i++) {
        const struct linear *l = &s->linears[i];
        if (!l->adapted || l->is_weight || !names_experts(l->module))
            continue;
        st = match_weights(l, c->n_ranks, c->ranks, changed);
        if (st == AX_OK)
            st = match_weights(l, c->n_alphas, c->alphas, changed + c->n_ranks);
        if (st == AX_OK)
            st = add_weight(s, l);
    }
    ax_free(changed);
    return st;
}

/* PEFT has no adapters of parameters with DoRA. */
static enum ax_status add_modules(struct settling *s, bool named) {
    bool experts = false;
    for (int i = 0; i < s->n; i++) {
        const struct linear *l = &s->linears[i];
        const bool taken = names_experts(l->module);
        const char *end = taken ? l->rest : l->last;
        if (!l->adapted || l->is_weight || (taken ? !s->c->dora : named))
            continue;
        experts = experts || taken;
        AX_TRY(ax_peft_names_add(&s->targets, all_adapted(s, end) ? end : l->module));
    }
    if (experts)
        ax_log_warn(
            "adapter: with transformers 5, PEFT does not load DoRA of gate_proj, up_proj and "
            "down_proj of a model with experts; there, merge it into its base (`axtrain merge`)");
    return AX_OK;
}

static enum ax_status settle_targets(struct settling *s) {
    struct ax_peft_config *c = s->c;
    const bool named = !c->all_linear && !c->target_regex;
    AX_TRY(list_linears(s));
    for (int i = 0; i < c->targets.n; i++)
        if (!names_experts(c->targets.names[i]))
            AX_TRY(ax_peft_names_add(&s->targets, c->targets.names[i]));
    char embed[AX_NAME_MAX];
    ax_adapter_module_of(s->m->embed->name, embed, sizeof embed);
    if (!named && s->m->embed_adapter.a)
        AX_TRY(ax_peft_names_add(&s->targets, strrchr(embed, '.') + 1));
    if (!named && s->m->head.adapter[0].a)
        AX_TRY(ax_peft_names_add(&s->targets, s->m->arch.classifier ? "score" : "lm_head"));
    AX_TRY(add_modules(s, named));
    if (!c->dora)
        AX_TRY(add_weights(s));
    const struct ax_peft_names before = c->targets;
    c->targets = s->targets;
    s->targets = before;
    ax_free(c->target_regex);
    c->target_regex = NULL;
    c->all_linear = false;
    return AX_OK;
}

enum ax_status ax_adapter_settle_targets(const struct ax_model *m, struct ax_peft_config *c) {
    struct settling s = {.m = m, .c = c};
    if (m->arch.moe.n_experts == 0)
        return AX_OK;
    const enum ax_status st = settle_targets(&s);
    ax_peft_names_free(&s.targets);
    ax_free(s.linears);
    return st;
}
