#include "data/tools/chat.h"

#include <ctype.h>
#include <string.h>

#include "base/mem.h"

#define REMEDY                                                                                     \
    "; one that writes tools, such as qwen3's, can be named in chat_template of a configuration, " \
    "or saved as chat_template.jinja in the model's folder"

/* ---- a conversation ---- */

/* What some templates ask for, and others cannot take. With ids, Gemma 4's finds the names of tools. */
enum {
    WAY_TEXT = 1, /* arguments as text */
    WAY_IDS = 2,  /* ids of calls: nine letters and digits, as Mistral's must be */
    WAY_THOUGHT = 4,
    WAYS = 8
};

static json_t *id_of(size_t i) {
    return json_sprintf("call%05zu", i % 100000);
}

/* A call of the same name, with its id; the arguments do not matter, except those of a probe. NULL: no memory. */
static json_t *plain_call(unsigned way, const json_t *call, size_t i) {
    const json_t *f = json_object_get(call, "function");
    json_t *arguments = json_object_get(f, "probe"), *id = json_object_get(call, "id");
    json_t *own = arguments ? json_incref(arguments) : json_object();
    if (way & WAY_TEXT) {
        char *text = json_dumps(own, 0);
        json_decref(own);
        own = text ? json_string(text) : NULL;
        ax_free_hook(text);
    }
    json_t *v = json_pack("{s:s, s:{s:O, s:o}}", "type", "function", "function", "name",
                          json_object_get(f, "name"), "arguments", own);
    const bool ok = v && (!(way & WAY_IDS) ||
                          json_object_set_new(v, "id", id ? json_incref(id) : id_of(i)) == 0);
    if (ok)
        return v;
    json_decref(v);
    return NULL;
}

/* Text of an answer without calls, which no template has. */
#define ANSWER "qxanswerxq"

/* NULL: no memory. */
static json_t *answer_of(unsigned way, const json_t *calls) {
    json_t *list = json_array_size(calls) > 0 ? json_array() : NULL;
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(calls); i++)
        ok = json_array_append_new(list, plain_call(way, json_array_get(calls, i), i)) == 0;
    json_t *m = json_pack("{s:s, s:s, s:o*}", "role", "assistant", "content", list ? "" : ANSWER,
                          "tool_calls", list);
    ok = ok && m &&
         (!(way & WAY_THOUGHT) ||
          json_object_set_new(m, "reasoning_content", json_string("dummy")) == 0);
    if (ok)
        return m;
    json_decref(m);
    return NULL;
}

/* NULL: no memory. */
static json_t *result_of(unsigned way, json_t *result, const json_t *call, size_t i) {
    json_t *id = json_object_get(call, "id");
    if (!call) /* what an environment says */
        return json_incref(result);
    json_t *v =
        json_pack("{s:s, s:O, s:O}", "role", "tool", "name", json_object_get(result, "name"),
                  "content", json_object_get(result, "content"));
    if (!(way & WAY_IDS) || !v ||
        json_object_set_new(v, "tool_call_id", id ? json_incref(id) : id_of(i)) == 0)
        return v;
    json_decref(v);
    return NULL;
}

enum { HEADER = 1, TOOLS = 2 }; /* the header of an answer; definitions */

/* Variables of a template: a question, an answer with the calls, and the results. False: no memory. */
static bool set_variables(const struct ax_tool_chat *c, const json_t *calls, const json_t *results,
                          unsigned with, json_t *vars) {
    json_t *list = json_pack("[{s:s, s:s}]", "role", "user", "content", "dummy");
    bool ok = list && vars;
    if (ok && calls)
        ok = json_array_append_new(list, answer_of(c->way, calls)) == 0;
    for (size_t i = 0; ok && i < json_array_size(results); i++)
        ok = json_array_append_new(list, result_of(c->way, json_array_get(results, i),
                                                   json_array_get(calls, i), i)) == 0;
    if (ok && (with & TOOLS))
        ok = json_object_set(vars, "tools", (json_t *)(uintptr_t)c->tools) == 0;
    return json_object_set_new(vars, "messages", list) == 0 && ok &&
           json_object_set_new(vars, "add_generation_prompt", json_boolean(with & HEADER)) == 0;
}

