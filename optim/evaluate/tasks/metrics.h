/* Values of each record, and the numbers of a task. */
#ifndef AX_OPTIM_EVALUATE_TASKS_METRICS_H
#define AX_OPTIM_EVALUATE_TASKS_METRICS_H

#include "optim/evaluate/tasks/requests.h"

/* x is the value. Perplexities per word or byte have a log-likelihood and the number of words or
 * bytes; f1 and mcc the right label and the predicted one. */
struct ax_task_value {
    double x, y;
    json_t *pair; /* for BLEU, chrF and TER: [target, answer]; else NULL */
};

struct ax_task_scores {
    const struct ax_task_requests *requests;
    json_t **answers;             /* [records]: a list of texts; NULL if none is generated */
    json_t **filtered;            /* [filters][records]: the same, filtered */
    struct ax_task_value *values; /* [filters][metrics][records] */
    size_t n_values;
    size_t n; /* records */
};
enum ax_status ax_task_score(struct ax_task_scores *s, const struct ax_task_requests *r);
void ax_task_scores_free(struct ax_task_scores *s); /* safe on a zeroed one */
static inline const struct ax_task_value *ax_task_values(const struct ax_task_scores *s,
                                                         size_t filter, size_t metric) {
    return s->values + (filter * s->requests->prompts->task->n_metrics + metric) * s->n;
}

/* ---- aggregate.c ---- */

struct ax_task_result {
    double value, error; /* error: the standard error, or NaN */
};
/* Standard errors are those of lm-evaluation-harness: for means by formula (sample deviation / √n);
 * for median, nanmean, perplexity, f1 and mcc from 100,000 bootstrap samples, for BLEU, chrF and
 * TER from 100, drawn as Python draws them; none for weighted perplexities, bits per byte and the
 * Brier score. */
enum ax_status ax_task_aggregate(enum ax_task_aggregation how, const struct ax_task_value *v,
                                 size_t n, struct ax_task_result *out);

#endif
