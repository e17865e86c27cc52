/* Metrics of translations, with the arithmetic of sacrebleu's defaults: BLEU (Papineni et al. 2002;
 * mteval-v13a's words, exponential smoothing), chrF (Popović 2015; 6 characters, beta 2), chrF++
 * (the same with 2 words) and TER (Snover et al. 2006; Tercom's shifts). One reference each. A
 * record gives counts, and the score is that of their sums over all records. */
#ifndef AX_CMD_TASKS_TRANSLATION_H
#define AX_CMD_TASKS_TRANSLATION_H

#include "cmd/tasks/task.h"

#define AX_TRANSLATION_COUNTS 24

struct ax_translation_text {
    const char *s; /* UTF-8 */
    size_t n;
};

struct ax_translation {
    size_t n; /* counts of a record */
    enum ax_status (*count)(struct ax_translation_text target, struct ax_translation_text answer,
                            double *counts);
    double (*score)(const double *sums); /* 0 to 100; TER: from 0 */
};
/* NULL: this aggregation is of another kind. */
const struct ax_translation *ax_translation(enum ax_task_aggregation how);

/* ---- words (word_ids.c) ---- */

/* One of !"#$%&'()*+,-./:;<=>?@[\]^_`{|}~ */
static inline bool ax_is_sign(char c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

/* Numbers of the words of two texts; equal words have equal numbers. */
struct ax_word_ids {
    uint32_t *ids; /* those of the target, then those of the answer */
    size_t target, answer;
};
/* White space separates words; with `signs`, a sign at a word's end, or else its beginning, does too.
 */
enum ax_status ax_word_ids_make(struct ax_word_ids *w, struct ax_translation_text target,
                                struct ax_translation_text answer, bool signs);
void ax_word_ids_free(struct ax_word_ids *w);

/* ---- TER (ter.c) ---- */

/* The fewest insertions, deletions, substitutions and shifts that lead from the answer to the
 * target, as Tercom's search finds them. */
enum ax_status ax_ter_edits(const struct ax_word_ids *w, int64_t *edits);

#endif
