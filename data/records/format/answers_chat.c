/* Types whose records hold messages: chat_template.*, bradley_terry.*. The first two give texts, as
 * axolotl does: the template's rendering of the prompt, and what it writes for each answer. */
#include <string.h>

#include "data/records/format/answers_types.h"
#include "data/records/format/tools.h"

static bool is_blank(char c) {
    return c != '\0' && strchr(" \t\r\n\v\f", c);
}

/* An answer as the template writes it after some other turn: from its text on, up to the end of
 * its turn, without white space after it. */
static enum ax_status put_reply(const struct ax_format *f, struct ax_answers *a, json_t *message,
                                struct ax_buf *out) {
    json_t *list =
        json_pack("[{s:s, s:s}, O]", "role", "user", "content", "[[other turn]]", message);
    const struct ax_answers_text reply = {.messages = list, .lost = &a->lost};
    struct ax_buf text = {0};
    enum ax_status st = list ? ax_answers_render(f, &reply, &text) : ax_answers_no_memory();
    json_decref(list);
    if (st == AX_OK) {
        const char *content = json_string_value(json_object_get(message, "content"));
        size_t n = content ? strlen(content) : 0;
        const char *at = content ? strstr(text.data, content) : NULL;
        if (!at && content) { /* templates may trim it */
            for (; is_blank(*content); content++)
                n--;
            while (n > 0 && is_blank(content[n - 1]))
                n--;
            at = memmem(text.data, text.len, content, n);
        }
        size_t end = text.len;
        while (end > 0 && is_blank(text.data[end - 1]))
            end--;
        if (at)
            st = ax_buf_append(out, at, end - (size_t)(at - text.data));
        else
            st = ax_error(AX_ERR_DATA, "the chat template does not write the answer's text");
    }
    ax_buf_free(&text);
    return st;
}

/* The last message of answer k, which is a text, a message or a list, as a list of one. */
static enum ax_status read_last(const struct ax_format *f, json_t *record, struct ax_answers *a,
                                int k, json_t **out) {
    const struct ax_message_source from = {a->names[k], "assistant", true};
    json_t *v = json_object_get(record, a->names[k]);
    if (!v)
        return ax_answers_missing(f, record, a->names[k]);
    json_t *last = json_array_get(v, json_array_size(v) - 1);
    return ax_answers_messages(f, a, last ? last : v, &from, out);
}

static enum ax_status put_replies(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    for (int k = 0; k < 2; k++) {
        json_t *list = NULL;
        AX_TRY(read_last(f, record, a, k, &list));
        const enum ax_status st = put_reply(f, a, json_array_get(list, 0), &a->texts[k]);
        json_decref(list);
        if (st != AX_OK)
            return st == AX_ERR_DATA ? ax_error_prefix(st, "%s", a->names[k]) : st;
    }
    return AX_OK;
}

static enum ax_status keep_replies(const struct ax_format *f, json_t *record,
                                   struct ax_answers *a) {
    a->chat = true;
    for (int k = 0; k < 2; k++)
        AX_TRY(read_last(f, record, a, k, &a->replies[k]));
    return AX_OK;
}

/* The names of both answers, and the tools. */
static enum ax_status start_pair(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    a->n = 2;
    a->names[0] = f->o.answers->field_chosen;
    a->names[1] = f->o.answers->field_rejected;
    if (f->o.chat)
        AX_TRY(ax_tools_read(record, f->o.chat->field_tools, &a->tools));
    if (json_array_size(a->tools) == 0) { /* some templates introduce them all the same */
        json_decref(a->tools);
        a->tools = NULL;
    }
    return AX_OK;
}

static enum ax_status put_prompt(const struct ax_format *f, json_t *v, const char *name,
                                 struct ax_answers *a) {
    json_t *list = NULL;
    AX_TRY(ax_answers_messages(f, a, v, &(struct ax_message_source){name, "user", false}, &list));
    const struct ax_answers_text prompt = {list, a->tools, true, &a->lost};
    const enum ax_status st = ax_answers_render(f, &prompt, &a->prompt);
    json_decref(list);
    return st;
}

enum ax_status ax_answers_chat(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    AX_TRY(start_pair(f, record, a));
    const char *column = f->o.chat ? f->o.chat->field_messages : "messages";
    json_t *messages = json_object_get(record, column);
    if (!messages)
        return ax_answers_missing(f, record, column);
    AX_TRY(put_prompt(f, messages, column, a));
    return put_replies(f, record, a);
}

