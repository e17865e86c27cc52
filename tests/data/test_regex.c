/* Regular expressions: the translation from Oniguruma, matching from left to right, and limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/text/regex.h"
#include "tests/data/tokenizer_case.h"

static struct ax_regex *compile(const char *pattern) {
    struct ax_regex *re = NULL;
    MUST(ax_regex_compile(&re, pattern, strlen(pattern), false));
    return re;
}

/* Matches of an expression, which it frees, in a text, joined by '|'. */
static void assert_finds(struct ax_regex *re, const char *pattern, const char *text,
                         const char *want) {
    struct ax_regex_work w = {0};
    struct ax_regex_iter it = ax_regex_search(re, &w, text, strlen(text));
    struct ax_buf got = {0};
    size_t start, end;
    bool found, first = true;
    for (;;) {
        MUST(ax_regex_next(&it, &found, &start, &end));
        if (!found)
            break;
        if (!first)
            MUST(ax_buf_puts(&got, "|"));
        MUST(ax_buf_append(&got, text + start, end - start));
        first = false;
    }
    if (strcmp(got.data != NULL ? got.data : "", want) != 0)
        fail_msg("/%s/ in \"%s\": %s, expected %s", pattern, text, got.data, want);
    ax_buf_free(&got);
    ax_regex_work_free(&w);
    ax_regex_free(re);
}

static void assert_matches(const char *pattern, const char *text, const char *want) {
    assert_finds(compile(pattern), pattern, text, want);
}

static void assert_python(const char *pattern, const char *text, const char *want) {
    struct ax_regex *re = NULL;
    MUST(ax_regex_compile_python(&re, pattern, strlen(pattern)));
    assert_finds(re, pattern, text, want);
}

static void matching(void **state) {
    (void)state;
    assert_matches("\\p{L}+", "ab1cd é", "ab|cd|é");
    assert_matches("a*", "baac", "|aa|"); /* an empty match right behind another does not count */
    assert_matches("", "ab", "||");
    assert_matches("\\s+(?!\\S)|\\s+", "a   b ", "  | | ");
    assert_matches("^b|a$", "a\nb", "a|b"); /* lines, as in Ruby */
    assert_matches("a.c", "a\nc abc", "abc");
    assert_matches("(?m:a.c)", "a\nc abc", "a\nc|abc");
    assert_matches("(?=m)\\w|s", "msi", "m|s"); /* no flag */
    assert_matches("(?i:'s)", "'s 'S '\xc5\xbf 'z", "'s|'S|'\xc5\xbf");
}

static void sets(void **state) {
    (void)state;
    assert_matches("\\h+", "0aFg", "0aF");
    assert_matches("\\H+", "0aFg", "g");
    assert_matches("[\\h-]+", "a-z", "a-");
    assert_matches("\\u0041\\u4e2d", "A中", "A中");
    assert_matches("[\\u0041-\\u0043]+", "ABCD", "ABC");
    assert_matches("\\p{^L}+", "a12b", "12");
    assert_matches("\\P{^L}+", "a12b", "a|b");
    assert_matches("\\p{Letter}+", "a1", "a");
    assert_matches("\\s", "\xe1\xa0\x8e", ""); /* U+180E is no longer a blank */
    assert_matches("\\p{L}", "\xf0\x9e\x97\x90", "\xf0\x9e\x97\x90"); /* U+1E5D0, Unicode 16 */
    assert_matches("[^\\p{L}]", "\xf0\x9e\x97\x90", "");
    assert_matches("\\p{Nd}", "\xf0\x90\xb5\x80", "\xf0\x90\xb5\x80"); /* U+10D40 */
    assert_matches("\\d+", "1\xf0\x90\xb5\x80", "1\xf0\x90\xb5\x80");
    assert_matches("\\p{Han}", "、中\xf0\xb1\x8d\x90",
                   "中|\xf0\xb1\x8d\x90"); /* script, not extensions */
    assert_matches("\\w+", "½", "½");      /* Oniguruma's word has it, */
    assert_matches("[\\w]+", "½", "");     /* but not in a class */
    assert_matches("\\w+|\\W", "a_1\xe2\x92\xb6-", "a_1\xe2\x92\xb6|-");
}

