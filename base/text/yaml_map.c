/* Finishes a map after its entries are read: merge keys and duplicates. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/yaml_tree.h"

static enum ax_status entry_error(const char *name, const struct ax_yaml_entry *e,
                                  const char *what) {
    if (name == NULL)
        return ax_error(AX_ERR_CONFIG, "key \"%s\" %s", e->key, what);
    return ax_error(AX_ERR_CONFIG, "%s:%d:%d: key \"%s\" %s", name, e->line, e->column, e->key,
                    what);
}

static enum ax_status given_twice(const char *name, const struct ax_yaml_entry *first,
                                  const struct ax_yaml_entry *second) {
    if (name == NULL)
        return ax_error(AX_ERR_CONFIG, "duplicate key \"%s\"", second->key);
    return ax_error(AX_ERR_CONFIG, "%s:%d:%d: duplicate key \"%s\", first on line %d; remove one",
                    name, second->line, second->column, second->key, first->line);
}

/* Appends the entries of one merged map to `map`. */
static enum ax_status move_entries(struct ax_yaml_node *map, struct ax_yaml_node *from) {
    for (size_t i = 0; i < from->n; i++) {
        AX_TRY(ax_yaml_append(map, from->entries[i]));
        from->entries[i] = (struct ax_yaml_entry){0};
    }
    return AX_OK;
}

static enum ax_status apply_merge(struct ax_yaml_node *map, const struct ax_yaml_entry *merge,
                                  const char *name) {
    struct ax_yaml_node *value = merge->value;
    if (value->kind == AX_YAML_MAP)
        return move_entries(map, value);
    if (value->kind != AX_YAML_LIST)
        return entry_error(name, merge, "must be followed by a map or a list of maps (*name)");
    for (size_t i = 0; i < value->n; i++) {
        if (value->entries[i].value->kind != AX_YAML_MAP)
            return entry_error(name, merge, "must be followed by a map or a list of maps (*name)");
        AX_TRY(move_entries(map, value->entries[i].value));
    }
    return AX_OK;
}

struct sorted_key {
    const char *key;
    size_t index;
};

static int compare_keys(const void *a, const void *b) {
    const struct sorted_key *x = a;
    const struct sorted_key *y = b;
    int order = strcmp(x->key, y->key);
    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

/* Drops merged entries whose key appears earlier; entries from n_own on are merged ones. Sorts,
 * because comparing all pairs of keys could take hours for a long map. */
static enum ax_status drop_duplicates(struct ax_yaml_node *map, size_t n_own, const char *name) {
    struct sorted_key *keys;
    AX_TRY(ax_alloc(&keys, map->n, sizeof *keys));
    for (size_t i = 0; i < map->n; i++)
        keys[i] = (struct sorted_key){map->entries[i].key, i};
    qsort(keys, map->n, sizeof *keys, compare_keys);
    enum ax_status st = AX_OK;
    const struct ax_yaml_entry *kept = NULL;
    for (size_t i = 0; i < map->n && st == AX_OK; i++) {
        struct ax_yaml_entry *e = &map->entries[keys[i].index];
        if (kept == NULL || strcmp(kept->key, e->key) != 0) {
            kept = e;
        } else if (keys[i].index < n_own) {
            st = given_twice(name, kept, e);
        } else {
            ax_yaml_node_free(e->value);
            e->value = NULL; /* marks it; the key is still compared */
        }
    }
    ax_free(keys);
    size_t n = 0;
    for (size_t i = 0; i < map->n; i++)
        if (map->entries[i].value == NULL)
            ax_free(map->entries[i].key);
        else
            map->entries[n++] = map->entries[i];
    map->n = n;
    return st;
}

enum ax_status ax_yaml_finish_map(struct ax_yaml_node *map, struct ax_yaml_node *merges,
                                  const char *name) {
    size_t n_own = map->n;
    if (merges->n > 1)
        return given_twice(name, &merges->entries[0], &merges->entries[1]);
    if (merges->n == 1)
        AX_TRY(apply_merge(map, &merges->entries[0], name));
    return drop_duplicates(map, n_own, name);
}
