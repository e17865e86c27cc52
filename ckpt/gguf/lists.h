/* Keys of a file with an entry for each layer. */
#ifndef AX_CKPT_GGUF_LISTS_H
#define AX_CKPT_GGUF_LISTS_H

#include "ckpt/gguf/model.h"
#include "ckpt/gguf/write.h"

/* Numbers from 0 to `max`, one for each layer, of a list or of one number for all; at [layers], freed by the
 * caller, also after an error. */
enum ax_status ax_gguf_layer_list(const struct ax_gguf_model *m, const char *suffix, int64_t max,
                                  int32_t **at);
/* The list of layers with a window: read into m, written to a file, and as layer_types of config.json (false: out of
 * memory). */
#define AX_GGUF_WINDOWS "attention.sliding_window_pattern"
enum ax_status ax_gguf_read_windows(struct ax_gguf_model *m);
enum ax_status ax_gguf_put_windows(const struct ax_gguf_model *m, struct ax_gguf_keys *keys);
bool ax_gguf_window_types(const struct ax_gguf_model *m, json_t *config);
/* Writes a list of what `of` gives for each layer. */
enum ax_status ax_gguf_put_layers(const struct ax_gguf_model *m, struct ax_gguf_keys *keys,
                                  const char *suffix,
                                  int64_t (*of)(const struct ax_gguf_model *m, int64_t layer));

#endif
