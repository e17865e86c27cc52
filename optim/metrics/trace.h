/* Timelines as Chrome trace-event JSON (Trace Event Format, Google 2016), which chrome://tracing and
 * ui.perfetto.dev show: a process per rank, with a thread of ops and waits, and transfers beside it. */
#ifndef AX_OPTIM_METRICS_TRACE_H
#define AX_OPTIM_METRICS_TRACE_H

#include "base/mem.h"
#include "kernels/timeline.h"

struct ax_trace {
    struct ax_buf text;
    bool any; /* an event has been added */
};

enum ax_status ax_trace_begin(struct ax_trace *t);
/* Names a row (tid) and its process (pid). */
enum ax_status ax_trace_name(struct ax_trace *t, int pid, int tid, const char *process,
                             const char *row);
struct ax_trace_span {
    int pid, tid;
    const char *category, *name; /* plain text, without quotes */
    double begin, end;           /* seconds */
};
enum ax_status ax_trace_add(struct ax_trace *t, const struct ax_trace_span *s);
/* All spans of a rank's timeline; `zero`: the clock's second that is 0 in the trace. */
enum ax_status ax_trace_timeline(struct ax_trace *t, int rank, const struct ax_timeline *spans,
                                 double zero);
enum ax_status ax_trace_end(struct ax_trace *t);
/* Adds the text of another rank's events, made without ax_trace_begin and _end. */
enum ax_status ax_trace_join(struct ax_trace *t, const char *events, size_t length);
void ax_trace_free(struct ax_trace *t);

#endif
