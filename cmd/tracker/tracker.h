/* Experiment trackers (Weights & Biases, MLflow, Trackio, Comet, SwanLab): each is a Python process
 * that runs tracker.py with the tracker's own package and receives the records of metrics.jsonl.
 *
 * Life cycle: ax_tracker_open (before expensive work; stops the run if something is missing) →
 * ax_tracker_describe → the sink, used by the training loop → ax_tracker_close. After that, a
 * tracker that dies, hangs or is slow only causes one warning.
 *
 * Reading order: tracker_keys.c (keys → settings), tracker_process.h (the process), tracker.py. */
#ifndef AX_CMD_TRACKER_TRACKER_H
#define AX_CMD_TRACKER_TRACKER_H

#include <jansson.h>

#include "cmd/config/config.h"
#include "optim/metrics/metrics.h"

/* True if the configuration enables this tracker. Also knows "tensorboard", which needs no
 * process. */
bool ax_tracker_is_on(const struct ax_config *cfg, const char *name);
/* {"wandb": {"project": …}, …}: the trackers that need a process, with their settings, including
 * secrets. The caller owns *out. */
enum ax_status ax_tracker_settings(const struct ax_config *cfg, json_t **out);

/* How many seconds to wait for a tracker. */
struct ax_tracker_patience {
    double check;      /* to report whether it can be used */
    double end;        /* to end */
    double upload_end; /* seconds to end if it uploads models */
};
extern const struct ax_tracker_patience ax_tracker_patience; /* the default */

struct ax_trackers;

/* Starts and checks the trackers that cfg enables; *out is NULL if there are none. AX_ERR_CONFIG
 * says what is missing, and the remedy. */
enum ax_status ax_tracker_open(struct ax_trackers **out, const struct ax_config *cfg,
                               const struct ax_tracker_patience *patience);
/* Describes the run that will begin; arguments are borrowed. `about` is the content of run.json. t
 * may be NULL. */
void ax_tracker_describe(struct ax_trackers *t, const json_t *about, const char *output_dir);
struct ax_metrics_sink ax_tracker_sink(struct ax_trackers *t);
/* Ends the trackers and waits for them, within their limits; t may be NULL. `finished`: the run
 * succeeded. */
void ax_tracker_close(struct ax_trackers *t, bool finished);

#endif
