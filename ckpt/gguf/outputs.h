/* Makes the tensors of a GGUF file from the same tensors under HF names. */
#ifndef AX_CKPT_GGUF_OUTPUTS_H
#define AX_CKPT_GGUF_OUTPUTS_H

#include "ckpt/gguf/model.h"
#include "ckpt/gguf/types.h"
#include "ckpt/gguf/write.h"

struct ax_gguf_outputs {
    int n;
    struct ax_gguf_output *tensors; /* [n], ready for ax_gguf_write */
    struct ax_gguf_piece *pieces;   /* [n]: the source of each tensor */
    void *buffer;                   /* for elements that are not float32 */
    int64_t numel;                  /* total */
};

/* A vector that is a tensor in the file, but not in the folder. */
struct ax_gguf_factors {
    const char *name;
    int64_t n;
    float v[1024];
};
enum { AX_GGUF_MAX_FACTORS = 2 };

struct ax_gguf_outputs_from {
    const char *where; /* folder name for messages */
    int n;
    const struct ax_st_output *tensors; /* names with or without "model.", as in ax_hf_find */
    int n_factors;                      /* number of vectors that divide rotary frequencies */
    const struct ax_gguf_factors *factors;
};

/* `m` describes the model and is borrowed for the call, `from` as long as the outputs are used.
 * Rows of q and k are reordered for the kind, experts contiguous; a tied head is omitted.
 * AX_ERR_DATA for a tensor that is missing, unexpected, or has another shape. */
enum ax_status ax_gguf_outputs_create(struct ax_gguf_outputs *o, const struct ax_gguf_model *m,
                                      const struct ax_gguf_quant *quant,
                                      const struct ax_gguf_outputs_from *from);
void ax_gguf_outputs_free(struct ax_gguf_outputs *o);

#endif
