/* The layers of a model one after the other, while calibration rows pass: each layer's matrices are
 * quantized with what their inputs say (gptq.h), and compared. */
#ifndef AX_MODEL_QUANTIZE_LAYERS_H
#define AX_MODEL_QUANTIZE_LAYERS_H

#include "data/records/pipeline/sequence.h"
#include "model/generate/score.h"
#include "model/boundary.h"
#include "model/layer.h"
#include "model/quantize/gptq.h"
#include "model/quantize/matrix.h"

/* A row of tokens: n documents. */
struct ax_calibration_row {
    int n;
    int64_t n_tokens;
    struct ax_document *docs; /* [n]; they point into the members below */
    int32_t *tokens, *labels; /* [n_tokens] */
    float *weight;
};

/* Rows of tokens that go through a model layer by layer, all of them through one before the next: the
 * weights of one layer are in memory, and what is between layers. Rows that measure go through once per
 * version of the weights. cmd/train/data/calibration_rows.h reads them. */
struct ax_calibration_rows {
    int64_t capacity; /* tokens of a row */
    int64_t max_docs; /* limit per row */
    /* rows [0, n) calibrate, for GPTQ; rows [first_held, total) measure: others, unless there is only one */
    int n, first_held;
    int total;
    struct ax_calibration_row *rows; /* [total] */
};

/* Versions of the weights of earlier layers; calibrating rows pass through the CHOSEN ones, which are only
 * there with them. */
enum ax_version { AX_VERSION_ORIGINAL, AX_VERSION_NEAREST, AX_VERSION_CHOSEN, AX_VERSIONS };

struct ax_calibration {
    const struct ax_calibration_rows *rows; /* borrowed */
    struct ax_model *model;                 /* borrowed; created with one_layer */
    struct ax_batch batch;
    struct ax_slot slot;
    /* True: mixer and ffn are rounded one after the other, each from what the half before made. False: the layer
     * runs as a whole for each rounding, as it uses what earlier ones made, or has other parts than a mixer and
     * then an ffn. */
    bool halves;
    /* what enters the next layer, a message of a pipeline for each row (model/boundary.h): U8 [n][bytes], [held][bytes] */
    struct ax_tensor rows_in, held_in[AX_VERSIONS];
    /* [tokens][in]: what a linear reads, row after row; 0 where padding is */
    struct ax_tensor seen;
    struct ax_scorer scorer;
    struct ax_results results;
};
/* Takes memory, and looks up the tokens' embeddings. */
enum ax_status ax_calibration_open(struct ax_calibration *c, struct ax_model *m,
                                   const struct ax_calibration_rows *rows);
void ax_calibration_close(struct ax_calibration *c); /* safe on a zeroed one */
/* After the last layer: nats per token that is trained on, and how many there are. */
enum ax_status ax_calibration_loss(struct ax_calibration *c, enum ax_version v, double *loss,
                                   int64_t *tokens);
/* Tokens in use of the rows that the linears see; the others of their inputs are padding. */
static inline int64_t ax_calibration_tokens(const struct ax_calibration *c) {
    return c->batch.n_tokens;
}

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
