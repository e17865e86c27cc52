/* Tests of a program that only `make test-long` runs; the others of the program are `make test`'s. Include after cmocka.h. */
#ifndef AX_TESTS_LONG_H
#define AX_TESTS_LONG_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LONG_MOST 64
static const char *long_names[LONG_MOST];
static size_t long_count;

static inline struct CMUnitTest mark_long(struct CMUnitTest test) {
    assert_true(long_count < LONG_MOST);
    long_names[long_count++] = test.name;
    return test;
}
/* Around a test of a group, in whatever way it is written there: LONG_TEST(cmocka_unit_test(f)). */
#define LONG_TEST(...) mark_long((struct CMUnitTest)__VA_ARGS__)

/* AXTRAIN_TESTS: quick or long; unset: all. A group without tests is not set up. */
static inline int run_chosen(const char *group, const struct CMUnitTest *tests, size_t n,
                             CMFixtureFunction group_setup, CMFixtureFunction group_teardown) {
    const char *which = getenv("AXTRAIN_TESTS");
    struct CMUnitTest *chosen = calloc(n, sizeof *chosen);
    size_t count = 0;
    for (size_t i = 0; i < n && chosen; i++) {
        bool is_long = false;
        for (size_t k = 0; k < long_count; k++)
            is_long = is_long || tests[i].name == long_names[k];
        if (!which || is_long == (strcmp(which, "long") == 0))
            chosen[count++] = tests[i];
    }
    const int failed =
        !chosen     ? 1
        : count > 0 ? _cmocka_run_group_tests(group, chosen, count, group_setup, group_teardown)
                    : 0;
    free(chosen);
    return failed;
}
#undef cmocka_run_group_tests
#define cmocka_run_group_tests(tests, setup, teardown)                                             \
    run_chosen(#tests, tests, sizeof(tests) / sizeof *(tests), setup, teardown)

#endif
