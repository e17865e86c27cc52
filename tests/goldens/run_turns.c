/* Completions with tools: {prompt, prompt_ids, turn_ids, completion_ids, model_tokens, messages, …}, each list but the
 * first two with a value per completion; `reset` is what an environment adds to the prompt. The turns that were
 * "sampled" are played through data/tools/, with the results that were recorded; then the model trains on what was
 * recorded. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/tools/tools.h"
#include "tests/goldens/run.h"

#define RECORDED 1721995200 /* noon of the day that templates wrote */

/* ---- what is trained on ---- */

static void put_ids(const json_t *ids, double *to) {
    for (size_t i = 0; i < json_array_size(ids); i++)
        to[i] = (double)json_integer_value(json_array_get(ids, i));
}

static void put_spans(const json_t *spans, double *to) {
    for (size_t k = 0; k < json_array_size(spans); k++) {
        const json_t *span = json_array_get(spans, k);
        const int64_t end = json_integer_value(json_array_get(span, 1));
        for (int64_t t = json_integer_value(json_array_get(span, 0)); t < end; t++)
            to[t] = 1;
    }
}

/* Columns of the recorded log-probs, which are those of the longest completion; 0: none are recorded. */
static int64_t width_of(const struct ax_run *r, int k) {
    static const char *const names[] = {"logps", "ref_per_token_logps", "sampling_per_token_logps",
                                        "divergence"};
    struct ax_golden_tensor t;
    char full[64];
    int64_t width = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && width == 0; i++) {
        snprintf(full, sizeof full, "m%02d.%s", k, names[i]);
        if (!ax_safetensors_find(&r->own, full) || ax_golden_read(&r->own, full, &t) != AX_OK)
            continue;
        width = t.shape[1];
        ax_golden_tensor_free(&t);
    }
    return width;
}

static enum ax_status add_completion(struct ax_run *r, struct ax_run_micro *m, int64_t c,
                                     int64_t width) {
    const struct ax_run_rollouts *o = &r->rollouts;
    size_t which;
    const json_t *record = ax_run_record_of(o, c, &which);
    const json_t *prompt = json_object_get(record, "prompt_ids");
    const int64_t P = (int64_t)json_array_size(prompt), i = m->n,
                  n = P + (int64_t)json_array_size(o->ids[c]);
    struct ax_run_rows row = {.least = 1};
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&row.ids.v, (size_t)n, sizeof *row.ids.v), st, done);
    AX_TRY_GOTO(ax_alloc(&row.scored.v, (size_t)n, sizeof *row.scored.v), st, done);
    put_ids(prompt, row.ids.v);
    put_ids(o->ids[c], row.ids.v + P);
    if (!o->masks || ax_run_terminated(o, c))
        put_spans(json_array_get(json_object_get(record, "model_tokens"), which), row.scored.v + P);
    AX_TRY_GOTO(ax_run_micro_add(m, &row, 0, n, i * width - P + 1), st, done);
    m->recorded_answer[i] = i * width - P + 1;
    m->prompt[i] = P;
    m->advantage[i] = (float)o->advantage[c];
done:
    ax_run_rows_close(&row);
    return st;
}

enum ax_status ax_run_read_turns(struct ax_run *r, int k, struct ax_run_micro *m) {
    const int64_t width = width_of(r, k);
    for (int i = 0; i < r->rollouts.rows; i++)
        AX_TRY(add_completion(r, m, ax_run_completion_of(r, k, i), width));
    return AX_OK;
}

/* ---- what the product makes of the turns ---- */

struct play {
    struct ax_run *r;
    struct ax_tokenizer *tokenizer;
    struct ax_template *template;
    json_t *special;
    const json_t *tools;
    struct ax_stop_tokens stop;
    struct ax_tool_chat chat;
    struct ax_episode_rules rules;
    int64_t cap;
    int32_t *ids;
    bool *inserted;
};

