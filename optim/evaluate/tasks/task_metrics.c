/* metric_list of a task. */
#include <string.h>

#include "base/mem.h"
#include "optim/evaluate/tasks/task.h"

/* ---- names ---- */

#define OF(output) (1U << (output))

static const struct {
    const char *name;
    unsigned of; /* output types */
    enum ax_task_aggregation aggregation;
    bool lower_is_better;
} metrics[] = {
    [AX_METRIC_ACC] = {"acc", OF(AX_TASK_MULTIPLE_CHOICE) | OF(AX_TASK_LOGLIKELIHOOD),
                       AX_AGGREGATE_MEAN, false},
    [AX_METRIC_ACC_NORM] = {"acc_norm", OF(AX_TASK_MULTIPLE_CHOICE), AX_AGGREGATE_MEAN, false},
    [AX_METRIC_ACC_BYTES] = {"acc_bytes", OF(AX_TASK_MULTIPLE_CHOICE), AX_AGGREGATE_MEAN, false},
    [AX_METRIC_ACC_MUTUAL_INFO] = {"acc_mutual_info", OF(AX_TASK_MULTIPLE_CHOICE),
                                   AX_AGGREGATE_MEAN, false},
    [AX_METRIC_EXACT_MATCH] = {"exact_match", OF(AX_TASK_MULTIPLE_CHOICE) | OF(AX_TASK_GENERATE),
                               AX_AGGREGATE_MEAN, false},
    [AX_METRIC_F1] = {"f1", OF(AX_TASK_MULTIPLE_CHOICE), AX_AGGREGATE_F1, false},
    [AX_METRIC_MCC] = {"mcc", OF(AX_TASK_MULTIPLE_CHOICE), AX_AGGREGATE_MCC, false},
    [AX_METRIC_BRIER] = {"brier_score", OF(AX_TASK_MULTIPLE_CHOICE), AX_AGGREGATE_BRIER, true},
    [AX_METRIC_PERPLEXITY] = {"perplexity", OF(AX_TASK_LOGLIKELIHOOD), AX_AGGREGATE_PERPLEXITY,
                              true},
    [AX_METRIC_WORD_PERPLEXITY] = {"word_perplexity", OF(AX_TASK_ROLLING),
                                   AX_AGGREGATE_WEIGHTED_PERPLEXITY, true},
    [AX_METRIC_BYTE_PERPLEXITY] = {"byte_perplexity", OF(AX_TASK_ROLLING),
                                   AX_AGGREGATE_WEIGHTED_PERPLEXITY, true},
    [AX_METRIC_BITS_PER_BYTE] = {"bits_per_byte", OF(AX_TASK_ROLLING), AX_AGGREGATE_BITS_PER_BYTE,
                                 true},
    [AX_METRIC_BLEU] = {"bleu", OF(AX_TASK_GENERATE), AX_AGGREGATE_BLEU, false},
    [AX_METRIC_CHRF] = {"chrf", OF(AX_TASK_GENERATE), AX_AGGREGATE_CHRF, false},
    [AX_METRIC_CHRF_WORDS] = {"chrf++", OF(AX_TASK_GENERATE), AX_AGGREGATE_CHRF_WORDS, false},
    [AX_METRIC_TER] = {"ter", OF(AX_TASK_GENERATE), AX_AGGREGATE_TER, true},
};

static const char *const aggregations[] = {
    [AX_AGGREGATE_MEAN] = "mean",
    [AX_AGGREGATE_MEDIAN] = "median",
    [AX_AGGREGATE_NANMEAN] = "nanmean",
    [AX_AGGREGATE_PERPLEXITY] = "perplexity",
    [AX_AGGREGATE_WEIGHTED_PERPLEXITY] = "weighted_perplexity",
    [AX_AGGREGATE_BITS_PER_BYTE] = "bits_per_byte",
    [AX_AGGREGATE_F1] = "f1",
    [AX_AGGREGATE_MCC] = "matthews_corrcoef",
    [AX_AGGREGATE_BRIER] = "brier_score",
    [AX_AGGREGATE_BLEU] = "bleu",
    [AX_AGGREGATE_CHRF] = "chrf",
    [AX_AGGREGATE_CHRF_WORDS] = "chrf++",
    [AX_AGGREGATE_TER] = "ter",
};

/* Used if metric_list is absent. */
static const enum ax_task_metric_kind usual[AX_TASK_OUTPUTS][3] = {
    [AX_TASK_MULTIPLE_CHOICE] = {AX_METRIC_ACC, AX_METRIC_ACC_NORM, AX_METRICS},
    [AX_TASK_GENERATE] = {AX_METRIC_EXACT_MATCH, AX_METRICS, AX_METRICS},
    [AX_TASK_LOGLIKELIHOOD] = {AX_METRIC_PERPLEXITY, AX_METRIC_ACC, AX_METRICS},
    [AX_TASK_ROLLING] = {AX_METRIC_WORD_PERPLEXITY, AX_METRIC_BYTE_PERPLEXITY,
                         AX_METRIC_BITS_PER_BYTE},
};

const char *ax_task_metric_name(enum ax_task_metric_kind k) {
    return metrics[k].name;
}

const char *ax_task_aggregation_name(enum ax_task_aggregation a) {
    return aggregations[a];
}

