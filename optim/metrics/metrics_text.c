#include "optim/metrics/metrics_text.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* ---- writing ---- */

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

static double rate(int64_t n, double seconds) {
    return seconds > 0 ? (double)n / seconds : 0;
}

static double known(double fraction) {
    return fraction >= 0 ? fraction : NAN;
}

void ax_metrics_figures(double *out, const struct ax_step_figures *f, struct ax_utilization u) {
    const double figures[AX_METRICS_FIGURES] = {f->epoch,          f->loss,
                                                f->grad_norm,      f->learning_rate,
                                                (double)f->tokens, (double)f->trained_tokens,
                                                f->seconds,        rate(f->tokens, f->seconds),
                                                known(u.model),    known(u.hardware),
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
    double values[AX_METRICS_FIGURES + 1] = {[AX_METRICS_FIGURES] = (double)f->waits};
    ax_metrics_figures(values, f, u);
    AX_TRY(ax_buf_printf(out, "{\"step\": %lld", (long long)f->step));
    AX_TRY(put_fields(out, (int)(sizeof keys / sizeof *keys), keys, values));
    AX_TRY(put_measures(out, "", measures, f->measures));
    if (f->figures)
        AX_TRY(put_named(out, "", f->figures));
    if (f->index_loss > 0)
        AX_TRY(put_fields(out, 1, (const char *const[]){"indexer_kl"}, &f->index_loss));
    if (f->mtp_loss > 0)
        AX_TRY(put_fields(out, 1, (const char *const[]){"mtp_loss"}, &f->mtp_loss));
    if (f->experts)
        AX_TRY(put_experts(out, f));
    if (f->skipped)
        AX_TRY(ax_buf_puts(out, ", \"skipped\": true"));
    AX_TRY(put_seconds(out, "phase_seconds", f->n_phases, f->phases));
    if (f->ranks.n_waits > 0)
        AX_TRY(put_ranks(out, &f->ranks));
    return ax_buf_puts(out, "}\n");
}

enum ax_status ax_metrics_put_eval(struct ax_buf *out, int64_t step, double epoch,
                                   const struct ax_eval_result *r, const char *const *measures) {
    static const char *const keys[] = {
        "epoch",     "eval_loss",   "eval_perplexity",     "eval_accuracy",
        "eval_rows", "eval_tokens", "eval_trained_tokens", "eval_seconds"};
    const double values[] = {epoch,           r->loss,           r->perplexity,      r->accuracy,
                             (double)r->rows, (double)r->tokens, (double)r->trained, r->seconds};
    AX_TRY(ax_buf_printf(out, "{\"step\": %lld", (long long)step));
    if (ax_eval_is_of_rewards(r)) {
        AX_TRY(put_fields(out, 1, keys, values));
        AX_TRY(put_named(out, "eval_", &r->figures));
        return ax_buf_printf(out, ", \"eval_seconds\": %.6g}\n", r->seconds);
    }
    AX_TRY(put_fields(out, (int)(sizeof keys / sizeof *keys), keys, values));
    AX_TRY(put_measures(out, "eval_", measures, r->measures));
    AX_TRY(put_named(out, "eval_", &r->figures));
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

enum ax_status ax_metrics_put_eval_line(struct ax_buf *out, bool bar, int64_t step, double epoch,
                                        const struct ax_eval_result *r,
                                        const char *const *measures) {
    if (ax_eval_is_of_rewards(r))
        return put_worth(out, bar, step, epoch, r);
    AX_TRY(bar ? ax_buf_printf(out, "eval at step %lld: loss %.4g", (long long)step, r->loss)
               : ax_buf_printf(out, "eval: step=%lld epoch=%.4g loss=%.5g", (long long)step, epoch,
                               r->loss));
    for (int i = 0; measures && measures[i] && i < SHOWN_MEASURES; i++)
        if (!isnan(r->measures[i]))
            AX_TRY(ax_buf_printf(out, bar ? ", %s %.4g" : " %s=%.4g", measures[i], r->measures[i]));
    if (!measures && bar)
        AX_TRY(ax_buf_printf(out, ", accuracy %.1f %%", 100 * r->accuracy));
    else if (!measures)
        AX_TRY(ax_buf_printf(out, " perplexity=%.4g accuracy=%.4f", r->perplexity, r->accuracy));
    return ax_buf_printf(out, bar ? ", %.1f s" : " seconds=%.1f", r->seconds);
}

enum ax_status ax_metrics_put_event(struct ax_buf *out, int64_t step, const char *event,
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

/* ---- names ---- */

/* Names of records, with and without "eval_", and of what trackers and TensorBoard get; figures that come behind those of
 * completions. */
bool ax_metrics_is_own(const char *name) {
    static const char *const own[] = {"step",
                                      "event",
                                      "text",
                                      "prompt",
                                      "epoch",
                                      "loss",
                                      "grad_norm",
                                      "learning_rate",
                                      "tokens",
                                      "trained_tokens",
                                      "seconds",
                                      "tokens_per_second",
                                      "mfu",
                                      "hfu",
                                      "memory_bytes",
                                      "peak_memory_bytes",
                                      "memory_gib",
                                      "waits",
                                      "skipped",
                                      "phase_seconds",
                                      "ranks",
                                      "rows",
                                      "perplexity",
                                      "accuracy",
                                      "runtime",
                                      "samples_per_second",
                                      "global_step",
                                      "mean_token_accuracy",
                                      "mtp_loss",
                                      "indexer_kl",
                                      "staleness",
                                      "sampling_s",
                                      "rollout_wait_s",
                                      "weight_sync_s",
                                      "backpressure_s",
                                      "time_saved",
                                      "val/grad_norm",
                                      "loss/value_avg",
                                      "val/clipfrac_avg"};
    static const char eval[] = "eval_";
    const char *plain = strncmp(name, eval, strlen(eval)) == 0 ? name + strlen(eval) : name;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i], plain) == 0)
            return true;
    return strncmp(plain, "moe/", 4) == 0;
}

