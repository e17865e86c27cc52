#include <string.h>

#include "cmd/chat/chat.h"
#include "cmd/generate/turns.h"

const json_t *ax_chat_tools(const struct ax_chat *c) {
    return c->tools.tools ? ax_tools_definitions(c->tools.tools) : NULL;
}

static enum ax_status show(struct ax_chat *c, const json_t *messages) {
    AX_TRY(ax_generate_turns_show(&c->reply, messages));
    while (c->reply.len > 0 && c->reply.data[c->reply.len - 1] == '\n')
        c->reply.len--;
    return AX_OK;
}

static enum ax_status take_turns(struct ax_chat *c, struct ax_turns_answer *a) {
    AX_TRY(ax_turns_take(c->generator, c->tools.tools, NULL, 1, a, &c->was_stopped));
    if (c->was_stopped)
        return AX_OK;
    AX_TRY(show(c, a->episode.messages));
    if (json_array_extend(c->messages, a->episode.messages) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for the conversation");
    return AX_OK;
}

enum ax_status ax_chat_reply_with_tools(struct ax_chat *c, bool *truncated) {
    const int64_t n = (int64_t)c->prompt.n, room = c->context - n;
    struct ax_turns_answer a = {.rules = ax_text_tools_rules(&c->tools, &c->model, c->adapter),
                                .n_prompt = n,
                                .cap = room < c->max_new ? room : c->max_new,
                                .ids = c->tokens,
                                .inserted = c->inserted,
                                .stream = c->turn,
                                .number = (int64_t)c->turn};
    c->turn++;
    memcpy(c->tokens, c->prompt.ids, c->prompt.n * sizeof *c->tokens);
    const enum ax_status st = take_turns(c, &a);
    *truncated = a.episode.truncated;
    ax_turns_free(&a, 1);
    return st;
}
