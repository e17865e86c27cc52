/* One table for all kinds: a model's features decide which rows apply. */
#include "ckpt/gguf/rows.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
const struct row ax_gguf_first_rows[] = {
    {"token_embd.weight", "model.embed_tokens.weight", VOCAB, HIDDEN, ALWAYS, AX_GGUF_EMBEDDING, PLAIN},
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight", INPUT_TABLE, INPUT_COLUMNS, HAS_INPUTS, MATRIX, LENGTHENED},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight", INPUT_COLUMNS, HIDDEN, HAS_INPUTS, AX_GGUF_ROUTER, PLAIN},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight", INPUTS, NONE, HAS_INPUTS, VECTOR, PLAIN},
    {"altup_proj.weight", "model.altup_projections.%d.weight", HIDDEN, HIDDEN, HAS_STREAMS, AX_GGUF_ROUTER, OTHER_STREAMS},
    {"altup_unembd_proj.weight", "model.altup_unembed_projections.%d.weight", HIDDEN, HIDDEN, HAS_STREAMS, AX_GGUF_ROUTER, OTHER_STREAMS}, {0}};
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
static const struct row ungated_mlp[] = {
    {"ffn_up.weight", "mlp.up_proj.weight", FFN, HIDDEN, ALWAYS, MATRIX, PLAIN},
    {"ffn_down.weight", "mlp.down_proj.weight", HIDDEN, FFN, ALWAYS, AX_GGUF_DOWN, PLAIN}, {0}};
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
#define MAMBA(module, when, in, out, when_norm)                                                    \
    {"ssm_in.weight", module ".in_proj.weight", SSD_IN, HIDDEN, when, MATRIX, in},                 \
    {"ssm_conv1d.weight", module ".conv1d.weight", SSD_CONV, TAPS, when, VECTOR, TAPS_OF_CONV},    \
    {"ssm_conv1d.bias", module ".conv1d.bias", SSD_CONV, NONE, when, VECTOR, PLAIN},               \
    {"ssm_dt.bias", module ".dt_bias", SSD_HEADS, NONE, when, VECTOR, PLAIN},                      \
    {"ssm_a", module ".A_log", SSD_HEADS, NONE, when, VECTOR, COLUMN_OF_RATES},                    \
    {"ssm_d", module ".D", SSD_HEADS, NONE, when, VECTOR, COLUMN},                                 \
    {"ssm_norm.weight", module ".norm.weight", SSD_WIDTH, NONE, when_norm, VECTOR, BY_GROUP},      \
    {"ssm_out.weight", module ".out_proj.weight", HIDDEN, SSD_WIDTH, when, MATRIX, out}
