/* Files of models with several streams (Gemma 3n). Readers know the published sizes only: 20 layers with keys of their own,
 * of which the first 10 keep 5 % of their gates, and all but every fifth have a window. */
#ifndef AX_CKPT_GGUF_STREAMS_H
#define AX_CKPT_GGUF_STREAMS_H

#include "ckpt/gguf/model.h"
#include "ckpt/gguf/write.h"

#define AX_GGUF_OWN_KEYS    20
#define AX_GGUF_SPARSE      10
#define AX_GGUF_FULL_PERIOD 5

/* What a file has beyond the layers, heads and fields that m has already. */
enum ax_status ax_gguf_streams_read(struct ax_gguf_model *m);
/* Members of config.json; false: out of memory. */
bool ax_gguf_streams_config(const struct ax_gguf_model *m, json_t *config);
enum ax_status ax_gguf_streams_put(const struct ax_gguf_model *m, struct ax_gguf_keys *keys);

#endif
