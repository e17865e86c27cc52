/* Metrics of translations, with the arithmetic of sacrebleu's defaults: BLEU (Papineni et al. 2002;
 * mteval-v13a's words, exponential smoothing), chrF (Popović 2015; 6 characters, beta 2), chrF++
 * (the same with 2 words) and TER (Snover et al. 2006; Tercom's shifts). Each record has one
 * reference. The score is computed from the sums of all records' counts. */
#ifndef AX_OPTIM_EVALUATE_TASKS_TRANSLATION_H
#define AX_OPTIM_EVALUATE_TASKS_TRANSLATION_H

#include "optim/evaluate/tasks/task.h"

#define AX_TRANSLATION_COUNTS 24

struct ax_translation_text {
    const char *s; /* UTF-8 */
    size_t n;
};

struct ax_translation {
    size_t n; /* counts per record */
    enum ax_status (*count)(struct ax_translation_text target, struct ax_translation_text answer,
                            double *counts);
    double (*score)(const double *sums); /* 0 to 100; TER: 0 or more */
};
/* NULL if the aggregation is of another kind. */
const struct ax_translation *ax_translation(enum ax_task_aggregation how);

/* ---- words (word_ids.c) ---- */

/* True for !"#$%&'()*+,-./:;<=>?@[\]^_`{|}~ */
static inline bool ax_is_sign(char c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

/* The words of two texts as numbers; equal words have equal numbers. */
struct ax_word_ids {
    uint32_t *ids; /* words of the target, then of the answer */
    size_t target, answer;
};
/* White space separates words. `signs`: a sign at the end of a word, or else at its beginning,
 * becomes a word. */
enum ax_status ax_word_ids_make(struct ax_word_ids *w, struct ax_translation_text target,
                                struct ax_translation_text answer, bool signs);
void ax_word_ids_free(struct ax_word_ids *w);

/* ---- TER (ter.c) ---- */

/* The fewest insertions, deletions, substitutions and shifts found by Tercom's search that turn the
 * answer into the target. */
enum ax_status ax_ter_edits(const struct ax_word_ids *w, int64_t *edits);

#endif
