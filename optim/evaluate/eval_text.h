/* The documents of a pass of evaluation, on the host. Private to optim/evaluate/evaluate.c. */
#ifndef AX_OPTIM_EVALUATE_EVAL_TEXT_H
#define AX_OPTIM_EVALUATE_EVAL_TEXT_H

#include "optim/evaluate/evaluate.h"

struct ax_eval_text {
    int n_docs;
    /* tokens in this pass; the evaluation's number of its first document */
    int64_t n_tokens, first_document;
    int64_t n_whole;          /* tokens of this pass if each document had its own prompt */
    struct ax_document *docs; /* [max_docs] */
    int32_t *tokens, *labels; /* [tokens] */
    float *weight, *share;    /* [tokens] */
    /* the two of a pair share their prompt, which n_tokens counts once */
    bool pairs_share;
    int share_column;                 /* −1: all shares are 1 */
    const struct ax_columns *columns; /* columns with a value per document; or NULL */
    /* columns with a value per label, copied for the batch; or NULL */
    const struct ax_columns *stored;
    uint32_t *values; /* [columns][tokens][a column's width] */
    int64_t cap;      /* tokens */
};

enum ax_status ax_eval_text_create(struct ax_eval_text *t, const struct ax_eval_options *o);
void ax_eval_text_free(struct ax_eval_text *t); /* safe on a zeroed one */
/* True if token i is scored. */
bool ax_eval_text_scored(const struct ax_eval_text *t, int64_t i);
/* Copies document i of a sequence, for which there must be room; returns the members of its result
 * that are known before it is scored. */
struct ax_eval_document ax_eval_text_add(struct ax_eval_text *t, const struct ax_packed_sequence *s,
                                         int i);

/* How many of the first tokens of document i, the second of a pair, equal those of the document
 * before, up to the first label of either. 0 for the first of a pair, or if sharing so few would
 * not pay. */
int64_t ax_pair_shared(const struct ax_packed_sequence *s, int i);

#endif
