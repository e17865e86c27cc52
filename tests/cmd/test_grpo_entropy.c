/* `axtrain grpo` on the tokens of the highest entropies (trl.top_entropy_quantile). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/grpo_case.h"

/* The seconds of a step's phases, sampling and rewards too, are parts of the step's. */
static void check_phases(const char *folder) {
    char *text = read_text(folder, "metrics.jsonl"), *rest = text;
    int sampled = 0;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL), *each;
        const json_t *phases = json_object_get(v, "phase_seconds");
        const char *name;
        double sum = 0;
        json_object_foreach((json_t *)(uintptr_t)phases, name, each) {
            assert_true(json_number_value(each) >= 0);
            sum += json_number_value(each);
        }
        assert_true(!phases || sum <= 1.001 * json_number_value(json_object_get(v, "seconds")));
        sampled += json_number_value(json_object_get(phases, "rollout")) > 0;
        json_decref(v);
    }
    ax_free(text);
    assert_int_equal(sampled, 1);
}

/* The fewer tokens, the smaller the gradient; all of them are the same as no such key. */
static void tokens_of_high_entropy(void **state) {
    (void)state;
    static const char *const shares[] = {"1.0", "0.5", "0.001"};
    const char *config = configure("", "micro_batch_size: 8\noptimizer: sgd\nmax_grad_norm: 0\n");
    double norm[3][4] = {{0}};
    for (int i = 0; i < 3; i++) {
        char more[60];
        snprintf(more, sizeof more, "trl.top_entropy_quantile=%s max_steps=1", shares[i]);
        train("a", config, more);
        assert_int_equal(numbers("a", "grad_norm", norm[i], 4), 1);
        check_phases("a");
        clear("a");
    }
    assert_true(norm[0][0] > 1.1 * norm[1][0] && norm[1][0] > 1.1 * norm[2][0] && norm[2][0] > 0);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The loss of the first step, on the policy that sampled, from what its checkpoint has of the answers:
 * tokens whose entropy is not below the quantile (of all tokens that are trained, between two as
 * numpy has it) have a loss; it is divided by all. */
static void the_loss_of_tokens_of_high_entropy(void **state) {
    (void)state;
    enum { MOST = 8 * 24 };
    const char *config =
        configure("  num_iterations: 2\n  loss_type: bnpo\n  top_entropy_quantile: 0.3\n"
                  "  entropy_coef: 0.1\n  mask_truncated_completions: true\n"
                  "  generation_kwargs: {stop_token_ids: [10, 50, 78, 100, 150, 200, 496, 300]}\n",
                  "micro_batch_size: 8\n");
    double sorted[MOST], entropy[MOST], advantage[MOST], loss[4], kept = 0, n_kept = 0, bonus = 0;
    size_t n = 0, k, cut = 0;
    train("a", config, "max_steps=2 trl.max_completion_length=24");
    assert_int_equal(numbers("a", "loss", loss, 4), 2);
    json_t *v = json_load_file(in_scratch("a/checkpoint-1/state/manifest.json"), 0, NULL), *c;
    json_t *rollout = json_object_get(json_object_get(v, "run"), "rollout");
    json_array_foreach(json_object_get(rollout, "completions"), k, c) {
        json_t *list = json_object_get(c, "entropies");
        if (json_is_true(json_object_get(c, "truncated"))) {
            cut++;
            continue;
        }
        for (size_t t = 0; t < json_array_size(list); t++, n++) {
            assert_true(n < MOST);
            sorted[n] = entropy[n] = json_number_value(json_array_get(list, t));
            advantage[n] = json_number_value(json_object_get(c, "advantage"));
        }
    }
    assert_true(n > 10 && cut > 0);
    qsort(sorted, n, sizeof *sorted, by_value);
    const double at = 0.7 * (double)(n - 1), low = floor(at);
    const double bound =
        sorted[(size_t)low] + (at - low) * (sorted[(size_t)ceil(at)] - sorted[(size_t)low]);
    for (size_t i = 0; i < n; i++)
        if (entropy[i] >= bound) {
            kept += advantage[i];
            bonus += entropy[i];
            n_kept++;
        }
    const double want = -kept / (double)n - 0.1 * bonus / n_kept;
    if (fabs(loss[0] - want) > 1e-5 * fabs(want))
        fail_msg("%.9g, expected %.9g", loss[0], want);
    json_decref(v);
    clear("a");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_of_high_entropy),
        cmocka_unit_test(the_loss_of_tokens_of_high_entropy),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
