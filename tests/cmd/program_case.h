/* axtrain as a program, by a line of words. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_PROGRAM_CASE_H
#define AX_TESTS_CMD_PROGRAM_CASE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/io.h"
#include "tests/golden_files.h"

static inline const char *test_program(void) {
    const char *bin = getenv("AX_TEST_BIN");
    return bin ? bin : "build/axtrain";
}

/* Runs `program` with words. All it prints is in `out`. Returns its exit code. */
static inline int run_program(char *out, size_t size, const char *program, const char *fmt,
                              va_list ap) {
    char words[2400], command[3000];
    vsnprintf(words, sizeof words, fmt, ap);
    snprintf(command, sizeof command, "'%s' %s 2>&1", program, words);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    const size_t n = fread(out, 1, size - 1, p);
    out[n] = '\0';
    const int code = pclose(p);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

/* axtrain. */
static inline int run(char *out, size_t size, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const int code = run_program(out, size, test_program(), fmt, ap);
    va_end(ap);
    return code;
}

/* A program of the tests in its folder, such as tests/goldens/replay. */
static inline int run_beside(char *out, size_t size, const char *name, const char *fmt, ...) {
    char path[512];
    snprintf(path, sizeof path, "%s", test_program());
    char *last = strrchr(path, '/');
    assert_non_null(last);
    snprintf(last + 1, sizeof path - (size_t)(last + 1 - path), "%s", name);
    va_list ap;
    va_start(ap, fmt);
    const int code = run_program(out, size, path, fmt, ap);
    va_end(ap);
    return code;
}

#endif
