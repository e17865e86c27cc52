#include "kernels/timeline.h"

#include "base/clock.h"
#include "base/mem.h"

double ax_timeline_now(const struct ax_timeline *t) {
    return t->now ? t->now(t->clock) : ax_clock_now();
}

void ax_timeline_add(struct ax_timeline *t, const struct ax_timeline_span *span) {
    if (t->n == t->capacity) {
        const size_t capacity = t->capacity ? 2 * t->capacity : 4096;
        if (capacity > AX_TIMELINE_MOST ||
            ax_regrow(&t->spans, t->n, capacity, sizeof *t->spans) != AX_OK) {
            ax_error_clear(); /* a run does not end because it is looked at */
            t->lost++;
            return;
        }
        t->capacity = capacity;
    }
    t->spans[t->n++] = *span;
}

void ax_timeline_free(struct ax_timeline *t) {
    ax_free(t->spans);
    *t = (struct ax_timeline){0};
}
