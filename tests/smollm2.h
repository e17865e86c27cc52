/* A real model for tests: SmolLM2-135M-Instruct, where tools/get-smollm2 puts it. Include after cmocka.h. */
#ifndef AX_TESTS_SMOLLM2_H
#define AX_TESTS_SMOLLM2_H

#include <stdio.h>
#include <stdlib.h>

#include "base/io.h"

/* Its GGUF file. */
static inline const char *smollm2_gguf(void) {
    static char path[4096];
    const char *named = getenv("AXTRAIN_SMOLLM2"), *home = getenv("HOME");
    if (named)
        snprintf(path, sizeof path, "%s", named);
    else
        snprintf(path, sizeof path, "%s/.local/lib/axtrain/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                 home ? home : "");
    if (!ax_path_exists(path))
        fail_msg("%s is not there: run tools/get-smollm2", path);
    return path;
}

#endif
