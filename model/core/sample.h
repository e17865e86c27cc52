/* Choosing tokens from logits: greedy, or sampled after the filters of transformers' generate. The
 * op `sample` (kernels/ops.h) has the steps and their sources. This file has the options, the
 * inputs of a row's choice, and the log-prob of the choice.
 *
 * The token is drawn with one number of the counter RNG that depends only on seed, stream and
 * position. Rows are independent: a row's token depends neither on the other rows nor on the number
 * of threads. */
#ifndef AX_MODEL_CORE_SAMPLE_H
#define AX_MODEL_CORE_SAMPLE_H

#include "model/core/bias.h"
#include "model/core/likeliest.h"
#include "model/core/results.h"
#include "parallel/runtime.h"

struct ax_sampling {
    double temperature;        /* 0 = greedy */
    int64_t top_k;             /* 0 = off */
    double top_p;              /* 0 or 1 = off */
    double min_p;              /* 0 = off */
    double repetition_penalty; /* 0 or 1 = off */
    uint64_t seed;
    bool truncated; /* log-probs and entropies are those of the filtered distribution */
    bool raw;       /* they are those at temperature 1 */
};
/* The member's value for a top_p that a user has given: as in transformers, 0 keeps only the most
 * probable token and does not mean "no filter". */
static inline double ax_given_top_p(double top_p) {
    return top_p == 0 ? 1e-9 : top_p;
}
/* AX_ERR_CONFIG names the option that is out of range. */
enum ax_status ax_sampling_check(const struct ax_sampling *s);
bool ax_sampling_penalises(const struct ax_sampling *s);

struct ax_sample_row {
    uint64_t stream;        /* which stream of random numbers */
    int64_t position;       /* position in the stream */
    int64_t n_context;      /* only with a repetition penalty */
    const int32_t *context; /* distinct tokens */
    /* what is added to the logits; NULL: nothing. Only in a choice of one row */
    const struct ax_bias *bias;
    int64_t n_new; /* tokens generated so far, for the bias */
    const int32_t *generated;
};

struct ax_sampler {
    struct ax_sampling o;
    struct ax_queue *q;
    int64_t max_context;
    struct ax_tensor keys, context; /* device i32 [cap][4], [cap][max_context], as needed */
    struct ax_tensor stats, lse;    /* device, cap rows */
    struct ax_tensor biased;        /* device, accumulation [1][vocab]; data NULL without biases */
    int32_t *host;                  /* staging for keys and context */
    float *bias;                    /* [vocab] */
    double *wide_bias;              /* likewise, for logits in float64 */
};
/* Creates a sampler for up to `cap` rows of logits of dtype `accum`; max_context: the most distinct
 * tokens in a row's context; biased: size of the vocabulary if rows may have biases, else 0. Choices with another sampling are greedy if `o` is, and have no penalty
 * if it has none. Device memory comes from `stack`. */
enum ax_status ax_sampler_create(struct ax_sampler *s, const struct ax_sampling *o,
                                 struct ax_queue *q, struct ax_stack *stack, enum ax_dtype accum,
                                 int64_t cap, int64_t max_context, int64_t biased);
void ax_sampler_free(struct ax_sampler *s);

struct ax_choice {
    struct ax_tensor logits;            /* [n][V] */
    const struct ax_sample_row *rows;   /* [n] */
    const struct ax_sampling *sampling; /* NULL: the sampler's */
    struct ax_tensor shares;            /* see the op; data NULL = not requested */
    bool logprobs;
    int best; /* with `logprobs`: how many of the likeliest tokens as well */
    /* out, in the results: token ids; with `logprobs` also the log-softmax(z / T) of each and the
     * entropy, where T = 1 for greedy or `raw`. They ignore the penalty and, unless `truncated`, the
     * filters: the same values that training computes. Logits are truncated in place */
    struct ax_tensor index, logprob, entropy; /* i32, accumulation [n] */
    struct ax_likeliest likeliest;            /* `best` of them */
};
/* How many bytes of the results the choices of n rows take, without and with the most of `best`. */
size_t ax_choice_bytes(enum ax_dtype accum, int64_t n);
size_t ax_choice_best_bytes(enum ax_dtype accum, int64_t n);
/* Does not wait. */
enum ax_status ax_sampler_choose(struct ax_sampler *s, struct ax_results *results,
                                 struct ax_choice *c);

/* Filters logits in training as sampling with top-k, top-p or min-p does, so that a policy's
 * log-probs belong to the distribution from which its tokens were drawn. A label that the filters
 * would remove stays, because the policy may have changed since it was drawn.
 * logits [n][its columns of `vocab`, from first_col on], labels i32 [n], in place; unchanged if the
 * sampling does not truncate. */
enum ax_status ax_truncate_logits(struct ax_runtime *rt, const struct ax_sampling *sampling,
                                  int64_t vocab, int64_t first_col, const struct ax_tensor *labels,
                                  const struct ax_tensor *logits);

#endif
