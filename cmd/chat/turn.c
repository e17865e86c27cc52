#include "cmd/chat/chat.h"

#include <stdio.h>
#include <string.h>

const struct ax_text_side *ax_chat_side(const struct ax_chat *c) {
    return ax_text_model_side(&c->model, c->adapter);
}

/* ---- messages ---- */

enum ax_status ax_chat_add(struct ax_chat *c, const char *role, const char *text, size_t len) {
    json_t *m = json_pack("{ss ss%}", "role", role, "content", text, len);
    if (!m)
        return ax_error(AX_ERR_DATA, "the line is not UTF-8 text");
    if (json_array_append_new(c->messages, m) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for the conversation");
    return AX_OK;
}

enum ax_status ax_chat_reset(struct ax_chat *c) {
    json_array_clear(c->messages);
    if (c->system_text.len == 0)
        return AX_OK;
    return ax_chat_add(c, "system", c->system_text.data, c->system_text.len);
}

static void drop_last(struct ax_chat *c) {
    json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

static json_t *last(const struct ax_chat *c) {
    return json_array_get(c->messages, json_array_size(c->messages) - 1);
}

static bool last_is(const struct ax_chat *c, const char *role) {
    const char *its = json_string_value(json_object_get(last(c), "role"));
    return its && strcmp(its, role) == 0;
}

/* ---- a turn ---- */

enum ax_status ax_chat_on_token(void *ctx, struct ax_sequence *s, bool *stop) {
    struct ax_chat *c = ctx;
    AX_TRY(ax_text_stream_step(&c->stream, s->tokens[s->n_new - 1], &c->reply));
    *stop = c->stream.stopped;
    return ax_chat_show(c);
}

enum ax_status ax_chat_prompt(struct ax_chat *c) {
    c->prompt.n = 0;
    if (c->remote.url)
        return AX_OK;
    const struct ax_chat_prompt p = {.messages = c->messages, .tools = ax_chat_tools(c)};
    AX_TRY(ax_text_side_encode_chat(ax_chat_side(c), &p, &c->prompt));
    if ((int64_t)c->prompt.n < c->context)
        return AX_OK;
    return ax_error(AX_ERR_DATA,
                    "the conversation has %zu tokens, but only %lld fit; /reset starts a new one",
                    c->prompt.n, (long long)c->context);
}

static enum ax_status generate_reply(struct ax_chat *c, bool *truncated) {
    const int64_t room = c->context - (int64_t)c->prompt.n;
    struct ax_sequence s = {.n_prompt = (int64_t)c->prompt.n,
                            .prompt = c->prompt.ids,
                            .max_new = room < c->max_new ? room : c->max_new,
                            .stream = c->turn++,
                            .tokens = c->tokens};
    AX_TRY(ax_text_stream_open(&c->stream, ax_chat_side(c)->tokenizer, c->model.stop_strings.text,
                               c->model.stop_strings.n));
    enum ax_status st = ax_generate(c->generator, 1, &s);
    c->was_stopped = s.finish == AX_FINISH_CALLER && !c->stream.stopped;
    if (st == AX_OK)
        st = ax_text_stream_finish(&c->stream, &c->reply);
    ax_text_stream_close(&c->stream);
    *truncated = s.finish == AX_FINISH_LENGTH;
    return st;
}

/* Adds the reply to c->reply, and the messages that it is to the conversation. */
static enum ax_status make_reply(struct ax_chat *c, bool *truncated) {
    if (c->tools.tools)
        return ax_chat_reply_with_tools(c, truncated);
    AX_TRY(c->remote.url ? ax_chat_remote_reply(c, truncated) : generate_reply(c, truncated));
    return ax_chat_add(c, "assistant", c->reply.data ? c->reply.data : "", c->reply.len);
}

static bool has_reply(const struct ax_chat *c) {
    return last_is(c, "assistant") || last_is(c, "tool");
}

/* The reply: all that follows the user's last message. */
static json_t *drop_reply(struct ax_chat *c) {
    json_t *reply = json_array();
    while (reply && json_array_size(c->messages) > 0 && !last_is(c, "user")) {
        if (json_array_insert(reply, 0, last(c)) != 0)
            break;
        drop_last(c);
    }
    return reply;
}

static enum ax_status reply(struct ax_chat *c) {
    bool truncated = false;
    c->reply.len = c->printed = 0;
    ax_chat_forget_interrupt();
    AX_TRY(make_reply(c, &truncated));
    AX_TRY(ax_chat_show(c));
    if (truncated)
        fputs(c->is_terminal ? "\n[truncated at the token limit]" : "", stdout);
    const char *stopped = c->edits ? "\n[stopped; Ctrl-C again quits]" : "\n[stopped]";
    puts(c->was_stopped ? stopped : "");
    return AX_OK;
}

/* An endpoint may be reached again with the next message. */
static bool can_go_on(const struct ax_chat *c, enum ax_status st) {
    return st == AX_ERR_DATA || (c->remote.url && st == AX_ERR_IO);
}

/* Replies to the conversation; `asked`: its last message is new. */
static enum ax_status answer(struct ax_chat *c, enum ax_status st, bool asked) {
    const bool added = st == AX_OK && asked;
    if (st == AX_OK)
        st = ax_chat_prompt(c);
    if (st == AX_OK)
        st = reply(c);
    if (last_is(c, "user") && added) /* it has no reply */
        drop_last(c);
    if (!can_go_on(c, st))
        return st;
    ax_chat_tell_error(c);
    return AX_OK;
}

enum ax_status ax_chat_turn(struct ax_chat *c) {
    return answer(c, ax_chat_add(c, "user", c->line.data, c->line.len), true);
}

enum ax_status ax_chat_retry(struct ax_chat *c) {
    if (!has_reply(c)) {
        puts("there is no reply yet");
        return AX_OK;
    }
    json_t *before = drop_reply(c);
    enum ax_status st = answer(c, AX_OK, false);
    if (!before || (last_is(c, "user") && json_array_extend(c->messages, before) != 0))
        st = ax_error(AX_ERR_NOMEM, "out of memory for the conversation");
    json_decref(before);
    return st;
}

enum ax_status ax_chat_undo(struct ax_chat *c) {
    if (!has_reply(c)) {
        puts("there is no message to take back");
        return AX_OK;
    }
    json_decref(drop_reply(c));
    drop_last(c);
    puts("the last message and its reply are gone");
    return AX_OK;
}
