/* A run folder: metrics.jsonl line by line, and run.json. */
#include <math.h>
#include <string.h>

#include "base/io.h"
#include "ckpt/state/checkpoint.h"
#include "cmd/report/report.h"
#include "optim/losses/figures.h"

#define MAX_LINE  ((size_t)1 << 20)
#define MOST      1e30 /* beyond it, sums and charts overflow */
#define MAX_ABOUT ((size_t)16 << 20)
#define MAX_TRACE ((size_t)512 << 20)

/* Two methods may have a figure by different names. */
static const char *const step_keys[AX_FIGURE_COUNT][2] = {
    [AX_FIGURE_EPOCH] = {"epoch"},
    [AX_FIGURE_LOSS] = {"loss"},
    [AX_FIGURE_GRAD_NORM] = {"grad_norm"},
    [AX_FIGURE_LR] = {"learning_rate"},
    [AX_FIGURE_TOKENS] = {"tokens"},
    [AX_FIGURE_TRAINED] = {"trained_tokens"},
    [AX_FIGURE_SECONDS] = {"seconds"},
    [AX_FIGURE_RATE] = {"tokens_per_second"},
    [AX_FIGURE_MFU] = {"mfu"},
    [AX_FIGURE_HFU] = {"hfu"},
    [AX_FIGURE_MEMORY] = {"memory_bytes"},
    [AX_FIGURE_PEAK] = {"peak_memory_bytes"},
    [AX_FIGURE_PREFERRED] = {"rewards/accuracies", "accuracy"},
    [AX_FIGURE_MARGIN] = {"rewards/margins", "margin"},
    [AX_FIGURE_KL] = {"kl", "objective/kl"},
    [AX_FIGURE_DIVERGENCE] = {"kd_loss"},
    [AX_FIGURE_REWARD] = {"reward"},
    [AX_FIGURE_LENGTH] = {"completions/mean_length"},
    [AX_FIGURE_CLIPPED] = {"completions/clipped_ratio"},
    [AX_FIGURE_ALIKE] = {"frac_reward_zero_std"},
    [AX_FIGURE_ENTROPY] = {"entropy"},
    [AX_FIGURE_STOPPED] = {"code/stopped"},
    [AX_FIGURE_VIOLATION] = {"moe/max_violation"},
    [AX_FIGURE_SPREAD] = {"moe/entropy"},
};
static const char *const eval_keys[AX_EVAL_FIGURE_COUNT][2] = {
    [AX_EVAL_FIGURE_LOSS] = {"eval_loss"},
    [AX_EVAL_FIGURE_ACCURACY] = {"eval_accuracy"},
    [AX_EVAL_FIGURE_PREFERRED] = {"eval_rewards/accuracies"},
    [AX_EVAL_FIGURE_REWARD] = {"eval_reward"},
};

/* ---- records ---- */

/* A line of a file of the run; `file` NULL: `why` says where. */
struct line {
    const char *file;
    size_t number;
};

static enum ax_status add_problem(struct ax_report_run *run, struct line line, const char *why) {
    if (run->n_problems < AX_REPORT_MAX_PROBLEMS) {
        char **to = &run->problems[run->n_problems];
        AX_TRY(line.file ? ax_sprintf(to, "%s:%zu: %s", line.file, line.number, why)
                         : ax_strdup(to, why));
    }
    run->n_problems++;
    return AX_OK;
}

/* NaN: none, or one that is left out. */
static enum ax_status number(struct ax_report_run *run, struct line line, const char *key,
                             const json_t *v, double *out) {
    char why[160];
    *out = json_is_number(v) ? json_number_value(v) : NAN;
    if (isnan(*out) || fabs(*out) <= MOST)
        return AX_OK;
    snprintf(why, sizeof why, "%.64s: %g is beyond %g and was left out", key, *out, MOST);
    *out = NAN;
    return add_problem(run, line, why);
}

