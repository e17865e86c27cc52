/* What a server says of a prompt's tokens: `prompt_logprobs` of a completion, as vLLM's API has it and ours:
 *
 *   "choices": [{"index": 0, "prompt_logprobs": [null, {"17": {"logprob": -0.3, …}, "4": {…}, …}, …]}, …]
 *
 * a list with an element for each of the prompt's tokens, of which the first has none: the log-prob of that token, and
 * those of the K likeliest ones, of which it may be one. The answer is a stranger's: nothing in it is believed. */
#ifndef AX_DATA_REMOTE_PROMPT_LOGPROBS_H
#define AX_DATA_REMOTE_PROMPT_LOGPROBS_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"

#define AX_REMOTE_LIKELIEST_MAX 256

/* A text, and what is said of its tokens first … n − 1. */
struct ax_remote_text {
    int64_t n, first; /* first ≥ 1 */
    const int32_t *ids;
    double *logprobs; /* [n − first] of the text's own tokens */
    int32_t
        *best; /* [n − first][k] the likeliest tokens, the likeliest first; NULL: not asked for */
    double *best_logprobs; /* [n − first][k] */
};

/* Reads the answer to a request of n texts; k: likeliest tokens that each place has (0: none; at most
 * AX_REMOTE_LIKELIEST_MAX); ids are below vocab. AX_ERR_DATA says what is wrong, and where in the answer. */
enum ax_status ax_prompt_logprobs_read(const json_t *answer, int k, int64_t vocab, int64_t n,
                                       const struct ax_remote_text *texts);

#endif
