/* `axtrain eval --task`: lm-evaluation-harness in a Python process. It makes the prompts and the numbers,
 * and asks for what the model says; harness.py has its side and the lines between them. Read run_all first.
 *
 * Rank 0 talks with it, and shares what needs the model with the other ranks. */
#include "cmd/eval/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text/json.h"
#include "cmd/eval/harness_report.h"
#include "cmd/text_args.h"
#include "data/reward/child.h"
#include "model/text/text_requests.h"

#define TESTED "0.4.13" /* version of the harness */
#define SILENT_SECONDS                                                                             \
    (6 * 3600.0) /* longest time between two lines: data sets may be downloaded */
#define MAX_LINE    ((size_t)256 << 20)  /* bytes of a line */
#define MAX_SAMPLES ((size_t)2048 << 20) /* bytes of --log-samples */
#define MAX_ITEMS   ((size_t)1 << 26)    /* requests in a list */

/* The text of harness.py. */
__asm__(".pushsection .rodata\n"
        ".global ax_harness_script, ax_harness_script_end\n"
        "ax_harness_script: .incbin \"cmd/eval/harness.py\"\n"
        "ax_harness_script_end: .byte 0\n"
        ".popsection\n");
extern const char ax_harness_script[], ax_harness_script_end[];

struct harness {
    const struct ax_harness_options *o;
    struct ax_text_model model;
    const struct ax_text_side *side;
    int64_t max_length;
    struct ax_child child;
    struct ax_buf line, reply, samples; /* what it said last; what it is told next; --log-samples */
    struct ax_text_requests_counters counters;
    json_t *results;
    bool ended;
    /* the list that is arriving */
    const struct kind *kind; /* NULL: none */
    struct ax_text_requests requests;
    struct ax_text_generation generation;
    size_t n;
};

static int adapter_of(const struct harness *h) {
    return h->model.adapters.n > 0 ? 0 : AX_ADAPTER_NONE;
}

/* ---- lists of requests ---- */

static void close_list(struct harness *h) {
    for (size_t i = 0; i < h->generation.n_until; i++)
        ax_free(h->generation.until[i]);
    ax_free(h->generation.until);
    ax_text_requests_free(&h->requests);
    h->generation = (struct ax_text_generation){0};
    h->kind = NULL;
    h->n = 0;
}

static enum ax_status text_of(struct ax_json v, struct ax_buf *out) {
    if (!json_is_string(v.v))
        return ax_json_error(v, "expected text");
    out->len = 0;
    return ax_buf_append(out, json_string_value(v.v), json_string_length(v.v));
}

static enum ax_status add_score(struct harness *h, struct ax_json v) {
    struct ax_buf context = {0}, continuation = {0};
    enum ax_status st = text_of(ax_json_at(v, 0), &context);
    if (st == AX_OK)
        st = text_of(ax_json_at(v, 1), &continuation);
    if (st == AX_OK)
        st = ax_text_requests_add_pair(&h->requests, h->n, &context, &continuation);
    ax_buf_free(&context);
    ax_buf_free(&continuation);
    return st;
}

static enum ax_status add_alone(struct harness *h, struct ax_json v) {
    struct ax_buf text = {0};
    enum ax_status st = text_of(v, &text);
    if (st == AX_OK)
        st = h->requests.generation
                 ? ax_text_requests_add_prompt(&h->requests, h->n, text.data, text.len)
                 : ax_text_requests_add_windows(&h->requests, h->n, text.data, text.len);
    ax_buf_free(&text);
    return st;
}

/* How a list is answered: the settings beside it. */
static enum ax_status read_generation(struct harness *h, struct ax_json root) {
    struct ax_text_generation *g = &h->generation;
    const struct ax_json until = ax_json_get(root, "until");
    AX_TRY(ax_json_i64(ax_json_get(root, "max_tokens"), 1, 1 << 24, &g->max_tokens));
    AX_TRY(ax_json_f64(ax_json_get(root, "temperature"), &g->temperature));
    AX_TRY(ax_json_f64(ax_json_get(root, "top_p"), &g->top_p));
    AX_TRY(ax_json_i64(ax_json_get(root, "top_k"), 0, INT32_MAX, &g->top_k));
    if (!(g->temperature >= 0 && g->top_p > 0 && g->top_p <= 1))
        return ax_json_error(root, "expected a temperature ≥ 0 and a top_p from 0 to 1");
    g->top_p = g->top_p < 1 ? g->top_p : 0;
    AX_TRY(ax_alloc(&g->until, ax_json_size(until), sizeof(char *)));
    for (size_t i = 0; i < ax_json_size(until); i++) {
        const char *text;
        AX_TRY(ax_json_str(ax_json_at(until, i), &text));
        AX_TRY(ax_strdup(&g->until[i], text));
        g->n_until++;
    }
    return AX_OK;
}

