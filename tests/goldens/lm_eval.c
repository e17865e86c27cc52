/* lm_eval/: what lm-evaluation-harness measured, MODEL/OUT.json for tasks/TASK.yaml. All files of a
 * model run together. The model is the folder models/MODEL beside the runs, or given by name. */
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/golden.h"
#include "optim/evaluate/tasks/report.h"
#include "cmd/text_args.h"

#define MAX_JSON  (64u << 20)
#define MAX_FILES 32

/* From the fixtures' README: differences due to rounding alone. */
struct tolerance {
    double absolute, relative; /* of a log-likelihood; the larger one applies */
    double close;              /* logits closer than this may swap places */
};
static const struct tolerance tiny = {1e-4, 1e-6, 1e-4}, real_model = {3e-4, 3e-5, 1e-3};
#define PERPLEXITY_TOLERANCE 1e-4

struct file {
    struct ax_json_doc doc;
    struct ax_task_job job;
    bool changed; /* the text of a record changed where rounding may change it */
};

struct check {
    struct ax_golden_report *report;
    const struct ax_golden_options *o;
    const char *dir, *model; /* name */
    char *folder;            /* of the model; NULL: not found */
    struct tolerance tolerance;
    struct file files[MAX_FILES];
    int n;
    /* the current record */
    char where[96];
    enum ax_status st;
};

/* ---- comparing ---- */

static void differ(struct check *c, const char *group, double figure) {
    ax_golden_note(c->report, group, figure, 0, c->where);
}

static void compare_text(struct check *c, const char *group, struct ax_json want, const char *got,
                         size_t len) {
    const char *text = json_string_value(want.v);
    differ(c, group,
           !text || !got || json_string_length(want.v) != len || memcmp(text, got, len) != 0);
}

static void compare_buf(struct check *c, const char *group, struct ax_json want,
                        const struct ax_buf *got) {
    compare_text(c, group, want, got->data, got->len);
}

static int64_t compare_ids(struct check *c, const char *group, struct ax_json want,
                           const int32_t *ids, int64_t n) {
    int64_t same = 0;
    while (same < n && same < (int64_t)ax_json_size(want) &&
           json_integer_value(ax_json_at(want, (size_t)same).v) == ids[same])
        same++;
    const int64_t longest = n > (int64_t)ax_json_size(want) ? n : (int64_t)ax_json_size(want);
    if (group)
        differ(c, group, (double)(longest - same));
    return same == longest ? -1 : same;
}

static void compare_number(struct check *c, const char *group, struct ax_json want, double got) {
    differ(c, group, json_is_number(want.v) ? fabs(json_number_value(want.v) - got) : INFINITY);
}

static void compare_loglikelihood(struct check *c, struct ax_json want, double got) {
    const double w = json_is_number(want.v) ? json_number_value(want.v) : NAN;
    ax_golden_note(c->report, "log-likelihoods", fabs(w - got),
                   fmax(c->tolerance.absolute, c->tolerance.relative * fabs(w)), c->where);
}

/* Values of a record's metrics, of the filter's pipeline. */
static void compare_metrics(struct check *c, const struct file *f, struct ax_json row,
                            size_t filter, size_t i) {
    const struct ax_task *t = &f->job.task;
    for (size_t m = 0; m < t->n_metrics; m++) {
        const char *name = ax_task_metric_name(t->metrics[m].kind);
        compare_number(c, "record metrics that differ", ax_json_get(row, name),
                       ax_task_values(&f->job.scores, filter, m)[i].x);
    }
}

/* ---- records ---- */

static void check_choices(struct check *c, struct file *f, struct ax_json row, size_t i) {
    const struct ax_task_requests *r = &f->job.requests;
    const struct ax_task_item *item = &f->job.prompts.items[i];
    const struct ax_json choices = ax_json_get(row, "choices");
    const size_t n = r->first[i + 1] - r->first[i];
    differ(c, "numbers of choices that differ", fabs((double)ax_json_size(choices) - (double)n));
    compare_buf(c, "prompts that differ", ax_json_get(row, "context"), &item->contexts[0]);
    compare_number(c, "targets that differ", ax_json_get(row, "gold"),
                   (double)json_integer_value(item->target));
    for (size_t k = 0; k < n && k < ax_json_size(choices); k++) {
        const struct ax_task_request *q = &r->list[r->first[i] + k];
        const struct ax_json want = ax_json_at(choices, k);
        struct ax_buf text = {0};
        int64_t fed;
        (void)ax_task_request_fed(r, q, &fed);
        c->st = ax_task_continuation(&f->job.prompts, i, k, &text);
        compare_buf(c, "prompts that differ", ax_json_get(want, "continuation"), &text);
        ax_buf_free(&text);
        compare_ids(c, "prompt tokens that differ", ax_json_get(row, "context_ids"),
                    r->ids.ids + q->at, q->n_context);
        compare_ids(c, "prompt tokens that differ", ax_json_get(want, "continuation_ids"),
                    r->ids.ids + q->at + q->n_context, q->n_continuation);
        compare_number(c, "prompt tokens that differ", ax_json_get(want, "fed"), (double)fed);
        compare_loglikelihood(c, ax_json_get(want, "loglikelihood"), q->loglikelihood);
        differ(c, "is_greedy that differ",
               json_is_true(ax_json_get(want, "is_greedy").v) != q->greedy);
    }
    compare_metrics(c, f, row, 0, i);
}

