/* Conversations of a request: the protocol's messages as templates expect them. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cmd/serve/request.h"

/* Keys of a message that reach the template as they are. */
static const char *const passed[] = {"name", "tool_call_id", "reasoning_content", "reasoning"};

static const char *of_message(char *text, size_t size, size_t i, const char *key) {
    snprintf(text, size, "messages[%zu].%.20s", i, key);
    return text;
}
#define AT(i, key) of_message((char[64]){0}, 64, i, key)

/* Does the template treat developers as such? Else their messages are the system's. */
static bool knows_developer(const struct ax_serve_request *r, const struct ax_serve_model *m) {
    static const char word[] = "developer";
    const struct ax_template *t = ax_text_side_template(m->side, r->tools);
    size_t n = 0;
    const char *source = t ? ax_template_source(t, &n) : NULL;
    return source && memmem(source, n, word, sizeof word - 1);
}

static enum ax_status read_role(struct ax_serve_request *r, const struct ax_serve_model *m,
                                size_t i, const json_t *from, json_t *to) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    const char *role = json_string_value(json_object_get(from, "role"));
    size_t k = 0;
    while (role && k < sizeof roles / sizeof *roles && strcmp(role, roles[k]) != 0)
        k++;
    if (!role || k == sizeof roles / sizeof *roles)
        return ax_serve_refuse(r, AT(i, "role"),
                               "expected system, developer, user, assistant or tool");
    if (k == 1 && !knows_developer(r, m))
        role = "system";
    return json_object_set_new(to, "role", json_string(role)) == 0
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
}

/* A text, or a list of texts. */
static enum ax_status read_content(struct ax_serve_request *r, size_t i, const json_t *from,
                                   json_t *to) {
    json_t *v = json_object_get(from, "content");
    const bool absent = !v || json_is_null(v);
    if (!(absent && json_object_get(to, "tool_calls")) && !json_is_string(v) && !json_is_array(v))
        return ax_serve_refuse(r, AT(i, "content"), "expected text, or a list of parts");
    for (size_t k = 0; k < json_array_size(v); k++) {
        const json_t *part = json_array_get(v, k);
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type || strcmp(type, "text") != 0 || !json_is_string(json_object_get(part, "text")))
            return ax_serve_refuse(r, AT(i, "content"),
                                   "only parts of type text are supported, not %.40s",
                                   type ? type : "one without a type");
    }
    return json_object_set_new(to, "content", absent ? json_string("") : json_incref(v)) == 0
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
}

/* The object of arguments that are its text, an object already, or none (blank, null, absent), as vLLM reads them; NULL for
 * a text that is no object. */
static json_t *object_of(const json_t *arguments) {
    const char *text = json_is_string(arguments) ? json_string_value(arguments) : "";
    if (json_is_object(arguments))
        return json_incref((json_t *)(uintptr_t)arguments);
    if (text[strspn(text, " \t\r\n")] == '\0')
        return json_object();
    json_t *v = json_loadb(text, json_string_length(arguments), JSON_ALLOW_NUL, NULL);
    if (json_is_object(v))
        return v;
    json_decref(v);
    return NULL;
}

/* Most templates expect the object of a call's arguments, others its text; a text that is no object stays what it is. */
static enum ax_status set_arguments(json_t *function, bool as_text) {
    const json_t *v = json_object_get(function, "arguments");
    json_t *object = as_text && json_is_string(v) && *json_string_value(v) ? NULL : object_of(v);
    if (object && as_text) {
        char *text = json_dumps(object, 0);
        json_decref(object);
        object = text ? json_string(text) : NULL;
        ax_free(text);
    } else if (!object) {
        return AX_OK;
    }
    return object && json_object_set_new(function, "arguments", object) == 0
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
}

static enum ax_status read_calls(struct ax_serve_request *r, const struct ax_serve_model *m,
                                 size_t i, const json_t *from, json_t *to) {
    const json_t *v = json_object_get(from, "tool_calls");
    if (!v || json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0))
        return AX_OK;
    json_t *calls = json_deep_copy(v);
    if (!calls || json_object_set_new(to, "tool_calls", calls) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    for (size_t k = 0; k < json_array_size(calls) || k == 0; k++) {
        json_t *function = json_object_get(json_array_get(calls, k), "function");
        const json_t *given = json_object_get(function, "arguments");
        if (!json_is_string(json_object_get(function, "name")))
            return ax_serve_refuse(r, AT(i, "tool_calls"),
                                   "expected a list of {\"function\": {\"name\", \"arguments\"}}");
        if (given && !json_is_null(given) && !json_is_string(given) && !json_is_object(given))
            return ax_serve_refuse(r, AT(i, "tool_calls"),
                                   "arguments: expected the text of an object, or one");
        AX_TRY(set_arguments(function, m->tools->text_arguments));
    }
    return AX_OK;
}

static bool says_nothing(const json_t *v) {
    return json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0);
}

static enum ax_status read_rest(struct ax_serve_request *r, size_t i, json_t *from, json_t *to) {
    const char *key;
    json_t *v;
    json_object_foreach(from, key, v) {
        size_t k = 0;
        if (strcmp(key, "role") == 0 || strcmp(key, "content") == 0 ||
            strcmp(key, "tool_calls") == 0 || says_nothing(v))
            continue;
        while (k < sizeof passed / sizeof *passed && strcmp(key, passed[k]) != 0)
            k++;
        if (k == sizeof passed / sizeof *passed)
            return ax_serve_refuse(r, AT(i, key), "not supported yet");
        if (!json_is_string(v))
            return ax_serve_refuse(r, AT(i, key), "expected text");
        if (json_object_set(to, key, v) != 0)
            return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    }
    return AX_OK;
}

