/* What a test does on a machine that lacks what it needs. Include after cmocka.h. */
#ifndef AX_TESTS_SKIP_H
#define AX_TESTS_SKIP_H

/* Skips the test for one of the reasons of tools/skip-reasons, which says what would enable it; any other
 * reason fails the run. What can be installed is no reason: the test fails without it. */
static inline void skip_because(const char *reason) {
    print_message("skipped: %s\n", reason);
    skip();
}

/* Of a group's tests: one that exists only where the condition holds, such as a build with
 * AddressSanitizer or a sweep. */
#define unit_test_if(condition, f)                                                                 \
    { (condition) ? #f : NULL, (condition) ? (f) : NULL, NULL, NULL, NULL }

#endif
