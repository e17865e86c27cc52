/* Turns a step into a JSON object, a CSV line, TensorBoard scalars and progress for people. */
#include "optim/metrics/metrics.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "optim/metrics/metrics_file.h"
#include "optim/metrics/progress.h"
#include "optim/metrics/tfevents.h"

/* ---- records as text; in the CSV, numbers that are not finite are empty ---- */

/* `before` precedes the number: a comma, or a key. */
static enum ax_status put_number(struct ax_buf *out, const char *before, double v,
                                 const char *unknown) {
    AX_TRY(ax_buf_puts(out, before));
    return isfinite(v) ? ax_buf_printf(out, "%.10g", v) : ax_buf_puts(out, unknown);
}

static enum ax_status put_fields(struct ax_buf *out, int n, const char *const *keys,
                                 const double *values) {
    for (int i = 0; i < n; i++) {
        AX_TRY(ax_buf_printf(out, ", \"%s\": ", keys[i]));
        AX_TRY(put_number(out, "", values[i], "null"));
    }
    return AX_OK;
}

static double per_second(int64_t n, double seconds) {
    return seconds > 0 ? (double)n / seconds : 0;
}

static double or_nan(double fraction) {
    return fraction >= 0 ? fraction : NAN;
}

/* What both records begin with. */
enum { FIGURES = 12 };
static void put_figures(double *out, const struct ax_step_figures *f, struct ax_utilization u) {
    const double figures[FIGURES] = {f->epoch,          f->loss,
                                     f->grad_norm,      f->learning_rate,
                                     (double)f->tokens, (double)f->trained_tokens,
                                     f->seconds,        per_second(f->tokens, f->seconds),
                                     or_nan(u.model),   or_nan(u.hardware),
                                     (double)f->memory, (double)f->peak_memory};
    memcpy(out, figures, sizeof figures);
}

static enum ax_status put_seconds(struct ax_buf *out, const char *key, int n,
                                  const struct ax_phase_seconds *phases) {
    AX_TRY(ax_buf_printf(out, ", \"%s\": {", key));
    for (int i = 0; i < n; i++)
        AX_TRY(
            ax_buf_printf(out, "%s\"%s\": %.6g", i ? ", " : "", phases[i].name, phases[i].seconds));
    return ax_buf_puts(out, "}");
}

static enum ax_status put_ranks(struct ax_buf *out, const struct ax_rank_figures *r) {
    static const char *const keys[] = {"slowest_seconds", "memory_bytes", "peak_memory_bytes"};
    const double values[] = {r->slowest_seconds, r->memory, r->peak_memory};
    AX_TRY(ax_buf_printf(out, ", \"ranks\": {\"slowest\": %d", r->slowest));
    AX_TRY(put_fields(out, (int)(sizeof keys / sizeof *keys), keys, values));
    AX_TRY(put_seconds(out, "wait_seconds", r->n_waits, r->waits));
    return ax_buf_puts(out, "}");
}

/* Those that there are. An evaluation has an accuracy already. */
static enum ax_status put_measures(struct ax_buf *out, const char *before, const char *const *names,
                                   const double *values) {
    for (int i = 0; names && names[i]; i++) {
        if (isnan(values[i]) || (*before && strcmp(names[i], "accuracy") == 0))
            continue;
        AX_TRY(ax_buf_printf(out, ", \"%s%s\": ", before, names[i]));
        AX_TRY(put_number(out, "", values[i], "null"));
    }
    return AX_OK;
}

static enum ax_status put_named(struct ax_buf *out, const char *before,
                                const struct ax_figures *f) {
    for (int i = 0; i < f->n; i++) {
        json_t *s = json_sprintf("%s%s", before, f->names[i]);
        char *quoted = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
        json_decref(s);
        const enum ax_status st = ax_buf_printf(out, ", %s: ", quoted ? quoted : "\"?\"");
        ax_free(quoted);
        AX_TRY(st);
        AX_TRY(put_number(out, "", f->values[i], "null"));
    }
    return AX_OK;
}

