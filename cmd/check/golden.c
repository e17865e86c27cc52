/* The report, and loading golden tensors. */
#include "cmd/check/golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/transfer.h"

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

void ax_golden_absent(struct ax_golden_report *r, const char *file) {
    printf("  absent: %s\n", file);
    r->absent++;
}

void ax_golden_error(struct ax_golden_report *r, const char *what) {
    printf("  FAIL  %s: %s\n", what, ax_error_text());
    r->checked++;
    r->failed++;
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

enum ax_status ax_golden_read(const struct ax_safetensors *st, const char *name,
                              struct ax_golden_tensor *out) {
    *out = (struct ax_golden_tensor){0};
    const struct ax_st_entry *e = ax_safetensors_find(st, name);
    if (!e)
        return ax_error(AX_ERR_DATA, "%s: tensor %s is missing", st->path, name);
    out->ndim = e->ndim;
    memcpy(out->shape, e->shape, sizeof out->shape);
    out->numel = e->numel;
    AX_TRY(ax_alloc(&out->v, (size_t)e->numel, sizeof *out->v));
    return ax_st_read(e, 0, e->numel, AX_F64, out->v);
}

void ax_golden_tensor_free(struct ax_golden_tensor *t) {
    ax_free(t->v);
    *t = (struct ax_golden_tensor){0};
}

enum ax_status ax_golden_values(struct ax_queue *q, const struct ax_tensor *t, double **out) {
    AX_TRY(ax_alloc(out, (size_t)ax_tensor_numel(t), sizeof **out));
    return ax_tensor_read(q, t, AX_F64, *out);
}

double ax_golden_worse(double a, double b) {
    return b > a || isnan(b) ? b : a;
}

double ax_golden_max_abs(const double *a, const double *b, int64_t n) {
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        worst = ax_golden_worse(worst, fabs(a[i] - b[i]));
    return worst;
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
