/* Properties of the emulated machine, from the variables AXTRAIN_EMULATED_… (docs/gpu.md). */
#ifndef AX_TESTS_DOUBLES_CUDA_MACHINE_H
#define AX_TESTS_DOUBLES_CUDA_MACHINE_H

#include <stddef.h>

size_t ax_emulated_setting(const char *name, size_t otherwise);
size_t ax_emulated_memory(); /* memory of each GPU in bytes */
/* The GPU that this thread has chosen. Ends the program if it has chosen none: it would use the first, whichever
 * is its process's, and take half a gigabyte there. */
int ax_emulated_device();

#endif
