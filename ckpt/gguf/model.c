/* Keys → sizes → config.json. */
#include "ckpt/gguf/model.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/gguf/lists.h"
#include "ckpt/gguf/mixed.h"
#include "ckpt/gguf/parts.h"
#include "ckpt/gguf/rope.h"
#include "ckpt/gguf/streams.h"
#include "kernels/tensor.h"

#define MAX_DIM     (1LL << 24) /* a larger size means a corrupted file */
#define MAX_EXPERTS 4096

/* Keys that change the result but have no equivalent in config.json, with the value that has no
 * effect. */
static const struct {
    const char *suffix;
    double harmless;
} refused[] = {
    {"expert_shared_count", 0},
    {"leading_dense_block_count", 0},
    {"logit_scale", 1},
    {"embedding_scale", 1},
    {"residual_scale", 1},
    {"attention.scale", 0},
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"final_logit_softcapping", 0},
    {"attn_logit_softcapping", 0},
};

static const char *model_key(const struct ax_gguf_model *m, const char *suffix, char buf[96]) {
    snprintf(buf, 96, "%s.%s", m->kind->arch, suffix);
    return buf;
}

static enum ax_status unknown_kind(const struct ax_gguf_model *m, struct ax_gguf_text arch) {
    char list[1024] = "";
    for (const struct ax_gguf_kind *k = ax_gguf_kinds; k->arch; k++) {
        const size_t n = strlen(list);
        if (k == ax_gguf_kinds || strcmp(k[-1].arch, k->arch) != 0)
            snprintf(list + n, sizeof list - n, "%s%s",
                     n == 0      ? ""
                     : k[1].arch ? ", "
                                 : " and ",
                     k->arch);
    }
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s: key general.architecture: \"%.*s\"%s is not supported (%s are)",
                    m->file->path, arch.len < 40 ? (int)arch.len : 40, arch.s,
                    m->experts > 0 ? " with experts" : "", list);
}

static bool is_kind(const struct ax_gguf_model *m, const struct ax_gguf_kind *k,
                    struct ax_gguf_text arch, int64_t gating) {
    return arch.len == strlen(k->arch) && memcmp(arch.s, k->arch, arch.len) == 0 &&
           (k->may_moe || k->moe == (m->experts > 0)) && (k->gating == 0 || k->gating == gating);
}

/* llama.cpp's adapters name the architecture of their base. */
static enum ax_status refuse_adapter(const struct ax_gguf_model *m) {
    struct ax_gguf_text type;
    AX_TRY(ax_gguf_string_or_null(m->file, "general.type", &type));
    if (type.s && type.len == 7 && memcmp(type.s, "adapter", 7) == 0)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: an adapter for llama.cpp, which is not read here; use the PEFT folder "
                        "that it was converted from",
                        m->file->path);
    return AX_OK;
}

/* One name may mean both a dense model and one with experts, and several routers. */
static enum ax_status find_kind(struct ax_gguf_model *m) {
    struct ax_gguf_text arch;
    char key[96];
    int64_t gating;
    AX_TRY(refuse_adapter(m));
    AX_TRY(ax_gguf_string_or_null(m->file, "general.architecture", &arch));
    if (!arch.s)
        return ax_error(AX_ERR_DATA, "%s: key general.architecture is missing", m->file->path);
    if (arch.len >= 40)
        return unknown_kind(m, arch);
    snprintf(key, sizeof key, "%.*s.expert_count", (int)arch.len, arch.s);
    AX_TRY(ax_gguf_i64_or(m->file, key, 0, MAX_EXPERTS, 0, &m->experts));
    snprintf(key, sizeof key, "%.*s.expert_gating_func", (int)arch.len, arch.s);
    AX_TRY(ax_gguf_i64_or(m->file, key, 0, 99, 1, &gating));
    for (const struct ax_gguf_kind *k = ax_gguf_kinds; k->arch; k++) {
        if (!is_kind(m, k, arch, gating))
            continue;
        m->kind = k;
        return AX_OK;
    }
    return unknown_kind(m, arch);
}