static const struct row mixer_of_granite[] = {
    {"attn_norm.weight", "input_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN},
    MAMBA("mamba", HAS_STATE, PLAIN, PLAIN, HAS_STATE),
    {"attn_q.weight", "self_attn.q_proj.weight", Q, HIDDEN, ATTENDS, MATRIX, ROTARY},
    {"attn_k.weight", "self_attn.k_proj.weight", KV, HIDDEN, ATTENDS, AX_GGUF_KEYS, ROTARY},
    {"attn_v.weight", "self_attn.v_proj.weight", KV, HIDDEN, ATTENDS, AX_GGUF_VALUES, PLAIN},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, VALUES, ATTENDS, AX_GGUF_ATTENTION, PLAIN},
    {"ffn_norm.weight", "post_attention_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN}, {0}};
static const struct row layer_of_falcon[] = {
    {"attn_norm.weight", "input_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN},
    MAMBA("mamba", ALWAYS, FOLDED_MAMBA_IN, FOLDED_MAMBA_OUT, NORMS_STATE),
    {"attn_q.weight", "self_attn.q_proj.weight", Q, HIDDEN, ALWAYS, MATRIX, FOLDED_IN},
    {"attn_k.weight", "self_attn.k_proj.weight", KV, HIDDEN, ALWAYS, AX_GGUF_KEYS, FOLDED_KEYS},
    {"attn_v.weight", "self_attn.v_proj.weight", KV, HIDDEN, ALWAYS, AX_GGUF_VALUES, FOLDED_IN},
    {"attn_output.weight", "self_attn.o_proj.weight", HIDDEN, VALUES, ALWAYS, AX_GGUF_ATTENTION, FOLDED_OUT},
    {"ffn_norm", "pre_ff_layernorm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN}, /* so published */
    {"ffn_gate.weight", "feed_forward.gate_proj.weight", FFN, HIDDEN, ALWAYS, MATRIX, FOLDED_GATE},
    {"ffn_up.weight", "feed_forward.up_proj.weight", FFN, HIDDEN, ALWAYS, MATRIX, PLAIN},
    {"ffn_down.weight", "feed_forward.down_proj.weight", HIDDEN, FFN, ALWAYS, AX_GGUF_DOWN, FOLDED_DOWN}, {0}};
static const struct row layer_of_nemotron[] = { /* one of these parts */
    {"attn_norm.weight", "norm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN},
    MAMBA("mixer", HAS_STATE, PLAIN, PLAIN, HAS_STATE),
    {"attn_q.weight", "mixer.q_proj.weight", Q, HIDDEN, ATTENDS, MATRIX, PLAIN},
    {"attn_k.weight", "mixer.k_proj.weight", KV, HIDDEN, ATTENDS, AX_GGUF_KEYS, PLAIN},
    {"attn_v.weight", "mixer.v_proj.weight", KV, HIDDEN, ATTENDS, AX_GGUF_VALUES, PLAIN},
    {"attn_output.weight", "mixer.o_proj.weight", HIDDEN, VALUES, ATTENDS, AX_GGUF_ATTENTION, PLAIN},
    {"ffn_up.weight", "mixer.up_proj.weight", FFN, HIDDEN, DENSE, MATRIX, PLAIN},
    {"ffn_down.weight", "mixer.down_proj.weight", HIDDEN, FFN, DENSE, AX_GGUF_DOWN, PLAIN},
    {"ffn_gate_inp.weight", "mixer.gate.weight", EXPERTS, HIDDEN, SPARSE, AX_GGUF_ROUTER, PLAIN},
    {"exp_probs_b.bias", "mixer.gate.e_score_correction_bias", EXPERTS, NONE, SPARSE, VECTOR, PLAIN},
    {"ffn_latent_down.weight", "mixer.fc1_latent_proj.weight", LATENT_SIZE, HIDDEN, HAS_LATENT, MATRIX, PLAIN},
    {"ffn_latent_up.weight", "mixer.fc2_latent_proj.weight", HIDDEN, LATENT_SIZE, HAS_LATENT, MATRIX, PLAIN},
    {"ffn_up_exps.weight", "mixer.experts.%d.up_proj.weight", EXPERT_FFN, EXPERT_SIZE, SPARSE, MATRIX, NUMBERED},
    {"ffn_down_exps.weight", "mixer.experts.%d.down_proj.weight", EXPERT_SIZE, EXPERT_FFN, SPARSE, AX_GGUF_DOWN, NUMBERED},
    {"ffn_up_shexp.weight", "mixer.shared_experts.up_proj.weight", SHARED_FFN, HIDDEN, SPARSE, MATRIX, PLAIN},
    {"ffn_down_shexp.weight", "mixer.shared_experts.down_proj.weight", HIDDEN, SHARED_FFN, SPARSE, AX_GGUF_DOWN, PLAIN}, {0}};
static const struct row indexer[] = {
    {"indexer.k_norm.weight", "self_attn.indexer.k_norm.weight", INDEX_HEAD, NONE, INDEXES, VECTOR, PLAIN},
    {"indexer.k_norm.bias", "self_attn.indexer.k_norm.bias", INDEX_HEAD, NONE, INDEXES, VECTOR, PLAIN},
    {"indexer.proj.weight", "self_attn.indexer.weights_proj.weight", INDEX_HEADS, HIDDEN, INDEXES, MATRIX, PLAIN},
    {"indexer.attn_k.weight", "self_attn.indexer.wk.weight", INDEX_HEAD, HIDDEN, INDEXES, MATRIX, PLAIN},
    {"indexer.attn_q_b.weight", "self_attn.indexer.wq_b.weight", INDEX_QUERIES, Q_RANK, INDEXES, MATRIX, PLAIN}, {0}};
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
static const struct row inputs[] = {
    {"inp_gate.weight", "per_layer_input_gate.weight", INPUTS, HIDDEN, HAS_INPUTS, MATRIX, PLAIN},
    {"proj.weight", "per_layer_projection.weight", HIDDEN, INPUTS, HAS_INPUTS, MATRIX, PLAIN},
    {"post_norm.weight", "post_per_layer_input_norm.weight", HIDDEN, NONE, HAS_INPUTS, VECTOR, PLAIN}, {0}};
static const struct row scale_of_gemma4[] = {
    {"layer_output_scale.weight", "layer_scalar", ONE, NONE, ALWAYS, VECTOR, PLAIN}, {0}};
/* llama.cpp asks for keys and values in all layers */
static const struct row keys_of_lender[] = {
    {"attn_k.weight", "self_attn.k_proj.weight", KV, HIDDEN, COPIES_KEYS, AX_GGUF_KEYS, OF_LENDER},
    {"attn_v.weight", "self_attn.v_proj.weight", KV, HIDDEN, COPIES_KEYS, AX_GGUF_VALUES, OF_LENDER},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", HEAD, NONE, COPIES_KEYS, VECTOR, OF_LENDER}, {0}};
static const struct row streams_of_gemma3n[] = {
    {"altup_correct_coef.weight", "altup.correction_coefs.weight", STREAMS, STREAMS, ALWAYS, AX_GGUF_ROUTER, PLAIN},
    {"altup_correct_scale.weight", "altup.correct_output_scale", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN},
    {"altup_predict_coef.weight", "altup.prediction_coefs.weight", STREAM_PAIRS, STREAMS, ALWAYS, AX_GGUF_ROUTER, PLAIN},
    {"altup_router.weight", "altup.modality_router.weight", STREAMS, HIDDEN, ALWAYS, AX_GGUF_ROUTER, PLAIN},
    {"altup_router_norm.weight", "altup.router_norm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN},
    {"laurel_l.weight", "laurel.linear_left.weight", LOW_RANK, HIDDEN, ALWAYS, MATRIX, PLAIN},
    {"laurel_r.weight", "laurel.linear_right.weight", HIDDEN, LOW_RANK, ALWAYS, MATRIX, PLAIN},
    {"laurel_post_norm.weight", "laurel.post_laurel_norm.weight", HIDDEN, NONE, ALWAYS, VECTOR, PLAIN}, {0}};
const struct row ax_gguf_last_rows[] = {
    {"output_norm.weight", "model.norm.weight", HIDDEN, NONE, LAST_NORM, VECTOR, PLAIN},
    {"token_embd_norm.weight", "model.embedding_norm.weight", HIDDEN, NONE, LAST_NORM_LFM2, VECTOR, PLAIN},
    {"output.weight", "lm_head.weight", VOCAB, HIDDEN, UNTIED, AX_GGUF_HEAD, PLAIN}, {0}};

#define GROUPS 8
static const struct {
    const char *model_type;
    const struct row *groups[GROUPS + 1]; /* of a layer, in the file's order */
} layers[] = {
    {"llama", {norm_in, attention, norm_ffn, mlp}},
    {"ministral3", {norm_in, attention, norm_ffn, mlp}},
    {"mixtral", {norm_in, attention, norm_ffn, experts_of_mixtral}},
    {"qwen2", {norm_in, attention, norm_ffn, mlp}},
    {"qwen3", {norm_in, attention, norm_ffn, mlp}},
    {"qwen3_moe", {norm_in, attention, norm_ffn, experts}},
    {"qwen2_moe", {norm_in, attention, norm_ffn, experts, gated_expert}},
    {"arcee", {norm_in, attention, norm_ffn, ungated_mlp}},
    {"dots1", {norm_in, attention, norm_ffn, mlp, experts, router_bias, shared_experts}},
    {"gemma", {norm_in, attention, norm_ffn, mlp}},
    {"olmoe", {norm_in, normed_attention, norm_ffn, experts}},
    {"gemma2", {norm_in, scaled_attention, norms_around, mlp}},
    {"gemma3_text", {norm_in, attention, norms_around, mlp}},
    {"gemma4_text", {norm_in, attention_of_gemma4, norms_around, mlp_of_gemma4, experts_of_gemma4, inputs, scale_of_gemma4}},
    {"gemma3n_text", {norm_in, attention_of_gemma4, keys_of_lender, norms_around, mlp_of_gemma4, inputs, streams_of_gemma3n}},
    {"granite", {norm_in, attention, norm_ffn, mlp}},
    {"smollm3", {norm_in, attention, norm_ffn, mlp}},
    {"olmo2", {normed_attention, norms_after, mlp}},
    {"phi3", {norm_in, fused_attention, norm_ffn, fused_mlp}},
    {"glm4", {norm_in, attention, norms_of_glm4, fused_mlp}},
    {"glm4_moe", {norm_in, attention, norm_ffn_late, mlp, experts, router_bias, shared_experts}},
    {"deepseek_v2", {norm_in, latent_attention, norm_ffn, mlp, experts, shared_experts}},
    {"deepseek_v3", {norm_in, latent_attention, norm_ffn, mlp, experts, router_bias, shared_experts}},
    {"deepseek_v32", {norm_in, latent_attention, indexer, norm_ffn, mlp, experts, router_bias, shared_experts}},
    {"glm_moe_dsa", {norm_in, latent_attention, indexer, norm_ffn, mlp, experts, router_bias, shared_experts}},
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
    {"falcon_h1", {layer_of_falcon}},
    {"nemotron_h", {layer_of_nemotron}},
};
/* clang-format on */

/* Beginnings of names that some families have otherwise. */
static const struct {
    const char *model_type, *usual, *own;
} renames[] = {
    {"falcon_h1", "model.norm.", "model.final_layernorm."},
    {"nemotron_h", "model.embed_tokens.", "backbone.embeddings."},
    {"nemotron_h", "model.layers.", "backbone.layers."},
    {"nemotron_h", "model.norm.", "backbone.norm_f."},
};

const char *ax_gguf_own_name(const struct ax_gguf_kind *kind, const char *name, char buf[96]) {
    snprintf(buf, 96, "%s", name);
    for (size_t i = 0; i < sizeof renames / sizeof *renames; i++) {
        const size_t n = strlen(renames[i].usual);
        if (strcmp(renames[i].model_type, kind->model_type) == 0 &&
            strncmp(name, renames[i].usual, n) == 0)
            snprintf(buf, 96, "%s%s", renames[i].own, name + n);
    }
    return buf;
}

const struct row *const *ax_gguf_layer_rows(const struct ax_gguf_kind *kind) {
    size_t i = 0;
    while (i < sizeof layers / sizeof *layers &&
           strcmp(layers[i].model_type, kind->model_type) != 0)
        i++;
    AX_ASSERT(i < sizeof layers / sizeof *layers);
    return layers[i].groups;
}
