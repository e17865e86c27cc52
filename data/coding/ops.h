/* The words of specifications: what can be done with a value, in English, in Python, and here.
 * Private to data/coding/.
 *
 * Texts have slots. In those of steps:
 *   {0}   what the step is done to; {(0)} the same, in parentheses unless it needs none
 *   {v}   the same, as a variable: for what Python computes several times, or in a comprehension
 *   {k} {l}   the numbers or letters of the step
 *   {p}   its predicate, {many} and {is} of the same in English
 *   {m} {else}   its maps; {M} the first as a verb
 * In those of predicates and maps: {x} the item, in parentheses unless it needs none; {t} the same as
 * a term, {e} as it is; {o} the item in English; {k} the number. */
#ifndef AX_DATA_CODING_OPS_H
#define AX_DATA_CODING_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ax_coding_type {
    AX_CODING_INT,
    AX_CODING_LIST, /* of integers */
    AX_CODING_TEXT, /* ASCII */
    AX_CODING_BOOL,
    AX_CODING_TYPE_COUNT
};

enum { AX_CODING_MAX_ITEMS = 24, AX_CODING_MAX_TEXT = 120 };
/* No value of a test is larger. */
#define AX_CODING_MAX_INT (INT64_C(1) << 40)

struct ax_coding_value {
    enum ax_coding_type type;
    int64_t i; /* INT; BOOL: 0 or 1 */
    size_t n;  /* of LIST and TEXT */
    int64_t items[AX_CODING_MAX_ITEMS];
    char text[AX_CODING_MAX_TEXT + 1]; /* NUL-terminated */
};

/* What a {k} may be: none, a number from low to high, such a number or an argument, or a letter. */
enum ax_coding_kind { AX_CODING_NONE, AX_CODING_NUMBER, AX_CODING_OPERAND, AX_CODING_LETTER };
struct ax_coding_range {
    enum ax_coding_kind kind;
    int low, high;
};

struct ax_coding_predicate {
    const char *many, *is, *python; /* "even numbers", "even" */
    struct ax_coding_range k;
    bool (*holds)(int64_t x, int64_t k);
};
struct ax_coding_predicates {
    const struct ax_coding_predicate *all;
    size_t n;
};
extern const struct ax_coding_predicates ax_coding_of_numbers, ax_coding_of_letters;

struct ax_coding_map {
    const char *noun, *verb, *python;
    struct ax_coding_range k;
    bool (*run)(int64_t *x, int64_t k); /* false: Python raises an exception */
};
extern const struct ax_coding_map ax_coding_maps[];
extern const size_t ax_coding_n_maps;

/* What a step computes with: its numbers, resolved. */
struct ax_coding_operands {
    int64_t k, l;
    const struct ax_coding_predicate *is;
    int64_t is_k;
    const struct ax_coding_map *to, *otherwise;
    int64_t to_k, otherwise_k;
};

struct ax_coding_op {
    enum ax_coding_type in, out;
    int weight;
    /* "the sum of {0}"; "take the sum"; "sum({0})" */
    const char *noun, *verb, *python;
    /* What {x} of its predicate and maps is in Python, and {o} in the noun and in the verb. */
    const char *item, *item_noun, *item_verb;
    const struct ax_coding_predicates *predicates; /* NULL: none */
    int maps;                                      /* 0 to 2 */
    struct ax_coding_range k, l;
    bool loose;   /* the noun is unclear as a part of another */
    bool selects; /* some of the items: len() of that would be another step's result */
    bool counts;  /* all of the items */
    /* In place. False where Python raises an exception or the result is too large. */
    bool (*run)(struct ax_coding_value *v, const struct ax_coding_operands *o);
};

struct ax_coding_ops {
    const struct ax_coding_op *all;
    size_t n;
};
extern const struct ax_coding_ops ax_coding_ops_of_ints, ax_coding_ops_of_lists,
    ax_coding_ops_of_texts, ax_coding_ops_of_words;

/* As // and % of Python; b is not 0. */
int64_t ax_coding_floor_div(int64_t a, int64_t b);
int64_t ax_coding_floor_mod(int64_t a, int64_t b);

#endif
