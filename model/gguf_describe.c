/* struct ax_arch → the keys of a GGUF file. Rejects by name what GGUF cannot express. */
#include "model/gguf_describe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/layer.h"

static enum ax_status refuse(const char *where, const char *what) {
    return ax_error(AX_ERR_UNSUPPORTED, "%s: config.json: %s, which a GGUF file cannot express",
                    where, what);
}

/* --- rope --- */

/* Readers divide frequency i by factor i, so factors are computed from both frequencies and give
 * exactly this program's values. */
static void rope_factors(struct ax_gguf_described *d, const struct ax_rope_config *rope) {
    float plain[1024], scaled[1024];
    double scaling;
    struct ax_rope_config none = *rope;
    none.kind = AX_ROPE_DEFAULT;
    ax_rope_frequencies(&none, 0, plain, &scaling);
    ax_rope_frequencies(rope, 0, scaled, &scaling);
    for (int64_t i = 0; i < rope->dim / 2; i++)
        d->rope_factors[i] = (float)((double)plain[i] / (double)scaled[i]);
    d->has_rope_factors = true;
}

static enum ax_status check_rope(struct ax_gguf_described *d, const struct ax_arch *a,
                                 const char *where) {
    const struct ax_rope_config *r = &a->rope;
    float unused[1024];
    double scaling;
    if (r->dim != a->head_dim)
        return refuse(where, "partial_rotary_factor rotates only a part of each head");
    switch (r->kind) {
    case AX_ROPE_DYNAMIC:
        return refuse(where, "rope type dynamic depends on the length of the text");
    case AX_ROPE_LLAMA3:
        if (!d->model.kind->permuted)
            return refuse(where, "rope type is llama3, but the model is not a Llama");
        rope_factors(d, r);
        return AX_OK;
    case AX_ROPE_YARN:
        ax_rope_frequencies(r, 0, unused, &scaling);
        if (fabs(scaling - (1 + 0.1 * log(r->factor))) > 1e-6)
            return refuse(where, "rope type yarn has its own attention factor");
        return r->truncate ? AX_OK : refuse(where, "rope type yarn has truncate: false");
    default:
        return AX_OK;
    }
}

static enum ax_status put_rope(const struct ax_rope_config *r, struct ax_gguf_keys *k,
                               const char *arch) {
    static const char *const names[] = {[AX_ROPE_LINEAR] = "linear", [AX_ROPE_YARN] = "yarn"};
    char key[96];
#define KEY(name) (snprintf(key, sizeof key, "%s.rope.%s", arch, name), key)
    AX_TRY(ax_gguf_put_f32(k, KEY("freq_base"), (float)r->theta));
    AX_TRY(ax_gguf_put_u32(k, KEY("dimension_count"), (uint32_t)r->dim));
    if (r->kind != AX_ROPE_LINEAR && r->kind != AX_ROPE_YARN)
        return AX_OK;
    const char *type = names[r->kind];
    AX_TRY(ax_gguf_put_string(k, KEY("scaling.type"), type, strlen(type)));
    AX_TRY(ax_gguf_put_f32(k, KEY("scaling.factor"), (float)r->factor));
    if (r->kind == AX_ROPE_LINEAR)
        return AX_OK;
    AX_TRY(ax_gguf_put_u32(k, KEY("scaling.original_context_length"),
                           (uint32_t)r->original_max_positions));
    if (r->beta_fast != 32) /* readers assume config.json's defaults */
        AX_TRY(ax_gguf_put_f32(k, KEY("scaling.yarn_beta_fast"), (float)r->beta_fast));
    if (r->beta_slow != 1)
        AX_TRY(ax_gguf_put_f32(k, KEY("scaling.yarn_beta_slow"), (float)r->beta_slow));
    return AX_OK;
#undef KEY
}

/* --- the rest --- */

