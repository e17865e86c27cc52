/* `axtrain eval` with tools, of a model that answers every turn with two calls: of a tool that adds, and of one that is
 * not there. test_asked_tools, which takes longer, teaches a model to call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text/json.h"
#include "tests/cmd/calling_model.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"

enum { RECORDS = 3, TURNS = 2 };

static char out[1 << 16];

static int make(void **state) {
    struct ax_buf rows = {0};
    if (scratch_make(state) != 0)
        return -1;
    put_calling_model(in_scratch("calling"));
    put_text("tools.py", "def add(a: int, b: str) -> str:\n"
                         "    '''\n    Adds.\n\n    Args:\n        a: One.\n        b: Two.\n"
                         "    '''\n    return str(a) + b\n");
    for (int i = 0; i < RECORDS; i++)
        assert_int_equal(
            ax_buf_printf(&rows,
                          "{\"messages\": [{\"role\": \"user\", \"content\": \"What is %d?\"}, "
                          "{\"role\": \"assistant\", \"content\": \"#### %d\"}], \"tools\": "
                          "[{\"type\": \"function\", \"function\": {\"name\": \"look\"}}]}\n",
                          i, i),
            AX_OK);
    put_bytes("asked.jsonl", rows.data, rows.len);
    ax_buf_free(&rows);
    return 0;
}

static json_t *eval(const char *more) {
    if (run(out, sizeof out,
            "eval '%s/calling' --data '%s/asked.jsonl' --task final-answer --max-new-tokens 2000 "
            "--dtype float32 --tools '%s/tools.py:add' --max-tool-calling-iterations %d --json -o "
            "'%s/out' "
            "%s",
            scratch, scratch, scratch, TURNS, scratch, more) != 0)
        fail_msg("%s", out);
    json_t *all = json_load_file(in_scratch("out"), JSON_ALLOW_NUL, NULL);
    assert_non_null(all);
    return all;
}

/* Each of the turns that may call has one call of either. */
static void counts(const json_t *all, int answers) {
    const json_t *tools = json_object_get(all, "tools");
    assert_int_equal(json_integer_value(json_object_get(tools, "calls")), 2 * TURNS * answers);
    assert_int_equal(json_integer_value(json_object_get(tools, "failed")), TURNS * answers);
}

static void calls_and_failures_are_counted(void **state) {
    (void)state;
    json_t *greedy = eval(""), *sampled = eval("--samples 2 --top-p 1e-6");
    counts(greedy, RECORDS);
    counts(sampled, 2 * RECORDS);
    json_decref(greedy);
    json_decref(sampled);
}

/* The records' tools, for which its chat template has no place. */
static void a_scorer_that_reads_no_tools_is_told_of(void **state) {
    (void)state;
    static const char told[] = "leaves out tools of prompts: the scores do not depend on them";
    char more[600];
    snprintf(more, sizeof more, "--best-of 2 --scorer '%s'",
             golden_path("runs/reward/margin_trained"));
    json_decref(eval(more));
    const char *at = strstr(out, told);
    assert_non_null(at);
    assert_null(strstr(at + 1, told)); /* once */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_and_failures_are_counted),
        cmocka_unit_test(a_scorer_that_reads_no_tools_is_told_of),
    };
    return cmocka_run_group_tests(tests, make, scratch_remove);
}
