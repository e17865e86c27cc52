/* Generated programming tasks: their solutions pass their tests in the sandbox, solutions of other
 * tasks nearby do not, results are Python's, and records are the same for the same seed and split for
 * good. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>

#include "base/hash.h"
#include "base/json.h"
#include "data/coding/spec.h"
#include "data/sandbox/reward.h"
#include "tests/data/sandbox_case.h"

#define MANY 400 /* programs in the sandbox per test */

static struct ax_coding_task *make(uint64_t seed, uint64_t index, int min_level, int max_level) {
    struct ax_coding_task *t;
    if (ax_coding_make(&t, seed, index, min_level, max_level) != AX_OK)
        fail_msg("%s", ax_error_text());
    return t;
}

/* ---- without the sandbox ---- */

static const struct ax_coding_ops *const tables[] = {
    &ax_coding_ops_of_ints, &ax_coding_ops_of_lists, &ax_coding_ops_of_texts,
    &ax_coding_ops_of_words};
enum { TABLES = sizeof tables / sizeof *tables };

struct seen {
    int op[TABLES][64], number[32], letter[32], map[32], type[AX_CODING_TYPE_COUNT], tests;
};

static void see_predicate(struct seen *seen, const struct ax_coding_predicate *is) {
    const struct ax_coding_predicates *n = &ax_coding_of_numbers, *l = &ax_coding_of_letters;
    for (size_t i = 0; i < n->n; i++)
        seen->number[i] += is == &n->all[i];
    for (size_t i = 0; i < l->n; i++)
        seen->letter[i] += is == &l->all[i];
}

static void see(struct seen *seen, const struct ax_coding_task *t) {
    seen->type[t->spec.type]++;
    seen->tests += t->n_tests;
    for (int i = 0; i < t->spec.level; i++) {
        const struct ax_coding_step *s = &t->spec.step[i];
        for (size_t k = 0; k < TABLES; k++)
            for (size_t o = 0; o < tables[k]->n; o++)
                seen->op[k][o] += s->op == &tables[k]->all[o];
        see_predicate(seen, s->is);
        for (size_t m = 0; m < ax_coding_n_maps; m++)
            seen->map[m] += s->to == &ax_coding_maps[m];
    }
}

static void check_seen(int times, const char *what) {
    if (times < 20)
        fail_msg("%d times: %s", times, what);
}

/* Everything that a task says, and on which side of the split it is. */
static uint64_t hash_task(const struct ax_coding_task *t, uint64_t hash) {
    struct ax_coding_text values = {.n = 0};
    hash = ax_hash64(t->question.s, t->question.n, hash);
    hash = ax_hash64(t->solution.s, t->solution.n, hash);
    for (int i = 0; i < t->n_tests; i++) {
        values.n = 0;
        for (int a = 0; a < t->spec.n_args; a++)
            ax_coding_put_value(&values, &t->test[i].args[a]);
        ax_coding_put_value(&values, &t->test[i].result);
        hash = ax_hash64(values.s, values.n, hash);
    }
    return hash ^ ax_coding_is_test(t);
}

/* The same number of tasks of each type, and every word of every table in some. Pinned: of words and
 * numbers drawn less often than meant nobody hears otherwise. */
static void everything_appears(void **state) {
    enum { N = 12000 };
    static struct seen seen;
    uint64_t hash = 0;
    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        struct ax_coding_task *t = make(3, i, 1, AX_CODING_LEVELS);
        see(&seen, t);
        hash = hash_task(t, hash);
        ax_coding_free(t);
    }
    print_message("hash of %d: %016llx\n", N, (unsigned long long)hash);
    assert_true(hash == 0xf927b7ccd207d659ULL);
    for (int type = AX_CODING_INT; type <= AX_CODING_TEXT; type++)
        assert_true(seen.type[type] > N / 3 - N / 50 && seen.type[type] < N / 3 + N / 50);
    for (size_t k = 0; k < TABLES; k++)
        for (size_t o = 0; o < tables[k]->n; o++)
            check_seen(seen.op[k][o], tables[k]->all[o].python);
    for (size_t i = 0; i < ax_coding_of_numbers.n; i++)
        check_seen(seen.number[i], ax_coding_of_numbers.all[i].is);
    for (size_t i = 0; i < ax_coding_of_letters.n; i++)
        check_seen(seen.letter[i], ax_coding_of_letters.all[i].is);
    for (size_t i = 0; i < ax_coding_n_maps; i++)
        check_seen(seen.map[i], ax_coding_maps[i].noun);
    assert_true(seen.tests > 7 * N && seen.tests < 9 * N);
}

