/* `axtrain quantize`: a model folder → a compressed-tensors folder, rounded to nearest, one matrix at
 * a time. What is quantized are the linears of layers, as in quantization-aware training; with its
 * output, the codes are those of its forward pass. */
#ifndef AX_CMD_CONVERT_QUANTIZE_H
#define AX_CMD_CONVERT_QUANTIZE_H

#include "kernels/scheme.h"

/* Of the matrices of a layer. */
struct ax_quantize_layer {
    double squares, errors; /* Σ w², Σ (value − w)² */
};

struct ax_quantize_model {
    const char *src, *dst; /* folders; dst must not exist or be empty */
    struct ax_scheme scheme;
    int threads;
    /* out */
    int matrices, n_layers;
    struct ax_quantize_layer *layers; /* owned: ax_quantize_model_free */
    int64_t bytes_before, bytes_after;
};
enum ax_status ax_quantize_model(struct ax_quantize_model *m);
void ax_quantize_model_free(struct ax_quantize_model *m);

#endif
