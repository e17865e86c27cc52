/* Optimizers: their state for a parameter, and one update of one parameter. optimizer.c has the
 * names, state.c the parameters' state. */
#ifndef AX_OPTIM_OPTIMIZERS_OPTIMIZER_H
#define AX_OPTIM_OPTIMIZERS_OPTIMIZER_H

#include "ckpt/state/state.h"
#include "kernels/queue.h"

#define AX_MAX_STATE 4

/* Storage of moments: accumulation dtype; bfloat16, rounded stochastically or to nearest; or 8-bit
 * codes with a scale per block. */
enum ax_moments { AX_MOMENTS_FULL, AX_MOMENTS_BF16, AX_MOMENTS_BF16_NEAREST, AX_MOMENTS_8BIT };
/* float32, bfloat16, bfloat16_nearest, int8; AX_ERR_CONFIG lists them. */
enum ax_status ax_moments_parse(const char *name, enum ax_moments *out);
/* The i-th name; NULL after the last. */
const char *ax_moments_name(size_t i);

struct ax_optimizer_options {
    double beta1, beta2, eps; /* adamw, lion; muon: for the parameters AdamW updates */
    double momentum;          /* sgd, muon */
    bool nesterov;
    double weight_decay;     /* for parameters that decay */
    bool keeps_tables;       /* embedding, head and their adapters do not decay */
    enum ax_moments moments; /* adamw: all; lion: not 8 bits */

    /* adafactor; eps is the smaller of its two */
    double eps2, decay_rate, clip_threshold;
    bool scale_parameter;
    bool torch_rule; /* torch.optim.Adafactor, else that of transformers */

    /* muon */
    int ns_steps; /* Newton–Schulz iterations */
    /* updates as large as AdamW's (0.2·√max(rows, cols)), else √max(1, rows/cols) */
    bool match_rms;
};

/* This rank's part of a parameter. */
struct ax_piece {
    int64_t n;          /* elements */
    int64_t rows, cols; /* shape of a matrix that is stored unsharded here; else 0 */
    int64_t phase;      /* elements of its first 8-bit block that precede the piece */
    bool hidden;        /* a matrix inside a layer: neither embedding nor head */
    enum ax_dtype accum;
};

struct ax_slot_size {
    const char *name; /* "exp_avg" */
    enum ax_dtype dtype;
    int64_t numel;
    enum ax_state_layout layout;
};

/* One parameter's part in this rank's shard. master, grad, copy and remainder are 1-D with the same
 * length; copy and remainder may be absent (kernels/ops.h: the ways to keep weights). */
struct ax_update {
    struct ax_tensor master, grad, copy, remainder;
    struct ax_tensor state[AX_MAX_STATE];
    struct ax_piece piece;
    struct ax_draw draw;
    double weight_decay;
    const struct ax_step_scalars AX_DEVICE *scalars;
};

/* How much of a parameter must be on one rank for an update. */
enum ax_optimizer_scope { AX_SCOPE_ELEMENT, AX_SCOPE_BLOCK, AX_SCOPE_MATRIX };

struct ax_optimizer {
    const char *name;
    enum ax_optimizer_scope scope; /* block: with 8-bit moments; matrix: Muon, hidden matrices */
    void (*defaults)(struct ax_optimizer_options *o);
    /* The state the optimizer needs for this piece; returns the number of slots, at most
     * AX_MAX_STATE. */
    int (*slots)(const struct ax_optimizer_options *o, const struct ax_piece *p,
                 struct ax_slot_size *slots);
    /* Updates the weights. */
    enum ax_status (*update)(struct ax_queue *q, const struct ax_optimizer_options *o,
                             const struct ax_update *u);
};

/* The i-th name accepted for an optimizer; NULL past the last. */
const char *ax_optimizer_name(size_t i);
/* Finds it by its own name or one from axolotl or transformers (adamw_torch, adamw_bnb_8bit …); *o
 * gets that name's defaults. AX_ERR_CONFIG lists the names, or says what is not implemented. */
enum ax_status ax_optimizer_find(const char *name, const struct ax_optimizer **out,
                                 struct ax_optimizer_options *o);
/* AX_ERR_CONFIG for bf16 second moments rounded to nearest with β₂ > 0.995, which would stop
 * changing, and for moments that the optimizer does not have. */
enum ax_status ax_optimizer_check(const struct ax_optimizer *optimizer,
                                  const struct ax_optimizer_options *o);

extern const struct ax_optimizer ax_optimizer_adamw;     /* adamw.c */
extern const struct ax_optimizer ax_optimizer_sgd;       /* sgd.c */
extern const struct ax_optimizer ax_optimizer_lion;      /* lion.c */
extern const struct ax_optimizer ax_optimizer_adafactor; /* adafactor.c */
extern const struct ax_optimizer ax_optimizer_muon;      /* muon.c */

/* In place, Newton–Schulz of x [R][C], whose norm is at most 1: five steps bring its singular
 * values near 1. x is overwritten. Scratch comes from the queue's. */
enum ax_status ax_muon_orthogonalize(struct ax_queue *q, int steps, struct ax_tensor *x);

#endif
