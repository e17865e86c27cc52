/* A sequence: examples, or pieces of them, packed together, as the loader hands them out; and what
 * a batch is filled with (model/batch.h): documents, runs of tokens that attend to each other and
 * to no others. All of it on the host. */
#ifndef AX_DATA_PIPELINE_SEQUENCE_H
#define AX_DATA_PIPELINE_SEQUENCE_H

#include "data/pipeline/corpus.h"
#include "data/pipeline/pack.h"

/* Labels and weight may be NULL: then the next token with weight 1, and no label at the last. */
struct ax_document {
    int64_t n;
    const int32_t *tokens;
    const int32_t *labels; /* shifted: what each token shall predict, −1 = nothing */
    const float *weight;
    int64_t
        first_position; /* of its first token; above 0 where a KV cache holds what came before */
    /* Values of each column: [1]; [n]; AX_OF_LABEL: [n], shifted, to be read where there is a
     * label. */
    const uint32_t *columns[AX_COLUMNS_MAX];
};

struct ax_packed_sequence {
    int n;                          /* documents */
    const struct ax_document *docs; /* [n] with labels; piece by piece, or one of all where mixed */
    const struct ax_pack_piece *pieces; /* [n_pieces] of the examples of `chunk` */
    int n_pieces;
    const struct ax_corpus *chunk; /* chunk->refs[pieces[i].example] */
    int64_t n_tokens, n_trained;
    int64_t epoch, index; /* of the sequence in its epoch */
};

/* The example that a piece is of, and the set that keeps it. */
static inline const struct ax_example_ref *ax_sequence_ref(const struct ax_packed_sequence *s,
                                                           int piece) {
    return &s->chunk->refs[s->pieces[piece].example];
}
static inline const struct ax_examples *ax_sequence_set(const struct ax_packed_sequence *s,
                                                        int piece) {
    return &s->chunk->sets[ax_sequence_ref(s, piece)->set];
}

#endif
