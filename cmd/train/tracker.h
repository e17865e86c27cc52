/* Experiment trackers (Weights & Biases, MLflow, Trackio, Comet, SwanLab): each is a Python process
 * that runs tracker.py with the tracker's own package and is given the records of metrics.jsonl.
 *
 * Life cycle: ax_tracker_open (before anything expensive: what is missing stops the run) →
 * ax_tracker_describe → the sink, used by the training loop → ax_tracker_close. After it is open, a
 * tracker that dies, hangs or is slow costs one warning.
 *
 * Read on: tracker_keys.c (keys → settings), tracker_process.h (the process), tracker.py. */
#ifndef AX_CMD_TRAIN_TRACKER_H
#define AX_CMD_TRAIN_TRACKER_H

#include <jansson.h>

#include "cmd/config/config.h"
#include "optim/metrics.h"

/* Does the configuration turn it on? "tensorboard", which needs no process, is one, too. */
bool ax_tracker_is_on(const struct ax_config *cfg, const char *name);
/* {"wandb": {"project": …}, …}: the processes that it asks for, with their settings, secrets
 * included. The caller owns *out. */
enum ax_status ax_tracker_settings(const struct ax_config *cfg, json_t **out);

/* How many seconds a tracker may take. */
struct ax_tracker_patience {
    double check;      /* to say whether it can be used */
    double end;        /* to end */
    double upload_end; /* … if it uploads models */
};
extern const struct ax_tracker_patience ax_tracker_patience; /* the usual one */

struct ax_trackers;

/* Starts and checks those that cfg asks for; *out NULL: none. AX_ERR_CONFIG: something is missing,
 * and what helps. */
enum ax_status ax_tracker_open(struct ax_trackers **out, const struct ax_config *cfg,
                               const struct ax_tracker_patience *patience);
/* What a run is, for when it begins; borrowed. `about` as in run.json. NULL is
 * fine. */
void ax_tracker_describe(struct ax_trackers *t, const json_t *about, const char *output_dir);
struct ax_metrics_sink ax_tracker_sink(struct ax_trackers *t);
/* Ends them, with the patience that they have; NULL is fine. `finished`: the run did what it should. */
void ax_tracker_close(struct ax_trackers *t, bool finished);

#endif
