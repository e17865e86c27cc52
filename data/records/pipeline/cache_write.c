#include <string.h>

#include "base/hash/hash.h"
#include "data/records/pipeline/cache.h"

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

static enum ax_status create(struct ax_file *f, const char *folder, const char *name) {
    char *path;
    AX_TRY(ax_path_join(&path, folder, name));
    const enum ax_status st = ax_file_create(f, path);
    ax_free(path);
    return st;
}

enum ax_status ax_cache_begin(struct ax_cache_writer *w, const char *path) {
    *w = (struct ax_cache_writer){0};
    AX_TRY(ax_folder_begin(&w->folder, path));
    const enum ax_status st = create(&w->words, w->folder.tmp, "words.bin");
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
        json_array_append_new(list, json_string(texts[i]));
    return list;
}

static json_t *list_files(const struct ax_examples *set) {
    json_t *list = json_array();
    for (size_t i = 0; i < set->n_files; i++)
        json_array_append_new(list, json_string(set->files[i]));
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

static enum ax_status write_all(const char *folder, const char *name, const void *data, size_t n) {
    struct ax_file f;
    AX_TRY(create(&f, folder, name));
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
        st = write_all(w->folder.tmp, "set.json", text, strlen(text));
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
    AX_TRY(write_all(w->folder.tmp, "examples.bin", set->list, set->n * sizeof *set->list));
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
