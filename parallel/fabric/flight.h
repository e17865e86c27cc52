/* A flight record: the last collectives that a rank started, and whether they are done. Each rank
 * writes its own to a file of a folder when it waits in vain, breaks the contract, or gets SIGUSR2;
 * `axtrain check flight DIR` compares the files and names the rank and the call that differ.
 *
 * A file is a table with tabs. The first line has the word "flight", the version, the world rank,
 * the size of the world, and how many collectives were started (groups of one are left out); then
 * come a line of column names and a line per collective, oldest first. The column `number` counts a
 * communicator's collectives from 1, and separately its messages. */
#ifndef AX_PARALLEL_FABRIC_FLIGHT_H
#define AX_PARALLEL_FABRIC_FLIGHT_H

#include "parallel/fabric/comm.h"

#define AX_FLIGHT_KEPT    256
#define AX_FLIGHT_VERSION 1

struct ax_flight;

/* Runtimes that this process opens from now on keep a record, and write it to `dir`, which is
 * created when there is something to write. NULL: they keep none. Handles SIGUSR2 from then on. */
void ax_flight_to(const char *dir);
/* *f = NULL if nothing is recorded. */
enum ax_status ax_flight_create(struct ax_flight **f, int rank, int world);
void ax_flight_free(struct ax_flight *f); /* accepts NULL */
/* For communicators: a collective was started (its ticket is c->sequence); it is done. */
void ax_flight_note(struct ax_flight *f, const struct ax_comm *c, const struct ax_collective *what);
void ax_flight_done(struct ax_flight *f, const struct ax_comm *c, struct ax_ticket ticket);
/* Marks all of the role's collectives up to this ticket as done; from any thread. For communicators
 * whose waits do not show it because a device waits. */
void ax_flight_done_to(struct ax_flight *f, enum ax_role role, uint64_t ticket);
/* Calls only async-signal-safe functions. Accepts NULL. */
void ax_flight_write(const struct ax_flight *f);

#endif
