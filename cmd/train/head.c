/* The head that a configuration trains, and what a process reward model's folder says of its steps. */
#include <string.h>

#include "cmd/train/setup.h"

enum ax_status ax_train_head(struct ax_train_setup *s) {
    const struct ax_classifier *kind = ax_method_of(s->cfg)->head;
    char where[256];
    if (!kind)
        return ax_classifier_refuse(&s->arch, s->base_name, "learn to predict tokens");
    const enum ax_status st = ax_classifier_choose(&s->arch, kind);
    if (st != AX_OK)
        return ax_error_prefix(st, "base_model (%s)",
                               ax_config_where(s->cfg, where, sizeof where, "base_model"));
    return ax_classifier_fields(&s->arch, s->config_edits);
}

static const char *separator_of(const struct ax_config *cfg, size_t i) {
    const char *text = ax_config_str(cfg, "datasets.%zu.step_separator", i);
    return text ? text : AX_STEP_SEPARATOR;
}

enum ax_status ax_train_steps_file(const struct ax_config *cfg, char **out) {
    const size_t n = ax_config_count(cfg, "datasets");
    size_t len;
    *out = NULL;
    if (ax_method_of(cfg)->head != &ax_classifier_prm || n == 0)
        return AX_OK;
    for (size_t i = 1; i < n; i++)
        if (strcmp(separator_of(cfg, 0), separator_of(cfg, i)) != 0)
            return ax_config_error(cfg, "datasets",
                                   "step_separator differs between data sets, but scoring can use "
                                   "only one: give all the same");
    json_t *v = json_pack("{ss}", "step_separator", separator_of(cfg, 0));
    if (!v)
        return ax_error(AX_ERR_NOMEM, "out of memory for %s", AX_STEPS_FILE);
    const enum ax_status st = ax_json_dump(v, out, &len);
    json_decref(v);
    return st;
}
