/* Turns a step into a JSON object, a CSV line, TensorBoard scalars and progress for people. */
#include "optim/metrics/metrics.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/fit.h"
#include "base/log.h"
#include "base/mem_guard.h"
#include "optim/metrics/metrics_csv.h"
#include "optim/metrics/metrics_file.h"
#include "optim/metrics/metrics_text.h"
#include "optim/metrics/plausible.h"
#include "optim/metrics/progress.h"
#include "optim/metrics/tfevents.h"

#define REDRAW_SECONDS 0.1 /* minimum seconds between redraws of the bar */
#define MEMORY_STEPS   20  /* displayed figures are means over about this many steps */

struct ax_metrics {
    struct ax_metrics_options o;
    struct ax_metrics_file jsonl, completions;
    struct ax_metrics_csv csv;
    struct ax_tfevents events;
    bool bar;   /* a terminal, on which a line can be redrawn */
    bool drawn; /* the terminal's last line is a bar */
    double drawn_at;
    /* displayed means: exponential, over the last steps */
    int64_t seen;
    double seconds, tokens, computed; /* per step */
    struct ax_progress_view view;
    double doing_since, doing_said; /* when the activity began, and when a line named it last */
    int64_t doing_first;            /* what was done of it then */
    struct ax_metrics_window window;
};

static const char *const event_names[AX_EVENT_COUNT] = {
    [AX_EVENT_STARTED] = "started",   [AX_EVENT_PEAK] = "peak",
    [AX_EVENT_RESUMED] = "resumed",   [AX_EVENT_SAVED] = "saved",
    [AX_EVENT_WARNING] = "warning",   [AX_EVENT_BEST] = "best",
    [AX_EVENT_FINISHED] = "finished", [AX_EVENT_STOPPED] = "stopped",
};

/* ---- records ---- */

static void warn_of(enum ax_status st) {
    if (st == AX_OK)
        return;
    ax_log_warn("metrics: %s", ax_error_text());
    ax_error_clear();
}

static void append(const struct ax_metrics_sink *sink, struct ax_metrics_file *f, enum ax_status st,
                   struct ax_buf *record) {
    warn_of(st);
    if (st == AX_OK) {
        ax_metrics_file_append(f, record->data, record->len);
        if (sink->begin)
            sink->record(sink->ctx, record->data, record->len);
    }
    ax_buf_free(record);
}

/* Asked for by tests. */
static void expect(const char *wrong, int64_t step) {
    if (wrong)
        ax_log_error("metrics: step %lld: %s", (long long)step, wrong);
    AX_ASSERT(!wrong);
}

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
    AX_TRY(open_file(&m->jsonl, folder, "metrics.jsonl",
                     m->o.evaluates ? ax_metrics_whole_before_eval : ax_metrics_whole_jsonl,
                     m->o.resume_step));
    AX_TRY(open_file(&m->csv.file, folder, "metrics.csv", ax_metrics_whole_csv, m->o.resume_step));
    AX_TRY(ax_metrics_csv_begin(&m->csv));
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

static void tell_saved(struct ax_metrics *m, const char *folder) {
    static const struct ax_metrics_sink nobody;
    const struct ax_metrics_saved *saved = &m->o.saved;
    struct ax_buf json = {0};
    if (!saved->path || ax_metrics_has_saved(folder, saved->step))
        return;
    append(saved->told ? &nobody : &m->o.sink, &m->jsonl,
           ax_metrics_put_event(&json, saved->step, event_names[AX_EVENT_SAVED], saved->path),
           &json);
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
        struct ax_error_record first;
        ax_error_save(&first, st);
        ax_metrics_close(m);
        return ax_error_restore(&first);
    }
    if (o->sink.begin)
        o->sink.begin(o->sink.ctx, o->resume_step);
    tell_saved(m, folder);
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

