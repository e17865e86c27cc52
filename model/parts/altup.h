/* A layer of several streams (AltUp, Baykal et al. 2023; Gemma 3n). Of the n streams h_j, the layer's parts compute the
 * active one, a:
 *
 *   m(x) = tanh(router(norm(x)) / D)                   [n]
 *   predict   p_j = h_j + Σ_i C[j][i]·h_i,             C = predict(m(h_a)) [n][n]
 *             t = the layer's parts of p_a
 *   correct   c_j = p_j + (1 + correct(m(t))_j)·(t − p_a)
 *   give      y_j = c_j, and for j ≥ 1 plus norm(extra(c_a ∘ scale))
 *
 * where extra is the third branch's part. Sums of streams are combine_forward with the rows of a token for choices; what is
 * mixed is rounded to the compute dtype, the streams themselves are not. */
#ifndef AX_MODEL_PARTS_ALTUP_H
#define AX_MODEL_PARTS_ALTUP_H

#include "model/core/builder.h"
#include "model/core/pass.h"

enum {
    AX_ALTUP_PREDICTED, /* all p_j [T][n·D] */
    AX_ALTUP_MADE,      /* t [T][D] */
};
#define AX_ALTUP_SAVED (14 + AX_PER_LAYER_SAVED)

void ax_altup_init(struct ax_builder *b, struct ax_layer *l);
void ax_altup_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s);
/* Before the layer's parts, which read the active stream of PREDICTED. */
enum ax_status ax_altup_predict(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                const struct ax_tensor *x);
/* After them, with their result in MADE: correct and give. out NULL: only what backward needs. */
enum ax_status ax_altup_correct(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                const struct ax_tensor *out);
/* d: in, the gradient of what correct made; out, that of PREDICTED but for what the parts read. d_made [T][D],
 * accumulation, = the gradient of MADE. */
enum ax_status ax_altup_correct_backward(const struct ax_layer *l, struct ax_pass *p,
                                         struct ax_saved *s, const struct ax_tensor *d,
                                         const struct ax_tensor *d_made);
/* d: in, the gradient of PREDICTED; out, that of x. */
enum ax_status ax_altup_predict_backward(const struct ax_layer *l, struct ax_pass *p,
                                         struct ax_saved *s, const struct ax_tensor *x,
                                         const struct ax_tensor *d);

#endif
