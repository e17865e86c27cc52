#include "data/records/pipeline/prepared.h"

#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "data/records/pipeline/cache.h"

/* ---- statistics of an example ---- */

static bool is_end(const struct ax_format *f, int32_t id) {
    const int32_t *ends;
    const size_t n = ax_format_ends(f, &ends);
    for (size_t i = 0; i < n; i++)
        if (ends[i] == id)
            return true;
    return false;
}

static void look_at(struct ax_examples_info *info, const struct ax_prepared_options *o,
                    const struct ax_example *x) {
    for (size_t i = 0; i < x->n; i++) {
        const bool trained = x->labels[i] != AX_NO_LABEL;
        if (is_end(o->format, x->tokens[i])) {
            info->ends++;
            info->ends_trained += trained;
        }
    }
    ax_oddities_count(info->oddities, x->oddities, &x->origin);
    info->double_bos +=
        o->bos != AX_NO_TOKEN && x->n > 1 && x->tokens[0] == o->bos && x->tokens[1] == o->bos;
}

/* ---- making ---- */

/* With a writer, full blocks are written and freed. */
static enum ax_status read_rows(struct ax_examples *out, const struct ax_prepared_options *o,
                                struct ax_cache_writer *w) {
    struct ax_prepare *p;
    out->info.bad.allowed = o->max_bad_rows;
    for (size_t i = 0; i < ax_rows_n_files(o->rows); i++)
        AX_TRY(ax_examples_add_file(out, ax_rows_file(o->rows, i)));
    AX_TRY(ax_rows_seek(o->rows, 0));
    AX_TRY(ax_prepare_open(&p, &(struct ax_prepare_options){.rows = o->rows,
                                                            .format = o->format,
                                                            .bad = &out->info.bad,
                                                            .threads = o->threads}));
    enum ax_status st = AX_OK;
    for (;;) {
        struct ax_example x;
        bool got;
        AX_TRY_GOTO(ax_prepare_next(p, &x, &got), st, done);
        if (!got)
            break;
        st = ax_examples_add(out, &x);
        if (st == AX_ERR_DATA)
            st = ax_error_prefix(st, "%s:%llu", out->files[x.origin.file],
                                 (unsigned long long)x.origin.line);
        if (st != AX_OK)
            break;
        look_at(&out->info, o, &x);
        if (w)
            AX_TRY_GOTO(ax_cache_flush(w, out), st, done);
    }
    ax_oddities_add(out->info.oddities, out->info.bad.skipped);
done:
    ax_prepare_close(p);
    return st;
}

static enum ax_status make_cached(struct ax_examples *out, const struct ax_prepared_options *o,
                                  const char *path, const json_t *description) {
    struct ax_cache_writer w;
    AX_TRY(ax_cache_begin(&w, path));
    struct ax_examples made = {.columns = ax_format_columns(o->format)};
    bool found = false;
    enum ax_status st = read_rows(&made, o, &w);
    if (st == AX_OK)
        st = ax_cache_commit(&w, &made, description);
    ax_cache_abort(&w);
    ax_examples_free(&made);
    AX_TRY(st);
    AX_TRY(ax_cache_load(out, path, description, ax_format_columns(o->format), &found));
    out->info.from_cache = false;
    return found ? AX_OK : ax_error(AX_ERR_IO, "%s: disappeared after it was written", path);
}

/* ---- the cache ---- */

static enum ax_status describe(const struct ax_prepared_options *o, json_t **out) {
    json_t *rows = NULL;
    json_t *format = NULL;
    *out = NULL;
    AX_TRY(ax_rows_describe(o->rows, &rows));
    if (!rows)
        return AX_OK;
    const enum ax_status st = ax_format_describe(o->format, &format);
    if (st != AX_OK) {
        json_decref(rows);
        return st;
    }
    *out = json_pack("{s:o, s:o, s:s, s:s, s:I, s:i}", "rows", rows, "format", format, "tokenizer",
                     o->tokenizer, "version", AX_VERSION, "max_bad_rows",
                     (json_int_t)o->max_bad_rows, "bos", (int)o->bos);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for the key of a cache");
}

static enum ax_status try_load(struct ax_examples *out, const char *path, const json_t *description,
                               const struct ax_columns *columns, bool *found) {
    const enum ax_status st = ax_cache_load(out, path, description, columns, found);
    if (st == AX_OK || st == AX_ERR_NOMEM)
        return st;
    ax_log_warn("preparing the data set again: %s", ax_error_text());
    ax_error_clear();
    return AX_OK;
}

/* If several processes need the same set, one makes it while the others wait and load it. */
static enum ax_status load_or_make(struct ax_examples *out, const struct ax_prepared_options *o,
                                   const char *path, const char *lock_path,
                                   const json_t *description) {
    struct ax_lock lock = {0};
    bool found = false;
    enum ax_status st = AX_OK;
    if (!o->refresh) {
        ax_lock_take(&lock, lock_path, AX_LOCK_SHARED);
        st = ax_cache_load(out, path, description, ax_format_columns(o->format), &found);
        ax_lock_drop(&lock);
        if (found || st == AX_ERR_NOMEM)
            return st;
        ax_error_clear(); /* errors are checked again below, when no other process is writing */
    }
    AX_TRY(ax_mkdir_parents_private(o->cache));
    ax_lock_take(&lock, lock_path, AX_LOCK_EXCLUSIVE);
    if (!o->refresh)
        st = try_load(out, path, description, ax_format_columns(o->format), &found);
    if (st == AX_OK && !found)
        st = make_cached(out, o, path, description);
    ax_lock_drop(&lock);
    return st;
}

static enum ax_status open_cached(struct ax_examples *out, const struct ax_prepared_options *o,
                                  const json_t *description) {
    char *path;
    char *lock = NULL;
    AX_TRY(ax_cache_path(&path, o->cache, description));
    enum ax_status st = ax_sprintf(&lock, "%s.lock", path);
    if (st == AX_OK)
        st = load_or_make(out, o, path, lock, description);
    ax_free(lock);
    ax_free(path);
    return st;
}

enum ax_status ax_prepared_open(struct ax_examples *out, const struct ax_prepared_options *o) {
    *out = (struct ax_examples){.columns = ax_format_columns(o->format)};
    json_t *description = NULL;
    if (o->cache)
        AX_TRY(describe(o, &description));
    enum ax_status st;
    if (description)
        st = open_cached(out, o, description);
    else
        st = read_rows(out, o, NULL);
    json_decref(description);
    if (st != AX_OK)
        ax_examples_free(out);
    return st;
}
