/* Samples: prompts that the model continues at each evaluation during training, for users to read.
 * It runs in the arena's rollout phase, whose size is part of the plan; random numbers are
 * functions of seed, prompt and position. So training is bit-identical with and without samples,
 * and samples differ between evaluations only because of the weights. */
#ifndef AX_OPTIM_METRICS_SAMPLES_H
#define AX_OPTIM_METRICS_SAMPLES_H

#include "model/generate/generate.h"

struct ax_sample_prompt {
    int64_t n;
    const int32_t *ids;
};

struct ax_samples {
    int n;                                  /* 0: none */
    const struct ax_sample_prompt *prompts; /* [n]; not read while planning */
    int64_t max_prompt, max_new;
    struct ax_sampling sampling;
    int n_stop;
    const int32_t *stop; /* ids that end an answer */
    /* Appends the text of tokens to `out`. */
    enum ax_status (*text)(void *ctx, const int32_t *ids, int64_t n, struct ax_buf *out);
    void *ctx;
};

/* Continues all prompts; calls `done` for each, in order. Enters AX_PHASE_ROLLOUT and returns to
 * the previous phase; scratch and slots must be empty. The model's max_positions must be at least
 * max_prompt + max_new. If a rank is asked to stop, returns early: `done` gets only complete answers.
 * On a mesh the data ranks share the prompts. */
enum ax_status ax_samples_run(struct ax_model *m, const struct ax_samples *s,
                              void (*done)(void *ctx, int i, const struct ax_sequence *answer),
                              void *ctx);

#endif
