/* Checks that every key is known and every value has its kind. Converts values to the kind of their
 * key ("1e-5" in quotes to a number, yes to true), so that readers need no further checks. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/io.h"
#include "cmd/config/build.h"

/* ---- messages ---- */

/* Quotes the user's text for a message; long text is truncated. */
static void quote(const char *text, char *buf, size_t size) {
    const size_t most = 60;
    size_t n = 0;
    buf[n++] = '"';
    for (; *text != '\0' && n + 8 < size; text++) {
        bool begins = ((unsigned char)*text & 0xC0) != 0x80; /* start of a UTF-8 character */
        if (n > most && begins) {
            memcpy(buf + n, "…", strlen("…"));
            n += strlen("…");
            break;
        }
        buf[n++] = *text;
    }
    buf[n++] = '"';
    buf[n] = '\0';
}

static void describe(const struct ax_yaml_node *node, char *buf, size_t size) {
    if (node->text == NULL)
        snprintf(buf, size, "%s", ax_yaml_kind_name(node->kind));
    else
        quote(node->text, buf, size);
}

enum ax_status ax_config_type_problem(struct ax_config_build *b, const struct ax_config_key *key,
                                      unsigned types, const char *path,
                                      const struct ax_yaml_node *node) {
    struct ax_buf want = {0};
    char got[128];
    char tail[256] = "";
    describe(node, got, sizeof got);
    const bool one = (types & AX_T_LIST) && node->text != NULL && key->choices != NULL &&
                     ax_config_choice(key->choices, node->text);
    if (node->kind == AX_YAML_STRING && key->choices != NULL && !one)
        ax_config_suggest_choice(key, node->text, tail, sizeof tail);
    else if (node->kind == AX_YAML_MAP && (types & AX_T_LIST))
        snprintf(tail, sizeof tail, "; start each entry with \"- \"");
    else if (node->text != NULL && ax_config_elements(key) == AX_T_MAP)
        snprintf(tail, sizeof tail, "; for a list of one, write [{path: %s}]", got);
    else if (node->text != NULL && (types & AX_T_LIST))
        snprintf(tail, sizeof tail, "; for a list of one, write [%s]", got);
    enum ax_status st = ax_config_expected(key, types, &want);
    if (st == AX_OK) {
        st = ax_config_problem(b, node->line, node->column, tail, "%s: expected %s, got %s", path,
                               want.data, got);
    }
    ax_buf_free(&want);
    return st;
}

/* "unknown key "x" in datasets.0 (…); did you mean y?" */
static enum ax_status unknown_key(struct ax_config_build *b, const char *parent,
                                  const struct ax_yaml_entry *entry) {
    char pattern[AX_CONFIG_PATH];
    char tail[2 * AX_CONFIG_PATH];
    if (!ax_config_pattern(parent, pattern, sizeof pattern))
        pattern[0] = '\0';
    if (parent[0] == '\0' && strchr(entry->key, '.') != NULL && ax_config_find(entry->key)) {
        snprintf(tail, sizeof tail, "; in a file, write it as a map: %.*s: {…}",
                 (int)strcspn(entry->key, "."), entry->key); /* a known key */
    } else {
        ax_config_suggest_key(pattern, entry->key, tail, sizeof tail);
    }
    char key[128];
    quote(entry->key, key, sizeof key);
    return ax_config_problem(b, entry->line, entry->column, tail, "unknown key %s%s%s", key,
                             parent[0] != '\0' ? " in " : "", parent);
}

/* ---- the walk ---- */

static enum ax_status check_value(struct ax_config_build *b, const struct ax_config_key *key,
                                  const char *path, struct ax_yaml_node *node);

static const struct ax_config_ignored *find_ignored(const char *path) {
    char pattern[AX_CONFIG_PATH];
    for (size_t i = 0; i < ax_config_n_ignored; i++) {
        if (ax_config_pattern(path, pattern, sizeof pattern) &&
            strcmp(ax_config_ignored[i].path, pattern) == 0) {
            return &ax_config_ignored[i];
        }
    }
    return NULL;
}

static enum ax_status note_ignored(struct ax_config_build *b, const struct ax_config_ignored *dead,
                                   const char *path, const struct ax_yaml_entry *entry) {
    char text[AX_CONFIG_PATH];
    snprintf(text, sizeof text, "this key is ignored%s%s", dead->instead != NULL ? "; see " : "",
             dead->instead != NULL ? dead->instead : "");
    return entry->value->kind == AX_YAML_NULL
               ? AX_OK
               : ax_config_add_note(b->cfg, AX_NOTE_IGNORED, true, path, text, entry->line,
                                    entry->column);
}

