/* LoRA and its variants on the linears of a model (Hu et al. 2022):
 *
 *   y = x·Wᵀ + s·drop(x)·Aᵀ·Bᵀ      s = alpha/r, or alpha/√r with rsLoRA (Kalajdzievski 2023)
 *
 * W is frozen, possibly packed; A [r][in] and B [out][r] are trained. W + s·B·A is never built.
 * With DoRA (Liu et al. 2024) the rows of V = W + s·B·A are scaled to norms m [out], also trained:
 *
 *   y = g∘(x·Vᵀ), g = m/‖V‖ per row, no gradient through the norm;
 *   with dropout, as in PEFT, y = x·Wᵀ + g∘(drop(x)·Vᵀ) − drop(x)·Wᵀ
 *
 * A dropout mask is a function of the token and column of the entire step, so backward and recompute
 * draw it again instead of storing it, and it is the same on any mesh.
 *
 * Reading order: match.c (which modules), adapter.c (forward and backward of one matrix), embed.c
 * (embedding and head), experts.c (experts), attach.c (their parameters, while a model is built),
 * load.c (initial values, PEFT folders, several to choose from), pissa.c (another initialization),
 * restart.c (merging and starting anew). The first four know a model's units and ops;
 * linear.c, head.c, pass.c and moe.c call them. The others know the model; model.c and the layers
 * above it call them. */
#ifndef AX_MODEL_LORA_ADAPTER_H
#define AX_MODEL_LORA_ADAPTER_H

#include "model/lora/match.h"
#include "parallel/units/unit.h"

struct ax_saved; /* model/core/stash.h */

/* Per-pass state, shared by all adapters of a model. */
struct ax_adapter_run {
    struct ax_runtime *rt;
    const struct ax_step_scalars AX_DEVICE *scalars; /* seed and step of the dropout streams */
    int64_t first_row;     /* index of the batch's first row in its step */
    struct ax_tensor rows; /* i32: index of each row in the sequence; data NULL: 0, 1, … */
    bool training;         /* dropout applies */
    /* x·Aᵀ of the running layer's linears, by their `place`, from forward to backward; NULL: none is
     * kept */
    struct ax_saved *kept;
    /* no adapter applies (the base alone), for passes without a gradient; set by the caller */
    bool off;
};

/* The adapter of one weight matrix; a == NULL: none. */
struct ax_adapter {
    const struct ax_adapter_run *run;
    const struct ax_unit *unit;
    const struct ax_param *weight;            /* the matrix that it adapts */
    const struct ax_param *a, *b, *magnitude; /* magnitude NULL: no DoRA */
    double scale, dropout;
    uint32_t stream; /* random stream of its dropout */
    bool own_rows;   /* its rows are only those of this rank of tp, else all */
};

/* True if the matrix has an adapter and it is in use. */
static inline bool ax_adapter_is_on(const struct ax_adapter *a) {
    return a->a && !(a->run && a->run->off);
}
/* True if y = g∘(…) applies in this pass. Then ax_adapters_forward adds bias and addend after it;
 * else y already contains them. */
bool ax_adapter_scales(const struct ax_adapter *a);

/* Columns of x·Aᵀ; 0 without an adapter. */
int64_t ax_adapter_rank(const struct ax_adapter *a);

/* Tensors that calls for one matrix share. */
struct ax_adapter_shared {
    struct ax_tensor scale, inverse; /* accumulation [out]: g and 1/‖V‖; data NULL without DoRA */
    /* compute [T][r], of matrices that read one input columns of one tensor: x·Aᵀ, and in backward
     * s·(g∘dy)·B */
    struct ax_tensor low, up;
};
/* Allocates scale and inverse in scratch; the caller sets low and up. dtype: compute. */
void ax_adapter_share(const struct ax_adapter *a, enum ax_dtype dtype,
                      struct ax_adapter_shared *out);
/* Sets scale and inverse; w [out][in] is unsharded. Without DoRA does nothing. */
enum ax_status ax_adapter_measure(const struct ax_adapter *a, const struct ax_tensor *w,
                                  const struct ax_adapter_shared *shared);

/* One of the matrices that read an input, and its columns of the output. */
struct ax_adapter_part {
    const struct ax_adapter *adapter;       /* a == NULL: none, and nothing is done */
    const struct ax_adapter_shared *shared; /* measured */
    struct ax_tensor w;                     /* [out][in], unsharded */
    /* forward: [T][out], in: x·wᵀ [+ bias + addend], out: the result; see `writes` */
    struct ax_tensor y;
    struct ax_tensor bias, addend; /* data NULL = none; see ax_adapter_scales */
    struct ax_tensor dy;           /* backward: [T][out] */
    struct ax_tensor dv;           /* [T][out]: g∘dy with DoRA, else dy */
};
/* A call for a linear's matrices that are multiplied as one. Without dropout, of which each draws
 * its own, there is one product for all of their A's with x, one for dx, and one for the gradients
 * of A, if the A's are contiguous (ax_param_follows). */
struct ax_adapter_call {
    int n;
    const struct ax_adapter_part *parts; /* [n] */
    struct ax_tensor x;                  /* [T][in] */
    /* [T][in], in: dv·w of all (of dropout with DoRA dy·w), out: the gradient; data NULL = not
     * requested; see `writes` */
    struct ax_tensor dx;
    /* y, not with DoRA, or dx is written with the adapters' contribution alone: the caller adds the
     * rest to it */
    bool writes;
    int64_t first; /* the first of these rows among the linear's */
    bool projects; /* `low` is computed; else it has been */
};
enum ax_status ax_adapters_forward(const struct ax_adapter_call *c); /* all must be in use */
/* Backward is _inputs for all rows, or for some at a time; and then _weights for all of them. */
/* Sets the rows of `up`, and dx; x is not read. */
enum ax_status ax_adapters_backward_inputs(const struct ax_adapter_call *c);
/* Gradients of A, B and m. Reads w only for m, and does not use dx. */
enum ax_status ax_adapters_backward_weights(const struct ax_adapter_call *c);

/* out [out][in] = w + s·B·A, or with DoRA g∘(w + s·B·A), with the bits of a merged file; only for
 * an adapter without dropout. out may be w. */
enum ax_status ax_adapter_merge(const struct ax_adapter *a, const struct ax_tensor *w,
                                const struct ax_tensor *out);

/* dv = g∘dy. */
enum ax_status ax_adapter_scale(const struct ax_adapter *a, const struct ax_adapter_shared *shared,
                                const struct ax_tensor *dy, const struct ax_tensor *dv);

#endif
