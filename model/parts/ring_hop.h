/* What forward and backward of ring attention share (model/parts/ring.h): pieces, messages, and the attention
 * of a run to the keys of one. */
#ifndef AX_MODEL_PARTS_RING_HOP_H
#define AX_MODEL_PARTS_RING_HOP_H

#include "model/core/pass.h"

/* Keys and values of a run, [length][Hk][…] each, or their gradients: contiguous, one message. */
struct ax_ring_piece {
    struct ax_tensor k, v;
};
/* Of a rank's two runs. */
struct ax_ring_pieces {
    struct ax_ring_piece run[2];
};

struct ax_ring {
    struct ax_pass *p;
    struct ax_runtime *rt;
    const struct ax_attention *a; /* of all of this rank's rows */
    int cp, rank;
    int64_t length; /* of a run */
};

/* Messages of a hop, one per run; 0: none. */
struct ax_ring_tickets {
    struct ax_ticket sent[2], received[2];
};

struct ax_ring ax_ring_of(struct ax_pass *p, const struct ax_attention *a);
/* Ranks that this one sends keys to in a hop, and receives them from. */
int ax_ring_to(const struct ax_ring *r, int hop);
int ax_ring_from(const struct ax_ring *r, int hop);
/* Run i of a rank, as a run of the sequence. */
int ax_ring_run(const struct ax_ring *r, int rank, int i);
/* Do a rank's queries attend to keys of a run? */
bool ax_ring_reads(const struct ax_ring *r, int rank, int run);

/* In scratch. */
struct ax_ring_piece ax_ring_take(const struct ax_ring *r, const char *name, enum ax_dtype dtype);
struct ax_ring_pieces ax_ring_take_both(const struct ax_ring *r, const char *name);
/* This rank's keys and values. */
enum ax_status ax_ring_pack(const struct ax_ring *r, struct ax_ring_pieces *mine);

/* Starts the hop's messages of keys: `mine` to those who read them, theirs into `in`. */
enum ax_status ax_ring_post_keys(const struct ax_ring *r, int hop,
                                 const struct ax_ring_pieces *mine, const struct ax_ring_pieces *in,
                                 struct ax_ring_tickets *t);
/* Of gradients, the other way: `back` to whose keys they are, those of this rank's keys into `got`. */
enum ax_status ax_ring_post_gradients(const struct ax_ring *r, int hop,
                                      const struct ax_ring_pieces *back,
                                      const struct ax_ring_pieces *got, struct ax_ring_tickets *t);
/* Waits for the messages that are under way. */
enum ax_status ax_ring_wait(const struct ax_ring *r, struct ax_ticket t[2]);

/* Attention of own run i to its own keys; and without them, to those of an earlier run of the sequence. */
struct ax_attention ax_ring_own(const struct ax_ring *r, int i);
struct ax_attention ax_ring_earlier(const struct ax_ring *r, int i, int run,
                                    const struct ax_ring_piece *keys);

/* `t`, if it can sum, else scratch in accumulation dtype; and `t` = the sum. */
struct ax_tensor ax_ring_sum(const struct ax_ring *r, const struct ax_tensor *t);
enum ax_status ax_ring_put(const struct ax_ring *r, const struct ax_tensor *t,
                           const struct ax_tensor *sum);
/* Own run i's rows. */
struct ax_tensor ax_ring_rows(const struct ax_ring *r, const struct ax_tensor *t, int i);

#endif
