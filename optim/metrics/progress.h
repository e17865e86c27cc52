/* Progress for people: a bar on a terminal, else key=value lines. All of it goes to stderr; failed
 * writes (EPIPE) are ignored. Private to optim/metrics. */
#ifndef AX_OPTIM_METRICS_PROGRESS_H
#define AX_OPTIM_METRICS_PROGRESS_H

#include "base/mem.h"
#include "optim/metrics/metrics.h"

/* Displayed figures: means over the last steps. */
struct ax_progress_view {
    int64_t step, total_steps; /* total 0 = unknown */
    double epoch, loss, grad_norm, learning_rate;
    double tokens_per_second, mfu; /* mfu < 0 = unknown */
    int devices;
    double memory;     /* bytes */
    double eta;        /* seconds; < 0 = unknown */
    const char *doing; /* "evaluating", or NULL */
    int64_t done, of;  /* progress of `doing` */
};

/* One line of at most `width` columns: the most important parts stay, the bar takes the rest. */
enum ax_status ax_progress_bar(struct ax_buf *out, const struct ax_progress_view *v, int width,
                               bool color);
/* "step=10/100 epoch=0.1 loss=1.23 …" and a newline: the main figures; the files have all. */
enum ax_status ax_progress_line(struct ax_buf *out, const struct ax_progress_view *v);

#endif
