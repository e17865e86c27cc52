/* Charts: nice numbers on both kinds of axes, thinning that keeps extremes, gaps, lone points,
 * and foreign text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/report/chart.h"
#include "cmd/report/html.h"

/* "0 2 4 |%": the labels of an axis and its suffix. */
static const char *labels(struct ax_chart_range r) {
    static char text[512];
    struct ax_chart_axis a;
    size_t n = 0;
    r.want = r.want ? r.want : 5;
    ax_chart_axis_make(&a, &r);
    assert_true(a.min < a.max);
    const double eps = 1e-9 * fabs(a.max);
    assert_true(r.tight || (a.min <= r.min + eps && a.max >= r.max - eps));
    for (int i = 0; i < a.n; i++) {
        char label[32];
        n += (size_t)snprintf(text + n, sizeof text - n, "%s ",
                              ax_chart_axis_label(&a, a.ticks[i], label, sizeof label));
        assert_true(a.ticks[i] >= a.min - 1e-9 * fabs(a.max));
        assert_true(a.ticks[i] <= a.max + 1e-9 * fabs(a.max));
    }
    snprintf(text + n, sizeof text - n, "|%s", a.suffix);
    return text;
}

static void linear_axes(void **state) {
    (void)state;
    assert_string_equal(labels((struct ax_chart_range){.min = 0, .max = 7.4, .want = 5}),
                        "0 2 4 6 8 |");
    assert_string_equal(labels((struct ax_chart_range){.min = 1.61, .max = 2.32}),
                        "1.6 1.8 2.0 2.2 2.4 |");
    assert_string_equal(labels((struct ax_chart_range){.min = 0, .max = 1.2}),
                        "0 0.25 0.50 0.75 1.00 1.25 |");
    assert_string_equal(labels((struct ax_chart_range){.min = 0, .max = 1e-4}),
                        "0 2e-5 4e-5 6e-5 8e-5 1e-4 |");
    assert_string_equal(labels((struct ax_chart_range){.min = 0, .max = 1e-10}),
                        "0 2e-11 4e-11 6e-11 8e-11 1e-10 |");
    assert_string_equal(labels((struct ax_chart_range){.min = -2e-12, .max = 0}),
                        "-2e-12 -1.5e-12 -1e-12 -5e-13 0 |");
    assert_string_equal(labels((struct ax_chart_range){.min = 0, .max = 2e-5}),
                        "0 5e-6 1e-5 1.5e-5 2e-5 |");
    assert_string_equal(labels((struct ax_chart_range){.min = -3, .max = 3}), "-4 -2 0 2 4 |");
    assert_string_equal(labels((struct ax_chart_range){.min = 0, .max = 16300}),
                        "0 5k 10k 15k 20k |k");
    assert_string_equal(labels((struct ax_chart_range){.min = 0, .max = 4e7}),
                        "0 10M 20M 30M 40M |M");
    assert_string_equal(
        labels((struct ax_chart_range){.min = 0, .max = 0.42, .unit = AX_UNIT_PERCENT}),
        "0 10 20 30 40 50 |%");
    assert_string_equal(
        labels((struct ax_chart_range){.min = 0, .max = 3.0 * (1 << 30), .unit = AX_UNIT_BYTES}),
        "0 1 2 3 |GiB");
    assert_string_equal(
        labels((struct ax_chart_range){.min = 0, .max = 50 << 20, .unit = AX_UNIT_BYTES}),
        "0 10 20 30 40 50 |MiB");
}

static void axes_of_one_value(void **state) {
    (void)state;
    assert_string_equal(labels((struct ax_chart_range){.min = 5, .max = 5}),
                        "4.4 4.6 4.8 5.0 5.2 5.4 5.6 |");
    assert_string_equal(labels((struct ax_chart_range){.min = 0, .max = 0}),
                        "-1.0 -0.5 0 0.5 1.0 |");
    assert_string_equal(
        labels((struct ax_chart_range){.min = 7, .max = 7, .tight = true, .whole = true}),
        "6 7 8 |");
    assert_string_equal(labels((struct ax_chart_range){.min = 3, .max = 3, .log = true}),
                        "1 2 5 10 |");
}

