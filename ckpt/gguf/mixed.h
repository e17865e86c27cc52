/* Files of models whose layers differ (Gemma 4): lists with an entry for each layer, and keys of sliding layers. */
#ifndef AX_CKPT_GGUF_MIXED_H
#define AX_CKPT_GGUF_MIXED_H

#include "ckpt/gguf/model.h"
#include "ckpt/gguf/write.h"

/* In place of the heads and widths of other kinds; m has its layers and fields. */
enum ax_status ax_gguf_mixed_read(struct ax_gguf_model *m);
/* Members of config.json; false: out of memory. */
bool ax_gguf_mixed_config(const struct ax_gguf_model *m, json_t *config);
enum ax_status ax_gguf_mixed_put(const struct ax_gguf_model *m, struct ax_gguf_keys *keys);

#endif
