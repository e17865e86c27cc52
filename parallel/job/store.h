/* The rendezvous of a job: a key-value store that one process serves by TCP, and that every rank
 * joins. Only processes with the job's key join; who joins, leaves, fails or disappears is known to
 * all who ask. Reading order: store_wire.h (frames), store_core.h (what the server does with them),
 * store_server.c (its sockets), store.c (a rank's side). */
#ifndef AX_PARALLEL_JOB_STORE_H
#define AX_PARALLEL_JOB_STORE_H

#include "parallel/job/net.h"
#include "parallel/job/store_wire.h"

/* ---- the server ---- */

struct ax_store_server;
/* Serves the ranks of a job on a listening socket (of ax_net_listen, which it owns from now on) in
 * a thread of its own. They have `timeout` seconds to join. */
enum ax_status ax_store_serve(struct ax_store_server **out, int listening, int world,
                              const unsigned char key[AX_STORE_KEY_BYTES], double timeout);
/* Ends it when no rank is connected or expected any more, but after at most `linger` seconds: ranks
 * may still ask why another one failed. NULL is fine. */
void ax_store_stop(struct ax_store_server *s, double linger);

/* ---- a rank ---- */

struct ax_store_client;
struct ax_store_options {
    const char *host; /* of the server, which is at one of `ports` ports from `port` on */
    int port, ports, rank, world;
    uint64_t binary, config; /* hashes of what all ranks must have alike */
    unsigned char key[AX_STORE_KEY_BYTES];
    double timeout; /* seconds for all to join */
};
/* Returns when all ranks have joined. AX_ERR_PEER says which are missing, AX_ERR_CONFIG which
 * contradict each other. */
enum ax_status ax_store_open(struct ax_store_client **out, const struct ax_store_options *o);
/* Leaves: `st` and the text of this thread's error become the cause that others are told. A second
 * call is a no-op. */
void ax_store_leave(struct ax_store_client *s, enum ax_status st);
/* Who says what this rank has left with: 0 itself, 1 a rank that noticed a failure before, 2 one that
 * failed by itself before, or rank 0 if all have stopped on request. */
int ax_store_told(const struct ax_store_client *s);
void ax_store_close(
    struct ax_store_client *s); /* NULL is fine. Without ax_store_leave it is a loss. */

int ax_store_rank(const struct ax_store_client *s);
int ax_store_world(const struct ax_store_client *s);
/* The address by which this process reaches the server: the interface that ranks connect over. */
const char *ax_store_address(const struct ax_store_client *s);

/* A key is set once. */
enum ax_status ax_store_set(struct ax_store_client *s, const char *key, const void *data, size_t n);
/* Waits for a key that `owner` sets (−1: any rank). AX_ERR_PEER if it does not come in time, or
 * immediately if the owner has ended or any rank has failed. Free *data with ax_free. */
enum ax_status ax_store_get(struct ax_store_client *s, const char *key, int owner, double timeout,
                            char **data, size_t *n);
/* Waits until another rank has failed, and returns its status with its message in `words`; AX_OK if
 * none does in time, or if a rank *done of [first, end) has ended well (−1: none has), or if the
 * server is gone. `timeout` 0 is for a rank that was not heard of in time: this request and all later
 * ones wait no longer than a moment for an answer. */
enum ax_status ax_store_ask_cause(struct ax_store_client *s, int first, int end, double timeout,
                                  char *words, size_t size, int *done);

#endif