static enum ax_status refuse_parts(const struct ax_gguf_model *m) {
    int64_t parts;
    AX_TRY(ax_gguf_i64_or(m->file, "split.count", 0, INT32_MAX, 1, &parts));
    if (parts > 1)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: one of %lld parts of a model. Merge them first (llama-gguf-split "
                        "--merge).",
                        m->file->path, (long long)parts);
    return AX_OK;
}

static const struct ax_gguf_field *field_of(const struct ax_gguf_kind *k, const char *gguf) {
    for (const struct ax_gguf_field *f = k->fields; f && (f->gguf || f->hf); f++)
        if (f->gguf && strcmp(f->gguf, gguf) == 0)
            return f;
    return NULL;
}

static enum ax_status refuse_unknown_math(const struct ax_gguf_model *m) {
    char key[96];
    double v;
    int64_t window;
    bool causal;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (field_of(m->kind, refused[i].suffix))
            continue;
        const char *name = model_key(m, refused[i].suffix, key);
        AX_TRY(ax_gguf_f64_or(m->file, name, refused[i].harmless, &v));
        if (v != refused[i].harmless)
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: key %s: %g cannot be expressed in a %s config.json", m->file->path,
                            name, v, m->kind->model_type);
    }
    AX_TRY(ax_gguf_bool_or(m->file, model_key(m, "attention.causal", key), true, &causal));
    if (!causal)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: key %s: false, with which tokens attend to later ones, is not "
                        "supported",
                        m->file->path, key);
    if (m->rotated != m->head_dim && !m->kind->partial_rope)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: key %s: rotating %lld of the %lld elements of a head is not supported",
                        m->file->path, model_key(m, "rope.dimension_count", key),
                        (long long)m->rotated, (long long)m->head_dim);
    if (field_of(m->kind, "attention.sliding_window"))
        return AX_OK;
    const struct ax_gguf_key *slides =
        ax_gguf_key(m->file, model_key(m, "attention.sliding_window", key));
    AX_TRY(ax_gguf_i64_or(m->file, key, 0, INT64_MAX, 0, &window));
    if (m->kind->chunked && slides && window == 0)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: key %s: 0, for a model without chunks, is not supported",
                        m->file->path, key);
    if (m->kind->chunked)
        return AX_OK;
    if (window > 0 && window < m->context)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: key %s: a window of %lld tokens is not supported; the context is %lld",
                        m->file->path, key, (long long)window, (long long)m->context);
    return AX_OK;
}

/* The name of a head's size: of a cached latent without "_mla". */
static const char *length_key(const struct ax_gguf_model *m, const char *what, char key[96]) {
    snprintf(key, 96, "%s.attention.%s_length%s", m->kind->arch, what,
             m->kv_rank > 0 ? "_mla" : "");
    return key;
}

/* A list with an entry for each layer, 0 for those with convolutions. */
static enum ax_status read_mixers(struct ax_gguf_model *m, const char *key) {
    int32_t *heads;
    size_t n;
    AX_TRY(ax_gguf_i32s(m->file, key, &heads, &n));
    enum ax_status st = AX_OK;
    if ((int64_t)n != m->layers)
        st = ax_error(AX_ERR_DATA, "%s: key %s: %zu entries for %lld layers", m->file->path, key, n,
                      (long long)m->layers);
    for (size_t i = 0; i < n && st == AX_OK; i++) {
        if (heads[i] == 0) {
            ax_gguf_set_state(m, (int64_t)i);
        } else if (heads[i] < 0 || heads[i] > 65536 ||
                   (m->kv_heads > 0 && heads[i] != m->kv_heads)) {
            st = ax_error(AX_ERR_UNSUPPORTED,
                          "%s: key %s: layer %zu has %d heads, an earlier one %lld", m->file->path,
                          key, i, heads[i], (long long)m->kv_heads);
        } else {
            m->kv_heads = heads[i];
        }
    }
    ax_free(heads);
    if (st == AX_OK && m->kv_heads == 0) /* of no layer */
        m->kv_heads = m->heads;
    return st;
}