static enum ax_status check_experts(const struct ax_gguf_model *m, const struct ax_arch *a,
                                    const char *where) {
    for (int64_t i = 0; i < a->n_layers; i++)
        if ((a->layers[i].ffn != &ax_ffn_swiglu) != m->kind->moe)
            return refuse(where, "only some layers have experts");
    if (m->kind->moe && !a->moe.routing.renormalize)
        return refuse(where, "norm_topk_prob is false");
    return AX_OK;
}

static enum ax_status check_biases(const struct ax_gguf_model *m, const struct ax_arch *a,
                                   const char *where) {
    const bool plain_llama = m->kind->permuted && !m->kind->moe;
    if ((a->qkv_bias && !plain_llama && !m->kind->qkv_bias) || (a->o_bias && !plain_llama))
        return refuse(where, "attention_bias is true for this model_type");
    return AX_OK;
}

static void warn_of_windows(const struct ax_arch *a, const char *where) {
    for (int64_t i = 0; i < a->n_layers; i++) {
        const int64_t window = a->layers[i].window;
        if (window == 0 || window >= a->max_positions)
            continue;
        ax_log_warn("%s: config.json: sliding_window: %lld tokens, but readers of the GGUF file "
                    "attend to all; answers to longer texts will differ",
                    where, (long long)window);
        return;
    }
}

enum ax_status ax_gguf_describe(struct ax_gguf_described *d, const struct ax_arch *a,
                                const char *where) {
    *d = (struct ax_gguf_described){0};
    d->model = (struct ax_gguf_model){.kind = ax_gguf_kind_of(a->family->model_type),
                                      .layers = a->n_layers,
                                      .hidden = a->hidden_size,
                                      .ffn = a->intermediate_size,
                                      .heads = a->n_heads,
                                      .kv_heads = a->n_kv_heads,
                                      .head_dim = a->head_dim,
                                      .context = a->max_positions,
                                      .vocab = a->vocab_size,
                                      .eps = a->norm_eps,
                                      .rope_theta = a->rope.theta,
                                      .tied = a->tied,
                                      .qkv_bias = a->qkv_bias,
                                      .o_bias = a->o_bias,
                                      .mlp_bias = a->mlp_bias};
    if (!d->model.kind)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: config.json: %s models cannot be written as GGUF yet (llama, mistral, "
                        "mixtral, qwen2, qwen3 and qwen3_moe can)",
                        where, a->family->model_type);
    if (d->model.kind->moe) {
        d->model.experts = a->moe.n_experts;
        d->model.active = a->moe.n_active;
        d->model.expert_ffn = a->moe.width;
    }
    if (a->gating.gate != AX_GATE_SILU)
        return refuse(where, "hidden_act is not silu");
    AX_TRY(check_experts(&d->model, a, where));
    AX_TRY(check_biases(&d->model, a, where));
    warn_of_windows(a, where);
    return check_rope(d, a, where);
}

enum ax_status ax_gguf_put_sizes(const struct ax_gguf_described *d, const struct ax_arch *a,
                                 struct ax_gguf_keys *keys) {
    const struct ax_gguf_model *m = &d->model;
    const struct {
        const char *suffix;
        int64_t value;
    } sizes[] = {
        {"vocab_size", m->vocab},
        {"context_length", m->context},
        {"embedding_length", m->hidden},
        {"block_count", m->layers},
        {"feed_forward_length", m->ffn},
        {"attention.head_count", m->heads},
        {"attention.head_count_kv", m->kv_heads},
        {"attention.key_length", m->head_dim},
        {"attention.value_length", m->head_dim},
        {"expert_count", m->experts},
        {"expert_used_count", m->active},
        {"expert_feed_forward_length", m->kind->permuted ? 0 : m->expert_ffn},
    };
    char key[96];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].value == 0)
            continue;
        snprintf(key, sizeof key, "%s.%s", m->kind->arch, sizes[i].suffix);
        AX_TRY(ax_gguf_put_u32(keys, key, (uint32_t)sizes[i].value));
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", m->kind->arch);
    AX_TRY(ax_gguf_put_f32(keys, key, (float)m->eps));
    return put_rope(&a->rope, keys, m->kind->arch);
}
