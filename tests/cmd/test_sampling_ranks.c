/* `axtrain grpo` with a rank that only samples: what one rank does, to the bit, also where it goes on from a
 * checkpoint. test_staleness, which takes longer, has meshes, adapters, tools, losses of ranks and mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>

#include "tests/cmd/grpo_case.h"

/* Trains with the launcher's words, if any; the samples that are shown on the way are in `shown`. */
static char shown[4096];

static void train_with(const char *launcher, const char *out, const char *config,
                       const char *more) {
    if (run(said, sizeof said,
            "%s grpo '%s' output_dir='%s/%s' max_steps=6 trl.log_completions=true "
            "trl.num_completions_to_print=2 %s",
            launcher, config, scratch, out, more) != 0)
        fail_msg("%s: %s", out, said);
    *shown = '\0';
    for (char *rest = said, *line; (line = strsep(&rest, "\n")) != NULL;)
        if (strncmp(line, "sample ", 7) == 0)
            snprintf(shown + strlen(shown), sizeof shown - strlen(shown), "%s\n", line);
}

static void same_weights(const char *a, const char *b) {
    if (hash_of(a, "model.safetensors") != hash_of(b, "model.safetensors"))
        fail_msg("%s and %s have different weights", a, b);
}

static double of(const json_t *record, const char *name) {
    const json_t *v = json_object_get(record, name);
    if (!json_is_number(v))
        fail_msg("no %s", name);
    return json_number_value(v);
}

/* A step spends on rollouts what it waits and what it hands over; the rest of the sampling is saved. */
static void check_times(const char *out) {
    char name[64], *text, *rest;
    size_t len;
    int steps = 0;
    double handed = 0;
    snprintf(name, sizeof name, "%s/metrics.jsonl", out);
    assert_int_equal(ax_read_file(in_scratch(name), 1 << 20, &text, &len), AX_OK);
    rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, 0, NULL);
        const json_t *phases = json_object_get(v, "phase_seconds");
        if (phases) {
            const double wait = of(v, "rollout_wait_s"), sync = of(v, "weight_sync_s"),
                         spent = wait + sync, saved = of(v, "sampling_s") - spent;
            assert_true(of(v, "sampling_s") > 0 && wait >= 0 && sync >= 0);
            assert_true(fabs(of(phases, "rollout") - spent) <= 1e-4 * spent);
            assert_true(of(phases, "reward") == 0);
            assert_true(fabs(of(v, "time_saved") - saved / (of(v, "seconds") + saved)) < 1e-3);
            handed += sync;
            steps++;
        }
        json_decref(v);
    }
    ax_free(text);
    assert_true(steps == 6 && handed > 0);
}

static void it_draws_what_one_rank_does(void **state) {
    (void)state;
    char more[200], want[sizeof shown];
    const char *beside = "launch -n 2 --";
    const char *config = configure("", "micro_batch_size: 4\ngradient_accumulation_steps: 2\n"
                                       "max_staleness: 2\nsave_total_limit: 10\n");
    train_with("", "a", config, "");
    snprintf(want, sizeof want, "%s", shown);
    assert_true(strstr(want, "sample 1 at step 6: ") && strstr(want, "sample 2 at step 6: "));
    train_with(beside, "b", config, "rollout_ranks=1");
    assert_string_equal(shown, want);
    same_completions("a", "b");
    same_weights("a", "b");
    check_times("b");
    snprintf(more, sizeof more, "rollout_ranks=1 resume_from_checkpoint='%s/b/checkpoint-2'",
             scratch);
    train_with(beside, "c", config, more);
    same_weights("a", "c");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_draws_what_one_rank_does)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
