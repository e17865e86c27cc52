/* Line charts as inline SVG, for the pages of `axtrain report`.
 *
 * A chart is a <figure> whose colors come from the page's CSS (--c0 … --c5), so one drawing works
 * in dark, light and print. Long series are thinned to what the width can show, keeping every
 * extreme; a value that is not finite is a gap. */
#ifndef AX_CMD_REPORT_CHART_H
#define AX_CMD_REPORT_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"

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

enum ax_chart_unit {
    AX_UNIT_NUMBER,  /* 0.5, 1200, 12k */
    AX_UNIT_PERCENT, /* a fraction as percent: 0.25 → 25 */
    AX_UNIT_BYTES    /* MiB or GiB, depending on the largest value */
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

/* Axes: nice numbers, logarithms, labels. */
#define AX_CHART_MAX_TICKS 24

struct ax_chart_axis {
    double min, max; /* the axis; min < max, and > 0 when log */
    bool log;
    double unit;        /* labels are value / unit … */
    const char *suffix; /* suffix of the labels: "", "k", "%", "GiB" */
    double step;        /* between ticks, in units; 0 when log */
    int n;
    double ticks[AX_CHART_MAX_TICKS];
};

struct ax_chart_range {
    double min, max; /* range of the data, finite; may be equal */
    enum ax_chart_unit unit;
    bool log;   /* requested; applied only if min > 0 */
    bool tight; /* ends at the data, not at a tick */
    bool whole; /* ticks only at integers */
    int want;   /* approximate number of ticks, 2 to 10 */
};
void ax_chart_axis_make(struct ax_chart_axis *a, const struct ax_chart_range *r);

/* Position of a value, from 0 to 1. */
double ax_chart_axis_at(const struct ax_chart_axis *a, double value);
/* "2.5", "1e-4", "12k"; only "k" is included as a suffix. Written to buf and returned. */
const char *ax_chart_axis_label(const struct ax_chart_axis *a, double value, char *buf,
                                size_t size);
/* The smallest 1, 2, 2.5 or 5 times a power of ten that is ≥ v > 0. */
double ax_chart_nice(double v);

#endif
