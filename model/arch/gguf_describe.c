/* struct ax_arch → the keys of a GGUF file. */
#include "model/arch/gguf_describe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "ckpt/gguf/lists.h"
#include "ckpt/gguf/mixed.h"
#include "ckpt/gguf/parts.h"
#include "ckpt/gguf/rope.h"
#include "ckpt/gguf/streams.h"
#include "model/arch/gguf_check.h"
#include "model/arch/kv_row.h"
#include "model/arch/part.h"

/* --- rope --- */

static struct ax_gguf_factors *add_factors(struct ax_gguf_described *d, const char *name,
                                           const struct ax_rope_config *rope) {
    struct ax_gguf_factors *f = &d->factors[d->n_factors++];
    f->name = name;
    f->n = rope->dim / 2;
    return f;
}

/* Readers divide frequency i by factor i, so factors are computed from both frequencies and give
 * exactly this program's values. */
static void rope_factors(struct ax_gguf_described *d, const struct ax_rope_config *rope) {
    float plain[1024], scaled[1024];
    double scaling;
    struct ax_rope_config none = *rope;
    struct ax_gguf_factors *f = add_factors(d, AX_GGUF_ROPE_FACTORS, rope);
    none.kind = AX_ROPE_DEFAULT;
    ax_rope_frequencies(&none, 0, plain, &scaling);
    ax_rope_frequencies(rope, 0, scaled, &scaling);
    for (int64_t i = 0; i < f->n; i++)
        f->v[i] = (float)((double)plain[i] / (double)scaled[i]);
}

static void longrope_factors(struct ax_gguf_described *d, const struct ax_rope_config *rope) {
    struct ax_gguf_factors *l = add_factors(d, AX_GGUF_ROPE_LONG, rope);
    struct ax_gguf_factors *s = add_factors(d, AX_GGUF_ROPE_SHORT, rope);
    memcpy(l->v, rope->long_factor, (size_t)l->n * sizeof *l->v);
    memcpy(s->v, rope->short_factor, (size_t)s->n * sizeof *s->v);
}

/* Readers take the divisors for full layers, and the sliding ones' rope as it is. */
static enum ax_status check_ropes_of_kinds(struct ax_gguf_described *d, const struct ax_arch *a,
                                           const char *where) {
    const struct ax_rope_config *full = &a->rope, *sliding = &a->rope_local;
    if (full->kind != AX_ROPE_PROPORTIONAL || full->factor != 1)
        return ax_gguf_refuse(where, "rope of full layers is not proportional, or has a factor");
    if (sliding->kind != AX_ROPE_DEFAULT || sliding->dim != a->head_dim)
        return ax_gguf_refuse(where, "rope of sliding layers is scaled or partial");
    struct ax_gguf_factors *f = add_factors(d, AX_GGUF_ROPE_FACTORS, full);
    for (int64_t i = 0; i < f->n; i++)
        f->v[i] = i < full->turning ? 1 : 1e30F;
    return AX_OK;
}

/* The factor of cos and sin that readers make of YaRN's keys. */
static double readers_scaling(const struct ax_gguf_kind *kind, const struct ax_arch *a) {
    const double by = 0.1 * log(a->rope.factor);
    if (a->mla.kv_rank > 0)
        return 1;
    return kind->grows ? (1 + by) / (1 + by * a->rope.mscale_all_dim) : 1 + by;
}

