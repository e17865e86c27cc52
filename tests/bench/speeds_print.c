/* Errors, medians and rank correlations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/bench/speeds.h"

double ax_plan_row_error(const struct ax_plan_row *r) {
    return (r->predicted - r->published) / r->published;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

double ax_plan_median(double *values, int n) {
    if (n == 0)
        return NAN;
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* The rank of values[i]: 1 + how many are less + half of the others that are equal. */
static double rank_of(const double *values, int n, int i) {
    double rank = 1;
    for (int k = 0; k < n; k++)
        rank += values[k] < values[i] ? 1 : k != i && values[k] == values[i] ? 0.5 : 0;
    return rank;
}

double ax_plan_rank_correlation(const double *a, const double *b, int n) {
    double sab = 0, saa = 0, sbb = 0;
    const double mean = (n + 1) / 2.0;
    for (int i = 0; i < n; i++) {
        const double x = rank_of(a, n, i) - mean, y = rank_of(b, n, i) - mean;
        sab += x * y;
        saa += x * x;
        sbb += y * y;
    }
    return saa > 0 && sbb > 0 ? sab / sqrt(saa * sbb) : NAN;
}

/* The rows of a source (NULL: of all) that were predicted. */
struct part {
    const char *source;
    bool counting; /* only those that count */
};

static bool belongs(const struct ax_plan_row *r, const struct part *p) {
    return !r->left_out[0] && (r->counts || !p->counting) &&
           (!p->source || strcmp(r->source, p->source) == 0);
}

/* Room for n numbers of each kind. */
struct sums {
    double *errors, *published, *predicted;
};

static double print_part(const struct ax_plan_row *rows, int n, const struct part *p,
                         const struct sums *s, const char *name) {
    int m = 0, near = 0;
    for (int i = 0; i < n; i++) {
        if (!belongs(&rows[i], p))
            continue;
        const double error = ax_plan_row_error(&rows[i]);
        s->published[m] = rows[i].published;
        s->predicted[m] = rows[i].predicted;
        s->errors[m++] = fabs(error);
        near += fabs(error) <= 0.30;
    }
    if (m == 0)
        return NAN;
    const double rho = ax_plan_rank_correlation(s->published, s->predicted, m);
    printf("  %-52.52s %4d rows: median error %5.1f %%, %3.0f %% of them within 30 %%", name, m,
           100 * ax_plan_median(s->errors, m), 100.0 * near / m);
    if (m > 2 && !isnan(rho))
        printf(", rank correlation %.3f", rho);
    printf("\n");
    return m > 2 ? rho : NAN;
}

static bool is_first(const struct ax_plan_row *rows, int i) {
    for (int k = 0; k < i; k++)
        if (strcmp(rows[k].source, rows[i].source) == 0)
            return false;
    return true;
}

static void print_sources(const struct ax_plan_row *rows, int n, bool counting,
                          const struct sums *s, double *rhos) {
    int m = 0;
    printf("\n%s\n", counting ? "rows that count" : "all rows that are predicted");
    (void)print_part(rows, n, &(struct part){.counting = counting}, s, "all");
    for (int i = 0; i < n; i++) {
        if (!is_first(rows, i))
            continue;
        const struct part p = {.source = rows[i].source, .counting = counting};
        const double rho = print_part(rows, n, &p, s, rows[i].source);
        if (!isnan(rho))
            rhos[m++] = rho;
    }
    if (m > 0)
        printf("  median rank correlation within a source: %.3f\n", ax_plan_median(rhos, m));
}

static void print_memory(const struct ax_plan_row *rows, int n, double *errors) {
    int m = 0;
    for (int i = 0; i < n; i++)
        if (!rows[i].left_out[0] && rows[i].published_memory > 0)
            errors[m++] = fabs(rows[i].predicted_memory / rows[i].published_memory - 1);
    if (m > 0)
        printf("\nmemory, of other programs: %d rows, median difference %.1f %%\n", m,
               100 * ax_plan_median(errors, m));
}

static void print_row(const struct ax_plan_row *r) {
    printf("%-10s %c %-24.24s %-17.17s", r->id, r->counts ? '*' : ' ', r->model, r->hardware);
    if (r->left_out[0]) {
        printf(" left out: %s\n", r->left_out);
        return;
    }
    printf(" %9.1f %9.1f %+7.1f %%", r->published, r->predicted, 100 * ax_plan_row_error(r));
    if (r->published_memory > 0)
        printf("  memory %6.1f %6.1f GiB", r->published_memory, r->predicted_memory);
    printf("\n");
}

enum ax_status ax_plan_score_print(const struct ax_plan_row *rows, int n) {
    double *room;
    AX_TRY(ax_alloc(&room, 4 * (size_t)n, sizeof *room));
    const struct sums s = {room, room + n, room + 2 * (size_t)n};
    double *const rest = room + 3 * (size_t)n;
    printf("%-10s * %-24s %-17s %9s %9s %9s\n", "row", "model", "machine", "published", "predicted",
           "error");
    for (int i = 0; i < n; i++)
        print_row(&rows[i]);
    print_sources(rows, n, true, &s, rest);
    print_sources(rows, n, false, &s, rest);
    print_memory(rows, n, rest);
    ax_free(room);
    return AX_OK;
}
