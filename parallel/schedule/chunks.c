/* Two passes over prefixes of the units: how cheap the most expensive range can be, then the most even
 * split in which none is more expensive. */
#include "parallel/schedule/chunks.h"

#include <math.h>

#include "base/mem.h"

struct split {
    int n, ranges;
    double *before; /* [n + 1]: cost of the units before */
    double *best;   /* [ranges + 1][n + 1]: the least cost of the first i units in k ranges */
    int *cut;       /* the same index: where the last of these ranges starts */
};

static double range_cost(const struct split *s, int first, int end) {
    return s->before[end] - s->before[first];
}

/* What a prefix costs with one range more; ranges above the limit are not allowed. */
static double extend(double prefix, double range, double limit) {
    if (limit < 0)
        return prefix > range ? prefix : range;
    return range <= limit ? prefix + range * range : INFINITY;
}

/* limit < 0: finds the least maximum; else the least sum of squares below it. */
static double solve(struct split *s, double limit) {
    const size_t row = (size_t)s->n + 1;
    for (int i = 0; i <= s->n; i++)
        s->best[i] = i == 0 ? 0 : INFINITY;
    for (int k = 1; k <= s->ranges; k++) {
        const double *fewer = s->best + (size_t)(k - 1) * row;
        for (int end = 0; end <= s->n; end++) {
            double least = INFINITY;
            int cut = 0;
            for (int first = k - 1; first < end; first++) {
                const double all = extend(fewer[first], range_cost(s, first, end), limit);
                cut = all < least ? first : cut;
                least = all < least ? all : least;
            }
            s->best[(size_t)k * row + (size_t)end] = least;
            s->cut[(size_t)k * row + (size_t)end] = cut;
        }
    }
    return s->best[(size_t)s->ranges * row + (size_t)s->n];
}

enum ax_status ax_chunks_split(const double *cost, int n, int ranges, int *bounds) {
    AX_ASSERT(ranges > 0 && ranges <= n);
    const size_t row = (size_t)n + 1, cells = ((size_t)ranges + 1) * row;
    struct split s = {.n = n, .ranges = ranges};
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&s.before, row, sizeof *s.before), st, done);
    AX_TRY_GOTO(ax_alloc(&s.best, cells, sizeof *s.best), st, done);
    AX_TRY_GOTO(ax_alloc(&s.cut, cells, sizeof *s.cut), st, done);
    for (int i = 0; i < n; i++)
        s.before[i + 1] = s.before[i] + cost[i];
    (void)solve(&s, solve(&s, -1));
    bounds[ranges] = n;
    for (int k = ranges; k > 0; k--)
        bounds[k - 1] = s.cut[(size_t)k * row + (size_t)bounds[k]];
done:
    ax_free(s.before);
    ax_free(s.best);
    ax_free(s.cut);
    return st;
}

struct ax_chunks ax_chunks_of(const int *bounds, int stages, int chunks, int stage) {
    struct ax_chunks s = {.n = chunks};
    AX_ASSERT(chunks <= AX_MAX_CHUNKS);
    for (int c = 0; c < chunks; c++) {
        const int k = c * stages + stage;
        s.list[c] = (struct ax_chunk){bounds[k], bounds[k + 1]};
    }
    return s;
}

bool ax_chunks_have(const struct ax_chunks *s, int unit) {
    for (int c = 0; c < s->n; c++)
        if (unit >= s->list[c].first && unit < s->list[c].end)
            return true;
    return false;
}
