/* Evaluation: negative log-likelihood and token accuracy of a model on the sequences of a loader.
 *
 * Runs forward only, in the memory of the arena's eval phase, on a model made for training or not.
 * Documents of successive sequences share a pass as they fit, whatever the loader's packing: the
 * numbers do not depend on it. */
#ifndef AX_OPTIM_EVALUATE_H
#define AX_OPTIM_EVALUATE_H

#include "data/pipeline/loader.h"
#include "model/pass.h"

struct ax_eval_result {
    double loss;       /* Σ weight·nll / Σ weight: nats per trained token */
    double perplexity; /* e^loss */
    double accuracy;   /* share of trained tokens that are the most likely one */
    double weight;     /* Σ weight */
    int64_t documents, rows;
    int64_t tokens, trained, correct; /* trained = tokens with a label and weight > 0 */
    double seconds;
    bool stopped; /* as ax_eval_options.stop said: nothing above holds */
};

/* One document's share. `set` is the loader's: of a corpus it stays valid, of a stream it does not.
 */
struct ax_eval_document {
    const struct ax_examples *set;
    size_t example; /* set->list[example]; of several in a mixed sequence the first */
    double nll;     /* Σ weight·nll */
    double weight;  /* Σ weight */
    int64_t tokens, trained, correct;
};

struct ax_eval_options {
    int64_t tokens;   /* of a pass: at least the longest sequence's */
    int64_t max_docs; /* of a pass: at least those of a sequence */
    int64_t max_len;  /* longest document */
    int64_t max_rows; /* stop after this many rows; 0 = all */
    /* After each document, in order; may be NULL. */
    enum ax_status (*document)(void *ctx, const struct ax_eval_document *d);
    /* After each pass, for progress; may be NULL. */
    void (*progress)(void *ctx, int64_t rows_done);
    /* Asked between passes: true puts the evaluation down; may be NULL. */
    bool (*stop)(void *ctx);
    void *ctx;
};

/* Epoch 0 of `loader`, from its first sequence. Enters AX_PHASE_EVAL and goes back to the phase it
 * found; scratch and slots must be empty. While planning, reads no rows and runs one pass.
 * AX_ERR_DATA when there is nothing to score. */
enum ax_status ax_evaluate(struct ax_model *m, struct ax_loader *loader,
                           const struct ax_eval_options *o, struct ax_eval_result *out);

#endif
