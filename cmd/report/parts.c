/* Breakdown of a run's time, memory and records. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/report/html.h"
#include "cmd/report/report.h"

/* ---- time ---- */

/* The last entry is time outside all phases: reading the clock, metrics, waiting threads. */
struct phases {
    double seconds[AX_REPORT_MAX_PHASES + 1];
    double all;
};

static struct phases add_up(const struct ax_report_run *run) {
    struct phases p = {0};
    double rest = 0;
    for (size_t i = 0; i < run->n_steps; i++) {
        const struct ax_report_step *s = &run->steps[i];
        double named = 0;
        for (int k = 0; k < run->n_phases; k++) {
            p.seconds[k] += s->phases[k];
            named += s->phases[k];
        }
        if (s->figures[AX_FIGURE_SECONDS] > named)
            rest += s->figures[AX_FIGURE_SECONDS] - named;
        p.all += named;
    }
    p.seconds[run->n_phases] = rest;
    p.all += rest;
    return p;
}

static const char *phase_name(const struct ax_report_run *run, int k) {
    return k < run->n_phases ? run->phase_names[k] : "other";
}

static enum ax_status put_run_phases(struct ax_buf *out, const struct ax_report *r, int i) {
    const struct ax_report_run *run = &r->runs[i];
    const struct phases p = add_up(run);
    char time[32], share[32], step[32];
    double at = 0;
    if (!(p.all > 0))
        return AX_OK;
    snprintf(step, sizeof step, "%.3g s", p.all / (double)run->n_steps);
    AX_TRY(ax_html_put(out,
                       "<div class=\"bar\"><p><b>%</b> <span>% in steps, % per step</span></p>",
                       run->name, ax_format_seconds(time, sizeof time, p.all), step));
    AX_TRY(ax_buf_puts(out, "<svg viewBox=\"0 0 1000 24\" preserveAspectRatio=\"none\" "
                            "aria-hidden=\"true\">"));
    for (int k = 0; k <= run->n_phases; k++) {
        const double width = 1000 * p.seconds[k] / p.all;
        AX_TRY(ax_buf_printf(out,
                             "<rect class=\"f%d\" x=\"%.2f\" y=\"0\" width=\"%.2f\" "
                             "height=\"24\"/>",
                             k < run->n_phases ? k % 6 : 6, at, width));
        at += width;
    }
    AX_TRY(ax_buf_puts(out, "</svg><ul class=\"keys\">"));
    for (int k = 0; k <= run->n_phases; k++) {
        snprintf(share, sizeof share, "%.1f %%", 100 * p.seconds[k] / p.all);
        AX_TRY(ax_buf_printf(out, "<li>"));
        AX_TRY(ax_buf_printf(out,
                             "<svg class=\"key\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect "
                             "class=\"f%d\" width=\"10\" height=\"10\" rx=\"2\"/></svg>",
                             k < run->n_phases ? k % 6 : 6));
        AX_TRY(ax_html_put(out, "% <b>%</b></li>", phase_name(run, k), share));
    }
    return ax_buf_puts(out, "</ul></div>\n");
}

/* Puts a section; removes it again if it stays empty. */
static enum ax_status in_section(struct ax_buf *out, const char *open, const struct ax_report *r,
                                 enum ax_status (*put)(struct ax_buf *, const struct ax_report *,
                                                       int)) {
    const size_t before = out->len;
    AX_TRY(ax_buf_puts(out, open));
    const size_t begun = out->len;
    for (int i = 0; i < r->n; i++)
        AX_TRY(put(out, r, i));
    if (out->len > begun)
        return ax_buf_puts(out, "</section>\n");
    out->len = before;
    out->data[before] = '\0';
    return AX_OK;
}

enum ax_status ax_report_put_phases(struct ax_buf *out, const struct ax_report *r) {
    return in_section(out, "<section class=\"card\"><h2>Time by phase</h2>\n", r, put_run_phases);
}

/* ---- memory ---- */

#define NAMED 14 /* blocks listed by name; the others share one row */

struct block {
    const char *name, *where;
    double bytes;
};

static struct block block_at(const json_t *blocks, size_t i) {
    const json_t *v = json_array_get(blocks, i);
    return (struct block){json_string_value(json_object_get(v, "name")),
                          json_string_value(json_object_get(v, "where")),
                          json_number_value(json_object_get(v, "bytes"))};
}

static enum ax_status put_block(struct ax_buf *out, const struct block *b, double largest) {
    char size[32];
    const char *where = b->where ? b->where : "";
    const int color = strcmp(where, "persistent") == 0    ? 0
                      : strcmp(where, "activations") == 0 ? 1
                      : strcmp(where, "scratch") == 0     ? 2
                                                          : 6;
    AX_TRY(ax_html_put(out,
                       "<tr><th scope=\"row\">% <small>%</small></th><td class=\"wide\">"
                       "<svg viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" "
                       "aria-hidden=\"true\">",
                       b->name, where));
    AX_TRY(ax_buf_printf(out, "<rect class=\"f%d\" width=\"%.1f\" height=\"10\"/>", color,
                         largest > 0 ? 1000 * b->bytes / largest : 0));
    return ax_html_put(out, "</svg></td><td class=\"num\">%</td></tr>\n",
                       ax_format_bytes(size, sizeof size, b->bytes));
}