/* The heads of k and v in layers with a window and in the others, each all alike. */
static enum ax_status set_sliding(struct ax_gguf_model *m, const char *key, const int32_t *heads,
                                  const int32_t *slides) {
    for (int64_t i = 0; i < m->layers; i++) {
        int64_t *all = slides[i] ? &m->kv_sliding : &m->kv_heads;
        if (heads[i] < 1 || heads[i] > 65536 || m->heads % heads[i] != 0 ||
            (*all > 0 && heads[i] != *all))
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: key %s: layer %lld has %d heads, an earlier one %lld, and "
                            "%lld are of queries",
                            m->file->path, key, (long long)i, heads[i], (long long)*all,
                            (long long)m->heads);
        *all = heads[i];
        if (slides[i])
            ax_gguf_set_slides(m, i);
    }
    m->kv_heads = m->kv_heads > 0 ? m->kv_heads : m->kv_sliding;
    m->kv_sliding = m->kv_sliding > 0 ? m->kv_sliding : m->kv_heads;
    return AX_OK;
}

static enum ax_status read_sliding(struct ax_gguf_model *m, const char *key) {
    char pattern[96];
    int32_t *heads, *slides = NULL;
    size_t n, n_slides = 0;
    AX_TRY(ax_gguf_i32s(m->file, key, &heads, &n));
    enum ax_status st;
    AX_TRY_GOTO(ax_gguf_i32s(m->file, model_key(m, AX_GGUF_WINDOWS, pattern), &slides, &n_slides),
                st, done);
    if ((int64_t)n == m->layers && (int64_t)n_slides == m->layers)
        st = set_sliding(m, key, heads, slides);
    else
        st = ax_error(AX_ERR_DATA, "%s: keys %s and %s: %zu and %zu entries for %lld layers",
                      m->file->path, key, pattern, n, n_slides, (long long)m->layers);
done:
    ax_free(heads);
    ax_free(slides);
    return st;
}

static enum ax_status read_heads(struct ax_gguf_model *m) {
    char key[96];
    const struct ax_gguf *f = m->file;
    AX_TRY(ax_gguf_i64(f, model_key(m, "attention.head_count", key), 1, 65536, &m->heads));
    const struct ax_gguf_key *kv = ax_gguf_key(f, model_key(m, "attention.head_count_kv", key));
    AX_TRY(m->kind->slides  ? read_sliding(m, key)
           : m->kind->parts ? ax_gguf_parts_read(m)
           : m->kind->convolves && kv && kv->is_array
               ? read_mixers(m, key)
               : ax_gguf_i64_or(f, key, 1, 65536, m->heads, &m->kv_heads));
    if (m->heads % m->kv_heads != 0)
        return ax_error(AX_ERR_DATA, "%s: key %s: %lld does not divide the %lld heads", f->path,
                        key, (long long)m->kv_heads, (long long)m->heads);
    AX_TRY(
        ax_gguf_i64_or(f, length_key(m, "key", key), 2, 4096, m->hidden / m->heads, &m->head_dim));
    if (m->head_dim % 2 != 0 || (!ax_gguf_key(f, key) && m->hidden % m->heads != 0))
        return ax_error(AX_ERR_DATA,
                        "%s: %lld heads and a width of %lld give no even head size, and %s is not "
                        "given or odd",
                        f->path, (long long)m->heads, (long long)m->hidden, key);
    AX_TRY(ax_gguf_i64_or(f, length_key(m, "value", key), 1, 4096, m->head_dim, &m->value_dim));
    if (m->value_dim != m->head_dim && m->kv_rank == 0 && !m->kind->slides)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: key %s: values of %lld and keys of %lld elements are not supported",
                        f->path, key, (long long)m->value_dim, (long long)m->head_dim);
    AX_TRY(ax_gguf_i64_or(f, model_key(m, "rope.dimension_count", key), 2, 4096, m->head_dim,
                          &m->rotated));
    if (m->rotated % 2 != 0 || m->rotated > m->head_dim)
        return ax_error(AX_ERR_DATA, "%s: key %s: %lld of the %lld elements of a head", f->path,
                        key, (long long)m->rotated, (long long)m->head_dim);
    m->rotary_part = ax_gguf_rotary_part(m->rotated, m->head_dim);
    if (m->kv_rank > 0) { /* the one head of the file is the latent */
        m->kv_heads = m->heads;
        m->nope = m->head_dim - m->rotated;
    }
    return AX_OK;
}

