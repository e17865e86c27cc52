/* A conversation with a model. The KV cache keeps the earlier turns, so a turn costs only its own
 * tokens.
 *
 * Reading order: cmd/chat.c (options and the loop), input.c (terminal and pipe), commands.c (/save
 * and the others), turn.c (messages and replies), calls.c (replies that call tools), remote.c (replies of an
 * endpoint), terminal.c (Ctrl-C, and what is printed). */
#ifndef AX_CMD_CHAT_CHAT_H
#define AX_CMD_CHAT_CHAT_H

#include "base/line/line_edit.h"
#include "cmd/args/text_args.h"

/* A model behind OpenAI's HTTP API. */
struct ax_chat_remote {
    const char *url; /* --url, as http://host:8000/v1; NULL: the model is here */
    const char *key_file;
    char *key;  /* NULL: none */
    char *name; /* the model's */
};

struct ax_chat {
    struct ax_text_args a;
    struct ax_ranks ranks; /* all have the conversation; rank 0 reads and prints it */
    const char *system;    /* --system; NULL: none */
    struct ax_chat_remote remote;
    struct ax_tool_args tool_args;
    struct ax_text_tools_options tool_options;
    int64_t context, max_new;
    bool is_terminal; /* input and output are a terminal */
    bool edits;       /* the terminal can move its cursor */

    struct ax_text_model model;
    struct ax_text_tools tools;
    struct ax_generator *generator;
    int adapter; /* adapter in use */
    json_t *messages;
    struct ax_buf system_text; /* empty: no system message */
    struct ax_encoding prompt;
    int32_t *tokens; /* tokens of the reply [max_new]; with tools, behind the prompt's [context] */
    bool *inserted;  /* with tools [max_new]: which of the reply's were not sampled */
    uint64_t turn;   /* random stream of the next reply */
    double temperature; /* NaN: the server's */
    struct ax_text_stream stream;
    struct ax_buf reply, line;
    size_t printed;
    struct ax_line_edit edit;
    bool is_text;     /* `line` was quoted: a message even if it begins with / */
    bool was_stopped; /* the last input was Ctrl-C */
};

/* ---- terminal.c ---- */

/* From this call on, Ctrl-C stops a reply. *old receives the previous action. */
struct sigaction;
void ax_chat_catch_interrupts(struct sigaction *old);
bool ax_chat_interrupted(void *ctx);
const _Atomic bool *ax_chat_interrupt_flag(void);
/* An earlier Ctrl-C no longer counts: it stops the reply that it comes in, and no other. */
void ax_chat_forget_interrupt(void);
/* Prints what is new of the reply. */
enum ax_status ax_chat_show(struct ax_chat *c);
/* Reports the error, on rank 0, and clears it. */
void ax_chat_tell_error(const struct ax_chat *c);

/* ---- turn.c ---- */

enum ax_status ax_chat_add(struct ax_chat *c, const char *role, const char *text, size_t len);
/* Starts a new conversation, with the system message if there is one. */
enum ax_status ax_chat_reset(struct ax_chat *c);
/* Renders the conversation into c->prompt; AX_ERR_DATA if that leaves no space for a reply. */
enum ax_status ax_chat_prompt(struct ax_chat *c);
/* Sends c->line and prints the reply. Reports errors that the user can correct, and keeps the
 * conversation as it was. */
enum ax_status ax_chat_turn(struct ax_chat *c);
/* Replaces the last reply by another; tells if there is none. */
enum ax_status ax_chat_retry(struct ax_chat *c);
/* Removes the last message and its reply; tells if there is none. */
enum ax_status ax_chat_undo(struct ax_chat *c);
enum ax_status ax_chat_on_token(void *ctx, struct ax_sequence *s, bool *stop);
const struct ax_text_side *ax_chat_side(const struct ax_chat *c);

/* ---- calls.c ---- */

/* Definitions of the tools; NULL: there are none. */
const json_t *ax_chat_tools(const struct ax_chat *c);
/* Replies in turns: adds them to the conversation, and to c->reply as people see them. Ctrl-C: c->was_stopped, and
 * nothing is added. */
enum ax_status ax_chat_reply_with_tools(struct ax_chat *c, bool *truncated);

/* ---- remote.c ---- */

/* Asks the endpoint for its models, and chooses one. */
enum ax_status ax_chat_remote_open(struct ax_chat *c);
void ax_chat_remote_close(struct ax_chat_remote *r);
/* Sends the conversation; the reply comes to c->reply as it is printed. Ctrl-C ends it: c->was_stopped. */
enum ax_status ax_chat_remote_reply(struct ax_chat *c, bool *truncated);

/* ---- commands.c ---- */

enum ax_status ax_chat_command(struct ax_chat *c); /* runs c->line, which begins with / */

/* ---- input.c ---- */

/* Opens the history if texts are edited. */
enum ax_status ax_chat_open_input(struct ax_chat *c);
/* Reads the next message or command into c->line, alike on all ranks; *more is false at the end of
 * input. */
enum ax_status ax_chat_read(struct ax_chat *c, bool *more);

#endif
