/* LISA (Pan et al. 2024, arXiv 2403.17919): only `layers` layers train at a time. They are drawn in
 * steps 0, 1 and every multiple of `interval`, as in axolotl; embedding, final norm and head always
 * train. The other layers do not change: no update, no weight decay, no part in the gradient norm.
 * Each layer counts its own updates (for Adam's bias correction). The draws depend only on the seed
 * and the step, so checkpoints store none of this. */
#ifndef AX_OPTIM_LISA_H
#define AX_OPTIM_LISA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct ax_lisa_options {
    int layers; /* 0: off, all layers train */
    int64_t interval;
};

struct ax_lisa {
    struct ax_lisa_options o;
    uint64_t seed;
    int n_units;      /* embedding, layers, head */
    bool *active;     /* [n_units], in the current step */
    int64_t *updates; /* [n_units]: number so far */
    uint32_t *drawn;  /* [n_units], scratch */
};

/* AX_ERR_CONFIG if the model has fewer layers. */
enum ax_status ax_lisa_create(struct ax_lisa *l, const struct ax_lisa_options *o, uint64_t seed,
                              int n_units);
void ax_lisa_free(struct ax_lisa *l); /* safe on a zeroed one */

void ax_lisa_begin(struct ax_lisa *l, int64_t step); /* sets `active` */
void ax_lisa_count(struct ax_lisa *l);               /* counts an update of the active units */
/* Restores the counts after `steps` steps. */
void ax_lisa_restore(struct ax_lisa *l, int64_t steps);

#endif
