/* The emulated runtime, from C++: what kernels' launches add to a stream, and how tests choose the order
 * of streams and warps. */
#ifndef AX_KERNELS_CUDA_EMULATED_STREAM_H
#define AX_KERNELS_CUDA_EMULATED_STREAM_H

#include <functional>

extern "C" {
#include "base/status.h"
}
#include "kernels/cuda/emulated/fibres.h"
#include "kernels/cuda/emulated/runtime.h"

void ax_emulated_add(cudaStream_t s, std::function<void()> command);

template <class F>
static inline enum ax_status ax_emulated_launch(cudaStream_t s, const char *name, dim3 grid,
                                                dim3 block, size_t shared, F kernel) {
    ax_emulated_add(s, [=] {
        F copy = kernel;
        cu_emu::launch(name, copy, grid, block, shared);
    });
    return AX_OK;
}

#endif
