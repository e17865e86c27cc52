/* Values of the records → a number, with its standard error. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "optim/evaluate/tasks/metrics.h"
#include "optim/evaluate/tasks/translation.h"

#define BOOTSTRAP_SAMPLES 100000
#define BOOTSTRAP_CHUNK   1000 /* samples per seed; seeds are 0, 1, … */
#define BOOTSTRAP_TEXTS   100  /* samples for metrics that compare texts */

static double mean(const struct ax_task_value *v, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i].x;
    return sum / (double)n;
}

static double nanmean(const struct ax_task_value *v, size_t n) {
    double sum = 0;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(v[i].x))
            continue;
        sum += v[i].x;
        k++;
    }
    return k > 0 ? sum / (double)k : NAN;
}

static int by_value(const void *a, const void *b) {
    const double x = ((const struct ax_task_value *)a)->x, y = ((const struct ax_task_value *)b)->x;
    return (x > y) - (x < y);
}

/* The upper median. Sorts v. */
static double median(struct ax_task_value *v, size_t n) {
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2].x;
}

static double weighted_mean(const struct ax_task_value *v, size_t n) {
    double sum = 0, weight = 0;
    for (size_t i = 0; i < n; i++) {
        sum += v[i].x;
        weight += v[i].y;
    }
    return sum / weight;
}

/* For label 1. */
static double f1(const struct ax_task_value *v, size_t n) {
    double hits = 0, wrong = 0;
    for (size_t i = 0; i < n; i++) {
        hits += v[i].x == 1 && v[i].y == 1;
        wrong += (v[i].x == 1) != (v[i].y == 1);
    }
    return hits > 0 ? 2 * hits / (2 * hits + wrong) : 0;
}

/* Matthews correlation for any number of labels (Gorodkin 2004), from how often each label is right
 * and how often it is predicted. `counts` is scratch for both: [2][labels]. */
static double matthews(const struct ax_task_value *v, size_t n, double *counts, size_t labels) {
    double correct = 0, both = 0, right = 0, predicted = 0;
    const double all = (double)n;
    memset(counts, 0, 2 * labels * sizeof *counts);
    for (size_t i = 0; i < n; i++) {
        correct += v[i].x == v[i].y;
        counts[(size_t)v[i].x]++;
        counts[labels + (size_t)v[i].y]++;
    }
    for (size_t k = 0; k < labels; k++) {
        both += counts[k] * counts[labels + k];
        right += counts[k] * counts[k];
        predicted += counts[labels + k] * counts[labels + k];
    }
    const double product = (all * all - right) * (all * all - predicted);
    return product > 0 ? (correct * all - both) / sqrt(product) : 0;
}

/* Arguments of `aggregate` other than the values. */
struct work {
    enum ax_task_aggregation how;
    double *counts; /* per label; for translations, of all records */
    size_t labels;
    const struct ax_translation *translation; /* or NULL */
};

/* For translations, x is the record's number. */
static double score_sums(const struct work *w, const struct ax_task_value *v, size_t n) {
    const struct ax_translation *t = w->translation;
    double sums[AX_TRANSLATION_COUNTS] = {0};
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < t->n; k++)
            sums[k] += w->counts[(size_t)v[i].x * t->n + k];
    return t->score(sums);
}

/* May reorder v. */
static double aggregate(const struct work *w, struct ax_task_value *v, size_t n) {
    if (w->translation)
        return score_sums(w, v, n);
    switch (w->how) {
    case AX_AGGREGATE_MEDIAN:
        return median(v, n);
    case AX_AGGREGATE_NANMEAN:
        return nanmean(v, n);
    case AX_AGGREGATE_PERPLEXITY:
        return exp(-mean(v, n));
    case AX_AGGREGATE_WEIGHTED_PERPLEXITY:
        return exp(-weighted_mean(v, n));
    case AX_AGGREGATE_BITS_PER_BYTE:
        return -weighted_mean(v, n) / log(2);
    case AX_AGGREGATE_F1:
        return f1(v, n);
    case AX_AGGREGATE_MCC:
        return matthews(v, n, w->counts, w->labels);
    default:
        return mean(v, n);
    }
}

/* ---- standard errors ---- */

static double deviation(const double *v, size_t n) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    for (size_t i = 0; i < n; i++)
        squares += (v[i] - sum / (double)n) * (v[i] - sum / (double)n);
    return sqrt(squares / (double)(n - 1));
}

