/* Predicates and maps: of one integer, or of one character. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "data/coding/ops.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

int64_t ax_coding_floor_div(int64_t a, int64_t b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t ax_coding_floor_mod(int64_t a, int64_t b) {
    return a - b * ax_coding_floor_div(a, b);
}

/* ---- predicates of numbers ---- */

static bool is_even(int64_t x, int64_t k) {
    (void)k;
    return x % 2 == 0;
}
static bool is_odd(int64_t x, int64_t k) {
    (void)k;
    return x % 2 != 0;
}
static bool is_positive(int64_t x, int64_t k) {
    (void)k;
    return x > 0;
}
static bool is_negative(int64_t x, int64_t k) {
    (void)k;
    return x < 0;
}
static bool is_greater(int64_t x, int64_t k) {
    return x > k;
}
static bool is_less(int64_t x, int64_t k) {
    return x < k;
}
static bool is_at_least(int64_t x, int64_t k) {
    return x >= k;
}
static bool is_at_most(int64_t x, int64_t k) {
    return x <= k;
}
static bool is_other(int64_t x, int64_t k) {
    return x != k;
}
static bool is_multiple(int64_t x, int64_t k) {
    return x % k == 0;
}
static bool is_no_multiple(int64_t x, int64_t k) {
    return x % k != 0;
}

static const struct ax_coding_predicate of_numbers[] = {
    {"even numbers", "even", "{x} % 2 == 0", .holds = is_even},
    {"odd numbers", "odd", "{x} % 2 == 1", .holds = is_odd},
    {"positive numbers", "positive", "{t} > 0", .holds = is_positive},
    {"negative numbers", "negative", "{t} < 0", .holds = is_negative},
    {"numbers greater than {k}",
     "greater than {k}",
     "{t} > {k}",
     {AX_CODING_OPERAND, -5, 15},
     is_greater},
    {"numbers less than {k}", "less than {k}", "{t} < {k}", {AX_CODING_OPERAND, -5, 15}, is_less},
    {"numbers that are at least {k}",
     "at least {k}",
     "{t} >= {k}",
     {AX_CODING_OPERAND, -5, 15},
     is_at_least},
    {"numbers that are at most {k}",
     "at most {k}",
     "{t} <= {k}",
     {AX_CODING_OPERAND, -5, 15},
     is_at_most},
    {"numbers different from {k}",
     "different from {k}",
     "{t} != {k}",
     {AX_CODING_OPERAND, 0, 9},
     is_other},
    {"numbers divisible by {k}",
     "divisible by {k}",
     "{x} % {k} == 0",
     {AX_CODING_NUMBER, 3, 9},
     is_multiple},
    {"numbers not divisible by {k}",
     "not divisible by {k}",
     "{x} % {k} != 0",
     {AX_CODING_NUMBER, 3, 9},
     is_no_multiple},
};
const struct ax_coding_predicates ax_coding_of_numbers = {of_numbers, COUNT(of_numbers)};

/* ---- predicates of characters ---- */

static bool is_vowel(int64_t x, int64_t k) {
    (void)k;
    return x != '\0' && strchr("aeiou", (int)x) != NULL;
}
static bool is_no_vowel(int64_t x, int64_t k) {
    return !is_vowel(x, k);
}
static bool is_digit(int64_t x, int64_t k) {
    (void)k;
    return isdigit((int)x) != 0;
}
static bool is_no_digit(int64_t x, int64_t k) {
    return !is_digit(x, k);
}
static bool is_upper(int64_t x, int64_t k) {
    (void)k;
    return isupper((int)x) != 0;
}
static bool is_lower(int64_t x, int64_t k) {
    (void)k;
    return islower((int)x) != 0;
}
static bool is_alpha(int64_t x, int64_t k) {
    (void)k;
    return isalpha((int)x) != 0;
}

