/* Patterns of an adapter's config that select nothing: a slip in one would change what trains without a
 * word. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/adapter/attach.h"
#include "model/lora/match.h"
#include "model/core/model.h"

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
static enum ax_status selects(const struct ax_model *m, const struct ax_peft_config *c, int number,
                              const char *pattern, bool suffix, bool *yes) {
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
            AX_TRY(ax_adapter_matches(
                pattern, suffix,
                ax_expert_weight_name(i, (enum ax_expert_weight)k, module, AX_NAME_MAX), yes));
    return AX_OK;
}

/* PEFT takes what others wrote without a word, and models with more parts have more modules. */
static enum ax_status say(const struct ax_model *m, const struct ax_peft_config *c, const char *key,
                          const char *pattern) {
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
        AX_TRY(selects(m, c, number, list[i].pattern, true, &yes));
        if (yes)
            continue;
        AX_TRY(selects(m, c, 0, list[i].pattern, true, &yes));
        if (yes && !ax_runtime_planning(m->rt))
            ax_log_warn("%s: \"%s\" matches no module that has an adapter", key, list[i].pattern);
        if (!yes)
            AX_TRY(say(m, c, key, list[i].pattern));
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

enum ax_status ax_adapter_check_patterns(const struct ax_model *m, const struct ax_peft_config *c,
                                         int number) {
    bool yes = true;
    AX_TRY(check_list(m, c, number, "rank_pattern", c->ranks, c->n_ranks));
    AX_TRY(check_list(m, c, number, "alpha_pattern", c->alphas, c->n_alphas));
    for (int i = 0; i < c->exclude.n; i++)
        if (!ends_a_module(m, c->exclude.names[i]))
            AX_TRY(say(m, c, "exclude_modules", c->exclude.names[i]));
    if (c->exclude_regex)
        AX_TRY(selects(m, c, 0, c->exclude_regex, false, &yes));
    if (!yes)
        AX_TRY(say(m, c, "exclude_modules", c->exclude_regex));
    return AX_OK;
}
