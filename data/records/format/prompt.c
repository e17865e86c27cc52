/* Prompts, which answers are sampled for. A record is one example: the prompt's tokens, and as its
 * text the record, which scores the answers.
 *
 *   (NULL)          prompt: a text, or messages; tools; as in TRL's GRPOTrainer
 *   chat_template   messages without an answer at their end; tools
 *   a map           a text made of columns
 *
 * If its own answer is read, too, that is the column completion, a text or messages, or what ends the messages of
 * chat_template. Its tokens are what would have been sampled behind the prompt's: up to the end of the answer, as
 * the template writes it; a text ends with EOS.
 *
 * If answers have turns, the prompt must be messages, and an environment may add to the last one of them.
 *
 * A text gets the tokens that the tokenizer itself adds. Messages are rendered with the header of
 * the answer to come, and get none. Nothing is trained on, but all tokens are labeled: an example
 * without a label would be dropped as one that nothing can be learned from. */
#include <string.h>

#include "data/records/format/answers.h"
#include "data/records/format/chat_turns.h"
#include "data/records/format/tools.h"

static enum ax_status prompt_init(struct ax_format *f) {
    const char *type = f->o.type;
    if (f->o.answers->map && f->o.answers->own)
        return ax_error(AX_ERR_CONFIG, "a map makes prompts without answers of their own, which "
                                       "trl.lmbda below 1 needs: use the columns prompt and "
                                       "completion, or type chat_template");
    if (f->o.answers->map)
        return ax_answers_check_map(f->o.answers->map);
    if (type && strcmp(type, "chat_template") != 0)
        return ax_error(AX_ERR_CONFIG,
                        "type \"%s\" does not make prompts; expected chat_template, or a map with "
                        "field_prompt and prompt_format, or no `type`, with the column prompt",
                        type);
    if (type && !f->o.chat)
        return ax_error(AX_ERR_CONFIG, "type %s needs a chat template", type);
    return AX_OK;
}

/* ---- the record as text ---- */

struct dump {
    struct ax_buf *out;
    enum ax_status st;
};

static int put_json(const char *s, size_t n, void *ctx) {
    struct dump *d = ctx;
    if (d->out->len + n > AX_EXAMPLE_TEXT_MAX)
        d->st = ax_error(AX_ERR_DATA, "the record has more than %zu bytes as JSON",
                         AX_EXAMPLE_TEXT_MAX);
    else
        d->st = ax_buf_append(d->out, s, n);
    return d->st == AX_OK ? 0 : -1;
}

static enum ax_status dump_record(const json_t *record, struct ax_buf *out) {
    struct dump d = {.out = out};
    out->len = 0;
    if (json_dump_callback(record, put_json, &d, JSON_COMPACT) == 0)
        return AX_OK;
    return d.st != AX_OK ? d.st : ax_answers_no_memory();
}

/* ---- columns ---- */

static enum ax_status is_empty(const char *column) {
    return ax_error(AX_ERR_EMPTY, "%s: the prompt is empty", column);
}

static enum ax_status check_text(const char *column, const json_t *v) {
    return ax_record_not_blank(column, "prompt",
                               (struct ax_text){json_string_value(v), json_string_length(v)});
}

static enum ax_status check_messages(const struct ax_format *f, const char *column,
                                     const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!ax_message_is_empty(f, json_array_get(list, i)))
            return AX_OK;
    return is_empty(column);
}

/* The column completion, into texts or replies. */
static enum ax_status read_completion(const struct ax_format *f, json_t *record,
                                      struct ax_answers *a) {
    static const char column[] = "completion";
    json_t *v = json_object_get(record, column);
    if (!v)
        return ax_error(AX_ERR_DATA,
                        "%s is missing: trl.lmbda below 1 also trains on the records' "
                        "own answers",
                        column);
    if (a->chat) {
        const struct ax_message_source from = {column, "assistant", true};
        return ax_answers_messages(f, a, v, &from, &a->replies[0]);
    }
    if (!json_is_string(v))
        return ax_error(AX_ERR_DATA, "%s: expected text, as the prompt is one, got %s", column,
                        ax_json_kind(v));
    const struct ax_text text = {json_string_value(v), json_string_length(v)};
    AX_TRY(ax_answers_check_text(column, text));
    return ax_buf_append(&a->texts[0], text.s, text.n);
}

