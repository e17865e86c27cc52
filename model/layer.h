/* A layer from parts: norm → mixer → + → norm → ffn → +, each part a small table.
 *
 * Frames: each part declares its tensors from its own base index on; see stash.h. */
#ifndef AX_MODEL_LAYER_H
#define AX_MODEL_LAYER_H

#include "model/pass.h"

enum { AX_FRAME_LAYER = 0, AX_FRAME_MIXER = 5, AX_FRAME_FFN = 11 };

struct ax_builder;

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

/* AX_ERR_CONFIG: what the adapter asks for does not fit. */
enum ax_status ax_layer_init(struct ax_builder *b, struct ax_layer *l);
void ax_layer_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_frame *f);
/* out = layer(x); out NULL: recompute for backward. */
enum ax_status ax_layer_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                const struct ax_tensor *x, const struct ax_tensor *out);
/* dx: in the gradient of the layer's output, out that of its input. */
enum ax_status ax_layer_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_frame *f,
                                 const struct ax_tensor *x, const struct ax_tensor *dx);

#endif
