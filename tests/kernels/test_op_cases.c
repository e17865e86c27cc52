/* The cases on which ops are tested, and what ops refuse, as recorded in tests/kernels/op_cases.txt: a case
 * that loses its edge, or a condition that no longer holds, makes no test of the ops themselves fail.
 *
 * For each op: its family, its cases in bfloat16, and what they cost in all. For each operand of it: in how many
 * cases it is given, their elements, the smallest and the largest number, the sum (outputs are NaN until the op
 * runs), how many cases the op refuses if that operand alone is changed, and a sum with weights after the reference has
 * computed the same cases in float32. Then that sum of scalars and measures; and how many of all these refusals each of
 * its conditions makes, in the order in which they are met. If what differs is intended, AX_UPDATE=1
 * writes it into the file, for git to show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/harness.h"
#include "tests/record.h"

#define RECORD "tests/kernels/op_cases.txt"

/* ---- one operand changed ---- */

static void leave_out(struct ax_tensor *t) {
    t->data = NULL;
}
static void add_dimension(struct ax_tensor *t) {
    if (t->ndim < AX_MAX_DIMS)
        t->shape[t->ndim++] = 1;
}
static void make_other(struct ax_tensor *t) {
    t->dtype = t->dtype == AX_I32 ? AX_F32 : AX_I32;
}
static void widen(struct ax_tensor *t) {
    t->dtype = t->dtype == AX_BF16 ? AX_F32 : AX_BF16;
}
static void add_row(struct ax_tensor *t) {
    t->shape[0]++;
}
static void double_rows(struct ax_tensor *t) {
    t->shape[0] *= 2;
}
static void add_last(struct ax_tensor *t) {
    t->shape[t->ndim - 1]++;
    t->row_stride += t->ndim > 1 ? ax_tensor_row_len(t) : 0;
}
static void double_last(struct ax_tensor *t) {
    t->shape[t->ndim - 1] *= 2;
    t->row_stride *= 2;
}
static void overlap_rows(struct ax_tensor *t) {
    t->row_stride = ax_tensor_row_len(t) - 1;
}
static void pad_rows(struct ax_tensor *t) {
    t->row_stride++;
}

static const struct {
    const char *name;
    void (*apply)(struct ax_tensor *t);
} changes[] = {
    {"absent", leave_out}, {"rank", add_dimension}, {"type", make_other},
    {"width", widen},      {"row", add_row},        {"rows*2", double_rows},
    {"last", add_last},    {"last*2", double_last}, {"overlap", overlap_rows},
    {"pad", pad_rows},
};
#define N_CHANGES (sizeof changes / sizeof *changes)

/* The refusals of an op by its conditions. */
struct rules {
    struct {
        const char *text;
        int refused;
    } list[64];
    int n;
};

static bool refuses(const struct ax_case *c, struct ax_tensor *t, size_t change,
                    struct rules *rules) {
    const struct ax_tensor was = *t;
    changes[change].apply(t);
    const char *broken = ax_op_broken_rule(c->op, c->args);
    *t = was;
    int i = 0;
    while (broken && i < rules->n && strcmp(rules->list[i].text, broken) != 0)
        i++;
    if (!broken)
        return false;
    assert_true(i < (int)(sizeof rules->list / sizeof *rules->list));
    rules->n += i == rules->n;
    rules->list[i].text = broken;
    rules->list[i].refused++;
    return true;
}

/* ---- the record ---- */

struct counts {
    int given, refused[N_CHANGES];
    int64_t elements;
    double least, most, sum, after;
};

/* Whether another operand, of a larger dtype, is where t is: then t has no numbers yet. */
static bool is_over_another(const struct ax_case *c, const struct ax_tensor *t) {
    bool over = false;
    for (const struct ax_operand *o = ax_op_operands(c->op); o->name; o++) {
        const struct ax_tensor *other = ax_operand_tensor(o, c->args);
        over |= other->data == t->data && ax_dtype_size(other->dtype) > ax_dtype_size(t->dtype);
    }
    return over;
}

static void count_operand(struct counts *n, const struct ax_case *c, struct ax_tensor *t,
                          struct rules *rules) {
    if (t->data == NULL)
        return;
    for (size_t i = 0; i < N_CHANGES; i++)
        n->refused[i] += refuses(c, t, i, rules);
    const bool over = is_over_another(c, t);
    for (int64_t i = 0; i < ax_tensor_numel(t) && !over; i++) {
        const double x = ax_case_element(t, i);
        n->least = fmin(n->least, x);
        n->most = fmax(n->most, x);
        n->sum += isnan(x) ? 0 : x;
    }
    n->elements += ax_tensor_numel(t);
    n->given++;
}

