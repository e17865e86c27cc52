/* What a run reports: progress for people, files for tools.
 *
 *   FOLDER/metrics.jsonl   one object per step, evaluation or event
 *   FOLDER/metrics.csv     the steps again, one line each
 *   FOLDER/completions.jsonl  what a model that trains on samples has sampled, with rewards
 *   FOLDER/runs/           TensorBoard event files with Hugging Face's names (train/loss, …)
 *   stderr                 a progress bar on a terminal, else a key=value line every logging_steps
 *
 * Nothing here stops training: a failed write (full disk) gives one warning, is retried with the
 * next record, and is counted. Only ax_metrics_open fails. Rank 0 opens one; all functions accept
 * NULL, so other ranks can call them too.
 *
 * MFU ("model FLOPs utilization") = flops_per_token · tokens/s / peak_flops, where flops_per_token
 * is ax_model_flops_per_token's and peak_flops the machine's fastest GEMM as measured by this
 * process (optim/plan/peak.h; a step that computes faster raises it). HFU ("hardware …") = executed FLOPs / seconds / peak_flops: with what is
 * computed again, and padding.
 *
 * See metrics.c (what happens to a step), metrics_text.h (records), metrics_csv.h, metrics_file.h (files that are
 * truncated on resume and survive a full disk), tfevents.h (TensorBoard), progress.h (bar and
 * lines). */
#ifndef AX_OPTIM_METRICS_METRICS_H
#define AX_OPTIM_METRICS_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/term.h"
#include "optim/evaluate/evaluate.h"
#include "optim/step/expert_balance.h"
#include "optim/losses/figures.h"

#define AX_METRICS_MAX_PHASES 12
#define AX_METRICS_MAX_ROLES  11

#define AX_METRICS_DOING_SECONDS 30.0

struct ax_metrics;

/* Steps since the last logging_steps entry; the next entry reports their mean loss. Excludes steps
 * whose loss is not finite. */
struct ax_metrics_window {
    int64_t steps;
    double loss; /* sum of their losses */
};

/* A consumer of the lines of metrics.jsonl, called as they are written. */
struct ax_metrics_sink {
    void *ctx;
    void (*begin)(void *ctx, int64_t resume_step); /* before the first line; NULL: no sink */
    void (*record)(void *ctx, const char *json, size_t n); /* one line with its newline */
};

/* A checkpoint of an earlier process. Its event is missing if that was killed before it could write it, and
 * removed if it came after a later step: it is written again. */
struct ax_metrics_saved {
    int64_t step;
    char *path; /* NULL: there is none */
    bool told;  /* the event was written: the sink is not told again */
};

struct ax_metrics_options {
    int64_t total_steps;   /* in the full run; 0 = unknown */
    int64_t logging_steps; /* ≥ 1: a line and a TensorBoard entry every N steps */
    int64_t resume_step;   /* continue after this step: later records are removed; 0 = start over */
    bool evaluates; /* the evaluation after resume_step is done again: its record is removed */
    struct ax_metrics_window window; /* its state after resume_step */
    double flops_per_token;          /* 0 = no MFU */
    double peak_flops; /* per second, all devices; 0 = unknown (so far): ax_metrics_set_peak */
    int devices;       /* ≥ 1: for tokens/s per device */
    bool tensorboard;  /* event files too */
    const char *const *measures; /* names of the objective's measures, NULL-terminated; or NULL */
    bool completions;            /* completions.jsonl too */
    bool progress;               /* false: files only (--quiet) */
    double doing_seconds;        /* between lines about an activity; 0: AX_METRICS_DOING_SECONDS */
    enum ax_color_mode color;
    struct ax_metrics_sink sink;
    struct ax_metrics_saved saved; /* borrowed while ax_metrics_open runs */
};

/* `folder` must exist. Files of an earlier run are truncated to resume_step, or started over. */
enum ax_status ax_metrics_open(struct ax_metrics **out, const char *folder,
                               const struct ax_metrics_options *o);
/* Writes pending records and removes the bar. m may be NULL. */
void ax_metrics_close(struct ax_metrics *m);
/* True if metrics.jsonl of an earlier run in `folder` has the record of this step. */
bool ax_metrics_has_step(const char *folder, int64_t step);
/* True if it has the event that checkpoint-`step` is saved. */
bool ax_metrics_has_saved(const char *folder, int64_t step);
/* Set after the first step, so that measuring does not delay it. */
void ax_metrics_set_peak(struct ax_metrics *m, double peak_flops);

