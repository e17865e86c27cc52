/* `axtrain quantize`: a model folder → a compressed-tensors folder: rounded to nearest, one matrix at a
 * time; or with calibration rows, layer by layer, by GPTQ. What is quantized are the linears of layers,
 * as in quantization-aware training, and the embedding and the head as the scheme says, always to nearest;
 * with training's output, the codes to nearest are those of its forward pass. A tied matrix is written for
 * both, because that is how other programs read codes. */
#ifndef AX_MODEL_QUANTIZE_QUANTIZE_H
#define AX_MODEL_QUANTIZE_QUANTIZE_H

#include "model/quantize/layers.h"

struct ax_quantize_model {
    const char *src, *dst; /* folders; dst must not exist or be empty */
    struct ax_scheme scheme;
    int threads;
    const struct ax_calibration_rows *rows; /* NULL: to nearest, nothing is compared */
    const struct ax_gptq_options *gptq;     /* NULL: to nearest. Of int4 groups, with rows */
    /* out */
    int matrices, n_units;
    /* the embedding, layers, the head; owned: ax_quantize_model_free */
    struct ax_quantize_layer *units;
    int64_t bytes_before, bytes_after;
    double loss[AX_VERSIONS]; /* nats per token of the rows that measure; CHOSEN only with GPTQ */
    int64_t tokens;
};
enum ax_status ax_quantize_model(struct ax_quantize_model *m);
void ax_quantize_model_free(struct ax_quantize_model *m);

#endif
