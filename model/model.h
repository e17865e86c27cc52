/* A model: units (embedding, one per layer, norm + head), and one pass of a micro-batch through
 * them. docs/ARCHITECTURE.md lists the folders, of which each includes only those before it:
 *
 *   parallel/    rows and columns of ranks      lora/       adapters of one matrix
 *   arch/        config.json                    families/   what each family adds to it
 *   core/        model.h (the model as its parts see it), builder.h (collects parameters while a
 *                model is created), linear.h, stash.h, view.c and load.c (queries and values)
 *   adapter/     adapters of a model            parts/      attention, MLP, experts, embedding, head
 *   here         layer.c, pass.c (a unit forward and backward), model.c (creates a model), save.c
 *   generate/    decoding
 *
 * To follow a pass, read model.c, pass.c, layer.c, parts/attention.c, core/linear.c, kernels/ops.h;
 * parts/head.c for the loss side. arch/arch.c and arch/classifier.c read from config.json which
 * parts each layer has, and what the head is. */
#ifndef AX_MODEL_MODEL_H
#define AX_MODEL_MODEL_H

#include "model/core/model.h"

enum ax_status ax_model_create(struct ax_model *m, const struct ax_arch *arch,
                               struct ax_runtime *rt, const struct ax_model_options *o);
void ax_model_free(struct ax_model *m);

#endif
