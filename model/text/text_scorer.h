/* A reward model or a process reward model that is open for scoring: which one its folder says, how it
 * reads text, and its scores of documents. `axtrain eval --task reward|prm` scores records with it,
 * --best-of the answers that another model has just given.
 *
 * What is made of it: optim/evaluate/score/records.c (records → documents → scores), steps.c (the steps of
 * an answer, and one score from theirs), best_of.c (the best of several answers). */
#ifndef AX_MODEL_TEXT_TEXT_SCORER_H
#define AX_MODEL_TEXT_TEXT_SCORER_H

#include "base/lock.h"
#include "model/adapter/adapters.h"
#include "data/text_side.h"
#include "parallel/runtime.h"
#include "data/records/format/example.h"
#include "model/arch/arch.h"
#include "data/records/pipeline/sequence.h"
#include "model/arch/classifier.h"

struct ax_text_scorer_options {
    /* A model folder or a hub id; without `adapters` also a PEFT folder, which names its base. */
    const char *model;
    const struct ax_classifier *kind;   /* the kind that it must be; NULL: either */
    const struct ax_arg_list *adapters; /* at most one; NULL: none */
    enum ax_dtype dtype;
    enum ax_storage store; /* storage of the matrices */
    struct ax_runtime_options runtime;
    /* The logits at the labeled tokens of n documents, by a model that is open elsewhere; NULL: it is
     * loaded for them. */
    enum ax_status (*read)(void *ctx, int n, const struct ax_document *docs, double *logits);
    void *ctx;
};

/* All but the weights, which are in memory only while it scores. */
struct ax_text_scorer {
    struct ax_text_scorer_options o;
    const struct ax_classifier *kind;
    char *dir; /* folder of the model */
    struct ax_lock use;
    struct ax_arch arch;
    struct ax_hf hf;
    struct ax_adapters adapters;
    struct ax_text_side side;
    int64_t max_len; /* longest document: as many as the model has positions, or what is set */
    char *separator; /* the text after each step, as the folder says (AX_STEPS_FILE) */
};
/* AX_ERR_CONFIG: the model that is called `name` is no reward model, or has another number of labels. */
enum ax_status ax_text_scorer_check(const struct ax_arch *arch, const char *name);
/* AX_ERR_CONFIG: it is something else. */
enum ax_status ax_text_scorer_open(struct ax_text_scorer *s,
                                   const struct ax_text_scorer_options *o);
void ax_text_scorer_close(struct ax_text_scorer *s); /* safe on a zeroed one */

/* Scores the labeled tokens of all documents, in order: the head's logit, or the probability that a
 * step is right. Without `read` it loads the model and has a runtime of its own: no other may be
 * open. */
enum ax_status ax_text_scorer_run(struct ax_text_scorer *s, const struct ax_example_list *list,
                                  size_t n_scores, double *scores /* [n_scores] */);

#endif
