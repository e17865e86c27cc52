/* The reward of a candidate's code: the share of its tests that it passes. Expected outputs never
 * enter the instance that runs the candidate, so nothing that the candidate writes or returns can
 * pass a test for it. */
#ifndef AX_DATA_REWARD_SANDBOX_REWARD_H
#define AX_DATA_REWARD_SANDBOX_REWARD_H

#include "data/reward/sandbox/sandbox.h"

enum ax_code_mode {
    /* a test: stdin, and the stdout that is expected, from a program that exits with 0 */
    AX_CODE_STDIO,
    AX_CODE_RUN,    /* no tests: it exits with 0. Proves nothing: a small bonus at most */
    AX_CODE_CALL,   /* a test: a JSON array of arguments, and the JSON that the function returns */
    AX_CODE_ASSERT, /* a test: Python that ends without an exception */
    AX_CODE_MODE_COUNT
};

struct ax_code_test {
    struct ax_bytes input, expected; /* for ASSERT: the Python, and nothing */
};

struct ax_code {
    enum ax_code_mode mode;
    struct ax_bytes source;
    /* for CALL: an expression, such as "add" or "Solution().add"; for ASSERT: the function that is tested, which
     * is the candidate's even if a builtin is called so. NULL: not known */
    const char *function;
    double tolerance; /* tolerance of numbers, relative for those above 1; 0: exact */
    const struct ax_code_test *tests;
    size_t n_tests; /* < AX_SANDBOX_MAX_PARTS */
    struct ax_sandbox_limits limits;
    uint64_t seed;
};

struct ax_code_score {
    size_t passed, tests;    /* RUN: of one */
    double reward;           /* passed / tests; 0 without tests */
    enum ax_verdict verdict; /* verdict of the first run that did not exit with 0; else EXIT */
    int exit_code;
};

/* Runs all of them together. */
enum ax_status ax_code_rewards(struct ax_sandbox *s, const struct ax_code *codes, size_t n,
                               struct ax_code_score *scores);

/* True if the output is as expected. Blanks at the ends of lines and empty lines at the end do not
 * matter. With a tolerance, words that are numbers need only be that near. */
bool ax_code_same_output(struct ax_bytes output, struct ax_bytes expected, double tolerance);

#endif
