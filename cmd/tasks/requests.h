/* What the model is asked: tokens to score, or to continue. */
#ifndef AX_CMD_TASKS_REQUESTS_H
#define AX_CMD_TASKS_REQUESTS_H

#include "cmd/tasks/prompt.h"

/* Scored: context and continuation are contiguous in `ids`, and the log-likelihood of the
 * continuation is asked for. To be continued: a context alone. */
struct ax_task_request {
    size_t item; /* of the prompts */
    size_t at;   /* ids [at, at + n_context + n_continuation) */
    int64_t n_context, n_continuation;
    double loglikelihood; /* out */
    bool greedy;          /* out: each token of the continuation was the likeliest */
};

/* What the model wrote. */
struct ax_task_answer {
    int32_t *tokens;
    int64_t n;
    struct ax_buf text; /* up to the first of `until` */
};

struct ax_task_requests {
    const struct ax_task_prompts *prompts;
    const struct ax_tokenizer *tokenizer;
    int64_t max_length; /* of the model */
    int32_t prefix;     /* stands before a text that has nothing before it */
    char *prefix_text, *bos_text;
    struct ax_encoding ids;
    struct ax_task_request *list; /* in the order of the records */
    size_t n, cap;
    size_t *first;  /* [records + 1]: of each record's requests */
    size_t samples; /* answers to each: the task's repeats, or 1 if they are equal */
    struct ax_task_answer *answers; /* [n][samples], of a task that generates */
    char **until;                   /* with the end of sequence */
    int64_t *until_tokens;          /* [n_until] of each */
    size_t n_until;
};
/* AX_ERR_DATA "FILE:LINE: …" for a record that cannot be asked: nothing to score, or more than
 * max_length tokens of it. */
enum ax_status ax_task_requests_make(struct ax_task_requests *r, const struct ax_task_prompts *p,
                                     const struct ax_text_side *side, int64_t max_length);
void ax_task_requests_free(struct ax_task_requests *r); /* safe on a zeroed one */

/* The tokens that go through the model: the last of them that fit. */
const int32_t *ax_task_request_fed(const struct ax_task_requests *r,
                                   const struct ax_task_request *q, int64_t *n);
/* The longest of all. */
int64_t ax_task_requests_longest(const struct ax_task_requests *r);
/* The text of a scored choice as it stands behind its context. */
enum ax_status ax_task_continuation(const struct ax_task_prompts *p, size_t item, size_t choice,
                                    struct ax_buf *out);

#endif
