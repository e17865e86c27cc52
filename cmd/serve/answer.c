#include "cmd/serve/answer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"

#define NO_LOGPROB (-9999.0) /* JSON has no −∞ */

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for an answer");
}

/* ---- JSON that may run out of memory ---- */

/* A list or an object that lacks something is none: NULL, and so is what it is packed into. v is consumed. */
static void append(json_t **list, json_t *v) {
    if (json_array_append_new(*list, v) == 0)
        return;
    json_decref(*list);
    *list = NULL;
}

static void set_text(json_t **object, const struct ax_buf *key, json_t *v) {
    if (json_object_setn_new(*object, key->data, key->len, v) == 0)
        return;
    json_decref(*object);
    *object = NULL;
}

static void set(json_t **object, const char *key, json_t *v) {
    set_text(object, &(struct ax_buf){.data = (char *)(uintptr_t)key, .len = strlen(key)}, v);
}

/* ---- tokens ---- */

static json_t *logprob_of(double x) {
    return isnan(x) ? json_null() : json_real(x < NO_LOGPROB ? NO_LOGPROB : x);
}

/* A token decoded alone, or "token_id:N". */
static enum ax_status token_text(const struct ax_serve_job *j, int32_t id, struct ax_buf *out) {
    out->len = 0;
    if (j->r.ids_as_text)
        return ax_buf_printf(out, "token_id:%d", id);
    AX_TRY(ax_buf_append(out, "", 0));
    return ax_tokenizer_decode(j->engine->m.side->tokenizer, &id, 1, false, out);
}

static int64_t count_characters(const struct ax_buf *b) {
    int64_t n = 0;
    for (size_t i = 0; i < b->len; i++)
        n += ((unsigned char)b->data[i] & 0xC0U) != 0x80U;
    return n;
}

/* The bytes of a token's text; null where it is a part of a character. */
static json_t *bytes_of(const struct ax_buf *b) {
    if (b->len > 0 && memmem(b->data, b->len, "\xEF\xBF\xBD", 3))
        return json_null();
    json_t *list = json_array();
    for (size_t i = 0; i < b->len; i++)
        append(&list, json_integer((unsigned char)b->data[i]));
    return list;
}

/* Log-probs as they are collected: a list of objects for chats, four lists for completions. */
struct logprobs {
    const struct ax_serve_job *job;
    struct ax_buf text, top; /* of a token */
    json_t *content;
    json_t *tokens, *values, *tops, *offsets;
    int64_t offset;
};

static void open_logprobs(struct logprobs *l, const struct ax_serve_job *j, int64_t offset) {
    *l = (struct logprobs){.job = j, .offset = offset};
    if (j->r.chat) {
        l->content = json_array();
        return;
    }
    l->tokens = json_array();
    l->values = json_array();
    l->tops = json_array();
    l->offsets = json_array();
}

/* Consumes them. */
static json_t *close_logprobs(struct logprobs *l) {
    ax_buf_free(&l->text);
    ax_buf_free(&l->top);
    return l->job->r.chat
               ? json_pack("{so}", "content", l->content)
               : json_pack("{so so so so}", "tokens", l->tokens, "token_logprobs", l->values,
                           "top_logprobs", l->tops, "text_offset", l->offsets);
}

static json_t *named_text(const struct ax_buf *b) {
    return json_stringn(b->data, b->len);
}

/* best NULL: not asked for. NAN: the first of a prompt, which nothing precedes. */
static enum ax_status add_logprob(struct logprobs *l, int32_t id, double logprob,
                                  const int32_t *best, const double *best_logprob) {
    AX_TRY(token_text(l->job, id, &l->text));
    if (best && !isnan(logprob))
        AX_TRY(token_text(l->job, *best, &l->top));
    const bool has_best = best && !isnan(logprob);
    if (l->job->r.chat) {
        json_t *tops = json_array();
        if (has_best)
            append(&tops, json_pack("{so so so}", "token", named_text(&l->top), "logprob",
                                    logprob_of(*best_logprob), "bytes", bytes_of(&l->top)));
        append(&l->content,
               json_pack("{so so so so}", "token", named_text(&l->text), "logprob",
                         logprob_of(logprob), "bytes", bytes_of(&l->text), "top_logprobs", tops));
        return AX_OK;
    }
    json_t *tops = isnan(logprob) ? json_null() : json_object();
    if (has_best)
        set_text(&tops, &l->top, logprob_of(*best_logprob));
    if (!isnan(logprob) && (!has_best || *best != id))
        set_text(&tops, &l->text, logprob_of(logprob));
    append(&l->tokens, named_text(&l->text));
    append(&l->values, logprob_of(logprob));
    append(&l->tops, tops);
    append(&l->offsets, json_integer(l->offset));
    if (!ax_tokenizer_is_special(l->job->engine->m.side->tokenizer, id))
        l->offset += count_characters(&l->text); /* others are not in the text */
    return AX_OK;
}

