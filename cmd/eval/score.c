/* `axtrain eval --task reward|prm`: scores of records by a reward model or a process reward model
 * (model/text/text_scorer.h), as lines of JSON, and what they amount to where the records say what is right. */
#include "cmd/eval/eval.h"

#include <math.h>
#include <stdio.h>

#include "base/io.h"
#include "base/log.h"
#include "data/records/format/tools.h"
#include "data/records/rows/rows.h"
#include "optim/evaluate/score/records.h"
#include "optim/evaluate/score/steps.h"

struct score {
    const struct ax_eval *e; /* its options */
    struct ax_text_scorer scorer;
    struct ax_rows *rows;
    struct ax_score_set set; /* of all records */
};

/* ---- records ---- */

static void add_steps(json_t *v, const double *p, size_t n) {
    json_t *list = json_array();
    size_t error = 0;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, ax_json_number(p[i]));
    while (error < n && p[error] >= 0.5)
        error++;
    const bool unknown = error < n && isnan(p[error]);
    json_object_set_new(v, "steps", list);
    for (int by = 0; by < AX_SCORE_BYS; by++)
        json_object_set_new(v, ax_score_by_names[by],
                            ax_json_number(ax_score_steps((enum ax_score_by)by, p, n)));
    json_object_set_new(v, "first_error",
                        unknown ? json_null() : json_integer(error < n ? (json_int_t)error : -1));
}

/* ---- printing: a line of JSON per record; the total ---- */

static enum ax_status put_rows(const struct score *s, struct ax_buf *out) {
    for (size_t i = 0; i < s->set.n_rows; i++) {
        const struct ax_score_row *r = &s->set.rows[i];
        const double *scores = s->set.scores + r->first;
        char where[512];
        snprintf(where, sizeof where, "%s:%llu", ax_rows_file(s->rows, r->origin.file),
                 (unsigned long long)r->origin.line);
        json_t *v = json_pack("{sI so}", "row", (json_int_t)i, "where", ax_json_repaired(where));
        if (s->scorer.kind == &ax_classifier_prm) {
            add_steps(v, scores, r->n);
        } else if (r->n == 1) {
            json_object_set_new(v, "score", ax_json_number(scores[0]));
        } else {
            json_object_set_new(v, "chosen", ax_json_number(scores[0]));
            json_object_set_new(v, "rejected", ax_json_number(scores[1]));
        }
        AX_TRY(ax_eval_put_json(out, v, JSON_COMPACT));
    }
    return AX_OK;
}

/* ---- the total ---- */

struct line {
    const char *name, *text; /* in JSON; before the figure */
    double value;
    enum { NUMBER, COUNT, PERCENT } kind;
};

static enum ax_status put_total(const char *task, size_t rows, const struct line *lines, size_t n,
                                bool json, struct ax_buf *out) {
    json_t *v = json ? json_pack("{ss sI}", "task", task, "rows", (json_int_t)rows) : NULL;
    if (!json)
        AX_TRY(ax_buf_printf(out, "%zu records\n", rows));
    for (size_t i = 0; i < n; i++) {
        const struct line *l = &lines[i];
        if (json)
            json_object_set_new(v, l->name,
                                l->kind == COUNT && isfinite(l->value)
                                    ? json_integer((json_int_t)l->value)
                                    : ax_json_number(l->value));
        else if (isfinite(l->value) && l->kind == PERCENT)
            AX_TRY(ax_buf_printf(out, "%-24s %.2f %%\n", l->text, 100 * l->value));
        else if (isfinite(l->value))
            AX_TRY(ax_buf_printf(out, "%-24s %.6g\n", l->text, l->value));
    }
    return json ? ax_eval_put_json(out, v, JSON_COMPACT) : AX_OK;
}

static enum ax_status put_rewards(const struct score *s, bool json, struct ax_buf *out) {
    double pairs = 0, right = 0, margin = 0, sum = 0;
    for (size_t i = 0; i < s->set.n_rows; i++) {
        const double *v = s->set.scores + s->set.rows[i].first;
        if (s->set.rows[i].n != 2)
            continue;
        const double d = v[0] - v[1];
        pairs++;
        right += isnan(d) ? d : d > 0;
        margin += d;
    }
    for (size_t i = 0; i < s->set.n_scores; i++)
        sum += s->set.scores[i];
    const double none = pairs > 0 ? 1 : NAN;
    const struct line lines[] = {
        {"mean", "mean score", sum / (double)s->set.n_scores, NUMBER},
        {"pairs", "pairs", none * pairs, COUNT},
        {"accuracy", "chosen scores higher", none * right / pairs, PERCENT},
        {"margin", "mean margin", none * margin / pairs, NUMBER}};
    return put_total("reward", s->set.n_rows, lines, sizeof lines / sizeof *lines, json, out);
}

/* The steps that have labels, and where solutions end among them. */
static enum ax_status labeled_steps(const struct score *s, struct ax_scored_step **steps,
                                    size_t **ends, size_t *solutions) {
    size_t n = 0;
    *solutions = 0;
    AX_TRY(ax_alloc(steps, s->set.n_labels, sizeof **steps));
    AX_TRY(ax_alloc(ends, s->set.n_rows, sizeof **ends));
    for (size_t i = 0; i < s->set.n_rows; i++) {
        const struct ax_score_row *r = &s->set.rows[i];
        for (size_t k = 0; k < r->n_labels; k++)
            (*steps)[n++] = (struct ax_scored_step){s->set.scores[r->first + k],
                                                    s->set.labels[r->first_label + k] >= 0.5};
        if (r->n_labels > 0)
            (*ends)[(*solutions)++] = n;
    }
    return AX_OK;
}

