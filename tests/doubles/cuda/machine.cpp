#include "tests/doubles/cuda/machine.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/doubles/cuda/cuda_runtime_api.h"

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
cudaError_t cudaSetDevice(int device) {
    int n;
    cudaGetDeviceCount(&n);
    return device < n ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    (void)device;
    *p = {};
    const char *name = getenv("AXTRAIN_EMULATED_GPU");
    snprintf(p->name, sizeof p->name, "%s", name ? name : "emulated GPU");
    p->totalGlobalMem = ax_emulated_memory();
    p->major = (int)ax_emulated_setting("AXTRAIN_EMULATED_CAPABILITY", 9);
    p->multiProcessorCount = 4;
    return cudaSuccess;
}
}
