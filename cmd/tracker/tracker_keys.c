/* Keys of trackers → the settings that tracker.py reads. */
#include <string.h>

#include "cmd/tracker/tracker.h"

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
