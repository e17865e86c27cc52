/* Private to the gloo fabric: what gloo_fabric.c (processes, failures) and gloo_comm.c
 * (collectives) share. */
#ifndef AX_PARALLEL_GLOO_WORLD_H
#define AX_PARALLEL_GLOO_WORLD_H

#include "parallel/comm_check.h"
#include "parallel/comm_gloo.h"
#include "parallel/gloo_link.h"

struct ax_gloo_op;
struct ax_gloo_world {
    char *folder;
    int world, rank;
    double timeout;
    struct ax_gloo_link *link;
    bool failed;                     /* this rank has said that it gives up */
    bool stopped;                    /* after an error: nothing is under way any more */
    uint64_t opened[AX_ROLE_COUNT];  /* communicators so far: their names between processes */
    struct ax_gloo_op *first, *last; /* under way, in the order of their starts */
};

enum ax_status ax_gloo_comm_open(struct ax_fabric *f, struct ax_comm *c, enum ax_role role,
                                 const int *ranks, int n);

/* AX_ERR_PEER about world ranks with which a transfer ended as `how`: their own words if they left
 * any, else what is known. */
enum ax_status ax_gloo_lost(const struct ax_gloo_world *w, const struct ax_comm_place *place,
                            const struct ax_comm_part *part, const int *ranks, int n,
                            enum ax_gloo_result how, const char *text);

#endif
