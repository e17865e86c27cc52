#include "ckpt/gguf/mixed.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/gguf/lists.h"
#include "ckpt/gguf/rope.h"

#define MAX_DIM  (1LL << 24)
#define MAX_HEAD 2048

static const char *key_of(const struct ax_gguf_model *m, const char *suffix, char buf[96]) {
    snprintf(buf, 96, "%s.%s", m->kind->arch, suffix);
    return buf;
}

/* ---- from a file ---- */

static enum ax_status differs(const struct ax_gguf_model *m, const char *suffix, int64_t layer,
                              int32_t got, int64_t other) {
    char key[96];
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s: key %s: %d in layer %lld, %lld in others like it, is not supported",
                    m->file->path, key_of(m, suffix, key), got, (long long)layer, (long long)other);
}

/* Every entry is that of its kind of layers, which is set by the first one. */
static enum ax_status settle(const struct ax_gguf_model *m, const char *suffix, const int32_t *list,
                             bool (*is_second)(const struct ax_gguf_model *m, int64_t layer),
                             int64_t *first, int64_t *second) {
    *first = *second = 0;
    for (int64_t i = 0; i < m->layers; i++) {
        int64_t *of = is_second(m, i) ? second : first;
        if (list[i] < 1 || (*of > 0 && *of != list[i]))
            return differs(m, suffix, i, list[i], *of);
        *of = list[i];
    }
    *first = *first > 0 ? *first : *second;
    *second = *second > 0 ? *second : *first;
    return AX_OK;
}

static enum ax_status read_lists(struct ax_gguf_model *m) {
    static const char heads[] = "attention.head_count_kv", widths[] = "feed_forward_length";
    int32_t *list = NULL;
    enum ax_status st;
    AX_TRY(ax_gguf_read_windows(m));
    AX_TRY_GOTO(ax_gguf_layer_list(m, heads, 65536, &list), st, done);
    AX_TRY_GOTO(settle(m, heads, list, ax_gguf_is_full, &m->kv_heads, &m->mixed.kv_heads), st,
                done);
    ax_free(list);
    list = NULL;
    AX_TRY_GOTO(ax_gguf_layer_list(m, widths, MAX_DIM, &list), st, done);
    st = settle(m, widths, list, ax_gguf_borrows, &m->ffn, &m->mixed.wide_ffn);
done:
    ax_free(list);
    return st;
}

static enum ax_status read_length(const struct ax_gguf_model *m, const char *what, const char *kind,
                                  int64_t *out) {
    char suffix[64], key[96];
    int64_t others;
    static const char *const same[] = {"attention.value_length", "rope.dimension_count"};
    snprintf(suffix, sizeof suffix, "%s%s", what, kind);
    AX_TRY(ax_gguf_i64(m->file, key_of(m, suffix, key), 2, MAX_HEAD, out));
    for (size_t i = 0; i < 2; i++) {
        snprintf(suffix, sizeof suffix, "%s%s", same[i], kind);
        AX_TRY(ax_gguf_i64_or(m->file, key_of(m, suffix, key), 1, MAX_HEAD, *out, &others));
        if (others != *out)
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: key %s: %lld, of keys of %lld elements, is not supported",
                            m->file->path, key, (long long)others, (long long)*out);
    }
    return *out % 2 == 0 ? AX_OK
                         : ax_error(AX_ERR_DATA, "%s: heads of %lld elements", m->file->path,
                                    (long long)*out);
}

/* The pairs that turn have divisor 1, the others one that stops them. */
static enum ax_status read_turning(struct ax_gguf_model *m) {
    static const double still = 1e20;
    float divisors[MAX_HEAD / 2];
    const int64_t pairs = m->mixed.head_dim / 2;
    const struct ax_gguf_tensor *t = ax_gguf_tensor(m->file, AX_GGUF_ROPE_FACTORS);
    int64_t n = 0;
    if (!t || !t->type->dequantize || t->type->elements != 1 || t->numel != pairs)
        return ax_error(AX_ERR_DATA,
                        "%s: tensor %s: expected %lld floats, one per rotary frequency of full "
                        "layers",
                        m->file->path, AX_GGUF_ROPE_FACTORS, (long long)pairs);
    t->type->dequantize(t->data, pairs, divisors);
    while (n < pairs && divisors[n] == 1)
        n++;
    for (int64_t i = n; i < pairs; i++)
        if (!((double)divisors[i] > still))
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: tensor %s: a divisor of %g is not supported (1, and then 1e30)",
                            m->file->path, AX_GGUF_ROPE_FACTORS, (double)divisors[i]);
    m->mixed.rotary_part = (double)n / (double)pairs;
    return AX_OK;
}

