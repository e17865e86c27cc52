#include "optim/metrics/slow_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static const double SLOW = 4.0 / 3, LEAST_SECONDS = 0.5;

enum ax_status ax_slow_ranks_create(struct ax_slow_ranks *s, int world, int stages) {
    *s = (struct ax_slow_ranks){.world = world, .peers = world / stages, .told = -1};
    AX_TRY(ax_alloc(&s->seconds, (size_t)AX_SLOW_STEPS * (size_t)world, sizeof *s->seconds));
    return ax_alloc(&s->sorted, (size_t)s->peers - 1, sizeof *s->sorted);
}

void ax_slow_ranks_free(struct ax_slow_ranks *s) {
    ax_free(s->seconds);
    ax_free(s->sorted);
    *s = (struct ax_slow_ranks){0};
}

static int ascending(const void *a, const void *b) {
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y ? 1 : 0;
}

static double sum_of(const struct ax_slow_ranks *s, int rank) {
    double sum = 0;
    for (int i = 0; i < AX_SLOW_STEPS; i++)
        sum += s->seconds[(size_t)i * (size_t)s->world + (size_t)rank];
    return sum;
}

/* Of the sums of the rank's peers, without its own. */
static double median_of_peers(const struct ax_slow_ranks *s, int rank) {
    const int first = rank / s->peers * s->peers, n = s->peers - 1;
    for (int i = 0, r = first; r < first + s->peers; r++)
        if (r != rank)
            s->sorted[i++] = sum_of(s, r);
    qsort(s->sorted, (size_t)n, sizeof *s->sorted, ascending);
    return (s->sorted[n / 2] + s->sorted[(n - 1) / 2]) / 2;
}

/* The one with the largest ratio, over all stages. */
static int find(const struct ax_slow_ranks *s, double *its, double *median) {
    int found = -1;
    double largest = SLOW;
    for (int r = 0; r < s->world && s->peers > 1; r++) {
        const double own = sum_of(s, r), others = median_of_peers(s, r);
        if (own <= largest * others || own - others < LEAST_SECONDS)
            continue;
        largest = others > 0 ? own / others : own;
        found = r;
        *its = own / AX_SLOW_STEPS;
        *median = others / AX_SLOW_STEPS;
    }
    return found;
}

int ax_slow_ranks_note(struct ax_slow_ranks *s, const double *seconds, double *its,
                       double *median) {
    const size_t at = (size_t)(s->steps++ % AX_SLOW_STEPS) * (size_t)s->world;
    memcpy(s->seconds + at, seconds, (size_t)s->world * sizeof *seconds);
    if (s->steps < AX_SLOW_STEPS)
        return -1;
    const int slow = find(s, its, median);
    if (slow == s->told)
        return -1;
    s->told = slow;
    return slow;
}