static enum ax_status read_field(struct ax_gguf_model *m, const struct ax_gguf_field *f) {
    char buf[96];
    void *at = (char *)m + f->at;
    int64_t n = (int64_t)f->absent;
    double x = f->absent;
    bool b = f->absent != 0;
    const char *key = model_key(m, f->gguf, buf);
    if (f->required && !ax_gguf_key(m->file, key))
        return ax_error(AX_ERR_DATA, "%s: key %s is missing", m->file->path, key);
    switch (f->type) {
    case AX_GGUF_COUNT:
        AX_TRY(ax_gguf_i64_or(m->file, key, 0, MAX_DIM, n, &n));
        memcpy(at, &n, sizeof n);
        return AX_OK;
    case AX_GGUF_REAL:
        AX_TRY(ax_gguf_f64_or(m->file, key, x, &x));
        memcpy(at, &x, sizeof x);
        return AX_OK;
    case AX_GGUF_FLAG:
        AX_TRY(ax_gguf_bool_or(m->file, key, b, &b));
        memcpy(at, &b, sizeof b);
    }
    return AX_OK;
}

/* Which layers have the delta rule, and the size of its value heads. */
static enum ax_status derive_delta(struct ax_gguf_model *m) {
    const bool fits = m->delta.keys > 0 && m->delta.values % m->delta.keys == 0 &&
                      m->delta.values > 0 && m->delta.width % m->delta.values == 0 &&
                      m->delta.width > 0 && m->delta.key_dim > 0 && m->taps > 0;
    if (!fits || m->interval < 1)
        return ax_error(
            AX_ERR_DATA,
            "%s: keys %s.ssm.*: %lld value heads of %lld elements in all, %lld key heads",
            m->file->path, m->kind->arch, (long long)m->delta.values, (long long)m->delta.width,
            (long long)m->delta.keys);
    m->delta.value_dim = m->delta.width / m->delta.values;
    for (int64_t i = 0; i < m->layers; i++)
        if ((i + 1) % m->interval != 0)
            ax_gguf_set_state(m, i);
    return AX_OK;
}

/* Heads of the delta rule are those of attention. */
static enum ax_status derive_kda(struct ax_gguf_model *m) {
    const int64_t size = m->delta.key_dim;
    if (size < 1 || size > 4096 || m->taps < 1)
        return ax_error(AX_ERR_DATA, "%s: keys %s.kda.head_dim, %s.ssm.conv_kernel: %lld and %lld",
                        m->file->path, m->kind->arch, m->kind->arch, (long long)size,
                        (long long)m->taps);
    m->delta.keys = m->delta.values = m->heads;
    m->delta.value_dim = size;
    m->delta.width = m->heads * size;
    return AX_OK;
}

static enum ax_status derive_mamba(struct ax_gguf_model *m) {
    if (m->rotates)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: key %s.rope.scaling.finetuned: a hybrid with rope is not supported",
                        m->file->path, m->kind->arch);
    if (m->ssd.heads == 0 || m->ssd.width == 0 || m->ssd.width % m->ssd.heads != 0 ||
        m->ssd.groups == 0 || m->ssd.heads % m->ssd.groups != 0 ||
        (m->kind->convolves && m->ssd.width % m->hidden != 0))
        return ax_error(AX_ERR_DATA,
                        "%s: keys %s.ssm.*: %lld heads in %lld groups, %lld elements in all, of a "
                        "model as wide as %lld",
                        m->file->path, m->kind->arch, (long long)m->ssd.heads,
                        (long long)m->ssd.groups, (long long)m->ssd.width, (long long)m->hidden);
    m->ssd.head_dim = m->ssd.width / m->ssd.heads;
    if (!m->kind->convolves)
        return AX_OK;
    m->ssd.expand = m->ssd.width / m->hidden;
    if (m->shared_ffn == 0)
        m->shared_ffn = m->ffn;
    return AX_OK;
}

