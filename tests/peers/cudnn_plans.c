/* Which kinds of attention cuDNN plans, on GPUs that it is told of and that need not be there, and what it
 * wants of memory beside what our plans have: docs/results/gpu-status.md. tools/check-cudnn-plans builds and runs it:
 * cudnn_plans [GPU …].
 *
 * Nothing is computed: the driver is one that agrees to everything. */
#ifdef DRIVER

static int agree(void) {
    return 0;
}
#define AGREES(name)                                                                               \
    int name(void) {                                                                               \
        return 0;                                                                                  \
    }
#define GIVES(name)                                                                                \
    int name(void **out) {                                                                         \
        *out = (void *)agree;                                                                      \
        return 0;                                                                                  \
    }
/* clang-format off */
AGREES(cuCtxGetLimit) AGREES(cuCtxPopCurrent) AGREES(cuCtxPushCurrent) AGREES(cuDeviceGet) AGREES(cuDeviceGetCount)
AGREES(cuGetErrorName) AGREES(cuGetErrorString) AGREES(cuKernelGetAttribute) AGREES(cuKernelSetAttribute)
AGREES(cuLaunchCooperativeKernel) AGREES(cuLaunchKernel) AGREES(cuLaunchKernelEx) AGREES(cuLibraryUnload)
AGREES(cuLinkAddData) AGREES(cuLinkComplete) AGREES(cuLinkCreate) AGREES(cuLinkDestroy) AGREES(cuModuleUnload)
AGREES(cuOccupancyMaxPotentialClusterSize)
AGREES(cuTensorMapEncodeIm2col) AGREES(cuTensorMapEncodeTiled)
GIVES(cuCtxGetCurrent) GIVES(cuKernelGetFunction) GIVES(cuLibraryGetKernel) GIVES(cuLibraryLoadData)
GIVES(cuLibraryLoadFromFile) GIVES(cuModuleGetFunction) GIVES(cuModuleLoadData) GIVES(cuStreamGetCtx)
    /* clang-format on */
    int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}
int cuGetExportTable(void) {
    return 1;
}
int cuGetProcAddress_v2(const char *name, void **function) {
    (void)name;
    *function = (void *)agree;
    return 0;
}

#else

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "kernels/cuda/attention/cudnn.h"

/* What cuDNN serializes of a GPU, so far as it is needed. */
#define GPU                                                                                        \
    "{\"deviceVer\":%d,\"driverVer\":13000,\"cudaDeviceId\":0,\"deviceName\":\"%s\","              \
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"                    \
    "\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"smCountOrigin\":0,\"warpSize\":32,"       \
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"                       \
    "\"reservedSharedMemoryPerBlock\":1024,\"oversizedSharedMemoryPerBlock\":0,"                   \
    "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"                 \
    "\"maxThreadsPerSM\":%d,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,"          \
    "\"totalGlobalMem\":85017755648,\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,"       \
    "\"memoryBusWidth\":5120,\"l2CacheSize\":52428800}"

static const struct {
    const char *name;
    int capability, processors, shared, threads;
} gpus[] = {{"A100", 800, 108, 166912, 2048},
            {"H100", 900, 132, 232448, 2048},
            {"B200", 1000, 148, 232448, 2048},
            {"RTX PRO 6000", 1200, 188, 101376, 1536}};

struct kind {
    int64_t documents, nq, nk, heads, kv_heads, size, value_size, block_size, window;
    double softcap;
    bool sink, not_causal;
};