static enum ax_status add_prompt_logprobs(struct logprobs *l, const struct ax_serve_prompt *p,
                                          const struct ax_serve_score *s) {
    const int32_t *ids = l->job->r.ids.ids + p->first;
    AX_TRY(add_logprob(l, ids[0], NAN, NULL, NULL));
    for (int64_t i = 0; i + 1 < p->n; i++)
        AX_TRY(add_logprob(l, ids[i + 1], s->logprobs[i], s->best ? &s->best[i] : NULL,
                           s->best ? &s->best_logprobs[i] : NULL));
    return AX_OK;
}

static enum ax_status add_logprobs(struct logprobs *l, const struct ax_serve_choice *c,
                                   int64_t from) {
    for (int64_t i = from; i < c->n_tokens; i++)
        AX_TRY(add_logprob(l, c->tokens[i], c->logprobs[i], c->best ? &c->best[i] : NULL,
                           c->best ? &c->best_logprobs[i] : NULL));
    return AX_OK;
}

/* Those of the choice's tokens from `from` on, behind the prompt's if those were computed; null if
 * nobody asked. */
static enum ax_status logprobs_of(const struct ax_serve_job *j, struct ax_serve_choice *c,
                                  int64_t from, json_t **out) {
    struct logprobs l;
    enum ax_status st = AX_OK;
    *out = json_null();
    if (j->r.logprobs < 0)
        return AX_OK;
    open_logprobs(&l, j, c->offset);
    if (j->scores)
        st = add_prompt_logprobs(&l, c->prompt, &j->scores[c->prompt - j->r.prompts]);
    if (st == AX_OK)
        st = add_logprobs(&l, c, from);
    c->offset = l.offset;
    *out = close_logprobs(&l);
    return st;
}

static json_t *list_of(const int32_t *ids, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        append(&list, json_integer(ids[i]));
    return list;
}

/* ---- parts of answers ---- */

/* The prompt's text for `echo`: as given, or decoded. */
static enum ax_status echo(const struct ax_serve_job *j, const struct ax_serve_choice *c,
                           struct ax_buf *out) {
    const struct ax_serve_prompt *p = c->prompt;
    if (!j->r.echo)
        return AX_OK;
    return p->text ? ax_buf_puts(out, p->text)
                   : ax_tokenizer_decode(j->engine->m.side->tokenizer, j->r.ids.ids + p->first,
                                         (size_t)p->n, true, out);
}

static json_t *stop_reason(const struct ax_serve_choice *c) {
    return c->stop_text      ? json_string(c->stop_text)
           : c->stop_id >= 0 ? json_integer(c->stop_id)
                             : json_null();
}

static json_t *usage_of(const struct ax_serve_job *j) {
    json_int_t made = 0;
    for (int64_t i = 0; i < j->n_choices; i++)
        made += j->choices[i].n_tokens;
    const json_int_t read = (json_int_t)j->r.ids.n;
    return json_pack("{sI sI sI}", "prompt_tokens", read, "completion_tokens", made, "total_tokens",
                     read + made);
}

/* choices is consumed. */
static json_t *object_of(const struct ax_serve_job *j, bool chunk, json_t *choices) {
    const char *chat = chunk ? "chat.completion.chunk" : "chat.completion";
    return json_pack("{ss ss sI ss so}", "id", j->id, "object",
                     j->r.chat ? chat : "text_completion", "created", (json_int_t)j->created,
                     "model", j->engine->m.name, "choices", choices);
}

/* ---- whole answers ---- */