static enum ax_status mean_error(const struct ax_task_value *v, size_t n, double *out) {
    double *x;
    AX_TRY(ax_alloc(&x, n, sizeof *x));
    for (size_t i = 0; i < n; i++)
        x[i] = v[i].x;
    *out = deviation(x, n) / sqrt((double)n);
    ax_free(x);
    return AX_OK;
}

static enum ax_status bootstrap(const struct work *w, const struct ax_task_value *v, size_t n,
                                double *out) {
    struct ax_task_value *sample = NULL;
    struct ax_python_random random;
    const uint32_t samples = w->translation ? BOOTSTRAP_TEXTS : BOOTSTRAP_SAMPLES;
    double *results = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&sample, n, sizeof *sample), st, done);
    AX_TRY_GOTO(ax_alloc(&results, samples, sizeof *results), st, done);
    for (uint32_t i = 0; i < samples; i++) {
        if (i % BOOTSTRAP_CHUNK == 0)
            ax_python_seed(&random, i / BOOTSTRAP_CHUNK);
        for (size_t k = 0; k < n; k++)
            sample[k] = v[(size_t)(ax_python_uniform(&random) * (double)n)];
        results[i] = aggregate(w, sample, n);
    }
    *out = deviation(results, samples);
done:
    ax_free(sample);
    ax_free(results);
    return st;
}

static bool is_bootstrapped(enum ax_task_aggregation how) {
    return how == AX_AGGREGATE_MEDIAN || how == AX_AGGREGATE_NANMEAN ||
           how == AX_AGGREGATE_PERPLEXITY || how == AX_AGGREGATE_F1 || how == AX_AGGREGATE_MCC ||
           ax_translation(how);
}

/* Checks that labels are not negative, and for F1 that they are 0 or 1. */
static enum ax_status check_labels(struct work *w, const struct ax_task_value *v, size_t n) {
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        if (v[i].x < 0)
            return ax_error(AX_ERR_DATA, "%s: record %zu has a target that is not a choice",
                            ax_task_aggregation_name(w->how), i);
        largest = fmax(largest, fmax(v[i].x, v[i].y));
    }
    if (w->how == AX_AGGREGATE_F1 && largest > 1)
        return ax_error(AX_ERR_DATA, "f1 is for two choices; use acc or mcc");
    w->labels = (size_t)largest + 1;
    return ax_alloc(&w->counts, 2 * w->labels, sizeof *w->counts);
}

static enum ax_status count_texts(struct work *w, struct ax_task_value *v, size_t n) {
    AX_TRY(ax_alloc(&w->counts, n, w->translation->n * sizeof *w->counts));
    for (size_t i = 0; i < n; i++) {
        const json_t *target = json_array_get(v[i].pair, 0), *answer = json_array_get(v[i].pair, 1);
        v[i].x = (double)i;
        AX_TRY(w->translation->count(
            (struct ax_translation_text){json_string_value(target), json_string_length(target)},
            (struct ax_translation_text){json_string_value(answer), json_string_length(answer)},
            w->counts + i * w->translation->n));
    }
    return AX_OK;
}

enum ax_status ax_task_aggregate(enum ax_task_aggregation how, const struct ax_task_value *v,
                                 size_t n, struct ax_task_result *out) {
    struct work w = {.how = how, .translation = ax_translation(how)};
    struct ax_task_value *copy = NULL;
    enum ax_status st;
    *out = (struct ax_task_result){.error = NAN};
    if (how == AX_AGGREGATE_F1 || how == AX_AGGREGATE_MCC)
        AX_TRY(check_labels(&w, v, n));
    AX_TRY_GOTO(ax_alloc(&copy, n, sizeof *copy), st, done);
    memcpy(copy, v, n * sizeof *copy);
    if (w.translation)
        AX_TRY_GOTO(count_texts(&w, copy, n), st, done);
    if (n > 1 && how == AX_AGGREGATE_MEAN)
        AX_TRY_GOTO(mean_error(copy, n, &out->error), st, done);
    if (n > 1 && is_bootstrapped(how))
        AX_TRY_GOTO(bootstrap(&w, copy, n, &out->error), st, done);
    out->value = aggregate(&w, copy, n);
done:
    ax_free(copy);
    ax_free(w.counts);
    return st;
}
