/* Evaluation tasks in the YAML of lm-evaluation-harness: what a task file says.
 *
 * A task is run in this order, one file each:
 *
 *   tree.c       names that files in a folder define; names and groups → tasks
 *   read.c       the file and those that it includes: keys with the line of each
 *   task.c       keys → struct ax_task
 *   docs.c       the records of its splits
 *   prompt.c     doc_to_text and the like of one record, few-shot examples, description, chat
 *                template → the text before the answer
 *   requests.c   records → requests to the model; tokens.c: their tokens; run.c: log-likelihoods and
 *                generated text
 *   filters.c    generated text → extracted answers
 *   metrics.c    answers → a value for each record; aggregate.c: means and standard errors;
 *                translation.c: BLEU, chrF, TER
 *   report.c     the numbers of groups; results as a table, JSON and samples
 *
 * python.c has Python's text functions and random numbers. The results should equal those of
 * lm-evaluation-harness 0.4.13 with a Hugging Face model and batches of one (docs/eval.md). */
#ifndef AX_OPTIM_EVALUATE_TASKS_TASK_H
#define AX_OPTIM_EVALUATE_TASKS_TASK_H

#include <jansson.h>

#include "base/text/regex.h"
#include "optim/evaluate/tasks/read.h"
#include "data/text/template/template.h"

enum ax_task_output {
    AX_TASK_MULTIPLE_CHOICE,
    AX_TASK_GENERATE,
    AX_TASK_LOGLIKELIHOOD,
    AX_TASK_ROLLING,
    AX_TASK_OUTPUTS
};

/* A field of every record: a column, a Jinja template, or a constant. */
struct ax_task_field {
    const char *text;             /* name of a column, or source of the template; NULL: constant */
    struct ax_template *template; /* NULL without text */
    json_t *constant;             /* a list or an integer; NULL: the task has no such field */
};
static inline bool ax_task_field_given(const struct ax_task_field *f) {
    return f->text || f->constant;
}

enum ax_task_metric_kind {
    AX_METRIC_ACC,
    AX_METRIC_ACC_NORM,
    AX_METRIC_ACC_BYTES,
    AX_METRIC_ACC_MUTUAL_INFO,
    AX_METRIC_EXACT_MATCH,
    AX_METRIC_F1,
    AX_METRIC_MCC,
    AX_METRIC_BRIER,
    AX_METRIC_PERPLEXITY,
    AX_METRIC_WORD_PERPLEXITY,
    AX_METRIC_BYTE_PERPLEXITY,
    AX_METRIC_BITS_PER_BYTE,
    AX_METRIC_BLEU,
    AX_METRIC_CHRF,
    AX_METRIC_CHRF_WORDS,
    AX_METRIC_TER,
    AX_METRICS
};

enum ax_task_aggregation {
    AX_AGGREGATE_MEAN,
    AX_AGGREGATE_MEDIAN,
    AX_AGGREGATE_NANMEAN,
    AX_AGGREGATE_PERPLEXITY,
    AX_AGGREGATE_WEIGHTED_PERPLEXITY,
    AX_AGGREGATE_BITS_PER_BYTE,
    AX_AGGREGATE_F1,
    AX_AGGREGATE_MCC,
    AX_AGGREGATE_BRIER,
    AX_AGGREGATE_BLEU,
    AX_AGGREGATE_CHRF,
    AX_AGGREGATE_CHRF_WORDS,
    AX_AGGREGATE_TER,
    AX_AGGREGATIONS
};

struct ax_task_metric {
    enum ax_task_metric_kind kind;
    enum ax_task_aggregation aggregation;
    bool higher_is_better;
    /* for exact_match */
    bool ignore_case, ignore_punctuation, ignore_numbers;
    struct ax_regex **ignore; /* deleted from both texts */
    size_t n_ignore;
};
const char *ax_task_metric_name(enum ax_task_metric_kind k);
const char *ax_task_aggregation_name(enum ax_task_aggregation a);

enum ax_task_filter_kind {
    AX_FILTER_TAKE_FIRST,
    AX_FILTER_TAKE_FIRST_K,
    AX_FILTER_MAJORITY_VOTE,
    AX_FILTER_REGEX,
    AX_FILTER_MULTI_CHOICE_REGEX,
    AX_FILTER_REMOVE_WHITESPACE,
    AX_FILTER_LOWERCASE,
    AX_FILTER_UPPERCASE,
    AX_FILTER_MAP,
    AX_FILTERS
};

struct ax_task_filter {
    enum ax_task_filter_kind kind;
    struct ax_regex *regex;
    int64_t group_select, k;
    char *fallback;
    bool ignore_case, ignore_punctuation;
    struct ax_regex **ignore;
    size_t n_ignore;
    json_t *mapping, *otherwise; /* map */
};

/* A pipeline; results are reported under its name. */
struct ax_task_filters {
    char *name;
    struct ax_task_filter *list;
    size_t n;
};

struct ax_task_generation {
    char **until;
    size_t n_until;
    int64_t max_tokens;
    double temperature, top_p; /* temperature 0: greedy; top_p 0: off */
    int64_t top_k;
};

/* Settings that apply to few-shot examples. */
struct ax_task_fewshot {
    const char *split; /* NULL: the first present of training, validation and test */
    json_t *samples;   /* instead of a split; NULL: none */
    bool first_n;      /* the first records; else drawn at random for each record */
    struct ax_task_field text, target, choice, gen_prefix;
    const char *target_delimiter, *delimiter;
};

/* How a task is found. */
struct ax_task_spec {
    const char *path;             /* its file; of_group: the file of its group */
    const char *name;             /* NULL: the name in the file */
    struct ax_task_override over; /* from the groups that contain it */
    bool of_group;
};

struct ax_task {
    struct ax_task_yaml yaml;
    const char *name, *alias; /* alias: shown in tables */
    enum ax_task_output output;
    const char *dataset_path, *dataset_name, *revision;
    const struct ax_yaml_node *data_files; /* NULL: the data set's own */
    const char *training_split, *validation_split, *test_split;
    struct ax_task_field text, target, choice, description, gen_prefix;
    const char *target_delimiter, *fewshot_delimiter;
    struct ax_task_fewshot fewshot;
    int64_t num_fewshot; /* -1: not in the file */
    int64_t repeats;
    struct ax_task_generation generation;
    struct ax_task_metric *metrics;
    size_t n_metrics;
    struct ax_task_filters *filters; /* at least one */
    size_t n_filters;
};

/* AX_ERR_CONFIG or AX_ERR_UNSUPPORTED, with FILE:LINE: KEY, for what is wrong or would need Python.
 * The spec's name and the groups' files must outlive the task. */
enum ax_status ax_task_load(struct ax_task *t, const struct ax_task_spec *spec);
void ax_task_free(struct ax_task *t); /* safe on a zeroed one */

#endif
