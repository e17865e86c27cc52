/* Writes a Hugging Face folder's weights anew: those of a quantized one dequantized, or all in another dtype. */
#ifndef AX_MODEL_CONVERT_FROM_FOLDER_H
#define AX_MODEL_CONVERT_FROM_FOLDER_H

#include "model/convert/from_gguf.h"

/* c->src is a folder; without c->dtype its config.json says the dtype. Otherwise as ax_convert_gguf_to_hf. */
enum ax_status ax_convert_folder_to_hf(struct ax_convert *c);

#endif
