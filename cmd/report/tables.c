/* Key figures, environment and events. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/report/html.h"
#include "cmd/report/report.h"

#define MAX_EVENTS 200 /* the last events of a run are shown */

/* ---- used by all tables ---- */

enum ax_status ax_report_put_head(struct ax_buf *out, const struct ax_report *r,
                                  const char *first) {
    AX_TRY(ax_html_put(out, "<thead><tr><th scope=\"col\">%</th>", first));
    for (int i = 0; i < r->n; i++) {
        AX_TRY(ax_buf_printf(out,
                             "<th scope=\"col\"><svg class=\"key\" viewBox=\"0 0 16 10\" "
                             "aria-hidden=\"true\"><path class=\"line full s%d%s\" d=\"M0 "
                             "5H16\"/></svg>",
                             i % 6, i / 6 % 2 ? " dashed" : ""));
        AX_TRY(ax_html_put(out, "%</th>", r->runs[i].name));
    }
    return ax_buf_puts(out, "</tr></thead>\n");
}

/* "1 record", "2 records". Returns buf. */
static const char *plural(char *buf, size_t size, size_t n, const char *noun) {
    snprintf(buf, size, "%zu %s%s", n, noun, n == 1 ? "" : "s");
    return buf;
}

/* ---- key figures ---- */

/* Writes a figure of the run to text; "" if it has none. */
typedef void figure_fn(const struct ax_report_run *run, char *text, size_t size);

static const struct ax_report_step *last_step(const struct ax_report_run *run) {
    return run->n_steps > 0 ? &run->steps[run->n_steps - 1] : NULL;
}

