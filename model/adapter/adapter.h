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
 * Reading order: match.c (which modules), adapter.c (forward and backward of one matrix), embed.c
 * (embedding and head), experts.c (experts), attach.c (their parameters, while a model is built),
 * load.c (initial values, PEFT folders), pissa.c (another initialization), restart.c (merging and
 * starting anew), bank.c (several to choose from). The first four know a model's units and ops;
 * linear.c, head.c, pass.c and moe.c call them. The others know the model; model.c and the layers
 * above it call them. */
#ifndef AX_MODEL_ADAPTER_ADAPTER_H
#define AX_MODEL_ADAPTER_ADAPTER_H

#include "model/adapter/match.h"
#include "parallel/unit.h"

/* Per-pass state, shared by all adapters of a model. */
struct ax_adapter_run {
    struct ax_runtime *rt;
    const struct ax_step_scalars AX_DEVICE *scalars; /* seed and step of the dropout streams */
    int64_t first_row;     /* index of the batch's first row in its step */
    struct ax_tensor rows; /* i32: which rows of the sequence these are; data NULL: from the first
                              on */
    bool training;         /* dropout applies */
    bool off;              /* the base alone, for passes without a gradient; set by the caller */
};

/* The adapter of one weight matrix; a == NULL: none. */
struct ax_adapter {
    const struct ax_adapter_run *run;
    const struct ax_unit *unit;
    const struct ax_param *weight;            /* the matrix it belongs to */
    const struct ax_param *a, *b, *magnitude; /* magnitude NULL: no DoRA */
    double scale, dropout;
    uint32_t stream; /* of its dropout */
    bool own_rows;   /* its rows are this rank's of tp, else all */
};

/* Does the matrix have one, and is it in use? */
static inline bool ax_adapter_is_on(const struct ax_adapter *a) {
    return a->a && !(a->run && a->run->off);
}
/* True if y = g∘(…) applies in this pass. Then ax_adapter_forward adds bias and addend after it;
 * else y already contains them. */
bool ax_adapter_scales(const struct ax_adapter *a);

/* What calls of one linear share, in scratch. */
struct ax_adapter_shared {
    struct ax_tensor scale, inverse; /* accumulation [out]: g and 1/‖V‖; data NULL without DoRA */
    struct ax_tensor up;             /* compute [T][r]: s·(g∘dy)·B; data NULL in forward */
};
/* T: rows of backward; −1: forward. dtype: compute. */
void ax_adapter_share(const struct ax_adapter *a, enum ax_dtype dtype, int64_t T,
                      struct ax_adapter_shared *out);
/* Sets scale and inverse; w [out][in] is unsharded. Without DoRA does nothing. */
enum ax_status ax_adapter_measure(const struct ax_adapter *a, const struct ax_tensor *w,
                                  const struct ax_adapter_shared *shared);

/* Forward of one matrix for T rows, which follow `first` others of the linear's. w [out][in] is unsharded. */
struct ax_adapter_forward {
    const struct ax_adapter_shared *shared; /* measured */
    struct ax_tensor x, w;                  /* x [T][in] */
    struct ax_tensor y;            /* [T][out], in: x·wᵀ [+ bias + addend], out: the result */
    struct ax_tensor bias, addend; /* data NULL = none; see ax_adapter_scales */
    int64_t first;
};
enum ax_status ax_adapter_forward(const struct ax_adapter *a, const struct ax_adapter_forward *f);

/* out [out][in] = w + s·B·A, or with DoRA g∘(w + s·B·A), with the bits of a merged file; of an adapter
 * without dropout. out may be w. */
enum ax_status ax_adapter_merge(const struct ax_adapter *a, const struct ax_tensor *w,
                                const struct ax_tensor *out);

/* Backward is _inputs, for all rows or some at a time, and then _weights for all of them. */
struct ax_adapter_backward {
    const struct ax_adapter_shared *shared; /* measured */
    struct ax_tensor x, w, dy;
    struct ax_tensor dv; /* [T][out]: g∘dy with DoRA, else dy */
    struct ax_tensor
        dx; /* [T][in], in: dv·w (of dropout with DoRA dy·w), out: the gradient; data NULL =
                            not requested */
    int64_t first;
};
/* Sets the rows of `up`, and adds the adapter's contribution to dx; x is not read. */
enum ax_status ax_adapter_backward_inputs(const struct ax_adapter *a,
                                          const struct ax_adapter_backward *b);
