/* How a model's conversations with tools are written: the format of its calls, found by what its chat template makes
 * of one, and what the template writes between two sampled turns.
 *
 * Sampled tokens are never rendered or tokenized again. What comes between turns, the suffix, is the difference of two
 * renderings of a conversation of no content: a question and an answer with as many calls, and the same with the
 * results and the header of the next answer. What the template writes after the end of the first one's answer
 * (in ChatML a line feed) belongs to the suffix. A template that changes the answer when results follow it is tried
 * with a thought in the answer, which Qwen3's keeps; one that changes it even then is refused. What an environment
 * says is a message of the user, and its suffix is what follows the answer's text. */
#ifndef AX_DATA_TOOLS_CHAT_H
#define AX_DATA_TOOLS_CHAT_H

#include "data/text/stop_tokens.h"
#include "data/text/template/template.h"
#include "data/tools/format.h"

struct ax_tool_chat {
    const struct ax_template *template; /* borrowed, as are all of these */
    const json_t *tokens, *variables;   /* for the template; NULL: none */
    const struct ax_tokenizer *tokenizer;
    const json_t *tools; /* definitions; none: turns have no calls */
    bool answered;       /* messages of an environment follow turns without calls */
    int n_stop;
    const int32_t *stop; /* tokens that end a turn */
    int64_t now;         /* for strftime_now */
    /* ---- found by ax_tool_chat_open ---- */
    const struct ax_tool_format *format; /* NULL: there are no tools */
    unsigned way;                        /* how the template has to be given calls; chat.c */
    bool thinks;                         /* the header of an answer opens a thought */
};
/* `format`: name of one; NULL: the one that reads what the template writes. AX_ERR_CONFIG with the reason if the
 * template leaves out definitions, calls or results, changes earlier turns, or writes calls in no format known. */
enum ax_status ax_tool_chat_open(struct ax_tool_chat *c, const char *format);
/* Does the token end a turn? */
bool ax_tool_chat_is_stop(const struct ax_tool_chat *c, int32_t id);
/* Adds tokens that end a turn with calls, where the model's own files do not name them, to `stop`, whose ids the chat
 * borrows. */
void ax_tool_chat_add_stops(struct ax_tool_chat *c, struct ax_stop_tokens *stop);
/* Does the template expect arguments as text, and not as objects? */
bool ax_tool_chat_wants_text(const struct ax_tool_chat *c);
/* Appends the tokens of a turn that calls a tool, as the template writes it, with the token that ends it. */
enum ax_status ax_tool_chat_example(const struct ax_tool_chat *c, const char *name,
                                    const json_t *arguments, struct ax_encoding *out);
/* Does a rendered conversation end in an open thought? */
bool ax_tool_opens_thought(const struct ax_tool_format *f, const char *text);
/* Appends the tokens between a turn with these calls (as in a message) and the next one; `results`: messages
 * {"role": "tool", "name", "content"}, or, without calls, {"role": "user", "content"}. `last`: the token that the turn ended with, which is not repeated. No
 * token of a result is a special one. */
enum ax_status ax_tool_chat_suffix(const struct ax_tool_chat *c, const json_t *calls,
                                   const json_t *results, int32_t last, struct ax_encoding *out);

#endif
