/* Overrides: sets a key path in a tree to a YAML value. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/yaml_tree.h"

struct target {
    const char *path;           /* the full path, for messages */
    const char *at;             /* start of the current part */
    size_t len;                 /* of the current part */
    struct ax_yaml_node *value; /* NULL = remove */
    bool is_null;               /* no value, or null */
};

/* The current part as a list index; false if it is a word. */
static bool part_index(const struct target *t, size_t *index) {
    if (t->len == 0 || t->len > 9 || strspn(t->at, "0123456789") < t->len)
        return false;
    *index = (size_t)strtoul(t->at, NULL, 10);
    return true;
}

/* Length of the path up to the part before the current one, for "datasets.0 is a string". */
static int parent_len(const struct target *t) {
    return t->at == t->path ? 0 : (int)(t->at - t->path - 1);
}

static enum ax_status append_null(struct ax_yaml_node *node, const char *key, size_t len) {
    struct ax_yaml_budget one = {.nodes = 1};
    struct ax_yaml_entry entry = {0};
    enum ax_status st;
    if (key != NULL)
        AX_TRY_GOTO(ax_strndup(&entry.key, key, len), st, fail);
    AX_TRY_GOTO(ax_yaml_node_new(&entry.value, AX_YAML_NULL, &one), st, fail);
    AX_TRY_GOTO(ax_strdup(&entry.value->text, ""), st, fail);
    AX_TRY_GOTO(ax_yaml_append(node, entry), st, fail);
    return AX_OK;
fail:
    ax_free(entry.key);
    ax_yaml_node_free(entry.value);
    return st;
}

/* Finds the entry of the current part; *found = n if it is missing and may be appended. */
static enum ax_status find_entry(const struct target *t, const struct ax_yaml_node *node,
                                 size_t *found) {
    size_t i = 0;
    if (node->kind == AX_YAML_MAP) {
        while (i < node->n && (strlen(node->entries[i].key) != t->len ||
                               memcmp(node->entries[i].key, t->at, t->len) != 0)) {
            i++;
        }
    } else if (node->kind == AX_YAML_LIST) {
        if (!part_index(t, &i) || i > node->n) {
            return ax_error(AX_ERR_CONFIG,
                            "%s: %.*s is a list of %zu; after it, use the index of an entry, from "
                            "0, or %zu to append one",
                            t->path, parent_len(t), t->path, node->n, node->n);
        }
    } else {
        return ax_error(AX_ERR_CONFIG, "%s: %.*s is %s, so it has nothing to set", t->path,
                        parent_len(t), t->path, ax_yaml_kind_name(node->kind));
    }
    *found = i;
    return AX_OK;
}

static void remove_entry(struct ax_yaml_node *node, size_t i) {
    ax_free(node->entries[i].key);
    ax_yaml_node_free(node->entries[i].value);
    node->n--;
    memmove(&node->entries[i], &node->entries[i + 1], (node->n - i) * sizeof node->entries[0]);
}

/* A key without a value becomes what the path needs: a list for index 0, else a map. */
static void become_collection(const struct target *t, struct ax_yaml_node *node) {
    size_t index;
    bool list = t->at != t->path && part_index(t, &index) && index == 0;
    node->kind = list ? AX_YAML_LIST : AX_YAML_MAP;
    ax_free(node->text);
    node->text = NULL;
}

/* Takes t->value once it is in the tree. */
static enum ax_status set_parts(struct target *t, struct ax_yaml_node *node) {
    for (;;) {
        t->len = strcspn(t->at, ".");
        bool last = t->at[t->len] == '\0';
        if (node->kind == AX_YAML_NULL) {
            if (t->is_null)
                return AX_OK;
            become_collection(t, node);
        }
        size_t i = 0;
        AX_TRY(find_entry(t, node, &i));
        if (t->is_null && !last && i == node->n)
            return AX_OK;
        if (last && (t->value == NULL || (t->is_null && node->kind == AX_YAML_LIST))) {
            if (i < node->n)
                remove_entry(node, i);
            return AX_OK;
        }
        if (i == node->n)
            AX_TRY(append_null(node, node->kind == AX_YAML_MAP ? t->at : NULL, t->len));
        if (last) {
            ax_yaml_node_free(node->entries[i].value);
            node->entries[i].value = t->value;
            node->entries[i].line = node->entries[i].column = 0;
            t->value = NULL;
            return AX_OK;
        }
        node = node->entries[i].value;
        t->at += t->len + 1;
    }
}

static bool is_key_path(const char *path) {
    size_t n = strlen(path);
    return n > 0 && path[0] != '.' && path[n - 1] != '.' && strstr(path, "..") == NULL;
}

static enum ax_status check_path(const char *path) {
    if (is_key_path(path))
        return AX_OK;
    return ax_error(AX_ERR_CONFIG, "\"%s\": expected a key path such as datasets.0.path", path);
}

enum ax_status ax_yaml_set(struct ax_yaml_doc *doc, const char *path, const char *text) {
    struct target t = {.path = path, .at = path};
    AX_TRY(check_path(path));
    enum ax_status st = ax_yaml_parse_value(&t.value, text);
    if (st != AX_OK)
        return ax_error_prefix(st, "%s=%s", path, text);
    t.is_null = t.value->kind == AX_YAML_NULL;
    st = set_parts(&t, doc->root);
    ax_yaml_node_free(t.value);
    return st;
}

enum ax_status ax_yaml_unset(struct ax_yaml_doc *doc, const char *path) {
    struct target t = {.path = path, .at = path, .is_null = true};
    AX_TRY(check_path(path));
    return set_parts(&t, doc->root);
}
