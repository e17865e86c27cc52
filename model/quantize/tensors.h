/* The tensors of a quantized matrix in a folder (ckpt/hf/compressed.h). */
#ifndef AX_MODEL_QUANTIZE_TENSORS_H
#define AX_MODEL_QUANTIZE_TENSORS_H

#include "ckpt/hf/compressed.h"
#include "model/quantize/matrix.h"

#define AX_QUANTIZED_TENSORS 3 /* at most */

struct ax_quantized_tensors;
struct ax_quantized_tensor {
    struct ax_quantized_tensors *of;
    int what;
    char *name; /* owned */
};
struct ax_quantized_tensors {
    struct ax_quantized_matrix m; /* made when the first is written, ended after the last */
    const struct ax_compressed_format *format;
    enum ax_status (*make)(struct ax_quantized_tensors *t);
    void *ctx;
    int n;
    struct ax_quantized_tensor list[AX_QUANTIZED_TENSORS];
};
/* Lists those of m, of `module`.weight; all but `n` and `list` are set. outputs[AX_QUANTIZED_TENSORS]. */
enum ax_status ax_quantized_tensors_add(struct ax_quantized_tensors *t, const char *module,
                                        struct ax_st_output *outputs);
void ax_quantized_tensors_free(struct ax_quantized_tensors *t); /* safe on a zeroed one */

#endif
