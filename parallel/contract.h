/* The collective list of the dry run, checked while running: the plan is the program here too.
 *
 * Between enter and leave every collective started on a group of two or more is an entry: role,
 * kind, reduction, type, count, peers; of an all-to-all-v no counts, which only data say. The first
 * time through a name records, later times check; after ax_runtime_run the dry run has been the
 * first. So a rank that leaves a collective out, or adds one, is stopped there and named, before
 * others wait for it. */
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
    bool planned;               /* the list came from a dry run: no new names */
    struct ax_contract *inside; /* the one entered; NULL = none */
    bool recording;
    size_t done; /* entries seen since it was entered */
};

struct ax_runtime;
/* `name` is a literal. AX_ERR_FAILED where the dry run never came by. Not nested. */
enum ax_status ax_contract_enter(struct ax_runtime *rt, const char *name);
/* AX_ERR_FAILED names the first collective that has not been started. Not needed on the way out of
 * an error. */
enum ax_status ax_contract_leave(struct ax_runtime *rt);

/* For ax_comm_start. AX_ERR_FAILED: rank, number in the list, what was planned, what came. */
enum ax_status ax_contract_note(struct ax_contracts *all, const struct ax_comm *c,
                                const struct ax_collective *what);
/* For ax_runtime_run: the lists of the dry run become those of the run. */
void ax_contracts_hand_over(struct ax_contracts *to, struct ax_contracts *from);
void ax_contracts_free(struct ax_contracts *all);

#endif
