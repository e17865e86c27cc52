/* What can be done with a list of integers. */
#include <string.h>

#include "data/coding/ops.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

#define OP(name) static bool name(struct ax_coding_value *v, const struct ax_coding_operands *o)

/* ---- lists ---- */

OP(filter) {
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        if (o->is->holds(v->items[i], o->is_k))
            v->items[n++] = v->items[i];
    v->n = n;
    return true;
}

OP(map) {
    for (size_t i = 0; i < v->n; i++)
        if (!o->to->run(&v->items[i], o->to_k))
            return false;
    return true;
}

OP(reverse) {
    (void)o;
    for (size_t i = 0; i < v->n / 2; i++) {
        const int64_t x = v->items[i];
        v->items[i] = v->items[v->n - 1 - i];
        v->items[v->n - 1 - i] = x;
    }
    return true;
}

OP(sort) {
    (void)o;
    for (size_t i = 1; i < v->n; i++) {
        const int64_t x = v->items[i];
        size_t j = i;
        for (; j > 0 && v->items[j - 1] > x; j--)
            v->items[j] = v->items[j - 1];
        v->items[j] = x;
    }
    return true;
}

OP(sort_down) {
    return sort(v, o) && reverse(v, o);
}

OP(first_k) {
    v->n = (int64_t)v->n < o->k ? v->n : (size_t)o->k;
    return true;
}

OP(without_first_k) {
    const size_t k = (int64_t)v->n < o->k ? v->n : (size_t)o->k;
    v->n -= k;
    memmove(v->items, v->items + k, v->n * sizeof *v->items);
    return true;
}

OP(last_k) {
    const int64_t n = (int64_t)v->n;
    return without_first_k(v, &(struct ax_coding_operands){.k = n > o->k ? n - o->k : 0});
}

OP(every_second) {
    (void)o;
    for (size_t i = 0; 2 * i < v->n; i++)
        v->items[i] = v->items[2 * i];
    v->n = (v->n + 1) / 2;
    return true;
}

static int64_t occurrences(const struct ax_coding_value *v, size_t n, int64_t x) {
    int64_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += v->items[i] == x;
    return found;
}

OP(unique) {
    size_t n = 0;
    (void)o;
    for (size_t i = 0; i < v->n; i++)
        if (occurrences(v, n, v->items[i]) == 0)
            v->items[n++] = v->items[i];
    v->n = n;
    return true;
}

OP(differences) {
    (void)o;
    for (size_t i = 0; i + 1 < v->n; i++)
        v->items[i] = v->items[i + 1] - v->items[i];
    v->n -= v->n > 0;
    return true;
}

OP(append) {
    if (v->n == AX_CODING_MAX_ITEMS)
        return false;
    v->items[v->n++] = o->k;
    return true;
}

OP(repeat) {
    const size_t n = v->n;
    if (n * (size_t)o->k > AX_CODING_MAX_ITEMS)
        return false;
    for (; v->n < n * (size_t)o->k; v->n++)
        v->items[v->n] = v->items[v->n - n];
    return true;
}

/* ---- numbers ---- */

OP(sum) {
    (void)o;
    v->i = 0;
    for (size_t i = 0; i < v->n; i++)
        v->i += v->items[i];
    return true;
}

OP(length) {
    (void)o;
    v->i = (int64_t)v->n;
    return true;
}

OP(count_that) {
    return filter(v, o) && length(v, o);
}

OP(count_of) {
    v->i = occurrences(v, v->n, o->k);
    return true;
}

OP(count_different) {
    return unique(v, o) && length(v, o);
}

OP(first) {
    (void)o;
    v->i = v->items[0];
    return v->n > 0;
}

OP(last) {
    (void)o;
    v->i = v->n > 0 ? v->items[v->n - 1] : 0;
    return v->n > 0;
}

OP(smallest) {
    return sort(v, o) && first(v, o);
}

OP(largest) {
    return sort_down(v, o) && first(v, o);
}

OP(second_largest) {
    (void)sort_down(v, o);
    v->i = v->items[1];
    return v->n > 1;
}

OP(spread) {
    (void)sort(v, o);
    v->i = v->n > 0 ? v->items[v->n - 1] - v->items[0] : 0;
    return v->n > 0;
}

OP(average) {
    const int64_t n = (int64_t)v->n;
    (void)sum(v, o);
    v->i = n > 0 ? ax_coding_floor_div(v->i, n) : 0;
    return n > 0;
}

OP(place_of_largest) {
    size_t at = 0;
    (void)o;
    for (size_t i = 1; i < v->n; i++)
        at = v->items[i] > v->items[at] ? i : at;
    v->i = (int64_t)at;
    return v->n > 0;
}

/* ---- truth ---- */

OP(any) {
    (void)count_that(v, o);
    v->i = v->i > 0;
    return true;
}

OP(all) {
    const size_t n = v->n;
    (void)filter(v, o);
    v->i = v->n == n;
    return true;
}

OP(contains) {
    v->i = occurrences(v, v->n, o->k) > 0;
    return true;
}

OP(is_sorted) {
    (void)o;
    v->i = 1;
    for (size_t i = 1; i < v->n; i++)
        v->i = v->i && v->items[i - 1] <= v->items[i];
    return true;
}

