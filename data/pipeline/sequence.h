/* A document: a run of tokens on the host that attend to each other and to no others. What the
 * loader hands out and what a batch is filled with (model/batch.h). */
#ifndef AX_DATA_PIPELINE_SEQUENCE_H
#define AX_DATA_PIPELINE_SEQUENCE_H

#include <stdint.h>

/* Labels and weight may be NULL: then the next token with weight 1, and no label at the last. */
struct ax_document {
    int64_t n;
    const int32_t *tokens;
    const int32_t *labels; /* shifted: what each token shall predict, −1 = nothing */
    const float *weight;
    int64_t
        first_position; /* of its first token; above 0 where a KV cache holds what came before */
};

#endif
