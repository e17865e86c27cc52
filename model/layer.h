/* A layer from parts: norm → mixer → + → norm → ffn → +, each part a small table.
 *
 * Frames: each part declares its tensors from its own base index on; see stash.h. */
#ifndef AX_MODEL_LAYER_H
#define AX_MODEL_LAYER_H

#include "model/pass.h"

enum { AX_FRAME_LAYER = 0, AX_FRAME_MIXER = 5, AX_FRAME_FFN = 11 };

/* Collects a unit's parameters while a model is built. */
struct ax_builder {
    struct ax_model *model;
    const struct ax_arch *arch;
    const struct ax_mesh *mesh;
    int first;                            /* index of the unit's first parameter */
    bool *glue;                           /* for each of the unit's parameters */
    struct ax_param **list;               /* room for them */
    enum ax_store store;                  /* of the linears' matrices */
    const struct ax_peft_names *unfrozen; /* NULL: all */
    const struct ax_peft_config *adapter; /* whose parameters are being added, and */
    int number;                           /* which it is of the model's, from 1 */
};
struct ax_param_decl {
    const char *name;   /* printf format with one %d for the layer, or none */
    int64_t rows, cols; /* cols 0: a vector */
    int8_t tp_dim;      /* −1: replicated */
    bool glue;          /* directly behind its predecessor */
    bool expert;        /* a matrix of an expert, which lives on ep coordinate `ep_owner` */
    int ep_owner;
    uint32_t grad_partial_over;
};
/* Adds one and returns it (stable address). */
const struct ax_param *ax_builder_add(struct ax_builder *b, int layer,
                                      const struct ax_param_decl *decl);

/* Turns to adapter k of the model; false: it has no more. */
bool ax_builder_next_adapter(struct ax_builder *b, int k);

struct ax_mixer_type {
    const char *name;
    void (*init)(struct ax_builder *b, struct ax_layer *l);
    void (*declare)(const struct ax_layer *l, const struct ax_pass *p, struct ax_frame *f);
    /* out [T][D] = x + mixer(h); out NULL: only what backward needs again. Makes what is missing.
     */
    enum ax_status (*forward)(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                              const struct ax_tensor *h, const struct ax_tensor *x,
                              const struct ax_tensor *out);
    /* dh = gradient for h (NULL: not wanted), given dy for the mixer's output. */
    enum ax_status (*backward)(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                               const struct ax_tensor *h, const struct ax_tensor *dy,
                               const struct ax_tensor *dh);
};

struct ax_ffn_type {
    const char *name;
    void (*init)(struct ax_builder *b, struct ax_layer *l);
    void (*declare)(const struct ax_layer *l, const struct ax_pass *p, struct ax_frame *f);
    enum ax_status (*forward)(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                              const struct ax_tensor *h, const struct ax_tensor *x,
                              const struct ax_tensor *out);
    enum ax_status (*backward)(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                               const struct ax_tensor *h, const struct ax_tensor *dy,
                               const struct ax_tensor *dh);
};

extern const struct ax_mixer_type ax_mixer_attention; /* attention.c */
extern const struct ax_ffn_type ax_ffn_swiglu;        /* mlp.c */
extern const struct ax_ffn_type ax_ffn_moe;           /* moe.c */

#define AX_LAYER_MAX_LINEARS 8
/* The layer's linears, in reading order; returns how many. */
int ax_layer_linears(struct ax_layer *l, struct ax_linear *out[AX_LAYER_MAX_LINEARS]);
/* AX_ERR_CONFIG: what the adapter asks for does not fit. */
enum ax_status ax_layer_init(struct ax_builder *b, struct ax_layer *l);
void ax_layer_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_frame *f);
/* out = layer(x); out NULL: recompute for backward. */
enum ax_status ax_layer_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                const struct ax_tensor *x, const struct ax_tensor *out);
/* dx: in the gradient of the layer's output, out that of its input. */
enum ax_status ax_layer_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                 const struct ax_tensor *x, const struct ax_tensor *dx);

/* RMSNorm with the arch's eps; w is a parameter of `unit`. See norm.c. */
enum ax_status ax_norm_forward(struct ax_pass *p, const struct ax_unit *unit,
                               const struct ax_param *w, const struct ax_tensor *x,
                               const struct ax_tensor *y, const struct ax_tensor *rstd);
/* dx += (accumulate) or =; dw +=. */
enum ax_status ax_norm_backward(struct ax_pass *p, const struct ax_unit *unit,
                                const struct ax_param *w, const struct ax_tensor *dy,
                                const struct ax_tensor *x, const struct ax_tensor *rstd,
                                const struct ax_tensor *dx, bool accumulate);

#endif
