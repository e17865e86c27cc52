/* The dry run of a step: the step's own code on the meta backend, and its counts. */
#ifndef AX_OPTIM_PLAN_PLAN_H
#define AX_OPTIM_PLAN_PLAN_H

#include "kernels/recording.h"
#include "optim/step/step.h"

#define AX_PLAN_MAX_BLOCKS (4 * AX_ARENA_MAX_NAMES)

struct ax_plan_block {
    const char *name;
    const char *where; /* "persistent", "activations" (slots), "scratch", or "host": its tier */
    size_t bytes;      /* at its stack's high-water mark; activations: of all slots together */
};

/* Largest first. */
struct ax_plan_blocks {
    int n;
    struct ax_plan_block list[AX_PLAN_MAX_BLOCKS];
};
/* Lists what an arena has held at its high-water marks. */
void ax_plan_list_blocks(struct ax_plan_blocks *out, const struct ax_arena *arena);

struct ax_plan {
    struct ax_arena_plan arena;
    uint64_t beside; /* bytes beside it, about (ax_backend_beside) */
    struct ax_plan_blocks blocks;
    int64_t parameters;
    int64_t tokens;                            /* per step and rank */
    double flops, gemm_flops, attention_flops; /* executed per step, recompute included */
    /* FLOPs per step by ax_model_flops_per_token; an even share among ranks that compute the same
     * tokens */
    double model_flops;
    double model_flops_full; /* the same if attention had no mask, which is how many papers count */
    /* bytes that this rank sends in a step */
    double bytes_sent[AX_ROLE_COUNT][AX_COLLECTIVE_COUNT];
    int n_layers; /* layers of this rank's stage */
    bool has_embedding, has_head;
    int n_actions;
    double idle; /* share of the step in which pipeline stages wait for each other */
};

enum ax_status ax_plan_make(struct ax_plan *plan, const struct ax_runtime_options *ro,
                            const struct ax_arch *arch, const struct ax_step_options *so);
/* The same, and records everything that the step enqueues (recording NULL: nothing). */
enum ax_status ax_plan_record(struct ax_plan *plan, struct ax_recording *recording,
                              const struct ax_runtime_options *ro, const struct ax_arch *arch,
                              const struct ax_step_options *so);

#endif
