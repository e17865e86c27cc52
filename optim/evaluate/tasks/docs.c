#include "optim/evaluate/tasks/docs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "data/records/rows/hub_dataset.h"

/* ---- types of CSV columns, as pandas infers them ---- */

/* The first that fits all fields. Missing values (empty, NA, …) become null; integers become floating
 * point if any are missing. */
enum column_type { INTEGERS, NUMBERS, BOOLEANS, TEXTS };

static bool is_missing(const char *s) {
    static const char *const words[] = {"",         "#N/A", "#N/A N/A", "#NA",    "-1.#IND",
                                        "-1.#QNAN", "-NaN", "-nan",     "1.#IND", "1.#QNAN",
                                        "<NA>",     "N/A",  "NA",       "NULL",   "NaN",
                                        "None",     "n/a",  "nan",      "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(s, words[i]) == 0)
            return true;
    return false;
}

static bool is_integer(const char *s) {
    s += *s == '-' || *s == '+';
    const size_t n = strspn(s, "0123456789");
    return n > 0 && n < 19 && s[n] == '\0';
}

/* Accepts decimal numbers, not hexadecimal ones. */
static bool is_number(const char *s) {
    char *end;
    if (strpbrk(s, "xXnN")) /* nan is missing; inf is a number for pandas, but text here */
        return false;
    strtod(s, &end);
    return end > s && *end == '\0';
}

static bool is_boolean(const char *s) {
    return strcmp(s, "True") == 0 || strcmp(s, "TRUE") == 0 || strcmp(s, "true") == 0 ||
           strcmp(s, "False") == 0 || strcmp(s, "FALSE") == 0 || strcmp(s, "false") == 0;
}

static bool fits(enum column_type type, const char *s) {
    return type == TEXTS || (type == INTEGERS && is_integer(s)) ||
           (type == NUMBERS && is_number(s)) || (type == BOOLEANS && is_boolean(s));
}

static enum column_type type_of(const struct ax_task_docs *d, size_t from, const char *name) {
    bool missing = false, any = false;
    enum column_type type = INTEGERS;
    for (size_t i = from; i < d->n; i++) {
        const char *s = json_string_value(json_object_get(d->list[i], name));
        if (!s)
            continue;
        if (is_missing(s)) {
            missing = true;
            continue;
        }
        while (!fits(type, s)) /* earlier fields must fit the next type as well */
            type = type == NUMBERS && any ? TEXTS : (enum column_type)(type + 1);
        any = true;
    }
    return type == INTEGERS && missing ? NUMBERS : type;
}

static json_t *typed(enum column_type type, const char *s) {
    if (is_missing(s))
        return json_null();
    switch (type) {
    case INTEGERS:
        return json_integer(strtoll(s, NULL, 10));
    case NUMBERS:
        return json_real(strtod(s, NULL));
    case BOOLEANS:
        return json_boolean(s[0] == 'T' || s[0] == 't');
    default:
        return NULL;
    }
}

/* Converts the texts of records [from, n), which come from CSV, as pandas does: columns of
 * integers, numbers or booleans get that type, and empty fields and "NA" become null. */
static enum ax_status type_csv(struct ax_task_docs *d, size_t from) {
    if (from == d->n)
        return AX_OK;
    json_t *columns = json_copy(d->list[from]), *unused;
    const char *name;
    if (!columns)
        return ax_error(AX_ERR_NOMEM, "out of memory for the columns of a file");
    json_object_foreach(columns, name, unused) {
        const enum column_type type = type_of(d, from, name);
        for (size_t i = from; i < d->n; i++) {
            const char *s = json_string_value(json_object_get(d->list[i], name));
            json_t *v = s ? typed(type, s) : NULL;
            if (v)
                json_object_set_new(d->list[i], name, v);
        }
    }
    json_decref(columns);
    return AX_OK;
}

/* ---- reading ---- */

static enum ax_status add_file(struct ax_task_docs *d, const char *path) {
    AX_TRY(ax_regrow(&d->files, d->n_files, d->n_files + 1, sizeof(char *)));
    AX_TRY(ax_strdup(&d->files[d->n_files], path));
    d->n_files++;
    return AX_OK;
}

static enum ax_status add(struct ax_task_docs *d, json_t *doc, struct ax_task_place place) {
    if (d->n == d->cap) {
        const size_t cap = d->cap > 0 ? 2 * d->cap : 256;
        AX_TRY(ax_regrow(&d->list, d->cap, cap, sizeof(json_t *)));
        AX_TRY(ax_regrow(&d->places, d->cap, cap, sizeof *d->places));
        d->cap = cap;
    }
    d->list[d->n] = json_incref(doc);
    d->places[d->n++] = place;
    return AX_OK;
}

static enum ax_status read_rows(struct ax_task_docs *d, struct ax_rows *rows, int64_t most) {
    const size_t first_file = d->n_files;
    while (most == 0 || (int64_t)d->n < most) {
        struct ax_raw_row row;
        json_t *doc;
        bool got;
        AX_TRY(ax_rows_next(rows, &row, &got));
        if (!got)
            break;
        while (d->n_files <= first_file + row.file)
            AX_TRY(add_file(d, ax_rows_file(rows, d->n_files - first_file)));
        AX_TRY(ax_rows_parse(rows, &row, &doc));
        const enum ax_status st =
            add(d, doc, (struct ax_task_place){first_file + row.file, row.line});
        json_decref(doc);
        AX_TRY(st);
    }
    return AX_OK;
}

static bool is_csv(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && (strncmp(dot, ".csv", 4) == 0 || strncmp(dot, ".tsv", 4) == 0 ||
                   strstr(path, ".csv.") || strstr(path, ".tsv."));
}

static enum ax_status read_path(struct ax_task_docs *d, const struct ax_rows_options *o,
                                int64_t most) {
    struct ax_rows *rows;
    const size_t from = d->n;
    AX_TRY(ax_rows_open(&rows, o));
    const enum ax_status st = read_rows(d, rows, most);
    const bool csv = o->format ? strcmp(o->format, "csv") == 0
                               : ax_rows_n_files(rows) > 0 && is_csv(ax_rows_file(rows, 0));
    ax_rows_close(rows);
    AX_TRY(st);
    return csv ? type_csv(d, from) : AX_OK;
}

/* ---- files of the task ---- */

/* The path of the file that a key names: in `folder`, else next to the task's file. */
static enum ax_status find_file(const struct ax_task *t, struct ax_task_key k, const char *folder,
                                char **out) {
    const char *name = NULL, *own = t->yaml.docs[0].name, *slash = strrchr(own, '/');
    AX_TRY(ax_task_key_text(k, &name));
    if (!name)
        return ax_task_key_error(k, AX_ERR_CONFIG, "expected the path of a file");
    AX_TRY(folder && name[0] != '/' ? ax_path_join(out, folder, name) : ax_strdup(out, name));
    if (ax_path_exists(*out) || name[0] == '/' || strpbrk(name, "*?["))
        return AX_OK;
    char *beside;
    AX_TRY(ax_sprintf(&beside, "%.*s/%s", slash ? (int)(slash - own) : 1, slash ? own : ".", name));
    ax_free(*out);
    *out = beside;
    return ax_path_exists(beside)
               ? AX_OK
               : ax_task_key_error(k, AX_ERR_CONFIG,
                                   "%s is neither in the current folder nor beside the task's file",
                                   name);
}

static enum ax_status read_file(struct ax_task_docs *d, const struct ax_task *t,
                                struct ax_task_key k, const char *folder, int64_t most) {
    char *path = NULL;
    enum ax_status st = find_file(t, k, folder, &path);
    const struct ax_rows_options o = {.path = path, .format = t->dataset_path};
    if (st == AX_OK && (most == 0 || (int64_t)d->n < most))
        st = read_path(d, &o, most);
    ax_free(path);
    return st;
}

/* data_files: {split: FILE or [FILE, …]}; a single FILE or list is the split "train". */
static enum ax_status read_files(struct ax_task_docs *d, const struct ax_task *t, const char *split,
                                 const char *folder, int64_t most) {
    const struct ax_task_key all =
        ax_task_key_in(ax_task_key(&t->yaml, "dataset_kwargs"), "data_files");
    const bool map = all.node->kind == AX_YAML_MAP;
    const struct ax_task_key k = map ? ax_task_key_in(all, split) : all;
    if (!k.node || (!map && strcmp(split, "train") != 0))
        return ax_task_key_error(all, AX_ERR_CONFIG, "no files for the split \"%s\"", split);
    if (k.node->kind != AX_YAML_LIST)
        return read_file(d, t, k, folder, most);
    for (size_t i = 0; i < k.node->n; i++)
        AX_TRY(read_file(d, t, ax_task_key_at(k, i), folder, most));
    return AX_OK;
}

/* ---- data sets ---- */

static enum ax_status read_set(struct ax_task_docs *d, const struct ax_task *t, const char *split,
                               int64_t most) {
    struct ax_hub hub;
    struct ax_hub_report report;
    const struct ax_rows_options o = {
        .path = t->dataset_path, .name = t->dataset_name, .revision = t->revision, .split = split};
    if (ax_hub_dataset_is(o.path)) {
        AX_TRY(ax_hub_open(&hub));
        const enum ax_status st = ax_hub_dataset_get(&hub, &o, &report);
        ax_hub_close(&hub);
        AX_TRY(st);
    }
    return read_path(d, &o, most);
}

/* Sets columns that a record lacks to null. */
static enum ax_status fill_columns(struct ax_task_docs *d) {
    json_t *columns = json_object();
    const char *name;
    json_t *value;
    for (size_t i = 0; i < d->n; i++)
        json_object_update_missing(columns, d->list[i]);
    const size_t n = json_object_size(columns);
    for (size_t i = 0; i < d->n; i++)
        json_object_foreach(columns, name, value) if (json_object_size(d->list[i]) < n &&
                                                      !json_object_get(d->list[i], name))
            json_object_set_new(d->list[i], name, json_null());
    json_decref(columns);
    return AX_OK;
}

static bool is_builder(const char *path) {
    static const char *const names[] = {"json", "csv", "parquet", "text"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(path, names[i]) == 0)
            return true;
    return false;
}

enum ax_status ax_task_docs_load(struct ax_task_docs *d, const struct ax_task *t, const char *split,
                                 const char *folder, int64_t most) {
    const struct ax_task_key path = ax_task_key(&t->yaml, "dataset_path");
    enum ax_status st;
    if (is_builder(t->dataset_path)) {
        if (!t->data_files)
            return ax_task_key_error(path, AX_ERR_CONFIG,
                                     "%s needs dataset_kwargs: {data_files: …}", t->dataset_path);
        st = read_files(d, t, split, folder, most);
    } else if (t->data_files) {
        st = ax_task_key_error(path, AX_ERR_UNSUPPORTED,
                               "data_files of a data set are not supported; remove them, or give "
                               "local files with dataset_path: json, csv, parquet or text");
    } else {
        st = read_set(d, t, split, most);
        if (st != AX_OK)
            st = ax_error_prefix(st, "%s: dataset_path", t->yaml.docs[0].name);
    }
    AX_TRY(st);
    if (d->n == 0)
        return ax_task_key_error(path, AX_ERR_DATA, "the split \"%s\" has no records", split);
    return fill_columns(d);
}

enum ax_status ax_task_docs_from_list(struct ax_task_docs *d, json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        AX_TRY(add(d, json_array_get(list, i), (struct ax_task_place){SIZE_MAX, i + 1}));
    return AX_OK;
}

void ax_task_docs_free(struct ax_task_docs *d) {
    for (size_t i = 0; i < d->n; i++)
        json_decref(d->list[i]);
    for (size_t i = 0; i < d->n_files; i++)
        ax_free(d->files[i]);
    ax_free(d->list);
    ax_free(d->places);
    ax_free(d->files);
    *d = (struct ax_task_docs){0};
}

const char *ax_task_docs_where(const struct ax_task_docs *d, size_t i, char *buf, size_t size) {
    const struct ax_task_place p = d->places[i];
    if (p.file == SIZE_MAX)
        snprintf(buf, size, "fewshot_config: samples: record %llu", (unsigned long long)p.line);
    else
        snprintf(buf, size, "%s:%llu", d->files[p.file], (unsigned long long)p.line);
    return buf;
}
