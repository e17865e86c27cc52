/* The op table: every op, forward and backward side by side, for every backend.
 *
 * Notation: T tokens, D hidden, H heads, hd head size, F feed-forward size, V vocabulary (a shard
 * of it if there is a first_*). i32 means AX_I32. Dtype words, here and in comments elsewhere:
 *   compute        the model's dtype: F64, F32 or BF16
 *   accumulation   ax_dtype_accum(compute): F64 for F64, else F32
 *   residual       dtype of the residual stream: compute or accumulation, the same for all residual
 *                  operands of a call
 * Sums are always taken in accumulation dtype or better. "+=" means the op adds to the existing
 * value. Inputs may not alias outputs unless the op says so.
 *
 * Bit-for-bit: a backend must give the same bits for any number of threads, and a result row must
 * not depend on how many other rows the call contains (except gemm with trans_a, and the row sums).
 *
 * To add an op, add a row to AX_OP_LIST and an argument struct here (of quantization: quant_ops.h; of
 * attention and convolutions: mixer_ops.h; of the delta rule and Mamba-2: delta_ops.h; of distillation:
 * distill_ops.h); its operands, conditions, cost and cases in its family's file (kernels/ops/family.h); and one entry
 * per backend. If any of these is missing, the program does not link. */
#ifndef AX_KERNELS_OPS_H
#define AX_KERNELS_OPS_H

#include "kernels/mixer_ops.h"
#include "kernels/delta_ops.h"
#include "kernels/distill_ops.h"
#include "kernels/moment_ops.h"
#include "kernels/quant/quant_ops.h"
#include "kernels/scalars.h"
#include "kernels/tensor.h"

struct ax_queue;
struct ax_device;
struct ax_mirror; /* kernels/queue.h */

#define AX_OP_LIST(X)                                                                              \
    X(fill)                                                                                        \
    X(copy)                                                                                        \
    X(add)                                                                                         \
    X(transpose)                                                                                   \
    X(scale)                                                                                       \
    X(softcap_backward)                                                                            \
    X(relu2_forward)                                                                               \
    X(relu2_backward)                                                                              \
    X(gemm)                                                                                        \
    X(colsum)                                                                                      \
    X(embedding_forward)                                                                           \
    X(embedding_backward)                                                                          \
    X(neftune)                                                                                     \
    X(rmsnorm_forward)                                                                             \
    X(rmsnorm_backward)                                                                            \
    X(center)                                                                                      \
    X(match_rms_forward)                                                                           \
    X(match_rms_backward)                                                                          \
    X(sparsify_forward)                                                                            \
    X(sparsify_backward)                                                                           \
    X(rope)                                                                                        \
    X(attention_forward)                                                                           \
    X(attention_backward)                                                                          \
    X(attention_merge)                                                                             \
    X(top_keys)                                                                                    \
    X(index_target)                                                                                \
    X(index_scores)                                                                                \
    X(index_loss)                                                                                  \
    X(index_backward)                                                                              \
    X(conv_forward)                                                                                \
    X(conv_backward)                                                                               \
    X(delta_gates_forward)                                                                         \
    X(delta_gates_backward)                                                                        \
    X(delta_forward)                                                                               \
    X(delta_backward)                                                                              \
    X(ssd_gates_forward)                                                                           \
    X(ssd_gates_backward)                                                                          \
    X(scatter_rows)                                                                                \
    X(swiglu_forward)                                                                              \
    X(swiglu_backward)                                                                             \
    X(router_forward)                                                                              \
    X(router_balance)                                                                              \
    X(router_backward)                                                                             \
    X(group_rows)                                                                                  \
    X(combine_forward)                                                                             \
    X(combine_backward)                                                                            \
    X(grouped_gemm)                                                                                \
    X(grouped_colsum)                                                                              \
    X(softmax_stats)                                                                               \
    X(softmax_merge)                                                                               \
    X(softmax_backward)                                                                            \
    X(nll_loss)                                                                                    \
    X(scatter_topk)                                                                                \
    X(support_logits)                                                                              \
    X(tail_logits)                                                                                 \
    X(divergence)                                                                                  \
    X(divergence_merge)                                                                            \
    X(distill_loss)                                                                                \
    X(distill_backward)                                                                            \
    X(argmax)                                                                                      \
    X(top_entropy)                                                                                 \
    X(top_logits)                                                                                  \
    X(sample)                                                                                      \
    X(truncate)                                                                                    \
    X(begin_step)                                                                                  \
    X(sumsq)                                                                                       \
    X(clip)                                                                                        \
    X(adamw)                                                                                       \
    X(adamw_8bit)                                                                                  \
    X(sgd)                                                                                         \
    X(lion)                                                                                        \
    X(adafactor)                                                                                   \
    X(muon_momentum)                                                                               \
    X(muon_apply)                                                                                  \
    X(quantize)                                                                                    \
    X(dequantize)                                                                                  \
    X(packed_gemm)                                                                                 \
    X(quant_range)                                                                                 \
    X(fake_quantize)                                                                               \
    X(fake_quantize_backward)                                                                      \
    X(dropout)                                                                                     \
    X(colscale)                                                                                    \
    X(coldot)                                                                                      \
    X(dora_norm)                                                                                   \
    X(dora_scale)                                                                                  \
    X(merge_low_rank)                                                                              \
    X(merged_squares)                                                                              \
    X(fp8_codes)                                                                                   \
    X(fp8_gemm)

