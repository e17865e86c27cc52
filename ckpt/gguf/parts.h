/* Files of models whose layers have one part each (Nemotron-H): lists tell which. */
#ifndef AX_CKPT_GGUF_PARTS_H
#define AX_CKPT_GGUF_PARTS_H

#include "ckpt/gguf/model.h"
#include "ckpt/gguf/write.h"

/* KV heads and widths, and which layers have them; m has its layers, heads and fields. */
enum ax_status ax_gguf_parts_read(struct ax_gguf_model *m);
/* Members of config.json; false: out of memory. */
bool ax_gguf_parts_config(const struct ax_gguf_model *m, json_t *config);
enum ax_status ax_gguf_parts_put(const struct ax_gguf_model *m, struct ax_gguf_keys *keys);

#endif
