/* The hand-written split rules against the regular expressions that they stand for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/text/regex.h"
#include "data/text/tokenizer/pretokenize.h"
#include "tests/data/random_text.h"
#include "tests/data/tokenizer_case.h"

enum { TEXTS = 20000 };

static void assert_same_splits(const struct ax_scan_rule *rule, const struct ax_regex *re,
                               struct ax_regex_work *w, const char *s, size_t len) {
    struct ax_regex_iter it = ax_regex_search(re, w, s, len);
    size_t at = 0, start, end;
    bool found;
    for (;;) {
        MUST(ax_regex_next(&it, &found, &start, &end));
        if (!found)
            break;
        size_t scanned = rule->scan((const unsigned char *)s, at, len);
        if (start != at || end != scanned)
            fail_msg("%s: at %zu of \"%s\" the regex matches %zu–%zu, the scanner up to %zu",
                     rule->name, at, s, start, end, scanned);
        at = end;
    }
    assert_int_equal(at, len);
}

static void scanners_equal_their_regexes(void **state) {
    (void)state;
    for (size_t i = 0; i < ax_scan_rule_count; i++) {
        const struct ax_scan_rule *rule = &ax_scan_rules[i];
        struct ax_regex *re;
        struct ax_regex_work w = {0};
        struct text_rng r = {.key = {.seed = 7, .step = (uint32_t)i}};
        char text[512];
        MUST(ax_regex_compile(&re, rule->pattern, strlen(rule->pattern), false));
        for (int k = 0; k < TEXTS; k++) {
            size_t len = random_text(&r, text, sizeof text);
            if (len > 0)
                assert_same_splits(rule, re, &w, text, len);
        }
        ax_regex_work_free(&w);
        ax_regex_free(re);
    }
    printf("%zu rules, %d texts each\n", ax_scan_rule_count, TEXTS);
}

/* Each code point between letters, digits, blanks and punctuation: its class. */
static void every_code_point(void **state) {
    (void)state;
    struct ax_regex_work w = {0};
    for (size_t i = 0; i < ax_scan_rule_count; i++) {
        const struct ax_scan_rule *rule = &ax_scan_rules[i];
        struct ax_regex *re;
        MUST(ax_regex_compile(&re, rule->pattern, strlen(rule->pattern), false));
        /* Beyond the third plane there are tags, selectors and private use. */
        for (uint32_t cp = 1; cp < 0x34000; cp++) {
            char text[40] = "a", one[4];
            if (cp >= 0xd800 && cp <= 0xdfff)
                continue;
            size_t n = ax_utf8_encode(cp, one), len = 1;
            static const char *const mates[] = {"A", "1", " ", "!"};
            for (size_t k = 0; k < 4; k++) {
                memcpy(text + len, one, n);
                memcpy(text + len + n, mates[k], 1);
                len += n + 1;
            }
            assert_same_splits(rule, re, &w, text, len);
        }
        ax_regex_free(re);
    }
    ax_regex_work_free(&w);
}

/* Long runs are scanned once, not once for every position. */
static void long_runs_are_linear(void **state) {
    (void)state;
    static const char *const units[] = {
        "a", "A", " ", "\n", " \n", "1", "!", "\xe4\xb8\xad", "\xe4\xb8\xadZ"};
    enum { N = 2000000 };
    char *text;
    MUST(ax_alloc(&text, N + 8, 1));
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        size_t n = strlen(units[u]), len = 0;
        for (; len + n <= N; len += n)
            memcpy(text + len, units[u], n);
        for (size_t i = 0; i < ax_scan_rule_count; i++)
            for (size_t at = 0, end; at < len; at = end) {
                end = ax_scan_rules[i].scan((const unsigned char *)text, at, len);
                assert_true(end > at);
            }
    }
    ax_free(text);
}

static void known_rules_are_found(void **state) {
    (void)state;
    for (size_t i = 0; i < ax_scan_rule_count; i++)
        assert_ptr_equal(ax_scan_find(ax_scan_rules[i].pattern, strlen(ax_scan_rules[i].pattern)),
                         ax_scan_rules[i].scan);
    assert_null(ax_scan_find("\\p{L}+", 6));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scanners_equal_their_regexes),
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(long_runs_are_linear),
        cmocka_unit_test(known_rules_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
