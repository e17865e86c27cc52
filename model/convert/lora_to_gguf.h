/* Converts a PEFT folder to a GGUF adapter, as llama.cpp loads beside a model (--lora). */
#ifndef AX_MODEL_CONVERT_LORA_TO_GGUF_H
#define AX_MODEL_CONVERT_LORA_TO_GGUF_H

#include "model/convert/to_gguf.h"
#include "model/arch/arch.h"

/* c->src is the PEFT folder; `base` decides names and the order of rows. The types are F32, F16 and
 * BF16 (NULL: as stored). llama.cpp adds alpha / rank · B·A; where a module's scale is another one
 * (rsLoRA, alpha_pattern), B is scaled. AX_ERR_UNSUPPORTED names what such a file cannot contain:
 * magnitudes (DoRA), modules saved in full, adapters of embeddings, experts and new heads. */
enum ax_status ax_convert_lora_to_gguf(struct ax_to_gguf *c, const struct ax_arch *base);

#endif
