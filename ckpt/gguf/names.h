/* The tensors of a model under their names in GGUF and in Hugging Face folders. Private to ckpt/
 * and to those who write models. */
#ifndef AX_CKPT_GGUF_NAMES_H
#define AX_CKPT_GGUF_NAMES_H

#include "ckpt/gguf/model.h"
#include "ckpt/gguf/types.h"

struct ax_gguf_name {
    char gguf[96]; /* "blk.3.attn_q.weight" */
    char hf[96];   /* "model.layers.3.self_attn.q_proj.weight"; of experts with one %d */
    enum ax_gguf_part part;
    int ndim;         /* of one matrix or vector */
    int64_t shape[2]; /* of one: [rows][cols], [elements] */
    int64_t experts;  /* > 0: number of matrices, contiguous in GGUF and numbered in HF */
    int64_t layer;    /* −1: none */
    bool rotary;      /* rows of q and k, which some kinds store in rotary pairs */
};

/* Calls visit for each tensor that a model of this kind and these sizes has, in the order of the
 * layers, until one is not AX_OK. */
typedef enum ax_status (*ax_gguf_visit)(void *ctx, const struct ax_gguf_name *name);
enum ax_status ax_gguf_each_tensor(const struct ax_gguf_model *m, ax_gguf_visit visit, void *ctx);

/* The HF name of expert e's matrix; of other tensors the one they have. */
const char *ax_gguf_expert_name(const struct ax_gguf_name *name, int64_t e, char buf[112]);

/* Where the file has row r of HF, in kinds that store rotary pairs as neighbors: within a head,
 * element i of half j lies at 2·i + j. */
int64_t ax_gguf_rotary_row(int64_t head_dim, int64_t r);

#endif
