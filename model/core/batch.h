/* The batch format of every method: a micro-batch of packed documents.
 *
 *   tokens[T] positions[T], cu_seqlens[≤ n_cap + 1]: document d is [cu[d], cu[d+1]); entries beyond
 *     the last document repeat its end. Tokens beyond the last document are padding: token 0, no
 *     label.
 *   rows[n_rows]: tokens that the head processes, those with a label first, in order; for each,
 *     labels[n_rows] (already shifted: the token to predict; −1 = none) and weight[n_rows] (F32;
 *     0 without a label).
 *   columns: those of the objective, AX_I32 or AX_F32. AX_OF_EXAMPLE [n_cap], per document;
 *     AX_OF_TOKEN [T]; AX_OF_LABEL [n_rows], like the labels (0 without a label). A column with a width w
 *     has rows of w values.
 *
 * The buffers are device memory and have the same size for every micro-batch of a run; how much of
 * them is computed may differ (`round`).
 *
 * With context parallelism, the packed sequence of `parts`·T tokens is split into 2·parts runs of
 * T/2, and a rank's batch holds runs `part` and 2·parts − 1 − part, one after the other: their
 * tokens, positions, labels and weights. Under causal attention the first parts of a sequence cost
 * less than the last, and these two together the same on every rank. Of each run: the parts of
 * documents within it (cu_q, from its first row on), and the keys they attend to in the full
 * sequence (cu_k: document d is [cu[d], cu[d+1]), ending where the run ends, so that the last query
 * aligns with the last key). cu_seqlens, counts and weight_total are those of the full sequence. */
#ifndef AX_MODEL_CORE_BATCH_H
#define AX_MODEL_CORE_BATCH_H

#include "data/records/pipeline/sequence.h"
#include "kernels/mixer_ops.h"
#include "kernels/queue.h"
#include "model/parallel/reach.h"
#include "parallel/runtime.h"

/* Rows of a batch that are neighbors in the sequence. cu_halo: parts of documents in the run and the
 * AX_BATCH_HALO tokens before it, from the first of these on (before the sequence there are no documents).
 * enters, leaves: 0 for the document that goes on from the run before, 1 for the one that goes on in the next run,
 * −1 for others. These only if parts > 1. */
struct ax_batch_run {
    int64_t first; /* token of the sequence; they are T / n_runs */
    struct ax_tensor cu_q, cu_k, cu_halo, enters, leaves;
};
#define AX_BATCH_HALO (AX_CONV_TAPS - 1)

/* Documents of a batch that share a prefix: the first one has its tokens, the others only theirs
 * after it. A layer then computes the shared tokens once; only attention sees them several
 * times:
 *
 *   keys[n_keys]       row of the batch of each key, document by document: those of the prefix that
 *                      document d shares, then its own; document d's are [cu_k[d], cu_k[d + 1])
 *   users[T][most]     the places in `keys` that refer to each row; −1 for none
 *
 * So queries attend to the same numbers in the same order as without sharing, and get the same
 * bits; the gradient of a shared key is the sum over the documents, in order.
 *
 * Not with context parallelism, and not where a token's result depends on more than the tokens
 * before it: dropout, noise, a loss of the routers. */
struct ax_shared_prefix {
    /* the most documents that share a prefix; 0: the batch has no memory for sharing */
    int64_t most;
    int64_t cap; /* capacity: keys */
    bool any;    /* the batch contains documents that share a prefix */
    struct ax_tensor keys, users, cu_k;
};

/* Documents in chunks of `size` tokens, the first from the document's first token on: layers that attend within
 * chunks take these for documents. Tables as those of runs; at most `cap` chunks. */
struct ax_batch_chunks {
    int64_t size; /* 0: there are none */
    int64_t cap;
    struct ax_tensor cu_q[2], cu_k[2]; /* by run */
    struct ax_reach reach;             /* only if parts > 1 */
};

/* For the layer for multi-token prediction (model/predict.h), which predicts from token t of a document, and
 * the one after it, the token after that: the next tokens (0 after a document's last); and, like those of
 * the batch, the rows that the head processes, their labels and weights. The label of t is that of t + 1
 * in the same document, so that nothing is predicted across documents, nor what is masked. */
