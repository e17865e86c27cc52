#include "data/tools/scan.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "base/fit.h"
#include "base/text/json.h"

bool ax_turn_fail(struct ax_tool_scan *s, const char *fmt, ...) {
    va_list ap;
    if (s->error[0])
        return false;
    va_start(ap, fmt);
    ax_vfit(s->error, sizeof s->error, fmt, ap);
    va_end(ap);
    return false;
}

/* Bytes that only spell a mark, though it has a token of its own, are text. */
static bool is_mark(const struct ax_tool_scan *s, size_t at, const char *mark) {
    const struct ax_tool_text *t = s->t;
    return !t->owned || t->owned[at] ||
           ax_tokenizer_find(t->tokenizer, mark, strlen(mark)) == AX_NO_TOKEN;
}

size_t ax_turn_find(const struct ax_tool_scan *s, size_t from, const char *mark) {
    const struct ax_tool_text *t = s->t;
    for (const char *p = t->s + from;
         (p = memmem(p, t->n - (size_t)(p - t->s), mark, strlen(mark))) != NULL; p++)
        if (is_mark(s, (size_t)(p - t->s), mark))
            return (size_t)(p - t->s);
    return AX_TURN_NONE;
}

bool ax_turn_word(struct ax_tool_scan *s, const char *word) {
    const size_t n = strlen(word);
    if (s->t->n - s->at < n || memcmp(s->t->s + s->at, word, n) != 0)
        return false;
    s->at += n;
    return true;
}

bool ax_turn_mark(struct ax_tool_scan *s, const char *mark) {
    return is_mark(s, s->at, mark) && ax_turn_word(s, mark);
}

void ax_turn_blanks(struct ax_tool_scan *s) {
    while (!ax_turn_ended(s) && isspace((unsigned char)ax_turn_next(s)))
        s->at++;
}

bool ax_turn_close(struct ax_tool_scan *s, const char *mark) {
    ax_turn_blanks(s);
    if (ax_turn_mark(s, mark))
        return true;
    return ax_turn_ended(s) ? ax_turn_fail(s, "the call is not closed by %s", mark)
                            : ax_turn_fail(s, "expected %s at \"%.20s\"", mark, s->t->s + s->at);
}

bool ax_turn_json(struct ax_tool_scan *s, json_t **out) {
    struct ax_json_first first;
    ax_turn_blanks(s);
    s->no_memory = ax_json_first(s->t->s + s->at, s->t->n - s->at, &first) != AX_OK;
    *out = first.v;
    s->at += first.used;
    return *out || ax_turn_fail(s, "it is not valid JSON: %s", first.why);
}

bool ax_turn_put(struct ax_tool_scan *s, struct ax_buf *to, size_t from, size_t end) {
    if (ax_buf_append(to, s->t->s + from, end - from) == AX_OK)
        return true;
    s->no_memory = true;
    return false;
}

bool ax_turn_call(struct ax_tool_scan *s, const char *name, size_t n, json_t *arguments,
                  const json_t *id) {
    for (; n > 0 && isspace((unsigned char)*name); n--)
        name++;
    while (n > 0 && isspace((unsigned char)name[n - 1]))
        n--;
    if (json_is_null(arguments)) {
        json_decref(arguments);
        arguments = NULL;
    }
    if (n == 0 || memchr(name, '\0', n)) {
        json_decref(arguments);
        return ax_turn_fail(s, "the call has no name");
    }
    json_t *call = json_pack("{s:s, s:{s:s%, s:o}}", "type", "function", "function", "name", name,
                             n, "arguments", arguments ? arguments : json_object());
    if (call && json_is_string(id) && json_object_set(call, "id", (json_t *)(uintptr_t)id) != 0) {
        json_decref(call);
        call = NULL;
    }
    if (call && json_array_append_new(s->calls, call) == 0)
        return true;
    s->no_memory = true;
    return false;
}

bool ax_turn_call_object(struct ax_tool_scan *s, const json_t *v) {
    const json_t *name = json_object_get(v, "name");
    json_t *arguments = json_object_get(v, "arguments");
    if (!json_is_object(v))
        return ax_turn_fail(s, "a call is an object with name and arguments");
    if (!json_is_string(name))
        return ax_turn_fail(s, "the call has no name");
    arguments = arguments ? arguments : json_object_get(v, "parameters");
    return ax_turn_call(s, json_string_value(name), json_string_length(name),
                        json_incref(arguments), json_object_get(v, "id"));
}
