/* Hand-written split rules. See scan.h. */
#include "data/text/tokenizer/scan.h"

#include <string.h>

#include "data/text/tokenizer/scan_parts.h"
#include "data/text/tokenizer/split_patterns.h"

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
    {"gpt2", AX_PATTERN_GPT2, scan_gpt2},          {"llama3", AX_PATTERN_LLAMA3, scan_llama3},
    {"qwen2", AX_PATTERN_QWEN2, scan_qwen2},       {"gpt4o", AX_PATTERN_GPT4O, ax_scan_gpt4o},
    {"tekken", AX_PATTERN_TEKKEN, ax_scan_tekken},
};
const size_t ax_scan_rule_count = sizeof ax_scan_rules / sizeof ax_scan_rules[0];

ax_scan_fn ax_scan_find(const char *pattern, size_t len) {
    for (size_t i = 0; i < ax_scan_rule_count; i++)
        if (len == strlen(ax_scan_rules[i].pattern) &&
            memcmp(pattern, ax_scan_rules[i].pattern, len) == 0)
            return ax_scan_rules[i].scan;
    return NULL;
}
