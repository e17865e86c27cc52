/* Tools of a request, and calls in its answers: which format a model writes calls in, what a request may say about
 * tools, and turns → the protocol's tool_calls. */
#ifndef AX_CMD_SERVE_TOOLS_H
#define AX_CMD_SERVE_TOOLS_H

#include "base/text/words.h"
#include "data/text_side.h"
#include "data/tools/chat.h"

#define AX_SERVE_TOOLS 128 /* tools in a request */

/* How a model's template writes calls; constant. */
struct ax_serve_tools {
    const struct ax_tool_format *format; /* NULL: requests with tools are refused, `why` says why */
    char why[400];
    bool text_arguments; /* the template expects arguments as text */
    int32_t mark;        /* the token that opens calls, or AX_NO_TOKEN */
    int n_stop;          /* tokens that end a turn with calls, beside those that end any */
    int32_t stop[2];
};
/* AX_ERR_NOMEM only. */
enum ax_status ax_serve_tools_open(struct ax_serve_tools *t, const struct ax_text_side *side);

enum ax_serve_tool_choice { AX_TOOLS_NONE, AX_TOOLS_AUTO, AX_TOOLS_REQUIRED, AX_TOOLS_NAMED };

struct ax_serve_request;
struct ax_serve_model;
/* Reads `tools` and `tool_choice`; r->tools stays NULL without tools. */
enum ax_status ax_serve_read_tools(struct ax_serve_request *r, const struct ax_serve_model *m);

struct ax_serve_choice;
/* How much of the answer's text a stream may send while it has not ended: what may belong to calls waits. */
size_t ax_serve_calls_hold(const struct ax_serve_choice *c);
/* Reads the calls of an answer that has ended, once: c->calls, with ids, and c->text without them; the finish
 * becomes "tool_calls" unless one tool was named. Without calls nothing changes. */
enum ax_status ax_serve_calls_read(struct ax_serve_choice *c);

#endif
