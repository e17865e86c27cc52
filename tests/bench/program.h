/* What the programs of this folder end with. */
#ifndef AX_TESTS_BENCH_PROGRAM_H
#define AX_TESTS_BENCH_PROGRAM_H

#include <stdio.h>

#include "base/log.h"
#include "base/status.h"

/* The exit code, after what went wrong. */
static inline int end_program(enum ax_status st) {
    fflush(stdout);
    if (st != AX_OK)
        ax_log_error("%s", ax_error_text());
    return ax_status_info(st)->exit_code;
}

#endif
