/* The layer for multi-token prediction by itself (predict.h), which drafts tokens where a model generates
 * (generate/generate.h). It is frozen, and in none of the model's own passes: a model with a drafter computes, trains and
 * is saved as one without. The embedding, the final norm and the head that it reads are the model's as they are then.
 *
 * On stages of a pipeline, the last one has it. The next tokens' embeddings come from the first. */
#ifndef AX_MODEL_DRAFTER_H
#define AX_MODEL_DRAFTER_H

#include "model/pass.h"

struct ax_drafter {
    struct ax_arch arch;   /* the model's with the layer; owns `layers` */
    struct ax_model model; /* only that layer is there */
};
/* m->drafter = d, with matrices stored as m's, which was created with `o`. ax_arch_check_predict must hold for m's arch.
 * The caller loads d->model, as it loads m. */
enum ax_status ax_drafter_create(struct ax_drafter *d, struct ax_model *m,
                                 const struct ax_model_options *o);
/* After the generator; safe on a zeroed one. */
void ax_drafter_free(struct ax_drafter *d);

/* The layer's unit, absent on stages without the head. */
struct ax_unit *ax_drafter_unit(const struct ax_drafter *d);

/* After a pass of inference of the drafter's model that has not ended: logits (accumulation [n][V on this rank]) of the
 * tokens after next, for the given rows of the batch, whose `ahead.tokens` are the next tokens of all rows. Appends to
 * the layer's keys and values if there is a cache. rows i32 [n], work compute [n][D]: as for ax_pass_logits_of. On
 * other stages than the last there are no logits. */
enum ax_status ax_drafter_logits(struct ax_pass *p, const struct ax_tensor *rows,
                                 const struct ax_tensor *work, const struct ax_tensor *out);

#endif
