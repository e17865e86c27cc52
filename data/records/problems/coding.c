/* Steps → a chain of them → tests, texts, records. Read ax_coding_make first. */
#include "data/records/problems/coding.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/status.h"

#define COUNT(a)   (int)(sizeof(a) / sizeof *(a))
#define MAX_INT    (INT64_C(1) << 31)
#define MAX_TRIES  100000 /* far more than it takes to draw a chain that makes sense */
#define TEST_SHARE 8

/* ---- steps ---- */

/* A new number for each one, whether to keep each one, or one number for all of them. */
enum kind { EACH, KEEP, ONE };

/* Of number i of n: x = v[i]. */
#define STEP(name, result)                                                                         \
    static int64_t name(const int64_t *v, int64_t n, int64_t i, int64_t k) {                       \
        const int64_t x = v[i];                                                                    \
        (void)n, (void)k, (void)x;                                                                 \
        return result;                                                                             \
    }
/* The i-th in ascending order; of no numbers what is too large to be a result. */
static int64_t ranked(const int64_t *v, int64_t n, int64_t i) {
    for (int64_t k = 0; k < n; k++) {
        int64_t below = 0, equal = 0;
        for (int64_t j = 0; j < n; j++) {
            below += v[j] < v[k];
            equal += v[j] == v[k];
        }
        if (below <= i && i < below + equal)
            return v[k];
    }
    return MAX_INT + 1;
}
static int64_t total(const int64_t *v, int64_t n) {
    return n > 0 ? v[n - 1] + total(v, n - 1) : 0;
}
STEP(add, x + k)
STEP(subtract_from, k - x)
STEP(multiply, x *k)
STEP(square, x *x)
STEP(modulo, (x % k + k) % k) /* Python's, for k > 0 */
STEP(divide, (x - modulo(v, n, i, k)) / k)
STEP(larger, x > k ? x : k)
STEP(even, x % 2 == 0)
STEP(multiple, x % k == 0)
STEP(above, x > k)
STEP(one_of_first, i < k)
STEP(opposite, v[n - 1 - i])
STEP(in_order, ranked(v, n, i))
STEP(sum, total(v, n))
STEP(length, n)
STEP(smallest, ranked(v, n, 0))
STEP(largest, ranked(v, n, n - 1))

struct ax_coding_op {
    enum kind kind;
    bool from_list, to_list;
    const char *verb, *python; /* {k} the number, {v} what the step is done to */
    int low, high;             /* of the number; both 0: there is none */
    int64_t (*item)(const int64_t *v, int64_t n, int64_t i, int64_t k);
};
/* clang-format off */
static const struct ax_coding_op ops[] = {
    {EACH, false, false, "add {k} to it", "{v} + {k}", 1, 20, add},
    {EACH, false, false, "subtract it from {k}", "{k} - {v}", 1, 20, subtract_from},
    {EACH, false, false, "multiply it by {k}", "{v} * {k}", 2, 12, multiply},
    {EACH, false, false, "square it", "{v} ** 2", 0, 0, square},
    {EACH, false, false, "divide it by {k}, rounding down", "{v} // {k}", 2, 9, divide},
    {EACH, false, false, "replace it by its remainder modulo {k}", "{v} % {k}", 2, 9, modulo},
    {EACH, false, false, "replace it by the larger of it and {k}", "max({v}, {k})", -5, 15, larger},
    {EACH, true, true, "add {k} to every number", "[x + {k} for x in {v}]", 1, 20, add},
    {EACH, true, true, "multiply every number by {k}", "[x * {k} for x in {v}]", 2, 12, multiply},
    {EACH, true, true, "square every number", "[x ** 2 for x in {v}]", 0, 0, square},
    {EACH, true, true, "reverse it", "{v}[::-1]", 0, 0, opposite},
    {EACH, true, true, "sort it in ascending order", "sorted({v})", 0, 0, in_order},
    {KEEP, true, true, "keep only the even numbers", "[x for x in {v} if x % 2 == 0]", 0, 0, even},
    {KEEP, true, true, "keep only the multiples of {k}", "[x for x in {v} if x % {k} == 0]", 3, 9, multiple},
    {KEEP, true, true, "keep only the numbers above {k}", "[x for x in {v} if x > {k}]", -5, 15, above},
    {KEEP, true, true, "keep only the first {k} numbers", "{v}[:{k}]", 2, 4, one_of_first},
    {ONE, true, false, "take the sum", "sum({v})", 0, 0, sum},
    {ONE, true, false, "take the length", "len({v})", 0, 0, length},
    {ONE, true, false, "take the largest number", "max({v})", 0, 0, largest},
    {ONE, true, false, "take the smallest number", "min({v})", 0, 0, smallest},
};
/* clang-format on */
const int ax_coding_n_ops = COUNT(ops);

