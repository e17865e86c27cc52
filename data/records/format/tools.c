/* Read ax_tools_find_lost first. */
#include "data/records/format/tools.h"

#include <stdio.h>
#include <string.h>

#include "data/records/format/impl.h"

/* ---- reading ---- */

/* A schema or arguments may be JSON in a string. */
static enum ax_status parse_function(json_t *owner, const char *key) {
    json_t *function = json_object_get(owner, "function");
    return function ? ax_record_parse_inner(function, key) : AX_OK;
}

/* The column that OpenAI's records had before `tools`: definitions, without a type around each. */
static const char functions[] = "functions";

static bool has_functions(const json_t *record) {
    const json_t *v = json_object_get(record, functions);
    const char *text = json_string_value(v);
    return json_object_get(json_array_get(v, 0), "name") || (text && *text == '[');
}

static enum ax_status read_functions(json_t *record, json_t **out) {
    AX_TRY(ax_record_parse_inner(record, functions));
    const json_t *list = json_object_get(record, functions);
    bool ok = (*out = json_array()) != NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *function = json_array_get(list, i);
        const enum ax_status st = ax_record_parse_inner(function, "parameters");
        if (st != AX_OK)
            return ax_error_prefix(st, "%s[%zu]", functions, i);
        ok = ok && json_array_append_new(
                       *out, json_pack("{ss sO}", "type", "function", "function", function)) == 0;
    }
    return ok ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for tools");
}

/* The names that the column may have. */
static enum ax_status refuse_choice(const json_t *given, const json_t *v) {
    struct ax_buf names = {0};
    const char *name;
    json_t *list;
    enum ax_status st = AX_OK;
    char *text = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
    json_object_foreach((json_t *)(uintptr_t)given, name, list) if (st == AX_OK) st =
        ax_buf_printf(&names, "%s%s", names.len > 0 ? ", " : "", name);
    if (st == AX_OK)
        st = ax_error(AX_ERR_DATA,
                      "column \"" AX_TOOLS_CHOICE
                      "\": expected one of trl.environment_factory (%s), "
                      "%s%.80s",
                      names.data, v ? "got " : "there is none", text ? text : "");
    ax_free_hook(text);
    ax_buf_free(&names);
    return st;
}

enum ax_status ax_tools_given(const json_t *given, const json_t *record, json_t **out) {
    const json_t *v = json_object_get(record, AX_TOOLS_CHOICE), *list = given;
    if (json_is_object(given))
        list = json_is_string(v) ? json_object_get(given, json_string_value(v)) : NULL;
    if (given && !list)
        return refuse_choice(given, v);
    *out = json_array_size(list) > 0 ? (json_t *)(uintptr_t)list : NULL;
    return AX_OK;
}

enum ax_status ax_tools_read(json_t *record, const char *column, json_t **out) {
    json_t *tools = json_object_get(record, column);
    if (!tools && strcmp(column, "tools") == 0 && has_functions(record))
        return read_functions(record, out);
    if (json_is_string(tools) &&
        ax_text_is_blank(json_string_value(tools), json_string_length(tools)))
        return AX_OK;
    AX_TRY(ax_record_parse_inner(record, column));
    tools = json_object_get(record, column);
    if (!tools || json_is_null(tools))
        return AX_OK;
    if (!json_is_array(tools))
        return ax_error(AX_ERR_DATA, "%s: expected a list, got %s", column, ax_json_kind(tools));
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const enum ax_status st = parse_function(json_array_get(tools, i), "parameters");
        if (st != AX_OK)
            return ax_error_prefix(st, "%s[%zu].function", column, i);
    }
    *out = json_incref(tools);
    return AX_OK;
}

enum ax_status ax_tools_parse_calls(json_t *message) {
    json_t *calls = json_object_get(message, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const enum ax_status st = parse_function(json_array_get(calls, i), "arguments");
        if (st != AX_OK)
            return ax_error_prefix(st, "tool_calls[%zu].function", i);
    }
    return AX_OK;
}