static double sum(const struct ax_report_run *run, enum ax_report_figure f) {
    double total = 0;
    for (size_t i = 0; i < run->n_steps; i++)
        total += isfinite(run->steps[i].figures[f]) ? run->steps[i].figures[f] : 0;
    return total;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

/* The median of the finite values; NaN if there are none or memory is short. */
static double median(const struct ax_report_run *run, enum ax_report_figure f) {
    double *v, middle;
    size_t n = 0;
    if (ax_alloc(&v, run->n_steps, sizeof *v) != AX_OK)
        return NAN;
    for (size_t i = 0; i < run->n_steps; i++)
        if (isfinite(run->steps[i].figures[f]))
            v[n++] = run->steps[i].figures[f];
    qsort(v, n, sizeof *v, ascending);
    middle = n > 0 ? v[n / 2] : NAN;
    ax_free(v);
    return middle;
}

static void text_of(const struct ax_report_run *run, const char *path, char *text, size_t size) {
    const char *s = json_string_value(ax_report_about(run, path));
    snprintf(text, size, "%s", s ? s : "");
}

static void state(const struct ax_report_run *run, char *text, size_t size) {
    const struct ax_report_event *last = NULL;
    for (size_t i = 0; i < run->n_events; i++)
        if (strcmp(run->events[i].event, "finished") == 0 ||
            strcmp(run->events[i].event, "stopped") == 0 ||
            strcmp(run->events[i].event, "resumed") == 0)
            last = &run->events[i];
    if (last && strcmp(last->event, "finished") == 0)
        snprintf(text, size, "finished");
    else if (last && strcmp(last->event, "stopped") == 0)
        snprintf(text, size, "stopped: %s", last->text);
    else
        snprintf(text, size, "running, or ended without a record of it");
}

static void steps(const struct ax_report_run *run, char *text, size_t size) {
    const struct ax_report_step *s = last_step(run);
    char epochs[32];
    snprintf(epochs, sizeof epochs, "%.3g", s ? s->figures[AX_FIGURE_EPOCH] : 0);
    if (s && isfinite(s->figures[AX_FIGURE_EPOCH]))
        snprintf(text, size, "%lld (%s epoch%s)", (long long)s->step, epochs,
                 strcmp(epochs, "1") == 0 ? "" : "s");
    else
        snprintf(text, size, "%lld", s ? (long long)s->step : 0);
}

const char *ax_report_value(char buf[32], double v) {
    if (isfinite(v))
        snprintf(buf, 32, fabs(v) < 1e6 ? "%.4f" : "%.4g", v);
    else
        snprintf(buf, 32, "none");
    return buf;
}

static void from_to(double from, double to, char *text, size_t size) {
    char a[32], b[32];
    snprintf(text, size, "%s \xe2\x86\x92 %s", ax_report_value(a, from), ax_report_value(b, to));
}

static void loss(const struct ax_report_run *run, char *text, size_t size) {
    if (run->n_steps > 0)
        from_to(ax_report_loss(run, false), ax_report_loss(run, true), text, size);
}

/* The figure of all evaluations: what completions are worth, or the loss. */
static int eval_figure(const struct ax_report_run *run) {
    const bool reward = run->n_evals > 0 && isfinite(run->evals[0].figures[AX_EVAL_FIGURE_REWARD]);
    return reward ? AX_EVAL_FIGURE_REWARD : AX_EVAL_FIGURE_LOSS;
}

static void eval(const struct ax_report_run *run, int figure, char *text, size_t size) {
    if (run->n_evals > 0 && eval_figure(run) == figure)
        from_to(run->evals[0].figures[figure], run->evals[run->n_evals - 1].figures[figure], text,
                size);
}

static void eval_loss(const struct ax_report_run *run, char *text, size_t size) {
    eval(run, AX_EVAL_FIGURE_LOSS, text, size);
}

static void eval_reward(const struct ax_report_run *run, char *text, size_t size) {
    eval(run, AX_EVAL_FIGURE_REWARD, text, size);
}

/* The one that the run chose, else the least loss or the highest reward. */
static void best_eval(const struct ax_report_run *run, char *text, size_t size) {
    const int figure = eval_figure(run);
    const double sign = figure == AX_EVAL_FIGURE_REWARD ? -1 : 1; /* the least is the best */
    const struct ax_report_eval *chosen = ax_report_best(run), *best = chosen;
    for (size_t i = 0; i < run->n_evals && !chosen; i++) {
        const struct ax_report_eval *e = &run->evals[i];
        const double v = sign * e->figures[figure];
        if (isfinite(v) && (!best || v < sign * best->figures[figure]))
            best = e;
    }
    char value[32];
    if (best)
        snprintf(text, size, "%s at step %lld", ax_report_value(value, best->figures[figure]),
                 (long long)best->step);
}

static void tokens(const struct ax_report_run *run, char *text, size_t size) {
    char all[32], trained[32];
    if (run->n_steps > 0)
        snprintf(text, size, "%s, %s trained",
                 ax_format_count(all, sizeof all, sum(run, AX_FIGURE_TOKENS)),
                 ax_format_count(trained, sizeof trained, sum(run, AX_FIGURE_TRAINED)));
}

static void seconds(const struct ax_report_run *run, char *text, size_t size) {
    if (run->n_steps > 0)
        ax_format_seconds(text, size, sum(run, AX_FIGURE_SECONDS));
}

static void speed(const struct ax_report_run *run, char *text, size_t size) {
    const double v = median(run, AX_FIGURE_RATE);
    if (isfinite(v))
        snprintf(text, size, "%.0f tokens/s", v);
}

/* Executed FLOPs contain the model's and what was computed again. */
static void utilization(const struct ax_report_run *run, char *text, size_t size) {
    const double model = median(run, AX_FIGURE_MFU), hardware = median(run, AX_FIGURE_HFU);
    if (isfinite(model) && isfinite(hardware))
        snprintf(text, size, "%.1f %%, %.1f %%", 100 * model, 100 * hardware);
    else if (isfinite(model))
        snprintf(text, size, "%.1f %%", 100 * model);
}

static void peak(const struct ax_report_run *run, char *text, size_t size) {
    const struct ax_report_step *s = last_step(run);
    if (s && isfinite(s->figures[AX_FIGURE_PEAK]))
        ax_format_bytes(text, size, s->figures[AX_FIGURE_PEAK]);
}

static void model(const struct ax_report_run *run, char *text, size_t size) {
    text_of(run, "model", text, size);
}

/* "GRPO of all weights", "DPO of an adapter (lora)" */
static void method(const struct ax_report_run *run, char *text, size_t size) {
    const char *s = json_string_value(ax_report_about(run, "method"));
    const char *name = ax_report_kind(run)->name;
    if (s && strcmp(s, "full") == 0)
        snprintf(text, size, "%s of all weights", name);
    else if (s)
        snprintf(text, size, "%s of an adapter (%s)", name, s);
}

static void parameters(const struct ax_report_run *run, char *text, size_t size) {
    const double n = ax_report_number(run, "parameters", 0);
    if (n > 0)
        ax_format_count(text, size, n);
}

/* "2026-11-20T15:12:59Z" without the seconds. */
static void started(const struct ax_report_run *run, char *text, size_t size) {
    char iso[32];
    text_of(run, "started", iso, sizeof iso);
    if (strlen(iso) == 20)
        snprintf(text, size, "%.10s %.5s UTC", iso, iso + 11);
}

/* The first and the last value of a figure that not all methods have. */
static void change(const struct ax_report_run *run, enum ax_report_figure figure, char *text,
                   size_t size) {
    const bool is_share =
        figure == AX_FIGURE_PREFERRED || figure == AX_FIGURE_JUDGED || figure == AX_FIGURE_CLIPPED;
    const double scale = is_share ? 100 : 1;
    const char *unit = scale > 1 ? " %" : figure == AX_FIGURE_LENGTH ? " tokens" : "";
    double first = NAN, last = NAN;
    for (size_t i = 0; i < run->n_steps; i++) {
        const double v = run->steps[i].figures[figure];
        first = isnan(first) ? v : first;
        last = isnan(v) ? last : v;
    }
    if (!isnan(last))
        snprintf(text, size, "%.4g%s \xe2\x86\x92 %.4g%s", scale * first, unit, scale * last, unit);
}

static const struct {
    const char *name;
    figure_fn *write;             /* NULL: the change of */
    enum ax_report_figure figure; /* this one */
} figures[] = {
    {"state", state, 0},
    {"reward", NULL, AX_FIGURE_REWARD},
    {"length of answers", NULL, AX_FIGURE_LENGTH},
    {"cut answers", NULL, AX_FIGURE_CLIPPED},
    {"preferred answers", NULL, AX_FIGURE_PREFERRED},
    {"right judgements", NULL, AX_FIGURE_JUDGED},
    {"margin", NULL, AX_FIGURE_MARGIN},
    {"KL", NULL, AX_FIGURE_KL},
    {"training loss", loss, 0},
    {"evaluation loss", eval_loss, 0},
    {"evaluation reward", eval_reward, 0},
    {"best evaluation", best_eval, 0},
    {"steps", steps, 0},
    {"tokens", tokens, 0},
    {"time in steps", seconds, 0},
    {"speed (median)", speed, 0},
    {"MFU, HFU (median)", utilization, 0},
    {"peak memory", peak, 0},
    {"method", method, 0},
    {"parameters", parameters, 0},
    {"started", started, 0},
    {"model", model, 0},
};

static const char *text_of_figure(const struct ax_report_run *run, size_t f, char *text,
                                  size_t size) {
    text[0] = '\0';
    if (figures[f].write)
        figures[f].write(run, text, size);
    else
        change(run, figures[f].figure, text, size);
    return text[0] ? text : NULL;
}

static bool any_has(const struct ax_report *r, size_t f) {
    char text[512];
    for (int i = 0; i < r->n; i++)
        if (text_of_figure(&r->runs[i], f, text, sizeof text))
            return true;
    return false;
}

/* Shows one run as tiles, several runs as a table, without what none of them has. */
enum ax_status ax_report_put_figures(struct ax_buf *out, const struct ax_report *r) {
    char text[512];
    AX_TRY(ax_buf_puts(out, r->n == 1 ? "<section class=\"card\"><h2>Key figures</h2><dl>\n"
                                      : "<section class=\"card\"><h2>Key figures</h2><div "
                                        "class=\"scroll\"><table>\n"));
    if (r->n > 1)
        AX_TRY(ax_report_put_head(out, r, ""));
    for (size_t f = 0; f < sizeof figures / sizeof *figures; f++) {
        if (!any_has(r, f))
            continue;
        if (r->n == 1) {
            text_of_figure(&r->runs[0], f, text, sizeof text);
            AX_TRY(ax_html_put(out, "<div class=\"%\"><dt>%</dt><dd>%</dd></div>\n",
                               strlen(text) > 30 ? "wider" : "", figures[f].name, text));
            continue;
        }
        AX_TRY(ax_html_put(out, "<tr><th scope=\"row\">%</th>", figures[f].name));
        for (int i = 0; i < r->n; i++) {
            AX_TRY(
                ax_html_put(out, "<td>%</td>", text_of_figure(&r->runs[i], f, text, sizeof text)));
        }
        AX_TRY(ax_buf_puts(out, "</tr>\n"));
    }
    return ax_buf_puts(out, r->n == 1 ? "</dl></section>\n" : "</table></div></section>\n");
}

/* ---- environment ---- */

/* All runs have the same keys: they are taken from the first run that has an environment. */
enum ax_status ax_report_put_environment(struct ax_buf *out, const struct ax_report *r) {
    json_t *facts = NULL, *value;
    const char *key;
    for (int i = 0; i < r->n && !facts; i++)
        facts = json_object_get(r->runs[i].about.root, "environment");
    if (!facts)
        return AX_OK;
    AX_TRY(ax_buf_puts(out, "<section class=\"card\"><h2>Environment</h2><div "
                            "class=\"scroll\"><table>\n"));
    if (r->n > 1)
        AX_TRY(ax_report_put_head(out, r, ""));
    json_object_foreach(facts, key, value) {
        AX_TRY(ax_html_put(out, "<tr><th scope=\"row\">%</th>", key));
        for (int i = 0; i < r->n; i++) {
            const json_t *v = json_object_get(ax_report_about(&r->runs[i], "environment"), key);
            char number[32];
            snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
            AX_TRY(
                ax_html_put(out, "<td>%</td>", json_is_integer(v) ? number : json_string_value(v)));
        }
        AX_TRY(ax_buf_puts(out, "</tr>\n"));
    }
    return ax_buf_puts(out, "</table></div></section>\n");
}

/* ---- events ---- */

static enum ax_status put_run_events(struct ax_buf *out, const struct ax_report_run *run) {
    const size_t left_out = run->n_events > MAX_EVENTS ? run->n_events - MAX_EVENTS : 0;
    char text[64];
    if (run->n_events == 0 && run->n_problems == 0)
        return AX_OK;
    AX_TRY(
        ax_html_put(out, "<div class=\"bar\"><p><b>%</b></p><ul class=\"events\">\n", run->name));
    for (size_t i = 0; i < run->n_problems && i < AX_REPORT_MAX_PROBLEMS; i++)
        AX_TRY(ax_html_put(out, "<li class=\"warn\"><span>file</span> %</li>\n", run->problems[i]));
    if (run->n_problems > AX_REPORT_MAX_PROBLEMS) {
        plural(text, sizeof text, run->n_problems - AX_REPORT_MAX_PROBLEMS, "more such line");
        AX_TRY(ax_html_put(out, "<li class=\"warn\"><span>file</span> and %</li>\n", text));
    }
    if (left_out > 0) {
        plural(text, sizeof text, left_out, "earlier event");
        AX_TRY(ax_html_put(out, "<li>not shown: %</li>\n", text));
    }
    for (size_t i = left_out; i < run->n_events; i++) {
        const struct ax_report_event *e = &run->events[i];
        snprintf(text, sizeof text, "step %lld", (long long)e->step);
        AX_TRY(ax_html_put(out, "<li class=\"%\"><span>%</span> <b>%</b> %</li>\n",
                           strcmp(e->event, "warning") == 0 ? "warn" : "", text, e->event,
                           e->text));
    }
    return ax_buf_puts(out, "</ul></div>\n");
}

enum ax_status ax_report_put_events(struct ax_buf *out, const struct ax_report *r) {
    bool any = false;
    for (int i = 0; i < r->n; i++)
        any = any || r->runs[i].n_events > 0 || r->runs[i].n_problems > 0;
    if (!any)
        return AX_OK;
    AX_TRY(ax_buf_puts(out, "<section class=\"card\"><h2>Events</h2>\n"));
    for (int i = 0; i < r->n; i++)
        AX_TRY(put_run_events(out, &r->runs[i]));
    return ax_buf_puts(out, "</section>\n");
}
