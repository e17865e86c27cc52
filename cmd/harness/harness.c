/* The conversation with lm-evaluation-harness; harness.py has its side, and the lines between them. Read run_all first.
 *
 * Rank 0 talks with it, and shares what needs the model with the other ranks. */
#include "cmd/harness/harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text/json.h"
#include "cmd/harness/report.h"
#include "data/reward/child.h"

#define TESTED "0.4.13" /* version of the harness */
#define SILENT_SECONDS                                                                             \
    (6 * 3600.0) /* longest time between two lines: data sets may be downloaded */
#define MAX_LINE    ((size_t)256 << 20)  /* bytes of a line */
#define MAX_SAMPLES ((size_t)2048 << 20) /* bytes of --log-samples */
#define MAX_ITEMS   ((size_t)1 << 26)    /* requests in a list */

/* The text of harness.py. */
__asm__(".pushsection .rodata\n"
        ".global ax_harness_script, ax_harness_script_end\n"
        "ax_harness_script: .incbin \"cmd/harness/harness.py\"\n"
        "ax_harness_script_end: .byte 0\n"
        ".popsection\n");
extern const char ax_harness_script[], ax_harness_script_end[];

struct harness {
    const struct ax_harness_options *o;
    struct ax_child child;
    struct ax_buf line, reply; /* what it said last; what it is told next */
    json_t *results;
    bool only_try, ended;
    struct ax_error_record failure; /* its own, on this rank; st AX_OK: none */
    /* the list that is arriving */
    const struct kind *kind; /* NULL: none */
    struct ax_text_requests requests;
    struct ax_text_generation generation;
    size_t n;
};

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
    return ax_text_requests_open(&h->requests, h->o->side, h->o->max_length,
                                 k->generates ? &h->generation : NULL);
}

/* Adds the line's requests; *more: others of the list follow. */
static enum ax_status add_list(struct harness *h, struct ax_json root, bool *more) {
    const struct kind *k = list_kind(root);
    const struct ax_json items = ax_json_get(root, k->key);
    AX_TRY(ax_json_bool(ax_json_get(root, "more"), more));
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
    return AX_OK;
}

static enum ax_status put_values(struct harness *h) {
    AX_TRY(ax_buf_puts(&h->reply, "{\"values\":["));
    AX_TRY(h->kind->put(h, &h->reply));
    return ax_buf_puts(&h->reply, "]}\n");
}

/* Takes a failure of the harness, and not of the model, which all ranks have alike or rank 0 tells them. */
static void fail(struct harness *h, enum ax_status st) {
    if (st == AX_OK)
        return;
    ax_error_save(&h->failure, st);
    ax_error_clear();
    h->ended = true;
}

static enum ax_status take_list(struct harness *h, struct ax_json root) {
    bool more = false;
    fail(h, add_list(h, root, &more));
    if (h->ended)
        return AX_OK;
    if (more)
        return ax_buf_puts(&h->reply, "{}\n");
    if (h->requests.n > 0)
        AX_TRY(h->o->answer(h->o->ctx, &h->requests));
    fail(h, put_values(h));
    close_list(h);
    return AX_OK;
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
    const enum ax_status st = ax_text_side_render_chat(h->o->side, &p, text);
    if (st != AX_ERR_DATA || n < 2 || !is_role(ax_json_at(messages, 0), "system"))
        return st;
    json_array_remove(list, 0);
    return ax_text_side_render_chat(h->o->side, &p, text);
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
    if (!h->o->samples)
        return ax_json_error(list, "expected none, without --log-samples");
    for (size_t i = 0; i < ax_json_size(list); i++) {
        json_t *v = (json_t *)(uintptr_t)ax_json_at(list, i).v;
        AX_TRY(put_json(h->o->samples, json_incref(v), "\n", "a sample is not JSON"));
        if (h->o->samples->len > MAX_SAMPLES)
            return ax_error(AX_ERR_DATA, "--log-samples: more than %zu MiB; evaluate fewer records",
                            MAX_SAMPLES >> 20);
    }
    return ax_buf_puts(&h->reply, "{}\n");
}

