/* Gathers and sums over tp whose pieces travel while others are multiplied (tp_overlap: chunks).
 *
 * A chunk is the rows of one rank, [T/tp][n]. A gather takes tp − 1 hops: in hop h every rank sends
 * its own rows to the rank h further on, so the product of a chunk runs while the next one travels.
 * A sum goes the other way: the rows for a rank are computed first, and travel to it while the rows
 * for the next rank are computed. */
#ifndef AX_MODEL_PARALLEL_TP_HOPS_H
#define AX_MODEL_PARALLEL_TP_HOPS_H

#include "model/parallel/tensor_parallel.h"

struct ax_tp_hops {
    struct ax_runtime *rt;
    struct ax_tensor own; /* [T/tp][n]: what is gathered, or this rank's sum */
    struct ax_tensor all; /* [T][n], scratch: what is gathered, or this rank's parts of the sums */
    struct ax_tensor received; /* for a sum: [tp − 1][T/tp][n], scratch, by hop */
    struct ax_ticket ticket;   /* in flight; 0: none */
    int hop;
};

/* Begins a gather of `own` (dense). `copied`: own is also copied into `all`. */
enum ax_status ax_tp_hops_gather(struct ax_tp_hops *h, struct ax_runtime *rt,
                                 const struct ax_tensor *own, bool copied);
/* Waits for the next rank's rows. Call it tp times; this rank's own rows come first. */
enum ax_status ax_tp_hops_next(struct ax_tp_hops *h, int *rank, struct ax_tensor *rows);

enum ax_status ax_tp_hops_sum(struct ax_tp_hops *h, struct ax_runtime *rt,
                              const struct ax_tensor *own);
/* The next rank whose rows of `all` are to be computed and then sent. Call it tp times; this rank's
 * own rows come last. */
int ax_tp_hops_due(const struct ax_tp_hops *h);
enum ax_status ax_tp_hops_send(struct ax_tp_hops *h);
/* own = the sum, in the order of ranks, in accumulation dtype [+ addend]. */
enum ax_status ax_tp_hops_finish(struct ax_tp_hops *h, const struct ax_tensor *addend);

/* The rows of a rank in `all`, or in another tensor of T rows. */
struct ax_tensor ax_tp_hops_rows(const struct ax_tp_hops *h, const struct ax_tensor *t, int rank);

#endif