static enum ax_status numbers(struct ax_report_run *run, struct line line, const json_t *object,
                              const char *const keys[][2], int n, double *out) {
    for (int i = 0; i < n; i++) {
        const char *key =
            keys[i][1] && !json_object_get(object, keys[i][0]) ? keys[i][1] : keys[i][0];
        AX_TRY(number(run, line, key, json_object_get(object, key), &out[i]));
    }
    return AX_OK;
}

/* The index of a name in a list, to which it is added if it is new; −1 if there is no space for it. */
static enum ax_status name_index(char **names, int *n, int most, const char *name, int *index) {
    for (*index = 0; *index < *n; (*index)++)
        if (strcmp(names[*index], name) == 0)
            return AX_OK;
    if (*n == most) {
        *index = -1;
        return AX_OK;
    }
    AX_TRY(ax_strdup(&names[*n], name));
    (*n)++;
    return AX_OK;
}

/* Means of reward functions: rewards/NAME/mean. */
static enum ax_status read_rewards(struct ax_report_run *run, struct line line,
                                   struct ax_report_step *s, json_t *v) {
    static const char before[] = "rewards/", after[] = "/mean";
    const char *key;
    json_t *mean;
    json_object_foreach(v, key, mean) {
        const size_t n = strlen(key), around = sizeof before + sizeof after - 2;
        char name[AX_FIGURES_NAME];
        int i;
        if (n <= around || n >= sizeof name || strncmp(key, before, sizeof before - 1) != 0 ||
            strcmp(key + n - (sizeof after - 1), after) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(n - around), key + sizeof before - 1);
        AX_TRY(name_index(run->reward_names, &run->n_rewards, AX_REPORT_MAX_REWARDS, name, &i));
        double value;
        AX_TRY(number(run, line, key, mean, &value));
        if (i >= 0)
            s->rewards[i] = (float)value;
    }
    return AX_OK;
}

static void free_sample(struct ax_report_sample *s) {
    ax_free(s->prompt);
    ax_free(s->text);
    ax_free(s->worth);
    json_decref(s->messages);
    json_decref(s->calls);
}

static enum ax_status add_step(struct ax_report_run *run, struct line line, int64_t step,
                               json_t *v) {
    struct ax_report_step s = {.step = step};
    json_t *phases = json_object_get(v, "phase_seconds"), *seconds;
    const char *name;
    AX_TRY(numbers(run, line, v, step_keys, AX_FIGURE_COUNT, s.figures));
    for (int i = 0; i < AX_REPORT_MAX_REWARDS; i++)
        s.rewards[i] = NAN;
    AX_TRY(read_rewards(run, line, &s, v));
    json_object_foreach(phases, name, seconds) {
        int i;
        AX_TRY(name_index(run->phase_names, &run->n_phases, AX_REPORT_MAX_PHASES, name, &i));
        double value;
        AX_TRY(number(run, line, name, seconds, &value));
        if (i >= 0 && !isnan(value))
            s.phases[i] = (float)value;
    }
    while (run->n_steps > 0 && run->steps[run->n_steps - 1].step >= step)
        run->n_steps--;
    while (run->n_evals > 0 && run->evals[run->n_evals - 1].step >= step)
        run->n_evals--;
    AX_TRY(ax_grow(&run->steps, run->n_steps, &run->room_steps, sizeof *run->steps));
    run->steps[run->n_steps++] = s;
    return AX_OK;
}

static enum ax_status add_eval(struct ax_report_run *run, struct line line, int64_t step,
                               const json_t *v) {
    struct ax_report_eval e = {.step = step};
    AX_TRY(numbers(run, line, v, eval_keys, AX_EVAL_FIGURE_COUNT, e.figures));
    while (run->n_evals > 0 && run->evals[run->n_evals - 1].step >= step)
        run->n_evals--;
    AX_TRY(ax_grow(&run->evals, run->n_evals, &run->room_evals, sizeof *run->evals));
    run->evals[run->n_evals++] = e;
    return AX_OK;
}

