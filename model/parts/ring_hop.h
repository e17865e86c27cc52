/* Shared by forward and backward of ring attention (ring.h): pieces, messages, and the attention of
 * a run to the keys of one run. */
#ifndef AX_MODEL_PARTS_RING_HOP_H
#define AX_MODEL_PARTS_RING_HOP_H

#include "model/core/pass.h"

/* Keys and values of a run, [length][Hk][…] each, or their gradients: contiguous, one message. */
struct ax_ring_piece {
    struct ax_tensor k, v;
};
/* The pieces of a rank's two runs. */
struct ax_ring_pieces {
    struct ax_ring_piece run[2];
};

struct ax_ring {
    struct ax_pass *p;
    struct ax_runtime *rt;
    const struct ax_attention *a; /* attention of all of this rank's rows */
    int cp, rank;
    int64_t length; /* tokens of a run */
};

/* Messages of a hop, one per run; 0: none. */
struct ax_ring_tickets {
    struct ax_ticket sent[2], received[2];
};

struct ax_ring ax_ring_of(struct ax_pass *p, const struct ax_attention *a);
/* The rank to which this one sends keys in a hop; and the one from which it receives keys. */
int ax_ring_to(const struct ax_ring *r, int hop);
int ax_ring_from(const struct ax_ring *r, int hop);
/* Run i of a rank, as a run of the sequence. */
int ax_ring_run(const struct ax_ring *r, int rank, int i);
/* True if a rank's queries attend to keys of a run. */
bool ax_ring_reads(const struct ax_ring *r, int rank, int run);

/* Allocate one piece, or those of two runs, in scratch. */
struct ax_ring_piece ax_ring_take(const struct ax_ring *r, const char *name, enum ax_dtype dtype);
struct ax_ring_pieces ax_ring_take_both(const struct ax_ring *r, const char *name);
/* This rank's keys and values. */
enum ax_status ax_ring_pack(const struct ax_ring *r, struct ax_ring_pieces *mine);

/* Starts the hop's messages of keys: `mine` to those who read them, theirs into `in`. */
enum ax_status ax_ring_post_keys(const struct ax_ring *r, int hop,
                                 const struct ax_ring_pieces *mine, const struct ax_ring_pieces *in,
                                 struct ax_ring_tickets *t);
/* Starts the hop's messages of gradients, which go the other way: `back` to the ranks that own the
 * keys, those of this rank's keys into `got`. */
enum ax_status ax_ring_post_gradients(const struct ax_ring *r, int hop,
                                      const struct ax_ring_pieces *back,
                                      const struct ax_ring_pieces *got, struct ax_ring_tickets *t);
/* Waits for the messages in flight. */
enum ax_status ax_ring_wait(const struct ax_ring *r, struct ax_ticket t[2]);

/* The attention of own run i to its own keys; and to those of an earlier run of the sequence. */
struct ax_attention ax_ring_own(const struct ax_ring *r, int i);
struct ax_attention ax_ring_earlier(const struct ax_ring *r, int i, int run,
                                    const struct ax_ring_piece *keys);

/* _sum: a tensor to accumulate t in: t itself if its dtype allows, else scratch in accumulation
 * dtype. _put: t = the sum. */
struct ax_tensor ax_ring_sum(const struct ax_ring *r, const struct ax_tensor *t);
enum ax_status ax_ring_put(const struct ax_ring *r, const struct ax_tensor *t,
                           const struct ax_tensor *sum);
/* The rows of own run i. */
struct ax_tensor ax_ring_rows(const struct ax_ring *r, const struct ax_tensor *t, int i);

#endif