static const struct ax_coding_predicate of_letters[] = {
    {"characters in 'aeiou'", "in 'aeiou'", "{x} in 'aeiou'", .holds = is_vowel},
    {"characters not in 'aeiou'", "not in 'aeiou'", "{x} not in 'aeiou'", .holds = is_no_vowel},
    {"digits", "a digit", "{x}.isdigit()", .holds = is_digit},
    {"characters that are not digits", "no digit", "not {x}.isdigit()", .holds = is_no_digit},
    {"upper-case letters", "an upper-case letter", "{x}.isupper()", .holds = is_upper},
    {"lower-case letters", "a lower-case letter", "{x}.islower()", .holds = is_lower},
    {"letters", "a letter", "{x}.isalpha()", .holds = is_alpha},
    {"characters different from {k}",
     "different from {k}",
     "{x} != {k}",
     {AX_CODING_LETTER, 0, 0},
     is_other},
};
const struct ax_coding_predicates ax_coding_of_letters = {of_letters, COUNT(of_letters)};

/* ---- maps ---- */

static bool add(int64_t *x, int64_t k) {
    *x += k;
    return true;
}
static bool subtract(int64_t *x, int64_t k) {
    *x -= k;
    return true;
}
static bool subtract_from(int64_t *x, int64_t k) {
    *x = k - *x;
    return true;
}
static bool multiply(int64_t *x, int64_t k) {
    *x *= k;
    return true;
}
static bool divide(int64_t *x, int64_t k) {
    if (k != 0)
        *x = ax_coding_floor_div(*x, k);
    return k != 0;
}
static bool modulo(int64_t *x, int64_t k) {
    if (k != 0)
        *x = ax_coding_floor_mod(*x, k);
    return k != 0;
}
static bool larger(int64_t *x, int64_t k) {
    *x = *x > k ? *x : k;
    return true;
}
static bool smaller(int64_t *x, int64_t k) {
    *x = *x < k ? *x : k;
    return true;
}
static bool square(int64_t *x, int64_t k) {
    (void)k;
    *x *= *x;
    return true;
}
static bool negate(int64_t *x, int64_t k) {
    (void)k;
    *x = -*x;
    return true;
}
static bool absolute(int64_t *x, int64_t k) {
    (void)k;
    *x = llabs(*x);
    return true;
}
static bool distance(int64_t *x, int64_t k) {
    *x = llabs(*x - k);
    return true;
}

const struct ax_coding_map ax_coding_maps[] = {
    {"{o} plus {k}", "add {k} to {o}", "{t} + {k}", {AX_CODING_OPERAND, 1, 20}, add},
    {"{o} minus {k}", "subtract {k} from {o}", "{t} - {k}", {AX_CODING_OPERAND, 1, 20}, subtract},
    {"{k} minus {o}",
     "subtract {o} from {k}",
     "{k} - {x}",
     {AX_CODING_OPERAND, 1, 20},
     subtract_from},
    {"{o} times {k}", "multiply {o} by {k}", "{x} * {k}", {AX_CODING_OPERAND, 2, 12}, multiply},
    {"{o} divided by {k}, rounded down",
     "divide {o} by {k}, rounding down",
     "{x} // {k}",
     {AX_CODING_OPERAND, 2, 9},
     divide},
    {"{o} modulo {k}",
     "replace {o} by its remainder modulo {k}",
     "{x} % {k}",
     {AX_CODING_OPERAND, 2, 9},
     modulo},
    {"the larger of {o} and {k}",
     "replace {o} by the larger of it and {k}",
     "max({e}, {k})",
     {AX_CODING_OPERAND, -5, 15},
     larger},
    {"the smaller of {o} and {k}",
     "replace {o} by the smaller of it and {k}",
     "min({e}, {k})",
     {AX_CODING_OPERAND, -5, 15},
     smaller},
    {"the square of {o}", "square {o}", "{x} ** 2", .run = square},
    {"the negative of {o}", "change the sign of {o}", "-{x}", .run = negate},
    {"the absolute value of {o}", "replace {o} by its absolute value", "abs({e})", .run = absolute},
    {"the distance between {o} and {k}",
     "replace {o} by its distance to {k}",
     "abs({t} - {k})",
     {AX_CODING_OPERAND, 2, 15},
     distance},
};
const size_t ax_coding_n_maps = COUNT(ax_coding_maps);