/* NULL calls: the question alone. */
static enum ax_status render(const struct ax_tool_chat *c, const json_t *calls,
                             const json_t *results, unsigned with, struct ax_template_output *out) {
    const struct ax_template_options o = {
        .chat = true, .defaults = c->tokens, .fixed_now = true, .now = c->now};
    json_t *vars = json_object();
    const bool ok =
        (!c->variables || json_object_update(vars, (json_t *)(uintptr_t)c->variables) == 0) &&
        set_variables(c, calls, results, with, vars);
    const enum ax_status st = ok ? ax_template_render(c->template, vars, &o, out) : AX_ERR_NOMEM;
    json_decref(vars);
    return ok ? st : ax_error(st, "out of memory for a conversation");
}

/* ---- the end of a turn ---- */

static bool is_blank(const char *s, size_t n) {
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    return n == 0;
}

/* Where the last token ends that ends a turn and has only blanks after it; `n`: nowhere. */
static enum ax_status find_end(const struct ax_tool_chat *c, const char *s, size_t n, size_t *end,
                               size_t *before) {
    *end = *before = n;
    for (int i = 0; i < c->n_stop; i++) {
        struct ax_buf text = {0};
        AX_TRY(ax_tokenizer_decode(c->tokenizer, &c->stop[i], 1, false, &text));
        for (size_t at = text.len; text.len > 0 && at <= n; at++)
            if (memcmp(s + at - text.len, text.data, text.len) == 0 && is_blank(s + at, n - at) &&
                at - text.len < *before) {
                *end = at;
                *before = at - text.len;
            }
        ax_buf_free(&text);
    }
    return AX_OK;
}

/* What is compared of a rendered answer begins here: all of it, or, without calls, what follows its text. Then a
 * template may well drop thoughts of an earlier answer: they were sampled, and stay. */
static size_t begin_of(const json_t *calls, const struct ax_template_output *o) {
    const char *answer = json_array_size(calls) > 0 ? NULL : strstr(o->text, ANSWER);
    return answer ? (size_t)(answer - o->text) + strlen(ANSWER) : 0;
}

/* *suffix points into *with; NULL: the template changes the answer. */
static enum ax_status find_suffix(const struct ax_tool_chat *c, const json_t *calls,
                                  const json_t *results, struct ax_template_output *with,
                                  const char **suffix) {
    struct ax_template_output without = {0};
    size_t end, before;
    *suffix = NULL;
    AX_TRY(render(c, calls, NULL, 0, &without));
    enum ax_status st = find_end(c, without.text, without.len, &end, &before);
    if (st == AX_OK)
        st = render(c, calls, results, HEADER, with);
    if (st == AX_OK) {
        const size_t from = begin_of(calls, &without), at = begin_of(calls, with);
        const size_t n = end > from ? end - from : 0;
        if (with->len - at >= n && memcmp(with->text + at, without.text + from, n) == 0)
            *suffix = with->text + at + n;
    }
    ax_template_output_free(&without);
    return st;
}

/* ---- tokens of a suffix ---- */

static enum ax_status encode(const struct ax_tool_chat *c, const char *s, size_t n, bool plain,
                             struct ax_encoding *out) {
    const struct ax_encode_options o = {.plain = plain};
    return n > 0 ? ax_tokenizer_encode(c->tokenizer, s, n, &o, out) : AX_OK;
}

/* Does the text spell a special token? */
static enum ax_status is_special(const struct ax_tool_chat *c, const json_t *text, bool *is) {
    struct ax_encoding a = {0}, b = {0};
    enum ax_status st = encode(c, json_string_value(text), json_string_length(text), false, &a);
    if (st == AX_OK)
        st = encode(c, json_string_value(text), json_string_length(text), true, &b);
    *is = a.n != b.n || (a.n > 0 && memcmp(a.ids, b.ids, a.n * sizeof *a.ids) != 0);
    ax_encoding_free(&a);
    ax_encoding_free(&b);
    return st;
}

/* A stretch of the suffix that is tokenized as plain text. */
struct stretch {
    size_t from, end;
};

/* The results with another text for the i-th: *out, new also after an error. */
static enum ax_status other_result(const json_t *results, size_t i, json_t **out) {
    *out = json_deep_copy(results);
    return json_object_set_new(json_array_get(*out, i), "content", json_string("qxqx")) == 0
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
}

