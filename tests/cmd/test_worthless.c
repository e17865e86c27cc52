/* Runs whose rewards teach nothing: they say so, at the third step in a row, and fail if no reward was of use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/grpo_case.h"

static int try_rewards(const char *rewards, const char *more) {
    const char *config = configure("", "micro_batch_size: 4\n");
    clear("out");
    return run(said, sizeof said,
               "grpo '%s' output_dir='%s/out' max_steps=5 save_steps=4 "
               "trl.reward_funcs=\"['%s']\" %s",
               config, scratch, rewards, more);
}

/* The events of metrics.jsonl that are warnings: "STEP: TEXT" of the only one. */
static const char *warning(void) {
    static char found[400];
    char *text = read_text("out", "metrics.jsonl"), *rest = text;
    int n = 0;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        const char *event = json_string_value(json_object_get(v, "event"));
        if (event && strcmp(event, "warning") == 0 && ++n == 1)
            snprintf(found, sizeof found, "%lld: %s",
                     (long long)json_integer_value(json_object_get(v, "step")),
                     json_string_value(json_object_get(v, "text")));
        json_decref(v);
    }
    ax_free(text);
    if (n != 1)
        fail_msg("%d warnings: %s", n, said);
    return found;
}

static void starts(const char *text, const char *with) {
    if (strncmp(text, with, strlen(with)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", text, with);
}

static void equal_rewards_are_an_error(void **state) {
    (void)state;
    assert_int_equal(try_rewards("format:no such answer", ""), 3);
    assert_non_null(strstr(said, "no reward of 5 steps was of use, so nothing was learned: all "
                                 "completions of a prompt have the same reward"));
    starts(warning(), "3: 3 steps in a row teach nothing: all completions of a prompt have the "
                      "same reward");
}

/* What always succeeds has been learned. Each step takes one of 40 prompts. */
static void the_highest_rewards_are_none(void **state) {
    (void)state;
    double epoch[5];
    if (try_rewards("format:.*", "") != 0)
        fail_msg("%s", said);
    starts(warning(), "3: 3 steps in a row teach nothing: all completions have the highest reward");
    for (int i = 1; i <= 3; i++) { /* the first three answers are shown */
        char line[40];
        snprintf(line, sizeof line, "\nsample %d at step 1: ", i);
        assert_non_null(strstr(said, line));
    }
    assert_null(strstr(said, "\nsample 4 "));
    assert_int_equal(numbers("out", "epoch", epoch, 5), 5);
    for (int i = 0; i < 5; i++)
        assert_true(fabs(epoch[i] - (i + 1) / 40.0) < 1e-9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_rewards_are_an_error),
        cmocka_unit_test(the_highest_rewards_are_none),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
