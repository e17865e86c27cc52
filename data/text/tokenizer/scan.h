/* Hand-written split rules of GPT-2, Llama 3, Qwen2, GPT-4o and Tekken, several times as fast as
 * their regular expressions.
 *
 * tests/data/test_scan.c compares each with its regular expression. In these rules, a match begins
 * at every position, so a scanner only returns where the match that begins here ends. */
#ifndef AX_DATA_TEXT_TOKENIZER_SCAN_H
#define AX_DATA_TEXT_TOKENIZER_SCAN_H

#include <stddef.h>

/* End of the match that begins at s[at], at < len; s is valid UTF-8. */
typedef size_t (*ax_scan_fn)(const unsigned char *s, size_t at, size_t len);

struct ax_scan_rule {
    const char *name, *pattern;
    ax_scan_fn scan;
};
extern const struct ax_scan_rule ax_scan_rules[];
extern const size_t ax_scan_rule_count;

/* The scanner for this regular expression, or NULL. */
ax_scan_fn ax_scan_find(const char *pattern, size_t len);

#endif
