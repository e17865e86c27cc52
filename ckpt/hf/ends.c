#include "ckpt/hf/ends.h"

#include "base/io.h"
#include "base/text/json.h"

#define MAX_CONFIG ((size_t)16 << 20)

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for eos_token_id");
}

enum ax_status ax_hf_align_eos(json_t *v, const int32_t *eos, bool keep) {
    static const char key[] = "eos_token_id";
    const json_t *was = json_object_get(v, key), *one;
    size_t i;
    if (!eos || *eos < 0 || (json_is_integer(was) && json_integer_value(was) == *eos))
        return AX_OK;
    json_array_foreach(was, i, one) if (json_integer_value(one) == *eos) return AX_OK;
    json_t *now = json_integer(*eos);
    if (json_is_array(was) || (keep && json_is_integer(was))) {
        json_t *list = json_pack("[o]", now);
        const bool ok =
            list && (json_is_array(was) ? json_array_extend(list, (json_t *)(uintptr_t)was)
                                        : json_array_append(list, (json_t *)(uintptr_t)was)) == 0;
        if (!ok) {
            json_decref(list);
            return no_memory();
        }
        now = list;
    }
    return json_object_set_new(v, key, now) == 0 ? AX_OK : no_memory();
}

enum ax_status ax_hf_aligned_generation_config(json_t **out, const char *dir, const int32_t *eos) {
    struct ax_json_doc doc = {0};
    json_t *was = NULL;
    char *path;
    *out = NULL;
    AX_TRY(ax_path_join(&path, dir, AX_GENERATION_CONFIG));
    enum ax_status st = AX_OK;
    if (!eos || !ax_path_exists(path))
        goto done;
    AX_TRY_GOTO(ax_json_load(&doc, path, MAX_CONFIG), st, done);
    if (!(was = json_deep_copy(doc.root)))
        AX_TRY_GOTO(no_memory(), st, done);
    AX_TRY_GOTO(ax_hf_align_eos(doc.root, eos, true), st, done);
    if (!json_equal(was, doc.root))
        *out = json_incref(doc.root);
done:
    json_decref(was);
    ax_json_free(&doc);
    ax_free(path);
    return st;
}
