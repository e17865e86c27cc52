/* Trackers, their keys, and the settings that tracker.py reads. */
#include <string.h>

#include "cmd/config/table.h"
#include "cmd/tracker/tracker.h"

/* ---- keys ---- */

#define WANDB   .when = "(wandb_project || use_wandb || report_to) && wandb_mode != disabled"
#define MLFLOW  .when = "use_mlflow || mlflow_experiment_name || report_to"
#define COMET   .when = "use_comet || report_to"
#define TRACKIO .when = "use_trackio || trackio_project_name || report_to"
#define SWANLAB .when = "(use_swanlab || swanlab_project || report_to) && swanlab_mode != disabled"

const struct ax_config_key ax_config_keys_log[] = {
    AX_KEY("report_to", AX_T_STR | AX_T_STRINGS,
           "Trackers to log to, as in TRL; the keys below turn on the same.",
           .choices = "none|tensorboard|wandb|mlflow|comet_ml|comet|trackio|swanlab"),
    AX_KEY("use_tensorboard", AX_T_BOOL, "Write TensorBoard event files."),
    AX_KEY("use_wandb", AX_T_BOOL,
           "Log to Weights & Biases; needs Python with its package, as all trackers do.",
           .when = "wandb_mode != disabled"),
    AX_KEY("wandb_project", AX_T_STR, "Project to log to; turns Weights & Biases on.",
           .when = "wandb_mode != disabled"),
    AX_KEY("wandb_name", AX_T_STR, "Name of the run.", WANDB),
    AX_KEY("wandb_run_id", AX_T_STR,
           "ID of the run; a resumed run continues its own without this key.", WANDB),
    AX_KEY("wandb_mode", AX_T_STR, "Whether to send now, later or never.",
           .choices = "online|offline|disabled|shared|dryrun|run",
           .when = "wandb_project || use_wandb || report_to"),
    AX_KEY("wandb_entity", AX_T_STR, "Team.", WANDB),
    AX_KEY("wandb_watch", AX_T_STR, "Log histograms of gradients or weights.",
           .choices = "gradients|parameters|all|false",
           AX_NO_EFFECT("gradients and weights are not sent, only metrics"), WANDB),
    AX_KEY("wandb_log_model", AX_T_STR,
           "Upload each checkpoint and the trained model, or only the model.",
           .choices = "checkpoint|end|false", WANDB),
    AX_KEY("use_mlflow", AX_T_BOOL, "Log to MLflow."),
    AX_KEY("mlflow_tracking_uri", AX_T_STR, "URI of the server, or of a local store.", MLFLOW),
    AX_KEY("mlflow_experiment_name", AX_T_STR, "Experiment to log to; turns MLflow on."),
    AX_KEY("mlflow_run_name", AX_T_STR, "Name of the run.", MLFLOW),
    AX_KEY("hf_mlflow_log_artifacts", AX_T_BOOL, "Upload each checkpoint and the trained model.",
           MLFLOW),
    AX_KEY("use_comet", AX_T_BOOL, "Log to Comet."),
    AX_KEY("comet_api_key", AX_T_STR, "API key; better set in the environment.", .secret = true,
           COMET),
    AX_KEY("comet_workspace", AX_T_STR, "Workspace.", COMET),
    AX_KEY("comet_project_name", AX_T_STR, "Project.", COMET),
    AX_KEY("comet_experiment_key", AX_T_STR, "Experiment.", COMET),
    AX_KEY("comet_mode", AX_T_STR, "Create a new experiment or continue one.",
           .choices = "create|get|get_or_create", COMET),
    AX_KEY("comet_online", AX_T_BOOL, "Send immediately, or store locally.", COMET),
    AX_KEY("comet_experiment_config", AX_T_OPTIONS, "Options of Comet's ExperimentConfig.", COMET),
    AX_KEY("use_trackio", AX_T_BOOL, "Log to Trackio."),
    AX_KEY("trackio_project_name", AX_T_STR, "Project to log to; turns Trackio on."),
    AX_KEY("trackio_run_name", AX_T_STR, "Name of the run; the output folder's if unset.", TRACKIO),
    AX_KEY("trackio_space_id", AX_T_STR, "Hub space that displays the run.", TRACKIO),
    AX_KEY("use_swanlab", AX_T_BOOL, "Log to SwanLab.", .when = "swanlab_mode != disabled"),
    AX_KEY("swanlab_project", AX_T_STR, "Project to log to; turns SwanLab on.",
           .when = "swanlab_mode != disabled"),
    AX_KEY("swanlab_experiment_name", AX_T_STR, "Experiment.", SWANLAB),
    AX_KEY("swanlab_description", AX_T_STR, "Description.", SWANLAB),
    AX_KEY("swanlab_mode", AX_T_STR, "Where to log to.", .choices = "cloud|local|offline|disabled",
           .when = "use_swanlab || swanlab_project || report_to"),
    AX_KEY("swanlab_workspace", AX_T_STR, "Workspace.", SWANLAB),
    AX_KEY("swanlab_api_key", AX_T_STR, "API key; better set in the environment.", .secret = true,
           SWANLAB),
    AX_KEY("swanlab_log_model", AX_T_BOOL, "Upload checkpoints.", .dflt = "false",
           AX_NO_EFFECT("SwanLab stores no files; use hub_model_id"), SWANLAB),
    {0}};

