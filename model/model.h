/* A model: units (embedding, one per layer, norm + head), and one pass of a micro-batch through
 * them.
 *
 * Layer order: a file calls only files on its own line and above, without cycles.
 *
 *   view.c, adapter/match.c              queries on a model; which modules its adapters target
 *   builder.c, freeze.c                  collect parameters while a model is created
 *   tensor_parallel.c, stash.c, norm.c … steps that all parts share
 *   adapter/{adapter,embed,experts}.c    arithmetic of adapters
 *   linear.c ↔ later.c                   a product, and its gradient at another time
 *   linear.c → qkv.c, attend.c → attention.c, mla.c; mlp.c, router.c → moe.c → shared_expert.c
 *                                        the parts of a layer (experts: expert_weights.c → moe_later.c)
 *   adapter/attach.c                     parameters of adapters
 *   embed.c, layer.c, head.c → pass.c    forward and backward of a unit
 *   load.c → adapter/{pissa,load,bank}.c parameter values, from and to files
 *   adapter/restart.c                    adapters merged into the base while training
 *   split.c → model.c                    units of a pipeline stage; creates a model
 *
 * To follow a pass, read model.c, pass.c, layer.c, attention.c, linear.c, kernels/ops.h; head.c for
 * the loss side. arch.c and classifier.c read from config.json which parts each layer has, and what
 * the head is. */
#ifndef AX_MODEL_MODEL_H
#define AX_MODEL_MODEL_H

#include "model/core/model.h"

enum ax_status ax_model_create(struct ax_model *m, const struct ax_arch *arch,
                               struct ax_runtime *rt, const struct ax_model_options *o);
void ax_model_free(struct ax_model *m);

#endif
