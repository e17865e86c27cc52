/* One micro-batch's pass through the model, as its parts see it (model/pass.h runs it). */
#ifndef AX_MODEL_CORE_PASS_H
#define AX_MODEL_CORE_PASS_H

#include "model/core/kvcache.h"
#include "model/core/later.h"
#include "model/core/model.h"
#include "model/core/sample.h"

/* Rows of a model with n streams, of which row t·n + j is token t's stream j (parts/streams.h): `own` [T][n], and n times
 * that, `all` [T·n][n]: the streams of the row's token; `token` [T·n]: the number of the row's token. */
struct ax_stream_rows {
    struct ax_tensor own, all, token; /* no data = one stream */
};

/* Keys and values of a layer that later ones use (lent.h), and sums of their gradients. */
struct ax_lent {
    struct ax_tensor k, v;   /* compute [T][heads·head_dim]; no data = this pass has none */
    struct ax_tensor dk, dv; /* accumulation; only with backward */
};

/* The activations of one micro-batch: its stack, a frame per unit, the residual stream between
 * units, and the residual stream's gradient during backward. */
struct ax_slot {
    struct ax_stack *stack;
    size_t mark;
    struct ax_frame *frames; /* [n_units] */
    struct ax_tensor *
        residual; /* [n_units]: the stream x after unit u, accumulation [T][D] or, of n streams, [T][n·D] */
    /* the chunk's residuals in the host tier between forward and backward; the device then has two
     * alternating buffers. NULL = they stay on the device */
    void AX_DEVICE **away;
    uint64_t moved[2];     /* tickets of the last copy of each buffer */
    struct ax_tensor grad; /* gradient of a residual, of the same shape; only with backward */
    /* a gradient [T][D] of the residual stream in compute dtype (norm.h), and the one that it already holds, or
     * NULL; only with backward, and where the dtypes differ */
    struct ax_tensor narrow;
    const void AX_DEVICE *narrowed;
    /* what the layer for multi-token prediction makes, accumulation [T][D]; after the head its gradient.
     * Only with backward */
    struct ax_tensor ahead;
    struct ax_expert_rounds *expert_rounds; /* [n_layers]; NULL = no experts */
    struct ax_later later;                  /* for halved backwards */
    struct ax_tensor
        per_layer; /* compute [layers·T][width]: inputs of the layers from the pass's first on; in backward,
                      of each that is done its gradient (parts/per_layer.h); no data = none */
    struct ax_stream_rows streams;
    struct ax_lent *lent;         /* [n_layers] */
    struct ax_tensor load, slope; /* for the routers: see parts/router.h */
    bool balanced;                /* slope has been computed */
    /* what the last indexer has chosen (parts/indexer.h); without backward, the memory of all choices */
    struct ax_tensor choice;
};
/* Results of the head for rows [first, first + n) of the batch's `rows`, and the requested
 * gradients. */
struct ax_head_chunk {
    int64_t first, n;
    struct ax_tensor logprob, lse, entropy; /* accumulation [n], in */
    struct ax_tensor lse_rest;              /* what rounding took from lse */
    struct ax_tensor mean_logprob;          /* mean over the vocabulary; if requested */
    /* [n][columns of the vocabulary on this rank]; linear objectives only */
    struct ax_tensor logits;
    struct ax_tensor g_logprob; /* accumulation [n], out */
    /* accumulation [n], out, if requested; else data NULL */
    struct ax_tensor g_lse, g_entropy, g_mean;
    /* divergence from the teacher (in) and its gradient (out); if there is a teacher */
    struct ax_tensor divergence, g_divergence;
};

struct ax_pass;
struct ax_distill_options; /* head.h */
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
    const struct ax_distill_options *distill; /* for a linear objective with a teacher; else NULL */
    enum ax_status (*token_grad)(void *ctx, struct ax_pass *pass, const struct ax_head_chunk *c);
    void *ctx;
};

struct ax_pass {
    struct ax_model *model;
    struct ax_batch *batch;
    struct ax_slot *slot;
    /* index of the stage's chunk whose units it runs; ax_pass_forward_all runs all units */
    int chunk;
    bool halves; /* backward leaves gradients of weights to ax_pass_weights (later.h) */
    struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_step_measures AX_DEVICE *measures; /* for objectives on documents; else unused */
    enum ax_recompute recompute;
    const struct ax_head_objective *objective; /* NULL: no head results are requested */
    /* states of this micro-batch, for an objective with a teacher */
    const struct ax_teacher_states *teacher;
    double inv_temperature; /* factor of the logits; 1 = none */
    /* how labels were drawn, which may truncate the logits; not with a teacher */
    struct ax_sampling sampling;
    /* coefficient of the routers' balancing loss (parts/router.h); 0 = none */
    double balance_coef;
    /* coefficient of the routers' loss by sequence (parts/router.h); 0 = none */
    double sequence_coef;
    /* coefficient of the indexers' loss (parts/index_training.h), for a model whose indexers train */
    double index_coef;
    double neftune_alpha; /* NEFTune noise on the embeddings; 0 = none */
    /* weight of the loss of multi-token prediction, for a model that predicts; and scalars of their own,
     * of which `loss` gets that loss before its weight (model/parts/head.c) */
    double ahead_coef;
    struct ax_step_scalars AX_DEVICE *ahead_scalars;
    struct ax_kvcache *cache; /* decoding; NULL otherwise */
    /* For checks: called with intermediate tensors ("hidden" before layer i, "middle" after its
     * attention, "mixer_out" and "ffn_out" before a norm on them, "router_logits", "router_experts"
     * and "router_weights" of its router, "chosen" by its indexer, "norm" after the final norm, "ahead"
     * after that of the layer for multi-token prediction; in backward "gradient" and "narrow gradient", a
     * branch's of the residual stream, with no layer). */
    void (*tap)(void *ctx, const char *what, int layer, const struct ax_tensor *t);
    void *tap_ctx;
};

#endif
