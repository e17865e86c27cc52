/* Timelines as Chrome trace-event JSON (Trace Event Format, Google 2016), which chrome://tracing and
 * ui.perfetto.dev show: a process per rank, with a thread of ops and waits, and transfers beside it. */
#ifndef AX_OPTIM_TRACE_H
#define AX_OPTIM_TRACE_H

#include "base/mem.h"
#include "kernels/timeline.h"

struct ax_trace {
    struct ax_buf text;
    bool any; /* event so far */
};

enum ax_status ax_trace_begin(struct ax_trace *t);
/* All spans of a rank's timeline; `zero`: the clock's second that is 0 in the trace. */
enum ax_status ax_trace_timeline(struct ax_trace *t, int rank, const struct ax_timeline *spans,
                                 double zero);
enum ax_status ax_trace_end(struct ax_trace *t);
/* Adds events that were made without begin and end, on another rank. */
enum ax_status ax_trace_join(struct ax_trace *t, const char *events, size_t length);
void ax_trace_free(struct ax_trace *t);

#endif