/* Where result i is in the suffix: what differs where it is another text. */
static enum ax_status find_result(const struct ax_tool_chat *c, const json_t *calls,
                                  const json_t *results, size_t i, const char *suffix, size_t n,
                                  struct stretch *at) {
    struct ax_template_output other = {0};
    const char *text = NULL;
    json_t *changed;
    enum ax_status st = other_result(results, i, &changed);
    if (st == AX_OK)
        st = find_suffix(c, calls, changed, &other, &text);
    json_decref(changed);
    AX_TRY(st);
    const size_t m = text ? other.len - (size_t)(text - other.text) : 0;
    size_t from = 0, back = 0;
    while (from < n && from < m && suffix[from] == text[from])
        from++;
    while (back < n - from && back < m - from && suffix[n - 1 - back] == text[m - 1 - back])
        back++;
    *at = (struct stretch){from, n - back};
    ax_template_output_free(&other);
    return AX_OK;
}

/* Results that spell special tokens are tokenized apart from the rest, as plain text. */
static enum ax_status encode_suffix(const struct ax_tool_chat *c, const json_t *calls,
                                    const json_t *results, const char *s, size_t n,
                                    struct ax_encoding *out) {
    size_t at = 0;
    for (size_t i = 0; i < json_array_size(results); i++) {
        struct stretch own;
        bool special;
        AX_TRY(is_special(c, json_object_get(json_array_get(results, i), "content"), &special));
        if (!special)
            continue;
        AX_TRY(find_result(c, calls, results, i, s, n, &own));
        own.from = own.from < at ? at : own.from;
        own.end = own.end < own.from ? own.from : own.end;
        AX_TRY(encode(c, s + at, own.from - at, false, out));
        AX_TRY(encode(c, s + own.from, own.end - own.from, true, out));
        at = own.end;
    }
    return encode(c, s + at, n - at, false, out);
}

enum ax_status ax_tool_chat_suffix(const struct ax_tool_chat *c, const json_t *calls,
                                   const json_t *results, int32_t last, struct ax_encoding *out) {
    struct ax_template_output with = {0};
    const char *suffix;
    const size_t before = out->n;
    enum ax_status st = find_suffix(c, calls, results, &with, &suffix);
    if (st == AX_OK && !suffix)
        st = ax_error(AX_ERR_DATA, "the chat template changes an answer when more follows it");
    if (st == AX_OK)
        st = encode_suffix(c, calls, results, suffix, with.len - (size_t)(suffix - with.text), out);
    if (st == AX_OK && out->n > before && out->ids[before] == last) {
        out->n--;
        memmove(out->ids + before, out->ids + before + 1, (out->n - before) * sizeof *out->ids);
    }
    ax_template_output_free(&with);
    return st;
}

/* ---- what a template does ---- */

/* Names that no template has. */
#define NAME   "qxnamexq"
#define KEY    "qxkeyxq"
#define VALUE  "qxvaluexq"
#define RESULT "qxresultxq"

struct probe {
    json_t *calls, *results;
    struct ax_template_output answer, with;
    const char *suffix;
};

static bool probe_create(struct probe *p) {
    *p = (struct probe){0};
    p->calls = json_pack("[{s:{s:s, s:{s:s}}}]", "function", "name", NAME, "probe", KEY, VALUE);
    p->results = json_pack("[{s:s, s:s, s:s}]", "role", "tool", "name", NAME, "content", RESULT);
    return p->calls && p->results;
}

static void clear_renderings(struct probe *p) {
    ax_template_output_free(&p->answer);
    ax_template_output_free(&p->with);
    p->answer = p->with = (struct ax_template_output){0};
}

static void probe_free(struct probe *p) {
    clear_renderings(p);
    json_decref(p->calls);
    json_decref(p->results);
}

/* Where the turn begins in a question with its answer: after the header, or after the question, where templates write
 * no header before calls; else 0. */
static enum ax_status find_turn(const struct ax_tool_chat *c,
                                const struct ax_template_output *answer, size_t *from) {
    *from = 0;
    for (int header = HEADER; header >= 0 && *from == 0; header--) {
        struct ax_template_output before = {0};
        AX_TRY(render(c, NULL, NULL, (unsigned)header, &before));
        if (before.len <= answer->len && memcmp(before.text, answer->text, before.len) == 0)
            *from = before.len;
        ax_template_output_free(&before);
    }
    return AX_OK;
}