/* ---- what the model says ---- */

static enum ax_status put_number(struct ax_buf *out, double x) {
    if (!isfinite(x))
        return ax_error(AX_ERR_DATA, "the model's log-likelihood is not finite");
    return ax_buf_printf(out, "%.17g", x);
}

static enum ax_status put_scores(struct harness *h, struct ax_buf *out) {
    for (size_t i = 0; i < h->requests.n; i++) {
        const struct ax_text_request *q = &h->requests.list[i];
        AX_TRY(ax_buf_puts(out, i > 0 ? ",[" : "["));
        AX_TRY(put_number(out, q->loglikelihood));
        AX_TRY(ax_buf_puts(out, q->greedy ? ",true]" : ",false]"));
    }
    return AX_OK;
}

/* A text's windows follow each other. */
static enum ax_status put_sums(struct harness *h, struct ax_buf *out) {
    const struct ax_text_request *q = h->requests.list, *end = q + h->requests.n;
    for (size_t i = 0; i < h->n; i++) {
        double sum = 0;
        for (; q < end && q->item == i; q++)
            sum += q->loglikelihood;
        AX_TRY(ax_buf_puts(out, i > 0 ? "," : ""));
        AX_TRY(put_number(out, sum));
    }
    return AX_OK;
}

/* Consumes v; `why`: what NULL means. */
static enum ax_status put_json(struct ax_buf *out, json_t *v, const char *end, const char *why) {
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(v);
    if (!text)
        return ax_error(AX_ERR_DATA, "%s, or out of memory", why);
    const enum ax_status st = ax_buf_printf(out, "%s%s", text, end);
    ax_free_hook(text);
    return st;
}

static enum ax_status put_text(struct ax_buf *out, const char *text, size_t n) {
    return put_json(out, json_stringn(text, n), "", "a text is not UTF-8");
}

static enum ax_status put_answers(struct harness *h, struct ax_buf *out) {
    for (size_t i = 0; i < h->requests.n; i++) {
        AX_TRY(ax_buf_puts(out, i > 0 ? "," : ""));
        AX_TRY(put_text(out, h->requests.answers[i].data, h->requests.answers[i].len));
    }
    return AX_OK;
}

/* ---- kinds of lines ---- */

struct kind {
    const char *key;
    enum ax_status (*add)(struct harness *h, struct ax_json v);
    enum ax_status (*put)(struct harness *h, struct ax_buf *out);
    bool generates;
};
static const struct kind lists[] = {{"score", add_score, put_scores, false},
                                    {"roll", add_alone, put_sums, false},
                                    {"generate", add_alone, put_answers, true}};

static const struct kind *list_kind(struct ax_json root) {
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (ax_json_get(root, lists[i].key).v)
            return &lists[i];
    return NULL;
}

static enum ax_status open_list(struct harness *h, const struct kind *k, struct ax_json root) {
    h->kind = k;
    if (k->generates)
        AX_TRY(read_generation(h, root));
    return ax_text_requests_open(&h->requests, h->side, h->max_length,
                                 k->generates ? &h->generation : NULL);
}

static enum ax_status answer_list(struct harness *h) {
    const struct ax_text_requests_options o = {
        .lanes = h->o->batch, .seed = (uint64_t)h->o->seed, .adapter = adapter_of(h)};
    AX_TRY(ax_text_requests_run(&h->requests, &h->model, &o, &h->counters));
    AX_TRY(ax_buf_puts(&h->reply, "{\"values\":["));
    AX_TRY(h->kind->put(h, &h->reply));
    AX_TRY(ax_buf_puts(&h->reply, "]}\n"));
    close_list(h);
    return AX_OK;
}

