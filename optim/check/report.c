#include "optim/check/report.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void ax_golden_note(struct ax_golden_report *r, const char *group, double figure, double tolerance,
                    const char *where) {
    if (isnan(figure))
        figure = INFINITY;
    struct ax_golden_group *g = NULL;
    for (int i = 0; i < r->n && !g; i++)
        if (strcmp(r->groups[i].name, group) == 0)
            g = &r->groups[i];
    const bool fresh = !g;
    if (fresh) {
        AX_ASSERT(r->n < AX_GOLDEN_MAX_GROUPS);
        g = &r->groups[r->n++];
        *g = (struct ax_golden_group){0};
        snprintf(g->name, sizeof g->name, "%s", group);
    }
    if (!(figure <= tolerance) && !g->first[0])
        snprintf(g->first, sizeof g->first, "%s", where);
    /* figures in a group may have different tolerances; keeps the one closest to failing */
    const bool worse = fresh || figure * g->tolerance > g->worst * tolerance ||
                       (figure > tolerance && g->worst <= g->tolerance);
    if (!worse)
        return;
    g->worst = figure;
    g->tolerance = tolerance;
    snprintf(g->where, sizeof g->where, "%s", where);
}

double ax_golden_rel_norm(const double *a, const double *b, int64_t n) {
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    if (norm == 0)
        return diff == 0 ? 0 : INFINITY;
    return sqrt(diff / norm);
}
