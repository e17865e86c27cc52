#include "optim/evaluate/tasks/read.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fit.h"
#include "base/mem.h"
#include "base/text/words.h"

#define MAX_BYTES ((size_t)4 << 20)

/* ---- files ---- */

/* Resolves `name` relative to the folder of the file that includes it. */
static enum ax_status beside(char **out, const char *file, const char *name) {
    const char *slash = strrchr(file, '/');
    if (name[0] == '/' || !slash)
        return ax_strdup(out, name);
    return ax_sprintf(out, "%.*s/%s", (int)(slash - file), file, name);
}

static enum ax_status load(struct ax_task_yaml *y, const char *path, int depth);

static enum ax_status load_included(struct ax_task_yaml *y, struct ax_task_key k, int depth) {
    const char *name = NULL;
    char *path;
    AX_TRY(ax_task_key_text(k, &name));
    if (!name)
        return AX_OK;
    AX_TRY(beside(&path, k.doc->name, name));
    const enum ax_status st =
        depth == AX_TASK_MAX_FILES
            ? ax_task_key_error(k, AX_ERR_CONFIG, "%s: files include each other in a circle", path)
            : load(y, path, depth + 1);
    ax_free(path);
    return st;
}

/* Loads a file and then the files it includes, the last one first, because it overrides the
 * others. */
static enum ax_status load(struct ax_task_yaml *y, const char *path, int depth) {
    if (y->n == AX_TASK_MAX_FILES)
        return ax_error(AX_ERR_CONFIG, "%s: a task of more than %d files", path, AX_TASK_MAX_FILES);
    struct ax_yaml_doc *doc = &y->docs[y->n];
    AX_TRY(ax_yaml_load(doc, path, MAX_BYTES));
    y->n++;
    struct ax_task_key all = {doc, doc->root, "the task"};
    if (doc->root->kind != AX_YAML_MAP)
        return ax_task_key_error(all, AX_ERR_CONFIG, "expected keys and values, got %s",
                                 ax_yaml_kind_name(doc->root->kind));
    const struct ax_task_key inc = ax_task_key_in(all, "include");
    if (!inc.node || inc.node->kind != AX_YAML_LIST)
        return load_included(y, inc, depth);
    for (size_t i = inc.node->n; i-- > 0;)
        AX_TRY(load_included(y, ax_task_key_at(inc, i), depth));
    return AX_OK;
}

enum ax_status ax_task_yaml_load(struct ax_task_yaml *y, const char *path) {
    *y = (struct ax_task_yaml){0};
    const enum ax_status st = load(y, path, 1);
    if (st != AX_OK)
        ax_task_yaml_free(y);
    return st;
}

void ax_task_yaml_free(struct ax_task_yaml *y) {
    for (int i = 0; i < y->n; i++)
        ax_yaml_free(&y->docs[i]);
    y->n = 0;
}

/* ---- keys ---- */

static struct ax_task_key absent_if_null(struct ax_task_key k) {
    if (k.node && k.node->kind == AX_YAML_NULL)
        k.node = NULL;
    return k;
}

