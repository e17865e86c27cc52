/* Models with several streams (AltUp, Baykal et al. 2023; Gemma 3n): where they begin and end. Stream j of a token is
 * elements [j·D, (j + 1)·D) of its row [n·D]. x₀ is the first stream; with rms(v) = √mean(v²), at least √1e-5 where
 * it divides,
 *
 *   begin   x_j = Bⱼ·x₀ · rms(x₀)/rms(Bⱼ·x₀)
 *   end     y = (x₀ + Σ_j Eⱼ·xⱼ · rms(x₀)/rms(Eⱼ·xⱼ)) / n
 *
 * Layers are altup.h's. In a model with one stream all of this does nothing. */
#ifndef AX_MODEL_PARTS_STREAMS_H
#define AX_MODEL_PARTS_STREAMS_H

#include "model/core/builder.h"
#include "model/core/pass.h"

/* Stream j of rows [T][n·D]; the rows themselves where there is one. */
struct ax_tensor ax_stream_of(const struct ax_model *m, const struct ax_tensor *rows, int64_t j);

/* Add the parameters of the first unit; of the last. */
void ax_streams_init_begin(struct ax_builder *b);
void ax_streams_init_end(struct ax_builder *b);
/* In a pass, before the first unit: makes the slot's stream_rows. */
enum ax_status ax_stream_rows_begin(struct ax_pass *p);

/* In the first unit: memory for x₀, dense; then the streams from it. */
struct ax_tensor ax_streams_take_first(const struct ax_pass *p);
enum ax_status ax_streams_begin_forward(struct ax_pass *p, const struct ax_tensor *first);
/* Adds to the first stream's gradient what the others get back; and that gradient, dense. */
enum ax_status ax_streams_begin_backward(struct ax_pass *p);
enum ax_status ax_streams_first_gradient(struct ax_pass *p, struct ax_tensor *d);

/* In the last unit: out [T][D] from the streams. */
enum ax_status ax_streams_end_forward(struct ax_pass *p, const struct ax_tensor *x,
                                      const struct ax_tensor *out);
/* The gradient of what ended, dense: memory of the slot's gradient, which _backward makes of it. */
struct ax_tensor ax_streams_joined_gradient(const struct ax_pass *p);
enum ax_status ax_streams_end_backward(struct ax_pass *p, const struct ax_tensor *x);

#endif
