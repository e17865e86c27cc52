/* Commands that print and need no model: `axtrain env`, `axtrain problems`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/hash/hash.h"
#include "base/text/json.h"
#include "cmd/commands.h"
#include "data/records/problems/problems.h"
#include "tests/cmd/command_case.h"
#include "tests/data/scratch.h"

static char output[1 << 16];

#define RUN(command, ...)                                                                          \
    run_command(command, sizeof((char *[]){"x", __VA_ARGS__}) / sizeof(char *),                    \
                (char *[]){"x", __VA_ARGS__}, NULL, in_scratch("out"), output, sizeof output)

/* What follows the first "key   : " of a /proc file; "unknown" where there is none. */
static void kernel_says(const char *path, const char *key, char *out, size_t size) {
    char line[4096];
    const size_t n = strlen(key);
    FILE *f = fopen(path, "r");
    snprintf(out, size, "unknown");
    while (f && fgets(line, sizeof line, f)) {
        char *value = line + n + strspn(line + n, " \t:");
        if (strncmp(line, key, n) != 0)
            continue;
        value[strcspn(value, "\n")] = '\0';
        snprintf(out, size, "%s", value);
        break;
    }
    if (f)
        fclose(f);
}

static void the_environment_is_the_kernels(void **state) {
    (void)state;
    char cpu[256], total[64], memory[32], line[512];
    kernel_says("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    kernel_says("/proc/meminfo", "MemTotal", total, sizeof total);
    assert_true(strtod(total, NULL) > 0);
    ax_format_bytes(memory, sizeof memory, 1024 * strtod(total, NULL));
    assert_ok(RUN(ax_cmd_env, "--json"));
    json_t *facts = json_loads(output, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(facts, "cpu")), cpu);
    assert_string_equal(json_string_value(json_object_get(facts, "memory")), memory);
    assert_string_equal(json_string_value(json_object_get(facts, "system")), "Linux");
    assert_in_range(json_integer_value(json_object_get(facts, "cpus")), 1, 1 << 16);
    json_decref(facts);
    assert_ok(run_command(ax_cmd_env, 1, (char *[]){"env"}, NULL, in_scratch("out"), output,
                          sizeof output));
    snprintf(line, sizeof line, "\n%-18s %s\n", "cpu", cpu);
    assert_non_null(strstr(output, line));
}

/* Rows that were printed; each of a problem of the split, none twice. */
static int count_problems(bool test) {
    uint64_t seen[64];
    int n = 0;
    for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n"), n++) {
        json_t *row = json_loads(line, 0, NULL);
        const json_t *user = json_array_get(json_object_get(row, "messages"), 0);
        const char *text = json_string_value(json_object_get(user, "content"));
        assert_non_null(text);
        assert_true(n < 64);
        char question[1024];
        const char *end = strstr(text, ax_problem_instruction);
        assert_non_null(end);
        snprintf(question, sizeof question, "%.*s", (int)(end - text - 1), text);
        assert_int_equal(ax_problem_is_test(question), test);
        seen[n] = ax_hash64(question, strlen(question), 0);
        for (int i = 0; i < n; i++)
            assert_true(seen[i] != seen[n]);
        json_decref(row);
    }
    return n;
}

static void problems_are_of_their_split(void **state) {
    (void)state;
    static char train[sizeof output];
    assert_ok(RUN(ax_cmd_problems, "--rows", "20"));
    memcpy(train, output, sizeof output);
    assert_int_equal(count_problems(false), 20);
    assert_ok(RUN(ax_cmd_problems, "--rows", "20", "--split", "train"));
    assert_string_equal(output, train);
    assert_ok(RUN(ax_cmd_problems, "--rows", "20", "--split", "test"));
    assert_int_equal(count_problems(true), 20);
    static char *const wrong[] = {"tests", "", "Train", "tra"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_error(RUN(ax_cmd_problems, "--rows", "20", "--split", wrong[i]), AX_ERR_CONFIG,
                     "--split: expected train or test, got \"");
        assert_string_equal(output, "");
    }
    assert_error(RUN(ax_cmd_problems, "--min-level", "3", "--max-level", "2"), AX_ERR_CONFIG,
                 "--min-level 3 is above --max-level 2");
    assert_ok(RUN(ax_cmd_problems, "--rows", "1", "--min-level", "2", "--max-level", "2"));
    assert_non_null(strstr(output, "\"level\":"));
    assert_int_equal(count_problems(false), 1);
}

/* Labeled solutions: a right one, then a wrong one of the same problem, which is the same up to its
 * first false label; of pairs, one side of each. */
