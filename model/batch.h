/* The batch format of every method: a micro-batch of packed documents.
 *
 *   tokens[T] positions[T], cu_seqlens[≤ n_cap + 1]: document d is [cu[d], cu[d+1]); entries beyond
 *     the last document repeat its end. Tokens beyond the last document are padding: token 0, no
 *     label.
 *   rows[n_rows]: tokens that the head processes, those with a label first, in order; for each,
 *     labels[n_rows] (already shifted: the token to predict; −1 = none) and weight[n_rows] (F32;
 *     0 without a label).
 *   columns: those of the objective, AX_I32 or AX_F32. AX_OF_EXAMPLE [n_cap], per document;
 *     AX_OF_TOKEN [T]; AX_OF_LABEL [n_rows], like the labels (0 without a label).
 *
 * The buffers are device memory and have the same size for every micro-batch of a run; how much of
 * them is computed may differ (`round`).
 *
 * With context parallelism, the packed sequence of `parts`·T tokens is split into contiguous ranges
 * of T, and a rank's batch holds range `part`: its tokens, positions, labels and weights; the parts
 * of documents within it (cu_seqlens); the keys they attend to in the full sequence (cu_keys:
 * document d is [cu[d], cu[d+1]), ending where the range ends, so that the last query aligns with
 * the last key); and the documents of the full sequence (cu_row). Counts and weight_total are those
 * of the full sequence. */
#ifndef AX_MODEL_BATCH_H
#define AX_MODEL_BATCH_H

#include "data/pipeline/sequence.h"
#include "kernels/queue.h"

struct ax_batch {
    int64_t T;           /* tokens of this part that are computed: cap, or fewer with `round` */
    int64_t cap, n_cap;  /* capacity: tokens of this part, documents of the sequence */
    int64_t round;       /* > 0: parts·T is the tokens in use, rounded up to a multiple of it, and
                            the head processes only tokens with a label; T, n_rows and the length
                            of cu_seqlens are rounded up as the backend wants (ax_rounding). A
                            multiple of what the mesh needs (ax_mesh_token_multiple) */
    int64_t longest;     /* with `round`: parts·T is for at least this many tokens, because the
                            data ranks of a mesh compute batches of one length at a time */
    int64_t n_rows;      /* tokens that the head processes: those, or all T */
    int64_t max_len;     /* longest possible document (cap) */
    int64_t max_queries; /* of one document in this part */
    int parts, part;
    int64_t n_docs, n_tokens; /* in use */
    int64_t max_position;     /* largest position in use */
    int64_t first_token;      /* index of the sequence's token 0 among all tokens of the step, for
                            random streams */
    int64_t first_row;        /* of this part's token 0: first_token + part·T */
    double weight_total;      /* Σ weight over tokens with a label */
    int64_t trained;          /* tokens with a label and weight > 0 */
    struct ax_tensor tokens, positions, rows, labels, weight, cu_seqlens;
    struct ax_tensor cu_keys, cu_row; /* same as cu_seqlens if parts = 1 */
    const struct ax_columns *has;     /* NULL: no columns */
    struct ax_tensor columns[AX_COLUMNS_MAX];
};

/* Allocates the buffers from `stack` for part `part` of sequences of `T` tokens; parts divides
 * T. */
void ax_batch_allocate(struct ax_batch *b, struct ax_stack *stack, int64_t T, int64_t n_cap,
                       int64_t max_len, int parts, int part);

/* Also allocates the buffers of columns, which documents must then have. `columns` is borrowed;
 * NULL = none. */
void ax_batch_add_columns(struct ax_batch *b, struct ax_stack *stack,
                          const struct ax_columns *columns);

/* Fills the batch. AX_ERR_DATA if the documents do not fit or a token is outside [0, vocab). On a
 * meta queue sets only the counts (from the caps if docs is NULL). */
enum ax_status ax_batch_fill(struct ax_batch *b, struct ax_queue *q, int64_t vocab, int n,
                             const struct ax_document *docs);

#endif
