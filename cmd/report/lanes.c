/* Draws a timeline: of each rank what it computes, and below it what travels, waited for or hidden. */
#include <stdio.h>

#include "base/clock.h"
#include "cmd/report/html.h"
#include "cmd/report/report.h"

#define MOST_RANKS 16
#define WIDTH      1000.0

static const struct {
    const char *name;
    int color, y;
} kinds[AX_LANE_KINDS] = {
    [AX_LANE_OPS] = {"computes", 0, 0},
    [AX_LANE_TRANSFERS] = {"transfers under way", 2, 13},
    [AX_LANE_EXPOSED] = {"waits for a transfer", 1, 13},
    [AX_LANE_BUBBLE] = {"waits for another stage", 3, 13},
};

/* Spans that are closer than half a pixel are one. */
static enum ax_status put_lane(struct ax_buf *out, const struct ax_report_timeline *t,
                               const struct ax_lane *l, int kind) {
    const double scale = WIDTH / (t->end - t->begin), near = 0.5;
    for (size_t i = 0; i < l->n;) {
        const double from = (l->spans[i].begin - t->begin) * scale;
        double to = (l->spans[i].end - t->begin) * scale;
        for (i++; i < l->n && (l->spans[i].begin - t->begin) * scale - to < near; i++)
            to = (l->spans[i].end - t->begin) * scale;
        AX_TRY(ax_buf_printf(
            out, "<rect class=\"f%d\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"11\"/>",
            kinds[kind].color, from, kinds[kind].y, to - from));
    }
    return AX_OK;
}

enum ax_status ax_report_put_lanes(struct ax_buf *out, const struct ax_report_timeline *t, int i) {
    for (int kind = 0; kind < AX_LANE_KINDS; kind++)
        AX_TRY(put_lane(out, t, &t->ranks[i].lanes[kind], kind));
    return AX_OK;
}

static enum ax_status put_rank(struct ax_buf *out, const struct ax_report_timeline *t, int i) {
    const struct ax_rank_shares s = ax_report_rank_shares(t, i);
    AX_TRY(ax_buf_printf(
        out,
        "<div class=\"bar\"><p><b>rank %d</b> <span>computes %.1f %% of the time, %.1f %% beside "
        "transfers; waits %.1f %% for transfers and %.1f %% for stages; neither %.1f %%</span></p>"
        "<svg viewBox=\"0 0 1000 24\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
        t->ranks[i].rank, 100 * s.compute, 100 * s.hidden, 100 * s.exposed, 100 * s.bubble,
        100 * s.nothing));
    AX_TRY(ax_report_put_lanes(out, t, i));
    return ax_buf_puts(out, "</svg></div>\n");
}

static enum ax_status put_keys(struct ax_buf *out) {
    AX_TRY(ax_buf_puts(out, "<ul class=\"keys\">"));
    for (int kind = 0; kind < AX_LANE_KINDS; kind++)
        AX_TRY(
            ax_buf_printf(out,
                          "<li><svg class=\"key\" viewBox=\"0 0 10 10\" aria-hidden=\"true\">"
                          "<rect class=\"f%d\" width=\"10\" height=\"10\" rx=\"2\"/></svg>%s</li>",
                          kinds[kind].color, kinds[kind].name));
    return ax_buf_puts(out, "</ul>\n");
}

enum ax_status ax_report_put_timelines(struct ax_buf *out, const struct ax_report *r) {
    for (int i = 0; i < r->n; i++) {
        const struct ax_report_timeline *t = &r->runs[i].timeline;
        char time[32], more[64] = "";
        if (t->n == 0)
            continue;
        if (t->n > MOST_RANKS)
            snprintf(more, sizeof more, ", the first %d of %d ranks", MOST_RANKS, t->n);
        AX_TRY(ax_html_put(out,
                           "<section class=\"card\"><h2>Timeline</h2>\n<p><b>%</b> <span "
                           "class=\"dim\">%%</span></p>\n",
                           r->runs[i].name,
                           ax_format_seconds(time, sizeof time, (t->end - t->begin) / 1e6), more));
        AX_TRY(put_keys(out));
        for (int k = 0; k < t->n && k < MOST_RANKS; k++)
            AX_TRY(put_rank(out, t, k));
        AX_TRY(ax_buf_puts(out, "</section>\n"));
    }
    return AX_OK;
}
