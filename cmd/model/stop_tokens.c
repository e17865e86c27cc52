#include "cmd/model/stop_tokens.h"

#include "base/io.h"
#include "base/json.h"

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

static enum ax_status read_file(struct ax_stop_tokens *s, const char *dir, const char *name) {
    struct ax_json_doc doc = {0};
    char *path;
    AX_TRY(ax_path_join(&path, dir, name));
    enum ax_status st = AX_OK;
    if (ax_path_exists(path) && (st = ax_json_load(&doc, path, MAX_CONFIG)) == AX_OK)
        st = add_all(s, ax_json_get(ax_json_root(&doc), "eos_token_id"));
    ax_json_free(&doc);
    ax_free(path);
    return st;
}

enum ax_status ax_stop_tokens_read(struct ax_stop_tokens *out, const char *dir, int32_t eos) {
    *out = (struct ax_stop_tokens){0};
    AX_TRY(read_file(out, dir, "generation_config.json"));
    AX_TRY(read_file(out, dir, "config.json"));
    for (int i = 0; i < out->n; i++)
        if (out->ids[i] == eos)
            return AX_OK;
    if (eos >= 0 && out->n < AX_MAX_STOP_TOKENS)
        out->ids[out->n++] = eos;
    return AX_OK;
}
