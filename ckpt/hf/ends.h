/* The tokens that end generation, in the configs of a folder. */
#ifndef AX_CKPT_HF_ENDS_H
#define AX_CKPT_HF_ENDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define AX_GENERATION_CONFIG "generation_config.json"

/* Makes eos_token_id of a config.json or generation_config.json include the tokenizer's EOS (NULL
 * or −1: leaves it unchanged), because transformers stops generation at the tokens of these files,
 * whatever the tokenizer's EOS is. A list keeps its entries; a single number is replaced or, with
 * `keep`, becomes a list, as transformers does. */
enum ax_status ax_hf_align_eos(json_t *v, const int32_t *eos, bool keep);
/* *out = a folder's generation_config.json, aligned; NULL if it has none, or nothing changes. */
enum ax_status ax_hf_aligned_generation_config(json_t **out, const char *dir, const int32_t *eos);

#endif