static enum ax_status read_own(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    json_t *v = json_object_get(record, a->names[0]);
    a->chat = json_is_array(v);
    if (!v)
        return ax_answers_missing(f, record, a->names[0]);
    if (!a->chat && !json_is_string(v))
        return ax_error(AX_ERR_DATA, "%s: expected text or a list of messages, got %s", a->names[0],
                        ax_json_kind(v));
    if (!a->chat) {
        AX_TRY(check_text(a->names[0], v));
        return ax_buf_append(&a->prompt, json_string_value(v), json_string_length(v));
    }
    const struct ax_message_source from = {a->names[0], "user", false};
    AX_TRY(ax_answers_messages(f, a, v, &from, &a->messages));
    return ax_tools_read(record, f->o.chat->field_tools, &a->tools);
}

/* Messages that end a conversation, in their order, into the answer. */
static enum ax_status keep_reply(struct ax_answers *a, size_t at) {
    if (!a->replies[0])
        a->replies[0] = json_array();
    return json_array_insert(a->replies[0], 0, json_array_get(a->messages, at)) == 0
               ? AX_OK
               : ax_answers_no_memory();
}

static bool ends_with_answer(const json_t *list) {
    const size_t n = json_array_size(list);
    const json_t *last = n > 0 ? json_array_get(list, n - 1) : NULL;
    return last && strcmp(json_string_value(json_object_get(last, "role")), "assistant") == 0;
}

static enum ax_status read_chat(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    struct ax_conversation c;
    if (!json_object_get(record, a->names[0]))
        return ax_answers_missing(f, record, a->names[0]);
    enum ax_status st = ax_conversation_read(&c, f, record);
    a->chat = true;
    a->messages = json_incref(c.messages);
    a->tools = json_incref(c.tools);
    while (st == AX_OK && ends_with_answer(a->messages)) {
        const size_t last = json_array_size(a->messages) - 1;
        if (f->o.answers->own)
            st = keep_reply(a, last);
        json_array_remove(a->messages, last);
    }
    if (st == AX_OK && f->o.answers->own && !a->replies[0])
        st = ax_error(AX_ERR_DATA,
                      "%s: the conversation does not end with an answer, and trl.lmbda "
                      "below 1 also trains on the records' own answers",
                      a->names[0]);
    for (size_t i = 0; i < json_array_size(a->messages) && c.turns; i++)
        a->lost |= c.turns[i].lost_calls ? 1U << AX_ODD_CALLS : 0;
    ax_conversation_free(&c);
    return st;
}

static enum ax_status read_map(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    AX_TRY(ax_answers_fill_prompt(f, record, &a->prompt));
    return check_text(a->names[0], json_object_get(record, a->names[0]));
}

enum ax_status ax_format_observe(const char *column, json_t *messages, const char *text) {
    const size_t n = json_array_size(messages);
    json_t *last = n > 0 ? json_array_get(messages, n - 1) : NULL;
    json_t *content = json_object_get(last, "content");
    if (json_is_array(content))
        return json_array_append_new(content,
                                     json_pack("{s:s, s:s}", "type", "text", "text", text)) == 0
                   ? AX_OK
                   : ax_answers_no_memory();
    if (!json_is_string(content))
        return ax_error(AX_ERR_DATA,
                        "%s: the last message has no text, which an environment adds to", column);
    json_t *whole = json_pack("s%+", json_string_value(content), json_string_length(content), text);
    return json_object_set_new(last, "content", whole) == 0 ? AX_OK : ax_answers_no_memory();
}

static enum ax_status read_prompt(const struct ax_format *f, const char *observation,
                                  json_t *record, struct ax_answers *a) {
    const struct ax_format_answer_map *map = f->o.answers->map;
    a->names[0] = map ? map->field_prompt : f->o.type ? f->o.chat->field_messages : "prompt";
    AX_TRY(map         ? read_map(f, record, a)
           : f->o.type ? read_chat(f, record, a)
                       : read_own(f, record, a));
    if (f->o.answers->own && !f->o.type)
        AX_TRY(read_completion(f, record, a));
    json_t *own = NULL;
    if (f->o.chat)
        AX_TRY(ax_tools_given(f->o.chat->tools, record, &own));
    if (!a->chat && (own || f->o.answers->turns))
        return ax_error(AX_ERR_DATA,
                        "%s: tools and environments need a prompt of messages, not a text",
                        a->names[0]);
    if (!a->chat)
        return AX_OK;
    if (observation)
        AX_TRY(ax_format_observe(a->names[0], a->messages, observation));
    AX_TRY(check_messages(f, a->names[0], a->messages));
    /* templates that test for a list, not for its elements, would introduce tools all the same */
    json_t *tools = own ? own : json_array_size(a->tools) > 0 ? a->tools : NULL;
    const struct ax_answers_text prompt = {
        .messages = a->messages, .tools = tools, .generation_prompt = true, .lost = &a->lost};
    return ax_answers_render(f, &prompt, &a->prompt);
}

