/* What can be done with an integer. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/coding/ops.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static bool map(struct ax_coding_value *v, const struct ax_coding_operands *o) {
    return o->to->run(&v->i, o->to_k);
}

static bool choose(struct ax_coding_value *v, const struct ax_coding_operands *o) {
    return o->is->holds(v->i, o->is_k) ? o->to->run(&v->i, o->to_k)
                                       : o->otherwise->run(&v->i, o->otherwise_k);
}

static bool test(struct ax_coding_value *v, const struct ax_coding_operands *o) {
    v->i = o->is->holds(v->i, o->is_k);
    return true;
}

static bool sum_digits(struct ax_coding_value *v, const struct ax_coding_operands *o) {
    int64_t sum = 0;
    (void)o;
    for (int64_t x = llabs(v->i); x > 0; x /= 10)
        sum += x % 10;
    v->i = sum;
    return true;
}

static bool count_digits(struct ax_coding_value *v, const struct ax_coding_operands *o) {
    int64_t n = 1;
    (void)o;
    for (int64_t x = llabs(v->i); x >= 10; x /= 10)
        n++;
    v->i = n;
    return true;
}

static bool count_up(struct ax_coding_value *v, const struct ax_coding_operands *o) {
    (void)o;
    if (v->i > AX_CODING_MAX_ITEMS)
        return false;
    v->n = 0;
    for (int64_t x = 1; x <= v->i; x++)
        v->items[v->n++] = x;
    return true;
}

static bool multiples(struct ax_coding_value *v, const struct ax_coding_operands *o) {
    for (v->n = 0; (int64_t)v->n < o->k; v->n++)
        v->items[v->n] = v->i * (int64_t)(v->n + 1);
    return true;
}

static bool to_text(struct ax_coding_value *v, const struct ax_coding_operands *o) {
    (void)o;
    v->n = (size_t)snprintf(v->text, sizeof v->text, "%" PRId64, v->i);
    return true;
}

static const struct ax_coding_op ops[] = {
    {AX_CODING_INT, AX_CODING_INT, 14, "{m}", "{M}", "{m}", "{0}", "{0}", "it", .maps = 1,
     .loose = true, .run = map},
    {AX_CODING_INT, AX_CODING_INT, 5, "{m} if {0} is {is}, and {else} otherwise",
     "take {m} if it is {is}, and {else} otherwise", "{m} if {p} else {else}", "{v}", "{0}", "it",
     &ax_coding_of_numbers, .maps = 2, .loose = true, .run = choose},
    {AX_CODING_INT, AX_CODING_INT, 1, "the sum of the digits of {0} (without its sign)",
     "take the sum of its digits (without its sign)", "sum(int(d) for d in str(abs({0})))",
     .run = sum_digits},
    {AX_CODING_INT, AX_CODING_INT, 1, "the number of digits of {0} (without its sign)",
     "count its digits (without its sign)", "len(str(abs({0})))", .run = count_digits},
    {AX_CODING_INT, AX_CODING_BOOL, 3, "whether {0} is {is}", "check whether it is {is}", "{p}",
     "{0}", .predicates = &ax_coding_of_numbers, .run = test},
    {AX_CODING_INT, AX_CODING_LIST, 2, "the list of the numbers from 1 to {0}",
     "list the numbers from 1 to it", "list(range(1, {(0)} + 1))", .run = count_up},
    {AX_CODING_INT, AX_CODING_LIST, 1, "the list of the first {k} multiples of {0}",
     "list its first {k} multiples, beginning with itself", "[{v} * i for i in range(1, {k} + 1)]",
     .k = {AX_CODING_NUMBER, 2, 6}, .run = multiples},
    {AX_CODING_INT, AX_CODING_TEXT, 1, "{0} converted to a string", "convert it to a string",
     "str({0})", .loose = true, .run = to_text},
};
const struct ax_coding_ops ax_coding_ops_of_ints = {ops, COUNT(ops)};