static void rated_problems(void **state) {
    (void)state;
    json_t *before = NULL;
    int n = 0;
    assert_ok(RUN(ax_cmd_problems, "--rows", "61", "--steps"));
    for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n"), n++) {
        json_t *row = json_loads(line, 0, NULL);
        const json_t *labels = json_object_get(row, "labels");
        const json_t *lines = json_object_get(row, "completions");
        const json_t *of_right = json_object_get(before, "completions");
        const size_t steps = json_array_size(labels);
        assert_true(steps >= 2);
        assert_int_equal(json_array_size(lines), steps);
        assert_int_equal(json_is_true(json_array_get(labels, steps - 1)), n % 2 == 0);
        if (n % 2 == 1)
            assert_true(
                json_equal(json_object_get(row, "prompt"), json_object_get(before, "prompt")));
        for (size_t i = 0; i < steps && n % 2 == 1; i++)
            assert_int_equal(json_is_true(json_array_get(labels, i)),
                             (i == 0 || json_is_true(json_array_get(labels, i - 1))) &&
                                 json_equal(json_array_get(lines, i), json_array_get(of_right, i)));
        json_decref(before);
        before = row;
    }
    json_decref(before);
    assert_int_equal(n, 61);
    assert_ok(RUN(ax_cmd_problems, "--rows", "1", "--pairs", "--split", "test"));
    assert_memory_equal(output, "{\"prompt\":[{\"role\":\"user\"", 25);
    assert_non_null(strstr(output, "\"rejected\":[{\"role\":\"assistant\",\"content\":"));
    assert_error(RUN(ax_cmd_problems, "--pairs", "--steps"), AX_ERR_CONFIG,
                 "use one of --pairs, --steps and --tool");
}

/* Of all numbers in questions and solutions, right or wrong, also those in between. */
static long largest_number(const char *text) {
    long largest = 0;
    while ((text = strpbrk(text, "0123456789")) != NULL) {
        char *end;
        const long number = strtol(text, &end, 10);
        largest = number > largest ? number : largest;
        text = end;
    }
    return largest;
}

static void problems_of_small_numbers(void **state) {
    (void)state;
    assert_ok(RUN(ax_cmd_problems, "--rows", "200", "--max-level", "2", "--max-number", "12"));
    assert_int_equal(largest_number(output), 12);
    assert_ok(
        RUN(ax_cmd_problems, "--rows", "200", "--max-level", "2", "--max-number", "12", "--steps"));
    assert_int_equal(largest_number(output), 12);
    assert_error(RUN(ax_cmd_problems, "--rows", "1", "--max-number", "3", "--min-level", "4"),
                 AX_ERR_CONFIG, "problems at these levels with numbers this small");
}

/* Of tasks too, none twice and none of the other split. */
static void coding_tasks(void **state) {
    (void)state;
    uint64_t seen[80];
    int n = 0;
    for (int split = 0; split < 2; split++) {
        assert_ok(RUN(ax_cmd_problems, "--code", "--rows", "40", "--max-level", "1", "--split",
                      split ? "test" : "train"));
        for (char *line = strtok(output, "\n"); line; line = strtok(NULL, "\n"), n++) {
            json_t *row = json_loads(line, 0, NULL);
            const json_t *user = json_array_get(json_object_get(row, "messages"), 0);
            const char *text = json_string_value(json_object_get(user, "content"));
            assert_non_null(text);
            assert_int_equal(json_integer_value(json_object_get(row, "level")), 1);
            assert_true(json_is_string(json_object_get(row, "entry_point")));
            assert_true(json_array_size(json_object_get(row, "tests")) >= 6 && n < 80);
            seen[n] = ax_hash64(text, strlen(text), 0);
            for (int i = 0; i < n; i++)
                assert_true(seen[i] != seen[n]);
            json_decref(row);
        }
    }
    assert_int_equal(n, 80);
    assert_error(RUN(ax_cmd_problems, "--code", "--steps"), AX_ERR_CONFIG,
                 "--code: use it without --pairs, --steps, --tool, --scale "
                 "and --max-number");
    assert_error(RUN(ax_cmd_problems, "--code", "--max-level", "4"), AX_ERR_CONFIG,
                 "--code: expected levels from 1 to 3, got 4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_is_the_kernels),
        cmocka_unit_test(problems_are_of_their_split),
        cmocka_unit_test(rated_problems),
        cmocka_unit_test(problems_of_small_numbers),
        cmocka_unit_test(coding_tasks),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
