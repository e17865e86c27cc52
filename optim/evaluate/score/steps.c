#include "optim/evaluate/score/steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/records/format/format.h"

/* ---- as they are read ---- */

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for an answer");
}

static enum ax_status join(const json_t *messages, json_t **out) {
    struct ax_buf text = {0};
    enum ax_status st = ax_buf_puts(&text, "");
    for (size_t i = 0; i < json_array_size(messages) && st == AX_OK; i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        if (!json_is_string(content)) {
            st = ax_error(AX_ERR_DATA, "message %zu of the prompt has no text for the scorer", i);
            break;
        }
        if (i > 0)
            st = ax_buf_puts(&text, "\n");
        if (st == AX_OK)
            st = ax_buf_append(&text, json_string_value(content), json_string_length(content));
    }
    if (st == AX_OK && !(*out = json_stringn(text.data, text.len)))
        st = no_memory();
    ax_buf_free(&text);
    return st;
}

enum ax_status ax_steps_prompt(const json_t *prompt, json_t **out) {
    if (json_is_array(prompt))
        return join(prompt, out);
    *out = json_deep_copy(prompt);
    return *out ? AX_OK : no_memory();
}

enum ax_status ax_steps_split(const char *text, size_t len, const char *separator, json_t **out) {
    const size_t width = strlen(separator);
    json_t *steps = json_array();
    for (size_t at = 0; at <= len;) {
        const char *end = memmem(text + at, len - at, separator, width);
        const size_t n = end ? (size_t)(end - text) - at : len - at;
        if (!ax_text_is_blank(text + at, n) &&
            json_array_append_new(steps, json_stringn(text + at, n)) != 0) {
            json_decref(steps);
            return no_memory();
        }
        at += n + width;
    }
    *out = steps;
    return steps ? AX_OK : no_memory();
}

/* ---- one score ---- */

const char *const ax_score_by_names[AX_SCORE_BYS] = {
    [AX_SCORE_MIN] = "min", [AX_SCORE_PRODUCT] = "product", [AX_SCORE_LAST] = "last"};

enum ax_status ax_score_by_parse(const char *option, const char *name, enum ax_score_by *out) {
    for (int i = 0; i < AX_SCORE_BYS; i++) {
        if (strcmp(name, ax_score_by_names[i]) != 0)
            continue;
        *out = (enum ax_score_by)i;
        return AX_OK;
    }
    return ax_error(AX_ERR_CONFIG, "%s: expected min, product or last, got \"%s\"", option, name);
}

double ax_score_steps(enum ax_score_by by, const double *p, size_t n) {
    double least = 1, product = 1;
    for (size_t i = 0; i < n; i++) {
        least = p[i] < least || isnan(p[i]) ? p[i] : least; /* NaN stays */
        product *= p[i];
    }
    const double of[AX_SCORE_BYS] = {[AX_SCORE_MIN] = least,
                                     [AX_SCORE_PRODUCT] = product,
                                     [AX_SCORE_LAST] = n > 0 ? p[n - 1] : 1};
    return of[by];
}

/* ---- labeled steps ---- */

static int by_score(const void *x, const void *y) {
    const struct ax_scored_step *a = x, *b = y;
    return (a->p > b->p) - (a->p < b->p);
}

static bool any_nan(const struct ax_scored_step *steps, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (isnan(steps[i].p))
            return true;
    return false;
}

/* Mann and Whitney's: each pair of a right and a wrong step, from the ranks of the right ones. */
static double auc(const struct ax_scored_step *steps, size_t n) {
    struct ax_scored_step *sorted;
    double wins = 0, right = 0, wrong = 0;
    if (n == 0 || ax_alloc(&sorted, n, sizeof *sorted) != AX_OK)
        return NAN;
    memcpy(sorted, steps, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_score);
    for (size_t i = 0, end; i < n; i = end) { /* steps of equal score */
        double r = 0, w = 0;
        for (end = i; end < n && sorted[end].p <= sorted[i].p; end++)
            *(sorted[end].right ? &r : &w) += 1;
        wins += r * (wrong + w / 2);
        right += r;
        wrong += w;
    }
    ax_free(sorted);
    return right > 0 && wrong > 0 ? wins / (right * wrong) : NAN;
}

/* Index of the first wrong step of n, n if there is none. */
static size_t first_wrong(const struct ax_scored_step *steps, size_t n, bool predicted) {
    size_t i = 0;
    while (i < n && (predicted ? steps[i].p >= 0.5 : steps[i].right))
        i++;
    return i;
}

static double share(double of, double n) {
    return n > 0 ? of / n : NAN;
}

struct ax_step_metrics ax_step_metrics(const struct ax_scored_step *steps, const size_t *ends,
                                       size_t solutions) {
    const size_t n = solutions > 0 ? ends[solutions - 1] : 0;
    if (any_nan(steps, n))
        return (struct ax_step_metrics){n, solutions, NAN, NAN, NAN, NAN, NAN};
    double right = 0, found[2] = {0}, of[2] = {0}; /* [0]: solutions with an error; [1]: without */
    for (size_t i = 0; i < n; i++)
        right += (steps[i].p > 0.5) == steps[i].right;
    for (size_t i = 0, first = 0; i < solutions; first = ends[i++]) {
        const size_t len = ends[i] - first, want = first_wrong(steps + first, len, false);
        of[want == len] += 1;
        found[want == len] += first_wrong(steps + first, len, true) == want;
    }
    const double error = share(found[0], of[0]), correct = share(found[1], of[1]);
    return (struct ax_step_metrics){.steps = n,
                                    .solutions = solutions,
                                    .accuracy = share(right, (double)n),
                                    .auc = auc(steps, n),
                                    .error_found = error,
                                    .correct_found = correct,
                                    .first_error = error + correct > 0
                                                       ? 2 * error * correct / (error + correct)
                                                       : error + correct};
}
