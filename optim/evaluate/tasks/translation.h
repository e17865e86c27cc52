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

#endif
