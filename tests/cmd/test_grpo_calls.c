/* `axtrain grpo` with tools that answer in different orders while other answers are sampled: nothing of that is seen in
 * what is sampled, on any mesh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "tests/cmd/tools_case.h"

/* The first n completions, but for the seconds of calls. */
static void alike(const char *a, const char *b, int n) {
    for (int i = 0; i < n; i++) {
        json_t *x = line_of(a, i), *y = line_of(b, i);
        assert_true(x && y);
        for (size_t k = 0; k < json_array_size(json_object_get(x, "calls")); k++) {
            json_object_del(json_array_get(json_object_get(x, "calls"), k), "seconds");
            json_object_del(json_array_get(json_object_get(y, "calls"), k), "seconds");
        }
        if (!json_equal(x, y))
            fail_msg("completion %d of %s and %s differs", i, a, b);
        json_decref(x);
        json_decref(y);
    }
}

/* Called as the sandbox is, in a process of its own, so that either tool can be the slow one. */
static const char program[] =
    "#!/usr/bin/env python3\n"
    "import contextlib, io, json, os, sys, time\n"
    "definition = {'type': 'function', 'function': {'name': 'python', 'description': 'Runs a "
    "Python program and returns what it prints.', 'parameters': {'type': 'object', 'properties': "
    "{'code': {'type': 'string', 'description': 'The program.'}}, 'required': ['code']}, "
    "'return': {'type': 'string'}}}\n"
    "for line in sys.stdin:\n"
    "    q = json.loads(line)\n"
    "    if 'tools' in q:\n"
    "        a = {'tools': [definition]}\n"
    "    else:\n"
    "        if os.environ.get('AXTRAIN_TOOL_MOOD') == 'slow program': time.sleep(0.3)\n"
    "        out = io.StringIO()\n"
    "        try:\n"
    "            with contextlib.redirect_stdout(out): exec(q['arguments']['code'])\n"
    "            a = {'result': out.getvalue().strip()}\n"
    "        except Exception as e:\n"
    "            a = {'error': str(e)}\n"
    "    print(json.dumps(a), flush=True)\n";

static int begin(void **state) {
    if (teach_tools(state) != 0)
        return -1;
    put_text("python", program);
    return chmod(in_scratch("python"), 0700);
}

/* mood slow: the function's; slow program: the other one's. */
static void train_in(const char *mood, const char *launch, const char *out, const char *more) {
    setenv("AXTRAIN_TOOL_MOOD", mood, 1);
    const int code = run(said, sizeof said,
                         "%s grpo '%s' output_dir='%s/%s' --quiet "
                         "trl.tools='[%s/python, %s/my_tools.py:multiply]' %s",
                         launch, configure_tools(base, ""), scratch, out, scratch, scratch, more);
    unsetenv("AXTRAIN_TOOL_MOOD");
    if (code != 0)
        fail_msg("%s %s: %s", mood, more, said);
}

static void calls_more_than_once(const char *folder, const char *name) {
    int n = 0;
    json_t *v;
    for (int i = 0; (v = line_of(folder, i)) != NULL; i++) {
        const json_t *list = json_object_get(v, "calls");
        for (size_t k = 0; k < json_array_size(list); k++)
            n += strcmp(json_string_value(json_object_get(json_array_get(list, k), "name")),
                        name) == 0;
        json_decref(v);
    }
    if (n < 2)
        fail_msg("%d calls of %s", n, name);
}

/* The slow calls' seconds are not all waited for: others are sampled meanwhile. */
static void overlaps(const char *folder) {
    double seconds[2] = {0}, waited[2] = {0};
    assert_int_equal(numbers(folder, "tools/seconds", seconds, 2), 2);
    assert_int_equal(numbers(folder, "tools/wait_seconds", waited, 2), 2);
    const double all = seconds[0] + seconds[1], idle = waited[0] + waited[1];
    if (!(all > 0.6 && idle > 0 && idle < all))
        fail_msg("%g s of calls, %g s waited", all, idle);
}

static void the_order_of_results_changes_nothing(void **state) {
    static const char *const moods[] = {"slow", "slow program"}, *const runs[] = {"f", "p"};
    (void)state;
    train_in("", "", "quick", "");
    calls_more_than_once("quick", "python");
    calls_more_than_once("quick", "multiply");
    for (size_t i = 0; i < 2; i++) {
        train_in(moods[i], "", runs[i], "generation_kv_memory=0.004");
        alike("quick", runs[i], 16);
        assert_true(hash_of(runs[i], "model.safetensors") == hash_of("quick", "model.safetensors"));
        overlaps(runs[i]);
    }
}

/* Ranks of tp and stages take their results together; data ranks go on without each other. */
static void nor_does_it_on_a_mesh(void **state) {
    static const char *const meshes[] = {"tensor_parallel_size=2", "pipeline_parallel_size=2",
                                         "dp_shard_size=2 gradient_accumulation_steps=1",
                                         "context_parallel_size=2"};
    (void)state;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        train_in("slow", "launch -n 2 --", "f2", meshes[i]);
        train_in("slow program", "launch -n 2 --", "p2", meshes[i]);
        alike("f2", "p2", 16);
        alike("quick", "f2", 8); /* sums over ranks are rounded otherwise after the first step */
        assert_true(hash_of("f2", "model.safetensors") == hash_of("p2", "model.safetensors"));
        clear("f2");
        clear("p2");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_of_results_changes_nothing),
        cmocka_unit_test(nor_does_it_on_a_mesh),
    };
    return cmocka_run_group_tests(tests, begin, scratch_remove);
}
