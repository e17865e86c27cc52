#include "ckpt/hf/merge_note.h"

#include <string.h>

#include "base/hash/hash.h"

#define MAX_NOTE (1u << 20)

/* SHA-256 of the adapter's weights. */
static void hash(const struct ax_peft *peft, char out[65]) {
    struct ax_sha256 sha;
    unsigned char digest[32];
    ax_sha256_init(&sha);
    ax_sha256_update(&sha, peft->weights.map.data, peft->weights.map.len);
    ax_sha256_final(&sha, digest);
    ax_hex(out, digest, sizeof digest);
}

enum ax_status ax_merge_note_write(const char *dir, const char *base, const char *adapter,
                                   const struct ax_peft *peft) {
    char own[65], *path = NULL, *text = NULL;
    size_t len;
    hash(peft, own);
    json_t *v = json_pack("{ss ss ss ss}", "adapter", adapter, "adapter_sha256", own, "base", base,
                          "arithmetic", "float64, rounded once");
    enum ax_status st;
    if (!v)
        return ax_error(AX_ERR_NOMEM, "out of memory for %s", AX_MERGE_NOTE);
    AX_TRY_GOTO(ax_json_dump(v, &text, &len), st, done);
    AX_TRY_GOTO(ax_path_join(&path, dir, AX_MERGE_NOTE), st, done);
    st = ax_write_file_atomic(path, text, len);
done:
    ax_free(path);
    ax_free(text);
    json_decref(v);
    return st;
}

enum ax_status ax_merge_note_check(const char *base, const struct ax_peft *peft) {
    char own[65], *path;
    struct ax_json_doc doc = {0};
    const char *said;
    AX_TRY(ax_path_join(&path, base, AX_MERGE_NOTE));
    enum ax_status st = AX_OK;
    if (!ax_path_exists(path))
        goto done;
    AX_TRY_GOTO(ax_json_load(&doc, path, MAX_NOTE), st, done);
    AX_TRY_GOTO(ax_json_str(ax_json_get(ax_json_root(&doc), "adapter_sha256"), &said), st, done);
    hash(peft, own);
    if (strcmp(said, own) == 0)
        st = ax_error(AX_ERR_CONFIG,
                      "%s: adapter %s is already merged into it (according to %s). Give the base "
                      "model that it was trained on, or omit the adapter.",
                      base, peft->dir, AX_MERGE_NOTE);
done:
    ax_json_free(&doc);
    ax_free(path);
    return st;
}