/* The window after a step: `logged` if an entry follows it. */
struct ax_metrics_window ax_metrics_window_after(struct ax_metrics_window w, double loss,
                                                 bool logged);
/* True if an entry follows a step of a run. */
static inline bool ax_metrics_logs(int64_t step, int64_t logging_steps, int64_t total_steps) {
    return step % logging_steps == 0 || step == total_steps;
}

struct ax_phase_seconds {
    const char *name; /* "forward", "data", …; a string literal */
    double seconds;
};

/* How the ranks of a run differ in one step. */
struct ax_rank_figures {
    int n_waits;
    /* seconds that a rank waited for others, by role: the longest of all ranks. No roles: one
     * rank */
    struct ax_phase_seconds waits[AX_METRICS_MAX_ROLES];
    int slowest;                /* the rank that computed longest */
    double slowest_seconds;     /* its seconds without those waits */
    double memory, peak_memory; /* resident bytes of the largest rank */
};

struct ax_step_figures {
    int64_t step; /* updates done, including this one: from 1 */
    double epoch; /* epochs done, a fraction */
    double loss, grad_norm, learning_rate;
    int64_t tokens, trained_tokens; /* in this step, on all data ranks, without padding */
    /* tokens that were computed (not shared or left out), for MFU */
    int64_t computed_tokens;
    double seconds;  /* wall time since the last step ended */
    uint64_t waits;  /* how often the host waited for the device in this step */
    double flops;    /* FLOPs of the matrix products that one device executed */
    bool skipped;    /* the weights were not changed */
    bool works_late; /* the device's phases may end after `seconds` */
    uint64_t memory; /* current resident bytes */
    uint64_t peak_memory;
    int n_phases;
    struct ax_phase_seconds phases[AX_METRICS_MAX_PHASES];
    struct ax_rank_figures ranks;
    double measures[AX_MEASURES];            /* the objective's; NaN: none in this step */
    const struct ax_figures *figures;        /* further figures by name; or NULL */
    const struct ax_expert_balance *experts; /* for a model with experts; or NULL */
    double aux_loss, sequence_loss;          /* losses of the routers; 0 = none */
    double mtp_loss;                         /* loss of multi-token prediction; 0 = none */
    double index_loss;                       /* divergence of indexers; 0 = none */
};
void ax_metrics_step(struct ax_metrics *m, const struct ax_step_figures *f);

/* Does a record have this name, whatever is measured and the completions' figures? */
bool ax_metrics_is_own(const char *name);

/* An evaluation after `step`. */
void ax_metrics_eval(struct ax_metrics *m, int64_t step, double epoch,
                     const struct ax_eval_result *r);

/* A sample after `step`: the model's answer to prompt `index`, from 1. */
void ax_metrics_sample(struct ax_metrics *m, int64_t step, int index, const struct ax_buf *prompt,
                       const struct ax_buf *answer);

/* A line of completions.jsonl, {"step": …} with its newline. */
void ax_metrics_completion(struct ax_metrics *m, const struct ax_buf *line);
/* Shows a completion and its rewards. */
void ax_metrics_show(struct ax_metrics *m, int64_t step, int index, const struct ax_buf *prompt,
                     const struct ax_buf *answer, const struct ax_buf *worth);

/* Events, each shown once. */
enum ax_metrics_event {
    AX_EVENT_STARTED, /* text: how long it took to start */
    AX_EVENT_PEAK,    /* text: the machine whose peak was measured */
    AX_EVENT_RESUMED, /* text: the checkpoint */
    AX_EVENT_SAVED,   /* text: the checkpoint */
    AX_EVENT_WARNING,
    AX_EVENT_BEST, /* step: the one whose weights the trained model has, that of the best evaluation */
    AX_EVENT_FINISHED,
    AX_EVENT_STOPPED, /* early, text: why */
    AX_EVENT_COUNT
};
/* A line above the bar and an object {"event": "saved", "step": 7, "text": …} in metrics.jsonl. */
void ax_metrics_event(struct ax_metrics *m, enum ax_metrics_event event, int64_t step,
                      const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* True if the last record in `folder` says that the run finished at `step`. It is written after the
 * trained model. */
bool ax_metrics_is_finished(const char *folder, int64_t step);

/* Shows an activity between steps ("evaluating", "saving") in the bar, with the time that it still takes;
 * without a bar, a line every doing_seconds. total 0 = unknown. */
void ax_metrics_doing(struct ax_metrics *m, const char *what, int64_t done, int64_t total);

#endif
