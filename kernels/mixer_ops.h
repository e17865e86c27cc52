/* The arguments of attention, its indexers, and short convolutions; notation: kernels/ops.h. */
#ifndef AX_KERNELS_MIXER_OPS_H
#define AX_KERNELS_MIXER_OPS_H

#include "kernels/scalars.h"
#include "kernels/tensor.h"

/* Softmax attention over packed documents, grouped heads (query head h reads KV head h·Hk/Hq).
 * Document d: queries cu_q[d]…cu_q[d+1]−1, keys cu_k[d]…cu_k[d+1]−1 (with a block_table, cu_k gives
 * only lengths). Causal: query i of nq is as far along as key e = i + nk − nq, and sees key j iff
 * j ≤ e; with window > 0 also only j > e − window. ahead > 0: the keys are of an earlier piece of the
 * sequence, and query 0 follows `ahead` tokens after the last of them: e = i + nk − 1 + ahead. s = scale·q·k; softcap > 0: s = cap·tanh(s/cap).
 * sink accumulation [Hq] (data NULL = none): an extra logit per head that takes probability but has
 * no value.
 *   p = softmax(s);  out = p·v;  lse = log Σ exp(s) (with the sink); no key: out = 0, lse = −inf
 * q compute [Tq][Hq][hd], k [Tk][Hk][hd]; v compute [Tk][Hk][vd], out [Tq][Hq][vd]; lse
 * accumulation [Tq][Hq]; cu_q, cu_k i32 [n+1] with n = cu_q.shape[0] − 1; documents beyond the last
 * one have length 0; rows of out that belong to no document are set to 0. block_table i32
 * [n][max_blocks] (data NULL = none): k and v are then [blocks·block_size][Hk][…] and key j of
 * document d is row block_table[d][j / block_size]·block_size + j % block_size; other rows are numbers,
 * too, where a backend reads whole blocks (struct ax_ops) and multiplies them by 0. max_q and max_k bound document lengths (for planning).
 * chosen i32 [Tq][at least max_k/32, rounded up] (data NULL = all): of the keys that it sees otherwise, query t
 * sees key j of its document iff bit j % 32 of chosen[t][j / 32] is set; only if causal, without
 * block_table and ahead. */
struct ax_attention {
    struct ax_tensor q, k, v, out, lse;
    struct ax_tensor cu_q, cu_k, sink, block_table, chosen;
    int64_t block_size, max_q, max_k, window, ahead;
    double scale, softcap;
    bool causal;
};
/* Words of a row of `chosen`. */
static inline int64_t ax_chosen_words(int64_t max_k) {
    return (max_k + 31) / 32;
}
struct ax_attention_forward {
    struct ax_attention a;
};
/* With δ = Σ out·dout:  dv = pᵀ·dout, ds = p·(dout·vᵀ − δ), dq = scale·ds·k, dk = scale·dsᵀ·q
 * (Dao et al. 2022). dq, dk, dv compute, shaped as q, k, v, overwritten (rows of no document: 0);
 * no [T][T] memory; every sum has a fixed order. dsink accumulation [Hq] += (data NULL: frozen).
 * block_table is not supported. */
struct ax_attention_backward {
    struct ax_attention a;
    struct ax_tensor dout, dq, dk, dv, dsink;
};
/* Attention to some keys, and to others (part), becomes attention to all (Milakov & Gimelshein 2018):
 *   L = log(e^lse + e^part_lse);  out = out·e^(lse − L) + part·e^(part_lse − L);  lse = L
 * out accumulation [T][H][vd], part compute [T][H][vd]; lse, part_lse accumulation [T][H]. −inf: no
 * keys; of two, out is 0. */
struct ax_attention_merge {
    struct ax_tensor out, lse, part, part_lse;
};

/* The keys that a query of sparse attention attends to (DeepSeek-AI 2025, DeepSeek-V3.2, §2.1). Of those that
 * it sees in its document, as in causal attention, they are the `top` with the largest scores,
 *   score[t][s] = Σ_h w[t][h]·max(0, scale·q[t][h]·k[s])
 * ties by lowest position; all, if these are no more. q compute [Tq][H][hd], k compute [Tk][1][hd], w
 * accumulation [Tq][H]; cu_q, cu_k, block_table, block_size, max_q, max_k as for attention. The result is either
 *   chosen i32 [Tq][at least max_k/32, rounded up]: bits, as attention reads them
 *   rows i32 [Tq][top], dense: which rows of k they are, in order of position; −1 past the last
 * and the other's data is NULL. Rows of no document choose no key. */