static const char *python_of(void) {
    const char *set = getenv("AXTRAIN_PYTHON");
    return set && *set ? set : "python3";
}

static enum ax_status take_error(const struct harness *h, struct ax_json root) {
    const char *text;
    bool missing;
    AX_TRY(ax_json_str(ax_json_get(root, "error"), &text));
    AX_TRY(ax_json_bool_or(ax_json_get(root, "missing"), false, &missing));
    if (missing)
        return ax_error(AX_ERR_CONFIG,
                        "%s: %s has no lm_eval. Install it with `%s -m pip install "
                        "lm_eval==" TESTED "`, or name another Python in AXTRAIN_PYTHON",
                        h->o->option, python_of(), python_of());
    return ax_error(AX_ERR_FAILED, "lm_eval: %s", text);
}

static enum ax_status take_results(struct harness *h, struct ax_json root) {
    const char *version;
    AX_TRY(ax_json_str(ax_json_get(root, "lm_eval"), &version));
    if (strcmp(version, TESTED) != 0)
        ax_log_warn("lm_eval %s is installed; this program was tested with " TESTED, version);
    h->ended = true;
    AX_TRY(ax_harness_check(root));
    h->results = json_incref((json_t *)(uintptr_t)root.v);
    return AX_OK;
}

static enum ax_status take_line(struct harness *h, struct ax_json root) {
    if (ax_json_get(root, "render").v)
        return render(h, ax_json_get(root, "render"));
    if (ax_json_get(root, "samples").v)
        return take_samples(h, ax_json_get(root, "samples"));
    if (h->only_try && ax_json_get(root, "tried").v) {
        h->ended = true;
        return AX_OK;
    }
    return ax_json_get(root, "error").v ? take_error(h, root) : take_results(h, root);
}

/* ---- the conversation ---- */

static json_t *text_or_null(const char *text) {
    return text ? json_string(text) : json_null();
}

static enum ax_status put_settings(const struct harness *h, struct ax_buf *out) {
    const struct ax_harness_options *o = h->o;
    json_t *v =
        json_pack("{sO so so so so sb sb sb sI sb}", "tasks", o->tasks, "include_path",
                  text_or_null(o->include_path), "num_fewshot",
                  o->num_fewshot >= 0 ? json_integer((json_int_t)o->num_fewshot) : json_null(),
                  "rows", o->max_rows > 0 ? json_integer((json_int_t)o->max_rows) : json_null(),
                  "system", text_or_null(o->system), "chat", o->chat, "single_turn", o->single_turn,
                  "samples", o->samples != NULL, "seed", (json_int_t)o->seed, "try", h->only_try);
    return put_json(out, v, "\n", "a name or a text of the options is not UTF-8");
}

static enum ax_status start(struct harness *h) {
    const size_t n = (size_t)(ax_harness_script_end - ax_harness_script);
    h->child.what = "harness";
    const enum ax_status st = ax_child_start_python(&h->child, "/proc/self/exe", python_of());
    if (st != AX_OK) {
        char why[512];
        snprintf(why, sizeof why, "%s", ax_error_text());
        return ax_error(st, "%s: %s. Install Python, or name one in AXTRAIN_PYTHON", h->o->option,
                        why);
    }
    AX_TRY(ax_buf_printf(&h->reply, "%zu\n", n));
    AX_TRY(ax_buf_append(&h->reply, ax_harness_script, n));
    return put_settings(h, &h->reply);
}

