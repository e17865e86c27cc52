/* Calls whose arguments are JSON. */
#include <string.h>

#include "data/tools/scan.h"

bool ax_tool_read_hermes(struct ax_tool_scan *s) {
    json_t *v;
    if (!ax_turn_json(s, &v))
        return false;
    const bool ok = ax_turn_call_object(s, v);
    json_decref(v);
    return ok && ax_turn_close(s, "</tool_call>");
}

/* ---- llama ---- */

/* Where an object with a name begins. */
static size_t find_object(const struct ax_tool_scan *s) {
    const char *text = s->t->s;
    for (const char *p = strchr(text, '{'); p; p = strchr(p + 1, '{')) {
        const char *key = p + 1 + strspn(p + 1, " \t\r\n");
        if (strncmp(key, "\"name\"", 6) == 0)
            return (size_t)(p - text);
    }
    return AX_TURN_NONE;
}

/* The object is the turn, or its end. */
bool ax_tool_read_llama(struct ax_tool_scan *s) {
    const bool tagged = ax_turn_word(s, "<|python_tag|>");
    size_t from = find_object(s);
    json_t *v;
    if (from == AX_TURN_NONE && tagged)
        return ax_turn_fail(s, "a call is written as {\"name\": …, \"parameters\": {…}}");
    if (from == AX_TURN_NONE)
        return ax_turn_put(s, &s->content, 0, s->t->n);
    if (!tagged && !ax_turn_put(s, &s->content, 0, from))
        return false;
    s->at = from;
    if (!ax_turn_json(s, &v))
        return false;
    const bool ok = ax_turn_call_object(s, v);
    json_decref(v);
    ax_turn_blanks(s);
    return ok &&
           (ax_turn_ended(s) || ax_turn_fail(s, "one call is possible, at the end of a turn"));
}

/* ---- mistral ---- */

static bool read_list(struct ax_tool_scan *s) {
    json_t *v;
    if (!ax_turn_json(s, &v))
        return false;
    bool ok = json_array_size(v) > 0 || ax_turn_fail(s, "expected a list of calls");
    for (size_t i = 0; ok && i < json_array_size(v); i++)
        ok = ax_turn_call_object(s, json_array_get(v, i));
    json_decref(v);
    return ok;
}

/* NAME[ARGS]{…}, or NAME[CALL_ID]ID[ARGS]{…} */
static bool read_named(struct ax_tool_scan *s) {
    const size_t name = s->at, args = ax_turn_find(s, name, "[ARGS]");
    const size_t id = ax_turn_find(s, name, "[CALL_ID]");
    json_t *v, *sampled = NULL;
    if (args == AX_TURN_NONE)
        return ax_turn_fail(s, "the call has no [ARGS]");
    s->at = args + strlen("[ARGS]");
    if (!ax_turn_json(s, &v))
        return false;
    if (id < args) {
        const size_t from = id + strlen("[CALL_ID]");
        sampled = json_stringn(s->t->s + from, args - from);
    }
    const size_t end = id < args ? id : args;
    const bool ok = ax_turn_call(s, s->t->s + name, end - name, v, sampled);
    json_decref(sampled);
    return ok;
}

bool ax_tool_read_mistral(struct ax_tool_scan *s) {
    ax_turn_blanks(s);
    return ax_turn_next(s) == '[' ? read_list(s) : read_named(s);
}

/* ---- deepseek ---- */

/* function<｜tool▁sep｜>NAME\n```json\n{…}\n``` or, from V3.1 on, NAME<｜tool▁sep｜>{…} */
static bool read_deepseek_call(struct ax_tool_scan *s) {
    static const char sep[] = "<｜tool▁sep｜>", fence[] = "```json";
    size_t name = s->at, end = ax_turn_find(s, name, sep);
    json_t *v;
    if (end == AX_TURN_NONE)
        return ax_turn_fail(s, "the call has no %s", sep);
    s->at = end + strlen(sep);
    ax_turn_blanks(s);
    const bool fenced = ax_turn_next(s) != '{';
    if (fenced) {
        name = s->at;
        end = ax_turn_find(s, name, fence);
        if (end == AX_TURN_NONE)
            return ax_turn_fail(s, "the call has no %s", fence);
        s->at = end + strlen(fence);
    }
    if (!ax_turn_json(s, &v) || !ax_turn_call(s, s->t->s + name, end - name, v, NULL))
        return false;
    return (!fenced || ax_turn_close(s, "```")) && ax_turn_close(s, "<｜tool▁call▁end｜>");
}

bool ax_tool_read_deepseek(struct ax_tool_scan *s) {
    for (ax_turn_blanks(s); ax_turn_mark(s, "<｜tool▁call▁begin｜>"); ax_turn_blanks(s))
        if (!read_deepseek_call(s))
            return false;
    return ax_turn_close(s, "<｜tool▁calls▁end｜>");
}

/* ---- harmony ----
 *
 * A turn is several messages: a header with a channel and perhaps a recipient, <|message|>, a body, and
 * <|end|> before the next one. The template writes the recipient before the channel, models behind it. */

struct message {
    size_t header, body, end; /* bytes: [header, body) less the mark, [body, end) */
};

static bool has_word(const struct ax_tool_scan *s, const struct message *m, const char *word) {
    return memmem(s->t->s + m->header, m->body - m->header, word, strlen(word)) != NULL;
}

static bool read_recipient(struct ax_tool_scan *s, const struct message *m) {
    static const char to[] = "to=functions.";
    const char *name = memmem(s->t->s + m->header, m->body - m->header, to, strlen(to));
    json_t *v;
    if (!name)
        return ax_turn_fail(s, "the recipient of a call is functions.NAME");
    name += strlen(to);
    s->at = m->body;
    if (!ax_turn_json(s, &v) || !ax_turn_call(s, name, strcspn(name, " <\n"), v, NULL))
        return false;
    ax_turn_blanks(s);
    return s->at == m->end || ax_turn_fail(s, "there is text behind the arguments");
}

static bool read_message(struct ax_tool_scan *s, const struct message *m) {
    if (has_word(s, m, "to="))
        return read_recipient(s, m);
    struct ax_buf *to = has_word(s, m, "<|channel|>analysis") ? &s->thought : &s->content;
    if (to->len > 0 && ax_buf_puts(to, "\n") != AX_OK)
        s->no_memory = true;
    return ax_turn_put(s, to, m->body, m->end);
}

bool ax_tool_read_harmony(struct ax_tool_scan *s) {
    static const char begin[] = "<|message|>", end[] = "<|end|>";
    while (!ax_turn_ended(s)) {
        struct message m = {.header = s->at};
        const size_t body = ax_turn_find(s, s->at, begin);
        m.body = body == AX_TURN_NONE ? s->t->n : body + strlen(begin);
        if (body == AX_TURN_NONE)
            return !has_word(s, &m, "to=") || ax_turn_fail(s, "the call has no %s", begin);
        const size_t close = ax_turn_find(s, m.body, end);
        m.end = close == AX_TURN_NONE ? s->t->n : close;
        if (!read_message(s, &m))
            return false;
        s->at = close == AX_TURN_NONE ? s->t->n : close + strlen(end);
    }
    return true;
}