static enum ax_status put_steps(const struct score *s, bool json, struct ax_buf *out) {
    struct ax_scored_step *steps = NULL;
    size_t *ends = NULL, solutions;
    enum ax_status st = labeled_steps(s, &steps, &ends, &solutions);
    if (st == AX_OK) {
        const struct ax_step_metrics m = ax_step_metrics(steps, ends, solutions);
        const struct line lines[] = {
            {"steps", "steps", (double)s->set.n_scores, COUNT},
            {"labeled_steps", "labeled steps", (double)m.steps, COUNT},
            {"accuracy", "token accuracy", m.accuracy, PERCENT},
            {"auc", "AUC per step", m.auc, NUMBER},
            {"first_error", "first error (F1)", m.first_error, PERCENT},
            {"error_found", "  found in wrong ones", m.error_found, PERCENT},
            {"correct_found", "  none in right ones", m.correct_found, PERCENT}};
        st = put_total("prm", s->set.n_rows, lines, sizeof lines / sizeof *lines, json, out);
    }
    ax_free(steps);
    ax_free(ends);
    return st;
}

static bool has_nan(const struct score *s, size_t row) {
    const struct ax_score_row *r = &s->set.rows[row];
    for (size_t i = r->first; i < r->first + r->n; i++)
        if (isnan(s->set.scores[i]))
            return true;
    return false;
}

static void warn_of_nan(const struct score *s) {
    size_t n = 0, first = 0;
    for (size_t i = s->set.n_rows; i-- > 0;)
        if (has_nan(s, i)) {
            n++;
            first = i;
        }
    if (n > 0)
        ax_log_warn("%zu of %zu records have a score that is not a number (the first: %s:%llu), so "
                    "no accuracy is known. The model computes numbers that are too large: try "
                    "--dtype float32, or get another copy of the model",
                    n, s->set.n_rows, ax_rows_file(s->rows, s->set.rows[first].origin.file),
                    (unsigned long long)s->set.rows[first].origin.line);
}

static enum ax_status put_results_total(const struct score *s, bool json, struct ax_buf *out) {
    return s->scorer.kind == &ax_classifier_prm ? put_steps(s, json, out)
                                                : put_rewards(s, json, out);
}

/* ---- the command ---- */

static enum ax_status add(struct score *s, const struct ax_raw_row *raw) {
    const struct ax_origin origin = {raw->file, raw->line, raw->index};
    json_t *record;
    AX_TRY(ax_rows_parse(s->rows, raw, &record));
    const enum ax_status st = ax_score_set_add(&s->set, record, origin, NULL);
    json_decref(record);
    return st == AX_ERR_DATA || st == AX_ERR_EMPTY
               ? ax_error_prefix(st, "%s:%llu", ax_rows_file(s->rows, raw->file),
                                 (unsigned long long)raw->line)
               : st;
}

static enum ax_status warn_of_lost(const struct score *s) {
    const struct ax_template *t = ax_format_template(s->set.format);
    const size_t n = ax_rows_n_files(s->rows);
    struct ax_buf text = {0};
    char **files;
    AX_TRY(ax_alloc(&files, n, sizeof *files));
    for (size_t i = 0; i < n; i++)
        files[i] = (char *)(uintptr_t)ax_rows_file(s->rows, i);
    const enum ax_status st = t ? ax_tools_put_lost(&text, t, s->set.lost, files, n) : AX_OK;
    if (st == AX_OK && text.len > 0)
        ax_log_warn("%s; the scores do not depend on them", text.data);
    ax_buf_free(&text);
    ax_free(files);
    return st;
}

static enum ax_status read_all(struct score *s) {
    const struct ax_rows_options o = {.path = s->e->data};
    const int64_t most = s->e->max_rows > 0 ? s->e->max_rows : INT64_MAX;
    struct ax_raw_row raw;
    bool got = true;
    AX_TRY(ax_rows_open(&s->rows, &o));
    AX_TRY(ax_score_set_open(&s->set, &s->scorer));
    while ((int64_t)s->set.n_rows < most) {
        AX_TRY(ax_rows_next(s->rows, &raw, &got));
        if (!got)
            break;
        AX_TRY(add(s, &raw));
    }
    AX_TRY(warn_of_lost(s));
    return s->set.n_rows > 0 ? AX_OK : ax_error(AX_ERR_DATA, "%s: no records to score", s->e->data);
}

static enum ax_status put_results(const struct score *s, struct ax_buf *out) {
    struct ax_buf rows = {0};
    enum ax_status st = put_rows(s, s->e->out ? &rows : out);
    if (st == AX_OK && s->e->out && ax_ranks_lead(&s->e->ranks))
        st = ax_write_file_atomic(s->e->out, rows.data, rows.len);
    ax_buf_free(&rows);
    AX_TRY(st);
    warn_of_nan(s);
    return put_results_total(s, s->e->json || !s->e->out, out);
}

enum ax_status ax_eval_score(struct ax_eval *e, const struct ax_classifier *kind,
                             struct ax_buf *out) {
    struct score s = {.e = e};
    const struct ax_text_scorer_options o = {.model = e->model,
                                             .kind = kind,
                                             .adapters = &e->adapter_args,
                                             .dtype = e->dtype,
                                             .store = e->store,
                                             .runtime =
                                                 ax_ranks_runtime(&e->ranks, (int)e->threads)};
    enum ax_status st;
    AX_TRY_GOTO(ax_text_scorer_open(&s.scorer, &o), st, done);
    AX_TRY_GOTO(read_all(&s), st, done);
    AX_TRY_GOTO(ax_score_set_run(&s.set), st, done);
    st = put_results(&s, out);
done:
    ax_score_set_close(&s.set);
    ax_rows_close(s.rows);
    ax_text_scorer_close(&s.scorer);
    return st;
}