static bool has_values(const struct ax_gguf_model *m, int64_t layer) {
    char name[96];
    snprintf(name, sizeof name, "blk.%lld.attn_v.weight", (long long)layer);
    return ax_gguf_tensor(m->file, name) != NULL;
}

enum ax_status ax_gguf_mixed_read(struct ax_gguf_model *m) {
    char key[96];
    const struct ax_gguf_tensor *table = ax_gguf_tensor(m->file, "per_layer_token_embd.weight");
    AX_TRY(ax_gguf_i64(m->file, key_of(m, "attention.head_count", key), 1, 65536, &m->heads));
    if (m->mixed.borrow < 0 || m->mixed.borrow >= m->layers)
        return ax_error(AX_ERR_DATA, "%s: key %s: %lld of %lld layers", m->file->path,
                        key_of(m, "attention.shared_kv_layers", key), (long long)m->mixed.borrow,
                        (long long)m->layers);
    AX_TRY(read_lists(m));
    AX_TRY(read_length(m, "attention.key_length", "", &m->mixed.head_dim));
    AX_TRY(read_length(m, "attention.key_length", "_swa", &m->head_dim));
    if (m->heads % m->kv_heads != 0 || m->heads % m->mixed.kv_heads != 0)
        return ax_error(AX_ERR_DATA, "%s: %lld and %lld KV heads do not both divide the %lld heads",
                        m->file->path, (long long)m->kv_heads, (long long)m->mixed.kv_heads,
                        (long long)m->heads);
    if (m->mixed.width > 0 && (!table || table->ndim != 2))
        return ax_error(AX_ERR_DATA, "%s: tensor per_layer_token_embd.weight is missing",
                        m->file->path);
    m->mixed.table = m->mixed.width > 0 ? table->shape[0] : 0;
    m->mixed.wide = m->mixed.wide_ffn != m->ffn;
    if (m->mixed.wide && m->mixed.wide_ffn != 2 * m->ffn)
        return differs(m, "feed_forward_length", m->layers - 1, (int32_t)m->mixed.wide_ffn, m->ffn);
    m->mixed.sparse = m->experts > 0;
    for (int64_t i = 0; i < m->layers - m->mixed.borrow; i++)
        m->mixed.of_keys = m->mixed.of_keys || (ax_gguf_is_full(m, i) && !has_values(m, i));
    m->value_dim = m->rotated = m->head_dim;
    m->rotary_part = 1;
    return read_turning(m);
}

/* ---- to config.json ---- */

static bool set(json_t *config, const char *key, json_t *value) {
    return json_object_set_new(config, key, value) == 0;
}

bool ax_gguf_mixed_config(const struct ax_gguf_model *m, json_t *config) {
    bool ok = ax_gguf_window_types(m, config);
    ok = ok && set(config, "rope_parameters",
                   json_pack("{s{ss sf sf} s{ss sf}}", "full_attention", "rope_type",
                             "proportional", "partial_rotary_factor", m->mixed.rotary_part,
                             "rope_theta", m->rope_theta, "sliding_attention", "rope_type",
                             "default", "rope_theta", m->rope_theta_local));
    ok = ok && json_object_del(config, "rope_theta") == 0;
    return ok && json_object_del(config, "rope_scaling") == 0;
}

/* ---- to a file ---- */

static enum ax_status put_list(const struct ax_gguf_model *m, struct ax_gguf_keys *keys,
                               const char *suffix, int64_t first, int64_t second,
                               bool (*is_second)(const struct ax_gguf_model *m, int64_t layer)) {
    char key[96];
    key_of(m, suffix, key);
    if (first == second)
        return ax_gguf_put_u32(keys, key, (uint32_t)first);
    AX_TRY(ax_gguf_put_array(keys, key, AX_GGUF_I32, (uint64_t)m->layers));
    for (int64_t i = 0; i < m->layers; i++)
        AX_TRY(ax_gguf_add_i32(keys, (int32_t)(is_second(m, i) ? second : first)));
    return AX_OK;
}

enum ax_status ax_gguf_mixed_put(const struct ax_gguf_model *m, struct ax_gguf_keys *keys) {
    static const char *const of_head[] = {"attention.key_length_swa", "attention.value_length_swa",
                                          "rope.dimension_count_swa"};
    char key[96];
    AX_TRY(put_list(m, keys, "feed_forward_length", m->ffn, m->mixed.wide_ffn, ax_gguf_borrows));
    AX_TRY(put_list(m, keys, "attention.head_count_kv", m->kv_heads, m->mixed.kv_heads,
                    ax_gguf_is_full));
    for (size_t i = 0; i < sizeof of_head / sizeof *of_head; i++)
        AX_TRY(ax_gguf_put_u32(keys, key_of(m, of_head[i], key), (uint32_t)m->head_dim));
    return ax_gguf_put_windows(m, keys);
}
