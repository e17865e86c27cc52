/* metrics.csv: a line per step, with the columns that every run has and those of its method: the
 * objective's measures and the figures of completions. A column is added to the file when a step has a
 * figure without one; earlier lines are empty there. Private to optim/metrics. */
#ifndef AX_OPTIM_METRICS_METRICS_CSV_H
#define AX_OPTIM_METRICS_METRICS_CSV_H

#include "optim/metrics/metrics_file.h"
#include "optim/metrics/metrics_text.h"

struct ax_metrics_csv {
    struct ax_metrics_file file;
    struct ax_buf header; /* the first line, without its newline */
};

/* After `file` is open: reads its header, or writes one. */
enum ax_status ax_metrics_csv_begin(struct ax_metrics_csv *m);
void ax_metrics_csv_close(struct ax_metrics_csv *m); /* m may be zeroed */
/* Appends a step; numbers that are not finite are empty. */
enum ax_status ax_metrics_csv_add(struct ax_metrics_csv *m, const struct ax_step_figures *f,
                                  struct ax_utilization u, const char *const *measures);

#endif
