/* Texts that a model scores or continues, many at a time: sequences of a generator, which share the keys and values of
 * common prefixes. A list is opened, texts are added to it, and a run fills in their scores or answers. */
#ifndef AX_MODEL_TEXT_TEXT_REQUESTS_H
#define AX_MODEL_TEXT_TEXT_REQUESTS_H

#include "model/text/text_model.h"

struct ax_text_generation {
    char **until; /* texts that end an answer */
    size_t n_until;
    int64_t max_tokens;
    double temperature, top_p; /* temperature 0: greedy; top_p 0: off */
    int64_t top_k;
};

/* To score: the log-likelihood of a continuation, which follows the context in `ids`. To continue:
 * only a context. */
struct ax_text_request {
    size_t item; /* the caller's number for the text */
    size_t at;   /* ids [at, at + n_context + n_continuation) */
    int64_t n_context, n_continuation;
    double loglikelihood; /* out */
    bool greedy;          /* out: each token of the continuation was the most likely one */
};

struct ax_text_requests {
    const struct ax_text_generation *generation; /* NULL: they are scored */
    const struct ax_tokenizer *tokenizer;
    int64_t max_length; /* tokens of the longest sequence */
    int32_t prefix;     /* token that precedes a text without context */
    char *prefix_text, *bos_text;
    struct ax_encoding ids;
    struct ax_text_request *list; /* in the order in which they were added */
    size_t n, cap;
    struct ax_buf *answers; /* [n] out, up to the first stop text; NULL: they are scored */
    char **until;           /* stop texts, including the end of sequence */
    int64_t *until_tokens;  /* [n_until]: number of tokens of each */
    size_t n_until;
    bool quiet; /* no progress on a terminal */
};
/* g: how answers are generated, borrowed; NULL: continuations are scored. AX_ERR_UNSUPPORTED without a
 * token to begin with, AX_ERR_CONFIG if answers leave no tokens for a prompt. To be freed either way. */
enum ax_status ax_text_requests_open(struct ax_text_requests *r, const struct ax_text_side *side,
                                     int64_t max_length, const struct ax_text_generation *g);
void ax_text_requests_free(struct ax_text_requests *r); /* safe on a zeroed one */

/* The continuation of a context. AX_ERR_DATA if it has no tokens, or more than max_length. */
enum ax_status ax_text_requests_add_pair(struct ax_text_requests *r, size_t item,
                                         const struct ax_buf *context,
                                         const struct ax_buf *continuation);
/* All tokens of a text, in as many requests as it has windows of max_length tokens. */
enum ax_status ax_text_requests_add_windows(struct ax_text_requests *r, size_t item, const char *s,
                                            size_t n);
/* A text to continue. AX_ERR_DATA if it has no tokens. */
enum ax_status ax_text_requests_add_prompt(struct ax_text_requests *r, size_t item, const char *s,
                                           size_t n);
/* The tokens that the model is fed for a request: as many of the last ones as fit. */
const int32_t *ax_text_requests_fed(const struct ax_text_requests *r,
                                    const struct ax_text_request *q, int64_t *n);

/* ---- running: fills in, once, what the requests say is out ---- */

struct ax_text_requests_counters {
    int64_t requests, prompt_tokens, shared_tokens, generated_tokens;
    double seconds; /* including loading */
};

/* The sampling of a generator for the list. */
struct ax_sampling ax_text_requests_sampling(const struct ax_text_requests *r, uint64_t seed);
/* On a new generator with this sampling, `scoring`, lanes for max_length tokens and the stop tokens; adds to the
 * counters, but for the seconds. */
enum ax_status ax_text_requests_generate(struct ax_text_requests *r, struct ax_generator *g,
                                         struct ax_text_requests_counters *counters);

struct ax_text_requests_options {
    int64_t lanes; /* sequences at a time; 0: by the memory of their keys and values */
    uint64_t seed; /* for sampling */
    int adapter;   /* AX_ADAPTER_NONE: none */
};
/* Loads the model for them. */
enum ax_status ax_text_requests_run(struct ax_text_requests *r, struct ax_text_model *model,
                                    const struct ax_text_requests_options *o,
                                    struct ax_text_requests_counters *counters);

#endif