static void check_rolling(struct check *c, struct file *f, struct ax_json row, size_t i) {
    const struct ax_task_requests *r = &f->job.requests;
    const struct ax_json windows = ax_json_get(row, "windows");
    const size_t n = r->first[i + 1] - r->first[i];
    double sum = 0;
    differ(c, "windows that differ", fabs((double)ax_json_size(windows) - (double)n));
    for (size_t k = 0; k < n && k < ax_json_size(windows); k++) {
        const struct ax_task_request *q = &r->list[r->first[i] + k];
        const struct ax_json want = ax_json_at(windows, k);
        compare_ids(c, "windows that differ", ax_json_get(want, "context_ids"), r->ids.ids + q->at,
                    q->n_context);
        compare_ids(c, "windows that differ", ax_json_get(want, "continuation_ids"),
                    r->ids.ids + q->at + q->n_context, q->n_continuation);
        compare_loglikelihood(c, ax_json_get(want, "loglikelihood"), q->loglikelihood);
        sum += q->loglikelihood;
    }
    compare_loglikelihood(c, ax_json_get(row, "loglikelihood"), sum);
    for (size_t m = 0; m < f->job.task.n_metrics; m++) {
        const bool words = f->job.task.metrics[m].kind == AX_METRIC_WORD_PERPLEXITY;
        compare_number(c, "words and bytes that differ",
                       ax_json_get(row, words ? "words" : "bytes"),
                       ax_task_values(&f->job.scores, 0, m)[i].y);
    }
}

/* The first step at which rounding may lead to another token, or INT64_MAX. */
static int64_t free_from(const struct check *c, struct ax_json row) {
    const struct ax_json calls = ax_json_get(row, "close_calls");
    for (size_t i = 0; i < ax_json_size(calls); i++) {
        const struct ax_json call = ax_json_at(calls, i);
        if (json_number_value(ax_json_at(call, 1).v) < c->tolerance.close)
            return json_integer_value(ax_json_at(call, 0).v);
    }
    return INT64_MAX;
}

static void check_filtered(struct check *c, struct file *f, struct ax_json row, size_t i) {
    for (size_t k = 0; k < f->job.task.n_filters; k++) {
        const struct ax_json want = ax_json_get(row, f->job.task.filters[k].name);
        const json_t *got = f->job.scores.filtered[k * f->job.scores.n + i];
        compare_text(c, "extracted answers that differ", ax_json_get(want, "extracted"),
                     json_string_value(got), json_string_length(got));
        compare_metrics(c, f, want, k, i);
    }
}

static void check_generated(struct check *c, struct file *f, struct ax_json row, size_t i) {
    const struct ax_task_requests *r = &f->job.requests;
    const struct ax_task_request *q = &r->list[r->first[i]];
    const struct ax_task_answer *a = &r->answers[r->first[i] * r->samples];
    const struct ax_json stop = ax_json_get(row, "stop"), made = ax_json_get(row, "generated_ids");
    int64_t fed;
    const int32_t *ids = ax_task_request_fed(r, q, &fed);
    compare_buf(c, "prompts that differ", ax_json_get(row, "context"),
                &f->job.prompts.items[i].contexts[0]);
    compare_number(c, "prompt tokens that differ", ax_json_get(row, "context_tokens"),
                   (double)q->n_context);
    compare_ids(c, "prompt tokens that differ", ax_json_get(row, "fed_ids"), ids, fed);
    differ(c, "stop texts that differ", fabs((double)ax_json_size(stop) - (double)r->n_until));
    for (size_t k = 0; k < r->n_until && k < ax_json_size(stop); k++)
        compare_text(c, "stop texts that differ", ax_json_at(stop, k), r->until[k],
                     strlen(r->until[k]));
    const int64_t first = compare_ids(c, NULL, made, a->tokens, a->n);
    if (first >= free_from(c, row)) { /* rounding may have changed it */
        f->changed = true;
        return;
    }
    compare_ids(c, "generated tokens that differ", made, a->tokens, a->n);
    compare_buf(c, "generated texts that differ", ax_json_get(row, "text"), &a->text);
    check_filtered(c, f, row, i);
}