/* What the models that axtrain trains have: Llama, SmolLM2, gpt-oss, Gemma 2, DeepSeek. */
static const struct kind packed[] = {
    {4, 1024, 1024, 32, 8, 128, 128},
    {4, 1024, 1024, 9, 3, 64, 64},
    {4, 1024, 1024, 32, 32, 128, 128},
    {4, 1024, 1024, 8, 4, 256, 256},
    {4, 1024, 1024, 16, 16, 192, 128},
    {4, 1024, 1024, 32, 8, 8, 8},
    {4, 1024, 1024, 32, 8, 128, 128, .not_causal = true},
    {4, 1024, 1024, 32, 8, 128, 128, .window = 512},
    {4, 1024, 1024, 64, 8, 64, 64, .sink = true},
    {4, 1024, 1024, 64, 8, 64, 64, .sink = true, .window = 128},
    {4, 1024, 1024, 8, 4, 256, 256, .softcap = 50},
    {4, 1024, 1024, 8, 4, 256, 256, .softcap = 50, .window = 512},
    {4, 1024, 1024, 32, 16, 128, 128, .softcap = 50},
    {4, 1024, 1024, 32, 16, 128, 128, .softcap = 50, .not_causal = true},
    {4, 1024, 1024, 32, 32, 64, 64, .softcap = 50, .window = 512},
    {1, 4096, 4096, 32, 8, 128, 128},
    {2, 4096, 4096, 32, 8, 128, 128},
    {1, 8192, 8192, 32, 8, 128, 128},
    {1, 4096, 4096, 9, 3, 64, 64},
};
static const struct kind cached[] = {
    {1, 1, 4096, 32, 8, 128, 128, 16},
    {8, 1, 4096, 32, 8, 128, 128, 16},
    {1000, 1, 4096, 32, 8, 128, 128, 16},
    {8, 1, 131072, 32, 8, 128, 128, 16},
    {8, 1, 1000, 9, 3, 64, 64, 16},
    {8, 1, 4096, 32, 32, 128, 128, 16},
    {8, 1, 4096, 8, 4, 256, 256, 16},
    {8, 1, 4096, 16, 16, 192, 128, 16},
    {8, 1, 4096, 16, 1, 576, 512, 16},
    {8, 500, 4096, 32, 8, 128, 128, 16},
    {2, 2000, 1000, 9, 3, 64, 64, 16},
    {8, 500, 4096, 16, 16, 192, 128, 16},
    {8, 500, 4096, 16, 1, 576, 512, 16},
    {8, 1, 4096, 32, 8, 128, 128, 16, .window = 512},
    {8, 500, 4096, 32, 8, 128, 128, 16, .window = 512},
    {8, 1, 4096, 64, 8, 64, 64, 16, .sink = true},
    {8, 1, 4096, 64, 8, 64, 64, 16, .sink = true, .window = 128},
    {8, 500, 4096, 64, 8, 64, 64, 16, .sink = true},
    {8, 500, 4096, 64, 8, 64, 64, 16, .sink = true, .window = 128},
    {8, 1, 4096, 8, 4, 256, 256, 16, .softcap = 50},
    {8, 1, 4096, 8, 4, 256, 256, 16, .softcap = 50, .window = 512},
    {8, 500, 4096, 8, 4, 256, 256, 16, .softcap = 50},
    {8, 500, 4096, 32, 16, 128, 128, 16, .softcap = 50, .window = 512},
};

static char memory[256] __attribute__((aligned(256))); /* of all tensors: nothing reads them */

static struct ax_tensor heads_of(int64_t rows, int64_t heads, int64_t size) {
    return ax_tensor_3d(AX_BF16, memory, rows, heads, size);
}

static struct ax_attention_backward attention_of(const struct kind *k) {
    const int64_t queries = k->documents * k->nq,
                  columns = k->block_size > 0 ? (k->nk + k->block_size - 1) / k->block_size : 0;
    const int64_t keys = k->documents * (columns > 0 ? columns * k->block_size : k->nk);
    struct ax_attention_backward b = {.a = {.q = heads_of(queries, k->heads, k->size),
                                            .k = heads_of(keys, k->kv_heads, k->size),
                                            .v = heads_of(keys, k->kv_heads, k->value_size),
                                            .out = heads_of(queries, k->heads, k->value_size),
                                            .lse = ax_tensor_2d(AX_F32, memory, queries, k->heads),
                                            .cu_q = ax_tensor_1d(AX_I32, memory, k->documents + 1),
                                            .block_size = k->block_size,
                                            .max_q = k->nq,
                                            .max_k = k->nk,
                                            .window = k->window,
                                            .scale = 1 / sqrt((double)k->size),
                                            .softcap = k->softcap,
                                            .causal = !k->not_causal}};
    b.a.cu_k = b.a.cu_q;
    b.dout = b.a.out;
    b.dq = b.a.q;
    b.dk = b.a.k;
    b.dv = b.a.v;
    if (k->sink)
        b.a.sink = ax_tensor_1d(AX_F32, memory, k->heads);
    if (columns > 0)
        b.a.block_table = ax_tensor_2d(AX_I32, memory, k->documents, columns);
    return b;
}

