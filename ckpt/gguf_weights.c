/* Tensors of the file under their HF names, row by row in HF order, dequantised as they are
 * written. */
#include <math.h>
#include <string.h>

#include "ckpt/gguf_cursor.h"
#include "ckpt/gguf_model.h"
#include "ckpt/gguf_rope.h"

#define CHUNK 1024 /* elements at once; a multiple of every block */

/* Where an output's elements come from. */
struct ax_gguf_source {
    const struct ax_gguf *file;
    const struct ax_gguf_tensor *t;
    char *name;       /* HF name, owned */
    int64_t head_dim; /* 0: rows in the same order */
    enum ax_dtype dtype;
};

enum size { NONE, VOCAB, HIDDEN, FFN, Q, KV, HEAD };
enum when { ALWAYS, UNTIED, QKV_BIAS, O_BIAS, MLP_BIAS, QK_NORM };

struct row {
    const char *gguf, *hf;
    enum size rows, cols; /* cols NONE: a vector */
    enum when when;
    bool rotary; /* rows of q and k, permuted in some kinds */
};

static const struct row first[] = {
    {"token_embd.weight", "model.embed_tokens.weight", VOCAB, HIDDEN, ALWAYS, false},
};
static const struct row per_layer[] = {
    {"attn_norm.weight", "input_layernorm.weight", HIDDEN, NONE, ALWAYS, false},
    {"attn_q.weight", "self_attn.q_proj.weight", Q, HIDDEN, ALWAYS, true},
    {"attn_q.bias", "self_attn.q_proj.bias", Q, NONE, QKV_BIAS, true},
    {"attn_k.weight", "self_attn.k_proj.weight", KV, HIDDEN, ALWAYS, true},
    {"attn_k.bias", "self_attn.k_proj.bias", KV, NONE, QKV_BIAS, true},
    {"attn_v.weight", "self_attn.v_proj.weight", KV, HIDDEN, ALWAYS, false},
    {"attn_v.bias", "self_attn.v_proj.bias", KV, NONE, QKV_BIAS, false},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", HEAD, NONE, QK_NORM, false},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", HEAD, NONE, QK_NORM, false},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, Q, ALWAYS, false},
    {"attn_output.bias", "self_attn.o_proj.bias", HIDDEN, NONE, O_BIAS, false},
    {"ffn_norm.weight", "post_attention_layernorm.weight", HIDDEN, NONE, ALWAYS, false},
    {"ffn_gate.weight", "mlp.gate_proj.weight", FFN, HIDDEN, ALWAYS, false},
    {"ffn_gate.bias", "mlp.gate_proj.bias", FFN, NONE, MLP_BIAS, false},
    {"ffn_up.weight", "mlp.up_proj.weight", FFN, HIDDEN, ALWAYS, false},
    {"ffn_up.bias", "mlp.up_proj.bias", FFN, NONE, MLP_BIAS, false},
    {"ffn_down.weight", "mlp.down_proj.weight", HIDDEN, FFN, ALWAYS, false},
    {"ffn_down.bias", "mlp.down_proj.bias", HIDDEN, NONE, MLP_BIAS, false},
};
static const struct row last[] = {
    {"output_norm.weight", "model.norm.weight", HIDDEN, NONE, ALWAYS, false},
    {"output.weight", "lm_head.weight", VOCAB, HIDDEN, UNTIED, false},
};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static int64_t size_of(const struct ax_gguf_model *m, enum size s) {
    switch (s) {
    case VOCAB:
        return m->vocab;
    case HIDDEN:
        return m->hidden;
    case FFN:
        return m->ffn;
    case Q:
        return m->heads * m->head_dim;
    case KV:
        return m->kv_heads * m->head_dim;
    case HEAD:
        return m->head_dim;
    case NONE:
        break;
    }
    return 1;
}

static bool wanted(const struct ax_gguf_model *m, enum when w) {
    switch (w) {
    case UNTIED:
        return !m->tied;
    case QKV_BIAS:
        return m->qkv_bias;
    case O_BIAS:
        return m->o_bias;
    case MLP_BIAS:
        return m->mlp_bias;
    case QK_NORM:
        return m->kind->qk_norm;
    case ALWAYS:
        break;
    }
    return true;
}

