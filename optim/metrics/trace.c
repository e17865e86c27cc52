#include "optim/metrics/trace.h"

#include <stdio.h>

#include "kernels/ops.h"
#include "parallel/fabric/comm.h"

static const double MICRO = 1e6; /* the format's unit */

/* Between events. */
static enum ax_status next(struct ax_trace *t) {
    const bool any = t->any;
    t->any = true;
    return any ? ax_buf_puts(&t->text, ",\n") : AX_OK;
}

enum ax_status ax_trace_begin(struct ax_trace *t) {
    *t = (struct ax_trace){0};
    return ax_buf_puts(&t->text, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
}

enum ax_status ax_trace_name(struct ax_trace *t, int pid, int tid, const char *process,
                             const char *row) {
    AX_TRY(next(t));
    AX_TRY(ax_buf_printf(&t->text,
                         "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"process_name\", "
                         "\"args\": {\"name\": \"%s\"}}",
                         pid, tid, process));
    AX_TRY(next(t));
    return ax_buf_printf(&t->text,
                         "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"thread_name\", "
                         "\"args\": {\"name\": \"%s\"}}",
                         pid, tid, row);
}

enum ax_status ax_trace_add(struct ax_trace *t, const struct ax_trace_span *s) {
    AX_TRY(next(t));
    return ax_buf_printf(&t->text,
                         "{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, "
                         "\"cat\": \"%s\", \"name\": \"%s\"}",
                         s->pid, s->tid, s->begin * MICRO, (s->end - s->begin) * MICRO, s->category,
                         s->name);
}

static enum ax_status put_op(struct ax_trace *t, int rank, const struct ax_timeline_span *s,
                             double zero) {
    AX_TRY(next(t));
    return ax_buf_printf(
        &t->text,
        "{\"ph\": \"X\", \"pid\": %d, \"tid\": 0, \"ts\": %.3f, \"dur\": %.3f, "
        "\"cat\": \"op\", \"name\": \"%s\", \"args\": {\"flops\": %.0f, \"bytes\": "
        "%.0f}}",
        rank, (s->begin - zero) * MICRO, (s->end - s->begin) * MICRO,
        ax_op_name((enum ax_op)s->what), s->flops, s->bytes);
}

/* From its start until it has been waited for. */
static enum ax_status put_transfer(struct ax_trace *t, int rank,
                                   const struct ax_timeline_span *start,
                                   const struct ax_timeline_span *wait, double zero) {
    const char *role = ax_role_name((enum ax_role)start->lane),
               *kind = ax_collective_name((enum ax_collective_kind)start->what);
    const unsigned long long id = (unsigned long long)start->ticket;
    AX_TRY(next(t));
    AX_TRY(
        ax_buf_printf(&t->text,
                      "{\"ph\": \"b\", \"pid\": %d, \"tid\": 0, \"ts\": %.3f, \"cat\": \"%s\", "
                      "\"id\": \"%d.%d.%llu\", \"name\": \"%s %s\", \"args\": {\"role\": \"%s\", "
                      "\"bytes\": %.0f}}",
                      rank, (start->begin - zero) * MICRO, role, rank, start->lane, id, role, kind,
                      role, start->bytes));
    AX_TRY(next(t));
    AX_TRY(ax_buf_printf(&t->text,
                         "{\"ph\": \"e\", \"pid\": %d, \"tid\": 0, \"ts\": %.3f, \"cat\": \"%s\", "
                         "\"id\": \"%d.%d.%llu\", \"name\": \"%s %s\"}",
                         rank, (wait->end - zero) * MICRO, role, rank, start->lane, id, role,
                         kind));
    AX_TRY(next(t));
    return ax_buf_printf(
        &t->text,
        "{\"ph\": \"X\", \"pid\": %d, \"tid\": 0, \"ts\": %.3f, \"dur\": %.3f, "
        "\"cat\": \"wait\", \"name\": \"wait: %s %s\", \"args\": {\"role\": \"%s\", "
        "\"bytes\": %.0f}}",
        rank, (wait->begin - zero) * MICRO, (wait->end - wait->begin) * MICRO, role, kind, role,
        start->bytes);
}

/* The wait for the transfer that starts with span i; NULL: none was recorded. */
static const struct ax_timeline_span *wait_for(const struct ax_timeline *spans, size_t i) {
    const struct ax_timeline_span *start = &spans->spans[i];
    for (size_t k = i + 1; k < spans->n; k++) {
        const struct ax_timeline_span *s = &spans->spans[k];
        if (s->kind == AX_SPAN_WAIT && s->lane == start->lane && s->ticket == start->ticket)
            return s;
    }
    return NULL;
}

enum ax_status ax_trace_timeline(struct ax_trace *t, int rank, const struct ax_timeline *spans,
                                 double zero) {
    char name[32];
    snprintf(name, sizeof name, "rank %d", rank);
    AX_TRY(ax_trace_name(t, rank, 0, name, "ops and waits"));
    for (size_t i = 0; i < spans->n; i++) {
        const struct ax_timeline_span *s = &spans->spans[i],
                                      *wait = s->kind == AX_SPAN_START ? wait_for(spans, i) : NULL;
        if (s->kind == AX_SPAN_OP)
            AX_TRY(put_op(t, rank, s, zero));
        else if (wait)
            AX_TRY(put_transfer(t, rank, s, wait, zero));
    }
    return AX_OK;
}

enum ax_status ax_trace_join(struct ax_trace *t, const char *events, size_t length) {
    if (length == 0)
        return AX_OK;
    AX_TRY(next(t));
    return ax_buf_append(&t->text, events, length);
}

enum ax_status ax_trace_end(struct ax_trace *t) {
    return ax_buf_puts(&t->text, "\n]}\n");
}

void ax_trace_free(struct ax_trace *t) {
    ax_buf_free(&t->text);
}
