/* Inside a message: parts, reasoning, JSON in strings. */
#include <string.h>

#include "base/text/json.h"
#include "data/records/format/chat_turns.h"

enum ax_status ax_details_add(struct ax_details *d, size_t start, size_t end, bool train) {
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

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for a message");
}

static enum ax_status set(json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value) == 0 ? AX_OK : no_memory();
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

enum ax_status ax_chat_join_parts(json_t *message, const char *key, const char *thinking_key,
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
            AX_TRY_GOTO(ax_details_add(details, at, at + n, !flagged || train), st, done);
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

enum ax_status ax_chat_split_thinking(json_t *message, const char *key) {
    const char *content = json_string_value(json_object_get(message, "content"));
    for (size_t i = 0; content && i < sizeof thinking_marks / sizeof *thinking_marks; i++) {
        const char *start = strstr(content, thinking_marks[i].open);
        const char *end = strstr(content, thinking_marks[i].close);
        if (!start || !end || end < start)
            continue;
        start += strlen(thinking_marks[i].open);
        size_t n = (size_t)(end - start);
        start = stripped(start, &n);
        const struct ax_text answer = answer_of(end + strlen(thinking_marks[i].close));
        json_t *thought = json_stringn(start, n);
        json_t *rest = json_stringn(answer.s, answer.n); /* copied before content is replaced */
        const enum ax_status st = set(message, key, thought);
        if (st != AX_OK) {
            json_decref(rest);
            return st;
        }
        return set(message, "content", rest);
    }
    return AX_OK;
}

/* ---- JSON in strings ---- */

enum ax_status ax_chat_parse_inner(json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    if (!json_is_string(v))
        return AX_OK;
    struct ax_json_doc doc;
    enum ax_status st = ax_json_parse(&doc, "text", json_string_value(v), json_string_length(v));
    if (st == AX_ERR_DATA)
        return ax_error(st, "%s: expected JSON text (%s)", key, ax_error_text());
    AX_TRY(st);
    st = set(object, key, json_incref(doc.root));
    ax_json_free(&doc);
    return st;
}
