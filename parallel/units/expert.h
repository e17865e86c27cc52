/* Expert parallelism: sends rows to the rank of their expert, and results back. The only file
 * besides model/parts/moe.c that knows the role ep.
 *
 * Experts are split into contiguous ranges: rank r of the group has experts [r·E/ep, (r+1)·E/ep). The
 * rows for a rank have one order: by expert, of an expert by the rank that sends them, and of a rank
 * as its tokens are. It takes them in rounds of at most `room` rows, so that no rank needs room for
 * the worst case and no row is dropped. The ranks gather each other's counts, from which all of them
 * know how many rounds there are (the same on all, as many as the busiest rank needs) and what each
 * brings. Counts are known only after routing, so the host reads them, once per layer and
 * micro-batch, and keeps what it needs of them with the route, for backward and for a GPU's products,
 * too; a plan counts traffic and work as if experts were evenly loaded.
 *
 * A rank sorts its rows by round, then by expert (and so by rank): what it sends in a round is
 * contiguous. What arrives is rank by rank, and a second sort groups it by expert.
 *
 * A round travels in one part or in two: the rows for the first half of each rank's experts, then the
 * others. So one part travels while the other computes, and no product of an expert has other rows
 * than in one part. A rank sorts by part before it sorts by expert.
 *
 * In a group of one the sorted rows are the experts' rows: nothing is exchanged or copied. Their offsets
 * come to the host with the first product that needs them there (struct ax_mirror). */
#ifndef AX_PARALLEL_UNITS_EXPERT_H
#define AX_PARALLEL_UNITS_EXPERT_H

#include "parallel/runtime.h"

/* How many rows a rank's buffers hold, as a multiple of an even load. */
#define AX_EXPERT_ROOM  1.5
#define AX_EXPERT_PARTS 2 /* parts of a round, at most */

/* The experts of a model on this rank, and host memory for counts. */
struct ax_expert_group {
    int ranks, rank;
    double room;  /* multiple of an even load that buffers hold */
    bool overlap; /* transfers are waited for when their rows are needed, else immediately */
    int parts;    /* parts of a round: 2 with overlap where a rank has several experts, else 1 */
    int64_t n_experts;
    int64_t n_local, first; /* experts [first, first + n_local) are here */
    /* [ranks][n_experts]: rows as counted; rows if loads were even, for plans */
    int32_t *counts, *even;
    int64_t *sent, *received; /* [ranks] elements of the next all-to-all; scratch */
};
/* AX_ERR_CONFIG if ep does not divide the experts. room 0 = AX_EXPERT_ROOM. */
enum ax_status ax_expert_group_create(struct ax_expert_group *g, const struct ax_runtime *rt,
                                      int64_t n_experts, double room, bool overlap);
void ax_expert_group_free(struct ax_expert_group *g);
/* The rows this rank takes in one round if every rank of the group has T tokens for k experts
 * each. */
int64_t ax_expert_capacity(const struct ax_expert_group *g, int64_t T, int64_t k);

/* The rounds of a route, on the host: what this rank sends to each rank and gets from it. */
struct ax_expert_rounds {
    int n, open;   /* number of rounds; the open one, whose rows offsets and regroup describe */
    int64_t *rows; /* [most][parts][2][ranks]: rows sent and received; not owned */
    int32_t *ends; /* [most][n_local+1], not owned: offsets of each round */
    struct ax_mirror offsets; /* offsets of the open round, for the products of its rows */
};
/* The most rounds that a route can have. */
int ax_expert_most_rounds(const struct ax_expert_group *g, int64_t k);
/* Host memory for the rounds of `n` routes. ax_expert_rounds_free takes the result, or NULL. */
enum ax_status ax_expert_rounds_create(struct ax_expert_rounds **r, const struct ax_expert_group *g,
                                       int64_t k, int n);
void ax_expert_rounds_free(struct ax_expert_rounds *r);

/* The route of the rows of one layer and micro-batch: memory of the caller, on the device except
 * `rounds`. A group of one needs neither counts nor regroup (NULL). */
struct ax_expert_route {
    struct ax_tensor places;  /* i32 [T][k]: position of each choice among this rank's sorted rows;
                                −1: padding */
    struct ax_tensor offsets; /* i32 [n_local+1]: rows of each expert here in the open round */
    struct ax_tensor counts;  /* i32 [ranks][n_experts]: rows that each rank has for each expert */
    struct ax_tensor regroup; /* i32 [capacity]: position by expert of each row received in it */
    struct ax_expert_rounds *rounds; /* the route's own */
};
/* Computes a route from the router's choice, and opens round 0: experts i32 [T][k], −1 = padding.
 * Collective. The host waits for the counts, but not in a group of one. The functions below use what it has read. */
enum ax_status ax_expert_assign(struct ax_expert_group *g, struct ax_runtime *rt,
                                const struct ax_tensor *experts, const struct ax_expert_route *r);
/* Opens a round: the functions below handle its rows. */
enum ax_status ax_expert_open(const struct ax_expert_group *g, struct ax_runtime *rt,
                              const struct ax_expert_route *r, int round);

/* Experts [first, first + n) of those here, and their rows [row, row + rows) of the open round. */
struct ax_expert_part {
    int64_t first, n, row, rows;
    int64_t expected; /* number of rows if experts were evenly loaded */
};
struct ax_expert_part ax_expert_part(const struct ax_expert_group *g,
                                     const struct ax_expert_route *r, int part);
/* All experts of this rank, as one part. */
struct ax_expert_part ax_expert_parts(const struct ax_expert_group *g,
                                      const struct ax_expert_route *r);

/* A round's rows on their way, to experts or back; `transit` lies in the caller's scratch. */
struct ax_expert_transfer {
    struct ax_tensor transit;                  /* [capacity][D] */
    struct ax_ticket tickets[AX_EXPERT_PARTS]; /* in flight; 0: none */
};
/* Pushes memory for rows like those of `rows` [capacity][D]; in a group of one none. */
struct ax_expert_transfer ax_expert_transfer(const struct ax_expert_group *g, struct ax_runtime *rt,
                                             const struct ax_tensor *rows);

/* In a group of one rows [capacity][D], in expert order, are the same memory as sorted [T·k][D], and
 * these do nothing. A round goes: send, then for each part receive and later give_back, then settle.
 * What is sent must stay until it is received on this rank; `rows` may change after give_back. */
/* Starts all parts of the open round's sorted rows. */
enum ax_status ax_expert_send(struct ax_expert_group *g, struct ax_runtime *rt,
                              const struct ax_expert_route *r, const struct ax_tensor *sorted,
                              struct ax_expert_transfer *t);
/* Waits for a part: rows = its rows, in expert order. */
enum ax_status ax_expert_receive(const struct ax_expert_group *g, struct ax_runtime *rt,
                                 const struct ax_expert_route *r, int part,
                                 struct ax_expert_transfer *t, const struct ax_tensor *rows);
/* Starts sending the part's rows back to `sorted`. */
enum ax_status ax_expert_give_back(struct ax_expert_group *g, struct ax_runtime *rt,
                                   const struct ax_expert_route *r, int part,
                                   struct ax_expert_transfer *t, const struct ax_tensor *rows,
                                   const struct ax_tensor *sorted);
/* Waits until all parts are back. */
enum ax_status ax_expert_settle(const struct ax_expert_group *g, struct ax_runtime *rt,
                                struct ax_expert_transfer *t);

#endif
