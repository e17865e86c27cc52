/* One table for all kinds: a model's features decide which rows apply. */
#include "ckpt/gguf/names.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
enum size {
    NONE, ONE, VOCAB, HIDDEN, FFN, GATE_UP, EXPERT_FFN, SHARED_FFN, Q, KV, QKV, VALUES, HEAD, EXPERTS,
    Q_RANK, KV_RANK, LATENT, KV_B, HEADS, EXPERT_PAIR, TAPS, GATES_OF_CONV, Q_GATED,
    DELTA_VALUE, DELTA_HEADS, DELTA_VALUES, DELTA_QKV, DELTA_QKVZ, DELTA_PAIRS,
    DELTA_KEYS, SHARED_PAIR, SSD_IN, SSD_CONV, SSD_HEADS, SSD_WIDTH,
    INPUTS, INPUT_TABLE, INPUT_COLUMNS, KV_VALUES
};
enum when {
    ALWAYS, UNTIED, QKV_BIAS, O_BIAS, DENSE, MLP_BIAS, QK_NORM, SPARSE, SHARED, Q_LATENT, Q_DIRECT,
    ATTENDS, HAS_STATE, OWN_KEYS, OWN_VALUES, HAS_INPUTS, SLIDES
};
enum how {
    PLAIN,
    ROTARY,   /* rows of q or k */
    NUMBERED, /* a matrix of each expert */
    SCALED,   /* takes the kind's query_scale */
    UNSHIFTED,     /* whatever the kind's norms are */
    VECTOR_OF_ROW, /* a vector that is a matrix of one row in HF */
    TAPS_OF_CONV,  /* [channels][taps], with a dimension of 1 between them in HF */
    /* of the delta rule's value heads, which some kinds store by tiles: */
    TILED_HEADS,   /* rows of heads; the last rows, behind those of q and k; the same of taps; columns */
    TILED_VALUES,
    TILED_TAPS,
    TILED_COLUMNS,
    TILED_GATES,   /* a row, or element, of each head; the same as rates, −exp(x) */
    TILED_RATES,
    RATES,
    GROUPED_QKV,   /* of a matrix with q, k, v and z of each key head: q, k, v; z */
    GROUPED_Z,
    HEAD_KEYS,     /* of kv_b: per head the rows of nope, transposed */
    HEAD_VALUES,   /* of kv_b: per head the rows of v */
    EXPERT_EVEN,   /* of all experts' [in][out] in one: transposed, every other column from 0, from 1, all */
    EXPERT_ODD,
    EXPERT_ALL,
    EXPERT_FIRST,  /* the same, every column of the first half, of the last */
    EXPERT_LAST,
    BIAS_EVEN,     /* of all experts' vectors in one: every other element */
    BIAS_ODD,
    COLUMN,        /* a vector as a matrix of one column; the same as rates */
    COLUMN_OF_RATES,
    LIFTED_RATES,  /* the same where HF's vector is [1][1][n][1] */
    SPREAD_TAPS,   /* [channels][1][taps] in both */
    BY_GROUP,      /* a vector as a row for each group of Mamba-2 */
    FIRST_ROWS,    /* of two matrices in one */
    LAST_ROWS,
    STACK_FIRST,   /* of all experts' two matrices [E][2·out][in], or of one */
    STACK_LAST,
    STACK
};

struct row {
    const char *gguf, *hf;
    enum size rows, cols; /* of HF's tensor; cols NONE: a vector */
    enum when when;
    enum ax_gguf_part part;
    enum how how;
};

#define VECTOR AX_GGUF_VECTOR
#define MATRIX AX_GGUF_MATRIX
static const struct row first[] = {
    {"token_embd.weight", "model.embed_tokens.weight", VOCAB, HIDDEN, ALWAYS, AX_GGUF_EMBEDDING, PLAIN},
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight", INPUT_TABLE, INPUT_COLUMNS, HAS_INPUTS, MATRIX, PLAIN},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight", INPUT_COLUMNS, HIDDEN, HAS_INPUTS, AX_GGUF_ROUTER, PLAIN},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight", INPUTS, NONE, HAS_INPUTS, VECTOR, PLAIN},
};
static const struct row norm_in[] = {
    {"attn_norm.weight", "input_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN}, {0}};
#define PROJECTIONS                                                                                \
    {"attn_q.weight", "self_attn.q_proj.weight", Q, HIDDEN, ALWAYS, MATRIX, ROTARY},               \
    {"attn_q.bias", "self_attn.q_proj.bias", Q, NONE, QKV_BIAS, VECTOR, ROTARY},                   \
    {"attn_k.weight", "self_attn.k_proj.weight", KV, HIDDEN, ALWAYS, AX_GGUF_KEYS, ROTARY},        \
    {"attn_k.bias", "self_attn.k_proj.bias", KV, NONE, QKV_BIAS, VECTOR, ROTARY},                  \
    {"attn_v.weight", "self_attn.v_proj.weight", KV, HIDDEN, ALWAYS, AX_GGUF_VALUES, PLAIN},       \
    {"attn_v.bias", "self_attn.v_proj.bias", KV, NONE, QKV_BIAS, VECTOR, PLAIN}
#define NORMS(q, k)                                                                                \
    {"attn_q_norm.weight", "self_attn." q ".weight", HEAD, NONE, QK_NORM, VECTOR, SCALED},         \
    {"attn_k_norm.weight", "self_attn." k ".weight", HEAD, NONE, QK_NORM, VECTOR, PLAIN}
#define OUTPUT                                                                                     \
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, VALUES, ALWAYS, AX_GGUF_ATTENTION, PLAIN}, \
    {"attn_output.bias", "self_attn.o_proj.bias", HIDDEN, NONE, O_BIAS, VECTOR, PLAIN}
static const struct row attention[] = {PROJECTIONS, NORMS("q_norm", "k_norm"), OUTPUT, {0}};
static const struct row attention_of_hunyuan[] = {
    PROJECTIONS, NORMS("query_layernorm", "key_layernorm"), OUTPUT, {0}};
static const struct row scaled_attention[] = { /* without norms that could take the scale */
    {"attn_q.weight", "self_attn.q_proj.weight", Q, HIDDEN, ALWAYS, MATRIX, SCALED},
    {"attn_k.weight", "self_attn.k_proj.weight", KV, HIDDEN, ALWAYS, AX_GGUF_KEYS, PLAIN},
    {"attn_v.weight", "self_attn.v_proj.weight", KV, HIDDEN, ALWAYS, AX_GGUF_VALUES, PLAIN},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, VALUES, ALWAYS, AX_GGUF_ATTENTION, PLAIN}, {0}};
