/* The one batch format: a micro-batch of packed documents, whatever the method.
 *
 *   tokens[T] positions[T], cu_seqlens[n_cap + 1]: document d is [cu[d], cu[d+1]); entries beyond
 * the last document repeat its end. Tokens beyond the last document are padding: token 0, no label.
 *   rows[n_rows]: the tokens that the head looks at, those with a label first, in order; of each,
 *   labels[n_rows] (already shifted: what that token shall predict; −1 = none), weight[n_rows]
 * (F32; 0 without label). The buffers are device memory and have the same size for every
 * micro-batch of a run; how much of them is computed may differ (`round`).
 *   columns: those of the objective, AX_I32 or AX_F32. AX_OF_EXAMPLE [n_cap], of each document;
 * AX_OF_TOKEN [T]; AX_OF_LABEL [n_rows], as the labels (0 without label).
 *
 * Under context parallelism the row of `parts`·T tokens is cut into runs of T, and a rank's batch
 * holds run `part`: its tokens, positions, labels and weights, the pieces of documents that lie in
 * it (cu_seqlens), and the keys these attend to in the whole row (cu_keys: document d is
 * [cu[d], cu[d+1]), ending where the run ends, so that the last query is aligned with the last
 * key), and the documents of the whole row (cu_row). Counts and weight_total are those of the whole
 * row. */
#ifndef AX_MODEL_BATCH_H
#define AX_MODEL_BATCH_H

#include "data/pipeline/sequence.h"
#include "kernels/queue.h"

struct ax_batch {
    int64_t T;           /* tokens of this part that are computed: all there are room for, or as
                            `round` says */
    int64_t cap, n_cap;  /* capacity: tokens of this part, documents of the row */
    int64_t round;       /* > 0: T is the tokens in use, rounded up to a multiple of it (one part),
                            and the head looks at tokens with a label only */
    int64_t n_rows;      /* tokens that the head looks at: those, or all T */
    int64_t max_len;     /* longest document possible (cap) */
    int64_t max_queries; /* of one document in this part */
    int parts, part;
    int64_t n_docs, n_tokens; /* in use */
    int64_t max_position;     /* largest position in use */
    int64_t first_row;   /* number of token 0 among all tokens of the step, for random streams */
    double weight_total; /* Σ weight over tokens with a label */
    int64_t trained;     /* tokens with a label and weight > 0 */
    struct ax_tensor tokens, positions, rows, labels, weight, cu_seqlens;
    struct ax_tensor cu_keys, cu_row; /* cu_seqlens itself where parts = 1 */
    const struct ax_columns *has;     /* NULL: no columns */
    struct ax_tensor columns[AX_COLUMNS_MAX];
};

/* Takes the buffers from `stack` for part `part` of rows of `T` tokens; parts divides T. */
void ax_batch_allocate(struct ax_batch *b, struct ax_stack *stack, int64_t T, int64_t n_cap,
                       int64_t max_len, int parts, int part);

/* Takes the buffers of columns too, which documents then have to have. `columns` is borrowed; NULL:
 * none. */
void ax_batch_add_columns(struct ax_batch *b, struct ax_stack *stack,
                          const struct ax_columns *columns);

/* Fills the batch. AX_ERR_DATA when the documents do not fit or a token is outside [0, vocab). On a
 * meta queue only the counts are set (from the caps where docs is NULL). */
enum ax_status ax_batch_fill(struct ax_batch *b, struct ax_queue *q, int64_t vocab, int n,
                             const struct ax_document *docs);

#endif
