/* SmolLM2-135M's shapes (two of its thirty layers, the whole vocabulary): 1, 2 and 4 threads give
 * the same bits in float32 and bfloat16, nothing falls back to ref, and the plan is met. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/text/json.h"
#include "tests/tiny.h"

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 576, \"intermediate_size\": 1536, "
    "\"num_attention_heads\": 9, \"num_key_value_heads\": 3, \"num_hidden_layers\": 2, "
    "\"vocab_size\": 49152, \"max_position_embeddings\": 8192, \"rope_theta\": 100000, "
    "\"rms_norm_eps\": 1e-05, \"tie_word_embeddings\": true}";

static void threads_are_bitwise(void **state) {
    (void)state;
    static const int64_t lengths[] = {300, 1, 211, 0};
    static const enum ax_dtype dtypes[] = {AX_F32, AX_BF16};
    static const int threads[] = {1, 2, 4};
    struct ax_json_doc doc;
    struct ax_arch arch;
    assert_int_equal(ax_json_parse(&doc, "smollm2", config, strlen(config)), AX_OK);
    assert_int_equal(ax_arch_parse(&arch, ax_json_root(&doc)), AX_OK);
    ax_json_free(&doc);
    for (int d = 0; d < 2; d++) {
        struct tiny_run first = {0};
        for (int k = 0; k < 3; k++) {
            struct tiny_run run = {.arch = &arch, .lengths = lengths, .steps = 1, .seed = 11};
            run.o = tiny_options(dtypes[d], AX_RECOMPUTE_SELECTIVE, 1, lengths);
            if (tiny_run(&run, "cpu", threads[k]) != AX_OK)
                fail_msg("%s", ax_error_text());
            assert_int_equal(run.fallbacks, 0);
            assert_true(isfinite(run.loss) && run.loss > 5 && run.loss < 20);
            if (k == 0)
                first = run;
            if (run.grads != first.grads || run.loss != first.loss)
                fail_msg("%s with %d threads differs from 1", ax_dtype_info(dtypes[d])->name,
                         threads[k]);
        }
    }
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_are_bitwise)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
