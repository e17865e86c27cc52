/* Runs the whole program with the backend cuda: `axtrain-emulated` beside AX_TEST_BIN, or on a GPU the
 * program itself. Include after cmocka.h. */
#ifndef AX_TESTS_CUDA_PROGRAM_CASE_H
#define AX_TESTS_CUDA_PROGRAM_CASE_H

#include "tests/cmd/sft_case.h"

/* A model folder of the golden files; skips the test where there are none. */
static inline const char *model(const char *name) {
    static char path[512];
    const char *shared = getenv("AXTRAIN_SHARED");
    snprintf(path, sizeof path, "%s/fixtures/models/%s", shared ? shared : "../shared", name);
    if (!ax_path_exists(path)) {
        print_message("skipped: no %s (set AXTRAIN_SHARED)\n", path);
        skip();
    }
    return path;
}

/* Before a group's tests. */
static inline int program_begin(void **state) {
    static char bin[512];
    unsetenv("AXTRAIN_DEVICE");
    const char *plain = getenv("AX_TEST_BIN");
#ifndef AX_CUDA_EMULATED
    plain = NULL; /* on a GPU: the program itself */
#endif
    if (plain) {
        snprintf(bin, sizeof bin, "%s-emulated", plain);
        setenv("AX_TEST_BIN", bin, 1);
    }
    if (scratch_make(state) != 0)
        return -1;
    setenv("XDG_CACHE_HOME", scratch, 1); /* what is measured stays here */
    return 0;
}

#endif
