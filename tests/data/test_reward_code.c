/* The reward "code": which tests a record has, and what a completion's code is worth by them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/reward/sandbox/sandbox.h"
#include "tests/data/scratch.h"
#include "tests/data/reward_case.h"

/* Beside what is built: compiling the interpreter takes half a minute. */
#define CACHE "build/cache/axtrain/sandbox"

static const struct ax_reward_function both[] = {{.name = "code", .weight = 1},
                                                 {.name = "code:all", .weight = 1}};
static struct ax_rewards *rewards;

static struct ax_rewards_options options(void) {
    return (struct ax_rewards_options){.functions = both,
                                       .n = 2,
                                       .sandbox_cache = CACHE,
                                       .program = getenv("AX_TEST_BIN"),
                                       .threads = 2};
}

static int open_all(void **state) {
    const struct ax_rewards_options o = options();
    ax_log_set_level(AX_LOG_ERROR);
    if (ax_rewards_open(&rewards, &o) == AX_OK)
        return scratch_make(state);
    print_message("%s\n", ax_error_text());
    return -1;
}

static int close_all(void **state) {
    ax_rewards_close(rewards);
    return scratch_remove(state);
}

#define ADD "```python\ndef add(a, b):\n    return a + b\n```\n"

static void worth(void **state) {
    static const struct {
        const char *completion, *record;
        double share, all;
    } cases[] = {
        {ADD, "{}", NAN, NAN},
        /* stdin and stdout */
        {"print(int(input()) * 2)",
         "{\"tests\": [{\"input\": \"2\\n\", \"output\": \"4\"}, {\"input\": \"3\", \"output\": "
         "\"6\\n\"}]}",
         1, 1},
        {"So:\n```python\nprint(4)\n```\nIt prints 4.",
         "{\"tests\": [{\"input\": \"2\", \"output\": \"4\"}, {\"input\": \"3\", \"output\": "
         "\"6\"}]}",
         0.5, 0},
        /* assertions, as a list and as one text */
        {ADD,
         "{\"tests\": [\"assert add(1, 2) == 3\", \"assert add(1, 2) == 4\", \"import math\\n"
         "assert add(math.inf, 1) == math.inf\", \"assert add('a', 'b') == 'ab'\"]}",
         0.75, 0},
        {ADD, "{\"tests\": \"assert add(1, 2) == 3\\nassert add(1, 2) == 4\"}", 0, 0},
        {ADD, "{\"tests\": \"assert add(1, 2) == 3\\nassert add(0, 4) == 4\"}", 1, 1},
        {"I cannot.", "{\"tests\": \"assert add(1, 2) == 3\"}", 0, 0},
        {"while True:\n    pass", "{\"tests\": [\"assert x\"]}", 0, 0}, /* without an end */
        /* a function that is called as a builtin is */
        {"def sum(a, b): return 6", "{\"tests\": [\"assert sum(10, 15) == 6\"]}", 1, 1},
        {"x = 6", "{\"entry_point\": \"sum\", \"tests\": [\"assert sum([3, 3]) == 6\"]}", 0, 0},
        {"def sum(a): return 6",
         "{\"entry_point\": \"sum\", \"tests\": [\"assert sum([3, 3]) == 6\"]}", 1, 1},
        /* calls */
        {ADD,
         "{\"entry_point\": \"add\", \"tests\": [{\"args\": [1, 2], \"result\": 3}, {\"args\": "
         "[[1], [2]], \"result\": [1, 2]}, {\"args\": [\"a\", \"\\u00e9'\"], \"result\": "
         "\"a\\u00e9'\"}]}",
         1, 1},
        {ADD,
         "{\"entry_point\": \"add\", \"tests\": [{\"args\": [1, 2], \"result\": 3}, {\"args\": "
         "[1], \"result\": null}]}",
         0.5, 0},
        /* records with a test that passes without any code */
        {ADD, "{\"tests\": [\"assert add(1, 2) == 3\", \"assert 1 + 1 == 2\"]}", NAN, NAN},
        {ADD, "{\"tests\": \"try:\\n    assert add(1, 2)\\nexcept NameError:\\n    pass\"}", NAN,
         NAN},
        {"print()", "{\"tests\": [{\"input\": \"2\", \"output\": \"\\n\"}]}", NAN, NAN},
        /* records that have no tests */
        {ADD, "{}", NAN, NAN},
        {ADD, "{\"tests\": []}", NAN, NAN},
        {ADD, "{\"tests\": null}", NAN, NAN},
        {ADD, "{\"tests\": [1]}", NAN, NAN},
        {ADD, "{\"tests\": [\"assert 1\", {\"input\": \"\", \"output\": \"\"}]}", NAN, NAN},
        {ADD, "{\"tests\": [{\"args\": [1], \"result\": 1}]}", NAN, NAN},
        {ADD, "{\"entry_point\": \"add\", \"tests\": [{\"args\": 1, \"result\": 1}]}", NAN, NAN},
        {ADD, "{\"tests\": [{\"input\": 1, \"output\": \"\"}]}", NAN, NAN},
    };
    enum { N = sizeof cases / sizeof *cases };
    static struct reward_items items;
    double out[N][2];
    (void)state;
    for (size_t i = 0; i < N; i++)
        add_item(&items, cases[i].completion, cases[i].record);
    assert_ok(ax_rewards_score(rewards, N, items.item, out[0]));
    for (size_t i = 0; i < N; i++) {
        const double want[2] = {cases[i].share, cases[i].all};
        for (int k = 0; k < 2; k++)
            if (out[i][k] != want[k] && !(isnan(out[i][k]) && isnan(want[k])))
                fail_msg("%s with %s: %g instead of %g", cases[i].completion, cases[i].record,
                         out[i][k], want[k]);
    }
    const struct ax_reward_counters *counters = ax_rewards_counters(rewards, 0);
    assert_int_equal(counters->nones, 12);
    assert_int_equal(counters->verdicts[AX_VERDICT_FUEL], 1);
    assert_int_equal(counters->verdicts[AX_VERDICT_EXIT], N - 12 - 1);
    /* nothing to run, and nothing at all */
    assert_ok(ax_rewards_score(rewards, 1, &items.item[0], out[0]));
    assert_true(isnan(out[0][0]));
    assert_ok(ax_rewards_score(rewards, 0, items.item, NULL));
    free_items(&items);
}

