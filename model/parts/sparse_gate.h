/* Gates of an MLP of which only those far above their row's mean stay (kernels/ops.h: sparsify). With tp, a row's
 * moments are of the columns of all ranks. */
#ifndef AX_MODEL_PARTS_SPARSE_GATE_H
#define AX_MODEL_PARTS_SPARSE_GATE_H

#include "model/core/pass.h"

/* out [T][F] = the gates that stay, the others 0. */
enum ax_status ax_sparse_gate_forward(const struct ax_layer *l, struct ax_pass *p,
                                      const struct ax_tensor *gate, const struct ax_tensor *out);
/* d: in, the gradient of out; out, that of the gates. */
enum ax_status ax_sparse_gate_backward(const struct ax_layer *l, struct ax_pass *p,
                                       const struct ax_tensor *gate, const struct ax_tensor *d);

#endif
