/* Drawing: the frame with its ticks, then the lines. */
#include "cmd/report/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/report/html.h"

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

/* ---- the frame ---- */

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
