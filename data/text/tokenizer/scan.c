/* Hand-written split rules. See scan.h. */
#include "data/text/tokenizer/scan.h"

#include <string.h>

#include "base/text/unicode.h"
#include "data/text/tokenizer/split_patterns.h"

/* ---- parts of rules ---- */

/* Class of the character at s[at] and its length. */
static enum ax_char_class class_at(const unsigned char *s, size_t at, size_t *n) {
    if (s[at] < 0x80) {
        *n = 1;
        return (enum ax_char_class)ax_ascii_class[s[at]];
    }
    return ax_unicode_class(ax_utf8_decode(s + at, n));
}

/* End of the run of characters of one class that begins at `at`. */
static size_t run(const unsigned char *s, size_t at, size_t len, enum ax_char_class want) {
    size_t n;
    while (at < len && class_at(s, at, &n) == want)
        at += n;
    return at;
}

/* 's 't 're 've 'm 'll 'd at s[at] = '\'': its end, or `at`. With any_case, ſ is an s. */
static size_t contraction(const unsigned char *s, size_t at, size_t len, bool any_case) {
    size_t left = len - at;
    unsigned char a = left > 1 ? s[at + 1] : 0, b = left > 2 ? s[at + 2] : 0;
    if (any_case) {
        if (a == 0xc5 && b == 0xbf)
            return at + 3;
        a |= a >= 'A' && a <= 'Z' ? 0x20 : 0;
        b |= b >= 'A' && b <= 'Z' ? 0x20 : 0;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return at + 3;
    return at;
}

/* \s+(?!\S)|\s+ over the white space from `at` to `end`: before another character, leaves the last
 * blank, unless it is the only one. */
static size_t blanks(const unsigned char *s, size_t at, size_t end, size_t len) {
    size_t n;
    if (end == len)
        return end;
    (void)ax_utf8_decode_before(s + end, &n);
    return end - n > at ? end - n : end;
}

/* \p{N}{1,max} at a number. */
static size_t digits(const unsigned char *s, size_t at, size_t len, int max) {
    size_t n;
    while (at < len && max-- > 0 && class_at(s, at, &n) == AX_CHAR_NUMBER)
        at += n;
    return at;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ at white space. */
static size_t line_ends_or_blanks(const unsigned char *s, size_t at, size_t len) {
    size_t end = run(s, at, len, AX_CHAR_SPACE);
    for (size_t i = end; i > at; i--)
        if (s[i - 1] == '\n' || s[i - 1] == '\r')
            return i;
    return blanks(s, at, end, len);
}

/* ---- GPT-4o (also Llama 4) and Tekken ----
 *
 * They are case-sensitive: a word is capitals
 * followed by small letters, so "HTMLElement" is HTMLElement but "parseHTML" is parse, HTML.
 * Letters without case and marks count as both. */

enum { UPPER = 1, LOWER = 2 };

static unsigned case_at(const unsigned char *s, size_t at, size_t *n) {
    if (s[at] < 0x80) {
        *n = 1;
        return ax_ascii_class[s[at]] != AX_CHAR_LETTER ? 0 : s[at] >= 'a' ? LOWER : UPPER;
    }
    return ax_unicode_case(ax_utf8_decode(s + at, n));
}

/* The end of [upper]*[lower]+ at `at`, 0 for no match. If no lower-case letter follows, the
 * regular expression backtracks to the last of the upper ones that counts as both. */
static size_t small_word(const unsigned char *s, size_t at, size_t len) {
    size_t n, both_end = 0;
    unsigned c = 0;
    for (; at < len && ((c = case_at(s, at, &n)) & UPPER) != 0; at += n)
        if (c & LOWER)
            both_end = at + n;
    if (at == len || !(c & LOWER))
        return both_end;
    while (at < len && (case_at(s, at, &n) & LOWER) != 0)
        at += n;
    return at;
}

/* [upper]+[lower]* at `at`, after small_word has not matched, so the lower part is empty. */
static size_t capital_word(const unsigned char *s, size_t at, size_t len) {
    size_t n, start = at;
    while (at < len && (case_at(s, at, &n) & UPPER) != 0)
        at += n;
    return at > start ? at : 0;
}

/* The two word rules, each with and without one character before the word. */
static size_t word(const unsigned char *s, size_t at, size_t len, enum ax_char_class c, size_t n) {
    bool before = c != AX_CHAR_LETTER && c != AX_CHAR_NUMBER && s[at] != '\r' && s[at] != '\n';
    size_t end = before ? small_word(s, at + n, len) : 0;
    if (end == 0)
        end = small_word(s, at, len);
    if (end == 0 && before)
        end = capital_word(s, at + n, len);
    if (end == 0)
        end = capital_word(s, at, len);
    return end;
}

static size_t scan_cased(const unsigned char *s, size_t at, size_t len, int max_digits,
                         bool contractions) {
    size_t n, m = 0;
    enum ax_char_class c = class_at(s, at, &n);
    if (c == AX_CHAR_NUMBER)
        return digits(s, at, len, max_digits);
    size_t end = word(s, at, len, c, n);
    if (end > 0)
        return contractions && end < len && s[end] == '\'' ? contraction(s, end, len, true) : end;
    enum ax_char_class next = at + n < len ? class_at(s, at + n, &m) : AX_CHAR_SPACE;
    if (c == AX_CHAR_OTHER || (s[at] == ' ' && next == AX_CHAR_OTHER)) {
        at = run(s, at + n, len, AX_CHAR_OTHER);
        while (at < len && (s[at] == '\r' || s[at] == '\n' || s[at] == '/'))
            at++;
        return at;
    }
    return line_ends_or_blanks(s, at, len);
}

static size_t scan_gpt4o(const unsigned char *s, size_t at, size_t len) {
    return scan_cased(s, at, len, 3, true);
}

static size_t scan_tekken(const unsigned char *s, size_t at, size_t len) {
    return scan_cased(s, at, len, 1, false);
}

/* ---- the others ---- */

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
static size_t scan_gpt2(const unsigned char *s, size_t at, size_t len) {
    size_t n, next = at;
    if (s[at] == '\'') {
        size_t end = contraction(s, at, len, false);
        if (end > at)
            return end;
    }
    if (s[at] == ' ' && at + 1 < len)
        next = at + 1;
    enum ax_char_class c = class_at(s, next, &n);
    if (c != AX_CHAR_SPACE)
        return run(s, next + n, len, c);
    return blanks(s, at, run(s, at, len, AX_CHAR_SPACE), len);
}

/* (?i:'s|…|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max_digits}| ?[^\s\p{L}\p{N}]+[\r\n]*
 * |\s*[\r\n]+|\s+(?!\S)|\s+ */
static inline size_t scan_llama(const unsigned char *s, size_t at, size_t len, int max_digits) {
    size_t n, m = 0;
    if (s[at] == '\'') {
        size_t end = contraction(s, at, len, true);
        if (end > at)
            return end;
    }
    enum ax_char_class c = class_at(s, at, &n);
    if (c == AX_CHAR_LETTER)
        return run(s, at + n, len, c);
    if (c == AX_CHAR_NUMBER)
        return digits(s, at, len, max_digits);
    enum ax_char_class next = at + n < len ? class_at(s, at + n, &m) : AX_CHAR_SPACE;
    if (next == AX_CHAR_LETTER && s[at] != '\r' && s[at] != '\n')
        return run(s, at + n + m, len, next);
    if (c == AX_CHAR_OTHER || (s[at] == ' ' && next == AX_CHAR_OTHER)) {
        at = run(s, at + n, len, AX_CHAR_OTHER);
        while (at < len && (s[at] == '\r' || s[at] == '\n'))
            at++;
        return at;
    }
    return line_ends_or_blanks(s, at, len);
}

static size_t scan_llama3(const unsigned char *s, size_t at, size_t len) {
    return scan_llama(s, at, len, 3);
}

static size_t scan_qwen2(const unsigned char *s, size_t at, size_t len) {
    return scan_llama(s, at, len, 1);
}

const struct ax_scan_rule ax_scan_rules[] = {
    {"gpt2", AX_PATTERN_GPT2, scan_gpt2},       {"llama3", AX_PATTERN_LLAMA3, scan_llama3},
    {"qwen2", AX_PATTERN_QWEN2, scan_qwen2},    {"gpt4o", AX_PATTERN_GPT4O, scan_gpt4o},
    {"tekken", AX_PATTERN_TEKKEN, scan_tekken},
};
const size_t ax_scan_rule_count = sizeof ax_scan_rules / sizeof ax_scan_rules[0];

ax_scan_fn ax_scan_find(const char *pattern, size_t len) {
    for (size_t i = 0; i < ax_scan_rule_count; i++)
        if (len == strlen(ax_scan_rules[i].pattern) &&
            memcmp(pattern, ax_scan_rules[i].pattern, len) == 0)
            return ax_scan_rules[i].scan;
    return NULL;
}
