/* The model's answers: to the records of an evaluation, and during training. */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "cmd/report/html.h"
#include "cmd/report/report.h"

#define MAX_LINE ((size_t)1 << 20)

/* ---- reading ---- */

/* "answer" from `axtrain eval --per-row`; from --log-samples, the generated text. NULL if the
 * record has no text. */
static const char *answer_of(const json_t *v) {
    const char *text = json_string_value(json_object_get(v, "answer"));
    if (!text)
        text = json_string_value(json_array_get(json_array_get(json_object_get(v, "resps"), 0), 0));
    return text;
}

/* "solved", or a task's first metric if it is 0 or 1; NULL if there is no verdict. */
static const json_t *verdict_of(const json_t *v) {
    const char *metric = json_string_value(json_array_get(json_object_get(v, "metrics"), 0));
    const json_t *solved = json_object_get(v, metric ? metric : "solved");
    const double score = json_number_value(solved);
    if (json_is_boolean(solved) || (json_is_number(solved) && (score == 0 || score == 1)))
        return solved;
    return NULL;
}

static bool is_solved(const json_t *verdict) {
    return json_is_true(verdict) || json_number_value(verdict) == 1;
}

static enum ax_status add_answer(struct ax_report_answers *a, json_t *v) {
    const json_t *verdict = verdict_of(v);
    if (!answer_of(v))
        return AX_OK;
    a->n++;
    a->n_judged += verdict != NULL;
    a->n_solved += is_solved(verdict);
    if (!a->shown)
        a->shown = json_array();
    if (json_array_size(a->shown) < AX_REPORT_MAX_ANSWERS && json_array_append(a->shown, v) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for answers");
    return AX_OK;
}

enum ax_status ax_report_read_answers(struct ax_report_answers *a, const char *path) {
    struct ax_mapping m;
    enum ax_status st = AX_OK;
    AX_TRY(ax_map_file(&m, path));
    for (size_t at = 0; at < m.len && st == AX_OK;) {
        const char *text = (const char *)m.data + at;
        const char *end = memchr(text, '\n', m.len - at);
        const size_t n = end ? (size_t)(end - text) : m.len - at;
        at += n + 1;
        json_t *v = n <= MAX_LINE ? json_loadb(text, n, JSON_ALLOW_NUL, NULL) : NULL;
        st = add_answer(a, v);
        json_decref(v);
    }
    ax_unmap_file(&m);
    return st;
}

/* ---- the page ---- */

/* At most AX_REPORT_MAX_TEXT bytes; a character cut at the end becomes U+FFFD, like any invalid one. */
static enum ax_status put_text(struct ax_buf *out, const char *text) {
    char shown[AX_REPORT_MAX_TEXT + 8];
    const bool cut = text && strlen(text) > AX_REPORT_MAX_TEXT;
    if (text)
        snprintf(shown, sizeof shown, "%.*s%s", AX_REPORT_MAX_TEXT, text,
                 cut ? " \xe2\x80\xa6" : "");
    return ax_html_put(out, "<td><code>%</code></td>", text ? shown : NULL);
}

/* An answer that calls tools is shown turn by turn. */
static enum ax_status put_said(struct ax_buf *out, const json_t *v) {
    const json_t *messages = json_object_get(v, "messages");
    if (!json_is_array(messages))
        return put_text(out, answer_of(v));
    AX_TRY(ax_buf_puts(out, "<td class=\"text\">"));
    AX_TRY(ax_report_put_turns(out, messages, json_object_get(v, "calls")));
    return ax_buf_puts(out, "</td>");
}

static enum ax_status put_answer(struct ax_buf *out, const json_t *v) {
    const json_t *verdict = verdict_of(v), *id = json_object_get(v, "doc_id");
    const json_t *final = json_object_get(v, "filtered_resps");
    const char *where = json_string_value(json_object_get(v, "where"));
    const char *expected = json_string_value(json_object_get(v, "expected"));
    char name[300];
    if (where)
        snprintf(name, sizeof name, "%.280s", where);
    else
        snprintf(name, sizeof name, "%.200s %lld",
                 json_is_string(json_object_get(v, "task"))
                     ? json_string_value(json_object_get(v, "task"))
                     : "record",
                 (long long)json_integer_value(id));
    if (!expected)
        expected = json_string_value(json_object_get(v, "target"));
    AX_TRY(ax_html_put(out, "<tr><th scope=\"row\">%</th><td>%</td>", name,
                       !verdict             ? NULL
                       : is_solved(verdict) ? "yes"
                                            : "no"));
    AX_TRY(put_text(out, expected));
    AX_TRY(put_text(out, final ? json_string_value(json_array_get(final, 0))
                               : json_string_value(json_object_get(v, "final_answer"))));
    AX_TRY(put_said(out, v));
    return ax_buf_puts(out, "</tr>\n");
}

static enum ax_status put_run_answers(struct ax_buf *out, const struct ax_report_run *run) {
    const struct ax_report_answers *a = &run->answers;
    const size_t shown = json_array_size(a->shown);
    char all[32], text[128], solved[64] = "";
    if (a->n == 0)
        return AX_OK;
    if (a->n_judged > 0)
        snprintf(solved, sizeof solved, ", %zu of %zu solved", a->n_solved, a->n_judged);
    snprintf(all, sizeof all, "%zu record%s", a->n, a->n == 1 ? "" : "s");
    if (shown < a->n)
        snprintf(text, sizeof text, "%s%s; the first %zu", all, solved, shown);
    else
        snprintf(text, sizeof text, "%s%s", all, solved);
    AX_TRY(ax_html_put(out, "<div class=\"bar\"><p><b>%</b> <span>%</span></p>", run->name, text));
    AX_TRY(ax_buf_puts(out, "<div class=\"scroll\"><table><thead><tr>"
                            "<th scope=\"col\">record</th><th scope=\"col\">solved</th>"
                            "<th scope=\"col\">expected</th><th scope=\"col\">final answer</th>"
                            "<th scope=\"col\">answer</th></tr></thead>\n"));
    for (size_t i = 0; i < shown; i++)
        AX_TRY(put_answer(out, json_array_get(a->shown, i)));
    return ax_buf_puts(out, "</table></div></div>\n");
}

enum ax_status ax_report_put_answers(struct ax_buf *out, const struct ax_report *r) {
    bool any = false;
    for (int i = 0; i < r->n; i++)
        any = any || r->runs[i].answers.n > 0;
    if (!any)
        return AX_OK;
    AX_TRY(ax_buf_puts(out, "<section class=\"card\"><h2>Answers in evaluation</h2>\n"));
    for (int i = 0; i < r->n; i++)
        AX_TRY(put_run_answers(out, &r->runs[i]));
    return ax_buf_puts(out, "</section>\n");
}

/* ---- samples: answers at evaluations during training, or those that it trains on, the newest of each run ---- */

static enum ax_status put_run_samples(struct ax_buf *out, const struct ax_report_run *run) {
    const size_t first =
        run->n_samples > AX_REPORT_MAX_SAMPLES ? run->n_samples - AX_REPORT_MAX_SAMPLES : 0;
    if (run->n_samples == 0)
        return AX_OK;
    AX_TRY(ax_html_put(out,
                       "<p><b>%</b></p><div class=\"scroll\"><table><thead><tr><th>step</th>"
                       "<th>end of the prompt</th><th>answer</th>",
                       run->name));
    AX_TRY(ax_buf_puts(out, run->samples[0].worth ? "<th>worth</th></tr></thead>\n"
                                                  : "</tr></thead>\n"));
    for (size_t i = first; i < run->n_samples; i++) {
        const struct ax_report_sample *s = &run->samples[i];
        char step[32];
        snprintf(step, sizeof step, "%lld", (long long)s->step);
        AX_TRY(ax_html_put(out, "<tr><td>%</td><td class=\"text\">%</td><td class=\"text\">", step,
                           s->prompt));
        AX_TRY(s->messages ? ax_report_put_turns(out, s->messages, s->calls)
                           : ax_html_put(out, "%", s->text));
        AX_TRY(ax_buf_puts(out, "</td>"));
        if (s->worth)
            AX_TRY(ax_html_put(out, "<td>%</td>", s->worth));
        AX_TRY(ax_buf_puts(out, "</tr>\n"));
    }
    return ax_buf_puts(out, "</table></div>\n");
}

enum ax_status ax_report_put_samples(struct ax_buf *out, const struct ax_report *r) {
    bool any = false;
    for (int i = 0; i < r->n; i++)
        any = any || r->runs[i].n_samples > 0;
    if (!any)
        return AX_OK;
    AX_TRY(ax_buf_puts(out, "<section class=\"card\"><h2>Samples</h2>\n"));
    for (int i = 0; i < r->n; i++)
        AX_TRY(put_run_samples(out, &r->runs[i]));
    return ax_buf_puts(out, "</section>\n");
}
