/* What Python functions log by TRL's log_metric and log_extra, and what they are told of the run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "data/reward/answer.h"
#include "tests/data/scratch.h"
#include "tests/data/reward_case.h"

static const char functions[] =
    "import asyncio\n"
    "class Numbers:\n"
    "    def __init__(self, x): self.x = x\n"
    "    def tolist(self): return self.x\n"
    "    def __float__(self): return float(self.x)\n"
    "    def __str__(self): return 'no numbers'\n"
    "class Words:\n"
    "    def __str__(self): return 'words \\udc80'\n"
    "def logs(completions, log_metric, log_extra, trainer_state):\n"
    "    log_metric('mean', 1)\n"
    "    log_metric('mean', 2.5)\n"
    "    log_metric('a/\"b\"', True)\n"
    "    log_metric('nothing', float('nan'))\n"
    "    log_metric('tensor', Numbers(3))\n"
    "    log_extra('n', [len(c) for c in completions])\n"
    "    for c in completions: log_extra('bit', (c,))\n"
    "    log_extra('again', ['old'] * len(completions))\n"
    "    log_extra('again', iter(['new'] * len(completions)))\n"
    "    s = trainer_state\n"
    "    log_extra('state', [[s.global_step, s.max_steps, s.epoch, getattr(s, 'x', None)]] * 3)\n"
    "    log_extra('kinds', [{'a\\0': Numbers([1, float('inf')]), 2: (None, 1 << 70)}, Words(), "
    "-(1 << 62)])\n"
    "    return [1] * len(completions)\n"
    "async def later(completions, log_metric, log_extra, **kwargs):\n"
    "    await asyncio.sleep(0.001)\n"
    "    log_metric('mean', 10)\n"
    "    log_extra('n', [0] * len(completions))\n"
    "    return [2] * len(completions)\n"
    "def silent(completions, **kwargs):\n"
    "    assert callable(kwargs['log_metric']) and callable(kwargs['log_extra'])\n"
    "    return [3] * len(completions)\n"
    "def fails(completions, log_metric, **kwargs):\n"
    "    log_metric('mean', 1)\n"
    "    raise ValueError('no')\n"
    "def name_1(completions, log_metric): log_metric(7, 1)\n"
    "def name_2(completions, log_metric): log_metric('', 1)\n"
    "def name_3(completions, log_extra): log_extra('a\\nb', completions)\n"
    "def name_4(completions, log_metric): log_metric('\\u00e9' * 48, 1)\n"
    "def value_1(completions, log_metric): log_metric('m', 'x')\n"
    "def value_2(completions, log_metric): log_metric('m', None)\n"
    "def value_3(completions, log_metric): log_metric('m', '1')\n"
    "def value_4(completions, log_metric): log_metric('m', [1, 2])\n"
    "def list_1(completions, log_extra): log_extra('c', 'abc')\n"
    "def list_2(completions, log_extra): log_extra('c', 3)\n"
    "def list_3(completions, log_extra): log_extra('c', [1] * 4)\n"
    "def list_4(completions, log_extra):\n"
    "    log_extra('c', [1] * 2)\n"
    "    return [1] * 3\n"
    "def list_5(completions, log_extra): log_extra('c', {'a': 1, 'b': 2, 'c': 3})\n"
    "def names(completions, log_metric):\n"
    "    for i in range(65): log_metric(f'm{i}', 1)\n"
    "def volume(completions, log_extra):\n"
    "    for i in range(64): log_extra(f'c{i}', ['\\u00e9' * 20000] * 3)\n"
    "    return [1] * 3\n"
    "def state(completions, trainer_state): return [trainer_state.log_history] * 3\n"
    "def much(completions, log_metric, log_extra):\n"
    "    for i in range(64): log_metric(f'm{i:093}', i)\n"
    "    for i in range(16): log_extra(f'c{i}', ['x' * 20000] * 2 + [['y' * 20000]])\n"
    "    return [1] * 3\n";

static struct reward_items items;
static struct ax_rewards *rewards;

static int set_up(void **state) {
    if (enter_scratch(state, functions) != 0)
        return -1;
    add_item(&items, "a", "{}");
    add_item(&items, "bc", "{}");
    add_item(&items, "def", "{\"log_metric\": 1, \"log_extra\": 2}");
    return 0;
}

static int tear_down(void **state) {
    free_items(&items);
    return leave_scratch(state);
}

static int end(void **state) {
    (void)state;
    ax_rewards_close(rewards);
    rewards = NULL;
    return 0;
}

static void assert_logged(const char *want) {
    json_t *v = ax_rewards_take_logged(rewards), *w = json_of(want);
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!json_equal(v, w))
        fail_msg("%s instead of %s", text, want);
    ax_free_hook(text);
    json_decref(v);
    json_decref(w);
    assert_null(ax_rewards_take_logged(rewards));
}

static void score(double *out) {
    assert_ok(ax_rewards_score(rewards, 3, items.item, out));
}

#define STATE "[7,100,0.1,null]"

static void as_in_trl(void **state) {
    double out[3];
    (void)state;
    assert_ok(open_named(&rewards, "mine.logs", (struct ax_rewards_options){0}));
    ax_rewards_set_progress(rewards, (struct ax_reward_progress){7, 100, 0.1});
    score(out);
    assert_true(out[2] == 1);
    assert_logged(
        "[{\"function\": \"mine.logs\", \"metrics\": {\"mean\": [3.5, 2], \"a/\\\"b\\\"\": [1.0, "
        "1], "
        "\"nothing\": [\"nan\", 1], \"tensor\": [3.0, 1]}, \"extra\": {\"n\": [1, 2, 3], \"bit\": "
        "[\"a\", \"bc\", \"def\"], \"again\": [\"new\", \"new\", \"new\"], \"state\": [" STATE
        "," STATE "," STATE "], \"kinds\": [{\"a\xef\xbf\xbd\": [1, \"inf\"], \"2\": [null, "
        "\"1180591620717411303424\"]}, \"words ?\", -4611686018427387904]}}]");
}

static void several_functions(void **state) {
    const struct ax_reward_function all[] = {{.name = "mine.silent", .weight = 1},
                                             {.name = "mine.later", .weight = 1},
                                             {.name = "mine.fails", .weight = 1}};
    double out[9];
    (void)state;
    assert_ok(ax_rewards_open(
        &rewards,
        &(struct ax_rewards_options){.functions = all, .n = 3, .program = getenv("AX_TEST_BIN")}));
    score(out);
    assert_true(out[0] == 3 && out[1] == 2 && isnan(out[2])); /* a failed call logs nothing */
    assert_logged("[{\"function\": \"mine.later\", \"metrics\": {\"mean\": [10.0, 1]}, \"extra\": "
                  "{\"n\": [0, 0, 0]}}]");
}

