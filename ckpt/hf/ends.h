/* The tokens that end generation, as the configs of a folder have them. */
#ifndef AX_CKPT_HF_ENDS_H
#define AX_CKPT_HF_ENDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define AX_GENERATION_CONFIG "generation_config.json"

/* Makes eos_token_id of a config.json or generation_config.json have the tokenizer's EOS (NULL or −1: leaves it),
 * for transformers' generation stops at what they say, whatever the tokenizer calls its end. Lists keep
 * what they have; a single number is replaced, or with `keep` becomes a list, both as transformers does. */
enum ax_status ax_hf_align_eos(json_t *v, const int32_t *eos, bool keep);
/* A folder's generation_config.json, aligned; NULL if it has none, or nothing changes. */
enum ax_status ax_hf_aligned_generation_config(json_t **out, const char *dir, const int32_t *eos);

#endif
