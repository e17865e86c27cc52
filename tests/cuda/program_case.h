/* Runs the whole program with the backend cuda: `axtrain-emulated` beside AX_TEST_BIN, or on a GPU the
 * program itself. Include after cmocka.h. */
#ifndef AX_TESTS_CUDA_PROGRAM_CASE_H
#define AX_TESTS_CUDA_PROGRAM_CASE_H

#include "tests/cmd/sft_case.h"
#include "tests/golden_files.h"

/* A model folder of the golden files. */
static inline const char *model(const char *name) {
    char path[64];
    snprintf(path, sizeof path, "models/%s", name);
    return golden_path(path);
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
