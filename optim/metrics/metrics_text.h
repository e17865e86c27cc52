/* The records of metrics.jsonl as text, and how much of it and of metrics.csv is complete.
 * Private to optim/metrics. */
#ifndef AX_OPTIM_METRICS_METRICS_TEXT_H
#define AX_OPTIM_METRICS_METRICS_TEXT_H

#include "base/mem.h"
#include "optim/metrics/metrics.h"

/* The columns of every metrics.csv; those of the method follow (metrics_csv.h). */
#define AX_METRICS_CSV_FIXED                                                                       \
    "step,epoch,loss,grad_norm,learning_rate,tokens,trained_tokens,seconds,tokens_per_second,mfu," \
    "hfu,memory_bytes,peak_memory_bytes,skipped"

struct ax_utilization {
    double model, hardware; /* MFU, HFU as fractions; < 0 = unknown */
};
/* The figures of a step that all its records have, from epoch to peak_memory_bytes. */
enum { AX_METRICS_FIGURES = 12 };
void ax_metrics_figures(double *out, const struct ax_step_figures *f, struct ax_utilization u);
/* Each is one line; numbers that are not finite are null (CSV: empty). */
enum ax_status ax_metrics_put_step(struct ax_buf *out, const struct ax_step_figures *f,
                                   struct ax_utilization u, const char *const *measures);
enum ax_status ax_metrics_put_eval(struct ax_buf *out, int64_t step, double epoch,
                                   const struct ax_eval_result *r, const char *const *measures);
/* The same for people: on a terminal with a bar, or as key=value. */
enum ax_status ax_metrics_put_eval_line(struct ax_buf *out, bool bar, int64_t step, double epoch,
                                        const struct ax_eval_result *r,
                                        const char *const *measures);
/* Stores only the end of a long prompt. */
enum ax_status ax_metrics_put_sample(struct ax_buf *out, int64_t step, const struct ax_buf *prompt,
                                     const struct ax_buf *answer);
/* The same as a short line for users. */
enum ax_status ax_metrics_put_sample_line(struct ax_buf *out, int64_t step, int index,
                                          const struct ax_buf *prompt, const struct ax_buf *answer);
enum ax_status ax_metrics_put_event(struct ax_buf *out, int64_t step, const char *event,
                                    const char *text);

/* Bytes of the complete lines before the first of a step after resume_step; 0 if the CSV has
 * another header. */
uint64_t ax_metrics_whole_jsonl(const unsigned char *data, size_t n, int64_t resume_step);
/* The same, and before the record of the evaluation after resume_step, if there is one. */
uint64_t ax_metrics_whole_before_eval(const unsigned char *data, size_t n, int64_t resume_step);
uint64_t ax_metrics_whole_csv(const unsigned char *data, size_t n, int64_t resume_step);

#endif
