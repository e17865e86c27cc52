/* The table of machines that are known by name. */
#include "optim/plan/hardware.h"

#include <stdio.h>
#include <strings.h>

#include "base/text/words.h"

#define TERA 1e12
#define GIGA 1e9
#define GIB  (1024.0 * 1024 * 1024)
#define GBIT (1e9 / 8)

/* Where NVLink is absent, node_link is PCIe x16: 31 GB/s of generation 4, 63 of generation 5. The host is
 * behind the same PCIe everywhere, except that Grace is behind NVLink-C2C: 450. */
static const struct ax_hardware table[] = {
    {"a100-40", 312 * TERA, 0, 40 * GIB, 1555 * GIGA, 300 * GIGA, 200 * GBIT, 31 * GIGA, 8,
     "NVIDIA A100 data sheet; HDR InfiniBand"},
    {"a100-80", 312 * TERA, 0, 80 * GIB, 2039 * GIGA, 300 * GIGA, 200 * GBIT, 31 * GIGA, 8,
     "NVIDIA A100 data sheet; HDR InfiniBand"},
    {"h100-sxm-80", 989 * TERA, 1979 * TERA, 80 * GIB, 3350 * GIGA, 450 * GIGA, 400 * GBIT,
     63 * GIGA, 8, "NVIDIA H100 data sheet; DGX H100, NDR InfiniBand"},
    {"h100-sxm-96-500w", 989 * TERA, 1979 * TERA, 95 * GIB, 2400 * GIGA, 450 * GIGA, 400 * GBIT,
     63 * GIGA, 8,
     "torchtitan, benchmarks/llama3_h100_202412: HBM2e of 2.4 TB/s, limited to 500 W"},
    {"h200", 989 * TERA, 1979 * TERA, 141 * GIB, 4800 * GIGA, 450 * GIGA, 400 * GBIT, 63 * GIGA, 8,
     "NVIDIA H200 data sheet; NDR InfiniBand"},
    {"h800", 989 * TERA, 1979 * TERA, 80 * GIB, 3350 * GIGA, 200 * GIGA, 400 * GBIT, 63 * GIGA, 8,
     "H100 with NVLink of 400 GB/s in both directions: DeepSeek-V3 report"},
    {"b200", 2250 * TERA, 4500 * TERA, 180 * GIB, 8000 * GIGA, 900 * GIGA, 400 * GBIT, 63 * GIGA, 8,
     "NVIDIA HGX B200 data sheet"},
    {"b300", 2250 * TERA, 4500 * TERA, 288 * GIB, 8000 * GIGA, 900 * GIGA, 800 * GBIT, 63 * GIGA, 8,
     "NVIDIA HGX B300 data sheet; XDR InfiniBand"},
    {"gb200", 2500 * TERA, 5000 * TERA, 184.3 * GIB, 8000 * GIGA, 900 * GIGA, 400 * GBIT,
     450 * GIGA, 72, "NVIDIA GB200 NVL72 data sheet"},
    {"gb300", 2500 * TERA, 5000 * TERA, 279 * GIB, 8000 * GIGA, 900 * GIGA, 800 * GBIT, 450 * GIGA,
     72, "NVIDIA GB300 NVL72 data sheet"},
    {"mi300x", 1307.4 * TERA, 2614.9 * TERA, 192 * GIB, 5300 * GIGA, 448 * GIGA, 400 * GBIT,
     63 * GIGA, 8, "AMD MI300X data sheet: 7 links of 64 GB/s"},
    {"mi325x", 1307.4 * TERA, 2614.9 * TERA, 256 * GIB, 6000 * GIGA, 448 * GIGA, 400 * GBIT,
     63 * GIGA, 8, "AMD MI325X data sheet: 7 links of 64 GB/s"},
    {"mi355x", 2516.6 * TERA, 5033 * TERA, 288 * GIB, 8000 * GIGA, 535.5 * GIGA, 400 * GBIT,
     63 * GIGA, 8, "AMD MI355X data sheet: 7 links of 76.5 GB/s"},
    {"rtx4090", 165.2 * TERA, 330.3 * TERA, 24 * GIB, 1008 * GIGA, 31 * GIGA, 100 * GBIT, 31 * GIGA,
     8, "NVIDIA Ada white paper, products summed in float32; PCIe 4.0"},
    {"rtxpro6000-96", 503.8 * TERA, 1007.6 * TERA, 96 * GIB, 1597 * GIGA, 63 * GIGA, 400 * GBIT,
     63 * GIGA, 8, "NVIDIA RTX Blackwell PRO white paper; PCIe 5.0"},
    {"rtx5060ti-16", 47.4 * TERA, 94.8 * TERA, 16 * GIB, 448 * GIGA, 31 * GIGA, 100 * GBIT,
     31 * GIGA, 8, "scaled from the RTX 5070 by LLMQ; PCIe 5.0 x8"},
};
#define N_HARDWARE (sizeof table / sizeof *table)

static const char *list_names(char *buf, size_t size) {
    size_t at = 0;
    buf[0] = '\0';
    for (size_t i = 0; i < N_HARDWARE && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%s", i > 0 ? ", " : "", table[i].name);
    return buf;
}

enum ax_status ax_hardware_find(const char *name, struct ax_hardware *out) {
    struct ax_nearest near = {.given = name, .within = 4};
    char all[512];
    for (size_t i = 0; i < N_HARDWARE; i++) {
        if (strcasecmp(name, table[i].name) == 0) {
            *out = table[i];
            return AX_OK;
        }
        ax_nearest_try(&near, table[i].name);
    }
    if (near.name)
        return ax_error(AX_ERR_CONFIG,
                        "--hardware: no machine is called \"%.64s\"; did you mean %s?", name,
                        near.name);
    return ax_error(AX_ERR_CONFIG,
                    "--hardware: no machine is called \"%.64s\"; there are %s. A path that ends in "
                    ".tsv names a file of machines.",
                    name, list_names(all, sizeof all));
}