static enum ax_status put_run_memory(struct ax_buf *out, const struct ax_report *r, int i) {
    const struct ax_report_run *run = &r->runs[i];
    const json_t *blocks = ax_report_about(run, "memory.blocks");
    const json_t *recompute = ax_report_about(run, "memory.recompute");
    const size_t n = json_array_size(blocks);
    char planned[32], peak[32];
    struct block rest = {"all others", "", 0};
    if (n == 0)
        return AX_OK;
    const double reached =
        run->n_steps > 0 ? run->steps[run->n_steps - 1].figures[AX_FIGURE_PEAK] : NAN;
    AX_TRY(ax_html_put(
        out,
        "<div class=\"bar\"><p><b>%</b> <span>% planned, process peak %, recompute "
        "%</span></p><table>\n",
        run->name,
        ax_format_bytes(planned, sizeof planned, ax_report_number(run, "memory.bytes", 0)),
        isfinite(reached) ? ax_format_bytes(peak, sizeof peak, reached) : "not known",
        json_string_value(recompute)));
    const double largest = block_at(blocks, 0).bytes;
    for (size_t k = 0; k < n; k++) {
        const struct block b = block_at(blocks, k);
        if (k < NAMED)
            AX_TRY(put_block(out, &b, largest));
        else
            rest.bytes += b.bytes;
    }
    if (n > NAMED)
        AX_TRY(put_block(out, &rest, largest));
    return ax_buf_puts(out, "</table></div>\n");
}

enum ax_status ax_report_put_memory(struct ax_buf *out, const struct ax_report *r) {
    return in_section(
        out,
        "<section class=\"card side\"><h2>Memory by name</h2>\n<p class=\"dim\">Planned bytes by "
        "name at each stack's high-water mark. Persistent: the entire run; activations: from "
        "forward to backward; scratch: within one "
        "layer.</p>\n",
        r, put_run_memory);
}

/* ---- packing ---- */

/* NaN: unknown, as for streams, which store −1. */
static double data_number(const struct ax_report_run *run, const char *path) {
    const double v = ax_report_number(run, path, NAN);
    return v >= 0 ? v : NAN;
}

static const struct {
    const char *name, *path; /* path NULL: computed from others */
    const char *unit;
    int digits;
} packing[] = {
    {"documents", "data.documents", "", 0},
    {"evaluation documents", "data.eval_documents", "", 0},
    {"tokens", "data.tokens", "", 0},
    {"rows per epoch", "data.rows", "", 0},
    {"capacity of a row", "data.row_tokens", " tokens", 0},
    {"rows per step", "data.rows_per_step", "", 0},
    {"documents per row", NULL, "", 1},
    {"tokens per document", NULL, "", 1},
    {"row fill", NULL, " %", 1},
};

static double packing_value(const struct ax_report_run *run, size_t which) {
    const double docs = data_number(run, "data.documents"),
                 tokens = data_number(run, "data.tokens"), rows = data_number(run, "data.rows"),
                 room = data_number(run, "data.row_tokens");
    if (packing[which].path)
        return data_number(run, packing[which].path);
    if (strcmp(packing[which].name, "documents per row") == 0)
        return docs / rows;
    return strcmp(packing[which].name, "tokens per document") == 0 ? tokens / docs
                                                                   : 100 * tokens / (rows * room);
}

static const char *packing_text(const struct ax_report_run *run, size_t which, char *text,
                                size_t size) {
    const double v = packing_value(run, which);
    char count[32];
    if (!isfinite(v))
        return NULL;
    if (v >= 1e6)
        snprintf(text, size, "%s%s", ax_format_count(count, sizeof count, v), packing[which].unit);
    else
        snprintf(text, size, "%.*f%s", packing[which].digits, v, packing[which].unit);
    return text;
}

static const char *packed(const struct ax_report_run *run) {
    const json_t *v = ax_report_about(run, "data.packing");
    return !v ? NULL : json_is_true(v) ? "several documents" : "one document";
}

enum ax_status ax_report_put_packing(struct ax_buf *out, const struct ax_report *r) {
    bool any = false;
    char text[64];
    for (int i = 0; i < r->n; i++)
        any = any || packed(&r->runs[i]);
    if (!any)
        return AX_OK;
    AX_TRY(ax_buf_puts(out, "<section class=\"card\"><h2>Rows and packing</h2><div "
                            "class=\"scroll\"><table>\n"));
    if (r->n > 1)
        AX_TRY(ax_report_put_head(out, r, ""));
    AX_TRY(ax_buf_puts(out, "<tr><th scope=\"row\">a row contains</th>"));
    for (int i = 0; i < r->n; i++)
        AX_TRY(ax_html_put(out, "<td>%</td>", packed(&r->runs[i])));
    AX_TRY(ax_buf_puts(out, "</tr>\n"));
    for (size_t k = 0; k < sizeof packing / sizeof *packing; k++) {
        AX_TRY(ax_html_put(out, "<tr><th scope=\"row\">%</th>", packing[k].name));
        for (int i = 0; i < r->n; i++)
            AX_TRY(ax_html_put(out, "<td>%</td>", packing_text(&r->runs[i], k, text, sizeof text)));
        AX_TRY(ax_buf_puts(out, "</tr>\n"));
    }
    return ax_buf_puts(out, "</table></div></section>\n");
}
