/* In place of kernels/cuda/libraries.c: no file is opened. AXTRAIN_EMULATED_MISSING names one that is not
 * there. */
extern "C" {
#include "kernels/cuda/libraries.h"
}

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/attention/cudnn_shim.h"
#include "tests/doubles/cuda/libraries.h"
#include "kernels/cuda/nccl_api.h"

static const struct {
    const char *file;
    const ax_standin *functions;
} libraries[] = {
    {AX_CUBLASLT_FILE, ax_standin_cublaslt}, {AX_NCCL_FILE, ax_standin_nccl},
    {AX_CUDNN_SHIM, ax_standin_cudnn},       {AX_CUDNN_FILE, ax_standin_cudnn},
    {AX_CUDART_FILE, ax_standin_cudnn},
};

static void *find(const ax_standin *functions, const char *name) {
    for (const ax_standin *f = functions; f && f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f->function;
    return nullptr;
}

extern "C" enum ax_status ax_cuda_library_open(const char *file, const char *remedy,
                                               const struct ax_symbol *symbols, size_t n) {
    const ax_standin *functions = nullptr;
    const char *missing = getenv("AXTRAIN_EMULATED_MISSING");
    for (const auto &library : libraries)
        if (strcmp(library.file, file) == 0 && !(missing && strcmp(missing, file) == 0))
            functions = library.functions;
    for (size_t i = 0; i < n; i++) {
        void *function = find(functions, symbols[i].name);
        if (!function)
            return ax_error(AX_ERR_UNSUPPORTED, "device cuda: no stand-in for %s of %s. %s",
                            symbols[i].name, file, remedy);
        memcpy(symbols[i].slot, &function, sizeof function);
    }
    return AX_OK;
}
