/* Properties of the emulated machine, from the variables AXTRAIN_EMULATED_… (docs/gpu.md). */
#ifndef AX_TESTS_DOUBLES_CUDA_MACHINE_H
#define AX_TESTS_DOUBLES_CUDA_MACHINE_H

#include <stddef.h>

size_t ax_emulated_setting(const char *name, size_t otherwise);
size_t ax_emulated_memory(); /* memory of each GPU in bytes */

#endif