static const struct row normed_attention[] = { /* all heads together */
    {"attn_q.weight", "self_attn.q_proj.weight", Q, HIDDEN, ALWAYS, MATRIX, PLAIN},
    {"attn_k.weight", "self_attn.k_proj.weight", KV, HIDDEN, ALWAYS, AX_GGUF_KEYS, PLAIN},
    {"attn_v.weight", "self_attn.v_proj.weight", KV, HIDDEN, ALWAYS, AX_GGUF_VALUES, PLAIN},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", Q, NONE, ALWAYS, VECTOR, PLAIN},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", KV, NONE, ALWAYS, VECTOR, PLAIN},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, VALUES, ALWAYS, AX_GGUF_ATTENTION, PLAIN}, {0}};
static const struct row fused_attention[] = {
    {"attn_qkv.weight", "self_attn.qkv_proj.weight", QKV, HIDDEN, ALWAYS, MATRIX, PLAIN},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, VALUES, ALWAYS, AX_GGUF_ATTENTION, PLAIN}, {0}};
static const struct row latent_attention[] = {
    {"attn_q_a.weight", "self_attn.q_a_proj.weight", Q_RANK, HIDDEN, Q_LATENT, MATRIX, PLAIN},
    {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight", Q_RANK, NONE, Q_LATENT, VECTOR, PLAIN},
    {"attn_q_b.weight", "self_attn.q_b_proj.weight", Q, Q_RANK, Q_LATENT, MATRIX, PLAIN},
    {"attn_q.weight", "self_attn.q_proj.weight", Q, HIDDEN, Q_DIRECT, MATRIX, PLAIN},
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight", LATENT, HIDDEN, ALWAYS, MATRIX, PLAIN},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight", KV_RANK, NONE, ALWAYS, VECTOR, PLAIN},
    {"attn_k_b.weight", "self_attn.kv_b_proj.weight", KV_B, KV_RANK, ALWAYS, AX_GGUF_KEYS, HEAD_KEYS},
    {"attn_v_b.weight", "self_attn.kv_b_proj.weight", KV_B, KV_RANK, ALWAYS, AX_GGUF_VALUES, HEAD_VALUES},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, VALUES, ALWAYS, AX_GGUF_ATTENTION, PLAIN}, {0}};
