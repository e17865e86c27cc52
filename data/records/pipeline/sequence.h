/* A packed sequence of examples, or pieces of them, as the loader returns it; and the input of a
 * batch (model/core/batch.h): documents, runs of tokens that attend only to each other. All on the
 * host. */
#ifndef AX_DATA_RECORDS_PIPELINE_SEQUENCE_H
#define AX_DATA_RECORDS_PIPELINE_SEQUENCE_H

#include "data/records/pipeline/corpus.h"
#include "data/records/pipeline/pack.h"

/* Labels and weight may be NULL: then the next token with weight 1; the last token has no label. */
struct ax_document {
    int64_t n;
    const int32_t *tokens;
    const int32_t
        *labels; /* shifted: the token to predict at each position, −1 = none; or in place:
                              the class of each token */
    const float *weight;
    /* position of the first token; > 0 if a KV cache holds the earlier tokens */
    int64_t first_position;
    /* > 0: before these tokens come the first `shared` ones of document `shared_with`, an earlier one of
     * the batch that has all of its own (model/core/batch.h); first_position is `shared`. */
    int64_t shared;
    int shared_with;
    /* Values of each column: [1] or [n], times its width; AX_OF_LABEL: [n], as the labels, read
     * only where there is one. */
    const uint32_t *columns[AX_COLUMNS_MAX];
};

struct ax_packed_sequence {
    int n;                          /* documents */
    const struct ax_document *docs; /* [n] with labels; one per piece, or a single one if mixed */
    const struct ax_pack_piece *pieces; /* [n_pieces] of the examples in `chunk` */
    int n_pieces;
    const struct ax_corpus *chunk; /* chunk->refs[pieces[i].example] */
    int64_t n_tokens, n_trained;
    bool labels_in_place;
    int64_t epoch, index; /* epoch, and index in it */
};

/* The example of a piece, and the set that stores it. */
static inline const struct ax_example_ref *ax_sequence_ref(const struct ax_packed_sequence *s,
                                                           int piece) {
    return &s->chunk->refs[s->pieces[piece].example];
}
static inline const struct ax_examples *ax_sequence_set(const struct ax_packed_sequence *s,
                                                        int piece) {
    return &s->chunk->sets[ax_sequence_ref(s, piece)->set];
}

#endif
