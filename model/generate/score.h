/* Log-probs of given tokens: rows of a pass, their logits, and what softmax makes of them, a
 * window at a time. Shared by evaluation and the scoring of texts. */
#ifndef AX_MODEL_GENERATE_SCORE_H
#define AX_MODEL_GENERATE_SCORE_H

#include "model/parts/distill.h"
#include "model/core/results.h"

/* Passes whose scores stay on the device until the host reads them together. */
#define AX_SCORE_PASSES 16

struct ax_scorer {
    struct ax_model *model;
    int64_t window;                         /* rows at most */
    struct ax_tensor hidden, logits, stats; /* device, of a window */
    struct ax_tensor lse, entropy;
    const struct ax_teacher_states *teacher;  /* of the pass; NULL: none, or log-probs are stored */
    const struct ax_distill_options *distill; /* NULL: no teacher */
    struct ax_distill_stored stored;          /* of the next call's rows; set by the caller */
    struct ax_distill_chunk taught;
};
/* Device memory from `stack`. */
void ax_scorer_create(struct ax_scorer *s, struct ax_model *m, struct ax_stack *stack,
                      int64_t window);
/* Scores are to have divergences from a teacher, whose states of the pass the caller sets; NULL: from
 * stored log-probs. */
void ax_scorer_add_teacher(struct ax_scorer *s, const struct ax_teacher_states *states,
                           const struct ax_distill_options *o, struct ax_stack *stack);

/* Of the rows of one call, in `results`: the likeliest token of each shard of the vocabulary, in which
 * shard it is, and the log-prob of the label. */
struct ax_scores {
    struct ax_tensor best;       /* i32 [shards][n]: ids counted from the shard's first */
    struct ax_tensor shard;      /* i32 [n]; of one shard: unused */
    struct ax_tensor logprob;    /* accumulation [n] */
    struct ax_tensor logit;      /* of a head of one label: the same; else data NULL */
    struct ax_tensor divergence; /* from the teacher: the same; else data NULL */
};
/* What the scores of n rows, a window at a time, take of `results`. */
size_t ax_scores_bytes(const struct ax_scorer *s, int64_t n);
/* For rows[0 … n) of a forward pass, n ≤ window: scores of labels[i] (log-prob 0 for a negative
 * label), at the pass's temperature. rows, labels i32 [n], device. Rows are independent of each other. Does not wait. */
enum ax_status ax_scorer_run(struct ax_scorer *s, struct ax_pass *p, const struct ax_tensor *rows,
                             const struct ax_tensor *labels, struct ax_results *results,
                             struct ax_scores *out);
/* The likeliest token of row i, from what the last ax_results_read read. */
int32_t ax_scores_best(const struct ax_scorer *s, const struct ax_results *results,
                       const struct ax_scores *scores, int64_t i);

#endif
