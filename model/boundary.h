/* What crosses the boundary before a unit, from the chunk of units that ends there to the one that begins: the residual
 * stream, the per-layer inputs of later layers (parts/per_layer.h), and keys and values that later layers use of earlier
 * ones (core/lent.h). Backward brings their gradients. */
#ifndef AX_MODEL_BOUNDARY_H
#define AX_MODEL_BOUNDARY_H

#include "model/core/pass.h"
#include "model/core/pipeline.h"

enum ax_crossing { AX_CROSS_OUTPUT, AX_CROSS_GRADIENT };

/* The shapes for this rank's part of a batch; or, with a slot, the tensors in it. */
struct ax_message ax_boundary(const struct ax_model *m, enum ax_crossing what, int unit,
                              const struct ax_batch *batch, const struct ax_slot *slot);
/* In a pass with a cache, after they have come: keys and values go into it. */
enum ax_status ax_boundary_arrive(struct ax_pass *p, int unit);
/* The most bytes that they take, of T rows, at a boundary at which a chunk of this stage begins. */
size_t ax_boundary_bytes(const struct ax_model *m, int64_t T);

#endif