static bool join(char *buf, size_t size, const char *parent, const char *name) {
    int n = snprintf(buf, size, "%s%s%s", parent, parent[0] != '\0' ? "." : "", name);
    return (size_t)n < size;
}

bool ax_config_ignores(const char *path) {
    return find_ignored(path) != NULL;
}

bool ax_config_knows(const char *path) {
    for (size_t i = 0; i < ax_config_n_renamed; i++)
        if (strcmp(ax_config_renamed[i].path, path) == 0)
            return true;
    return ax_config_find(path) != NULL || ax_config_ignores(path);
}

/* Checks a map whose keys are in the table. */
static enum ax_status check_map(struct ax_config_build *b, const char *parent,
                                const struct ax_yaml_node *map) {
    for (size_t i = 0; i < map->n; i++) {
        struct ax_yaml_entry *entry = &map->entries[i];
        char path[AX_CONFIG_PATH];
        bool fits = strchr(entry->key, '.') == NULL && entry->key[0] != '\0' &&
                    join(path, sizeof path, parent, entry->key);
        const struct ax_config_key *key = fits ? ax_config_find(path) : NULL;
        const struct ax_config_ignored *dead = fits && key == NULL ? find_ignored(path) : NULL;
        if (dead != NULL) {
            AX_TRY(note_ignored(b, dead, path, entry));
        } else if (key == NULL) {
            AX_TRY(unknown_key(b, parent, entry));
        } else if (key->support == AX_SUPPORT_REFUSED) {
            AX_TRY(ax_config_truthy(entry->value)
                       ? ax_config_problem(b, entry->line, entry->column, "",
                                           "%s is not accepted: %s", path, key->note)
                       : AX_OK);
        } else {
            AX_TRY(check_value(b, key, path, entry->value));
        }
    }
    return AX_OK;
}

/* The path of an element; that of the list or map itself if it is too long. */
static void name_element(char sub[AX_CONFIG_PATH], const char *path,
                         const struct ax_yaml_node *node, size_t i) {
    char index[24];
    snprintf(index, sizeof index, "%zu", i);
    if (!join(sub, AX_CONFIG_PATH, path, node->kind == AX_YAML_MAP ? node->entries[i].key : index))
        snprintf(sub, AX_CONFIG_PATH, "%s", path);
}

/* Checks a value that is passed through as JSON, which has no infinity. */
static enum ax_status check_any(struct ax_config_build *b, const char *path,
                                const struct ax_yaml_node *node) {
    char got[128], sub[AX_CONFIG_PATH];
    for (size_t i = 0; i < node->n; i++) {
        name_element(sub, path, node, i);
        AX_TRY(check_any(b, sub, node->entries[i].value));
    }
    if (node->kind != AX_YAML_FLOAT || isfinite(node->number))
        return AX_OK;
    describe(node, got, sizeof got);
    return ax_config_problem(b, node->line, node->column, "",
                             "%s: expected a finite number, got %s", path, got);
}

/* Where every name of a map has the same kind of value, a null one counts as unset. */
static void remove_nulls(struct ax_yaml_node *map) {
    size_t n = 0;
    for (size_t i = 0; i < map->n; i++) {
        struct ax_yaml_entry *e = &map->entries[i];
        if (e->value->kind != AX_YAML_NULL) {
            map->entries[n++] = *e;
            continue;
        }
        ax_yaml_free(&(struct ax_yaml_doc){.root = e->value});
        ax_free(e->key);
    }
    map->n = n;
}

/* Checks the elements of a list, or the values of a map with user-defined names. */
static enum ax_status check_elements(struct ax_config_build *b, const struct ax_config_key *key,
                                     const char *path, struct ax_yaml_node *node) {
    bool rows = ax_config_elements(key) == AX_T_MAP;
    if (ax_config_elements(key) & AX_T_ANY)
        return check_any(b, path, node);
    if (node->kind == AX_YAML_MAP)
        remove_nulls(node);
    for (size_t i = 0; i < node->n; i++) {
        struct ax_yaml_node *value = node->entries[i].value;
        char sub[AX_CONFIG_PATH];
        name_element(sub, path, node, i);
        if (!ax_config_coerce(key, ax_config_elements(key), value) ||
            ((value->kind == AX_YAML_INT || value->kind == AX_YAML_FLOAT) &&
             !ax_config_in_range(ax_config_range_of(key), value->number))) {
            AX_TRY(ax_config_type_problem(b, key, ax_config_elements(key), sub, value));
        } else if (rows) {
            AX_TRY(check_map(b, sub, value));
        }
    }
    return AX_OK;
}

