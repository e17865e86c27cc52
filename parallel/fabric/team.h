/* How the ranks of a job talk on the host, beside the training's collectives: before the runtime is
 * open, and from the thread that writes a checkpoint. Every rank makes the same calls in the same
 * order, from one thread at a time. A team of NULL, or a zeroed one, is one rank. */
#ifndef AX_PARALLEL_FABRIC_TEAM_H
#define AX_PARALLEL_FABRIC_TEAM_H

#include "base/mem.h"
#include "parallel/fabric/fabric.h"

struct ax_team {
    int rank, size;
    int host, hosts; /* index of this rank's host, and how many there are */
    bool broken;     /* a rank did not answer: they can agree on nothing any more */
    struct ax_comm comm;
    struct ax_stack none; /* nothing needs scratch */
    struct ax_queue *q;
};

/* `fabric` NULL: one rank. */
enum ax_status ax_team_open(struct ax_team *t, struct ax_fabric *fabric);
void ax_team_close(struct ax_team *t); /* safe on zeroed */
/* True on rank 0. */
bool ax_team_leads(const struct ax_team *t);

/* AX_OK if all ranks call it with AX_OK. Otherwise a rank that called it with an error gets that
 * error back with its text, and the others get AX_ERR_PEER with the text of the first rank that
 * failed. */
enum ax_status ax_team_agree(struct ax_team *t, enum ax_status st);
/* *value = the maximum over all ranks. */
enum ax_status ax_team_max(struct ax_team *t, double *value);
/* Copies rank 0's bytes to all ranks. */
enum ax_status ax_team_share(struct ax_team *t, void *data, int64_t bytes);
/* The same with rank 0's text, of a length that others do not know; `b` is replaced elsewhere. */
enum ax_status ax_team_share_text(struct ax_team *t, struct ax_buf *b);
/* Copies rank 0's choice to all ranks of a fabric (NULL: one rank) before there is a team; `st`
 * says whether rank 0 could choose. */
enum ax_status ax_team_choice(struct ax_fabric *fabric, enum ax_status st, void *data,
                              int64_t bytes);
/* A message to one rank, on its way while this rank does something else. */
struct ax_team_letter {
    const void *data; /* must not change before it has arrived */
    int64_t bytes;
    struct ax_ticket size, content;
};
enum ax_status ax_team_send(struct ax_team *t, int rank, struct ax_team_letter *l);
/* Waits until the other rank has it. Not needed after an error. */
enum ax_status ax_team_sent(struct ax_team *t, struct ax_team_letter *l);
/* Waits for the next letter of a rank; *data is a new block with a 0 behind the bytes. */
enum ax_status ax_team_receive(struct ax_team *t, int rank, char **data, int64_t *bytes);

/* Sends each rank's bytes to rank 0, which calls `take` for every rank in order, itself included.
 * If `take` fails, only rank 0 returns the error. */
enum ax_status ax_team_collect(struct ax_team *t, const char *data, int64_t bytes,
                               enum ax_status (*take)(void *ctx, int rank, const char *data,
                                                      int64_t bytes),
                               void *ctx);

#endif
