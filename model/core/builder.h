/* Collects a model's parameters, unit by unit, while it is created (model.c).
 *
 * Each part of a layer adds its parameters in storage order; the end of a unit lays them out in
 * segments. */
#ifndef AX_MODEL_CORE_BUILDER_H
#define AX_MODEL_CORE_BUILDER_H

#include "model/core/model.h"

struct ax_builder {
    struct ax_model *model;
    const struct ax_arch *arch;
    const struct ax_mesh *mesh;
    const struct ax_model_options *options;
    struct ax_unit_options units;
    int first;                            /* index of the unit's first parameter */
    struct ax_param **list;               /* the unit's parameters, as they will be stored */
    bool *glue;                           /* for each of them */
    const struct ax_peft_config *adapter; /* the adapter whose parameters are being added */
    int number;                           /* the adapter's number in the model, from 1 */
};
/* Allocates all parameters of the model, which owns them; m's arch and units must be set. */
enum ax_status ax_builder_begin(struct ax_builder *b, struct ax_model *m,
                                const struct ax_model_options *o);
void ax_builder_end(struct ax_builder *b);

struct ax_param_decl {
    const char *name;   /* printf format with one %d for the layer, or none */
    int64_t rows, cols; /* cols 0: a vector */
    /* > 0: a tensor of this many experts' matrices, split over ep; 0: one matrix or vector */
    int64_t stack;
    bool middle;   /* [rows][1][cols]: the taps of a convolution */
    bool lifted;   /* [1][1][rows][1], of cols 0; weight decay applies */
    int8_t tp_dim; /* −1: replicated */
    bool glue;     /* follows its predecessor directly */
    bool expert;   /* a matrix of an expert, stored on ep coordinate `ep_owner` */
    int ep_owner;
    bool buffer;  /* see ax_param */
    bool indexer; /* trains as enum ax_indexer_mode says */
    double start; /* elements of a vector in a new model */
    uint32_t grad_partial_over;
};
/* Adds a parameter and returns it (its address is stable). */
const struct ax_param *ax_builder_add(struct ax_builder *b, int layer,
                                      const struct ax_param_decl *decl);
/* p will be stored directly after `before`, a parameter of the unit that was added earlier. */
void ax_builder_store_after(struct ax_builder *b, const struct ax_param *p,
                            const struct ax_param *before);
/* The weight of a norm, [n]: replicated, its gradient partial over tp. */
const struct ax_param *ax_builder_add_norm(struct ax_builder *b, int layer, const char *name,
                                           int64_t n);

/* Selects adapter k of the model; false if there is none. */
bool ax_builder_next_adapter(struct ax_builder *b, int k);

/* Lays out the parameters added since the last unit as this unit. AX_ERR_CONFIG for a bad
 * expression in unfrozen_parameters. */
enum ax_status ax_builder_finish_unit(struct ax_builder *b, int unit);

/* Does an expression of unfrozen_parameters match the name of this parameter? */
enum ax_status ax_unfrozen_has(const struct ax_peft_names *patterns, const char *name, bool *yes);

/* Checks that every expression of unfrozen_parameters matches a parameter and that the experts of a layer
 * train together; AX_ERR_CONFIG otherwise. Frozen parameters have no gradient, master or optimizer
 * state. */
enum ax_status ax_freeze_check(const struct ax_model *m, const struct ax_peft_names *patterns);

#endif
