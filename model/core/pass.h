/* One micro-batch's pass through the model, as its parts see it (model/pass.h runs it). */
#ifndef AX_MODEL_CORE_PASS_H
#define AX_MODEL_CORE_PASS_H

#include "model/core/kvcache.h"
#include "model/core/later.h"
#include "model/core/model.h"
#include "model/core/truncation.h"

/* The activations of one micro-batch: its stack, a frame per unit, the residual stream between
 * units, and the residual stream's gradient during backward. */
struct ax_slot {
    struct ax_stack *stack;
    size_t mark;
    struct ax_frame *frames;    /* [n_units] */
    struct ax_tensor *residual; /* [n_units]: x after unit u, accumulation [T][D] */
    void AX_DEVICE **away; /* the chunk's residuals in the host tier between forward and backward,
                              while the device has two in turns; NULL = on the device */
    struct ax_tensor grad; /* accumulation [T][D]; only with backward */
    struct ax_expert_rounds *expert_rounds; /* [n_layers]; NULL = no experts */
    struct ax_later later;                  /* of halved backwards */
    struct ax_tensor load, slope;           /* of the routers: see balance.h */
    bool balanced;                          /* slope has been computed */
};
/* Results of the head for rows [first, first + n) of those that the batch lists, and the requested
 * gradients. */
struct ax_head_chunk {
    int64_t first, n;
    struct ax_tensor logprob, lse, entropy;    /* accumulation [n], in */
    struct ax_tensor mean_logprob;             /* over the vocabulary; if requested */
    struct ax_tensor logits;                   /* [n][V of this rank]; linear objectives only */
    struct ax_tensor g_logprob;                /* accumulation [n], out */
    struct ax_tensor g_lse, g_entropy, g_mean; /* likewise, if requested; else data NULL */
    struct ax_tensor divergence, g_divergence; /* from the teacher, in and out; if there is one */
};

struct ax_pass;
struct ax_distill_options; /* distill.h */
struct ax_teacher_states;  /* teacher.h */
/* The objective's work on a chunk: adds to the loss and sets g_*. A linear objective needs nothing
 * but the chunk itself, so loss and gradient take one pass over the vocabulary; any other is called
 * once, between forward and backward, with all tokens. */
struct ax_head_objective {
    bool linear;
    bool needs_entropy;                       /* g_lse and g_entropy are requested */
    bool needs_lse;                           /* g_lse is requested */
    bool needs_mean;                          /* mean_logprob and g_mean are requested */
    bool wants_mean;                          /* mean_logprob is requested */
    const struct ax_distill_options *distill; /* a linear one with a teacher; else NULL */
    enum ax_status (*token_grad)(void *ctx, struct ax_pass *pass, const struct ax_head_chunk *c);
    void *ctx;
};

struct ax_pass {
    struct ax_model *model;
    struct ax_batch *batch;
    struct ax_slot *slot;
    int chunk;   /* of the stage's: whose units it runs; forward_all runs all */
    bool halves; /* backward leaves what it can to ax_pass_weights (later.h) */
    struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_step_measures AX_DEVICE *measures; /* of objectives on documents; else unused */
    enum ax_recompute recompute;
    const struct ax_head_objective *objective; /* NULL: no head results are requested */
    const struct ax_teacher_states *teacher;   /* of an objective with one, of this micro-batch */
    double inv_temperature;                    /* on the logits; 1 = none */
    struct ax_sampling sampling; /* of labels, which may truncate the logits; not with a teacher */
    double balance_coef;         /* of the routers' balancing loss (balance.h); 0 = none */
    double sequence_coef;        /* of their loss by sequence (sequence_balance.h); 0 = none */
    double neftune_alpha;        /* NEFTune noise on the embeddings; 0 = none */
    struct ax_kvcache *cache;    /* decoding; NULL otherwise */
    /* For checks: called with intermediate tensors ("hidden" before layer i, "middle" after its
     * attention, "mixer_out" and "ffn_out" before a norm on them, "router_logits", "router_experts"
     * and "router_weights" of its router, "norm" after the final norm). */
    void (*tap)(void *ctx, const char *what, int layer, const struct ax_tensor *t);
    void *tap_ctx;
};

#endif