/* ---- elements: definitions, calls and results ---- */

bool ax_tools_are_calls(const char *key, const json_t *v) {
    return (strcmp(key, "tool_calls") == 0 || strcmp(key, "function_call") == 0) &&
           (json_array_size(v) > 0 || json_object_size(v) > 0 || json_string_length(v) > 0);
}

bool ax_tools_are_called(const json_t *messages) {
    const char *key;
    json_t *v;
    for (size_t i = 0; i < json_array_size(messages); i++)
        json_object_foreach(json_array_get(messages, i), key, v) {
            if (ax_tools_are_calls(key, v))
                return true;
        }
    return false;
}

static bool is_result(const json_t *message) {
    static const char *const roles[] = {"tool", "function", "ipython", "environment",
                                        "observation"};
    const char *role = json_string_value(json_object_get(message, "role"));
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0)
            return true;
    return false;
}

/* A change of elements, in the order of visits. */
struct change {
    bool counts;      /* changes none */
    const bool *only; /* [n]: those to change; NULL: all */
    size_t n;         /* visited so far */
    unsigned changed; /* bits of what was changed */
    bool ok;          /* memory sufficed */
};

#define MARK_SIZE 32
static void put_mark(char *out, size_t i) {
    snprintf(out, MARK_SIZE, "qx%zuxq", i);
}

/* Is the next element one to change? */
static bool visit(struct change *c, enum ax_oddity what) {
    const size_t i = c->n++;
    if (c->counts || (c->only && !c->only[i]))
        return false;
    c->changed |= 1U << what;
    return true;
}

/* Appends the mark of the element that was visited last to a text, if it is one. */
static bool mark(struct change *c, json_t *owner, const char *key) {
    const json_t *v = json_object_get(owner, key);
    char suffix[MARK_SIZE];
    if (json_string_length(v) == 0)
        return false;
    put_mark(suffix, c->n - 1);
    json_t *marked = json_sprintf("%s%s", json_string_value(v), suffix);
    c->ok = json_object_set_new(owner, key, marked) == 0 && c->ok;
    return true;
}

static bool mark_name(struct change *c, json_t *element) {
    json_t *function = json_object_get(element, "function");
    return mark(c, json_is_object(function) ? function : element, "name");
}

/* Another name, or no element where it has none. */
static void change_list(struct change *c, json_t *list, enum ax_oddity what) {
    for (size_t i = json_array_size(list); i-- > 0;)
        if (visit(c, what) && !mark_name(c, json_array_get(list, i)))
            json_array_remove(list, i);
}

/* A list, one call, or text. */
static void change_calls(struct change *c, json_t *message, const char *key) {
    json_t *v = json_object_get(message, key);
    if (json_is_array(v))
        change_list(c, v, AX_ODD_CALLS);
    else if (ax_tools_are_calls(key, v) && visit(c, AX_ODD_CALLS) && !mark_name(c, v) &&
             !mark(c, message, key))
        json_object_del(message, key);
}

static void change_message(struct change *c, json_t *message) {
    json_t *content = json_object_get(message, "content");
    change_calls(c, message, "tool_calls");
    change_calls(c, message, "function_call");
    if (is_result(message) && (json_string_length(content) > 0 || json_array_size(content) > 0) &&
        visit(c, AX_ODD_RESULTS) && !mark(c, message, "content"))
        json_array_clear(content);
}

static void change_all(struct change *c, json_t *vars) {
    json_t *messages = json_object_get(vars, "messages");
    change_list(c, json_object_get(vars, "tools"), AX_ODD_TOOLS);
    for (size_t i = 0; i < json_array_size(messages); i++)
        change_message(c, json_array_get(messages, i));
}

/* ---- what is lost ---- */

struct search {
    const struct ax_template *t;
    const json_t *vars;
    const struct ax_template_options *o;
};