static void step_axes_have_whole_ticks(void **state) {
    (void)state;
    const struct ax_chart_range r = {.min = 1, .max = 3, .tight = true, .whole = true};
    assert_string_equal(labels(r), "1 2 3 |");
    assert_string_equal(
        labels((struct ax_chart_range){.min = 1, .max = 151, .tight = true, .whole = true}),
        "50 100 150 |");
    assert_string_equal(
        labels((struct ax_chart_range){.min = 0, .max = 11, .tight = true, .whole = true}),
        "0 3 6 9 |");
    assert_string_equal(
        labels((struct ax_chart_range){.min = 1, .max = 20000, .tight = true, .whole = true}),
        "5k 10k 15k 20k |k");
}

static void log_axes(void **state) {
    (void)state;
    assert_string_equal(labels((struct ax_chart_range){.min = 0.004, .max = 210, .log = true}),
                        "0.001 0.01 0.1 1 10 100 1e3 |");
    assert_string_equal(labels((struct ax_chart_range){.min = 0.3, .max = 40, .log = true}),
                        "0.2 0.5 1 2 5 10 20 50 |");
    /* not below zero: linear */
    assert_string_equal(labels((struct ax_chart_range){.min = 0, .max = 40, .log = true}),
                        "0 10 20 30 40 |");
    struct ax_chart_axis a;
    ax_chart_axis_make(&a, &(struct ax_chart_range){.min = 1, .max = 100, .log = true, .want = 5});
    assert_true(fabs(ax_chart_axis_at(&a, 10) - 0.5) < 1e-12);
}

static void nice_numbers(void **state) {
    (void)state;
    const double all[][2] = {{1, 1},  {1.1, 2},     {2.1, 2.5}, {3, 5},
                             {6, 10}, {0.03, 0.05}, {700, 1000}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_true(fabs(ax_chart_nice(all[i][0]) - all[i][1]) < 1e-12 * all[i][1]);
}

/* ---- points ---- */

#define MANY 10000

static void thinning_keeps_extremes(void **state) {
    (void)state;
    static struct ax_chart_point p[MANY];
    struct ax_chart_point *kept;
    size_t n;
    for (int i = 0; i < MANY; i++)
        p[i] = (struct ax_chart_point){i, sin(i)};
    p[4321].y = 50;
    p[777].y = -9;
    for (int i = 6000; i < 6100; i++)
        p[i].y = NAN;
    assert_int_equal(ax_chart_thin(p, MANY, 100, &kept, &n), AX_OK);
    assert_in_range(n, 100, 4 * 100 + 4);
    bool high = false, low = false;
    int gaps = 0;
    for (size_t i = 0; i < n; i++) {
        high = high || (kept[i].x == 4321 && kept[i].y == 50);
        low = low || (kept[i].x == 777 && kept[i].y == -9);
        gaps += !isfinite(kept[i].y);
        assert_true(i == 0 || kept[i].x > kept[i - 1].x);
    }
    assert_true(high && low);
    assert_int_equal(gaps, 1);
    assert_true(kept[0].x == 0 && kept[n - 1].x == MANY - 1);
    ax_free(kept);
    /* few points: all of them; none: none */
    assert_int_equal(ax_chart_thin(p, 300, 100, &kept, &n), AX_OK);
    assert_int_equal(n, 300);
    ax_free(kept);
    assert_int_equal(ax_chart_thin(NULL, 0, 100, &kept, &n), AX_OK);
    assert_int_equal(n, 0);
    ax_free(kept);
}

static void smoothing_passes_over_gaps(void **state) {
    (void)state;
    const struct ax_chart_point p[] = {{0, 1}, {1, 3}, {2, NAN}, {3, 5}, {4, 7}};
    struct ax_chart_point *m;
    assert_int_equal(ax_chart_smooth(p, 5, 3, &m), AX_OK);
    const double wanted[] = {2, 2, NAN, 6, 6};
    for (int i = 0; i < 5; i++)
        assert_true(isnan(wanted[i]) ? isnan(m[i].y) : m[i].y == wanted[i]);
    ax_free(m);
}

/* ---- drawing ---- */

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        n++;
    return n;
}

