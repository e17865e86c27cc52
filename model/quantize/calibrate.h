/* Rows of tokens that go through a model layer by layer, all of them through one before the next: the
 * weights of one layer are in memory, and what is between layers. Rows that measure go through three
 * times, once per version of the weights. */
#ifndef AX_MODEL_QUANTIZE_CALIBRATE_H
#define AX_MODEL_QUANTIZE_CALIBRATE_H

#include "data/records/pipeline/sequence.h"
#include "model/layer.h"
#include "model/generate/score.h"

/* Sequences of tokens: cmd/train/calibration_rows.h reads them. */
struct ax_calibration_row {
    int n;
    int64_t n_tokens;
    struct ax_document *docs; /* [n]; they point into the members below */
    int32_t *tokens, *labels; /* [n_tokens] */
    float *weight;
};

struct ax_calibration_rows {
    int64_t capacity; /* tokens of a row */
    int64_t max_docs; /* limit per row */
    int n,
        first_held; /* rows [0, n) calibrate; rows [first_held, total) measure: others, unless there
                          is only one */
    int total;
    struct ax_calibration_row *rows; /* [total] */
};

/* Versions of the weights of earlier layers; calibrating rows pass through the CHOSEN ones. */
enum ax_version { AX_VERSION_ORIGINAL, AX_VERSION_NEAREST, AX_VERSION_CHOSEN, AX_VERSIONS };

struct ax_calibration {
    const struct ax_calibration_rows *rows; /* borrowed */
    struct ax_model *model;                 /* borrowed; created with one_layer */
    struct ax_batch batch;
    struct ax_slot slot;
    struct ax_tensor rows_x;              /* [n·T][D]: what enters the next layer */
    struct ax_tensor held_x[AX_VERSIONS]; /* [held·T][D] */
    /* [tokens][in]: what a linear reads, row after row; 0 where padding is */
    struct ax_tensor seen;
    struct ax_scorer scorer;
    struct ax_results results;
};
/* Takes memory, and looks up the tokens' embeddings. */
enum ax_status ax_calibration_open(struct ax_calibration *c, struct ax_model *m,
                                   const struct ax_calibration_rows *rows);
void ax_calibration_close(struct ax_calibration *c); /* safe on a zeroed one */
/* Half of a layer, b its mixer or its ffn, with its weights as they are now, for the rows that calibrate:
 * of two linears, `seen` becomes what the first or the second reads; else the linears and experts are
 * watched (their `watch`). */
enum ax_status ax_calibration_read(struct ax_calibration *c, const struct ax_layer *l,
                                   const struct ax_branch *b, bool second);
enum ax_status ax_calibration_watch(struct ax_calibration *c, const struct ax_layer *l,
                                    const struct ax_branch *b);
/* To what leaves it; of two linears, the second reads `seen`. */
enum ax_status ax_calibration_advance(struct ax_calibration *c, const struct ax_layer *l,
                                      const struct ax_branch *b);
/* Runs a layer on the rows that measure. */
enum ax_status ax_calibration_measure(struct ax_calibration *c, int layer, enum ax_version v);
/* After the last layer: nats per token that is trained on, and how many there are. */
enum ax_status ax_calibration_loss(struct ax_calibration *c, enum ax_version v, double *loss,
                                   int64_t *tokens);
/* Tokens in use of the rows that the linears see; the others of their inputs are padding. */
static inline int64_t ax_calibration_tokens(const struct ax_calibration *c) {
    return c->batch.n_tokens;
}

#endif