/* From −1 to 1, another for each element, so that no two can be exchanged. */
static double weight(uint64_t i) {
    return (double)(int64_t)((i + 1) * 0x9E3779B97F4A7C15) * 0x1p-63;
}

static double weighted(double x, uint64_t i) {
    return weight(i) * (isfinite(x) ? x : 7);
}

/* Sums of what the reference leaves behind: the step's and, in all[o].after, each operand's. */
static double compute(struct counts *all, enum ax_op op, const struct ax_shape *shape, int number,
                      struct machine *ref) {
    const struct ax_operand *list = ax_op_operands(op);
    struct ax_case c;
    double sum = 0;
    case_open(&c, op, shape, AX_F32, ref);
    case_run(&c, ref);
    for (int o = 0; list[o].name; o++) {
        const struct ax_tensor *t = ax_operand_tensor(&list[o], c.args);
        for (int64_t i = 0; t->data && i < ax_tensor_numel(t); i++)
            all[o].after += number * weighted(ax_case_element(t, i), (uint64_t)i);
    }
    const double *scalars = (const double *)&c.step->scalars;
    const double *measures = (const double *)&c.step->measures;
    const size_t n = offsetof(struct ax_step_scalars, step) / sizeof(double);
    for (size_t i = 0; i < n; i++)
        sum += number * weighted(scalars[i], i);
    sum += number * weighted((double)(c.step->scalars.step + 3 * c.step->scalars.skip), n);
    for (size_t i = 0; i < sizeof c.step->measures / sizeof(double); i++)
        sum += number * weighted(measures[i], n + 1 + i);
    ax_case_free(&c);
    return sum;
}

static void put_operand(struct ax_buf *out, const char *name, const struct counts *n) {
    record_put(out, "  %-14s %3d %8lld", name, n->given, (long long)n->elements);
    if (n->least <= n->most)
        record_put(out, " %11.5g %11.5g %11.5g", n->least, n->most, n->sum);
    else
        record_put(out, " %11s %11s %11s", "", "", "");
    for (size_t i = 0; i < N_CHANGES; i++)
        record_put(out, " %*d", (int)strlen(changes[i].name), n->refused[i]);
    record_put(out, " %11.5g\n", n->after);
}

static void put_op(struct ax_buf *out, enum ax_op op, struct machine *ref) {
    struct counts all[AX_MAX_OPERANDS] = {0};
    struct ax_op_cost total = {0};
    struct rules rules = {.n = 0};
    const struct ax_operand *list = ax_op_operands(op);
    double step = 0;
    int n, n_cases = 0;
    const struct ax_shape *shapes = ax_op_shapes(op, &n);
    for (int o = 0; list[o].name; o++)
        all[o] = (struct counts){.least = INFINITY, .most = -INFINITY};
    for (int i = 0; i < n; i++) {
        struct ax_case c;
        if (shapes[i].big)
            continue;
        assert_int_equal(ax_case_create(&c, op, &shapes[i], AX_BF16, 11), AX_OK);
        const struct ax_op_cost cost = ax_op_cost(op, c.args);
        total.flops += cost.flops;
        total.bytes += cost.bytes;
        for (int o = 0; list[o].name; o++)
            count_operand(&all[o], &c, ax_operand_tensor(&list[o], c.args), &rules);
        ax_case_free(&c);
        n_cases++;
        step += compute(all, op, &shapes[i], n_cases, ref);
    }
    char family[32];
    ax_op_family(op, family, sizeof family);
    record_put(out, "%s, of %s: %d cases, %.10g FLOPs, %.10g bytes\n", ax_op_name(op), family,
               n_cases, total.flops, total.bytes);
    for (int o = 0; list[o].name; o++)
        put_operand(out, list[o].name, &all[o]);
    record_put(out, "  step: %.5g\n  conditions:", step);
    for (int i = 0; i < rules.n; i++)
        record_put(out, " %d", rules.list[i].refused);
    record_put(out, "\n");
}

static void cases_are_as_recorded(void **state) {
    (void)state;
    struct ax_buf now = {0};
    struct machine ref;
    machine_open(&ref, "ref", 2);
    record_put(&now, "%-16s %3s %8s %11s %11s %11s", "", "in", "elements", "least", "most", "sum");
    for (size_t i = 0; i < N_CHANGES; i++)
        record_put(&now, " %s", changes[i].name);
    record_put(&now, "       after\n");
    for (int op = 0; op < AX_OP_COUNT; op++)
        put_op(&now, (enum ax_op)op, &ref);
    machine_close(&ref);
    record_compare(RECORD, &now);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cases_are_as_recorded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
