/* The ranks that a launcher started, in a command that answers or scores: generate, chat, serve, eval. All
 * do the same, and --mesh says how they share the work. Rank 0 reads the user's input, prints, and
 * writes files; what the others print goes nowhere.
 *
 *     struct ax_ranks ranks;
 *     AX_TRY(ax_ranks_open(&ranks, &(struct ax_ranks_options){…}, ax_args_parse(…)));
 *     … ax_ranks_runtime(&ranks, threads) …
 *     ax_ranks_close(&ranks, st);
 */
#ifndef AX_CMD_RANKS_H
#define AX_CMD_RANKS_H

#include "base/mem.h"
#include "parallel/runtime.h"
#include "parallel/fabric/team.h"
#include "parallel/fabric/world.h"

struct ax_ranks_options {
    const char *command, *mesh; /* mesh: --mesh, or NULL */
    const char *device;         /* --device, or NULL */
    bool one_answer;            /* there are no data ranks: tp takes what --mesh leaves */
    bool meets;                 /* ranks meet now and then: one that does not for long is lost */
    int argc;                   /* words that all ranks must have been given alike */
    char **argv;
};

struct ax_ranks {
    struct ax_world world;
    struct ax_mesh_sizes sizes;
    const char *backend;
    struct ax_team team;
};

/* `parsed`: how the words of the command were read; other ranks hear of an error. AX_ERR_CONFIG and
 * AX_ERR_UNSUPPORTED say in one line which meshes there are. */
enum ax_status ax_ranks_open(struct ax_ranks *r, const struct ax_ranks_options *o,
                             enum ax_status parsed);
/* Tells the others if `st` is an error. */
void ax_ranks_close(struct ax_ranks *r, enum ax_status st);
/* True on the rank that prints and writes. */
bool ax_ranks_lead(const struct ax_ranks *r);
/* Options for the chosen device; 0 threads: this rank's share. NULL: one rank. */
struct ax_runtime_options ax_ranks_runtime(const struct ax_ranks *r, int threads);
/* Rank 0's bytes to all; `b` is replaced elsewhere. */
enum ax_status ax_ranks_share(struct ax_ranks *r, struct ax_buf *b);

#endif