static void levels(void **state) {
    (void)state;
    for (int level = 1; level <= AX_CODING_LEVELS; level++)
        for (uint64_t i = 0; i < 50; i++) {
            struct ax_coding_task *t = make(9, i, level, level);
            assert_int_equal(t->spec.level, level);
            ax_coding_free(t);
        }
}

static char *row_of(uint64_t seed, uint64_t index) {
    struct ax_coding_task *t = make(seed, index, 1, AX_CODING_LEVELS);
    json_t *row;
    assert_int_equal(ax_coding_row(t, &row), AX_OK);
    char *text = json_dumps(row, JSON_COMPACT);
    json_decref(row);
    ax_coding_free(t);
    return text;
}

/* Pinned, so that a run on data of last year's seed can be repeated. */
static void same_seed_same_bytes(void **state) {
    uint64_t hash = 0;
    int same = 0;
    (void)state;
    for (uint64_t i = 0; i < 300; i++) {
        char *a = row_of(5, i), *b = row_of(5, i), *c = row_of(6, i);
        assert_string_equal(a, b);
        same += strcmp(a, c) == 0;
        hash = ax_hash64(a, strlen(a), hash);
        ax_free_hook(a);
        ax_free_hook(b);
        ax_free_hook(c);
    }
    print_message("hash of the first 300: %016llx\n", (unsigned long long)hash);
    assert_int_equal(same, 0);
    assert_true(hash == 0x8fbaa73ddf5711f7ULL);
}

/* The solution with its function and arguments called A, B, …: what the task is, whatever it says. */
static uint64_t solution_key(const struct ax_coding_task *t) {
    char key[1024];
    size_t n = 0;
    for (const char *s = t->solution.s; *s;) {
        size_t len = 0;
        while (isalnum((unsigned char)s[len]) || s[len] == '_')
            len++;
        const bool word = len > 0;
        char name = '\0';
        len += !word;
        for (int i = 0; i < t->spec.n_args && word; i++)
            if (strlen(t->names.args[i]) == len && memcmp(s, t->names.args[i], len) == 0)
                name = (char)('B' + i);
        if (strlen(t->names.function) == len && memcmp(s, t->names.function, len) == 0)
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
        struct ax_coding_task *t = make(11 + k % 3, k, 1, 2);
        if (ax_coding_is_test(t))
            test[n_test++] = solution_key(t);
        else
            train[n_train++] = solution_key(t);
        ax_coding_free(t);
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
    json_t *row, *tests;
    const char *user, *question, *assistant, *answer, *name;
    char want[1024];
    int level;
    assert_int_equal(ax_coding_row(t, &row), AX_OK);
    assert_int_equal(json_unpack(row, "{s[{ssss!}{ssss!}!]sisssO!}", "messages", "role", &user,
                                 "content", &question, "role", &assistant, "content", &answer,
                                 "level", &level, "entry_point", &name, "tests", &tests),
                     0);
    assert_string_equal(user, "user");
    assert_string_equal(assistant, "assistant");
    assert_string_equal(question, ax_coding_question(t));
    assert_null(strpbrk(question, "{}"));
    assert_non_null(strstr(question, "Answer with the function only, in a ```python block."));
    snprintf(want, sizeof want, "%s(%s", name, t->names.args[0]);
    assert_non_null(strstr(question, want));
    snprintf(want, sizeof want, "```python\n%s```", t->solution.s);
    assert_string_equal(answer, want);
    snprintf(want, sizeof want, "```python\ndef %s(", name);
    assert_memory_equal(answer, want, strlen(want));
    assert_int_equal(level, t->spec.level);
    assert_true(json_array_size(tests) >= AX_CODING_MIN_TESTS &&
                json_array_size(tests) <= AX_CODING_MAX_TESTS);
    for (size_t i = 0; i < json_array_size(tests); i++) {
        json_t *args, *result;
        assert_int_equal(
            json_unpack(json_array_get(tests, i), "{soso!}", "args", &args, "result", &result), 0);
        assert_int_equal(json_array_size(args), t->spec.n_args);
        for (size_t k = 0; k < i; k++)
            assert_false(json_equal(args, json_object_get(json_array_get(tests, k), "args")));
    }
    json_decref(tests);
    json_decref(row);
}

/* The call of the example is in no test: the tests are hidden. */
static void check_example(const struct ax_coding_task *t, int *examples) {
    const char *example = strstr(t->question.s, " For example, ");
    *examples += example != NULL;
    for (int i = 0; i < t->n_tests && example; i++) {
        struct ax_coding_text call = {.n = 0};
        for (int a = 0; a < t->spec.n_args; a++) {
            ax_coding_put(&call, a > 0 ? ", " : "(");
            ax_coding_put_value(&call, &t->test[i].args[a]);
        }
        ax_coding_put(&call, ") is");
        assert_null(strstr(example, call.s));
    }
}

static void rows(void **state) {
    int examples = 0;
    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        struct ax_coding_task *t = make(1, i, 1, AX_CODING_LEVELS);
        check_row(t);
        check_example(t, &examples);
        ax_coding_free(t);
    }
    assert_true(examples > 400 && examples < 600);
}

