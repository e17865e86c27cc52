/* Small models and batches that several tests train on. */
#ifndef AX_TESTS_TINY_H
#define AX_TESTS_TINY_H

#include <string.h>

#include "optim/step/step.h"

/* KV heads of 4 attention heads: latent attention has as many. */
static inline int tiny_kv_heads(const char *model_type) {
    const bool latent = strncmp(model_type, "deepseek", 8) == 0 ||
                        strncmp(model_type, "kimi", 4) == 0 || strstr(model_type, "dsa") != NULL ||
                        strcmp(model_type, "glm4_moe_lite") == 0 ||
                        strcmp(model_type, "mistral4") == 0;
    return latent ? 4 : 2;
}

/* A tiny config.json of the given model_type, tied or not; `extra` is more JSON members ("" or
 * ", \"sliding_window\": 8"). */
enum ax_status tiny_arch(struct ax_arch *arch, const char *model_type, bool tied,
                         const char *extra);

/* Step options for `n_micro` micro-batches of documents with these lengths (ends with 0). */
struct ax_step_options tiny_options(enum ax_dtype dtype, enum ax_recompute recompute, int n_micro,
                                    const int64_t *lengths);
/* Fills every micro-batch with random documents (labels of a classifier: its own): document d of the step is the same for the same
 * seed, however documents are spread over micro-batches. About a third of the labels are masked and
 * weights differ. */
enum ax_status tiny_fill(struct ax_step *s, const int64_t *lengths, uint64_t seed);

/* Runs n steps at rate 1e-2, each on documents of its own; rank 0 keeps their losses and gradient norms, unless it
 * plans. */
enum ax_status tiny_take_steps(struct ax_step *s, const int64_t *lengths, int n, double *loss,
                               double *norm);

/* Starts a model's adapters (none: nothing) and moves them off their start, so that all have an
 * effect. */
enum ax_status tiny_adapters(struct ax_model *m, uint64_t seed);

/* Adds this rank's masters to a checksum. */
enum ax_status tiny_hash_masters(const struct ax_step *s, uint64_t *hash);

/* Runs `steps` steps of a fresh random model and returns a checksum of every master and gradient
 * after the last one's gradients (so: gradients of step `steps`, masters after steps − 1), the loss
 * and the norm. */
struct tiny_run {
    const struct ax_arch *arch;
    struct ax_step_options o;
    const int64_t *lengths;
    int steps;
    uint64_t seed;
    bool want_grads;
    /* out */
    double *grad_values; /* [n_grads] if wanted, in parameter order; ax_free */
    int64_t n_grads;
    double loss, grad_norm;
    uint64_t grads, masters; /* hashes */
    struct ax_arena_plan plan;
    uint64_t fallbacks;   /* ops that ran on ref instead of the backend asked for */
    uint64_t allocations; /* calls of the allocator in the steps after the first two */
};
enum ax_status tiny_run(struct tiny_run *t, const char *backend, int threads);
/* Creates its step and no more, for what is refused; ctx: a struct tiny_run. */
enum ax_status tiny_create(struct ax_runtime *rt, void *ctx);

#endif
