/* LISA (Pan et al. 2024, arXiv 2403.17919): of the layers, `layers` at a time train, drawn again in
 * steps 0, 1 and every multiple of `interval`, as axolotl does; embedding, final norm and head
 * always train. The others stay as they are: no update, no weight decay, no part in the gradient
 * norm; and each layer counts its own updates (Adam's bias correction). The draws depend on the seed
 * and the step alone, so nothing of this is in a checkpoint. */
#ifndef AX_OPTIM_LISA_H
#define AX_OPTIM_LISA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct ax_lisa_options {
    int layers; /* 0: off, all train */
    int64_t interval;
};

struct ax_lisa {
    struct ax_lisa_options o;
    uint64_t seed;
    int n_units;      /* embedding, layers, head */
    bool *active;     /* [n_units], in the step at hand */
    int64_t *updates; /* [n_units] so far */
    uint32_t *drawn;  /* [n_units], scratch */
};

/* AX_ERR_CONFIG where there are fewer layers. */
enum ax_status ax_lisa_create(struct ax_lisa *l, const struct ax_lisa_options *o, uint64_t seed,
                              int n_units);
void ax_lisa_free(struct ax_lisa *l); /* safe on a zeroed one */

void ax_lisa_begin(struct ax_lisa *l, int64_t step); /* sets `active` */
void ax_lisa_count(struct ax_lisa *l);               /* the step has updated what is active */
/* After `steps` steps. */
void ax_lisa_restore(struct ax_lisa *l, int64_t steps);

#endif
