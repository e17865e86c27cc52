/* Nodes of a YAML tree: create, copy, free, look up, name. */
#include "base/text/yaml_tree.h"

#include <stdio.h>
#include <string.h>

#include "base/fit.h"
#include "base/mem.h"

enum ax_status ax_yaml_node_new(struct ax_yaml_node **out, enum ax_yaml_kind kind,
                                struct ax_yaml_budget *budget) {
    if (budget->nodes == 0) {
        return ax_error(AX_ERR_CONFIG,
                        "more than %d values, counting those repeated by aliases (*name)",
                        AX_YAML_NODES_MAX);
    }
    struct ax_yaml_node *node;
    AX_TRY(ax_alloc(&node, 1, sizeof *node));
    budget->nodes--;
    node->kind = kind;
    *out = node;
    return AX_OK;
}

void ax_yaml_node_clear(struct ax_yaml_node *node) {
    for (size_t i = 0; i < node->n; i++) {
        ax_free(node->entries[i].key);
        ax_yaml_node_free(node->entries[i].value);
    }
    ax_free(node->entries);
    ax_free(node->text);
    *node = (struct ax_yaml_node){0};
}

void ax_yaml_node_free(struct ax_yaml_node *node) {
    if (node != NULL) {
        ax_yaml_node_clear(node);
        ax_free(node);
    }
}

enum ax_status ax_yaml_append(struct ax_yaml_node *node, struct ax_yaml_entry entry) {
    /* Full at 0 and at the powers of two, so no capacity needs to be kept. */
    size_t n = node->n;
    if ((n & (n - 1)) == 0)
        AX_TRY(ax_regrow(&node->entries, n, n > 0 ? 2 * n : 1, sizeof *node->entries));
    node->entries[node->n++] = entry;
    return AX_OK;
}

static enum ax_status copy_text(char **out, const char *text, struct ax_yaml_budget *budget) {
    size_t bytes = strlen(text) + 1;
    if (bytes > budget->copied_bytes) {
        return ax_error(AX_ERR_CONFIG, "aliases (*name) repeat more than %zu bytes of text",
                        AX_YAML_COPY_MAX);
    }
    budget->copied_bytes -= bytes;
    return ax_strdup(out, text);
}

static enum ax_status copy_entry(struct ax_yaml_node *to, const struct ax_yaml_entry *src,
                                 struct ax_yaml_budget *budget) {
    struct ax_yaml_entry copy = {.line = src->line, .column = src->column};
    enum ax_status st;
    if (src->key != NULL)
        AX_TRY_GOTO(copy_text(&copy.key, src->key, budget), st, fail);
    AX_TRY_GOTO(ax_yaml_node_copy(&copy.value, src->value, budget), st, fail);
    AX_TRY_GOTO(ax_yaml_append(to, copy), st, fail);
    return AX_OK;
fail:
    ax_free(copy.key);
    ax_yaml_node_free(copy.value);
    return st;
}

enum ax_status ax_yaml_node_copy(struct ax_yaml_node **out, const struct ax_yaml_node *src,
                                 struct ax_yaml_budget *budget) {
    struct ax_yaml_node *node = NULL;
    enum ax_status st;
    AX_TRY(ax_yaml_node_new(&node, src->kind, budget));
    node->line = src->line;
    node->column = src->column;
    node->quoted = src->quoted;
    node->boolean = src->boolean;
    node->integer = src->integer;
    node->number = src->number;
    if (src->text != NULL)
        AX_TRY_GOTO(copy_text(&node->text, src->text, budget), st, fail);
    for (size_t i = 0; i < src->n; i++)
        AX_TRY_GOTO(copy_entry(node, &src->entries[i], budget), st, fail);
    *out = node;
    return AX_OK;
fail:
    ax_yaml_node_free(node);
    return st;
}

void ax_yaml_free(struct ax_yaml_doc *doc) {
    ax_yaml_node_free(doc->root);
    ax_free(doc->name);
    *doc = (struct ax_yaml_doc){0};
}

struct ax_yaml_node *ax_yaml_get(const struct ax_yaml_node *map, const char *key) {
    if (map == NULL || map->kind != AX_YAML_MAP)
        return NULL;
    for (size_t i = 0; i < map->n; i++)
        if (strcmp(map->entries[i].key, key) == 0)
            return map->entries[i].value;
    return NULL;
}

const char *ax_yaml_kind_name(enum ax_yaml_kind kind) {
    static const char *const names[] = {
        [AX_YAML_NULL] = "null",       [AX_YAML_BOOL] = "true or false",
        [AX_YAML_INT] = "an integer",  [AX_YAML_FLOAT] = "a number",
        [AX_YAML_STRING] = "a string", [AX_YAML_LIST] = "a list",
        [AX_YAML_MAP] = "a map",
    };
    return names[kind];
}
