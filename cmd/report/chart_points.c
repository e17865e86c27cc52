/* Thinning and smoothing. */
#include <math.h>
#include <string.h>

#include "cmd/report/chart.h"

/* The points kept per bucket, as indices. */
struct bucket {
    size_t first, last, low, high;
    bool any;
};

static void add(struct bucket *b, const struct ax_chart_point *points, size_t i) {
    if (!b->any)
        *b = (struct bucket){i, i, i, i, true};
    b->last = i;
    if (points[i].y < points[b->low].y)
        b->low = i;
    if (points[i].y > points[b->high].y)
        b->high = i;
}

static size_t flush(struct bucket *b, const struct ax_chart_point *points,
                    struct ax_chart_point *out, size_t n) {
    const size_t early = b->low < b->high ? b->low : b->high;
    const size_t late = b->low < b->high ? b->high : b->low;
    const size_t order[] = {b->first, early, late, b->last};
    for (int i = 0; b->any && i < 4; i++)
        if (i == 0 || order[i] != order[i - 1])
            out[n++] = points[order[i]];
    b->any = false;
    return n;
}

enum ax_status ax_chart_thin(const struct ax_chart_point *points, size_t n, size_t buckets,
                             struct ax_chart_point **out, size_t *n_out) {
    struct bucket b = {0};
    struct ax_chart_point *kept;
    const double from = n > 0 ? points[0].x : 0;
    const double width = n > 0 ? (points[n - 1].x - from) / (double)buckets : 0;
    size_t current = 0, k = 0;
    bool gap = false;
    AX_TRY(ax_alloc(&kept, n, sizeof *kept));
    for (size_t i = 0; i < n; i++) {
        const size_t mine =
            n <= 4 * buckets || width <= 0 ? i : (size_t)((points[i].x - from) / width);
        if (mine != current || !isfinite(points[i].y))
            k = flush(&b, points, kept, k);
        current = mine;
        if (isfinite(points[i].y))
            add(&b, points, i);
        else if (!gap)
            kept[k++] = points[i];
        gap = !isfinite(points[i].y);
    }
    k = flush(&b, points, kept, k);
    *out = kept;
    *n_out = k;
    return AX_OK;
}

enum ax_status ax_chart_smooth(const struct ax_chart_point *points, size_t n, size_t window,
                               struct ax_chart_point **out) {
    struct ax_chart_point *means;
    AX_TRY(ax_alloc(&means, n, sizeof *means));
    const size_t half = window / 2;
    double sum = 0;
    size_t count = 0, begin = 0, end = 0;
    for (size_t i = 0; i < n; i++) {
        for (; end < n && end <= i + half; end++) {
            sum += isfinite(points[end].y) ? points[end].y : 0;
            count += isfinite(points[end].y) ? 1 : 0;
        }
        for (; begin + half < i; begin++) {
            sum -= isfinite(points[begin].y) ? points[begin].y : 0;
            count -= isfinite(points[begin].y) ? 1 : 0;
        }
        means[i] = points[i];
        if (isfinite(points[i].y))
            means[i].y = sum / (double)count;
    }
    *out = means;
    return AX_OK;
}