static enum ax_status check_rope(struct ax_gguf_described *d, const struct ax_arch *a,
                                 const char *where) {
    const struct ax_rope_config *r = &a->rope;
    const bool exact = d->model.kind->exact_yarn;
    float unused[1024];
    double scaling;
    if (d->model.kind->mixed)
        return check_ropes_of_kinds(d, a, where);
    if (d->model.growth > 0 && r->kind != AX_ROPE_YARN)
        return ax_gguf_refuse(where, "llama_4_scaling_beta without rope type yarn");
    if (d->model.kind->slides && (r->kind != AX_ROPE_DEFAULT || a->rope_local.kind != r->kind))
        return ax_gguf_refuse(where, "rope_parameters has a scaling");
    switch (r->kind) {
    case AX_ROPE_DYNAMIC:
        return ax_gguf_refuse(where, "rope type dynamic depends on the length of the text");
    case AX_ROPE_LLAMA3:
        if (strncmp(d->model.kind->arch, "llama", strlen("llama")) != 0 &&
            strcmp(d->model.kind->arch, "exaone4") != 0)
            return ax_gguf_refuse(where,
                                  "rope type is llama3, but the model is no Llama or EXAONE");
        rope_factors(d, r);
        return AX_OK;
    case AX_ROPE_LONGROPE:
        if (strcmp(d->model.kind->arch, "phi3") != 0)
            return ax_gguf_refuse(where, "rope type is longrope, but the model is not a Phi-3");
        longrope_factors(d, r);
        return AX_OK;
    case AX_ROPE_YARN:
        ax_rope_frequencies(r, 0, unused, &scaling);
        if (fabs(scaling - readers_scaling(d->model.kind, a)) > 1e-6)
            return ax_gguf_refuse(where, "rope type yarn has its own attention factor");
        if (exact && (r->beta_fast != 32 || r->beta_slow != 1))
            return ax_gguf_refuse(where, "rope type yarn has beta_fast or beta_slow of its own");
        if (r->truncate == exact)
            return ax_gguf_refuse(where, exact ? "rope type yarn is without truncate: false"
                                               : "rope type yarn has truncate: false");
        return AX_OK;
    default:
        return AX_OK;
    }
}

static enum ax_status put_yarn(const struct ax_arch *a, struct ax_gguf_keys *k, const char *arch,
                               bool grows) {
    const struct ax_rope_config *r = &a->rope;
    char key[96];
#define KEY(name) (snprintf(key, sizeof key, "%s.rope.scaling.%s", arch, name), key)
    if (r->beta_fast != 32) /* readers assume config.json's defaults */
        AX_TRY(ax_gguf_put_f32(k, KEY("yarn_beta_fast"), (float)r->beta_fast));
    if (r->beta_slow != 1)
        AX_TRY(ax_gguf_put_f32(k, KEY("yarn_beta_slow"), (float)r->beta_slow));
    if (a->mla.kv_rank > 0)
        return ax_gguf_put_f32(k, KEY("yarn_log_multiplier"), (float)(0.1 * r->mscale_all_dim));
    if (grows && r->mscale_all_dim > 0)
        return ax_gguf_put_f32(k, KEY("yarn_log_multiplier"), (float)r->mscale_all_dim);
    return AX_OK;
}

static enum ax_status put_rope(const struct ax_arch *a, const struct ax_gguf_model *m,
                               struct ax_gguf_keys *k) {
    const struct ax_rope_config *r = &a->rope;
    const char *arch = m->kind->arch;
    static const char *const names[] = {
        [AX_ROPE_LINEAR] = "linear", [AX_ROPE_YARN] = "yarn", [AX_ROPE_LONGROPE] = "longrope"};
    char key[96];
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    AX_TRY(ax_gguf_put_f32(k, key, (float)r->theta));
    snprintf(key, sizeof key, "%s.rope.dimension_count", arch);
    AX_TRY(ax_gguf_put_u32(k, key, (uint32_t)m->rotated));
    const char *type = (size_t)r->kind < sizeof names / sizeof *names ? names[r->kind] : NULL;
    if (!type)
        return AX_OK;
    AX_TRY(ax_gguf_put_string(k, KEY("type"), type, strlen(type)));
    if (r->kind != AX_ROPE_LONGROPE)
        AX_TRY(ax_gguf_put_f32(k, KEY("factor"), (float)r->factor));
    if (r->kind == AX_ROPE_LINEAR)
        return AX_OK;
    AX_TRY(ax_gguf_put_u32(k, KEY("original_context_length"), (uint32_t)r->original_max_positions));
    if (r->kind == AX_ROPE_YARN)
        return put_yarn(a, k, arch, m->kind->grows);
    float unused[1024];
    double scaling;
    ax_rope_frequencies(r, 0, unused, &scaling);
    return ax_gguf_put_f32(k, KEY("attn_factor"), (float)scaling);
#undef KEY
}

