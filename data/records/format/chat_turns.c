/* record → conversation: what is inside a message (parts, reasoning), then messages and
 * the conversation. Read ax_conversation_read first. */
#include "data/records/format/chat_turns.h"

#include <string.h>

#include "base/text/json.h"
#include "data/records/format/names.h"
#include "data/records/format/recognize.h"
#include "data/records/format/tools.h"

static enum ax_status add_detail(struct ax_details *d, size_t start, size_t end, bool train) {
    AX_TRY(ax_regrow(&d->list, d->n, d->n + 1, sizeof *d->list));
    d->list[d->n++] = (struct ax_detail){start, end, train};
    return AX_OK;
}

static size_t code_points(const char *s, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xC0U) != 0x80U;
    return count;
}

static enum ax_status no_memory_for_message(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for a message");
}

static enum ax_status set(json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value) == 0 ? AX_OK : no_memory_for_message();
}

/* ---- parts ---- */

/* What a part is by its type; without one it is text. */
enum part { PART_TEXT, PART_THINKING, PART_OTHER };

static enum part kind_of(const json_t *part, const char **type) {
    static const struct {
        const char *type;
        enum part kind;
    } kinds[] = {{"text", PART_TEXT},          {"input_text", PART_TEXT},
                 {"output_text", PART_TEXT},   {"thinking", PART_THINKING},
                 {"reasoning", PART_THINKING}, {"reasoning_content", PART_THINKING}};
    *type = json_string_value(json_object_get(part, "type"));
    for (size_t i = 0; *type && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(*type, kinds[i].type) == 0)
            return kinds[i].kind;
    return *type ? PART_OTHER : PART_TEXT;
}

static const json_t *part_text(const json_t *part) {
    static const char *const keys[] = {"text", "content", "value", "thinking", "reasoning"};
    if (json_is_string(part))
        return part;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_is_string(json_object_get(part, keys[i])))
            return json_object_get(part, keys[i]);
    return NULL;
}

/* True if the part has a flag: `train` (boolean) or `weight` (number). */
static bool part_flag(const json_t *part, bool *train) {
    const json_t *v = json_object_get(part, "train");
    const json_t *weight = json_object_get(part, "weight");
    if (!v || json_is_null(v))
        v = weight;
    *train = json_is_true(v) || (json_is_number(v) && json_number_value(v) != 0);
    return json_is_boolean(v) || json_is_number(v);
}

static enum ax_status refuse_part(const char *key, size_t i, const char *type) {
    return ax_error(
        AX_ERR_DATA,
        "%s[%zu]: a part of type \"%s\" is no text of the message; remove it, or put it where "
        "the template expects it (tool_calls, say)",
        key, i, type);
}

/* Concatenates a list of parts into one text and turns their flags into details. Parts without a
 * flag are trained. If no part has one, *flags = false and there are no details. Plain text is
 * unchanged. By their types, parts are text; or reasoning, which becomes the message's; or refused (images,
 * calls, refusals …). */
static enum ax_status join_parts(json_t *message, const char *key, const char *thinking_key,
                                 struct ax_details *details, bool *flags) {
    const json_t *parts = json_object_get(message, key);
    *flags = false;
    if (!json_is_array(parts))
        return AX_OK;
    struct ax_buf text = {0}, thought = {0};
    enum ax_status st = ax_buf_puts(&text, "");
    size_t at = 0;
    for (size_t i = 0; i < json_array_size(parts) && st == AX_OK; i++) {
        const json_t *part = json_array_get(parts, i);
        const json_t *s = part_text(part);
        const char *type;
        const enum part kind = kind_of(part, &type);
        bool train;
        if (kind == PART_OTHER) {
            st = refuse_part(key, i, type);
            break;
        }
        if (!s) {
            st = ax_error(AX_ERR_DATA, "%s[%zu]: expected a part with text, got %s", key, i,
                          ax_json_kind(part));
            break;
        }
        if (kind == PART_THINKING && strcmp(key, thinking_key) != 0) {
            if (json_object_get(message, thinking_key))
                st = refuse_part(key, i, type); /* that has it already */
            else
                st = ax_buf_append(&thought, json_string_value(s), json_string_length(s));
            continue;
        }
        const bool flagged = part_flag(part, &train);
        *flags = *flags || flagged;
        const size_t n = code_points(json_string_value(s), json_string_length(s));
        if (n > 0)
            AX_TRY_GOTO(add_detail(details, at, at + n, !flagged || train), st, done);
        at += n;
        st = ax_buf_append(&text, json_string_value(s), json_string_length(s));
    }
    if (st == AX_OK)
        st = set(message, key, json_stringn(text.data, text.len));
    if (st == AX_OK && thought.len > 0)
        st = set(message, thinking_key, json_stringn(thought.data, thought.len));
    if (!*flags)
        details->n = 0; /* no part has a flag: the turn decides */
done:
    ax_buf_free(&thought);
    ax_buf_free(&text);
    return st;
}

