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

enum ax_status ax_gguf_put_layers(const struct ax_gguf_model *m, struct ax_gguf_keys *keys,
                                  const char *suffix,
                                  int64_t (*of)(const struct ax_gguf_model *m, int64_t layer)) {
    char key[96];
    AX_TRY(ax_gguf_put_array(keys, key_of(m, suffix, key), AX_GGUF_I32, (uint64_t)m->layers));
    for (int64_t i = 0; i < m->layers; i++)
        AX_TRY(ax_gguf_add_i32(keys, (int32_t)of(m, i)));
    return AX_OK;
}
