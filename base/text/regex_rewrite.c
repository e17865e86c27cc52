/* Oniguruma's (Ruby) regular expression syntax → PCRE2's. See regex.h.
 *
 * What differs and matters in tokenizers:
 *   \s \d \w \h \p{…}  sets with another meaning or Unicode version: spelled out
 *   \p{Han}            the script for Oniguruma, the script extensions for PCRE2
 *   [a[bc]] [a&&b]     unions and intersections of classes: alternatives and look-aheads
 *   [^\W\d]            complements within a class: alternatives
 *   \b \B              by Oniguruma's word characters: look-arounds
 *   (?m:…)             makes the dot match line ends: (?s:…)
 *   {,n}               {0,n}
 *   x{1,3}+ x{2}?      a quantifier of the quantified, where PCRE2 has a possessive and a lazy one: (?:x{1,3})+
 *   \uHHHH \v          \x{HHHH} \x0b
 *   \Q \E \V \pL       letters
 * POSIX classes ([:alpha:]), whose sets also differ, are rejected. */
#include <stdint.h>
#include <string.h>

#include "base/text/regex.h"
#include "base/text/unicode_tables.h"

enum { MAX_NESTING = 50, MAX_GROUPS = 250 /* open ones, as in PCRE2 */ };

struct reader {
    const char *s;
    size_t len, at;
    int depth;
};

static bool looking_at(const struct reader *r, const char *text) {
    size_t n = strlen(text);
    return r->len - r->at >= n && memcmp(r->s + r->at, text, n) == 0;
}

/* --- sets, as written inside brackets --- */

/* Code points of a general category ("L", "Lu") that PCRE2 10.42 does not know. */
static enum ax_status add_newer(struct ax_buf *out, const char *category, size_t len) {
    for (size_t i = 0; i < ax_unicode_newer_count; i++) {
        const struct ax_code_category *c = &ax_unicode_newer[i];
        if (memcmp(c->category, category, len) == 0)
            AX_TRY(ax_buf_printf(out, "\\x{%x}-\\x{%x}", c->first, c->last));
    }
    return AX_OK;
}

static const struct {
    const char *name;
    const char *category;
} long_names[] = {{"Letter", "L"}, {"Mark", "M"},   {"Number", "N"},   {"Punctuation", "P"},
                  {"Punct", "P"},  {"Symbol", "S"}, {"Separator", "Z"}};

/* \p{name}, where name does not start with ^. */
static enum ax_status add_property(struct ax_buf *out, const char *name, size_t len) {
    for (size_t i = 0; i < sizeof long_names / sizeof long_names[0]; i++) {
        if (len == strlen(long_names[i].name) && memcmp(name, long_names[i].name, len) == 0) {
            name = long_names[i].category;
            len = 1;
        }
    }
    if (len <= 2) {
        AX_TRY(ax_buf_printf(out, "\\p{%.*s}", (int)len, name));
        return add_newer(out, name, len);
    }
    static const char *const binary[] = {"Any",       "Alphabetic",  "Lowercase",
                                         "Uppercase", "White_Space", "Emoji"};
    for (size_t i = 0; i < sizeof binary / sizeof binary[0]; i++)
        if (len == strlen(binary[i]) && memcmp(name, binary[i], len) == 0)
            return ax_buf_printf(out, "\\p{%s}", binary[i]);
    AX_TRY(ax_buf_printf(out, "\\p{sc:%.*s}", (int)len, name));
    if (len == 3 && memcmp(name, "Han", 3) == 0) /* extensions H and I */
        AX_TRY(ax_buf_puts(out, "\\x{31350}-\\x{323af}\\x{2ebf0}-\\x{2ee5d}"));
    return AX_OK;
}

/* The sets of \s, \d, \w and \h. */
static enum ax_status add_shorthand(struct ax_buf *out, char letter) {
    switch (letter) {
    case 's':
        return ax_buf_puts(out, "\\t-\\r\\x20\\x{85}\\p{Z}");
    case 'd':
        return add_property(out, "Nd", 2);
    case 'h':
        return ax_buf_puts(out, "0-9a-fA-F");
    default:
        AX_TRY(add_property(out, "L", 1));
        AX_TRY(add_property(out, "M", 1));
        AX_TRY(add_property(out, "Nd", 2));
        AX_TRY(add_property(out, "Nl", 2));
        AX_TRY(add_property(out, "Pc", 2));
        return ax_buf_puts(out, "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"
                                "\\x{1f170}-\\x{1f189}");
    }
}

/* --- escapes --- */

