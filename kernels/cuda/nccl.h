/* NCCL: groups of GPUs that move each other's memory, on a stream of the group's own. Opened at run time.
 *
 * What is called between begin and end runs after all that is enqueued on q, and beside what follows
 * there; ax_nccl_wait makes q continue after it. Every rank of a group calls the same in the same order.
 * Counts are elements; the library sums in an order of its own, bf16 rounded at each hop, and a maximum
 * may lose a NaN. */
#ifndef AX_KERNELS_CUDA_NCCL_H
#define AX_KERNELS_CUDA_NCCL_H

#include "kernels/queue.h"

struct ax_nccl;

/* The library's version: 22809 for 2.28.9. AX_ERR_UNSUPPORTED: there is none, or it is too old. */
enum ax_status ax_nccl_version(int *version);
#define AX_NCCL_ID 128
/* The name of a new group, for all its ranks. AX_ERR_UNSUPPORTED: there is no such library. */
enum ax_status ax_nccl_id(char id[AX_NCCL_ID]);
/* Rank `rank` of n joins; waits for the others, at most `timeout` seconds, else AX_ERR_PEER. */
enum ax_status ax_nccl_join(struct ax_nccl **out, const char id[AX_NCCL_ID], int rank, int n,
                            double timeout);
/* Transfers may read and write m, of which all that they move is part, without copies in buffers of the
 * library; until the group is left, and all its ranks or none of them. AX_ERR_UNSUPPORTED: the library
 * refuses. */
enum ax_status ax_nccl_register(struct ax_nccl *c, const struct ax_memory *m);
void ax_nccl_deregister(struct ax_nccl *c); /* when nothing is in flight */
void ax_nccl_leave(struct ax_nccl *c);      /* when nothing is in flight; safe on NULL */
/* Aborts, from any thread: transfers in flight end with undefined data, and nothing can be started
 * afterwards. First, the queue that it served fails with `cause`. */
void ax_nccl_abort(struct ax_nccl *c, const struct ax_error_record *cause);
/* The last ticket that has ended, with all before it; `before`: what an earlier call said, or 0. Not while
 * another thread is in ax_nccl_end. */
uint64_t ax_nccl_done(const struct ax_nccl *c, uint64_t before);
/* Asks the library about errors of transfers in flight; *done: the transfer of `ticket` has ended,
 * and so have all before it. */
enum ax_status ax_nccl_check(struct ax_nccl *c, uint64_t ticket, bool *done);

enum ax_status ax_nccl_begin(struct ax_nccl *c, struct ax_queue *q);
enum ax_status ax_nccl_all_reduce(struct ax_nccl *c, enum ax_dtype dtype, bool max,
                                  const void AX_DEVICE *send, void AX_DEVICE *recv, int64_t n);
enum ax_status ax_nccl_all_gather(struct ax_nccl *c, enum ax_dtype dtype,
                                  const void AX_DEVICE *send, void AX_DEVICE *recv, int64_t n);
enum ax_status ax_nccl_reduce_scatter(struct ax_nccl *c, enum ax_dtype dtype, bool max,
                                      const void AX_DEVICE *send, void AX_DEVICE *recv, int64_t n);
/* send: the root's; NULL: it is in recv. */
enum ax_status ax_nccl_broadcast(struct ax_nccl *c, enum ax_dtype dtype, const void AX_DEVICE *send,
                                 void AX_DEVICE *recv, int64_t n, int root);
/* A message in each direction; to or from < 0: none. All messages of a call move together. */
struct ax_nccl_message {
    int to, from;
    const void AX_DEVICE *send;
    void AX_DEVICE *recv;
    int64_t n_send, n_recv;
};
enum ax_status ax_nccl_exchange(struct ax_nccl *c, enum ax_dtype dtype, int n,
                                const struct ax_nccl_message *messages);
enum ax_status ax_nccl_end(struct ax_nccl *c, uint64_t ticket);
enum ax_status ax_nccl_wait(struct ax_nccl *c, struct ax_queue *q, uint64_t ticket);
/* Seconds that queues stood still in ax_nccl_wait, by the device's clock, of the waits that have ended. */
double ax_nccl_waited(struct ax_nccl *c);

#endif
