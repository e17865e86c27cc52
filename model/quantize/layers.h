/* The layers of a model one after the other, while calibration rows pass: each layer's matrices are
 * quantized with what their inputs say (gptq.h), and compared. */
#ifndef AX_MODEL_QUANTIZE_LAYERS_H
#define AX_MODEL_QUANTIZE_LAYERS_H

#include "model/quantize/calibrate.h"
#include "model/quantize/gptq.h"
#include "model/quantize/matrix.h"

/* The errors of quantizing a layer's matrices. */
struct ax_quantize_layer {
    double squares, errors; /* Σ w², Σ (value − w)² */
    /* GPTQ, over the calibration rows: Σ y², and Σ (error of y)² when rounded to nearest, and as
     * written */
    double outputs, nearest, chosen;
    /* GPTQ: number of experts' matrices that were rounded to nearest, because hardly any rows read
     * them; the sums of y leave them out */
    int few;
};
/* An expert has too few rows if they are less than a quarter of its inputs: the errors that GPTQ makes up
 * for are then those of these rows alone. */
static inline bool ax_quantize_too_few(int64_t rows, int64_t inputs) {
    return rows < (inputs + 3) / 4;
}

struct ax_quantize_layers {
    struct ax_calibration rows;
    struct ax_model *model;
    const struct ax_hf *hf;
    const struct ax_gptq_options *gptq; /* NULL: to nearest, which is measured */
    int threads;
    /* The matrix that an entry becomes, or NULL. */
    struct ax_quantized_matrix *(*find)(void *ctx, const struct ax_st_entry *e);
    void *ctx;
};
/* Makes the matrices of the next layer. */
enum ax_status ax_quantize_layer_run(struct ax_quantize_layers *s, int layer,
                                     struct ax_quantize_layer *report);

#endif
