/* `axtrain eval --task FILE`: tasks of lm-evaluation-harness. */
#include "cmd/eval/tasks.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/text/json.h"
#include "base/mem.h"
#include "optim/evaluate/tasks/report.h"
#include "cmd/text_args.h"

struct tasks {
    const struct ax_eval_tasks *o;
    struct ax_text_model model;
    struct ax_task_tree tree;
    struct ax_task_job *jobs; /* [tasks of the tree] */
    size_t n;
    struct ax_task_run_counters counters;
};

/* ---- opening ---- */

static enum ax_status check_template(const struct ax_text_side *side) {
    struct ax_template *none = NULL;
    if (side->template)
        return AX_OK;
    AX_TRY(ax_template_from_folder(&none, side->folder, NULL, false)); /* reports what is missing */
    ax_template_free(none);
    return AX_OK;
}

enum ax_status ax_eval_tasks_open_model(const struct ax_eval_tasks *o,
                                        struct ax_text_model *model) {
    struct ax_text_args args;
    struct ax_arg unused[AX_TEXT_ARGS_COUNT];
    ax_text_args_table(&args, unused);
    args.o.model = o->model;
    args.o.base = o->base;
    args.o.adapters = *o->adapters;
    args.dtype = o->dtype;
    args.threads = o->threads;
    if (args.o.adapters.n > 1)
        return ax_error(AX_ERR_CONFIG, "--adapter: a task file takes one adapter at a time");
    AX_TRY(ax_text_args_open(model, &args, o->ranks));
    return o->chat ? check_template(
                         ax_text_model_side(model, model->adapters.n > 0 ? 0 : AX_ADAPTER_NONE))
                   : AX_OK;
}

static int adapter_of(const struct tasks *t) {
    return t->model.adapters.n > 0 ? 0 : AX_ADAPTER_NONE;
}

enum ax_status ax_eval_tasks_length(const struct ax_eval_tasks *o,
                                    const struct ax_text_model *model, int64_t *out) {
    const int64_t most = model->arch.max_positions;
    *out = o->max_length > 0 ? o->max_length : most;
    if (*out > most)
        return ax_error(AX_ERR_CONFIG, "--max-length: %lld is more than the model's %lld positions",
                        (long long)*out, (long long)most);
    return AX_OK;
}

/* What is not there may be there in the harness. */
static enum ax_status name_harness(enum ax_status st) {
    char why[1024];
    if (st != AX_ERR_UNSUPPORTED && (st == AX_OK || !strstr(ax_error_text(), "!function")))
        return st;
    snprintf(why, sizeof why, "%s", ax_error_text());
    return ax_error(st, "%s; --harness runs the task as it is", why);
}

static enum ax_status open_tree(struct tasks *t) {
    t->tree.include_path = t->o->include_path;
    for (int i = 0; i < t->o->files.n; i++)
        AX_TRY(name_harness(ax_task_tree_add(&t->tree, t->o->files.text[i])));
    return ax_alloc(&t->jobs, t->tree.n_tasks, sizeof *t->jobs);
}

static enum ax_status open_job(struct tasks *t, const struct ax_task_spec *spec) {
    struct ax_task_job *j = &t->jobs[t->n];
    const struct ax_text_side *side = ax_text_model_side(&t->model, adapter_of(t));
    const struct ax_task_prompt_options o = {.num_fewshot = t->o->num_fewshot,
                                             .chat = t->o->chat,
                                             .single_turn = t->o->single_turn,
                                             .system = t->o->system,
                                             .seed = (uint32_t)t->o->seed,
                                             .max_rows = t->o->max_rows};
    int64_t length;
    AX_TRY(ax_eval_tasks_length(t->o, &t->model, &length));
    t->n++;
    AX_TRY(name_harness(ax_task_load(&j->task, spec)));
    for (size_t i = 0; i + 1 < t->n; i++)
        if (strcmp(t->jobs[i].task.name, j->task.name) == 0)
            return ax_error(AX_ERR_CONFIG, "%s: a second task with the name %s", spec->path,
                            j->task.name);
    AX_TRY(ax_task_prompts_build(&j->prompts, &j->task, side, &o));
    return ax_task_requests_make(&j->requests, &j->prompts, side, length);
}

/* ---- what comes out ---- */