static enum ax_status look(void *ctx) {
    int *looks = ctx;
    return ++*looks < 3 ? AX_OK : ax_error(AX_INTERRUPTED, "asked to stop");
}

static enum ax_status settle(void *ctx) {
    (void)ctx;
    return AX_OK;
}

/* The caller is asked while programs run, and its answer ends them; the next call is served. */
static void the_caller_is_asked(void **state) {
    static struct reward_items items;
    int looks = 0;
    double out[2];
    struct ax_reward_watch watch = {.watch = {.look = look, .ctx = &looks}, .settle = settle};
    (void)state;
    add_item(&items, "while True:\n    pass", "{\"tests\": [\"assert y\"]}");
    add_item(&items, ADD, "{\"tests\": [\"assert add(1, 2) == 3\"]}");
    const double start = ax_clock_now();
    ax_rewards_watch(rewards, &watch);
    assert_error(ax_rewards_score(rewards, 1, items.item, out), AX_INTERRUPTED, "asked to stop");
    ax_rewards_watch(rewards, NULL);
    assert_true(looks == 3 && ax_clock_now() - start < 2);
    assert_ok(ax_rewards_score(rewards, 1, &items.item[1], out));
    assert_true(out[0] == 1 && out[1] == 1);
    free_items(&items);
}

/* As many tests as a run of the sandbox takes, and one more. */
static void many_tests(void **state) {
    static struct reward_items items;
    double out[2][2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        json_t *tests = json_array(), *record = json_object();
        for (int k = 0; k < 1023 + i; k++)
            assert_int_equal(json_array_append_new(tests, json_string("assert x")), 0);
        assert_int_equal(json_object_set_new(record, "tests", tests), 0);
        add_item(&items, "x = 1", "{}");
        json_decref((json_t *)(uintptr_t)items.item[i].record);
        items.item[i].record = record;
    }
    assert_ok(ax_rewards_score(rewards, 2, items.item, out[0]));
    assert_true(out[0][0] == 1 && isnan(out[1][0]));
    free_items(&items);
}

static void missing_parts(void **state) {
    struct ax_rewards *r;
    const struct ax_rewards_options o = options();
    const char *set = getenv("AXTRAIN_WASMTIME");
    char kept[4096];
    (void)state;
    (void)snprintf(kept, sizeof kept, "%s", set ? set : "");
    setenv("AXTRAIN_WASMTIME", "/nowhere/libwasmtime.so", 1);
    assert_error(ax_rewards_open(&r, &o), AX_ERR_UNSUPPORTED,
                 "reward function \"code\": the sandbox needs wasmtime's library");
    unsetenv("AXTRAIN_WASMTIME");
    char home[4096];
    (void)snprintf(home, sizeof home, "%s", getenv("HOME") ? getenv("HOME") : "");
    setenv("HOME", scratch, 1);
    assert_error(ax_rewards_open(&r, &o), AX_ERR_UNSUPPORTED, "tools/get-sandbox");
    setenv("HOME", home, 1);
    if (kept[0])
        setenv("AXTRAIN_WASMTIME", kept, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worth),
        cmocka_unit_test(many_tests),
        cmocka_unit_test(the_caller_is_asked),
        cmocka_unit_test(missing_parts),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
