/* Evaluation: negative log-likelihood and token accuracy of a model on a loader's sequences.
 *
 * Runs forward only, in the arena's eval phase, on a model created for training or not. A pass
 * takes as many documents of successive sequences as fit, whatever the loader's packing: results do
 * not depend on it. */
#ifndef AX_OPTIM_EVALUATE_EVALUATE_H
#define AX_OPTIM_EVALUATE_EVALUATE_H

#include "data/records/pipeline/loader.h"
#include "optim/evaluate/asked.h"
#include "optim/losses/distill.h"
#include "optim/losses/documents.h"
#include "optim/losses/figures.h"

struct ax_eval_result {
    /* Σ weight·nll / Σ weight: nats per token that is trained on; for an objective on documents,
     * its loss; with a teacher, the loss of the distillation */
    double loss;
    double perplexity;            /* e^(nats per token); NaN for objectives on documents */
    double measures[AX_MEASURES]; /* measures of an objective on documents or of a distillation */
    /* fraction of trained tokens that were the model's most likely token; for an objective on documents, of pairs that
     * are right, or NaN */
    double accuracy;
    double weight; /* Σ weight */
    int64_t documents, rows;
    int64_t tokens, trained, correct; /* trained = tokens with a label and weight > 0 */
    double seconds;
    bool stopped; /* stopped by ax_eval_options.stop: nothing above is valid */
    /* n > 0: figures of completions that the model has sampled in a rollout; unless a teacher has read
     * these, only they and seconds are valid */
    struct ax_figures figures;
};
/* Is it an evaluation by rewards, which has no loss? */
static inline bool ax_eval_is_of_rewards(const struct ax_eval_result *r) {
    return r->figures.n > 0 && r->documents == 0;
}

/* One document's result. `set` is the loader's: valid after the call for a corpus, not for a
 * stream. */
struct ax_eval_document {
    const struct ax_examples *set;
    size_t example;    /* index in set->list; in a mixed sequence, of the first one */
    double nll;        /* Σ weight·nll */
    double divergence; /* Σ weight·divergence from the teacher */
    double weight;     /* Σ weight */
    int64_t tokens, trained, correct;
    /* for an objective on documents: its sums and the values of its columns */
    struct ax_document_sums sums;
    uint32_t columns[AX_COLUMNS_MAX];
};

struct ax_references;

struct ax_eval_options {
    int64_t tokens;                                 /* per pass: at least the longest sequence */
    int64_t max_docs;                               /* per pass: at least one sequence's */
    int64_t max_len;                                /* longest document */
    int64_t max_rows;                               /* stop after this many rows; 0 = all */
    const struct ax_documents_objective *documents; /* NULL: the loss is that of tokens */
    bool pairs_share; /* documents are pairs, and a pair's prompt is computed once */
    double kl;        /* estimate of KL for an objective on documents */
    const struct ax_distill_options *distill; /* options of a loss with a teacher; else NULL */
    /* the teacher of that loss; NULL: its log-probs are stored with the data */
    struct ax_teacher *teacher;
    const struct ax_remote_teacher *remote; /* the teacher is asked through a server; else NULL */
    /* log-probs of the reference, for an objective with a column for them; or NULL */
    const struct ax_references *references;
    /* Called after each document, in order; may be NULL. */
    enum ax_status (*document)(void *ctx, const struct ax_eval_document *d);
    /* Called after each pass, for progress; may be NULL. */
    void (*progress)(void *ctx, int64_t rows_done);
    /* Called between passes: true cancels the evaluation; may be NULL. */
    bool (*stop)(void *ctx);
    void *ctx;
};

/* Evaluates epoch 0 of `loader`, from its first sequence. Enters AX_PHASE_EVAL and returns to the
 * previous phase; scratch and slots must be empty. While planning, reads no data and runs one pass.
 * AX_ERR_DATA if there is nothing to score. */
enum ax_status ax_evaluate(struct ax_model *m, struct ax_loader *loader,
                           const struct ax_eval_options *o, struct ax_eval_result *out);

/* How many of the first tokens of document i, the second of a pair, equal those of the document
 * before, up to the first label of either. 0 for the first of a pair, or if sharing so few would
 * not pay. */
int64_t ax_pair_shared(const struct ax_packed_sequence *s, int i);

#endif
