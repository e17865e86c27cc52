/* Line charts as inline SVG, for the pages of `axtrain report`.
 *
 * A chart is a <figure> whose colors come from the page's CSS (--c0 … --c5), so one drawing works
 * in dark, light and print. Long series are thinned to what the width can show, keeping every
 * extreme; a value that is not finite is a gap.
 *
 * Reading order: chart_axis.h (ticks), chart_points.c (thinning, smoothing), chart.c (drawing). */
#ifndef AX_CMD_REPORT_CHART_H
#define AX_CMD_REPORT_CHART_H

#include "base/mem.h"
#include "cmd/report/chart_axis.h"

#define AX_CHART_COLORS 6 /* further series reuse them, dashed */

struct ax_chart_point {
    double x, y; /* y that is not finite: a gap */
};

struct ax_chart_series {
    const char *name;
    int style;                     /* color and dash: 0, 1, … */
    struct ax_chart_point *points; /* [n], x ascending or equal; borrowed */
    size_t n;
};

struct ax_chart {
    const char *title, *note; /* note: what is measured, in words; may be "" */
    enum ax_chart_unit unit;
    bool may_log; /* logarithmic if the values span more than two powers of ten */
    bool zero;    /* the axis starts at 0 */
    bool smooth;  /* many points: draws a mean over neighbors in front of the faded series */
    bool dots;    /* few, rare points: marks each */
    const struct ax_chart_series *series; /* [n] */
    size_t n;
};

/* Appends the figure; nothing if no series has a finite value. */
enum ax_status ax_chart_put(struct ax_buf *out, const struct ax_chart *c);

/* ---- parts ---- */

/* At most 4 points for each of `buckets` equal parts of the range of x, in order: the first,
 * lowest, highest and last, plus one point per run of gaps. ax_free(*out). */
enum ax_status ax_chart_thin(const struct ax_chart_point *points, size_t n, size_t buckets,
                             struct ax_chart_point **out, size_t *n_out);
/* Means over `window` neighbors (fewer at the ends); gaps stay and are excluded from means. */
enum ax_status ax_chart_smooth(const struct ax_chart_point *points, size_t n, size_t window,
                               struct ax_chart_point **out);

#endif
