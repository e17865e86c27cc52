/* The ops that compute each element of z from the elements x and y at its place, as formulas. Each backend makes the
 * loops, in kernels/ref/basic.c, kernels/cpu/vec/rows/elementwise.c and kernels/cuda/rows/basic.cu, for its own
 * numbers:
 *
 *   X(op, z, x, y, inputs, p, r, formula)
 *
 * z, x, y: fields of struct ax_<op>; y has z's dtype, x compute or accumulation; z may be either. inputs: 1 if the
 * formula has no y, else 2. p, r: numbers, of the op's arguments `a`. A formula has x, y, p, r, and what a backend
 * defines as its fastest way or, on ref, as written:
 *
 *   AX_EACH(p)          a number beside elements
 *   AX_FMA(a, b, c)     a·b + c
 *   AX_FNMA(a, b, c)    c − a·b
 *   AX_OVER_R(x)        x / r
 *   AX_CAP(x)           r·tanh(p·x / r)
 *   AX_POSITIVE(x)      the larger of 0 and x */
#ifndef AX_KERNELS_POINTWISE_H
#define AX_KERNELS_POINTWISE_H

#define AX_POINTWISE(X)                                                                            \
    X(add, dst, src, dst, 2, a->alpha, 0, AX_FMA(AX_EACH(p), x, y))                                \
    X(scale, y, x, y, 1, a->alpha, a->softcap, r > 0 ? AX_CAP(x) : AX_EACH(p) * x)                 \
    X(softcap_backward, dx, y, dy, 2, a->alpha, a->softcap,                                        \
      AX_EACH(p) * y * AX_POSITIVE(AX_FNMA(AX_OVER_R(x), AX_OVER_R(x), AX_EACH(1))))               \
    X(relu2_forward, y, x, y, 1, 0, 0, AX_POSITIVE(x) * AX_POSITIVE(x))                            \
    X(relu2_backward, dx, x, dy, 2, 2, 0, AX_EACH(p) * AX_POSITIVE(x) * y)

#endif
