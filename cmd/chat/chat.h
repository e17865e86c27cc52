/* A conversation with a model. The KV cache keeps the earlier turns, so a turn costs only its own
 * tokens.
 *
 * Reading order: cmd/chat.c (options and the loop), input.c (what is typed or piped), commands.c
 * (/save and the others), turn.c (messages and replies). */
#ifndef AX_CMD_CHAT_CHAT_H
#define AX_CMD_CHAT_CHAT_H

#include "base/line_edit.h"
#include "cmd/generate/text_model.h"

struct ax_chat {
    struct ax_text_args a;
    const char *system; /* --system; NULL: none */
    int64_t context, max_new;
    bool is_terminal; /* a person reads and types */
    bool edits;       /* … and the terminal can move its cursor */

    struct ax_text_model model;
    struct ax_generator *generator;
    int adapter; /* in use */
    json_t *messages;
    struct ax_buf system_text; /* empty: no system message */
    struct ax_encoding prompt;
    int32_t *tokens; /* of the reply [max_new] */
    uint64_t turn;   /* its stream of random numbers */
    struct ax_text_stream stream;
    struct ax_buf reply, line;
    size_t printed;
    struct ax_line_edit edit;
    bool is_text;     /* `line` was quoted: a message, even if it begins with / */
    bool was_stopped; /* the last thing typed was Ctrl-C */
};

/* ---- turn.c ---- */

enum ax_status ax_chat_add(struct ax_chat *c, const char *role, const char *text, size_t len);
/* A new conversation, with the system message if there is one. */
enum ax_status ax_chat_reset(struct ax_chat *c);
/* The conversation's tokens to c->prompt; AX_ERR_DATA if no room is left for a reply. */
enum ax_status ax_chat_prompt(struct ax_chat *c);
/* Sends c->line and prints the reply. What a person can mend is reported, and the conversation
 * stays as it was. */
enum ax_status ax_chat_turn(struct ax_chat *c);
enum ax_status ax_chat_on_token(void *ctx, struct ax_sequence *s, bool *stop);
const struct ax_text_side *ax_chat_side(const struct ax_chat *c);
/* Reports the error and clears it. */
void ax_chat_tell_error(void);

/* Ctrl-C, from this call on, stops a reply. Returns what handled it before in *old. */
struct sigaction;
void ax_chat_catch_interrupts(struct sigaction *old);

/* ---- commands.c ---- */

enum ax_status ax_chat_command(struct ax_chat *c); /* c->line, which begins with / */

/* ---- input.c ---- */

/* Opens the history if texts are edited. */
enum ax_status ax_chat_open_input(struct ax_chat *c);
/* The next message or command to c->line; *more = false at the end. */
enum ax_status ax_chat_read(struct ax_chat *c, bool *more);
/* Does a text that Enter ends here continue (see ax_line_more)? A backslash at the end, or """ at
 * the start without """ at the end. */
int ax_chat_continues(const char *text, size_t len);

#endif