static char *draw(struct ax_chart_point *p, size_t n, bool may_log) {
    struct ax_buf out = {0};
    const struct ax_chart_series s = {.name = "a <b> & \"c\"", .style = 7, .points = p, .n = n};
    const struct ax_chart c = {
        .title = "Loss <1>", .note = "", .may_log = may_log, .smooth = true, .series = &s, .n = 1};
    assert_int_equal(ax_chart_put(&out, &c), AX_OK);
    return out.data;
}

/* The line's own path, without those of the grid. */
static const char *line_of(const char *svg) {
    static char path[512];
    const char *at = strstr(svg, "class=\"line");
    assert_non_null(at);
    at = strstr(at, " d=\"");
    assert_non_null(at);
    snprintf(path, sizeof path, "%.*s", (int)strcspn(at + 4, "\""), at + 4);
    return path;
}

static void gaps_break_the_line(void **state) {
    (void)state;
    struct ax_chart_point p[] = {{1, 1}, {2, 2}, {3, NAN}, {4, 3}, {5, 2}, {6, INFINITY}, {7, 1}};
    char *svg = draw(p, 7, false);
    assert_int_equal(count(line_of(svg), "M"), 3);
    assert_int_equal(count(line_of(svg), "L"), 2);
    assert_int_equal(count(svg, "<circle"), 1); /* the last point stands alone */
    assert_null(strstr(svg, "nan"));
    assert_null(strstr(svg, "inf"));
    ax_free(svg);
}

/* From the left edge of the frame to its right one, whichever point is there. */
static void lines_span_the_frame(void **state) {
    (void)state;
    struct ax_chart_point p[] = {{10, 1}, {12, 5}, {17, -2}, {20, 4}};
    char *svg = draw(p, 4, false);
    double left, y, right, first, last = -1, low = 1e9, high = -1;
    const char *grid = strstr(svg, "class=\"grid\"><path d=\"M");
    assert_non_null(grid);
    assert_int_equal(sscanf(strchr(grid, 'M'), "M%lf %lfH%lf", &left, &y, &right), 3);
    const char *path = line_of(svg);
    assert_int_equal(sscanf(path, "M%lf", &first), 1);
    for (const char *at = path; (at = strpbrk(at, "ML")) != NULL; at++) {
        double x;
        assert_int_equal(sscanf(at + 1, "%lf %lf", &x, &y), 2);
        assert_true(x > last && x >= left && x <= right);
        last = x;
        low = fmin(low, y);
        high = fmax(high, y);
    }
    assert_true(fabs(first - left) < 0.1 && fabs(last - right) < 0.1);
    assert_true(low >= 0 && high - low > 50);
    ax_free(svg);
}

/* A line across the frame for each label of the height, a mark below it for each of the steps; and whole labels. */
static void labels_have_their_marks(void **state) {
    (void)state;
    struct ax_chart_point p[] = {{1, 1}, {60, 5}, {150, 4}};
    char *svg = draw(p, 3, false);
    double width, height, x, y;
    const char *box = strstr(svg, "viewBox=\"0 0 "), *labels = strstr(svg, "<g class=\"ticks\">"),
               *steps = strstr(svg, "<g class=\"ticks x\">");
    assert_non_null(box);
    assert_true(labels && steps);
    assert_int_equal(sscanf(box, "viewBox=\"0 0 %lf %lf", &width, &height), 2);
    const char *end = strstr(steps, "</g>");
    char *grid = strndup(svg, (size_t)(labels - svg)),
         *heights = strndup(labels, (size_t)(steps - labels)),
         *lengths = strndup(steps, (size_t)(end - steps));
    assert_int_equal(count(grid, "H390\"/>"), count(heights, "<text"));
    assert_int_equal(count(grid, "v4\"/>"), count(lengths, "<text"));
    assert_true(count(heights, "<text") > 2 && count(lengths, "<text") > 2);
    for (const char *at = labels; (at = strstr(at, "<text x=\"")) != NULL && at < end; at++) {
        assert_int_equal(sscanf(at, "<text x=\"%lf\" y=\"%lf\"", &x, &y), 2);
        assert_true(x > 12 && x <= width - 12 && y > 0 && y < height);
    }
    free(grid);
    free(heights);
    free(lengths);
    ax_free(svg);
}

