/* When the ops and transfers of a queue ran, while ax_queue.timeline is set: the dispatcher
 * (kernels/ops.c) adds ops, communicators (parallel/fabric/comm.c) add the starts of transfers and
 * the waits for them. For backends whose ops are finished when a call returns; otherwise the times
 * are those of the calls. */
#ifndef AX_KERNELS_TIMELINE_H
#define AX_KERNELS_TIMELINE_H

#include <stddef.h>
#include <stdint.h>

enum ax_span_kind { AX_SPAN_OP, AX_SPAN_START, AX_SPAN_WAIT };

/* Times are ax_timeline_now's. A wait has its lane and ticket, a start has no length. */
struct ax_timeline_span {
    enum ax_span_kind kind;
    int what;            /* enum ax_op; of a start the collective */
    int lane;            /* transfers: the communicator, by its number in parallel/ */
    uint64_t ticket;     /* ticket in the lane */
    double begin, end;   /* seconds */
    double bytes, flops; /* bytes: of a start, those that the rank sends */
};

#define AX_TIMELINE_MOST ((size_t)1 << 22) /* spans; later ones are counted as lost */
struct ax_timeline {
    size_t n, capacity, lost;
    struct ax_timeline_span *spans; /* owned */
    /* Seconds of a rank's own clock (the delay fabric's, tests/doubles/delay.h); NULL: ax_clock_now. */
    double (*now)(const void *clock);
    const void *clock;
};

double ax_timeline_now(const struct ax_timeline *t);

void ax_timeline_add(struct ax_timeline *t, const struct ax_timeline_span *span);
void ax_timeline_free(struct ax_timeline *t);

#endif
