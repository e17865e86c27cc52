/* Replaces renamed keys: rewrites the document, keeps each value's location in the file, and adds a
 * note. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/text/yaml_tree.h"
#include "cmd/config/build.h"

/* A renamed key found in the document: concrete paths of it and of the current key. */
struct found {
    const struct ax_config_renamed *old;
    bool last; /* no later row has the same path */
    char path[AX_CONFIG_PATH], now[AX_CONFIG_PATH];
};

static struct ax_yaml_entry *find_entry(const struct ax_config *cfg, const char *path) {
    char parent[AX_CONFIG_PATH];
    snprintf(parent, sizeof parent, "%s", path);
    char *dot = strrchr(parent, '.');
    struct ax_yaml_node *map = cfg->doc.root;
    if (dot != NULL) {
        *dot = '\0';
        map = ax_config_lookup(cfg, parent);
    }
    for (size_t i = 0; map != NULL && map->kind == AX_YAML_MAP && i < map->n; i++)
        if (strcmp(map->entries[i].key, ax_config_last_part(path)) == 0)
            return &map->entries[i];
    return NULL;
}

static bool same_map(const char *a, const char *b) {
    size_t na = (size_t)(ax_config_last_part(a) - a);
    return na == (size_t)(ax_config_last_part(b) - b) && strncmp(a, b, na) == 0;
}

static bool value_matches(const struct ax_config_renamed *old, const struct ax_yaml_node *node) {
    if (old->from == NULL)
        return true;
    if (strcmp(old->from, "{}") == 0)
        return node->kind == AX_YAML_MAP;
    if (node->kind == AX_YAML_BOOL)
        return strcmp(old->from, node->boolean ? "true" : "false") == 0;
    return node->text != NULL && fnmatch(old->from, node->text, 0) == 0;
}

/* Sets the current key to `text`, or to a copy of a scalar, with the old key's location in the
 * file. */
static enum ax_status set_at_place(struct ax_config *cfg, const struct found *f, const char *text,
                                   bool as_string) {
    const struct ax_yaml_entry *entry = find_entry(cfg, f->path);
    int key_column = entry->column;
    int line = entry->value->line;
    int column = entry->value->column;
    struct ax_buf value = {0};
    enum ax_status st = as_string ? ax_config_put_json(&value, text) : ax_buf_puts(&value, text);
    if (st == AX_OK)
        st = ax_yaml_set(&cfg->doc, f->now, value.data);
    ax_buf_free(&value);
    struct ax_yaml_entry *made = st == AX_OK ? find_entry(cfg, f->now) : NULL;
    if (made != NULL) {
        made->line = line;
        made->column = key_column;
        made->value->line = line;
        made->value->column = column;
        for (size_t i = 0; i < made->value->n; i++) {
            made->value->entries[i].value->line = line;
            made->value->entries[i].value->column = column;
        }
    }
    return st;
}

static enum ax_status note_old(struct ax_config *cfg, const struct found *f) {
    const struct ax_yaml_entry *entry = find_entry(cfg, f->path);
    char text[2 * AX_CONFIG_PATH];
    snprintf(text, sizeof text, "old spelling of %s%s%s", f->now, f->old->text != NULL ? ": " : "",
             f->old->text != NULL ? f->old->text : "");
    return ax_config_add_note(cfg, AX_NOTE_RENAMED, true, f->path, text, entry->line,
                              entry->column);
}

/* True if an earlier row (another old key) set the current key, rather than the user. */
static bool set_by_old(const struct ax_config *cfg, const char *now) {
    size_t n = strlen("old spelling of ");
    for (size_t i = 0; i < cfg->n_notes; i++) {
        const char *text = cfg->notes[i].text + n;
        size_t len = strcspn(text, ":");
        if (cfg->notes[i].kind == AX_NOTE_RENAMED && len == strlen(now) &&
            strncmp(text, now, len) == 0) {
            return true;
        }
    }
    return false;
}

/* Sets the current key, by renaming the old one if possible. */
static enum ax_status apply(struct ax_config *cfg, const struct found *f) {
    struct ax_yaml_entry *entry = find_entry(cfg, f->path);
    AX_TRY(note_old(cfg, f));
    if (f->old->text != NULL)
        return set_at_place(cfg, f, f->old->text, false);
    if (f->last && same_map(f->path, f->now)) {
        char *key;
        AX_TRY(ax_yaml_unset(&cfg->doc, f->now));
        entry = find_entry(cfg, f->path);
        AX_TRY(ax_strdup(&key, ax_config_last_part(f->now)));
        ax_free(entry->key);
        entry->key = key;
        return AX_OK;
    }
    return set_at_place(cfg, f, entry->value->text, entry->value->kind == AX_YAML_STRING);
}

