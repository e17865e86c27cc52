/* One table for all kinds: a model's features decide which rows apply. */
#include "ckpt/gguf/names.h"

#include <stdio.h>
#include <string.h>

enum size { NONE, VOCAB, HIDDEN, FFN, EXPERT_FFN, Q, KV, HEAD, EXPERTS };
enum when { ALWAYS, UNTIED, QKV_BIAS, O_BIAS, DENSE, MLP_BIAS, QK_NORM, MIXTRAL, MOE };

struct row {
    const char *gguf, *hf;
    enum size rows, cols; /* cols NONE: a vector */
    enum when when;
    enum ax_gguf_part part;
    bool rotary, expert;
};

#define VECTOR AX_GGUF_VECTOR
#define MATRIX AX_GGUF_MATRIX
/* clang-format off */
static const struct row first[] = {
    {"token_embd.weight", "model.embed_tokens.weight", VOCAB, HIDDEN, ALWAYS, AX_GGUF_EMBEDDING, false, false},
};
static const struct row per_layer[] = {
    {"attn_norm.weight", "input_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, false, false},
    {"attn_q.weight", "self_attn.q_proj.weight", Q, HIDDEN, ALWAYS, MATRIX, true, false},
    {"attn_q.bias", "self_attn.q_proj.bias", Q, NONE, QKV_BIAS, VECTOR, true, false},
    {"attn_k.weight", "self_attn.k_proj.weight", KV, HIDDEN, ALWAYS, AX_GGUF_KEYS, true, false},
    {"attn_k.bias", "self_attn.k_proj.bias", KV, NONE, QKV_BIAS, VECTOR, true, false},
    {"attn_v.weight", "self_attn.v_proj.weight", KV, HIDDEN, ALWAYS, AX_GGUF_VALUES, false, false},
    {"attn_v.bias", "self_attn.v_proj.bias", KV, NONE, QKV_BIAS, VECTOR, false, false},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", HEAD, NONE, QK_NORM, VECTOR, false, false},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", HEAD, NONE, QK_NORM, VECTOR, false, false},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, Q, ALWAYS, AX_GGUF_ATTENTION, false, false},
    {"attn_output.bias", "self_attn.o_proj.bias", HIDDEN, NONE, O_BIAS, VECTOR, false, false},
    {"ffn_norm.weight", "post_attention_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, false, false},
    {"ffn_gate.weight", "mlp.gate_proj.weight", FFN, HIDDEN, DENSE, MATRIX, false, false},
    {"ffn_gate.bias", "mlp.gate_proj.bias", FFN, NONE, MLP_BIAS, VECTOR, false, false},
    {"ffn_up.weight", "mlp.up_proj.weight", FFN, HIDDEN, DENSE, MATRIX, false, false},
    {"ffn_up.bias", "mlp.up_proj.bias", FFN, NONE, MLP_BIAS, VECTOR, false, false},
    {"ffn_down.weight", "mlp.down_proj.weight", HIDDEN, FFN, DENSE, AX_GGUF_DOWN, false, false},
    {"ffn_down.bias", "mlp.down_proj.bias", HIDDEN, NONE, MLP_BIAS, VECTOR, false, false},
    {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight", EXPERTS, HIDDEN, MIXTRAL, AX_GGUF_ROUTER, false, false},
    {"ffn_gate_exps.weight", "block_sparse_moe.experts.%d.w1.weight", EXPERT_FFN, HIDDEN, MIXTRAL, MATRIX, false, true},
    {"ffn_up_exps.weight", "block_sparse_moe.experts.%d.w3.weight", EXPERT_FFN, HIDDEN, MIXTRAL, MATRIX, false, true},
    {"ffn_down_exps.weight", "block_sparse_moe.experts.%d.w2.weight", HIDDEN, EXPERT_FFN, MIXTRAL, AX_GGUF_DOWN, false, true},
    {"ffn_gate_inp.weight", "mlp.gate.weight", EXPERTS, HIDDEN, MOE, AX_GGUF_ROUTER, false, false},
    {"ffn_gate_exps.weight", "mlp.experts.%d.gate_proj.weight", EXPERT_FFN, HIDDEN, MOE, MATRIX, false, true},
    {"ffn_up_exps.weight", "mlp.experts.%d.up_proj.weight", EXPERT_FFN, HIDDEN, MOE, MATRIX, false, true},
    {"ffn_down_exps.weight", "mlp.experts.%d.down_proj.weight", HIDDEN, EXPERT_FFN, MOE, AX_GGUF_DOWN, false, true},
};
static const struct row last[] = {
    {"output_norm.weight", "model.norm.weight", HIDDEN, NONE, ALWAYS, VECTOR, false, false},
    {"output.weight", "lm_head.weight", VOCAB, HIDDEN, UNTIED, AX_GGUF_HEAD, false, false},
};
/* clang-format on */
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static int64_t size_of(const struct ax_gguf_model *m, enum size s) {
    switch (s) {
    case VOCAB:
        return m->vocab;
    case HIDDEN:
        return m->hidden;
    case FFN:
        return m->ffn;
    case EXPERT_FFN:
        return m->expert_ffn;
    case Q:
        return m->heads * m->head_dim;
    case KV:
        return m->kv_heads * m->head_dim;
    case HEAD:
        return m->head_dim;
    case EXPERTS:
        return m->experts;
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
    case DENSE:
        return m->experts == 0;
    case MLP_BIAS:
        return m->mlp_bias && m->experts == 0;
    case QK_NORM:
        return m->kind->qk_norm;
    case MIXTRAL:
        return m->experts > 0 && m->kind->permuted;
    case MOE:
        return m->experts > 0 && !m->kind->permuted;
    case ALWAYS:
        break;
    }
    return true;
}

static enum ax_status visit_row(const struct ax_gguf_model *m, const struct row *row, int64_t layer,
                                ax_gguf_visit visit, void *ctx) {
    struct ax_gguf_name n = {.part = row->part,
                             .ndim = row->cols == NONE ? 1 : 2,
                             .shape = {size_of(m, row->rows), size_of(m, row->cols)},
                             .experts = row->expert ? m->experts : 0,
                             .layer = layer,
                             .rotary = row->rotary};
    if (!wanted(m, row->when))
        return AX_OK;
    if (layer < 0) {
        snprintf(n.gguf, sizeof n.gguf, "%s", row->gguf);
        snprintf(n.hf, sizeof n.hf, "%s", row->hf);
    } else {
        snprintf(n.gguf, sizeof n.gguf, "blk.%lld.%s", (long long)layer, row->gguf);
        snprintf(n.hf, sizeof n.hf, "model.layers.%lld.%s", (long long)layer, row->hf);
    }
    return visit(ctx, &n);
}

enum ax_status ax_gguf_each_tensor(const struct ax_gguf_model *m, ax_gguf_visit visit, void *ctx) {
    for (int i = 0; i < COUNT(first); i++)
        AX_TRY(visit_row(m, &first[i], -1, visit, ctx));
    for (int64_t layer = 0; layer < m->layers; layer++)
        for (int i = 0; i < COUNT(per_layer); i++)
            AX_TRY(visit_row(m, &per_layer[i], layer, visit, ctx));
    for (int i = 0; i < COUNT(last); i++)
        AX_TRY(visit_row(m, &last[i], -1, visit, ctx));
    return AX_OK;
}

const char *ax_gguf_expert_name(const struct ax_gguf_name *name, int64_t e, char buf[112]) {
    const char *at = strstr(name->hf, "%d");
    if (name->experts == 0 || !at)
        snprintf(buf, 112, "%s", name->hf);
    else
        snprintf(buf, 112, "%.*s%lld%s", (int)(at - name->hf), name->hf, (long long)e, at + 2);
    return buf;
}

int64_t ax_gguf_rotary_row(int64_t head_dim, int64_t r) {
    const int64_t half = head_dim / 2, head = r / head_dim, t = r % head_dim;
    return head * head_dim + 2 * (t % half) + t / half;
}
