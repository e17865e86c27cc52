/* Requests to the model: tokens to score, or to continue; they run many at a time, which share the
 * keys and values of common prefixes. */
#ifndef AX_OPTIM_EVALUATE_TASKS_REQUESTS_H
#define AX_OPTIM_EVALUATE_TASKS_REQUESTS_H

#include "model/text/text_model.h"
#include "optim/evaluate/tasks/prompt.h"

/* To score: the log-likelihood of a continuation, which follows the context in `ids`. To continue:
 * only a context. */
struct ax_task_request {
    size_t item; /* index in the prompts */
    size_t at;   /* ids [at, at + n_context + n_continuation) */
    int64_t n_context, n_continuation;
    double loglikelihood; /* out */
    bool greedy;          /* out: each token of the continuation was the most likely one */
};

/* A generated answer. */
struct ax_task_answer {
    int32_t *tokens;
    int64_t n;
    struct ax_buf text; /* up to the first stop text */
};

struct ax_task_requests {
    const struct ax_task_prompts *prompts;       /* NULL: they come from no records */
    const struct ax_task_generation *generation; /* NULL: they are scored */
    const struct ax_tokenizer *tokenizer;
    int64_t max_length; /* the model's longest sequence */
    int32_t prefix;     /* token that precedes a text without context */
    char *prefix_text, *bos_text;
    struct ax_encoding ids;
    struct ax_task_request *list; /* in order of the records */
    size_t n, cap;
    size_t *first;  /* [records + 1]: the first request of each record */
    size_t samples; /* answers to each: the task's repeats, or 1 if all would be equal */
    struct ax_task_answer *answers; /* [n][samples], if the task generates */
    char **until;                   /* stop texts, including the end of sequence */
    int64_t *until_tokens;          /* [n_until]: number of tokens of each */
    size_t n_until;
};
/* AX_ERR_DATA "FILE:LINE: …" for a record from which no request can be made: nothing to score, or
 * more than max_length tokens. */
enum ax_status ax_task_requests_make(struct ax_task_requests *r, const struct ax_task_prompts *p,
                                     const struct ax_text_side *side, int64_t max_length);

/* ---- requests from texts; `item` is the caller's ---- */

/* g: how answers are generated, borrowed; NULL: continuations are scored. AX_ERR_UNSUPPORTED without a
 * token to begin with, AX_ERR_CONFIG if answers leave no tokens for a prompt. To be freed either way. */
enum ax_status ax_task_requests_open(struct ax_task_requests *r, const struct ax_text_side *side,
                                     int64_t max_length, const struct ax_task_generation *g);
enum ax_status ax_task_requests_add_pair(struct ax_task_requests *r, size_t item,
                                         const struct ax_buf *context,
                                         const struct ax_buf *continuation);
enum ax_status ax_task_requests_add_alone(struct ax_task_requests *r, size_t item, const char *s,
                                          size_t n);
enum ax_status ax_task_requests_add_windows(struct ax_task_requests *r, size_t item, const char *s,
                                            size_t n);
enum ax_status ax_task_requests_add_prompt(struct ax_task_requests *r, size_t item, const char *s,
                                           size_t n);
/* After the last prompt: memory for the answers. */
enum ax_status ax_task_requests_answers(struct ax_task_requests *r);

void ax_task_requests_free(struct ax_task_requests *r); /* safe on a zeroed one */

/* The tokens fed to the model: as many of the last ones as fit. */
const int32_t *ax_task_request_fed(const struct ax_task_requests *r,
                                   const struct ax_task_request *q, int64_t *n);
/* The text of a scored choice, with the delimiter before it. */
enum ax_status ax_task_continuation(const struct ax_task_prompts *p, size_t item, size_t choice,
                                    struct ax_buf *out);

/* ---- running ---- */

struct ax_task_run_options {
    int64_t lanes; /* sequences at a time; 0: by the memory of their keys and values */
    uint64_t seed; /* for sampling */
    int adapter;   /* AX_ADAPTER_NONE: none */
};

struct ax_task_run_counters {
    int64_t requests, prompt_tokens, shared_tokens, generated_tokens;
    double seconds; /* including loading */
};

/* Fills in the output fields of all tasks' requests. */
enum ax_status ax_task_run(struct ax_text_model *model, struct ax_task_requests *const *list,
                           size_t n, const struct ax_task_run_options *o,
                           struct ax_task_run_counters *counters);

#endif