static enum ax_status put_experts(struct ax_buf *out, const struct ax_step_figures *f) {
    static const char *const keys[] = {"moe/max_violation", "moe/entropy"};
    static const char *const losses[] = {"moe/aux_loss", "moe/seq_aux_loss"};
    const struct ax_expert_balance *b = f->experts;
    int n = 0;
    if (f->aux_loss > 0)
        AX_TRY(put_fields(out, 1, losses, &f->aux_loss));
    if (f->sequence_loss > 0)
        AX_TRY(put_fields(out, 1, losses + 1, &f->sequence_loss));
    AX_TRY(put_fields(out, 2, keys, (const double[]){b->violation, b->entropy}));
    AX_TRY(ax_buf_puts(out, ", \"moe/max_violation_per_layer\": ["));
    for (int i = 0; i < AX_BALANCE_LAYERS; i++)
        if (!isnan(b->layers[i]))
            AX_TRY(ax_buf_printf(out, "%s%.3g", n++ ? ", " : "", (double)b->layers[i]));
    return ax_buf_puts(out, "]");
}

enum ax_status ax_metrics_put_step(struct ax_buf *out, const struct ax_step_figures *f,
                                   struct ax_utilization u, const char *const *measures) {
    static const char *const keys[] = {"epoch",        "loss",
                                       "grad_norm",    "learning_rate",
                                       "tokens",       "trained_tokens",
                                       "seconds",      "tokens_per_second",
                                       "mfu",          "hfu",
                                       "memory_bytes", "peak_memory_bytes",
                                       "waits"};
    double values[FIGURES + 1] = {[FIGURES] = (double)f->waits};
    put_figures(values, f, u);
    AX_TRY(ax_buf_printf(out, "{\"step\": %lld", (long long)f->step));
    AX_TRY(put_fields(out, (int)(sizeof keys / sizeof *keys), keys, values));
    AX_TRY(put_measures(out, "", measures, f->measures));
    if (f->figures)
        AX_TRY(put_named(out, "", f->figures));
    if (f->experts)
        AX_TRY(put_experts(out, f));
    if (f->skipped)
        AX_TRY(ax_buf_puts(out, ", \"skipped\": true"));
    AX_TRY(put_seconds(out, "phase_seconds", f->n_phases, f->phases));
    if (f->ranks.n_waits > 0)
        AX_TRY(put_ranks(out, &f->ranks));
    return ax_buf_puts(out, "}\n");
}

static enum ax_status metrics_put_csv(struct ax_buf *out, const struct ax_step_figures *f,
                                      struct ax_utilization u) {
    double values[FIGURES + 1] = {[FIGURES] = f->skipped};
    put_figures(values, f, u);
    AX_TRY(ax_buf_printf(out, "%lld", (long long)f->step));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        AX_TRY(put_number(out, ",", values[i], ""));
    return ax_buf_puts(out, "\n");
}

static enum ax_status metrics_put_eval(struct ax_buf *out, int64_t step, double epoch,
                                       const struct ax_eval_result *r,
                                       const char *const *measures) {
    static const char *const keys[] = {
        "epoch",     "eval_loss",   "eval_perplexity",     "eval_accuracy",
        "eval_rows", "eval_tokens", "eval_trained_tokens", "eval_seconds"};
    const double values[] = {epoch,           r->loss,           r->perplexity,      r->accuracy,
                             (double)r->rows, (double)r->tokens, (double)r->trained, r->seconds};
    AX_TRY(ax_buf_printf(out, "{\"step\": %lld", (long long)step));
    if (r->figures.n > 0) {
        AX_TRY(put_fields(out, 1, keys, values));
        AX_TRY(put_named(out, "eval_", &r->figures));
        return ax_buf_printf(out, ", \"eval_seconds\": %.6g}\n", r->seconds);
    }
    AX_TRY(put_fields(out, (int)(sizeof keys / sizeof *keys), keys, values));
    AX_TRY(put_measures(out, "eval_", measures, r->measures));
    return ax_buf_puts(out, "}\n");
}

