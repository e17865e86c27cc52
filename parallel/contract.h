/* The dry run's list of collectives, checked during the run: the plan is the program here too.
 *
 * Between enter and leave, every collective started on a group of two or more is an entry: role,
 * kind, reduction, dtype, count, peers; for an all-to-all-v no counts, because they depend on data.
 * The first time a name is entered records, later ones check; with ax_runtime_run the dry run is
 * the first. So a rank that omits a collective, or adds one, stops there with an error that names
 * it, before others wait for it. */
#ifndef AX_PARALLEL_CONTRACT_H
#define AX_PARALLEL_CONTRACT_H

#include <stdbool.h>
#include <stddef.h>

#include "parallel/comm_check.h"

#define AX_MAX_CONTRACTS 8

struct ax_contract_entry {
    enum ax_role role;
    struct ax_comm_part part;
    int send_peer, recv_peer; /* of a message; −1 otherwise */
};

struct ax_contract {
    const char *name;
    struct ax_contract_entry *entries; /* owned */
    size_t n, capacity;
};

struct ax_contracts {
    struct ax_contract list[AX_MAX_CONTRACTS];
    int n;
    int rank;                   /* world rank, for messages */
    bool planned;               /* lists came from a dry run: no new names */
    struct ax_contract *inside; /* the entered one; NULL = none */
    bool recording;
    size_t done; /* entries seen since then */
};

struct ax_runtime;
/* `name` is a string literal. AX_ERR_FAILED if the dry run never entered it. Not nested. */
enum ax_status ax_contract_enter(struct ax_runtime *rt, const char *name);
/* AX_ERR_FAILED names the first collective that has not been started. Not needed after an error. */
enum ax_status ax_contract_leave(struct ax_runtime *rt);

/* For ax_comm_start. AX_ERR_FAILED names the rank, the position in the list, the planned and the
 * actual collective. */
enum ax_status ax_contract_note(struct ax_contracts *all, const struct ax_comm *c,
                                const struct ax_collective *what);
/* For ax_runtime_run: moves the dry run's lists to the run. */
void ax_contracts_hand_over(struct ax_contracts *to, struct ax_contracts *from);
void ax_contracts_free(struct ax_contracts *all);

#endif
