/* Generated programming tasks: their solutions pass their tests in the sandbox, solutions of other
 * tasks nearby do not, results are Python's, and records are the same for the same seed and split for
 * good. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>

#include "base/hash/hash.h"
#include "base/text/json.h"
#include "data/records/problems/coding.h"
#include "data/reward/sandbox/reward.h"
#include "tests/data/sandbox_case.h"
#include "tests/long.h"

#define MANY 400 /* programs in the sandbox per test */

static struct ax_coding_task make(uint64_t seed, uint64_t index, int min_level, int max_level) {
    struct ax_coding_task t;
    ax_coding_make(&t, seed, index, min_level, max_level);
    return t;
}

/* ---- without the sandbox ---- */

/* As many tasks with a list as with an integer, and every step in some. Pinned: of steps and numbers
 * drawn less often than meant nobody hears otherwise. */
static void everything_appears(void **state) {
    enum { N = 12000 };
    static int seen[64];
    int lists = 0;
    uint64_t hash = 0;
    (void)state;
    assert_true(ax_coding_n_ops <= 64);
    for (uint64_t i = 0; i < N; i++) {
        const struct ax_coding_task t = make(3, i, 1, AX_CODING_LEVELS);
        json_t *row = ax_coding_row(&t);
        char *text = json_dumps(row, JSON_COMPACT);
        lists += t.takes_list;
        for (int k = 0; k < t.level; k++)
            seen[t.step[k].op]++;
        hash = ax_hash64(text, strlen(text), hash) ^ ax_coding_is_test(&t);
        ax_free_hook(text);
        json_decref(row);
    }
    print_message("hash of %d: %016llx\n", N, (unsigned long long)hash);
    assert_true(hash == 0x6db82fb753bc447aULL);
    assert_true(lists > N / 2 - N / 50 && lists < N / 2 + N / 50);
    for (int i = 0; i < ax_coding_n_ops; i++)
        if (seen[i] < N / 100)
            fail_msg("step %d came %d times", i, seen[i]);
}

static void levels(void **state) {
    (void)state;
    for (int level = 1; level <= AX_CODING_LEVELS; level++)
        for (uint64_t i = 0; i < 50; i++)
            assert_int_equal(make(9, i, level, level).level, level);
}

static char *row_of(uint64_t seed, uint64_t index) {
    const struct ax_coding_task t = make(seed, index, 1, AX_CODING_LEVELS);
    json_t *row = ax_coding_row(&t);
    char *text = json_dumps(row, JSON_COMPACT);
    json_decref(row);
    return text;
}

static void same_seed_same_bytes(void **state) {
    int same = 0;
    (void)state;
    for (uint64_t i = 0; i < 300; i++) {
        char *a = row_of(5, i), *b = row_of(5, i), *c = row_of(6, i);
        assert_string_equal(a, b);
        same += strcmp(a, c) == 0;
        ax_free_hook(a);
        ax_free_hook(b);
        ax_free_hook(c);
    }
    assert_int_equal(same, 0);
}

/* The solution with its function and argument called A and B: what the task is, whatever it says. */
static uint64_t solution_key(const struct ax_coding_task *t) {
    char key[1024];
    size_t n = 0;
    for (const char *s = t->solution.s; *s;) {
        size_t len = 0;
        while (isalnum((unsigned char)s[len]) || s[len] == '_')
            len++;
        char name = '\0';
        len += len == 0;
        if (strlen(t->argument) == len && memcmp(s, t->argument, len) == 0)
            name = 'B';
        if (strlen(t->function) == len && memcmp(s, t->function, len) == 0)
            name = 'A';
        assert_true(n + len < sizeof key);
        memcpy(key + n, name ? &name : s, name ? 1 : len);
        n += name ? 1 : len;
        s += len;
    }
    return ax_hash64(key, n, 0);
}

static int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void splits_share_no_task(void **state) {
    enum { N = 20000 };
    static uint64_t train[N], test[N];
    size_t n_train = 0, n_test = 0, i = 0;
    (void)state;
    for (uint64_t k = 0; k < N; k++) {
        const struct ax_coding_task t = make(11 + k % 3, k, 1, 2);
        if (ax_coding_is_test(&t))
            test[n_test++] = solution_key(&t);
        else
            train[n_train++] = solution_key(&t);
    }
    print_message("%zu of %d are test tasks\n", n_test, N);
    assert_true(n_test > N / 12 && n_test < N / 6);
    qsort(train, n_train, sizeof *train, by_value);
    qsort(test, n_test, sizeof *test, by_value);
    for (size_t k = 0; k < n_test; k++) {
        while (i < n_train && train[i] < test[k])
            i++;
        assert_false(i < n_train && train[i] == test[k]);
    }
}

