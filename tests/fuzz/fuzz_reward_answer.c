/* What a reward function answers: any bytes are rewards or a failure with one printable line, and a
 * failure has no rewards, and has logged nothing. The first byte is the number of completions. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/reward/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_reward_outcome outcome;
    size_t not_finite = 0, nones = 0;
    if (size == 0 || size > 4096)
        return 0;
    const size_t n = data[0] % 8;
    double *out = malloc(n * sizeof *out); /* exactly, so that a sanitizer sees one more */
    char *line = malloc(size - 1);
    memcpy(line, data + 1, size - 1);
    AX_ASSERT(ax_reward_answer_read(line, size - 1, n, true, out, &not_finite, &outcome) == AX_OK);
    AX_ASSERT(!outcome.logged || outcome.failure == AX_REWARD_FINE);
    json_decref(outcome.logged);
    for (size_t i = 0; i < n; i++) {
        AX_ASSERT(!isinf(out[i]));
        nones += isnan(out[i]) ? 1 : 0;
    }
    if (outcome.failure == AX_REWARD_FINE) {
        AX_ASSERT(not_finite <= nones);
    } else {
        AX_ASSERT(outcome.failure < AX_REWARD_FAILURE_COUNT && nones == n);
        AX_ASSERT(memchr(outcome.text, '\0', sizeof outcome.text) != NULL);
        for (const char *s = outcome.text; *s; s++)
            AX_ASSERT((unsigned char)*s >= ' ');
    }
    free(out);
    free(line);
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
