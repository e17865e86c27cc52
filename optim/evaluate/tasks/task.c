/* The keys of a task file → struct ax_task. */
#include "optim/evaluate/tasks/task.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/core/sample.h"

/* "multiple_choice" and so on. */
static const char *const outputs[] = {
    [AX_TASK_MULTIPLE_CHOICE] = "multiple_choice",
    [AX_TASK_GENERATE] = "generate_until",
    [AX_TASK_LOGLIKELIHOOD] = "loglikelihood",
    [AX_TASK_ROLLING] = "loglikelihood_rolling",
};

/* ---- metric_list ---- */

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
                          outputs[t->output], list.data, name ? name : "");
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

static enum ax_status read_metrics(struct ax_task *t) {
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

static void free_metrics(struct ax_task *t) {
    for (size_t i = 0; i < t->n_metrics; i++)
        ax_task_regexes_free(t->metrics[i].ignore, t->metrics[i].n_ignore);
    ax_free(t->metrics);
}

/* ---- filter_list ---- */

static const struct ax_task_known no_options[] = {{"function", NULL}, {NULL, NULL}};
static const struct ax_task_known k_options[] = {{"function", NULL}, {"k", NULL}, {NULL, NULL}};
static const struct ax_task_known map_options[] = {
    {"function", NULL}, {"mapping_dict", NULL}, {"default_value", NULL}, {NULL, NULL}};
static const struct ax_task_known regex_options[] = {{"function", NULL},
                                                     {"regex_pattern", NULL},
                                                     {"group_select", NULL},
                                                     {"fallback", NULL},
                                                     {NULL, NULL}};
static const struct ax_task_known choice_options[] = {
    {"function", NULL},          {"regex_pattern", NULL},
    {"group_select", NULL},      {"fallback", NULL},
    {"ignore_case", NULL},       {"ignore_punctuation", NULL},
    {"regexes_to_ignore", NULL}, {NULL, NULL}};

static const struct {
    const char *name;
    const struct ax_task_known *options;
} filters[] = {
    [AX_FILTER_TAKE_FIRST] = {"take_first", no_options},
    [AX_FILTER_TAKE_FIRST_K] = {"take_first_k", k_options},
    [AX_FILTER_MAJORITY_VOTE] = {"majority_vote", no_options},
    [AX_FILTER_REGEX] = {"regex", regex_options},
    [AX_FILTER_MULTI_CHOICE_REGEX] = {"multi_choice_regex", choice_options},
    [AX_FILTER_REMOVE_WHITESPACE] = {"remove_whitespace", no_options},
    [AX_FILTER_LOWERCASE] = {"lowercase", no_options},
    [AX_FILTER_UPPERCASE] = {"uppercase", no_options},
    [AX_FILTER_MAP] = {"map", map_options},
};

static enum ax_status find_filter(const struct ax_task *t, struct ax_task_key k,
                                  enum ax_task_filter_kind *out) {
    const char *name = NULL;
    AX_TRY(ax_task_key_text(k, &name));
    for (int i = 0; name && i < AX_FILTERS; i++) {
        if (strcmp(name, filters[i].name) != 0)
            continue;
        *out = (enum ax_task_filter_kind)i;
        if (t->output == AX_TASK_GENERATE || i == AX_FILTER_TAKE_FIRST)
            return AX_OK;
        return ax_task_key_error(k, AX_ERR_UNSUPPORTED,
                                 "%s is for generated text; %s supports only take_first", name,
                                 outputs[t->output]);
    }
    return ax_task_key_error(
        k, AX_ERR_UNSUPPORTED,
        "expected take_first, take_first_k, majority_vote, regex, multi_choice_regex, "
        "remove_whitespace, lowercase, uppercase or map, got \"%s\"",
        name ? name : "");
}

static enum ax_status read_filter(const struct ax_task *t, struct ax_task_key k,
                                  struct ax_task_filter *f) {
    static const char pattern[] = "#### (\\-?[0-9\\.\\,]+)";
    const char *fallback = "[invalid]";
    const struct ax_task_key map = ax_task_key_in(k, "mapping_dict"),
                             otherwise = ax_task_key_in(k, "default_value");
    if (k.node->kind != AX_YAML_MAP || !ax_task_key_in(k, "function").node)
        return ax_task_key_error(k, AX_ERR_CONFIG, "expected a step with the key function");
    AX_TRY(find_filter(t, ax_task_key_in(k, "function"), &f->kind));
    AX_TRY(ax_task_keys_check(k, filters[f->kind].options));
    AX_TRY(ax_task_key_regex(ax_task_key_in(k, "regex_pattern"), &f->regex));
    if (!f->regex)
        AX_TRY(ax_regex_compile_python(&f->regex, pattern, strlen(pattern)));
    AX_TRY(
        ax_task_key_int(ax_task_key_in(k, "group_select"), INT32_MIN, INT32_MAX, &f->group_select));
    AX_TRY(ax_task_key_text(ax_task_key_in(k, "fallback"), &fallback));
    AX_TRY(ax_strdup(&f->fallback, fallback));
    AX_TRY(ax_task_key_int(ax_task_key_in(k, "k"), 1, 100000, &f->k));
    AX_TRY(ax_task_key_bool(ax_task_key_in(k, "ignore_case"), &f->ignore_case));
    AX_TRY(ax_task_key_bool(ax_task_key_in(k, "ignore_punctuation"), &f->ignore_punctuation));
    if (f->kind == AX_FILTER_TAKE_FIRST_K && (f->k < 1 || f->k > t->repeats))
        return ax_task_key_error(k, AX_ERR_CONFIG,
                                 "take_first_k needs k, at most the task's repeats (%lld)",
                                 (long long)t->repeats);
    f->mapping = map.node && map.node->kind == AX_YAML_MAP ? ax_yaml_to_json(map.node) : NULL;
    f->otherwise = otherwise.node ? ax_yaml_to_json(otherwise.node) : json_null();
    return ax_task_key_regexes(ax_task_key_in(k, "regexes_to_ignore"), &f->ignore, &f->n_ignore);
}

static enum ax_status read_pipeline(struct ax_task *t, struct ax_task_key k) {
    static const struct ax_task_known keys[] = {{"name", NULL}, {"filter", NULL}, {NULL, NULL}};
    struct ax_task_filters *p = &t->filters[t->n_filters++];
    const char *name = NULL;
    size_t n;
    AX_TRY(ax_task_keys_check(k, keys));
    AX_TRY(ax_task_key_text(ax_task_key_in(k, "name"), &name));
    if (!name)
        return ax_task_key_error(k, AX_ERR_CONFIG, "an entry without the key name");
    AX_TRY(ax_strdup(&p->name, name));
    const struct ax_task_key list = ax_task_key_in(k, "filter");
    AX_TRY(ax_task_key_list(list, &n));
    AX_TRY(ax_alloc(&p->list, n, sizeof *p->list));
    for (size_t i = 0; i < n; i++) {
        const struct ax_task_key step = ax_task_key_at(list, i);
        if (i > 0 && p->list[i - 1].kind == AX_FILTER_TAKE_FIRST)
            return ax_task_key_error(step, AX_ERR_CONFIG,
                                     "a step after take_first, which leaves no list of answers; "
                                     "put take_first last");
        p->n = i + 1;
        AX_TRY(read_filter(t, step, &p->list[i]));
    }
    return AX_OK;
}

/* Without filter_list: takes the first answer, under the name "none". */
static enum ax_status usual_filter(struct ax_task *t) {
    struct ax_task_filters *p = &t->filters[t->n_filters++];
    AX_TRY(ax_strdup(&p->name, "none"));
    AX_TRY(ax_alloc(&p->list, 1, sizeof *p->list));
    p->n = 1;
    return AX_OK;
}

static enum ax_status read_filters(struct ax_task *t) {
    const struct ax_task_key k = ax_task_key(&t->yaml, "filter_list");
    size_t n;
    AX_TRY(ax_task_key_list(k, &n));
    AX_TRY(ax_alloc(&t->filters, n > 0 ? n : 1, sizeof *t->filters));
    for (size_t i = 0; i < n; i++)
        AX_TRY(read_pipeline(t, ax_task_key_at(k, i)));
    return n == 0 ? usual_filter(t) : AX_OK;
}

/* ---- generation_kwargs ---- */

/* Without `until`, generation stops at the delimiter between examples. */
static enum ax_status read_until(struct ax_task *t, struct ax_task_key k) {
    struct ax_task_generation *g = &t->generation;
    struct ax_task_key *items;
    size_t n;
    AX_TRY(ax_task_key_items(k, &items, &n));
    enum ax_status st = ax_alloc(&g->until, n > 0 ? n : 1, sizeof(char *));
    for (size_t i = 0; i < n && st == AX_OK; i++) {
        const char *text = NULL;
        st = ax_task_key_text(items[i], &text);
        if (st == AX_OK)
            st = ax_strdup(&g->until[g->n_until++], text ? text : "");
    }
    if (st == AX_OK && !k.node)
        st = ax_strdup(&g->until[g->n_until++], t->fewshot_delimiter);
    ax_free(items);
    return st;
}

/* These names mean the same: of several given, the last in this list counts. */
static enum ax_status read_max_tokens(struct ax_task *t, struct ax_task_key map) {
    static const char *const names[] = {"max_completion_tokens", "max_tokens", "max_new_tokens",
                                        "max_gen_toks"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        AX_TRY(
            ax_task_key_int(ax_task_key_in(map, names[i]), 1, 1 << 20, &t->generation.max_tokens));
    return AX_OK;
}

static enum ax_status read_generation(struct ax_task *t) {
    static const struct ax_task_known keys[] = {
        {"until", NULL},          {"max_gen_toks", NULL}, {"max_tokens", NULL},
        {"max_new_tokens", NULL}, {"do_sample", NULL},    {"max_completion_tokens", NULL},
        {"top_p", NULL},          {"top_k", NULL},        {"temperature", NULL},
        {"num_beams", NULL},      {NULL, NULL},
    };
    const struct ax_task_key map = ax_task_key(&t->yaml, "generation_kwargs");
    struct ax_task_generation *g = &t->generation;
    g->max_tokens = 256;
    AX_TRY(ax_task_keys_check(map, keys));
    AX_TRY(read_until(t, ax_task_key_in(map, "until")));
    AX_TRY(read_max_tokens(t, map));
    AX_TRY(ax_task_key_number(ax_task_key_in(map, "temperature"), 1e6, &g->temperature));
    AX_TRY(ax_task_key_number(ax_task_key_in(map, "top_p"), 1, &g->top_p));
    if (ax_task_key_in(map, "top_p").node)
        g->top_p = ax_given_top_p(g->top_p);
    AX_TRY(ax_task_key_int(ax_task_key_in(map, "top_k"), 0, INT32_MAX, &g->top_k));
    int64_t beams = 1;
    AX_TRY(ax_task_key_int(ax_task_key_in(map, "num_beams"), 1, INT32_MAX, &beams));
    if (beams > 1)
        return ax_task_key_error(ax_task_key_in(map, "num_beams"), AX_ERR_UNSUPPORTED,
                                 "beam search is not supported; use num_beams: 1");
    bool sample = g->temperature > 0;
    const struct ax_task_key k = ax_task_key_in(map, "do_sample");
    AX_TRY(ax_task_key_bool(k, &sample));
    if (sample && !ax_task_key_in(map, "temperature").node)
        g->temperature = 1;
    if (sample && !(g->temperature > 0))
        return ax_task_key_error(k, AX_ERR_CONFIG, "sampling needs a temperature above 0");
    if (!sample)
        g->temperature = g->top_p = 0;
    return AX_OK;
}

static void free_lists(struct ax_task *t) {
    for (size_t i = 0; i < t->n_filters; i++) {
        for (size_t k = 0; k < t->filters[i].n; k++) {
            struct ax_task_filter *f = &t->filters[i].list[k];
            ax_regex_free(f->regex);
            ax_free(f->fallback);
            json_decref(f->mapping);
            json_decref(f->otherwise);
            ax_task_regexes_free(f->ignore, f->n_ignore);
        }
        ax_free(t->filters[i].list);
        ax_free(t->filters[i].name);
    }
    for (size_t i = 0; i < t->generation.n_until; i++)
        ax_free(t->generation.until[i]);
    ax_free(t->generation.until);
    ax_free(t->filters);
}

/* ---- keys ---- */

static const char python[] = "write the fields as Jinja templates, or prepare the data beforehand";
static const char one_task[] = "a task has no list of tasks; a group of tasks has the key group";

/* Keys without a remedy are read in this folder or have no effect on a single task (names, tags,
 * and decontamination, which lm-evaluation-harness does only on request). */
static const struct ax_task_known known[] = {
    {"group", NULL}, /* the first OF_GROUP keys are only for groups */
    {"group_alias", NULL},
    {"aggregate_metric_list", NULL},
    {"task", NULL},
    {"task_alias", NULL},
    {"tag", NULL},
    {"include", NULL},
    {"metadata", NULL},
    {"should_decontaminate", NULL},
    {"doc_to_decontamination_query", NULL},
    {"dataset_path", NULL},
    {"dataset_name", NULL},
    {"dataset_kwargs", NULL},
    {"training_split", NULL},
    {"validation_split", NULL},
    {"test_split", NULL},
    {"fewshot_split", NULL},
    {"fewshot_config", NULL},
    {"output_type", NULL},
    {"doc_to_text", NULL},
    {"doc_to_target", NULL},
    {"doc_to_choice", NULL},
    {"description", NULL},
    {"gen_prefix", NULL},
    {"target_delimiter", NULL},
    {"fewshot_delimiter", NULL},
    {"num_fewshot", NULL},
    {"repeats", NULL},
    {"metric_list", NULL},
    {"filter_list", NULL},
    {"generation_kwargs", NULL},
    {"group", one_task},
    {"group_alias", one_task},
    {"aggregate_metric_list", one_task},
    {"task_list", one_task},
    {"process_docs", python},
    {"process_results", python},
    {"custom_dataset", python},
    {"class", python},
    {"use_prompt", python},
    {"unsafe_code", python},
    {"doc_to_image", "only text goes to the model"},
    {"doc_to_audio", "only text goes to the model"},
    {NULL, NULL},
};

#define OF_GROUP 3

static enum ax_status read_output(struct ax_task *t) {
    const struct ax_task_key k = ax_task_key(&t->yaml, "output_type");
    const char *name = outputs[AX_TASK_GENERATE];
    AX_TRY(ax_task_key_text(k, &name));
    for (int i = 0; i < AX_TASK_OUTPUTS; i++) {
        if (strcmp(name, outputs[i]) == 0) {
            t->output = (enum ax_task_output)i;
            return AX_OK;
        }
    }
    return ax_task_key_error(k, AX_ERR_CONFIG,
                             "expected multiple_choice, generate_until, loglikelihood or "
                             "loglikelihood_rolling, got \"%s\"",
                             name);
}

/* ---- data ---- */

static enum ax_status text(struct ax_task *t, const char *name, const char **out) {
    return ax_task_key_text(ax_task_key(&t->yaml, name), out);
}

static enum ax_status read_data(struct ax_task *t) {
    static const struct ax_task_known kwargs[] = {
        {"data_files", NULL},
        {"revision", NULL},
        {"trust_remote_code", NULL}, /* ignored: no code of a data set is ever run */
        {NULL, NULL},
    };
    const struct ax_task_key more = ax_task_key(&t->yaml, "dataset_kwargs");
    AX_TRY(text(t, "dataset_path", &t->dataset_path));
    AX_TRY(text(t, "dataset_name", &t->dataset_name));
    AX_TRY(ax_task_keys_check(more, kwargs));
    t->data_files = ax_task_key_in(more, "data_files").node;
    AX_TRY(ax_task_key_text(ax_task_key_in(more, "revision"), &t->revision));
    AX_TRY(text(t, "training_split", &t->training_split));
    AX_TRY(text(t, "validation_split", &t->validation_split));
    AX_TRY(text(t, "test_split", &t->test_split));
    const struct ax_task_key path = ax_task_key(&t->yaml, "dataset_path");
    if (!t->dataset_path)
        return ax_task_key_error(path, AX_ERR_CONFIG,
                                 "missing; give a data set of the hub, or json, csv, parquet or "
                                 "text with dataset_kwargs: {data_files: …}");
    if (!t->test_split && !t->validation_split)
        return ax_task_key_error(ax_task_key(&t->yaml, "test_split"), AX_ERR_CONFIG,
                                 "missing; name the split that is evaluated");
    return AX_OK;
}

/* ---- fields ---- */

static void free_field(struct ax_task_field *f) {
    ax_template_free(f->template);
    json_decref(f->constant);
    *f = (struct ax_task_field){0};
}

static enum ax_status compile_field(struct ax_task_field *f, struct ax_task_key k) {
    char name[640];
    snprintf(name, sizeof name, "%.500s:%d: %.100s", k.doc->name, k.node->line, k.name);
    return ax_template_compile_task(&f->template, name, f->text, strlen(f->text));
}

static enum ax_status read_field_list(struct ax_task_field *f, struct ax_task_key k) {
    f->constant = json_array();
    for (size_t i = 0; i < k.node->n; i++) {
        const struct ax_task_key item = ax_task_key_at(k, i);
        const char *text = NULL;
        AX_TRY(ax_task_key_text(item, &text));
        if (json_array_append_new(f->constant, json_string(text)) != 0)
            return ax_error(AX_ERR_NOMEM, "out of memory for %s", k.name);
    }
    return AX_OK;
}

/* Reads a field from a key's value: a column or template, an integer, a list of texts, or a map
 * whose values are such a list. */
static enum ax_status read_field(struct ax_task_field *f, struct ax_task_key k) {
    *f = (struct ax_task_field){0};
    if (!k.node)
        return AX_OK;
    switch (k.node->kind) {
    case AX_YAML_STRING:
        f->text = k.node->text;
        return compile_field(f, k);
    case AX_YAML_INT:
        f->constant = json_integer(k.node->integer);
        return AX_OK;
    case AX_YAML_LIST:
    case AX_YAML_MAP: /* the map's values, in order */
        return read_field_list(f, k);
    default:
        return ax_task_key_error(k, AX_ERR_CONFIG,
                                 "expected a template, a column, an integer or a list, got \"%s\"; "
                                 "put text in quotes",
                                 k.node->text ? k.node->text : "");
    }
}

static enum ax_status field(struct ax_task *t, const char *name, struct ax_task_field *f) {
    return read_field(f, ax_task_key(&t->yaml, name));
}

static enum ax_status require(struct ax_task *t, const char *name, const struct ax_task_field *f) {
    if (ax_task_field_given(f))
        return AX_OK;
    return ax_task_key_error(ax_task_key(&t->yaml, name), AX_ERR_CONFIG, "missing; %s needs it",
                             outputs[t->output]);
}

static enum ax_status read_fields(struct ax_task *t) {
    AX_TRY(field(t, "doc_to_text", &t->text));
    AX_TRY(field(t, "doc_to_target", &t->target));
    AX_TRY(field(t, "doc_to_choice", &t->choice));
    AX_TRY(field(t, "description", &t->description));
    AX_TRY(field(t, "gen_prefix", &t->gen_prefix));
    AX_TRY(text(t, "target_delimiter", &t->target_delimiter));
    AX_TRY(text(t, "fewshot_delimiter", &t->fewshot_delimiter));
    AX_TRY(require(t, "doc_to_target", &t->target));
    if (t->output != AX_TASK_ROLLING)
        AX_TRY(require(t, "doc_to_text", &t->text));
    if (t->output == AX_TASK_MULTIPLE_CHOICE)
        AX_TRY(require(t, "doc_to_choice", &t->choice));
    return AX_OK;
}

/* ---- few-shot examples ---- */

/* A key of fewshot_config; if absent, of the task. */
static struct ax_task_key either(struct ax_task *t, struct ax_task_key map, const char *name) {
    const struct ax_task_key own = ax_task_key_in(map, name);
    return own.node ? own : ax_task_key(&t->yaml, name);
}

static enum ax_status read_sampler(struct ax_task *t, struct ax_task_key k) {
    const char *name = "default";
    AX_TRY(ax_task_key_text(k, &name));
    t->fewshot.first_n = strcmp(name, "first_n") == 0;
    if (t->fewshot.first_n || strcmp(name, "default") == 0)
        return AX_OK;
    return ax_task_key_error(k, AX_ERR_CONFIG, "expected default or first_n, got \"%s\"", name);
}

static enum ax_status read_samples(struct ax_task *t, struct ax_task_key k) {
    size_t n;
    AX_TRY(ax_task_key_list(k, &n));
    for (size_t i = 0; i < n; i++)
        if (ax_task_key_at(k, i).node->kind != AX_YAML_MAP)
            return ax_task_key_error(ax_task_key_at(k, i), AX_ERR_CONFIG,
                                     "expected a record as keys and values");
    t->fewshot.samples = k.node ? ax_yaml_to_json(k.node) : NULL;
    return AX_OK;
}

static enum ax_status read_fewshot(struct ax_task *t) {
    static const struct ax_task_known keys[] = {
        {"sampler", NULL},
        {"split", NULL},
        {"samples", NULL},
        {"doc_to_text", NULL},
        {"doc_to_target", NULL},
        {"doc_to_choice", NULL},
        {"gen_prefix", NULL},
        {"fewshot_delimiter", NULL},
        {"target_delimiter", NULL},
        {"process_docs", python},
        {"fewshot_indices", "lm-evaluation-harness ignores it; list the records under samples"},
        {NULL, NULL},
    };
    struct ax_task_fewshot *f = &t->fewshot;
    const struct ax_task_key map = ax_task_key(&t->yaml, "fewshot_config");
    AX_TRY(ax_task_keys_check(map, keys));
    AX_TRY(text(t, "fewshot_split", &f->split));
    AX_TRY(ax_task_key_text(ax_task_key_in(map, "split"), &f->split));
    AX_TRY(read_sampler(t, ax_task_key_in(map, "sampler")));
    AX_TRY(read_samples(t, ax_task_key_in(map, "samples")));
    AX_TRY(read_field(&f->text, either(t, map, "doc_to_text")));
    AX_TRY(read_field(&f->target, either(t, map, "doc_to_target")));
    AX_TRY(read_field(&f->choice, either(t, map, "doc_to_choice")));
    AX_TRY(read_field(&f->gen_prefix, either(t, map, "gen_prefix")));
    f->target_delimiter = t->target_delimiter;
    f->delimiter = t->fewshot_delimiter;
    AX_TRY(ax_task_key_text(ax_task_key_in(map, "target_delimiter"), &f->target_delimiter));
    return ax_task_key_text(ax_task_key_in(map, "fewshot_delimiter"), &f->delimiter);
}

/* ---- all ---- */

static enum ax_status read_name(struct ax_task *t, const struct ax_task_spec *s) {
    const struct ax_task_key k = ax_task_key(&t->yaml, "task");
    const char *path = t->yaml.docs[0].name, *slash = strrchr(path, '/');
    t->name = slash ? slash + 1 : path;
    if (k.node && k.node->kind == AX_YAML_LIST)
        return ax_task_key_error(k, AX_ERR_CONFIG, "%s", one_task);
    AX_TRY(ax_task_key_text(k, &t->name));
    t->name = s->name ? s->name : t->name;
    t->alias = t->name;
    return ax_task_key_text(ax_task_key(&t->yaml, "task_alias"), &t->alias);
}

static enum ax_status check_keys(const struct ax_task *t) {
    for (int i = 0; i < t->yaml.over.n; i++)
        AX_TRY(ax_task_keys_check(t->yaml.over.maps[i], known));
    for (int i = 0; i < t->yaml.n; i++)
        AX_TRY(ax_task_keys_check(
            (struct ax_task_key){&t->yaml.docs[i], t->yaml.docs[i].root, "a task"},
            t->yaml.of_group ? known : known + OF_GROUP));
    return AX_OK;
}

static enum ax_status read_all(struct ax_task *t, const struct ax_task_spec *s) {
    AX_TRY(ax_task_yaml_load(&t->yaml, s->path));
    t->yaml.over = s->over;
    t->yaml.of_group = s->of_group;
    AX_TRY(check_keys(t));
    AX_TRY(read_name(t, s));
    AX_TRY(read_output(t));
    AX_TRY(read_data(t));
    AX_TRY(read_fields(t));
    AX_TRY(read_fewshot(t));
    AX_TRY(ax_task_key_int(ax_task_key(&t->yaml, "num_fewshot"), 0, 10000, &t->num_fewshot));
    AX_TRY(ax_task_key_int(ax_task_key(&t->yaml, "repeats"), 1, 100000, &t->repeats));
    AX_TRY(read_generation(t));
    AX_TRY(read_metrics(t));
    return read_filters(t);
}

enum ax_status ax_task_load(struct ax_task *t, const struct ax_task_spec *spec) {
    *t = (struct ax_task){
        .num_fewshot = -1, .repeats = 1, .target_delimiter = " ", .fewshot_delimiter = "\n\n"};
    const enum ax_status st = read_all(t, spec);
    if (st != AX_OK)
        ax_task_free(t);
    return st;
}

void ax_task_free(struct ax_task *t) {
    struct ax_task_field *const fields[] = {
        &t->text,           &t->target,         &t->choice,
        &t->description,    &t->gen_prefix,     &t->fewshot.text,
        &t->fewshot.target, &t->fewshot.choice, &t->fewshot.gen_prefix};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        free_field(fields[i]);
    json_decref(t->fewshot.samples);
    free_metrics(t);
    free_lists(t);
    ax_task_yaml_free(&t->yaml);
    *t = (struct ax_task){0};
}
