/* A regular expression up to the first NUL, and bytes that choose a walk through its automaton: no state is without a
 * next byte, where the walk may end the text matches by PCRE2, and a mask has the tokens that a step takes. */
#include "base/text/regex.h"
#include "base/text/unicode.h"
#include "tests/fuzz/grammar_walk.h"

/* Classes are ASCII's here, and Unicode's there. */
static bool is_same_there(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((text[i] & 0x80) != 0 || (text[i] >= 0x1C && text[i] <= 0x1F))
            return false;
    return true;
}

/* NULL: PCRE2 takes less, such as the counts of its repeats. */
static struct ax_regex *compile_there(const char *pattern, size_t n) {
    struct ax_buf whole = {0};
    struct ax_regex *re = NULL;
    AX_ASSERT(ax_buf_puts(&whole, "\\A(?:") == AX_OK);
    AX_ASSERT(ax_buf_append(&whole, pattern, n) == AX_OK);
    AX_ASSERT(ax_buf_puts(&whole, ")\\Z") == AX_OK);
    if (ax_regex_compile_python(&re, whole.data, whole.len) != AX_OK)
        ax_error_clear();
    ax_buf_free(&whole);
    return re;
}

static void check_text(const void *ctx, const char *text, size_t n) {
    const struct ax_regex *re = ctx;
    struct ax_regex_work work = {0};
    if (re && is_same_there(text, n)) {
        struct ax_regex_iter it = ax_regex_search(re, &work, text, n);
        size_t start, end;
        bool found;
        if (ax_regex_next(&it, &found, &start, &end) == AX_OK)
            AX_ASSERT(found);
    }
    ax_regex_work_free(&work);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *s = (const char *)data, *nul = size > 0 ? memchr(s, '\0', size) : NULL;
    const size_t len = nul ? (size_t)(nul - s) : size;
    struct ax_grammar *g;
    open_vocabulary();
    if (ax_utf8_check(s, len) != len)
        return 0;
    const enum ax_status st = ax_grammar_compile_pattern(&g, s, len, vocabulary.alone);
    AX_ASSERT(st == AX_OK || st == AX_ERR_DATA || st == AX_ERR_NOMEM);
    if (st != AX_OK)
        return 0;
    struct ax_regex *re = compile_there(s, len);
    walk(g, data + len, size - len, &(struct walk_check){1, check_text, re});
    ax_regex_free(re);
    ax_grammar_free(g);
    return 0;
}