/* --- the rest --- */

/* The first layer without a window, counted from 1. The format repeats this period. */
static int64_t period_of(const struct ax_arch *a) {
    int64_t i = 0;
    while (i < a->n_layers && a->layers[i].window > 0)
        i++;
    return i + 1;
}

static int64_t dense_layers(const struct ax_arch *a) {
    int64_t n = 0;
    while (n < a->n_layers && a->layers[n].ffn == &ax_ffn_swiglu)
        n++;
    return n;
}

static void describe_experts(struct ax_gguf_model *m, const struct ax_arch *a) {
    const struct ax_moe_config *moe = &a->moe;
    m->experts = moe->n_experts;
    m->active = moe->n_active;
    m->expert_ffn = moe->width;
    m->shared_ffn = moe->shared_width;
    m->n_shared = m->kind->parts ? 1 : moe->shared_width / moe->width;
    m->dense_layers = m->kind->some_dense ? dense_layers(a) : 0;
    m->sparse_step = m->kind->chunked ? dense_layers(a) + 1 : 1;
    m->groups = moe->routing.groups > 0 ? moe->routing.groups : 1;
    m->groups_kept = moe->routing.groups > 0 ? moe->routing.groups_kept : 1;
    m->gating = m->kind->gating;
    m->routed_scale = moe->routing.scale;
    m->renormalize = moe->routing.renormalize;
}

/* Layers without attention, and what they have. */
static void describe_states(struct ax_gguf_model *m, const struct ax_arch *a) {
    const struct ax_delta_config *d = &a->delta;
    m->taps = a->conv.taps;
    m->interval = a->n_layers + 1;
    for (int64_t i = a->n_layers - 1; i >= 0; i--)
        if (a->layers[i].mixer->state)
            ax_gguf_set_state(m, i);
        else
            m->interval = i + 1;
    m->delta.keys = d->key_heads;
    m->delta.values = d->value_heads;
    m->delta.key_dim = d->key_dim;
    m->delta.value_dim = d->value_dim;
    m->delta.width = d->value_heads * d->value_dim;
}

static void describe_mamba(struct ax_gguf_model *m, const struct ax_arch *a) {
    if (a->ssd.heads == 0)
        return;
    m->ssd.heads = a->ssd.heads;
    m->ssd.head_dim = a->ssd.head_dim;
    m->ssd.groups = a->ssd.groups;
    m->ssd.state = a->ssd.state;
    m->ssd.width = a->ssd.heads * a->ssd.head_dim;
    m->ssd.norm = a->ssd.norm;
    if (!m->kind->convolves)
        return;
    m->ssd.expand = m->ssd.width / a->hidden_size;
    m->shared_ffn = a->intermediate_size;
    m->ffn = a->moe.n_experts > 0 ? a->moe.width : a->intermediate_size;
}

/* Layers of one part, and what experts read. */
static void describe_parts(struct ax_gguf_model *m, const struct ax_arch *a) {
    m->latent = a->moe.latent;
    for (int64_t i = 0; m->kind->parts && i < a->n_layers; i++)
        if (a->layers[i].ffn != &ax_part_none)
            ax_gguf_set_ffn(m, i);
}

/* Factors that readers do not know, as those of what each matrix gives. */
static void describe_folded(struct ax_gguf_model *m, const struct ax_arch *a) {
    const double in = a->beside_attention.in;
    m->folded.embedding = a->embedding_scale;
    m->folded.head = a->logit_scale;
    m->folded.in = in;
    m->folded.keys = in * a->softmax_scale * sqrt((double)a->head_dim);
    m->folded.out = a->beside_attention.out;
    m->folded.mamba_out = a->beside_mamba.out;
    m->folded.gate = a->mlp_scale[0];
    m->folded.down = a->mlp_scale[1];
    for (int i = 0; i < 5; i++)
        m->folded.mamba_in[i] = a->beside_mamba.in * a->ssd.scale[i];
}

