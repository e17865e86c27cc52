/* Calls whose arguments are literals: of Python (LFM2's, Llama 4's), or of a language of their own (Gemma 4's). */
#include <ctype.h>
#include <string.h>

#include "base/text/unicode.h"

#include "data/tools/scan.h"

#define MAX_DEPTH 64

static size_t name_end(const struct ax_tool_scan *s, size_t at) {
    while (at < s->t->n && (isalnum((unsigned char)s->t->s[at]) || s->t->s[at] == '_' ||
                            s->t->s[at] == '.' || s->t->s[at] == '-'))
        at++;
    return at;
}

static bool expect(struct ax_tool_scan *s, const char *word) {
    ax_turn_blanks(s);
    return ax_turn_word(s, word) ||
           ax_turn_fail(s, "expected %s at \"%.20s\"", word, s->t->s + s->at);
}

/* A number, or one of the words. */
static bool read_scalar(struct ax_tool_scan *s, json_t **out) {
    static const struct {
        const char *word;
        int is; /* 1, 0; −1: null */
    } words[] = {{"True", 1}, {"true", 1}, {"False", 0}, {"false", 0}, {"None", -1}, {"null", -1}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (ax_turn_word(s, words[i].word)) {
            *out = words[i].is < 0 ? json_null() : json_boolean(words[i].is);
            return true;
        }
    const char c = ax_turn_next(s);
    if (c != '-' && !isdigit((unsigned char)c))
        return ax_turn_fail(s, "expected a value at \"%.20s\"", s->t->s + s->at);
    return ax_turn_json(s, out);
}

/* How a language writes values: strings and the keys of objects. */
struct literals {
    bool (*string)(struct ax_tool_scan *s, bool outermost, json_t **out, bool *is);
    bool (*key)(struct ax_tool_scan *s, json_t **out);
};

static bool read_value(struct ax_tool_scan *s, const struct literals *l, int depth, json_t **out);

/* Elements up to the bracket; keys NULL: of a list. */
static bool read_elements(struct ax_tool_scan *s, const struct literals *l, int depth,
                          const char *close, bool keys, json_t *to) {
    for (ax_turn_blanks(s); !ax_turn_word(s, close); ax_turn_blanks(s)) {
        json_t *key = NULL, *v = NULL;
        bool ok = !keys || (l->key(s, &key) && expect(s, ":"));
        ok = ok && read_value(s, l, depth, &v);
        if (ok &&
            (keys ? json_object_setn_new(to, json_string_value(key), json_string_length(key), v)
                  : json_array_append_new(to, v)) != 0)
            s->no_memory = true;
        json_decref(key);
        if (!ok || s->no_memory)
            return false;
        ax_turn_blanks(s);
        if (!ax_turn_word(s, ",") && ax_turn_next(s) != *close)
            return ax_turn_fail(s, "expected , or %s at \"%.20s\"", close, s->t->s + s->at);
    }
    return true;
}

/* depth 0: an argument. */
static bool read_value(struct ax_tool_scan *s, const struct literals *l, int depth, json_t **out) {
    bool is;
    ax_turn_blanks(s);
    if (depth > MAX_DEPTH)
        return ax_turn_fail(s, "arguments are nested more than %d deep", MAX_DEPTH);
    if (!l->string(s, depth == 0, out, &is) || is)
        return is;
    const bool list = ax_turn_word(s, "["), map = !list && ax_turn_word(s, "{");
    if (!list && !map)
        return read_scalar(s, out);
    *out = list ? json_array() : json_object();
    s->no_memory = s->no_memory || !*out;
    if (*out && read_elements(s, l, depth + 1, list ? "]" : "}", map, *out))
        return true;
    json_decref(*out);
    return false;
}

/* ---- lfm2, pythonic ----
 *
 * [name(key='text', other=1), …]. LFM2's templates write text as it is, quotes included, so that of an argument's
 * quotes the one that is followed by the next argument or the end of the call closes it: they are loose. */

static bool closes(const struct ax_tool_scan *s, size_t at) {
    const char *p = s->t->s + at + strspn(s->t->s + at, " \t\r\n");
    if (*p == ')')
        return true;
    if (*p != ',')
        return false;
    p += 1 + strspn(p + 1, " \t\r\n");
    const size_t key = (size_t)(p - s->t->s), end = name_end(s, key);
    return end > key && s->t->s[end] == '=';
}

static bool put_byte(struct ax_tool_scan *s, struct ax_buf *to, char c) {
    if (ax_buf_append(to, &c, 1) != AX_OK)
        s->no_memory = true;
    return !s->no_memory;
}

static char escaped(char c) {
    return c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
}

/* The character of \xHH, \uHHHH or \UHHHHHHHH, which is next. */
static bool put_code(struct ax_tool_scan *s, int digits, struct ax_buf *to) {
    const char *at = s->t->s + s->at + 2; /* the text ends in a NUL, which is no digit */
    uint32_t code = 0;
    char bytes[4];
    for (int i = 0; i < digits; i++) {
        const char c = at[i];
        if (!isxdigit((unsigned char)c))
            return ax_turn_fail(s, "expected %d hexadecimal digits at \"%.10s\"", digits, at - 2);
        code = code << 4 | (uint32_t)(isdigit((unsigned char)c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return ax_turn_fail(s, "\"%.10s\" is no character", at - 2);
    s->at += 1 + (size_t)digits;
    s->no_memory = s->no_memory || ax_buf_append(to, bytes, ax_utf8_encode(code, bytes)) != AX_OK;
    return !s->no_memory;
}

static int code_digits(char c) {
    return c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
}

static bool python_text(struct ax_tool_scan *s, char quote, bool loose, struct ax_buf *text) {
    for (; !ax_turn_ended(s); s->at++) {
        char c = ax_turn_next(s);
        if (c == quote && (!loose || closes(s, s->at + 1))) {
            s->at++;
            return true;
        }
        const int digits = c == '\\' && !loose ? code_digits(s->t->s[s->at + 1]) : 0;
        if (digits > 0) {
            if (!put_code(s, digits, text))
                return false;
            continue;
        }
        if (c == '\\' && s->at + 1 < s->t->n && strchr("nrt\\'\"", s->t->s[s->at + 1])) {
            s->at++;
            c = escaped(ax_turn_next(s));
        }
        if (!put_byte(s, text, c))
            return false;
    }
    return ax_turn_fail(s, "a text is not closed");
}

static bool read_string(struct ax_tool_scan *s, bool loose, json_t **out, bool *is) {
    const char quote = ax_turn_next(s);
    struct ax_buf text = {0};
    *is = quote == '\'' || quote == '"';
    if (!*is)
        return true;
    s->at++;
    *is = python_text(s, quote, loose, &text);
    if (*is)
        *out = json_stringn(text.data ? text.data : "", text.len);
    ax_buf_free(&text);
    return *is;
}

static bool lfm2_string(struct ax_tool_scan *s, bool outermost, json_t **out, bool *is) {
    return read_string(s, outermost, out, is);
}

static bool python_string(struct ax_tool_scan *s, bool outermost, json_t **out, bool *is) {
    (void)outermost;
    return read_string(s, false, out, is);
}

static bool python_key(struct ax_tool_scan *s, json_t **out) {
    bool is;
    ax_turn_blanks(s);
    return read_string(s, false, out, &is) && (is || ax_turn_fail(s, "expected a key in quotes"));
}

/* key=value, … ) */
static bool read_keywords(struct ax_tool_scan *s, const struct literals *l, json_t *arguments) {
    for (ax_turn_blanks(s); !ax_turn_word(s, ")"); ax_turn_blanks(s)) {
        const size_t key = s->at, end = name_end(s, key);
        json_t *v = NULL;
        s->at = end;
        if (end == key || !expect(s, "=") || !read_value(s, l, 0, &v))
            return ax_turn_fail(s, "expected key=value");
        if (json_object_setn_new(arguments, s->t->s + key, end - key, v) != 0)
            s->no_memory = true;
        ax_turn_blanks(s);
        if (s->no_memory || (!ax_turn_word(s, ",") && ax_turn_next(s) != ')'))
            return ax_turn_fail(s, "expected , or ) after an argument");
    }
    return true;
}

static bool read_python_call(struct ax_tool_scan *s, const struct literals *l) {
    ax_turn_blanks(s);
    const size_t name = s->at, end = name_end(s, name);
    json_t *arguments = json_object();
    s->at = end;
    if (end > name && expect(s, "(") && read_keywords(s, l, arguments))
        return ax_turn_call(s, s->t->s + name, end - name, arguments, NULL);
    json_decref(arguments);
    return ax_turn_fail(s, "expected name(key=value, …)");
}

static bool read_python_calls(struct ax_tool_scan *s, const struct literals *l) {
    if (!expect(s, "["))
        return false;
    do {
        if (!read_python_call(s, l))
            return false;
        ax_turn_blanks(s);
    } while (ax_turn_word(s, ","));
    return expect(s, "]");
}

bool ax_tool_read_lfm2(struct ax_tool_scan *s) {
    static const struct literals loose = {lfm2_string, python_key};
    return read_python_calls(s, &loose) && ax_turn_close(s, "<|tool_call_end|>");
}

/* "[name(": other lists are text. */
static bool begins_calls(const struct ax_tool_scan *s) {
    const char *text = s->t->s;
    if (text[s->at] != '[')
        return false;
    const size_t name = s->at + 1 + strspn(text + s->at + 1, " \t\r\n"), end = name_end(s, name);
    return end > name && text[end] == '(';
}

/* Calls are the turn. */
bool ax_tool_read_pythonic(struct ax_tool_scan *s) {
    static const struct literals python = {python_string, python_key};
    const bool tagged = ax_turn_mark(s, "<|python_start|>");
    ax_turn_blanks(s);
    if (!tagged && !begins_calls(s))
        return ax_turn_put(s, &s->content, 0, s->t->n);
    if (!read_python_calls(s, &python))
        return false;
    (void)ax_turn_mark(s, "<|python_end|>");
    ax_turn_blanks(s);
    return ax_turn_ended(s) || ax_turn_fail(s, "calls are all of a turn, [name(key=value), …]");
}

/* ---- gemma4 ---- */

#define QUOTE "<|\"|>"

static bool gemma_string(struct ax_tool_scan *s, bool outermost, json_t **out, bool *is) {
    (void)outermost;
    *is = ax_turn_mark(s, QUOTE);
    if (!*is)
        return true;
    const size_t from = s->at, end = ax_turn_find(s, from, QUOTE);
    *is = end != AX_TURN_NONE;
    if (!*is)
        return ax_turn_fail(s, "a text is not closed");
    *out = json_stringn(s->t->s + from, end - from);
    s->at = end + strlen(QUOTE);
    return true;
}

static bool gemma_key(struct ax_tool_scan *s, json_t **out) {
    ax_turn_blanks(s);
    const size_t from = s->at, end = name_end(s, from);
    s->at = end;
    if (end == from)
        return ax_turn_fail(s, "expected a key at \"%.20s\"", s->t->s + from);
    *out = json_stringn(s->t->s + from, end - from);
    return true;
}

bool ax_tool_read_gemma4(struct ax_tool_scan *s) {
    static const struct literals gemma = {gemma_string, gemma_key};
    if (!expect(s, "call:"))
        return false;
    const size_t name = s->at, end = name_end(s, name);
    json_t *v = NULL;
    s->at = end;
    if (ax_turn_next(s) != '{' || !read_value(s, &gemma, 0, &v))
        return ax_turn_fail(s, "expected call:NAME{…}");
    return ax_turn_call(s, s->t->s + name, end - name, v, NULL) && ax_turn_close(s, "<tool_call|>");
}