/* ---- the record's own answer ---- */

/* What follows the prompt's text in the conversation with its answer. */
static enum ax_status render_answer(const struct ax_format *f, struct ax_answers *a) {
    json_t *all = json_copy(a->messages);
    struct ax_buf text = {0};
    json_t *tools = json_array_size(a->tools) > 0 ? a->tools : NULL;
    const struct ax_answers_text whole = {.messages = all, .tools = tools, .lost = &a->lost};
    enum ax_status st = all && json_array_extend(all, a->replies[0]) == 0
                            ? ax_answers_render(f, &whole, &text)
                            : ax_answers_no_memory();
    const size_t n = a->prompt.len;
    if (st == AX_OK && (text.len <= n || memcmp(text.data, a->prompt.data, n) != 0))
        st = ax_error(AX_ERR_DATA, "the chat template writes the prompt otherwise once its answer "
                                   "follows, so the answer cannot be trained on behind it");
    if (st == AX_OK)
        st = ax_buf_append(&a->texts[0], text.data + n, text.len - n);
    ax_buf_free(&text);
    json_decref(all);
    return st;
}

/* Tokens up to the last end, which the template may follow by more; without one, all of them. */
static size_t answer_length(const struct ax_format *f, const struct ax_encoding *e) {
    size_t n = e->n;
    while (n > 0 && !ax_format_is_end(f, e->ids[n - 1]))
        n--;
    return n > 0 ? n : e->n;
}

/* Appends its ids to `out`, behind a line feed. */
static enum ax_status put_answer(const struct ax_format *f, struct ax_format_work *w,
                                 struct ax_answers *a, struct ax_buf *out) {
    if (a->chat)
        AX_TRY(render_answer(f, a));
    AX_TRY(
        ax_format_encode(f, (struct ax_text){a->texts[0].data, a->texts[0].len}, false, &w->full));
    const size_t n = answer_length(f, &w->full);
    const bool ends = n > 0 && ax_format_is_end(f, w->full.ids[n - 1]);
    AX_TRY(ax_buf_puts(out, "\n["));
    for (size_t i = 0; i < n; i++)
        AX_TRY(ax_buf_printf(out, i > 0 ? ",%d" : "%d", (int)w->full.ids[i]));
    if (!a->chat && !ends && f->eos != AX_NO_TOKEN)
        AX_TRY(ax_buf_printf(out, n > 0 ? ",%d" : "%d", (int)f->eos));
    AX_TRY(ax_buf_puts(out, "]"));
    return out->len <= AX_EXAMPLE_TEXT_MAX
               ? AX_OK
               : ax_error(AX_ERR_DATA,
                          "the record and the tokens of its answer have more than %zu "
                          "bytes",
                          AX_EXAMPLE_TEXT_MAX);
}

static enum ax_status prompt_record(const struct ax_format *f, struct ax_format_work *w,
                                    json_t *record, struct ax_origin origin,
                                    struct ax_example_list *out) {
    struct ax_answers a = {0};
    enum ax_status st;
    AX_TRY(dump_record(record, &w->text));
    ax_record_drop_nulls(record);
    AX_TRY_GOTO(ax_buf_puts(&a.prompt, ""), st, done);
    AX_TRY_GOTO(read_prompt(f, w->observation, record, &a), st, done);
    AX_TRY_GOTO(
        ax_format_encode(f, (struct ax_text){a.prompt.data, a.prompt.len}, !a.chat, &w->full), st,
        done);
    if (w->full.n == 0) {
        st = is_empty(a.names[0]);
        goto done;
    }
    AX_TRY_GOTO(ax_example_list_add(out, w->full.ids, NULL, w->full.n, true), st, done);
    AX_TRY_GOTO(ax_example_list_end(out, origin), st, done);
    if (f->o.answers->own)
        AX_TRY_GOTO(put_answer(f, w, &a, &w->text), st, done);
    st = ax_example_list_text(out, w->text.data, w->text.len);
done:
    w->oddities |= a.lost;
    ax_answers_free(&a);
    return st;
}

const struct ax_format_type ax_format_type_prompt = {"prompt", false, false, prompt_init,
                                                     prompt_record};
