#include "optim/evaluate/score/aggregate.h"

#include <math.h>
#include <string.h>

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
        least = fmin(least, p[i]);
        product *= p[i];
    }
    const double of[AX_SCORE_BYS] = {[AX_SCORE_MIN] = least,
                                     [AX_SCORE_PRODUCT] = product,
                                     [AX_SCORE_LAST] = n > 0 ? p[n - 1] : 1};
    return of[by];
}
