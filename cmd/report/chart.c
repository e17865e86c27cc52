/* Points and axes, then the drawing: the frame with its ticks, and the lines. */
#include "cmd/report/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/report/html.h"

/* ---- thinning and smoothing ---- */

/* The points kept per bucket, as indices. */
struct bucket {
    size_t first, last, low, high;
    bool any;
};

static void add_point(struct bucket *b, const struct ax_chart_point *points, size_t i) {
    if (!b->any)
        *b = (struct bucket){i, i, i, i, true};
    b->last = i;
    if (points[i].y < points[b->low].y)
        b->low = i;
    if (points[i].y > points[b->high].y)
        b->high = i;
}

static size_t flush_bucket(struct bucket *b, const struct ax_chart_point *points,
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
            k = flush_bucket(&b, points, kept, k);
        current = mine;
        if (isfinite(points[i].y))
            add_point(&b, points, i);
        else if (!gap)
            kept[k++] = points[i];
        gap = !isfinite(points[i].y);
    }
    k = flush_bucket(&b, points, kept, k);
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

/* ---- the axis ---- */

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

/* ---- the drawing ---- */

/* In units of the drawing; on a phone, one unit is about one pixel. */
#define WIDTH   400
#define HEIGHT  236
#define LEFT    46
#define RIGHT   10
#define TOP     10
#define BOTTOM  26
#define BUCKETS 240 /* parts into which a line's range of x is thinned */
#define LOG_IF  100 /* may_log applies if max / min exceeds this */
#define SMOOTH  40  /* smooth applies from this many points on; 20 windows */

struct frame {
    struct ax_chart_axis x, y;
};

static double px(const struct frame *f, double x) {
    return LEFT + ax_chart_axis_at(&f->x, x) * (WIDTH - LEFT - RIGHT);
}

static double py(const struct frame *f, double y) {
    return HEIGHT - BOTTOM - ax_chart_axis_at(&f->y, y) * (HEIGHT - TOP - BOTTOM);
}

static bool make_frame(const struct ax_chart *c, struct frame *f) {
    struct ax_chart_range x = {.tight = true, .whole = true, .want = 5};
    struct ax_chart_range y = {.unit = c->unit, .want = 5};
    bool any = false;
    for (size_t s = 0; s < c->n; s++) {
        for (size_t i = 0; i < c->series[s].n; i++) {
            const struct ax_chart_point *p = &c->series[s].points[i];
            if (!isfinite(p->y))
                continue;
            x.min = !any || p->x < x.min ? p->x : x.min;
            x.max = !any || p->x > x.max ? p->x : x.max;
            y.min = !any || p->y < y.min ? p->y : y.min;
            y.max = !any || p->y > y.max ? p->y : y.max;
            any = true;
        }
    }
    y.log = c->may_log && y.min > 0 && y.max > LOG_IF * y.min;
    if (c->zero && y.min > 0)
        y.min = 0;
    if (any) {
        ax_chart_axis_make(&f->x, &x);
        ax_chart_axis_make(&f->y, &y);
    }
    return any;
}

static enum ax_status put_frame(struct ax_buf *out, const struct frame *f) {
    char label[32];
    AX_TRY(ax_buf_puts(out, "<g class=\"grid\">"));
    for (int i = 0; i < f->y.n; i++) {
        const double y = py(f, f->y.ticks[i]);
        AX_TRY(ax_buf_printf(out, "<path d=\"M%d %.1fH%d\"/>", LEFT, y, WIDTH - RIGHT));
    }
    for (int i = 0; i < f->x.n; i++)
        AX_TRY(
            ax_buf_printf(out, "<path d=\"M%.1f %dv4\"/>", px(f, f->x.ticks[i]), HEIGHT - BOTTOM));
    AX_TRY(ax_buf_puts(out, "</g><g class=\"ticks\">"));
    for (int i = 0; i < f->y.n; i++)
        AX_TRY(ax_buf_printf(out, "<text x=\"%d\" y=\"%.1f\">%s</text>", LEFT - 6,
                             py(f, f->y.ticks[i]) + 4,
                             ax_chart_axis_label(&f->y, f->y.ticks[i], label, sizeof label)));
    AX_TRY(ax_buf_puts(out, "</g><g class=\"ticks x\">"));
    for (int i = 0; i < f->x.n; i++) {
        const double x = px(f, f->x.ticks[i]);
        AX_TRY(ax_buf_printf(out, "<text x=\"%.1f\" y=\"%d\">%s</text>",
                             x > WIDTH - RIGHT - 12 ? WIDTH - RIGHT - 12 : x, HEIGHT - BOTTOM + 18,
                             ax_chart_axis_label(&f->x, f->x.ticks[i], label, sizeof label)));
    }
    return ax_buf_printf(out, "</g><text class=\"axis\" x=\"%d\" y=\"%d\">step</text>", LEFT - 12,
                         HEIGHT - BOTTOM + 18);
}

/* ---- lines ---- */

static bool stands_alone(const struct ax_chart_point *p, size_t n, size_t i) {
    return isfinite(p[i].y) && (i == 0 || !isfinite(p[i - 1].y)) &&
           (i + 1 == n || !isfinite(p[i + 1].y));
}

