/* Finds a row of the table by key path, and a row's neighbors. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cmd/config/table.h"

static const struct ax_config_key *find_row(const char *path) {
    for (size_t s = 0; s < ax_config_n_sections; s++) {
        const struct ax_config_section *sec = &ax_config_sections[s];
        for (size_t i = 0; sec->keys[i].path != NULL; i++) {
            const char *row = sec->keys[i].path;
            if (row[0] == path[0] && strcmp(row, path) == 0) /* fast: called for every key */
                return &sec->keys[i];
        }
    }
    return NULL;
}

const struct ax_config_section *ax_config_section_of(const struct ax_config_key *key) {
    for (size_t s = 0; s < ax_config_n_sections; s++) {
        const struct ax_config_section *sec = &ax_config_sections[s];
        for (size_t i = 0; sec->keys[i].path != NULL; i++)
            if (&sec->keys[i] == key)
                return sec;
    }
    AX_ASSERT(key == NULL); /* a key that is in no section */
    return NULL;
}

bool ax_config_pattern(const char *path, char *out, size_t size) {
    size_t n = 0;
    while (*path != '\0') {
        size_t len = strcspn(path, ".");
        bool index = len > 0 && strspn(path, "0123456789") == len;
        int wrote = index && n > 0
                        ? snprintf(out + n, size - n, "[]")
                        : snprintf(out + n, size - n, "%s%.*s", n > 0 ? "." : "", (int)len, path);
        if ((size_t)wrote >= size - n)
            return false;
        n += (size_t)wrote;
        path += len + (path[len] == '.');
    }
    out[n] = '\0';
    return true;
}

void ax_config_shared(const char *pattern, char *buf, size_t size) {
    /* The lists whose entries have the same keys as those of datasets. */
    static const char *const lists[] = {"test_datasets", "pretraining_dataset"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        size_t n = strlen(lists[i]);
        if (strncmp(pattern, lists[i], n) == 0 && (pattern[n] == '\0' || pattern[n] == '[')) {
            snprintf(buf, size, "datasets%s", pattern + n);
            return;
        }
    }
    snprintf(buf, size, "%s", pattern);
}

const struct ax_config_key *ax_config_find(const char *path) {
    char pattern[AX_CONFIG_PATH] = "";
    char shared[AX_CONFIG_PATH];
    if (!ax_config_pattern(path, pattern, sizeof pattern))
        return NULL;
    const struct ax_config_key *key = find_row(pattern);
    if (key == NULL) {
        ax_config_shared(pattern, shared, sizeof shared);
        key = find_row(shared);
    }
    return key;
}

bool ax_config_is_fixed(const char *path) {
    const struct ax_config_key *key = ax_config_find(path);
    return key != NULL && key->fixed;
}

/* A default is 1.0 where a value may be 1. */
static bool is_same(const json_t *a, const json_t *b) {
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

bool ax_config_is_default(const char *path, const json_t *value) {
    const struct ax_config_key *key = ax_config_find(path);
    if (key == NULL || key->dflt == NULL)
        return false;
    if (json_is_string(value))
        return strcmp(json_string_value(value), key->dflt) == 0;
    json_t *dflt = json_loads(key->dflt, JSON_DECODE_ANY, NULL);
    const bool is = is_same(value, dflt);
    json_decref(dflt);
    return is;
}

bool ax_config_child(const char *path, const char *parent, const char **name) {
    size_t n = strlen(parent);
    if (strncmp(path, parent, n) != 0)
        return false;
    path += n;
    if (n > 0 && *path++ != '.')
        return false;
    *name = path;
    return strchr(path, '.') == NULL && *path != '\0';
}

const char *ax_config_last_part(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot != NULL ? dot + 1 : path;
}

void ax_config_children_begin(struct ax_config_children *it, const char *parent) {
    *it = (struct ax_config_children){0};
    snprintf(it->parent, sizeof it->parent, "%s", parent);
    ax_config_shared(parent, it->shared, sizeof it->shared);
}

/* The list's own key takes precedence over a shared one of that name. */
static bool has_own(const struct ax_config_children *it) {
    char own[2 * AX_CONFIG_PATH];
    snprintf(own, sizeof own, "%s.%s", it->parent, it->name);
    return find_row(own) != NULL;
}

const struct ax_config_key *ax_config_children_next(struct ax_config_children *it) {
    for (;; it->section++, it->row = 0) {
        if (it->section == ax_config_n_sections) {
            if (it->in_shared || strcmp(it->parent, it->shared) == 0)
                return NULL;
            it->in_shared = true;
            it->section = 0;
        }
        const struct ax_config_section *section = &ax_config_sections[it->section];
        while (section->keys[it->row].path != NULL) {
            const struct ax_config_key *key = &section->keys[it->row++];
            const char *parent = it->in_shared ? it->shared : it->parent;
            if (ax_config_child(key->path, parent, &it->name) && !(it->in_shared && has_own(it)))
                return key;
        }
    }
}

bool ax_config_has_children(const char *parent) {
    struct ax_config_children it;
    ax_config_children_begin(&it, parent);
    return ax_config_children_next(&it) != NULL;
}
