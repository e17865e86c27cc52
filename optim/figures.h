/* Figures with names that are known only when a run has begun, such as those of reward functions. */
#ifndef AX_OPTIM_FIGURES_H
#define AX_OPTIM_FIGURES_H

#define AX_FIGURES_MAX  64
#define AX_FIGURES_NAME 96

struct ax_figures {
    int n;
    char names[AX_FIGURES_MAX][AX_FIGURES_NAME];
    double values[AX_FIGURES_MAX]; /* NaN: none */
};

#endif
