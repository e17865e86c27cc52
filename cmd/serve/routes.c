/* What each route answers. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text/unicode.h"
#include "cmd/serve/adapters.h"
#include "cmd/serve/answer.h"
#include "cmd/serve/control.h"
#include "cmd/serve/json.h"
#include "cmd/serve/serve.h"

#define LOOK_SECONDS 0.05 /* how often a connection that waits is looked at */
#define LARGE        ((size_t)1 << 20)

/* ---- errors ---- */

static const struct {
    int status;
    const char *type;
} types[] = {{400, "invalid_request_error"}, {401, "authentication_error"},
             {403, "permission_error"},      {404, "not_found_error"},
             {409, "conflict_error"},        {405, "invalid_request_error"},
             {413, "invalid_request_error"}, {415, "invalid_request_error"},
             {429, "rate_limit_error"},      {503, "unavailable_error"}};

/* Texts that quote a request may have bytes that are not UTF-8, such as those of a path, or a part of a
 * character where they were cut. */
static json_t *quote(const char *text) {
    struct ax_buf valid = {0};
    json_t *out = NULL;
    if (ax_utf8_repair(&valid, text, strlen(text)) == AX_OK)
        out = json_stringn(valid.data ? valid.data : "", valid.len);
    ax_buf_free(&valid);
    return out;
}

json_t *ax_serve_error(void *ctx, struct ax_exchange *x, int status, const char *message) {
    const char *type = "server_error";
    (void)ctx;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == status)
            type = types[i].type;
    return json_pack("{s{so ss so ss?}}", "error", "message", quote(message), "type", type, "param",
                     x->param[0] ? quote(x->param) : json_null(), "code", x->code);
}

/* What the request says of an error, for the answer. */
static enum ax_status failed(struct ax_exchange *x, const struct ax_serve_request *r,
                             enum ax_status st) {
    memcpy(x->param, r->param, sizeof x->param);
    x->code = r->code;
    x->status = r->status;
    return st;
}

/* ---- completions and chats ---- */

/* With the lock: AX_ERR_PEER if the client has gone, as is found out now and then. */
static enum ax_status wait_a_little(const struct ax_exchange *x, struct ax_serve_job *j,
                                    double *looked) {
    (void)ax_serve_job_wait(j, LOOK_SECONDS);
    const double now = ax_clock_now();
    if (now < *looked + LOOK_SECONDS)
        return AX_OK;
    *looked = now;
    return ax_http_gone(x) ? ax_error(AX_ERR_PEER, "the client has gone") : AX_OK;
}

static enum ax_status next_events(struct ax_exchange *x, struct ax_buf *out, bool *more) {
    struct ax_serve_job *j = x->state;
    pthread_mutex_t *lock = &j->engine->lock;
    const double start = ax_clock_now();
    double looked = start;
    pthread_mutex_lock(lock);
    enum ax_status st = ax_serve_events(j, out, more);
    while (st == AX_OK && *more && out->len == 0) {
        st = wait_a_little(x, j, &looked);
        if (st == AX_OK)
            st = ax_serve_events(j, out, more);
        if (st == AX_OK && out->len == 0 && looked > start + j->engine->ping_seconds)
            st = ax_buf_puts(out, ": ping\n\n");
    }
    pthread_mutex_unlock(lock);
    return st;
}

static enum ax_status wait_for(struct ax_exchange *x, struct ax_serve_job *j) {
    pthread_mutex_t *lock = &j->engine->lock;
    enum ax_status st = AX_OK;
    double looked = ax_clock_now();
    ax_http_wait(x);
    pthread_mutex_lock(lock);
    while (j->pending > 0 && st == AX_OK)
        st = wait_a_little(x, j, &looked);
    if (st == AX_OK && j->failed)
        st = ax_serve_unready(j->engine->state, &j->r.status);
    pthread_mutex_unlock(lock);
    return st;
}

