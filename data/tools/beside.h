/* Calls of tools that run beside their caller, which samples meanwhile: each process of a host has a thread that asks it
 * one call after the other, and the sandbox one that runs what waits together. Calls of one answer to one host are asked in
 * their order, never two at a time, and of a host that binds by the same process; those of other answers in any order. The
 * first call of a host starts its first thread, and one that waits for a tenth of a second another one, up to as many
 * as the host has processes, so that quick tools need no more than one. What was opened later starts with as many: by
 * then, episodes that begin quickly and take their time later are shared among processes. */
#ifndef AX_DATA_TOOLS_BESIDE_H
#define AX_DATA_TOOLS_BESIDE_H

#include "data/tools/tools.h"

struct ax_tool_call {
    /* ---- set by the caller, whose they stay ---- */
    struct ax_tool_request request;
    struct ax_tool_result *result; /* zeroed; set when the call has ended, by ax_tools_run */
    void *ctx;
    /* ---- private ---- */
    struct ax_tool_call *next;
    double since; /* when it was handed over */
    size_t bond;  /* number of that of its answer and host */
};

struct ax_tool_beside;
enum ax_status ax_tool_beside_open(struct ax_tool_beside **out, struct ax_tools *t);
/* Ends calls that run, as what they run on is killed, and drops all. NULL is fine */
void ax_tool_beside_close(struct ax_tool_beside *b);
/* Hands a call over, which must stay where it is until it has ended. */
enum ax_status ax_tool_beside_begin(struct ax_tool_beside *b, struct ax_tool_call *c);
/* *c: one that has ended, once each; NULL: none has within these seconds. Errors are those of ax_tools_run, of any
 * call. */
enum ax_status ax_tool_beside_take(struct ax_tool_beside *b, double seconds,
                                   struct ax_tool_call **c);

#endif
