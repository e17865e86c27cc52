/* Collects a model's parameters, unit by unit, while it is made (model.c).
 *
 * A part of a layer adds its parameters in the order in which they are to lie; at the end of a unit
 * they are laid out in segments. */
#ifndef AX_MODEL_BUILDER_H
#define AX_MODEL_BUILDER_H

#include "model/model.h"

struct ax_builder {
    struct ax_model *model;
    const struct ax_arch *arch;
    const struct ax_mesh *mesh;
    const struct ax_model_options *options;
    struct ax_unit_options units;
    int first;                            /* index of the unit's first parameter */
    bool *glue;                           /* for each of the unit's parameters */
    struct ax_param **list;               /* room for them */
    const struct ax_peft_config *adapter; /* whose parameters are being added, and */
    int number;                           /* which it is of the model's, from 1 */
};
/* Room for all parameters of the model, which owns them; arch and units of `m` are set. */
enum ax_status ax_builder_begin(struct ax_builder *b, struct ax_model *m,
                                const struct ax_model_options *o);
void ax_builder_end(struct ax_builder *b);

struct ax_param_decl {
    const char *name;   /* printf format with one %d for the layer, or none */
    int64_t rows, cols; /* cols 0: a vector */
    int8_t tp_dim;      /* −1: replicated */
    bool glue;          /* directly behind its predecessor */
    bool expert;        /* a matrix of an expert, which lives on ep coordinate `ep_owner` */
    int ep_owner;
    uint32_t grad_partial_over;
};
/* Adds one and returns it (stable address). */
const struct ax_param *ax_builder_add(struct ax_builder *b, int layer,
                                      const struct ax_param_decl *decl);
/* The weight of a norm, [n]: replicated, its gradient partial over tp. */
const struct ax_param *ax_builder_add_norm(struct ax_builder *b, int layer, const char *name,
                                           int64_t n);

/* Turns to adapter k of the model; false: it has no more. */
bool ax_builder_next_adapter(struct ax_builder *b, int k);

/* Lays what was added since the last unit out as this one. AX_ERR_CONFIG: see freeze.h. */
enum ax_status ax_builder_finish_unit(struct ax_builder *b, int unit);

#endif
