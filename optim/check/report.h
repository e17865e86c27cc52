/* The figures of a check in groups ("loss", "gradients" …): of each the one closest to its tolerance, or
 * furthest beyond it. */
#ifndef AX_OPTIM_CHECK_REPORT_H
#define AX_OPTIM_CHECK_REPORT_H

#include <stdint.h>

#include "base/status.h"

#define AX_GOLDEN_MAX_GROUPS 64

struct ax_golden_group {
    char name[80];
    double worst, tolerance; /* passes if worst ≤ tolerance */
    char where[96];          /* location of the worst figure */
    char first[96];          /* location of the first one beyond its tolerance */
};

struct ax_golden_report {
    char title[4352]; /* title of the following lines */
    int n;
    struct ax_golden_group groups[AX_GOLDEN_MAX_GROUPS];
    int checked, failed;  /* totals over everything printed */
    int absent, left_out; /* files that are not there; those without which a check was left out */
};

/* Records a figure; NaN counts as infinite. */
void ax_golden_note(struct ax_golden_report *r, const char *group, double figure, double tolerance,
                    const char *where);

/* ‖a − b‖ / ‖b‖: 0 if both are zero, inf if only b is. */
double ax_golden_rel_norm(const double *a, const double *b, int64_t n);

#endif