enum ax_op {
#define AX_OP_ENUM(name) AX_OP_##name,
    AX_OP_LIST(AX_OP_ENUM)
#undef AX_OP_ENUM
        AX_OP_COUNT
};

/* dst = value, every element. dst: any dtype. */
struct ax_fill {
    struct ax_tensor dst;
    double value;
};

/* What an op leaves beside a result, for products of 8-bit floats: what quant_range says of its first `rows` rows, with
 * the same bits. t F32 [1][2]; data NULL = none. */
struct ax_range_of {
    struct ax_tensor t;
    int64_t rows;
};

/* dst = src, converted. Same shape; any float dtypes, or equal integer dtypes; any row strides. */
struct ax_copy {
    struct ax_tensor dst, src;
};
/* dst += alpha · src. Same shape; each compute or accumulation. */
struct ax_add {
    struct ax_tensor dst, src;
    double alpha;
};

/* dst = alpha · srcᵀ [+ dst if accumulate], with the bits of copy if alpha is 1, or of add. src [R][C], dst [C][R];
 * each compute or accumulation; any row strides. */
struct ax_transpose {
    struct ax_tensor dst, src;
    double alpha;
    bool accumulate;
};

/* y = alpha · x; with softcap > 0: y = softcap·tanh(alpha·x / softcap). Same shape; each compute or
 * accumulation; y may be x. */
struct ax_scale {
    struct ax_tensor y, x;
    double alpha, softcap;
};
/* Backward of a softcap: dx = alpha · dy · (1 − (y / softcap)²), and 0 where |y| > softcap
 * (AX_TRUNCATED). dx and dy of one dtype, y compute or accumulation; dx may be dy. */
struct ax_softcap_backward {
    struct ax_tensor dx, dy, y;
    double alpha, softcap;
};
/* y = max(0, x)² (So et al. 2021), and dx = 2·max(0, x)·dy. Same shape and dtype; y may be x, dx one of them. */
struct ax_relu2_forward {
    struct ax_tensor y, x;
};
struct ax_relu2_backward {
    struct ax_tensor dx, x, dy;
};

/* c = alpha · op(a)·op(b) [+ bias] [+ addend] [+ c if accumulate]. op(a) is [M][K]: a is [M][K], or
 * [K][M] with trans_a; op(b) is [K][N]: b is [K][N], or [N][K] with trans_b. a, b compute; c
 * compute or accumulation; bias compute [N], data NULL = none; addend [M][N], dtype of c, data NULL
 * = none, not together with accumulate. Rounded once.
 *   y = x·Wᵀ      a = x [T][in], b = W [out][in], trans_b
 *   dx = dy·W     a = dy, b = W
 *   dW += dyᵀ·x   a = dy, trans_a, b = x, c = grad (accumulation), accumulate */
struct ax_gemm {
    struct ax_tensor a, b, c, bias, addend;
    bool trans_a, trans_b, accumulate;
    double alpha;
};

/* out[n] += Σ_t x[t][n]: bias gradients. x compute or accumulation [T][N], out accumulation [N]. */
struct ax_colsum {
    struct ax_tensor x, out;
};

/* out[t] = weight[tokens[t] − first_row], or 0 if that row is in another vocabulary shard. known > 0: of
 * a table with that many rows in all, whose row 0 is that of tokens from `known` on. weight
 * compute [V][D], tokens i32 [T], out residual [T][D]. */
struct ax_embedding_forward {
    struct ax_tensor weight, tokens, out;
    int64_t first_row, known;
};
/* The row of all the table that is a token's. */
#define AX_EMBEDDING_ROW(token, known) ((known) > 0 && (token) >= (known) ? 0 : (token))
/* dweight[tokens[t] − first_row] += dout[t], summed in order of t; the row of skip_token (−1 =
 * none) gets nothing, like padding_idx of torch.nn.Embedding. dout residual, dweight
 * accumulation. */
struct ax_embedding_backward {
    struct ax_tensor dout, tokens, dweight;
    int64_t first_row, skip_token, known;
};

/* x += noise per document (NEFTune, Jain et al. 2023): element d of token t, in a document of L
 * tokens, gets a number uniform in ±alpha/√(L·D), number (first_token + t)·D + d of the random
 * stream (scalars->seed, scalars->step, `stream`). x compute [T][D] holds tokens first … first + T
 * − 1 of a packed sequence with cu i32 [n+1]: document k is tokens cu[k] … cu[k+1]−1; other tokens
 * get none. */
struct ax_neftune {
    struct ax_tensor x, cu;
    double alpha;
    uint32_t stream;
    int64_t first, first_token;
    const struct ax_step_scalars AX_DEVICE *scalars;
};

