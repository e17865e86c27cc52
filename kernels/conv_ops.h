/* The arguments of short convolutions; notation: kernels/ops.h. */
#ifndef AX_KERNELS_CONV_OPS_H
#define AX_KERNELS_CONV_OPS_H

#include "kernels/tensor.h"

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
