/* An open sandbox for tests, and programs run in it. Include after cmocka.h. */
#ifndef AX_TESTS_DATA_SANDBOX_CASE_H
#define AX_TESTS_DATA_SANDBOX_CASE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "data/reward/sandbox/sandbox.h"

/* Beside what is built: compiling the interpreter takes half a minute. */
#define SANDBOX_CACHE "build/cache/axtrain/sandbox"

static struct ax_sandbox *sandbox;
static struct ax_sandbox_parts sandbox_parts;

/* Time for a program that ends by its fuel, on a machine that is busy with much else. */
#define SANDBOX_PATIENCE 120

static inline int sandbox_open(double seconds) {
    ax_log_set_level(AX_LOG_ERROR);
    if (ax_sandbox_find(&sandbox_parts, NULL, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
    const struct ax_sandbox_options options = {
        .program = getenv("AX_TEST_BIN"),
        .wasmtime = sandbox_parts.wasmtime,
        .python = {sandbox_parts.python, sandbox_parts.library},
        .cache = SANDBOX_CACHE,
        .threads = 2,
        .seconds = seconds,
    };
    if (ax_sandbox_open(&sandbox, &options) == AX_OK)
        return 0;
    print_message("%s\n", ax_error_text());
    return -1;
}

static inline int sandbox_close(void) {
    ax_sandbox_close(sandbox);
    ax_sandbox_parts_free(&sandbox_parts);
    return 0;
}

/* Runs a program with an input; free the result. */
static inline struct ax_sandbox_result run_with(const char *source, const char *input) {
    const struct ax_bytes parts[] = {{source, strlen(source)}, {input, strlen(input)}};
    const struct ax_sandbox_job job = {.parts = parts, .n_parts = 2, .limits = AX_SANDBOX_LIMITS};
    struct ax_sandbox_result r = {0};
    if (ax_sandbox_run(sandbox, &job, 1, &r) != AX_OK)
        fail_msg("%s", ax_error_text());
    return r;
}

static inline void assert_run(const char *source, const char *input, enum ax_verdict verdict,
                              int exit_code, const char *output) {
    struct ax_sandbox_result r = run_with(source, input);
    if (r.verdict != verdict || r.exit_code != exit_code)
        fail_msg("%s %d instead of %s %d: %s\n%.*s", ax_verdict_names[r.verdict], r.exit_code,
                 ax_verdict_names[verdict], exit_code, source, (int)r.err.len,
                 r.err.data ? r.err.data : "");
    if (output) {
        assert_int_equal(r.out.len, strlen(output));
        assert_memory_equal(r.out.len ? r.out.data : "", output, r.out.len);
    }
    ax_sandbox_result_free(&r);
}

#endif