enum ax_task_aggregation ax_task_metric_aggregation(enum ax_task_metric_kind k) {
    return metrics[k].aggregation;
}

/* ---- metrics ---- */

static enum ax_status find_metric(const struct ax_task *t, struct ax_task_key k,
                                  enum ax_task_metric_kind *out) {
    const char *name = NULL;
    AX_TRY(ax_task_key_text(k, &name));
    for (int i = 0; name && i < AX_METRICS; i++) {
        if (strcmp(name, metrics[i].name) == 0 && (metrics[i].of & OF(t->output)) != 0) {
            *out = (enum ax_task_metric_kind)i;
            return AX_OK;
        }
    }
    struct ax_buf list = {0};
    for (int i = 0; i < AX_METRICS; i++)
        if ((metrics[i].of & OF(t->output)) != 0)
            AX_TRY(ax_buf_printf(&list, "%s%s", list.len > 0 ? ", " : "", metrics[i].name));
    const enum ax_status st =
        ax_task_key_error(k, AX_ERR_UNSUPPORTED, "%s has the metrics %s; \"%s\" is not supported",
                          ax_task_output_name(t->output), list.data, name ? name : "");
    ax_buf_free(&list);
    return st;
}

/* The kind of values that an aggregation takes: numbers, weighted numbers, labels, or its own. */
static int values_of(enum ax_task_aggregation a) {
    return a <= AX_AGGREGATE_PERPLEXITY      ? 0
           : a <= AX_AGGREGATE_BITS_PER_BYTE ? 1
           : a <= AX_AGGREGATE_MCC           ? 2
                                             : (int)a;
}

static enum ax_status read_aggregation(struct ax_task_key k, enum ax_task_aggregation *out) {
    const char *name = aggregations[*out];
    AX_TRY(ax_task_key_text(k, &name));
    for (int i = 0; i < AX_AGGREGATIONS; i++) {
        if (strcmp(name, aggregations[i]) == 0 &&
            values_of((enum ax_task_aggregation)i) == values_of(*out)) {
            *out = (enum ax_task_aggregation)i;
            return AX_OK;
        }
    }
    return ax_task_key_error(k, AX_ERR_CONFIG, "\"%s\" does not fit this metric; remove it", name);
}

static enum ax_status read_metric(struct ax_task *t, struct ax_task_key k) {
    /* lm-evaluation-harness ignores the first two unless the task compares texts */
    static const struct ax_task_known keys[] = {
        {"weight_by_size", NULL},
        {"average", NULL},
        {"metric", NULL},
        {"aggregation", NULL},
        {"higher_is_better", NULL},
        {"ignore_case", NULL},
        {"ignore_punctuation", NULL},
        {"ignore_numbers", NULL},
        {"regexes_to_ignore", NULL},
        {"hf_evaluate", "use a metric that axtrain has"},
        {NULL, NULL},
    };
    struct ax_task_metric *m = &t->metrics[t->n_metrics];
    AX_TRY(ax_task_keys_check(k, t->output == AX_TASK_GENERATE ? keys + 2 : keys));
    const struct ax_task_key name = ax_task_key_in(k, "metric");
    if (!name.node)
        return ax_task_key_error(k, AX_ERR_CONFIG, "an entry without the key metric");
    AX_TRY(find_metric(t, name, &m->kind));
    m->aggregation = metrics[m->kind].aggregation;
    m->higher_is_better = !metrics[m->kind].lower_is_better;
    t->n_metrics++;
    AX_TRY(read_aggregation(ax_task_key_in(k, "aggregation"), &m->aggregation));
    AX_TRY(ax_task_key_bool(ax_task_key_in(k, "higher_is_better"), &m->higher_is_better));
    AX_TRY(ax_task_key_bool(ax_task_key_in(k, "ignore_case"), &m->ignore_case));
    AX_TRY(ax_task_key_bool(ax_task_key_in(k, "ignore_punctuation"), &m->ignore_punctuation));
    AX_TRY(ax_task_key_bool(ax_task_key_in(k, "ignore_numbers"), &m->ignore_numbers));
    return ax_task_key_regexes(ax_task_key_in(k, "regexes_to_ignore"), &m->ignore, &m->n_ignore);
}

enum ax_status ax_task_read_metrics(struct ax_task *t) {
    const struct ax_task_key k = ax_task_key(&t->yaml, "metric_list");
    size_t n;
    AX_TRY(ax_task_key_list(k, &n));
    AX_TRY(ax_alloc(&t->metrics, n > 0 ? n : 3, sizeof *t->metrics));
    for (size_t i = 0; i < n; i++)
        AX_TRY(read_metric(t, ax_task_key_at(k, i)));
    for (int i = 0; n == 0 && i < 3 && usual[t->output][i] != AX_METRICS; i++) {
        const enum ax_task_metric_kind kind = usual[t->output][i];
        t->metrics[t->n_metrics++] =
            (struct ax_task_metric){.kind = kind,
                                    .aggregation = metrics[kind].aggregation,
                                    .higher_is_better = !metrics[kind].lower_is_better};
    }
    return AX_OK;
}

void ax_task_metrics_free(struct ax_task *t) {
    for (size_t i = 0; i < t->n_metrics; i++)
        ax_task_regexes_free(t->metrics[i].ignore, t->metrics[i].n_ignore);
    ax_free(t->metrics);
}
