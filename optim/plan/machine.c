/* Machines for a plan of time: by name, from a file, or this one as it is measured. */
#include "optim/plan/machine.h"

#include <stdio.h>
#include <string.h>

#include "base/io_path.h"
#include "base/mem.h"
#include "base/text/tsv.h"
#include "optim/plan/bandwidth.h"
#include "optim/plan/peak.h"

/* ---- a file ---- */

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
    h->node = ranks >= 1 && ranks <= 65536 ? (int)ranks : 0;
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
    AX_TRY(ax_measure_gemm_peak(here, dtype, &h->bf16));
    AX_TRY(ax_measure_copy_bandwidth(here, &h->bandwidth));
    h->node_link = h->network = h->host = h->bandwidth / 2;
    return AX_OK;
}