struct ax_batch_ahead {
    bool on;
    int64_t n_rows;
    struct ax_tensor tokens, rows, row_order, labels, weight;
};

struct ax_batch {
    int64_t T;          /* computed tokens of this part: cap, or fewer with `round` */
    int64_t cap, n_cap; /* capacity: tokens of this part, documents of the sequence */
    int64_t round;      /* > 0: parts·T is the tokens in use, rounded up to a multiple of it, and
                            the head processes only tokens with a label; T, n_rows and the length
                            of cu_seqlens are rounded up as the backend wants (ax_rounding). A
                            multiple of what the mesh needs (ax_mesh_token_multiple) */
    int64_t longest;    /* with `round`: parts·T is for at least this many tokens, because the
                            data ranks of a mesh compute batches of one length at a time */
    /* tokens that the head processes: all T, or with `round` those with a label */
    int64_t n_rows;
    int64_t max_len;     /* capacity: longest document */
    int64_t max_queries; /* capacity: tokens of one document in a run */
    int64_t n_labels;    /* labels are below it; 0 = they are tokens. Set by the caller */
    int parts, part;
    int n_runs; /* 1 if parts = 1, else 2 */
    struct ax_batch_run runs[2];
    /* how far documents reach back into earlier runs; only if parts > 1 */
    struct ax_reach reach;
    int64_t n_docs, n_tokens; /* in use */
    int64_t max_position;     /* largest position in use */
    int64_t first_token;      /* index of the sequence's token 0 among all tokens of the step, for
                            random streams */
    double weight_total;      /* Σ weight over tokens with a label */
    /* its part of the weight by which the step's loss is divided; set by the step */
    double loss_weight;
    int64_t trained; /* tokens with a label and weight > 0 */
    /* trained tokens in the first documents of pairs; in the second ones */
    int64_t side_trained[2];
    struct ax_tensor tokens, positions, rows, labels, weight, cu_seqlens;
    /* order: index in the sequence of each token of this part (data NULL if parts = 1: 0, 1, …);
     * row_order: the same of `rows`; used: how many tokens of this part belong to documents (they
     * come first). */
    struct ax_tensor order, row_order, used;
    struct ax_shared_prefix prefix;
    struct ax_batch_chunks chunks;
    struct ax_batch_ahead ahead;
    const struct ax_columns *has; /* NULL: no columns */
    struct ax_tensor columns[AX_COLUMNS_MAX];
};

/* Allocates the buffers from `stack` for part `part` of sequences of `T` tokens; with
 * several parts, twice their number divides T. */
void ax_batch_allocate(struct ax_batch *b, struct ax_stack *stack, int64_t T, int64_t n_cap,
                       int64_t max_len, int parts, int part);

/* Also allocates the buffers of columns, which documents must then have. `columns` is borrowed;
 * NULL = none. */
void ax_batch_add_columns(struct ax_batch *b, struct ax_stack *stack,
                          const struct ax_columns *columns);

/* Allocates buffers for shared prefixes (`parts` is 1): up to `most` documents may share a prefix,
 * and counting the prefix for each of them, documents have at most n_keys tokens. */
void ax_batch_share(struct ax_batch *b, struct ax_stack *stack, int64_t n_keys, int64_t most);

/* Allocates the tables of chunks of `size` tokens, 0 for none, for layers that attend within chunks. Documents
 * then share no prefixes. */
void ax_batch_cut(struct ax_batch *b, struct ax_stack *stack, int64_t size);

/* Allocates the buffers of `ahead`. Documents then share no prefixes. */
void ax_batch_look_ahead(struct ax_batch *b, struct ax_stack *stack);
/* The same batch with the rows, labels and weights of `ahead`. */
struct ax_batch ax_batch_ahead(const struct ax_batch *b);

/* The part that has token t of the sequence; *row: which of its rows that is. */
int ax_batch_part_of(const struct ax_batch *b, int64_t t, int64_t *row);

/* Fills the batch. AX_ERR_DATA if the documents do not fit, a token is outside [0, vocab), or a
 * label is not below n_labels (or vocab, if n_labels is 0). On a meta queue sets only the counts
 * (from the caps if docs is NULL). */
enum ax_status ax_batch_fill(struct ax_batch *b, struct ax_queue *q, int64_t vocab, int n,
                             const struct ax_document *docs);

#endif