/* ---- files ---- */

static void check_results(struct check *c, const struct file *f, struct ax_json results) {
    const struct ax_task *t = &f->job.task;
    char key[256];
    snprintf(c->where, sizeof c->where, "results");
    for (size_t k = 0; k < t->n_filters; k++) {
        for (size_t m = 0; m < t->n_metrics; m++) {
            const double got = f->job.results[k * t->n_metrics + m].value;
            snprintf(key, sizeof key, "%s,%s", ax_task_metric_name(t->metrics[m].kind),
                     t->filters[k].name);
            /* the key contains dots, which a path cannot */
            const json_t *v = json_object_get(results.v, key);
            const double want = json_is_number(v) ? json_number_value(v) : NAN;
            if (t->output == AX_TASK_ROLLING)
                ax_golden_note(c->report, "perplexities (relative)", fabs(got - want) / want,
                               PERPLEXITY_TOLERANCE, key);
            else
                ax_golden_note(c->report, "results that differ", fabs(got - want), 1e-12, key);
        }
    }
}

static void check_file(struct check *c, struct file *f) {
    static void (*const by_output[])(struct check *, struct file *, struct ax_json, size_t) = {
        [AX_TASK_MULTIPLE_CHOICE] = check_choices,
        [AX_TASK_GENERATE] = check_generated,
        [AX_TASK_ROLLING] = check_rolling,
    };
    const struct ax_json root = ax_json_root(&f->doc), rows = ax_json_get(root, "rows");
    snprintf(c->report->title, sizeof c->report->title, "%s model=%s", f->doc.name, c->folder);
    snprintf(c->where, sizeof c->where, "rows");
    differ(c, "numbers of records that differ",
           fabs((double)ax_json_size(rows) - (double)f->job.scores.n));
    compare_number(c, "prompt tokens that differ", ax_json_get(root, "prefix_token_id"),
                   f->job.requests.prefix);
    for (size_t i = 0; i < ax_json_size(rows) && i < f->job.scores.n && c->st == AX_OK; i++) {
        snprintf(c->where, sizeof c->where, "record %zu", i);
        by_output[f->job.task.output](c, f, ax_json_at(rows, i), i);
    }
    if (!f->changed)
        check_results(c, f, ax_json_get(root, "results"));
    ax_golden_flush(c->report);
}

static enum ax_status read_options(struct check *c, struct ax_json root,
                                   struct ax_task_prompt_options *o, int64_t *max_length) {
    bool multiturn;
    (void)c;
    AX_TRY(ax_json_i64(ax_json_get(root, "num_fewshot"), 0, 10000, &o->num_fewshot));
    AX_TRY(ax_json_bool(ax_json_get(root, "apply_chat_template"), &o->chat));
    AX_TRY(ax_json_bool(ax_json_get(root, "fewshot_as_multiturn"), &multiturn));
    AX_TRY(ax_json_str_or(ax_json_get(root, "system_instruction"), NULL, &o->system));
    AX_TRY(ax_json_i64(ax_json_get(root, "max_length"), 2, INT32_MAX, max_length));
    o->single_turn = o->chat && !multiturn;
    return AX_OK;
}

static enum ax_status prepare(struct check *c, const struct ax_text_model *model, struct file *f,
                              const char *folder) {
    const struct ax_json root = ax_json_root(&f->doc);
    struct ax_task_prompt_options o = {.folder = folder, .seed = 1234};
    struct ax_task_job *j = &f->job;
    const struct ax_text_side *side = ax_text_model_side(model, AX_ADAPTER_NONE);
    const char *task;
    char *path;
    int64_t max_length;
    AX_TRY(read_options(c, root, &o, &max_length));
    AX_TRY(ax_json_str(ax_json_get(root, "task"), &task));
    AX_TRY(ax_sprintf(&path, "%s/tasks/%s.yaml", c->dir, task));
    const enum ax_status st = ax_task_load(&j->task, &(struct ax_task_spec){.path = path});
    ax_free(path);
    AX_TRY(st);
    AX_TRY(ax_task_prompts_build(&j->prompts, &j->task, side, &o));
    if (o.num_fewshot > 0 && j->prompts.num_fewshot != o.num_fewshot)
        return ax_json_error(ax_json_get(root, "num_fewshot"), "the task has its own");
    return ax_task_requests_make(&j->requests, &j->prompts, side, max_length);
}

