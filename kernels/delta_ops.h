/* The arguments of the gated delta rule (Yang et al. 2024, "Gated Delta Networks"), of its form with a decay per channel
 * (Moonshot AI 2025, "Kimi Linear": KDA) and of Mamba-2's recurrence (Dao and Gu 2024, "Transformers are SSMs"), which
 * is the rule without its correction; notation: kernels/ops.h. */
#ifndef AX_KERNELS_DELTA_OPS_H
#define AX_KERNELS_DELTA_OPS_H

#include <stdbool.h>

#include "kernels/tensor.h"

#define AX_DELTA_CHUNK 64   /* tokens */
#define AX_DELTA_EPS   1e-6 /* added to the sum of squares of a query or key */

/* Decay and strength of the rule, of `a` compute [N][r·w] and `b` compute [N][r] (any row strides), log compute [H],
 * bias compute [H·w]:
 *   g = −e^log_h·ln(1 + e^(a + bias));  beta = scale·σ(b)
 * g as a, beta as b, accumulation. The head of element (n, j) of b is h = (n mod H/r)·r + j: a row is a token, or the
 * r value heads of a token's key head. Each head has w decays, which are neighbors: one, or one per channel. */
struct ax_delta_gates_forward {
    struct ax_tensor a, b, log, bias, g, beta;
    double scale;
};
/* da = −dg·e^log·σ(a + bias), db = dbeta·scale·σ(b)·(1 − σ(b)), as a and b; dlog[h] += Σ dg·g, dbias += Σ da,
 * accumulation, data NULL: frozen. */
struct ax_delta_gates_backward {
    struct ax_tensor dg, dbeta, a, b, log, bias, da, db, dlog, dbias;
    double scale;
};

/* Time step and decay of Mamba-2, of `a` compute [T][H] (any row stride), log and bias compute [H]:
 *   step = clamp(ln(1 + e^(a + bias_h)), low, high);  g = −e^log_h·step
 * g, step accumulation [T][H]. */
struct ax_ssd_gates_forward {
    struct ax_tensor a, log, bias, g, step;
    double low, high;
};
/* da = (dstep − e^log·dg)·σ(a + bias), 0 where the step is clamped, as a; dlog[h] += Σ dg·g, dbias[h] += Σ da, and
 * dskip[h] += Σ of the tokens' shares of it (shares accumulation [T][H]); accumulation, data NULL: frozen. */
struct ax_ssd_gates_backward {
    struct ax_tensor dg, dstep, shares, a, log, bias, da, dlog, dbias, dskip;
    double low, high;
};

/* Gated delta rule over packed documents. Value head h of Hv reads key head h·Hk/Hv. With
 * q̂ = scale·q/√(Σq² + 1e-6) and k̂ = k/√(Σk² + 1e-6) of each head, state S [dk][dv] of each value head,
 * zeros at a document's start unless it enters with one:
 *   u_t = beta_t·(v_t − e^g_t·S_{t−1}ᵀ·k̂_t);  S_t = e^g_t·S_{t−1} + k̂_t·u_tᵀ;  out_t = S_tᵀ·q̂_t
 * q, k compute [T][Hk][dk]; v, out compute [T][Hv][dv] (any row strides); g, the logarithm of the decay,
 * ≤ 0, and beta accumulation [T][Hv]. With g [T][Hv][dk] each channel of the keys, a row of S, has a decay of its own:
 * e^g·S is diag(e^g)·S. Document d is tokens cu[d] … cu[d+1]−1, cu i32 [n+1] with
 * n = cu.shape[0] − 1; rows of out of no document are set to 0.
 * states accumulation [slots][Hv][dk][dv] (data NULL: none enter or leave): document d enters with slot
 * enters[d] (−1: zeros) and leaves its last state in slot leaves[d] (−1: nowhere), both i32 [n]. Slots of
 * `leaves` are distinct, and no other document enters with them.
 *
 * Chunks of AX_DELTA_CHUNK tokens begin at a document's first token. With G_i the sum of g over the chunk's
 * tokens up to i, S what the chunk enters with, c its tokens, and every sum in the order of its index:
 *   u_i = beta_i·(v_i − e^G_i·Sᵀ·k̂_i) − Σ_{j<i} beta_i·(k̂_i·k̂_j)·e^(G_i − G_j)·u_j
 *   out_i = e^G_i·Sᵀ·q̂_i + Σ_{j≤i} (q̂_i·k̂_j)·e^(G_i − G_j)·u_j
 *   S' = e^G_c·S + Σ_j e^(G_c − G_j)·k̂_j·u_jᵀ
 * With a decay per channel, factors e^… are those of the elements of k̂_j, or of q̂_i and k̂_i where they meet S:
 * products of the tokens' e^g, which can neither overflow nor divide by 0.
 * So a token's bits depend on the tokens of its chunk before it and on S alone.
 *
 * additive (Mamba-2, where q is C, k is B, v is x, beta is the time step): an update does not depend on S, and
 * heads are not normalized: q̂ = scale·q, k̂ = k, u_t = beta_t·v_t, out_t = S_tᵀ·q̂_t + skip_h·v_t with skip
 * compute [Hv] (data NULL: none; the delta rule has none). It has one decay per head. */
struct ax_delta_rule {
    struct ax_tensor q, k, v, g, beta, skip, out, cu, states, enters, leaves;
    double scale;
    bool additive;
};
/* Whether each channel of a head's keys has a decay of its own. */
static inline bool ax_delta_by_channel(const struct ax_delta_rule *a) {
    return a->g.ndim == 3;
}
/* Generation, past i32 [n] (data NULL: none, and nor are the next three): document d goes on with a
 * sequence of which past[d] tokens have been computed, in slot enters[d]; enters is leaves. Its chunks begin at
 * multiples of AX_DELTA_CHUNK of the sequence, and a slot has the state that its running chunk, the one that is
 * not full, entered with, and of that chunk's tokens k in keys compute [slots][CHUNK][Hk][dk], u in updates
 * accumulation [slots][CHUNK][Hv][dv] and g in decays accumulation [slots][CHUNK][Hv], or …[Hv][dk]. The op appends the
 * document's tokens. With past[d] = 0 the slot's content is not read. Bits of out are the same in pieces of any
 * lengths. */
struct ax_delta_forward {
    struct ax_delta_rule a;
    struct ax_tensor past, keys, updates, decays;
};
/* dout as out; dq, dk, dv as q, k, v, overwritten (rows of no document: 0); dg as g, dbeta as beta,
 * likewise, and dskip accumulation [T][Hv], each token's share of the gradient of skip (data NULL: not requested). dstates as states (data NULL: no gradients of states): the gradient of the state with which document
 * d leaves is taken from slot leaves[d] (−1: 0) and that of the state with which it entered is written to slot
 * enters[d] (−1: nowhere). a.out is not read: of forward nothing is saved but the inputs; states at
 * the borders of chunks are computed again. */
struct ax_delta_backward {
    struct ax_delta_rule a;
    struct ax_tensor dout, dq, dk, dv, dg, dbeta, dskip, dstates;
};

#endif
