#include "ckpt/gguf/lists.h"

#include <stdio.h>

#include "base/mem.h"

static const char *key_of(const struct ax_gguf_model *m, const char *suffix, char buf[96]) {
    snprintf(buf, 96, "%s.%s", m->kind->arch, suffix);
    return buf;
}

enum ax_status ax_gguf_layer_list(const struct ax_gguf_model *m, const char *suffix, int64_t max,
                                  int32_t **at) {
    char key[96];
    size_t n = 0;
    int64_t all;
    const struct ax_gguf_key *k = ax_gguf_key(m->file, key_of(m, suffix, key));
    if (k && k->is_array) {
        AX_TRY(ax_gguf_i32s(m->file, key, at, &n));
        if ((int64_t)n != m->layers)
            return ax_error(AX_ERR_DATA, "%s: key %s: %zu entries for %lld layers", m->file->path,
                            key, n, (long long)m->layers);
    } else {
        AX_TRY(ax_gguf_i64(m->file, key, 0, max, &all));
        AX_TRY(ax_alloc(at, (size_t)m->layers, sizeof **at));
        for (int64_t i = 0; i < m->layers; i++)
            (*at)[i] = (int32_t)all;
    }
    for (int64_t i = 0; i < m->layers; i++)
        if ((*at)[i] < 0 || (*at)[i] > max)
            return ax_error(AX_ERR_DATA, "%s: key %s: entry %lld is %d", m->file->path, key,
                            (long long)i, (*at)[i]);
    return AX_OK;
}

enum ax_status ax_gguf_read_windows(struct ax_gguf_model *m) {
    int32_t *list = NULL;
    const enum ax_status st = ax_gguf_layer_list(m, AX_GGUF_WINDOWS, 1, &list);
    for (int64_t i = 0; i < m->layers && st == AX_OK; i++)
        if (list[i])
            ax_gguf_set_slides(m, i);
    ax_free(list);
    return st;
}

enum ax_status ax_gguf_put_windows(const struct ax_gguf_model *m, struct ax_gguf_keys *keys) {
    char key[96];
    AX_TRY(ax_gguf_put_array(keys, key_of(m, AX_GGUF_WINDOWS, key), AX_GGUF_BOOL,
                             (uint64_t)m->layers));
    for (int64_t i = 0; i < m->layers; i++)
        AX_TRY(ax_gguf_add_bool(keys, ax_gguf_slides(m, i)));
    return AX_OK;
}

bool ax_gguf_window_types(const struct ax_gguf_model *m, json_t *config) {
    json_t *types = json_array();
    bool ok = types != NULL;
    for (int64_t i = 0; i < m->layers; i++) {
        json_t *type = json_string(ax_gguf_slides(m, i) ? "sliding_attention" : "full_attention");
        ok = ok && json_array_append_new(types, type) == 0;
    }
    return json_object_set_new(config, "layer_types", types) == 0 && ok;
}

enum ax_status ax_gguf_put_layers(const struct ax_gguf_model *m, struct ax_gguf_keys *keys,
                                  const char *suffix,
                                  int64_t (*of)(const struct ax_gguf_model *m, int64_t layer)) {
    char key[96];
    AX_TRY(ax_gguf_put_array(keys, key_of(m, suffix, key), AX_GGUF_I32, (uint64_t)m->layers));
    for (int64_t i = 0; i < m->layers; i++)
        AX_TRY(ax_gguf_add_i32(keys, (int32_t)of(m, i)));
    return AX_OK;
}