bool ax_task_is_group_key(const char *name) {
    static const char *const names[] = {"group", "group_alias", "task", "aggregate_metric_list",
                                        "metadata"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

struct ax_task_key ax_task_key(const struct ax_task_yaml *y, const char *name) {
    const bool of_group = ax_task_is_group_key(name);
    for (int i = 0; !of_group && i < y->over.n; i++) {
        const struct ax_yaml_node *v = ax_yaml_get(y->over.maps[i].node, name);
        if (v)
            return absent_if_null((struct ax_task_key){y->over.maps[i].doc, v, name});
    }
    if (y->of_group && of_group)
        return (struct ax_task_key){&y->docs[0], NULL, name};
    for (int i = 0; i < y->n; i++) {
        const struct ax_yaml_node *v = ax_yaml_get(y->docs[i].root, name);
        if (v)
            return absent_if_null((struct ax_task_key){&y->docs[i], v, name});
    }
    return (struct ax_task_key){&y->docs[0], NULL, name};
}

struct ax_task_key ax_task_key_in(struct ax_task_key map, const char *name) {
    return absent_if_null(
        (struct ax_task_key){map.doc, map.node ? ax_yaml_get(map.node, name) : NULL, name});
}

struct ax_task_key ax_task_key_at(struct ax_task_key list, size_t i) {
    return (struct ax_task_key){list.doc, list.node->entries[i].value, list.name};
}

enum ax_status ax_task_key_error(struct ax_task_key k, enum ax_status st, const char *fmt, ...) {
    char text[1024], where[512];
    va_list ap;
    va_start(ap, fmt);
    ax_vfit(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!k.node)
        return ax_error(st, "%s: %s: %s", k.doc->name, k.name, text);
    return ax_error(st, "%s: %s: %s", ax_yaml_where(k.doc, k.node, where, sizeof where), k.name,
                    text);
}

static enum ax_status wrong(struct ax_task_key k, const char *expected) {
    if (k.node->text)
        return ax_task_key_error(k, AX_ERR_CONFIG, "expected %s, got \"%.100s\"%s", expected,
                                 k.node->text,
                                 strcmp(expected, "text") == 0 ? "; put it in quotes" : "");
    return ax_task_key_error(k, AX_ERR_CONFIG, "expected %s, got %s", expected,
                             ax_yaml_kind_name(k.node->kind));
}

enum ax_status ax_task_key_text(struct ax_task_key k, const char **out) {
    if (!k.node)
        return AX_OK;
    if (k.node->kind != AX_YAML_STRING)
        return wrong(k, "text");
    *out = k.node->text;
    return AX_OK;
}

enum ax_status ax_task_key_bool(struct ax_task_key k, bool *out) {
    if (!k.node)
        return AX_OK;
    if (k.node->kind != AX_YAML_BOOL)
        return wrong(k, "true or false");
    *out = k.node->boolean;
    return AX_OK;
}

enum ax_status ax_task_key_int(struct ax_task_key k, int64_t min, int64_t max, int64_t *out) {
    char expected[80];
    if (!k.node)
        return AX_OK;
    snprintf(expected, sizeof expected, "an integer from %lld to %lld", (long long)min,
             (long long)max);
    if (k.node->kind != AX_YAML_INT || k.node->integer < min || k.node->integer > max)
        return wrong(k, expected);
    *out = k.node->integer;
    return AX_OK;
}

enum ax_status ax_task_key_number(struct ax_task_key k, double max, double *out) {
    char expected[80];
    if (!k.node)
        return AX_OK;
    snprintf(expected, sizeof expected, "a number from 0 to %.0f", max);
    const bool number = k.node->kind == AX_YAML_INT || k.node->kind == AX_YAML_FLOAT;
    if (!number || !(k.node->number >= 0 && k.node->number <= max))
        return wrong(k, expected);
    *out = k.node->number;
    return AX_OK;
}

enum ax_status ax_task_key_list(struct ax_task_key k, size_t *n) {
    *n = 0;
    if (!k.node)
        return AX_OK;
    if (k.node->kind != AX_YAML_LIST)
        return wrong(k, "a list");
    *n = k.node->n;
    return AX_OK;
}

/* ---- lists of texts and expressions ---- */

enum ax_status ax_task_key_items(struct ax_task_key k, struct ax_task_key **items, size_t *n) {
    struct ax_task_key *list;
    *n = !k.node ? 0 : k.node->kind == AX_YAML_LIST ? k.node->n : 1;
    AX_TRY(ax_alloc(&list, *n, sizeof *list));
    for (size_t i = 0; i < *n; i++)
        list[i] = k.node->kind == AX_YAML_LIST ? ax_task_key_at(k, i) : k;
    *items = list;
    return AX_OK;
}

enum ax_status ax_task_key_regex(struct ax_task_key k, struct ax_regex **out) {
    const char *pattern = NULL;
    AX_TRY(ax_task_key_text(k, &pattern));
    if (!pattern)
        return AX_OK;
    if (ax_regex_compile_python(out, pattern, strlen(pattern)) == AX_OK)
        return AX_OK;
    struct ax_error_record why;
    ax_error_save(&why, AX_ERR_CONFIG);
    return ax_task_key_error(k, AX_ERR_CONFIG, "%s", why.text);
}

enum ax_status ax_task_key_regexes(struct ax_task_key k, struct ax_regex ***out, size_t *n_out) {
    struct ax_task_key *items;
    size_t n;
    AX_TRY(ax_task_key_items(k, &items, &n));
    enum ax_status st = ax_alloc(out, n, sizeof(struct ax_regex *));
    for (size_t i = 0; i < n && st == AX_OK; i++) {
        st = ax_task_key_regex(items[i], &(*out)[i]);
        *n_out = i + 1;
    }
    ax_free(items);
    return st;
}

void ax_task_regexes_free(struct ax_regex **list, size_t n) {
    for (size_t i = 0; i < n; i++)
        ax_regex_free(list[i]);
    ax_free(list);
}

/* ---- known keys ---- */

static enum ax_status check_entry(struct ax_task_key map, const struct ax_yaml_entry *e,
                                  const struct ax_task_known *known) {
    const struct ax_task_key k = {map.doc, e->value, e->key};
    struct ax_nearest near = {.given = e->key, .within = 4};
    for (; known->name; known++) {
        ax_nearest_try(&near, known->name);
        if (strcmp(known->name, e->key) != 0)
            continue;
        if (!known->why || e->value->kind == AX_YAML_NULL)
            return AX_OK;
        return ax_task_key_error(k, AX_ERR_UNSUPPORTED, "not supported; %s", known->why);
    }
    if (near.name)
        return ax_task_key_error(k, AX_ERR_CONFIG, "unknown key; did you mean %s?", near.name);
    return ax_task_key_error(k, AX_ERR_CONFIG, "unknown key in %s; remove it", map.name);
}

enum ax_status ax_task_keys_check(struct ax_task_key map, const struct ax_task_known *known) {
    if (!map.node)
        return AX_OK;
    if (map.node->kind != AX_YAML_MAP)
        return wrong(map, "keys and values");
    for (size_t i = 0; i < map.node->n; i++)
        AX_TRY(check_entry(map, &map.node->entries[i], known));
    return AX_OK;
}
