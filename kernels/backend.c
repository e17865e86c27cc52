#include "kernels/backend.h"

#include <stdlib.h>
#include <string.h>

#include "base/free_space.h"
#include "base/log.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/find.h"

static const char CUDA[] = "cuda", CPU[] = "cpu";

enum ax_status ax_backend_choose(const char *device, bool only_plans, const char **backend) {
    const struct ax_ops *ops;
    const char *environment = getenv("AXTRAIN_DEVICE");
    *backend = CPU;
    if (environment && (!device || strcmp(device, "auto") == 0))
        device = environment;
    if (device && strcmp(device, CPU) == 0)
        return AX_OK;
    if (device && strcmp(device, CUDA) == 0) {
        *backend = CUDA;
        return only_plans ? ax_cuda_find(&ops) : ax_cuda_usable();
    }
    if (device && strcmp(device, "auto") != 0)
        return ax_error(AX_ERR_CONFIG, "device: \"%.40s\" is not one of auto, cuda, cpu", device);
    if (!ax_cuda_is_built())
        return AX_OK;
    if (ax_cuda_usable() == AX_OK)
        *backend = CUDA;
    else
        ax_log_info("device: cpu. %s", ax_error_text());
    ax_error_clear();
    return AX_OK;
}

bool ax_backend_runs(const char *backend) {
    const bool runs = strcmp(backend, CUDA) != 0 || ax_cuda_usable() == AX_OK;
    ax_error_clear();
    return runs;
}

uint64_t ax_backend_memory(const char *backend) {
    return strcmp(backend, CUDA) == 0 ? ax_cuda_memory() : ax_mem_available();
}

bool ax_backend_prefers_bf16(const char *backend) {
    return strcmp(backend, CUDA) == 0 || ax_cpu_prefers_bf16(ax_cpu_isa());
}