/* ---- reasoning ---- */

static const struct {
    const char *open, *close;
} thinking_marks[] = {
    {"<think>", "</think>"},
    {"<reasoning>", "</reasoning>"},
    {"<|begin_of_thought|>", "<|end_of_thought|>"},
};

static const char blanks[] = " \t\n\r\v\f";

/* [s, s + *n) without white space at its ends. */
static const char *stripped(const char *s, size_t *n) {
    while (*n > 0 && strchr(blanks, s[*n - 1]) && s[*n - 1])
        --*n;
    while (*n > 0 && strchr(blanks, *s) && *s) {
        s++;
        --*n;
    }
    return s;
}

/* The answer inside <|begin_of_solution|>…<|end_of_solution|>, or else everything. */
static struct ax_text answer_of(const char *rest) {
    static const char open[] = "<|begin_of_solution|>";
    rest += strspn(rest, blanks);
    const char *start = strstr(rest, open);
    const char *end = strstr(rest, "<|end_of_solution|>");
    if (!start || !end || end < start)
        return (struct ax_text){rest, strlen(rest)};
    start += sizeof open - 1;
    size_t n = (size_t)(end - start);
    start = stripped(start, &n);
    return (struct ax_text){start, n};
}

/* <think>…</think> (and variants) in content, without the marks; *rest is what follows. NULL: none. */
static const char *find_thought(const json_t *message, size_t *n, const char **rest) {
    const char *content = json_string_value(json_object_get(message, "content"));
    for (size_t i = 0; content && i < sizeof thinking_marks / sizeof *thinking_marks; i++) {
        const char *start = strstr(content, thinking_marks[i].open);
        const char *end = strstr(content, thinking_marks[i].close);
        if (!start || !end || end < start)
            continue;
        start += strlen(thinking_marks[i].open);
        *n = (size_t)(end - start);
        *rest = end + strlen(thinking_marks[i].close);
        return stripped(start, n);
    }
    return NULL;
}

/* Moves it to `key`. */
static enum ax_status split_thinking(json_t *message, const char *key) {
    size_t n;
    const char *after, *start = find_thought(message, &n, &after);
    if (!start)
        return AX_OK;
    const struct ax_text answer = answer_of(after);
    json_t *thought = json_stringn(start, n);
    json_t *rest = json_stringn(answer.s, answer.n); /* copied before content is replaced */
    const enum ax_status st = set(message, key, thought);
    if (st != AX_OK) {
        json_decref(rest);
        return st;
    }
    return set(message, "content", rest);
}

static const char *const thought_keys[] = {"reasoning_content", "reasoning", "thinking"};
#define N_THOUGHT_KEYS (sizeof thought_keys / sizeof *thought_keys)

static bool is_thought(const char *key, const json_t *v) {
    bool is = false;
    for (size_t i = 0; i < N_THOUGHT_KEYS; i++)
        is = is || strcmp(key, thought_keys[i]) == 0;
    return is && json_is_string(v) &&
           !ax_text_is_blank(json_string_value(v), json_string_length(v));
}

static bool is_read(const struct ax_format_chat *chat, const char *key) {
    return ax_template_mentions(chat->template, key) ||
           (chat->tool_use && ax_template_mentions(chat->tool_use, key));
}