static void mistakes(void **state) {
    static const struct {
        const char *name, *why;
    } cases[] = {
        {"mine.name_1", "TypeError: log_metric: expected a name, a string, got 7 (mine.py:34)"},
        {"mine.name_2",
         "ValueError: log_metric: expected a name of 1 to 95 printable bytes, got '' (mine.py:35)"},
        {"mine.name_3", "log_extra: expected a name of 1 to 95 printable bytes, got 'a\\nb'"},
        {"mine.name_4", "log_metric: expected a name of 1 to 95 printable bytes"},
        {"mine.value_1", "TypeError: log_metric(\"m\"): expected a number, got 'x' (mine.py:38)"},
        {"mine.value_2", "log_metric(\"m\"): expected a number, got None"},
        {"mine.value_3", "log_metric(\"m\"): expected a number, got '1'"},
        {"mine.value_4", "log_metric(\"m\"): expected a number, got [1, 2]"},
        {"mine.list_1", "TypeError: log_extra(\"c\"): expected a list of values, got 'abc'"},
        {"mine.list_2", "log_extra(\"c\"): expected a list of values, got 3"},
        {"mine.list_3", "ValueError: log_extra(\"c\"): 4 values for 3 completions (mine.py:44)"},
        {"mine.list_4", "ValueError: log_extra(\"c\"): 2 values for 3 completions"},
        {"mine.list_5", "log_extra(\"c\"): expected a list of values, got {'a': 1"},
        {"mine.names", "ValueError: log_metric(\"m64\"): more than 64 names (mine.py:50)"},
        {"mine.volume", "ValueError: log_extra: more than 256 KiB of values for each completion"},
        {"mine.state", "AttributeError: trainer_state has global_step, max_steps, epoch, and no "
                       "log_history (mine.py:54)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double out[3];
        assert_ok(open_named(&rewards, cases[i].name, (struct ax_rewards_options){0}));
        score(out);
        score(out);
        assert_error(ax_rewards_score(rewards, 3, items.item, out), AX_ERR_DATA, cases[i].why);
        assert_non_null(strstr(ax_error_text(), cases[i].name));
        assert_null(ax_rewards_take_logged(rewards));
        end(NULL);
    }
}

static json_t *at(const json_t *logged, const char *of, const char *name) {
    return json_object_get(json_object_get(json_array_get(logged, 0), of), name);
}

/* As much as may be logged; long values lose their middles. */
static void a_lot(void **state) {
    char name[100];
    double out[3];
    (void)state;
    assert_ok(open_named(&rewards, "mine.much", (struct ax_rewards_options){0}));
    score(out);
    json_t *v = ax_rewards_take_logged(rewards);
    snprintf(name, sizeof name, "m%093d", 63);
    assert_true(json_number_value(json_array_get(at(v, "metrics", name), 0)) == 63);
    for (size_t i = 0; i < 3; i++) {
        const char *text = json_string_value(json_array_get(at(v, "extra", "c15"), i));
        assert_non_null(strstr(text, i < 2 ? "xx\n[... 3616 characters are left out ...]\nxx"
                                           : "yy\n[... 3620 characters are left out ...]\nyy"));
        assert_true(strlen(text) < 16500);
    }
    json_decref(v);
}

/* Of a line that is not by our script. */
static void lines(void **state) {
    static const struct {
        const char *more;
        bool right;
    } cases[] = {
        {"", true},
        {", \"metrics\": {\"m\": [1, 2]}", true},
        {", \"metrics\": {\"m\": [\"nan\", 2]}, \"extra\": {\"c\": [null, {}]}", true},
        {", \"metrics\": 1", false},
        {", \"metrics\": {\"m\": 1}", false},
        {", \"metrics\": {\"m\": [1, 0]}", false},
        {", \"metrics\": {\"m\": [null, 1]}", false},
        {", \"metrics\": {\"m\": [1, 1, 1]}", false},
        {", \"extra\": []", false},
        {", \"extra\": {\"c\": [1]}", false},
        {", \"extra\": {\"c\": 1}", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[200];
        double out[2];
        size_t not_finite;
        struct ax_reward_outcome outcome;
        snprintf(line, sizeof line, "{\"rewards\": [1, 2]%s}", cases[i].more);
        assert_ok(ax_reward_answer_read(line, strlen(line), 2, true, out, &not_finite, &outcome));
        if ((outcome.failure == AX_REWARD_FINE) != cases[i].right)
            fail_msg("%s: %s", line, outcome.text);
        assert_int_equal(outcome.logged != NULL, cases[i].right && i > 0);
        assert_int_equal(isnan(out[0]), !cases[i].right);
        json_decref(outcome.logged);
        assert_ok(ax_reward_answer_read(line, strlen(line), 2, false, out, &not_finite, &outcome));
        assert_true(outcome.failure == AX_REWARD_FINE && !outcome.logged); /* a program's */
    }
}

/* With every allocation failing once: nothing is left behind, and what came through is complete. */
static void out_of_memory(void **state) {
    double out[3];
    bool fired = true;
    int failures = 0;
    (void)state;
    assert_ok(open_named(&rewards, "mine.logs", (struct ax_rewards_options){0}));
    score(out);
    json_t *whole = ax_rewards_take_logged(rewards);
    for (int k = 1; fired; k++) {
        char fault[64];
        snprintf(fault, sizeof fault, "malloc:%d:enomem", k);
        assert_ok(ax_fault_configure(fault));
        const enum ax_status st = ax_rewards_score(rewards, 3, items.item, out);
        fired = ax_fault_fired();
        assert_ok(ax_fault_configure(NULL));
        json_t *v = ax_rewards_take_logged(rewards);
        if (st == AX_OK)
            assert_true(json_equal(v, whole));
        else
            assert_true(fired && st == AX_ERR_NOMEM);
        failures += st != AX_OK;
        json_decref(v);
    }
    assert_true(failures > 20);
    json_decref(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(as_in_trl, end),
        cmocka_unit_test_teardown(several_functions, end),
        cmocka_unit_test_teardown(mistakes, end),
        cmocka_unit_test_teardown(a_lot, end),
        cmocka_unit_test_teardown(out_of_memory, end),
        cmocka_unit_test(lines),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