/* A set written as an escape: \p{name}, or one of the shorthands. */
struct set {
    const char *name; /* NULL: a shorthand */
    size_t len;
    char letter; /* s, d, w or h */
    bool negated;
};

/* Reads \p{…}, \P{…}, \p{^…}, \s, \S, … at r; false if something else is there. */
static bool read_set(struct reader *r, struct set *set) {
    if (r->len - r->at < 2 || r->s[r->at] != '\\')
        return false;
    const char c = r->s[r->at + 1], *at = c != '\0' ? strchr("sdwhSDWH", c) : NULL;
    if (at != NULL) {
        bool negated = c < 'a';
        *set = (struct set){.letter = negated ? (char)(c + 'a' - 'A') : c, .negated = negated};
        r->at += 2;
        return true;
    }
    if (!looking_at(r, "\\p{") && !looking_at(r, "\\P{"))
        return false;
    const char *s = r->s + r->at + 3, *close = memchr(s, '}', r->len - r->at - 3);
    if (close == NULL)
        return false;
    bool complement = *s == '^';
    s += complement;
    *set = (struct set){.name = s, .len = (size_t)(close - s), .negated = (c == 'P') != complement};
    r->at = (size_t)(close - r->s) + 1;
    return true;
}

static enum ax_status add_items(struct ax_buf *out, const struct set *set) {
    return set->name != NULL ? add_property(out, set->name, set->len)
                             : add_shorthand(out, set->letter);
}

/* Oniguruma's word characters outside classes: with Latin-1's fractions and exponents. */
static enum ax_status add_word(struct ax_buf *out, const char *open) {
    AX_TRY(ax_buf_puts(out, open));
    AX_TRY(add_shorthand(out, 'w'));
    return ax_buf_puts(out, "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}]");
}

/* A set as a separate class; `outside` of brackets. */
static enum ax_status add_set(struct ax_buf *out, const struct set *set, bool outside) {
    if (outside && set->letter == 'w')
        return add_word(out, set->negated ? "[^" : "[");
    AX_TRY(ax_buf_puts(out, set->negated ? "[^" : "["));
    AX_TRY(add_items(out, set));
    return ax_buf_puts(out, "]");
}

/* \b and \B: word characters on one side only, or not. */
static enum ax_status add_boundary(struct ax_buf *out, bool boundary) {
    AX_TRY(add_word(out, "(?:(?<=["));
    AX_TRY(add_word(out, boundary ? ")(?![" : ")(?=["));
    AX_TRY(add_word(out, ")|(?<!["));
    AX_TRY(add_word(out, boundary ? ")(?=[" : ")(?!["));
    return ax_buf_puts(out, "))");
}