/* Short enough to be sampled often. */
static void answers_are_short(void **state) {
    size_t sum = 0;
    (void)state;
    for (uint64_t i = 0; i < 2000; i++) {
        struct ax_coding_task *t = make(2, i, 1, AX_CODING_LEVELS);
        int lines = 0;
        for (const char *s = t->solution.s; *s; s++)
            lines += *s == '\n';
        assert_in_range(lines, 2, 4);
        assert_true(t->solution.n < 200 && t->question.n < 600);
        sum += t->solution.n;
        ax_coding_free(t);
    }
    assert_true(sum < 2000 * 80);
}

/* As Python has them; of both signs. */
static void floors(void **state) {
    (void)state;
    for (int64_t a = -30; a <= 30; a++)
        for (int64_t b = -7; b <= 7; b++) {
            if (b == 0)
                continue;
            const int64_t q = ax_coding_floor_div(a, b), r = ax_coding_floor_mod(a, b);
            assert_int_equal(q * b + r, a);
            assert_true(b > 0 ? r >= 0 && r < b : r <= 0 && r > b);
        }
}

/* ---- in the sandbox ---- */

static int open_all(void **state) {
    (void)state;
    return sandbox_open(AX_SANDBOX_SECONDS);
}

static int close_all(void **state) {
    (void)state;
    return sandbox_close();
}

/* Programs and the tests of tasks, to run together. */
static struct batch {
    struct ax_code code[MANY];
    struct ax_code_test test[MANY][AX_CODING_MAX_TESTS];
    struct ax_code_score score[MANY];
    char source[MANY][sizeof((struct ax_coding_text *)0)->s], name[MANY][16];
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

/* The solution of `spec` with the tests of the task, which may be another one. */
static void add(const struct ax_coding_task *t, const struct ax_coding_spec *spec) {
    const size_t n = batch.n++;
    struct ax_coding_text source = {.n = 0};
    json_t *row;
    assert_true(n < MANY);
    ax_coding_put_solution(&source, spec, &t->names);
    memcpy(batch.source[n], source.s, sizeof source.s);
    snprintf(batch.name[n], sizeof batch.name[n], "%s", t->names.function);
    assert_int_equal(ax_coding_row(t, &row), AX_OK);
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
    if (!sandbox)
        skip();
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
        struct ax_coding_task *t = make(21, i, 1, AX_CODING_LEVELS);
        add(t, &t->spec);
        ax_coding_free(t);
    }
    run();
    for (size_t i = 0; i < MANY; i++)
        if (batch.score[i].passed != batch.score[i].tests)
            fail_msg("passes %zu of %zu: %s", batch.score[i].passed, batch.score[i].tests,
                     batch.source[i]);
}