static enum ax_status take_list(struct harness *h, const struct kind *k, struct ax_json root) {
    const struct ax_json items = ax_json_get(root, k->key);
    bool more;
    AX_TRY(ax_json_bool(ax_json_get(root, "more"), &more));
    if (!json_is_array(items.v) || (h->kind && h->kind != k))
        return ax_json_error(items, "expected a list, and all of it before another");
    if (h->n + ax_json_size(items) > MAX_ITEMS)
        return ax_json_error(items, "more than %zu requests", MAX_ITEMS);
    if (!h->kind)
        AX_TRY(open_list(h, k, root));
    for (size_t i = 0; i < ax_json_size(items); i++, h->n++) {
        const enum ax_status st = k->add(h, ax_json_at(items, i));
        if (st != AX_OK)
            return ax_error_prefix(st, "%s: request %zu of the harness", k->key, h->n);
    }
    return more ? ax_buf_puts(&h->reply, "{}\n") : answer_list(h);
}

/* ---- what rank 0 answers alone ---- */

static bool is_role(struct ax_json message, const char *role) {
    const char *text = json_string_value(ax_json_get(message, "role").v);
    return text && strcmp(text, role) == 0;
}

/* An answer that has begun is left open. As in the harness, a system message that the template refuses is left out. */
static enum ax_status render_text(struct harness *h, struct ax_json messages,
                                  struct ax_template_output *text) {
    json_t *list = (json_t *)(uintptr_t)messages.v;
    const size_t n = ax_json_size(messages);
    const struct ax_chat_prompt p = {
        .messages = list, .continues = is_role(ax_json_at(messages, n - 1), "assistant")};
    const enum ax_status st = ax_text_side_render_chat(h->side, &p, text);
    if (st != AX_ERR_DATA || n < 2 || !is_role(ax_json_at(messages, 0), "system"))
        return st;
    json_array_remove(list, 0);
    return ax_text_side_render_chat(h->side, &p, text);
}

static enum ax_status render(struct harness *h, struct ax_json messages) {
    struct ax_template_output text = {0};
    if (!h->o->chat || ax_json_size(messages) == 0)
        return ax_json_error(messages, "expected messages, with --apply-chat-template");
    enum ax_status st = render_text(h, messages, &text);
    if (st == AX_OK)
        st = ax_buf_puts(&h->reply, "{\"text\":");
    if (st == AX_OK)
        st = put_text(&h->reply, text.text, text.len);
    if (st == AX_OK)
        st = ax_buf_puts(&h->reply, "}\n");
    ax_template_output_free(&text);
    return st;
}

static enum ax_status take_samples(struct harness *h, struct ax_json list) {
    for (size_t i = 0; i < ax_json_size(list); i++) {
        json_t *v = (json_t *)(uintptr_t)ax_json_at(list, i).v;
        AX_TRY(put_json(&h->samples, json_incref(v), "\n", "a sample is not JSON"));
        if (h->samples.len > MAX_SAMPLES)
            return ax_error(AX_ERR_DATA, "--log-samples: more than %zu MiB; evaluate fewer records",
                            MAX_SAMPLES >> 20);
    }
    return ax_buf_puts(&h->reply, "{}\n");
}

static const char *python_of(void) {
    const char *set = getenv("AXTRAIN_PYTHON");
    return set && *set ? set : "python3";
}

static enum ax_status take_error(struct ax_json root) {
    const char *text;
    bool missing;
    AX_TRY(ax_json_str(ax_json_get(root, "error"), &text));
    AX_TRY(ax_json_bool_or(ax_json_get(root, "missing"), false, &missing));
    if (missing)
        return ax_error(AX_ERR_CONFIG,
                        "--task: %s has no lm_eval. Install it with `%s -m pip install "
                        "lm_eval==" TESTED "`, or name another Python in AXTRAIN_PYTHON",
                        python_of(), python_of());
    return ax_error(AX_ERR_FAILED, "lm_eval: %s", text);
}

