/* The type of each tensor in a file: the mixtures that llama.cpp writes under the same names.
 *
 * Vectors and routers are always F32. In quantized files the head (or the embedding, if tied) has
 * more bits than the rest; in Q4_K_M and Q5_K_M also v and the down projection of every third layer
 * and of the first and last eighth, in Q3_K_M those of all layers and attention's output. Rows that
 * are not a multiple of 256 use a type with blocks of 32: Q3_K → IQ4_NL, Q4_K → Q5_0, Q5_K → Q5_1,
 * Q6_K → Q8_0; rows that are not a multiple of 32 are F16. */
#ifndef AX_CKPT_GGUF_TYPES_H
#define AX_CKPT_GGUF_TYPES_H

#include <stdbool.h>

#include "ckpt/gguf/blocks.h"

struct ax_gguf_quant {
    const char *name;   /* "q4_k_m" */
    uint32_t file_type; /* value of general.file_type */
    uint32_t type;      /* id of the type of most matrices */
};
#define AX_GGUF_QUANTS "f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|q3_k_m|q4_k_m|q5_k_m|q6_k"
/* Finds a type by its name, in any case; NULL if not in AX_GGUF_QUANTS. */
const struct ax_gguf_quant *ax_gguf_quant_find(const char *name);

/* The role of a tensor in its model. */
enum ax_gguf_part {
    AX_GGUF_VECTOR,
    AX_GGUF_ROUTER,
    AX_GGUF_EMBEDDING,
    AX_GGUF_HEAD,
    AX_GGUF_KEYS,
    AX_GGUF_VALUES,
    AX_GGUF_ATTENTION, /* attention's output projection */
    AX_GGUF_DOWN,
    AX_GGUF_MATRIX
};
struct ax_gguf_place {
    enum ax_gguf_part part;
    bool tied; /* the embedding is also the head */
    int64_t layer, layers, experts;
    int64_t cols; /* elements per row */
};
const struct ax_block_type *ax_gguf_pick_type(const struct ax_gguf_quant *q,
                                              const struct ax_gguf_place *p);

#endif
