/* Choices and regular expressions as automata. References are PCRE2 with the meaning of Python's re: random expressions
 * match the same short texts, and random texts, token by token, match; no state is without a token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/regex.h"
#include "base/text/unicode.h"
#include "tests/data/grammar_case.h"

static bool all_alone[256];

static int set_alone(void **state) {
    (void)state;
    for (int i = 0; i < 256; i++)
        all_alone[i] = true;
    return 0;
}

static struct ax_grammar *pattern_of(const char *text) {
    struct ax_grammar *g;
    if (ax_grammar_compile_pattern(&g, text, strlen(text), all_alone) != AX_OK)
        fail_msg("%s: %s", text, ax_error_text());
    return g;
}

static struct ax_regex *python_of(const char *text) {
    char whole[512];
    struct ax_regex *re;
    snprintf(whole, sizeof whole, "\\A(?:%s)\\Z", text);
    if (ax_regex_compile_python(&re, whole, strlen(whole)) != AX_OK)
        fail_msg("%s: %s", whole, ax_error_text());
    return re;
}

static bool matches(const struct ax_regex *re, const char *text, size_t n) {
    struct ax_regex_work work = {0};
    struct ax_regex_iter it = ax_regex_search(re, &work, text, n);
    size_t start, end;
    bool found;
    assert_ok(ax_regex_next(&it, &found, &start, &end));
    ax_regex_work_free(&work);
    return found;
}

/* ---- whole texts ---- */

static const struct grammar_texts texts[] = {
    {"yes|no", {"yes", "no"}, {"yess", "Y", "n0", "yno"}},
    {"^[0-9]{3}-\\d{2,4}$", {"123-45", "000-1234"}, {"1234", "123-a", "123-12345"}},
    {"(?P<year>20\\d\\d)-(?:0[1-9]|1[0-2])", {"2026-11", "2000-01"}, {"1", "2026-13", "2026-00"}},
    {"\\w+@\\w+\\.(?<top>com|org)", {"a_1@b.com", "x@y.org"}, {"@", "a@b.net", "a b"}},
    {"[^\"\\n]{2,3}\"?",
     {"ab", "ab\"", "\u00e4\u00f6\u00fc", "\U0001F600x\""},
     {"\"", "a\n", "abcd"}},
    {".*",
     {"", "a", "\u20ac\U0010FFFF\x7f"},
     {"\n", "a\n", "\xC0", "\xED\xA0", "\xF4\x90", "\xE0\x80"}},
    {"a{,2}b*?c+?", {"c", "aabbcc", "abc"}, {"aaa", "cb", "ba"}},
    {"x{}{a}{1,b", {"x{}{a}{1,b"}, {"xx", "x{}a"}},
    {"a{2}{b}{3", {"aa{b}{3"}, {"a{", "aaa"}},
    {"[]a-c-]+[^]\\w-]", {"]a-b.", "-]c "}, {"d", "]a-]a-w"}},
    {"\\x41\\u00e4\\U0001F600\\t\\.\\-", {"A\u00e4\U0001F600\t.-"}, {"a", "A\u00e5"}},
    {"[\u00e4-\u20ac]",
     {"\u00e4", "\u07ff", "\u0800", "\u20ac"},
     {"a", "\u00e3", "\u20ad", "\xC4\xC3"}},
    {"(a|b)*a(a|b){6}", {"abbbbbb", "bbaaaaaaa"}, {"c", "ab\n"}},
    {"|a", {"", "a"}, {"b", "aa"}},
    {"\\D\\W\\S", {"a b", "x.y", "\u0664\u00e4\u00df"}, {"1", "aa", "a. "}},
    {"((a?){3}b|){2}", {"", "aaab", "bb", "abaab"}, {"aaaa", "bbb", "c"}},
};

