/* filter_list and generation_kwargs of a task. */
#include <string.h>

#include "base/mem.h"
#include "model/core/sample.h"
#include "optim/evaluate/tasks/task.h"

/* ---- filters ---- */

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
                                 ax_task_output_name(t->output));
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

enum ax_status ax_task_read_filters(struct ax_task *t) {
    const struct ax_task_key k = ax_task_key(&t->yaml, "filter_list");
    size_t n;
    AX_TRY(ax_task_key_list(k, &n));
    AX_TRY(ax_alloc(&t->filters, n > 0 ? n : 1, sizeof *t->filters));
    for (size_t i = 0; i < n; i++)
        AX_TRY(read_pipeline(t, ax_task_key_at(k, i)));
    return n == 0 ? usual_filter(t) : AX_OK;
}

/* ---- generation ---- */

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

enum ax_status ax_task_read_generation(struct ax_task *t) {
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

void ax_task_lists_free(struct ax_task *t) {
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
