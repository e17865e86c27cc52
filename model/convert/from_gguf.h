/* Converts a GGUF file to a Hugging Face folder.
 *
 * This folder converts models: base_model.c (a name → a folder), from_gguf.c, to_gguf.c and
 * lora_to_gguf.c (the reverse), from_folder.c (a folder in another dtype), merge.c (an adapter into
 * its base, and whether the result answers like the adapter). */
#ifndef AX_MODEL_CONVERT_FROM_GGUF_H
#define AX_MODEL_CONVERT_FROM_GGUF_H

#include <stdint.h>

#include "kernels/dtype.h"

struct ax_convert {
    const char *src;   /* a GGUF file */
    const char *dst;   /* the new folder; must be empty or missing */
    const char *dtype; /* dtype of the weights; NULL: the smallest that represents them exactly */
    /* out */
    const char *model_type;
    enum ax_dtype written;
    int tensors;
    int64_t weights;
};
/* A Hugging Face folder with weights, config, tokenizer, chat template and generation config, which
 * appears complete or not at all. */
enum ax_status ax_convert_gguf_to_hf(struct ax_convert *c);
/* The same, with a link to `gguf` (an absolute path) instead of a copy of its weights; replaces an
 * existing `dst`. */
enum ax_status ax_convert_gguf_link(const char *gguf, const char *dst);

/* The types that weights are written in, of --dtype: AX_ERR_CONFIG lists them. */
enum ax_status ax_convert_dtype(const char *name, enum ax_dtype *out);
/* The i-th name; NULL after the last. */
const char *ax_convert_dtype_name(size_t i);

#endif