static enum ax_status take_results(struct harness *h, struct ax_json root) {
    const char *version;
    AX_TRY(ax_json_str(ax_json_get(root, "lm_eval"), &version));
    if (strcmp(version, TESTED) != 0)
        ax_log_warn("lm_eval %s is installed; this program was tested with " TESTED, version);
    h->results = json_incref((json_t *)(uintptr_t)root.v);
    h->ended = true;
    return ax_harness_check(root);
}

static enum ax_status take_line(struct harness *h, struct ax_json root) {
    const struct kind *k = list_kind(root);
    if (k)
        return take_list(h, k, root);
    if (ax_json_get(root, "render").v)
        return render(h, ax_json_get(root, "render"));
    if (ax_json_get(root, "samples").v)
        return take_samples(h, ax_json_get(root, "samples"));
    return ax_json_get(root, "error").v ? take_error(root) : take_results(h, root);
}

/* ---- the conversation ---- */

static json_t *text_or_null(const char *text) {
    return text ? json_string(text) : json_null();
}

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

static enum ax_status put_settings(const struct ax_harness_options *o, struct ax_buf *out) {
    json_t *v =
        json_pack("{so so so so so sb sb sb sI}", "tasks", names_of(&o->tasks), "include_path",
                  text_or_null(o->include_path), "num_fewshot",
                  o->num_fewshot >= 0 ? json_integer((json_int_t)o->num_fewshot) : json_null(),
                  "rows", o->max_rows > 0 ? json_integer((json_int_t)o->max_rows) : json_null(),
                  "system", text_or_null(o->system), "chat", o->chat, "single_turn", o->single_turn,
                  "samples", o->samples != NULL, "seed", (json_int_t)o->seed);
    return put_json(out, v, "\n", "--task: a name is not UTF-8");
}

static enum ax_status start(struct harness *h) {
    const size_t n = (size_t)(ax_harness_script_end - ax_harness_script);
    h->child.what = "harness";
    const enum ax_status st = ax_child_start_python(&h->child, "/proc/self/exe", python_of());
    if (st != AX_OK) {
        char why[512];
        snprintf(why, sizeof why, "%s", ax_error_text());
        return ax_error(st, "--task: %s. Install Python, or name one in AXTRAIN_PYTHON", why);
    }
    AX_TRY(ax_buf_printf(&h->reply, "%zu\n", n));
    AX_TRY(ax_buf_append(&h->reply, ax_harness_script, n));
    return put_settings(h->o, &h->reply);
}

/* Tells the reply, and waits for the next line. */
static enum ax_status ask(struct harness *h) {
    struct ax_reward_outcome outcome;
    const struct ax_question q = {.who = "lm_eval",
                                  .text = h->reply.data,
                                  .n = h->reply.len,
                                  .max_answer = MAX_LINE,
                                  .seconds = SILENT_SECONDS};
    AX_TRY(ax_child_ask(&h->child, &q, &outcome));
    h->reply.len = h->line.len = 0;
    if (outcome.failure != AX_REWARD_FINE)
        return ax_error(AX_ERR_FAILED, "lm_eval has ended without results: %s", outcome.text);
    return ax_buf_append(&h->line, h->child.line.data, h->child.line.len);
}

static enum ax_status step(struct harness *h) {
    const bool leads = ax_ranks_lead(h->o->ranks);
    struct ax_json_doc doc = {0};
    bool shared = false;
    if (leads)
        AX_TRY(ask(h));
    if (leads) {
        AX_TRY(ax_json_parse(&doc, "lm_eval", h->line.data, h->line.len));
        shared = list_kind(ax_json_root(&doc)) != NULL;
    }
    enum ax_status st = AX_OK;
    if (leads && !shared) {
        st = take_line(h, ax_json_root(&doc));
        h->line.len = 0; /* others hear of the end */
    }
    if (st == AX_OK && (shared || h->ended || !leads))
        st = ax_ranks_share(h->o->ranks, &h->line);
    if (st == AX_OK && !leads && h->line.len > 0)
        st = ax_json_parse(&doc, "lm_eval", h->line.data, h->line.len);
    if (st == AX_OK && doc.root && (shared || !leads))
        st = take_line(h, ax_json_root(&doc));
    h->ended = h->ended || (!leads && h->line.len == 0);
    if (!leads)
        h->reply.len = 0;
    ax_json_free(&doc);
    return st;
}