/* Returns whether cuDNN takes it. */
static bool try(const struct ax_cudnn_calls *calls, struct ax_cudnn *c, const struct kind *k,
                bool backward) {
    const struct ax_attention_backward call = attention_of(k), *b = backward ? &call : NULL;
    struct ax_cudnn_plan *plan = NULL;
    char text[AX_CUDNN_TEXT] = "";
    size_t work = 0;
    printf(
        "  %4lld of %lld and %lld, heads %lld/%lld of %lld/%lld, blocks of %lld, window %lld, cap "
        "%g%s%s: %s ",
        (long long)k->documents, (long long)k->nq, (long long)k->nk, (long long)k->heads,
        (long long)k->kv_heads, (long long)k->size, (long long)k->value_size,
        (long long)k->block_size, (long long)k->window, k->softcap, k->sink ? ", sink" : "",
        k->not_causal ? ", not causal" : "", backward ? "backward" : "forward");
    if (!ax_dnn_suits(&call.a, b)) {
        puts("is not given to it");
        return false;
    }
    const struct ax_cudnn_shape s = ax_dnn_shape(&call.a, b);
    const size_t room = ax_dnn_room(&s);
    const bool taken = calls->plan(c, &s, &plan, &work, text) == AX_CUDNN_DONE;
    if (taken)
        printf("%s, %.3f of %.3f MiB\n", work <= room ? "taken" : "NEEDS TOO MUCH",
               (double)work / 1048576, (double)room / 1048576);
    else
        printf("refused: %.*s\n", (int)strcspn(text, "\n"), text);
    if (plan)
        calls->forget(plan);
    return taken && work <= room;
}

static bool is_chosen(const char *gpu, int argc, char **argv) {
    bool chosen = argc < 2;
    for (int i = 1; i < argc; i++)
        chosen = chosen || strcmp(argv[i], gpu) == 0;
    return chosen;
}

int main(int argc, char **argv) {
    const struct ax_cudnn_calls *calls;
    struct ax_cudnn *c;
    void *function;
    size_t version;
    char text[AX_CUDNN_TEXT] = "", gpu[2048];
    if (ax_dnn_find(&calls, &function, &version) != AX_OK) {
        puts(ax_error_text());
        return 1;
    }
    for (size_t g = 0; g < sizeof gpus / sizeof *gpus; g++) {
        if (!is_chosen(gpus[g].name, argc, argv))
            continue;
        snprintf(gpu, sizeof gpu, GPU, gpus[g].capability, gpus[g].name, gpus[g].processors,
                 gpus[g].shared, gpus[g].threads);
        if (calls->open(&c, function, gpu, text) != AX_CUDNN_DONE) {
            puts(text);
            return 1;
        }
        int forward = 0, backward = 0, blocks = 0;
        printf("cuDNN %zu, %s:\n", version, gpus[g].name);
        for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
            forward += try(calls, c, &packed[i], false);
            backward += try(calls, c, &packed[i], true);
        }
        for (size_t i = 0; i < sizeof cached / sizeof *cached; i++)
            blocks += try(calls, c, &cached[i], false);
        printf("%s: %d of %zu forward, %d of %zu backward, %d of %zu in blocks\n", gpus[g].name,
               forward, sizeof packed / sizeof *packed, backward, sizeof packed / sizeof *packed,
               blocks, sizeof cached / sizeof *cached);
        calls->close(c);
    }
    return 0;
}

#endif
