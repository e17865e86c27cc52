/* A conversation, or a part of it, through its chat template. */
#include "base/fit.h"
#include "data/records/format/chat.h"
#include "data/records/format/tools.h"

static bool put(json_t *vars, const char *key, json_t *value) {
    return json_object_set_new(vars, key, value) == 0;
}

/* The message with `replaced` as its only text, except for the key to keep. */
static json_t *replaced_message(const json_t *message, const struct ax_chat_render *r) {
    json_t *out =
        json_pack("{s:O, s:s}", "role", json_object_get(message, "role"), "content", r->replaced);
    json_t *kept = r->kept ? json_object_get(message, r->kept) : NULL;
    if (out && kept && json_object_set(out, r->kept, kept) != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

static json_t *first_messages(const struct ax_conversation *c, const struct ax_chat_render *r) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; i < r->n && ok; i++) {
        i = r->head > 0 && i == r->head ? r->n - 1 : i;
        json_t *message = json_array_get(c->messages, i);
        if (r->replaced && i + r->later == r->n - 1)
            ok = json_array_append_new(list, replaced_message(message, r)) == 0;
        else
            ok = json_array_append(list, message) == 0;
    }
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

enum ax_status ax_chat_render(const struct ax_format *f, const struct ax_conversation *c,
                              const struct ax_chat_render *r, struct ax_template_output *out) {
    const struct ax_format_chat *chat = f->o.chat;
    const struct ax_template *template = ax_conversation_template(f, c);
    const struct ax_template_options o = {
        .chat = true, .defaults = chat->tokens, .fixed_now = true, .now = chat->now};
    json_t *vars =
        chat->variables ? json_copy((json_t *)(uintptr_t)chat->variables) : json_object();
    enum ax_status st = AX_OK;
    if (!vars || (c->variables && json_object_update(vars, c->variables) != 0) ||
        !put(vars, "messages", first_messages(c, r)) ||
        (c->tools && json_object_set(vars, "tools", c->tools) != 0) ||
        (r->generation_prompt && !put(vars, "add_generation_prompt", json_true())) ||
        (r->part && !put(vars, "real_last_index", json_integer((json_int_t)c->n - 1))))
        st = ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    if (st == AX_OK)
        st = ax_template_render(template, vars, &o, out);
    if (st == AX_ERR_DATA && !r->replaced && ax_tools_are_called(c->messages))
        st = ax_error(
            st,
            "%s; the record has tool calls: if the template cannot write them, " AX_TOOLS_REMEDY,
            ax_error_text());
    if (st == AX_OK && r->lost) {
        st = ax_tools_find_lost(template, vars, &o, out, r->lost);
        if (st != AX_OK)
            ax_template_output_free(out);
    }
    json_decref(vars);
    return st;
}