/* Layers that share a choice, by the list; in files without it, by their tensors. */
static enum ax_status read_indexers(struct ax_gguf_model *m) {
    char key[96], name[48];
    int32_t *has_one = NULL;
    enum ax_status st = AX_OK;
    if (ax_gguf_key(m->file, model_key(m, AX_GGUF_INDEXERS, key)))
        AX_TRY_GOTO(ax_gguf_layer_list(m, AX_GGUF_INDEXERS, 1, &has_one), st, done);
    for (int64_t i = 0; i < m->layers; i++) {
        snprintf(name, sizeof name, "blk.%lld.indexer.k_norm.weight", (long long)i);
        if (has_one ? !has_one[i] : !ax_gguf_tensor(m->file, name))
            ax_gguf_set_shares_choice(m, i);
    }
    if (ax_gguf_shares_choice(m, 0))
        st =
            ax_error(AX_ERR_DATA, "%s: key %s: the first layer has no indexer", m->file->path, key);
done:
    ax_free(has_one);
    return st;
}

/* What follows from other sizes. */
static enum ax_status derive(struct ax_gguf_model *m) {
    if (m->n_shared > 0 && !m->kind->parts) {
        if (m->n_shared > 1024)
            return ax_error(AX_ERR_DATA, "%s: %lld shared experts", m->file->path,
                            (long long)m->n_shared);
        m->shared_ffn = m->n_shared * m->expert_ffn;
    }
    if (m->unused_layers >= m->layers)
        return ax_error(AX_ERR_DATA, "%s: %lld of %lld layers are of multi-token prediction",
                        m->file->path, (long long)m->unused_layers, (long long)m->layers);
    m->layers -= m->unused_layers;
    m->query_scalar = ax_gguf_query_scalar(m);
    for (char name[48]; m->kind->slides && m->dense_layers < m->layers; m->dense_layers++) {
        snprintf(name, sizeof name, "blk.%lld.ffn_gate_inp.weight", (long long)m->dense_layers);
        if (ax_gguf_tensor(m->file, name))
            break;
    }
    if (m->kind->chunked) {
        if (m->sparse_step == 0)
            return ax_error(AX_ERR_DATA, "%s: key %s.interleave_moe_layer_step: 0", m->file->path,
                            m->kind->arch);
        m->shared_ffn = m->expert_ffn;
        m->qk_norm = ax_gguf_norms_by_experts(m);
    }
    return m->kind->shares  ? read_indexers(m)
           : m->kind->delta ? derive_delta(m)
           : m->kind->mamba ? derive_mamba(m)
           : m->kind->kda   ? derive_kda(m)
                            : AX_OK;
}

const char *ax_gguf_eps_key(const struct ax_gguf_kind *kind) {
    return kind->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
}

static enum ax_status read_sizes(struct ax_gguf_model *m) {
    char key[96];
    const struct ax_gguf *f = m->file;
    AX_TRY(ax_gguf_i64(f, model_key(m, "block_count", key), 1, AX_GGUF_MAX_LAYERS, &m->layers));
    AX_TRY(ax_gguf_i64(f, model_key(m, "context_length", key), 1, INT32_MAX, &m->context));
    AX_TRY(ax_gguf_i64(f, model_key(m, "embedding_length", key), 1, MAX_DIM, &m->hidden));
    /* where all layers have experts, files may lack it */
    if (!m->kind->mixed && !m->kind->parts && !m->kind->streams)
        AX_TRY(m->kind->moe && !m->kind->some_dense &&
                       !ax_gguf_key(f, model_key(m, "feed_forward_length", key))
                   ? ax_gguf_i64(f, model_key(m, "expert_feed_forward_length", key), 1, MAX_DIM,
                                 &m->ffn)
                   : ax_gguf_i64(f, model_key(m, "feed_forward_length", key), 1, MAX_DIM, &m->ffn));
    for (const struct ax_gguf_field *k = m->kind->fields; k && (k->gguf || k->hf); k++)
        if (k->gguf)
            AX_TRY(read_field(m, k));
    AX_TRY(m->kind->mixed ? ax_gguf_mixed_read(m) : read_heads(m));
    if (m->kind->streams)
        AX_TRY(ax_gguf_streams_read(m));
    if (m->experts > 0) {
        AX_TRY(ax_gguf_i64(f, model_key(m, "expert_used_count", key), 1, m->experts, &m->active));
        AX_TRY(ax_gguf_i64_or(f, model_key(m, "expert_feed_forward_length", key), 1, MAX_DIM,
                              m->ffn, &m->expert_ffn));
    }
    AX_TRY(ax_gguf_f64(f, model_key(m, ax_gguf_eps_key(m->kind), key), &m->eps));
    if (!(m->eps > 0))
        return ax_error(AX_ERR_DATA, "%s: key %s: %g is not positive", f->path, key, m->eps);
    AX_TRY(ax_gguf_f64_or(f, model_key(m, "rope.freq_base", key), 10000, &m->rope_theta));
    if (!(m->rope_theta > 1))
        return ax_error(AX_ERR_DATA, "%s: key %s: %g is not above 1", f->path, key, m->rope_theta);
    return derive(m);
}

