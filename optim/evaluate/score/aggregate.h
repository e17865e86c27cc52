/* One score of a solution from the probabilities that its steps are right. */
#ifndef AX_OPTIM_EVALUATE_SCORE_AGGREGATE_H
#define AX_OPTIM_EVALUATE_SCORE_AGGREGATE_H

#include <stddef.h>

#include "base/status.h"

enum ax_score_by { AX_SCORE_MIN, AX_SCORE_PRODUCT, AX_SCORE_LAST, AX_SCORE_BYS };
extern const char *const ax_score_by_names[AX_SCORE_BYS]; /* "min", "product", "last" */

/* AX_ERR_CONFIG names `option` and what it takes. */
enum ax_status ax_score_by_parse(const char *option, const char *name, enum ax_score_by *out);
/* 1 if there are no steps. */
double ax_score_steps(enum ax_score_by by, const double *p, size_t n);

#endif
