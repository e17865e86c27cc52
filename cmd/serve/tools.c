/* What a model does with tools, and what a request says about them. calls.c reads answers. */
#include "cmd/serve/tools.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cmd/serve/request.h"
#include "data/tools/schema.h"

/* ---- the model's format ---- */

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for tools");
}

/* A definition that any template can write. */
static json_t *probe(void) {
    return json_pack("[{s:s s:{s:s s:s s:{s:s s:{s:{s:s s:s}} s:[s]}}}]", "type", "function",
                     "function", "name", "qxtoolxq", "description", "A tool.", "parameters", "type",
                     "object", "properties", "text", "type", "string", "description", "A text.",
                     "required", "text");
}

static int32_t token_of(const struct ax_tokenizer *t, const char *text) {
    return text ? ax_tokenizer_find(t, text, strlen(text)) : AX_NO_TOKEN;
}

static void take_format(struct ax_serve_tools *t, const struct ax_tool_chat *c) {
    t->format = c->format;
    t->text_arguments = ax_tool_chat_wants_text(c);
    t->mark = token_of(c->tokenizer, c->format->open);
    for (size_t i = 0; i < sizeof c->format->stops / sizeof *c->format->stops; i++) {
        const int32_t id = token_of(c->tokenizer, c->format->stops[i]);
        if (id != AX_NO_TOKEN)
            t->stop[t->n_stop++] = id;
    }
}

enum ax_status ax_serve_tools_open(struct ax_serve_tools *t, const struct ax_text_side *side) {
    json_t *tools = probe();
    struct ax_tool_chat c = {.template = ax_text_side_template(side, tools),
                             .tokens = side->tokens,
                             .tokenizer = side->tokenizer,
                             .tools = tools,
                             .n_stop = side->stop.n,
                             .stop = side->stop.ids,
                             .now = (int64_t)time(NULL)};
    *t = (struct ax_serve_tools){.mark = AX_NO_TOKEN, .why = "the model has no chat template"};
    if (!tools)
        return no_memory();
    const enum ax_status st = c.template ? ax_tool_chat_open(&c, NULL) : AX_OK;
    json_decref(tools);
    if (st == AX_ERR_NOMEM)
        return st;
    if (st != AX_OK) {
        snprintf(t->why, sizeof t->why, "%.380s", ax_error_text());
        ax_error_clear();
    } else if (c.format) {
        take_format(t, &c);
    }
    return AX_OK;
}

/* ---- a request ---- */

/* Names as the protocol has them: they are part of what a model writes. */
static bool is_name(const json_t *v) {
    const char *s = json_string_value(v);
    const size_t n = json_string_length(v);
    return s && n >= 1 && n <= 64 &&
           strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.") == n;
}

static enum ax_status check_tool(struct ax_serve_request *r, size_t i, const json_t *tool) {
    const char *type = json_string_value(json_object_get(tool, "type"));
    const json_t *f = json_object_get(tool, "function"),
                 *description = json_object_get(f, "description"),
                 *parameters = json_object_get(f, "parameters");
    char param[64];
    snprintf(param, sizeof param, "tools[%zu]", i);
    if (!type || strcmp(type, "function") != 0 || !json_is_object(f))
        return ax_serve_refuse(r, param, "expected {\"type\": \"function\", \"function\": {…}}");
    if (!is_name(json_object_get(f, "name")))
        return ax_serve_refuse(r, param,
                               "function.name: expected 1 to 64 letters, digits, _, - or .");
    if (ax_tool_function(r->tools, json_string_value(json_object_get(f, "name"))) != f)
        return ax_serve_refuse(r, param, "another tool has this name");
    if (description && !json_is_string(description) && !json_is_null(description))
        return ax_serve_refuse(r, param, "function.description: expected text");
    if (parameters && !json_is_object(parameters) && !json_is_null(parameters))
        return ax_serve_refuse(r, param, "function.parameters: expected a JSON schema, an object");
    return AX_OK;
}

static enum ax_status read_choice(struct ax_serve_request *r) {
    const json_t *v = json_object_get(r->root, "tool_choice"),
                 *name = json_object_get(json_object_get(v, "function"), "name");
    const char *word = json_string_value(v);
    static const char *const words[] = {"none", "auto", "required"};
    r->tool_choice = r->tools ? AX_TOOLS_AUTO : AX_TOOLS_NONE;
    if (!v || json_is_null(v))
        return AX_OK;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (word && strcmp(word, words[i]) == 0) {
            r->tool_choice = (enum ax_serve_tool_choice)i;
            return r->tools || i < 2 ? AX_OK : ax_serve_refuse(r, "tool_choice", "needs tools");
        }
    r->tool_choice = AX_TOOLS_NAMED;
    if (!json_is_string(name))
        return ax_serve_refuse(r, "tool_choice",
                               "expected none, auto, required or {\"type\": \"function\", "
                               "\"function\": {\"name\": …}}");
    r->tool_named = ax_tool_function(r->tools, json_string_value(name));
    return r->tool_named ? AX_OK
                         : ax_serve_refuse(r, "tool_choice", "there is no tool \"%.64s\"",
                                           json_string_value(name));
}

enum ax_status ax_serve_read_tools(struct ax_serve_request *r, const struct ax_serve_model *m) {
    const json_t *v = json_object_get(r->root, "tools");
    const size_t n = json_array_size(v);
    if (v && !json_is_null(v) && !json_is_array(v))
        return ax_serve_refuse(r, "tools", "expected a list of tools");
    if (n > AX_SERVE_TOOLS)
        return ax_serve_refuse(r, "tools", "expected at most %d tools, got %zu", AX_SERVE_TOOLS, n);
    r->tools = n > 0 ? v : NULL;
    for (size_t i = 0; i < n; i++)
        AX_TRY(check_tool(r, i, json_array_get(v, i)));
    if (r->tools && !m->tools->format)
        return ax_serve_refuse(r, "tools", "this model cannot be asked to call any: %s",
                               m->tools->why);
    return read_choice(r);
}
