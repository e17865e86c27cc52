/* Calls of tools that run beside their caller, which samples meanwhile: each process has a thread that asks it one call
 * after the other, in the order in which they were handed over, and the sandbox one that runs what waits together. They
 * end in any order. The first call of a process starts its thread, which ends with the tools. */
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
};

/* Hands a call over, which must stay where it is until it has ended. */
enum ax_status ax_tools_begin(struct ax_tools *t, struct ax_tool_call *c);
/* *c: one that has ended, once each; NULL: none has within these seconds. Errors are those of ax_tools_run, of any
 * call. */
enum ax_status ax_tools_take(struct ax_tools *t, double seconds, struct ax_tool_call **c);
/* Ends those that run, as what they run on is killed, and drops all; returns when none runs. */
void ax_tools_cancel(struct ax_tools *t);

/* ---- private to data/tools/ ---- */

struct ax_tool_beside; /* a part of the tools: ax_tools_beside */
enum ax_status ax_tool_beside_open(struct ax_tool_beside **out, struct ax_tools *t);
void ax_tool_beside_close(struct ax_tool_beside *b); /* NULL is fine */

#endif
