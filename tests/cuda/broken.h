/* Five kernels, each as it should be and with one mistake, on the emulated device (broken.cu). */
#ifndef AX_TESTS_CUDA_BROKEN_H
#define AX_TESTS_CUDA_BROKEN_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BROKEN_ROWS 9
#define BROKEN_COLS 37
#define BROKEN_SIZE (BROKEN_ROWS * BROKEN_COLS)

enum broken_kernel {
    BROKEN_BARRIER, /* out[c] = Σ_r x[r][c]; no barrier between writing and reading shared memory */
    BROKEN_MASK,    /* out[r] = Σ_c x[r][c]; half of a warp is missing in the mask of a shuffle */
    BROKEN_TAIL,    /* out[i] = 2·x[i]; threads beyond the last element write, too */
    BROKEN_WAIT,  /* out[i] = 2·x[i] + 1 on two streams; the second does not wait for the first */
    BROKEN_ORDER, /* out[0] = Σ x; threads add to it as they come */
    BROKEN_COUNT
};

/* x [BROKEN_SIZE] is the host's; so is out [BROKEN_SIZE], of which a kernel fills what it says above. */
void broken_run(enum broken_kernel kernel, bool mistake, const float *x, float *out);

#ifdef __cplusplus
}
#endif

#endif
