/* What all readers of answers share; and TRL's columns: a prompt and its answers, as texts or as lists of
 * messages, without a type. A pair without a prompt begins with it on both sides. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/records/format/answers.h"
#include "data/records/format/chat.h"
#include "data/records/format/recognize.h"
#include "data/records/format/tools.h"

/* ---- for all readers ---- */

void ax_answers_free(struct ax_answers *a) {
    ax_buf_free(&a->prompt);
    json_decref(a->messages);
    json_decref(a->tools);
    json_decref(a->variables);
    for (int k = 0; k < 2; k++) {
        ax_buf_free(&a->texts[k]);
        json_decref(a->replies[k]);
    }
    *a = (struct ax_answers){0};
}

enum ax_status ax_answers_no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
}

enum ax_status ax_answers_render(const struct ax_format *f, const struct ax_answers_text *t,
                                 struct ax_buf *out) {
    const struct ax_conversation c = {.messages = t->messages,
                                      .tools = t->tools,
                                      .variables = t->variables,
                                      .n = json_array_size(t->messages)};
    const struct ax_chat_render r = {
        .n = c.n, .generation_prompt = t->generation_prompt, .lost = t->lost};
    struct ax_template_output text = {0};
    if (c.n == 0)
        return ax_buf_puts(out, "");
    AX_TRY(ax_chat_render(f, &c, &r, &text));
    const enum ax_status st = ax_buf_append(out, text.text, text.len);
    ax_template_output_free(&text);
    return st;
}

enum ax_status ax_answers_missing(const struct ax_format *f, json_t *record, const char *column) {
    return ax_record_error_hint(ax_record_bad_text(record, column, NULL), &f->o, record);
}

enum ax_status ax_answers_check_text(const char *name, struct ax_text text) {
    return ax_record_not_blank(name, strcmp(name, "text") == 0 ? "text" : "answer", text);
}

enum ax_status ax_answers_beside(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    if (!f->o.chat)
        return AX_OK;
    AX_TRY(ax_tools_read(record, f->o.chat->field_tools, &a->tools));
    return ax_conversation_variables(record, &a->variables);
}

static json_t *list_of(json_t *v, const char *role) {
    if (json_is_string(v))
        return json_pack("[{s:s, s:O}]", "role", role, "content", v);
    return json_is_object(v) ? json_pack("[O]", v) : json_incref(v);
}

/* An answer has text in every turn of the assistant, and ends with one. */
static enum ax_status check_answer(const struct ax_format *f, const struct ax_conversation *c,
                                   const char *name) {
    const char *role = "";
    for (size_t i = 0; i < json_array_size(c->messages); i++) {
        const json_t *message = json_array_get(c->messages, i);
        role = json_string_value(json_object_get(message, "role"));
        if (strcmp(role, "assistant") == 0 && ax_message_is_empty(f, message))
            return ax_chat_is_empty(f, c, name, "the answer is empty");
    }
    return strcmp(role, "assistant") == 0
               ? AX_OK
               : ax_error(
                     AX_ERR_DATA,
                     "%s: expected an answer that ends with an assistant's message; the last "
                     "has the role \"%s\" (roles says what those of a data set are called here)",
                     name, role);
}

enum ax_status ax_answers_messages(const struct ax_format *f, struct ax_answers *a, json_t *v,
                                   const struct ax_message_source *from, json_t **out) {
    struct ax_conversation c = {0};
    if (!f->o.chat)
        return ax_error(AX_ERR_CONFIG,
                        "%s: messages need a chat template, and the tokenizer has none; set "
                        "chat_template, such as chatml",
                        from->name);
    json_t *list = list_of(v, from->role);
    enum ax_status st =
        list ? ax_conversation_read_list(&c, f, list, from->name) : ax_answers_no_memory();
    if (st == AX_OK && from->is_answer)
        st = check_answer(f, &c, from->name);
    if (st == AX_OK)
        *out = json_incref(c.messages);
    a->lost |= c.oddities & AX_ODD_LOST;
    ax_conversation_free(&c);
    json_decref(list);
    return st;
}

/* A number, also as a text, which all fields of CSV are; else NAN. */
static double number_of(const json_t *v) {
    const char *text = json_string_value(v);
    char *end;
    if (!text)
        return json_is_number(v) ? json_number_value(v) : NAN;
    const double number = strtod(text, &end);
    return end > text && *end == '\0' ? number : NAN;
}