#define LIST AX_CODING_LIST, AX_CODING_LIST
#define INT  AX_CODING_LIST, AX_CODING_INT
#define BOOL AX_CODING_LIST, AX_CODING_BOOL
#define THAT .predicates = &ax_coding_of_numbers

static const struct ax_coding_op ops[] = {
    {LIST, 14, "the {many} in {0}", "keep only the {many}", "[x for x in {v} if {p}]", "x", THAT,
     .selects = true, .run = filter},
    {LIST, 12, "the list that has {m} for every number x in {0}", "{M}", "[{m} for x in {v}]", "x",
     "x", "every number", .maps = 1, .run = map},
    {LIST, 1, "{0} in reverse order", "reverse the list", "{(0)}[::-1]", .loose = true,
     .run = reverse},
    {LIST, 2, "{0} in ascending order", "sort the list", "sorted({0})", .loose = true, .run = sort},
    {LIST, 2, "{0} in descending order", "sort the list in descending order",
     "sorted({0}, reverse=True)", .loose = true, .run = sort_down},
    {LIST, 2, "the first {k} numbers of {0}", "keep only the first {k} numbers", "{(0)}[:{k}]",
     .k = {AX_CODING_NUMBER, 2, 5}, .run = first_k},
    {LIST, 2, "the last {k} numbers of {0}", "keep only the last {k} numbers", "{(0)}[-{k}:]",
     .k = {AX_CODING_NUMBER, 2, 5}, .run = last_k},
    {LIST, 2, "all but the first {k} numbers of {0}", "drop the first {k} numbers", "{(0)}[{k}:]",
     .k = {AX_CODING_NUMBER, 2, 5}, .run = without_first_k},
    {LIST, 2, "every second number of {0}, beginning with the first",
     "keep every second number, beginning with the first", "{(0)}[::2]", .loose = true,
     .run = every_second},
    {LIST, 2, "{0} without repeated numbers, in the order in which they first appear",
     "drop repeated numbers, keeping the first of each", "list(dict.fromkeys({0}))", .loose = true,
     .selects = true, .run = unique},
    {LIST, 1, "the differences between neighbors in {0} (the next minus the previous)",
     "list the differences between neighbors (the next minus the previous)",
     "[b - a for a, b in zip({v}, {v}[1:])]", .run = differences},
    {LIST, 1, "{0} with {k} appended", "append {k} to the list", "{(0)} + [{k}]", .loose = true,
     .k = {AX_CODING_OPERAND, 0, 9}, .run = append},
    {LIST, 1, "{0} repeated {k} times", "repeat the list {k} times", "{(0)} * {k}", .loose = true,
     .k = {AX_CODING_NUMBER, 2, 3}, .run = repeat},
    {INT, 8, "the sum of {0}", "take the sum", "sum({0})", .run = sum},
    {INT, 3, "the length of {0}", "take the length", "len({0})", .counts = true, .run = length},
    {INT, 8, "the number of {many} in {0}", "count the {many}", "len([x for x in {v} if {p}])", "x",
     THAT, .run = count_that},
    {INT, 3, "how often {k} appears in {0}", "count how often {k} appears", "{(0)}.count({k})",
     .k = {AX_CODING_OPERAND, 0, 9}, .run = count_of},
    {INT, 2, "the number of different numbers in {0}", "count the different numbers",
     "len(set({0}))", .run = count_different},
    {INT, 2, "the first number of {0}", "take the first number", "{(0)}[0]", .run = first},
    {INT, 2, "the last number of {0}", "take the last number", "{(0)}[-1]", .run = last},
    {INT, 3, "the smallest number in {0}", "take the smallest number", "min({0})", .run = smallest},
    {INT, 3, "the largest number in {0}", "take the largest number", "max({0})", .run = largest},
    {INT, 2, "the second largest number in {0} (equal numbers count separately)",
     "take the second largest number (equal numbers count separately)", "sorted({0})[-2]",
     .run = second_largest},
    {INT, 2, "the difference between the largest and the smallest number in {0}",
     "take the difference between the largest and the smallest number", "max({v}) - min({v})",
     .run = spread},
    {INT, 2, "the average of {0}, rounded down", "take the average, rounded down",
     "sum({v}) // len({v})", .loose = true, .run = average},
    {INT, 1, "the index of the first largest number in {0}",
     "take the index of the first largest number", "{v}.index(max({v}))", .run = place_of_largest},
    {BOOL, 3, "whether any of the numbers in {0} is {is}",
     "check whether any of the numbers is {is}", "any({p} for x in {v})", "x", THAT, .run = any},
    {BOOL, 3, "whether each of the numbers in {0} is {is}",
     "check whether each of the numbers is {is}", "all({p} for x in {v})", "x", THAT, .run = all},
    {BOOL, 4, "whether {k} is in {0}", "check whether {k} is in the list", "{k} in {(0)}",
     .k = {AX_CODING_OPERAND, 0, 9}, .run = contains},
    {BOOL, 2, "whether {0} is sorted in ascending order",
     "check whether the list is sorted in ascending order", "{v} == sorted({v})", .run = is_sorted},
};
const struct ax_coding_ops ax_coding_ops_of_lists = {ops, COUNT(ops)};
