/* What is added to the logits of a sequence before its next token is chosen, in this order:
 *
 *   presence, frequency   z −= frequency·count + presence for tokens among those generated so far, as in
 *                         OpenAI's API, where count is how often
 *   tokens                z += values[i], as its logit_bias
 *   min_new               the tokens `ends` are excluded until that many have been generated
 *   allow                 tokens that it does not allow are excluded
 *
 * The repetition penalty of the sampling, its temperature and its filters follow. Log-probs are those before. */
#ifndef AX_MODEL_CORE_BIAS_H
#define AX_MODEL_CORE_BIAS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct ax_bias {
    double presence, frequency;
    int64_t n; /* tokens with a value */
    const int32_t *tokens;
    const float *values;
    int64_t min_new;
    int n_ends;
    const int32_t *ends;
    /* Sets *bits to those of the tokens that may come next, 64 in a word; called once for each token,
     * by the thread that generates. NULL: any token may. */
    enum ax_status (*allow)(void *ctx, const uint64_t **bits);
    void *ctx;
};
/* True if it changes anything. */
bool ax_bias_acts(const struct ax_bias *b);
/* row[V] gets what is to be added when `n_new` tokens have been generated. */
enum ax_status ax_bias_fill(const struct ax_bias *b, int64_t V, int64_t n_new,
                            const int32_t *generated, float *row);

#endif