static enum ax_status open_play(struct play *p) {
    const struct ax_json root = ax_json_root(&p->r->doc);
    const char *model;
    char *dir;
    AX_TRY(ax_json_str(ax_json_get(root, "model"), &model));
    AX_TRY(ax_run_path(p->r, model, &dir));
    enum ax_status st = ax_tokenizer_load(&p->tokenizer, dir);
    if (st == AX_OK)
        st = ax_template_folder_tokens(&p->special, dir);
    if (st == AX_OK)
        st = ax_template_from_folder(&p->template, dir, NULL, true);
    if (st == AX_OK)
        st = ax_stop_tokens_read(&p->stop, dir, ax_tokenizer_special_id(p->tokenizer, AX_EOS));
    ax_free(dir);
    AX_TRY(st);
    p->tools = ax_json_get(root, "tools").v;
    p->chat = (struct ax_tool_chat){.template = p->template,
                                    .tokens = p->special,
                                    .tokenizer = p->tokenizer,
                                    .tools = p->tools,
                                    .n_stop = p->stop.n,
                                    .stop = p->stop.ids,
                                    .now = RECORDED};
    p->rules = (struct ax_episode_rules){.chat = &p->chat, .ends = true};
    AX_TRY(ax_json_i64_or(ax_run_setting(p->r, "max_tool_calling_iterations"), 1, INT32_MAX, -1,
                          &p->rules.max_rounds));
    AX_TRY(ax_json_i64(ax_run_setting(p->r, "max_completion_length"), 1, 1 << 20, &p->cap));
    AX_TRY(ax_alloc(&p->ids, (size_t)p->cap, sizeof *p->ids));
    AX_TRY(ax_alloc(&p->inserted, (size_t)p->cap, sizeof *p->inserted));
    return p->tools ? ax_tool_chat_open(&p->chat, NULL) : AX_OK;
}

static void close_play(struct play *p) {
    ax_tokenizer_free(p->tokenizer);
    ax_template_free(p->template);
    json_decref(p->special);
    ax_free(p->ids);
    ax_free(p->inserted);
}

/* ---- a completion ---- */

static const char async[] = "stock";

static bool has_tool(const json_t *tools, const char *name) {
    size_t i;
    const json_t *tool;
    json_array_foreach(tools, i, tool) {
        const json_t *f = json_object_get(tool, "function");
        if (strcmp(json_string_value(json_object_get(f, "name")), name) == 0)
            return true;
    }
    return false;
}

/* The results that were recorded after message `at`, in the order of calls. TRL has those of an asynchronous function
 * last, if it is among the tools (`waits`). A result that did not fit is in no message: a long one is played. */
static enum ax_status take_results(const json_t *calls, const json_t *messages, size_t at,
                                   bool waits, struct ax_tool_result *out) {
    size_t next = at;
    for (int late = 0; late < 2; late++)
        for (size_t i = 0; i < json_array_size(calls); i++) {
            const json_t *f = json_object_get(json_array_get(calls, i), "function");
            const char *name = json_string_value(json_object_get(f, "name"));
            if ((waits && strcmp(name, async) == 0) != (late > 0))
                continue;
            const json_t *m = json_array_get(messages, next++);
            const json_t *content = json_object_get(m, "content");
            const bool known =
                strcmp("tool", m ? json_string_value(json_object_get(m, "role")) : "") == 0;
            char *dropped = NULL;
            if (!known)
                AX_TRY(ax_sprintf(&dropped, "%01000d", 0));
            out[i].late = late > 0;
            out[i].failed = known && strncmp(json_string_value(content), "{'error': ", 10) == 0;
            AX_TRY(ax_tool_result_set(&out[i], known ? json_string_value(content) : dropped,
                                      known ? json_string_length(content) : 1000));
            ax_free(dropped);
        }
    return AX_OK;
}

static enum ax_status answer(struct play *p, struct ax_episode *e, const json_t *messages,
                             bool *goes_on) {
    const size_t n = json_array_size(e->calls);
    struct ax_tool_result *results;
    AX_TRY(ax_alloc(&results, n, sizeof *results));
    enum ax_status st = take_results(e->calls, messages, json_array_size(e->messages),
                                     has_tool(p->tools, async), results);
    if (st == AX_OK)
        st = ax_episode_answer(e, &p->rules, results, goes_on);
    for (size_t i = 0; i < n; i++)
        ax_free(results[i].text);
    ax_free(results);
    return st;
}

/* The next turn, cut where the completion's room ends. */
static enum ax_status play_turn(struct play *p, struct ax_episode *e, const json_t *turn) {
    const int64_t all = (int64_t)json_array_size(turn), room = e->cap - e->n,
                  n = all < room ? all : room;
    bool stopped = false;
    for (int64_t t = 0; t < n; t++)
        e->ids[e->n + t] = (int32_t)json_integer_value(json_array_get(turn, (size_t)t));
    for (int k = 0; k < p->stop.n; k++)
        stopped = stopped || e->ids[e->n + n - 1] == p->stop.ids[k];
    return ax_episode_turn(e, &p->rules, n, stopped);
}

