/* Reads a loaded configuration by key path. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fit.h"
#include "cmd/config/build.h"
#include "cmd/config/rules.h"

/* Follows the parts of a path from root; with list_of_one, ".0" of a scalar is the scalar. */
static struct ax_yaml_node *walk(struct ax_yaml_node *node, const char *path, bool list_of_one) {
    while (node != NULL && *path != '\0') {
        char part[AX_CONFIG_PATH];
        size_t len = strcspn(path, ".");
        if (len >= sizeof part)
            return NULL;
        memcpy(part, path, len);
        part[len] = '\0';
        path += len + (path[len] == '.');
        if (node->kind == AX_YAML_MAP) {
            node = ax_yaml_get(node, part);
        } else if (node->kind == AX_YAML_LIST) {
            size_t i = strtoul(part, NULL, 10);
            bool index = len > 0 && len < 10 && strspn(part, "0123456789") == len;
            node = index && i < node->n ? node->entries[i].value : NULL;
        } else {
            bool only = list_of_one && strcmp(part, "0") == 0 && node->kind != AX_YAML_NULL;
            node = only ? node : NULL;
        }
    }
    return node;
}

struct ax_yaml_node *ax_config_lookup(const struct ax_config *cfg, const char *path) {
    return walk(cfg->doc.root, path, false);
}

struct ax_yaml_node *ax_config_default(const struct ax_config *cfg,
                                       const struct ax_config_key *key) {
    return key->dflt != NULL ? ax_yaml_get(cfg->defaults.root, key->path) : NULL;
}

const struct ax_yaml_node *ax_config_value_of(const struct ax_config *cfg, const char *path) {
    const struct ax_yaml_node *node = walk(cfg->doc.root, path, true);
    if (node != NULL && node->kind != AX_YAML_NULL)
        return node;
    const struct ax_config_key *key = ax_config_find(path);
    if (key != NULL)
        return ax_config_default(cfg, key);
    /* an element of a list that is unset, so of its default */
    char list[AX_CONFIG_PATH];
    snprintf(list, sizeof list, "%s", path);
    char *dot = strrchr(list, '.');
    if (dot == NULL)
        return NULL;
    *dot = '\0';
    key = ax_config_lookup(cfg, list) == NULL ? ax_config_find(list) : NULL;
    node = key != NULL ? ax_config_default(cfg, key) : NULL;
    return node != NULL ? walk(ax_config_default(cfg, key), dot + 1, true) : NULL;
}

bool ax_config_truthy(const struct ax_yaml_node *node) {
    if (node == NULL)
        return false;
    switch (node->kind) {
    case AX_YAML_NULL:
        return false;
    case AX_YAML_BOOL:
        return node->boolean;
    case AX_YAML_INT:
    case AX_YAML_FLOAT:
        return node->number < 0 || node->number > 0;
    case AX_YAML_STRING:
        return node->text[0] != '\0';
    default:
        return node->n > 0;
    }
}

const char *ax_config_scalar_text(const struct ax_yaml_node *node) {
    return node->kind == AX_YAML_BOOL ? (node->boolean ? "true" : "false") : node->text;
}

const struct ax_yaml_node *ax_config_element(const struct ax_yaml_node *list, size_t i) {
    if (list == NULL || list->kind == AX_YAML_NULL)
        return NULL;
    if (list->kind != AX_YAML_LIST)
        return i == 0 ? list : NULL;
    return i < list->n ? list->entries[i].value : NULL;
}

/* Formats a reader's path. It must be in the table, or inside a list or open map that is. */
#define FORMAT_PATH(buf, fmt)                                                                      \
    char buf[AX_CONFIG_PATH];                                                                      \
    do {                                                                                           \
        va_list ap_;                                                                               \
        va_start(ap_, fmt);                                                                        \
        int n_ = vsnprintf(buf, sizeof buf, fmt, ap_);                                             \
        va_end(ap_);                                                                               \
        AX_ASSERT(n_ > 0 && (size_t)n_ < sizeof buf);                                              \
        AX_ASSERT(in_table(buf));                                                                  \
    } while (0)

static bool in_table(const char *path) {
    char parent[AX_CONFIG_PATH];
    snprintf(parent, sizeof parent, "%s", path);
    const struct ax_config_key *key = ax_config_find(parent);
    char *dot = strrchr(parent, '.');
    if (key == NULL && dot != NULL) {
        *dot = '\0';
        key = ax_config_find(parent);
        return key != NULL && ax_config_elements(key) != 0;
    }
    return key != NULL;
}

bool ax_config_is_set(const struct ax_config *cfg, const char *path, ...) {
    FORMAT_PATH(at, path);
    const struct ax_yaml_node *node = walk(cfg->doc.root, at, true);
    return node != NULL && node->kind != AX_YAML_NULL;
}

bool ax_config_is_null(const struct ax_config *cfg, const char *path, ...) {
    FORMAT_PATH(at, path);
    const struct ax_yaml_node *node = walk(cfg->doc.root, at, true);
    return node != NULL && node->kind == AX_YAML_NULL;
}

bool ax_config_has(const struct ax_config *cfg, const char *path, ...) {
    FORMAT_PATH(at, path);
    return ax_config_value_of(cfg, at) != NULL;
}