/* y = x · rstd · (offset + weight), rstd = 1/√(mean(x²) + eps) over the last dimension (Zhang &
 * Sennrich 2019). x residual, y compute [T][D] or [T][H][hd] (any row strides; y may be x); weight
 * compute [D] or [hd]; rstd accumulation [T] or [T][H], dense. As in transformers, x·rstd is rounded
 * to x's dtype before the weight is applied, in some families not (`once`). */
struct ax_rmsnorm_forward {
    struct ax_tensor x, weight, y, rstd;
    double eps, offset;
    bool once;
    struct ax_range_of range; /* y's */
};
/* g = dy·(offset + weight), x̂ = x·rstd, over the n elements of the last dimension:
 *   dx (+)= rstd · (g − x̂ · mean(g·x̂));  dweight += Σ_rows dy·x̂  (data NULL: frozen)
 * accumulate: dx +=, else dx =; dx may be dy. narrow (data NULL: not wanted) is dx as stored, in compute.
 * dy compute or residual; x, dx residual; weight compute; dweight accumulation. */
struct ax_rmsnorm_backward {
    struct ax_tensor dy, x, weight, rstd, dx, narrow, dweight;
    bool accumulate;
    double offset;
};

/* y (+)= x − mean(x) of each row. LayerNorm (Ba et al. 2016) is RMSNorm of centered rows, and its gradient the
 * centered one of that. x, y [T][D] residual or accumulation, y may be x. */
struct ax_center {
    struct ax_tensor x, y;
    bool accumulate;
};

/* Rotary embedding (Su et al. 2021) in place on `2·half` elements of each head, from element `first`
 * on. Pair i is elements i and i + half of them as in transformers' Llama, or, `interleaved`, the
 * neighbors 2i and 2i + 1 as in the paper:
 *   x₁' = x₁·cos − x₂·sin;  x₂' = x₂·cos + x₁·sin   (inverse: sin → −sin, the transpose)
 * x compute [T][H][hd]; cos, sin accumulation [positions][half]; positions i32 [T]. */
struct ax_rope {
    struct ax_tensor x, cos, sin, positions;
    int64_t first;
    bool interleaved, inverse;
};

/* dst[rows[t][i]] = src[t]; rows i32 [T] or [T][k] (dense), −1 = skip. dst and src have the same
 * dtype and row length. */
struct ax_scatter_rows {
    struct ax_tensor dst, src, rows;
};

/* Gated linear units (Shazeer 2020), of gate_up = [gate | up], or of gate and up in turn if
 * `interleaved`, or of gate_up = gate and `up` apart; with σ the logistic function:
 *   SILU     y = gate·σ(gate)·up
 *   GELU     y = gelu(gate)·up, gelu(x) = ½x·(1 + tanh(√(2/π)·(x + 0.044715x³))) (Hendrycks & Gimpel
 *            2016)
 *   CLAMPED  y = g·σ(alpha·g)·(u + 1), g = min(gate, limit), u = up within ±limit (gpt-oss)
 *   SIGMOID  y = σ(gate)·up
 *   LINEAR   y = gate·up
 * gate_up compute [T][2F], up data NULL; or both [T][F]. y compute [T][F]. */
enum ax_gate { AX_GATE_SILU, AX_GATE_GELU, AX_GATE_CLAMPED, AX_GATE_SIGMOID, AX_GATE_LINEAR };
struct ax_gating {
    enum ax_gate gate;
    bool interleaved;
    double alpha, limit;
};
struct ax_swiglu_forward {
    struct ax_tensor gate_up, up, y;
    struct ax_gating how;
    struct ax_range_of range; /* y's */
};
/* dgate_up (and dup, if up is apart) from dy; dgate_up may be gate_up, dup may be up. range: of both, or, F32 [2][2], of
 * each, first the gates'. */
struct ax_swiglu_backward {
    struct ax_tensor dy, gate_up, up, dgate_up, dup;
    struct ax_gating how;
    struct ax_range_of range;
};

/* How a router chooses k of E experts, and their weights (DeepSeek-AI 2024). p =
 * softmax(logits), or each expert's sigmoid. With groups > 0 the experts are divided into
 * `groups` groups of neighbors: a group's score is the sum of its `group_best` (1 or 2) largest
 * scores, and experts are chosen from the `groups_kept` groups with the largest ones (ties by
 * lowest index). A weight is the expert's p, divided by the sum of those chosen if
 * `renormalize`, times `scale`. */
struct ax_routing {
    bool sigmoid, renormalize;
    int groups, groups_kept, group_best; /* at most AX_ROUTER_GROUPS groups */
    double scale;
};
#define AX_ROUTER_GROUPS 64