bool ax_coding_compute(const struct ax_coding_task *t, struct ax_coding_value argument,
                       struct ax_coding_value *result) {
    *result = argument;
    for (int s = 0; s < t->level; s++) {
        const struct ax_coding_op *op = &ops[t->step[s].op];
        const struct ax_coding_value v = *result;
        const int64_t n = op->kind == ONE ? 1 : v.n;
        *result = (struct ax_coding_value){.list = op->to_list};
        for (int64_t i = 0; i < n; i++) {
            const int64_t x = op->item(v.v, v.n, i, t->step[s].k);
            if (llabs(x) > MAX_INT)
                return false;
            if (op->kind != KEEP || x)
                result->v[result->n++] = op->kind == KEEP ? v.v[i] : x;
        }
    }
    return true;
}

/* ---- chains and their tests ---- */

void ax_coding_draw_steps(struct ax_coding_task *t, struct ax_problem_draw *d) {
    bool list = t->takes_list;
    for (int s = 0; s < t->level; s++) {
        do
            t->step[s].op = (int)ax_problem_below(d, COUNT(ops));
        while (ops[t->step[s].op].from_list != list);
        const struct ax_coding_op *op = &ops[t->step[s].op];
        t->step[s].k = op->low + ax_problem_below(d, op->high - op->low + 1);
        list = op->to_list;
    }
}

/* Near a number of the task, or anywhere. */
static struct ax_coding_value draw_argument(struct ax_problem_draw *d,
                                            const struct ax_coding_task *t) {
    struct ax_coding_value v = {.list = t->takes_list};
    const int64_t n = v.list ? ax_problem_below(d, AX_CODING_MAX_ITEMS + 1) : 1;
    while (v.n < n) {
        const int64_t near = t->step[ax_problem_below(d, t->level)].k + ax_problem_below(d, 3) - 1;
        v.v[v.n++] = ax_problem_below(d, 3) ? ax_problem_below(d, 61) - 30 : near;
    }
    return v;
}

static bool same(const struct ax_coding_value *a, const struct ax_coding_value *b) {
    return a->list == b->list && a->n == b->n &&
           memcmp(a->v, b->v, (size_t)a->n * sizeof *a->v) == 0;
}

/* False if an argument comes twice, or a result in more than half of the tests. */
static bool draw_tests(struct ax_coding_task *t, struct ax_problem_draw *d) {
    for (int i = 0; i <= AX_CODING_TESTS; i++) {
        int alike = 0;
        t->test[i].argument = draw_argument(d, t);
        bool good = ax_coding_compute(t, t->test[i].argument, &t->test[i].result);
        for (int k = 0; k < i; k++) {
            good = good && !same(&t->test[k].argument, &t->test[i].argument);
            alike += same(&t->test[k].result, &t->test[i].result);
        }
        if (!good || alike >= AX_CODING_TESTS / 2)
            return false;
    }
    return true;
}

/* Does a test tell another chain of steps from the task's? */
static bool tells(const struct ax_coding_task *t, const struct ax_coding_task *other) {
    struct ax_coding_value result;
    for (int i = 0; i < AX_CODING_TESTS; i++)
        if (!ax_coding_compute(other, t->test[i].argument, &result) ||
            !same(&result, &t->test[i].result))
            return true;
    return false;
}

static bool tells_neighbors(const struct ax_coding_task *t) {
    for (int i = 0; i < t->level; i++) {
        const struct ax_coding_op *op = &ops[t->step[i].op];
        struct ax_coding_task without = *t, more = *t, less = *t;
        without.level--;
        memmove(&without.step[i], &t->step[i + 1], (size_t)(t->level - 1 - i) * sizeof *t->step);
        more.step[i].k++;
        less.step[i].k--;
        if ((op->from_list == op->to_list && !tells(t, &without)) ||
            (op->low < op->high && !(tells(t, &more) && tells(t, &less))))
            return false;
    }
    return true;
}

/* ---- texts ---- */

static void put_pattern(struct ax_problem_text *out, const char *pattern, int64_t k,
                        const char *v) {
    ax_problem_fill(out, pattern, strlen(pattern), (const char *[]){"v", v}, 2,
                    (const int64_t[26]){['k' - 'a'] = k});
}

