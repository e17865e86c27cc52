/* Split expressions of data sets, which resolve as in Hugging Face's datasets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/records/rows/split.h"
#include "tests/data/scratch.h"

static void split_expressions(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t n, from, to;
    } cases[] = {
        {"train", 0, 0, INT64_MAX},       {"train[:500]", 0, 0, 500},
        {"train[10:20]", 0, 10, 20},      {"train[-3:]", 10, 7, INT64_MAX},
        {"train[:-3]", 10, 0, 7},         {"train[-30:]", 10, 0, INT64_MAX},
        {"train[:1%]", 7473, 0, 75},      {"train[33%:67%]", 10, 3, 7},
        {"train[:50%]", 5, 0, 2},         {"train[:50%]", 7, 0, 4},
        {"train[:200]", 0, 0, 200},       {"train[-10%:]", 50, 45, INT64_MAX},
        {"a.b-c_d[5:]", 0, 5, INT64_MAX}, {"train[:]", 0, 0, INT64_MAX},
        {"train[27:30%]", 37, 10, 11},    {"train[-79%:-18]", 37, 8, 30},
    };
    struct ax_split parts[AX_SPLIT_PARTS_MAX];
    size_t n;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t from;
        int64_t to;
        assert_ok(ax_split_parse(cases[i].text, parts, &n));
        assert_int_equal(n, 1);
        assert_int_equal(ax_split_needs_count(parts), cases[i].n > 0);
        ax_split_resolve(parts, cases[i].n, &from, &to);
        assert_int_equal(from, cases[i].from);
        assert_int_equal(to, cases[i].to);
    }
    assert_ok(ax_split_parse("a+b[1:2]+c", parts, &n));
    assert_int_equal(n, 3);
    assert_string_equal(parts[1].name, "b");
    static const char *const bad[] = {"",
                                      "train[",
                                      "train[1]",
                                      "train[1:2",
                                      "+train",
                                      "train+",
                                      "tr ain",
                                      "train[:101%]",
                                      "train[500:20%]",
                                      "train[a:]",
                                      "train[--1:]",
                                      "train[-:]",
                                      "train[:99999999999999999999]",
                                      "train[:1%](pct1_dropremainder)"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_error(ax_split_parse(bad[i], parts, &n), AX_ERR_CONFIG, "split");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_expressions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