static void accepted(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ax_grammar *g = pattern_of(texts[i].source);
        check_texts(g, &texts[i]);
        ax_grammar_free(g);
    }
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *says;
    } wrong[] = {
        {"", "only the empty text matches"},
        {"a{0}", "only the empty text matches"},
        {"[^\\d\\D]", "no character is in the set (byte 7 of"},
        {"\\ud800", "no character is in the set"},
        {"(a", "a group has no end (byte 2 of"},
        {"a)b", "a group ends that has not begun (byte 1 of"},
        {"[a", "ends too early"},
        {"a\\", "ends too early"},
        {"*a", "nothing to repeat"},
        {"a**", "a repeat of a repeat"},
        {"a++", "a repeat of a repeat"},
        {"a{2}{3}", "a repeat of a repeat"},
        {"a*{,2}", "a repeat of a repeat"},
        {"a|{3}", "nothing to repeat"},
        {"({,}a)", "nothing to repeat"},
        {"a{2,1}", "the smaller one first"},
        {"a{70000}", "expected counts up to"},
        {"a^b", "^ is supported only at the ends"},
        {"(a$)b", "$ is supported only at the ends"},
        {"(?=a)", "groups that begin with (?= are not supported"},
        {"(?<!a)", "groups that begin with (?< are not supported"},
        {"(?i)a", "groups that begin with (?i are not supported"},
        {"(?P=n)", "groups that begin with (?P are not supported"},
        {"(?P<n", "a group's name has no end"},
        {"(a)\\1", "\\1 is not supported"},
        {"\\bword", "\\b is not supported"},
        {"\\p{L}", "\\p is not supported"},
        {"\\xg0", "expected 2 hexadecimal digits"},
        {"\\U00110000", "there is no such character"},
        {"[b-a]", "a range's end is less"},
        {"[a-\\d]", "a range's end is less than its beginning, or no character"},
        {"[[:alpha:]]", "[: is not supported"},
        {"(a{200}){400}", "more than 65536 parts"},
        {"((((((((((a{99}){0}){99}){0}){99}){0}){99}){0}){99}){0})", "more than 65536 parts"},
        {"(a|b)*a(a|b){20}", "too many states"},
        {".{40000}", "more than 65536 parts"},
    };
    struct ax_grammar *g;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *text = wrong[i].pattern;
        if (ax_grammar_compile_pattern(&g, text, strlen(text), all_alone) != AX_ERR_DATA ||
            !strstr(ax_error_text(), wrong[i].says))
            fail_msg("%s: %s", text, ax_error_text());
        assert_null(g);
    }
    ax_grammar_free(pattern_of(".{0,2000}")); /* this much is fine */
    struct ax_buf deep = {0};
    for (int i = 0; i < 101; i++)
        assert_ok(ax_buf_puts(&deep, "("));
    assert_int_equal(ax_grammar_compile_pattern(&g, deep.data, deep.len, all_alone), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "groups nest more than 100 deep"));
    deep.len = 0;
    for (unsigned i = 0; i < 600; i += 2)
        assert_ok(ax_buf_printf(&deep, "%s\\u%04x", i == 0 ? "[" : "", 256 + i));
    assert_ok(ax_buf_puts(&deep, "]"));
    assert_int_equal(ax_grammar_compile_pattern(&g, deep.data, deep.len, all_alone), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "a set of more than 256 ranges"));
    while (deep.len <= 1 << 14)
        assert_ok(ax_buf_puts(&deep, "a"));
    assert_int_equal(ax_grammar_compile_pattern(&g, deep.data, deep.len, all_alone), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "more than 16384 bytes"));
    ax_buf_free(&deep);
}

/* Characters of sets, by their numbers: all below U+3000, and above all around multiples of 2048, where UTF-8 changes.
 * Surrogates are none. */