static void check_row(const struct ax_coding_task *t) {
    json_t *row = ax_coding_row(t), *tests;
    const char *user, *question, *assistant, *answer, *name;
    char want[1024];
    int level;
    assert_int_equal(json_unpack(row, "{s[{ssss!}{ssss!}!]sisssO!}", "messages", "role", &user,
                                 "content", &question, "role", &assistant, "content", &answer,
                                 "level", &level, "entry_point", &name, "tests", &tests),
                     0);
    assert_string_equal(user, "user");
    assert_string_equal(assistant, "assistant");
    assert_string_equal(question, t->question.s);
    assert_null(strpbrk(question, "{}"));
    assert_non_null(strstr(question, "Answer with the function only, in a ```python block."));
    snprintf(want, sizeof want, "%s(%s)", name, t->argument);
    assert_non_null(strstr(question, want));
    snprintf(want, sizeof want, "```python\n%s```", t->solution.s);
    assert_string_equal(answer, want);
    snprintf(want, sizeof want, "```python\ndef %s(", name);
    assert_memory_equal(answer, want, strlen(want));
    assert_int_equal(level, t->level);
    assert_int_equal(json_array_size(tests), AX_CODING_TESTS);
    for (size_t i = 0; i < json_array_size(tests); i++) {
        json_t *args, *result;
        assert_int_equal(
            json_unpack(json_array_get(tests, i), "{soso!}", "args", &args, "result", &result), 0);
        assert_int_equal(json_array_size(args), 1);
        for (size_t k = 0; k < i; k++)
            assert_false(json_equal(args, json_object_get(json_array_get(tests, k), "args")));
    }
    json_decref(tests);
    json_decref(row);
}

/* The call of the example is in no test: the tests are hidden. */
static void check_example(const struct ax_coding_task *t, int *examples) {
    const char *example = strstr(t->question.s, " For example, ");
    const struct ax_coding_value *shown = &t->test[AX_CODING_TESTS].argument;
    *examples += example != NULL;
    for (int i = 0; i < AX_CODING_TESTS; i++) {
        const struct ax_coding_value *hidden = &t->test[i].argument;
        assert_false(hidden->n == shown->n && memcmp(hidden->v, shown->v, sizeof shown->v) == 0);
    }
}

static void rows(void **state) {
    int examples = 0;
    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        const struct ax_coding_task t = make(1, i, 1, AX_CODING_LEVELS);
        check_row(&t);
        check_example(&t, &examples);
    }
    assert_true(examples > 400 && examples < 600);
}

/* Short enough to be sampled often. */
static void answers_are_short(void **state) {
    size_t sum = 0;
    (void)state;
    for (uint64_t i = 0; i < 2000; i++) {
        const struct ax_coding_task t = make(2, i, 1, AX_CODING_LEVELS);
        int lines = 0;
        for (const char *s = t.solution.s; *s; s++)
            lines += *s == '\n';
        assert_int_equal(lines, 1 + t.level);
        assert_true(t.solution.n < 200 && t.question.n < 600);
        sum += t.solution.n;
    }
    assert_true(sum < 2000 * 80);
}

/* ---- in the sandbox ---- */

static int open_all(void **state) {
    (void)state;
    return sandbox_open(SANDBOX_PATIENCE);
}

static int close_all(void **state) {
    (void)state;
    return sandbox_close();
}

/* Programs and the tests of tasks, to run together. */
static struct batch {
    struct ax_code code[MANY];
    struct ax_code_test test[MANY][AX_CODING_TESTS];
    struct ax_code_score score[MANY];
    char source[MANY][sizeof((struct ax_problem_text *)0)->s], name[MANY][16];
    json_t *kept; /* strings that tests refer to */
    size_t n;
} batch;

static struct ax_bytes keep(const json_t *v) {
    char *text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    json_t *s = json_string(text);
    ax_free_hook(text);
    assert_int_equal(json_array_append_new(batch.kept, s), 0);
    return (struct ax_bytes){json_string_value(s), json_string_length(s)};
}

/* The solution of `other` with the tests of the task, which may be the same one. */
static void add(const struct ax_coding_task *t, const struct ax_coding_task *other) {
    const size_t n = batch.n++;
    struct ax_problem_text source = {.n = 0};
    json_t *row = ax_coding_row(t);
    assert_true(n < MANY);
    ax_coding_put_solution(&source, other);
    memcpy(batch.source[n], source.s, sizeof source.s);
    snprintf(batch.name[n], sizeof batch.name[n], "%s", t->function);
    const json_t *tests = json_object_get(row, "tests");
    for (size_t i = 0; i < json_array_size(tests); i++) {
        const json_t *test = json_array_get(tests, i);
        batch.test[n][i] = (struct ax_code_test){keep(json_object_get(test, "args")),
                                                 keep(json_object_get(test, "result"))};
    }
    batch.code[n] = (struct ax_code){.mode = AX_CODE_CALL,
                                     .source = {batch.source[n], source.n},
                                     .function = batch.name[n],
                                     .tests = batch.test[n],
                                     .n_tests = json_array_size(tests),
                                     .limits = AX_SANDBOX_LIMITS};
    json_decref(row);
}

