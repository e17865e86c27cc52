/* Sequences of ops that come again, as CUDA graphs: one launch instead of one for each kernel.
 *
 * A sequence is what a queue gets until something else uses its stream (a copy, a ticket, a transfer, a
 * read, an op whose launches depend on data), of at most AX_GRAPH_OPS ops. One that came twice is kept,
 * with all that its ops were given: arguments, addresses, workspaces. While ops are those that a kept
 * sequence begins with, they are held back. If it becomes whole, its graph is launched, captured the first
 * time; if an op differs in any byte, those that were held back are launched one by one, as the others. So
 * whatever changes from step to step (how many documents there are, or rows with labels) makes another
 * sequence, and no graph computes with old arguments.
 *
 * Short copies, as the host writes before a pass, are held back too, until something else follows: one
 * kernel makes all of them, so that the GPU goes from copies to kernels once.
 *
 * Errors of what was held back are told to whoever waits for the queue (ax_cuda_fail). What cannot be
 * captured is launched one by one. AXTRAIN_CUDA_GRAPHS=off: nothing is held back. */
#ifndef AX_KERNELS_CUDA_GRAPHS_H
#define AX_KERNELS_CUDA_GRAPHS_H

#include "kernels/cuda/cuda.h"

#define AX_GRAPH_OPS   64 /* most ops of a sequence: while it is collected, the GPU may be idle */
#define AX_GRAPH_LEAST 8  /* fewest ops for which a graph pays */

struct ax_graphs;
struct ax_graphs_op {
    enum ax_op op; /* AX_GRAPHS_TIME: none, but the time is taken */
    /* enqueues the op's kernels on ax_graphs_stream */
    enum ax_status (*run)(struct ax_queue *q, const void *args, void *work);
    const void *args; /* `size` bytes, in which what is between members is 0 */
    size_t size;
    void *work;
};
#define AX_GRAPHS_TIME AX_OP_COUNT

/* For the calling thread's GPU. Both borrowed; the stream is the queue's. */
enum ax_status ax_graphs_open(struct ax_graphs **out, struct ax_queue *q, cudaStream_t stream);
void ax_graphs_close(struct ax_graphs *g);
/* Enqueues an op now, or later. */
enum ax_status ax_graphs_enqueue(struct ax_graphs *g, const struct ax_graphs_op *o);
/* Copies memory that kernels reach, of the device or of its host tier, now or later. From any thread. */
enum ax_status ax_graphs_copy(struct ax_graphs *g, void *to, const void *from, size_t bytes);
/* The queue's stream, after all that was held back; for an op, the one it is to enqueue on. From any thread. */
cudaStream_t ax_graphs_stream(struct ax_graphs *g);
/* Kept graphs are not launched any more: kernels or algorithms are others now. From any thread. */
void ax_graphs_forget(struct ax_graphs *g);

#endif
