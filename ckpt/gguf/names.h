/* GGUF and Hugging Face names of a model's tensors. Private to ckpt/ and to code that writes
 * models. */
#ifndef AX_CKPT_GGUF_NAMES_H
#define AX_CKPT_GGUF_NAMES_H

#include "ckpt/gguf/model.h"
#include "ckpt/gguf/types.h"

/* A tensor of which element [e][r][c] is element base + e·step[0] + r·step[1] + c·step[2] of an HF
 * tensor with another shape, or a part of it. Dimensions that the tensor lacks are the first ones. */
struct ax_gguf_view {
    bool is;
    int64_t base, step[3];
    int hf_ndim;
    int64_t hf_shape[3];
};

struct ax_gguf_name {
    char gguf[96]; /* "blk.3.attn_q.weight" */
    char hf[96];   /* "model.layers.3.self_attn.q_proj.weight"; one %d for the expert */
    enum ax_gguf_part part;
    int ndim;         /* dimensions of one matrix or vector; of a view, of the entire tensor */
    int64_t shape[3]; /* shape of one matrix or vector: [rows][cols] or [elements] */
    int64_t experts;  /* > 0: number of matrices, contiguous in GGUF and numbered in HF */
    int64_t layer;    /* −1: none */
    bool rotary;      /* rows of q and k, which some kinds store as rotary pairs */
    struct ax_gguf_view view;
    double shift, factor; /* the file has (x + shift)·factor; reading undoes only the shift */
};

/* Calls visit for each tensor of a model with this kind and these sizes, in layer order, until one
 * does not return AX_OK. */
typedef enum ax_status (*ax_gguf_visit)(void *ctx, const struct ax_gguf_name *name);
enum ax_status ax_gguf_each_tensor(const struct ax_gguf_model *m, ax_gguf_visit visit, void *ctx);

/* The HF name of expert e's matrix; other tensors have a single name. */
const char *ax_gguf_expert_name(const struct ax_gguf_name *name, int64_t e, char buf[112]);

/* File row of HF row r, for kinds that store rotary pairs as neighbors: within a head, element i of
 * half j is in row 2·i + j. */
int64_t ax_gguf_rotary_row(int64_t head_dim, int64_t r);

#endif
