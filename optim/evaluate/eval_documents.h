/* The loss of an evaluation whose objective is one on documents: the sums of all documents are
 * kept, and the loss is computed once, at the end. Private to optim/evaluate/evaluate.c. */
#ifndef AX_OPTIM_EVALUATE_EVAL_DOCUMENTS_H
#define AX_OPTIM_EVALUATE_EVAL_DOCUMENTS_H

#include "optim/evaluate/evaluate.h"

struct ax_eval_documents {
    int n, cap;
    struct ax_document_sums *sums;     /* [cap] */
    uint32_t *columns[AX_COLUMNS_MAX]; /* [cap] each */
    /* tokens of the first and of the second documents of pairs */
    double side_tokens[2];
};

enum ax_status ax_eval_documents_add(struct ax_eval_documents *e, const struct ax_eval_document *d);
/* Sets loss, perplexity and measures. */
enum ax_status ax_eval_documents_loss(const struct ax_eval_documents *e,
                                      const struct ax_documents_objective *o, double kl,
                                      struct ax_eval_result *out);
void ax_eval_documents_free(struct ax_eval_documents *e);

#endif
