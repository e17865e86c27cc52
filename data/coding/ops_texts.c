/* What can be done with text, which is ASCII without line breaks. */
#include <ctype.h>
#include <string.h>

#include "data/coding/builder.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

#define OP(name) static bool name(struct ax_coding_value *v, const struct ax_coding_operands *o)

/* ---- characters ---- */

OP(upper) {
    (void)o;
    for (size_t i = 0; i < v->n; i++)
        v->text[i] = (char)toupper(v->text[i]);
    return true;
}

OP(lower) {
    (void)o;
    for (size_t i = 0; i < v->n; i++)
        v->text[i] = (char)tolower(v->text[i]);
    return true;
}

OP(swap_case) {
    (void)o;
    for (size_t i = 0; i < v->n; i++)
        v->text[i] = (char)(isupper(v->text[i]) ? tolower(v->text[i]) : toupper(v->text[i]));
    return true;
}

OP(capitalize) {
    (void)lower(v, o);
    v->text[0] = (char)toupper(v->text[0]);
    return true;
}

/* As str.title: a letter is a first one if no letter precedes it. */
OP(title) {
    bool inside = false;
    (void)o;
    for (size_t i = 0; i < v->n; i++) {
        const char c = v->text[i];
        v->text[i] = (char)(inside ? tolower(c) : toupper(c));
        inside = isalpha(c) != 0;
    }
    return true;
}

OP(reverse) {
    struct ax_coding_builder b = {.n = 0};
    (void)o;
    for (size_t i = v->n; i > 0; i--)
        ax_coding_build_char(&b, v->text[i - 1]);
    return ax_coding_built(&b, v);
}

OP(repeat) {
    struct ax_coding_builder b = {.n = 0};
    for (int64_t i = 0; i < o->k && !b.full; i++)
        ax_coding_build(&b, v->text, v->n);
    return ax_coding_built(&b, v);
}

OP(double_each) {
    struct ax_coding_builder b = {.n = 0};
    (void)o;
    for (size_t i = 0; i < 2 * v->n; i++)
        ax_coding_build_char(&b, v->text[i / 2]);
    return ax_coding_built(&b, v);
}

OP(sort) {
    struct ax_coding_builder b = {.n = 0};
    (void)o;
    for (int c = 1; c < 128; c++)
        for (size_t i = 0; i < v->n; i++)
            if (v->text[i] == c)
                ax_coding_build_char(&b, (char)c);
    return ax_coding_built(&b, v);
}

OP(keep) {
    struct ax_coding_builder b = {.n = 0};
    for (size_t i = 0; i < v->n; i++)
        if (o->is->holds(v->text[i], o->is_k))
            ax_coding_build_char(&b, v->text[i]);
    return ax_coding_built(&b, v);
}

OP(every_second) {
    struct ax_coding_builder b = {.n = 0};
    (void)o;
    for (size_t i = 0; i < v->n; i += 2)
        ax_coding_build_char(&b, v->text[i]);
    return ax_coding_built(&b, v);
}

OP(replace) {
    for (size_t i = 0; i < v->n; i++)
        v->text[i] = v->text[i] == o->k ? (char)o->l : v->text[i];
    return true;
}

OP(delete) {
    struct ax_coding_builder b = {.n = 0};
    for (size_t i = 0; i < v->n; i++)
        if (v->text[i] != o->k)
            ax_coding_build_char(&b, v->text[i]);
    return ax_coding_built(&b, v);
}

OP(append) {
    struct ax_coding_builder b = {.n = 0};
    ax_coding_build(&b, v->text, v->n);
    ax_coding_build_char(&b, (char)o->k);
    return ax_coding_built(&b, v);
}

OP(enclose) {
    struct ax_coding_builder b = {.n = 0};
    (void)o;
    ax_coding_build_char(&b, '(');
    ax_coding_build(&b, v->text, v->n);
    ax_coding_build_char(&b, ')');
    return ax_coding_built(&b, v);
}

