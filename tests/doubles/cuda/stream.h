/* The emulated runtime, from C++: what kernels' launches add to a stream, and how tests choose the order
 * of streams and warps. */
#ifndef AX_TESTS_DOUBLES_CUDA_STREAM_H
#define AX_TESTS_DOUBLES_CUDA_STREAM_H

#include <functional>

#include "kernels/cuda/cuda.h"
#include "tests/doubles/cuda/fibres.h"
#include "tests/doubles/cuda/cuda_runtime_api.h"

void ax_emulated_add(cudaStream_t s, std::function<void()> command);
/* The same, but the command runs only once `when` returns true. `when` is called with the lock held
 * while the command is its stream's first. */
void ax_emulated_add_when(cudaStream_t s, std::function<bool()> when,
                          std::function<void()> command);
/* The stream of cudaMemset and of NULL, which the others, all non-blocking, do not wait for. */
cudaStream_t ax_emulated_legacy();
/* Lets time pass on a stream, from its command: only what does so takes any (cudaEventElapsedTime). */
void ax_emulated_took(double milliseconds);
/* Whether these bytes are of one allocation of a device's memory. */
bool ax_emulated_is_device(const void *at, size_t bytes);
/* The runtime's lock, and waking who waits for commands. */
struct ax_emulated_hold {
    ax_emulated_hold();
    ~ax_emulated_hold();
};
/* Opens the device's memory to a thread that runs commands; call it with the lock held. Other
 * threads cannot touch that memory. */
void ax_emulated_open_memory(bool open);
/* Call it for operations that are forbidden while this thread captures, or on the stream that
 * captures: the capture then fails. The thread must have chosen a GPU. */
cudaError_t ax_emulated_forbidden(cudaStream_t on);
#define AX_EMULATED_ALLOWED(on)                                                                    \
    do {                                                                                           \
        const cudaError_t allowed_ = ax_emulated_forbidden(on);                                    \
        if (allowed_ != cudaSuccess)                                                               \
            return allowed_;                                                                       \
    } while (0)
void ax_emulated_wake();
/* From now on streams continue after a while even if no thread of this process waits for them. Call
 * it with the lock held. */
void ax_emulated_go_on();

template <class F>
static inline enum ax_status ax_emulated_launch(cudaStream_t s, const char *name, dim3 grid,
                                                dim3 block, size_t shared, F kernel) {
    ax_emulated_add(s, [=] {
        F copy = kernel;
        cu_emu::launch(name, copy, grid, block, shared);
    });
    return ax_cuda_check(cudaGetLastError(), name);
}

#endif
