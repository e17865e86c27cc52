/* Records → examples, or a set that was kept. Read ax_prepared_open first. */
#include "data/records/pipeline/prepared.h"

#include <string.h>

#include "base/hash/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/text/json.h"

/* ---- loading a set: set.json, then the bytes of both files, then their consistency ---- */

#define MAX_SET_JSON ((size_t)64 << 20)
#define PIECE        ((size_t)1 << 20)

static enum ax_status is_corrupted(const char *path, const char *what) {
    return ax_error(AX_ERR_DATA, "%s: corrupted: %s", path, what);
}

/* Reads instead of mapping, so that pages that are only checked do not stay resident. */
static enum ax_status check_crc(const char *path, uint64_t size, uint32_t crc) {
    struct ax_file f;
    char *piece = NULL;
    uint32_t got = 0;
    uint64_t total = 0;
    enum ax_status st;
    AX_TRY(ax_file_open_read(&f, path));
    AX_TRY_GOTO(ax_alloc(&piece, PIECE, 1), st, done);
    for (size_t n = 1; n > 0; total += n) {
        AX_TRY_GOTO(ax_file_read(&f, piece, PIECE, &n), st, done);
        got = ax_crc32c(got, piece, n);
    }
    if (total != size)
        st = ax_error(AX_ERR_DATA, "%s: corrupted: expected %llu bytes, got %llu", path,
                      (unsigned long long)size, (unsigned long long)total);
    else if (got != crc)
        st = is_corrupted(path, "the checksum does not match");
done:
    ax_free(piece);
    (void)ax_file_close(&f);
    return st;
}

static enum ax_status map_checked(struct ax_mapping *m, const char *folder, const char *name,
                                  struct ax_json body) {
    struct ax_json entry = ax_json_get(body, name);
    int64_t size;
    int64_t crc;
    AX_TRY(ax_json_i64(ax_json_get(entry, "size"), 0, INT64_MAX, &size));
    AX_TRY(ax_json_i64(ax_json_get(entry, "crc32c"), 0, UINT32_MAX, &crc));
    char *path;
    AX_TRY(ax_path_join(&path, folder, name));
    enum ax_status st = check_crc(path, (uint64_t)size, (uint32_t)crc);
    if (st == AX_OK)
        st = ax_map_file(m, path);
    if (st == AX_OK && m->len != (size_t)size)
        st = is_corrupted(path, "it changed while it was read");
    ax_free(path);
    return st;
}