static void describe_indexers(struct ax_gguf_model *m, const struct ax_arch *a) {
    m->index.heads = a->index.heads;
    m->index.head_dim = a->index.head_dim;
    m->index.top = a->index.top;
    for (int64_t i = 0; i < a->n_layers; i++)
        if (a->layers[i].mixer == &ax_mixer_dsa_shared)
            ax_gguf_set_shares_choice(m, i);
}

/* Layers that differ. */
static void describe_mixed(struct ax_gguf_model *m, const struct ax_arch *a) {
    if (!m->kind->mixed)
        return;
    m->mixed.head_dim = m->head_dim;
    m->mixed.kv_heads = m->kv_heads;
    m->mixed.wide_ffn = m->ffn;
    for (int64_t i = 0; i < a->n_layers; i++) {
        const struct ax_layer_spec *l = &a->layers[i];
        m->mixed.borrow += l->borrows;
        m->mixed.of_keys = m->mixed.of_keys || l->values_of_keys;
        if (l->width > 0)
            m->mixed.wide_ffn = l->width;
        if (l->window > 0) {
            ax_gguf_set_slides(m, i);
            continue;
        }
        m->mixed.head_dim = l->head_dim;
        m->mixed.kv_heads = l->kv_heads;
    }
    m->mixed.wide = m->mixed.wide_ffn != m->ffn;
    m->mixed.width = a->per_layer.width;
    m->mixed.table = a->per_layer.rows;
    m->mixed.sparse = a->moe.n_experts > 0;
    m->mixed.rotary_part = 2 * (double)a->rope.turning / (double)a->rope.dim;
}

/* Layers of several streams. */
static void describe_streams(struct ax_gguf_model *m, const struct ax_arch *a) {
    if (!m->kind->streams)
        return;
    m->streams.n = a->streams.n;
    m->streams.active = a->streams.active;
    m->streams.rank = a->laurel_rank;
    m->mixed.wide_ffn = m->ffn;
    m->mixed.width = a->per_layer.width;
    m->mixed.table = a->per_layer.rows;
    for (int64_t i = 0; i < a->n_layers; i++) {
        m->mixed.borrow += a->layers[i].borrows;
        if (a->layers[i].window > 0)
            ax_gguf_set_slides(m, i);
        if (a->layers[i].sparse && m->streams.sparse == i)
            m->streams.sparse++;
    }
}

/* What only some kinds have; the others ignore it. */
static void describe_special(struct ax_gguf_model *m, const struct ax_arch *a) {
    describe_states(m, a);
    describe_mamba(m, a);
    describe_mixed(m, a);
    describe_streams(m, a);
    describe_parts(m, a);
    describe_folded(m, a);
    describe_indexers(m, a);
    m->growth = m->kind->grows ? a->rope_queries.growth : 0;
    m->q_rank = a->mla.q_rank;
    m->kv_rank = a->mla.kv_rank;
    m->nope = a->mla.nope;
    m->left_out = a->n_unused;
    m->left_out_prefix = a->unused_prefix;
    m->window = ax_gguf_window_of(a);
    m->period = period_of(a);
    m->rope_theta_local = a->rope_local.theta;
    m->value_scale = a->value_scale;
    m->kv_sliding = a->n_kv_heads;
    for (int64_t i = 0; m->kind->slides && i < a->n_layers; i++)
        if (a->layers[i].window > 0) {
            ax_gguf_set_slides(m, i);
            m->kv_sliding = ax_layer_kv_heads(a, &a->layers[i]);
        }
    m->score_cap = a->score_softcap;
    m->logit_cap = a->logit_softcap;
    m->attention_scale = a->softmax_scale;
    m->embedding_scale = a->embedding_scale;
    m->residual_scale = a->residual_scale;
    m->logit_divisor = 1 / a->logit_scale;
    m->logit_scale = a->logit_scale;
    m->query_scalar = ax_gguf_query_scalar(m);
    if (m->kind->rescaled)
        m->query_scale = a->softmax_scale * sqrt((double)m->query_scalar);
}