static const struct row norm_ffn[] = {
    {"ffn_norm.weight", "post_attention_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN}, {0}};
static const struct row norm_ffn_late[] = { /* the same by the name of another */
    {"post_attention_norm.weight", "post_attention_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN}, {0}};
static const struct row norms_around[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN}, {0}};
static const struct row norms_after[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN}, {0}};
static const struct row norms_of_glm4[] = {
    {"post_attention_norm.weight", "post_self_attn_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN},
    {"ffn_norm.weight", "post_attention_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN},
    {"post_ffw_norm.weight", "post_mlp_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN}, {0}};
static const struct row mlp[] = {
    {"ffn_gate.weight", "mlp.gate_proj.weight", FFN, HIDDEN, DENSE, MATRIX, PLAIN},
    {"ffn_gate.bias", "mlp.gate_proj.bias", FFN, NONE, MLP_BIAS, VECTOR, PLAIN},
    {"ffn_up.weight", "mlp.up_proj.weight", FFN, HIDDEN, DENSE, MATRIX, PLAIN},
    {"ffn_up.bias", "mlp.up_proj.bias", FFN, NONE, MLP_BIAS, VECTOR, PLAIN},
    {"ffn_down.weight", "mlp.down_proj.weight", HIDDEN, FFN, DENSE, AX_GGUF_DOWN, PLAIN},
    {"ffn_down.bias", "mlp.down_proj.bias", HIDDEN, NONE, MLP_BIAS, VECTOR, PLAIN}, {0}};
static const struct row fused_mlp[] = {
    {"ffn_up.weight", "mlp.gate_up_proj.weight", GATE_UP, HIDDEN, ALWAYS, MATRIX, PLAIN},
    {"ffn_down.weight", "mlp.down_proj.weight", HIDDEN, FFN, ALWAYS, AX_GGUF_DOWN, PLAIN}, {0}};
static const struct row experts_of_mixtral[] = {
    {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight", EXPERTS, HIDDEN, SPARSE, AX_GGUF_ROUTER, PLAIN},
    {"ffn_gate_exps.weight", "block_sparse_moe.experts.%d.w1.weight", EXPERT_FFN, HIDDEN, SPARSE, MATRIX, NUMBERED},
    {"ffn_up_exps.weight", "block_sparse_moe.experts.%d.w3.weight", EXPERT_FFN, HIDDEN, SPARSE, MATRIX, NUMBERED},
    {"ffn_down_exps.weight", "block_sparse_moe.experts.%d.w2.weight", HIDDEN, EXPERT_FFN, SPARSE, AX_GGUF_DOWN, NUMBERED}, {0}};
static const struct row experts[] = {
    {"ffn_gate_inp.weight", "mlp.gate.weight", EXPERTS, HIDDEN, SPARSE, AX_GGUF_ROUTER, PLAIN},
    {"ffn_gate_exps.weight", "mlp.experts.%d.gate_proj.weight", EXPERT_FFN, HIDDEN, SPARSE, MATRIX, NUMBERED},
    {"ffn_up_exps.weight", "mlp.experts.%d.up_proj.weight", EXPERT_FFN, HIDDEN, SPARSE, MATRIX, NUMBERED},
    {"ffn_down_exps.weight", "mlp.experts.%d.down_proj.weight", HIDDEN, EXPERT_FFN, SPARSE, AX_GGUF_DOWN, NUMBERED}, {0}};
static const struct row stacked_experts[] = {
    {"ffn_gate_inp.weight", "mlp.router.weight", EXPERTS, HIDDEN, SPARSE, AX_GGUF_ROUTER, PLAIN},
    {"ffn_gate_inp.bias", "mlp.router.bias", EXPERTS, NONE, SPARSE, VECTOR, PLAIN},
    {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj", HIDDEN, EXPERT_PAIR, SPARSE, MATRIX, EXPERT_EVEN},
    {"ffn_up_exps.weight", "mlp.experts.gate_up_proj", HIDDEN, EXPERT_PAIR, SPARSE, MATRIX, EXPERT_ODD},
    {"ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias", EXPERTS, EXPERT_PAIR, SPARSE, VECTOR, BIAS_EVEN},
    {"ffn_up_exps.bias", "mlp.experts.gate_up_proj_bias", EXPERTS, EXPERT_PAIR, SPARSE, VECTOR, BIAS_ODD},
    {"ffn_down_exps.weight", "mlp.experts.down_proj", EXPERT_FFN, HIDDEN, SPARSE, AX_GGUF_DOWN, EXPERT_ALL},
    {"ffn_down_exps.bias", "mlp.experts.down_proj_bias", EXPERTS, HIDDEN, SPARSE, VECTOR, PLAIN}, {0}};
static const struct row mlp_of_llama4[] = {
    {"ffn_gate.weight", "feed_forward.gate_proj.weight", FFN, HIDDEN, DENSE, MATRIX, PLAIN},
    {"ffn_up.weight", "feed_forward.up_proj.weight", FFN, HIDDEN, DENSE, MATRIX, PLAIN},
    {"ffn_down.weight", "feed_forward.down_proj.weight", HIDDEN, FFN, DENSE, AX_GGUF_DOWN, PLAIN}, {0}};
static const struct row experts_of_llama4[] = {
    {"ffn_gate_inp.weight", "feed_forward.router.weight", EXPERTS, HIDDEN, SPARSE, AX_GGUF_ROUTER, PLAIN},
    {"ffn_gate_exps.weight", "feed_forward.experts.gate_up_proj", HIDDEN, EXPERT_PAIR, SPARSE, MATRIX, EXPERT_FIRST},
    {"ffn_up_exps.weight", "feed_forward.experts.gate_up_proj", HIDDEN, EXPERT_PAIR, SPARSE, MATRIX, EXPERT_LAST},
    {"ffn_down_exps.weight", "feed_forward.experts.down_proj", EXPERT_FFN, HIDDEN, SPARSE, AX_GGUF_DOWN, EXPERT_ALL},
    {"ffn_gate_shexp.weight", "feed_forward.shared_expert.gate_proj.weight", SHARED_FFN, HIDDEN, SHARED, MATRIX, PLAIN},
    {"ffn_up_shexp.weight", "feed_forward.shared_expert.up_proj.weight", SHARED_FFN, HIDDEN, SHARED, MATRIX, PLAIN},
    {"ffn_down_shexp.weight", "feed_forward.shared_expert.down_proj.weight", HIDDEN, SHARED_FFN, SHARED, AX_GGUF_DOWN, PLAIN}, {0}};
static const struct row attention_of_mimo[] = {
    {"attn_q.weight", "self_attn.q_proj.weight", Q, HIDDEN, ALWAYS, MATRIX, PLAIN},
    {"attn_k.weight", "self_attn.k_proj.weight", KV, HIDDEN, ALWAYS, AX_GGUF_KEYS, PLAIN},
    {"attn_v.weight", "self_attn.v_proj.weight", KV_VALUES, HIDDEN, ALWAYS, AX_GGUF_VALUES, PLAIN},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, VALUES, ALWAYS, AX_GGUF_ATTENTION, PLAIN},
    {"attn_sinks.weight", "self_attn.attention_sink_bias", HEADS, NONE, SLIDES, VECTOR, PLAIN}, {0}};
static const struct row attention_of_llama4[] = {PROJECTIONS, OUTPUT, {0}};
static const struct row sinks[] = {
    {"attn_sinks.weight", "self_attn.sinks", HEADS, NONE, ALWAYS, VECTOR, PLAIN}, {0}};
static const struct row router_bias[] = {
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", EXPERTS, NONE, SPARSE, VECTOR, PLAIN}, {0}};
static const struct row router_bias_of_minimax[] = {
    {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias", EXPERTS, NONE, SPARSE, VECTOR, PLAIN}, {0}};
static const struct row router_bias_of_ernie[] = {
    {"exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias", ONE, EXPERTS, SPARSE, VECTOR, VECTOR_OF_ROW}, {0}};
static const struct row shared_experts[] = {
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight", SHARED_FFN, HIDDEN, SHARED, MATRIX, PLAIN},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight", SHARED_FFN, HIDDEN, SHARED, MATRIX, PLAIN},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight", HIDDEN, SHARED_FFN, SHARED, AX_GGUF_DOWN, PLAIN}, {0}};
static const struct row gated_expert[] = {
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", ONE, HIDDEN, SHARED, VECTOR, VECTOR_OF_ROW},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight", SHARED_FFN, HIDDEN, SHARED, MATRIX, PLAIN},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight", SHARED_FFN, HIDDEN, SHARED, MATRIX, PLAIN},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight", HIDDEN, SHARED_FFN, SHARED, AX_GGUF_DOWN, PLAIN}, {0}};
static const struct row mixer_of_lfm2[] = {
    {"attn_norm.weight", "operator_norm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN},
    {"shortconv.in_proj.weight", "conv.in_proj.weight", GATES_OF_CONV, HIDDEN, HAS_STATE, MATRIX, PLAIN},
    {"shortconv.conv.weight", "conv.conv.weight", HIDDEN, TAPS, HAS_STATE, VECTOR, TAPS_OF_CONV},
    {"shortconv.out_proj.weight", "conv.out_proj.weight", HIDDEN, HIDDEN, HAS_STATE, MATRIX, PLAIN},
    {"attn_q.weight", "self_attn.q_proj.weight", Q, HIDDEN, ATTENDS, MATRIX, ROTARY},
    {"attn_k.weight", "self_attn.k_proj.weight", KV, HIDDEN, ATTENDS, AX_GGUF_KEYS, ROTARY},
    {"attn_v.weight", "self_attn.v_proj.weight", KV, HIDDEN, ATTENDS, AX_GGUF_VALUES, PLAIN},
    {"attn_q_norm.weight", "self_attn.q_layernorm.weight", HEAD, NONE, ATTENDS, VECTOR, PLAIN},
    {"attn_k_norm.weight", "self_attn.k_layernorm.weight", HEAD, NONE, ATTENDS, VECTOR, PLAIN},
    {"attn_output.weight", "self_attn.out_proj.weight", HIDDEN, VALUES, ATTENDS, AX_GGUF_ATTENTION, PLAIN},
    {"ffn_norm.weight", "ffn_norm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN}, {0}};
static const struct row mlp_of_lfm2[] = {
    {"ffn_gate.weight", "feed_forward.w1.weight", FFN, HIDDEN, DENSE, MATRIX, PLAIN},
    {"ffn_up.weight", "feed_forward.w3.weight", FFN, HIDDEN, DENSE, MATRIX, PLAIN},
    {"ffn_down.weight", "feed_forward.w2.weight", HIDDEN, FFN, DENSE, AX_GGUF_DOWN, PLAIN}, {0}};
static const struct row experts_of_lfm2[] = {
    {"ffn_gate_inp.weight", "feed_forward.gate.weight", EXPERTS, HIDDEN, SPARSE, AX_GGUF_ROUTER, PLAIN},
    {"exp_probs_b.bias", "feed_forward.expert_bias", EXPERTS, NONE, SPARSE, VECTOR, PLAIN},
    {"ffn_gate_exps.weight", "feed_forward.experts.%d.w1.weight", EXPERT_FFN, HIDDEN, SPARSE, MATRIX, NUMBERED},
    {"ffn_up_exps.weight", "feed_forward.experts.%d.w3.weight", EXPERT_FFN, HIDDEN, SPARSE, MATRIX, NUMBERED},
    {"ffn_down_exps.weight", "feed_forward.experts.%d.w2.weight", HIDDEN, EXPERT_FFN, SPARSE, AX_GGUF_DOWN, NUMBERED}, {0}};
static const struct row gated_attention[] = {
    {"attn_q.weight", "self_attn.q_proj.weight", Q_GATED, HIDDEN, ATTENDS, MATRIX, PLAIN},
    {"attn_k.weight", "self_attn.k_proj.weight", KV, HIDDEN, ATTENDS, AX_GGUF_KEYS, PLAIN},
    {"attn_v.weight", "self_attn.v_proj.weight", KV, HIDDEN, ATTENDS, AX_GGUF_VALUES, PLAIN},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", HEAD, NONE, ATTENDS, VECTOR, PLAIN},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", HEAD, NONE, ATTENDS, VECTOR, PLAIN},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, VALUES, ATTENDS, AX_GGUF_ATTENTION, PLAIN}, {0}};
static const struct row delta_rule[] = {
    {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight", DELTA_QKV, HIDDEN, HAS_STATE, MATRIX, TILED_VALUES},
    {"attn_gate.weight", "linear_attn.in_proj_z.weight", DELTA_VALUES, HIDDEN, HAS_STATE, MATRIX, TILED_HEADS},
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight", DELTA_QKV, TAPS, HAS_STATE, VECTOR, TILED_TAPS},
    {"ssm_dt.bias", "linear_attn.dt_bias", DELTA_HEADS, NONE, HAS_STATE, VECTOR, TILED_GATES},
    {"ssm_a", "linear_attn.A_log", DELTA_HEADS, NONE, HAS_STATE, VECTOR, TILED_RATES},
    {"ssm_beta.weight", "linear_attn.in_proj_b.weight", DELTA_HEADS, HIDDEN, HAS_STATE, MATRIX, TILED_GATES},
    {"ssm_alpha.weight", "linear_attn.in_proj_a.weight", DELTA_HEADS, HIDDEN, HAS_STATE, MATRIX, TILED_GATES},
    {"ssm_norm.weight", "linear_attn.norm.weight", DELTA_VALUE, NONE, HAS_STATE, VECTOR, UNSHIFTED},
    {"ssm_out.weight", "linear_attn.out_proj.weight", HIDDEN, DELTA_VALUES, HAS_STATE, MATRIX, TILED_COLUMNS}, {0}};
static const struct row grouped_delta_rule[] = {
    {"attn_qkv.weight", "linear_attn.in_proj_qkvz.weight", DELTA_QKVZ, HIDDEN, HAS_STATE, MATRIX, GROUPED_QKV},
    {"attn_gate.weight", "linear_attn.in_proj_qkvz.weight", DELTA_QKVZ, HIDDEN, HAS_STATE, MATRIX, GROUPED_Z},
    {"ssm_ba.weight", "linear_attn.in_proj_ba.weight", DELTA_PAIRS, HIDDEN, HAS_STATE, MATRIX, PLAIN},
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight", DELTA_QKV, TAPS, HAS_STATE, VECTOR, TAPS_OF_CONV},
    {"ssm_dt.bias", "linear_attn.dt_bias", DELTA_HEADS, NONE, HAS_STATE, VECTOR, UNSHIFTED},
    {"ssm_a", "linear_attn.A_log", DELTA_HEADS, NONE, HAS_STATE, VECTOR, RATES},
    {"ssm_norm.weight", "linear_attn.norm.weight", DELTA_VALUE, NONE, HAS_STATE, VECTOR, UNSHIFTED},
    {"ssm_out.weight", "linear_attn.out_proj.weight", HIDDEN, DELTA_VALUES, HAS_STATE, MATRIX, PLAIN}, {0}};
static const struct row mixer_of_granite[] = {
    {"attn_norm.weight", "input_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN},
    {"ssm_in.weight", "mamba.in_proj.weight", SSD_IN, HIDDEN, HAS_STATE, MATRIX, PLAIN},
    {"ssm_conv1d.weight", "mamba.conv1d.weight", SSD_CONV, TAPS, HAS_STATE, VECTOR, TAPS_OF_CONV},
    {"ssm_conv1d.bias", "mamba.conv1d.bias", SSD_CONV, NONE, HAS_STATE, VECTOR, PLAIN},
    {"ssm_dt.bias", "mamba.dt_bias", SSD_HEADS, NONE, HAS_STATE, VECTOR, PLAIN},
    {"ssm_a", "mamba.A_log", SSD_HEADS, NONE, HAS_STATE, VECTOR, COLUMN_OF_RATES},
    {"ssm_d", "mamba.D", SSD_HEADS, NONE, HAS_STATE, VECTOR, COLUMN},
    {"ssm_norm.weight", "mamba.norm.weight", SSD_WIDTH, NONE, HAS_STATE, VECTOR, BY_GROUP},
    {"ssm_out.weight", "mamba.out_proj.weight", HIDDEN, SSD_WIDTH, HAS_STATE, MATRIX, PLAIN},
    {"attn_q.weight", "self_attn.q_proj.weight", Q, HIDDEN, ATTENDS, MATRIX, ROTARY},
    {"attn_k.weight", "self_attn.k_proj.weight", KV, HIDDEN, ATTENDS, AX_GGUF_KEYS, ROTARY},
    {"attn_v.weight", "self_attn.v_proj.weight", KV, HIDDEN, ATTENDS, AX_GGUF_VALUES, PLAIN},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, VALUES, ATTENDS, AX_GGUF_ATTENTION, PLAIN},
    {"ffn_norm.weight", "post_attention_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN}, {0}};
static const struct row mixer_of_kimi[] = {
    {"attn_q.weight", "self_attn.q_proj.weight", DELTA_KEYS, HIDDEN, HAS_STATE, MATRIX, PLAIN},
    {"attn_k.weight", "self_attn.k_proj.weight", DELTA_KEYS, HIDDEN, HAS_STATE, AX_GGUF_KEYS, PLAIN},
    {"attn_v.weight", "self_attn.v_proj.weight", DELTA_VALUES, HIDDEN, HAS_STATE, AX_GGUF_VALUES, PLAIN},
    {"ssm_conv1d_q.weight", "self_attn.q_conv1d.weight", DELTA_KEYS, TAPS, HAS_STATE, VECTOR, SPREAD_TAPS},
    {"ssm_conv1d_k.weight", "self_attn.k_conv1d.weight", DELTA_KEYS, TAPS, HAS_STATE, VECTOR, SPREAD_TAPS},
    {"ssm_conv1d_v.weight", "self_attn.v_conv1d.weight", DELTA_VALUES, TAPS, HAS_STATE, VECTOR, SPREAD_TAPS},
    {"ssm_f_a.weight", "self_attn.f_a_proj.weight", DELTA_VALUE, HIDDEN, HAS_STATE, MATRIX, PLAIN},
    {"ssm_f_b.weight", "self_attn.f_b_proj.weight", DELTA_KEYS, DELTA_VALUE, HAS_STATE, MATRIX, PLAIN},
    {"ssm_beta.weight", "self_attn.b_proj.weight", DELTA_HEADS, HIDDEN, HAS_STATE, MATRIX, PLAIN},
    {"ssm_a", "self_attn.A_log", DELTA_HEADS, NONE, HAS_STATE, VECTOR, LIFTED_RATES},
    {"ssm_dt.bias", "self_attn.dt_bias", DELTA_KEYS, NONE, HAS_STATE, VECTOR, PLAIN},
    {"ssm_g_a.weight", "self_attn.g_a_proj.weight", DELTA_VALUE, HIDDEN, HAS_STATE, MATRIX, PLAIN},
    {"ssm_g_b.weight", "self_attn.g_b_proj.weight", DELTA_VALUES, DELTA_VALUE, HAS_STATE, MATRIX, PLAIN},
    {"ssm_norm.weight", "self_attn.o_norm.weight", DELTA_VALUE, NONE, HAS_STATE, VECTOR, PLAIN},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, DELTA_VALUES, HAS_STATE, AX_GGUF_ATTENTION, PLAIN},
    {"attn_q.weight", "self_attn.q_proj.weight", Q, HIDDEN, ATTENDS, MATRIX, PLAIN},
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight", LATENT, HIDDEN, ATTENDS, MATRIX, PLAIN},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight", KV_RANK, NONE, ATTENDS, VECTOR, PLAIN},
    {"attn_k_b.weight", "self_attn.kv_b_proj.weight", KV_B, KV_RANK, ATTENDS, AX_GGUF_KEYS, HEAD_KEYS},
    {"attn_v_b.weight", "self_attn.kv_b_proj.weight", KV_B, KV_RANK, ATTENDS, AX_GGUF_VALUES, HEAD_VALUES},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, VALUES, ATTENDS, AX_GGUF_ATTENTION, PLAIN}, {0}};
static const struct row router_bias_of_kimi[] = {
    {"exp_probs_b.bias", "block_sparse_moe.gate.e_score_correction_bias", EXPERTS, NONE, SPARSE, VECTOR, PLAIN}, {0}};
static const struct row shared_experts_of_kimi[] = {
    {"ffn_gate_shexp.weight", "block_sparse_moe.shared_experts.gate_proj.weight", SHARED_FFN, HIDDEN, SHARED, MATRIX, PLAIN},
    {"ffn_up_shexp.weight", "block_sparse_moe.shared_experts.up_proj.weight", SHARED_FFN, HIDDEN, SHARED, MATRIX, PLAIN},
    {"ffn_down_shexp.weight", "block_sparse_moe.shared_experts.down_proj.weight", HIDDEN, SHARED_FFN, SHARED, AX_GGUF_DOWN, PLAIN}, {0}};
#define MLP_OF_GRANITE(tail, when)                                                                 \
    {"ffn_gate" tail ".weight", "shared_mlp.input_linear.weight", SHARED_PAIR, HIDDEN, when, MATRIX, FIRST_ROWS}, \
    {"ffn_up" tail ".weight", "shared_mlp.input_linear.weight", SHARED_PAIR, HIDDEN, when, MATRIX, LAST_ROWS}, \
    {"ffn_down" tail ".weight", "shared_mlp.output_linear.weight", HIDDEN, SHARED_FFN, when, AX_GGUF_DOWN, PLAIN}
static const struct row mlp_of_granite[] = {MLP_OF_GRANITE("", DENSE), MLP_OF_GRANITE("_shexp", SHARED), {0}};
static const struct row experts_of_granite[] = {
    {"ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight", EXPERTS, HIDDEN, SPARSE, AX_GGUF_ROUTER, PLAIN},
    {"ffn_gate_exps.weight", "block_sparse_moe.input_linear.weight", EXPERT_PAIR, HIDDEN, SPARSE, MATRIX, STACK_FIRST},
    {"ffn_up_exps.weight", "block_sparse_moe.input_linear.weight", EXPERT_PAIR, HIDDEN, SPARSE, MATRIX, STACK_LAST},
    {"ffn_down_exps.weight", "block_sparse_moe.output_linear.weight", HIDDEN, EXPERT_FFN, SPARSE, AX_GGUF_DOWN, STACK}, {0}};
static const struct row attention_of_gemma4[] = {
    {"attn_q.weight", "self_attn.q_proj.weight", Q, HIDDEN, ALWAYS, MATRIX, PLAIN},
    {"attn_k.weight", "self_attn.k_proj.weight", KV, HIDDEN, OWN_KEYS, AX_GGUF_KEYS, PLAIN},
    {"attn_v.weight", "self_attn.v_proj.weight", KV, HIDDEN, OWN_VALUES, AX_GGUF_VALUES, PLAIN},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", HEAD, NONE, ALWAYS, VECTOR, PLAIN},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", HEAD, NONE, OWN_KEYS, VECTOR, PLAIN},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, VALUES, ALWAYS, AX_GGUF_ATTENTION, PLAIN}, {0}};
static const struct row mlp_of_gemma4[] = { /* beside experts, too */
    {"ffn_gate.weight", "mlp.gate_proj.weight", FFN, HIDDEN, ALWAYS, MATRIX, PLAIN},
    {"ffn_up.weight", "mlp.up_proj.weight", FFN, HIDDEN, ALWAYS, MATRIX, PLAIN},
    {"ffn_down.weight", "mlp.down_proj.weight", HIDDEN, FFN, ALWAYS, AX_GGUF_DOWN, PLAIN}, {0}};
static const struct row experts_of_gemma4[] = {
    {"ffn_gate_inp.weight", "router.proj.weight", EXPERTS, HIDDEN, SPARSE, AX_GGUF_ROUTER, PLAIN},
    {"ffn_gate_inp.scale", "router.scale", HIDDEN, NONE, SPARSE, VECTOR, PLAIN},
    {"ffn_gate_up_exps.weight", "experts.gate_up_proj", EXPERT_PAIR, HIDDEN, SPARSE, MATRIX, STACK},
    {"ffn_down_exps.weight", "experts.down_proj", HIDDEN, EXPERT_FFN, SPARSE, AX_GGUF_DOWN, STACK},
    {"ffn_down_exps.scale", "router.per_expert_scale", EXPERTS, NONE, SPARSE, VECTOR, PLAIN},
    {"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight", HIDDEN, NONE, SPARSE, VECTOR, PLAIN},
    {"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight", HIDDEN, NONE, SPARSE, VECTOR, PLAIN},
    {"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight", HIDDEN, NONE, SPARSE, VECTOR, PLAIN}, {0}};
static const struct row inputs_of_gemma4[] = {
    {"inp_gate.weight", "per_layer_input_gate.weight", INPUTS, HIDDEN, HAS_INPUTS, MATRIX, PLAIN},
    {"proj.weight", "per_layer_projection.weight", HIDDEN, INPUTS, HAS_INPUTS, MATRIX, PLAIN},
    {"post_norm.weight", "post_per_layer_input_norm.weight", HIDDEN, NONE, HAS_INPUTS, VECTOR, PLAIN},
    {"layer_output_scale.weight", "layer_scalar", ONE, NONE, ALWAYS, VECTOR, PLAIN}, {0}};
static const struct row last[] = {
    {"output_norm.weight", "model.norm.weight", HIDDEN, NONE, ATTENDS, VECTOR, PLAIN},
    {"token_embd_norm.weight", "model.embedding_norm.weight", HIDDEN, NONE, HAS_STATE, VECTOR, PLAIN},
    {"output.weight", "lm_head.weight", VOCAB, HIDDEN, UNTIED, AX_GGUF_HEAD, PLAIN},
};

#define GROUPS 7
static const struct {
    const char *model_type;
    const struct row *groups[GROUPS + 1]; /* of a layer, in the file's order */
} layers[] = {
    {"llama", {norm_in, attention, norm_ffn, mlp}},
    {"mixtral", {norm_in, attention, norm_ffn, experts_of_mixtral}},
    {"qwen2", {norm_in, attention, norm_ffn, mlp}},
    {"qwen3", {norm_in, attention, norm_ffn, mlp}},
    {"qwen3_moe", {norm_in, attention, norm_ffn, experts}},
    {"qwen2_moe", {norm_in, attention, norm_ffn, experts, gated_expert}},
    {"gemma2", {norm_in, scaled_attention, norms_around, mlp}},
    {"gemma3_text", {norm_in, attention, norms_around, mlp}},
    {"gemma4_text", {norm_in, attention_of_gemma4, norms_around, mlp_of_gemma4, experts_of_gemma4, inputs_of_gemma4}},
    {"granite", {norm_in, attention, norm_ffn, mlp}},
    {"smollm3", {norm_in, attention, norm_ffn, mlp}},
    {"olmo2", {normed_attention, norms_after, mlp}},
    {"phi3", {norm_in, fused_attention, norm_ffn, fused_mlp}},
    {"glm4", {norm_in, attention, norms_of_glm4, fused_mlp}},
    {"glm4_moe", {norm_in, attention, norm_ffn_late, mlp, experts, router_bias, shared_experts}},
    {"deepseek_v2", {norm_in, latent_attention, norm_ffn, mlp, experts, shared_experts}},
    {"deepseek_v3", {norm_in, latent_attention, norm_ffn, mlp, experts, router_bias, shared_experts}},
    {"gpt_oss", {norm_in, attention, sinks, norm_ffn_late, stacked_experts}},
    {"llama4_text", {norm_in, attention_of_llama4, norm_ffn, mlp_of_llama4, experts_of_llama4}},
    {"cohere", {norm_in, attention, mlp}},
    {"cohere2", {norm_in, attention, mlp}},
    {"seed_oss", {norm_in, attention, norm_ffn_late, mlp}},
    {"ernie4_5", {norm_in, attention, norm_ffn, mlp}},
    {"ernie4_5_moe", {norm_in, attention, norm_ffn, mlp, experts, router_bias_of_ernie, shared_experts}},
    {"exaone4", {attention, norms_after, mlp}},
    {"hunyuan_v1_dense", {norm_in, attention_of_hunyuan, norm_ffn, mlp}},
    {"minimax_m2", {norm_in, normed_attention, norm_ffn, experts_of_mixtral, router_bias_of_minimax}},
    {"mimo_v2_flash", {norm_in, attention_of_mimo, norm_ffn, mlp, experts, router_bias}},
    {"lfm2", {mixer_of_lfm2, mlp_of_lfm2}},
    {"lfm2_moe", {mixer_of_lfm2, mlp_of_lfm2, experts_of_lfm2}},
    {"qwen3_next", {norm_in, grouped_delta_rule, gated_attention, norm_ffn_late, experts, gated_expert}},
    {"qwen3_5_text", {norm_in, delta_rule, gated_attention, norm_ffn_late, mlp}},
    {"qwen3_5_moe_text", {norm_in, delta_rule, gated_attention, norm_ffn_late, experts, gated_expert}},
    {"kimi_linear", {norm_in, mixer_of_kimi, norm_ffn, mlp, experts_of_mixtral, router_bias_of_kimi, shared_experts_of_kimi}},
    {"granitemoehybrid", {mixer_of_granite, mlp_of_granite, experts_of_granite}},
};
/* clang-format on */
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static bool is_full(const struct ax_gguf_model *m, int64_t layer) {
    return m->kind->mixed && ax_gguf_is_full(m, layer);
}
static bool borrows(const struct ax_gguf_model *m, int64_t layer) {
    return m->kind->mixed && layer >= m->layers - m->mixed.borrow;
}

/* In a layer, or in none. */
static int64_t size_of(const struct ax_gguf_model *m, enum size s, int64_t layer) {
    const bool full = is_full(m, layer);
    const int64_t head = full ? m->mixed.head_dim : m->head_dim,
                  kv = full                                          ? m->mixed.kv_heads
                       : m->kind->slides && ax_gguf_slides(m, layer) ? m->kv_sliding
                                                                     : m->kv_heads,
                  ffn = borrows(m, layer) ? m->mixed.wide_ffn : m->ffn;
    const int64_t keys = 2 * m->delta.keys * m->delta.key_dim,
                  values = m->delta.values * m->delta.value_dim, bc = m->ssd.groups * m->ssd.state;
    const int64_t sizes[] = {[NONE] = 1,
                             [ONE] = 1,
                             [VOCAB] = m->vocab,
                             [HIDDEN] = m->hidden,
                             [FFN] = ffn,
                             [GATE_UP] = 2 * m->ffn,
                             [EXPERT_FFN] = m->expert_ffn,
                             [SHARED_FFN] = m->shared_ffn,
                             [Q] = m->heads * head,
                             [KV] = kv * head,
                             [KV_VALUES] = kv * m->value_dim,
                             [QKV] = (m->heads + 2 * m->kv_heads) * m->head_dim,
                             [VALUES] = m->heads * (full ? head : m->value_dim),
                             [HEAD] = head,
                             [EXPERTS] = m->experts,
                             [Q_RANK] = m->q_rank,
                             [KV_RANK] = m->kv_rank,
                             [LATENT] = m->kv_rank + m->rotated,
                             [KV_B] = m->heads * (m->nope + m->value_dim),
                             [HEADS] = m->heads,
                             [EXPERT_PAIR] = 2 * m->expert_ffn,
                             [TAPS] = m->taps,
                             [GATES_OF_CONV] = 3 * m->hidden,
                             [Q_GATED] = 2 * m->heads * m->head_dim,
                             [DELTA_VALUE] = m->delta.value_dim,
                             [DELTA_HEADS] = m->delta.values,
                             [DELTA_KEYS] = keys / 2,
                             [DELTA_VALUES] = values,
                             [DELTA_QKV] = keys + values,
                             [DELTA_QKVZ] = keys + 2 * values,
                             [DELTA_PAIRS] = 2 * m->delta.values,
                             [SHARED_PAIR] = 2 * m->shared_ffn,
                             [SSD_IN] = 2 * (m->ssd.width + bc) + m->ssd.heads,
                             [SSD_CONV] = m->ssd.width + 2 * bc,
                             [SSD_HEADS] = m->ssd.heads,
                             [SSD_WIDTH] = m->ssd.width,
                             [INPUTS] = m->mixed.width,
                             [INPUT_TABLE] = m->mixed.table,
                             [INPUT_COLUMNS] = m->mixed.width * m->layers};
    return sizes[s];
}

static bool wanted(const struct ax_gguf_model *m, enum when w, int64_t layer) {
    const bool place = !m->kind->chunked || (layer + 1) % m->sparse_step == 0;
    const bool sparse = m->experts > 0 && layer >= m->dense_layers && place;
    /* of no layer: of LFM2's kinds, whose last norm has a name of its own */
    const bool lfm2 = m->kind->convolves && !m->kind->mamba && !m->kind->kda;
    const bool state = layer < 0 ? lfm2 : ax_gguf_has_state(m, layer);
    const bool all[] = {[ALWAYS] = true,
                        [UNTIED] = !m->tied,
                        [QKV_BIAS] = m->qkv_bias,
                        [O_BIAS] = m->o_bias,
                        [DENSE] = !sparse,
                        [MLP_BIAS] = m->mlp_bias && !sparse,
                        [QK_NORM] = m->qk_norm,
                        [SPARSE] = sparse,
                        [SHARED] = sparse && m->shared_ffn > 0,
                        [Q_LATENT] = m->q_rank > 0,
                        [Q_DIRECT] = m->q_rank == 0,
                        [ATTENDS] = !state,
                        [HAS_STATE] = state,
                        [OWN_KEYS] = !borrows(m, layer),
                        [OWN_VALUES] =
                            !borrows(m, layer) && !(m->mixed.of_keys && is_full(m, layer)),
                        [HAS_INPUTS] = m->mixed.width > 0,
                        [SLIDES] = ax_gguf_slides(m, layer)};
    return all[w];
}

static void set_shape(int *to_ndim, int64_t *to, int ndim, const int64_t *shape) {
    *to_ndim = ndim;
    memcpy(to, shape, (size_t)ndim * sizeof *shape);
}

/* A view with this shape in the file. */
static void set_view(struct ax_gguf_name *n, int64_t base, const int64_t steps[3], int ndim,
                     const int64_t *shape) {
    n->view = (struct ax_gguf_view){.is = true, .base = base};
    memcpy(n->view.step, steps, sizeof n->view.step);
    set_shape(&n->ndim, n->shape, ndim, shape);
}

#define LIST(...)                                                                                  \
    (const int64_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }
static void view_of_heads(const struct ax_gguf_model *m, bool keys, struct ax_gguf_name *n) {
    const int64_t nope = m->nope, v = m->value_dim, rank = m->kv_rank, head = (nope + v) * rank;
    if (keys)
        set_view(n, 0, LIST(head, 1, rank), 3, LIST(m->heads, rank, nope));
    else
        set_view(n, nope * rank, LIST(head, rank, 1), 3, LIST(m->heads, v, rank));
}

/* Of [experts][in][columns], `kept` columns: from, from + every, …. */
static void view_of_experts(const struct ax_gguf_model *m, int64_t from, int64_t every,
                            int64_t kept, struct ax_gguf_name *n) {
    const int64_t in = n->shape[0], columns = n->shape[1];
    set_shape(&n->hf_ndim, n->hf_shape, 3, LIST(m->experts, in, columns));
    set_view(n, from, LIST(in * columns, every, columns), 3, LIST(m->experts, kept, in));
}

static struct ax_gguf_order tiles(const struct ax_gguf_model *m, int64_t head, int64_t from) {
    return (struct ax_gguf_order){.kind = m->delta.values > m->delta.keys ? AX_GGUF_TILED
                                                                          : AX_GGUF_STRAIGHT,
                                  .head = head,
                                  .from = from,
                                  .keys = m->delta.keys,
                                  .values = m->delta.values / m->delta.keys};
}

static struct ax_gguf_order groups(const struct ax_gguf_model *m, bool z) {
    return (struct ax_gguf_order){.kind = z ? AX_GGUF_Z : AX_GGUF_QKV,
                                  .head = m->delta.key_dim,
                                  .keys = m->delta.keys,
                                  .values = m->delta.values / m->delta.keys * m->delta.value_dim};
}

/* A half of the rows of a matrix, or both. */
static void view_of_rows(int halves, bool lower, struct ax_gguf_name *n) {
    const int64_t kept = n->shape[0] / halves, cols = n->shape[1];
    set_view(n, lower ? kept * cols : 0, LIST(0, cols, 1), 2, LIST(kept, cols));
}

/* The same of each expert's. */
static void view_of_stack(const struct ax_gguf_model *m, int halves, bool lower,
                          struct ax_gguf_name *n) {
    const int64_t rows = n->shape[0], cols = n->shape[1], kept = rows / halves;
    set_shape(&n->hf_ndim, n->hf_shape, 3, LIST(m->experts, rows, cols));
    set_view(n, lower ? kept * cols : 0, LIST(rows * cols, cols, 1), 3,
             LIST(m->experts, kept, cols));
}

/* What is special about a tensor, from its shape in HF to the file's. */
static void apply(const struct ax_gguf_model *m, enum how how, struct ax_gguf_name *n) {
    const int64_t rows = n->shape[0], cols = n->shape[1];
    const int64_t keys = 2 * m->delta.keys * m->delta.key_dim, value = m->delta.value_dim;
    switch (how) {
    case PLAIN:
    case NUMBERED:
    case UNSHIFTED:
        return;
    case ROTARY:
        if (m->kind->permuted)
            n->rows = (struct ax_gguf_order){.kind = AX_GGUF_PAIRS, .head = m->head_dim};
        return;
    case SCALED:
        if (m->query_scale > 0)
            n->factor = m->query_scale;
        return;
    case VECTOR_OF_ROW:
        set_shape(&n->ndim, n->shape, 1, LIST(cols));
        return;
    case TILED_TAPS:
        n->rows = tiles(m, value, keys);
        __attribute__((fallthrough));
    case TAPS_OF_CONV:
        set_shape(&n->hf_ndim, n->hf_shape, 3, LIST(rows, 1, cols));
        return;
    case HEAD_KEYS:
    case HEAD_VALUES:
        view_of_heads(m, how == HEAD_KEYS, n);
        return;
    case BIAS_EVEN:
    case BIAS_ODD:
        set_view(n, how == BIAS_ODD, LIST(0, cols, 2), 2, LIST(rows, cols / 2));
        return;
    case EXPERT_EVEN:
    case EXPERT_ODD:
        view_of_experts(m, how == EXPERT_ODD, 2, cols / 2, n);
        return;
    case EXPERT_ALL:
        view_of_experts(m, 0, 1, cols, n);
        return;
    case EXPERT_FIRST:
    case EXPERT_LAST:
        view_of_experts(m, how == EXPERT_LAST ? cols / 2 : 0, 1, cols / 2, n);
        return;
    case TILED_HEADS:
        n->rows = tiles(m, value, 0);
        return;
    case TILED_VALUES:
        n->rows = tiles(m, value, keys);
        return;
    case TILED_COLUMNS:
        n->cols = tiles(m, value, 0);
        return;
    case TILED_RATES:
        n->rate = true;
        __attribute__((fallthrough));
    case TILED_GATES:
        n->rows = tiles(m, 1, 0);
        return;
    case RATES:
        n->rate = true;
        return;
    case COLUMN_OF_RATES:
        n->rate = true;
        __attribute__((fallthrough));
    case COLUMN:
        set_view(n, 0, LIST(0, 1, 1), 2, LIST(rows, 1));
        return;
    case LIFTED_RATES:
        n->rate = true;
        set_shape(&n->hf_ndim, n->hf_shape, 4, LIST(1, 1, rows, 1));
        set_view(n, 0, LIST(0, 1, 1), 2, LIST(rows, 1));
        return;
    case SPREAD_TAPS:
        set_shape(&n->hf_ndim, n->hf_shape, 3, LIST(rows, 1, cols));
        set_view(n, 0, LIST(cols, cols, 1), 3, LIST(rows, 1, cols));
        return;
    case BY_GROUP:
        set_view(n, 0, LIST(0, rows / m->ssd.groups, 1), 2,
                 LIST(m->ssd.groups, rows / m->ssd.groups));
        return;
    case FIRST_ROWS:
    case LAST_ROWS:
        view_of_rows(2, how == LAST_ROWS, n);
        return;
    case STACK_FIRST:
    case STACK_LAST:
    case STACK:
        view_of_stack(m, how == STACK ? 1 : 2, how == STACK_LAST, n);
        return;
    case GROUPED_QKV:
    case GROUPED_Z:
        n->rows = groups(m, how == GROUPED_Z);
        n->shape[0] = how == GROUPED_Z ? size_of(m, DELTA_VALUES, -1) : size_of(m, DELTA_QKV, -1);
    }
}

static enum ax_status visit_row(const struct ax_gguf_model *m, const struct row *row, int64_t layer,
                                ax_gguf_visit visit, void *ctx) {
    const int ndim = row->cols == NONE ? 1 : 2;
    const int64_t rows = size_of(m, row->rows, layer), cols = size_of(m, row->cols, layer);
    const bool norm = row->part == VECTOR && (row->how == PLAIN || row->how == SCALED);
    struct ax_gguf_name n = {.part = row->part,
                             .ndim = ndim,
                             .shape = {rows, cols},
                             .hf_ndim = ndim,
                             .hf_shape = {rows, cols},
                             .experts = row->how == NUMBERED ? m->experts : 0,
                             .layer = layer,
                             .shift = m->kind->shifted && norm ? 1 : 0,
                             .factor = 1};
    if (!wanted(m, row->when, layer))
        return AX_OK;
    apply(m, row->how, &n);
    if (layer < 0) {
        snprintf(n.gguf, sizeof n.gguf, "%s", row->gguf);
        snprintf(n.hf, sizeof n.hf, "%s", row->hf);
    } else {
        snprintf(n.gguf, sizeof n.gguf, "blk.%lld.%s", (long long)layer, row->gguf);
        snprintf(n.hf, sizeof n.hf, "model.layers.%lld.%s", (long long)layer, row->hf);
    }
    return visit(ctx, &n);
}

/* The head is the embedding's copy, for readers that do not know of tied heads. */
static enum ax_status visit_copy(const struct ax_gguf_model *m, ax_gguf_visit visit, void *ctx) {
    struct row row = last[COUNT(last) - 1];
    row.hf = first[0].hf;
    row.when = ALWAYS;
    return m->tied && m->kind->copies_head ? visit_row(m, &row, -1, visit, ctx) : AX_OK;
}

static const struct row *const *groups_of(const struct ax_gguf_kind *kind) {
    int i = 0;
    while (i < COUNT(layers) && strcmp(layers[i].model_type, kind->model_type) != 0)
        i++;
    AX_ASSERT(i < COUNT(layers));
    return layers[i].groups;
}

enum ax_status ax_gguf_each_tensor(const struct ax_gguf_model *m, ax_gguf_visit visit, void *ctx) {
    const struct row *const *groups = groups_of(m->kind);
    for (int i = 0; i < COUNT(first); i++)
        AX_TRY(visit_row(m, &first[i], -1, visit, ctx));
    for (int64_t layer = 0; layer < m->layers; layer++)
        for (int g = 0; groups[g]; g++)
            for (const struct row *row = groups[g]; row->gguf; row++)
                AX_TRY(visit_row(m, row, layer, visit, ctx));
    for (int i = 0; i < COUNT(last); i++)
        AX_TRY(visit_row(m, &last[i], -1, visit, ctx));
    return visit_copy(m, visit, ctx);
}

const char *ax_gguf_expert_name(const struct ax_gguf_name *name, int64_t e, char buf[112]) {
    const char *at = strstr(name->hf, "%d");
    if (name->experts == 0 || !at)
        snprintf(buf, 112, "%s", name->hf);
    else
        snprintf(buf, 112, "%.*s%lld%s", (int)(at - name->hf), name->hf, (long long)e, at + 2);
    return buf;
}
