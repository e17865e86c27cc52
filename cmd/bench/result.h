/* Benchmark results: a list of named figures, as JSON, and compared with older ones.
 *
 *   {"version": "0.1.0", "machine": {"cpu": "…", "cpus": 2, …}, "threads": 2, "date": "2026-…Z",
 *    "results": [{"name": "ops/gemm/qkv/bfloat16", "value": 512.3, "unit": "GFLOP/s",
 *                 "better": "higher", "share_of_peak": 0.83}, …], …}
 *
 * share_of_peak is null for figures without a peak. A name contains everything that a figure
 * depends on except the machine, so equal names are comparable. Other keys are ignored. */
#ifndef AX_CMD_BENCH_RESULT_H
#define AX_CMD_BENCH_RESULT_H

#include "base/text/json.h"

struct ax_bench_figure {
    double value; /* finite, ≥ 0 */
    const char *unit;
    bool lower_is_better;
    double share; /* fraction of this process's measured peak; < 0: no peak */
};

struct ax_bench_result {
    char *name, *unit; /* owned; figure.unit is the same */
    struct ax_bench_figure figure;
};

struct ax_bench_list {
    size_t n, cap;
    struct ax_bench_result *list;
    json_t *machine; /* an object; owned */
    int64_t threads;
};

/* Copies the strings. AX_ERR_FAILED for a duplicate name. */
enum ax_status ax_bench_list_add(struct ax_bench_list *l, const char *name,
                                 const struct ax_bench_figure *f);
void ax_bench_list_free(struct ax_bench_list *l); /* safe on a zeroed one */

/* All of the result's JSON except `details`. */
enum ax_status ax_bench_list_json(const struct ax_bench_list *l, json_t **out);
/* AX_ERR_DATA with file and key path; `l` is then empty. */
enum ax_status ax_bench_list_parse(struct ax_bench_list *l, const char *name, const char *text,
                                   size_t len);
/* The same from a file; AX_ERR_CONFIG if it does not exist. */
enum ax_status ax_bench_list_load(struct ax_bench_list *l, const char *path);

/* "5%" → 0.05; 0 to 100 %, otherwise AX_ERR_CONFIG. */
enum ax_status ax_bench_tolerance_parse(const char *text, double *out);

enum ax_bench_verdict { AX_BENCH_SAME, AX_BENCH_BETTER, AX_BENCH_WORSE };
/* Worse: in the bad direction by more than the tolerance, a fraction of the old value. */
enum ax_bench_verdict ax_bench_judge(const struct ax_bench_figure *old,
                                     const struct ax_bench_figure *now, double tolerance);

/* Appends a text table: old, new, ratio and verdict of every common name, then the names that only
 * one has, and a warning if the machines differ. *worse = number of worse figures. */
enum ax_status ax_bench_compare(struct ax_buf *out, const char *old_name,
                                const struct ax_bench_list *old, const struct ax_bench_list *now,
                                double tolerance, int *worse);

/* Four significant digits without an exponent: "0.0123", "12.35", "49152". */
const char *ax_bench_format(char *buf, size_t size, double value);

#endif
