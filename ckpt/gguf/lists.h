/* Keys of a file with an entry for each layer. */
#ifndef AX_CKPT_GGUF_LISTS_H
#define AX_CKPT_GGUF_LISTS_H

#include "ckpt/gguf/model.h"
#include "ckpt/gguf/write.h"

/* Numbers from 0 to `max`, one for each layer, of a list or of one number for all; at [layers], freed by the
 * caller, also after an error. */
enum ax_status ax_gguf_layer_list(const struct ax_gguf_model *m, const char *suffix, int64_t max,
                                  int32_t **at);
/* Writes a list of what `of` gives for each layer. */
enum ax_status ax_gguf_put_layers(const struct ax_gguf_model *m, struct ax_gguf_keys *keys,
                                  const char *suffix,
                                  int64_t (*of)(const struct ax_gguf_model *m, int64_t layer));

#endif