/* The prompt is the preferred conversation without its last message. */
enum ax_status ax_answers_argilla_chat(const struct ax_format *f, json_t *record,
                                       struct ax_answers *a) {
    AX_TRY(start_pair(f, record, a));
    json_t *chosen = json_object_get(record, a->names[0]);
    if (!chosen)
        return ax_answers_missing(f, record, a->names[0]);
    if (json_array_size(chosen) < 2)
        return ax_error(AX_ERR_DATA, "%s: expected a list of at least two messages, got %s",
                        a->names[0],
                        json_is_array(chosen) ? "a shorter one" : ax_json_kind(chosen));
    json_t *prompt = json_copy(chosen);
    if (!prompt)
        return ax_answers_no_memory();
    json_array_remove(prompt, json_array_size(prompt) - 1);
    const enum ax_status st = put_prompt(f, prompt, a->names[0], a);
    json_decref(prompt);
    return st == AX_OK ? put_replies(f, record, a) : st;
}

/* ---- messages ---- */

static enum ax_status add_message(json_t *list, const char *role, const json_t *content,
                                  const json_t *calls) {
    return json_array_append_new(list, json_pack("{s:s, s:O, s:O*}", "role", role, "content",
                                                 content, "tool_calls", calls))
               ? ax_answers_no_memory()
               : AX_OK;
}

/* A system turn if there is a text, then the conversation so far. */
static enum ax_status start_messages(const json_t *record, json_t **out) {
    const json_t *system = json_object_get(record, "system");
    *out = json_array();
    if (!*out)
        return ax_answers_no_memory();
    return json_string_length(system) > 0 ? add_message(*out, "system", system, NULL) : AX_OK;
}

/* User and assistant turns take turns; the column prompt replaces the text of user turns. */
enum ax_status ax_answers_argilla(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    AX_TRY(start_pair(f, record, a));
    const json_t *prompt = json_object_get(record, "prompt");
    json_t *list = NULL;
    for (int k = 0; k < 2; k++) {
        const json_t *v = json_object_get(record, a->names[k]);
        if (!v)
            return ax_answers_missing(f, record, a->names[k]);
        if (!json_is_array(v) || json_array_size(v) < 2 || json_array_size(v) % 2 != 0)
            return ax_error(
                AX_ERR_DATA, "%s: expected pairs of a user and an assistant message, got %s",
                a->names[k], json_is_array(v) ? "an odd number of messages" : ax_json_kind(v));
    }
    const json_t *chosen = json_object_get(record, a->names[0]);
    AX_TRY(keep_replies(f, record, a));
    enum ax_status st = start_messages(record, &list);
    for (size_t i = 0; i + 1 < json_array_size(chosen) && st == AX_OK; i++) {
        const json_t *own = json_object_get(json_array_get(chosen, i), "content");
        const json_t *text = i % 2 == 0 && json_is_string(prompt) ? prompt : own;
        if (text)
            st = add_message(list, i % 2 == 0 ? "user" : "assistant", text,
                             json_object_get(json_array_get(chosen, i), "tool_calls"));
        else
            st = ax_error(AX_ERR_DATA, "%s[%zu]: expected {\"role\": …, \"content\": …}",
                          a->names[0], i);
    }
    if (st == AX_OK)
        st = ax_answers_messages(
            f, a, list, &(struct ax_message_source){a->names[0], "user", false}, &a->messages);
    json_decref(list);
    return st;
}

/* system, input, chosen, rejected */
enum ax_status ax_answers_bradley_terry(const struct ax_format *f, json_t *record,
                                        struct ax_answers *a) {
    AX_TRY(start_pair(f, record, a));
    const json_t *input = json_object_get(record, "input");
    json_t *list = NULL;
    if (!json_is_string(input))
        return input ? ax_record_bad_text(record, "input", input)
                     : ax_answers_missing(f, record, "input");
    AX_TRY(keep_replies(f, record, a));
    enum ax_status st = start_messages(record, &list);
    if (st == AX_OK)
        st = add_message(list, "user", input, NULL);
    if (st == AX_OK)
        st = ax_answers_messages(f, a, list, &(struct ax_message_source){"input", "user", false},
                                 &a->messages);
    json_decref(list);
    return st;
}
