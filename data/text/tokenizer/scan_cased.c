/* Split rules of GPT-4o (also Llama 4) and Tekken, which are case-sensitive: a word is capitals
 * followed by small letters, so "HTMLElement" is HTMLElement but "parseHTML" is parse, HTML.
 * Letters without case and marks count as both. See scan.h. */
#include "data/text/tokenizer/scan_parts.h"

enum { UPPER = 1, LOWER = 2 };

static inline unsigned case_at(const unsigned char *s, size_t at, size_t *n) {
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

static inline size_t scan_cased(const unsigned char *s, size_t at, size_t len, int max_digits,
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

size_t ax_scan_gpt4o(const unsigned char *s, size_t at, size_t len) {
    return scan_cased(s, at, len, 3, true);
}

size_t ax_scan_tekken(const unsigned char *s, size_t at, size_t len) {
    return scan_cased(s, at, len, 1, false);
}