static void one_point_is_a_dot(void **state) {
    (void)state;
    struct ax_chart_point p[] = {{1, 2.5}};
    char *svg = draw(p, 1, true);
    assert_int_equal(count(svg, "<circle"), 1);
    assert_non_null(strstr(svg, "2.5 at step 1"));
    ax_free(svg);
}

static void nothing_finite_is_no_figure(void **state) {
    (void)state;
    struct ax_chart_point p[] = {{1, NAN}, {2, NAN}};
    assert_null(draw(p, 2, true));
    assert_null(draw(p, 0, true));
}

static void wide_ranges_are_logarithmic(void **state) {
    (void)state;
    struct ax_chart_point p[] = {{1, 1}, {2, 300}};
    char *svg = draw(p, 2, true);
    assert_non_null(strstr(svg, "log scale"));
    ax_free(svg);
    svg = draw(p, 2, false);
    assert_null(strstr(svg, "log scale"));
    ax_free(svg);
}

static void long_series_stay_small_and_smooth(void **state) {
    (void)state;
    static struct ax_chart_point p[MANY];
    for (int i = 0; i < MANY; i++)
        p[i] = (struct ax_chart_point){i, i % 7};
    char *svg = draw(p, MANY, false);
    assert_int_equal(count(svg, "class=\"line pale"), 1);
    assert_int_equal(count(svg, "class=\"line full"), 1);
    assert_in_range(strlen(svg), 1000, 40000);
    ax_free(svg);
}

/* ---- text ---- */

static void names_are_escaped(void **state) {
    (void)state;
    struct ax_chart_point p[] = {{1, 1}, {2, 3}};
    char *svg = draw(p, 2, false);
    assert_null(strstr(svg, "<b> &"));
    assert_non_null(strstr(svg, "a &lt;b&gt; &amp; &quot;c&quot;"));
    assert_non_null(strstr(svg, "Loss &lt;1&gt;"));
    assert_non_null(strstr(svg, " s1 dashed\"")); /* the eighth run: the second color again */
    ax_free(svg);
    struct ax_buf out = {0};
    assert_int_equal(ax_html_put(&out, "<i>%</i>%", "\xff'\x01\t\xc3\xa4", NULL), AX_OK);
    assert_string_equal(out.data, "<i>\xef\xbf\xbd&#39;\xef\xbf\xbd\t\xc3\xa4</i>\xe2\x80\x93");
    ax_buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_axes),
        cmocka_unit_test(axes_of_one_value),
        cmocka_unit_test(step_axes_have_whole_ticks),
        cmocka_unit_test(log_axes),
        cmocka_unit_test(nice_numbers),
        cmocka_unit_test(thinning_keeps_extremes),
        cmocka_unit_test(smoothing_passes_over_gaps),
        cmocka_unit_test(gaps_break_the_line),
        cmocka_unit_test(lines_span_the_frame),
        cmocka_unit_test(labels_have_their_marks),
        cmocka_unit_test(one_point_is_a_dot),
        cmocka_unit_test(nothing_finite_is_no_figure),
        cmocka_unit_test(wide_ranges_are_logarithmic),
        cmocka_unit_test(long_series_stay_small_and_smooth),
        cmocka_unit_test(names_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
