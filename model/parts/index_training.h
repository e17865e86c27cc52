/* The loss that trains the indexer of a layer (DeepSeek-AI 2025, DeepSeek-V3.2, §2.1.1): how far its scores are from
 * what the layer's attention does.
 *
 *   p_ts = 1/H Σ_h attention_hts           over the keys s that query t sees: while indexers warm up all of its
 *   r_ts = softmax_s(score_ts)             document up to t, else those that it has chosen
 *   L = coef · Σ_t Σ_s p_ts·(log p_ts − log r_ts) / tokens of the step
 *
 * Attention, h and the latent of queries are constants: the indexer learns from this loss alone, and nothing else
 * learns from it. Layers that share a choice have no part in it.
 *
 * It runs in backward, a chunk of queries at a time, whose tables of pairs fit a fixed memory budget, so that memory
 * grows with the length of a sequence and not with its square. Over tp, each rank adds what its heads attend to, and
 * the rank whose rows the queries are does the rest; over cp, a rank has its own queries and the keys of all. */
#ifndef AX_MODEL_PARTS_INDEX_TRAINING_H
#define AX_MODEL_PARTS_INDEX_TRAINING_H

#include "model/core/pass.h"

/* True if an indexer of this layer trains. */
bool ax_index_trains(const struct ax_layer *l);

/* Adds to the gradients of the layer's indexer and to the step's loss of indexers. h [T/tp][D], latent: norm(c_q)
 * [T/tp][q_rank]; attention: q, k, lse of this rank's heads, scale, and chosen, as for ax_attend_forward. */
struct ax_index_inputs {
    const struct ax_tensor *h, *latent;
    const struct ax_attention *attention;
};
enum ax_status ax_index_learn(const struct ax_layer *l, struct ax_pass *p,
                              const struct ax_index_inputs *from);

#endif
