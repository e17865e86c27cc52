/* What a server answers of prompts' tokens: any JSON is log-probs or an error with one printable text. The first byte
 * says how many likeliest tokens are asked for. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "data/remote/prompt_logprobs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define VOCAB 32
#define N     3
#define MOST  4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int32_t ids[] = {1, 2, 3, 4};
    const uint64_t live = ax_mem_live_blocks();
    if (size == 0 || size > 1 << 16)
        return 0;
    const int k = data[0] % (MOST + 1);
    json_t *answer = json_loadb((const char *)data + 1, size - 1, JSON_ALLOW_NUL, NULL);
    /* exactly as large, so that a sanitizer sees one more */
    double *logprobs = malloc(N * sizeof *logprobs);
    double *best_logprobs = malloc((size_t)(N * k) * sizeof *best_logprobs);
    int32_t *best = malloc((size_t)(N * k) * sizeof *best);
    const struct ax_remote_text text = {.n = N + 1,
                                        .first = 1,
                                        .ids = ids,
                                        .logprobs = logprobs,
                                        .best = best,
                                        .best_logprobs = best_logprobs};
    if (ax_prompt_logprobs_read(answer, k, VOCAB, 1, &text) == AX_OK) {
        for (int i = 0; i < N; i++)
            AX_ASSERT(isfinite(logprobs[i]) && logprobs[i] < 0.1);
        for (int i = 0; i < N * k; i++) {
            AX_ASSERT(best[i] >= 0 && best[i] < VOCAB && isfinite(best_logprobs[i]));
            for (int j = i / k * k; j < i; j++)
                AX_ASSERT(best[j] != best[i] && best_logprobs[j] >= best_logprobs[i]);
        }
    }
    ax_error_clear();
    free(best);
    free(best_logprobs);
    free(logprobs);
    json_decref(answer);
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