static void compare(struct play *p, const struct ax_episode *e, int64_t c) {
    const struct ax_run_rollouts *o = &p->r->rollouts;
    size_t which;
    const json_t *record = ax_run_record_of(o, c, &which), *want = o->ids[c];
    const json_t *messages = json_array_get(json_object_get(record, "messages"), which);
    double ids = fabs((double)json_array_size(want) - (double)e->n), spans = 0, *own;
    char where[64];
    snprintf(where, sizeof where, "completion %lld", (long long)c + 1);
    if (ax_alloc(&own, (size_t)p->cap, sizeof *own) != AX_OK)
        return;
    put_spans(json_array_get(json_object_get(record, "model_tokens"), which), own);
    for (int64_t t = 0; t < e->n; t++) {
        ids += json_integer_value(json_array_get(want, (size_t)t)) != e->ids[t];
        spans += (own[t] > 0) == e->inserted[t];
    }
    ax_free(own);
    ax_golden_note(p->r->report, "tokens of completions that differ", ids, 0, where);
    ax_golden_note(p->r->report, "tokens that are taken for the model's", spans, 0, where);
    ax_golden_note(p->r->report, "conversations that differ", !json_equal(e->messages, messages), 0,
                   where);
}

static enum ax_status play_completion(struct play *p, int64_t c) {
    struct ax_run_rollouts *o = &p->r->rollouts;
    size_t which;
    const json_t *record = ax_run_record_of(o, c, &which);
    const json_t *turns = json_array_get(json_object_get(record, "turn_ids"), which);
    const json_t *messages = json_array_get(json_object_get(record, "messages"), which);
    struct ax_episode e = {.ids = p->ids, .inserted = p->inserted, .cap = p->cap};
    bool goes_on = true;
    memset(p->inserted, 0, (size_t)p->cap * sizeof *p->inserted);
    enum ax_status st = ax_episode_begin(&e);
    for (size_t k = 0; st == AX_OK && goes_on && k < json_array_size(turns); k++) {
        st = play_turn(p, &e, json_array_get(turns, k));
        goes_on = false;
        if (st == AX_OK && e.calls)
            st = answer(p, &e, messages, &goes_on);
    }
    if (st == AX_OK)
        compare(p, &e, c);
    o->calls[c] = e.n_calls;
    o->failed[c] = e.n_failed;
    ax_episode_free(&e);
    return st;
}

/* ---- prompts ---- */

static enum ax_status compare_prompt(struct play *p, const struct ax_format *f, int64_t i) {
    const struct ax_run_rollouts *o = &p->r->rollouts;
    struct ax_example_list list = {0};
    struct ax_format_work w = {.observation =
                                   json_string_value(json_object_get(o->records[i], "reset"))};
    const json_t *want = json_object_get(o->records[i], "prompt_ids");
    json_t *record = json_deep_copy(o->records[i]);
    char where[64];
    snprintf(where, sizeof where, "record %lld", (long long)i + 1);
    const enum ax_status st = ax_format_record(f, &w, record, (struct ax_origin){.line = 1}, &list);
    double differ = fabs((double)json_array_size(want) - (double)list.n_tokens);
    for (size_t t = 0; t < list.n_tokens && t < json_array_size(want); t++)
        differ += list.tokens[t] != json_integer_value(json_array_get(want, t));
    ax_golden_note(p->r->report, "tokens of prompts that differ", differ, 0, where);
    ax_format_work_free(&w);
    ax_example_list_free(&list);
    json_decref(record);
    return st;
}

static enum ax_status compare_prompts(struct play *p) {
    static const struct ax_name_map properties[] = {{"role", "role"}, {"content", "content"}};
    const struct ax_format_chat chat = {.template = p->template,
                                        .tokens = p->special,
                                        .tools = p->tools,
                                        .field_messages = "messages",
                                        .field_tools = "tools",
                                        .properties = properties,
                                        .n_properties = 2,
                                        .thinking_key = "reasoning_content",
                                        .now = RECORDED};
    const struct ax_format_answers answers = {0};
    const struct ax_format_options o = {.task = AX_TASK_PROMPT,
                                        .tokenizer = p->tokenizer,
                                        .sequence_len = 1 << 20,
                                        .chat = &chat,
                                        .answers = &answers};
    struct ax_format *f;
    AX_TRY(ax_format_new(&f, &o));
    enum ax_status st = AX_OK;
    for (int64_t i = 0; st == AX_OK && i < p->r->rollouts.n / p->r->rollouts.o.group; i++)
        st = compare_prompt(p, f, i);
    ax_format_free(f);
    return st;
}

enum ax_status ax_run_compare_turns(struct ax_run *r) {
    struct play p = {.r = r};
    const size_t n = (size_t)r->rollouts.n;
    enum ax_status st;
    AX_TRY_GOTO(open_play(&p), st, done);
    AX_TRY_GOTO(compare_prompts(&p), st, done);
    if (!p.tools)
        goto done;
    AX_TRY_GOTO(ax_alloc(&r->rollouts.calls, n, sizeof *r->rollouts.calls), st, done);
    AX_TRY_GOTO(ax_alloc(&r->rollouts.failed, n, sizeof *r->rollouts.failed), st, done);
    for (size_t c = 0; c < n; c++)
        AX_TRY_GOTO(play_completion(&p, (int64_t)c), st, done);
done:
    close_play(&p);
    return st;
}
