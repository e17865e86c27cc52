/* rope_scaling of a GGUF model. Private to ckpt/. */
#ifndef AX_CKPT_GGUF_ROPE_H
#define AX_CKPT_GGUF_ROPE_H

#include "ckpt/gguf/model.h"

#define AX_GGUF_ROPE_FACTORS "rope_freqs.weight"
#define AX_GGUF_ROPE_LONG    "rope_factors_long.weight" /* for longrope */
#define AX_GGUF_ROPE_SHORT   "rope_factors_short.weight"

/* The HF object, or JSON null without scaling. AX_ERR_UNSUPPORTED for a scaling without an HF name.
 * Free with json_decref. */
enum ax_status ax_gguf_rope_scaling(const struct ax_gguf_model *m, json_t **out);

#endif
