#include "optim/evaluate/score/step_metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static int by_score(const void *x, const void *y) {
    const struct ax_scored_step *a = x, *b = y;
    return (a->p > b->p) - (a->p < b->p);
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
