/* Expert parallelism: sends rows to the rank of their expert, and results back. The only file
 * besides model/moe.c that knows the role ep.
 *
 * Experts are split into contiguous ranges: rank r of the group has experts [r·E/ep, (r+1)·E/ep). A
 * rank sorts its rows by expert (and so by rank), an all-to-all brings each rank the rows for its
 * experts, rank by rank, and a second sort groups them by expert. No row is dropped: memory
 * suffices for all rows of the group on one rank. Actual counts are known only after routing, so
 * the host reads them, once per layer and micro-batch, and keeps what it needs of them with the
 * route; a plan counts traffic and work as if experts were evenly loaded.
 *
 * In a group of one the sorted rows are the experts' rows: nothing is exchanged or copied. */
#ifndef AX_PARALLEL_EXPERT_H
#define AX_PARALLEL_EXPERT_H

#include "parallel/runtime.h"

/* The experts of a model on this rank, and host memory for counts. */
struct ax_expert_group {
    int ranks;
    int64_t n_experts;
    int64_t n_local, first;   /* experts [first, first + n_local) are here */
    int32_t *counts, *even;   /* [2·n_experts]: as read; as planned */
    int64_t *sent, *received; /* [ranks] elements of the next all-to-all; scratch */
};
/* AX_ERR_CONFIG if ep does not divide the experts. */
enum ax_status ax_expert_group_create(struct ax_expert_group *g, const struct ax_runtime *rt,
                                      int64_t n_experts);
void ax_expert_group_free(struct ax_expert_group *g);
/* The most rows this rank can receive if every rank of the group has T tokens for k experts
 * each. */
int64_t ax_expert_capacity(const struct ax_expert_group *g, int64_t T, int64_t k);

/* The routes of one layer's and micro-batch's rows; memory of the caller, on the device but for
 * `rows`. rows, counts and regroup are not needed (NULL) in a group of one. */
struct ax_expert_route {
    struct ax_tensor places; /* i32 [T][k]: position of each choice among this rank's rows sorted by
                                expert; −1: padding */
    struct ax_tensor offsets; /* i32 [n_local+1]: rows of each expert here */
    struct ax_tensor counts;  /* i32 [2][n_experts]: rows this rank sends to each expert; rows it
                                 receives, [ranks][n_local] */
    struct ax_tensor regroup; /* i32 [capacity]: position by expert of each received row */
    int64_t *rows;            /* [2][ranks]: how many go to each rank; how many come from it */
};
/* Computes a route from the router's choice: experts i32 [T][k], −1 = padding. Collective. The host
 * waits for the counts, unless in a group of one; the functions below use what it has read. */
enum ax_status ax_expert_assign(struct ax_expert_group *g, struct ax_runtime *rt,
                                const struct ax_tensor *experts, const struct ax_expert_route *r);
/* Number of rows received, or the most possible (in a group of one: the full capacity). */
int64_t ax_expert_count(const struct ax_expert_group *g, const struct ax_expert_route *r);

/* Where to put the sorted rows [T·k][D] that ax_expert_send sends to `rows`, or ax_expert_return
 * brings back from it: scratch, or `rows` itself in a group of one. */
struct ax_tensor ax_expert_sorted(const struct ax_expert_group *g, struct ax_runtime *rt,
                                  const struct ax_expert_route *r, const struct ax_tensor *rows);
/* rows [capacity][D], in expert order, from all ranks' sorted [T·k][D]; and back. */
enum ax_status ax_expert_send(struct ax_expert_group *g, struct ax_runtime *rt,
                              const struct ax_expert_route *r, const struct ax_tensor *sorted,
                              const struct ax_tensor *rows);
enum ax_status ax_expert_return(struct ax_expert_group *g, struct ax_runtime *rt,
                                const struct ax_expert_route *r, const struct ax_tensor *rows,
                                const struct ax_tensor *sorted);

#endif
