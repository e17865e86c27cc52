/* Published training speeds against what a plan of time says: plan_score FILE.tsv. */
#ifndef AX_TESTS_BENCH_SPEEDS_H
#define AX_TESTS_BENCH_SPEEDS_H

#include "base/text/tsv.h"
#include "optim/plan/plan_time.h"

/* A row of the table, and its prediction. Pointers are into the table. */
struct ax_plan_row {
    const char *id, *source, *model, *hardware;
    bool counts;        /* it names all that a prediction depends on, on a machine of interest */
    char left_out[160]; /* why there is no prediction; "" = there is one */
    double published, predicted;               /* tokens per second and GPU */
    double published_memory, predicted_memory; /* GiB; 0: not published */
    struct ax_plan_time time;
};

/* Predicts row number `row`. A row that cannot be predicted says why in left_out; AX_ERR_CONFIG is a
 * number that is none. */
enum ax_status ax_plan_row_predict(const struct ax_tsv *t, int row, struct ax_plan_row *out);

/* (predicted − published) / published. */
double ax_plan_row_error(const struct ax_plan_row *r);
/* The median of n numbers, which are sorted; NaN: none. */
double ax_plan_median(double *values, int n);
/* Spearman's coefficient of n pairs, equal values with the mean of their ranks; NaN where all of one
 * side are equal. */
double ax_plan_rank_correlation(const double *a, const double *b, int n);

/* One line for each row, then the errors of those that count, of all, and of each source. */
enum ax_status ax_plan_score_print(const struct ax_plan_row *rows, int n);

/* Both, of a file: a table as docs/plan.md describes it. */
enum ax_status ax_plan_score(const char *path);

#endif