struct ax_top_keys {
    struct ax_tensor q, k, w, cu_q, cu_k, block_table, chosen, rows;
    int64_t block_size, max_q, max_k, top;
    double scale;
};

/* What trains the indexer whose choices top_keys makes (DeepSeek-AI 2025, DeepSeek-V3.2, §2.1.1), on tables of pairs: row t
 * is a query, column c a key. Products of both are gemm's. */

/* p[t][c] (+)= share·exp(s[t][c] − lse[t]): what a head of attention gives to each key, of the scores s and their
 * log-sum-exp over the keys that the query sees; of others any number. `accumulate`: p +=, else p =. All accumulation: p, s
 * [T][C], lse [T][1] (any row strides). */
struct ax_index_target {
    struct ax_tensor p, s, lse;
    double share;
    bool accumulate;
};

/* x[t][c] (+)= w[t]·max(0, z[t][c]): scores of a head of the indexer. All accumulation: x, z [T][C], w [T][1]. */
struct ax_index_scores {
    struct ax_tensor x, z, w;
    bool accumulate;
};

/* For the keys c that query t sees, with r = softmax(x) over them:
 *   kl[t] = Σ_c p·(log p − log r)  (0 of p = 0);  p becomes coef·(r − p)/scalars->tokens, the gradient of x where
 *   Σ_c p = 1;  scalars->index_loss += Σ_t kl[t] / scalars->tokens  (both 0 of no tokens)
 * p becomes 0 for other keys. Row t is query first + t, and column c key row first_key + c: documents are ranges of
 * these as in attention (cu_q, cu_k), causal, and chosen i32 [T][at least max_k/32, rounded up] (data NULL = all) says
 * which of its document's keys a query sees. p, x accumulation [T][C]; kl accumulation [T]. Columns contain all
 * keys that these queries see. */
struct ax_index_loss {
    struct ax_tensor p, x, kl, cu_q, cu_k, chosen;
    int64_t first, first_key, max_k;
    double coef;
    struct ax_step_scalars AX_DEVICE *scalars;
};

/* The gradients of a head, with dx that of x:  dz = dx·w where z > 0, else 0;  dw[t] = Σ_c dx·max(0, z). dx, z accumulation
 * [T][C], dz compute [T][C]; w, dw accumulation [T][1] (any row strides). */
struct ax_index_backward {
    struct ax_tensor dx, z, w, dz, dw;
};

#define AX_CONV_TAPS 8 /* at most */

/* Short causal convolution of each channel over packed documents, the last of K taps on the token itself:
 *   z_t[c] = bias[c] + Σ_{i<K} w[c][i]·x_{t−K+1+i}[c];  y = z, or z·σ(z) with `silu`
 * summed in the order of i, from the bias on. x, y compute [T][C] (any row strides); w compute [C][K], dense,
 * 2 ≤ K ≤ AX_CONV_TAPS; bias compute [C] (data NULL: none). Document d is rows cu_q[d] … cu_q[d+1]−1 of x, cu_q
 * i32 [n+1] with n = cu_q.shape[0] − 1; rows of y of no document are set to 0. Inputs before a document are 0,
 * and are left out of the sum.
 *
 * Generation: `before` compute [n·(K−1)][C] (data NULL: none; cu_k is then not read) has inputs of the document's
 * sequence before its first row, rows d·(K−1) … of which the last is the latest. There are as many tokens before
 * as cu_k, i32 [n+1], says the document to be longer than by cu_q, if they are fewer than K − 1; rows of those
 * that there are not are not read. So y has the same bits in pieces of any lengths. */
struct ax_conv {
    struct ax_tensor x, w, bias, before, cu_q, cu_k, y;
    bool silu;
};
struct ax_conv_forward {
    struct ax_conv a;
};
/* With g = dy, times the slope of z·σ(z) with `silu`:
 *   dx_t[c] = Σ_i w[c][i]·g_{t+K−1−i}[c] within the document;  dw[c][i] += Σ_t g_t[c]·x_{t−K+1+i}[c]
 *   dbias[c] += Σ_t g_t[c]
 * dx as x, overwritten (rows of no document: 0); dw, dbias accumulation, dense, data NULL: frozen. y is not read,
 * and there is no `before`. */
struct ax_conv_backward {
    struct ax_conv a;
    struct ax_tensor dy, dx, dw, dbias;
};

#endif
