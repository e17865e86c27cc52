/* The dry run's list of collectives, checked during the run: the plan is the program here too.
 *
 * Between enter and leave, every collective started on a group of two or more is an entry: role,
 * kind, reduction, dtype, count, peers; for an all-to-all-v no counts, because they depend on data.
 * The first time a name is entered records, later ones check; with ax_runtime_run the dry run is
 * the first. So a rank that omits a collective, or adds one, stops there with an error that names
 * it, before others wait for it.
 *
 * The dry run is of the largest batch. A shorter one has smaller counts (ax_contract_scale), and
 * fewer turns of a loop (ax_contract_loop), of which the list has one. */
#ifndef AX_PARALLEL_FABRIC_CONTRACT_H
#define AX_PARALLEL_FABRIC_CONTRACT_H

#include <stdbool.h>
#include <stddef.h>

#include "parallel/fabric/comm.h"

/* The properties of a collective on which the ranks of a group must agree, and the error messages
 * when they do not. */

/* One rank's description of a collective, without members that may differ between ranks. Sent
 * between processes as is. */
struct ax_comm_part {
    int32_t kind, reduction, dtype, root; /* 0 if the kind has none */
    int64_t count;                        /* 0 for all-to-all-v */
};
struct ax_comm_part ax_comm_part_of(const struct ax_collective *what);

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

#define AX_MAX_CONTRACTS 8
#define AX_CONTRACT_NAME 32

struct ax_contract_entry {
    enum ax_role role;
    struct ax_comm_part part;
    int send_peer, recv_peer; /* peers of a message; −1 otherwise */
};

struct ax_contract {
    char name[AX_CONTRACT_NAME];
    struct ax_contract_entry *entries; /* owned */
    size_t n, capacity;
    size_t *loops; /* [n_loops] entries of one turn of each loop; owned */
    size_t n_loops, loop_capacity;
};

/* Counts are `now`/`planned` times the planned ones, or equal to them; 0, 0: any. */
struct ax_contract_scale {
    int64_t now, planned;
};

struct ax_contract_loop {
    bool open;
    size_t first, length; /* entries of one turn */
    int64_t turns;
    struct ax_contract_scale scale;
};

struct ax_contracts {
    struct ax_contract list[AX_MAX_CONTRACTS];
    int n;
    int rank;                   /* world rank, for messages */
    bool planned;               /* lists came from a dry run: no new names */
    struct ax_contract *inside; /* the entered one; NULL = none */
    bool recording;
    size_t done; /* entries seen since it was entered */
    size_t loops_done;
    struct ax_contract_scale scale;
    struct ax_contract_loop loop;
};

/* AX_ERR_FAILED if the dry run never entered the name. Not nested. */
enum ax_status ax_contract_enter(struct ax_contracts *all, const char *name);
/* AX_ERR_FAILED names the first collective that has not been started, or a communicator with one that
 * has not been waited for. Not needed after an error. */
enum ax_status ax_contract_leave(struct ax_contracts *all,
                                 const struct ax_comm comms[AX_ROLE_COUNT]);
/* AX_ERR_FAILED names a communicator with a collective that was started and not waited for. */
enum ax_status ax_contract_settled(const struct ax_contracts *all,
                                   const struct ax_comm comms[AX_ROLE_COUNT], const char *where);

/* Counts from here on are `now`/`planned` times those of the dry run, or equal to them. 1, 1:
 * equal. */
void ax_contract_scale(struct ax_contracts *all, int64_t now, int64_t planned);
/* A loop whose number of turns depends on the data: turn begins each of them, in which the scale is
 * `now`/`planned`, and end follows the last. 0, 0: counts in no proportion to the planned ones, which only the ranks
 * of a group compare. Not nested. */
void ax_contract_loop(struct ax_contracts *all);
enum ax_status ax_contract_turn(struct ax_contracts *all, int64_t now, int64_t planned);
enum ax_status ax_contract_end(struct ax_contracts *all);

/* For ax_comm_start and ax_comm_skip: checks a collective against the next entry. An entry may be
 * skipped, on which its ranks agree without a message. AX_ERR_FAILED names the rank, the position
 * in the list, the planned and the actual collective. */
enum ax_status ax_contract_note(struct ax_contracts *all, const struct ax_comm *c,
                                const struct ax_collective *what);
/* For ax_runtime_run: moves the dry run's lists to the run. */
void ax_contracts_hand_over(struct ax_contracts *to, struct ax_contracts *from);
void ax_contracts_free(struct ax_contracts *all);

#endif