/* Large requests are read one after the other: what they are parsed into takes many times their size. */
static enum ax_status read_request(struct ax_serve *s, struct ax_exchange *x, bool chat,
                                   struct ax_serve_job *j) {
    const struct ax_serve_body body = {.chat = chat, .text = x->body.data, .len = x->body.len};
    const bool large = body.len > LARGE;
    if (large)
        pthread_mutex_lock(&s->large);
    const enum ax_status st = ax_serve_request_read(&j->r, &s->engine.models, &body);
    if (large)
        pthread_mutex_unlock(&s->large);
    if (s->engine.shared)
        j->body = x->body;
    else
        ax_buf_free(&x->body);
    x->body = (struct ax_buf){0};
    return st;
}

static enum ax_status answer(struct ax_serve *s, struct ax_exchange *x, bool chat) {
    struct ax_serve_job *j;
    AX_TRY(ax_serve_job_create(&j, &s->engine));
    x->state = j;
    enum ax_status st = read_request(s, x, chat, j);
    if (st == AX_OK)
        st = ax_serve_job_prepare(j);
    if (st == AX_OK)
        st = ax_serve_submit(j);
    if (st == AX_OK && j->r.stream)
        return ax_reply_stream(x, next_events);
    if (st == AX_OK)
        st = wait_for(x, j);
    return st == AX_OK ? ax_reply_json(x, 200, ax_serve_answer(j)) : failed(x, &j->r, st);
}

static enum ax_status complete(void *ctx, struct ax_exchange *x) {
    return answer(ctx, x, false);
}

static enum ax_status chat(void *ctx, struct ax_exchange *x) {
    return answer(ctx, x, true);
}

/* ---- models, health ---- */

static enum ax_serve_state state_of(struct ax_serve *s) {
    pthread_mutex_lock(&s->engine.lock);
    const enum ax_serve_state state = s->engine.state;
    pthread_mutex_unlock(&s->engine.lock);
    return state;
}

static enum ax_status health(void *ctx, struct ax_exchange *x) {
    const enum ax_serve_state state = state_of(ctx);
    if (state == AX_SERVE_READY)
        return ax_reply_json(x, 200, json_pack("{ss}", "status", "ok"));
    return ax_serve_unready(state, &x->status);
}

static json_t *model_object(const struct ax_serve *s, const struct ax_serve_model *m) {
    return json_pack("{ss ss sI ss ss ss? sI}", "id", m->name, "object", "model", "created",
                     (json_int_t)s->created, "owned_by", "axtrain", "root", m->name, "parent",
                     m->parent, "max_model_len", (json_int_t)m->context);
}

static enum ax_status list_models(void *ctx, struct ax_exchange *x) {
    struct ax_serve *s = ctx;
    struct ax_serve_models *all = &s->engine.models;
    json_t *list = json_array();
    pthread_mutex_lock(&all->lock);
    for (int i = 0; i < all->n; i++)
        if (all->served[i])
            ax_json_append(&list, model_object(s, &all->list[i]));
    pthread_mutex_unlock(&all->lock);
    return ax_reply_json(x, 200, json_pack("{ss so}", "object", "list", "data", list));
}

static enum ax_status show_model(void *ctx, struct ax_exchange *x) {
    struct ax_serve *s = ctx;
    const struct ax_serve_model *m;
    const enum ax_status st = ax_serve_models_take(&s->engine.models, x->path, &m);
    if (st == AX_OK) {
        json_t *object = model_object(s, m);
        ax_serve_models_release(&s->engine.models, m);
        return ax_reply_json(x, 200, object);
    }
    x->status = 404;
    x->code = "model_not_found";
    return st;
}

static enum ax_status version(void *ctx, struct ax_exchange *x) {
    (void)ctx;
    return ax_reply_json(x, 200, json_pack("{ss}", "version", AX_VERSION));
}

/* ---- tokens ---- */

static enum ax_status reply_tokens(struct ax_exchange *x, const struct ax_serve_request *r) {
    json_t *list = json_array();
    for (size_t i = 0; i < r->ids.n; i++)
        if (json_array_append_new(list, json_integer(r->ids.ids[i])) != 0) {
            json_decref(list);
            return ax_error(AX_ERR_NOMEM, "out of memory for an answer");
        }
    return ax_reply_json(x, 200,
                         json_pack("{sI sI so}", "count", (json_int_t)r->ids.n, "max_model_len",
                                   (json_int_t)r->model->context, "tokens", list));
}

