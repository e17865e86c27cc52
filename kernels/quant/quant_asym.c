/* The gradient of INT4_ASYM. With u = (x − lo)/s, q = clamp(rint u), value = (q − 8)·s + lo + 8s and
 * s = (hi − lo)/15, straight through rint:
 *   ∂/∂x = kept;  ∂/∂s = q − kept·u;  ∂/∂lo = 1 − kept;  ds/dhi = −ds/dlo = 1/15, or 0 where s is at
 * its least. What lo and hi receive is shared by the elements that equal them. */
#include "kernels/quant/quant_block.h"

void ax_quant_asym_gradient(const float *x, const double *dy, int64_t n, double *dx) {
    float low = x[0], high = x[0];
    for (int64_t i = 1; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    const struct ax_quant_block b = ax_quant_block_of(AX_QUANT_INT4_ASYM, low, high, 0);
    double d_scale = 0, d_low = 0;
    int64_t lows = 0, highs = 0;
    for (int64_t i = 0; i < n; i++) {
        const float q = ax_quant_rounded(AX_QUANT_INT4_ASYM, x[i], &b);
        const bool kept = ax_quant_kept(AX_QUANT_INT4_ASYM, x[i], &b);
        const double u = kept ? (double)((x[i] - b.low) / b.scale) : 0;
        d_scale += dy[i] * ((double)ax_quant_clamped(AX_QUANT_INT4_ASYM, q) - u);
        d_low += kept ? 0 : dy[i];
        lows += x[i] == low;
        highs += x[i] == high;
    }
    d_scale = high - low >= 1e-6F ? d_scale / 15 : 0;
    for (int64_t i = 0; i < n; i++) {
        double d = ax_quant_kept(AX_QUANT_INT4_ASYM, x[i], &b) ? dy[i] : 0;
        if (x[i] == low)
            d += (d_low - d_scale) / (double)lows;
        if (x[i] == high)
            d += d_scale / (double)highs;
        dx[i] = d;
    }
}
