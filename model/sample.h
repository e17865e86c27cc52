/* Choosing tokens from logits: greedy, or sampled after the filters of transformers' generate.
 *
 * For each row of logits z, in this order (as in transformers):
 *   repetition penalty r   z of each token of the context: z < 0 ? z·r : z/r   (Keskar et al. 2019)
 *   temperature T          p = softmax(z / T);  T = 0: the largest z, and no filters
 *   top-k                  the k most probable, and any ties with the last of them
 *   top-p                  the most probable until their share of the remaining mass reaches top_p
 *                          (Holtzman et al. 2020)
 *   min-p                  those with at least min_p of the largest probability
 *                          (Nguyen et al. 2024)
 * The token is drawn from the remaining ones in proportion to p, with one number of the counter RNG
 * that depends only on seed, stream and position. Rows are independent: a row's token depends
 * neither on the other rows nor on the number of threads. */
#ifndef AX_MODEL_SAMPLE_H
#define AX_MODEL_SAMPLE_H

#include "kernels/queue.h"

struct ax_sampling {
    double temperature;        /* 0 = greedy */
    int64_t top_k;             /* 0 = off */
    double top_p;              /* 0 or 1 = off */
    double min_p;              /* 0 = off */
    double repetition_penalty; /* 0 or 1 = off */
    uint64_t seed;
};
/* AX_ERR_CONFIG names the option that is out of range. */
enum ax_status ax_sampling_check(const struct ax_sampling *s);
bool ax_sampling_penalises(const struct ax_sampling *s);

struct ax_candidate {
    int32_t id;
    float p;
};

struct ax_sampler {
    struct ax_sampling o;
    struct ax_queue *q;
    int64_t V;
    struct ax_tensor index, labels, stats; /* device, cap rows */
    struct ax_tensor columns[5];     /* accumulation [cap]: log-prob, lse, entropy, no gradient,
                                        temperature */
    struct ax_tensor probs;          /* accumulation [cap][V] */
    struct ax_candidate *candidates; /* [V] */
    float *row;                      /* [V]: probabilities of one row */
    double *wide;                    /* [V] if logits are F64, else NULL */
    double *undo;                    /* logits before the penalty, of all rows */
    int64_t undo_cap;
};
/* For up to `cap` rows of V logits of dtype `accum`; max_context: the most distinct tokens in a
 * row's context. Device memory comes from `stack`; greedy decoding needs little of it. */
enum ax_status ax_sampler_create(struct ax_sampler *s, const struct ax_sampling *o,
                                 struct ax_queue *q, struct ax_stack *stack, enum ax_dtype accum,
                                 int64_t cap, int64_t V, int64_t max_context);
void ax_sampler_free(struct ax_sampler *s);

struct ax_sample_row {
    uint64_t stream;        /* of random numbers */
    int64_t position;       /* in the stream */
    int64_t n_context;      /* only with a repetition penalty */
    const int32_t *context; /* distinct tokens */
};
/* Sets ids[i] for row i of logits [n][V] (unchanged on return). logprobs[i], unless NULL, is the
 * chosen token's log-softmax(z / T), T = 1 for greedy, without penalty and filters: the same value
 * that training computes. */
enum ax_status ax_sampler_choose(struct ax_sampler *s, const struct ax_tensor *logits,
                                 const struct ax_sample_row *rows, int32_t *ids, double *logprobs);
/* The *n candidates that row i of the last call was drawn from, with their probabilities, which sum
 * to 1. Not for greedy. */
enum ax_status ax_sampler_shares(struct ax_sampler *s, int64_t i, const struct ax_candidate **out,
                                 int64_t *n);

#endif
