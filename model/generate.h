/* Decoding with a KV cache: the layers of training, run on a few new tokens at a time. */
#ifndef AX_MODEL_GENERATE_H
#define AX_MODEL_GENERATE_H

#include "model/pass.h"

/* One prompt and what comes of it. */
struct ax_sequence {
    int64_t n_prompt;
    const int32_t *prompt;
    int64_t n_new;   /* out: tokens generated (a stop token included) */
    int32_t *tokens; /* out [max_new] */
    double
        *logprobs; /* out [max_new], log-softmax of the chosen token's logits; NULL = not wanted */
};

struct ax_generate_options {
    enum ax_dtype dtype;
    int64_t max_prompt, max_new; /* caps for memory */
    int n_seqs;                  /* cap */
    int n_stop;
    const int32_t *stop; /* token ids that end a sequence */
};

/* A model for decoding and its memory. */
struct ax_generator {
    struct ax_generate_options o;
    struct ax_model *model;
    struct ax_kvcache cache;
    struct ax_batch prefill, next; /* all prompts at once; one token each */
    struct ax_slot slot;
    struct ax_tensor logits; /* accum [n_seqs][V] */
    struct ax_tensor ids, stats, columns;
};

/* On a model created without `train`; takes memory of the rollout phase and enters it. */
enum ax_status ax_generator_create(struct ax_generator *d, struct ax_model *m,
                                   const struct ax_generate_options *o);
void ax_generator_free(struct ax_generator *d);
/* Greedy continuation of n prompts together; each ends at a stop token or after max_new. While
 * planning, runs one prefill and one token. */
enum ax_status ax_generate_greedy(struct ax_generator *d, int n, struct ax_sequence *seqs);

#endif