/* Routing to k of E experts (Shazeer et al. 2017): p and weights as `routing` says; experts[t] = the k
 * with the largest scores, largest first, ties by lowest index. An expert's score is p[t], plus its
 * `bias` (accumulation [E], data NULL = none) rounded to accumulation dtype. Row t holds token first
 * + t; from token valid[0] on it is padding: its experts are −1, its p and weights 0. load (data NULL
 * = not requested) for router_balance: load[0][e] += rows that chose e, load[1][e] += Σ_t p[t][e], in
 * order of t. logits, probs, load accumulation [T][E], [T][E], [2][E]; weights accumulation and
 * experts i32 [T][k], all but logits dense; valid i32 [1], data NULL = every row is a token. */
struct ax_router_forward {
    struct ax_tensor logits, bias, probs, weights, experts, valid, load;
    int64_t first;
    struct ax_routing routing;
};
/* The load balancing loss of transformers (Fedus et al. 2021), over n = Σ load[0] / k rows (every
 * layer's tokens together): f_e = load[0][e]/n, P_e = load[1][e]/n,
 *   aux = share·E·Σ_e f_e·P_e,  share = weight·inv_weight
 *   slope[e] = d(coef·aux)/dp[t][e] = coef·share·E·f_e/n
 * the same for every row that is not padding (f has no gradient). `weight`: Σ weight of the
 * micro-batch, so that micro-batches have the same weight in a step's loss as in the main loss.
 * `counts`: aux is added to scalars->aux_loss (on one of the ranks that share `load`). Without
 * rows: slope = 0. load, slope accumulation [2][E], [E]. */
struct ax_router_balance {
    struct ax_tensor load, slope;
    int64_t k;
    double weight, coef;
    bool counts;
    struct ax_step_scalars AX_DEVICE *scalars;
};
/* From dweights [T][k], with the routing of forward: for s = Σ_j p_j over the chosen, dp_i =
 * scale·(dw_i − Σ_j dw_j·p_j/s)/s if `renormalize`, else scale·dw_i; dp_e += slope[e] + slopes[t][e]
 * (data NULL = 0) for all experts; then, 0 for padding,
 *   dlogits[e] = p_e·(dp_e − Σ_j dp_j·p_j),  or, of a sigmoid, dp_e·p_e·(1 − p_e).
 * probs, experts as router_forward left them; dweights accumulation [T][k] dense; slope,
 * slopes accumulation [E], [T][E] dense; dlogits compute [T][E]. */
struct ax_router_backward {
    struct ax_tensor probs, experts, dweights, slope, slopes, dlogits;
    struct ax_routing routing;
};
/* A stable sort into G groups: places[i] = number of j with keys[j] < keys[i], or equal keys and j
 * < i, counting only keys in [first, first + G); −1 for other keys. offsets[g] = first place of
 * group g, offsets[G] = number placed; counts[g] (data NULL = not requested) = its size. keys,
 * places i32, dense, same shape; offsets i32 [G+1], counts i32 [G]. */
struct ax_group_rows {
    struct ax_tensor keys, places, offsets, counts;
    int64_t first;
};
/* out[t] = Σ_i weights[t][i]·src[rows[t][i]] [+ addend[t]], rounded once; rows of −1 count as 0.
 * The inverse of scatter_rows, and its gradient. src compute [R][D]; out, addend (data NULL = none)
 * residual [T][D], out may be addend; rows i32 [T][k] or [T]; weights accumulation [T][k] dense, data NULL = 1. */
struct ax_combine_forward {
    struct ax_tensor src, rows, weights, addend, out;
};
/* dsrc[rows[t][i]] = weights[t][i]·dout[t];  dweights[t][i] = Σ_d dout[t][d]·src[rows[t][i]][d]
 * (0 if rows is −1). No row may appear twice; rows of dsrc that do not appear are left unchanged.
 * dsrc data NULL = not requested: then rows may appear again. src, dsrc compute [R][D]; dweights accumulation
 * [T][k] dense. */
struct ax_combine_backward {
    struct ax_tensor dout, src, rows, weights, dsrc, dweights;
};
/* One product per group g on its rows offsets[g] … offsets[g+1]−1 of `a` (i32 [G+1], within R;
 * groups may be empty; rows beyond offsets[G] are neither read nor written):
 *   y = α·x·W_gᵀ    a = x [R][in], b = W [G][out][in], c = y [R][out], trans_b
 *   dx = α·dy·W_g   a = dy [R][out], b = W, c = dx [R][in]
 *   dW_g += α·dyᵀ·x a = dy, b = x [R][in], c = dW accumulation [G][out][in], trans_a
 * With matrices stored as [in][out]: y = x·W_g as the second, dx = dy·W_gᵀ as the first, and
 * dW_g += xᵀ·dy as the third. accumulate: y and dx are added to what c has, too. A bias compute
 * [G][N] (data NULL = none; not with trans_a) is added to each row of its group. a, b, c compute except dW; the matrices of b or c need not be contiguous (row
 * stride). expected_rows: rows to assume in the cost, since only the data determines them. mirror: of
 * what offsets is part of, for backends that need it on the host (borrowed until the call returns; NULL: they wait
 * for it each time). */
