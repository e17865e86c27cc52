/* Calls whose arguments are raw text between tags. The schema says what type they have. */
#include <string.h>

#include "data/tools/scan.h"

/* Adds an argument; true if there is memory. */
static bool put_argument(struct ax_tool_scan *s, json_t *arguments, size_t key, size_t key_end,
                         size_t value, size_t value_end) {
    const char *text = s->t->s;
    json_t *v = json_stringn(text + value, value_end - value);
    if (v && json_object_setn_new(arguments, text + key, key_end - key, v) == 0)
        return true;
    s->no_memory = true;
    return false;
}

/* A tag with a name in it, such as <parameter=NAME>: the name is [*from, *end). */
static bool read_tag(struct ax_tool_scan *s, const char *open, size_t *from, size_t *end) {
    if (!ax_turn_word(s, open))
        return false;
    *from = s->at;
    const char *close = memchr(s->t->s + s->at, '>', s->t->n - s->at);
    if (!close)
        return ax_turn_fail(s, "%s is not closed", open);
    *end = (size_t)(close - s->t->s);
    s->at = *end + 1;
    return true;
}

/* The value ends at the tag; the line feeds inside the tags are not part of it. */
static bool read_value(struct ax_tool_scan *s, const char *close, size_t *from, size_t *end) {
    *from = s->at;
    *end = ax_turn_find(s, s->at, close);
    if (*end == AX_TURN_NONE)
        return ax_turn_fail(s, "an argument is not closed by %s", close);
    s->at = *end + strlen(close);
    return true;
}

static void strip_line_feeds(const char *text, size_t *from, size_t *end) {
    if (*from < *end && text[*from] == '\n')
        ++*from;
    if (*from < *end && text[*end - 1] == '\n')
        --*end;
}

/* ---- qwen3_coder ---- */

static bool read_parameters(struct ax_tool_scan *s, json_t *arguments) {
    size_t key = 0, key_end = 0, from = 0, end = 0;
    for (ax_turn_blanks(s); read_tag(s, "<parameter=", &key, &key_end); ax_turn_blanks(s)) {
        if (!read_value(s, "</parameter>", &from, &end))
            return false;
        strip_line_feeds(s->t->s, &from, &end);
        if (!put_argument(s, arguments, key, key_end, from, end))
            return false;
    }
    return !s->error[0] && ax_turn_close(s, "</function>");
}

bool ax_tool_read_qwen3_coder(struct ax_tool_scan *s) {
    size_t name = 0, end = 0;
    ax_turn_blanks(s);
    if (!read_tag(s, "<function=", &name, &end))
        return ax_turn_fail(s, "expected <function=NAME> after <tool_call>");
    json_t *arguments = json_object();
    if (!read_parameters(s, arguments)) {
        json_decref(arguments);
        return false;
    }
    return ax_turn_call(s, s->t->s + name, end - name, arguments, NULL) &&
           ax_turn_close(s, "</tool_call>");
}

/* ---- glm ---- */

static bool read_pairs(struct ax_tool_scan *s, json_t *arguments) {
    size_t key = 0, key_end = 0, from = 0, end = 0;
    for (ax_turn_blanks(s); ax_turn_word(s, "<arg_key>"); ax_turn_blanks(s)) {
        if (!read_value(s, "</arg_key>", &key, &key_end))
            return false;
        ax_turn_blanks(s);
        if (!ax_turn_word(s, "<arg_value>"))
            return ax_turn_fail(s, "an <arg_key> has no <arg_value>");
        if (!read_value(s, "</arg_value>", &from, &end) ||
            !put_argument(s, arguments, key, key_end, from, end))
            return false;
    }
    return true;
}

bool ax_tool_read_glm(struct ax_tool_scan *s) {
    const size_t name = s->at;
    while (!ax_turn_ended(s) && ax_turn_next(s) != '\n' && ax_turn_next(s) != '<')
        s->at++;
    const size_t end = s->at;
    json_t *arguments = json_object();
    if (!read_pairs(s, arguments)) {
        json_decref(arguments);
        return false;
    }
    return ax_turn_call(s, s->t->s + name, end - name, arguments, NULL) &&
           ax_turn_close(s, "</tool_call>");
}