static enum ax_status add_event(struct ax_report_run *run, int64_t step, const json_t *v) {
    const char *text = json_string_value(json_object_get(v, "text"));
    AX_TRY(ax_grow(&run->events, run->n_events, &run->room_events, sizeof *run->events));
    struct ax_report_event *e = &run->events[run->n_events++];
    e->step = step;
    AX_TRY(ax_strdup(&e->event, json_string_value(json_object_get(v, "event"))));
    return ax_strdup(&e->text, text ? text : "");
}

static enum ax_status add_sample(struct ax_report_run *run, int64_t step, const json_t *v) {
    const char *prompt = json_string_value(json_object_get(v, "prompt"));
    const char *text = json_string_value(json_object_get(v, "text"));
    while (run->n_samples > 0 && run->samples[run->n_samples - 1].step > step)
        free_sample(&run->samples[--run->n_samples]);
    AX_TRY(ax_grow(&run->samples, run->n_samples, &run->room_samples, sizeof *run->samples));
    struct ax_report_sample *s = &run->samples[run->n_samples++];
    *s = (struct ax_report_sample){.step = step};
    AX_TRY(ax_strdup(&s->prompt, prompt ? prompt : ""));
    return ax_strdup(&s->text, text ? text : "");
}

/* "correct 1, short 0.2, advantage 0.87", or "12 tokens" of a run without rewards. */
static enum ax_status put_worth(struct ax_buf *out, const json_t *v) {
    const char *name;
    json_t *reward;
    if (!json_object_get(v, "advantage"))
        return ax_buf_printf(out, "%lld tokens",
                             (long long)json_integer_value(json_object_get(v, "tokens")));
    json_object_foreach(json_object_get(v, "rewards"), name, reward) AX_TRY(
        json_is_number(reward) ? ax_buf_printf(out, "%s %.3g, ", name, json_number_value(reward))
                               : ax_buf_printf(out, "%s none, ", name));
    const json_t *advantage = json_object_get(v, "advantage");
    return json_is_number(advantage)
               ? ax_buf_printf(out, "advantage %.3g", json_number_value(advantage))
               : ax_buf_puts(out, "advantage none");
}

/* Turns of those that are shown; results of tools may be long. */
static void keep_turns(struct ax_report_run *run, struct ax_report_sample *s, const json_t *v) {
    json_t *messages = json_object_get(v, "messages");
    if (!json_is_array(messages))
        return;
    s->messages = json_incref(messages);
    s->calls = json_incref(json_object_get(v, "calls"));
    if (run->n_samples <= AX_REPORT_MAX_SAMPLES)
        return;
    struct ax_report_sample *old = &run->samples[run->n_samples - 1 - AX_REPORT_MAX_SAMPLES];
    json_decref(old->messages);
    json_decref(old->calls);
    old->messages = old->calls = NULL;
}

/* The first completion of each step. A step after a later one is of a run that has resumed, and replaces
 * what the attempt before it left from there on. */
static enum ax_status add_completion(struct ax_report_run *run, struct line line, json_t *v) {
    const json_t *at = json_object_get(v, "step");
    const int64_t step = json_integer_value(at);
    const char *prompt = json_string_value(json_object_get(v, "prompt"));
    const char *text = json_string_value(json_object_get(v, "completion"));
    struct ax_buf worth = {0};
    if (!json_is_integer(at) || !prompt || !text)
        return add_problem(run, line, "has no step, prompt or completion and was skipped");
    if (run->n_samples > 0 && run->samples[run->n_samples - 1].step == step)
        return AX_OK;
    while (run->n_samples > 0 && run->samples[run->n_samples - 1].step >= step)
        free_sample(&run->samples[--run->n_samples]);
    enum ax_status st = put_worth(&worth, v);
    if (st == AX_OK)
        st = ax_grow(&run->samples, run->n_samples, &run->room_samples, sizeof *run->samples);
    if (st == AX_OK) {
        struct ax_report_sample *s = &run->samples[run->n_samples++];
        *s = (struct ax_report_sample){.step = step, .worth = worth.data};
        keep_turns(run, s, v);
        AX_TRY(ax_strdup(&s->prompt, prompt));
        return ax_strdup(&s->text, text);
    }
    ax_buf_free(&worth);
    return st;
}