/* Renders with changed elements. *text stays empty if the template refuses them, so that it reads
 * them. */
static enum ax_status render(const struct search *s, struct change *c,
                             struct ax_template_output *text) {
    static const char *const changed[] = {"messages", "tools"};
    json_t *vars = json_copy((json_t *)(uintptr_t)s->vars);
    c->ok = vars != NULL;
    for (size_t i = 0; c->ok && i < 2; i++) {
        const json_t *v = json_object_get(vars, changed[i]);
        c->ok = !v || json_object_set_new(vars, changed[i], json_deep_copy(v)) == 0;
    }
    if (c->ok)
        change_all(c, vars);
    enum ax_status st = c->ok ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    if (st == AX_OK && c->changed != 0)
        st = ax_template_render(s->t, vars, s->o, text);
    json_decref(vars);
    if (st == AX_ERR_DATA) {
        ax_error_clear();
        st = AX_OK;
    }
    return st;
}

static bool same(const struct ax_template_output *a, const struct ax_template_output *b) {
    return a->text && b->text && a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

/* Some elements may be lost, those without a mark in the text. */
static enum ax_status find_some(const struct search *s, const struct ax_template_output *text,
                                const struct ax_template_output *marked, size_t n, unsigned *lost) {
    struct ax_template_output without = {0};
    struct change c = {0};
    bool *only;
    char suffix[MARK_SIZE];
    AX_TRY(ax_alloc(&only, n, sizeof *only));
    for (size_t i = 0; i < n; i++) {
        put_mark(suffix, i);
        only[i] = !memmem(marked->text, marked->len, suffix, strlen(suffix));
    }
    c.only = only;
    const enum ax_status st = render(s, &c, &without);
    if (st == AX_OK && same(&without, text))
        *lost |= c.changed;
    ax_template_output_free(&without);
    ax_free(only);
    return st;
}

enum ax_status ax_tools_find_lost(const struct ax_template *t, const json_t *vars,
                                  const struct ax_template_options *o,
                                  const struct ax_template_output *text, unsigned *lost) {
    const struct search s = {t, vars, o};
    struct ax_template_output marked = {0};
    struct change count = {.counts = true}, c = {0};
    change_all(&count, (json_t *)(uintptr_t)vars);
    if (count.n == 0)
        return AX_OK;
    enum ax_status st = render(&s, &c, &marked);
    if (st == AX_OK && same(&marked, text))
        *lost |= c.changed;
    else if (st == AX_OK && marked.text)
        st = find_some(&s, text, &marked, c.n, lost);
    ax_template_output_free(&marked);
    return st;
}

/* ---- the warning ---- */

enum ax_status ax_tools_put_lost(struct ax_buf *out, const struct ax_template *t,
                                 const struct ax_oddities *counted, char *const *files,
                                 size_t n_files) {
    static const struct {
        enum ax_oddity kind;
        const char *what;
    } kinds[] = {
        {AX_ODD_TOOLS, "definitions"}, {AX_ODD_CALLS, "calls"}, {AX_ODD_RESULTS, "results"}};
    size_t n = 0, all = 0;
    for (size_t i = 0; i < 3; i++)
        all += counted[kinds[i].kind].n > 0;
    for (size_t i = 0; i < 3; i++) {
        const struct ax_oddities *o = &counted[kinds[i].kind];
        if (o->n == 0)
            continue;
        if (n++ == 0)
            AX_TRY(ax_buf_printf(out, "the chat template %s leaves out", ax_template_where(t)));
        AX_TRY(ax_buf_printf(out,
                             "%s the tool %s of %lld conversation%s (the first is %.200s:%lld)",
                             n == 1    ? ""
                             : n < all ? ","
                                       : " and",
                             kinds[i].what, (long long)o->n, o->n == 1 ? "" : "s",
                             (size_t)o->file < n_files ? files[o->file] : "", (long long)o->line));
    }
    return AX_OK;
}
