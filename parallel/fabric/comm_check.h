/* The properties of a collective on which the ranks of a group must agree, and the error messages
 * when they do not. */
#ifndef AX_PARALLEL_FABRIC_COMM_CHECK_H
#define AX_PARALLEL_FABRIC_COMM_CHECK_H

#include "parallel/fabric/comm.h"

/* One rank's description of a collective, without members that may differ between ranks. Sent
 * between processes as is. */
struct ax_comm_part {
    int32_t kind, reduction, dtype, root; /* 0 if the kind has none */
    int64_t count;                        /* 0 for all-to-all-v */
};
struct ax_comm_part ax_comm_part_of(const struct ax_collective *what);

bool ax_comm_part_same(const struct ax_comm_part *a, const struct ax_comm_part *b);
/* "all_reduce sum of 3 float64"; buf is returned. */
const char *ax_comm_part_text(char *buf, size_t size, const struct ax_comm_part *part);

/* A position in a communicator's sequence: the number-th collective of the group (from 1) or, if
 * from ≥ 0, the number-th message between two world ranks. */
struct ax_comm_place {
    enum ax_role role;
    uint64_t number;
    int from, to;
};

/* AX_ERR_PEER naming the differing rank and both descriptions, unless all n are equal. ranks[i], a
 * world rank, sent parts[i]. */
enum ax_status ax_comm_check_parts(const struct ax_comm_place *place,
                                   const struct ax_comm_part *parts, const int *ranks, int n);
/* All-to-all-v: checks that `from` sends what `to` expects. */
enum ax_status ax_comm_check_counts(const struct ax_comm_place *place,
                                    const struct ax_comm_part *part, int from, int64_t sent, int to,
                                    int64_t expected);
/* AX_ERR_PEER naming the world ranks that did not arrive, and why: "did not arrive within 60 s". */
enum ax_status ax_comm_missing(const struct ax_comm_place *place, const struct ax_comm_part *part,
                               const int *ranks, int n, const char *why);

#endif
