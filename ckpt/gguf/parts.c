#include "ckpt/gguf/parts.h"

#include "base/mem.h"
#include "ckpt/gguf/lists.h"

#define MAX_HEADS 65536
#define MAX_WIDTH (1LL << 24)

static const char heads_key[] = "attention.head_count_kv", widths_key[] = "feed_forward_length";

/* The number of all layers that have any; an entry of 0 is none. */
static enum ax_status take(const struct ax_gguf_model *m, const char *key, int64_t layer, int32_t n,
                           int64_t *all) {
    if (n != 0 && *all > 0 && n != *all)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: key %s.%s: %d in layer %lld, %lld in an earlier one, is not supported",
                        m->file->path, m->kind->arch, key, n, (long long)layer, (long long)*all);
    *all = n != 0 ? n : *all;
    return AX_OK;
}

static enum ax_status set_parts(struct ax_gguf_model *m, const int32_t *heads,
                                const int32_t *widths) {
    for (int64_t i = 0; i < m->layers - m->unused_layers; i++) {
        if (heads[i] > 0 && widths[i] > 0)
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: keys %s.%s and %s: layer %lld has attention and an MLP; layers of "
                            "one part are supported",
                            m->file->path, m->kind->arch, heads_key, widths_key, (long long)i);
        AX_TRY(take(m, heads_key, i, heads[i], &m->kv_heads));
        AX_TRY(take(m, widths_key, i, widths[i], &m->ffn));
        if (widths[i] > 0)
            ax_gguf_set_ffn(m, i);
        else if (heads[i] == 0)
            ax_gguf_set_state(m, i);
    }
    m->kv_heads = m->kv_heads > 0 ? m->kv_heads : m->heads; /* of no layer */
    m->ffn = m->ffn > 0 ? m->ffn : m->hidden;
    return AX_OK;
}

enum ax_status ax_gguf_parts_read(struct ax_gguf_model *m) {
    int32_t *heads = NULL, *widths = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_gguf_layer_list(m, heads_key, MAX_HEADS, &heads), st, done);
    AX_TRY_GOTO(ax_gguf_layer_list(m, widths_key, MAX_WIDTH, &widths), st, done);
    st = set_parts(m, heads, widths);
done:
    ax_free(heads);
    ax_free(widths);
    return st;
}

/* The letters that both versions of transformers read. */
bool ax_gguf_parts_config(const struct ax_gguf_model *m, json_t *config) {
    char letters[AX_GGUF_MAX_LAYERS + 1];
    for (int64_t i = 0; i < m->layers; i++)
        letters[i] = ax_gguf_has_state(m, i) ? 'M'
                     : !ax_gguf_is_ffn(m, i) ? '*'
                     : m->experts > 0        ? 'E'
                                             : '-';
    return json_object_set_new(config, "hybrid_override_pattern",
                               json_stringn(letters, (size_t)m->layers)) == 0;
}

static int64_t heads_of(const struct ax_gguf_model *m, int64_t layer) {
    return ax_gguf_has_state(m, layer) || ax_gguf_is_ffn(m, layer) ? 0 : m->kv_heads;
}

static int64_t width_of(const struct ax_gguf_model *m, int64_t layer) {
    return !ax_gguf_is_ffn(m, layer) ? 0 : m->experts > 0 ? m->expert_ffn : m->ffn;
}

enum ax_status ax_gguf_parts_put(const struct ax_gguf_model *m, struct ax_gguf_keys *keys) {
    AX_TRY(ax_gguf_put_layers(m, keys, heads_key, heads_of));
    return ax_gguf_put_layers(m, keys, widths_key, width_of);
}
