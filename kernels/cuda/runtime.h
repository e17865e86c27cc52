/* CUDA's runtime: the toolkit's, or in a build with CUDA=emulated the one of emulated/. */
#ifndef AX_KERNELS_CUDA_RUNTIME_H
#define AX_KERNELS_CUDA_RUNTIME_H

#ifdef AX_CUDA_EMULATED
#include "tests/doubles/cuda/cuda_runtime_api.h"
#else
#include <cuda_runtime_api.h>
#endif

#endif
