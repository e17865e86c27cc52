/* Which keys the queries of sparse attention attend to (DeepSeek-AI 2025, DeepSeek-V3.2, §2.1): the indexer of a
 * layer, beside its latent attention (mla.c). The choice is the same for all heads.
 *
 *   q = wq_b·norm(c_q)  [n][d]      c_q: the latent of queries
 *   k = LayerNorm(wk·h)  [d]        rope on the first elements of q's heads and of k
 *   w = weights_proj·h / √n  [n]
 *   the `top` keys of the document up to the query's place with the largest Σ_h w_h·max(0, q_h·k/√d)
 *
 * A choice has no gradient, so the indexer has none of the loss: it is frozen, or trains by a loss of its own
 * (index_training.h). With tp every rank chooses for all rows, and with cp for its own queries. Where no document of a
 * pass has more than `top` keys it does not run. */
#ifndef AX_MODEL_PARTS_INDEXER_H
#define AX_MODEL_PARTS_INDEXER_H

#include "model/core/builder.h"
#include "model/core/pass.h"

/* Adds its parameters, which l->indexer then has. */
void ax_indexer_init(struct ax_builder *b, struct ax_layer *l);
struct ax_part_size ax_indexer_size(const struct ax_arch *a);
/* FLOPs of a token in a sequence of seq. */
double ax_indexer_flops(const struct ax_arch *a, int64_t seq);
/* Keys that a query attends to in a sequence of seq, on average. */
double ax_chosen_keys(const struct ax_arch *a, int64_t seq);

/* What an indexer makes of a rank's rows, with rope; and of the norm of k what its gradient needs. In scratch. */
struct ax_index_rows {
    struct ax_tensor q, k; /* compute [T/tp][n·d], [T/tp][d] */
    struct ax_tensor w;    /* accumulation [T/tp][n], not rounded before */
    struct ax_tensor centered, rstd;
};
/* From h [T/tp][D] and norm(c_q) [T/tp][q_rank]. */
enum ax_status ax_index_rows(const struct ax_layer *l, struct ax_pass *p, const struct ax_tensor *h,
                             const struct ax_tensor *latent, struct ax_index_rows *out);
/* Adds to the gradients of the indexer's parameters, given those of rows->q (compute), k and w (accumulation), which it
 * overwrites. h and the latent are constants. */
enum ax_status ax_index_rows_backward(const struct ax_layer *l, struct ax_pass *p,
                                      const struct ax_tensor *h, const struct ax_tensor *latent,
                                      const struct ax_index_rows *rows,
                                      const struct ax_index_rows *d);

/* True if queries of the pass choose among their keys; while indexers warm up they see all. */
bool ax_pass_chooses(const struct ax_pass *p);
/* The choice of a layer in this pass, without memory: bits, or with a cache rows of it (op top_keys). */
struct ax_tensor ax_choice_shape(const struct ax_pass *p);
/* choice = that of layer l, from h [T/tp][D] and norm(c_q) [T/tp][q_rank]. With a cache, keys are first written to
 * it. */
enum ax_status ax_indexer_choose(const struct ax_layer *l, struct ax_pass *p,
                                 const struct ax_tensor *h, const struct ax_tensor *latent,
                                 const struct ax_tensor *choice);

#endif
