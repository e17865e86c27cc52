/* The shapes on which tests and `axtrain bench` run every op, listed with the op (kernels/ops/):
 * small, irregular ones (one row, odd sizes, row strides, grouped heads, empty documents, windows);
 * marked `big`, those of SmolLM2-135M (hidden 576, feed-forward 1536, 9 heads over 3 KV heads of 64,
 * vocabulary 49152); and, marked `huge`, for timing on a GPU alone, those of Llama 3.1 8B at 4,096
 * tokens (hidden 4096, feed-forward 14336, 32 heads over 8 KV heads of 128, vocabulary 128256), and
 * attention of 64 heads: except for decoding, too much for a GPU's caches. */
#ifndef AX_KERNELS_SHAPES_H
#define AX_KERNELS_SHAPES_H

#include "kernels/ops.h"

/* Flags for ops of several families; each family's options have more. */
enum ax_shape_flag {
    AX_SHAPE_TRANS_A = 1 << 0,
    AX_SHAPE_TRANS_B = 1 << 1,
    AX_SHAPE_ACCUMULATE = 1 << 2,
    AX_SHAPE_BIAS = 1 << 3,
    AX_SHAPE_ADDEND = 1 << 4,
    AX_SHAPE_ACCUM_IN = 1 << 5,  /* a compute-or-accumulation input is accumulation */
    AX_SHAPE_ACCUM_OUT = 1 << 6, /* a compute-or-accumulation output is accumulation */
    AX_SHAPE_IN_PLACE = 1 << 7,  /* the output aliases its input */
    AX_SHAPE_FIRST_STEP = 1 << 8,
    AX_SHAPE_SKIP = 1 << 9,     /* the step is skipped: no tokens to train on */
    AX_SHAPE_PADDING = 1 << 10, /* some rows are padding, some keys in no group */
    AX_SHAPE_NAN = 1 << 11      /* an input is NaN, and with it outputs of its row */
};

struct ax_shape_document {
    int32_t nq, nk;
};

/* An op uses only some fields; its build_OP in kernels/ops/ shows which. */
struct ax_shape {
    const char *name;        /* unique within the op */
    bool big;                /* for timing; too slow for the reference in full */
    bool huge;               /* for timing on a GPU alone: up to 3 GB; the op's last ones */
    int64_t rows;            /* T, or M of gemm */
    int64_t cols;            /* D, F, N or V, or the length of a 1-D operand */
    int64_t inner;           /* K of gemm; positions of rope; table rows of the embedding; block of
                                quantize; dropout: rows to choose from, 0 = the first ones */
    int64_t heads, kv_heads; /* rmsnorm: heads > 0 means [T][H][hd] */
    int64_t head_dim;        /* hd */
    int64_t pad;             /* elements between rows, if the op allows row strides */
    int64_t first;           /* first_row or first_col of a vocabulary shard */
    int64_t groups, choices; /* experts (groups of rows), and experts per row */
    int n_documents;         /* attention; `rows` beyond their sum belong to none. grouped_gemm: nq
                                rows per group */
    const struct ax_shape_document *documents;
    unsigned flags;
    const void *options; /* options of the op, defined in its family's file; NULL = all zero */
};

/* All but the huge ones; and those. */
const struct ax_shape *ax_op_shapes(enum ax_op op, int *n);
const struct ax_shape *ax_op_huge_shapes(enum ax_op op, int *n);

#endif
