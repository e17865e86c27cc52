/* Results of a benchmark: a list of named figures, as JSON, and beside older ones.
 *
 *   {"version": "0.1.0", "machine": {"cpu": "…", "cpus": 2, …}, "threads": 2, "date": "2026-…Z",
 *    "results": [{"name": "ops/gemm/qkv/bfloat16", "value": 512.3, "unit": "GFLOP/s",
 *                 "better": "higher", "share_of_peak": 0.83}, …], …}
 *
 * share_of_peak is null for what no peak bounds. A name says all that a figure depends on but the
 * machine, so that equal names may be compared. Keys that are not listed here are not looked at. */
#ifndef AX_CMD_BENCH_RESULT_H
#define AX_CMD_BENCH_RESULT_H

#include "base/json.h"

struct ax_bench_figure {
    double value; /* finite, ≥ 0 */
    const char *unit;
    bool lower_is_better;
    double share; /* of this process's measured peak; < 0: nothing to compare with */
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

/* Copies the texts. AX_ERR_FAILED for a name that is there already. */
enum ax_status ax_bench_list_add(struct ax_bench_list *l, const char *name,
                                 const struct ax_bench_figure *f);
/* NULL: no result has that name. */
const struct ax_bench_result *ax_bench_list_find(const struct ax_bench_list *l, const char *name);
void ax_bench_list_free(struct ax_bench_list *l); /* safe on a zeroed one */

/* Everything but `details` of the result's JSON. */
enum ax_status ax_bench_list_json(const struct ax_bench_list *l, json_t **out);
/* AX_ERR_DATA with file and key path. `l` is empty then. */
enum ax_status ax_bench_list_parse(struct ax_bench_list *l, const char *name, const char *text,
                                   size_t len);
/* The same from a file; AX_ERR_CONFIG where there is none. */
enum ax_status ax_bench_list_load(struct ax_bench_list *l, const char *path);

/* "5%" → 0.05; 0 to 100 %. AX_ERR_CONFIG says so. */
enum ax_status ax_bench_tolerance_parse(const char *text, double *out);

enum ax_bench_verdict { AX_BENCH_SAME, AX_BENCH_BETTER, AX_BENCH_WORSE };
/* Worse: by more than the tolerance, a share of the old value, in the bad direction. */
enum ax_bench_verdict ax_bench_judge(const struct ax_bench_figure *old,
                                     const struct ax_bench_figure *now, double tolerance);

/* Appends a table for people: old, new, ratio and verdict of every name both have; then the names
 * that only one of them has; and a warning where the machines differ. *worse = how many are. */
enum ax_status ax_bench_compare(struct ax_buf *out, const char *old_name,
                                const struct ax_bench_list *old, const struct ax_bench_list *now,
                                double tolerance, int *worse);

/* Four significant digits without an exponent: "0.0123", "12.35", "49152". */
const char *ax_bench_format(char *buf, size_t size, double value);

#endif
