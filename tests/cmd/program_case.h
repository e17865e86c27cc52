/* axtrain as a program, by a line of words. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_PROGRAM_CASE_H
#define AX_TESTS_CMD_PROGRAM_CASE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/io.h"

/* A path of the shared fixtures; skips the test where they are absent. */
static inline const char *fixture(const char *rest) {
    static char path[512];
    const char *root = getenv("AXTRAIN_SHARED");
    snprintf(path, sizeof path, "%s/fixtures/%s", root ? root : "../shared", rest);
    if (!ax_path_exists(path)) {
        print_message("skipped: %s is not there (set AXTRAIN_SHARED)\n", path);
        skip();
    }
    return path;
}

/* Runs the program; all it prints is in `out`. Returns its exit code. */
static inline int run(char *out, size_t size, const char *fmt, ...) {
    char words[2400], command[3000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(words, sizeof words, fmt, ap);
    va_end(ap);
    const char *bin = getenv("AX_TEST_BIN");
    snprintf(command, sizeof command, "'%s' %s 2>&1", bin ? bin : "build/axtrain", words);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    const size_t n = fread(out, 1, size - 1, p);
    out[n] = '\0';
    const int code = pclose(p);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

#endif
