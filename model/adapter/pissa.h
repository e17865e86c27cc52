/* PiSSA (Meng et al. 2024): adapters that start as the largest singular values of the base. */
#ifndef AX_MODEL_ADAPTER_PISSA_H
#define AX_MODEL_ADAPTER_PISSA_H

#include "model/core/model.h"

/* Allocates the initial values of PiSSA adapters; a no-op for others. Part of ax_model_create. */
enum ax_status ax_adapter_pissa_allocate(struct ax_model *m);
/* Initializes PiSSA adapters and subtracts them from the base; hf is the base. A no-op for others
 * and while planning. */
enum ax_status ax_adapter_pissa_start(struct ax_model *m, const struct ax_hf *hf, uint64_t seed);
/* True if a folder stores a parameter together with its initial value, concatenated along one
 * dimension (PiSSA); `shape` is then the shape of both, else the parameter's. *start is the initial
 * value, entire on every rank that has the parameter, else without data; *at is its place. */
bool ax_adapter_start(const struct ax_model *m, const struct ax_param *p,
                      int64_t shape[AX_MAX_DIMS], struct ax_tensor *start, struct ax_block *at);

#endif
