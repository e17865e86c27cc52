/* Figures over steps, all runs in one chart. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/report/chart.h"
#include "cmd/report/report.h"

/* Source of a chart's values. */
typedef enum ax_status points_fn(const struct ax_report_run *run, int figure,
                                 struct ax_chart_point **out, size_t *n);

static enum ax_status of_steps(const struct ax_report_run *run, int figure,
                               struct ax_chart_point **out, size_t *n) {
    struct ax_chart_point *p;
    AX_TRY(ax_alloc(&p, run->n_steps, sizeof *p));
    for (size_t i = 0; i < run->n_steps; i++)
        p[i] = (struct ax_chart_point){(double)run->steps[i].step, run->steps[i].figures[figure]};
    *n = run->n_steps;
    *out = p;
    return AX_OK;
}

static enum ax_status of_evals(const struct ax_report_run *run, int figure,
                               struct ax_chart_point **out, size_t *n) {
    struct ax_chart_point *p;
    AX_TRY(ax_alloc(&p, run->n_evals, sizeof *p));
    for (size_t i = 0; i < run->n_evals; i++)
        p[i] = (struct ax_chart_point){(double)run->evals[i].step, run->evals[i].figures[figure]};
    *n = run->n_evals;
    *out = p;
    return AX_OK;
}

/* The figure is the place of a reward function in the names of the run. */
static enum ax_status of_function(const struct ax_report_run *run, int figure,
                                  struct ax_chart_point **out, size_t *n) {
    struct ax_chart_point *p;
    AX_TRY(ax_alloc(&p, run->n_steps, sizeof *p));
    for (size_t i = 0; i < run->n_steps; i++)
        p[i] = (struct ax_chart_point){(double)run->steps[i].step, run->steps[i].rewards[figure]};
    *n = run->n_steps;
    *out = p;
    return AX_OK;
}

/* Tokens of a step as a fraction of the capacity of its rows. */
static enum ax_status fill(const struct ax_report_run *run, int figure, struct ax_chart_point **out,
                           size_t *n) {
    const double room = ax_report_number(run, "data.row_tokens", NAN) *
                        ax_report_number(run, "data.rows_per_step", NAN);
    AX_TRY(of_steps(run, figure, out, n));
    for (size_t i = 0; i < *n; i++)
        (*out)[i].y /= room > 0 ? room : NAN;
    return AX_OK;
}

/* A note NULL: that of losses. */
static const struct {
    struct ax_chart look;
    points_fn *points;
    int figure;
} charts[] = {
    {{.title = "Training loss", .may_log = true, .smooth = true}, of_steps, AX_FIGURE_LOSS},
    {{.title = "Evaluation loss", .may_log = true, .dots = true}, of_evals, AX_EVAL_FIGURE_LOSS},
    {{.title = "Evaluation accuracy",
      .note = "of trained tokens",
      .unit = AX_UNIT_PERCENT,
      .dots = true},
     of_evals,
     AX_EVAL_FIGURE_ACCURACY},
    {{.title = "Preferred answers",
      .note = "pairs whose chosen answer is ahead",
      .unit = AX_UNIT_PERCENT,
      .smooth = true},
     of_steps,
     AX_FIGURE_PREFERRED},
    {{.title = "Preferred answers in evaluations",
      .note = "pairs whose chosen answer is ahead",
      .unit = AX_UNIT_PERCENT,
      .dots = true},
     of_evals,
     AX_EVAL_FIGURE_PREFERRED},
    {{.title = "Right judgements",
      .note = "of labeled steps",
      .unit = AX_UNIT_PERCENT,
      .smooth = true},
     of_steps,
     AX_FIGURE_JUDGED},
    {{.title = "Right judgements in evaluations",
      .note = "of labeled steps",
      .unit = AX_UNIT_PERCENT,
      .dots = true},
     of_evals,
     AX_EVAL_FIGURE_JUDGED},
    {{.title = "Margin", .note = "chosen less rejected, in rewards", .smooth = true},
     of_steps,
     AX_FIGURE_MARGIN},
    {{.title = "KL", .note = "estimated, from the reference", .smooth = true},
     of_steps,
     AX_FIGURE_KL},
    {{.title = "Divergence from the teacher", .note = "per trained token", .smooth = true},
     of_steps,
     AX_FIGURE_DIVERGENCE},
    {{.title = "Reward", .note = "mean of what answers are worth", .smooth = true},
     of_steps,
     AX_FIGURE_REWARD},
    {{.title = "Reward in evaluations", .note = "mean of what answers are worth", .dots = true},
     of_evals,
     AX_EVAL_FIGURE_REWARD},
    {{.title = "Length of answers", .note = "mean, in tokens", .zero = true, .smooth = true},
     of_steps,
     AX_FIGURE_LENGTH},
    {{.title = "Cut answers",
      .note = "that reached the longest length",
      .unit = AX_UNIT_PERCENT,
      .zero = true,
      .smooth = true},
     of_steps,
     AX_FIGURE_CLIPPED},
    {{.title = "Groups to learn nothing from",
      .note = "whose answers are all worth the same",
      .unit = AX_UNIT_PERCENT,
      .zero = true,
      .smooth = true},
     of_steps,
     AX_FIGURE_ALIKE},
    {{.title = "Entropy", .note = "nats per token of answers", .zero = true, .smooth = true},
     of_steps,
     AX_FIGURE_ENTROPY},
    {{.title = "Stopped programs",
      .note = "that did not end by themselves",
      .unit = AX_UNIT_PERCENT,
      .zero = true,
      .smooth = true},
     of_steps,
     AX_FIGURE_STOPPED},
    {{.title = "Busiest expert",
      .note = "its tokens by the mean of its layer, less 1; of the layer where that is largest",
      .zero = true,
      .smooth = true},
     of_steps,
     AX_FIGURE_VIOLATION},
    {{.title = "Entropy of expert loads",
      .note = "mean of the layers, by that of even loads",
      .smooth = true},
     of_steps,
     AX_FIGURE_SPREAD},
    {{.title = "Learning rate", .note = "", .zero = true}, of_steps, AX_FIGURE_LR},
    {{.title = "Gradient norm", .note = "before clipping", .may_log = true, .smooth = true},
     of_steps,
     AX_FIGURE_GRAD_NORM},
    {{.title = "Speed", .note = "tokens per second", .zero = true, .smooth = true},
     of_steps,
     AX_FIGURE_RATE},
    {{.title = "MFU",
      .note = "of the fastest measured matrix product",
      .unit = AX_UNIT_PERCENT,
      .zero = true,
      .smooth = true},
     of_steps,
     AX_FIGURE_MFU},
    {{.title = "Memory", .note = "resident", .unit = AX_UNIT_BYTES, .zero = true},
     of_steps,
     AX_FIGURE_MEMORY},
    {{.title = "Row fill",
      .note = "tokens by capacity of rows",
      .unit = AX_UNIT_PERCENT,
      .zero = true,
      .smooth = true},
     fill,
     AX_FIGURE_TOKENS},
};