#define SHOWN_MEASURES 4 /* the first ones */

/* Of completions. */
static enum ax_status put_worth(struct ax_buf *out, bool bar, int64_t step, double epoch,
                                const struct ax_eval_result *r) {
    static const char *const shown[][2] = {{"reward", "reward"},
                                           {"completions/mean_length", "length"},
                                           {"completions/clipped_ratio", "cut"}};
    AX_TRY(bar ? ax_buf_printf(out, "eval at step %lld:", (long long)step)
               : ax_buf_printf(out, "eval: step=%lld epoch=%.4g", (long long)step, epoch));
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        AX_TRY(ax_buf_printf(out, bar ? "%s %s %.4g" : "%s %s=%.4g", bar && i > 0 ? "," : "",
                             shown[i][1], ax_figures_get(&r->figures, shown[i][0])));
    return ax_buf_printf(out, bar ? ", %.1f s" : " seconds=%.1f", r->seconds);
}

/* The same for people: on a terminal with a bar, or as key=value. */
static enum ax_status metrics_put_eval_line(struct ax_buf *out, bool bar, int64_t step,
                                            double epoch, const struct ax_eval_result *r,
                                            const char *const *measures) {
    if (r->figures.n > 0)
        return put_worth(out, bar, step, epoch, r);
    AX_TRY(bar ? ax_buf_printf(out, "eval at step %lld: loss %.4g", (long long)step, r->loss)
               : ax_buf_printf(out, "eval: step=%lld epoch=%.4g loss=%.5g", (long long)step, epoch,
                               r->loss));
    for (int i = 0; measures && measures[i] && i < SHOWN_MEASURES; i++)
        AX_TRY(ax_buf_printf(out, bar ? ", %s %.4g" : " %s=%.4g", measures[i], r->measures[i]));
    if (!measures && bar)
        AX_TRY(ax_buf_printf(out, ", accuracy %.1f %%", 100 * r->accuracy));
    else if (!measures)
        AX_TRY(ax_buf_printf(out, " perplexity=%.4g accuracy=%.4f", r->perplexity, r->accuracy));
    return ax_buf_printf(out, bar ? ", %.1f s" : " seconds=%.1f", r->seconds);
}

static enum ax_status metrics_put_event(struct ax_buf *out, int64_t step, const char *event,
                                        const char *text) {
    json_t *s = json_string(text); /* NULL if not UTF-8, e.g. a truncated name */
    char *quoted = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
    json_decref(s);
    const enum ax_status st =
        ax_buf_printf(out, "{\"step\": %lld, \"event\": \"%s\", \"text\": %s}\n", (long long)step,
                      event, quoted ? quoted : "null");
    ax_free(quoted);
    return st;
}

/* ---- samples as text ---- */

#define PROMPT_BYTES 2000 /* most bytes stored */
#define PROMPT_SHOWN 60   /* most bytes shown */
#define ANSWER_SHOWN 100

/* The last `most` bytes, starting with a complete character. */
static const char *text_tail(const struct ax_buf *text, size_t most, size_t *n) {
    size_t from = text->len > most ? text->len - most : 0;
    while (from > 0 && from < text->len && ((unsigned char)text->data[from] & 0xc0) == 0x80)
        from++;
    *n = text->len - from;
    return text->len > 0 ? text->data + from : "";
}

