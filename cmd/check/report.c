#include "cmd/check/report.h"

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

void ax_golden_flush(struct ax_golden_report *r) {
    if (r->n > 0)
        printf("%s\n", r->title);
    for (int i = 0; i < r->n; i++) {
        const struct ax_golden_group *g = &r->groups[i];
        const bool ok = g->worst <= g->tolerance;
        const bool earlier = strcmp(g->first, g->where) != 0;
        printf("  %-4s  %-34s worst %-10.3g tolerance %-10.3g %s%s%s\n", ok ? "ok" : "FAIL",
               g->name, g->worst, g->tolerance, g->where, !ok && earlier ? "; first " : "",
               !ok && earlier ? g->first : "");
        r->checked++;
        r->failed += !ok;
    }
    fflush(stdout);
    r->n = 0;
}

enum ax_status ax_check_backend(const char *name) {
    static const char *const known[] = {"cpu", "cuda", "ref", "far"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0)
            return AX_OK;
    return ax_error(AX_ERR_CONFIG, "--backend: \"%s\" is not one of cpu, cuda, ref", name);
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
