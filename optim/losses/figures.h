/* Figures with names that are known only when a run has begun, such as those of reward functions. */
#ifndef AX_OPTIM_LOSSES_FIGURES_H
#define AX_OPTIM_LOSSES_FIGURES_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

#define AX_FIGURES_MAX    (96 + AX_FIGURES_LOGGED)
#define AX_FIGURES_NAME   96
#define AX_FIGURES_LOGGED 64 /* those of them that reward functions log */

struct ax_figures {
    int n;
    char names[AX_FIGURES_MAX][AX_FIGURES_NAME];
    double values[AX_FIGURES_MAX]; /* NaN if there is no value */
};

static inline void ax_figures_add(struct ax_figures *f, const char *name, double value) {
    AX_ASSERT(f->n < AX_FIGURES_MAX);
    (void)snprintf(f->names[f->n], sizeof f->names[0], "%s", name);
    f->values[f->n++] = value;
}

static inline bool ax_figures_has(const struct ax_figures *f, const char *name) {
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->names[i], name) == 0)
            return true;
    return false;
}

/* The value of that name; NaN if there is none. */
static inline double ax_figures_get(const struct ax_figures *f, const char *name) {
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->names[i], name) == 0)
            return f->values[i];
    return NAN;
}

#endif