static enum ax_status open_model(struct harness *h) {
    struct ax_text_args args;
    struct ax_arg unused[AX_TEXT_ARGS_COUNT];
    ax_text_args_table(&args, unused);
    args.o.model = h->o->model;
    args.o.base = h->o->base;
    args.o.adapters = *h->o->adapters;
    args.dtype = h->o->dtype;
    args.threads = h->o->threads;
    if (args.o.adapters.n > 1)
        return ax_error(AX_ERR_CONFIG, "--adapter: a task takes one adapter at a time");
    AX_TRY(ax_text_args_open(&h->model, &args, h->o->ranks));
    const int64_t most = h->model.arch.max_positions;
    h->side = ax_text_model_side(&h->model, adapter_of(h));
    h->max_length = h->o->max_length > 0 ? h->o->max_length : most;
    if (h->max_length > most)
        return ax_error(AX_ERR_CONFIG, "--max-length: %lld is more than the model's %lld positions",
                        (long long)h->max_length, (long long)most);
    return h->o->chat ? ax_text_side_need_template(h->side) : AX_OK;
}

/* ---- what comes out ---- */

static enum ax_status put_all(const struct harness *h, struct ax_buf *out) {
    const struct ax_text_requests_counters *c = &h->counters;
    json_t *v =
        json_pack("{ss ss sI sI sI sI sf}", "what", "eval", "model", h->o->model, "requests",
                  (json_int_t)c->requests, "prompt_tokens", (json_int_t)c->prompt_tokens,
                  "shared_tokens", (json_int_t)c->shared_tokens, "generated_tokens",
                  (json_int_t)c->generated_tokens, "seconds", c->seconds);
    char *text = NULL;
    size_t len;
    enum ax_status st = AX_OK;
    (void)json_object_del(h->results, "alias");
    if (!v || json_object_update(v, h->results) != 0)
        st = ax_error(AX_ERR_NOMEM, "out of memory for the result");
    if (st == AX_OK)
        st = ax_json_dump(v, &text, &len);
    if (st == AX_OK)
        st = ax_buf_printf(out, "%s\n", text);
    ax_free(text);
    json_decref(v);
    return st;
}

static enum ax_status put_table(const struct harness *h, struct ax_buf *out) {
    const struct ax_text_requests_counters *c = &h->counters;
    char fed[32], shared[32];
    AX_TRY(ax_harness_table(h->results, out));
    return ax_buf_printf(out,
                         "\n%lld requests in %.1f s: %s prompt tokens computed, %s shared; %s\n",
                         (long long)c->requests, c->seconds,
                         ax_format_count(fed, sizeof fed, (double)c->prompt_tokens),
                         ax_format_count(shared, sizeof shared, (double)c->shared_tokens),
                         ax_dtype_info(h->model.dtype)->name);
}

/* ---- the run ---- */

static enum ax_status run_all(struct harness *h, struct ax_buf *out) {
    AX_TRY(open_model(h));
    if (ax_ranks_lead(h->o->ranks))
        AX_TRY(start(h));
    while (!h->ended)
        AX_TRY(step(h));
    if (!ax_ranks_lead(h->o->ranks))
        return AX_OK;
    if (h->o->samples)
        AX_TRY(ax_write_file_atomic(h->o->samples, h->samples.data ? h->samples.data : "",
                                    h->samples.len));
    return h->o->json ? put_all(h, out) : put_table(h, out);
}

enum ax_status ax_harness_run(const struct ax_harness_options *o, struct ax_buf *out) {
    struct harness *h;
    AX_TRY(ax_alloc(&h, 1, sizeof *h));
    h->o = o;
    const enum ax_status st = run_all(h, out);
    struct ax_error_record record;
    ax_error_save(&record, st);
    ax_child_end(&h->child, "lm_eval", st == AX_OK ? AX_CHILD_END_SECONDS : 0);
    close_list(h);
    ax_buf_free(&h->line);
    ax_buf_free(&h->reply);
    ax_buf_free(&h->samples);
    json_decref(h->results);
    ax_text_model_close(&h->model);
    ax_free(h);
    return ax_error_restore(&record);
}
