/* Generated problems: right, different, the same for the same seed, and split for good. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/hash/hash.h"
#include "base/mem.h"
#include "data/records/problems/problems.h"
#include "data/reward/final_answer.h"

#define MANY 20000

static struct ax_problem make(uint64_t seed, uint64_t index) {
    struct ax_problem p;
    ax_problem_make(&p, seed, index, (struct ax_problem_kind){1, AX_PROBLEM_LEVELS, 1}, NULL);
    return p;
}

/* The numbers of a text, in order. */
static int numbers_of(const char *s, long long *out, int cap) {
    int n = 0;
    while (*s) {
        if (!isdigit((unsigned char)*s)) {
            s++;
            continue;
        }
        char *end;
        assert_true(n < cap);
        out[n++] = strtoll(s, &end, 10);
        s = end;
    }
    return n;
}

/* "x op y = z" of a step; false where there is not exactly one. */
static bool right(const char *step, long long *z) {
    const char *equals = strchr(step, '=');
    if (!equals || strchr(equals + 1, '='))
        return false;
    const char *from = equals;
    while (from > step && strchr("0123456789+-*/ ", from[-1]))
        from--;
    long long x, y;
    char op;
    if (sscanf(from, " %lld %c %lld = %lld", &x, &op, &y, z) != 4)
        return false;
    switch (op) {
    case '+':
        return x + y == *z;
    case '-':
        return x - y == *z;
    case '*':
        return x * y == *z;
    case '/':
        return y != 0 && x % y == 0 && x / y == *z;
    default:
        return false;
    }
}

/* Every number that a step uses appears in the question, is a result of an earlier step, or is
 * the 2 of "half". */
static void check_sources(const struct ax_problem *p) {
    long long known[64];
    int n = numbers_of(p->question.s, known, 32);
    if (strstr(p->question.s, "half"))
        known[n++] = 2;
    for (int i = 0; i < p->level; i++) {
        long long used[8];
        const int m = numbers_of(p->steps[i].s, used, 8);
        for (int k = 0; k + 1 < m; k++) {
            bool found = false;
            for (int j = 0; j < n; j++)
                found = found || known[j] == used[k];
            if (!found && used[k] != used[m - 1])
                fail_msg("%lld of \"%s\" comes from nowhere: %s", used[k], p->steps[i].s,
                         p->question.s);
        }
        long long z;
        assert_true(right(p->steps[i].s, &z));
        known[n++] = z;
    }
}