/* Tells the reply, and waits for the next line. */
static enum ax_status ask(struct harness *h) {
    struct ax_reward_outcome outcome;
    const struct ax_question q = {.who = "lm_eval",
                                  .text = h->reply.data,
                                  .n = h->reply.len,
                                  .max_answer = MAX_LINE,
                                  .seconds = SILENT_SECONDS,
                                  .watch = h->o->watch};
    AX_TRY(ax_child_ask(&h->child, &q, &outcome));
    h->reply.len = h->line.len = 0;
    if (outcome.failure != AX_REWARD_FINE)
        return ax_error(AX_ERR_FAILED, "lm_eval has ended without results: %s", outcome.text);
    return ax_buf_append(&h->line, h->child.line.data, h->child.line.len);
}

/* Rank 0 alone: answers lines up to one that needs the model, which is then in h->line. */
static enum ax_status talk(struct harness *h) {
    while (!h->ended) {
        struct ax_json_doc doc;
        AX_TRY(ask(h));
        AX_TRY(ax_json_parse(&doc, "lm_eval", h->line.data, h->line.len));
        const bool needs_model = list_kind(ax_json_root(&doc)) != NULL;
        const enum ax_status st = needs_model ? AX_OK : take_line(h, ax_json_root(&doc));
        ax_json_free(&doc);
        if (st != AX_OK || needs_model)
            return st;
    }
    return AX_OK;
}

/* A line that needs the model: rank 0's, on all ranks. Empty at the end. */
static enum ax_status next_line(struct harness *h, bool *stopped) {
    if (ax_team_leads(h->o->team)) {
        const enum ax_status st = talk(h);
        *stopped = st == AX_INTERRUPTED;
        h->ended = h->ended || *stopped;
        fail(h, *stopped ? AX_OK : st);
        h->line.len = h->ended ? 0 : h->line.len;
    }
    AX_TRY(ax_team_share(h->o->team, stopped, sizeof *stopped));
    return ax_team_share_text(h->o->team, &h->line);
}

static enum ax_status run_all(struct harness *h, bool *stopped) {
    if (ax_team_leads(h->o->team))
        fail(h, start(h));
    for (;;) {
        struct ax_json_doc doc;
        AX_TRY(next_line(h, stopped));
        if (h->line.len == 0)
            return AX_OK;
        AX_TRY(ax_json_parse(&doc, "lm_eval", h->line.data, h->line.len));
        const enum ax_status st = take_list(h, ax_json_root(&doc));
        ax_json_free(&doc);
        AX_TRY(st);
        if (!ax_team_leads(h->o->team))
            h->reply.len = 0;
    }
}

static void close_all(struct harness *h, bool well) {
    ax_child_end(&h->child, "lm_eval", well ? AX_CHILD_END_SECONDS : 0);
    close_list(h);
    ax_buf_free(&h->line);
    ax_buf_free(&h->reply);
    json_decref(h->results);
    ax_free(h);
}

static enum ax_status opened(struct harness **h, const struct ax_harness_options *o,
                             bool only_try) {
    AX_TRY(ax_alloc(h, 1, sizeof **h));
    (*h)->o = o;
    (*h)->only_try = only_try;
    return AX_OK;
}

enum ax_status ax_harness_run(const struct ax_harness_options *o, struct ax_harness_outcome *out) {
    struct harness *h;
    struct ax_error_record error;
    *out = (struct ax_harness_outcome){0};
    AX_TRY(opened(&h, o, false));
    enum ax_status st = run_all(h, &out->stopped);
    if (st == AX_INTERRUPTED) {
        out->stopped = true;
        st = AX_OK;
    }
    ax_error_save(&error, st);
    if (ax_team_leads(o->team) && st == AX_OK && !out->stopped) {
        out->failure = h->failure;
        out->results = h->failure.st == AX_OK ? json_incref(h->results) : NULL;
    }
    close_all(h, out->results != NULL);
    return ax_error_restore(&error);
}

enum ax_status ax_harness_try(const struct ax_harness_options *o) {
    struct harness *h;
    struct ax_error_record error;
    AX_TRY(opened(&h, o, true));
    enum ax_status st = start(h);
    if (st == AX_OK)
        st = talk(h);
    ax_error_save(&error, st);
    close_all(h, st == AX_OK);
    return ax_error_restore(&error);
}
