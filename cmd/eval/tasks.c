#include "cmd/eval/tasks.h"

#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/text/json.h"
#include "cmd/harness/harness.h"
#include "cmd/harness/report.h"
#include "cmd/args/text_args.h"

struct tasks {
    const struct ax_eval_tasks *o;
    struct ax_text_model model;
    struct ax_harness_options harness;
    struct ax_text_requests_counters counters;
    struct ax_buf samples; /* lines of --log-samples */
};

static int adapter_of(const struct tasks *t) {
    return t->model.adapters.n > 0 ? 0 : AX_ADAPTER_NONE;
}

static enum ax_status answer(void *ctx, struct ax_text_requests *r) {
    struct tasks *t = ctx;
    const struct ax_text_requests_options o = {
        .lanes = t->o->batch, .seed = (uint64_t)t->o->seed, .adapter = adapter_of(t)};
    return ax_text_requests_run(r, &t->model, &o, &t->counters);
}

/* ---- opening ---- */

/* The values of --task, which may have several names each. */
static json_t *names_of(const struct ax_arg_list *given) {
    json_t *list = json_array();
    for (int i = 0; i < given->n; i++)
        for (const char *at = given->text[i]; *at;) {
            const size_t n = strcspn(at, ",");
            if (n > 0 && json_array_append_new(list, json_stringn(at, n)) != 0) {
                json_decref(list);
                return NULL;
            }
            at += n + (at[n] == ',');
        }
    return list;
}

static enum ax_status open_model(struct tasks *t) {
    struct ax_text_args args;
    struct ax_arg unused[AX_TEXT_ARGS_COUNT];
    ax_text_args_table(&args, unused);
    args.o.model = t->o->model;
    args.o.base = t->o->base;
    args.o.adapters = *t->o->adapters;
    args.dtype = t->o->dtype;
    args.threads = t->o->threads;
    if (args.o.adapters.n > 1)
        return ax_error(AX_ERR_CONFIG, "--adapter: a task takes one adapter at a time");
    return ax_text_args_open(&t->model, &args, t->o->ranks);
}

static enum ax_status open_all(struct tasks *t) {
    const struct ax_eval_tasks *o = t->o;
    AX_TRY(open_model(t));
    const int64_t most = t->model.arch.max_positions;
    t->harness = (struct ax_harness_options){.option = "--task",
                                             .tasks = names_of(&o->names),
                                             .include_path = o->include_path,
                                             .system = o->system,
                                             .num_fewshot = o->num_fewshot,
                                             .max_rows = o->max_rows,
                                             .seed = o->seed,
                                             .chat = o->chat,
                                             .single_turn = o->single_turn,
                                             .samples = o->samples ? &t->samples : NULL,
                                             .team = o->ranks ? &o->ranks->team : NULL,
                                             .side = ax_text_model_side(&t->model, adapter_of(t)),
                                             .max_length = o->max_length > 0 ? o->max_length : most,
                                             .answer = answer,
                                             .ctx = t};
    if (!t->harness.tasks)
        return ax_error(AX_ERR_CONFIG, "--task: a name is not UTF-8");
    if (o->max_length > most)
        return ax_error(AX_ERR_CONFIG, "--max-length: %lld is more than the model's %lld positions",
                        (long long)o->max_length, (long long)most);
    return o->chat ? ax_text_side_need_template(t->harness.side) : AX_OK;
}

/* ---- what comes out ---- */

static enum ax_status put_json(const struct tasks *t, json_t *results, struct ax_buf *out) {
    const struct ax_text_requests_counters *c = &t->counters;
    json_t *v =
        json_pack("{ss so sI sI sI sI sf}", "what", "eval", "model", ax_json_repaired(t->o->model),
                  "requests", (json_int_t)c->requests, "prompt_tokens",
                  (json_int_t)c->prompt_tokens, "shared_tokens", (json_int_t)c->shared_tokens,
                  "generated_tokens", (json_int_t)c->generated_tokens, "seconds", c->seconds);
    char *text = NULL;
    size_t len;
    enum ax_status st = AX_OK;
    (void)json_object_del(results, "alias");
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

static enum ax_status put_table(const struct tasks *t, json_t *results, struct ax_buf *out) {
    const struct ax_text_requests_counters *c = &t->counters;
    char fed[32], shared[32];
    AX_TRY(ax_harness_table(results, out));
    return ax_buf_printf(out,
                         "\n%lld requests in %.1f s: %s prompt tokens computed, %s shared; %s\n",
                         (long long)c->requests, c->seconds,
                         ax_format_count(fed, sizeof fed, (double)c->prompt_tokens),
                         ax_format_count(shared, sizeof shared, (double)c->shared_tokens),
                         ax_dtype_info(t->model.dtype)->name);
}

/* ---- the run ---- */

static enum ax_status put(const struct tasks *t, json_t *results, struct ax_buf *out) {
    if (t->o->samples)
        AX_TRY(ax_write_file_atomic(t->o->samples, t->samples.data ? t->samples.data : "",
                                    t->samples.len));
    return t->o->json ? put_json(t, results, out) : put_table(t, results, out);
}

static enum ax_status run(struct tasks *t, struct ax_buf *out) {
    struct ax_harness_outcome outcome;
    AX_TRY(open_all(t));
    AX_TRY(ax_harness_run(&t->harness, &outcome));
    AX_TRY(ax_error_restore(&outcome.failure));
    const enum ax_status st = outcome.results ? put(t, outcome.results, out) : AX_OK;
    json_decref(outcome.results);
    return st;
}

enum ax_status ax_eval_tasks_run(const struct ax_eval_tasks *o, struct ax_buf *out) {
    struct tasks *t;
    AX_TRY(ax_alloc(&t, 1, sizeof *t));
    t->o = o;
    const enum ax_status st = run(t, out);
    json_decref(t->harness.tasks);
    ax_buf_free(&t->samples);
    ax_text_model_close(&t->model);
    ax_free(t);
    return st;
}