static bool is_word(const json_t *v, const char *word) {
    return json_is_string(v) && strcasecmp(json_string_value(v), word) == 0;
}

enum ax_status ax_answers_label(json_t *record, const char *column, bool *out) {
    const json_t *v = json_object_get(record, column);
    const double number = number_of(v);
    *out = json_is_true(v) || number == 1 || is_word(v, "true");
    if (*out || json_is_false(v) || number == 0 || is_word(v, "false"))
        return AX_OK;
    return ax_error(AX_ERR_DATA, "%s: expected true, false, 1 or 0, got %s", column,
                    json_is_number(v) ? "another number" : ax_json_kind(v));
}

static enum ax_status read_margin(const json_t *record, double *out) {
    const json_t *v = json_object_get(record, "margin");
    *out = v ? number_of(v) : 0;
    if (!isfinite((float)*out))
        return ax_error(AX_ERR_DATA, "margin: expected a finite number, got %s",
                        json_is_number(v) ? "one that is too large" : ax_json_kind(v));
    return AX_OK;
}

/* ---- a prompt that both sides begin with ---- */

/* As TRL finds it: up to the first difference, without a space before it; and never a whole side. */
static size_t common_text(json_t *const v[2]) {
    const char *a = json_string_value(v[0]), *b = json_string_value(v[1]);
    const size_t n = json_string_length(v[0]), m = json_string_length(v[1]);
    const size_t most = n < m ? n : m;
    size_t i = 0;
    while (i < most && a[i] == b[i])
        i++;
    const bool whole = i == most && i > 0;
    i -= whole;
    while (i > 0 && ((unsigned char)a[i] & 0xC0U) == 0x80U)
        i--; /* the first byte of a character */
    return i - (!whole && i > 0 && a[i - 1] == ' ');
}

static size_t common_messages(const json_t *a, const json_t *b) {
    const size_t n = json_array_size(a), m = json_array_size(b);
    const size_t most = n < m ? n : m;
    size_t i = 0;
    while (i < most && json_equal(json_array_get(a, i), json_array_get(b, i)))
        i++;
    return i - (i == most && i > 0);
}

static enum ax_status slice(const json_t *list, size_t from, size_t to, json_t **out) {
    *out = json_array();
    bool ok = *out != NULL;
    for (size_t i = from; i < to && ok; i++)
        ok = json_array_append(*out, json_array_get(list, i)) == 0;
    return ok ? AX_OK : ax_answers_no_memory();
}

static enum ax_status split_messages(const struct ax_format *f, struct ax_answers *a,
                                     json_t *const v[2]) {
    json_t *wholes[2] = {NULL, NULL};
    enum ax_status st = AX_OK;
    for (int k = 0; k < 2 && st == AX_OK; k++)
        st = ax_answers_messages(
            f, a, v[k], &(struct ax_message_source){a->names[k], "user", false}, &wholes[k]);
    const size_t n = st == AX_OK ? common_messages(wholes[0], wholes[1]) : 0;
    if (st == AX_OK)
        st = slice(wholes[0], 0, n, &a->messages);
    for (int k = 0; k < 2 && st == AX_OK; k++) {
        st = slice(wholes[k], n, json_array_size(wholes[k]), &a->replies[k]);
        if (st == AX_OK)
            st = check_answer(
                f, &(struct ax_conversation){.messages = a->replies[k], .oddities = a->lost},
                a->names[k]);
    }
    json_decref(wholes[0]);
    json_decref(wholes[1]);
    return st;
}

static enum ax_status split_text(struct ax_answers *a, json_t *const v[2]) {
    const size_t n = common_text(v);
    AX_TRY(ax_buf_append(&a->prompt, json_string_value(v[0]), n));
    for (int k = 0; k < 2; k++)
        AX_TRY(
            ax_buf_append(&a->texts[k], json_string_value(v[k]) + n, json_string_length(v[k]) - n));
    return AX_OK;
}

/* ---- records ---- */

static enum ax_status put_text(struct ax_buf *b, const json_t *v) {
    return ax_buf_append(b, json_string_value(v), json_string_length(v));
}

