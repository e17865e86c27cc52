/* Axes: nice numbers, logarithms, labels. */
#ifndef AX_CMD_REPORT_CHART_AXIS_H
#define AX_CMD_REPORT_CHART_AXIS_H

#include <stdbool.h>
#include <stddef.h>

#define AX_CHART_MAX_TICKS 24

enum ax_chart_unit {
    AX_UNIT_NUMBER,  /* 0.5, 1200, 12k */
    AX_UNIT_PERCENT, /* a fraction in percent: 0.25 → 25 */
    AX_UNIT_BYTES    /* MiB or GiB, depending on the largest value */
};

struct ax_chart_axis {
    double min, max; /* range of the axis; min < max, and > 0 when log */
    bool log;
    double unit;        /* labels are value / unit */
    const char *suffix; /* suffix of its numbers: "", "k", "%", "GiB" */
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