/* A statement for each step. */
void ax_coding_put_solution(struct ax_problem_text *out, const struct ax_coding_task *t) {
    const char *v = t->argument;
    ax_problem_put(out, "def %s(%s):\n", t->function, v);
    for (int i = 0; i < t->level; i++) {
        const struct ax_coding_op *op = &ops[t->step[i].op];
        const char *next = op->to_list == t->takes_list ? t->argument : op->to_list ? "xs" : "n";
        if (i < t->level - 1)
            ax_problem_put(out, "    %s = ", next);
        else
            ax_problem_put(out, "    return ");
        put_pattern(out, op->python, t->step[i].k, v);
        ax_problem_put(out, "\n");
        v = next;
    }
}

static void put_value(struct ax_problem_text *out, const struct ax_coding_value *v) {
    for (int64_t i = 0; i < v->n; i++)
        ax_problem_put(out, "%s%lld", i > 0 ? ", " : v->list ? "[" : "", (long long)v->v[i]);
    if (v->list)
        ax_problem_put(out, v->n > 0 ? "]" : "[]");
}

static void put_question(struct ax_problem_text *out, const struct ax_coding_task *t,
                         bool example) {
    ax_problem_put(out,
                   "Write a Python function %s(%s) that takes %s. Start with it: ", t->function,
                   t->argument, t->takes_list ? "a list of integers" : "an integer");
    for (int i = 0; i < t->level; i++) {
        ax_problem_put(out, "%s", i > 0 ? ", then " : "");
        put_pattern(out, ops[t->step[i].op].verb, t->step[i].k, "");
    }
    ax_problem_put(out, ". Return the result.");
    if (example) {
        ax_problem_put(out, " For example, %s(", t->function);
        put_value(out, &t->test[AX_CODING_TESTS].argument);
        ax_problem_put(out, ") is ");
        put_value(out, &t->test[AX_CODING_TESTS].result);
        ax_problem_put(out, ".");
    }
    ax_problem_put(out, " Answer with the function only, in a ```python block.");
}

void ax_coding_make(struct ax_coding_task *out, uint64_t seed, uint64_t index, int min_level,
                    int max_level) {
    static const char *const functions[] = {"f", "g", "solve", "compute", "apply", "answer"};
    static const char *const arguments[][4] = {{"n", "m", "k", "a"},
                                               {"xs", "nums", "values", "numbers"}};
    struct ax_problem_draw d = ax_problem_draw(seed, index);
    int tries = 0;
    *out = (struct ax_coding_task){.level = min_level};
    out->level += (int)ax_problem_below(&d, max_level - min_level + 1);
    out->takes_list = ax_problem_below(&d, 2);
    do {
        AX_ASSERT(++tries < MAX_TRIES);
        ax_coding_draw_steps(out, &d);
    } while (!draw_tests(out, &d) || !tells_neighbors(out));
    out->function = functions[ax_problem_below(&d, COUNT(functions))];
    out->argument = arguments[out->takes_list][ax_problem_below(&d, 4)];
    ax_coding_put_solution(&out->solution, out);
    put_question(&out->question, out, ax_problem_below(&d, 2));
}

/* By the solution in names that are always the same. */
bool ax_coding_is_test(const struct ax_coding_task *t) {
    struct ax_coding_task plain = *t;
    struct ax_problem_text text = {.n = 0};
    plain.function = plain.argument = "f";
    ax_coding_put_solution(&text, &plain);
    return ax_hash64(text.s, text.n, 0) % TEST_SHARE == 0;
}

/* ---- records ---- */

static json_t *json_of(const struct ax_coding_value *v) {
    struct ax_problem_text text = {.n = 0};
    put_value(&text, v);
    return json_loads(text.s, JSON_DECODE_ANY, NULL);
}

json_t *ax_coding_row(const struct ax_coding_task *t) {
    struct ax_problem_text answer = {.n = 0};
    json_t *tests = json_array();
    bool ok = true;
    for (int i = 0; i < AX_CODING_TESTS; i++) {
        json_t *test = json_pack("{s[o]so}", "args", json_of(&t->test[i].argument), "result",
                                 json_of(&t->test[i].result));
        ok = ok && json_array_append_new(tests, test) == 0;
    }
    ax_problem_put(&answer, "```python\n%s```", t->solution.s);
    json_t *row = json_pack("{s[{ssss}{ssss}]sissso}", "messages", "role", "user", "content",
                            t->question.s, "role", "assistant", "content", answer.s, "level",
                            t->level, "entry_point", t->function, "tests", tests);
    if (!ok)
        json_decref(row);
    return ok ? row : NULL;
}