/* The vocabulary is as large as the embedding has rows; .vocab_size is not used. */
static enum ax_status read_vocab(struct ax_gguf_model *m) {
    static const struct {
        const char *key;
        size_t at;
    } ids[] = {{"tokenizer.ggml.bos_token_id", offsetof(struct ax_gguf_model, bos)},
               {"tokenizer.ggml.eos_token_id", offsetof(struct ax_gguf_model, eos)},
               {"tokenizer.ggml.eot_token_id", offsetof(struct ax_gguf_model, eot)},
               {"tokenizer.ggml.eom_token_id", offsetof(struct ax_gguf_model, eom)},
               {"tokenizer.ggml.padding_token_id", offsetof(struct ax_gguf_model, pad)}};
    const struct ax_gguf_tensor *embed = ax_gguf_tensor(m->file, "token_embd.weight");
    const struct ax_gguf_key *tokens = ax_gguf_key(m->file, "tokenizer.ggml.tokens");
    if (!embed || embed->ndim != 2 || embed->shape[0] < 1 || embed->shape[0] > MAX_DIM)
        return ax_error(AX_ERR_DATA, "%s: tensor token_embd.weight is missing or not a matrix",
                        m->file->path);
    m->vocab = embed->shape[0];
    if (tokens && tokens->count > (uint64_t)m->vocab)
        return ax_error(AX_ERR_DATA, "%s: %llu tokens, but token_embd.weight has %lld rows",
                        m->file->path, (unsigned long long)tokens->count, (long long)m->vocab);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        int64_t id;
        AX_TRY(ax_gguf_i64_or(m->file, ids[i].key, 0, m->vocab - 1, -1, &id));
        memcpy((char *)m + ids[i].at, &id, sizeof id);
    }
    return AX_OK;
}

static bool has(const struct ax_gguf_model *m, const char *name) {
    return ax_gguf_tensor(m->file, name) != NULL;
}

/* No head, or one that is the embedding's copy. */
static bool is_tied(const struct ax_gguf_model *m) {
    const struct ax_gguf_tensor *head = ax_gguf_tensor(m->file, "output.weight");
    const struct ax_gguf_tensor *embed = ax_gguf_tensor(m->file, "token_embd.weight");
    return !head ||
           (m->kind->copies_head && head->type == embed->type && head->data && embed->data &&
            head->bytes == embed->bytes && memcmp(head->data, embed->data, head->bytes) == 0);
}

static enum ax_status read_parts(struct ax_gguf_model *m) {
    m->tied = is_tied(m);
    if (!m->kind->chunked)
        m->qk_norm =
            m->kind->qk_norm || (m->kind->may_qk_norm && has(m, "blk.0.attn_q_norm.weight"));
    m->ssd.norm = has(m, "blk.0.ssm_norm.weight");
    m->qkv_bias = m->kind->qkv_bias || has(m, "blk.0.attn_q.bias");
    m->o_bias = has(m, "blk.0.attn_output.bias");
    m->mlp_bias = m->kind->mlp_bias && has(m, "blk.0.ffn_gate.bias");
    if (!ax_gguf_biases_fit(m))
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: biases on %s; a %s config.json has them on all four of q, k, v and "
                        "output, or on none",
                        m->file->path, m->o_bias ? "output only" : "q, k and v only",
                        m->kind->arch);
    return AX_OK;
}

