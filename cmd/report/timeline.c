/* Sorts the events of a timeline by rank and kind, merges what overlaps, and draws it. */
#include "cmd/report/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cmd/report/html.h"
#include "cmd/report/report.h"

/* ---- reading ---- */

static enum ax_status rank_of(struct ax_report_timeline *t, int number,
                              struct ax_report_rank **rank) {
    int i = 0;
    while (i < t->n && t->ranks[i].rank != number)
        i++;
    if (i == t->n) {
        AX_TRY(ax_regrow(&t->ranks, (size_t)t->n, (size_t)t->n + 1, sizeof *t->ranks));
        t->ranks[t->n++].rank = number;
    }
    *rank = &t->ranks[i];
    return AX_OK;
}

static enum ax_status add(struct ax_lane *l, double begin, double end) {
    AX_TRY(ax_grow(&l->spans, l->n, &l->capacity, sizeof *l->spans));
    l->spans[l->n++] = (struct ax_lane_span){begin, end};
    return AX_OK;
}

static const char *text(const json_t *event, const char *key) {
    const char *value = json_string_value(json_object_get(event, key));
    return value ? value : "";
}

/* A transfer's "e" follows its "b": *open is the latter. */
static enum ax_status add_event(struct ax_report_timeline *t, const json_t *e,
                                const json_t **open) {
    const double begin = json_number_value(json_object_get(e, "ts")),
                 end = begin + json_number_value(json_object_get(e, "dur"));
    const char *phase = text(e, "ph"), *category = text(e, "cat");
    struct ax_report_rank *rank;
    if (strcmp(phase, "b") == 0)
        *open = e;
    if (strcmp(phase, "X") != 0 && strcmp(phase, "e") != 0)
        return AX_OK;
    AX_TRY(rank_of(t, (int)json_integer_value(json_object_get(e, "pid")), &rank));
    if (*phase == 'e') {
        if (*open && strcmp(text(*open, "id"), text(e, "id")) == 0)
            AX_TRY(add(&rank->lanes[AX_LANE_TRANSFERS],
                       json_number_value(json_object_get(*open, "ts")), begin));
        *open = NULL;
        return AX_OK;
    }
    if (strcmp(category, "op") == 0)
        return add(&rank->lanes[AX_LANE_OPS], begin, end);
    const char *role = text(json_object_get(e, "args"), "role");
    return add(&rank->lanes[strcmp(role, "pp") == 0 ? AX_LANE_BUBBLE : AX_LANE_EXPOSED], begin,
               end);
}

static int earlier_first(const void *a, const void *b) {
    const struct ax_lane_span *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int lower_first(const void *a, const void *b) {
    const struct ax_report_rank *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static void merge(struct ax_lane *l) {
    size_t n = 0;
    if (l->n > 0)
        qsort(l->spans, l->n, sizeof *l->spans, earlier_first);
    for (size_t i = 0; i < l->n; i++) {
        const struct ax_lane_span s = l->spans[i];
        if (n == 0 || s.begin > l->spans[n - 1].end)
            l->spans[n++] = s;
        else if (s.end > l->spans[n - 1].end)
            l->spans[n - 1].end = s.end;
    }
    l->n = n;
}

/* What both have. */
static double common(const struct ax_lane *a, const struct ax_lane *b) {
    double sum = 0;
    for (size_t i = 0, k = 0; i < a->n && k < b->n;) {
        const struct ax_lane_span *x = &a->spans[i], *y = &b->spans[k];
        const double begin = x->begin > y->begin ? x->begin : y->begin,
                     end = x->end < y->end ? x->end : y->end;
        sum += end > begin ? end - begin : 0;
        if (x->end < y->end)
            i++;
        else
            k++;
    }
    return sum;
}

static double length(const struct ax_lane *l) {
    return common(l, l);
}

static void bounds(struct ax_report_timeline *t, const struct ax_lane *l) {
    if (l->n == 0)
        return;
    const bool first = t->end <= t->begin;
    if (first || l->spans[0].begin < t->begin)
        t->begin = l->spans[0].begin;
    if (first || l->spans[l->n - 1].end > t->end)
        t->end = l->spans[l->n - 1].end;
}

enum ax_status ax_report_timeline_read(struct ax_report_timeline *t, const json_t *root) {
    const json_t *events = json_object_get(root, "traceEvents"), *open = NULL;
    for (size_t i = 0; i < json_array_size(events); i++)
        AX_TRY(add_event(t, json_array_get(events, i), &open));
    if (t->n > 0)
        qsort(t->ranks, (size_t)t->n, sizeof *t->ranks, lower_first);
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < AX_LANE_KINDS; k++) {
            merge(&t->ranks[i].lanes[k]);
            bounds(t, &t->ranks[i].lanes[k]);
        }
    return t->end > t->begin ? AX_OK : ax_error(AX_ERR_DATA, "timeline.json: no event of an op");
}

void ax_report_timeline_free(struct ax_report_timeline *t) {
    for (int i = 0; i < t->n; i++)
        for (int k = 0; k < AX_LANE_KINDS; k++)
            ax_free(t->ranks[i].lanes[k].spans);
    ax_free(t->ranks);
    *t = (struct ax_report_timeline){0};
}

struct ax_rank_shares ax_report_rank_shares(const struct ax_report_timeline *t, int i) {
    const struct ax_lane *l = t->ranks[i].lanes;
    const double all = t->end - t->begin;
    struct ax_rank_shares s = {.compute = length(&l[AX_LANE_OPS]) / all,
                               .exposed = length(&l[AX_LANE_EXPOSED]) / all,
                               .bubble = length(&l[AX_LANE_BUBBLE]) / all,
                               .hidden = common(&l[AX_LANE_TRANSFERS], &l[AX_LANE_OPS]) / all};
    s.nothing = 1 - s.compute - s.exposed - s.bubble;
    return s;
}

/* ---- drawing: of each rank what it computes, and below it what travels, waited for or hidden ---- */

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