/* True if the keys inside this map are in the table. */
static bool has_rows(const char *path) {
    char pattern[AX_CONFIG_PATH];
    return ax_config_pattern(path, pattern, sizeof pattern) && ax_config_has_children(pattern);
}

static enum ax_status check_refused_value(struct ax_config_build *b,
                                          const struct ax_config_key *key, const char *path,
                                          const struct ax_yaml_node *node, bool *refused) {
    const char *text = ax_config_scalar_text(node);
    struct ax_config_value v;
    if (text == NULL || !ax_config_find_value(key, text, &v) || v.support != AX_SUPPORT_REFUSED)
        return AX_OK;
    *refused = true;
    char got[128];
    quote(text, got, sizeof got);
    return ax_config_problem(b, node->line, node->column, "", "%s: %s is not accepted: %s", path,
                             got, v.note);
}

static enum ax_status expand_home(struct ax_yaml_node *node) {
    char *full;
    AX_TRY(ax_path_expand(&full, node->text));
    ax_free(node->text);
    node->text = full;
    return AX_OK;
}

static bool begins_name(const char *text) {
    return isalpha((unsigned char)*text) || *text == '_';
}

/* "$HOME/x", "${HOME}/x" or, as OmegaConf has it, "${oc.env:HOME}/x"; not "${{ x }}" of a template. */
static bool names_variable(const char *text) {
    const char *open = strstr(text, "${");
    return (*text == '$' && begins_name(text + 1)) ||
           (open && begins_name(open + 2) && strchr(open, '}'));
}

/* A path: with the home folder, and no variables, of which a folder of that name would be made. */
static enum ax_status check_path(struct ax_config_build *b, const char *path,
                                 struct ax_yaml_node *node) {
    char got[128];
    if (!names_variable(node->text) || ax_path_exists(node->text))
        return expand_home(node);
    quote(node->text, got, sizeof got);
    return ax_config_problem(b, node->line, node->column, "",
                             "%s: %s: variables of the environment are not replaced here; write "
                             "the path, or give %s=… on the command line, where the shell does",
                             path, got, path);
}

static enum ax_status check_value(struct ax_config_build *b, const struct ax_config_key *key,
                                  const char *path, struct ax_yaml_node *node) {
    if (node->kind == AX_YAML_NULL)
        return AX_OK;
    if (key->types & AX_T_ANY)
        return check_any(b, path, node);
    bool refused = false;
    if (node->kind != AX_YAML_BOOL) /* first: rejected words are not choices */
        AX_TRY(check_refused_value(b, key, path, node, &refused));
    if (refused)
        return AX_OK;
    if (!ax_config_coerce(key, key->types, node) ||
        ((node->kind == AX_YAML_INT || node->kind == AX_YAML_FLOAT) &&
         !ax_config_in_range(ax_config_range_of(key), node->number))) {
        return ax_config_type_problem(b, key, key->types, path, node);
    }
    if ((key->types & AX_T_HOME) && node->kind == AX_YAML_STRING)
        AX_TRY(check_path(b, path, node));
    if (node->kind == AX_YAML_BOOL) /* again, for `0` and "no", which have become flags */
        AX_TRY(check_refused_value(b, key, path, node, &refused));
    if (node->kind == AX_YAML_MAP && has_rows(path))
        return check_map(b, path, node);
    return check_elements(b, key, path, node); /* a scalar has no elements */
}

/* Configs of axolotl's cloud launcher look like ours but do not describe training. */
static bool is_launcher_file(const struct ax_yaml_node *root) {
    static const char *const keys[] = {"provider",  "volumes", "secrets", "gpu",
                                       "gpu_count", "memory",  "timeout", "branch"};
    size_t found = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        found += ax_yaml_get(root, keys[i]) != NULL;
    return found >= 3 && ax_yaml_get(root, "base_model") == NULL;
}

enum ax_status ax_config_check(struct ax_config_build *b) {
    const struct ax_yaml_doc *doc = &b->cfg->doc;
    if (doc->root->kind != AX_YAML_MAP) {
        return ax_error(AX_ERR_CONFIG, "%s: expected a map of keys, got %s", doc->name,
                        doc->root->kind == AX_YAML_NULL ? "nothing"
                                                        : ax_yaml_kind_name(doc->root->kind));
    }
    if (is_launcher_file(doc->root)) {
        return ax_error(AX_ERR_CONFIG,
                        "%s: this describes a cloud launch (gpu, volumes, secrets), not a "
                        "training run. Pass the training config instead.",
                        doc->name);
    }
    return check_map(b, "", doc->root);
}
