/* Facts about this machine and build, for `axtrain env` and run.json. */
#ifndef AX_CMD_TRAIN_ENV_H
#define AX_CMD_TRAIN_ENV_H

#include <jansson.h>

#include "base/status.h"

/* A flat object of strings and integers; json_decref. */
enum ax_status ax_env_facts(json_t **out);

#endif
