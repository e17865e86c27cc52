/* Loads a configuration: the steps in order, the defaults, and a command's requirements. */
#include "cmd/config/config.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "cmd/config/build.h"
#include "cmd/config/rules.h"

#define MAX_BYTES ((size_t)4 << 20)

/* ---- the command line ---- */

/* A key that takes only strings gets the text as it is, so that "You are: x" needs no second
 * pair of quotes. */
static enum ax_status value_text(const char *path, const char *text, struct ax_buf *out) {
    const struct ax_config_key *key = ax_config_find(path);
    bool bare = strcmp(text, "null") != 0 && strcmp(text, "~") != 0 && text[0] != '\0' &&
                text[0] != '"' && text[0] != '\'';
    if (key != NULL && (key->types & ~(unsigned)AX_T_HOME) == AX_T_STR && bare)
        return ax_config_put_json(out, text);
    return ax_buf_puts(out, text);
}

static enum ax_status override_one(struct ax_config *cfg, const char *path, const char *text) {
    struct ax_buf value = {0};
    enum ax_status st = value_text(path, text, &value);
    if (st == AX_OK)
        st = ax_yaml_set(&cfg->doc, path, value.data != NULL ? value.data : "null");
    ax_buf_free(&value);
    return st;
}

/* True if the word after --key is an override too, rather than its value. */
static bool is_override(const char *word) {
    char path[AX_CONFIG_PATH];
    const size_t len = strcspn(word, "=");
    if (strncmp(word, "--", 2) == 0)
        return true;
    if (word[len] == '\0' || len >= sizeof path)
        return false;
    memcpy(path, word, len);
    path[len] = '\0';
    return ax_config_knows(path);
}

static enum ax_status apply_overrides(struct ax_config *cfg, int n, char **overrides) {
    const enum ax_yaml_kind kind = cfg->doc.root->kind;
    if (kind != AX_YAML_MAP && kind != AX_YAML_NULL) /* ax_config_check says what it is */
        return AX_OK;
    for (int i = 0; i < n; i++) {
        const char *arg = overrides[i];
        bool dashes = strncmp(arg, "--", 2) == 0;
        const char *name = arg + (dashes ? 2 : 0);
        const char *equals = strchr(name, '=');
        size_t len = equals != NULL ? (size_t)(equals - name) : strlen(name);
        if (len == 0 || len >= AX_CONFIG_PATH || (equals == NULL && !dashes))
            return ax_error(AX_ERR_CONFIG, "%s: expected key=value or --key value", arg);
        char path[AX_CONFIG_PATH];
        memcpy(path, name, len);
        path[len] = '\0';
        for (char *c = path; dashes && *c != '\0'; c++)
            *c = *c == '-' ? '_' : *c;
        bool bare = equals == NULL && (i + 1 == n || is_override(overrides[i + 1]));
        if (bare && !ax_config_ignores(path))
            return ax_error(AX_ERR_CONFIG, "%s: expected a value, as in %s true", arg, arg);
        const char *text = bare ? "true" : equals != NULL ? equals + 1 : overrides[++i];
        AX_TRY(override_one(cfg, path, text));
    }
    return AX_OK;
}

/* ---- derived values ---- */

/* Sets path to YAML text, as if it was in the file; `from` is the condition it is derived from. */
static enum ax_status put_value(struct ax_config *cfg, const char *path, const char *from,
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
        st = put_value(cfg, path, from, text.data);
    ax_buf_free(&text);
    return st;
}