static enum ax_status run_files(struct check *c) {
    struct ax_text_model model = {0};
    struct ax_text_args args;
    struct ax_arg unused[AX_TEXT_ARGS_COUNT];
    struct ax_task_requests *list[MAX_FILES];
    struct ax_task_run_counters counters;
    const struct ax_task_run_options o = {.adapter = AX_ADAPTER_NONE};
    char *folder = NULL;
    enum ax_status st;
    ax_text_args_table(&args, unused);
    args.o.model = c->folder;
    args.dtype = c->o->dtype ? c->o->dtype : "float32";
    args.threads = c->o->threads;
    AX_TRY_GOTO(ax_text_args_open(&model, &args, NULL), st, done);
    AX_TRY_GOTO(ax_path_join(&folder, c->dir, ".."), st, done);
    for (int i = 0; i < c->n; i++) {
        AX_TRY_GOTO(prepare(c, &model, &c->files[i], folder), st, done);
        list[i] = &c->files[i].job.requests;
    }
    AX_TRY_GOTO(ax_task_run(&model, list, (size_t)c->n, &o, &counters), st, done);
    for (int i = 0; i < c->n && c->st == AX_OK; i++) {
        AX_TRY_GOTO(ax_task_job_finish(&c->files[i].job), st, done);
        check_file(c, &c->files[i]);
    }
    st = c->st;
done:
    ax_free(folder);
    ax_text_model_close(&model);
    return st;
}

/* ---- folders ---- */

/* --model NAME=DIR, or the folder of the fixtures. */
static enum ax_status find_model(struct check *c) {
    const size_t n = strlen(c->model);
    for (int i = 0; c->o->models && i < c->o->models->n; i++) {
        const char *given = c->o->models->text[i];
        if (strncmp(given, c->model, n) == 0 && given[n] == '=')
            return ax_strdup(&c->folder, given + n + 1);
    }
    AX_TRY(ax_sprintf(&c->folder, "%s/../../models/%s", c->dir, c->model));
    if (!ax_path_is_dir(c->folder)) {
        ax_free(c->folder);
        c->folder = NULL;
    }
    return AX_OK;
}

static enum ax_status open_file(struct check *c, const char *path) {
    if (strcmp(c->o->backend, "cpu") != 0)
        return ax_error(AX_ERR_UNSUPPORTED, "--backend: evaluation tasks run on cpu only");
    if (c->folder) {
        AX_TRY(ax_json_load(&c->files[c->n].doc, path, MAX_JSON));
        c->n++;
        return AX_OK;
    }
    printf("  not run: %s: give the model with --model %s=DIR\n", path, c->model);
    c->report->absent++;
    return AX_OK;
}

static enum ax_status each_file(struct check *c, const glob_t *files) {
    AX_TRY(find_model(c));
    for (size_t i = 0; i < files->gl_pathc && i < MAX_FILES; i++)
        AX_TRY(open_file(c, files->gl_pathv[i]));
    return c->n > 0 ? run_files(c) : AX_OK;
}

/* The files of DIR/MODEL. */
static void check_model(struct ax_golden_report *r, const char *dir, const char *model,
                        const glob_t *files, const struct ax_golden_options *o) {
    struct check *c = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&c, 1, sizeof *c), st, done);
    *c = (struct check){.report = r, .o = o, .dir = dir, .model = model};
    c->tolerance = strcmp(model, "llama") == 0 ? tiny : real_model;
    st = each_file(c, files);
done:
    if (st != AX_OK)
        ax_golden_error(r, model);
    for (int i = 0; c && i < c->n; i++) {
        ax_json_free(&c->files[i].doc);
        ax_task_job_free(&c->files[i].job);
    }
    if (c)
        ax_free(c->folder);
    ax_free(c);
}

bool ax_golden_lm_eval(struct ax_golden_report *r, const char *dir,
                       const struct ax_golden_options *o) {
    glob_t folders = {0};
    char path[4096];
    bool found = false;
    snprintf(path, sizeof path, "%s/tasks", dir);
    if (!ax_path_is_dir(path))
        return false;
    snprintf(path, sizeof path, "%s/*", dir);
    if (glob(path, 0, NULL, &folders) != 0)
        return false;
    for (size_t i = 0; i < folders.gl_pathc; i++) {
        glob_t files = {0};
        const char *model = strrchr(folders.gl_pathv[i], '/') + 1;
        char pattern[4096];
        snprintf(pattern, sizeof pattern, "%s/*.json", folders.gl_pathv[i]);
        if (glob(pattern, 0, NULL, &files) == 0) {
            check_model(r, dir, model, &files, o);
            found = true;
        }
        globfree(&files);
    }
    globfree(&folders);
    return found;
}