static enum ax_status add_record(struct ax_report_run *run, struct line line, json_t *v) {
    const json_t *at = json_object_get(v, "step");
    const json_int_t step = json_integer_value(at);
    if (!json_is_integer(at) || step < 0)
        return add_problem(run, line, "has no step and was skipped");
    const char *event = json_string_value(json_object_get(v, "event"));
    if (event)
        return strcmp(event, "sample") == 0 ? add_sample(run, step, v) : add_event(run, step, v);
    if (json_object_get(v, "eval_loss") || json_object_get(v, "eval_reward"))
        return add_eval(run, line, step, v);
    if (json_object_get(v, "loss"))
        return add_step(run, line, step, v);
    return add_problem(run, line, "is neither a step, an evaluation nor an event and was skipped");
}

/* ---- files ---- */

typedef enum ax_status add_line(struct ax_report_run *run, struct line line, json_t *v);

static enum ax_status read_lines(struct ax_report_run *run, const char *file,
                                 const struct ax_mapping *m, add_line *add) {
    struct line line = {.file = file};
    for (size_t at = 0; at < m->len;) {
        const char *text = (const char *)m->data + at;
        const char *end = memchr(text, '\n', m->len - at);
        const size_t n = end ? (size_t)(end - text) : m->len - at;
        json_error_t error;
        at += n + 1;
        line.number++;
        if (n == 0)
            continue;
        json_t *v = n <= MAX_LINE ? json_loadb(text, n, JSON_ALLOW_NUL, &error) : NULL;
        const char *why = n > MAX_LINE ? "is longer than 1 MiB and was skipped"
                          : end
                              ? "is not a JSON object and was skipped"
                              : "is incomplete (the run ended while writing it, or is writing now) "
                                "and was skipped";
        const enum ax_status st =
            json_is_object(v) ? add(run, line, v) : add_problem(run, line, why);
        json_decref(v);
        AX_TRY(st);
    }
    return AX_OK;
}

static enum ax_status read_metrics(struct ax_report_run *run, const char *path) {
    struct ax_mapping m;
    if (!ax_path_exists(path))
        return ax_error(AX_ERR_CONFIG,
                        "%s: contains no metrics.jsonl; give the output_dir of a training run",
                        run->name);
    AX_TRY(ax_map_file(&m, path));
    const enum ax_status st = read_lines(run, "metrics.jsonl", &m, add_record);
    ax_unmap_file(&m);
    return st;
}

/* A missing run.json (from an older version) or a corrupted one is reported as a problem; the page
 * is still written. */
static enum ax_status read_about(struct ax_report_run *run, const char *path) {
    if (!ax_path_exists(path))
        return add_problem(
            run, (struct line){0},
            "no run.json: configuration, environment, memory by name and packing are unknown");
    if (ax_json_load(&run->about, path, MAX_ABOUT) == AX_OK)
        return AX_OK;
    const enum ax_status st = add_problem(run, (struct line){0}, ax_error_text());
    ax_error_clear();
    return st;
}

static enum ax_status read_timeline(struct ax_report_run *run, const char *path) {
    struct ax_json_doc doc;
    if (!ax_path_exists(path))
        return AX_OK;
    enum ax_status st = ax_json_load(&doc, path, MAX_TRACE);
    if (st == AX_OK) {
        st = ax_report_timeline_read(&run->timeline, doc.root);
        ax_json_free(&doc);
    }
    if (st == AX_OK || st == AX_ERR_NOMEM)
        return st;
    st = add_problem(run, (struct line){0}, ax_error_text());
    ax_error_clear();
    return st;
}

/* Samples that an evaluation shows are in metrics.jsonl. */
static enum ax_status read_completions(struct ax_report_run *run, const char *path) {
    struct ax_mapping m;
    if (!ax_path_exists(path) || run->n_samples > 0)
        return AX_OK;
    AX_TRY(ax_map_file(&m, path));
    const enum ax_status st = read_lines(run, "completions.jsonl", &m, add_completion);
    ax_unmap_file(&m);
    return st;
}