/* --- values --- */

/* The row of the file that is HF row r: within a head, element i of half j lies at 2·i + j. */
static int64_t file_row(const struct ax_gguf_source *s, int64_t r) {
    if (s->head_dim == 0)
        return r;
    const int64_t half = s->head_dim / 2, head = r / s->head_dim, t = r % s->head_dim;
    return head * s->head_dim + 2 * (t % half) + t / half;
}

static enum ax_status not_finite(const struct ax_gguf_source *s, float stored) {
    const int len = (int)s->t->name.len;
    if (!isfinite(stored))
        return ax_error(AX_ERR_DATA, "%s: tensor %.*s holds %g", s->file->path, len, s->t->name.s,
                        (double)stored);
    return ax_error(
        AX_ERR_DATA, "%s: tensor %.*s holds %g, which is too large for %s. Choose another --dtype.",
        s->file->path, len, s->t->name.s, (double)stored, ax_dtype_info(s->dtype)->name);
}

/* n ≤ CHUNK elements in whole blocks from the file's element `from` on, in the wanted dtype. */
static enum ax_status put_chunk(const struct ax_gguf_source *s, int64_t from, int64_t n,
                                void *out) {
    const struct ax_block_type *type = s->t->type;
    float values[CHUNK], back[CHUNK];
    AX_ASSERT(n <= CHUNK && from % type->elements == 0 && n % type->elements == 0);
    type->dequantize(s->t->data + from / type->elements * type->bytes, n / type->elements, values);
    ax_convert(s->dtype, out, AX_F32, values, n);
    ax_convert(AX_F32, back, s->dtype, out, n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(back[i]))
            return not_finite(s, values[i]);
    return AX_OK;
}

/* Ranges begin at multiples of 1 Mi elements, so at whole blocks, as rows are whole blocks. */
static enum ax_status fill(void *ctx, int64_t begin, int64_t n, void *out) {
    const struct ax_gguf_source *s = ctx;
    /* a vector that is permuted has rows of one element */
    const int64_t cols = s->t->ndim == 1 && s->head_dim > 0 ? 1 : s->t->shape[s->t->ndim - 1];
    char *p = out;
    for (int64_t i = begin, end = begin + n; i < end;) {
        const int64_t at = i % cols;
        int64_t m = cols - at < CHUNK ? cols - at : CHUNK;
        m = end - i < m ? end - i : m;
        AX_TRY(put_chunk(s, file_row(s, i / cols) * cols + at, m, p));
        p += (size_t)m * ax_dtype_size(s->dtype);
        i += m;
    }
    return AX_OK;
}

/* --- the list --- */

static enum ax_status check_shape(const struct ax_gguf_model *m, const struct row *row,
                                  const struct ax_gguf_tensor *t) {
    const int64_t rows = size_of(m, row->rows), cols = size_of(m, row->cols);
    const int ndim = row->cols == NONE ? 1 : 2;
    const int len = (int)t->name.len;
    if (!t->type->dequantize)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: tensor %.*s is of type %s, which is not read (%s are). Convert from "
                        "another quantisation of the model.",
                        m->file->path, len, t->name.s, t->type->name, AX_BLOCK_TYPES_READ);
    if (t->ndim != ndim || t->shape[0] != rows || (ndim == 2 && t->shape[1] != cols))
        return ax_error(AX_ERR_DATA,
                        "%s: tensor %.*s: %lld × %lld elements, but the keys ask for %lld × %lld",
                        m->file->path, len, t->name.s, (long long)t->shape[0],
                        (long long)(t->ndim > 1 ? t->numel / (t->shape[0] ? t->shape[0] : 1) : 1),
                        (long long)rows, (long long)cols);
    if (row->rotary && ndim == 1 && t->type->elements != 1)
        return ax_error(AX_ERR_UNSUPPORTED, "%s: tensor %.*s: a quantised bias is not converted",
                        m->file->path, len, t->name.s);
    return AX_OK;
}

