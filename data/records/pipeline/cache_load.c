/* Read ax_cache_load first: set.json, then the bytes of both files, then their consistency. */
#include <string.h>

#include "base/hash/hash.h"
#include "base/text/json.h"
#include "data/records/pipeline/cache.h"

#define MAX_SET_JSON ((size_t)64 << 20)
#define PIECE        ((size_t)1 << 20)

static enum ax_status damaged(const char *path, const char *what) {
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
        st = damaged(path, "the checksum does not match");
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
        st = damaged(path, "it changed while it was read");
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
        return damaged(doc->name, "the checksum does not match");
    if (!json_equal(json_object_get(body.v, "description"), description))
        return damaged(doc->name, "it describes another data set");
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
            return damaged(folder, "an example is outside the file");
    }
    return AX_OK;
}

static enum ax_status attach(struct ax_examples *e, const char *folder) {
    if (e->list_map.len != e->n * sizeof *e->list ||
        e->words_map.len != e->n_words * sizeof(uint32_t))
        return damaged(folder, "the files do not match each other");
    e->list = (struct ax_stored *)(uintptr_t)e->list_map.data;
    e->n_blocks = (size_t)((e->n_words + AX_EXAMPLES_BLOCK - 1) / AX_EXAMPLES_BLOCK);
    AX_TRY(ax_alloc(&e->blocks, e->n_blocks, sizeof *e->blocks));
    for (size_t i = 0; i < e->n_blocks; i++)
        e->blocks[i] = (const uint32_t *)(const void *)e->words_map.data + i * AX_EXAMPLES_BLOCK;
    return check_list(e, folder);
}

static enum ax_status load(struct ax_examples *out, const char *path, const char *set_path,
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
    st = attach(out, path);
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
        st = load(out, path, set_path, description);
    ax_free(set_path);
    if (st != AX_OK) {
        *found = false;
        ax_examples_free(out);
    }
    return st;
}
