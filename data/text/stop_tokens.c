#include "data/text/stop_tokens.h"

#include "base/io.h"
#include "base/text/json.h"
#include "ckpt/hf/config.h"

#define MAX_CONFIG ((size_t)16 << 20)

static enum ax_status add(struct ax_stop_tokens *s, struct ax_json v) {
    int64_t id;
    AX_TRY(ax_json_i64(v, 0, INT32_MAX, &id));
    for (int i = 0; i < s->n; i++)
        if (s->ids[i] == (int32_t)id)
            return AX_OK;
    if (s->n == AX_MAX_STOP_TOKENS)
        return ax_json_error(v, "more than %d stop tokens", AX_MAX_STOP_TOKENS);
    s->ids[s->n++] = (int32_t)id;
    return AX_OK;
}

static enum ax_status add_all(struct ax_stop_tokens *s, struct ax_json eos) {
    if (!eos.v)
        return AX_OK;
    if (!json_is_array(eos.v))
        return add(s, eos);
    for (size_t i = 0; i < ax_json_size(eos); i++)
        AX_TRY(add(s, ax_json_at(eos, i)));
    return AX_OK;
}

static enum ax_status read_generation(struct ax_json_doc *doc, const char *dir) {
    char *path;
    AX_TRY(ax_path_join(&path, dir, "generation_config.json"));
    const enum ax_status st = ax_path_exists(path) ? ax_json_load(doc, path, MAX_CONFIG) : AX_OK;
    ax_free(path);
    return st;
}

static enum ax_status add_from(struct ax_stop_tokens *s, const char *dir,
                               enum ax_status (*load)(struct ax_json_doc *doc, const char *dir)) {
    struct ax_json_doc doc = {0};
    enum ax_status st = load(&doc, dir);
    if (st == AX_OK && doc.root)
        st = add_all(s, ax_json_get(ax_json_root(&doc), "eos_token_id"));
    ax_json_free(&doc);
    return st;
}

enum ax_status ax_stop_tokens_read(struct ax_stop_tokens *out, const char *dir, int32_t eos) {
    *out = (struct ax_stop_tokens){0};
    AX_TRY(add_from(out, dir, read_generation));
    AX_TRY(add_from(out, dir, ax_hf_config_load));
    if (eos >= 0)
        ax_stop_tokens_add(out, &eos, 1);
    return AX_OK;
}

enum ax_status ax_stop_tokens_add_folder(struct ax_stop_tokens *s, const char *dir) {
    return add_from(s, dir, read_generation);
}

static bool has(const struct ax_stop_tokens *s, int32_t id) {
    for (int i = 0; i < s->n; i++)
        if (s->ids[i] == id)
            return true;
    return false;
}

void ax_stop_tokens_add(struct ax_stop_tokens *s, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s->n < AX_MAX_STOP_TOKENS && !has(s, ids[i]))
            s->ids[s->n++] = ids[i];
}
