/* Machines for a plan of time: by name, from a file, or this one as it is measured. */
#include "optim/plan/hardware.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/io_path.h"
#include "base/mem.h"
#include "base/text/tsv.h"
#include "base/text/words.h"
#include "optim/plan/bandwidth.h"
#include "optim/plan/peak.h"

/* ---- by name ---- */

#define TERA 1e12
#define GIGA 1e9
#define GIB  (1024.0 * 1024 * 1024)
#define GBIT (1e9 / 8)

/* Where NVLink is absent, node_link is PCIe x16: 31 GB/s of generation 4, 63 of generation 5. The host is
 * behind the same PCIe everywhere, except that Grace is behind NVLink-C2C: 450. */
static const struct ax_hardware table[] = {
    {"a100-40", 312 * TERA, 0, 40 * GIB, 1555 * GIGA, 300 * GIGA, 200 * GBIT, 31 * GIGA, 8,
     "NVIDIA A100 data sheet; HDR InfiniBand", 80},
    {"a100-80", 312 * TERA, 0, 80 * GIB, 2039 * GIGA, 300 * GIGA, 200 * GBIT, 31 * GIGA, 8,
     "NVIDIA A100 data sheet; HDR InfiniBand", 80},
    {"h100-sxm-80", 989 * TERA, 1979 * TERA, 80 * GIB, 3350 * GIGA, 450 * GIGA, 400 * GBIT,
     63 * GIGA, 8, "NVIDIA H100 data sheet; DGX H100, NDR InfiniBand", 90},
    {"h100-sxm-96-500w", 989 * TERA, 1979 * TERA, 95 * GIB, 2400 * GIGA, 450 * GIGA, 400 * GBIT,
     63 * GIGA, 8, "torchtitan, benchmarks/llama3_h100_202412: HBM2e of 2.4 TB/s, limited to 500 W",
     90},
    {"h200", 989 * TERA, 1979 * TERA, 141 * GIB, 4800 * GIGA, 450 * GIGA, 400 * GBIT, 63 * GIGA, 8,
     "NVIDIA H200 data sheet; NDR InfiniBand", 90},
    {"h800", 989 * TERA, 1979 * TERA, 80 * GIB, 3350 * GIGA, 200 * GIGA, 400 * GBIT, 63 * GIGA, 8,
     "H100 with NVLink of 400 GB/s in both directions: DeepSeek-V3 report", 90},
    {"b200", 2250 * TERA, 4500 * TERA, 180 * GIB, 8000 * GIGA, 900 * GIGA, 400 * GBIT, 63 * GIGA, 8,
     "NVIDIA HGX B200 data sheet", 100},
    {"b300", 2250 * TERA, 4500 * TERA, 288 * GIB, 8000 * GIGA, 900 * GIGA, 800 * GBIT, 63 * GIGA, 8,
     "NVIDIA HGX B300 data sheet; XDR InfiniBand", 103},
    {"gb200", 2500 * TERA, 5000 * TERA, 184.3 * GIB, 8000 * GIGA, 900 * GIGA, 400 * GBIT,
     450 * GIGA, 72, "NVIDIA GB200 NVL72 data sheet", 100},
    {"gb300", 2500 * TERA, 5000 * TERA, 279 * GIB, 8000 * GIGA, 900 * GIGA, 800 * GBIT, 450 * GIGA,
     72, "NVIDIA GB300 NVL72 data sheet", 103},
    {"mi300x", 1307.4 * TERA, 2614.9 * TERA, 192 * GIB, 5300 * GIGA, 448 * GIGA, 400 * GBIT,
     63 * GIGA, 8, "AMD MI300X data sheet: 7 links of 64 GB/s", 0},
    {"mi325x", 1307.4 * TERA, 2614.9 * TERA, 256 * GIB, 6000 * GIGA, 448 * GIGA, 400 * GBIT,
     63 * GIGA, 8, "AMD MI325X data sheet: 7 links of 64 GB/s", 0},
    {"mi355x", 2516.6 * TERA, 5033 * TERA, 288 * GIB, 8000 * GIGA, 535.5 * GIGA, 400 * GBIT,
     63 * GIGA, 8, "AMD MI355X data sheet: 7 links of 76.5 GB/s", 0},
    {"rtx4090", 165.2 * TERA, 330.3 * TERA, 24 * GIB, 1008 * GIGA, 31 * GIGA, 100 * GBIT, 31 * GIGA,
     8, "NVIDIA Ada white paper, products summed in float32; PCIe 4.0", 89},
    {"rtxpro6000-96", 503.8 * TERA, 1007.6 * TERA, 96 * GIB, 1597 * GIGA, 63 * GIGA, 400 * GBIT,
     63 * GIGA, 8, "NVIDIA RTX Blackwell PRO white paper; PCIe 5.0", 120},
    {"rtx5060ti-16", 47.4 * TERA, 94.8 * TERA, 16 * GIB, 448 * GIGA, 31 * GIGA, 100 * GBIT,
     31 * GIGA, 8, "scaled from the RTX 5070 by LLMQ; PCIe 5.0 x8", 120},
};
#define N_HARDWARE (sizeof table / sizeof *table)

