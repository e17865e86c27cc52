/* Progress for people: a bar on a terminal, else key=value lines. All of it goes to stderr; failed
 * writes (EPIPE) are ignored. Private to optim/metrics. */
#ifndef AX_OPTIM_METRICS_PROGRESS_H
#define AX_OPTIM_METRICS_PROGRESS_H

#include "base/mem.h"
#include "optim/metrics/metrics.h"

#define AX_PROGRESS_WATCHED 12

/* A figure that people watch beside the loss. */
struct ax_progress_watch {
    int rank;                   /* its place in the display */
    char name[AX_FIGURES_NAME]; /* as in metrics.jsonl */
    const char *label;          /* for the bar; NULL: the reward function in the name */
    bool share;                 /* a fraction, in percent on the bar */
    bool now;                   /* the step has it, or the completions that it trains on */
    double value;
};

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
    double doing_eta;  /* seconds until `doing` is done; 0 = unknown */
    int n_watched;
    struct ax_progress_watch watched[AX_PROGRESS_WATCHED]; /* in the order of display */
};

/* Takes the figures of a step that are watched: rewards, lengths, margins and the like. Those of completions
 * keep their values in later steps on the same ones, which have no figures, and all do on the bar. */
void ax_progress_watch(struct ax_progress_view *v, const struct ax_step_figures *f,
                       const char *const *measures);

/* One line of at most `width` columns: the most important parts stay, the bar takes the rest. */
enum ax_status ax_progress_bar(struct ax_buf *out, const struct ax_progress_view *v, int width,
                               bool color);
/* "step=10/100 epoch=0.1 loss=1.23 …" and a newline: the main figures, no earlier step's; the files have all. */
enum ax_status ax_progress_line(struct ax_buf *out, const struct ax_progress_view *v);

#endif
