/* The turns of an answer with tools: a call as the chat template writes it, read and answered as in a rollout. */
#include <stdio.h>
#include <string.h>

#include "cmd/preview/preview.h"
#include "data/tools/episode.h"

#define RESULT   "(what the tool returns)"
#define MAX_TURN 65536 /* tokens */

enum ax_status ax_preview_turns_open(struct ax_preview *p) {
    struct ax_tool_keys k = {0};
    if (!p->data->tools)
        return AX_OK;
    AX_FILL(p->cfg, "", struct ax_tool_keys, &k);
    AX_TRY(ax_setup_stops(&p->stop, p->data->tok.path, p->data));
    const enum ax_status st = ax_setup_chats_open(p->chats, p->data, k.format, &p->stop);
    return st == AX_OK
               ? AX_OK
               : ax_error_prefix(st, json_array_size(ax_tools_definitions_of(p->data->tools, 0)) > 0
                                         ? "trl.tools"
                                         : "trl.environment_factory");
}

/* ---- a call ---- */

static json_t *value_of(const json_t *schema) {
    static const struct {
        const char *type, *value;
    } values[] = {{"string", "\"…\""}, {"integer", "1"}, {"number", "1.5"},
                  {"boolean", "true"}, {"array", "[]"},  {"object", "{}"}};
    const char *type = json_string_value(json_object_get(schema, "type"));
    json_t *choice = json_array_get(json_object_get(schema, "enum"), 0);
    if (choice)
        return json_incref(choice);
    for (size_t i = 0; type && i < sizeof values / sizeof *values; i++)
        if (strcmp(values[i].type, type) == 0)
            return json_loads(values[i].value, JSON_DECODE_ANY, NULL);
    return json_null();
}

/* A value for each parameter of a function. NULL: no memory. */
static json_t *arguments_of(const json_t *function) {
    json_t *properties = json_object_get(json_object_get(function, "parameters"), "properties");
    json_t *all = json_object(), *schema;
    const char *key;
    bool ok = all != NULL;
    json_object_foreach(properties, key, schema) ok =
        ok && json_object_set_new(all, key, value_of(schema)) == 0;
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}

static enum ax_status encode_call(const struct ax_tool_chat *c, const json_t *function,
                                  struct ax_encoding *out) {
    json_t *arguments = arguments_of(function);
    if (!arguments)
        return ax_error(AX_ERR_NOMEM, "out of memory for a call");
    const enum ax_status st = ax_tool_chat_example(
        c, json_string_value(json_object_get(function, "name")), arguments, out);
    json_decref(arguments);
    return st;
}

/* ---- an episode ---- */

/* The turn is at its place; the result follows, if it is read as a call. */
static enum ax_status go_on(struct ax_episode *x, const struct ax_episode_rules *rules, int64_t n,
                            bool *read) {
    char text[] = RESULT;
    const struct ax_tool_result result = {.text = text, .n = sizeof text - 1};
    bool goes_on;
    AX_TRY(ax_episode_begin(x));
    AX_TRY(ax_episode_turn(x, rules, n, true));
    *read = x->calls && !json_object_get(json_array_get(x->calls, 0), "unread");
    return *read ? ax_episode_answer(x, rules, &result, &goes_on) : AX_OK;
}

static enum ax_status take(struct ax_preview_piece *out, const struct ax_episode *x) {
    out->n = (size_t)x->n;
    AX_TRY(ax_alloc(&out->labels, out->n, sizeof *out->labels));
    for (size_t i = 0; i < out->n; i++) {
        out->labels[i] = x->inserted[i] ? AX_NO_LABEL : out->ids[i];
        out->n_trained += !x->inserted[i];
    }
    return AX_OK;
}

enum ax_status ax_preview_turns_piece(struct ax_preview_piece *out, const struct ax_preview *p) {
    const json_t *function =
        json_object_get(json_array_get(ax_tools_definitions_of(p->data->tools, 0), 0), "function");
    const struct ax_episode_rules rules = {.chat = &p->chats[0], .max_rounds = -1};
    struct ax_episode x = {.cap = MAX_TURN};
    const char *name = json_string_value(json_object_get(function, "name"));
    struct ax_encoding call = {0};
    enum ax_status st;
    bool read;
    *out = (struct ax_preview_piece){.task = AX_TASK_TEXT};
    AX_TRY_GOTO(ax_alloc(&out->ids, MAX_TURN, sizeof *out->ids), st, done);
    AX_TRY_GOTO(ax_alloc(&x.inserted, MAX_TURN, sizeof *x.inserted), st, done);
    AX_TRY_GOTO(encode_call(&p->chats[0], function, &call), st, done);
    AX_ASSERT(call.n < MAX_TURN);
    memcpy(out->ids, call.ids, call.n * sizeof *call.ids);
    x.ids = out->ids;
    AX_TRY_GOTO(go_on(&x, &rules, (int64_t)call.n, &read), st, done);
    if (read)
        (void)snprintf(out->where, sizeof out->where,
                       "made-up turns, a call of %.100s and its result", name);
    else
        (void)snprintf(out->where, sizeof out->where,
                       "a made-up call of %.100s, which tool_call_format %s does not read", name,
                       p->chats[0].format->name);
    st = take(out, &x);
done:
    ax_free(x.inserted);
    ax_episode_free(&x);
    ax_encoding_free(&call);
    if (st != AX_OK)
        ax_preview_piece_close(out);
    return st;
}