enum ax_status ax_eval_tasks_put_json(const struct ax_eval_tasks *o,
                                      const struct ax_task_run_counters *c, json_t *results,
                                      struct ax_buf *out) {
    json_t *v = json_pack("{ss ss sI sI sI sI sf}", "what", "eval", "model", o->model, "requests",
                          (json_int_t)c->requests, "prompt_tokens", (json_int_t)c->prompt_tokens,
                          "shared_tokens", (json_int_t)c->shared_tokens, "generated_tokens",
                          (json_int_t)c->generated_tokens, "seconds", c->seconds);
    char *text = NULL;
    size_t len;
    enum ax_status st = AX_OK;
    if (!v || json_object_update(v, results) != 0)
        st = ax_error(AX_ERR_NOMEM, "out of memory for the result");
    if (st == AX_OK)
        st = ax_json_dump(v, &text, &len);
    if (st == AX_OK)
        st = ax_buf_printf(out, "%s\n", text);
    ax_free(text);
    json_decref(v);
    return st;
}

enum ax_status ax_eval_tasks_put_counters(const struct ax_text_model *model,
                                          const struct ax_task_run_counters *c,
                                          struct ax_buf *out) {
    char fed[32], shared[32];
    return ax_buf_printf(out,
                         "\n%lld requests in %.1f s: %s prompt tokens computed, %s shared; %s\n",
                         (long long)c->requests, c->seconds,
                         ax_format_count(fed, sizeof fed, (double)c->prompt_tokens),
                         ax_format_count(shared, sizeof shared, (double)c->shared_tokens),
                         ax_dtype_info(model->dtype)->name);
}

static enum ax_status put(const struct tasks *t, struct ax_buf *out) {
    json_t *results = NULL;
    if (!t->o->json) {
        AX_TRY(ax_task_report_table(&t->tree, t->jobs, out));
        return ax_eval_tasks_put_counters(&t->model, &t->counters, out);
    }
    AX_TRY(ax_task_report_json(&t->tree, t->jobs, &results));
    const enum ax_status st = ax_eval_tasks_put_json(t->o, &t->counters, results, out);
    json_decref(results);
    return st;
}

static enum ax_status write_samples(const struct tasks *t) {
    struct ax_buf text = {0};
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < t->n && st == AX_OK; i++)
        st = ax_task_report_samples(&t->jobs[i], &text);
    if (st == AX_OK)
        st = ax_write_file_atomic(t->o->samples, text.data ? text.data : "", text.len);
    ax_buf_free(&text);
    return st;
}

/* ---- the run ---- */

static enum ax_status run(struct tasks *t, struct ax_buf *out) {
    struct ax_task_requests **list;
    AX_TRY(open_tree(t));
    AX_TRY(ax_eval_tasks_open_model(t->o, &t->model));
    for (size_t i = 0; i < t->tree.n_tasks; i++)
        AX_TRY(open_job(t, t->tree.tasks[i]));
    const struct ax_task_run_options o = {
        .lanes = t->o->batch, .seed = (uint64_t)t->o->seed, .adapter = adapter_of(t)};
    AX_TRY(ax_alloc(&list, t->n, sizeof(struct ax_task_requests *)));
    for (size_t i = 0; i < t->n; i++)
        list[i] = &t->jobs[i].requests;
    const enum ax_status st = ax_task_run(&t->model, list, t->n, &o, &t->counters);
    ax_free(list);
    AX_TRY(st);
    if (!ax_ranks_lead(t->o->ranks))
        return AX_OK;
    for (size_t i = 0; i < t->n; i++)
        AX_TRY(ax_task_job_finish(&t->jobs[i]));
    if (t->o->samples)
        AX_TRY(write_samples(t));
    return put(t, out);
}

enum ax_status ax_eval_tasks_run(const struct ax_eval_tasks *o, struct ax_buf *out) {
    struct tasks *t;
    AX_TRY(ax_alloc(&t, 1, sizeof *t));
    t->o = o;
    const enum ax_status st = run(t, out);
    for (size_t i = 0; i < t->n; i++)
        ax_task_job_free(&t->jobs[i]);
    ax_free(t->jobs);
    ax_task_tree_free(&t->tree);
    ax_text_model_close(&t->model);
    ax_free(t);
    return st;
}
