/* Puts values of keys into the fields that their rows name. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "cmd/config/build.h"
#include "cmd/config/rules.h"

/* ---- values ---- */

/* The number of the choice that the value is; the table has no other values. */
static unsigned word_of(const struct ax_config_key *key, const struct ax_yaml_node *v) {
    char one[128];
    for (unsigned i = 0; ax_config_choice_at(key->choices, i, one, sizeof one); i++)
        if (strcmp(one, v->text) == 0)
            return i;
    AX_ASSERT(!"a value is one of its key's choices");
    return 0;
}

static int64_t count_of(const struct ax_yaml_node *v) {
    return v->kind == AX_YAML_INT ? v->integer : (int64_t)v->number;
}

static void put_value(const struct ax_config_key *key, const struct ax_config_field *f,
                      const struct ax_yaml_node *v, void *at) {
    const bool number = v->kind == AX_YAML_INT || v->kind == AX_YAML_FLOAT;
    const bool word = v->kind == AX_YAML_STRING && key->choices && !(key->types & AX_T_BOOL);
    const char *text = ax_config_scalar_text(v);
    AX_ASSERT(f->kind == AX_FIELD_NODE ||
              (text && (number || f->kind <= AX_FIELD_BOOL || f->kind >= AX_FIELD_TEXT)));
    switch (f->kind) {
    case AX_FIELD_BOOL:
        *(bool *)at = word ? word_of(key, v) > 0 : ax_config_truthy(v);
        break;
    case AX_FIELD_INT:
        *(int *)at = count_of(v) > INT_MAX ? INT_MAX : (int)count_of(v);
        break;
    case AX_FIELD_I64:
        *(int64_t *)at = count_of(v);
        break;
    case AX_FIELD_U64:
        *(uint64_t *)at = (uint64_t)count_of(v);
        break;
    case AX_FIELD_F64:
        *(double *)at = v->number;
        break;
    case AX_FIELD_TEXT:
        *(const char **)at = text;
        break;
    case AX_FIELD_NODE:
        *(const struct ax_yaml_node **)at = v;
        break;
    case AX_FIELD_WORD:
        *(unsigned *)at = word_of(key, v);
        break;
    }
}

/* ---- rows ---- */

/* The path of a row's key below `at`, whose pattern is `around`; false: it is elsewhere. */
static bool place_of(const struct ax_config_key *key, const char *at, const char *around,
                     char *path, size_t size) {
    const size_t n = strlen(around);
    if (strncmp(key->path, around, n) != 0 || (n > 0 && key->path[n] != '.'))
        return false;
    snprintf(path, size, "%s%s", at, key->path + n);
    return n > 0 || strchr(path, '[') == NULL;
}

/* True if the key at `at` acts, and the maps and lists that contain it. */
static bool acts(const struct ax_config *cfg, const struct ax_config_key *key, const char *at) {
    char path[AX_CONFIG_PATH];
    snprintf(path, sizeof path, "%s", key->path);
    while (key != NULL && (key->when == NULL || ax_config_holds_at(cfg, at, key->when))) {
        char *dot = strrchr(path, '.');
        if (dot == NULL)
            return true;
        *(dot > path && dot[-1] == ']' ? dot - 2 : dot) = '\0';
        key = ax_config_find(path);
        at = NULL;
    }
    return key == NULL;
}

static void fill_from(const struct ax_config *cfg, const struct ax_config_key *key,
                      const char *path, const char *type, void *out) {
    const struct ax_yaml_node *v = NULL;
    for (const struct ax_config_field *f = key->into; f && f->type; f++) {
        if (strcmp(f->type, type) != 0)
            continue;
        if (!v && acts(cfg, key, path))
            v = ax_config_value_of(cfg, path);
        if (v)
            put_value(key, f, v, (char *)out + f->offset);
    }
}

/* Entries of a list that shares its keys have the rows of `shared`, unless it has one of its own. */
void ax_config_fill(const struct ax_config *cfg, const char *at, const char *type, void *out) {
    char own[AX_CONFIG_PATH] = "", shared[AX_CONFIG_PATH], path[2 * AX_CONFIG_PATH];
    AX_ASSERT(!*at || ax_config_pattern(at, own, sizeof own));
    ax_config_shared(own, shared, sizeof shared);
    for (size_t s = 0; s < ax_config_n_sections; s++) {
        for (const struct ax_config_key *key = ax_config_sections[s].keys; key->path; key++) {
            const bool here = key->into && (place_of(key, at, own, path, sizeof path) ||
                                            place_of(key, at, shared, path, sizeof path));
            if (here && (!*at || ax_config_find(path) == key))
                fill_from(cfg, key, path, type, out);
        }
    }
}