/* ---- samples ---- */

#define PROMPT_BYTES 2000 /* most bytes stored */
#define PROMPT_SHOWN 60   /* most bytes shown */
#define ANSWER_SHOWN 100

/* The last `most` bytes, starting with a complete character. */
static const char *tail(const struct ax_buf *text, size_t most, size_t *n) {
    size_t from = text->len > most ? text->len - most : 0;
    while (from > 0 && from < text->len && ((unsigned char)text->data[from] & 0xc0) == 0x80)
        from++;
    *n = text->len - from;
    return text->len > 0 ? text->data + from : "";
}

/* The length of the first `most` bytes without an incomplete character. */
static size_t head(const struct ax_buf *text, size_t most) {
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
    const char *end = tail(prompt, PROMPT_BYTES, &n);
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
    const char *end = tail(prompt, PROMPT_SHOWN, &n);
    const size_t shown = head(answer, ANSWER_SHOWN);
    AX_TRY(ax_buf_printf(out, "sample %d at step %lld: %s", index, (long long)step,
                         n < prompt->len ? "\xe2\x80\xa6" : ""));
    AX_TRY(put_plain(out, end, n));
    AX_TRY(ax_buf_puts(out, " \xe2\x86\x92 "));
    AX_TRY(put_plain(out, answer->data, shown));
    return shown < answer->len ? ax_buf_puts(out, "\xe2\x80\xa6") : AX_OK;
}

/* ---- reading ---- */

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

uint64_t ax_metrics_whole_before_eval(const unsigned char *data, size_t n, int64_t resume_step) {
    static const char eval[] = "\"eval_seconds\": ";
    const uint64_t end = ax_metrics_whole_jsonl(data, n, resume_step);
    uint64_t at = ax_metrics_whole_jsonl(data, (size_t)end, resume_step - 1);
    while (at < end) {
        const unsigned char *line = data + at, *newline = memchr(line, '\n', (size_t)(end - at));
        const size_t len = (size_t)(newline - line);
        if (memmem(line, len, eval, sizeof eval - 1) != NULL)
            return at;
        at += len + 1;
    }
    return end;
}

uint64_t ax_metrics_whole_csv(const unsigned char *data, size_t n, int64_t resume_step) {
    const size_t fixed = strlen(AX_METRICS_CSV_FIXED);
    const unsigned char *newline = n > fixed ? memchr(data, '\n', n) : NULL;
    if (!newline || memcmp(data, AX_METRICS_CSV_FIXED, fixed) != 0 ||
        (data[fixed] != ',' && data[fixed] != '\n'))
        return 0;
    return whole_lines(data, n, (size_t)(newline - data) + 1, "", resume_step);
}
