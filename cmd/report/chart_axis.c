#include "cmd/report/chart_axis.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double ax_chart_nice(double v) {
    static const double nice[] = {1, 2, 2.5, 5, 10};
    const double power = pow(10, floor(log10(v)));
    for (size_t i = 0; i < sizeof nice / sizeof *nice; i++)
        if (v <= nice[i] * power * (1 + 1e-9))
            return nice[i] * power;
    return 10 * power;
}

static void choose_unit(struct ax_chart_axis *a, const struct ax_chart_range *r) {
    const double most = fmax(fabs(r->min), fabs(r->max));
    a->unit = 1;
    a->suffix = "";
    if (r->unit == AX_UNIT_PERCENT) {
        a->unit = 0.01;
        a->suffix = "%";
    } else if (r->unit == AX_UNIT_BYTES) {
        a->unit = most >= (double)(1 << 30) ? (double)(1 << 30) : (double)(1 << 20);
        a->suffix = most >= (double)(1 << 30) ? "GiB" : "MiB";
    } else if (most >= 10000) {
        a->unit = most >= 1e7 ? 1e6 : 1e3;
        a->suffix = most >= 1e7 ? "M" : "k";
    }
}

/* If all values are equal or almost equal, widens the range on both sides, which centers them. */
static void widen(double *min, double *max, bool whole) {
    if (*max - *min > 1e-9 * fmax(fabs(*min), fabs(*max)) && *max > *min)
        return;
    const double room = whole ? 1 : *max != 0 ? 0.1 * fabs(*max) : 1;
    *min -= room;
    *max += room;
}

static void make_linear(struct ax_chart_axis *a, const struct ax_chart_range *r) {
    double min = r->min / a->unit, max = r->max / a->unit;
    widen(&min, &max, r->whole);
    double step = ax_chart_nice((max - min) / r->want);
    if (r->whole && step * a->unit < 1)
        step = 1 / a->unit;
    if (r->whole && step * a->unit < 5)
        step = ceil(step * a->unit) / a->unit; /* a step of 2.5 becomes 3 */
    const double eps = 1e-6;
    const double from = r->tight ? ceil(min / step - eps) : floor(min / step + eps);
    const double to = r->tight ? floor(max / step + eps) : ceil(max / step - eps);
    a->step = step;
    a->min = (r->tight ? min : from * step) * a->unit;
    a->max = (r->tight ? max : to * step) * a->unit;
    for (double i = from; i <= to && a->n < AX_CHART_MAX_TICKS; i++)
        a->ticks[a->n++] = i * step * a->unit;
}

/* Ticks at 1, 2 and 5 times the powers of ten; if that is too many, only at powers, or only at
 * every second or third power. */
static void make_log(struct ax_chart_axis *a, const struct ax_chart_range *r) {
    static const double all[] = {1, 2, 5};
    double min = r->min / a->unit, max = r->max / a->unit;
    if (max < min * 1.0001) {
        min /= 2;
        max *= 2;
    }
    const double decades = log10(max) - log10(min);
    const int per = decades > 2.5 ? 1 : 3;
    const int stride = per == 1 ? (int)ceil(decades / r->want) : 1;
    double below = min, above = INFINITY;
    for (int p = (int)floor(log10(min)); p <= (int)ceil(log10(max)); p++)
        for (int i = 0; i < per; i++) {
            const double v = all[i] * pow(10, p);
            if (v <= min * (1 + 1e-9))
                below = v;
            if (v >= max * (1 - 1e-9) && v < above)
                above = v;
        }
    a->min = below * a->unit;
    a->max = above * a->unit;
    for (int p = (int)floor(log10(below) + 1e-9); p <= log10(above) + 1e-9; p += stride)
        for (int i = 0; i < per && a->n < AX_CHART_MAX_TICKS; i++) {
            const double v = all[i] * pow(10, p);
            if (v >= below * (1 - 1e-9) && v <= above * (1 + 1e-9))
                a->ticks[a->n++] = v * a->unit;
        }
}

void ax_chart_axis_make(struct ax_chart_axis *a, const struct ax_chart_range *r) {
    *a = (struct ax_chart_axis){.log = r->log && r->min > 0};
    choose_unit(a, r);
    if (a->log)
        make_log(a, r);
    else
        make_linear(a, r);
}

double ax_chart_axis_at(const struct ax_chart_axis *a, double value) {
    if (a->log)
        return (log(value) - log(a->min)) / (log(a->max) - log(a->min));
    return (value - a->min) / (a->max - a->min);
}

/* "1e-05" → "1e-5" */
static void shorten(char *text) {
    char *e = strchr(text, 'e');
    if (!e)
        return;
    char *digits = e + 2;
    if (e[1] == '+')
        memmove(--digits, e + 2, strlen(e + 2) + 1);
    const size_t zeros = strspn(digits, "0");
    memmove(digits, digits + zeros, strlen(digits + zeros) + 1);
}

const char *ax_chart_axis_label(const struct ax_chart_axis *a, double value, char *buf,
                                size_t size) {
    double v = value / a->unit;
    if (fabs(v) < 1e-9 * fmax(fabs(a->min), fabs(a->max)) / a->unit)
        v = 0;
    const char *k = strcmp(a->suffix, "k") == 0 || strcmp(a->suffix, "M") == 0 ? a->suffix : "";
    const double most = fmax(fabs(a->min), fabs(a->max)) / a->unit;
    if (v == 0) {
        snprintf(buf, size, "0");
    } else if (!a->log && most < 1e-3) { /* all labels get an exponent */
        const int e = (int)floor(log10(fabs(v)) + 1e-9);
        snprintf(buf, size, "%.3ge%d%s", v / pow(10, e), e, k);
    } else if (a->log || most < 1e-2) {
        snprintf(buf, size, "%.3g", v);
        shorten(buf);
        snprintf(buf + strlen(buf), size - strlen(buf), "%s", k);
    } else {
        int digits = 0; /* as many decimals as the step has */
        while (digits < 6 && fabs(a->step * pow(10, digits) - round(a->step * pow(10, digits))) >
                                 1e-6 * pow(10, digits) * a->step)
            digits++;
        snprintf(buf, size, "%.*f%s", digits, v, k);
    }
    return buf;
}
