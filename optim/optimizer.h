/* Optimizers: what they keep per parameter element, and one update of one parameter. */
#ifndef AX_OPTIM_OPTIMIZER_H
#define AX_OPTIM_OPTIMIZER_H

#include "kernels/queue.h"
#include "parallel/unit.h"

struct ax_optimizer_options {
    double beta1, beta2, eps; /* adamw */
    double momentum;          /* sgd */
    bool nesterov;
    double weight_decay; /* of parameters that decay */
};

/* One parameter's part in this rank's shard; everything 1-D and of one length. */
struct ax_update {
    struct ax_tensor master, grad, copy; /* copy: compute dtype, data NULL where it is the master */
    struct ax_tensor state[AX_MAX_STATE];
    double weight_decay;
    const struct ax_step_scalars *scalars;
};

/* How much of a parameter one update must see at once. */
enum ax_optimizer_scope { AX_SCOPE_ELEMENT, AX_SCOPE_BLOCK, AX_SCOPE_MATRIX };

struct ax_optimizer {
    const char *name;
    enum ax_optimizer_scope scope;
    /* Names of the state slots it wants with these options, in the accum dtype; returns how many.
     */
    int (*slots)(const struct ax_optimizer_options *o, const char **names);
    /* Updates master and copy, and zeroes grad. */
    enum ax_status (*update)(struct ax_queue *q, const struct ax_optimizer_options *o,
                             const struct ax_update *u);
};

/* AX_ERR_CONFIG lists the names. */
enum ax_status ax_optimizer_find(const char *name, const struct ax_optimizer **out);

extern const struct ax_optimizer ax_optimizer_adamw; /* adamw.c */
extern const struct ax_optimizer ax_optimizer_sgd;   /* sgd.c */

#endif
