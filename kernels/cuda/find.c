/* What there is of CUDA on this machine. */
#include "kernels/cuda/find.h"

#include <stdio.h>

#include "base/clock.h"
#include "kernels/cuda/blas.h"
#include "kernels/cuda/cudnn.h"

#define OLDEST 8 /* compute capability: Ampere, the first with bf16 products */

enum ax_status ax_cuda_find(const struct ax_ops **out) {
    *out = &ax_ops_cuda;
    return AX_OK;
}

bool ax_cuda_is_built(void) {
    return true;
}

static enum ax_status check_supported(void) {
    struct cudaDeviceProp gpu;
    size_t version;
    AX_CUDA_TRY(cudaGetDeviceProperties(&gpu, 0));
    if (gpu.major < OLDEST)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "device cuda: %.100s has compute capability %d.%d, and this program needs "
                        "%d.0 (Ampere) or later. Use device: cpu.",
                        gpu.name, gpu.major, gpu.minor, OLDEST);
    return ax_blas_version(&version);
}

enum ax_status ax_cuda_usable(void) {
    AX_TRY(ax_cuda_use());
    return check_supported();
}

enum ax_status ax_cuda_gpus(int *n) {
    AX_TRY(ax_cuda_count(n));
    return check_supported();
}

uint64_t ax_cuda_memory(void) {
    size_t available = 0, total;
    if (ax_cuda_use() != AX_OK || cudaMemGetInfo(&available, &total) != cudaSuccess) {
        ax_error_clear();
        return 0;
    }
    return available;
}

/* "13.0" of 13000. */
static void put_version(char *out, size_t size, int version) {
    if (version > 0)
        snprintf(out, size, "%d.%d", version / 1000, version % 1000 / 10);
}

static void put_gpu(char *out, size_t size) {
    struct cudaDeviceProp gpu;
    size_t available, total;
    char a[32], b[32];
    if (ax_cuda_use() != AX_OK || cudaGetDeviceProperties(&gpu, 0) != cudaSuccess ||
        cudaMemGetInfo(&available, &total) != cudaSuccess)
        return;
    snprintf(out, size, "%.100s, compute capability %d.%d, %s of %s free", gpu.name, gpu.major,
             gpu.minor, ax_format_bytes(a, sizeof a, (double)available),
             ax_format_bytes(b, sizeof b, (double)total));
}

/* The version, or why there is none. */
static void put_cudnn(char *out, size_t size) {
    const struct ax_cudnn_calls *calls;
    void *function;
    size_t version;
    if (ax_dnn_find(&calls, &function, &version) == AX_OK)
        snprintf(out, size, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    else
        snprintf(out, size, "none, attention is slow: %.400s", ax_error_text());
    ax_error_clear();
}

void ax_cuda_describe(struct ax_cuda_facts *f) {
    int runtime = 0, driver = 0;
    size_t blas;
    *f = (struct ax_cuda_facts){0};
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver);
    put_version(f->runtime, sizeof f->runtime, runtime);
    put_version(f->driver, sizeof f->driver, driver);
    put_gpu(f->gpu, sizeof f->gpu);
    if (ax_blas_version(&blas) == AX_OK)
        snprintf(f->cublaslt, sizeof f->cublaslt, "%zu.%zu.%zu", blas / 10000, blas / 100 % 100,
                 blas % 100);
    ax_error_clear();
    if (*f->gpu)
        put_cudnn(f->cudnn, sizeof f->cudnn);
}