static enum ax_status check_set(const struct ax_json_doc *doc, const json_t *description) {
    struct ax_json root = ax_json_root(doc);
    struct ax_json body = ax_json_get(root, "body");
    int64_t crc;
    AX_TRY(ax_json_i64(ax_json_get(root, "crc32c"), 0, UINT32_MAX, &crc));
    char *compact = body.v ? json_dumps(body.v, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    const bool same = compact && ax_crc32c(0, compact, strlen(compact)) == (uint32_t)crc;
    ax_free(compact);
    if (!same)
        return is_corrupted(doc->name, "the checksum does not match");
    if (!json_equal(json_object_get(body.v, "description"), description))
        return is_corrupted(doc->name, "it describes another data set");
    return AX_OK;
}

static enum ax_status read_oddities(struct ax_json list, struct ax_examples_info *info) {
    for (size_t i = 0; i < AX_ODDITIES; i++) {
        const struct ax_json v = ax_json_at(list, i);
        struct ax_oddities *o = &info->oddities[i];
        AX_TRY(ax_json_i64(ax_json_at(v, 0), 0, INT64_MAX, &o->n));
        AX_TRY(ax_json_i64(ax_json_at(v, 1), 0, UINT32_MAX, &o->file));
        AX_TRY(ax_json_i64(ax_json_at(v, 2), 0, INT64_MAX, &o->line));
    }
    return AX_OK;
}

static enum ax_status read_info(struct ax_json v, struct ax_examples_info *info) {
    AX_TRY(ax_json_i64(ax_json_get(v, "bad_rows"), 0, INT64_MAX, &info->bad.n));
    const char *empty = "";
    AX_TRY(ax_json_i64(ax_json_get(v, "empty_rows"), 0, INT64_MAX, &info->bad.n_empty));
    if (ax_json_size(ax_json_get(v, "empty_rows_listed")) > 0)
        AX_TRY(ax_json_str(ax_json_at(ax_json_get(v, "empty_rows_listed"), 0), &empty));
    if (info->bad.n_empty > 0)
        AX_TRY(ax_strdup(&info->bad.first_empty, empty));
    AX_TRY(ax_json_i64(ax_json_get(v, "ends"), 0, INT64_MAX, &info->ends));
    AX_TRY(ax_json_i64(ax_json_get(v, "ends_trained"), 0, INT64_MAX, &info->ends_trained));
    AX_TRY(ax_json_i64(ax_json_get(v, "double_bos"), 0, INT64_MAX, &info->double_bos));
    AX_TRY(read_oddities(ax_json_get(v, "oddities"), info));
    struct ax_json listed = ax_json_get(v, "bad_rows_listed");
    for (size_t i = 0; i < ax_json_size(listed) && i < AX_BAD_RECORDS_LISTED; i++) {
        const char *text;
        AX_TRY(ax_json_str(ax_json_at(listed, i), &text));
        AX_TRY(ax_strdup(&info->bad.texts[i], text));
    }
    return AX_OK;
}

static enum ax_status read_counts(struct ax_json body, struct ax_examples *e) {
    int64_t n[5];
    static const char *const names[] = {"examples", "words", "tokens", "trained", "longest"};
    for (int i = 0; i < 5; i++)
        AX_TRY(ax_json_i64(ax_json_get(body, names[i]), 0, INT64_MAX, &n[i]));
    e->n = (size_t)n[0];
    e->n_words = (uint64_t)n[1];
    e->n_tokens = (uint64_t)n[2];
    e->n_trained = (uint64_t)n[3];
    e->longest = (uint32_t)n[4];
    struct ax_json sources = ax_json_get(body, "sources");
    for (size_t i = 0; i < ax_json_size(sources); i++) {
        const char *name;
        AX_TRY(ax_json_str(ax_json_at(sources, i), &name));
        AX_TRY(ax_examples_add_file(e, name));
    }
    return AX_OK;
}

/* Are `words` from the example's start on in the file, and in one block? */
static bool is_inside(const struct ax_examples *e, const struct ax_stored *x, size_t words) {
    return x->start <= e->n_words && words <= e->n_words - x->start &&
           x->start % AX_EXAMPLES_BLOCK + words <= AX_EXAMPLES_BLOCK;
}

/* Correct checksums say that we wrote the bytes; this makes sure that no index is outside the
 * mapping. */
static enum ax_status check_list(const struct ax_examples *e, const char *folder) {
    for (size_t i = 0; i < e->n; i++) {
        const struct ax_stored *x = &e->list[i];
        const size_t words = ax_stored_words(e, x);
        size_t n_text;
        if (x->own_labels > 1 || x->joined > (i > 0) || x->has_text > 1 || x->file >= e->n_files ||
            !is_inside(e, x, words + x->has_text) ||
            (ax_examples_text(e, i, &n_text) && !is_inside(e, x, words + ax_text_words(n_text))))
            return is_corrupted(folder, "an example is outside the file");
    }
    return AX_OK;
}

static enum ax_status attach_words(struct ax_examples *e, const char *folder) {
    if (e->list_map.len != e->n * sizeof *e->list ||
        e->words_map.len != e->n_words * sizeof(uint32_t))
        return is_corrupted(folder, "the files do not match each other");
    e->list = (struct ax_stored *)(uintptr_t)e->list_map.data;
    e->n_blocks = (size_t)((e->n_words + AX_EXAMPLES_BLOCK - 1) / AX_EXAMPLES_BLOCK);
    AX_TRY(ax_alloc(&e->blocks, e->n_blocks, sizeof *e->blocks));
    for (size_t i = 0; i < e->n_blocks; i++)
        e->blocks[i] = (const uint32_t *)(const void *)e->words_map.data + i * AX_EXAMPLES_BLOCK;
    return check_list(e, folder);
}

static enum ax_status load_set(struct ax_examples *out, const char *path, const char *set_path,
                               const json_t *description) {
    struct ax_json_doc doc;
    AX_TRY(ax_json_load(&doc, set_path, MAX_SET_JSON));
    struct ax_json body = ax_json_get(ax_json_root(&doc), "body");
    enum ax_status st;
    AX_TRY_GOTO(check_set(&doc, description), st, done);
    AX_TRY_GOTO(read_counts(body, out), st, done);
    AX_TRY_GOTO(read_info(ax_json_get(body, "info"), &out->info), st, done);
    AX_TRY_GOTO(map_checked(&out->list_map, path, "examples.bin", body), st, done);
    AX_TRY_GOTO(map_checked(&out->words_map, path, "words.bin", body), st, done);
    st = attach_words(out, path);
done:
    ax_json_free(&doc);
    return st;
}

enum ax_status ax_cache_load(struct ax_examples *out, const char *path, const json_t *description,
                             const struct ax_columns *columns, bool *found) {
    *out = (struct ax_examples){.columns = columns, .info.from_cache = true};
    char *set_path;
    AX_TRY(ax_path_join(&set_path, path, "set.json"));
    enum ax_status st = ax_folder_recover(path);
    *found = st == AX_OK && ax_path_exists(set_path);
    if (*found)
        st = load_set(out, path, set_path, description);
    ax_free(set_path);
    if (st != AX_OK) {
        *found = false;
        ax_examples_free(out);
    }
    return st;
}

/* ---- writing a set ---- */

enum ax_status ax_cache_path(char **out, const char *cache, const json_t *description) {
    char *text = json_dumps(description, JSON_COMPACT | JSON_SORT_KEYS);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for the key of a cache");
    const size_t n = strlen(text);
    const uint64_t high = ax_hash64(text, n, AX_CACHE_FORMAT);
    const uint64_t low = ax_hash64(text, n, high);
    ax_free(text);
    return ax_sprintf(out, "%s/%016llx%016llx", cache, (unsigned long long)high,
                      (unsigned long long)low);
}

static enum ax_status create_in_set(struct ax_file *f, const char *folder, const char *name) {
    char *path;
    AX_TRY(ax_path_join(&path, folder, name));
    const enum ax_status st = ax_file_create(f, path);
    ax_free(path);
    return st;
}

enum ax_status ax_cache_begin(struct ax_cache_writer *w, const char *path) {
    *w = (struct ax_cache_writer){0};
    AX_TRY(ax_folder_begin(&w->folder, path));
    const enum ax_status st = create_in_set(&w->words, w->folder.tmp, "words.bin");
    if (st != AX_OK)
        ax_cache_abort(w);
    return st;
}

static enum ax_status write_words(struct ax_cache_writer *w, const uint32_t *words, size_t n) {
    w->words_crc = ax_crc32c(w->words_crc, words, n * sizeof *words);
    return ax_file_write(&w->words, words, n * sizeof *words);
}

/* Writes all blocks but the last, which may still grow. */
enum ax_status ax_cache_flush(struct ax_cache_writer *w, struct ax_examples *set) {
    for (; w->flushed + 1 < set->n_blocks; w->flushed++) {
        AX_TRY(write_words(w, set->blocks[w->flushed], AX_EXAMPLES_BLOCK));
        ax_free((void *)(uintptr_t)set->blocks[w->flushed]);
        set->blocks[w->flushed] = NULL;
    }
    return AX_OK;
}

static json_t *list_texts(char *const *texts, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n && i < AX_BAD_RECORDS_LISTED; i++)
        json_array_append_new(list, ax_json_repaired(texts[i]));
    return list;
}

