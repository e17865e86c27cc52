/* Log-probs of given tokens, from rows of a pass: logits and softmax, a window of rows at a time.
 * Shared by evaluation and the scoring of texts. */
#ifndef AX_MODEL_GENERATE_SCORE_H
#define AX_MODEL_GENERATE_SCORE_H

#include "model/parts/head.h"
#include "model/core/likeliest.h"
#include "model/core/results.h"

/* Passes whose scores stay on the device until the host reads them together. */
#define AX_SCORE_PASSES 16

struct ax_scorer {
    struct ax_model *model;
    int64_t window;                         /* most rows per window */
    struct ax_tensor hidden, logits, stats; /* device memory for a window */
    struct ax_tensor lse, entropy;
    /* the teacher's states of the pass; NULL: no teacher, or its log-probs are stored */
    const struct ax_teacher_states *teacher;
    const struct ax_distill_options *distill; /* NULL: no teacher */
    /* stored log-probs of the next call's rows; set by the caller */
    struct ax_distill_stored stored;
    struct ax_distill_chunk taught;
    /* the likeliest tokens of the next call's rows, at most that many; set by the caller */
    int likeliest, most_likeliest;
};
/* Device memory from `stack`. */
void ax_scorer_create(struct ax_scorer *s, struct ax_model *m, struct ax_stack *stack,
                      int64_t window);
/* Adds divergences from a teacher to the scores. The caller sets the teacher's states of each pass
 * in *states; NULL: the teacher's log-probs are stored. */
void ax_scorer_add_teacher(struct ax_scorer *s, const struct ax_teacher_states *states,
                           const struct ax_distill_options *o, struct ax_stack *stack);

/* Results for the rows of one call, stored in `results`: the likeliest token of each shard of the
 * vocabulary, the shard that has the likeliest of all, and the log-prob of the label. */
struct ax_scores {
    struct ax_tensor best;    /* i32 [shards][n]: ids counted from the shard's first */
    struct ax_tensor shard;   /* i32 [n]; unused if there is one shard */
    struct ax_tensor logprob; /* accumulation [n] */
    struct ax_likeliest likeliest;
    struct ax_tensor logit;      /* accumulation [n], for a head of one label; else data NULL */
    struct ax_tensor divergence; /* accumulation [n], with a teacher; else data NULL */
};
/* How many bytes of `results` the scores of n rows take, a window at a time. */
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