/* The length of the first `most` bytes without an incomplete character. */
static size_t text_head(const struct ax_buf *text, size_t most) {
    size_t n = text->len < most ? text->len : most;
    while (n > 0 && n < text->len && ((unsigned char)text->data[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static enum ax_status put_string(struct ax_buf *out, const char *key, const char *text, size_t n) {
    json_t *s = json_stringn(text, n); /* NULL if not UTF-8 */
    char *quoted = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
    json_decref(s);
    const enum ax_status st = ax_buf_printf(out, ", \"%s\": %s", key, quoted ? quoted : "null");
    ax_free(quoted);
    return st;
}

enum ax_status ax_metrics_put_sample(struct ax_buf *out, int64_t step, const struct ax_buf *prompt,
                                     const struct ax_buf *answer) {
    size_t n;
    const char *end = text_tail(prompt, PROMPT_BYTES, &n);
    AX_TRY(ax_buf_printf(out, "{\"step\": %lld, \"event\": \"sample\"", (long long)step));
    AX_TRY(put_string(out, "prompt", end, n));
    AX_TRY(put_string(out, "text", answer->len > 0 ? answer->data : "", answer->len));
    return ax_buf_puts(out, "}\n");
}

/* Replaces control characters, so that nothing moves the cursor. */
static enum ax_status put_plain(struct ax_buf *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        AX_TRY(ax_buf_append(out, c < ' ' || c == 0x7f ? " " : text + i, 1));
    }
    return AX_OK;
}

enum ax_status ax_metrics_put_sample_line(struct ax_buf *out, int64_t step, int index,
                                          const struct ax_buf *prompt,
                                          const struct ax_buf *answer) {
    size_t n;
    const char *end = text_tail(prompt, PROMPT_SHOWN, &n);
    const size_t shown = text_head(answer, ANSWER_SHOWN);
    AX_TRY(ax_buf_printf(out, "sample %d at step %lld: %s", index, (long long)step,
                         n < prompt->len ? "\xe2\x80\xa6" : ""));
    AX_TRY(put_plain(out, end, n));
    AX_TRY(ax_buf_puts(out, " \xe2\x86\x92 "));
    AX_TRY(put_plain(out, answer->data, shown));
    return shown < answer->len ? ax_buf_puts(out, "\xe2\x80\xa6") : AX_OK;
}

/* ---- how much of an older file is complete ---- */

/* Reads a step; false if there is no number, or it has more digits than a step can have. */
static bool read_step(const unsigned char *p, size_t n, int64_t *step) {
    *step = 0;
    size_t i = 0;
    for (; i < n && i < 18 && p[i] >= '0' && p[i] <= '9'; i++)
        *step = *step * 10 + (p[i] - '0');
    return i > 0 && i < n && (p[i] < '0' || p[i] > '9');
}

/* The end of the complete lines from `from` on that are `prefix` followed by a step up to
 * resume_step. */
static uint64_t whole_lines(const unsigned char *data, size_t n, size_t from, const char *prefix,
                            int64_t resume_step) {
    const size_t lead = strlen(prefix);
    size_t end = from;
    while (end < n) {
        const unsigned char *line = data + end, *newline = memchr(line, '\n', n - end);
        int64_t step;
        if (!newline)
            break;
        const size_t len = (size_t)(newline - line);
        if (len < lead || memcmp(line, prefix, lead) != 0 ||
            !read_step(line + lead, len - lead, &step) || step > resume_step)
            break;
        end += len + 1;
    }
    return end;
}

uint64_t ax_metrics_whole_jsonl(const unsigned char *data, size_t n, int64_t resume_step) {
    return whole_lines(data, n, 0, "{\"step\": ", resume_step);
}

uint64_t ax_metrics_whole_csv(const unsigned char *data, size_t n, int64_t resume_step) {
    const size_t header = strlen(AX_METRICS_CSV_HEADER);
    if (n < header || memcmp(data, AX_METRICS_CSV_HEADER, header) != 0)
        return 0;
    return whole_lines(data, n, header, "", resume_step);
}

#define REDRAW_SECONDS 0.1 /* minimum seconds between redraws of the bar */
#define MEMORY_STEPS   20  /* displayed figures are means over about this many steps */

struct ax_metrics {
    struct ax_metrics_options o;
    struct ax_metrics_file jsonl, csv, completions;
    struct ax_tfevents events;
    bool bar;   /* a terminal, on which a line can be redrawn */
    bool drawn; /* the terminal's last line is a bar */
    double drawn_at;
    /* displayed means: exponential, over the last steps */
    int64_t seen;
    double seconds, tokens, computed; /* per step */
    struct ax_progress_view view;
    struct ax_metrics_window window;
};

static const char *const event_names[AX_EVENT_COUNT] = {
    [AX_EVENT_STARTED] = "started", [AX_EVENT_PEAK] = "peak",
    [AX_EVENT_RESUMED] = "resumed", [AX_EVENT_SAVED] = "saved",
    [AX_EVENT_WARNING] = "warning", [AX_EVENT_FINISHED] = "finished",
    [AX_EVENT_STOPPED] = "stopped",
};

/* ---- open and close ---- */

static enum ax_status open_file(struct ax_metrics_file *f, const char *folder, const char *name,
                                uint64_t (*whole)(const unsigned char *, size_t, int64_t),
                                int64_t resume_step) {
    char *path;
    AX_TRY(ax_path_join(&path, folder, name));
    const enum ax_status st =
        ax_metrics_file_open(f, path, resume_step > 0 ? whole : NULL, resume_step);
    ax_free(path);
    return st;
}

static enum ax_status open_files(struct ax_metrics *m, const char *folder) {
    char *runs;
    AX_TRY(open_file(&m->jsonl, folder, "metrics.jsonl", ax_metrics_whole_jsonl, m->o.resume_step));
    AX_TRY(open_file(&m->csv, folder, "metrics.csv", ax_metrics_whole_csv, m->o.resume_step));
    if (m->csv.end == 0)
        ax_metrics_file_append(&m->csv, AX_METRICS_CSV_HEADER, strlen(AX_METRICS_CSV_HEADER));
    if (m->o.completions)
        AX_TRY(open_file(&m->completions, folder, "completions.jsonl", ax_metrics_whole_jsonl,
                         m->o.resume_step));
    if (!m->o.tensorboard)
        return AX_OK;
    AX_TRY(ax_path_join(&runs, folder, "runs"));
    const enum ax_status st = ax_tfevents_open(&m->events, runs, m->o.resume_step);
    ax_free(runs);
    return st;
}

enum ax_status ax_metrics_open(struct ax_metrics **out, const char *folder,
                               const struct ax_metrics_options *o) {
    struct ax_metrics *m;
    AX_ASSERT(o->logging_steps >= 1 && o->devices >= 1);
    AX_TRY(ax_alloc(&m, 1, sizeof *m));
    m->o = *o;
    m->window = o->window;
    m->bar = o->progress && ax_term_has_cursor(STDERR_FILENO);
    m->view = (struct ax_progress_view){.step = o->resume_step,
                                        .total_steps = o->total_steps,
                                        .devices = o->devices,
                                        .mfu = -1,
                                        .eta = -1};
    const enum ax_status st = open_files(m, folder);
    if (st != AX_OK) {
        ax_metrics_close(m);
        return st;
    }
    if (o->sink.begin)
        o->sink.begin(o->sink.ctx, o->resume_step);
    *out = m;
    return AX_OK;
}

bool ax_metrics_is_finished(const char *folder, int64_t step) {
    char *path, buf[8192]; /* an event: a path and less than 100 bytes */
    if (ax_path_join(&path, folder, "metrics.jsonl") != AX_OK) {
        ax_error_clear();
        return false;
    }
    const char *line = ax_metrics_last_line(path, buf, sizeof buf);
    json_t *record = line ? json_loads(line, 0, NULL) : NULL;
    const char *event = json_string_value(json_object_get(record, "event"));
    const bool finished = event && strcmp(event, event_names[AX_EVENT_FINISHED]) == 0 &&
                          json_integer_value(json_object_get(record, "step")) == step;
    json_decref(record);
    ax_free(path);
    ax_error_clear();
    return finished;
}

void ax_metrics_set_peak(struct ax_metrics *m, double peak_flops) {
    if (m)
        m->o.peak_flops = peak_flops;
}

struct ax_metrics_window ax_metrics_window(const struct ax_metrics *m) {
    return m ? m->window : (struct ax_metrics_window){0};
}

/* ---- the terminal ---- */

static void to_terminal(const struct ax_buf *text) {
    /* errors (EPIPE, a full disk) are ignored: the run does not depend on this output */
    for (size_t done = 0; done < text->len;) {
        const ssize_t w = write(STDERR_FILENO, text->data + done, text->len - done);
        if (w <= 0)
            return;
        done += (size_t)w;
    }
}

static void draw(struct ax_metrics *m, bool now) {
    struct ax_buf line = {0};
    const double time = ax_clock_now();
    if (!m->bar || (!now && m->drawn && time - m->drawn_at < REDRAW_SECONDS))
        return;
    const int width = ax_term_width(STDERR_FILENO) - 1; /* writing to the last column would wrap */
    if (ax_buf_puts(&line, "\r") == AX_OK &&
        ax_progress_bar(&line, &m->view, width, ax_term_use_color(STDERR_FILENO, m->o.color)) ==
            AX_OK &&
        ax_buf_puts(&line, "\x1b[K") == AX_OK)
        to_terminal(&line);
    ax_buf_free(&line);
    m->drawn = true;
    m->drawn_at = time;
}

/* Prints a permanent line; the bar, if any, moves below it. */
static void say(struct ax_metrics *m, const char *text) {
    struct ax_buf line = {0};
    if (!m->o.progress)
        return;
    if (ax_buf_printf(&line, "%s%s\n", m->drawn ? "\r\x1b[K" : "", text) == AX_OK)
        to_terminal(&line);
    ax_buf_free(&line);
    if (m->drawn)
        draw(m, true);
}

void ax_metrics_close(struct ax_metrics *m) {
    if (!m)
        return;
    if (m->drawn) {
        struct ax_buf end = {0};
        draw(m, true);
        if (ax_buf_puts(&end, "\n") == AX_OK)
            to_terminal(&end);
        ax_buf_free(&end);
    }
    ax_metrics_file_close(&m->jsonl);
    ax_metrics_file_close(&m->completions);
    ax_metrics_file_close(&m->csv);
    ax_tfevents_close(&m->events);
    ax_free(m);
}

/* ---- steps ---- */

/* A fraction of the peak; < 0: unknown. */
static double of_peak(const struct ax_metrics *m, double flops, double seconds) {
    const double peak = m->o.peak_flops;
    if (flops <= 0 || peak <= 0)
        return -1;
    return seconds > 0 ? flops / seconds / peak : 0;
}

static struct ax_utilization utilization(const struct ax_metrics *m,
                                         const struct ax_step_figures *f) {
    const double needed = m->o.flops_per_token * (double)f->computed_tokens;
    return (struct ax_utilization){of_peak(m, needed, f->seconds),
                                   of_peak(m, f->flops * m->o.devices, f->seconds)};
}

/* A step that computes faster than the products that were measured: something disturbed those. */
static void raise_peak(struct ax_metrics *m, const struct ax_step_figures *f) {
    char rate[32];
    if (of_peak(m, f->flops * m->o.devices, f->seconds) <= 1)
        return;
    m->o.peak_flops = f->flops * m->o.devices / f->seconds;
    ax_metrics_event(m, AX_EVENT_PEAK, f->step, "%sFLOP/s, in a step: more than was measured",
                     ax_format_count(rate, sizeof rate, m->o.peak_flops));
}

static void blend(double *mean, double value, double share) {
    *mean += share * (value - *mean);
}

/* The first step is slower than the others (cold caches), so the second replaces it. */
static void update_view(struct ax_metrics *m, const struct ax_step_figures *f) {
    struct ax_progress_view *v = &m->view;
    m->seen++;
    const int64_t n = m->seen <= 2 ? 1 : m->seen - 1;
    const double share = 1 / (double)(n < MEMORY_STEPS ? n : MEMORY_STEPS);
    blend(&m->seconds, f->seconds, share);
    blend(&m->tokens, (double)f->tokens, share);
    blend(&m->computed, (double)f->computed_tokens, share);
    v->step = f->step;
    v->epoch = f->epoch;
    v->loss = f->loss;
    v->grad_norm = f->grad_norm;
    v->learning_rate = f->learning_rate;
    v->tokens_per_second = m->seconds > 0 ? m->tokens / m->seconds : 0;
    v->mfu = of_peak(m, m->o.flops_per_token * m->computed, m->seconds);
    v->memory = (double)f->memory;
    v->eta = v->total_steps > f->step ? m->seconds * (double)(v->total_steps - f->step) : -1;
    v->doing = NULL;
}

static void write_figures(struct ax_metrics *m, int64_t step, const char *of,
                          const struct ax_figures *f) {
    const char *names[AX_FIGURES_MAX];
    for (int i = 0; i < f->n; i++)
        names[i] = f->names[i];
    ax_tfevents_write_named(&m->events, step, of, f->n, names, f->values);
}

static void write_experts(struct ax_metrics *m, int64_t step, const struct ax_expert_balance *b) {
    static const char *const names[] = {"moe/max_violation", "moe/entropy"};
    const double values[] = {b->violation, b->entropy};
    ax_tfevents_write_named(&m->events, step, "train", 2, names, values);
}

/* Every logging_steps: the loss is the mean since the last entry, as in Hugging Face's trainer; the
 * other figures are this step's. */
static void write_entry(struct ax_metrics *m, const struct ax_step_figures *f) {
    const double rate = f->seconds > 0 ? (double)f->tokens / f->seconds : 0;
    const double loss = m->window.steps > 0 ? m->window.loss / (double)m->window.steps : f->loss;
    const struct ax_utilization u = utilization(m, f);
    const struct ax_tf_scalar s[] = {
        {"train/loss", loss},
        {"train/grad_norm", f->grad_norm},
        {"train/learning_rate", f->learning_rate},
        {"train/epoch", f->epoch},
        {"train/tokens_per_second", rate},
        {"train/memory_gib", (double)f->memory / (double)(1 << 30)},
        {"train/mfu", u.model},
        {"train/hfu", u.hardware},
    };
    const int n = (int)(sizeof s / sizeof *s);
    ax_tfevents_write(&m->events, f->step, u.model < 0 ? n - 2 : u.hardware < 0 ? n - 1 : n, s);
    ax_tfevents_write_named(&m->events, f->step, "train", AX_MEASURES, m->o.measures, f->measures);
    if (f->figures)
        write_figures(m, f->step, "train", f->figures);
    if (f->experts)
        write_experts(m, f->step, f->experts);
    m->window = (struct ax_metrics_window){0};
    if (m->bar || !m->o.progress)
        return;
    struct ax_buf line = {0};
    m->view.loss = loss;
    if (ax_progress_line(&line, &m->view) == AX_OK)
        to_terminal(&line);
    ax_buf_free(&line);
}

static void append(const struct ax_metrics_sink *sink, struct ax_metrics_file *f, enum ax_status st,
                   struct ax_buf *record) {
    if (st == AX_OK) {
        ax_metrics_file_append(f, record->data, record->len);
        if (sink && sink->begin)
            sink->record(sink->ctx, record->data, record->len);
    } else {
        ax_log_warn("metrics: %s", ax_error_text());
        ax_error_clear();
    }
    ax_buf_free(record);
}

void ax_metrics_step(struct ax_metrics *m, const struct ax_step_figures *f) {
    if (!m)
        return;
    AX_ASSERT(f->n_phases <= AX_METRICS_MAX_PHASES);
    raise_peak(m, f);
    struct ax_buf json = {0}, csv = {0};
    const struct ax_utilization u = utilization(m, f);
    append(&m->o.sink, &m->jsonl, ax_metrics_put_step(&json, f, u, m->o.measures), &json);
    append(NULL, &m->csv, metrics_put_csv(&csv, f, u), &csv);
    update_view(m, f);
    if (isfinite(f->loss)) {
        m->window.loss += f->loss;
        m->window.steps++;
    }
    if (f->step % m->o.logging_steps == 0 || f->step == m->o.total_steps)
        write_entry(m, f);
    draw(m, f->step == m->o.total_steps);
}

/* ---- evaluations and events ---- */

void ax_metrics_eval(struct ax_metrics *m, int64_t step, double epoch,
                     const struct ax_eval_result *r) {
    if (!m)
        return;
    struct ax_buf json = {0}, line = {0};
    append(&m->o.sink, &m->jsonl, metrics_put_eval(&json, step, epoch, r, m->o.measures), &json);
    const double seconds = r->seconds > 0 ? r->seconds : 1e-9;
    const struct ax_tf_scalar s[] = {
        {"eval/loss", r->loss},
        {"eval/perplexity", r->perplexity},
        {"eval/mean_token_accuracy", r->accuracy},
        {"eval/runtime", r->seconds},
        {"eval/samples_per_second", (double)r->documents / seconds},
        {"train/epoch", epoch},
    };
    if (r->figures.n == 0) {
        ax_tfevents_write(&m->events, step, (int)(sizeof s / sizeof *s), s);
        ax_tfevents_write_named(&m->events, step, "eval", AX_MEASURES, m->o.measures, r->measures);
    }
    write_figures(m, step, "eval", &r->figures);
    m->view.doing = NULL;
    if (metrics_put_eval_line(&line, m->bar, step, epoch, r, m->o.measures) == AX_OK)
        say(m, line.data);
    ax_buf_free(&line);
}

void ax_metrics_completion(struct ax_metrics *m, const struct ax_buf *line) {
    if (m)
        ax_metrics_file_append(&m->completions, line->data, line->len);
}

void ax_metrics_sample(struct ax_metrics *m, int64_t step, int index, const struct ax_buf *prompt,
                       const struct ax_buf *answer) {
    struct ax_buf json = {0}, line = {0};
    if (!m)
        return;
    append(&m->o.sink, &m->jsonl, ax_metrics_put_sample(&json, step, prompt, answer), &json);
    if (ax_metrics_put_sample_line(&line, step, index, prompt, answer) == AX_OK)
        say(m, line.data);
    ax_buf_free(&line);
}

void ax_metrics_show(struct ax_metrics *m, int64_t step, int index, const struct ax_buf *prompt,
                     const struct ax_buf *answer, const struct ax_buf *worth) {
    struct ax_buf line = {0};
    if (m && ax_metrics_put_sample_line(&line, step, index, prompt, answer) == AX_OK &&
        ax_buf_printf(&line, " (%s)", worth->data) == AX_OK)
        say(m, line.data);
    ax_buf_free(&line);
}

void ax_metrics_event(struct ax_metrics *m, enum ax_metrics_event event, int64_t step,
                      const char *fmt, ...) {
    char text[1024], line[1088];
    struct ax_buf json = {0};
    if (!m)
        return;
    AX_ASSERT(event < AX_EVENT_COUNT);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    append(&m->o.sink, &m->jsonl, metrics_put_event(&json, step, event_names[event], text), &json);
    (void)snprintf(line, sizeof line, "%s: %s", event_names[event], text);
    say(m, line);
}

void ax_metrics_doing(struct ax_metrics *m, const char *what, int64_t done, int64_t total) {
    if (!m)
        return;
    m->view.doing = what;
    m->view.done = done;
    m->view.of = total;
    draw(m, false);
}
