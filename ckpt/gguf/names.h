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
};

/* Where the file has the rows, or columns, of HF's matrix. */
struct ax_gguf_order {
    enum {
        AX_GGUF_STRAIGHT,
        AX_GGUF_PAIRS, /* in heads of `head`: element i of half j is 2·i + j */
        AX_GGUF_TILED, /* from `from` on, in heads of `head`, `values` of each of `keys`: the first of each key head,
                          then the second … */
        /* groups taken apart, `keys` of them, each of q and k of `head` rows, v and z of `values`: all q, k and v; all z */
        AX_GGUF_QKV,
        AX_GGUF_Z,
    } kind;
    int64_t head, from, keys, values;
};

#define AX_GGUF_BANDS 5

struct ax_gguf_name {
    char gguf[96]; /* "blk.3.attn_q.weight" */
    char hf[96];   /* "model.layers.3.self_attn.q_proj.weight"; one %d for the expert */
    enum ax_gguf_part part;
    int ndim;         /* dimensions of one matrix or vector; of a view, of the entire tensor */
    int64_t shape[3]; /* shape of one matrix or vector: [rows][cols] or [elements] */
    int hf_ndim;      /* the same in HF's folder */
    int64_t hf_shape[4];
    int64_t experts; /* > 0: number of matrices, contiguous in GGUF and numbered in HF */
    int64_t layer;   /* −1: none */
    struct ax_gguf_order rows, cols;
    struct ax_gguf_view view;
    double shift, factor; /* the file has (x + shift)·factor; reading undoes only the shift */
    /* Parts of a matrix's rows that have factors of their own: as many rows each, from the first on; 0: no part. */
    struct {
        int64_t rows[AX_GGUF_BANDS];
        double factor[AX_GGUF_BANDS];
    } bands;
    bool rate; /* the file has −exp(x) */
    bool copy; /* another name has the same tensor; nothing uses this one */
    /* > 0: rows of HF's matrix; the file has more, all of which are its first one */
    int64_t kept_rows;
};

/* Calls visit for each tensor of a model with this kind and these sizes, in layer order, until one
 * does not return AX_OK. */
typedef enum ax_status (*ax_gguf_visit)(void *ctx, const struct ax_gguf_name *name);
enum ax_status ax_gguf_each_tensor(const struct ax_gguf_model *m, ax_gguf_visit visit, void *ctx);

/* The HF name of expert e's matrix; other tensors have a single name. */
const char *ax_gguf_expert_name(const struct ax_gguf_name *name, int64_t e, char buf[112]);

/* The file's row of HF's row r; −1: another tensor of the file has it. */
int64_t ax_gguf_row(const struct ax_gguf_order *o, int64_t r);
/* How many rows from r on, at most n, follow each other in the file, too. */
int64_t ax_gguf_rows_in_order(const struct ax_gguf_order *o, int64_t r, int64_t n);
/* Rows of the file that must be written together, of `all`. */
int64_t ax_gguf_run(const struct ax_gguf_order *o, int64_t all);

#endif