enum ax_status ax_gguf_describe(struct ax_gguf_described *d, const struct ax_arch *a,
                                const char *where) {
    char list[1024];
    *d = (struct ax_gguf_described){0};
    d->model = (struct ax_gguf_model){
        .kind = ax_gguf_kind_for(a->family->model_type, a->moe.n_experts > 0),
        .layers = a->n_layers,
        .hidden = a->hidden_size,
        .ffn = a->intermediate_size,
        .heads = a->n_heads,
        .kv_heads = a->n_kv_heads,
        .head_dim = a->head_dim,
        .value_dim = a->v_head_dim,
        .rotated = a->mla.kv_rank > 0 ? a->mla.rope : a->rope.dim,
        .rotary_part = ax_gguf_rotary_part(a->rope.dim, a->head_dim),
        .context = a->max_positions,
        .vocab = a->vocab_size,
        .bos = -1,
        .eos = -1,
        .eot = -1,
        .pad = -1,
        .eps = a->norm_eps,
        .rope_theta = a->rope.theta,
        .tied = a->tied,
        .qkv_bias = a->qkv_bias,
        .o_bias = a->o_bias,
        .mlp_bias = a->mlp_bias,
        .qk_norm = a->qk_norm != AX_QK_NORM_NONE};
    if (!d->model.kind)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: config.json: %s models cannot be written as GGUF yet (%s can)", where,
                        a->family->model_type, ax_gguf_kind_list(list, sizeof list));
    if (d->model.kind->is_tied && !a->tied)
        return ax_gguf_refuse(where, "tie_word_embeddings is false, or its lm_head.weight is kept");
    if (d->model.kind->mamba && ax_state_layers(a) == 0)
        return ax_gguf_refuse(where, "no layer has Mamba-2");
    if (d->model.kind->parts && d->model.kind->moe)
        for (int64_t i = 0; i < a->n_layers; i++)
            if (a->layers[i].ffn == &ax_ffn_swiglu)
                return ax_gguf_refuse(where, "MLPs beside layers with experts");
    if (d->model.kind->kda && a->delta.value_heads != a->n_heads)
        return ax_gguf_refuse(where, "heads of the delta rule are others than those of attention");
    if (d->model.kind->kda && a->mla.q_rank > 0)
        return ax_gguf_refuse(where, "q_lora_rank is not null");
    if (a->moe.n_experts > 0)
        describe_experts(&d->model, a);
    if (d->model.kind->chunked)
        d->model.qk_norm = ax_gguf_norms_by_experts(&d->model);
    describe_special(&d->model, a);
    AX_TRY(check_rope(d, a, where));
    AX_TRY(ax_gguf_check(&d->model, a, where));
    if (a->n_unused > 0)
        ax_log_warn("%s: the layers for multi-token prediction are left out of the GGUF file",
                    where);
    return AX_OK;
}

static enum ax_status put_fields(const struct ax_gguf_model *m, struct ax_gguf_keys *keys) {
    char key[96];
    for (const struct ax_gguf_field *f = m->kind->fields; f && (f->gguf || f->hf); f++) {
        const char *at = (const char *)m + f->at;
        int64_t n = 1;
        double x = 1;
        bool b;
        snprintf(key, sizeof key, "%s.%s", m->kind->arch, f->gguf ? f->gguf : "");
        memcpy(&b, at, sizeof b);
        if (f->type == AX_GGUF_COUNT)
            memcpy(&n, at, sizeof n);
        if (f->type == AX_GGUF_REAL)
            memcpy(&x, at, sizeof x);
        if (!f->gguf || (f->optional && (n == 0 || x == 0)))
            continue;
        AX_TRY(f->type == AX_GGUF_COUNT  ? ax_gguf_put_u32(keys, key, (uint32_t)n)
               : f->type == AX_GGUF_REAL ? ax_gguf_put_f32(keys, key, (float)x)
                                         : ax_gguf_put_bool(keys, key, b));
    }
    return AX_OK;
}

/* Of a rope over time, height and width, which are equal in text; the fourth is none. */
static enum ax_status put_sections(const struct ax_gguf_model *m, struct ax_gguf_keys *keys) {
    const int64_t pairs = m->rotated / 2;
    char key[96];
    snprintf(key, sizeof key, "%s.rope.dimension_sections", m->kind->arch);
    AX_TRY(ax_gguf_put_array(keys, key, AX_GGUF_I32, 4));
    for (int64_t i = 2; i >= 0; i--)
        AX_TRY(ax_gguf_add_i32(keys, (int32_t)((pairs + i) / 3)));
    return ax_gguf_add_i32(keys, 0);
}