static const char *loss_note(const struct ax_report *r) {
    const char *loss = ax_report_kind(&r->runs[0])->loss;
    for (int i = 1; i < r->n; i++)
        if (strcmp(ax_report_kind(&r->runs[i])->loss, loss) != 0)
            return "of different methods: not comparable";
    return loss;
}

static enum ax_status put_chart(struct ax_buf *out, const struct ax_report *r, size_t which) {
    struct ax_chart_series series[AX_REPORT_MAX_RUNS] = {0};
    struct ax_chart c = charts[which].look;
    enum ax_status st = AX_OK;
    c.note = c.note ? c.note : loss_note(r);
    for (int i = 0; i < r->n && st == AX_OK; i++) {
        series[i].name = r->runs[i].name;
        series[i].style = i;
        st = charts[which].points(&r->runs[i], charts[which].figure, &series[i].points,
                                  &series[i].n);
    }
    c.series = series;
    c.n = (size_t)r->n;
    if (st == AX_OK)
        st = ax_chart_put(out, &c);
    for (int i = 0; i < r->n; i++)
        ax_free(series[i].points);
    return st;
}

/* ---- reward functions ---- */

/* The place of a function in a run's names; −1: it has none of that name. */
static int find_function(const struct ax_report_run *run, const char *name) {
    for (int k = 0; k < run->n_rewards; k++)
        if (strcmp(run->reward_names[k], name) == 0)
            return k;
    return -1;
}

static enum ax_status put_function(struct ax_buf *out, const struct ax_report *r,
                                   const char *name) {
    struct ax_chart_series series[AX_REPORT_MAX_RUNS] = {0};
    char title[128];
    snprintf(title, sizeof title, "Reward by %s", name);
    const struct ax_chart c = {.title = title,
                               .note = "mean over answers, before weights",
                               .smooth = true,
                               .series = series,
                               .n = (size_t)r->n};
    enum ax_status st = AX_OK;
    for (int i = 0; i < r->n && st == AX_OK; i++) {
        const int k = find_function(&r->runs[i], name);
        series[i].name = r->runs[i].name;
        series[i].style = i;
        if (k >= 0)
            st = of_function(&r->runs[i], k, &series[i].points, &series[i].n);
    }
    if (st == AX_OK)
        st = ax_chart_put(out, &c);
    for (int i = 0; i < r->n; i++)
        ax_free(series[i].points);
    return st;
}

static bool is_in_earlier_run(const struct ax_report *r, int run, const char *name) {
    for (int i = 0; i < run; i++)
        if (find_function(&r->runs[i], name) >= 0)
            return true;
    return false;
}

/* A chart for each, where a run has several: that of one is the reward's. */
static enum ax_status put_functions(struct ax_buf *out, const struct ax_report *r) {
    int most = 0;
    for (int i = 0; i < r->n; i++)
        most = r->runs[i].n_rewards > most ? r->runs[i].n_rewards : most;
    for (int i = 0; i < r->n && most > 1; i++)
        for (int k = 0; k < r->runs[i].n_rewards; k++)
            if (!is_in_earlier_run(r, i, r->runs[i].reward_names[k]))
                AX_TRY(put_function(out, r, r->runs[i].reward_names[k]));
    return AX_OK;
}

/* ---- all of them ---- */

enum ax_status ax_report_put_charts(struct ax_buf *out, const struct ax_report *r) {
    const size_t before = out->len;
    AX_TRY(ax_buf_puts(out, "<section class=\"charts\">\n"));
    const size_t begun = out->len;
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++)
        AX_TRY(put_chart(out, r, i));
    AX_TRY(put_functions(out, r));
    if (out->len > begun)
        return ax_buf_puts(out, "</section>\n");
    out->len = before;
    return ax_buf_puts(out, "<p class=\"empty\">No steps or evaluations recorded yet.</p>\n");
}