static json_t *list_files(const struct ax_examples *set) {
    json_t *list = json_array();
    for (size_t i = 0; i < set->n_files; i++)
        json_array_append_new(list, ax_json_repaired(set->files[i]));
    return list;
}

static json_t *file_entry(uint64_t size, uint32_t crc) {
    return json_pack("{s:I, s:I}", "size", (json_int_t)size, "crc32c", (json_int_t)crc);
}

static json_t *list_oddities(const struct ax_examples_info *info) {
    json_t *list = json_array();
    for (int i = 0; i < AX_ODDITIES; i++) {
        const struct ax_oddities *o = &info->oddities[i];
        json_array_append_new(list, json_pack("[I, I, I]", (json_int_t)o->n, (json_int_t)o->file,
                                              (json_int_t)o->line));
    }
    return list;
}

static json_t *make_body(const struct ax_cache_writer *w, const struct ax_examples *set,
                         const json_t *description) {
    const struct ax_examples_info *i = &set->info;
    const size_t list_bytes = set->n * sizeof *set->list;
    json_t *info = json_pack(
        "{s:I, s:o, s:I, s:o, s:o, s:I, s:I, s:I}", "empty_rows", (json_int_t)i->bad.n_empty,
        "empty_rows_listed", list_texts(&i->bad.first_empty, i->bad.n_empty > 0), "bad_rows",
        (json_int_t)i->bad.n, "bad_rows_listed", list_texts(i->bad.texts, i->bad.n), "oddities",
        list_oddities(i), "ends", (json_int_t)i->ends, "ends_trained", (json_int_t)i->ends_trained,
        "double_bos", (json_int_t)i->double_bos);
    return json_pack("{s:O, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "description",
                     description, "examples", (json_int_t)set->n, "words", (json_int_t)set->n_words,
                     "tokens", (json_int_t)set->n_tokens, "trained", (json_int_t)set->n_trained,
                     "longest", (json_int_t)set->longest, "sources", list_files(set), "info", info,
                     "words.bin", file_entry(set->n_words * sizeof(uint32_t), w->words_crc),
                     "examples.bin", file_entry(list_bytes, ax_crc32c(0, set->list, list_bytes)));
}

