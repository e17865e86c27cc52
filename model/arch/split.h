/* How a model's units are split over the stages of a pipeline, by their time. Layers that share the choice of an
 * indexer are on one stage. All ranks find the
 * same split. `times` [n_layers + 2]: time of a micro-batch in each unit, on any scale; NULL: by
 * the FLOPs of a forward pass. */
#ifndef AX_MODEL_ARCH_SPLIT_H
#define AX_MODEL_ARCH_SPLIT_H

#include "model/arch/arch.h"
#include "parallel/schedule/chunks.h"
#include "parallel/fabric/mesh.h"
#include "parallel/schedule/order.h"

/* *out = the units of this stage, out of `stages` · `chunks` ranges; seq: tokens of a sequence.
 * AX_ERR_CONFIG if there are fewer layers than ranges; names the nearest choice. */
enum ax_status ax_split_units(const struct ax_arch *arch, const double *times, int64_t seq,
                              int stages, int chunks, int stage, struct ax_chunks *out);
/* The share of a step in which the stages wait for each other, if messages took no time: 1 − what
 * they compute / (stages · the time of the step). Backward takes twice as long as forward. */
enum ax_status ax_split_idle(const struct ax_arch *arch, const double *times, int64_t seq,
                             const struct ax_pipeline *p, double *idle);

/* AX_ERR_CONFIG if a model's sizes cannot be split over tp: names the size that does not divide and
 * the nearest one that does. */
enum ax_status ax_tp_check(const struct ax_arch *arch, const struct ax_mesh *mesh);

#endif