/* True for reasoning under another name than the template's: rendering gives it both names that templates
 * read, as transformers does (data/text/template/template.c). Of a chat_template's records axolotl passes
 * on the first name alone. */
static bool is_renamed(const struct ax_format *f, const char *key) {
    const size_t n = f->type == &ax_format_type_chat ? 1 : N_THOUGHT_KEYS;
    for (size_t i = 0; i < n; i++)
        if (strcmp(key, thought_keys[i]) == 0)
            return is_read(f->o.chat, "reasoning_content") || is_read(f->o.chat, "thinking");
    return false;
}

struct ax_text ax_message_reasoning(const struct ax_format *f, const json_t *message) {
    const json_t *v = json_object_get(message, f->o.chat->thinking_key);
    for (size_t i = 0; i < N_THOUGHT_KEYS && json_string_length(v) == 0; i++)
        v = json_object_get(message, thought_keys[i]);
    size_t n = json_string_length(v);
    const char *rest, *s = n > 0 ? stripped(json_string_value(v), &n) : NULL;
    if (!s)
        s = find_thought(message, &n, &rest);
    return (struct ax_text){s, s ? n : 0};
}

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
}

/* ---- one message ---- */

const char *ax_chat_role(const struct ax_format_chat *chat, const char *role) {
    for (size_t i = 0; i < chat->n_roles; i++)
        if (strcmp(chat->roles[i].from, role) == 0)
            return chat->roles[i].to;
    return role;
}

static bool is_trained_role(const struct ax_format *f, const char *role) {
    const struct ax_format_chat *chat = f->o.chat;
    for (size_t i = 0; i < chat->n_roles_to_train; i++)
        if (strcmp(ax_chat_role(chat, chat->roles_to_train[i]), role) == 0)
            return true;
    return f->o.train_on_inputs;
}

/* Copies the properties under the template's names, and the other keys that the template reads. */
static enum ax_status rename_keys(const struct ax_format *f, json_t *from, json_t *to,
                                  struct ax_turn *turn) {
    const struct ax_format_chat *chat = f->o.chat;
    bool ok = true;
    for (size_t i = 0; i < chat->n_properties; i++) {
        json_t *v = json_object_get(from, chat->properties[i].from);
        if (v)
            ok = ok && json_object_set(to, chat->properties[i].to, v) == 0;
    }
    if (chat->field_thinking && json_object_get(from, chat->field_thinking))
        ok = ok && json_object_set(to, chat->thinking_key,
                                   json_object_get(from, chat->field_thinking)) == 0;
    const char *key;
    json_t *v;
    json_object_foreach(from, key, v) {
        bool taken = json_object_get(to, key) != NULL;
        for (size_t i = 0; i < chat->n_properties; i++)
            taken = taken || strcmp(chat->properties[i].from, key) == 0;
        const bool read = is_read(chat, key) || is_renamed(f, key);
        if (!taken && read)
            ok = ok && json_object_set(to, key, v) == 0;
        if (!taken && !read) {
            turn->lost_calls = turn->lost_calls || ax_tools_are_calls(key, v);
            turn->lost_thought = turn->lost_thought || is_thought(key, v);
        }
    }
    return ok ? AX_OK : no_memory();
}

static enum ax_status map_role(const struct ax_format_chat *chat, json_t *message,
                               const char **role) {
    const json_t *v = json_object_get(message, "role");
    if (!json_is_string(v)) {
        const char *column = "role";
        for (size_t i = 0; i < chat->n_properties; i++)
            if (strcmp(chat->properties[i].to, "role") == 0)
                column = chat->properties[i].from;
        return ax_error(AX_ERR_DATA, "%s: expected the name of a role, got %s%s", column,
                        ax_json_kind(v),
                        v ? "" : " (set message_property_mappings to the key that contains it)");
    }
    *role = ax_chat_role(chat, json_string_value(v));
    if (json_object_set_new(message, "role", json_string(*role)) != 0)
        return no_memory();
    *role = json_string_value(json_object_get(message, "role"));
    return AX_OK;
}