static enum ax_status rename_one(struct ax_config_build *b, const struct found *f) {
    struct ax_config *cfg = b->cfg;
    struct ax_yaml_entry *entry = find_entry(cfg, f->path);
    if (entry == NULL)
        return AX_OK;
    bool current = ax_config_find(f->path) != NULL; /* only some of the key's values are renamed */
    struct ax_yaml_node *node = entry->value;
    /* a flag, or what the current key takes; renamed entries of open maps are strings */
    const struct ax_config_key plain = {.types = f->old->text != NULL ? AX_T_BOOL : AX_T_STR};
    const struct ax_config_key *key = f->old->text == NULL ? ax_config_find(f->now) : NULL;
    key = key != NULL ? key : &plain;
    if (!current && node->kind != AX_YAML_NULL && !ax_config_coerce(key, key->types, node)) {
        AX_TRY(ax_config_type_problem(b, key, key->types, f->path, node));
    } else if (node->kind != AX_YAML_NULL && value_matches(f->old, node)) {
        const struct ax_yaml_node *target = ax_config_lookup(cfg, f->now);
        bool taken = strcmp(f->path, f->now) != 0 && target != NULL && target->kind != AX_YAML_NULL;
        bool same = taken && target->text != NULL && node->text != NULL &&
                    strcmp(target->text, node->text) == 0;
        if (!taken) {
            AX_TRY(apply(cfg, f));
        } else if (!current && !same && !set_by_old(cfg, f->now)) {
            AX_TRY(ax_config_problem(b, entry->line, entry->column, "",
                                     "%s is the old spelling of %s, which is set too: remove %s",
                                     f->path, f->now, f->path));
        }
    }
    return f->last && !current && find_entry(cfg, f->path) != NULL
               ? ax_yaml_unset(&cfg->doc, f->path)
               : AX_OK;
}

/* Rows for datasets also apply to the entries of the other two lists. */
static enum ax_status rename_entries(struct ax_config_build *b, struct found *f) {
    static const char *const lists[] = {"datasets", "test_datasets", "pretraining_dataset"};
    const char *rest = f->old->path + strlen("datasets[]");
    const char *now = f->old->now + strlen("datasets[]");
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        const struct ax_yaml_node *list = ax_yaml_get(b->cfg->doc.root, lists[l]);
        for (size_t i = 0; list != NULL && list->kind == AX_YAML_LIST && i < list->n; i++) {
            snprintf(f->path, sizeof f->path, "%s.%zu%s", lists[l], i, rest);
            snprintf(f->now, sizeof f->now, "%s.%zu%s", lists[l], i, now);
            AX_TRY(rename_one(b, f));
        }
    }
    return AX_OK;
}

/* pretraining_dataset may be a single entry instead of a list, as in axolotl. */
static enum ax_status wrap_single_entry(struct ax_config *cfg) {
    struct ax_yaml_entry *entry = find_entry(cfg, "pretraining_dataset");
    struct ax_yaml_budget one = {.nodes = 1};
    struct ax_yaml_node *list;
    if (entry == NULL || entry->value->kind != AX_YAML_MAP)
        return AX_OK;
    AX_TRY(ax_yaml_node_new(&list, AX_YAML_LIST, &one));
    list->line = entry->value->line;
    list->column = entry->value->column;
    const enum ax_status st =
        ax_yaml_append(list, (struct ax_yaml_entry){.line = entry->value->line,
                                                    .column = entry->value->column,
                                                    .value = entry->value});
    if (st != AX_OK) {
        ax_yaml_node_free(list);
        return st;
    }
    entry->value = list;
    return AX_OK;
}

enum ax_status ax_config_rename(struct ax_config_build *b) {
    AX_TRY(wrap_single_entry(b->cfg));
    for (size_t i = 0; i < ax_config_n_renamed; i++) {
        const struct ax_config_renamed *old = &ax_config_renamed[i];
        struct found f = {.old = old};
        f.last = i + 1 == ax_config_n_renamed || strcmp(old[1].path, old->path) != 0;
        if (strncmp(old->path, "datasets[]", strlen("datasets[]")) == 0) {
            AX_TRY(rename_entries(b, &f));
        } else {
            snprintf(f.path, sizeof f.path, "%s", old->path);
            snprintf(f.now, sizeof f.now, "%s", old->now);
            AX_TRY(rename_one(b, &f));
        }
    }
    return AX_OK;
}