static void begin(void) {
    batch.n = 0;
    batch.kept = json_array();
}

static void run(void) {
    if (ax_code_rewards(sandbox, batch.code, batch.n, batch.score) != AX_OK)
        fail_msg("%s", ax_error_text());
    json_decref(batch.kept);
}

static void solutions_pass(void **state) {
    (void)state;
    begin();
    for (uint64_t i = 0; i < MANY; i++) {
        const struct ax_coding_task t = make(21, i, 1, AX_CODING_LEVELS);
        add(&t, &t);
    }
    run();
    for (size_t i = 0; i < MANY; i++)
        if (batch.score[i].passed != batch.score[i].tests)
            fail_msg("passes %zu of %zu: %s", batch.score[i].passed, batch.score[i].tests,
                     batch.source[i]);
}

/* A number of the task is one more or less; false if it has none. */
static bool change_number(struct ax_coding_task *t, uint64_t index) {
    for (int i = 0; i < t->level; i++)
        if (t->step[i].k != 0) {
            t->step[i].k += index % 2 ? 1 : -1;
            return true;
        }
    return false;
}

/* One of its steps is missing; false if one makes a number of a list, as the others may not fit
 * together then. */
static bool leave_out_step(struct ax_coding_task *t, uint64_t index) {
    const int at = (int)(index % (uint64_t)t->level);
    if (t->level == 1 || t->test[0].argument.list != t->test[0].result.list)
        return false;
    t->level--;
    for (int i = at; i < t->level; i++)
        t->step[i] = t->step[i + 1];
    return true;
}

static void wrong_solutions_fail(void **state) {
    size_t numbers = 0, steps = 0;
    (void)state;
    begin();
    for (uint64_t i = 0; batch.n < MANY; i++) {
        const struct ax_coding_task t = make(22, i, 1, AX_CODING_LEVELS);
        struct ax_coding_task other = t;
        const bool without = i % 3 == 0;
        if (without ? leave_out_step(&other, i) : change_number(&other, i)) {
            add(&t, &other);
            steps += without;
            numbers += !without;
        }
    }
    assert_true(numbers > 50 && steps > 50);
    run();
    for (size_t i = 0; i < MANY; i++)
        if (batch.score[i].passed == batch.score[i].tests)
            fail_msg("passes all tests: %s", batch.source[i]);
}

/* Any chain of steps, also one that makes no sense as a task, with arguments unlike those of
 * tests. */
static void draw_any(struct ax_problem_draw *d, struct ax_coding_task *t) {
    int made = 0;
    *t = (struct ax_coding_task){.function = "f", .argument = "a"};
    t->level = 1 + (int)ax_problem_below(d, AX_CODING_LEVELS);
    t->takes_list = ax_problem_below(d, 2);
    while (made < AX_CODING_TESTS) {
        ax_coding_draw_steps(t, d);
        made = 0;
        for (int i = 0; i < 1000 && made < AX_CODING_TESTS; i++) {
            const int64_t width = ax_problem_below(d, 2) ? 4001 : 21;
            struct ax_coding_value v = {.list = t->takes_list};
            v.n = v.list ? ax_problem_below(d, AX_CODING_MAX_ITEMS + 1) : 1;
            for (int64_t k = 0; k < v.n; k++)
                v.v[k] = ax_problem_below(d, width) - width / 2;
            t->test[made].argument = v;
            made += ax_coding_compute(t, v, &t->test[made].result);
        }
    }
}

static void results_are_those_of_python(void **state) {
    static struct ax_coding_task t;
    size_t tests = 0;
    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        struct ax_problem_draw d = ax_problem_draw(31, round);
        begin();
        while (batch.n < MANY) {
            draw_any(&d, &t);
            add(&t, &t);
        }
        run();
        for (size_t i = 0; i < MANY; i++) {
            tests += batch.score[i].tests;
            if (batch.score[i].passed != batch.score[i].tests)
                fail_msg("%zu of %zu results: %s", batch.score[i].passed, batch.score[i].tests,
                         batch.source[i]);
        }
    }
    print_message("%zu results\n", tests);
    assert_int_equal(tests, (size_t)4 * MANY * AX_CODING_TESTS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_appears),
        cmocka_unit_test(levels),
        cmocka_unit_test(same_seed_same_bytes),
        cmocka_unit_test(splits_share_no_task),
        cmocka_unit_test(rows),
        cmocka_unit_test(answers_are_short),
        LONG_TEST(cmocka_unit_test(solutions_pass)),
        LONG_TEST(cmocka_unit_test(wrong_solutions_fail)),
        LONG_TEST(cmocka_unit_test(results_are_those_of_python)),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