/* [{"begin_offset": 0, "end_offset": 8, "train": false}, …], offsets are inclusive. */
static enum ax_status read_details(const json_t *list, struct ax_details *d) {
    if (!json_is_array(list))
        return ax_error(AX_ERR_DATA, "expected a list of spans, got %s", ax_json_kind(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *span = json_array_get(list, i);
        const json_t *begin = json_object_get(span, "begin_offset");
        const json_t *end = json_object_get(span, "end_offset");
        const json_t *train = json_object_get(span, "train");
        if (!json_is_integer(begin) || !json_is_integer(end) || !json_is_boolean(train) ||
            json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
            return ax_error(AX_ERR_DATA,
                            "[%zu]: expected {\"begin_offset\": 0, \"end_offset\": 8, \"train\": "
                            "true}, with the end at or after the beginning",
                            i);
        AX_TRY(add_detail(d, (size_t)json_integer_value(begin), (size_t)json_integer_value(end) + 1,
                          json_is_true(train)));
    }
    return AX_OK;
}

/* OpenAI's data has weights, that of other trainers flags. */
static bool opts_out(const json_t *message) {
    static const char *const keys[] = {"train", "trainable", "weight", "loss", "loss_mask"};
    bool out = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(message, keys[i]);
        out = out || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0);
    }
    return out;
}

/* OpenAI's weights are 0 and 1; a table has them as 0.0 and 1.0. No turn counts twice or half. */
static bool is_flag(const json_t *v) {
    return json_is_boolean(v) ||
           (json_is_number(v) && (json_number_value(v) == 0 || json_number_value(v) == 1));
}

static enum ax_status refuse_flag(const char *key, const json_t *v) {
    if (!json_is_number(v))
        return ax_error(AX_ERR_DATA, "%s: expected true, false, 1 or 0, got %s", key,
                        ax_json_kind(v));
    return ax_error(AX_ERR_DATA, "%s: expected 0 (not trained on) or 1, got %g", key,
                    json_number_value(v));
}

/* Which text is trained on: by the message's flag, else by its spans, else by its role. */
static enum ax_status read_training(const struct ax_format *f, const json_t *from, const char *role,
                                    struct ax_turn *turn) {
    const struct ax_format_chat *chat = f->o.chat;
    const json_t *own = chat->field_training ? json_object_get(from, chat->field_training) : NULL;
    const json_t *detail =
        chat->field_training_detail ? json_object_get(from, chat->field_training_detail) : NULL;
    if (own && !is_flag(own))
        return refuse_flag(chat->field_training, own);
    turn->train = is_trained_role(f, role);
    turn->opts_out = !chat->field_training && opts_out(from);
    if (detail) {
        const enum ax_status st = read_details(detail, &turn->content);
        if (st != AX_OK)
            return ax_error_prefix(st, "%s", chat->field_training_detail);
        turn->train = turn->content.n > 0;
    }
    if (own)
        turn->train = json_is_true(own) || json_number_value(own) == 1;
    return AX_OK;
}

static enum ax_status read_message(const struct ax_format *f, json_t *from, json_t *to,
                                   struct ax_turn *turn) {
    const struct ax_format_chat *chat = f->o.chat;
    const char *role;
    enum ax_status st;
    if (!json_is_object(from))
        return ax_error(AX_ERR_DATA, "expected a message, {\"role\": …, \"content\": …}, got %s",
                        ax_json_kind(from));
    AX_TRY(rename_keys(f, from, to, turn));
    AX_TRY(map_role(chat, to, &role));
    AX_TRY(read_training(f, from, role, turn));
    const bool own = chat->field_training && json_object_get(from, chat->field_training);
    struct ax_details parts = {0};
    bool flags;
    bool thinking_flags;
    AX_TRY_GOTO(join_parts(to, "content", chat->thinking_key, &parts, &flags), st, done);
    AX_TRY_GOTO(
        join_parts(to, chat->thinking_key, chat->thinking_key, &turn->thinking, &thinking_flags),
        st, done);
    if (flags) { /* flags of parts take precedence over the message's spans */
        const struct ax_details spans = turn->content;
        turn->content = parts;
        parts = spans;
    }
    if (!own && (flags || thinking_flags))
        turn->train = turn->content.n > 0 || turn->thinking.n > 0;
    if (chat->split_thinking && strcmp(role, "assistant") == 0 && turn->content.n == 0)
        AX_TRY_GOTO(split_thinking(to, chat->thinking_key), st, done);
    st = ax_tools_parse_calls(to);
done:
    ax_free(parts.list);
    return st;
}