/* Gradients of A, B and m; w is read by the latter alone, dx not at all. */
enum ax_status ax_adapter_backward_weights(const struct ax_adapter *a,
                                           const struct ax_adapter_backward *b);
/* dv = g∘dy. */
enum ax_status ax_adapter_scale(const struct ax_adapter *a, const struct ax_adapter_shared *shared,
                                const struct ax_tensor *dy, const struct ax_tensor *dv);

struct ax_arch;
struct ax_hf;
struct ax_model;
struct ax_pass;

/* For the embedding and the head (embed.c); no-ops without adapters there. out [T][D], before ranks
 * are summed: += the adapter's contribution. */
enum ax_status ax_adapter_embed_forward(const struct ax_pass *p, const struct ax_tensor *out);
enum ax_status ax_adapter_embed_backward(const struct ax_pass *p, const struct ax_tensor *stream);
/* For `rows` of the batch (i32; data NULL: without dropout): logits += … and dhidden += …; w is the
 * head's matrix. */
enum ax_status ax_adapter_head_forward(const struct ax_pass *p, const struct ax_tensor *rows,
                                       const struct ax_tensor *hidden, const struct ax_tensor *w,
                                       const struct ax_tensor *logits);
enum ax_status ax_adapter_head_backward(const struct ax_pass *p, const struct ax_tensor *rows,
                                        const struct ax_tensor *hidden, const struct ax_tensor *w,
                                        const struct ax_tensor *dlogits,
                                        const struct ax_tensor *dhidden);

/* Initializes new adapters as config->start says, by counter RNG, and m = ‖W‖; except with
 * AX_LORA_RANDOM the model then equals its base. For PiSSA, call ax_adapter_pissa_start next. Call
 * after ax_model_load; also runs device work while planning. */
enum ax_status ax_adapter_init(struct ax_model *m, uint64_t seed);
/* Allocates the initial values of PiSSA adapters; a no-op for others. Part of ax_model_create. */
enum ax_status ax_adapter_pissa_allocate(struct ax_model *m);
/* Initializes PiSSA adapters and subtracts them from the base; hf is the base. A no-op for others
 * and while planning. */
enum ax_status ax_adapter_pissa_start(struct ax_model *m, const struct ax_hf *hf, uint64_t seed);
/* True if a folder stores, after a trained parameter's value along one dimension, the value it started
 * from (PiSSA); `shape` is then that of both, else the parameter's. *start is that value, whole on
 * every rank that has the parameter, else without data; *at is its place. */
bool ax_adapter_start(const struct ax_model *m, const struct ax_param *p,
                      int64_t shape[AX_MAX_DIMS], struct ax_tensor *start, struct ax_block *at);
/* Loads from a folder; errors name what is missing, of the wrong shape (another rank, another
 * model) or unexpected. Does nothing while planning. */
enum ax_status ax_adapter_load(struct ax_model *m, const struct ax_peft *peft);
/* The two halves of ax_adapter_load, for adapter `number` of a bank: the adapter's own tensors; and
 * those it has in place of the base's, which are marked in `replaced` [n_params] (`one`: embedding
 * and head are one matrix for it). Not while planning. */
enum ax_status ax_adapter_load_own(struct ax_model *m, const struct ax_peft *peft, int number);
enum ax_status ax_adapter_load_replaced(struct ax_model *m, const struct ax_peft *peft, int number,
                                        bool one, bool *replaced);
/* Sets arch's vocabulary if the adapter was trained with more tokens than the base has. */
void ax_adapter_vocabulary(struct ax_arch *arch, const struct ax_peft *peft);
/* Tensor name of a trained parameter in PEFT's file, in buf. */
const char *ax_adapter_tensor_name(const struct ax_param *p, char *buf, size_t size);
/* Writes the trainable parameters as a PEFT folder (one rank), in F32; anything else in `dtype`. */
enum ax_status ax_adapter_save(const struct ax_model *m, const char *dir, enum ax_dtype dtype);

#endif
