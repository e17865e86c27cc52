#include "ckpt/gguf/streams.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "ckpt/gguf/lists.h"

#define MAX_DIM (1LL << 24)
/* A gate stays if it is above the mean by Φ⁻¹(0.95) standard deviations; other layers have −inf. */
#define SHARE 0.95
#define CUT   1.6448536F

static const char sparsity[] = "activation_sparsity_scale", shared[] = "attention.shared_kv_layers";

static const char *key_of(const struct ax_gguf_model *m, const char *suffix, char buf[96]) {
    snprintf(buf, 96, "%s.%s", m->kind->arch, suffix);
    return buf;
}

static enum ax_status read_windows(struct ax_gguf_model *m) {
    char key[96];
    if (ax_gguf_key(m->file, key_of(m, AX_GGUF_WINDOWS, key)))
        return ax_gguf_read_windows(m);
    for (int64_t i = 0; i < m->layers; i++)
        if ((i + 1) % AX_GGUF_FULL_PERIOD != 0)
            ax_gguf_set_slides(m, i);
    return AX_OK;
}

/* A list, as config.json has it, of one width. */
static enum ax_status read_width(struct ax_gguf_model *m) {
    static const char widths[] = "feed_forward_length";
    char key[96];
    int32_t *list = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_gguf_layer_list(m, widths, MAX_DIM, &list), st, done);
    m->ffn = m->mixed.wide_ffn = list[0];
    for (int64_t i = 0; i < m->layers && st == AX_OK; i++)
        if (list[i] < 1 || list[i] != list[0])
            st = ax_error(AX_ERR_UNSUPPORTED,
                          "%s: key %s: %d in layer %lld, %d in the first, is not supported",
                          m->file->path, key_of(m, widths, key), list[i], (long long)i, list[0]);
done:
    ax_free(list);
    return st;
}

/* Published files have a float. */
static enum ax_status read_borrowers(struct ax_gguf_model *m) {
    char key[96];
    double n;
    AX_TRY(ax_gguf_f64(m->file, key_of(m, shared, key), &n));
    if (!(n >= 0 && n < (double)m->layers && floor(n) == n))
        return ax_error(AX_ERR_DATA, "%s: key %s: %g of %lld layers", m->file->path, key, n,
                        (long long)m->layers);
    m->mixed.borrow = (int64_t)n;
    return AX_OK;
}

static enum ax_status read_sparsity(struct ax_gguf_model *m) {
    char key[96];
    float *list = NULL;
    size_t n;
    int64_t i = 0;
    AX_TRY(ax_gguf_f32s(m->file, key_of(m, sparsity, key), &list, &n));
    enum ax_status st = AX_OK;
    if ((int64_t)n != m->layers)
        st = ax_error(AX_ERR_DATA, "%s: key %s: %zu entries for %lld layers", m->file->path, key, n,
                      (long long)m->layers);
    while (st == AX_OK && i < m->layers && fabsf(list[i] - CUT) < 1e-4F)
        i++;
    m->streams.sparse = i;
    for (; st == AX_OK && i < m->layers; i++)
        if (!(list[i] < 0 && isinf(list[i])))
            st = ax_error(AX_ERR_UNSUPPORTED,
                          "%s: key %s: %g in layer %lld is not supported (%g in the first layers, "
                          "and then -inf)",
                          m->file->path, key, (double)list[i], (long long)i, (double)CUT);
    ax_free(list);
    return st;
}

static enum ax_status rows_of(const struct ax_gguf_model *m, const char *name, int64_t *rows) {
    const struct ax_gguf_tensor *t = ax_gguf_tensor(m->file, name);
    if (!t || t->ndim != 2)
        return ax_error(AX_ERR_DATA, "%s: tensor %s is missing or not a matrix", m->file->path,
                        name);
    *rows = t->shape[0];
    return AX_OK;
}

enum ax_status ax_gguf_streams_read(struct ax_gguf_model *m) {
    char key[96];
    if (m->streams.n < 2 || m->streams.n > 64 || m->streams.active >= m->streams.n)
        return ax_error(AX_ERR_DATA, "%s: key %s: %lld streams, of which the layers compute %lld",
                        m->file->path, key_of(m, "altup.num_inputs", key), (long long)m->streams.n,
                        (long long)m->streams.active);
    AX_TRY(read_width(m));
    AX_TRY(read_windows(m));
    AX_TRY(read_borrowers(m));
    AX_TRY(read_sparsity(m));
    AX_TRY(rows_of(m, "blk.0.laurel_l.weight", &m->streams.rank));
    return rows_of(m, "per_layer_token_embd.weight", &m->mixed.table);
}

bool ax_gguf_streams_config(const struct ax_gguf_model *m, json_t *config) {
    json_t *shares = json_array();
    bool ok = shares != NULL;
    for (int64_t i = 0; i < m->layers; i++)
        ok = ok && json_array_append_new(shares, json_real(i < m->streams.sparse ? SHARE : 0)) == 0;
    ok = json_object_set_new(config, "activation_sparsity_pattern", shares) == 0 && ok;
    return ok && ax_gguf_window_types(m, config);
}

enum ax_status ax_gguf_streams_put(const struct ax_gguf_model *m, struct ax_gguf_keys *keys) {
    char key[96];
    AX_TRY(ax_gguf_put_u32(keys, key_of(m, shared, key), (uint32_t)m->mixed.borrow));
    AX_TRY(ax_gguf_put_windows(m, keys));
    AX_TRY(ax_gguf_put_array(keys, key_of(m, sparsity, key), AX_GGUF_F32, (uint64_t)m->layers));
    for (int64_t i = 0; i < m->layers; i++)
        AX_TRY(ax_gguf_add_f32(keys, i < m->streams.sparse ? CUT : -INFINITY));
    return AX_OK;
}