/* One of the specification's constants is one more or less; false if there is none. */
static bool change_number(struct ax_coding_spec *s, uint64_t index) {
    for (int i = 0; i < s->level; i++)
        for (int k = 0; k < AX_CODING_KS; k++) {
            struct ax_coding_number *n = &s->step[i].k[k];
            if (n->kind == AX_CODING_NONE || n->arg > 0)
                continue;
            n->value += index % 2 ? 1 : -1;
            return true;
        }
    return false;
}

/* One of its steps is missing; false if the others do not fit together. */
static bool leave_out_step(struct ax_coding_spec *s, uint64_t index) {
    const int at = (int)(index % (uint64_t)s->level);
    if (s->level == 1 || s->step[at].op->in != s->step[at].op->out)
        return false;
    s->level--;
    for (int i = at; i < s->level; i++)
        s->step[i] = s->step[i + 1];
    return true;
}

static void wrong_solutions_fail(void **state) {
    size_t numbers = 0, steps = 0;
    (void)state;
    begin();
    for (uint64_t i = 0; batch.n < MANY; i++) {
        struct ax_coding_task *t = make(22, i, 1, AX_CODING_LEVELS);
        struct ax_coding_spec other = t->spec;
        const bool without = i % 3 == 0;
        if (without ? leave_out_step(&other, i) : change_number(&other, i)) {
            add(t, &other);
            steps += without;
            numbers += !without;
        }
        ax_coding_free(t);
    }
    assert_true(numbers > 50 && steps > 50);
    run();
    for (size_t i = 0; i < MANY; i++)
        if (batch.score[i].passed == batch.score[i].tests)
            fail_msg("passes all tests: %s", batch.source[i]);
}

/* Any value of the type, unlike those of tests. */
static struct ax_coding_value any_value(struct ax_coding_draw *d, enum ax_coding_type type) {
    static const char characters[] = " aeioubcdlrstnmAEZ059-.,(  aa";
    struct ax_coding_value v = {.type = type};
    const int64_t n = ax_coding_below(d, 12);
    const int64_t width = ax_coding_below(d, 2) ? 4001 : 21;
    if (type == AX_CODING_INT)
        v.i = ax_coding_below(d, width) - width / 2;
    for (; type != AX_CODING_INT && (int64_t)v.n < n; v.n++) {
        v.items[v.n] = ax_coding_below(d, width) - width / 2;
        v.text[v.n] = characters[ax_coding_below(d, sizeof characters - 1)];
    }
    if (type == AX_CODING_LIST)
        v.text[0] = '\0';
    return v;
}

/* A specification that may make no sense as a task, with arguments at random. */
static void draw_any(struct ax_coding_draw *d, struct ax_coding_task *t) {
    const enum ax_coding_type type = (enum ax_coding_type)ax_coding_below(d, 3);
    ax_coding_draw_spec(d, type, 1 + (int)ax_coding_below(d, AX_CODING_LEVELS), &t->spec);
    ax_coding_draw_names(d, &t->spec, &t->names);
    t->n_tests = 0;
    for (int i = 0; i < 4 * AX_CODING_MAX_TESTS && t->n_tests < AX_CODING_MAX_TESTS; i++) {
        struct ax_coding_test *test = &t->test[t->n_tests];
        for (int a = 0; a < t->spec.n_args; a++)
            test->args[a] = any_value(d, a == 0 ? type : AX_CODING_INT);
        t->n_tests += ax_coding_compute(&t->spec, test->args, &test->result);
    }
}

static void results_are_those_of_python(void **state) {
    static struct ax_coding_task t;
    size_t tests = 0;
    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        struct ax_coding_draw d = {.key = {31, 0, round}};
        begin();
        while (batch.n < MANY) {
            draw_any(&d, &t);
            add(&t, &t.spec);
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
    assert_true(tests > (size_t)4 * MANY * 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_appears),
        cmocka_unit_test(levels),
        cmocka_unit_test(same_seed_same_bytes),
        cmocka_unit_test(splits_share_no_task),
        cmocka_unit_test(rows),
        cmocka_unit_test(answers_are_short),
        cmocka_unit_test(floors),
        cmocka_unit_test(solutions_pass),
        cmocka_unit_test(wrong_solutions_fail),
        cmocka_unit_test(results_are_those_of_python),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