static enum ax_status put_derived(struct ax_config *cfg, const struct ax_config_derived *d) {
    if (d->value[0] != '=')
        return put_value(cfg, d->path, d->when, d->value);
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
    return put_value(cfg, "gradient_accumulation_steps", "batch_size", text);
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

static enum ax_status derive_values(struct ax_config_build *b) {
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

/* ---- loading ---- */

/* Writes the table's defaults as one document, so that they are read like values in a file. */
static enum ax_status put_defaults(struct ax_buf *text) {
    for (size_t s = 0; s < ax_config_n_sections; s++) {
        for (size_t i = 0; ax_config_sections[s].keys[i].path != NULL; i++) {
            const struct ax_config_key *key = &ax_config_sections[s].keys[i];
            if (key->dflt != NULL)
                AX_TRY(ax_buf_printf(text, "\"%s\": %s\n", key->path, key->dflt));
        }
    }
    return AX_OK;
}

static enum ax_status make_defaults(struct ax_config *cfg) {
    struct ax_buf text = {0};
    enum ax_status st = put_defaults(&text);
    if (st == AX_OK)
        st = ax_yaml_parse(&cfg->defaults, "defaults", text.data, text.len);
    ax_buf_free(&text);
    AX_TRY(st);
    for (size_t i = 0; i < cfg->defaults.root->n; i++) {
        const struct ax_yaml_entry *e = &cfg->defaults.root->entries[i];
        const struct ax_config_key *key = ax_config_find(e->key);
        AX_ASSERT(key != NULL && ax_config_coerce(key, key->types, e->value));
    }
    return AX_OK;
}

static enum ax_status finish(struct ax_config *cfg, int n, char **overrides) {
    struct ax_config_build b = {.cfg = cfg};
    enum ax_status st;
    cfg->overridden = n > 0;
    AX_TRY_GOTO(make_defaults(cfg), st, done);
    AX_TRY_GOTO(apply_overrides(cfg, n, overrides), st, done);
    AX_TRY_GOTO(ax_config_rename(&b), st, done);
    AX_TRY_GOTO(ax_config_check(&b), st, done);
    AX_TRY_GOTO(ax_config_check_rules(&b), st, done);
    AX_TRY_GOTO(ax_config_problems_error(&b), st, done);
    AX_TRY_GOTO(derive_values(&b), st, done);
    AX_TRY_GOTO(ax_config_find_notes(cfg), st, done);
done:
    ax_config_problems_free(&b);
    if (st != AX_OK)
        ax_config_free(cfg);
    return st;
}

enum ax_status ax_config_load(struct ax_config *cfg, const char *path, int n, char **overrides) {
    *cfg = (struct ax_config){0};
    if (!ax_path_exists(path))
        return ax_error(AX_ERR_CONFIG, "%s: no such file; give the path of a config", path);
    if (ax_path_is_dir(path))
        return ax_error(AX_ERR_CONFIG, "%s: this is a folder; give the path of a config file",
                        path);
    const enum ax_status st = ax_yaml_load(&cfg->doc, path, MAX_BYTES);
    if (st == AX_ERR_DATA) /* the file is too large for a config */
        return ax_error(AX_ERR_CONFIG, "%s", ax_error_text());
    AX_TRY(st);
    return finish(cfg, n, overrides);
}

enum ax_status ax_config_parse(struct ax_config *cfg, const char *name, const char *text,
                               size_t len, int n, char **overrides) {
    *cfg = (struct ax_config){0};
    AX_TRY(ax_yaml_parse(&cfg->doc, name, text, len));
    return finish(cfg, n, overrides);
}

void ax_config_free(struct ax_config *cfg) {
    for (size_t i = 0; i < cfg->n_notes; i++) {
        ax_free(cfg->notes[i].path);
        ax_free(cfg->notes[i].text);
        ax_free(cfg->notes[i].where);
    }
    for (size_t i = 0; i < cfg->n_follows; i++) {
        ax_free(cfg->follows[i].path);
        ax_free(cfg->follows[i].from);
    }
    ax_free(cfg->notes);
    ax_free(cfg->follows);
    ax_yaml_free(&cfg->doc);
    ax_yaml_free(&cfg->defaults);
    *cfg = (struct ax_config){0};
}

/* A key that every run needs, unless `unless` is set. */
struct required {
    const char *path, *unless;
    bool text_side;
    const char *example;
};
static const struct required required[] = {
    {"base_model", NULL, true, "base_model: ./my-model"},
    {"datasets", "pretraining_dataset", true,
     "datasets: [{path: data.jsonl, type: chat_template}]"},
    {"learning_rate", NULL, false, "learning_rate: 2e-5"},
};

static enum ax_status missing(const struct ax_config *cfg, bool text_only, struct ax_buf *out) {
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        const struct required *r = &required[i];
        bool there =
            ax_config_holds(cfg, r->path) || (r->unless && ax_config_holds(cfg, r->unless));
        if (!there && (r->text_side || !text_only))
            AX_TRY(ax_buf_printf(out, "\n  %s is %s, e.g. %s", r->path,
                                 ax_config_is_set(cfg, "%s", r->path) ? "empty or 0" : "missing",
                                 r->example));
    }
    static const char *const lists[] = {"datasets", "test_datasets", "pretraining_dataset"};
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        for (size_t i = 0; i < ax_config_count(cfg, "%s", lists[l]); i++) {
            const char *type = ax_config_node(cfg, "%s.%zu.type", lists[l], i) != NULL
                                   ? ax_config_node(cfg, "%s.%zu.type", lists[l], i)->text
                                   : NULL;
            if (!ax_config_has(cfg, "%s.%zu.path", lists[l], i) &&
                (type == NULL || strcmp(type, "_synthetic") != 0)) {
                AX_TRY(ax_buf_printf(out, "\n  %s.%zu.path is missing", lists[l], i));
            }
        }
    }
    return AX_OK;
}

/* With any of these keys, the run would have a different objective. */
static bool is_another_objective(const struct ax_config *cfg) {
    static const char *const keys[] = {"rl", "reward_model", "process_reward_model", "qat"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (ax_config_truthy(ax_config_lookup(cfg, keys[i])))
            return true;
    return false;
}

enum ax_status ax_config_require(const struct ax_config *cfg, enum ax_config_use use) {
    bool text_only = use == AX_CONFIG_FOR_TEXT;
    struct ax_buf lines = {0};
    enum ax_status st = missing(cfg, text_only, &lines);
    if (st == AX_OK && lines.len > 0)
        st = ax_error(AX_ERR_CONFIG, "%s: keys are missing%s", cfg->doc.name, lines.data);
    if (st == AX_OK)
        st = ax_config_put_not_yet(cfg, text_only, "\n  ", "", &lines);
    if (st == AX_OK && lines.len > 0) {
        st = ax_error(AX_ERR_UNSUPPORTED, "%s: not supported in this version%s%s", cfg->doc.name,
                      is_another_objective(cfg) ? ":"
                                                : "; set these keys to null to run without them",
                      lines.data);
    }
    ax_buf_free(&lines);
    return st;
}

void ax_config_log_notes(const struct ax_config *cfg) {
    struct ax_buf names = {0};
    size_t n = 0;
    if (ax_config_put_noted(cfg, AX_NOTE_NO_EFFECT, &names, &n) != AX_OK)
        ax_error_clear();
    else if (n > 1)
        ax_log_info("%zu keys have no effect here: %s (explained by axtrain config show --all %s)",
                    n, names.data, cfg->doc.name);
    ax_buf_free(&names);
    for (size_t i = 0; i < cfg->n_notes; i++) {
        const struct ax_config_note *note = &cfg->notes[i];
        const bool no_effect = note->kind == AX_NOTE_NO_EFFECT;
        if (note->kind == AX_NOTE_NOT_YET || (no_effect && n > 1))
            continue;
        ax_log(no_effect ? AX_LOG_INFO : AX_LOG_WARN, "%s: %s%s (%s)", note->path,
               no_effect ? "no effect here: " : "", note->text, note->where);
    }
}