static enum ax_status put_line(struct ax_buf *out, const struct frame *f, const char *kind,
                               const struct ax_chart_series *s, const struct ax_chart_point *p,
                               size_t n) {
    bool down = false; /* whether the pen is down */
    AX_TRY(ax_html_put(out, "<path class=\"line %", kind));
    AX_TRY(ax_buf_printf(out, " s%d%s\" data-run=\"", s->style % AX_CHART_COLORS,
                         s->style / AX_CHART_COLORS % 2 ? " dashed" : ""));
    AX_TRY(ax_html_put(out, "%\" d=\"", s->name));
    for (size_t i = 0; i < n; i++) {
        if (isfinite(p[i].y))
            AX_TRY(
                ax_buf_printf(out, "%c%.1f %.1f", down ? 'L' : 'M', px(f, p[i].x), py(f, p[i].y)));
        down = isfinite(p[i].y);
    }
    return ax_buf_puts(out, "\"/>");
}

static enum ax_status put_dots(struct ax_buf *out, const struct frame *f,
                               const struct ax_chart_series *s, const struct ax_chart_point *p,
                               size_t n, bool all) {
    for (size_t i = 0; i < n; i++)
        if (isfinite(p[i].y) && (all || stands_alone(p, n, i)))
            AX_TRY(ax_buf_printf(out, "<circle class=\"s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>",
                                 s->style % AX_CHART_COLORS, px(f, p[i].x), py(f, p[i].y)));
    return AX_OK;
}

static enum ax_status put_thinned(struct ax_buf *out, const struct ax_chart *c,
                                  const struct frame *f, const char *kind,
                                  const struct ax_chart_series *s,
                                  const struct ax_chart_point *points) {
    struct ax_chart_point *p;
    size_t n;
    AX_TRY(ax_chart_thin(points, s->n, BUCKETS, &p, &n));
    enum ax_status st = put_line(out, f, kind, s, p, n);
    if (st == AX_OK)
        st = put_dots(out, f, s, p, n, c->dots && n <= SMOOTH);
    ax_free(p);
    return st;
}

/* Draws all pale lines first, so that they cover no mean. */
static enum ax_status put_lines(struct ax_buf *out, const struct ax_chart *c,
                                const struct frame *f) {
    for (size_t i = 0; i < c->n; i++) {
        const bool pale = c->smooth && c->series[i].n >= SMOOTH;
        if (pale)
            AX_TRY(put_thinned(out, c, f, "pale", &c->series[i], c->series[i].points));
    }
    for (size_t i = 0; i < c->n; i++) {
        const struct ax_chart_series *s = &c->series[i];
        struct ax_chart_point *means = NULL;
        if (c->smooth && s->n >= SMOOTH)
            AX_TRY(ax_chart_smooth(s->points, s->n, s->n / (SMOOTH / 2), &means));
        const enum ax_status st = put_thinned(out, c, f, "full", s, means ? means : s->points);
        ax_free(means);
        AX_TRY(st);
    }
    return AX_OK;
}

/* ---- the figure ---- */

/* The chart in words, for readers who cannot see it: the first and last value of each line. */
static enum ax_status put_words(struct ax_buf *out, const struct ax_chart *c) {
    AX_TRY(ax_html_put(out, c->note[0] ? "%, %" : "%", c->title, c->note));
    for (size_t s = 0; s < c->n; s++) {
        const struct ax_chart_point *first = NULL, *last = NULL;
        for (size_t i = 0; i < c->series[s].n; i++) {
            const struct ax_chart_point *p = &c->series[s].points[i];
            first = !first && isfinite(p->y) ? p : first;
            last = isfinite(p->y) ? p : last;
        }
        if (!first)
            continue;
        AX_TRY(ax_html_put(out, ". %", c->series[s].name));
        AX_TRY(ax_buf_printf(out, ": %.4g at step %.0f, %.4g at step %.0f", first->y, first->x,
                             last->y, last->x));
    }
    return AX_OK;
}

enum ax_status ax_chart_put(struct ax_buf *out, const struct ax_chart *c) {
    struct frame f;
    if (!make_frame(c, &f))
        return AX_OK;
    const bool named =
        f.y.suffix[0] && strcmp(f.y.suffix, "k") != 0 && strcmp(f.y.suffix, "M") != 0;
    const char *parts[] = {named ? f.y.suffix : "", c->note, f.y.log ? "log scale" : ""};
    AX_TRY(ax_html_put(out, "<figure><figcaption><b>%</b>", c->title));
    bool first = true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!parts[i][0])
            continue;
        AX_TRY(ax_html_put(out, first ? " <span>%" : ", %", parts[i]));
        first = false;
    }
    AX_TRY(ax_buf_printf(out,
                         "%s</figcaption><svg class=\"chart\" viewBox=\"0 0 %d %d\" "
                         "data-x=\"%.10g %.10g %d %d\" data-y=\"%.10g %.10g %d %d %d %.10g\" "
                         "role=\"img\" aria-label=\"",
                         first ? "" : "</span>", WIDTH, HEIGHT, f.x.min, f.x.max, LEFT,
                         WIDTH - RIGHT, f.y.min, f.y.max, HEIGHT - BOTTOM, TOP, f.y.log, f.y.unit));
    AX_TRY(put_words(out, c));
    AX_TRY(ax_buf_puts(out, "\">"));
    AX_TRY(put_frame(out, &f));
    AX_TRY(put_lines(out, c, &f));
    return ax_buf_puts(out, "</svg></figure>\n");
}