static enum ax_status add(struct ax_gguf_weights *w, const struct ax_gguf_model *m,
                          enum ax_dtype dtype, const struct row *row, int64_t layer) {
    char name[96];
    if (!wanted(m, row->when))
        return AX_OK;
    if (layer < 0)
        snprintf(name, sizeof name, "%s", row->gguf);
    else
        snprintf(name, sizeof name, "blk.%lld.%s", (long long)layer, row->gguf);
    const struct ax_gguf_tensor *t = ax_gguf_tensor(m->file, name);
    if (!t)
        return ax_error(AX_ERR_DATA, "%s: tensor %s is missing", m->file->path, name);
    AX_TRY(check_shape(m, row, t));
    struct ax_gguf_source *s = &w->sources[w->n];
    *s = (struct ax_gguf_source){.file = m->file, .t = t, .dtype = dtype};
    s->head_dim = row->rotary && m->kind->permuted ? m->head_dim : 0;
    if (layer < 0)
        AX_TRY(ax_strdup(&s->name, row->hf));
    else
        AX_TRY(ax_sprintf(&s->name, "model.layers.%lld.%s", (long long)layer, row->hf));
    struct ax_st_output *o = &w->outputs[w->n++];
    *o = (struct ax_st_output){.name = s->name, .dtype = dtype, .fill = fill, .ctx = s};
    o->ndim = t->ndim;
    memcpy(o->shape, t->shape, sizeof t->shape);
    w->numel += t->numel;
    return AX_OK;
}

/* A tensor that is no output's source and is not `stated` in config.json; NULL: there is none. */
static enum ax_status find_left_over(const struct ax_gguf_weights *w, const struct ax_gguf *file,
                                     const struct ax_gguf_tensor *stated,
                                     const struct ax_gguf_tensor **left) {
    bool *used;
    *left = NULL;
    AX_TRY(ax_alloc(&used, file->n_tensors, sizeof *used));
    for (int i = 0; i < w->n; i++)
        used[w->sources[i].t - file->tensors] = true;
    if (stated)
        used[stated - file->tensors] = true;
    for (size_t i = 0; i < file->n_tensors && !*left; i++)
        if (!used[i])
            *left = &file->tensors[i];
    ax_free(used);
    return AX_OK;
}

static enum ax_status check_left_over(const struct ax_gguf_weights *w,
                                      const struct ax_gguf_model *m) {
    const struct ax_gguf_tensor *left;
    AX_TRY(find_left_over(w, m->file, ax_gguf_tensor(m->file, AX_GGUF_ROPE_FACTORS), &left));
    if (!left)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED, "%s: tensor %.*s has no place in a %s model of %lld layers",
                    m->file->path, (int)left->name.len, left->name.s, m->kind->arch,
                    (long long)m->layers);
}

static enum ax_status add_all(struct ax_gguf_weights *w, const struct ax_gguf_model *m,
                              enum ax_dtype dtype) {
    /* each output is a tensor of its own, so the file's number bounds the list */
    AX_TRY(ax_alloc(&w->outputs, m->file->n_tensors, sizeof *w->outputs));
    AX_TRY(ax_alloc(&w->sources, m->file->n_tensors, sizeof *w->sources));
    for (int i = 0; i < COUNT(first); i++)
        AX_TRY(add(w, m, dtype, &first[i], -1));
    for (int64_t layer = 0; layer < m->layers; layer++)
        for (int i = 0; i < COUNT(per_layer); i++)
            AX_TRY(add(w, m, dtype, &per_layer[i], layer));
    for (int i = 0; i < COUNT(last); i++)
        AX_TRY(add(w, m, dtype, &last[i], -1));
    return check_left_over(w, m);
}

enum ax_status ax_gguf_weights_create(struct ax_gguf_weights *w, const struct ax_gguf_model *m,
                                      enum ax_dtype dtype) {
    *w = (struct ax_gguf_weights){0};
    const enum ax_status st = add_all(w, m, dtype);
    if (st != AX_OK)
        ax_gguf_weights_free(w);
    return st;
}

void ax_gguf_weights_free(struct ax_gguf_weights *w) {
    for (int i = 0; i < w->n; i++)
        ax_free(w->sources[i].name);
    ax_free(w->outputs);
    ax_free(w->sources);
    *w = (struct ax_gguf_weights){0};
}
