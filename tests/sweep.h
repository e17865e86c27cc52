/* Tests that try a few of many that are alike; with AXTRAIN_SWEEP=1 they try all, or the large size. `make test-all`
 * sweeps every program that includes this. */
#ifndef AX_TESTS_SWEEP_H
#define AX_TESTS_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static inline bool sweeping(void) {
    const char *sweep = getenv("AXTRAIN_SWEEP");
    return sweep && *sweep;
}

/* Every other one; in a sweep none. */
static inline bool left_out(size_t i) {
    return i % 2 && !sweeping();
}

#endif
