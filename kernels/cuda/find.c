/* What there is of CUDA on this machine. */
#include "kernels/cuda/find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/cuda/gemm/blas.h"
#include "kernels/cuda/attention/cudnn.h"
#include "kernels/cuda/nccl.h"

#ifndef AX_CUDA_ARCHS /* the Makefile's CUDA_ARCHS; the emulator has all kernels */
#define AX_CUDA_ARCHS "80 90a"
#endif
#define OLDEST 8 /* compute capability: Ampere, the first with bf16 products */

/* Code for x.y runs on x.y and later ones of x; "a": on x.y alone. Of the first there is PTX as well, which all
 * later GPUs translate. */
static bool has_code(const char *archs, int major, int minor) {
    const char *rest = archs;
    while (*rest) {
        char *end;
        const bool first = rest == archs;
        const long code = strtol(rest, &end, 10), gpu = 10 * major + minor;
        if (*end == 'a' ? gpu == code : gpu >= code && (first || gpu / 10 == code / 10))
            return true;
        rest = end + strcspn(end, " ");
        rest += strspn(rest, " ");
    }
    return false;
}

enum ax_status ax_cuda_check_gpu(const char *name, int major, int minor, const char *archs) {
    if (major < OLDEST)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "device cuda: %.100s has compute capability %d.%d, and this program needs "
                        "%d.0 (Ampere) or later. Use device: cpu.",
                        name, major, minor, OLDEST);
    if (!has_code(archs, major, minor))
        return ax_error(AX_ERR_UNSUPPORTED,
                        "device cuda: %.100s has compute capability %d.%d, and this program has "
                        "code for %.100s. Build it with CUDA_ARCHS=%d%d, or use device: cpu.",
                        name, major, minor, archs, major, minor);
    return AX_OK;
}

enum ax_status ax_cuda_usable(void) {
    struct cudaDeviceProp gpu;
    size_t version;
    int own;
    AX_TRY(ax_cuda_own(&own));
    AX_CUDA_TRY(cudaGetDeviceProperties(&gpu, own));
    AX_TRY(ax_cuda_check_gpu(gpu.name, gpu.major, gpu.minor, AX_CUDA_ARCHS));
    return ax_blas_version(&version);
}

int ax_cuda_capability(void) {
    int own, major, minor;
    const bool known =
        ax_cuda_own(&own) == AX_OK &&
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, own) == cudaSuccess &&
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, own) == cudaSuccess;
    ax_error_clear();
    return known ? 10 * major + minor : 0;
}

bool ax_cuda_uses_wgmma(int major, int minor) {
    const char *wish = getenv("AXTRAIN_WGMMA");
    return major == 9 && minor == 0 && strstr(AX_CUDA_ARCHS, "90a") &&
           (!wish || strcmp(wish, "off") != 0);
}

enum ax_status ax_cuda_gpus(int *n) {
    AX_TRY(ax_cuda_count(n));
    return ax_cuda_usable();
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
    int own;
    if (ax_cuda_use() != AX_OK || ax_cuda_own(&own) != AX_OK ||
        cudaGetDeviceProperties(&gpu, own) != cudaSuccess ||
        cudaMemGetInfo(&available, &total) != cudaSuccess)
        return;
    snprintf(out, size, "%.100s, compute capability %d.%d, %s of %s free", gpu.name, gpu.major,
             gpu.minor, ax_format_bytes(a, sizeof a, (double)available),
             ax_format_bytes(b, sizeof b, (double)total));
}

/* "9.28.1" of 92801, or why there is none. */
static void put_library(char *out, size_t size, enum ax_status st, size_t version,
                        const char *without) {
    if (st == AX_OK)
        snprintf(out, size, "%zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    else if (without)
        snprintf(out, size, "none, %s: %.400s", without, ax_error_text());
    ax_error_clear();
}

static void put_libraries(struct ax_cuda_facts *f) {
    const struct ax_cudnn_calls *calls;
    void *function;
    size_t cudnn = 0;
    int nccl = 0;
    enum ax_status st = ax_dnn_find(&calls, &function, &cudnn);
    put_library(f->cudnn, sizeof f->cudnn, st, cudnn, "attention by our own kernels");
    st = ax_nccl_version(&nccl);
    put_library(f->nccl, sizeof f->nccl, st, (size_t)nccl, "for one GPU only");
}

void ax_cuda_describe(struct ax_cuda_facts *f) {
    int runtime = 0, driver = 0;
    size_t blas = 0;
    *f = (struct ax_cuda_facts){0};
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver);
    put_version(f->runtime, sizeof f->runtime, runtime);
    put_version(f->driver, sizeof f->driver, driver);
    put_gpu(f->gpu, sizeof f->gpu);
    const enum ax_status st = ax_blas_version(&blas);
    put_library(f->cublaslt, sizeof f->cublaslt, st, blas, NULL);
    if (*f->gpu)
        put_libraries(f);
}
