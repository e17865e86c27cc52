/* Converts a Hugging Face folder to one GGUF file. */
#ifndef AX_MODEL_CONVERT_TO_GGUF_H
#define AX_MODEL_CONVERT_TO_GGUF_H

#include <stdbool.h>
#include <stdint.h>

#include "ckpt/gguf/types.h"

struct ax_to_gguf {
    const char *src;                   /* a folder with weights, config and tokenizer */
    const char *dst;                   /* the new file */
    const struct ax_gguf_quant *quant; /* NULL: the type of the weights */
    int threads;                       /* 0: all available to this process */
    /* out */
    const char *model_type;
    int tensors;
    int64_t weights;
    uint64_t bytes;
};
/* The file appears complete or not at all, and replaces an existing one. */
enum ax_status ax_convert_to_gguf(struct ax_to_gguf *c);

/* general.name, from the file's. */
struct ax_gguf_keys;
enum ax_status ax_to_gguf_put_name(struct ax_gguf_keys *keys, const char *dst);

#endif
