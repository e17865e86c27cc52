/* The tokens that end an answer. */
#ifndef AX_DATA_TEXT_STOP_TOKENS_H
#define AX_DATA_TEXT_STOP_TOKENS_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

#define AX_MAX_STOP_TOKENS 16

struct ax_stop_tokens {
    int n;
    int32_t ids[AX_MAX_STOP_TOKENS];
};
/* Reads eos_token_id (a number or a list) from DIR's generation_config.json and config.json, and
 * adds the tokenizer's `eos` (negative: none). */
enum ax_status ax_stop_tokens_read(struct ax_stop_tokens *out, const char *dir, int32_t eos);
/* Adds ids that are not there yet; ids beyond AX_MAX_STOP_TOKENS are left out. */
void ax_stop_tokens_add(struct ax_stop_tokens *s, const int32_t *ids, size_t n);
/* Adds the eos_token_id of DIR's generation_config.json, if it has one. */
enum ax_status ax_stop_tokens_add_folder(struct ax_stop_tokens *s, const char *dir);

#endif
