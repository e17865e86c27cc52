#include "kernels/backend.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/free_space.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernels/cpu/isa.h"
#include "kernels/cuda/find.h"

static const struct ax_ops *added;

static enum ax_status find_ref(const struct ax_ops **ops) {
    *ops = &ax_ops_ref;
    return AX_OK;
}

static enum ax_status find_cpu(const struct ax_ops **ops) {
    *ops = ax_ops_cpu();
    return *ops ? AX_OK
                : ax_error(AX_ERR_UNSUPPORTED,
                           "backend cpu: this machine's processor has no AVX2. Use backend ref "
                           "(slow, double precision) or another machine.");
}

static const struct {
    const char *name;
    enum ax_status (*find)(const struct ax_ops **ops);
} backends[] = {{"ref", find_ref}, {"cpu", find_cpu}, {"cuda", ax_cuda_find}};

const char *ax_backend_name(size_t i) {
    return i < sizeof backends / sizeof *backends ? backends[i].name : NULL;
}

void ax_backend_add(const struct ax_ops *ops) {
    AX_ASSERT(!added);
    added = ops;
}

enum ax_status ax_backend_find(const char *name, const struct ax_ops **ops) {
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(name, backends[i].name) == 0)
            return backends[i].find(ops);
    for (int isa = AX_CPU_AVX2; isa < AX_CPU_ISAS; isa++)
        if (strcmp(name, ax_cpu_isa_name((enum ax_cpu_isa)isa)) == 0 &&
            ax_cpu_has((enum ax_cpu_isa)isa)) {
            *ops = ax_cpu_ops((enum ax_cpu_isa)isa);
            return AX_OK;
        }
    if (added && strcmp(name, added->name) == 0) {
        *ops = added;
        return AX_OK;
    }
    return ax_error(AX_ERR_CONFIG,
                    "backend: no backend is called \"%.40s\". Choose cpu, cuda or ref.", name);
}

/* ---- devices ---- */

#define NVIDIA  0x10deUL
#define DISPLAY 0x03UL /* base class of VGA and 3D controllers */
#define MOST    4096   /* bytes of a file */

/* The number in a device's file; 0: there is none. */
static unsigned long number(const char *folder, const char *device, const char *file) {
    char path[512], *text;
    size_t len;
    snprintf(path, sizeof path, "%s/%s/%s", folder, device, file);
    if (ax_read_file(path, MOST, &text, &len) != AX_OK) {
        ax_error_clear();
        return 0;
    }
    const unsigned long value = strtoul(text, NULL, 16);
    ax_free(text);
    return value;
}

bool ax_bus_has_nvidia(void) {
    const char *given = getenv("AX_PCI_DEVICES");
    const char *folder = given ? given : "/sys/bus/pci/devices";
    bool found = false;
    struct ax_dir d;
    ax_dir_open(&d, folder);
    for (const char *name; !found && (name = ax_dir_next(&d)) != NULL;)
        found = number(folder, name, "vendor") == NVIDIA &&
                number(folder, name, "class") >> 16 == DISPLAY;
    ax_dir_end_or_warn(&d, AX_OK);
    return found;
}

static const char AUTO[] = "auto", CUDA[] = "cuda", CPU[] = "cpu";

const char *ax_device_word(size_t i) {
    static const char *const words[] = {AUTO, CUDA, CPU};
    return i < sizeof words / sizeof *words ? words[i] : NULL;
}

/* What stands for `device` where it leaves the choice to the environment. */
static const char *requested(const char *device) {
    const char *environment = getenv("AXTRAIN_DEVICE");
    return environment && (!device || strcmp(device, AUTO) == 0) ? environment : device;
}

enum ax_status ax_backend_choose(const char *device, bool only_plans, const char **backend) {
    const struct ax_ops *ops;
    device = requested(device);
    *backend = CPU;
    if (device && strcmp(device, CPU) == 0)
        return AX_OK;
    if (device && strcmp(device, CUDA) == 0) {
        *backend = CUDA;
        return only_plans ? ax_cuda_find(&ops) : ax_cuda_usable();
    }
    if (device && strcmp(device, AUTO) != 0)
        return ax_error(AX_ERR_CONFIG, "device: \"%.40s\" is not one of auto, cuda, cpu", device);
    const bool has_gpu = ax_bus_has_nvidia();
    if (ax_cuda_usable() == AX_OK)
        *backend = CUDA;
    else if (has_gpu)
        ax_log_info("device: cpu. %s", ax_error_text());
    ax_error_clear();
    return AX_OK;
}

int ax_backend_gpus(const char *device) {
    int n = 0;
    device = requested(device);
    if (device && strcmp(device, AUTO) != 0 && strcmp(device, CUDA) != 0)
        return 0;
    if (ax_cuda_gpus(&n) != AX_OK)
        n = 0;
    ax_error_clear();
    return n;
}

bool ax_backend_runs(const char *backend) {
    const bool runs = strcmp(backend, CUDA) != 0 || ax_cuda_usable() == AX_OK;
    ax_error_clear();
    return runs;
}

uint64_t ax_backend_memory(const char *backend, int ranks) {
    const uint64_t n = (uint64_t)ranks;
    if (strcmp(backend, CUDA) == 0)
        return ax_cuda_memory();
    return (ax_mem_available() + n - 1) / n; /* 0 is what is not known */
}

/* On the host: code, libraries, thread stacks, data sets and parsers. On a GPU: the driver's context, kernels and
 * workspaces of cuBLASLt and cuDNN, which are loaded as they are used, graphs, and NCCL's buffers of each group. */
#define MIB      (UINT64_C(1) << 20)
#define OF_HOST  (128 * MIB)
#define OF_GPU   (1024 * MIB)
#define OF_GROUP (512 * MIB)

uint64_t ax_backend_beside(const char *backend, int groups) {
    const bool gpu = strcmp(backend, CUDA) == 0 || strcmp(backend, "sheet") == 0;
    return gpu ? OF_GPU + OF_GROUP * (uint64_t)groups : OF_HOST;
}

bool ax_backend_prefers_bf16(const char *backend) {
    return strcmp(backend, CUDA) == 0 || ax_cpu_prefers_bf16(ax_cpu_isa());
}
