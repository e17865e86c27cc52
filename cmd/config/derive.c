/* Derived values: inserted into the document and marked, so that every reader and `config show` see
 * the same numbers. */
#include <stdio.h>
#include <string.h>

#include "cmd/config/build.h"
#include "cmd/config/rules.h"

/* Sets path to YAML text; `from` is the condition it is derived from. */
static enum ax_status put(struct ax_config *cfg, const char *path, const char *from,
                          const char *text) {
    AX_TRY(ax_yaml_set(&cfg->doc, path, text));
    AX_TRY(ax_regrow(&cfg->follows, cfg->n_follows, cfg->n_follows + 1, sizeof *cfg->follows));
    struct ax_config_follow *f = &cfg->follows[cfg->n_follows++]; /* from here on freed with cfg */
    struct ax_buf words = {0};
    AX_TRY(ax_strdup(&f->path, path));
    enum ax_status st = ax_config_condition_text(from, &words);
    if (st == AX_OK)
        st = ax_strdup(&f->from, words.data);
    ax_buf_free(&words);
    return st;
}

static enum ax_status put_copy(struct ax_config *cfg, const char *path, const char *from,
                               const struct ax_yaml_node *node) {
    struct ax_buf text = {0};
    enum ax_status st = ax_config_put_flow(&text, node, false);
    if (st == AX_OK)
        st = put(cfg, path, from, text.data);
    ax_buf_free(&text);
    return st;
}

static enum ax_status put_derived(struct ax_config *cfg, const struct ax_config_derived *d) {
    if (d->value[0] != '=')
        return put(cfg, d->path, d->when, d->value);
    const struct ax_yaml_node *other = ax_config_value_of(cfg, d->value + 1);
    return other != NULL ? put_copy(cfg, d->path, d->value + 1, other) : AX_OK;
}

/* batch_size is the number of sequences per step on one device. */
static enum ax_status put_accumulation(struct ax_config *cfg) {
    const struct ax_yaml_node *batch = ax_config_lookup(cfg, "batch_size");
    const struct ax_yaml_node *micro = ax_config_value_of(cfg, "micro_batch_size");
    if (batch == NULL || batch->kind != AX_YAML_INT || micro == NULL || micro->integer < 1 ||
        ax_config_is_set(cfg, "gradient_accumulation_steps")) {
        return AX_OK;
    }
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)(batch->integer / micro->integer));
    return put(cfg, "gradient_accumulation_steps", "batch_size", text);
}

/* Below 1, warmup_steps is a fraction rather than a count. */
static enum ax_status put_warmup(struct ax_config *cfg) {
    struct ax_yaml_node *steps = ax_config_lookup(cfg, "warmup_steps");
    if (steps == NULL || steps->kind != AX_YAML_FLOAT || steps->number <= 0 || steps->number >= 1 ||
        ax_config_is_set(cfg, "warmup_ratio")) {
        return AX_OK;
    }
    AX_TRY(ax_config_add_note(cfg, AX_NOTE_RENAMED, false, "warmup_steps",
                              "below 1 it is read as warmup_ratio", steps->line, steps->column));
    AX_TRY(put_copy(cfg, "warmup_ratio", "warmup_steps", steps));
    return ax_yaml_unset(&cfg->doc, "warmup_steps");
}

enum ax_status ax_config_derive(struct ax_config_build *b) {
    struct ax_config *cfg = b->cfg;
    AX_TRY(put_accumulation(cfg));
    AX_TRY(put_warmup(cfg));
    for (size_t i = 0; i < ax_config_n_derived; i++) {
        const struct ax_config_derived *d = &ax_config_derived[i];
        if (!ax_config_is_set(cfg, "%s", d->path) && ax_config_holds(cfg, d->when))
            AX_TRY(put_derived(cfg, d));
    }
    return AX_OK;
}