/* Heads of keys and values in each layer. */
static int64_t heads_of(const struct ax_gguf_model *m, int64_t layer) {
    if (m->kind->slides)
        return ax_gguf_slides(m, layer) ? m->kv_sliding : m->kv_heads;
    return ax_gguf_has_state(m, layer) ? 0 : m->kv_rank > 0 ? 1 : m->kv_heads; /* 1 of a latent */
}

static int64_t slides(const struct ax_gguf_model *m, int64_t layer) {
    return ax_gguf_slides(m, layer);
}

static enum ax_status put_indexers(const struct ax_gguf_model *m, struct ax_gguf_keys *keys) {
    char key[96];
    snprintf(key, sizeof key, "%s." AX_GGUF_INDEXERS, m->kind->arch);
    AX_TRY(ax_gguf_put_array(keys, key, AX_GGUF_BOOL, (uint64_t)m->layers));
    for (int64_t i = 0; i < m->layers; i++)
        AX_TRY(ax_gguf_add_bool(keys, !ax_gguf_shares_choice(m, i)));
    return AX_OK;
}

enum ax_status ax_gguf_put_sizes(const struct ax_gguf_described *d, const struct ax_arch *a,
                                 struct ax_gguf_keys *keys) {
    const struct ax_gguf_model *m = &d->model;
    const bool latent = m->kv_rank > 0, mixed = m->kind->mixed;
    const bool by_layer = m->kind->convolves || m->kind->slides || m->kind->parts || mixed;
    const struct {
        const char *suffix;
        int64_t value;
    } sizes[] = {
        {"vocab_size", m->vocab},
        {"context_length", m->context},
        {"embedding_length", m->hidden},
        {"block_count", m->layers},
        {"feed_forward_length", mixed || m->kind->parts ? 0 : m->ffn},
        {"attention.head_count", m->heads},
        {"attention.head_count_kv", by_layer ? 0
                                    : latent ? 1
                                             : m->kv_heads},
        {"attention.key_length", latent  ? m->kv_rank + m->rotated
                                 : mixed ? m->mixed.head_dim
                                         : m->head_dim},
        {"attention.value_length", latent  ? m->kv_rank
                                   : mixed ? m->mixed.head_dim
                                           : m->value_dim},
        {"attention.key_length_mla", latent ? m->head_dim : 0},
        {"attention.value_length_mla", latent ? m->value_dim : 0},
        {"expert_count", m->experts},
        {"expert_used_count", m->active},
        {"expert_feed_forward_length",
         m->kind->permuted ? 0 : m->expert_ffn}, /* mixtral: the same */
    };
    char key[96];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].value == 0)
            continue;
        snprintf(key, sizeof key, "%s.%s", m->kind->arch, sizes[i].suffix);
        AX_TRY(ax_gguf_put_u32(keys, key, (uint32_t)sizes[i].value));
    }
    snprintf(key, sizeof key, "%s.%s", m->kind->arch, ax_gguf_eps_key(m->kind));
    AX_TRY(ax_gguf_put_f32(keys, key, (float)m->eps));
    AX_TRY(put_fields(m, keys));
    if (m->kind->convolves || m->kind->slides)
        AX_TRY(ax_gguf_put_layers(m, keys, "attention.head_count_kv", heads_of));
    if (mixed)
        AX_TRY(ax_gguf_mixed_put(m, keys));
    if (m->kind->streams)
        AX_TRY(ax_gguf_streams_put(m, keys));
    if (m->kind->slides)
        AX_TRY(ax_gguf_put_layers(m, keys, "attention.sliding_window_pattern", slides));
    if (m->kind->parts)
        AX_TRY(ax_gguf_parts_put(m, keys));
    if (m->kind->shares)
        AX_TRY(put_indexers(m, keys));
    if (m->kind->sections)
        AX_TRY(put_sections(m, keys));
    return put_rope(a, m, keys);
}
