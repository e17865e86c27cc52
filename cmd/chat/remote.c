/* A conversation with a model behind OpenAI's HTTP API. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/net/http.h"
#include "base/net/sse.h"
#include "cmd/api_key.h"
#include "cmd/chat/chat.h"

#define SILENT_SECONDS 600 /* a long prompt may take a while */
#define MAX_LIST       ((uint64_t)16 << 20)
#define MAX_REPLY      ((uint64_t)256 << 20)

/* ---- requests ---- */

/* What was said instead of an answer. */
static enum ax_status explain(const struct ax_http_request *r, int status,
                              const struct ax_buf *refusal) {
    json_t *v = refusal->len > 0 ? json_loadb(refusal->data, refusal->len, 0, NULL) : NULL;
    const json_t *error = json_object_get(v, "error");
    const char *text =
        json_string_value(json_object_get(json_is_object(error) ? error : v, "message"));
    const enum ax_status st =
        ax_error(AX_ERR_DATA, "%s: status %d: %.500s", r->url, status,
                 text            ? text
                 : status == 401 ? "it asks for a key: --api-key-file FILE, or AXTRAIN_API_KEY"
                 : status == 404 ? "there is no such route; URLs of endpoints end in /v1"
                                 : "without a reason");
    json_decref(v);
    return st;
}

/* Errors name what went wrong; the key is in none. */
static enum ax_status request(const struct ax_chat *c, struct ax_http_request *r,
                              const char *path) {
    struct ax_buf refusal = {0};
    struct ax_http_response out;
    char *url;
    size_t n = strlen(c->remote.url);
    while (n > 0 && c->remote.url[n - 1] == '/')
        n--;
    AX_TRY(ax_sprintf(&url, "%.*s%s", (int)n, c->remote.url, path));
    r->url = url;
    r->token = c->remote.key;
    r->silent_seconds = SILENT_SECONDS;
    r->refusal = &refusal;
    enum ax_status st = r->post ? ax_http_post(r, &out) : ax_http_get(r, &out);
    if (st == AX_OK && out.head.status != 200)
        st = explain(r, out.head.status, &refusal);
    ax_buf_free(&refusal);
    ax_free(url);
    return st;
}

/* ---- opening ---- */

static enum ax_status take_list(void *ctx, const struct ax_http_head *head, const void *data,
                                size_t n) {
    (void)head;
    return ax_buf_append(ctx, data, n);
}

/* The name that was given, or the first of its models. */
static enum ax_status choose_name(struct ax_chat *c, const struct ax_buf *list) {
    json_t *v = json_loadb(list->data ? list->data : "", list->len, 0, NULL);
    const char *first =
        json_string_value(json_object_get(json_array_get(json_object_get(v, "data"), 0), "id"));
    const char *name = c->a.o.model ? c->a.o.model : first;
    enum ax_status st;
    if (name)
        st = ax_strdup(&c->remote.name, name);
    else
        st = ax_error(AX_ERR_DATA, "%s/models: names no model; give one with --model",
                      c->remote.url);
    json_decref(v);
    return st;
}

static enum ax_status check_options(const struct ax_chat *c) {
    const struct {
        const char *name;
        bool given;
    } own[] = {
        {"--adapter", c->a.o.adapters.n > 0}, {"--base", c->a.o.base},   {"--dtype", c->a.dtype},
        {"--threads", c->a.threads > 0},      {"--device", c->a.device}, {"--mesh", c->a.mesh},
        {"--context", c->context > 0}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i].given)
            return ax_error(AX_ERR_CONFIG,
                            "chat: %s is the server's to choose: remove it, or --url", own[i].name);
    return AX_OK;
}

static enum ax_status read_key(struct ax_chat *c) {
    return c->remote.key_file ? ax_api_key_read(c->remote.key_file, &c->remote.key)
                              : ax_api_key_environment("AXTRAIN_API_KEY", &c->remote.key);
}

enum ax_status ax_chat_remote_open(struct ax_chat *c) {
    struct ax_buf list = {0};
    struct ax_http_request r = {.max_bytes = MAX_LIST, .body = take_list, .ctx = &list};
    AX_TRY(check_options(c));
    AX_TRY(read_key(c));
    enum ax_status st = request(c, &r, "/models");
    if (st == AX_OK)
        st = choose_name(c, &list);
    ax_buf_free(&list);
    return st;
}

