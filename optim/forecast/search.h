/* The fastest meshes that fit, of those that simple rules leave and whose estimates are best: not all are simulated. */
#ifndef AX_OPTIM_FORECAST_SEARCH_H
#define AX_OPTIM_FORECAST_SEARCH_H

#include "optim/forecast/figures.h"

/* A way to run the same step: the same sequences, on all ranks. */
struct ax_search_choice {
    struct ax_mesh_sizes sizes;
    int64_t rows; /* sequences of a micro-batch */
    enum ax_recompute recompute;
    enum ax_cp_method cp_method;
    struct ax_plan_time time;
};

#define AX_SEARCH_LEAST_TOKENS 4096 /* tokens of a sequence on a rank of cp */

/* Why others are left out. */
enum ax_search_reason {
    AX_SEARCH_TP_FAR,   /* tp is larger than a node */
    AX_SEARCH_CP_SHORT, /* cp leaves a rank too little of a sequence */
    AX_SEARCH_REPLICAS, /* replicas of sizes between one node, eight, and all ranks of a stage */
    AX_SEARCH_EXPERTS,  /* experts over less than a node */
    AX_SEARCH_PIPELINE, /* fewer micro-batches or layers than stages */
    AX_SEARCH_BATCH,    /* the step's sequences do not divide */
    AX_SEARCH_MODEL,    /* the model cannot be split so */
    AX_SEARCH_STATES,   /* weights and optimizer state alone do not fit */
    AX_SEARCH_MEMORY,   /* it does not fit, even with recompute */
    AX_SEARCH_SLOWER,   /* it fits, and is slower */
    AX_SEARCH_REASONS
};

#define AX_SEARCH_BEST 3
struct ax_search {
    int n; /* number of entries in best, the fastest first */
    struct ax_search_choice best[AX_SEARCH_BEST];
    int left_out[AX_SEARCH_REASONS];
    int tried; /* meshes */
    double seconds;
};

/* Over the request's ranks, sequences per step and machine. s->n = 0: nothing fits. */
enum ax_status ax_search_run(struct ax_search *s, const struct ax_plan_request *r);

#endif
