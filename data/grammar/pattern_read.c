/* The text of a regular expression → parts. The language is that of Python's re for ASCII classes, as far as it
 * describes texts by what they consist of:
 *
 *   a . \. \n \t \r \f \v \xHH \uHHHH \UHHHHHHHH      characters
 *   [a-z_] [^"] \d \w \s \D \W \S                      sets
 *   ab a|b (a) (?:a) (?P<name>a) (?<name>a)            rows, choices, groups
 *   a* a+ a? a{2} a{2,} a{,3} a{2,3}                   repeats, also as a*?
 *   ^ $                                                at the ends, where they are without effect
 *
 * What is repeated is read again for each time that it may come. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fit.h"
#include "base/mem.h"
#include "base/text/unicode.h"
#include "data/grammar/pattern.h"

#define MOST_BYTES  (1 << 14)
#define MOST_NESTED 100
#define MOST_READ   (1 << 20) /* characters, those read again counted again */
#define MOST_TIMES  AX_PATTERN_PARTS
#define ENDLESS     (-1)

struct reader {
    const char *text;
    size_t n, at;
    bool whole;
    int nested;
    size_t read;
    struct ax_parts *parts;
};

static enum ax_status read_choice(struct reader *x, struct ax_piece *out);

static enum ax_status refuse(const struct reader *x, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static enum ax_status refuse(const struct reader *x, const char *fmt, ...) {
    char text[160];
    va_list ap;
    va_start(ap, fmt);
    ax_vfit(text, sizeof text, fmt, ap);
    va_end(ap);
    return ax_error(AX_ERR_DATA, "%s (byte %zu of the expression)", text, x->at);
}

/* ---- parts ---- */

static enum ax_status add_join(struct reader *x, int32_t *at) {
    return ax_parts_add(
        x->parts, (struct ax_part){AX_PART_JOIN, .next = AX_NO_PART, .other = AX_NO_PART}, at);
}

static enum ax_status add_fork(struct reader *x, int32_t next, int32_t other, int32_t *at) {
    return ax_parts_add(x->parts, (struct ax_part){AX_PART_FORK, .next = next, .other = other}, at);
}

static void link(const struct reader *x, int32_t from, int32_t to) {
    x->parts->list[from].next = to;
}

/* ---- characters ---- */

static bool at_end(const struct reader *x) {
    return x->at == x->n;
}

static bool is_next(const struct reader *x, const char *text) {
    const size_t n = strlen(text);
    return x->n - x->at >= n && memcmp(x->text + x->at, text, n) == 0;
}

static bool take(struct reader *x, const char *text) {
    const bool is = is_next(x, text);
    x->at += is ? strlen(text) : 0;
    return is;
}

static enum ax_status take_character(struct reader *x, uint32_t *c) {
    size_t n;
    if (at_end(x))
        return refuse(x, "the expression ends too early");
    if (++x->read > MOST_READ)
        return refuse(x, "the expression repeats too much");
    *c = ax_utf8_decode((const unsigned char *)x->text + x->at, &n);
    x->at += n;
    return AX_OK;
}

/* The place of a character in a list of some, or −1. */
static int place_in(const char *list, uint32_t c) {
    const char *at = c > 0 && c < 128 ? strchr(list, (int)c) : NULL;
    return at ? (int)(at - list) : -1;
}

static enum ax_status take_hex(struct reader *x, int digits, uint32_t *c) {
    uint32_t digit = 0;
    *c = 0;
    for (int i = 0; i < digits; i++) {
        AX_TRY(take_character(x, &digit));
        const int value = place_in("0123456789abcdef0123456789ABCDEF", digit);
        if (value < 0)
            return refuse(x, "expected %d hexadecimal digits", digits);
        *c = *c << 4 | (uint32_t)value % 16;
    }
    return *c <= 0x10FFFF ? AX_OK : refuse(x, "there is no such character");
}

/* Behind a backslash: adds a set, or if *single one character. */
static enum ax_status take_escape(struct reader *x, struct ax_char_set *s, bool *single,
                                  uint32_t *c) {
    static const char meant[] = "\n\t\r\f\v\a";
    *c = 0;
    AX_TRY(take_character(x, c));
    *single = false;
    if (*c < 128 && ax_char_set_add_class(s, (char)*c))
        return AX_OK;
    *single = true;
    const int control = place_in("ntrfva", *c), code = place_in("xuU", *c);
    if (code >= 0)
        return take_hex(x, 2 << code, c);
    if (control >= 0)
        *c = (unsigned char)meant[control];
    else if (*c < 128 &&
             (ax_ascii_class[*c] == AX_CHAR_LETTER || ax_ascii_class[*c] == AX_CHAR_NUMBER))
        return refuse(x, "\\%c is not supported", (char)*c);
    return AX_OK;
}

/* ---- sets ---- */

/* A character or a class within brackets. */
static enum ax_status take_member(struct reader *x, struct ax_char_set *s, bool *single,
                                  uint32_t *c) {
    *single = true;
    if (is_next(x, "[:"))
        return refuse(x, "[: is not supported; write \\[ for a bracket");
    return take(x, "\\") ? take_escape(x, s, single, c) : take_character(x, c);
}

static enum ax_status take_range(struct reader *x, struct ax_char_set *s) {
    bool single;
    uint32_t lo = 0, hi;
    if (s->n >= AX_PATTERN_RANGES)
        return refuse(x, "a set of more than %d ranges is not supported", AX_PATTERN_RANGES);
    AX_TRY(take_member(x, s, &single, &lo));
    if (!single)
        return AX_OK;
    hi = lo;
    if (is_next(x, "-") && !is_next(x, "-]")) {
        x->at++;
        AX_TRY(take_member(x, s, &single, &hi));
        if (!single || hi < lo)
            return refuse(x, "a range's end is less than its beginning, or no character");
    }
    ax_char_set_add(s, lo, hi);
    return AX_OK;
}

/* Behind the bracket. The first character may be a bracket itself. */
static enum ax_status take_set(struct reader *x, struct ax_char_set *s) {
    const bool inverse = take(x, "^");
    do
        AX_TRY(take_range(x, s));
    while (!take(x, "]"));
    if (inverse)
        ax_char_set_invert(s);
    return AX_OK;
}

/* ---- counts of repeats ---- */

struct times {
    int least, most; /* most: or ENDLESS */
};

static bool take_count(struct reader *x, int *n) {
    const size_t from = x->at;
    for (*n = 0; !at_end(x) && x->text[x->at] >= '0' && x->text[x->at] <= '9'; x->at++)
        *n = *n > MOST_TIMES ? *n : 10 * *n + (x->text[x->at] - '0');
    return x->at > from;
}

/* As Python reads braces: they are characters unless there are counts in them. */
static bool take_counts(struct reader *x, struct times *t) {
    const size_t from = x->at;
    x->at++;
    const bool begins = take_count(x, &t->least), more = take(x, ",");
    const bool ends = more && take_count(x, &t->most);
    if ((begins || more) && take(x, "}")) {
        t->most = !more ? t->least : ends ? t->most : ENDLESS;
        return true;
    }
    x->at = from;
    return false;
}

/* How often the piece before comes; false: once. */
static bool take_times(struct reader *x, struct times *t) {
    *t = (struct times){take(x, "+") ? 1 : 0, ENDLESS};
    if (t->least == 1 || take(x, "*"))
        return true;
    t->most = 1;
    return take(x, "?") || (is_next(x, "{") && take_counts(x, t));
}

/* ---- pieces ---- */

/* Behind "(". */
static enum ax_status read_group(struct reader *x, struct ax_piece *out) {
    if (x->nested == MOST_NESTED)
        return refuse(x, "groups nest more than %d deep", MOST_NESTED);
    const bool named =
        !is_next(x, "?<=") && !is_next(x, "?<!") && (take(x, "?P<") || take(x, "?<"));
    if (named) {
        const size_t left = x->n - x->at;
        const char *end = memchr(x->text + x->at, '>', left);
        if (!end)
            return refuse(x, "a group's name has no end");
        x->at = (size_t)(end - x->text) + 1;
    } else if (!take(x, "?:") && is_next(x, "?")) {
        return refuse(x, "groups that begin with (?%.1s are not supported",
                      x->at + 1 < x->n && (x->text[x->at + 1] & 0x80) == 0 ? x->text + x->at + 1
                                                                           : "");
    }
    x->nested++;
    AX_TRY(read_choice(x, out));
    x->nested--;
    return take(x, ")") ? AX_OK : refuse(x, "a group has no end");
}

/* A character, a set, or a group. */
static enum ax_status read_one(struct reader *x, struct ax_piece *out) {
    struct ax_char_set s = {.n = 0};
    bool single = true;
    uint32_t c = 0;
    struct times none;
    if (take_times(x, &none))
        return refuse(x, "there is nothing to repeat");
    if (take(x, "("))
        return read_group(x, out);
    AX_TRY(take_character(x, &c));
    if (c == '^' || c == '$')
        return refuse(x, "%c is supported only at the ends of the expression", (char)c);
    if (c == '.') {
        single = false;
        ax_char_set_add(&s, '\n', '\n');
        ax_char_set_invert(&s);
    } else if (c == '[') {
        single = false;
        AX_TRY(take_set(x, &s));
    } else if (c == '\\') {
        AX_TRY(take_escape(x, &s, &single, &c));
    }
    if (single)
        ax_char_set_add(&s, c, c);
    *out = (struct ax_piece){AX_NO_PART, AX_NO_PART};
    AX_TRY(ax_char_set_parts(&s, x->parts, out));
    return out->first != AX_NO_PART ? AX_OK : refuse(x, "no character is in the set");
}

/* ---- repeats ---- */

/* `one` has been read from `from`. */
static enum ax_status repeat(struct reader *x, size_t from, struct ax_piece one, struct times t,
                             struct ax_piece *out) {
    const size_t behind = x->at;
    const int times = t.most != ENDLESS ? t.most : t.least > 0 ? t.least : 1;
    int32_t fork;
    AX_TRY(add_join(x, &out->first));
    AX_TRY(add_join(x, &out->last));
    int32_t last = out->first;
    for (int i = 0; i < times; i++) {
        x->at = from;
        if (i > 0)
            AX_TRY(read_one(x, &one));
        fork = one.first;
        if (i >= t.least)
            AX_TRY(add_fork(x, one.first, out->last, &fork));
        link(x, last, fork);
        last = one.last;
    }
    fork = out->last;
    if (t.most == ENDLESS)
        AX_TRY(add_fork(x, one.first, out->last, &fork));
    link(x, last, fork);
    x->at = behind;
    return AX_OK;
}

static enum ax_status read_repeated(struct reader *x, struct ax_piece *out) {
    const size_t from = x->at;
    struct ax_piece one;
    struct times t, again;
    AX_TRY(read_one(x, &one));
    *out = one;
    if (!take_times(x, &t))
        return AX_OK;
    if (t.least > MOST_TIMES || t.most > MOST_TIMES || (t.most != ENDLESS && t.most < t.least))
        return refuse(x, "expected counts up to %d, the smaller one first", MOST_TIMES);
    (void)take(x, "?"); /* whichever is preferred, the texts are the same */
    if (take_times(x, &again))
        return refuse(x, "a repeat of a repeat is not supported; put a group around it");
    return repeat(x, from, one, t, out);
}

/* ---- rows and choices ---- */

/* *anchored: by a $ that is taken. */
static bool ends_row(struct reader *x, bool *anchored) {
    const size_t at = x->at;
    *anchored = x->nested == 0 && take(x, "$");
    const bool ends = at_end(x) || is_next(x, "|") || (!*anchored && is_next(x, ")"));
    if (!ends)
        x->at = at;
    return ends;
}

/* Any characters, as many as there are. */
static enum ax_status add_anything(struct reader *x, struct ax_piece *out) {
    struct ax_char_set none = {0};
    struct ax_piece one;
    int32_t fork;
    ax_char_set_invert(&none);
    AX_TRY(ax_char_set_parts(&none, x->parts, &one));
    AX_TRY(add_join(x, &out->last));
    AX_TRY(add_fork(x, one.first, out->last, &fork));
    AX_TRY(add_join(x, &out->first));
    link(x, out->first, fork);
    link(x, one.last, fork);
    return AX_OK;
}

static void append(const struct reader *x, struct ax_piece *row, struct ax_piece next) {
    link(x, row->last, next.first);
    row->last = next.last;
}

static enum ax_status read_row(struct reader *x, struct ax_piece *out) {
    const bool within = x->nested == 0 && !x->whole, begins = x->nested == 0 && take(x, "^");
    struct ax_piece one;
    bool ends;
    AX_TRY(add_join(x, &out->first));
    out->last = out->first;
    if (within && !begins) {
        AX_TRY(add_anything(x, &one));
        append(x, out, one);
    }
    while (!ends_row(x, &ends)) {
        AX_TRY(read_repeated(x, &one));
        append(x, out, one);
    }
    if (within && !ends) {
        AX_TRY(add_anything(x, &one));
        append(x, out, one);
    }
    return AX_OK;
}

static enum ax_status read_choice(struct reader *x, struct ax_piece *out) {
    struct ax_piece row;
    AX_TRY(read_row(x, out));
    while (take(x, "|")) {
        int32_t last;
        AX_TRY(read_row(x, &row));
        AX_TRY(add_join(x, &last));
        link(x, row.last, last);
        link(x, out->last, last);
        AX_TRY(add_fork(x, out->first, row.first, &out->first));
        out->last = last;
    }
    return AX_OK;
}

enum ax_status ax_pattern_read(struct ax_parts *p, const char *text, size_t n, bool whole,
                               int32_t *first) {
    struct reader x = {.text = text, .n = n, .whole = whole, .parts = p};
    struct ax_piece all;
    int32_t end;
    if (n > MOST_BYTES)
        return ax_error(AX_ERR_DATA, "the expression has more than %d bytes", MOST_BYTES);
    AX_TRY(read_choice(&x, &all));
    if (!at_end(&x))
        return refuse(&x, "a group ends that has not begun");
    AX_TRY(ax_parts_add(p, (struct ax_part){AX_PART_END, .next = AX_NO_PART, .other = AX_NO_PART},
                        &end));
    link(&x, all.last, end);
    *first = all.first;
    return AX_OK;
}