enum ax_status ax_gguf_model_read(struct ax_gguf_model *m, const struct ax_gguf *file) {
    *m = (struct ax_gguf_model){.file = file};
    AX_TRY(find_kind(m));
    AX_ASSERT(m->kind);
    AX_TRY(refuse_parts(m));
    AX_TRY(read_sizes(m));
    AX_TRY(refuse_unknown_math(m));
    AX_TRY(read_vocab(m));
    return read_parts(m);
}

/* --- config.json --- */

static json_t *id_or_null(int64_t id) {
    return id < 0 ? json_null() : json_integer(id);
}

static bool set(json_t *config, const char *key, json_t *value) {
    return json_object_set_new(config, key, value) == 0;
}

static json_t *value_of(const struct ax_gguf_model *m, const struct ax_gguf_field *f) {
    const char *at = (const char *)m + f->at;
    int64_t n;
    double x;
    bool b;
    switch (f->type) {
    case AX_GGUF_COUNT:
        memcpy(&n, at, sizeof n);
        return f->nullable && n == 0 ? json_null() : json_integer(n);
    case AX_GGUF_REAL:
        memcpy(&x, at, sizeof x);
        return f->nullable && x == 0 ? json_null() : json_real(x);
    case AX_GGUF_FLAG:
        memcpy(&b, at, sizeof b);
        return json_boolean(b);
    }
    return NULL;
}

/* What transformers reads of layers with a window; it takes no rope_theta beside the two ropes. */
static bool add_sliding(const struct ax_gguf_model *m, json_t *config) {
    json_t *ffns = json_array();
    json_t *rope = json_pack("{s{ss sf sf} s{ss sf sf}}", "full_attention", "rope_type", "default",
                             "rope_theta", m->rope_theta, "partial_rotary_factor", m->rotary_part,
                             "sliding_attention", "rope_type", "default", "rope_theta",
                             m->rope_theta_local, "partial_rotary_factor", m->rotary_part);
    bool ok = true;
    for (int64_t i = 0; i < m->layers; i++) {
        json_t *ffn = json_string(i < m->dense_layers ? "dense" : "sparse");
        ok = json_array_append_new(ffns, ffn) == 0 && ok;
    }
    ok = ax_gguf_window_types(m, config) && ok;
    ok = set(config, "mlp_layer_types", ffns) && ok;
    ok = set(config, "rope_parameters", rope) && ok;
    return json_object_del(config, "rope_scaling") == 0 && ok;
}

static bool add_layer_types(const struct ax_gguf_model *m, json_t *config) {
    const char *const state = m->kind->mamba ? "mamba" : m->kind->kda ? "linear_attention" : "conv";
    const char *const attends = m->kind->mamba ? "attention" : "full_attention";
    json_t *types = json_array();
    bool ok = types != NULL;
    for (int64_t i = 0; i < m->layers; i++) {
        json_t *type = json_string(ax_gguf_has_state(m, i) ? state : attends);
        ok = ok && json_array_append_new(types, type) == 0;
    }
    return set(config, "layer_types", types) && ok;
}

/* Which layers have an indexer. */
static bool add_indexer_types(const struct ax_gguf_model *m, json_t *config) {
    json_t *types = json_array();
    bool ok = types != NULL;
    for (int64_t i = 0; i < m->layers; i++)
        ok = ok && json_array_append_new(
                       types, json_string(ax_gguf_shares_choice(m, i) ? "shared" : "full")) == 0;
    return set(config, "indexer_types", types) && ok;
}