struct ax_grouped_gemm {
    struct ax_tensor a, b, c, offsets;
    bool trans_a, trans_b, accumulate;
    double alpha; /* α, not 0 */
    int64_t expected_rows;
    struct ax_tensor bias;
    struct ax_mirror *mirror;
};
/* out[g][n] += Σ x[r][n] over the rows r of group g, in order: the bias's gradient. x compute [R][N],
 * out accumulation [G][N] dense, offsets i32 [G+1] as above. */
struct ax_grouped_colsum {
    struct ax_tensor x, offsets, out;
};

/* For d = (logits − max)·inv_temperature, per row over this shard's columns:
 *   stats = { max, Σ' exp(d), Σ exp(d)·d, logits[label], Σ logits }
 * Σ' leaves one maximum out: beside its 1, the digits of what a row that is almost certain has left would
 * be lost. logits compute or accumulation [T][V]; labels i32 [T], global ids, −1 = none; column c is id
 * first_col + c; logits[label] counts as 0 if there is no label or it is in another shard. stats
 * accumulation [T][AX_SOFTMAX_STATS]. */
#define AX_SOFTMAX_STATS 5
struct ax_softmax_stats {
    struct ax_tensor logits, labels, stats;
    int64_t first_col;
    double inv_temperature;
};
/* Merges the stats of S shards: stats accumulation [S][T][AX_SOFTMAX_STATS] → with the row's largest
 * logit M, Σ' and Σ over all shards, relative to it, and L = log(1 + Σ' exp(d))
 *   lse = M·inv_temperature + L;  logprob = d[label] − L;  entropy = L − E[d];
 *   mean_logprob = (Σ logits/vocab − M)·inv_temperature − L (over all `vocab` ids);
 *   lse_rest = what rounding took from lse
 * each accumulation [T]; mean_logprob and lse_rest may have data NULL (= not requested). Rows without
 * a label get logprob 0. */
struct ax_softmax_merge {
    struct ax_tensor stats, labels, logprob, lse, entropy, mean_logprob;
    int64_t vocab;
    struct ax_tensor lse_rest;
    double inv_temperature;
};
/* Gradient of Σ_t (g_logprob·logprob + g_lse·lse + g_entropy·entropy + g_mean·mean_logprob) with
 * respect to the logits, d = logits·inv_temperature − lse − lse_rest, p = exp(d):
 *   dz = g_logprob·(onehot − p) + g_lse·p − g_entropy·p·(d + entropy) + g_mean·(1/vocab − p)
 *   dlogits = inv_temperature·dz
 * g_* accumulation [T]; all but g_logprob, and lse_rest, may have data NULL (= 0). dlogits compute or
 * accumulation, may be logits, or over them (ax_tensor_over). Rows without a label: g_logprob counts as
 * 0. */
struct ax_softmax_backward {
    struct ax_tensor logits, labels, lse, entropy, g_logprob, g_lse, g_entropy, dlogits;
    int64_t first_col;
    double inv_temperature;
    struct ax_tensor g_mean;
    int64_t vocab;
    struct ax_tensor lse_rest;
};

/* With e = label_smoothing (Szegedy et al. 2016), z = z_loss (Chowdhery et al. 2022), and s = 1, or
 * with `dynamic` the token's probability, a constant for the gradient (DFT, Wu et al. 2025, arXiv
 * 2508.05629):
 *   scalars->loss += Σ weight·inv_weight·((1−e)·s·−logprob + e·−mean_logprob + z·lse²)
 * and its gradients in g_logprob, g_mean, g_lse. Rows without a label: 0. mean_logprob and g_mean
 * are needed if e > 0, lse and g_lse if z > 0; else their data is NULL. logprob, mean_logprob, lse,
 * g_* accumulation [T], weight F32 [T], labels i32 [T]; summed in order of t.
 * targets F32 [T] (data NULL = none) instead of label_smoothing: of two labels, the probability p of
 * one of them; the likelier is the token's. Then the cross-entropy with (p, 1 − p) is that with
 * e = 2·min(p, 1 − p).
 *   measures: 0 is the share of labeled rows whose label has a probability above 1/2; NULL = not
 *   requested */
struct ax_nll_loss {
    struct ax_tensor logprob, labels, weight, g_logprob;
    struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_tensor mean_logprob, g_mean, lse, g_lse;
    double label_smoothing, z_loss;
    bool dynamic;
    struct ax_tensor targets;
    struct ax_step_measures AX_DEVICE *measures;
};

/* index[t] = argmax_c logits[t][c] (the first if tied). With `after`: of those that follow token after[t]
 * in that order; −1 if there are none, or after[t] is −1. logits compute or accumulation; index, after
 * i32 [T]; after: data NULL = none. */
struct ax_argmax {
    struct ax_tensor logits, index, after;
};

/* Weights by entropy, as in EAFT (Diao et al. 2026, arXiv 2601.02151, where H is divided by log k):
 * out[t] = weight[t]·H^alpha, H = −Σ p·log(p + 1e-10) over the k largest logits of row t (all if
 * there are fewer), p = softmax of these k·inv_temperature; −1e-10 counts as 0. logits compute or
 * accumulation [T][V]; weight, out F32 [T]; alpha ≥ 0; 1 ≤ k ≤ AX_TOP_MAX. */