/* ---- the conversation ---- */

static enum ax_status add_turn(struct ax_conversation *c, const struct ax_format *f, json_t *from) {
    json_t *message = json_object();
    if (json_array_append_new(c->messages, message) != 0)
        return no_memory();
    return read_message(f, from, message, &c->turns[c->n++]);
}

/* A system column becomes the first turn, unless the conversation begins with a system turn. */
static enum ax_status add_system_column(struct ax_conversation *c, const struct ax_format *f,
                                        const json_t *record) {
    const json_t *text = json_object_get(record, "system");
    const char *role = json_string_value(json_object_get(json_array_get(c->messages, 0), "role"));
    if (!text || strcmp(role, "system") == 0)
        return AX_OK;
    json_t *message = json_pack("{s:s, s:O}", "role", "system", "content", text);
    if (!message || json_array_insert_new(c->messages, 0, message) != 0)
        return no_memory();
    memmove(c->turns + 1, c->turns, c->n * sizeof *c->turns);
    c->turns[0] = (struct ax_turn){.train = is_trained_role(f, "system")};
    c->n++;
    return AX_OK;
}

static void free_turn(struct ax_turn *t) {
    ax_free(t->content.list);
    ax_free(t->thinking.list);
}

static void drop_system_turn(struct ax_conversation *c) {
    const json_t *role = json_object_get(json_array_get(c->messages, 0), "role");
    if (c->n == 0 || strcmp(json_string_value(role), "system") != 0)
        return;
    json_array_remove(c->messages, 0);
    free_turn(&c->turns[0]);
    c->n--;
    memmove(c->turns, c->turns + 1, c->n * sizeof *c->turns);
}

/* ---- probable mistakes ---- */

bool ax_chat_is_common_role(const char *role) {
    static const char *const known[] = {"system",    "developer",   "user",
                                        "assistant", "tool",        "function",
                                        "ipython",   "environment", "observation"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], role) == 0)
            return true;
    return false;
}

static bool is_known_role(const struct ax_format *f, const char *role) {
    if (ax_chat_is_common_role(role))
        return true;
    for (size_t i = 0; i < f->o.chat->n_roles; i++)
        if (strcmp(f->o.chat->roles[i].to, role) == 0)
            return true;
    return is_trained_role(f, role);
}

bool ax_message_is_empty(const struct ax_format *f, const json_t *message) {
    static const char *const others[] = {"tool_calls", "function_call"};
    const json_t *text = json_object_get(message, "content");
    const json_t *thinking = json_object_get(message, f->o.chat->thinking_key);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (json_object_get(message, others[i]))
            return false;
    return !json_string_length(thinking) &&
           (!text || (json_is_string(text) &&
                      ax_text_is_blank(json_string_value(text), json_string_length(text))));
}

bool ax_chat_has(const struct ax_format_chat *chat, const char *word) {
    return ax_template_has(chat->template, word) ||
           (chat->tool_use && ax_template_has(chat->tool_use, word));
}

const struct ax_template *ax_conversation_template(const struct ax_format *f,
                                                   const struct ax_conversation *c) {
    const struct ax_format_chat *chat = f->o.chat;
    return chat->tool_use && json_array_size(c->tools) > 0 ? chat->tool_use : chat->template;
}

enum ax_status ax_chat_is_empty(const struct ax_format *f, const struct ax_conversation *c,
                                const char *name, const char *what) {
    const bool calls = (c->oddities >> AX_ODD_CALLS & 1U) != 0;
    return ax_error(AX_ERR_EMPTY, "%s: %s%s%s", name, what,
                    calls ? "; tool calls are left out by the chat template " : "",
                    calls ? ax_template_where(ax_conversation_template(f, c)) : "");
}

