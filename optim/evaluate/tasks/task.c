/* The keys of a task file → struct ax_task. */
#include "optim/evaluate/tasks/task.h"

#include <string.h>

#include "base/mem.h"

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

static const char *const outputs[] = {
    [AX_TASK_MULTIPLE_CHOICE] = "multiple_choice",
    [AX_TASK_GENERATE] = "generate_until",
    [AX_TASK_LOGLIKELIHOOD] = "loglikelihood",
    [AX_TASK_ROLLING] = "loglikelihood_rolling",
};

const char *ax_task_output_name(enum ax_task_output o) {
    return outputs[o];
}

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

static enum ax_status field(struct ax_task *t, const char *name, struct ax_task_field *f) {
    return ax_task_field_read(f, ax_task_key(&t->yaml, name));
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
    AX_TRY(ax_task_field_read(&f->text, either(t, map, "doc_to_text")));
    AX_TRY(ax_task_field_read(&f->target, either(t, map, "doc_to_target")));
    AX_TRY(ax_task_field_read(&f->choice, either(t, map, "doc_to_choice")));
    AX_TRY(ax_task_field_read(&f->gen_prefix, either(t, map, "gen_prefix")));
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
    AX_TRY(ax_task_read_generation(t));
    AX_TRY(ax_task_read_metrics(t));
    return ax_task_read_filters(t);
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
        ax_task_field_free(fields[i]);
    json_decref(t->fewshot.samples);
    ax_task_metrics_free(t);
    ax_task_lists_free(t);
    ax_task_yaml_free(&t->yaml);
    *t = (struct ax_task){0};
}
