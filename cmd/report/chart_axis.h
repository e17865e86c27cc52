/* Axes: nice numbers, logarithms, labels. */
#ifndef AX_CMD_REPORT_CHART_AXIS_H
#define AX_CMD_REPORT_CHART_AXIS_H

#include <stdbool.h>
#include <stddef.h>

#define AX_CHART_MAX_TICKS 24

enum ax_chart_unit {
    AX_UNIT_NUMBER,  /* 0.5, 1200, 12k */
    AX_UNIT_PERCENT, /* of a share: 0.25 → 25 */
    AX_UNIT_BYTES    /* MiB or GiB, as the largest value asks for */
};

struct ax_chart_axis {
    double min, max; /* of the axis; min < max, and > 0 when log */
    bool log;
    double unit;        /* labels are value / unit … */
    const char *suffix; /* … in units of these: "", "k", "%", "GiB" */
    double step;        /* between ticks, in units; 0 when log */
    int n;
    double ticks[AX_CHART_MAX_TICKS];
};

struct ax_chart_range {
    double min, max; /* of the data, finite; min = max is fine */
    enum ax_chart_unit unit;
    bool log;   /* asked for; done only where min > 0 */
    bool tight; /* ends where the data end, not at a tick */
    bool whole; /* ticks at whole numbers only */
    int want;   /* approximate number of ticks, 2 to 10 */
};
void ax_chart_axis_make(struct ax_chart_axis *a, const struct ax_chart_range *r);

/* Where a value stands, from 0 to 1. */
double ax_chart_axis_at(const struct ax_chart_axis *a, double value);
/* "2.5", "1e-4", "12k"; the suffix only where it is "k". Written to buf, returned. */
const char *ax_chart_axis_label(const struct ax_chart_axis *a, double value, char *buf,
                                size_t size);
/* 1, 2, 2.5 or 5 times a power of ten, the smallest that is not below v > 0. */
double ax_chart_nice(double v);

#endif
