/* The documents of a pass of evaluation, on the host. Private to optim/evaluate/evaluate.c. */
#ifndef AX_OPTIM_EVALUATE_EVAL_TEXT_H
#define AX_OPTIM_EVALUATE_EVAL_TEXT_H

#include "optim/evaluate/evaluate.h"

struct ax_eval_text {
    int n_docs;
    int64_t n_tokens, first_document; /* of the evaluation's documents */
    int64_t n_whole;                  /* tokens if each document had its own prompt */
    struct ax_document *docs;         /* [max_docs] */
    int32_t *tokens, *labels;         /* [tokens] */
    float *weight, *share;            /* [tokens] */
    bool pairs_share;                 /* their prompts: then these are without what is shared */
    int share_column;                 /* −1: all shares are 1 */
    const struct ax_columns *columns; /* of documents: those with a value each; or NULL */
    const struct ax_columns *stored;  /* copied for the batch: AX_OF_LABEL; or NULL */
    uint32_t *values;                 /* [columns][tokens][a column's width] */
    int64_t cap;                      /* tokens */
};

enum ax_status ax_eval_text_create(struct ax_eval_text *t, const struct ax_eval_options *o);
void ax_eval_text_free(struct ax_eval_text *t); /* safe on a zeroed one */
/* True if token i counts. */
bool ax_eval_text_scored(const struct ax_eval_text *t, int64_t i);
/* Copies document i of a sequence, for which there must be room; returns what is known of it before
 * it is scored. */
struct ax_eval_document ax_eval_text_add(struct ax_eval_text *t, const struct ax_packed_sequence *s,
                                         int i);

/* Tokens of document i, the second of a pair, that the one before it has, too, before either has a
 * label; 0 for the first, or if there are too few to be worth it. */
int64_t ax_pair_shared(const struct ax_packed_sequence *s, int i);

#endif