static void classes(void **state) {
    (void)state;
    assert_matches("[a-c[x-z]1]+", "axz1d", "axz1");
    assert_matches("[^a-c[x-z]]+", "axdez", "de");
    assert_matches("[\\p{L}&&[^a-c]]+", "abxyc", "xy");
    assert_matches("[\\p{L}&&[^\\p{Han}]&&[^b]]+", "ab中c", "a|c");
    assert_matches("[^\\p{L}&&[^a-c]]+", "ab1xy", "ab1");
    assert_matches("[]a]+", "a]b", "a]");
    assert_matches("[[^a]]+", "ab", "b");
    assert_matches("[[^a]b[c]]+", "abc", "bc");
    assert_matches("[!-/:-~]+", "a[\\]^ ", "a[\\]^");
    assert_matches("[^\\W\\d_]+", "ab1_c-", "ab|c");
    assert_matches("[\\P{L}x]+", "ax1b", "x1");
    assert_matches("[^\\S\\n]+", "a \t\n\xe1\xa0\x8e", " \t"); /* U+180E is no blank */
    assert_matches("[\\H\\d]+", "f1g2", "1g2");
    assert_matches("\\b\\w|\\w\\B", "ab cde", "a|c|d");
    assert_matches("\\b.", "\u00bda-\u0301", "\u00bd|-|\u0301"); /* ½ and marks are in words */
}

/* What Oniguruma finds, as the tokenizers library compiles it. */
static void quantifiers(void **state) {
    (void)state;
    assert_matches("\\p{N}{1,3}+", "123456789 12", "123456789|12"); /* not possessive */
    assert_matches("[ab]{2}+b", "aaab abb", "aab|abb");
    assert_matches("(?:é|x){1,2}+b", "éxéb", "éxéb");
    assert_matches("é{1,2}+b", "éééb", "éééb");
    assert_matches("(a)(?:b\\1){1,}+b", "ababab", "ababab");
    assert_matches("a{2}++b|a", "aaab", "a|aab");
    assert_matches("a{2}+?", "aaaaa", "aa|aa");
    assert_matches("a{2}?b", "aab ab b", "aab|b|b"); /* twice or not at all */
    assert_matches("a{2,}?", "aaaaa", "aa|aa");
    assert_matches("a{,2}b", "aaab b", "aab|b");
    assert_matches("a{,}", "aa{,}", "a{,}");
    assert_matches("\\x41{2}+b|\\x{41}{1,2}+c", "AAAAb AAAc", "AAAAb|AAAc");
    assert_matches("(a)\\1{1,2}+b|\\101{2}?B", "aaaaab B", "aaaaab|B");
    assert_matches("(?<n>a)\\k<n>{2}?b|\\cA{1}+b",
                   "aaab ab \x01\x01"
                   "b",
                   "aaab|ab|\x01\x01"
                   "b");
    assert_matches("a++b|a?+a|c*+c", "aab a", "aab"); /* these are possessive */
    assert_matches("\\v", "\n\v\f", "\v");
    assert_matches("[\\v]|\\QV\\E", "\n\vQVE", "\v|QVE");
    assert_matches("\\pL+", "aLpLLb", "pLL");
}

static void assert_literal(const char *s, const char *text, size_t want) {
    struct ax_regex *re;
    struct ax_regex_work w = {0};
    size_t n = 0, start, end;
    bool found = true;
    MUST(ax_regex_compile(&re, s, strlen(s), true));
    struct ax_regex_iter it = ax_regex_search(re, &w, text, strlen(text));
    for (; found; n += found)
        MUST(ax_regex_next(&it, &found, &start, &end));
    assert_int_equal(n, want);
    ax_regex_free(re);
}

static void literals(void **state) {
    (void)state;
    assert_literal(".", "a.b.", 2);
    assert_literal("aa", "aaaaa", 2);
    assert_literal("(", "((", 2);
    assert_literal("x", "", 0);
}

