/* What reward functions log, as a rollout keeps it: with every allocation failing once, and with names that come in rounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>

#include "base/fault.h"
#include "optim/rollout/rollout.h"
#include "tests/data/scratch.h"
#include "tests/data/reward_case.h"

static const char functions[] = "calls = 0\n"
                                "def f(completions, log_metric, log_extra, **kwargs):\n"
                                "    global calls\n"
                                "    calls += 1\n"
                                "    log_metric('calls', calls)\n"
                                "    log_metric('odd', float('inf') if calls % 2 else 4)\n"
                                "    for c in completions: log_metric('n', len(c))\n"
                                "    if len(completions) == 3: log_extra('c', completions)\n"
                                "    log_extra('call', [calls] * len(completions))\n"
                                "    return [1] * len(completions)\n";

static char start_folder[4096];
static struct reward_items items;
static struct ax_rewards *rewards;
static struct ax_rollout_options options;
static struct ax_rollout rollout;
static struct ax_runtime one = {.mesh = {.world = 1}};

static int set_up(void **state) {
    char program[PATH_MAX];
    const char *bin = getenv("AX_TEST_BIN"); /* may be relative */
    if (scratch_make(state) != 0 || !getcwd(start_folder, sizeof start_folder) || !bin ||
        !realpath(bin, program) || setenv("AX_TEST_BIN", program, 1) != 0 || chdir(scratch) != 0)
        return -1;
    (void)put_text("mine.py", functions);
    for (int i = 0; i < 6; i++)
        add_item(&items, i % 3 ? i % 3 > 1 ? "cc" : "b" : "aaa", "{}");
    return 0;
}

static int tear_down(void **state) {
    free_items(&items);
    return chdir(start_folder) == 0 ? scratch_remove(state) : -1;
}

static int begin(void **state) {
    (void)state;
    assert_ok(open_named(&rewards, "mine.f", (struct ax_rewards_options){0}));
    options = (struct ax_rollout_options){
        .group = 3, .prompts = 2, .max_prompt = 1, .max_new = 1, .rewards = rewards};
    assert_ok(ax_rollout_create(&rollout, &options));
    return 0;
}

static int end(void **state) {
    (void)state;
    ax_rollout_free(&rollout);
    ax_rewards_close(rewards);
    return 0;
}

/* Scores the groups to do, from `first` on. */
static enum ax_status share(int n_todo, int64_t first, int64_t group) {
    double out[6];
    rollout.n_todo = n_todo;
    for (int i = 0; i < n_todo; i++)
        rollout.todo[i] = first + i;
    AX_TRY(ax_rewards_score(rewards, (size_t)(n_todo * group), items.item, out));
    return ax_rollout_share_logged(&rollout, &one, 0);
}

static void assert_extra(int i, const char *want) {
    json_t *v = want ? json_of(want) : NULL;
    if (v ? !json_equal(rollout.logged.extra[i], v) : rollout.logged.extra[i] != NULL)
        fail_msg("completion %d: %s", i, json_dumps(rollout.logged.extra[i], 0));
    json_decref(v);
}

/* A mean over the calls of a generation; a group that is sampled again has the columns of its last call alone. */
static void rounds(void **state) {
    (void)state;
    ax_rollout_forget_logged(&rollout);
    assert_ok(share(2, 0, 3));
    assert_extra(0, "{\"call\": 1}");
    assert_extra(5, "{\"call\": 1}");
    assert_ok(share(1, 1, 3));
    assert_extra(2, "{\"call\": 1}");
    assert_extra(3, "{\"call\": 2, \"c\": \"aaa\"}");
    assert_extra(5, "{\"call\": 2, \"c\": \"cc\"}");
    ax_rollout_put_logged(&rollout);
    assert_true(ax_figures_get(&rollout.figures, "calls") == 1.5);
    assert_true(ax_figures_get(&rollout.figures, "n") == 2);
    assert_true(isnan(ax_figures_get(&rollout.figures, "odd")) &&
                ax_figures_has(&rollout.figures, "odd"));
    rollout.figures.n = 0;
    ax_rollout_forget_logged(&rollout);
    assert_extra(3, NULL);
    assert_ok(share(1, 0, 3));
    ax_rollout_put_logged(&rollout);
    assert_true(ax_figures_get(&rollout.figures, "calls") == 3);
}

static void out_of_memory(void **state) {
    bool fired = true;
    int failures = 0;
    (void)state;
    for (int k = 1; fired; k++) {
        char fault[64];
        double out[3];
        ax_rollout_forget_logged(&rollout);
        rollout.n_todo = 1;
        rollout.todo[0] = 0;
        assert_ok(ax_rewards_score(rewards, 3, items.item, out));
        snprintf(fault, sizeof fault, "malloc:%d:enomem", k);
        assert_ok(ax_fault_configure(fault));
        const enum ax_status st = ax_rollout_share_logged(&rollout, &one, 0);
        fired = ax_fault_fired();
        assert_ok(ax_fault_configure(NULL));
        assert_true(st == AX_OK || (fired && st == AX_ERR_NOMEM));
        failures += st != AX_OK;
        json_decref(ax_rewards_take_logged(rewards));
    }
    assert_true(failures > 10);
    assert_non_null(json_object_get(rollout.logged.extra[2], "c"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rounds, begin, end),
        cmocka_unit_test_setup_teardown(out_of_memory, begin, end),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