OP(hyphenate) {
    struct ax_coding_builder b = {.n = 0};
    (void)o;
    for (size_t i = 0; i < v->n; i++) {
        ax_coding_build(&b, "-", i > 0);
        ax_coding_build_char(&b, v->text[i]);
    }
    return ax_coding_built(&b, v);
}

/* ---- slices ---- */

static bool slice(struct ax_coding_value *v, size_t from, size_t to) {
    v->n = to - from;
    memmove(v->text, v->text + from, v->n);
    v->text[v->n] = '\0';
    return true;
}

static size_t at_most(const struct ax_coding_value *v, int64_t k) {
    return (int64_t)v->n < k ? v->n : (size_t)k;
}

OP(first_k) {
    return slice(v, 0, at_most(v, o->k));
}

OP(last_k) {
    return slice(v, v->n - at_most(v, o->k), v->n);
}

OP(without_first_k) {
    return slice(v, at_most(v, o->k), v->n);
}

OP(without_last_k) {
    return slice(v, 0, v->n - at_most(v, o->k));
}

OP(strip) {
    size_t from = 0, to = v->n;
    (void)o;
    while (from < to && v->text[from] == ' ')
        from++;
    while (to > from && v->text[to - 1] == ' ')
        to--;
    return slice(v, from, to);
}

/* ---- numbers and truth ---- */

OP(length) {
    (void)o;
    v->i = (int64_t)v->n;
    return true;
}

OP(count_that) {
    return keep(v, o) && length(v, o);
}

OP(count_of) {
    v->i = 0;
    for (size_t i = 0; i < v->n; i++)
        v->i += v->text[i] == o->k;
    return true;
}

OP(count_different) {
    (void)o;
    v->i = 0;
    for (size_t i = 0; i < v->n; i++)
        v->i += memchr(v->text, v->text[i], i) == NULL;
    return true;
}

OP(find) {
    const char *at = memchr(v->text, (int)o->k, v->n);
    v->i = at ? at - v->text : -1;
    return true;
}

OP(contains) {
    v->i = memchr(v->text, (int)o->k, v->n) != NULL;
    return true;
}

OP(starts_with) {
    v->i = v->n > 0 && v->text[0] == o->k;
    return true;
}

OP(ends_with) {
    v->i = v->n > 0 && v->text[v->n - 1] == o->k;
    return true;
}

OP(is_palindrome) {
    (void)o;
    v->i = 1;
    for (size_t i = 0; i < v->n; i++)
        v->i = v->i && v->text[i] == v->text[v->n - 1 - i];
    return true;
}

#define TEXT AX_CODING_TEXT, AX_CODING_TEXT
#define INT  AX_CODING_TEXT, AX_CODING_INT
#define BOOL AX_CODING_TEXT, AX_CODING_BOOL
#define THAT .predicates = &ax_coding_of_letters
#define LETTER                                                                                     \
    { AX_CODING_LETTER, 0, 0 }