static void bad_patterns(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *part;
        enum ax_status st;
    } bad[] = {
        {"a(?=b\\K)", "\\K is not allowed", AX_ERR_DATA},
        {"(a", "missing closing parenthesis", AX_ERR_DATA},
        {"[a", "class at byte 0 is not closed", AX_ERR_DATA},
        {"a[b[c]", "is not closed", AX_ERR_DATA},
        {"*a", "quantifier", AX_ERR_DATA},
        {"\\p{NoSuchScript}", "unknown property", AX_ERR_DATA},
        {"\xff", "not UTF-8 at byte 0", AX_ERR_DATA},
        {"[[:alpha:]]", "POSIX", AX_ERR_UNSUPPORTED},
        {"\\C", "\\C", AX_ERR_DATA},
        {"a\\", "\\ at end", AX_ERR_DATA},
    };
    struct ax_regex *re;
    uint64_t live = ax_mem_live_blocks();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        MUST_FAIL(ax_regex_compile(&re, bad[i].pattern, strlen(bad[i].pattern), false), bad[i].st,
                  bad[i].part);
    MUST_FAIL(ax_regex_compile(&re, "a\0b", 3, false), AX_ERR_DATA, "NUL");
    MUST_FAIL(ax_regex_compile(&re, "", 0, true), AX_ERR_DATA, "empty");
    struct ax_buf deep = {0};
    for (int i = 0; i < 100; i++)
        MUST(ax_buf_puts(&deep, "["));
    MUST_FAIL(ax_regex_compile(&re, deep.data, deep.len, false), AX_ERR_DATA, "nested");
    deep.len = 0;
    for (int i = 0; i < 1000; i++)
        MUST(ax_buf_puts(&deep, "("));
    MUST_FAIL(ax_regex_compile(&re, deep.data, deep.len, false), AX_ERR_DATA, "groups nested");
    deep.len = 0;
    for (int i = 0; i < 70000; i++)
        MUST(ax_buf_puts(&deep, "a"));
    MUST_FAIL(ax_regex_compile(&re, deep.data, deep.len, false), AX_ERR_DATA, "at most");
    MUST_FAIL(ax_regex_compile(&re, deep.data, 65537, true), AX_ERR_DATA, "at most 65536");
    MUST(ax_regex_compile(&re, deep.data, 65536, true));
    ax_regex_free(re);
    deep.len = 0;
    MUST(ax_buf_puts(&deep, "((((((a{1,60}){1,60}){1,60}){1,60}){1,60}){1,60})"));
    MUST_FAIL(ax_regex_compile(&re, deep.data, deep.len, false), AX_ERR_DATA, "too large");
    ax_buf_free(&deep);
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* Patterns that backtrack for ever end with an error, soon. */
static void backtracking_is_bounded(void **state) {
    (void)state;
    static const char *const patterns[] = {"(a+)+b", "(a*)*b", "(a|aa)+b", "(?:a?){50}a{50}d?b",
                                           "(?:(.)*)*\\1\\1d?b$"};
    char text[12003]; /* its length counts for more than the constant part of the limit */
    struct ax_regex_work w = {0};
    int gave_up = 0;
    memset(text, 'a', sizeof text - 3);
    memcpy(text + sizeof text - 3, "cb", 3);
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        struct ax_regex *re = compile(patterns[i]);
        struct ax_regex_iter it = ax_regex_search(re, &w, text, strlen(text));
        bool found = true;
        size_t start, end;
        double t0 = ax_clock_now();
        enum ax_status st = ax_regex_next(&it, &found, &start, &end);
        if (st != AX_OK) {
            assert_int_equal(st, AX_ERR_DATA);
            assert_non_null(strstr(ax_error_text(), "too slow for this text"));
            gave_up++;
        }
        printf("%s: %.3f s%s\n", patterns[i], ax_clock_now() - t0, st != AX_OK ? ", gave up" : "");
        assert_true(ax_clock_now() - t0 < 30);
        ax_regex_free(re);
    }
    ax_regex_work_free(&w);
    assert_true(gave_up >= 3);
}