/* True if metrics.jsonl has a record of the step with this part. */
static bool has_record(const char *folder, int64_t step, const char *part) {
    struct ax_mapping m = {0};
    char *path, start[64];
    bool found = false;
    if (ax_path_join(&path, folder, "metrics.jsonl") == AX_OK && ax_map_file(&m, path) == AX_OK) {
        /* evaluations and events of the step begin alike */
        const int n = snprintf(start, sizeof start, "{\"step\": %lld, ", (long long)step);
        const char *at = (const char *)m.data, *end = at + m.len, *newline;
        for (; !found && (newline = memchr(at, '\n', (size_t)(end - at))) != NULL; at = newline + 1)
            found = newline - at > n && memcmp(at, start, (size_t)n) == 0 &&
                    memmem(at, (size_t)(newline - at), part, strlen(part)) != NULL;
        ax_unmap_file(&m);
    }
    ax_free(path);
    ax_error_clear();
    return found;
}

bool ax_metrics_has_step(const char *folder, int64_t step) {
    return has_record(folder, step, "\"learning_rate\": ");
}

bool ax_metrics_has_saved(const char *folder, int64_t step) {
    return has_record(folder, step, "\"event\": \"saved\"");
}

void ax_metrics_set_peak(struct ax_metrics *m, double peak_flops) {
    if (m)
        m->o.peak_flops = peak_flops;
}

struct ax_metrics_window ax_metrics_window_after(struct ax_metrics_window w, double loss,
                                                 bool logged) {
    if (logged)
        return (struct ax_metrics_window){0};
    if (!isfinite(loss))
        return w;
    return (struct ax_metrics_window){.steps = w.steps + 1, .loss = w.loss + loss};
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
    if (ax_buf_puts(&line, m->drawn ? "\r\x1b[K" : "") == AX_OK &&
        ax_term_safe(&line, text, strlen(text)) == AX_OK && ax_buf_puts(&line, "\n") == AX_OK)
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
    ax_metrics_csv_close(&m->csv);
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
    ax_progress_watch(v, f, m->o.measures);
}

static void write_figures(struct ax_metrics *m, int64_t step, const char *of,
                          const struct ax_figures *f) {
    const char *names[AX_FIGURES_MAX];
    for (int i = 0; i < f->n; i++)
        names[i] = f->names[i];
    ax_tfevents_write_named(&m->events, step, of, f->n, names, f->values);
}

/* What only some models have: as in metrics.jsonl, a loss of 0 is none. */
static void write_parts(struct ax_metrics *m, const struct ax_step_figures *f) {
    static const char *const names[] = {"moe/max_violation", "moe/entropy", "moe/aux_loss",
                                        "moe/seq_aux_loss",  "mtp_loss",    "indexer_kl"};
    const struct ax_expert_balance *b = f->experts;
    const double losses[] = {b ? f->aux_loss : 0, b ? f->sequence_loss : 0, f->mtp_loss,
                             f->index_loss};
    double values[6] = {b ? b->violation : NAN, b ? b->entropy : NAN};
    for (size_t i = 0; i < 4; i++)
        values[2 + i] = losses[i] > 0 ? losses[i] : NAN;
    ax_tfevents_write_named(&m->events, f->step, "train", 6, names, values);
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
    write_parts(m, f);
    m->window = (struct ax_metrics_window){0};
    if (m->bar || !m->o.progress)
        return;
    struct ax_buf line = {0};
    m->view.loss = loss;
    if (ax_progress_line(&line, &m->view) == AX_OK)
        to_terminal(&line);
    ax_buf_free(&line);
}

void ax_metrics_step(struct ax_metrics *m, const struct ax_step_figures *f) {
    if (!m)
        return;
    AX_ASSERT(f->n_phases <= AX_METRICS_MAX_PHASES);
    if (ax_mem_is_guarded()) {
        expect(ax_figures_of_step_wrong(f, m->o.measures), f->step);
        const int64_t after = m->view.step + 1; /* or the one that a run resumed from, unrecorded */
        expect(f->step == after || (m->seen == 0 && f->step == m->o.resume_step)
                   ? NULL
                   : "not the step after the last one",
               f->step);
    }
    raise_peak(m, f);
    struct ax_buf json = {0};
    const struct ax_utilization u = utilization(m, f);
    append(&m->o.sink, &m->jsonl, ax_metrics_put_step(&json, f, u, m->o.measures), &json);
    warn_of(ax_metrics_csv_add(&m->csv, f, u, m->o.measures));
    update_view(m, f);
    m->window = ax_metrics_window_after(m->window, f->loss, false);
    if (ax_metrics_logs(f->step, m->o.logging_steps, m->o.total_steps))
        write_entry(m, f);
    draw(m, f->step == m->o.total_steps);
}