#define AX_TOP_MAX 256
struct ax_top_entropy {
    struct ax_tensor logits, weight, out;
    int64_t k;
    double alpha, inv_temperature;
};
/* out[t] = the k largest logits of row t, the largest first, then −inf if there are fewer: what a
 * shard of the vocabulary contributes to the k largest of all, for top_entropy. logits compute or
 * accumulation [T][V]; out accumulation [T][k]; 1 ≤ k ≤ AX_TOP_MAX. */
struct ax_top_logits {
    struct ax_tensor logits, out;
};

/* index[t] = a token of row t, chosen as transformers' generate does, in this order:
 *   repetition_penalty r   z of each token c of context[t]: z < 0 ? z·r : z/r (Keskar et al. 2019);
 *                          0 or 1 = off; context[t] are distinct tokens, the first −1 ends them
 *   temperature T          p = softmax(z/T); 0 = the largest z (the first if tied), nothing below
 *   top_k > 0              the k most probable, and any ties with the last of them
 *   0 < top_p < 1          the most probable until their mass is top_p of what top_k left
 *                          (Holtzman et al. 2020)
 *   min_p > 0              those with at least min_p of the largest p (Nguyen et al. 2024)
 * Of what is left, the first token where the running sum of p exceeds u·Σp; with one of the three
 * filters they are ordered by p, the largest first, ties by later id, else by id. u, uniform in
 * [0, 1) with 53 bits, is that of ax_sample_uniform (kernels/sample.h) for row t of keys. A row
 * whose largest p is not above 0 (NaN logits) gets its largest z.
 * logits accumulation [T][V]; keys i32 [T][4], data NULL with temperature 0; context i32 [T][C],
 * data NULL without penalty; index i32 [T]; shares accumulation [T][V], p/Σp of what is left, else 0
 * (all 0 in a row without numbers); data NULL = not requested, not with temperature 0. */
struct ax_sample {
    struct ax_tensor logits, keys, context, index, shares;
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;
    uint64_t seed;
};
/* What is left of the distributions that `sample` draws from: logits of tokens that its filters remove are
 * AX_TRUNCATED, the others stay, and so does the token labels[t] in any case (−1: none). `all`
 * accumulation [T][V] has the whole rows; logits accumulation [T][n] their columns first_col …
 * first_col + n − 1, which may be the same memory; labels i32 [T]. A row whose largest p is not above 0
 * (NaN logits) stays as it is. No penalty; temperature > 0. */
#define AX_TRUNCATED (-1e30) /* finite: 0 · it is 0 */
struct ax_truncate {
    struct ax_tensor all, labels, logits;
    int64_t first_col;
    double temperature, top_p, min_p;
    int64_t top_k;
};

/* Starts a step whose weight is known: inv_weight = 1/weight, 0 unless weight > 0; step += 1 unless
 * the last one was skipped, or `repeat`: it was not followed by updates; sumsq, the losses and
 * skip = 0. */
struct ax_begin_step {
    struct ax_step_scalars AX_DEVICE *scalars;
    bool repeat;
};

/* scalars->sumsq += Σ x². x accumulation, 1-D; summed in double in fixed blocks. */
struct ax_sumsq {
    struct ax_tensor x;
    struct ax_step_scalars AX_DEVICE *scalars;
};
/* grad_norm = √sumsq; clip = min(1, max_norm/(grad_norm + 1e-6)) (1 if max_norm ≤ 0);
 * skip = 1 if inv_weight = 0, the norm or the loss is not finite, or loss > hold_above. */
struct ax_clip {
    struct ax_step_scalars AX_DEVICE *scalars;
};

/* What every update does: g = grad·clip, then its own rule; with scalars->skip nothing. grad accumulation. Weights are kept in one of three ways:
 *   master accumulation              and copy = master rounded (compute; data NULL = none)
 *   master BF16 and remainder I16    together one float32 (ax_f32_join); no copy
 *   master BF16 alone                no copy
 * A BF16 copy, a BF16 master without remainder and BF16 moments are rounded stochastically, so that
 * on average the model computes with the exact weights even if a step is far below the last place
 * of a weight. Element i of the operands is element
 *   first + i + (row > 0 ? (i + column) / row · gap : 0)
 * of the full parameter, and that is its number in the random stream (scalars->seed, scalars->step,
 * `stream`): of word w = ax_rng_u32, w >> 16 rounds the first moment and w & 0xffff the second; the
 * copy or master has its own stream, `stream` + 1. So results depend on neither mesh nor
 * threads. */
struct ax_draw {
    uint32_t stream;
    int64_t first;
    int64_t column, row, gap; /* for a slice that has `row` of every row + gap elements; else 0 */
};

