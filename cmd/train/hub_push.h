/* hub_model_id: uploads the trained model to the hub after training, with the `hf` command. */
#ifndef AX_CMD_TRAIN_HUB_PUSH_H
#define AX_CMD_TRAIN_HUB_PUSH_H

#include "cmd/config/config.h"

/* Checks before training whether an upload is possible. AX_ERR_CONFIG says what is missing. AX_OK
 * without hub_model_id. */
enum ax_status ax_hub_push_check(const struct ax_config *cfg);
/* Uploads output_dir without checkpoints and trackers' files. AX_ERR_FAILED names the command to
 * run again. */
enum ax_status ax_hub_push(const struct ax_config *cfg);

#endif
