#include "cmd/serve/answer.h"

#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "cmd/serve/json.h"
#include "cmd/serve/logprobs.h"

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for an answer");
}

static json_t *list_of(const int32_t *ids, int64_t n) {
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        ax_json_append(&list, json_integer(ids[i]));
    return list;
}

/* ---- parts of answers ---- */

/* The prompt's text for `echo`: as given, or decoded. */
static enum ax_status echo(const struct ax_serve_job *j, const struct ax_serve_choice *c,
                           struct ax_buf *out) {
    const struct ax_serve_prompt *p = c->prompt;
    if (!j->r.echo)
        return AX_OK;
    return p->text ? ax_buf_append(out, json_string_value(p->text), json_string_length(p->text))
                   : ax_tokenizer_decode(j->r.model->side->tokenizer, j->r.ids.ids + p->first,
                                         (size_t)p->n, true, out);
}

static json_t *stop_reason(const struct ax_serve_choice *c) {
    return c->stop_text      ? json_string(c->stop_text)
           : c->stop_id >= 0 ? json_integer(c->stop_id)
                             : json_null();
}

/* Tokens of the prompts that had been computed for others; the answers to a prompt share it, and with its own scores. */
static json_int_t count_cached(const struct ax_serve_job *j) {
    json_int_t n = 0;
    for (int64_t i = 0; !j->scores && i < j->n_units; i++) {
        const struct ax_serve_choice *c = j->units[i].choice;
        if (c && (c - j->choices) % j->r.n == 0)
            n += j->units[i].s.n_shared;
    }
    return n;
}

static json_t *usage_of(const struct ax_serve_job *j) {
    json_int_t made = 0;
    for (int64_t i = 0; i < j->n_choices; i++)
        made += j->choices[i].n_tokens;
    const json_int_t read = (json_int_t)j->r.ids.n;
    return json_pack("{sI sI sI s{sI}}", "prompt_tokens", read, "completion_tokens", made,
                     "total_tokens", read + made, "prompt_tokens_details", "cached_tokens",
                     count_cached(j));
}

/* choices is consumed. */
static json_t *object_of(const struct ax_serve_job *j, bool chunk, json_t *choices) {
    const char *chat = chunk ? "chat.completion.chunk" : "chat.completion";
    json_t *object =
        json_pack("{ss ss sI ss so}", "id", j->id, "object", j->r.chat ? chat : "text_completion",
                  "created", (json_int_t)j->created, "model", j->r.model->name, "choices", choices);
    if (object && j->version >= 0)
        ax_json_set(&object, "weight_version", json_integer((json_int_t)j->version));
    return object;
}

/* ---- whole answers ---- */

static enum ax_status add_prompt_logprobs(const struct ax_serve_job *j,
                                          const struct ax_serve_prompt *p, json_t **object) {
    json_t *list;
    const enum ax_status st = ax_serve_prompt_logprobs(j, p, &list);
    ax_json_set(object, "prompt_logprobs", list);
    return st;
}

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
        st = ax_serve_logprobs(j, c, 0, &logprobs);
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
            ax_json_set(&choice, "token_ids", list_of(c->tokens, c->n_tokens));
        if (choice && j->r.return_ids && !j->r.chat)
            ax_json_set(&choice, "prompt_token_ids",
                        list_of(j->r.ids.ids + c->prompt->first, c->prompt->n));
        if (choice && j->r.prompt_logprobs >= 0 && !j->r.chat)
            st = add_prompt_logprobs(j, c->prompt, &choice);
        if (json_array_append_new(list, choice) != 0)
            st = no_memory();
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
    ax_json_set(&answer, "usage", usage_of(j));
    if (j->r.chat && j->r.return_ids)
        ax_json_set(&answer, "prompt_token_ids", list_of(j->r.ids.ids, (int64_t)j->r.ids.n));
    if (st == AX_OK && j->r.chat && j->r.prompt_logprobs >= 0)
        st = add_prompt_logprobs(j, j->r.prompts, &answer);
    if (st == AX_OK)
        return answer;
    json_decref(answer);
    return NULL;
}

/* ---- streams ---- */

/* event is consumed. */
static enum ax_status send_event(const struct ax_serve_job *j, struct ax_buf *out, json_t *event) {
    if (event && j->r.include_usage && !json_object_get(event, "usage"))
        ax_json_set(&event, "usage", json_null());
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
        ax_json_set(&choice, "stop_reason", stop_reason(c));
    if (j->r.return_ids) {
        ax_json_set(&choice, "token_ids", list_of(c->tokens + from, c->sent_tokens - from));
        if (!c->begun && !j->r.chat)
            ax_json_set(&choice, "prompt_token_ids",
                        list_of(j->r.ids.ids + c->prompt->first, c->prompt->n));
    }
    json_t *event = object_of(j, true, json_pack("[o]", choice));
    if (j->r.return_ids && j->r.chat && !c->begun)
        ax_json_set(&event, "prompt_token_ids", list_of(j->r.ids.ids, (int64_t)j->r.ids.n));
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
    AX_TRY(ax_serve_logprobs(j, c, from, &logprobs));
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
        ax_json_set(&event, "usage", usage_of(j));
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
