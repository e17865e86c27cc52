/* The part of a tensor that one rank has: elements [first, first + n), in row-major order, of the
 * block start … start + size. On one rank that is the full tensor; of a tensor- or expert-parallel
 * slice, the run in the rank's shard.
 *
 * The order of a part's elements is their order in the tensor, so writing a tensor front to back
 * reads each part front to back. */
#ifndef AX_CKPT_TENSORS_BLOCK_H
#define AX_CKPT_TENSORS_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define AX_ST_MAX_DIMS 8

struct ax_block {
    int ndim;
    int64_t shape[AX_ST_MAX_DIMS]; /* shape of the tensor */
    int64_t start[AX_ST_MAX_DIMS], size[AX_ST_MAX_DIMS];
    int64_t first, n;
};

struct ax_block ax_block_whole(int ndim, const int64_t *shape);
/* How many elements of the part are before element `at` of the tensor: 0 … n. */
int64_t ax_block_before(const struct ax_block *b, int64_t at);
/* Index in the tensor of the part's element i < n. *run elements from there on are contiguous in
 * both. */
int64_t ax_block_index(const struct ax_block *b, int64_t i, int64_t *run);

/* The elements that two parts of a tensor have in common, run by run, in their order. */
struct ax_block_common {
    struct ax_block to, from;
    int64_t at, end;      /* position in `to` of the next run, and of the end */
    int64_t begin, to_at; /* where the current run begins in the tensor; in `to` */
    int64_t k, k_end;     /* elements of the current run that `from` has */
};
/* Begins with elements [first, first + n) of `to`. */
struct ax_block_common ax_block_common(const struct ax_block *to, int64_t first, int64_t n,
                                       const struct ax_block *from);
/* Elements [*to, *to + *n) of one are [*from, *from + *n) of the other; false if there are no more. */
bool ax_block_next(struct ax_block_common *c, int64_t *to, int64_t *from, int64_t *n);

#endif