static enum ax_status whole_choice(const struct ax_serve_job *j, int64_t i, json_t *list) {
    struct ax_serve_choice *c = &j->choices[i];
    struct ax_buf text = {0};
    json_t *logprobs = NULL, *said = NULL;
    enum ax_status st = ax_serve_calls_read(c);
    if (st == AX_OK)
        st = echo(j, c, &text);
    if (st == AX_OK && c->text.len > 0)
        st = ax_buf_append(&text, c->text.data, c->text.len);
    if (st == AX_OK)
        st = logprobs_of(j, c, 0, &logprobs);
    if (st == AX_OK) {
        said = c->calls && text.len == 0 ? json_null()
                                         : json_stringn(text.data ? text.data : "", text.len);
        if (j->r.chat)
            said = json_pack("{ss so sO*}", "role", "assistant", "content", said, "tool_calls",
                             c->calls);
        json_t *choice = json_pack("{sI so so ss so}", "index", (json_int_t)i,
                                   j->r.chat ? "message" : "text", said, "logprobs", logprobs,
                                   "finish_reason", c->finish, "stop_reason", stop_reason(c));
        if (choice && j->r.return_ids)
            set(&choice, "token_ids", list_of(c->tokens, c->n_tokens));
        if (choice && j->r.return_ids && !j->r.chat)
            set(&choice, "prompt_token_ids",
                list_of(j->r.ids.ids + c->prompt->first, c->prompt->n));
        st = json_array_append_new(list, choice) == 0 ? AX_OK : no_memory();
    } else {
        json_decref(logprobs);
    }
    ax_buf_free(&text);
    return st;
}

json_t *ax_serve_answer(const struct ax_serve_job *j) {
    json_t *choices = json_array();
    enum ax_status st = AX_OK;
    for (int64_t i = 0; i < j->n_choices && st == AX_OK; i++)
        st = whole_choice(j, i, choices);
    json_t *answer = object_of(j, false, choices);
    set(&answer, "usage", usage_of(j));
    if (j->r.chat && j->r.return_ids)
        set(&answer, "prompt_token_ids", list_of(j->r.ids.ids, (int64_t)j->r.ids.n));
    if (st == AX_OK)
        return answer;
    json_decref(answer);
    return NULL;
}

/* ---- streams ---- */

/* event is consumed. */
static enum ax_status send_event(const struct ax_serve_job *j, struct ax_buf *out, json_t *event) {
    if (event && j->r.include_usage && !json_object_get(event, "usage"))
        set(&event, "usage", json_null());
    char *text = event ? json_dumps(event, JSON_COMPACT) : NULL;
    json_decref(event);
    const enum ax_status st = text ? ax_buf_printf(out, "data: %s\n\n", text) : no_memory();
    ax_free_hook(text);
    return st;
}

/* text and logprobs are consumed. */
static enum ax_status send_chunk(const struct ax_serve_job *j, struct ax_buf *out, int64_t i,
                                 json_t *said, json_t *logprobs, int64_t from, bool last) {
    const struct ax_serve_choice *c = &j->choices[i];
    json_t *choice = json_pack("{sI so so so}", "index", (json_int_t)i,
                               j->r.chat ? "delta" : "text", said, "logprobs", logprobs,
                               "finish_reason", last ? json_string(c->finish) : json_null());
    if (last)
        set(&choice, "stop_reason", stop_reason(c));
    if (j->r.return_ids) {
        set(&choice, "token_ids", list_of(c->tokens + from, c->sent_tokens - from));
        if (!c->begun && !j->r.chat)
            set(&choice, "prompt_token_ids",
                list_of(j->r.ids.ids + c->prompt->first, c->prompt->n));
    }
    json_t *event = object_of(j, true, json_pack("[o]", choice));
    if (j->r.return_ids && j->r.chat && !c->begun)
        set(&event, "prompt_token_ids", list_of(j->r.ids.ids, (int64_t)j->r.ids.n));
    return send_event(j, out, event);
}