/* ---- settings ---- */

static const struct tracker {
    const char *name, *when; /* a condition, as in the key table */
} trackers[] = {
    {"tensorboard", "use_tensorboard || report_to == tensorboard"},
    {"wandb", "(use_wandb || wandb_project || report_to == wandb) && wandb_mode != disabled"},
    {"mlflow", "use_mlflow || mlflow_experiment_name || report_to == mlflow"},
    {"comet", "use_comet || report_to == comet_ml,comet"},
    {"trackio", "use_trackio || trackio_project_name || report_to == trackio"},
    {"swanlab", "(use_swanlab || swanlab_project || report_to == swanlab) && "
                "swanlab_mode != disabled"},
};

static const struct setting {
    const char *tracker, *name, *key;
} settings[] = {
    {"wandb", "project", "wandb_project"},
    {"wandb", "entity", "wandb_entity"},
    {"wandb", "name", "wandb_name"},
    {"wandb", "run_id", "wandb_run_id"},
    {"wandb", "mode", "wandb_mode"},
    {"wandb", "log_model", "wandb_log_model"},
    {"mlflow", "uri", "mlflow_tracking_uri"},
    {"mlflow", "experiment", "mlflow_experiment_name"},
    {"mlflow", "name", "mlflow_run_name"},
    {"comet", "api_key", "comet_api_key"},
    {"comet", "workspace", "comet_workspace"},
    {"comet", "project_name", "comet_project_name"},
    {"comet", "experiment_key", "comet_experiment_key"},
    {"comet", "mode", "comet_mode"},
    {"trackio", "project", "trackio_project_name"},
    {"trackio", "name", "trackio_run_name"},
    {"trackio", "space_id", "trackio_space_id"},
    {"swanlab", "project", "swanlab_project"},
    {"swanlab", "experiment_name", "swanlab_experiment_name"},
    {"swanlab", "description", "swanlab_description"},
    {"swanlab", "mode", "swanlab_mode"},
    {"swanlab", "workspace", "swanlab_workspace"},
    {"swanlab", "api_key", "swanlab_api_key"},
};

bool ax_tracker_is_on(const struct ax_config *cfg, const char *name) {
    for (size_t i = 0; i < sizeof trackers / sizeof *trackers; i++)
        if (strcmp(trackers[i].name, name) == 0)
            return ax_config_holds(cfg, trackers[i].when);
    return false;
}

/* Adds the settings that are not text. */
static void put_others(json_t *s, const char *name, const struct ax_config *cfg) {
    const struct ax_yaml_node *more = ax_config_node(cfg, "comet_experiment_config");
    if (strcmp(name, "mlflow") == 0 && ax_config_bool(cfg, "hf_mlflow_log_artifacts"))
        json_object_set_new(s, "log_model", json_string("checkpoint"));
    if (strcmp(name, "comet") == 0 && ax_config_has(cfg, "comet_online"))
        json_object_set_new(s, "online", json_boolean(ax_config_bool(cfg, "comet_online")));
    if (strcmp(name, "comet") == 0 && more)
        json_object_set_new(s, "experiment_config", ax_yaml_to_json(more));
}

static enum ax_status add(json_t *all, const char *name, const struct ax_config *cfg) {
    json_t *s = json_object();
    if (json_object_set_new(all, name, s) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for the settings of trackers");
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const char *value = ax_config_str(cfg, "%s", settings[i].key);
        if (strcmp(settings[i].tracker, name) == 0 && value && *value &&
            strcmp(value, "false") != 0)
            json_object_set_new(s, settings[i].name, json_string(value));
    }
    put_others(s, name, cfg);
    return AX_OK;
}

enum ax_status ax_tracker_settings(const struct ax_config *cfg, json_t **out) {
    *out = json_object();
    for (size_t i = 1; i < sizeof trackers / sizeof *trackers; i++) { /* 0 needs no process */
        if (!ax_config_holds(cfg, trackers[i].when))
            continue;
        const enum ax_status st = add(*out, trackers[i].name, cfg);
        if (st != AX_OK) {
            json_decref(*out);
            *out = NULL;
            return st;
        }
    }
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for the settings of trackers");
}