void ax_chat_remote_close(struct ax_chat_remote *r) {
    ax_free(r->key);
    ax_free(r->name);
}

/* ---- a reply ---- */

static bool add(json_t *body, const char *key, bool given, json_t *value) {
    if (given)
        return json_object_set_new(body, key, value) == 0;
    json_decref(value);
    return true;
}

/* Only what was asked for: the rest is the server's. */
static enum ax_status write_body(struct ax_chat *c, char **out) {
    const struct ax_text_options *o = &c->a.o;
    json_t *stops = json_array(), *body = json_pack("{ss sO sb}", "model", c->remote.name,
                                                    "messages", c->messages, "stream", 1);
    bool ok = stops && body;
    for (int i = 0; ok && i < o->stop.n; i++)
        ok = json_array_append_new(stops, json_string(o->stop.text[i])) == 0;
    ok = ok && add(body, "max_tokens", o->max_new_tokens > 0, json_integer(o->max_new_tokens)) &&
         add(body, "temperature", !isnan(c->temperature),
             json_real(isnan(c->temperature) ? 0 : c->temperature)) &&
         add(body, "top_k", o->top_k >= 0, json_integer(o->top_k)) &&
         add(body, "top_p", !isnan(o->top_p), json_real(isnan(o->top_p) ? 0 : o->top_p)) &&
         add(body, "min_p", !isnan(o->min_p), json_real(isnan(o->min_p) ? 0 : o->min_p)) &&
         add(body, "repetition_penalty", !isnan(o->repetition_penalty),
             json_real(isnan(o->repetition_penalty) ? 0 : o->repetition_penalty)) &&
         add(body, "seed", o->seed >= 0, json_integer((int64_t)((uint64_t)o->seed + c->turn))) &&
         add(body, "stop", o->stop.n > 0, json_incref(stops));
    *out = ok ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(stops);
    json_decref(body);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a request");
}

struct reading {
    struct ax_chat *c;
    struct ax_sse events;
    bool truncated, ended;
};

static enum ax_status take_event(void *ctx, const char *data, size_t n) {
    struct reading *r = ctx;
    enum ax_status st = AX_OK;
    if (strcmp(data, "[DONE]") == 0) {
        r->ended = true;
        return AX_OK;
    }
    json_t *v = json_loadb(data, n, JSON_ALLOW_NUL, NULL);
    const json_t *error = json_object_get(v, "error"),
                 *choice = json_array_get(json_object_get(v, "choices"), 0),
                 *text = json_object_get(json_object_get(choice, "delta"), "content");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (!json_is_object(v) || error) {
        const char *why = json_string_value(json_object_get(error, "message"));
        st = ax_error(AX_ERR_DATA, "%s: the reply broke off: %.500s", r->c->remote.url,
                      why ? why : "an event is no JSON object");
    } else if (json_is_string(text)) {
        st = ax_buf_append(&r->c->reply, json_string_value(text), json_string_length(text));
        if (st == AX_OK)
            st = ax_chat_show(r->c);
    }
    r->truncated = r->truncated || (finish && strcmp(finish, "length") == 0);
    r->ended = r->ended || finish;
    json_decref(v);
    return st;
}

static enum ax_status take_piece(void *ctx, const struct ax_http_head *head, const void *data,
                                 size_t n) {
    struct reading *r = ctx;
    (void)head;
    return ax_sse_feed(&r->events, data, n, take_event, r);
}

enum ax_status ax_chat_remote_reply(struct ax_chat *c, bool *truncated) {
    struct reading reading = {.c = c};
    char *body;
    AX_TRY(write_body(c, &body));
    struct ax_http_request r = {.post = body,
                                .max_bytes = MAX_REPLY,
                                .stop = ax_chat_interrupt_flag(),
                                .body = take_piece,
                                .ctx = &reading};
    enum ax_status st = request(c, &r, "/chat/completions");
    ax_free_hook(body);
    ax_sse_free(&reading.events);
    c->turn++;
    c->was_stopped = st != AX_OK && *r.stop;
    if (c->was_stopped) {
        ax_error_clear();
        return AX_OK;
    }
    *truncated = reading.truncated;
    if (st == AX_OK && !reading.ended)
        st = ax_error(AX_ERR_DATA, "%s: the reply broke off", c->remote.url);
    return st;
}