const char *ax_hardware_name(size_t i) {
    return i < N_HARDWARE ? table[i].name : NULL;
}

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

bool ax_hardware_is_hopper(const struct ax_hardware *h) {
    static const char *const prefixes[] = {"h100", "h200", "h800"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncasecmp(h->name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return h->gpu == 90;
}

/* ---- from a file ---- */

static const struct {
    const char *name;
    double unit;
    size_t offset; /* of a double */
    bool optional; /* may be empty, which is 0 */
} columns[] = {
    {"bf16_fp16_dense_tflops", 1e12, offsetof(struct ax_hardware, bf16), false},
    {"fp8_dense_tflops", 1e12, offsetof(struct ax_hardware, fp8), true},
    {"memory_gib", 1024.0 * 1024 * 1024, offsetof(struct ax_hardware, memory), false},
    {"hbm_gb_s", 1e9, offsetof(struct ax_hardware, bandwidth), false},
    {"nvlink_gb_s_per_direction_per_gpu", 1e9, offsetof(struct ax_hardware, node_link), false},
    {"internode_gbit_s_per_gpu", 1e9 / 8, offsetof(struct ax_hardware, network), false},
};
#define N_COLUMNS (sizeof columns / sizeof *columns)
/* Without NVLink, and to the host, of PCIe 4.0 x16. */
#define PCIE 31e9

static enum ax_status missing_columns(const struct ax_tsv *t) {
    struct ax_buf names = {0};
    enum ax_status st = ax_tsv_column(t, "name") < 0 ? ax_buf_puts(&names, " name") : AX_OK;
    for (size_t i = 0; i < N_COLUMNS && st == AX_OK; i++)
        if (ax_tsv_column(t, columns[i].name) < 0)
            st = ax_buf_printf(&names, " %s", columns[i].name);
    if (st == AX_OK && names.len > 0)
        st = ax_error(AX_ERR_CONFIG, "%s: columns are missing:%s", t->path, names.data);
    ax_buf_free(&names);
    return st;
}

static enum ax_status read_row(const struct ax_tsv *t, int row, struct ax_hardware *h) {
    const int node = ax_tsv_column(t, "gpus_per_node"), host = ax_tsv_column(t, "host_gb_s");
    *h = (struct ax_hardware){.source = "the file"};
    snprintf(h->name, sizeof h->name, "%s", ax_tsv_cell(t, row, ax_tsv_column(t, "name")));
    for (size_t i = 0; i < N_COLUMNS; i++) {
        double *value = (double *)(void *)((char *)h + columns[i].offset);
        const int c = ax_tsv_column(t, columns[i].name);
        if (columns[i].optional && ax_tsv_cell(t, row, c)[0] == '\0')
            continue;
        AX_TRY(ax_tsv_number(t, row, c, value, NULL));
        *value *= columns[i].unit;
    }
    if (h->bf16 <= 0 || h->bandwidth <= 0 || h->memory <= 0)
        return ax_error(AX_ERR_CONFIG, "%s:%d: speeds and memory of %s must be more than 0",
                        t->path, ax_tsv_line(row), h->name);
    if (h->node_link == 0)
        h->node_link = PCIE;
    if (h->network == 0)
        h->network = h->node_link;
    double ranks = 0, gigabytes = 0;
    if (ax_tsv_cell(t, row, node)[0])
        AX_TRY(ax_tsv_number(t, row, node, &ranks, NULL));
    if (ax_tsv_cell(t, row, host)[0])
        AX_TRY(ax_tsv_number(t, row, host, &gigabytes, NULL));
    h->host = gigabytes > 0 ? gigabytes * 1e9 : PCIE;
    h->node = ranks >= 1 && ranks <= 65536 ? (int)ranks : 8;
    return AX_OK;
}

static enum ax_status no_row(const struct ax_tsv *t, const char *name) {
    struct ax_buf names = {0};
    enum ax_status st = AX_OK;
    for (int row = 0; row < t->n_rows && st == AX_OK; row++)
        st = ax_buf_printf(&names, "%s%s", row > 0 ? ", " : "",
                           ax_tsv_cell(t, row, ax_tsv_column(t, "name")));
    if (st == AX_OK)
        st = name ? ax_error(AX_ERR_CONFIG, "%s: no row is called \"%.64s\"; there are %s", t->path,
                             name, names.data ? names.data : "none")
                  : ax_error(AX_ERR_CONFIG, "%s: which row? Add a colon and its name: there are %s",
                             t->path, names.data ? names.data : "none");
    ax_buf_free(&names);
    return st;
}

static enum ax_status find_row(const struct ax_tsv *t, const char *name, struct ax_hardware *h) {
    AX_TRY(missing_columns(t));
    if (!name && t->n_rows == 1)
        return read_row(t, 0, h);
    for (int row = 0; name && row < t->n_rows; row++)
        if (strcmp(ax_tsv_cell(t, row, ax_tsv_column(t, "name")), name) == 0)
            return read_row(t, row, h);
    return no_row(t, name);
}

static enum ax_status from_file(const char *path, const char *name, struct ax_hardware *h) {
    struct ax_tsv t;
    AX_TRY(ax_tsv_read(&t, path));
    const enum ax_status st = find_row(&t, name, h);
    ax_tsv_free(&t);
    return st;
}

enum ax_status ax_plan_hardware(const char *text, struct ax_hardware *h) {
    const char *colon = strrchr(text, ':');
    if (ax_path_ends_in(text, ".tsv"))
        return from_file(text, NULL, h);
    if (!colon)
        return ax_hardware_find(text, h);
    char *path;
    AX_TRY(ax_strndup(&path, text, (size_t)(colon - text)));
    const enum ax_status st = from_file(path, colon + 1, h);
    ax_free(path);
    return st;
}

/* ---- this machine ---- */

/* Ranks on one machine move data through its memory: written by one, read by another. */
enum ax_status ax_plan_measure(const struct ax_runtime_options *here, enum ax_dtype dtype,
                               struct ax_hardware *h) {
    *h = (struct ax_hardware){.name = "this machine", .source = "measured now", .node = 65536};
    struct ax_peak peak;
    AX_TRY(ax_measure_gemm_peak(here, dtype, AX_PEAK_SECONDS, &peak));
    h->bf16 = peak.flops;
    AX_TRY(ax_measure_copy_bandwidth(here, &h->bandwidth));
    h->node_link = h->network = h->host = h->bandwidth / 2;
    return AX_OK;
}