/* ---- evaluations and events ---- */

void ax_metrics_eval(struct ax_metrics *m, int64_t step, double epoch,
                     const struct ax_eval_result *r) {
    if (!m)
        return;
    if (ax_mem_is_guarded())
        expect(ax_figures_of_eval_wrong(r, m->o.measures), step);
    struct ax_buf json = {0}, line = {0};
    append(&m->o.sink, &m->jsonl, ax_metrics_put_eval(&json, step, epoch, r, m->o.measures), &json);
    const double seconds = r->seconds > 0 ? r->seconds : 1e-9;
    const struct ax_tf_scalar s[] = {
        {"eval/loss", r->loss},
        {"eval/runtime", r->seconds},
        {"eval/samples_per_second", (double)r->documents / seconds},
        {"train/epoch", epoch},
        {"eval/mean_token_accuracy", r->accuracy},
        {"eval/perplexity", r->perplexity},
    };
    const int n = (int)(sizeof s / sizeof *s); /* the last two are of tokens */
    if (!ax_eval_is_of_rewards(r)) {
        ax_tfevents_write(&m->events, step, isnan(r->perplexity) ? n - 2 : n, s);
        ax_tfevents_write_named(&m->events, step, "eval", AX_MEASURES, m->o.measures, r->measures);
    }
    write_figures(m, step, "eval", &r->figures);
    m->view.doing = NULL;
    if (ax_metrics_put_eval_line(&line, m->bar, step, epoch, r, m->o.measures) == AX_OK)
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
    char text[AX_LOG_LINE], line[sizeof text + 64];
    struct ax_buf json = {0};
    if (!m)
        return;
    AX_ASSERT(event < AX_EVENT_COUNT);
    va_list ap;
    va_start(ap, fmt);
    ax_vfit(text, sizeof text, fmt, ap);
    va_end(ap);
    append(&m->o.sink, &m->jsonl, ax_metrics_put_event(&json, step, event_names[event], text),
           &json);
    (void)snprintf(line, sizeof line, "%s: %s", event_names[event], text);
    say(m, line);
}

/* "reference: done=120/3000 eta_s=95" */
static void say_doing(struct ax_metrics *m) {
    const struct ax_progress_view *v = &m->view;
    char of[32] = "", eta[32] = "", line[160];
    if (v->of > 0)
        (void)snprintf(of, sizeof of, "/%lld", (long long)v->of);
    if (v->doing_eta > 0)
        (void)snprintf(eta, sizeof eta, " eta_s=%.0f", v->doing_eta);
    (void)snprintf(line, sizeof line, "%s: done=%lld%s%s", v->doing, (long long)v->done, of, eta);
    say(m, line);
}

void ax_metrics_doing(struct ax_metrics *m, const char *what, int64_t done, int64_t total) {
    if (!m)
        return;
    struct ax_progress_view *v = &m->view;
    const double now = ax_clock_now();
    if (!v->doing || strcmp(v->doing, what) != 0 || done < v->done) {
        m->doing_since = m->doing_said = now;
        m->doing_first = done;
    }
    v->doing = what;
    v->done = done;
    v->of = total;
    const double steps = (double)(done - m->doing_first), left = (double)(total - done);
    v->doing_eta = steps > 0 && left > 0 ? (now - m->doing_since) / steps * left : 0;
    draw(m, false);
    const double every = m->o.doing_seconds > 0 ? m->o.doing_seconds : AX_METRICS_DOING_SECONDS;
    if (!m->bar && m->o.progress && now - m->doing_said >= every) {
        m->doing_said = now;
        say_doing(m);
    }
}