/* m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²;
 * w = w·(1 − lr·decay) − lr·(m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + eps)   (Loshchilov & Hutter 2019)
 * All 1-D with the same length. exp_avg, exp_avg_sq: both accumulation or both BF16; `nearest`:
 * BF16 moments are rounded to nearest instead, which freezes v if (1−β₂) is below half its last
 * place. */
struct ax_adamw {
    struct ax_tensor master, grad, exp_avg, exp_avg_sq, copy;
    double beta1, beta2, eps, weight_decay;
    const struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_tensor remainder;
    struct ax_draw draw;
    bool nearest;
};
/* The same with 8-bit moments (Dettmers et al. 2022): code c of block b means
 * ax_dynamic_map(c)·scale[b], signed for exp_avg; scale = max(largest |x| of the block, 1e-12). The
 * update uses the moments before they are rounded. exp_avg, exp_avg_sq U8; *_scale accumulation,
 * one per block: the first block ends after 256 − phase elements, the others have 256. */
struct ax_adamw_8bit {
    struct ax_tensor master, grad, exp_avg, exp_avg_sq, exp_avg_scale, exp_avg_sq_scale, copy;
    double beta1, beta2, eps, weight_decay;
    const struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_tensor remainder;
    struct ax_draw draw;
    int64_t phase; /* 0 … 255: elements of the first block before these */
};
#define AX_8BIT_BLOCK 256
/* g += decay·w; buf = momentum·buf + g (buf = g at step 1); g = nesterov ? g + momentum·buf : buf;
 * w −= lr·g (torch.optim.SGD). momentum 0: buf unused (data NULL), else accumulation. */
struct ax_sgd {
    struct ax_tensor master, grad, momentum_buffer, copy;
    double momentum, weight_decay;
    bool nesterov;
    const struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_tensor remainder;
    struct ax_draw draw;
};
/* w −= lr·(sign(β₁m + (1−β₁)g) + decay·w); m = β₂m + (1−β₂)g   (Chen et al. 2023)
 * exp_avg accumulation or BF16. */
struct ax_lion {
    struct ax_tensor master, grad, exp_avg, copy;
    double beta1, beta2, weight_decay;
    const struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_tensor remainder;
    struct ax_draw draw;
};
/* Adafactor (Shazeer & Stern 2018): second moments of a matrix as those of its rows and columns.
 * With b = stepᵈᵉᶜᵃʸ, u the update before clipping, rms over all elements:
 *   transformers: row = (1−b)row + b·mean_c(g² + eps1), col alike; u = g / √(row·col / mean(row));
 *                 size = lr, or with scale_parameter lr·max(eps2, rms(w)); w −= size·decay·w
 *   torch:        row = (1−b)row + b·mean_c(g²), col alike; u = g / √max(row·col /
 *                 max(mean(row), eps1), eps1²); size = min(lr, 1/√step)·max(eps2, rms(w));
 *                 w −= lr·decay·w
 *   both:         w −= size·u / max(1, rms(u) / threshold)
 * A vector keeps g² (+ eps1) per element in exp_avg_sq instead of row·col / mean(row). master, grad
 * (and copy, remainder) [R][C] with row [R] and col [C], or all [N] with exp_avg_sq; row, col,
 * exp_avg_sq accumulation, unused ones have data NULL. */
struct ax_adafactor {
    struct ax_tensor master, grad, row, col, exp_avg_sq, copy;
    double decay, eps1, eps2, threshold, weight_decay; /* decay: −0.8 */
    bool torch, scale_parameter;
    const struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_tensor remainder;
    struct ax_draw draw;
};
/* Muon (Jordan 2024), before its matrix iteration: buf += (1−momentum)·(g − buf); u = nesterov ? g
 * + momentum·(buf − g) : buf; out = u / max(‖u‖, eps). grad, momentum_buffer accumulation [R][C],
 * out compute [R][C]. With skip, out is 0 alone. */
struct ax_muon_momentum {
    struct ax_tensor grad, momentum_buffer, out;
    double momentum, eps;
    bool nesterov;
    const struct ax_step_scalars AX_DEVICE *scalars;
};
/* Muon after its iteration: w = w·(1 − lr·decay) − lr·ratio·update. update compute, [R][C] like the
 * weights. */
struct ax_muon_apply {
    struct ax_tensor master, update, copy;
    double ratio, weight_decay;
    const struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_tensor remainder;
    struct ax_draw draw;
};

/* y (+)= x/(1 − p) if kept, else 0. Element [t][k] is number (first_row + r)·cols + first_col + k
 * of random stream `tensor` at (scalars->seed, scalars->step), r = rows[t], and is kept if its 32
 * bits are ≥ p·2³²: the same elements wherever they are computed. Backward is the same op on the
 * gradient. x, y compute [T][K], y may be x; rows i32 [T], ≥ 0, data NULL = 0, 1, …; 0 ≤ p < 1. */
struct ax_dropout {
    struct ax_tensor x, y;
    double p;
    uint32_t tensor;
    int64_t first_row, first_col, cols;
    bool accumulate;
    const struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_tensor rows;
};

