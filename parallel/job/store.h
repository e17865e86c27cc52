/* The rendezvous of a job: a key-value store that one process serves over TCP, and that every rank
 * joins. Only processes with the job's key can join. The store knows which ranks have joined, left,
 * failed or disappeared, and tells those who ask. Reading order: store_wire.h (frames),
 * store_server.h (what the server does with them), store.c (a rank's
 * side). */
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
/* Ends the server when no rank is connected or expected any more, but after at most `linger`
 * seconds: ranks may still ask why another one failed. NULL is fine. */
void ax_store_stop(struct ax_store_server *s, double linger);

/* ---- a rank ---- */

struct ax_store_client;
struct ax_store_options {
    const char *host; /* host of the server, which listens on one of `ports` ports from `port` on */
    int port, ports, rank, world;
    /* hashes of the program and the configuration, which must be equal on all ranks */
    uint64_t binary, config;
    unsigned char key[AX_STORE_KEY_BYTES];
    double timeout; /* seconds for all to join */
    /* NULL, or set to true when this rank cannot join and rank 0 may not be told so: the job runs, or
     * two processes are this rank. */
    bool *untold;
};
/* Returns when all ranks have joined. AX_ERR_PEER names ranks that are missing, AX_ERR_CONFIG ranks
 * that contradict each other. */
enum ax_status ax_store_open(struct ax_store_client **out, const struct ax_store_options *o);
/* Leaves the store: `st` and this thread's error text become the cause that others are told. A
 * second call is a no-op. */
void ax_store_leave(struct ax_store_client *s, enum ax_status st);
/* Which rank reports the error that this rank left with: 0 this rank itself, 1 a rank that noticed
 * a failure earlier, 2 a rank that failed by itself earlier, or rank 0 if all have stopped on
 * request. */
int ax_store_told(const struct ax_store_client *s);
void ax_store_close(
    /* NULL is fine. Without ax_store_leave, other ranks see this rank as lost. */
    struct ax_store_client *s);

int ax_store_rank(const struct ax_store_client *s);
int ax_store_world(const struct ax_store_client *s);
/* The address by which this process reaches the server: the interface that ranks connect over. */
const char *ax_store_address(const struct ax_store_client *s);

/* [AX_STORE_KEY_BYTES], for the proofs of other connections between ranks. */
const unsigned char *ax_store_key(const struct ax_store_client *s);

/* Sets a key, which can be set only once. */
enum ax_status ax_store_set(struct ax_store_client *s, const char *key, const void *data, size_t n);
/* Waits for a key that `owner` sets (−1: any rank). AX_ERR_PEER if it does not come in time, or
 * immediately if the owner has ended or any rank has failed. Free *data with ax_free. */
enum ax_status ax_store_get(struct ax_store_client *s, const char *key, int owner, double timeout,
                            char **data, size_t *n);
/* Waits until another rank has failed, and returns its status with its message in `words`. AX_OK if
 * none fails in time, if a rank of [first, end) has ended well, or is gone, which `words` then says
 * (*done is that rank, else −1), or if the server is gone. `timeout` 0 is for a rank that got no answer in time: then this request
 * and all later ones wait only a moment. */
enum ax_status ax_store_ask_cause(struct ax_store_client *s, int first, int end, double timeout,
                                  char *words, size_t size, int *done);

#endif
