/* The registry rows, one per family file. */
#ifndef AX_MODEL_FAMILY_H
#define AX_MODEL_FAMILY_H

#include "model/arch.h"

extern const struct ax_family ax_family_llama;   /* llama.c */
extern const struct ax_family ax_family_mistral; /* mistral.c */
extern const struct ax_family ax_family_qwen2;   /* qwen.c */
extern const struct ax_family ax_family_qwen3;

#endif
