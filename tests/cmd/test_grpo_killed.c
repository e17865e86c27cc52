/* `axtrain grpo` with tools that is killed and goes on from its first step's checkpoint: the same answers and weights,
 * wherever it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/tools_case.h"

/* Once the first step is saved, `in` kills the run from inside a call, and `after` 2 ms after it has answered one. The
 * process between the two is the tools' keeper. */
static const char killer[] =
    "import os, threading\n"
    "def end():\n"
    "    for line in open(f'/proc/{os.getppid()}/status'):\n"
    "        if line.startswith('PPid:'):\n"
    "            os.kill(int(line.split()[1]), 9)\n"
    "def multiply(a: int, b: int) -> int:\n"
    "    '''\n    Multiplies two numbers.\n\n    Args:\n        a: One number.\n        b: The "
    "other.\n    '''\n"
    "    mood = os.environ.get('AXTRAIN_TOOL_MOOD', '')\n"
    "    when, _, saved = mood.partition(':')\n"
    "    if saved and os.path.exists(saved):\n"
    "        if when == 'in': end()\n"
    "        if when == 'after': threading.Timer(0.002, end).start()\n"
    "    return a * b\n"
    "def judge(prompts, completions, **kwargs):\n"
    "    return [len(c) + len(str(c)) / 1000 for c in completions]\n";

enum { STEPS = 3, ANSWERS = 8 };

static int begin(void **state) {
    if (teach_tools(state) != 0)
        return -1;
    put_text("my_tools.py", killer);
    return 0;
}

static int count_lines(const char *folder) {
    int n = 0;
    for (json_t *v; (v = line_of(folder, n)) != NULL; n++)
        json_decref(v);
    return n;
}

/* Trains in `folder`, which ends by a signal, and goes on from its first
 * one's checkpoint. Returns how many answers it had written. */
static int kill_and_resume(const char *folder, const char *mood, const char *fault) {
    const char *config = configure_tools(base, "");
    char words[256], path[300];
    snprintf(path, sizeof path, "%s:%s/%s/checkpoint-1", mood, scratch, folder);
    setenv("AXTRAIN_TOOL_MOOD", path, 1);
    setenv("AX_FAULT", fault, 1);
    const int code = run(said, sizeof said, "grpo '%s' output_dir='%s/%s' --quiet max_steps=%d",
                         config, scratch, folder, STEPS);
    unsetenv("AX_FAULT");
    unsetenv("AXTRAIN_TOOL_MOOD");
    if (code != -1 && code != 128 + 9)
        fail_msg("%s: it ended with %d: %s", folder, code, said);
    const int answers = count_lines(folder);
    snprintf(words, sizeof words, "max_steps=%d resume_from_checkpoint='%s/%s/checkpoint-1'", STEPS,
             scratch, folder);
    train(folder, config, words);
    alike_but_for_seconds("all", folder, STEPS * ANSWERS);
    assert_true(hash_of("all", "model.safetensors") == hash_of(folder, "model.safetensors"));
    return answers;
}

static void a_run_that_nothing_kills(void **state) {
    char words[32];
    (void)state;
    snprintf(words, sizeof words, "max_steps=%d", STEPS);
    train("all", configure_tools(base, ""), words);
    assert_int_equal(count_lines("all"), STEPS * ANSWERS);
}

/* Checkpoints are written beside the next step, which may be past its calls, and so may the one after
 * it; lines of a step may be written in part. */
static void in_a_step(int answers) {
    assert_in_range(answers, ANSWERS, STEPS * ANSWERS);
}

static void killed_in_a_tool(void **state) {
    (void)state;
    in_a_step(kill_and_resume("in", "in", ""));
}

static void killed_while_it_samples(void **state) {
    (void)state;
    in_a_step(kill_and_resume("sampling", "after", ""));
}

/* The tiny model has 24 parameters, of which a fault counts each after each step: this is the last one, when
 * the first is saved. */
static void killed_in_the_update(void **state) {
    (void)state;
    assert_int_equal(kill_and_resume("update", "", "weights:60:kill"), STEPS * ANSWERS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_nothing_kills),
        cmocka_unit_test(killed_in_a_tool),
        cmocka_unit_test(killed_while_it_samples),
        cmocka_unit_test(killed_in_the_update),
    };
    return cmocka_run_group_tests(tests, begin, scratch_remove);
}
