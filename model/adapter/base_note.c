#include "model/adapter/base_note.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/io.h"
#include "base/text/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/adapter/vocabulary_note.h"

#define FIRST    64 /* values of a tensor */
#define MAX_NOTE (1u << 20)

/* The same for every division into files, and for every dtype that has the values. */
static enum ax_status checksum(const struct ax_hf *hf, uint64_t *out) {
    *out = 0;
    for (int i = 0; i < ax_hf_count(hf); i++) {
        const struct ax_st_entry *e = ax_hf_at(hf, i);
        const int64_t n = e->numel < FIRST ? e->numel : FIRST;
        float values[FIRST];
        if (!ax_dtype_info(e->dtype)->is_float)
            continue;
        AX_TRY(ax_st_read(e, 0, n, AX_F32, values));
        *out ^=
            ax_hash64(values, (size_t)n * sizeof *values, ax_hash64(e->name, strlen(e->name), 0));
    }
    return AX_OK;
}

enum ax_status ax_base_note_text(const struct ax_hf *hf, const char *name, char **out) {
    uint64_t sum;
    char hex[32], *text;
    size_t len;
    AX_TRY(checksum(hf, &sum));
    snprintf(hex, sizeof hex, "%016" PRIx64, sum);
    json_t *v = json_pack("{ss ss}", "base", name, "values", hex);
    if (!v)
        return ax_error(AX_ERR_NOMEM, "out of memory for %s", AX_BASE_NOTE);
    enum ax_status st = ax_json_dump(v, &text, &len);
    json_decref(v);
    AX_TRY(st);
    st = ax_sprintf(out, "%s\n", text);
    ax_free(text);
    return st;
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* *known: the base has the note's values. */
static enum ax_status compare(const struct ax_hf *base, const char *dir, struct ax_json note,
                              bool *known) {
    const char *values, *name, *wish = getenv("AXTRAIN_BASE");
    char own[32];
    uint64_t sum;
    AX_TRY(ax_json_str(ax_json_get(note, "values"), &values));
    AX_TRY(ax_json_str_or(ax_json_get(note, "base"), "another model", &name));
    if (base->gguf || base->mxfp4 || base->compressed)
        return AX_OK;
    AX_TRY(checksum(base, &sum));
    snprintf(own, sizeof own, "%016" PRIx64, sum);
    *known = strcmp(own, values) == 0;
    if (*known || (wish && strcmp(wish, "any") == 0))
        return AX_OK;
    return ax_error(
        AX_ERR_CONFIG,
        "%s: the adapter was trained on %s, whose weights are others than those of %s; give "
        "that base, or insist with AXTRAIN_BASE=any in the environment",
        dir, name, base->dir);
}

/* Of an open base, or of the folder `base_dir`. */
static enum ax_status check_note(const struct ax_hf *base, const char *base_dir, const char *path,
                                 const char *dir, bool *known) {
    struct ax_json_doc doc;
    struct ax_hf own = {0};
    AX_TRY(ax_json_load(&doc, path, MAX_NOTE));
    enum ax_status st = base ? AX_OK : ax_hf_open(&own, base_dir);
    if (st == AX_OK)
        st = compare(base ? base : &own, dir, ax_json_root(&doc), known);
    ax_json_free(&doc);
    ax_hf_close(&own);
    return st;
}

enum ax_status ax_base_note_resumes(const struct ax_hf *base, const char *dir) {
    bool known;
    char *path;
    AX_TRY(ax_path_join(&path, dir, AX_BASE_NOTE));
    const enum ax_status st =
        ax_path_exists(path) ? check_note(base, NULL, path, dir, &known) : AX_OK;
    ax_free(path);
    return st;
}

enum ax_status ax_base_note_check(const char *base, const struct ax_peft *peft) {
    bool known = false;
    char *path;
    AX_TRY(ax_path_join(&path, peft->dir, AX_BASE_NOTE));
    enum ax_status st = AX_OK;
    if (ax_path_exists(path)) {
        st = check_note(NULL, base, path, peft->dir, &known);
    } else if (peft->config.base && !strstr(base, last_part(peft->config.base))) {
        /* a folder of the hub's cache has the name in the middle */
        ax_log_warn("%s: the adapter's config says that its base is %s, which %s may not be",
                    peft->dir, peft->config.base, base);
    }
    ax_free(path);
    return st == AX_OK && !known ? ax_vocabulary_note_check(base, peft) : st;
}
