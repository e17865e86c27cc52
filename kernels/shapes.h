/* The one list of shapes that tests and `axtrain bench` run every op on: small awkward ones (one
 * row, odd sizes, row strides, grouped heads, empty documents, windows) and, marked `big`, those of
 * SmolLM2-135M (hidden 576, feed-forward 1536, 9 heads over 3 KV heads of 64, vocabulary 49152). */
#ifndef AX_KERNELS_SHAPES_H
#define AX_KERNELS_SHAPES_H

#include "kernels/ops.h"

enum ax_shape_flag {
    AX_SHAPE_TRANS_A = 1 << 0,
    AX_SHAPE_TRANS_B = 1 << 1,
    AX_SHAPE_ACCUMULATE = 1 << 2,
    AX_SHAPE_BIAS = 1 << 3,
    AX_SHAPE_ADDEND = 1 << 4,
    AX_SHAPE_ACCUM_IN = 1 << 5,  /* the input that may be real or accum is accum */
    AX_SHAPE_ACCUM_OUT = 1 << 6, /* the output that may be real or accum is accum */
    AX_SHAPE_IN_PLACE = 1 << 7,  /* the output is the input it may alias */
    AX_SHAPE_INVERSE = 1 << 8,
    AX_SHAPE_NOT_CAUSAL = 1 << 9,
    AX_SHAPE_SINK = 1 << 10,
    AX_SHAPE_ALL_GRADS = 1 << 11, /* g_lse and g_entropy are given */
    AX_SHAPE_COPY = 1 << 12,      /* the optimizer writes a compute copy */
    AX_SHAPE_NESTEROV = 1 << 13,
    AX_SHAPE_FIRST_STEP = 1 << 14,
    AX_SHAPE_SKIP = 1 << 15, /* the step is skipped: nothing trained */
    AX_SHAPE_RENORMALISE = 1 << 16,
    AX_SHAPE_PADDING = 1 << 17, /* some rows are padding, some keys in no group */
    AX_SHAPE_TIES = 1 << 18,    /* whole-numbered logits */
    AX_SHAPE_BALANCE = 1 << 19, /* load or slope is given */
    AX_SHAPE_UNWEIGHTED = 1 << 20,
    AX_SHAPE_FROZEN = 1 << 21,     /* no gradient for the weight is wanted */
    AX_SHAPE_BF16_STATE = 1 << 22, /* the optimizer's moments are BF16 */
    AX_SHAPE_NEAREST = 1 << 23,    /* and rounded to nearest */
    AX_SHAPE_REMAINDER = 1 << 24,  /* masters are BF16 and 16 bits more; not with float64 */
    AX_SHAPE_STOCHASTIC = 1 << 25, /* masters are BF16; not with float64 */
    AX_SHAPE_VECTOR = 1 << 26,     /* adafactor: not a matrix */
    AX_SHAPE_TORCH = 1 << 27,      /* adafactor: torch's, else transformers' */
    AX_SHAPE_SCALE = 1 << 28,      /* adafactor: scale_parameter */
    AX_SHAPE_SMOOTHING = 1 << 29,  /* label smoothing: mean_logprob and its gradient */
    AX_SHAPE_Z_LOSS = 1 << 30
};

struct ax_shape_document {
    int32_t nq, nk;
};

/* An op uses the fields it has a use for; cases.c says which, op by op. */
struct ax_shape {
    const char *name;           /* unique within the op */
    bool big;                   /* for timing; too slow for the reference as a whole */
    int64_t rows;               /* T, or M of gemm */
    int64_t cols;               /* D, F, N or V, or the length of a 1-D operand */
    int64_t inner;              /* K of gemm; positions of rope; table rows of the embedding;
                                   dropout: rows to choose from, 0 = the first ones */
    int64_t heads, kv_heads;    /* rmsnorm: heads > 0 asks for [T][H][hd] */
    int64_t head_dim;           /* hd */
    int64_t pad;                /* elements between rows, where row strides are free */
    int64_t first;              /* first_row or first_col of a vocabulary shard */
    int64_t shards;             /* softmax_merge */
    int64_t groups, choices;    /* experts (groups of rows), and how many of them a row chooses */
    int64_t window, block_size; /* attention; block_size > 0 asks for a block table */
    double softcap;             /* attention */
    double momentum;            /* sgd */
    enum ax_quant quant;        /* quantize, dequantize: `inner` is the block */
    double dropout;             /* dropout: p */
    const char *to;             /* copy: the other dtype, when it is not the case's own */
    int n_documents;            /* attention; `rows` beyond their sum belong to none. grouped_gemm:
                                   nq rows for each group */
    const struct ax_shape_document *documents;
    unsigned flags;
};

const struct ax_shape *ax_op_shapes(enum ax_op op, int *n);

#endif
