/* Shared by the checks of objectives/: golden_objectives.c (entropy) and golden_cross_entropy.c. */
#ifndef AX_CMD_CHECK_GOLDEN_OBJECTIVES_H
#define AX_CMD_CHECK_GOLDEN_OBJECTIVES_H

#include "cmd/check/golden.h"
#include "parallel/runtime.h"

#define AX_GOLDEN_OBJECTIVE_TOLERANCE 1e-5 /* relative, or 1e-7 absolute if larger */

/* Memory for the duration of the check: [rows][cols], or [n]. */
struct ax_tensor ax_golden_rows(struct ax_runtime *rt, enum ax_dtype dtype, int64_t rows,
                                int64_t cols);
struct ax_tensor ax_golden_row(struct ax_runtime *rt, enum ax_dtype dtype, int64_t n);
/* Records |got − want| relative to the largest element of the golden tensor `name`. */
enum ax_status ax_golden_compare(struct ax_golden_report *r, const struct ax_safetensors *st,
                                 const char *name, struct ax_queue *q, const struct ax_tensor *got);

/* cross_entropy.json and .safetensors in dir; false if missing. */
bool ax_golden_cross_entropy(struct ax_golden_report *r, const char *dir,
                             const struct ax_golden_options *o);

#endif
