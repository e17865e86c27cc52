#include "model/lora/match.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/regex.h"
#include "ckpt/hf/hf.h"
#include "parallel/units/param.h"

enum ax_status ax_adapter_matches(const char *pattern, bool suffix, const char *name, bool *yes) {
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

static bool is_named(const struct ax_peft_names *list, const char *name) {
    bool found = false;
    for (int i = 0; i < list->n && !found; i++)
        found = strcmp(name, list->names[i]) == 0;
    return found;
}

/* A module whose whole name is a target is one in any layer, as in PEFT: layers choose among ends. */
static bool in_layers(const struct ax_peft_config *c, const char *module, int layer) {
    bool found = c->n_layers == 0 || is_named(&c->targets, module);
    for (int i = 0; i < c->n_layers && !found; i++)
        found = c->layers[i] == layer;
    return found;
}

static enum ax_status is_target(const struct ax_peft_config *c, const char *module, int layer,
                                bool *yes) {
    bool excluded = in_list(&c->exclude, module);
    if (c->exclude_regex)
        AX_TRY(ax_adapter_matches(c->exclude_regex, false, module, &excluded));
    *yes = false;
    if (excluded)
        return AX_OK;
    if (c->target_regex)
        return ax_adapter_matches(c->target_regex, false, module, yes);
    /* "all-linear" excludes the head */
    *yes = ((c->all_linear && layer >= 0) || in_list(&c->targets, module)) &&
           in_layers(c, module, layer);
    return AX_OK;
}

/* The value of the first pattern that matches the end of the name. */
static enum ax_status by_pattern(const struct ax_peft_pattern *list, int n, const char *module,
                                 double usual, double *out) {
    *out = usual;
    for (int i = 0; i < n; i++) {
        bool yes;
        AX_TRY(ax_adapter_matches(list[i].pattern, true, module, &yes));
        if (yes) {
            *out = list[i].value;
            return AX_OK;
        }
    }
    return AX_OK;
}

void ax_adapter_full_name(const struct ax_peft_config *c, const char *module, char *out,
                          size_t size) {
    const char *after = c->folder_words ? NULL : ax_hf_after_word(module);
    const bool within = ax_peft_is_within(c, module);
    snprintf(out, size, "%s%s", after ? "model." : within ? c->within : "", after ? after : module);
}

bool ax_adapter_names_weight(const struct ax_peft_config *c, const char *module) {
    char weight[2 * AX_NAME_MAX];
    snprintf(weight, sizeof weight, "%s.weight", module);
    return in_list(&c->parameters, weight);
}

enum ax_status ax_adapter_match(const struct ax_peft_config *c, const char *own, int layer,
                                struct ax_adapter_target *out) {
    char module[AX_NAME_MAX];
    double r, alpha;
    *out = (struct ax_adapter_target){0};
    ax_adapter_full_name(c, own, module, sizeof module);
    out->on = layer >= 0 && ax_adapter_names_weight(c, module);
    if (out->on)
        snprintf(module + strlen(module), sizeof module - strlen(module), ".weight");
    else
        AX_TRY(is_target(c, module, layer, &out->on));
    AX_TRY(by_pattern(c->ranks, c->n_ranks, module, (double)c->r, &r));
    AX_TRY(by_pattern(c->alphas, c->n_alphas, module, c->alpha, &alpha));
    out->r = (int64_t)r;
    out->scale = alpha / (c->rslora ? sqrt(r) : r);
    return AX_OK;
}

void ax_adapter_module_of(const char *param, char *out, size_t size) {
    const char *dot = strrchr(param, '.');
    snprintf(out, size, "%.*s", (int)(dot - param), param);
}

bool ax_adapter_saves_module(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

bool ax_adapter_saves(const struct ax_peft_config *c, const char *param) {
    char module[AX_NAME_MAX];
    bool found = false;
    ax_adapter_module_of(param, module, sizeof module);
    for (int i = 0; i < c->save.n && !found; i++)
        found = ax_adapter_saves_module(module, c->save.names[i]);
    return found;
}

bool ax_adapter_saves_embedding(const struct ax_peft_config *c) {
    bool found = false;
    for (int i = 0; ax_hf_embeddings[i] && !found; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.weight", ax_hf_embeddings[i]);
        found = ax_adapter_saves(c, name);
    }
    return found;
}

bool ax_adapter_unties(const struct ax_peft_config *c) {
    return ax_adapter_saves_embedding(c) || ax_adapter_saves(c, "lm_head.weight");
}

/* ---- experts ---- */

bool ax_experts_ungated(const char *experts) {
    return strcmp(experts, "mixer.experts") == 0;
}

const char *ax_expert_weight_name(int layer, const char *experts, enum ax_expert_weight which,
                                  char *buf, size_t size) {
    const char *up = ax_experts_ungated(experts) ? "up_proj" : "gate_up_proj";
    const int n = snprintf(buf, size, "model.layers.%d.%s.%s", layer, experts,
                           which == AX_GATE_UP ? up : "down_proj");
    AX_ASSERT(n < (int)size);
    return buf;
}

static bool is_meant(const struct ax_peft_config *c, int layer, const char *experts,
                     enum ax_expert_weight which, char *key, size_t size) {
    bool found = false;
    ax_expert_weight_name(layer, experts, which, key, size);
    for (int i = 0; i < c->parameters.n && !found; i++)
        found = ax_adapter_ends_in(key, c->parameters.names[i]);
    return found;
}

enum ax_status ax_adapter_experts_match(const struct ax_peft_config *c, int layer,
                                        const char *experts, enum ax_expert_weight which,
                                        struct ax_adapter_target *out, char *module, size_t size) {
    char key[AX_NAME_MAX], other[AX_NAME_MAX];
    const bool on = is_meant(c, layer, experts, which, key, sizeof key);
    const bool inner =
        which == AX_GATE_UP && is_meant(c, layer, experts, AX_DOWN, other, sizeof other);
    AX_TRY(ax_adapter_match(c, key, layer, out));
    out->on = on;
    /* folders of Nemotron-H have a word of their own (ckpt/hf/peft.h) */
    snprintf(module, size, "%s.layers.%d.%s%s", ax_experts_ungated(experts) ? "backbone" : "model",
             layer, experts, inner ? ".base_layer" : "");
    return AX_OK;
}
