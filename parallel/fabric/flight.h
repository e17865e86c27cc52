/* A flight record: the last collectives that a rank started, and whether they are done. Written to a folder, one
 * file per rank, when the rank waits in vain or breaks the contract, or its process gets SIGUSR2; `axtrain check flight DIR` compares them and names
 * the rank and the call that differ.
 *
 * A file is a table with tabs: a line "flight", version, world rank, ranks of the world, collectives so far, those of groups of
 * one left out; a line of column names; a line per collective, oldest first. `number` counts a communicator's
 * collectives, and apart from them its messages, from 1. */
#ifndef AX_PARALLEL_FABRIC_FLIGHT_H
#define AX_PARALLEL_FABRIC_FLIGHT_H

#include "parallel/fabric/comm.h"

#define AX_FLIGHT_KEPT    256
#define AX_FLIGHT_VERSION 1

struct ax_flight;

/* Runtimes that this process opens from now on record, and write to `dir`, which is made when there is something
 * to write. NULL: they do not. Handles SIGUSR2 from then on. */
void ax_flight_to(const char *dir);
/* *f = NULL if nothing is recorded. */
enum ax_status ax_flight_create(struct ax_flight **f, int rank, int world);
void ax_flight_free(struct ax_flight *f); /* accepts NULL */
/* For communicators: a collective was started (its ticket is c->sequence); it is done. */
void ax_flight_note(struct ax_flight *f, const struct ax_comm *c, const struct ax_collective *what);
void ax_flight_done(struct ax_flight *f, const struct ax_comm *c, struct ax_ticket ticket);
/* From any thread: all of the role's collectives up to this ticket are done. For communicators whose waits say
 * nothing, because a device waits. */
void ax_flight_done_to(struct ax_flight *f, enum ax_role role, uint64_t ticket);
/* Calls only async-signal-safe functions. Accepts NULL. */
void ax_flight_write(const struct ax_flight *f);

#endif