static const struct ax_coding_op ops[] = {
    {TEXT, 3, "{0} in upper case", "convert it to upper case", "{(0)}.upper()", .loose = true,
     .run = upper},
    {TEXT, 3, "{0} in lower case", "convert it to lower case", "{(0)}.lower()", .loose = true,
     .run = lower},
    {TEXT, 2, "{0} with upper and lower case swapped", "swap upper and lower case",
     "{(0)}.swapcase()", .loose = true, .run = swap_case},
    {TEXT, 2, "{0} with its first character in upper case and the rest in lower case",
     "put the first character into upper case and the rest into lower case", "{(0)}.capitalize()",
     .loose = true, .run = capitalize},
    {TEXT, 2, "{0} in title case", "convert it to title case", "{(0)}.title()", .loose = true,
     .run = title},
    {TEXT, 4, "the reverse of {0}", "reverse it", "{(0)}[::-1]", .run = reverse},
    {TEXT, 4, "{0} repeated {k} times", "repeat it {k} times", "{(0)} * {k}",
     .k = {AX_CODING_OPERAND, 2, 4}, .loose = true, .run = repeat},
    {TEXT, 2, "{0} with every character doubled", "double every character",
     "''.join([c * 2 for c in {v}])", .loose = true, .run = double_each},
    {TEXT, 2, "the characters of {0} as a sorted string", "sort its characters",
     "''.join(sorted({0}))", .run = sort},
    {TEXT, 10, "only the {many} of {0}", "keep only the {many}", "''.join([c for c in {v} if {p}])",
     "c", THAT, .selects = true, .run = keep},
    {TEXT, 2, "every second character of {0}, beginning with the first",
     "keep every second character, beginning with the first", "{(0)}[::2]", .loose = true,
     .run = every_second},
    {TEXT, 6, "{0} with every {k} replaced by {l}", "replace every {k} by {l}",
     "{(0)}.replace({k}, {l})", .k = LETTER, .l = LETTER, .loose = true, .run = replace},
    {TEXT, 4, "{0} without the letter {k}", "delete every {k}", "{(0)}.replace({k}, '')",
     .k = LETTER, .loose = true, .run = delete},
    {TEXT, 2, "{0} with {k} appended", "append {k}", "{(0)} + {k}", .k = LETTER, .loose = true,
     .run = append},
    {TEXT, 1, "{0} in parentheses", "put it in parentheses", "'(' + {0} + ')'", .loose = true,
     .run = enclose},
    {TEXT, 1, "the characters of {0} joined by '-'", "join its characters by '-'", "'-'.join({0})",
     .run = hyphenate},
    {TEXT, 3, "the first {k} characters of {0}", "keep only the first {k} characters",
     "{(0)}[:{k}]", .k = {AX_CODING_NUMBER, 2, 6}, .run = first_k},
    {TEXT, 3, "the last {k} characters of {0}", "keep only the last {k} characters", "{(0)}[-{k}:]",
     .k = {AX_CODING_NUMBER, 2, 6}, .run = last_k},
    {TEXT, 2, "{0} without its first {k} characters", "drop the first {k} characters",
     "{(0)}[{k}:]", .k = {AX_CODING_NUMBER, 2, 6}, .loose = true, .run = without_first_k},
    {TEXT, 2, "{0} without its last {k} characters", "drop the last {k} characters", "{(0)}[:-{k}]",
     .k = {AX_CODING_NUMBER, 2, 6}, .loose = true, .run = without_last_k},
    {TEXT, 1, "{0} without spaces at its ends", "strip the spaces at its ends", "{(0)}.strip()",
     .loose = true, .run = strip},
    {INT, 4, "the length of {0}", "take the length", "len({0})", .counts = true, .run = length},
    {INT, 8, "the number of {many} in {0}", "count the {many}", "len([c for c in {v} if {p}])", "c",
     THAT, .run = count_that},
    {INT, 6, "how often {k} appears in {0}", "count how often {k} appears", "{(0)}.count({k})",
     .k = LETTER, .run = count_of},
    {INT, 2, "the number of different characters in {0}", "count the different characters",
     "len(set({0}))", .run = count_different},
    {INT, 2, "the index of the first {k} in {0}, or -1 if there is none",
     "find the index of the first {k} (-1 if there is none)", "{(0)}.find({k})", .k = LETTER,
     .loose = true, .run = find},
    {BOOL, 5, "whether {0} contains {k}", "check whether it contains {k}", "{k} in {0}",
     .k = LETTER, .run = contains},
    {BOOL, 5, "whether {0} starts with {k}", "check whether it starts with {k}",
     "{(0)}.startswith({k})", .k = LETTER, .run = starts_with},
    {BOOL, 5, "whether {0} ends with {k}", "check whether it ends with {k}", "{(0)}.endswith({k})",
     .k = LETTER, .run = ends_with},
    {BOOL, 6, "whether {0} is a palindrome", "check whether it is a palindrome", "{v} == {v}[::-1]",
     .run = is_palindrome},
};
const struct ax_coding_ops ax_coding_ops_of_texts = {ops, COUNT(ops)};