/* Does the format read the call in what the template writes? */
static enum ax_status reads(const struct ax_tool_chat *c, const struct ax_tool_format *f,
                            const struct probe *p, bool *yes) {
    size_t end, before, from;
    struct ax_tool_turn turn;
    char *s;
    AX_TRY(find_end(c, p->answer.text, p->answer.len, &end, &before));
    AX_TRY(find_turn(c, &p->answer, &from));
    const size_t n = before > from ? before - from : 0;
    AX_TRY(ax_strndup(&s, p->answer.text + from, n));
    const struct ax_tool_text t = {.s = s, .n = n};
    const enum ax_status st = ax_tool_read(f, &t, NULL, &turn);
    const json_t *call = json_object_get(json_array_get(turn.calls, 0), "function");
    const char *name = json_string_value(json_object_get(call, "name"));
    const char *value = json_string_value(json_object_get(json_object_get(call, "arguments"), KEY));
    *yes = name && value && strcmp(name, NAME) == 0 && strcmp(value, VALUE) == 0;
    ax_tool_turn_free(&turn);
    ax_free(s);
    return st;
}

static enum ax_status find_format(struct ax_tool_chat *c, const struct probe *p) {
    c->format = NULL;
    for (int i = 0; !c->format && ax_tool_format_at(i); i++) {
        bool yes;
        AX_TRY(reads(c, ax_tool_format_at(i), p, &yes));
        if (yes)
            c->format = ax_tool_format_at(i);
    }
    return AX_OK;
}

/* Renders the probe in the chat's way. *can: the template does, and does not change the answer. */
static enum ax_status try_way(const struct ax_tool_chat *c, struct probe *p, bool *can) {
    clear_renderings(p);
    enum ax_status st = render(c, p->calls, NULL, 0, &p->answer);
    if (st == AX_OK)
        st = find_suffix(c, p->calls, p->results, &p->with, &p->suffix);
    *can = st == AX_OK && p->suffix;
    return st == AX_ERR_NOMEM ? st : AX_OK;
}

static bool shows(const char *text, const char *what) {
    return text && strstr(text, what);
}

static enum ax_status refuse(const struct ax_tool_chat *c, const char *what) {
    return ax_error(AX_ERR_CONFIG, "the chat template %s %s" REMEDY, ax_template_where(c->template),
                    what);
}

/* Prefers a way whose calls a known format reads. */
static enum ax_status find_way(struct ax_tool_chat *c, struct probe *p, const char *format) {
    bool any = false;
    bool found = false;
    for (unsigned i = 0; !found && i < WAYS; i++) {
        c->way = i ^ WAY_IDS;
        bool can;
        AX_TRY(try_way(c, p, &can));
        if (!can)
            continue;
        any = true;
        AX_TRY(find_format(c, p));
        found = c->format || format;
    }
    if (found) {
        ax_error_clear();
        c->format = format ? ax_tool_format_find(format) : c->format;
        return c->format ? AX_OK : ax_error(AX_ERR_CONFIG, "there is no format \"%s\"", format);
    }
    if (any)
        return refuse(
            c, "writes tool calls in no format that is known: name one in tool_call_format, if "
               "the model writes others");
    if (!p->with.text || !p->answer.text)
        return ax_error(AX_ERR_CONFIG,
                        "the chat template cannot write a conversation with tools: %s" REMEDY,
                        ax_error_text());
    return ax_error(AX_ERR_CONFIG,
                    "the chat template %s changes an answer when results follow it: it "
                    "writes\n%s\nand then\n%s\n" REMEDY,
                    ax_template_where(c->template), p->answer.text, p->with.text);
}

bool ax_tool_opens_thought(const struct ax_tool_format *f, const char *text) {
    if (!f->think_open)
        return false;
    const char *open = NULL;
    for (const char *p = text; (p = strstr(p, f->think_open)) != NULL; p++)
        open = p;
    return open && !strstr(open, f->think_close);
}