/* \uHHHH */
static bool read_unicode(struct reader *r, unsigned *cp) {
    if (!looking_at(r, "\\u") || r->len - r->at < 6)
        return false;
    *cp = 0;
    for (size_t i = 2; i < 6; i++) {
        char c = r->s[r->at + i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return false;
        *cp = *cp * 16 + (unsigned)digit;
    }
    r->at += 6;
    return true;
}

/* Length of the escape at r: \x41, \x{41}, \12, \cA, \k<name>, or two characters. */
static size_t escape_length(const struct reader *r) {
    const size_t left = r->len - r->at;
    const char *s = r->s + r->at;
    size_t n = 2;
    if (left < 3)
        return left;
    if ((s[2] == '{' || s[2] == '<') && strchr("gkox", s[1]) != NULL) {
        const char *close = memchr(s, s[2] == '{' ? '}' : '>', left);
        return close != NULL ? (size_t)(close - s) + 1 : n;
    }
    const char *digits = s[1] == 'x' ? "0123456789abcdefABCDEF" : "0123456789";
    const bool number = s[1] == 'x' || (s[1] >= '0' && s[1] <= '9');
    const size_t most = number ? 4 : s[1] == 'c' ? 3 : 2;
    while (n < most && n < left && (!number || strchr(digits, s[n]) != NULL))
        n++;
    return n;
}

/* An escape that is not a set, as written inside and outside classes. */
static enum ax_status add_escape(struct ax_buf *out, struct reader *r) {
    unsigned cp;
    if (read_unicode(r, &cp))
        return ax_buf_printf(out, "\\x{%x}", cp);
    const size_t n = escape_length(r);
    const char *s = r->s + r->at, letter = n > 1 ? s[1] : '\0';
    const bool braced = looking_at(r, "\\p{") || looking_at(r, "\\P{"); /* not closed */
    r->at += n;
    if (letter == 'v')
        return ax_buf_puts(out, "\\x0b");
    const bool plain = letter != '\0' && strchr("QEVpP", letter) != NULL && !braced;
    return ax_buf_append(out, s + plain, n - plain);
}

/* --- classes --- */

static enum ax_status add_class(struct ax_buf *out, struct reader *r);

/* A complement is a separate alternative, since PCRE2's sets of these names differ; its \S lacks
 * only one character. */
static enum ax_status add_set_to_class(struct ax_buf *items, struct ax_buf *others,
                                       const struct set *set) {
    if (!set->negated)
        return add_items(items, set);
    if (set->letter == 's')
        return ax_buf_puts(items, "\\S\\x{180e}");
    if (others->len > 0)
        AX_TRY(ax_buf_puts(others, "|"));
    return add_set(others, set, false);
}

/* Reads up to && or the closing bracket: single items, and nested classes joined by |. */
static enum ax_status read_operand(struct reader *r, struct ax_buf *items, struct ax_buf *others) {
    bool first = true;
    struct set set;
    for (; r->at < r->len && (first || r->s[r->at] != ']') && !looking_at(r, "&&"); first = false) {
        if (read_set(r, &set)) {
            AX_TRY(add_set_to_class(items, others, &set));
        } else if (r->s[r->at] == '\\') {
            AX_TRY(add_escape(items, r));
        } else if (looking_at(r, "[:")) {
            return ax_error(AX_ERR_UNSUPPORTED,
                            "regular expression: POSIX classes (at byte %zu) are not supported",
                            r->at);
        } else if (r->s[r->at] == '[') {
            if (others->len > 0)
                AX_TRY(ax_buf_puts(others, "|"));
            AX_TRY(add_class(others, r));
        } else {
            if (r->s[r->at] == ']')
                AX_TRY(ax_buf_puts(items, "\\"));
            AX_TRY(ax_buf_append(items, r->s + r->at++, 1));
        }
    }
    return AX_OK;
}

static enum ax_status add_operand(struct ax_buf *out, const struct ax_buf *items,
                                  const struct ax_buf *others) {
    if (others->len == 0)
        return ax_buf_printf(out, "[%s]", items->len > 0 ? items->data : "");
    if (items->len == 0)
        return ax_buf_printf(out, "(?:%s)", others->data);
    return ax_buf_printf(out, "(?:[%s]|%s)", items->data, others->data);
}

/* A bracketed class at r. */
static enum ax_status add_class(struct ax_buf *out, struct reader *r) {
    struct ax_buf items = {0}, others = {0}, whole = {0};
    enum ax_status st;
    size_t begin = r->at++;
    bool negated = r->at < r->len && r->s[r->at] == '^';
    r->at += negated;
    if (++r->depth > MAX_NESTING) {
        st = ax_error(AX_ERR_DATA, "bad regular expression: classes nested more than %d deep",
                      MAX_NESTING);
        goto done;
    }
    for (bool last = false; !last; r->at += last ? 0 : 2) {
        items.len = others.len = 0;
        AX_TRY_GOTO(read_operand(r, &items, &others), st, done);
        last = !looking_at(r, "&&");
        if (last && whole.len == 0 && others.len == 0)
            break;
        AX_TRY_GOTO(ax_buf_puts(&whole, last ? "" : "(?="), st, done);
        AX_TRY_GOTO(add_operand(&whole, &items, &others), st, done);
        AX_TRY_GOTO(ax_buf_puts(&whole, last ? "" : ")"), st, done);
    }
    if (r->at >= r->len) {
        st = ax_error(AX_ERR_DATA, "bad regular expression: the class at byte %zu is not closed",
                      begin);
        goto done;
    }
    r->at++;
    r->depth--;
    if (whole.len == 0)
        st = ax_buf_printf(out, "[%s%s]", negated ? "^" : "", items.len > 0 ? items.data : "");
    else
        st = ax_buf_printf(out, negated ? "(?:(?!%s)(?s:.))" : "(?:%s)", whole.data);
done:
    ax_buf_free(&items);
    ax_buf_free(&others);
    ax_buf_free(&whole);
    return st;
}

/* (?imx-imx: or (?imx-imx) at r: Ruby's m is PCRE2's s. */
static enum ax_status add_group(struct ax_buf *out, struct reader *r) {
    AX_TRY(ax_buf_puts(out, "(?"));
    r->at += 2;
    size_t n = 0;
    while (r->at + n < r->len && strchr("imx-", r->s[r->at + n]) != NULL)
        n++;
    char end = r->at + n < r->len ? r->s[r->at + n] : '\0';
    bool flags = end == ':' || end == ')';
    for (size_t i = 0; i < n; i++, r->at++)
        AX_TRY(ax_buf_append(out, flags && r->s[r->at] == 'm' ? "s" : r->s + r->at, 1));
    return AX_OK;
}

/* --- quantifiers --- */

#define NO_ITEM SIZE_MAX

/* Where in the output items begin that a quantifier may be for: the last one, and groups that are open. */
struct items {
    size_t last;
    size_t open[MAX_GROUPS];
    int n_open;
};

static enum ax_status open_group(struct items *items, size_t at) {
    if (items->n_open == MAX_GROUPS)
        return ax_error(AX_ERR_DATA, "bad regular expression: groups nested more than %d deep",
                        MAX_GROUPS);
    items->open[items->n_open++] = at;
    items->last = NO_ITEM;
    return AX_OK;
}

static size_t digits_at(const struct reader *r, size_t at) {
    size_t n = 0;
    while (at + n < r->len && r->s[at + n] >= '0' && r->s[at + n] <= '9')
        n++;
    return n;
}

/* Length of {n}, {n,}, {n,m} or {,m} at r; 0 if something else is there. *fixed: {n} */
static size_t interval_at(const struct reader *r, bool *fixed) {
    size_t at = r->at + 1;
    const size_t low = digits_at(r, at);
    at += low;
    *fixed = at < r->len && r->s[at] == '}';
    if (*fixed)
        return low > 0 ? at + 1 - r->at : 0;
    if (at == r->len || r->s[at] != ',')
        return 0;
    const size_t high = digits_at(r, ++at);
    at += high;
    return low + high > 0 && at < r->len && r->s[at] == '}' ? at + 1 - r->at : 0;
}

/* Makes what begins at `item` a group. */
static enum ax_status enclose(struct ax_buf *out, size_t item) {
    static const char open[] = "(?:";
    const size_t n = sizeof open - 1, len = out->len - item;
    AX_TRY(ax_buf_puts(out, "(?:)"));
    memmove(out->data + item + n, out->data + item, len);
    memcpy(out->data + item, open, n);
    return AX_OK;
}

/* An interval of `n` bytes. The + of {n,m}+ and the ? of {n}? are quantifiers of their own. */
static enum ax_status add_interval(struct ax_buf *out, struct reader *r, size_t item, size_t n,
                                   bool fixed) {
    const char *s = r->s + r->at + 1;
    AX_TRY(ax_buf_printf(out, *s == ',' ? "{0%.*s" : "{%.*s", (int)n - 1, s));
    r->at += n;
    return looking_at(r, "+") || (fixed && looking_at(r, "?")) ? enclose(out, item) : AX_OK;
}

/* --- the pattern --- */

/* A character outside of classes that begins neither a set, an escape nor a class. */
static enum ax_status add_character(struct ax_buf *out, struct reader *r, struct items *items) {
    const char c = r->s[r->at];
    bool fixed;
    const size_t interval = c == '{' && items->last != NO_ITEM ? interval_at(r, &fixed) : 0;
    if (interval > 0)
        return add_interval(out, r, items->last, interval, fixed);
    if (c == '(')
        AX_TRY(open_group(items, out->len));
    else if (c == ')')
        items->last = items->n_open > 0 ? items->open[--items->n_open] : NO_ITEM;
    else if (c == '|')
        items->last = NO_ITEM;
    else if (strchr("*+?", c) == NULL && (c & 0xc0) != 0x80) /* the first byte of a character */
        items->last = out->len;
    return looking_at(r, "(?") ? add_group(out, r) : ax_buf_append(out, r->s + r->at++, 1);
}

enum ax_status ax_regex_rewrite(struct ax_buf *out, const char *pattern, size_t len) {
    struct reader r = {pattern, len, 0, 0};
    struct items items = {.last = NO_ITEM};
    struct set set;
    while (r.at < r.len) {
        const size_t begin = out->len;
        if (read_set(&r, &set)) {
            AX_TRY(add_set(out, &set, true));
        } else if (looking_at(&r, "\\b") || looking_at(&r, "\\B")) {
            AX_TRY(add_boundary(out, r.s[r.at + 1] == 'b'));
            r.at += 2;
        } else if (r.s[r.at] == '\\') {
            AX_TRY(add_escape(out, &r));
        } else if (r.s[r.at] == '[') {
            AX_TRY(add_class(out, &r));
        } else {
            AX_TRY(add_character(out, &r, &items));
            continue;
        }
        items.last = begin;
    }
    return AX_OK;
}
