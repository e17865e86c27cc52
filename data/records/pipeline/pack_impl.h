/* Private to pack*.c. */
#ifndef AX_DATA_RECORDS_PIPELINE_PACK_IMPL_H
#define AX_DATA_RECORDS_PIPELINE_PACK_IMPL_H

#include "data/records/pipeline/pack.h"

/* sequence[i] = the sequence of example i; sequences are numbered in the order in which they
 * were opened. *n_sequences = their number. */
enum ax_status ax_pack_fit(const struct ax_pack_options *o, const struct ax_corpus *c,
                           uint32_t *sequence, size_t *n_sequences);
/* The same for pieces, as finished sequences. */
enum ax_status ax_pack_best(struct ax_pack *p, const struct ax_pack_options *o,
                            const struct ax_corpus *c);

/* Appends a piece to the open sequence; ends it. */
enum ax_status ax_pack_add_piece(struct ax_pack *p, struct ax_pack_piece piece);
enum ax_status ax_pack_end_sequence(struct ax_pack *p);

/* Indices by descending size; equal sizes keep their order. Free *order with ax_free. */
enum ax_status ax_pack_sort_falling(const int64_t *sizes, size_t n, uint32_t **order);

/* A tree in heap order: node i has children 2i and 2i + 1, leaves from n_leaves (a power of 2) on; a
 * node has the largest value below it. */
struct ax_room_tree {
    int64_t *room; /* [2·n_leaves] */
    size_t n_leaves;
};
void ax_room_set(struct ax_room_tree *t, size_t leaf, int64_t room);
/* The first leaf from `start` on with at least this value; n_leaves if there is none. */
size_t ax_room_find(const struct ax_room_tree *t, size_t start, int64_t need);

/* The error for the group refs[first, end). */
enum ax_status ax_pack_too_large(const struct ax_pack_options *o, const struct ax_corpus *c,
                                 size_t first, size_t end);

#endif