static int lines_of(const char *text) {
    int n = 1;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Everything that a problem says, and on which side of the split it is. */
static uint64_t hash_problem(const struct ax_problem *p, uint64_t hash) {
    char end[64];
    hash = ax_hash64(p->question.s, strlen(p->question.s), hash);
    for (int s = 0; s < p->level; s++)
        hash = ax_hash64(p->steps[s].s, strlen(p->steps[s].s), hash);
    const int n = snprintf(end, sizeof end, "%lld %d %d %d", (long long)p->answer, p->level,
                           (int)p->story, (int)ax_problem_is_test(p->question.s));
    return ax_hash64(end, (size_t)n, hash);
}

/* Pinned, too: a number that a story draws too small is as right as another. */
static void steps_are_right(void **state) {
    (void)state;
    unsigned seen[64] = {0};
    uint64_t hash = 0;
    assert_true((size_t)ax_problem_n_stories <= 64);
    for (uint64_t i = 0; i < MANY; i++) {
        struct ax_problem p = make(3, i);
        long long z = 0;
        assert_int_equal(p.level, lines_of(ax_problem_stories[p.story].steps));
        for (int s = 0; s < p.level; s++)
            if (!right(p.steps[s].s, &z))
                fail_msg("wrong: %s", p.steps[s].s);
        assert_true(z == p.answer && z > 0);
        check_sources(&p);
        if (strpbrk(p.question.s, "{}") || !strchr(p.question.s, '?'))
            fail_msg("badly filled: %s", p.question.s);
        seen[p.story]++;
        hash = hash_problem(&p, hash);
    }
    print_message("hash of %d: %016llx\n", MANY, (unsigned long long)hash);
    assert_true(hash == 0x7447dce1aae2637eULL);
    for (size_t t = 0; t < (size_t)ax_problem_n_stories; t++)
        if (seen[t] < MANY / 64 / 4)
            fail_msg("story %zu came %u times", t, seen[t]);
}

/* Wrong solutions: right up to a line, which is different and has another result; the lines after it
 * calculate right, with that result, up to an answer that is wrong. */
static void check_wrong(const struct ax_problem *p, const struct ax_problem *w, int first) {
    long long z = 0, right_z = 0;
    assert_string_equal(p->question.s, w->question.s);
    assert_int_equal(p->level, w->level);
    assert_true(first >= 0 && first <= p->level && w->answer != p->answer && w->answer > 0);
    for (int i = 0; i < p->level; i++) {
        const bool calculated = right(w->steps[i].s, &z);
        assert_true(right(p->steps[i].s, &right_z));
        if (i < first)
            assert_string_equal(w->steps[i].s, p->steps[i].s);
        else if (i > first)
            assert_true(calculated);
        const char *equals = strchr(w->steps[i].s, '=');
        if (!equals || sscanf(equals, "= %lld", &z) != 1 || z <= 0)
            fail_msg("no result: %s", w->steps[i].s);
        if (i == first)
            assert_true(z != right_z);
    }
    assert_int_equal(z == w->answer, first < p->level);
}

static void mistakes(void **state) {
    (void)state;
    int at[AX_PROBLEM_LEVELS + 1] = {0}, slips = 0, n = 0;
    uint64_t hash = 0;
    for (uint64_t i = 0; i < MANY / 4; i++) {
        struct ax_problem p = make(3, i), w, again;
        int first, first_again;
        long long z;
        ax_problem_make(&w, 3, i, (struct ax_problem_kind){1, AX_PROBLEM_LEVELS, 1}, &first);
        ax_problem_make(&again, 3, i, (struct ax_problem_kind){1, AX_PROBLEM_LEVELS, 1},
                        &first_again);
        check_wrong(&p, &w, first);
        assert_int_equal(first, first_again);
        for (int s = 0; s < w.level; s++)
            assert_string_equal(w.steps[s].s, again.steps[s].s);
        at[first] += p.level == AX_PROBLEM_LEVELS;
        n += first < p.level;
        slips += first < p.level && !right(w.steps[first].s, &z);
        hash = hash_problem(&w, hash);
    }
    /* all kinds in all lines; a line with another calculation is as wrong as a miscalculated one */
    for (int k = 0; k <= AX_PROBLEM_LEVELS; k++)
        if (at[k] < 50)
            fail_msg("line %d was the first wrong one %d times", k, at[k]);
    print_message("%d of %d mistakes are miscalculations; hash: %016llx\n", slips, n,
                  (unsigned long long)hash);
    assert_true(slips > n / 4 && slips < 3 * n / 4);
    assert_true(hash == 0x00c1dea0df48bb08ULL);
}

static void same_seed_same_problem(void **state) {
    (void)state;
    int same = 0;
    for (uint64_t i = 0; i < 500; i++) {
        struct ax_problem a = make(5, i), b = make(5, i), c = make(6, i);
        assert_string_equal(a.question.s, b.question.s);
        assert_string_equal(a.steps[0].s, b.steps[0].s);
        same += strcmp(a.question.s, c.question.s) == 0;
    }
    assert_int_equal(same, 0);
}

/* Pinned, so that a run on data of last year's seed can be repeated. */
static void the_first_of_seed_1(void **state) {
    (void)state;
    uint64_t hash = 0;
    for (uint64_t i = 0; i < 100; i++) {
        struct ax_problem p = make(1, i);
        hash = ax_hash64(p.question.s, strlen(p.question.s), hash);
        hash = ax_hash64(p.steps[p.level - 1].s, strlen(p.steps[p.level - 1].s), hash);
    }
    print_message("hash of the first 100: %016llx\n", (unsigned long long)hash);
    assert_true(hash == 0xca090e9597572783ULL);
}

static void levels(void **state) {
    (void)state;
    for (int level = 1; level <= AX_PROBLEM_LEVELS; level++) {
        for (uint64_t i = 0; i < 50; i++) {
            struct ax_problem p;
            ax_problem_make(&p, 9, i, (struct ax_problem_kind){level, level, 1}, NULL);
            assert_int_equal(p.level, level);
        }
    }
}

static void splits(void **state) {
    (void)state;
    int test = 0;
    for (uint64_t i = 0; i < 4000; i++) {
        struct ax_problem a = make(11, i), b = make(11, i);
        assert_int_equal(ax_problem_is_test(a.question.s), ax_problem_is_test(b.question.s));
        test += ax_problem_is_test(a.question.s);
    }
    print_message("%d of 4000 are test problems\n", test);
    assert_true(test > 400 && test < 600);
}

static void check_row(const struct ax_problem *p) {
    json_t *row, *level, *final;
    const char *user, *assistant, *question, *text;
    char answer[AX_FINAL_ANSWER_MAX], want[4096];
    row = ax_problem_row(p);
    assert_int_equal(json_unpack(row, "{s[{ssss!}{ssss!}!]soso!}", "messages", "role", &user,
                                 "content", &question, "role", &assistant, "content", &text,
                                 "level", &level, "final_answer", &final),
                     0);
    assert_string_equal(user, "user");
    assert_string_equal(assistant, "assistant");
    snprintf(want, sizeof want, "%s %s", p->question.s, ax_problem_instruction);
    assert_string_equal(question, want);
    int n = 0;
    for (int i = 0; i < p->level; i++)
        n += snprintf(want + n, sizeof want - (size_t)n, "%s\n", p->steps[i].s);
    snprintf(want + n, sizeof want - (size_t)n, "#### %lld", (long long)p->answer);
    assert_string_equal(text, want);
    assert_true(ax_final_answer(text, strlen(text), answer));
    snprintf(want, sizeof want, "%lld", (long long)p->answer);
    assert_string_equal(answer, want);
    assert_int_equal(json_integer_value(final), p->answer);
    assert_int_equal(json_integer_value(level), p->level);
    json_decref(row);
}

/* The question and what is asked for; a line for each step; the answer. */
static void rows(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 200; i++) {
        struct ax_problem p = make(1, i);
        check_row(&p);
    }
}

