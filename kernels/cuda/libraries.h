/* NVIDIA's libraries, opened at run time: nothing of them is linked. */
#ifndef AX_KERNELS_CUDA_LIBRARIES_H
#define AX_KERNELS_CUDA_LIBRARIES_H

#include "base/dynlib.h"

/* Opens `file` ("libcublasLt.so.13") and sets all slots, as ax_library_open. It is looked for in this
 * order: the folders of AXTRAIN_CUDA_LIBS, by the loader, in lib64 and lib of CUDA_HOME and of
 * /usr/local/cuda, in the packages nvidia/…/lib beside each python that is on PATH.
 * AX_ERR_UNSUPPORTED says so; `remedy` is what brings the library. */
enum ax_status ax_cuda_library_open(const char *file, const char *remedy,
                                    const struct ax_symbol *symbols, size_t n);

#endif
