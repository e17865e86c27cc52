#include "optim/metrics/plausible.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>

#define MEMORY_SLACK  (64 << 20) /* of two readings of a process's memory */
#define SECONDS_SLACK 1e-3

static _Thread_local char text[256];

static const char *say(const char *name, double value, const char *why, double other) {
    (void)snprintf(text, sizeof text, "%s is %.10g, %s %.10g", name, value, why, other);
    return text;
}

/* NaN is within any. */
static const char *outside(const char *name, double value, double low, double high) {
    if (value < low)
        return say(name, value, "less than", low);
    return value > high ? say(name, value, "more than", high) : NULL;
}

/* ---- figures by name ---- */

static const struct {
    const char *name; /* fnmatch */
    double low, high;
} limits[] = {
    {"accuracy", 0, 1},
    {"*/accuracies", 0, 1},
    {"clip_ratio/*", 0, 1},
    {"cispo_clip_ratio", 0, 1},
    {"completions/clipped_ratio", 0, 1},
    {"completions/*_length", 0, INFINITY},
    {"frac_reward_zero_std", 0, 1},
    {"entropy", 0, INFINITY},
    {"ratio_mean", 0, INFINITY},
    {"sampling/*", 0, INFINITY},
    {"staleness", 0, INFINITY},
    {"*/std", 0, INFINITY},
    {"reward_std", 0, INFINITY},
    {"code/stopped", 0, 1},
    {"code/verdicts/*", 0, INFINITY},
    {"tools/failure_frequency", 0, 1},
    {"tools/*", 0, INFINITY},
    {"environment/turns", 0, INFINITY},
    {"environment/lost_frequency", 0, 1},
    {"dynamic_sampling/*", 0, INFINITY},
    {"drafts/*", 0, INFINITY},
    {"objective/entropy", 0, INFINITY},
    {"val/num_eos_tokens", 0, INFINITY},
    {"*_s", 0, INFINITY},
};

static const char *named_wrong(const char *name, double value) {
    const char *wrong = NULL;
    for (size_t i = 0; i < sizeof limits / sizeof *limits && !wrong; i++)
        if (fnmatch(limits[i].name, name, 0) == 0)
            wrong = outside(name, value, limits[i].low, limits[i].high);
    return wrong;
}

static const char *measures_wrong(const char *const *names, const double *values) {
    const char *wrong = NULL;
    for (int i = 0; names && names[i] && !wrong; i++)
        wrong = named_wrong(names[i], values[i]);
    return wrong;
}

/* Means lie between the least and the most, a part is not more than the whole. */
static const char *order_wrong(const struct ax_figures *f) {
    static const char *const names[][3] = {
        {"completions/min_length", "completions/mean_length", "completions/max_length"},
        {"completions/min_terminated_length", "completions/mean_terminated_length",
         "completions/max_terminated_length"},
        {"iw_opd/min_weight", "iw_opd/mean_weight", "iw_opd/max_weight"},
        {"", "drafts/accepted", "drafts/tried"}};
    const char *wrong = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !wrong; i++)
        wrong = outside(names[i][1], ax_figures_get(f, names[i][1]), ax_figures_get(f, names[i][0]),
                        ax_figures_get(f, names[i][2]));
    return wrong;
}

static const char *figures_wrong(const struct ax_figures *f) {
    const char *wrong = order_wrong(f);
    for (int i = 0; i < f->n && !wrong; i++)
        wrong = named_wrong(f->names[i], f->values[i]);
    return wrong;
}

/* ---- records ---- */

struct limited {
    const char *name;
    double value, low, high;
};

static const char *values_wrong(const struct limited *v, size_t n) {
    const char *wrong = NULL;
    for (size_t i = 0; i < n && !wrong; i++)
        wrong = outside(v[i].name, v[i].value, v[i].low, v[i].high);
    return wrong;
}

/* `most`: of their sum. */
static const char *seconds_wrong(const char *what, const struct ax_phase_seconds *parts, int n,
                                 double most) {
    const char *wrong = NULL;
    double sum = 0;
    for (int i = 0; i < n && !wrong; i++) {
        wrong = outside(parts[i].name, parts[i].seconds, 0, INFINITY);
        sum += parts[i].seconds;
    }
    return wrong ? wrong : outside(what, sum, 0, most);
}

const char *ax_figures_of_step_wrong(const struct ax_step_figures *f, const char *const *measures) {
    const struct limited own[] = {
        {"step", (double)f->step, 1, INFINITY},
        {"epoch", f->epoch, 0, INFINITY},
        {"grad_norm", f->grad_norm, 0, INFINITY},
        {"learning_rate", f->learning_rate, 0, INFINITY},
        {"seconds", f->seconds, 0, INFINITY},
        {"FLOPs", f->flops, 0, INFINITY},
        {"tokens", (double)f->tokens, 0, INFINITY},
        {"trained_tokens", (double)f->trained_tokens, 0, (double)f->tokens},
        {"computed tokens", (double)f->computed_tokens, 0, INFINITY},
        {"memory_bytes", (double)f->memory, 0, (double)f->peak_memory + MEMORY_SLACK},
        {"memory of the largest rank", f->ranks.memory, 0, f->ranks.peak_memory + MEMORY_SLACK},
        {"slowest_seconds", f->ranks.slowest_seconds, 0, INFINITY},
    };
    const double most = f->works_late ? INFINITY : f->seconds + SECONDS_SLACK;
    const char *wrong = values_wrong(own, sizeof own / sizeof *own);
    if (!wrong)
        wrong = seconds_wrong("the sum of phase_seconds", f->phases, f->n_phases, most);
    if (!wrong) /* other ranks' steps may be longer */
        wrong = seconds_wrong("wait_seconds", f->ranks.waits, f->ranks.n_waits, INFINITY);
    if (!wrong)
        wrong = measures_wrong(measures, f->measures);
    return wrong || !f->figures ? wrong : figures_wrong(f->figures);
}

const char *ax_figures_of_eval_wrong(const struct ax_eval_result *r, const char *const *measures) {
    const struct limited seconds = {"seconds", r->seconds, 0, INFINITY};
    const struct limited own[] = {
        {"accuracy", r->accuracy, 0, 1},
        {"trained tokens", (double)r->trained, 0, (double)r->tokens},
        {"correct tokens", (double)r->correct, 0, (double)r->trained},
    };
    const char *wrong = values_wrong(&seconds, 1);
    if (!wrong)
        wrong = figures_wrong(&r->figures);
    if (wrong || ax_eval_is_of_rewards(r))
        return wrong;
    wrong = values_wrong(own, sizeof own / sizeof *own);
    return wrong ? wrong : measures_wrong(measures, r->measures);
}