int64_t ax_config_i64(const struct ax_config *cfg, const char *path, ...) {
    FORMAT_PATH(at, path);
    const struct ax_yaml_node *node = ax_config_value_of(cfg, at);
    AX_ASSERT(node != NULL && node->kind == AX_YAML_INT);
    return node->integer;
}

double ax_config_f64(const struct ax_config *cfg, const char *path, ...) {
    FORMAT_PATH(at, path);
    const struct ax_yaml_node *node = ax_config_value_of(cfg, at);
    AX_ASSERT(node != NULL && (node->kind == AX_YAML_INT || node->kind == AX_YAML_FLOAT));
    return node->number;
}

bool ax_config_bool(const struct ax_config *cfg, const char *path, ...) {
    FORMAT_PATH(at, path);
    return ax_config_truthy(ax_config_value_of(cfg, at));
}

const char *ax_config_str(const struct ax_config *cfg, const char *path, ...) {
    FORMAT_PATH(at, path);
    const struct ax_yaml_node *node = ax_config_value_of(cfg, at);
    if (node == NULL || node->kind == AX_YAML_NULL)
        return NULL;
    AX_ASSERT(node->kind != AX_YAML_LIST && node->kind != AX_YAML_MAP);
    return ax_config_scalar_text(node);
}

size_t ax_config_count(const struct ax_config *cfg, const char *path, ...) {
    FORMAT_PATH(at, path);
    const struct ax_yaml_node *node = ax_config_value_of(cfg, at);
    if (node == NULL || node->kind == AX_YAML_NULL)
        return 0;
    return node->kind == AX_YAML_LIST || node->kind == AX_YAML_MAP ? node->n : 1;
}

const struct ax_yaml_node *ax_config_node(const struct ax_config *cfg, const char *path, ...) {
    FORMAT_PATH(at, path);
    return ax_config_value_of(cfg, at);
}

const char *ax_config_origin(const struct ax_config *cfg, const char *path,
                             const struct ax_yaml_node *node, char *buf, size_t size) {
    if (node == NULL || node->kind == AX_YAML_NULL) {
        snprintf(buf, size, "%s", ax_config_value_of(cfg, path) != NULL ? "default" : "unset");
        return buf;
    }
    for (size_t i = 0; i < cfg->n_follows; i++) {
        if (strcmp(cfg->follows[i].path, path) == 0) {
            snprintf(buf, size, "follows from %s", cfg->follows[i].from);
            return buf;
        }
    }
    return ax_config_place(cfg, node->line, node->column, buf, size);
}

const char *ax_config_where(const struct ax_config *cfg, char *buf, size_t size, const char *path,
                            ...) {
    FORMAT_PATH(at, path);
    return ax_config_origin(cfg, at, walk(cfg->doc.root, at, true), buf, size);
}

enum ax_status ax_config_error(const struct ax_config *cfg, const char *path, const char *fmt,
                               ...) {
    char text[1024];
    char place[512];
    va_list ap;
    va_start(ap, fmt);
    ax_vfit(text, sizeof text, fmt, ap);
    va_end(ap);
    return ax_error(
        AX_ERR_CONFIG, "%s: %s (%s)", path, text,
        ax_config_origin(cfg, path, walk(cfg->doc.root, path, true), place, sizeof place));
}

void ax_config_join(char *buf, size_t size, const char *parent, const char *name) {
    snprintf(buf, size, "%s%s%s", parent, parent[0] != '\0' ? "." : "", name);
}

const struct ax_yaml_node *ax_config_acting_default(const struct ax_config *cfg,
                                                    const struct ax_config_key *key) {
    bool acts = key->support != AX_SUPPORT_NO_EFFECT &&
                (key->when == NULL || ax_config_holds(cfg, key->when));
    return acts ? ax_config_default(cfg, key) : NULL;
}

void ax_config_members_begin(struct ax_config_members *it, const struct ax_config *cfg,
                             const char *path, const struct ax_yaml_node *map) {
    char pattern[AX_CONFIG_PATH];
    *it = (struct ax_config_members){.cfg = cfg, .map = map};
    it->no_defaults =
        !ax_config_pattern(path, pattern, sizeof pattern) || strchr(pattern, ']') != NULL;
    ax_config_children_begin(&it->rows, it->no_defaults ? "" : pattern);
}

bool ax_config_members_next(struct ax_config_members *it) {
    while (it->entry < it->map->n) {
        const struct ax_yaml_entry *e = &it->map->entries[it->entry++];
        if (e->value->kind != AX_YAML_NULL) {
            it->name = e->key;
            it->node = e->value;
            it->dflt = false;
            return true;
        }
    }
    const struct ax_config_key *key;
    while (!it->no_defaults && (key = ax_config_children_next(&it->rows)) != NULL) {
        const struct ax_yaml_node *set = ax_yaml_get(it->map, it->rows.name);
        if (set == NULL || set->kind == AX_YAML_NULL) {
            it->name = it->rows.name;
            it->node = ax_config_acting_default(it->cfg, key);
            it->dflt = true;
            if (it->node != NULL)
                return true;
        }
    }
    return false;
}
