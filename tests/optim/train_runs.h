/* What the tests of training runs share: opening a case, running it here or in a child, and what is
 * in its output folder. Include after cmocka.h. Runs use one thread, and children are forked before
 * any other is started. */
#ifndef AX_TESTS_OPTIM_TRAIN_RUNS_H
#define AX_TESTS_OPTIM_TRAIN_RUNS_H

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "tests/train_case.h"

static inline void expect_error(const char *part) {
    if (!strstr(ax_error_text(), part))
        fail_msg("expected \"%s\" in: %s", part, ax_error_text());
}

static inline void open_case(struct train_case *c, enum ax_dtype dtype, bool packed) {
    if (train_case_open(c, dtype, packed) != AX_OK)
        fail_msg("%s", ax_error_text());
}

static inline void run_ok(struct train_case *c, struct ax_train_result *r) {
    if (train_case_run(c, r) != AX_OK)
        fail_msg("%s (%s)", ax_error_text(), ax_error_trace());
}

static inline bool has(const struct train_case *c, const char *name) {
    return train_case_hash(c, name) != 0;
}

/* Runs in a child; returns wait's status. `fault` may be NULL. */
static inline int run_in_child(struct train_case *c, const char *fault) {
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ax_train_result r;
        ax_log_set_level(AX_LOG_ERROR);
        if (ax_fault_configure(fault) != AX_OK)
            _exit(99);
        const enum ax_status st = train_case_run(c, &r);
        _exit(ax_status_info(st)->exit_code);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static inline int quiet(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_ERROR);
    return 0;
}

#endif