static void every_character(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        uint32_t lo, hi;
        bool inverse;
    } sets[] = {{"[\u00e4-\u20ac]", 0xE4, 0x20AC, false},
                {"[^\u00e4-\\U0001f600]", 0xE4, 0x1F600, true},
                {"[\\uffff-\\U0010fffe]", 0xFFFF, 0x10FFFE, false},
                {".", '\n', '\n', true},
                {"\\d", '0', '9', false},
                {"\\D", '0', '9', true},
                {"[^\\S ]", '\t', '\r', false},
                {"[^\\S\\t-\\r]", ' ', ' ', false},
                {"[^\\W\\d_a-z]", 'A', 'Z', false},
                {"[^\\W\\d_A-Z]", 'a', 'z', false},
                {"[^\\Wa-zA-Z\\d]", '_', '_', false}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct ax_grammar *g = pattern_of(sets[i].pattern);
        for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 || (c + 64) % 0x800 < 72 ? 1 : 29) {
            const bool within = c >= sets[i].lo && c <= sets[i].hi;
            char text[4];
            if (c >= 0xD800 && c <= 0xDFFF)
                continue;
            const size_t n = ax_utf8_encode(c, text);
            if ((try_text(g, text, n) == 2) != (within != sets[i].inverse))
                fail_msg("%s: U+%04X", sets[i].pattern, c);
        }
        ax_grammar_free(g);
    }
}

/* ---- random expressions ---- */

/* Appends an expression of a, b and c. */
static void put_pattern(struct ax_buf *out, int deep) {
    static const char *const ones[] = {"a", "b", "c", ".", "[ab]", "[^a]", "a", "[b-c]"},
                             *const times[] = {"*", "+", "?", "{2}", "{1,}", "{,2}", "*?", "{0,3}"};
    const uint32_t rows = draw(5) == 0 ? 2 : 1;
    for (uint32_t r = 0; r < rows; r++) {
        assert_ok(ax_buf_puts(out, r > 0 ? "|" : ""));
        for (uint32_t i = draw(4); i-- > 0;) {
            const bool group = deep > 0 && draw(3) == 0;
            assert_ok(ax_buf_puts(out, group ? "(" : ones[draw(8)]));
            if (group) {
                put_pattern(out, deep - 1);
                assert_ok(ax_buf_puts(out, ")"));
            }
            if (draw(3) == 0)
                assert_ok(ax_buf_puts(out, times[draw(8)]));
        }
    }
}

/* All texts of up to five characters. */
static int compare(const char *pattern, const struct ax_grammar *g) {
    static const char letters[] = "abc\n";
    struct ax_regex *re = python_of(pattern);
    int matched = 0;
    for (int n = 0, all = 1; n <= 5; n++, all *= 4)
        for (int i = 0; i < all; i++) {
            char text[8];
            for (int k = 0, rest = i; k < n; k++, rest /= 4)
                text[k] = letters[rest % 4];
            const bool own = try_text(g, text, (size_t)n) == 2;
            if (own != matches(re, text, (size_t)n))
                fail_msg("%s: \"%.*s\" %s", pattern, n, text, own ? "matches" : "does not match");
            matched += own;
        }
    ax_regex_free(re);
    return matched;
}

static void like_python(void **state) {
    (void)state;
    struct ax_buf pattern = {0};
    int matched = 0, compiled = 0;
    seed = 7;
    for (int i = 0; i < 300; i++) {
        struct ax_grammar *g;
        pattern.len = 0;
        put_pattern(&pattern, 3);
        if (ax_grammar_compile_pattern(&g, pattern.data, pattern.len, all_alone) != AX_OK) {
            assert_non_null(strstr(ax_error_text(), "only the empty text"));
            continue;
        }
        matched += compare(pattern.data, g);
        compiled++;
        ax_grammar_free(g);
    }
    assert_true(compiled > 150 && matched > 5000);
    ax_buf_free(&pattern);
}

/* ---- token by token ---- */