static unsigned find_oddities(const struct ax_format *f, const struct ax_conversation *c) {
    const char *before = "";
    unsigned found = 0;
    bool asked = false;
    for (size_t i = 0; i < c->n; i++) {
        const json_t *message = json_array_get(c->messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        const bool user = strcmp(role, "user") == 0, answer = strcmp(role, "assistant") == 0;
        if (!is_known_role(f, role))
            found |= 1U << AX_ODD_ROLE;
        if (answer && !asked)
            found |= 1U << AX_ODD_START;
        if (user && strcmp(before, "user") == 0)
            found |= 1U << AX_ODD_TWICE;
        if (answer && ax_message_is_empty(f, message))
            found |= 1U << AX_ODD_EMPTY;
        if (c->turns[i].lost_calls)
            found |= 1U << AX_ODD_CALLS;
        asked = asked || user;
        before = role;
    }
    return found;
}

enum ax_status ax_conversation_variables(json_t *record, json_t **out) {
    static const char column[] = "chat_template_kwargs";
    AX_TRY(ax_record_parse_inner(record, column));
    json_t *v = json_object_get(record, column);
    if (!v || json_is_null(v))
        return AX_OK;
    if (!json_is_object(v))
        return ax_error(AX_ERR_DATA, "%s: expected an object of variables for the template, got %s",
                        column, ax_json_kind(v));
    *out = json_incref(v);
    return AX_OK;
}

/* One turn more than the messages has memory: a system column may precede them. */
static enum ax_status read_turns(struct ax_conversation *c, const struct ax_format *f,
                                 json_t *messages, const char *name) {
    *c = (struct ax_conversation){.messages = json_array()};
    if (!c->messages)
        return no_memory();
    if (!json_is_array(messages))
        return ax_error(AX_ERR_DATA, "%s: expected a list of messages, got %s", name,
                        ax_json_kind(messages));
    if (json_array_size(messages) == 0)
        return ax_error(AX_ERR_EMPTY, "%s: the list of messages is empty", name);
    AX_TRY(ax_alloc(&c->turns, json_array_size(messages) + 1, sizeof *c->turns));
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const enum ax_status st = add_turn(c, f, json_array_get(messages, i));
        if (st != AX_OK)
            return ax_error_prefix(st, "%s[%zu]", name, i);
    }
    return AX_OK;
}

enum ax_status ax_conversation_read_list(struct ax_conversation *c, const struct ax_format *f,
                                         json_t *messages, const char *name) {
    AX_TRY(read_turns(c, f, messages, name));
    if (f->o.chat->drop_system)
        drop_system_turn(c);
    c->oddities = find_oddities(f, c);
    return AX_OK;
}

enum ax_status ax_conversation_read(struct ax_conversation *c, const struct ax_format *f,
                                    json_t *record) {
    const struct ax_format_chat *chat = f->o.chat;
    char columns[300];
    *c = (struct ax_conversation){0};
    ax_record_drop_nulls(record);
    AX_TRY(ax_record_parse_inner(record, chat->field_messages));
    json_t *messages = json_object_get(record, chat->field_messages);
    if (!messages)
        return ax_error(AX_ERR_DATA,
                        "column \"%s\" (field_messages) is missing or null; the record has %s",
                        chat->field_messages, ax_record_columns(record, columns, sizeof columns));
    AX_TRY(read_turns(c, f, messages, chat->field_messages));
    AX_TRY(add_system_column(c, f, record));
    if (chat->drop_system)
        drop_system_turn(c);
    c->oddities = find_oddities(f, c) | ax_names_missing(f, record, messages, c->messages);
    AX_TRY(ax_conversation_variables(record, &c->variables));
    if (!chat->tools)
        return ax_tools_read(record, chat->field_tools, &c->tools);
    AX_TRY(ax_tools_given(chat->tools, record, &c->tools));
    json_incref(c->tools);
    return AX_OK;
}

void ax_conversation_free(struct ax_conversation *c) {
    for (size_t i = 0; i < c->n; i++)
        free_turn(&c->turns[i]);
    ax_free(c->turns);
    json_decref(c->messages);
    json_decref(c->tools);
    json_decref(c->variables);
    *c = (struct ax_conversation){0};
}
