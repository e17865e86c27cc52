/* What a step or a run takes: dry runs and counts, and the time of a step on another machine. */
#ifndef AX_OPTIM_FORECAST_FIGURES_H
#define AX_OPTIM_FORECAST_FIGURES_H

#include "optim/plan/plan_time.h"
#include "optim/train/train.h"

/* What is planned. */
struct ax_plan_request {
    const struct ax_arch *arch;
    const struct ax_train_options *train; /* the options of a config; NULL: a model by itself */
    struct ax_runtime_options runtime;
    struct ax_step_options step;
    int64_t sequences, sequence_tokens;  /* in a micro-batch */
    const struct ax_train_stage *stages; /* [pp], from a config */
    enum ax_recompute first, last;       /* the modes to plan, first to last */
    double speed;                        /* tokens per second, if given; 0: measured */
    const struct ax_rates *rates; /* speeds of the machine whose time is planned; NULL: none */
    const char *timeline;         /* a file for that time's timeline, or NULL */
};

/* A full step runs at this share of the measured matrix speed: attention, memory traffic and the
 * optimizer take the rest (docs/results/step.md). */
#define AX_PLAN_STEP_SHARE 0.75

/* A pipeline stage: its rank that needs most. */
struct ax_plan_stage {
    struct ax_mesh mesh; /* the place of that rank */
    uint64_t arena;      /* bytes, also of evaluations */
    struct ax_plan plan; /* a step */
};

#define AX_PLAN_MODES (AX_RECOMPUTE_ON + 1)
struct ax_plan_figures {
    struct ax_plan plans[AX_PLAN_MODES]; /* for the modes first … last */
    enum ax_recompute chosen;            /* the mode that a run would use */
    int n_stages;
    struct ax_plan_stage *stages;      /* stages of a mesh, recomputing as chosen; NULL: one rank */
    struct ax_train_forecast forecast; /* forecast of a config; for a model only its memory */
    struct ax_plan_time time;          /* if rates are given */
    double peak_flops;                 /* per second, measured; 0: a speed was given, or rates */
    double speed;                      /* tokens per second */
};
enum ax_status ax_plan_figures_make(struct ax_plan_figures *f, const struct ax_plan_request *r);
void ax_plan_figures_free(struct ax_plan_figures *f);

/* On the machine of the rates: chooses step->recompute among the request's modes, the first that fits
 * if there are several, and takes memory and speed from there. */
enum ax_status ax_plan_figures_time(struct ax_plan_figures *f, const struct ax_plan_request *r,
                                    struct ax_step_options *step);
/* Tokens of all data ranks; a plan is one rank's. */
int64_t ax_plan_step_tokens(const struct ax_plan_request *r, const struct ax_plan *p);

#endif