/* Keys that only some kinds have. */
static bool add_special_keys(const struct ax_gguf_model *m, json_t *config) {
    bool ok = true;
    if (!m->kind->qkv_bias)
        ok = set(config, "attention_bias", json_boolean(m->qkv_bias));
    if (m->kind->mlp_bias)
        ok = ok && set(config, "mlp_bias", json_boolean(m->mlp_bias));
    if (m->kind->convolves)
        ok = ok && add_layer_types(m, config);
    if (m->kind->mixed)
        ok = ok && ax_gguf_mixed_config(m, config);
    if (m->kind->streams)
        ok = ok && ax_gguf_streams_config(m, config);
    if (m->kind->parts)
        ok = ok && ax_gguf_parts_config(m, config);
    if (m->kind->shares)
        ok = ok && add_indexer_types(m, config);
    if (m->kind->slides)
        ok = ok && add_sliding(m, config);
    if (m->kind->config) {
        json_t *more = json_loads(m->kind->config, 0, NULL);
        ok = ok && more && json_object_update(config, more) == 0;
        json_decref(more);
    }
    for (const struct ax_gguf_field *f = m->kind->fields; f && (f->gguf || f->hf); f++)
        if (f->hf)
            ok = ok && set(config, f->hf, value_of(m, f));
    return ok;
}

enum ax_status ax_gguf_model_config(const struct ax_gguf_model *m, json_t **out) {
    json_t *rope = json_null();
    if (m->file && !m->kind->mixed)
        AX_TRY(ax_gguf_rope_scaling(m, &rope));
    /* YaRN is what transformers has of these kinds where nothing is said */
    if (json_is_null(rope) && (m->kind->exact_yarn || m->kind->grows))
        rope = json_pack("{ss}", "rope_type", "default");
    /* absent ids are written as null, because some of transformers' defaults are ids */
    *out = json_pack(
        "{s[s] sf so so ss sI sf sI sI ss sI sI sI so sf so sf sb sb sI}", "architectures",
        m->kind->architecture, "attention_dropout", 0.0, "bos_token_id", id_or_null(m->bos),
        "eos_token_id", id_or_null(m->eos), "hidden_act", "silu", "hidden_size",
        (json_int_t)m->hidden, "initializer_range", 0.02, "intermediate_size", (json_int_t)m->ffn,
        "max_position_embeddings", (json_int_t)m->context, "model_type", m->kind->model_type,
        "num_attention_heads", (json_int_t)m->heads, "num_hidden_layers", (json_int_t)m->layers,
        "num_key_value_heads", (json_int_t)m->kv_heads, "pad_token_id", id_or_null(m->pad),
        "rms_norm_eps", m->eps, "rope_scaling", rope, "rope_theta", m->rope_theta,
        "tie_word_embeddings", m->tied, "use_cache", 1, "vocab_size", (json_int_t)m->vocab);
    if (!*out || json_object_set_new(*out, "head_dim", json_integer(m->head_dim)) != 0 ||
        !add_special_keys(m, *out)) {
        json_decref(*out);
        *out = NULL;
        return ax_error(AX_ERR_NOMEM, "out of memory for config.json");
    }
    return AX_OK;
}

/* Generation stops at the end of a turn or message, too: all different ones, or the only one by itself. */
static json_t *stop_ids(const struct ax_gguf_model *m) {
    const int64_t all[] = {m->eos, m->eot, m->eom};
    json_t *list = json_array();
    for (int i = 0; i < 3; i++) {
        bool known = all[i] < 0;
        for (int k = 0; k < i; k++)
            known = known || all[k] == all[i];
        if (list && !known && json_array_append_new(list, json_integer(all[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    if (!list || json_array_size(list) > 1)
        return list;
    json_t *one = json_array_size(list) == 1
                      ? json_integer(json_integer_value(json_array_get(list, 0)))
                      : json_null();
    json_decref(list);
    return one;
}

enum ax_status ax_gguf_model_generation_config(const struct ax_gguf_model *m, json_t **out) {
    *out = json_pack("{so so so}", "bos_token_id", id_or_null(m->bos), "eos_token_id", stop_ids(m),
                     "pad_token_id", id_or_null(m->pad));
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for generation_config.json");
}
