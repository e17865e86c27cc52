#include "data/reward/final_answer.h"

#include <ctype.h>
#include <string.h>

static const char mark[] = "####";

/* A line behind a mark, without surrounding blanks. */
struct line {
    const char *s;
    size_t n;
};

/* Moves *at behind the next mark that has text on its line. */
static bool next_line(const char **at, const char *end, struct line *out) {
    const char *found;
    while ((found = memmem(*at, (size_t)(end - *at), mark, sizeof mark - 1)) != NULL) {
        const char *s = found + sizeof mark - 1, *newline = memchr(s, '\n', (size_t)(end - s));
        const char *stop = newline ? newline : end;
        *at = s;
        while (s < stop && isspace((unsigned char)*s))
            s++;
        while (s < stop && isspace((unsigned char)stop[-1]))
            stop--;
        *out = (struct line){s, (size_t)(stop - s)};
        if (out->n > 0)
            return true;
    }
    return false;
}

static bool is_digit(const struct line *l, size_t i) {
    return i < l->n && isdigit((unsigned char)l->s[i]);
}

static bool starts(const struct line *l, size_t i, const char *with) {
    const size_t n = strlen(with);
    return l->n - i >= n && memcmp(l->s + i, with, n) == 0;
}

/* The signs and currencies before a number; *minus: is there a minus? */
static size_t before_number(const struct line *l, bool *minus) {
    static const char *const signs[] = {"-", "+", "$", "€", "£", "¥", "₹"};
    size_t i = 0, k = 0;
    *minus = false;
    while (k < sizeof signs / sizeof *signs) {
        if (starts(l, i, signs[k])) {
            *minus = *minus || k == 0;
            i += strlen(signs[k]);
            k = 0;
        } else {
            k++;
        }
    }
    return i;
}

/* True if what follows a number is a unit or the end of a sentence, and does not make it another value, as
 * in "1/2", "12:30", "0,5", "2x" or "3 1/2". */
static bool ends_number(const struct line *l, size_t i) {
    while (i < l->n && strchr(".%", l->s[i]))
        i++;
    if (i == l->n)
        return true;
    if (isspace((unsigned char)l->s[i])) {
        while (i < l->n && isspace((unsigned char)l->s[i]))
            i++;
        return isalpha((unsigned char)l->s[i]) || !isascii(l->s[i]) || strchr("%(=$*", l->s[i]);
    }
    if (ispunct((unsigned char)l->s[i]) && (i + 1 == l->n || isspace((unsigned char)l->s[i + 1])))
        return true;
    size_t k = i;
    for (; k < l->n && !isspace((unsigned char)l->s[k]); k++) {
        const char c = l->s[k];
        if (!isalpha((unsigned char)c) && isascii(c) && !(c == '/' && k > i) && c != '.')
            return false;
    }
    return k > i + 1 || strchr("ghlmsL", l->s[i]);
}

/* Appends the digits from s[*i] on; false if they do not fit. */
static bool copy_digits(const struct line *l, size_t *i, char *out, size_t *k) {
    for (; is_digit(l, *i); (*i)++) {
        if (*k + 1 >= AX_FINAL_ANSWER_MAX)
            return false;
        out[(*k)++] = l->s[*i];
    }
    return true;
}

/* The number that a line begins with: minus, digits and point to out. Commas are only between groups of
 * three digits. */
static bool read_number(const struct line *l, char *out, size_t *used) {
    bool minus, fits;
    size_t i = before_number(l, &minus), k = 0;
    const size_t start = i;
    if (minus)
        out[k++] = '-';
    fits = copy_digits(l, &i, out, &k);
    const bool groups = i > start && i - start <= 3, digits = i > start;
    while (fits && groups && i < l->n && l->s[i] == ',' && is_digit(l, i + 1) &&
           is_digit(l, i + 2) && is_digit(l, i + 3) && !is_digit(l, i + 4)) {
        i++;
        fits = copy_digits(l, &i, out, &k);
    }
    if (fits && i < l->n && l->s[i] == '.' && is_digit(l, i + 1)) {
        if (!digits)
            out[k++] = '0';
        out[k++] = l->s[i++];
        fits = k < AX_FINAL_ANSWER_MAX && copy_digits(l, &i, out, &k);
    }
    *used = k;
    return fits && i > start && is_digit(l, i - 1) && ends_number(l, i);
}

/* "-007.50" → "-7.5"; "-0" → "0". */
static void normalize(char *s, size_t n) {
    size_t from = s[0] == '-', lead = from;
    if (memchr(s, '.', n)) {
        while (n > 0 && s[n - 1] == '0')
            n--;
        if (s[n - 1] == '.')
            n--;
    }
    while (lead + 1 < n && s[lead] == '0' && s[lead + 1] != '.')
        lead++;
    memmove(s + from, s + lead, n - lead);
    n -= lead - from;
    s[n] = '\0';
    if (strcmp(s, "-0") == 0 || strcmp(s, "-") == 0 || n == 0)
        memcpy(s, "0", 2);
}

bool ax_final_answer(const char *text, size_t n, char out[AX_FINAL_ANSWER_MAX]) {
    const char *at = text;
    struct line line, first = {0};
    while (next_line(&at, text + n, &line)) {
        size_t used;
        first = first.n > 0 ? first : line;
        if (read_number(&line, out, &used)) {
            normalize(out, used);
            return true;
        }
    }
    if (first.n == 0 || first.n >= AX_FINAL_ANSWER_MAX)
        return false;
    memcpy(out, first.s, first.n);
    out[first.n] = '\0';
    return true;
}