static enum ax_status read_answers(struct ax_report_run *run, const char *path) {
    return ax_path_exists(path) ? ax_report_read_answers(&run->answers, path) : AX_OK;
}

static enum ax_status read_file(struct ax_report_run *run, const char *name,
                                enum ax_status (*read)(struct ax_report_run *, const char *)) {
    char *path;
    AX_TRY(ax_path_join(&path, run->name, name));
    const enum ax_status st = read(run, path);
    ax_free(path);
    return st;
}

static void move(double *figures, int from, int to) {
    const double value = figures[from];
    figures[from] = NAN;
    figures[to] = value;
}

/* Methods have the same name for accuracies of different things. */
static void name_accuracies(struct ax_report_run *run) {
    const enum ax_report_eval_figure own = ax_report_kind(run)->accuracy;
    for (size_t i = 0; i < run->n_steps && own == AX_EVAL_FIGURE_JUDGED; i++)
        move(run->steps[i].figures, AX_FIGURE_PREFERRED, AX_FIGURE_JUDGED);
    for (size_t i = 0; i < run->n_evals; i++)
        move(run->evals[i].figures, AX_EVAL_FIGURE_ACCURACY, own);
}

enum ax_status ax_report_read(struct ax_report_run *run, const char *folder) {
    *run = (struct ax_report_run){.name = folder};
    if (!ax_path_is_dir(folder))
        return ax_error(AX_ERR_CONFIG, "%s: %s; give the output_dir of a training run", folder,
                        ax_path_exists(folder) ? "is no folder" : "no such folder");
    AX_TRY(read_file(run, "metrics.jsonl", read_metrics));
    AX_TRY(read_file(run, "completions.jsonl", read_completions));
    AX_TRY(read_file(run, "eval.jsonl", read_answers));
    AX_TRY(read_file(run, "samples.jsonl", read_answers));
    AX_TRY(read_file(run, "timeline.json", read_timeline));
    AX_TRY(read_file(run, AX_RUN_FILE, read_about));
    name_accuracies(run);
    return AX_OK;
}

void ax_report_close(struct ax_report_run *run) {
    for (size_t i = 0; i < run->n_events; i++) {
        ax_free(run->events[i].event);
        ax_free(run->events[i].text);
    }
    for (size_t i = 0; i < run->n_samples; i++)
        free_sample(&run->samples[i]);
    for (int i = 0; i < AX_REPORT_MAX_PROBLEMS; i++)
        ax_free(run->problems[i]);
    for (int i = 0; i < run->n_phases; i++)
        ax_free(run->phase_names[i]);
    for (int i = 0; i < run->n_rewards; i++)
        ax_free(run->reward_names[i]);
    ax_free(run->steps);
    ax_free(run->evals);
    ax_free(run->events);
    ax_free(run->samples);
    ax_json_free(&run->about);
    json_decref(run->answers.shown);
    ax_report_timeline_free(&run->timeline);
    *run = (struct ax_report_run){0};
}

double ax_report_loss(const struct ax_report_run *run, bool last) {
    for (size_t i = 0; i < run->n_steps; i++) {
        const size_t at = last ? run->n_steps - 1 - i : i;
        if (isfinite(run->steps[at].figures[AX_FIGURE_LOSS]))
            return run->steps[at].figures[AX_FIGURE_LOSS];
    }
    return NAN;
}

const struct ax_report_eval *ax_report_best(const struct ax_report_run *run) {
    const struct ax_report_event *best = NULL;
    for (size_t i = 0; i < run->n_events; i++) {
        const struct ax_report_event *e = &run->events[i];
        if (strcmp(e->event, "best") == 0)
            best = e;
        else if (strcmp(e->event, "resumed") == 0) /* that model is replaced */
            best = NULL;
    }
    for (size_t i = 0; i < run->n_evals && best; i++)
        if (run->evals[i].step == best->step)
            return &run->evals[i];
    return NULL;
}