/* NULL: absent, or null. */
static const json_t *given(const struct ax_serve_request *r, const char *key) {
    const json_t *v = json_object_get(r->root, key);
    return json_is_null(v) ? NULL : v;
}

static enum ax_status read_to_tokenize(struct ax_serve_request *r, struct ax_serve *s,
                                       const struct ax_exchange *x) {
    r->add_special = true;
    AX_TRY(ax_serve_parse(r, x->body.data, x->body.len));
    AX_TRY(ax_serve_read_keys(r, AX_SERVE_TOKENIZE));
    AX_TRY(ax_serve_read_model(r, &s->engine.models));
    const json_t *prompt = given(r, "prompt"), *messages = given(r, "messages");
    if (!prompt == !messages)
        return ax_serve_refuse(r, "prompt", "expected either prompt or messages");
    if (messages) {
        AX_TRY(ax_serve_read_tools(r, r->model));
        return ax_serve_read_messages(r, r->model, messages);
    }
    if (!json_is_string(prompt))
        return ax_serve_refuse(r, "prompt", "expected text");
    return ax_serve_read_text(r, r->model, prompt);
}

static enum ax_status tokenize(void *ctx, struct ax_exchange *x) {
    struct ax_serve_request r = {0};
    enum ax_status st = read_to_tokenize(&r, ctx, x);
    st = st == AX_OK ? reply_tokens(x, &r) : failed(x, &r, st);
    ax_serve_request_free(&r);
    return st;
}

static enum ax_status decode(struct ax_serve_request *r, struct ax_serve *s,
                             const struct ax_exchange *x, struct ax_buf *text) {
    AX_TRY(ax_serve_parse(r, x->body.data, x->body.len));
    AX_TRY(ax_serve_read_keys(r, AX_SERVE_DETOKENIZE));
    AX_TRY(ax_serve_read_model(r, &s->engine.models));
    const json_t *tokens = json_object_get(r->root, "tokens");
    if (!json_is_array(tokens))
        return ax_serve_refuse(r, "tokens", "expected a list of token ids");
    AX_TRY(ax_serve_read_ids(r, r->model, "tokens", tokens));
    return ax_tokenizer_decode(r->model->side->tokenizer, r->ids.ids, r->ids.n, false, text);
}

static enum ax_status detokenize(void *ctx, struct ax_exchange *x) {
    struct ax_serve_request r = {0};
    struct ax_buf text = {0};
    enum ax_status st = decode(&r, ctx, x, &text);
    st = st == AX_OK
             ? ax_reply_json(x, 200,
                             json_pack("{ss%}", "prompt", text.data ? text.data : "", text.len))
             : failed(x, &r, st);
    ax_buf_free(&text);
    ax_serve_request_free(&r);
    return st;
}

static enum ax_status tokenizer_info(void *ctx, struct ax_exchange *x) {
    const struct ax_serve *s = ctx;
    const struct ax_text_side *side = s->engine.models.list[0].side;
    const struct ax_template *template = ax_text_side_template(side, NULL);
    size_t len = 0;
    const char *source = template ? ax_template_source(template, &len) : NULL;
    json_t *info = json_object();
    if (source)
        json_object_set_new(info, "chat_template", json_stringn(source, len));
    for (int i = 0; i < AX_SPECIAL_COUNT; i++) {
        const char *text = ax_tokenizer_special(side->tokenizer, (enum ax_special)i);
        json_object_set_new(info, ax_special_name((enum ax_special)i),
                            text ? json_string(text) : json_null());
    }
    return ax_reply_json(x, 200, info);
}

/* ---- metrics ---- */