/* The definitions of tools that a question is asked with. */
static enum ax_status check_definitions(const struct ax_tool_chat *c) {
    struct ax_template_output out = {0};
    const json_t *f = json_object_get(json_array_get(c->tools, 0), "function");
    AX_TRY(render(c, NULL, NULL, HEADER | TOOLS, &out));
    const bool shown = shows(out.text, json_string_value(json_object_get(f, "name")));
    ax_template_output_free(&out);
    return shown ? AX_OK : refuse(c, "leaves out the definitions of tools");
}

bool ax_tool_chat_is_stop(const struct ax_tool_chat *c, int32_t id) {
    for (int i = 0; i < c->n_stop; i++)
        if (c->stop[i] == id)
            return true;
    return false;
}

bool ax_tool_chat_wants_text(const struct ax_tool_chat *c) {
    return (c->way & WAY_TEXT) != 0;
}

static enum ax_status open_tools(struct ax_tool_chat *c, const char *format) {
    struct probe p;
    enum ax_status st = AX_ERR_NOMEM;
    if (probe_create(&p))
        st = find_way(c, &p, format);
    else
        (void)ax_error(st, "out of memory for a conversation");
    if (st == AX_OK && !shows(p.suffix, RESULT))
        st = refuse(c, "leaves out the results of tools");
    if (st == AX_OK)
        st = check_definitions(c);
    if (st == AX_OK)
        c->thinks = ax_tool_opens_thought(c->format, p.suffix);
    probe_free(&p);
    return st;
}

void ax_tool_chat_add_stops(struct ax_tool_chat *c, struct ax_stop_tokens *stop) {
    AX_ASSERT(c->stop == stop->ids);
    for (size_t i = 0; i < sizeof c->format->stops / sizeof *c->format->stops; i++) {
        const char *text = c->format->stops[i];
        const int32_t id = text ? ax_tokenizer_find(c->tokenizer, text, strlen(text)) : AX_NO_TOKEN;
        if (id != AX_NO_TOKEN && !ax_tool_chat_is_stop(c, id) && stop->n < AX_MAX_STOP_TOKENS)
            stop->ids[stop->n++] = id;
        c->n_stop = stop->n;
    }
}

static enum ax_status encode_turn(const struct ax_tool_chat *c, const json_t *calls,
                                  struct ax_encoding *out) {
    struct ax_template_output answer = {0};
    size_t from = 0, end = 0, before;
    AX_TRY(render(c, calls, NULL, 0, &answer));
    enum ax_status st = find_end(c, answer.text, answer.len, &end, &before);
    if (st == AX_OK)
        st = find_turn(c, &answer, &from);
    if (st == AX_OK && end > from)
        st = encode(c, answer.text + from, end - from, false, out);
    ax_template_output_free(&answer);
    return st;
}

enum ax_status ax_tool_chat_example(const struct ax_tool_chat *c, const char *name,
                                    const json_t *arguments, struct ax_encoding *out) {
    json_t *calls = json_pack("[{s:{s:s, s:O}}]", "function", "name", name, "probe", arguments);
    if (!calls)
        return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    const enum ax_status st = encode_turn(c, calls, out);
    json_decref(calls);
    return st;
}

/* ---- opening ---- */

/* Does a message of the user follow an answer, and the header of the next one that? */
static enum ax_status check_answered(const struct ax_tool_chat *c) {
    struct ax_template_output with = {0};
    const char *suffix = NULL;
    json_t *calls = json_array();
    json_t *results = json_pack("[{s:s, s:s}]", "role", "user", "content", RESULT);
    enum ax_status st = AX_ERR_NOMEM;
    if (calls && results)
        st = find_suffix(c, calls, results, &with, &suffix);
    else
        (void)ax_error(st, "out of memory for a conversation");
    if (st == AX_OK && !(suffix && strstr(with.text, ANSWER) && shows(suffix, RESULT)))
        st =
            ax_error(AX_ERR_CONFIG,
                     "the chat template %s %s, which an environment says; set chat_template to one "
                     "that writes it behind the answer, such as chatml",
                     ax_template_where(c->template),
                     suffix ? "leaves out a message of the user behind an answer"
                            : "changes an answer when a message follows it");
    json_decref(calls);
    json_decref(results);
    ax_template_output_free(&with);
    return st;
}

enum ax_status ax_tool_chat_open(struct ax_tool_chat *c, const char *format) {
    if (json_array_size(c->tools) > 0)
        AX_TRY(open_tools(c, format));
    return c->answered ? check_answered(c) : AX_OK;
}
