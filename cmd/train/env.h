/* What this machine and this build have, as `axtrain env` and run.json say it. */
#ifndef AX_CMD_TRAIN_ENV_H
#define AX_CMD_TRAIN_ENV_H

#include <jansson.h>

#include "base/status.h"

/* A flat object of texts and whole numbers; json_decref. */
enum ax_status ax_env_facts(json_t **out);

#endif