static enum ax_status put_metrics(struct ax_serve *s, struct ax_buf *out) {
    struct ax_serve_engine *e = &s->engine;
    pthread_mutex_lock(&e->lock);
    const struct ax_generate_counters c = e->counters;
    const struct {
        const char *name, *kind, *help;
        double value;
    } rows[] = {
        {"requests_total", "counter", "Requests that were taken.", (double)e->jobs},
        {"requests_refused_total", "counter", "Requests refused for lack of room.",
         (double)e->refused},
        {"sequences_left_total", "counter", "Sequences that were given up.", (double)e->left},
        {"sequences_pending", "gauge", "Sequences that run or wait.", (double)e->n_pending},
        {"lanes", "gauge", "Sequences that can run together.", (double)e->lanes},
        {"passes_total", "counter", "Passes of the model.", (double)c.passes},
        {"decode_passes_total", "counter", "Passes without prompts.", (double)c.decode_passes},
        {"generated_tokens_total", "counter", "Tokens generated.", (double)c.tokens},
        {"prompt_tokens_total", "counter", "Tokens of prompts that were computed.",
         (double)c.prompt_tokens},
        {"shared_tokens_total", "counter", "Tokens of prompts that another had computed.",
         (double)c.shared_tokens},
        {"put_back_total", "counter", "Sequences put back for lack of cache.", (double)c.put_back},
        {"drafts_total", "counter", "Tokens that were drafted (--drafts).", (double)c.drafts},
        {"drafts_accepted_total", "counter", "Drafts that the model chose.", (double)c.accepted},
        {"decode_seconds_total", "counter", "Time of passes without prompts.", c.decode_seconds},
        {"prompt_seconds_total", "counter", "Time of passes with prompts.", c.prompt_seconds},
    };
    pthread_mutex_unlock(&e->lock);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        AX_TRY(ax_buf_printf(out, "# HELP axtrain_%s %s\n# TYPE axtrain_%s %s\naxtrain_%s %.17g\n",
                             rows[i].name, rows[i].help, rows[i].name, rows[i].kind, rows[i].name,
                             rows[i].value));
    AX_TRY(ax_buf_puts(out, "# HELP axtrain_answers_total Answers by class of status.\n"
                            "# TYPE axtrain_answers_total counter\n"));
    for (int i = 2; i <= 5; i++)
        AX_TRY(ax_buf_printf(out, "axtrain_answers_total{status=\"%dxx\"} %llu\n", i,
                             (unsigned long long)ax_http_answers(s->http, i)));
    return AX_OK;
}

static enum ax_status metrics(void *ctx, struct ax_exchange *x) {
    struct ax_buf text = {0};
    enum ax_status st = put_metrics(ctx, &text);
    if (st == AX_OK)
        st = ax_reply_text(x, 200, "text/plain; version=0.0.4", text.data, text.len);
    ax_buf_free(&text);
    return st;
}

const struct ax_route ax_serve_routes[] = {
    {"POST", "/v1/chat/completions", .handle = chat, .close = ax_serve_job_close},
    {"POST", "/v1/completions", .handle = complete, .close = ax_serve_job_close},
    {"GET", "/v1/models", .handle = list_models},
    {"GET", "/v1/models/", .prefix = true, .handle = show_model},
    {"GET", "/health", .open = true, .handle = health},
    {"GET", "/metrics", .handle = metrics},
    {"POST", "/tokenize", .handle = tokenize},
    {"POST", "/detokenize", .handle = detokenize},
    {"GET", "/tokenizer_info", .handle = tokenizer_info},
    {"GET", "/version", .handle = version},
    {"POST", "/v1/load_lora_adapter", .handle = ax_serve_load_adapter},
    {"POST", "/v1/unload_lora_adapter", .handle = ax_serve_unload_adapter},
    {"POST", "/pause", .bare = true, .handle = ax_serve_pause},
    {"POST", "/resume", .bare = true, .handle = ax_serve_resume},
    {"GET", "/is_paused", .handle = ax_serve_is_paused},
    {"POST", "/abort_requests", .handle = ax_serve_abort_requests},
    {"POST", "/reset_prefix_cache", .bare = true, .handle = ax_serve_reset_cache},
    {"GET", "/weight_info", .handle = ax_serve_weight_info},
    {"GET", "/get_world_size", .handle = ax_serve_no_weights},
    {"POST", "/init_weight_transfer_engine", .bare = true, .handle = ax_serve_no_weights},
    {"POST", "/start_weight_update", .bare = true, .handle = ax_serve_no_weights},
    {"POST", "/update_weights", .bare = true, .handle = ax_serve_no_weights},
    {"POST", "/finish_weight_update", .bare = true, .handle = ax_serve_no_weights},
    {"POST", "/weight_checker", .bare = true, .handle = ax_serve_no_weights},
};
const size_t ax_serve_n_routes = sizeof ax_serve_routes / sizeof *ax_serve_routes;
