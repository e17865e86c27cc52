/* A regular expression up to the first NUL, and bytes that choose a walk through its automaton: no state is without a
 * next byte, where the walk may end the text matches by PCRE2, and a mask has the tokens that a step takes. */
#include <string.h>

#include "base/text/regex.h"
#include "base/text/unicode.h"
#include "data/grammar/mask.h"
#include "tests/fuzz/byte_tokenizer.h"

#define MOST_STEPS 100

static struct ax_grammar_vocabulary vocabulary;

/* The token of one byte that comes `at` after another one in a circle, of those that may come. */
static int choose(const uint64_t *bits, unsigned char at) {
    for (int i = 0; i < 256; i++) {
        const int id = (at + i) % 256;
        if (bits[id / 64] >> (id % 64) & 1)
            return id;
    }
    return -1;
}

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

static void check_text(const struct ax_regex *re, const char *text, size_t n) {
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

static void walk(const struct ax_grammar *g, struct ax_grammar_masks *m, const struct ax_regex *re,
                 const uint8_t *path, size_t n) {
    struct ax_grammar_state s = {0}, next = {0};
    char text[MOST_STEPS];
    AX_ASSERT(ax_grammar_begin(g, &s) == AX_OK && s.n == 1);
    for (size_t i = 0; i < n && i < MOST_STEPS && !ax_grammar_must_end(&s); i++) {
        const uint64_t *bits;
        AX_ASSERT(ax_grammar_mask(m, &s, &bits) == AX_OK);
        const int byte = choose(bits, path[i]);
        AX_ASSERT(byte >= 0);
        AX_ASSERT(ax_grammar_step(g, &s, (unsigned char)byte, &next) == AX_OK && next.n == 1);
        const struct ax_grammar_state old = s;
        s = next;
        next = old;
        text[i] = (char)byte;
        if (ax_grammar_may_end(g, &s))
            check_text(re, text, i + 1);
    }
    ax_grammar_state_free(&s);
    ax_grammar_state_free(&next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *s = (const char *)data, *nul = size > 0 ? memchr(s, '\0', size) : NULL;
    const size_t len = nul ? (size_t)(nul - s) : size;
    struct ax_grammar_masks *m;
    struct ax_grammar *g;
    if (!tokenizer) {
        make_tokenizer("{{ messages }}");
        AX_ASSERT(ax_grammar_vocabulary_open(&vocabulary, tokenizer, 258) == AX_OK);
    }
    if (ax_utf8_check(s, len) != len)
        return 0;
    const enum ax_status st = ax_grammar_compile_pattern(&g, s, len, vocabulary.alone);
    AX_ASSERT(st == AX_OK || st == AX_ERR_DATA || st == AX_ERR_NOMEM);
    if (st != AX_OK)
        return 0;
    struct ax_regex *re = compile_there(s, len);
    AX_ASSERT(ax_grammar_masks_create(&m, g, &vocabulary) == AX_OK);
    walk(g, m, re, data + len, size - len);
    ax_grammar_masks_free(m);
    ax_regex_free(re);
    ax_grammar_free(g);
    return 0;
}
