/* Comparing what a program wrote with what was expected. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/reward/sandbox/reward.h"

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

static struct ax_bytes trim_end(struct ax_bytes b) {
    while (b.n > 0 && (is_blank(b.data[b.n - 1]) || b.data[b.n - 1] == '\n'))
        b.n--;
    return b;
}

/* Takes what is before the next line end, without the blanks before that. */
static struct ax_bytes take_line(struct ax_bytes *b) {
    const char *end = memchr(b->data, '\n', b->n);
    const size_t n = end ? (size_t)(end - b->data) : b->n;
    const struct ax_bytes line = trim_end((struct ax_bytes){b->data, n});
    const size_t used = end ? n + 1 : n;
    b->data += used;
    b->n -= used;
    return line;
}

/* Takes the next word; empty at the end. */
static struct ax_bytes take_word(struct ax_bytes *line) {
    size_t at = 0, end;
    while (at < line->n && is_blank(line->data[at]))
        at++;
    for (end = at; end < line->n && !is_blank(line->data[end]);)
        end++;
    const struct ax_bytes word = {line->data + at, end - at};
    line->data += end;
    line->n -= end;
    return word;
}

static bool equal(struct ax_bytes a, struct ax_bytes b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.data, b.data, a.n) == 0);
}

/* A decimal number, finite; no "inf", no hexadecimal. */
static bool number(struct ax_bytes word, double *x) {
    char text[64], *end;
    if (word.n == 0 || word.n >= sizeof text)
        return false;
    for (size_t i = 0; i < word.n; i++)
        if (!isdigit((unsigned char)word.data[i]) && !strchr("+-.eE", word.data[i]))
            return false;
    memcpy(text, word.data, word.n);
    text[word.n] = '\0';
    *x = strtod(text, &end);
    return *end == '\0' && isfinite(*x);
}

static bool near(struct ax_bytes a, struct ax_bytes b, double tolerance) {
    double x, y;
    if (equal(a, b))
        return true;
    return number(a, &x) && number(b, &y) && fabs(x - y) <= tolerance * fmax(1, fabs(y));
}

static bool same_line(struct ax_bytes a, struct ax_bytes b, double tolerance) {
    if (tolerance <= 0 || equal(a, b))
        return equal(a, b);
    while (a.n > 0 || b.n > 0)
        if (!near(take_word(&a), take_word(&b), tolerance))
            return false;
    return true;
}

bool ax_code_same_output(struct ax_bytes output, struct ax_bytes expected, double tolerance) {
    struct ax_bytes a = trim_end(output), b = trim_end(expected);
    while (a.n > 0 && b.n > 0)
        if (!same_line(take_line(&a), take_line(&b), tolerance))
            return false;
    return a.n == 0 && b.n == 0;
}
