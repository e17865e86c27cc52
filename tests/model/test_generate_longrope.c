/* Generation past the length from which longrope has other frequencies: every token is what the tokens before it give as
 * a prompt, whatever the pass before was for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/model/generate_case.h"

enum { ORIGINAL = 14, PROMPT = ORIGINAL - 4 };

static void open_test(struct test *t, int lanes) {
    setup_with(t, "phi3",
               ", \"original_max_position_embeddings\": 14, \"rope_scaling\": {\"type\": "
               "\"longrope\", \"short_factor\": [1, 1, 1, 1.1, 1.2, 1.3, 1.4, 1.5], "
               "\"long_factor\": [1, 1.1, 1.5, 2, 3, 4, 6, 9]}",
               AX_F32, lanes);
    t->o.max_prompt = ROOM;
    t->o.sampling = (struct ax_sampling){.seed = 4};
}

static void tokens_are_those_of_prompts(void **state) {
    (void)state;
    static struct test whole, each;
    open_test(&whole, 1);
    whole.n = 1;
    for (int k = 0; k < PROMPT; k++)
        whole.prompts[0][k] = (k * 37 + 5) % 97;
    whole.result[0].n_prompt = PROMPT;
    whole.result[0].max_new = N;
    must(try(&whole, "cpu", 1));
    assert_int_equal(whole.result[0].n_new, N);
    for (int lanes = 1; lanes <= 2; lanes++) {
        open_test(&each, lanes);
        for (int i = 0; i < N; i++) {
            memcpy(each.prompts[i], whole.prompts[0], PROMPT * sizeof(int32_t));
            memcpy(each.prompts[i] + PROMPT, whole.tokens[0], (size_t)i * sizeof(int32_t));
            each.result[i].n_prompt = PROMPT + i;
            each.result[i].max_new = 1;
            each.order[i] = N - 1 - i; /* the long ones first */
        }
        must(try(&each, "cpu", 1));
        for (int i = 0; i < N; i++)
            if (each.tokens[i][0] != whole.tokens[0][i] ||
                fabs(each.logprobs[i][0] - whole.logprobs[0][i]) > 1e-5)
                fail_msg("token %d: %d, %.7f; as a prompt: %d, %.7f", i, whole.tokens[0][i],
                         whole.logprobs[0][i], each.tokens[i][0], each.logprobs[i][0]);
        ax_arch_free(&each.arch);
    }
    ax_arch_free(&whole.arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_are_those_of_prompts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
