/* The figures of `axtrain plan` for a model or a configuration.
 *
 * Reading order: figures.c (dry runs and counts), print.c (ten lines for a person), mesh.c (two
 * tables of a mesh), time.c (the time of a step on another machine; hardware.c and tsv.c read
 * which), json.c (the same for programs). Beside them, search.c looks for the best mesh. The
 * command is cmd/plan.c. */
#ifndef AX_CMD_PLAN_PLAN_H
#define AX_CMD_PLAN_PLAN_H

#include "base/text/json.h"
#include "optim/plan/plan_time.h"
#include "optim/train/train.h"

/* The run to plan. */
struct ax_plan_request {
    const char *name, *masters, *optimizer;
    const char *output_dir; /* for a configuration */
    const char *uncounted;  /* why the data are not counted; NULL = they are */
    bool streamed;          /* data is streamed, and its length unknown */
    const struct ax_arch *arch;
    const struct ax_train_options *train; /* for a configuration; NULL: only a model */
    struct ax_runtime_options runtime;
    struct ax_step_options step;
    int64_t sequences, sequence_tokens;  /* sizes of a micro-batch */
    const struct ax_train_stage *stages; /* for a configuration: [pp] */
    enum ax_recompute first, last;       /* the modes to plan, first to last */
    double speed;                        /* tokens per second, if given; 0: measured */
    /* rates of the machine whose time is planned; NULL: none */
    const struct ax_rates *rates;
    const char *timeline; /* file to write the planned timeline to, or NULL */
    bool json, blocks;
};

/* A full step runs at this share of the measured matrix speed: attention, memory traffic and the
 * optimizer take the rest (docs/results/step.md). */
#define AX_PLAN_STEP_SHARE 0.75

/* A pipeline stage, planned for the rank that needs most memory. */
struct ax_plan_stage {
    struct ax_mesh mesh; /* mesh of that rank */
    uint64_t arena;      /* bytes, also of evaluations */
    struct ax_plan plan; /* plan of a step */
};

#define AX_PLAN_MODES (AX_RECOMPUTE_ON + 1)
struct ax_plan_figures {
    struct ax_plan plans[AX_PLAN_MODES]; /* plans of the recompute modes first … last */
    enum ax_recompute chosen;            /* the mode that a run would use */
    int n_stages;
    /* stages of a mesh, with the chosen recompute; NULL: one rank */
    struct ax_plan_stage *stages;
    /* forecast of a configuration's run; for a model, only memory */
    struct ax_train_forecast forecast;
    struct ax_plan_time time; /* if rates are given */
    double peak_flops;        /* per second, measured; 0: a speed was given, or rates */
    double speed;             /* tokens per second */
};
enum ax_status ax_plan_figures_make(struct ax_plan_figures *f, const struct ax_plan_request *r);
void ax_plan_figures_free(struct ax_plan_figures *f);

/* Plans the time on the machine of the rates: chooses step->recompute among the request's modes,
 * the first that fits if there are several, and takes memory and speed from that machine. */
enum ax_status ax_plan_figures_time(struct ax_plan_figures *f, const struct ax_plan_request *r,
                                    struct ax_step_options *step);
void ax_plan_print_time(const struct ax_plan_request *r, const struct ax_plan_figures *f);
json_t *ax_plan_time_json(const struct ax_plan_request *r, const struct ax_plan_figures *f);

void ax_plan_print_mesh(const struct ax_plan_figures *f);
void ax_plan_print(const struct ax_plan_request *r, const struct ax_plan_figures *f);
enum ax_status ax_plan_print_json(const struct ax_plan_request *r, const struct ax_plan_figures *f);

/* Tokens per step on all data ranks; a plan is one rank's. */
int64_t ax_plan_step_tokens(const struct ax_plan_request *r, const struct ax_plan *p);

#endif
