/* Tensor and sequence parallelism: the rows and columns of a rank.
 *
 * Between layers a rank holds a contiguous range of the batch's rows, [T/tp][D] (Korthikanti et al.
 * 2022). A linear split over its outputs gathers all rows and computes its columns; one split over
 * its inputs computes partial sums of all rows, which are reduce-scattered. Backward mirrors this.
 * The embedding and the head are split over the vocabulary. In a group of one nothing is copied:
 * every tensor below is the tensor it was made from. */
#ifndef AX_MODEL_PARALLEL_TENSOR_PARALLEL_H
#define AX_MODEL_PARALLEL_TENSOR_PARALLEL_H

#include "parallel/units/unit.h"

/* grad_partial_over of replicated parameters: each rank has seen only its own rows or columns. */
#define AX_TP_PARTIAL (1u << AX_ROLE_TP)

/* Rows of the residual stream on this rank, of T; T is a multiple of tp. */
int64_t ax_tp_rows(const struct ax_runtime *rt, int64_t T);
/* Index of this rank's first row among the T rows; the second function takes the number of this
 * rank's rows instead of T. */
int64_t ax_tp_first(const struct ax_runtime *rt, int64_t T);
int64_t ax_tp_first_own(const struct ax_runtime *rt, int64_t rows);

/* all [T][n] (scratch) from every rank's own [T/tp][n] (dense). */
enum ax_status ax_tp_gather(struct ax_runtime *rt, const struct ax_tensor *own,
                            struct ax_tensor *all);
/* Scratch for partial sums [T][n] that will be summed into own [T/tp][n]. */
struct ax_tensor ax_tp_partial(struct ax_runtime *rt, const struct ax_tensor *own);
/* own = this rank's rows of Σ partial [+ addend]. In a group of one `partial` is `own` and must
 * already contain the addend. */
enum ax_status ax_tp_reduce(struct ax_runtime *rt, const struct ax_tensor *partial,
                            const struct ax_tensor *addend, const struct ax_tensor *own);
/* Start a gather or a reduce on several ranks: `all` (scratch) and `own` are valid after _arrive. A
 * reduce keeps scratch until then. */
enum ax_status ax_tp_start_gather(struct ax_runtime *rt, const struct ax_tensor *own,
                                  struct ax_tensor *all, struct ax_ticket *ticket);
enum ax_status ax_tp_start_reduce(struct ax_runtime *rt, const struct ax_tensor *partial,
                                  const struct ax_tensor *own, struct ax_ticket *ticket);
enum ax_status ax_tp_arrive(struct ax_runtime *rt, struct ax_ticket ticket);
/* True on the one rank that adds what must be added once (a bias before the sum). */
bool ax_tp_adds(const struct ax_runtime *rt);

/* t = Σ over the ranks, in place (t dense). */
enum ax_status ax_tp_sum(struct ax_runtime *rt, const struct ax_tensor *t);

/* Ranks that share the rows of a matrix (the vocabulary): tp, or 1 if every rank has all. */
int ax_tp_shards(const struct ax_runtime *rt, const struct ax_param *p);
/* Index of the parameter's first row on this rank. */
int64_t ax_tp_first_row(const struct ax_runtime *rt, const struct ax_param *p);
/* stats [n][k] of this shard of the head's rows → [shards][n][k] (scratch): see op softmax_merge. */
enum ax_status ax_tp_gather_stats(struct ax_runtime *rt, const struct ax_param *head,
                                  const struct ax_tensor *stats, struct ax_tensor *all);

/* all [n][n_cols] (scratch) from this shard's columns of it, [n][n_cols/tp]. */
enum ax_status ax_tp_gather_cols(struct ax_runtime *rt, const struct ax_tensor *own, int64_t n_cols,
                                 struct ax_tensor *all);
/* From some columns of all rows to all columns of some rows, and back, for what sums along rows whose columns tp splits:
 * rows [T/tp][Σ n] (dense) = own rows of what all ranks have in x [T][n]; x = own columns of what all have in rows. */
enum ax_status ax_tp_to_rows(struct ax_runtime *rt, const struct ax_tensor *x,
                             const struct ax_tensor *rows);
enum ax_status ax_tp_to_columns(struct ax_runtime *rt, const struct ax_tensor *rows,
                                const struct ax_tensor *x);
/* values = those of the group's first rank (dense). */
enum ax_status ax_tp_share(struct ax_runtime *rt, const struct ax_tensor *values);

/* A superset of the k largest logits of each row over all shards of the head: [n][shards·k]
 * (scratch), from this shard's [n][V/shards]. With one shard, the logits themselves. */
enum ax_status ax_tp_gather_top(struct ax_runtime *rt, const struct ax_param *head,
                                const struct ax_tensor *logits, int64_t k, struct ax_tensor *all);

/* True if n KV heads are replicated rather than split over tp: there are fewer heads than ranks,
 * and each rank uses one of them. */
bool ax_tp_kv_replicated(const struct ax_mesh *mesh, int64_t n_kv_heads);
/* First KV head that this rank's attention reads, of those it computes. */
int64_t ax_tp_first_kv_head(const struct ax_mesh *mesh, int64_t n_kv_heads);

#endif
