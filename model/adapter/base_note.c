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

#define PAD      "pad_token_id"
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

enum ax_status ax_base_values(const struct ax_hf *hf, char out[AX_BASE_VALUES]) {
    uint64_t sum;
    AX_TRY(checksum(hf, &sum));
    snprintf(out, AX_BASE_VALUES, "%016" PRIx64, sum);
    return AX_OK;
}

enum ax_status ax_base_note_text(const struct ax_hf *hf, const char *name, int32_t score_pad,
                                 char **out) {
    char hex[AX_BASE_VALUES], *text;
    size_t len;
    AX_TRY(ax_base_values(hf, hex));
    json_t *v = json_pack("{ss ss so*}", "base", name, "values", hex, PAD,
                          score_pad < 0 ? NULL : json_integer(score_pad));
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
static enum ax_status compare(const char *base, const struct ax_peft *peft, struct ax_json note,
                              bool *known) {
    const char *values, *name, *wish = getenv("AXTRAIN_BASE");
    struct ax_hf hf;
    char own[AX_BASE_VALUES];
    AX_TRY(ax_json_str(ax_json_get(note, "values"), &values));
    AX_TRY(ax_json_str_or(ax_json_get(note, "base"), "another model", &name));
    AX_TRY(ax_hf_open(&hf, base));
    const bool rounded = hf.gguf || hf.mxfp4 || hf.compressed;
    const enum ax_status st = rounded ? AX_OK : ax_base_values(&hf, own);
    ax_hf_close(&hf);
    AX_TRY(st);
    if (rounded)
        return AX_OK;
    *known = strcmp(own, values) == 0;
    if (*known || (wish && strcmp(wish, "any") == 0))
        return AX_OK;
    return ax_error(
        AX_ERR_CONFIG,
        "%s: the adapter was trained on %s, whose weights are others than those of %s; give "
        "that base, or insist with AXTRAIN_BASE=any in the environment",
        peft->dir, name, base);
}

/* *note stays empty without one. */
static enum ax_status load(struct ax_json_doc *note, const struct ax_peft *peft) {
    char *path;
    AX_TRY(ax_path_join(&path, peft->dir, AX_BASE_NOTE));
    const enum ax_status st = ax_path_exists(path) ? ax_json_load(note, path, MAX_NOTE) : AX_OK;
    ax_free(path);
    return st;
}

enum ax_status ax_base_note_score_pad(const struct ax_peft *peft, int32_t *score_pad) {
    struct ax_json_doc doc = {0};
    AX_TRY(load(&doc, peft));
    const struct ax_json v = doc.root ? ax_json_get(ax_json_root(&doc), PAD) : (struct ax_json){0};
    int64_t id = *score_pad;
    const enum ax_status st = v.v ? ax_json_i64(v, 0, INT32_MAX, &id) : AX_OK;
    *score_pad = (int32_t)id;
    ax_json_free(&doc);
    return st;
}

enum ax_status ax_base_note_check(const char *base, const struct ax_peft *peft) {
    struct ax_json_doc doc = {0};
    bool known = false;
    AX_TRY(load(&doc, peft));
    enum ax_status st = AX_OK;
    if (doc.root) {
        st = compare(base, peft, ax_json_root(&doc), &known);
    } else if (peft->config.base && !strstr(base, last_part(peft->config.base))) {
        /* a folder of the hub's cache has the name in the middle */
        ax_log_warn("%s: the adapter's config says that its base is %s, which %s may not be",
                    peft->dir, peft->config.base, base);
    }
    ax_json_free(&doc);
    return st == AX_OK && !known ? ax_vocabulary_note_check(base, peft) : st;
}