static void token_by_token(void **state) {
    (void)state;
    static const char *const patterns[] = {
        "[^\"\\n]{2,3}\"?",         "(\\{\"ab\": (true|null),?\\})*x", "-?[0-9]+(\\.\\d{1,5})?",
        "(\u00e4x|ab|\\\\\\\\)+\"", "\\n    [a-z\u00e4-\u00fc]{,9}",   ".{1,20}"};
    struct ax_grammar_vocabulary v;
    struct ax_buf text = {0};
    int ended = 0;
    put_tokenizer();
    assert_ok(ax_grammar_vocabulary_open(&v, tokenizer, (int64_t)ax_tokenizer_size(tokenizer)));
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct ax_grammar *g = pattern_of(patterns[i]);
        struct ax_regex *re = python_of(patterns[i]);
        struct ax_grammar_masks *m;
        assert_ok(ax_grammar_masks_create(&m, g, &v));
        for (int k = 0; k < 100; k++)
            if (walk(m, g, &v, &text)) {
                if (!matches(re, text.data, text.len))
                    fail_msg("%.*s does not match %s", (int)text.len, text.data, patterns[i]);
                ended++;
                if (k < 5 && text.len > 0 && text.len < 100)
                    check_masks(m, g, &v, text.data);
            }
        ax_grammar_masks_free(m);
        ax_regex_free(re);
        ax_grammar_free(g);
    }
    assert_true(ended > 400);
    ax_buf_free(&text);
    ax_grammar_vocabulary_close(&v);
    drop_tokenizer();
}

/* Of what matches, only that is written for which there are tokens. */
static void without_tokens(void **state) {
    (void)state;
    bool alone[256];
    struct ax_grammar *g;
    for (int i = 0; i < 256; i++)
        alone[i] = i >= ' ' && i < 0x7F;
    assert_ok(ax_grammar_compile_pattern(&g, "a\\nb|c|d\u00e4?", 11, alone));
    assert_int_equal(try_text(g, "c", 1), 2);
    assert_int_equal(try_text(g, "a", 1), 0);
    assert_int_equal(try_text(g, "d\u00e4", 3), 2); /* by a token for the whole character */
    ax_grammar_free(g);
    assert_int_equal(ax_grammar_compile_pattern(&g, "a\\nb", 4, alone), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "no text that the vocabulary can write"));
    assert_int_equal(ax_grammar_compile_pattern(&g, "\u00e4b", 3, alone), AX_ERR_DATA);
    json_t *list = json_pack("[ss]", "ab", "a\u00e4");
    assert_int_equal(ax_grammar_compile_choice(&g, list, alone), AX_ERR_DATA);
    assert_string_equal(ax_error_text(),
                        "choice 1: the vocabulary has no token for the character at byte 1");
    json_decref(list);
}

/* ---- choices ---- */

static void choices(void **state) {
    (void)state;
    json_t *list = json_pack("[ssss]", "yes", "yes, please", "\u00e4\"", "yes"),
           *wrong = json_pack("[si]", "a", 1), *empty = json_pack("[s]", ""), *none = json_array();
    struct ax_grammar *g;
    assert_ok(ax_grammar_compile_choice(&g, list, all_alone));
    assert_int_equal(try_text(g, "yes", 3), 2);
    assert_int_equal(try_text(g, "yes, please", 11), 2);
    assert_int_equal(try_text(g, "\u00e4\"", 3), 2);
    assert_int_equal(try_text(g, "yes, ", 5), 1);
    assert_int_equal(try_text(g, "\"yes", 4), 0);
    assert_int_equal(try_text(g, "yes!", 4), 0);
    ax_grammar_free(g);
    assert_int_equal(ax_grammar_compile_choice(&g, wrong, all_alone), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "choice 1: expected a text, not empty");
    assert_int_equal(ax_grammar_compile_choice(&g, empty, all_alone), AX_ERR_DATA);
    assert_int_equal(ax_grammar_compile_choice(&g, none, all_alone), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "expected a list of texts");
    json_decref(list);
    json_decref(wrong);
    json_decref(empty);
    json_decref(none);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted),        cmocka_unit_test(refused),
        cmocka_unit_test(every_character), cmocka_unit_test(like_python),
        cmocka_unit_test(token_by_token),  cmocka_unit_test(without_tokens),
        cmocka_unit_test(choices),
    };
    return cmocka_run_group_tests(tests, set_alone, NULL);
}
