/* The results of lm-evaluation-harness, as harness.py sends them:
 *   {"results": {TASK or GROUP: {"METRIC,FILTER": number or text, "METRIC_stderr,FILTER": …}}, "groups",
 *    "group_subtasks": {GROUP: [name, …]}, "n-shot", "n-samples", "higher_is_better",
 *    "alias": {TASK or GROUP: text}, "lm_eval": version} */
#ifndef AX_CMD_HARNESS_REPORT_H
#define AX_CMD_HARNESS_REPORT_H

#include "base/mem.h"
#include "base/text/json.h"
#include "optim/losses/figures.h"

/* AX_ERR_DATA if something is missing, or of another type. */
enum ax_status ax_harness_check(struct ax_json results);
/* The table of `axtrain eval --task`, from results that have been checked. */
enum ax_status ax_harness_table(const json_t *results, struct ax_buf *out);
/* Adds their numbers without standard errors, as TASK/METRIC,FILTER, of the filter none TASK/METRIC; warns if there
 * are too many. */
void ax_harness_figures(const json_t *results, struct ax_figures *out);

#endif
