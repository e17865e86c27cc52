/* Log-probs of documents by the reference model, which is always the model as the run found it: the
 * base, or the base with the adapter that training starts from. So they are computed once, before
 * the first step, and there is no second model. */
#ifndef AX_OPTIM_EVALUATE_REFER_H
#define AX_OPTIM_EVALUATE_REFER_H

#include "optim/evaluate/evaluate.h"
#include "optim/evaluate/references.h"
#include "parallel/fabric/team.h"

/* Where log-probs are kept between runs (reference_file.h). Equal on all ranks of the team, except
 * that each host may have its own folder. */
struct ax_reference_store {
    const char *cache;   /* folder */
    const json_t *model; /* identifies the model's numbers, and what computes with them */
    struct ax_team *team;
};

/* Adds the log-probs of the first `rows` sequences of the loader's epoch 0 (0 = all). Computes them
 * in evaluation passes with options `o`, whose `documents` must be set, or reads the same bits if
 * all ranks of the store have them. The loader's position is kept. AX_INTERRUPTED if o->stop
 * returns true. */
enum ax_status ax_references_compute(struct ax_references *r, struct ax_model *m,
                                     struct ax_loader *loader, const struct ax_eval_options *o);

#endif