/* With a prompt of its own: all texts, or all messages; v[1] is NULL for a single answer. */
static enum ax_status read_prompted(const struct ax_format *f, struct ax_answers *a, json_t *prompt,
                                    json_t *const v[2]) {
    const struct ax_message_source from = {"prompt", "user", false};
    if (!a->chat) {
        AX_TRY(put_text(&a->prompt, prompt));
        for (int k = 0; k < 2 && v[k]; k++)
            AX_TRY(put_text(&a->texts[k], v[k]));
        return AX_OK;
    }
    AX_TRY(ax_answers_messages(f, a, prompt, &from, &a->messages));
    for (int k = 0; k < 2 && v[k]; k++) {
        const struct ax_message_source answer = {a->names[k], "assistant", true};
        AX_TRY(ax_answers_messages(f, a, v[k], &answer, &a->replies[k]));
    }
    return AX_OK;
}

/* The values are of the kind that the first one has: text or a list. */
static enum ax_status check_kinds(struct ax_answers *a, json_t *const v[2]) {
    a->chat = json_is_array(v[0]);
    for (int k = 0; k < a->n; k++)
        if (a->chat ? !json_is_array(v[k]) : !json_is_string(v[k]))
            return ax_error(AX_ERR_DATA, "%s: expected %s, got %s", a->names[k],
                            a->chat && k > 0 ? "messages like the other side's"
                                             : "text or a list of messages",
                            ax_json_kind(v[k]));
    return AX_OK;
}

/* Fine-tuning: a completion with its prompt, or one text. */
static enum ax_status own_text(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    json_t *prompt = json_object_get(record, "prompt");
    a->n = 1;
    a->names[0] = prompt ? "completion" : "text";
    a->trains_prompt = !prompt || f->o.train_on_inputs; /* of a text that is BOS */
    json_t *const v[2] = {json_object_get(record, a->names[0]), NULL};
    if (!v[0]) /* ax_format_record adds the hint */
        return ax_record_bad_text(record, a->names[0], NULL);
    if (!prompt && !json_is_string(v[0]))
        return ax_error(AX_ERR_DATA, "text: expected text, got %s", ax_json_kind(v[0]));
    if (!prompt)
        return put_text(&a->texts[0], v[0]);
    AX_TRY(check_kinds(a, v));
    if (a->chat ? !json_is_array(prompt) : !json_is_string(prompt))
        return ax_error(AX_ERR_DATA, "prompt: expected %s, as in completion, got %s",
                        a->chat ? "a list of messages" : "text", ax_json_kind(prompt));
    if (a->chat)
        AX_TRY(ax_answers_beside(f, record, a));
    return read_prompted(f, a, prompt, v);
}

static enum ax_status own_record(const struct ax_format *f, json_t *record, struct ax_answers *a) {
    if (f->o.task == AX_TASK_TEXT)
        return own_text(f, record, a);
    const struct ax_format_answers *o = f->o.answers;
    const bool pair = f->o.task != AX_TASK_UNPAIRED || (json_object_get(record, o->field_chosen) &&
                                                        json_object_get(record, o->field_rejected));
    json_t *prompt = json_object_get(record, "prompt");
    a->n = pair ? 2 : 1;
    a->names[0] = pair ? o->field_chosen : "completion";
    a->names[1] = o->field_rejected;
    json_t *const v[2] = {json_object_get(record, a->names[0]),
                          pair ? json_object_get(record, a->names[1]) : NULL};
    for (int k = 0; k < a->n; k++)
        if (!v[k])
            return ax_answers_missing(f, record, a->names[k]);
    AX_TRY(check_kinds(a, v));
    if (!pair) {
        if (!json_object_get(record, "label"))
            return ax_answers_missing(f, record, "label");
        AX_TRY(ax_answers_label(record, "label", &a->desirable));
    }
    AX_TRY(read_margin(record, &a->margin));
    if (a->chat)
        AX_TRY(ax_answers_beside(f, record, a));
    /* messages that begin with the prompt, which is a column as well */
    if (pair && (!prompt || (a->chat && json_is_string(prompt))))
        return a->chat ? split_messages(f, a, v) : split_text(a, v);
    if (!prompt)
        return ax_answers_missing(f, record, "prompt");
    if (a->chat ? !json_is_array(prompt) : !json_is_string(prompt))
        return ax_error(AX_ERR_DATA, "prompt: expected %s, as in %s, got %s",
                        a->chat ? "a list of messages" : "text", a->names[0], ax_json_kind(prompt));
    return read_prompted(f, a, prompt, v);
}

const struct ax_answers_type ax_answers_own = {.tasks = 1U << AX_TASK_TEXT | 1U << AX_TASK_PAIR |
                                                        1U << AX_TASK_UNPAIRED |
                                                        1U << AX_TASK_REWARD,
                                               .read = own_record};
