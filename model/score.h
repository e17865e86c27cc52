/* Log-probs of given tokens: rows of a pass, their logits, and what softmax makes of them, a
 * window at a time. Shared by evaluation and the scoring of texts. */
#ifndef AX_MODEL_SCORE_H
#define AX_MODEL_SCORE_H

#include "model/pass.h"

struct ax_scorer {
    struct ax_model *model;
    int64_t window;                                        /* rows at most */
    struct ax_tensor hidden, logits, labels, index, stats; /* device, of a window */
    struct ax_tensor columns;                              /* log-prob, lse, entropy */
    int32_t *best;                                         /* [window], see ax_scorer_run */
    double *logprobs;                                      /* [window] */
    unsigned char *raw;                                    /* [window] of 8 bytes */
};
/* Device memory from `stack`. */
enum ax_status ax_scorer_create(struct ax_scorer *s, struct ax_model *m, struct ax_stack *stack,
                                int64_t window);
void ax_scorer_free(struct ax_scorer *s); /* safe on a zeroed one */
/* For rows[0 … n) of a forward pass, n ≤ window: logprobs[i] of labels[i] (undefined for a
 * negative label) and the likeliest token best[i]. Rows are independent of each other. */
enum ax_status ax_scorer_run(struct ax_scorer *s, struct ax_pass *p, int64_t n, const int32_t *rows,
                             const int32_t *labels);

#endif