/* The first event of a choice: the role, or the prompt. */
static enum ax_status begin_choice(const struct ax_serve_job *j, int64_t i, struct ax_buf *out) {
    struct ax_serve_choice *c = &j->choices[i];
    struct ax_buf text = {0};
    enum ax_status st = AX_OK;
    if (j->r.chat)
        st = send_chunk(j, out, i, json_pack("{ss ss}", "role", "assistant", "content", ""),
                        json_null(), 0, false);
    else if (j->r.echo && (st = echo(j, c, &text)) == AX_OK)
        st = send_chunk(j, out, i, json_stringn(text.data ? text.data : "", text.len), json_null(),
                        0, false);
    c->begun = j->r.chat || j->r.echo;
    ax_buf_free(&text);
    return st;
}

/* Calls of a choice: each as its name and id, and then its arguments. */
static enum ax_status send_calls(const struct ax_serve_job *j, int64_t i, struct ax_buf *out) {
    const struct ax_serve_choice *c = &j->choices[i];
    for (size_t k = 0; k < json_array_size(c->calls); k++) {
        const json_t *call = json_array_get(c->calls, k),
                     *function = json_object_get(call, "function");
        json_t *head = json_pack("{s[{sI sO ss s{sO ss}}]}", "tool_calls", "index", (json_int_t)k,
                                 "id", json_object_get(call, "id"), "type", "function", "function",
                                 "name", json_object_get(function, "name"), "arguments", "");
        json_t *rest = json_pack("{s[{sI s{sO}}]}", "tool_calls", "index", (json_int_t)k,
                                 "function", "arguments", json_object_get(function, "arguments"));
        enum ax_status st = send_chunk(j, out, i, head, json_null(), c->sent_tokens, false);
        if (st == AX_OK)
            st = send_chunk(j, out, i, rest, json_null(), c->sent_tokens, false);
        else
            json_decref(rest);
        AX_TRY(st);
    }
    return AX_OK;
}

/* New text of a choice, or its end; both in one event for completions. */
static enum ax_status go_on(const struct ax_serve_job *j, int64_t i, struct ax_buf *out) {
    struct ax_serve_choice *c = &j->choices[i];
    const bool last = c->finish != NULL;
    if (last && !c->ended)
        AX_TRY(ax_serve_calls_read(c));
    const size_t ready = ax_serve_calls_hold(c),
                 n = ready > c->sent_text ? ready - c->sent_text : 0;
    const int64_t from = c->sent_tokens;
    json_t *logprobs;
    if (c->ended || (n == 0 && !last))
        return AX_OK;
    AX_TRY(logprobs_of(j, c, from, &logprobs));
    json_t *said = json_stringn(n > 0 ? c->text.data + c->sent_text : "", n);
    c->sent_tokens = c->n_tokens;
    c->sent_text += n;
    c->ended = last;
    if (!j->r.chat) {
        AX_TRY(send_chunk(j, out, i, said, logprobs, from, last));
        c->begun = true;
        return AX_OK;
    }
    if (n > 0 || c->sent_tokens > from)
        AX_TRY(send_chunk(j, out, i, json_pack("{so}", "content", said), logprobs, from, false));
    else {
        json_decref(said);
        json_decref(logprobs);
    }
    AX_TRY(send_calls(j, i, out));
    return last ? send_chunk(j, out, i, json_object(), json_null(), c->sent_tokens, true) : AX_OK;
}

static enum ax_status finish(const struct ax_serve_job *j, struct ax_buf *out, bool *more) {
    *more = false;
    if (j->failed)
        return ax_buf_puts(out,
                           "data: {\"error\": {\"message\": \"the server is stopping\", "
                           "\"type\": \"server_error\", \"param\": null, \"code\": null}}\n\n");
    if (j->r.include_usage) {
        json_t *event = object_of(j, true, json_array());
        set(&event, "usage", usage_of(j));
        AX_TRY(send_event(j, out, event));
    }
    return ax_buf_puts(out, "data: [DONE]\n\n");
}

enum ax_status ax_serve_events(struct ax_serve_job *j, struct ax_buf *out, bool *more) {
    const bool ended = j->pending == 0;
    *more = true;
    for (int64_t i = 0; i < j->n_choices && !j->failed; i++) {
        if (!j->choices[i].begun)
            AX_TRY(begin_choice(j, i, out));
        AX_TRY(go_on(j, i, out));
    }
    return ended ? finish(j, out, more) : AX_OK;
}