/* The value of a program's operand at *s: a number, or "(a op b)". */
static long long value_of(const char **s) {
    if (**s != '(') {
        char *end;
        const long long v = strtoll(*s, &end, 10);
        assert_true(end > *s);
        *s = end;
        return v;
    }
    ++*s;
    const long long a = value_of(s);
    const char op = (*s)[1];
    *s += op == '/' ? 4 : 3;
    const long long b = value_of(s);
    assert_true(**s == ')' && strchr("+-*/", op) && b > 0);
    ++*s;
    return op == '+' ? a + b : op == '-' ? a - b : op == '*' ? a * b : a / b;
}

/* Larger problems are as right as others: their steps, and their programs, which print the answer. */
static void programs(void **state) {
    (void)state;
    int large = 0;
    for (uint64_t i = 0; i < MANY; i++) {
        struct ax_problem p;
        long long z = 0;
        ax_problem_make(&p, 4, i, (struct ax_problem_kind){1, AX_PROBLEM_LEVELS, 97}, NULL);
        for (int s = 0; s < p.level; s++)
            assert_true(right(p.steps[s].s, &z));
        check_sources(&p);
        const char *program = p.program.s + strlen("print");
        if (strncmp(p.program.s, "print(", 6) != 0 || value_of(&program) != p.answer || *program)
            fail_msg("%s does not print %lld", p.program.s, (long long)p.answer);
        large += ax_problem_largest_number(&p) > 1000;
    }
    assert_true(large > MANY * 9 / 10);
}

