/* Tensors of each kind of model, as data. Private to names.c. */
#ifndef AX_CKPT_GGUF_ROWS_H
#define AX_CKPT_GGUF_ROWS_H

#include "ckpt/gguf/names.h"

#define VECTOR AX_GGUF_VECTOR
#define MATRIX AX_GGUF_MATRIX

/* clang-format off */
enum size {
    NONE, ONE, VOCAB, HIDDEN, FFN, GATE_UP, EXPERT_FFN, SHARED_FFN, Q, KV, QKV, VALUES, HEAD, EXPERTS,
    Q_RANK, KV_RANK, LATENT, KV_B, HEADS, EXPERT_PAIR, TAPS, GATES_OF_CONV, Q_GATED,
    DELTA_VALUE, DELTA_HEADS, DELTA_VALUES, DELTA_QKV, DELTA_QKVZ, DELTA_PAIRS,
    DELTA_KEYS, SHARED_PAIR, SSD_IN, SSD_CONV, SSD_HEADS, SSD_WIDTH,
    EXPERT_SIZE, LATENT_SIZE, INDEX_HEAD, INDEX_HEADS, INDEX_QUERIES,
    INPUTS, INPUT_TABLE, INPUT_COLUMNS, KV_VALUES, STREAMS, STREAM_PAIRS, LOW_RANK
};
enum when {
    ALWAYS, UNTIED, QKV_BIAS, O_BIAS, DENSE, MLP_BIAS, QK_NORM, SPARSE, SHARED, Q_LATENT, Q_DIRECT,
    ATTENDS, HAS_STATE, LAST_NORM, LAST_NORM_LFM2, OWN_KEYS, OWN_VALUES, HAS_INPUTS, SLIDES,
    NORMS_STATE, HAS_LATENT, INDEXES, HAS_STREAMS, COPIES_KEYS
};
enum how {
    PLAIN,
    ROTARY,   /* rows of q or k */
    NUMBERED, /* a matrix of each expert */
    OTHER_STREAMS, /* a matrix of each stream but the first */
    OF_LENDER,     /* a copy of what the layer has whose keys this one uses */
    LENGTHENED,    /* a row for each token: those that HF lacks are the first one */
    SCALED,   /* takes the kind's query_scale */
    UNSHIFTED,     /* whatever the kind's norms are */
    VECTOR_OF_ROW, /* a vector that is a matrix of one row in HF */
    TAPS_OF_CONV,  /* [channels][taps], with a dimension of 1 between them in HF */
    /* value heads of the delta rule, which some kinds store by tiles: */
    TILED_HEADS,   /* rows of heads; the last rows, behind those of q and k; the same of taps; columns */
    TILED_VALUES,
    TILED_TAPS,
    TILED_COLUMNS,
    TILED_GATES,   /* a row, or element, of each head; the same as rates, −exp(x) */
    TILED_RATES,
    RATES,
    GROUPED_QKV,   /* q, k, v of a matrix with q, k, v and z of each key head; its z */
    GROUPED_Z,
    HEAD_KEYS,     /* rows of nope, per head of kv_b, transposed */
    HEAD_VALUES,   /* rows of v, per head of kv_b */
    EXPERT_EVEN,   /* all experts' [in][out] in one, transposed: every other column from 0, from 1, all */
    EXPERT_ODD,
    EXPERT_ALL,
    EXPERT_FIRST,  /* the same, every column of the first half, of the last */
    EXPERT_LAST,
    BIAS_EVEN,     /* every other element of all experts' vectors in one */
    BIAS_ODD,
    COLUMN,        /* a vector as a matrix of one column; the same as rates */
    COLUMN_OF_RATES,
    LIFTED_RATES,  /* the same where HF's vector is [1][1][n][1] */
    SPREAD_TAPS,   /* [channels][1][taps] in both */
    BY_GROUP,      /* a vector as a row for each group of Mamba-2 */
    FIRST_ROWS,    /* half of two matrices in one */
    LAST_ROWS,
    STACK_FIRST,   /* half of all experts' two matrices [E][2·out][in], or one */
    STACK_LAST,
    STACK,
    /* multiplied by a factor that only the config has: what reads attention's input, the keys among it; its
     * output; what reads Mamba-2's, by parts of the rows; its output; the gate, and the last matrix, of an MLP */
    FOLDED_IN,
    FOLDED_KEYS,
    FOLDED_OUT,
    FOLDED_MAMBA_IN,
    FOLDED_MAMBA_OUT,
    FOLDED_GATE,
    FOLDED_DOWN
};

struct row {
    const char *gguf, *hf;
    enum size rows, cols; /* shape of HF's tensor; cols NONE: a vector */
    enum when when;
    enum ax_gguf_part part;
    enum how how;
};
/* clang-format on */

/* Lists of rows end with one without names: those before the layers, and after them. */
extern const struct row ax_gguf_first_rows[], ax_gguf_last_rows[];
/* Lists of a layer's rows, in the file's order; ends with NULL. */
const struct row *const *ax_gguf_layer_rows(const struct ax_gguf_kind *kind);
/* The family's name of HF's usual "model.layers.3.…" and the like. */
const char *ax_gguf_own_name(const struct ax_gguf_kind *kind, const char *name, char buf[96]);

#endif