/* What Python 3.11's re.findall gives. */
static void python(void **state) {
    (void)state;
    assert_python("x*", "axb", "|x||"); /* an empty match may follow one that is not */
    assert_python("\\b\\w+\\b", "été ab_1", "été|ab_1");
    assert_python("a.c", "a\nc abc", "abc");
    assert_python("(?s)a.c", "a\nc abc", "a\nc|abc");
    assert_python("^b|a$", "a\nb", ""); /* the whole text, not lines */
    assert_python("(?m)^b|a$", "a\nb", "a|b");
    assert_python("a$", "a\n", "a");
    assert_python("a\\Z", "a\n", "");
    assert_python("\\d{,2}", "1234", "12|34|");
    assert_python("\\d{,}", "1234", "1234|");
    assert_python("[a[]+", "[a][", "[a|[");
    assert_python("[]x]+", "a]x", "]x");
    assert_python("[^]]+", "ab]", "ab");
    assert_python("\\v", "\x0b\n", "\x0b");
    assert_python("\\s+",
                  "a\x1f \xc2\xa0"
                  "b",
                  "\x1f \xc2\xa0");
    assert_python("\\S+|[^\\S]", "a\x1f\u180eb", "a|\x1f|\u180eb");
    assert_python("[\\S\\n]+|[\\sx]", "\x1e\u180e\u2028\u3000", "\x1e|\u180e|\u2028|\u3000");
    assert_python("\\u00e9|\\U0001F600", "é😀", "é|😀");
    assert_python("(?u)(?i)É", "é", "é");
    assert_python("(-?[$0-9.,]{2,})|(-?[0-9]+)", "9 $12.5 x7", "9|$12.5|7");
}

static void python_refuses(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"\\h", "Python knows no escape \\h"}, {"[a", "a class [ at byte 0 is never closed"},
        {"a\\", "a backslash at the end"},     {"(?a)\\w", "the flag (?a) is not supported"},
        {"\\u12", "\\u needs 4 hexadecimal"},  {"(", "bad regular expression: missing closing"},
    };
    const uint64_t live = ax_mem_live_blocks();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ax_regex *re;
        if (ax_regex_compile_python(&re, wrong[i][0], strlen(wrong[i][0])) == AX_OK)
            fail_msg("/%s/ compiled", wrong[i][0]);
        if (!strstr(ax_error_text(), wrong[i][1]))
            fail_msg("/%s/: %s", wrong[i][0], ax_error_text());
    }
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void long_patterns_are_shown_in_part(void **state) {
    char pattern[300], end[208];
    struct ax_regex *re;
    (void)state;
    memset(pattern, 'x', sizeof pattern);
    pattern[0] = '(';
    snprintf(end, sizeof end, "of \"%.200s\"", pattern);
    assert_int_equal(ax_regex_compile_python(&re, pattern, sizeof pattern), AX_ERR_DATA);
    const char *at = strstr(ax_error_text(), "of \"(");
    assert_non_null(at);
    assert_string_equal(at, end);
    ax_error_clear();
}

static void a_source_is_as_it_was_given(void **state) {
    (void)state;
    for (int literal = 0; literal < 2; literal++) {
        struct ax_regex *re;
        size_t len = 0;
        bool is_literal = !literal;
        MUST(ax_regex_compile(&re, "a.b", 3, literal));
        assert_string_equal(ax_regex_source(re, &len, &is_literal), "a.b");
        assert_int_equal(len, 3);
        assert_int_equal(is_literal, literal);
        ax_regex_free(re);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matching),
        cmocka_unit_test(sets),
        cmocka_unit_test(classes),
        cmocka_unit_test(quantifiers),
        cmocka_unit_test(literals),
        cmocka_unit_test(bad_patterns),
        cmocka_unit_test(backtracking_is_bounded),
        cmocka_unit_test(python),
        cmocka_unit_test(python_refuses),
        cmocka_unit_test(long_patterns_are_shown_in_part),
        cmocka_unit_test(a_source_is_as_it_was_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
