/* The tokens that end a model's answer. */
#ifndef AX_CMD_TRAIN_STOP_TOKENS_H
#define AX_CMD_TRAIN_STOP_TOKENS_H

#include "base/status.h"

#include <stdint.h>

#define AX_MAX_STOP_TOKENS 16

struct ax_stop_tokens {
    int n;
    int32_t ids[AX_MAX_STOP_TOKENS];
};
/* eos_token_id (a number or a list) of DIR's generation_config.json and config.json, and the
 * tokenizer's `eos` (negative: none). */
enum ax_status ax_stop_tokens_read(struct ax_stop_tokens *out, const char *dir, int32_t eos);

#endif