/* y[t][n] = x[t][n]·scale[n] [+ bias[n]] [+ addend[t][n]]. x, y, addend residual [T][N]; y may be x
 * or addend; bias compute, scale accumulation [N]; scale (= 1), bias and addend may have data
 * NULL. */
struct ax_colscale {
    struct ax_tensor x, scale, bias, addend, y;
};
/* out[n] += Σ_t a[t][n]·b[t][n]. a, b compute [T][N], out accumulation [N]. */
struct ax_coldot {
    struct ax_tensor a, b, out;
};
/* out[n] = Σ_k weight[n][k]² + Σ_j b[n][j]·p[n][j]. With p = 2s·W·Aᵀ + s²·B·A·Aᵀ this is the
 * squared norm of row n of W + s·B·A, which is never built. weight compute [N][K], b compute
 * [N][r], p accumulation [N][r], out accumulation [N]. */
struct ax_dora_norm {
    struct ax_tensor weight, b, p, out;
};
/* inverse = 1/√sumsq (0 if sumsq ≤ 0), scale = magnitude·inverse (Liu et al. 2024). magnitude
 * compute [N], the others accumulation [N]. */
struct ax_dora_scale {
    struct ax_tensor magnitude, sumsq, scale, inverse;
};
/* out[n][k] = weight[n][k] + Σ_j (scale·b[n][j])·a[j][k], in double in the order of j, rounded once:
 * the bits of a merged file (ckpt/hf/delta.h). With DoRA times magnitude[n]/√squares[n] (0 if squares
 * is 0) before it is rounded. weight, out compute [N][K], b compute [N][r], a compute [r][K], magnitude
 * compute [N], squares F64 [N]; the last two data NULL = no DoRA; out may be weight. */
struct ax_merge_low_rank {
    struct ax_tensor weight, b, a, magnitude, squares, out;
    double scale;
};
/* out[n] = Σ_k of the squares of what merge_low_rank would write without DoRA, before it rounds, in the
 * order of k. out F64 [N]. */
struct ax_merged_squares {
    struct ax_tensor weight, b, a, out;
    double scale;
};

/* How a backend wants sizes that differ between micro-batches rounded up, within what was planned,
 * so that there are few. Zeroed: not at all. */
struct ax_rounding {
    int64_t tokens;     /* length of a micro-batch: to a multiple of this */
    int64_t head_rows;  /* rows of the head: to a multiple of this */
    int64_t head_chunk; /* rows that the head processes at a time: at least this */
    bool documents;     /* to a power of two */
};

struct ax_buf;

struct ax_ops {
    const char *name;
    const struct ax_device *device; /* the device whose memory it computes on */
    struct ax_rounding rounding;
    bool whole_blocks; /* attention with a block_table reads blocks whole */
    bool
        fp8_products; /* where it supports fp8_gemm, that is faster than gemm of the codes' values */
    enum ax_status (*open)(struct ax_queue *q); /* fills q->state; NULL = nothing to do */
    void (*close)(struct ax_queue *q);
    /* True if this backend can run the op with these dtypes and shapes. NULL = all. */
    bool (*supports)(const struct ax_queue *q, enum ax_op op, const void *args);
    /* Bytes of workspace for the op; 0 = none. The dispatcher takes them from q->scratch and passes
     * the address as `work`. Must depend only on shapes, dtypes and q->threads. NULL = never
     * any. */
    size_t (*workspace)(struct ax_queue *q, enum ax_op op, const void *args);
    /* See ax_queue_choices and ax_queue_choose; NULL = it has no choice. */
    enum ax_status (*choices)(struct ax_queue *q, struct ax_buf *out);
    enum ax_status (*choose)(struct ax_queue *q, const char *text);
#define AX_OP_ENTRY(name)                                                                          \
    enum ax_status (*name)(struct ax_queue * q, const struct ax_##name *args, void *work);
    AX_OP_LIST(AX_OP_ENTRY)
#undef AX_OP_ENTRY
};

extern const struct ax_ops ax_ops_ref;
extern const struct ax_ops ax_ops_meta;
extern const struct ax_ops ax_ops_sheet; /* for plans only */
/* The table of this process's instruction set (kernels/cpu/isa.h). NULL below AVX2. */
const struct ax_ops *ax_ops_cpu(void);

const char *ax_op_name(enum ax_op op);

/* FLOPs (2 per multiply-add) and bytes (each operand read or written once) of one call. */
struct ax_op_cost {
    double flops, bytes;
};
struct ax_op_cost ax_op_cost(enum ax_op op, const void *args);

/* Enqueue: ax_run_gemm(q, &(struct ax_gemm){…}) and so on. Chooses the backend or its fallback,
 * provides workspace, counts. Errors name the op and its shapes. */
#define AX_OP_RUN(name)                                                                            \
    enum ax_status ax_run_##name(struct ax_queue *q, const struct ax_##name *args);
AX_OP_LIST(AX_OP_RUN)
#undef AX_OP_RUN

#endif