static const char *message_of(const json_t *row, const char *key, const char *role) {
    const json_t *list = json_object_get(row, key), *message = json_array_get(list, 0);
    assert_int_equal(json_array_size(list), 1);
    assert_string_equal(json_string_value(json_object_get(message, "role")), role);
    return json_string_value(json_object_get(message, "content"));
}

/* The lines of a record of steps, as one text; how many labels are true, all before the others. */
static size_t join_lines(const json_t *row, char *text, size_t size) {
    const json_t *lines = json_object_get(row, "completions"),
                 *labels = json_object_get(row, "labels");
    size_t n = 0, good = 0;
    assert_int_equal(json_array_size(lines), json_array_size(labels));
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const bool is_good = json_is_true(json_array_get(labels, i));
        assert_true(is_good || json_is_false(json_array_get(labels, i)));
        assert_true(!is_good || good == i);
        good += is_good;
        n += (size_t)snprintf(text + n, size - n, "%s%s", i > 0 ? "\n" : "",
                              json_string_value(json_array_get(lines, i)));
    }
    return good;
}

/* Both solutions of a pair and labeled lines have the texts of conversations. */
static void rated_rows(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 100; i++) {
        struct ax_problem p = make(1, i), w;
        json_t *row, *pair, *good, *bad;
        char text[4096];
        int first;
        ax_problem_make(&w, 1, i, (struct ax_problem_kind){1, AX_PROBLEM_LEVELS, 1}, &first);
        row = ax_problem_row(&p);
        pair = ax_problem_pair_row(&p, &w);
        good = ax_problem_steps_row(&p, p.level + 1);
        bad = ax_problem_steps_row(&w, first);
        const json_t *messages = json_object_get(row, "messages");
        const char *question =
            json_string_value(json_object_get(json_array_get(messages, 0), "content"));
        const char *answer =
            json_string_value(json_object_get(json_array_get(messages, 1), "content"));
        assert_string_equal(message_of(pair, "prompt", "user"), question);
        assert_string_equal(message_of(pair, "chosen", "assistant"), answer);
        assert_string_equal(json_string_value(json_object_get(good, "prompt")), question);
        assert_int_equal(join_lines(good, text, sizeof text), p.level + 1);
        assert_string_equal(text, answer);
        assert_int_equal(join_lines(bad, text, sizeof text), first);
        assert_string_equal(text, message_of(pair, "rejected", "assistant"));
        assert_string_not_equal(text, answer);
        json_decref(row);
        json_decref(pair);
        json_decref(good);
        json_decref(bad);
    }
}

/* Memory may end at each of its parts: then there is no row, and nothing is kept of it. */
static void a_row_without_memory_is_none(void **state) {
    (void)state;
    struct ax_problem p;
    int failed = 0;
    ax_problem_make(&p, 3, 7, (struct ax_problem_kind){1, AX_PROBLEM_LEVELS, 1}, NULL);
    const uint64_t live = ax_mem_live_blocks();
    for (json_t *row = NULL; !row; failed++) {
        char spec[32];
        snprintf(spec, sizeof spec, "malloc:%d:enomem", failed + 1);
        assert_int_equal(ax_fault_configure(spec), AX_OK);
        row = ax_problem_steps_row(&p, 1);
        assert_int_equal(ax_fault_configure(NULL), AX_OK);
        if (row)
            assert_int_equal(json_array_size(json_object_get(row, "labels")), p.level + 1);
        json_decref(row);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    assert_true(failed > 10);
    ax_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_right),
        cmocka_unit_test(same_seed_same_problem),
        cmocka_unit_test(the_first_of_seed_1),
        cmocka_unit_test(levels),
        cmocka_unit_test(splits),
        cmocka_unit_test(rows),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(programs),
        cmocka_unit_test(rated_rows),
        cmocka_unit_test(a_row_without_memory_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