static enum ax_status read_message(struct ax_serve_request *r, const struct ax_serve_model *m,
                                   size_t i, json_t *from, json_t *list) {
    json_t *to = json_object();
    if (!to || json_array_append_new(list, to) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    if (!json_is_object(from))
        return ax_serve_refuse(r, "messages", "expected objects with role and content");
    AX_TRY(read_role(r, m, i, from, to));
    AX_TRY(read_calls(r, m, i, from, to));
    AX_TRY(read_content(r, i, from, to));
    return read_rest(r, i, from, to);
}

/* Absent, null, or true or false. */
static enum ax_status read_flag(struct ax_serve_request *r, const char *key, int *flag) {
    const json_t *v = json_object_get(r->root, key);
    if (v && !json_is_null(v) && !json_is_boolean(v))
        return ax_serve_refuse(r, key, "expected true or false");
    *flag = json_is_boolean(v) ? json_is_true(v) : -1;
    return AX_OK;
}

static enum ax_status read_variables(struct ax_serve_request *r, struct ax_chat_prompt *p) {
    const json_t *v = json_object_get(r->root, "chat_template_kwargs");
    json_t *effort = json_object_get(r->root, "reasoning_effort"),
           *tools = json_object_get(r->root, "tools");
    const bool says = effort && !json_is_null(effort);
    if (v && !json_is_null(v) && !json_is_object(v))
        return ax_serve_refuse(r, "chat_template_kwargs", "expected an object");
    if (says && !json_is_string(effort))
        return ax_serve_refuse(r, "reasoning_effort", "expected text");
    r->variables = json_is_object(v) ? json_copy((json_t *)(uintptr_t)v) : json_object();
    if (!r->variables || (says && json_object_set(r->variables, "reasoning_effort", effort) != 0) ||
        /* to templates, an empty list is not the same as none */
        (json_is_array(tools) && !r->tools && json_object_set(r->variables, "tools", tools) != 0))
        return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    p->variables = r->variables;
    return AX_OK;
}

/* What is asked of the template. */
static enum ax_status read_wishes(struct ax_serve_request *r, struct ax_chat_prompt *p) {
    int starts = -1, continues = -1;
    AX_TRY(read_flag(r, "add_generation_prompt", &starts));
    AX_TRY(read_flag(r, "continue_final_message", &continues));
    if (starts == 1 && continues == 1)
        return ax_serve_refuse(
            r, "continue_final_message",
            "not with \"add_generation_prompt\": true, which starts another one");
    p->bare = starts == 0;
    p->continues = continues == 1;
    return read_variables(r, p);
}

/* The first call whose arguments are a text that is no object, which many templates cannot write, becomes the place of the
 * template's error. */
static enum ax_status blame_arguments(struct ax_serve_request *r, const json_t *messages) {
    char why[300];
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *calls = json_object_get(json_array_get(messages, i), "tool_calls");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            const json_t *f = json_object_get(json_array_get(calls, k), "function");
            if (!json_is_string(json_object_get(f, "arguments")))
                continue;
            snprintf(why, sizeof why, "%s", ax_error_text());
            snprintf(r->param, sizeof r->param, "messages[%zu].tool_calls[%zu].function.arguments",
                     i, k);
            return ax_error(AX_ERR_DATA, "%s: expected the text of a JSON object (%s)", r->param,
                            why);
        }
    }
    return AX_ERR_DATA;
}

static enum ax_status render(struct ax_serve_request *r, const struct ax_serve_model *m,
                             const json_t *messages) {
    struct ax_chat_prompt p = {.messages = messages, .tools = r->tools};
    AX_TRY(read_wishes(r, &p));
    pthread_mutex_lock(m->template_lock);
    const enum ax_status st = ax_text_side_encode_chat(m->side, &p, &r->ids);
    pthread_mutex_unlock(m->template_lock);
    if (st != AX_ERR_DATA)
        return st;
    snprintf(r->param, sizeof r->param, "messages");
    return m->tools->text_arguments ? st : blame_arguments(r, messages);
}

/* Calls inside a thought are none. */
static enum ax_status look_for_thought(struct ax_serve_request *r, const struct ax_serve_model *m) {
    struct ax_buf text = {0};
    enum ax_status st = ax_tokenizer_decode(m->side->tokenizer, r->ids.ids, r->ids.n, false, &text);
    if (st == AX_OK)
        st = ax_buf_append(&text, "", 1);
    r->thinks = st == AX_OK && ax_tool_opens_thought(m->tools->format, text.data);
    ax_buf_free(&text);
    return st;
}

enum ax_status ax_serve_read_messages(struct ax_serve_request *r, const struct ax_serve_model *m,
                                      const json_t *messages) {
    const size_t n = json_array_size(messages);
    if (n == 0)
        return ax_serve_refuse(r, "messages", "expected a list of messages, not an empty one");
    json_t *list = json_array();
    enum ax_status st = list ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    for (size_t i = 0; i < n && st == AX_OK; i++)
        st = read_message(r, m, i, json_array_get(messages, i), list);
    if (st == AX_OK)
        st = render(r, m, list);
    if (st == AX_OK && r->tools)
        st = look_for_thought(r, m);
    json_decref(list);
    return st;
}
