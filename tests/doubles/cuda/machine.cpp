#include "tests/doubles/cuda/machine.h"

#include <stdio.h>
#include <stdlib.h>

#include <atomic>

#include "tests/doubles/cuda/cuda_runtime_api.h"

namespace {
std::atomic<int> used{-1};    /* the GPU of this process */
thread_local int chosen = -1; /* that of this thread */

void give_up(const char *why) {
    fprintf(stderr, "emulated CUDA: %s\n", why);
    abort();
}
} // namespace

int ax_emulated_device() {
    if (chosen < 0)
        give_up("a thread uses a GPU that has chosen none (cudaSetDevice)");
    return chosen;
}

size_t ax_emulated_setting(const char *name, size_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, nullptr, 10) : otherwise;
}

size_t ax_emulated_memory() {
    return ax_emulated_setting("AXTRAIN_EMULATED_MEMORY", (size_t)64 << 30);
}

extern "C" {

cudaError_t cudaDriverGetVersion(int *version) {
    *version = (int)ax_emulated_setting("AXTRAIN_EMULATED_DRIVER", 13000);
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int *n) {
    int driver;
    *n = (int)ax_emulated_setting("AXTRAIN_EMULATED_GPUS", 1);
    cudaDriverGetVersion(&driver);
    if (driver < 13000)
        return cudaErrorInsufficientDriver;
    return *n > 0 ? cudaSuccess : cudaErrorNoDevice;
}
/* A second GPU would take memory of a process that is another rank's. */
cudaError_t cudaSetDevice(int device) {
    int n, first = -1;
    cudaGetDeviceCount(&n);
    if (device >= n)
        return cudaErrorInvalidDevice;
    if (!used.compare_exchange_strong(first, device) && first != device)
        give_up("this process uses two GPUs");
    chosen = device;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) {
    *device = chosen < 0 ? 0 : chosen;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    (void)device;
    *p = {};
    const char *name = getenv("AXTRAIN_EMULATED_GPU");
    snprintf(p->name, sizeof p->name, "%s", name ? name : "emulated GPU");
    p->totalGlobalMem = ax_emulated_memory();
    (void)cudaDeviceGetAttribute(&p->major, cudaDevAttrComputeCapabilityMajor, device);
    return cudaDeviceGetAttribute(&p->multiProcessorCount, cudaDevAttrMultiProcessorCount, device);
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    (void)device;
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        *value = 4;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = 227 << 10; /* an H100's */
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = (int)ax_emulated_setting("AXTRAIN_EMULATED_CAPABILITY", 9);
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
}
}