static enum ax_status write_in_set(const char *folder, const char *name, const void *data,
                                   size_t n) {
    struct ax_file f;
    AX_TRY(create_in_set(&f, folder, name));
    enum ax_status st;
    AX_TRY_GOTO(ax_file_write(&f, data, n), st, fail);
    AX_TRY_GOTO(ax_file_sync(&f), st, fail);
    return ax_file_close(&f);
fail:
    (void)ax_file_close(&f);
    return st;
}

/* set.json: {"body": …, "crc32c": that of the body as compact text with sorted keys}. */
static enum ax_status write_set(const struct ax_cache_writer *w, json_t *body) {
    enum ax_status st = AX_OK;
    json_t *doc = NULL;
    char *text = NULL;
    char *compact = body ? json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (compact)
        doc = json_pack("{s:O, s:I}", "body", body, "crc32c",
                        (json_int_t)ax_crc32c(0, compact, strlen(compact)));
    if (doc)
        text = json_dumps(doc, JSON_INDENT(1));
    if (text)
        st = write_in_set(w->folder.tmp, "set.json", text, strlen(text));
    else
        st = ax_error(AX_ERR_NOMEM, "out of memory for the description of a cache");
    ax_free(compact);
    ax_free(text);
    json_decref(doc);
    return st;
}

enum ax_status ax_cache_commit(struct ax_cache_writer *w, const struct ax_examples *set,
                               const json_t *description) {
    for (; w->flushed < set->n_blocks; w->flushed++) {
        const uint64_t left = set->n_words - (uint64_t)w->flushed * AX_EXAMPLES_BLOCK;
        AX_TRY(write_words(w, set->blocks[w->flushed],
                           left < AX_EXAMPLES_BLOCK ? (size_t)left : AX_EXAMPLES_BLOCK));
    }
    AX_TRY(ax_file_sync(&w->words));
    AX_TRY(ax_file_close(&w->words));
    AX_TRY(write_in_set(w->folder.tmp, "examples.bin", set->list, set->n * sizeof *set->list));
    json_t *body = make_body(w, set, description);
    const enum ax_status st = write_set(w, body);
    json_decref(body);
    AX_TRY(st);
    return ax_folder_commit(&w->folder);
}

void ax_cache_abort(struct ax_cache_writer *w) {
    if (w->words.path)
        (void)ax_file_close(&w->words); /* the folder is removed anyway */
    ax_folder_abort(&w->folder);
}

/* ---- statistics of an example ---- */

static void look_at(struct ax_examples_info *info, const struct ax_prepared_options *o,
                    const struct ax_example *x) {
    for (size_t i = 0; i < x->n; i++) {
        const bool trained = x->labels[i] != AX_NO_LABEL;
        if (ax_format_is_end(o->format, x->tokens[i])) {
            info->ends++;
            info->ends_trained += trained;
        }
    }
    ax_oddities_count(info->oddities, x->oddities, &x->origin);
    info->double_bos +=
        o->bos != AX_NO_TOKEN && x->n > 1 && x->tokens[0] == o->bos && x->tokens[1] == o->bos;
}

/* ---- making a set ---- */

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

/* ---- loading or making it ---- */

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
