/* What the files of the gated delta rule share, private to this folder. Reading order: this file, delta.c (a
 * chunk's updates and its next state), delta_forward.c, delta_backward.c; channels.c is what a decay per channel
 * changes in them. Formulas: kernels/delta_ops.h.
 *
 * A task is one value head of one document, whose chunks come in order. Products are those of attention
 * (ax_attention_gemm): vectors over the columns of values or keys, and sums that ascend from what is there. So a
 * row's bits depend neither on the number of threads nor on how many rows are computed with it. */
#ifndef AX_KERNELS_CPU_VEC_DELTA_DELTA_H
#define AX_KERNELS_CPU_VEC_DELTA_DELTA_H

#include "kernels/cpu/vec/attention/attention.h"

#define CHUNK AX_DELTA_CHUNK
#define TILE  AX_ATTENTION_TILE

/* A chunk's memory and its head's state. Rows are as long as dk or dv rounded up to vectors (key_columns,
 * value_columns), with zeros at their ends. */
struct ax_delta_memory {
    float *k, *q;     /* k̂, q̂ [CHUNK][key_columns] */
    float *k_columns; /* k̂ [dk][CHUNK] */
    float *scaled;    /* [CHUNK][key_columns]: rows of k̂ or q̂ times factors */
    float *y, *u;     /* v − e^G·Sᵀ·k̂, u [CHUNK][value_columns] */
    float *state;     /* S [dk][value_columns] */
    /* [CHUNK][CHUNK], row i from column 0 to i: e^(G_i − G_j); k̂_i·k̂_j·e^…; that times −beta_i; q̂_i·k̂_j·e^… */
    float *decay, *similar, *system, *weight;
    float *beta, *grown, *rest; /* a row's beta; e^G_i; e^(G_c − G_i) */
    double *sum;                /* G */
    /* With a decay per channel, e^g_i and e^G_i [CHUNK][key_columns], and k_columns has the keys as the last row sees
     * them (channels.c); then grown is 1, and sum, rest, decay and, but for their memory, rows of `scaled` by rest
     * are not used. */
    float *step, *reach;
};

/* One value head of one document. */
struct ax_delta_head {
    const struct ax_delta_rule *a;
    enum ax_dtype dtype;
    int64_t head, key_head, dk, dv, key_columns, value_columns;
    int64_t first, end; /* tokens */
    int32_t enters, leaves;
    int64_t past;  /* 0 if there is no slot */
    bool channels; /* have decays of their own */
    int64_t
        ahead; /* from a token to that of the next chunk: CHUNK, or −CHUNK from the last chunk to the first */
    struct ax_delta_memory m;
};

/* Tasks, and the head of a task. `past` NULL: no generation. */
static inline int64_t delta_tasks(const struct ax_delta_rule *a) {
    return (a->cu.shape[0] - 1) * a->v.shape[1];
}
struct ax_delta_head AX_VEC(ax_delta_head)(const struct ax_delta_rule *a,
                                           const struct ax_tensor *past, int64_t task);

/* Takes a chunk's memory from a workspace; without a base it only counts bytes. */
struct ax_delta_memory AX_VEC(ax_delta_carve)(struct ax_attention_work *work,
                                              const struct ax_delta_rule *a);

/* S = slot's state, or zeros for slot −1; and back, which for slot −1 does nothing. */
void AX_VEC(ax_delta_load_state)(const struct ax_delta_head *s, const struct ax_tensor *states,
                                 int32_t slot, float *state);
void AX_VEC(ax_delta_store_state)(const struct ax_delta_head *s, const struct ax_tensor *states,
                                  int32_t slot, const float *state);

/* Row r of the chunk gets k and g, but no column yet: from `k` and `g`, in the dtypes of the operands. */
void AX_VEC(ax_delta_set_row)(const struct ax_delta_head *s, int64_t r, const void *k,
                              const float *g);
/* Rows from … to − 1 are the tokens from `token` on; the rows before have k, g and u. Computes all of the memory
 * but rest; q̂ and weight only with `weights`. */
void AX_VEC(ax_delta_updates)(const struct ax_delta_head *s, int64_t token, int64_t from,
                              int64_t to, bool weights);
/* Rows from … to − 1 of k̂ or q̂ (x) as they meet S, but for the factor `grown`: x, or `scaled` with x⊙e^G. */
const float *AX_VEC(ax_delta_meeting)(const struct ax_delta_head *s, const float *x, int64_t from,
                                      int64_t to);
/* Element (r, i) is data[r·row + i·channel]. */
struct ax_delta_rested {
    const float *data;
    int64_t row, channel;
};
/* k̂ times rest of `rows` rows, the chunk's last ones; and S becomes the next chunk's by it. */
struct ax_delta_rested AX_VEC(ax_delta_rest)(const struct ax_delta_head *s, int64_t rows);
void AX_VEC(ax_delta_next_state)(const struct ax_delta_head *s, int64_t rows);

/* ---- a decay per channel: channels.c ---- */

/* step, reach and k_columns of row r, which has k̂. */
void AX_VEC(ax_delta_set_channels)(const struct ax_delta_head *s, int64_t r, const float *g);
/* similar, and weight if asked for, of row r, the last one that is set. */
void AX_VEC(ax_delta_channel_pairs)(const struct ax_delta_head *s, int64_t r, bool weights);
/* out = sign·x⊙e^G of rows from … to − 1. */
void AX_VEC(ax_delta_reach_rows)(const struct ax_delta_head *s, const float *x, float sign,
                                 int64_t from, int64_t to, float *out);
/* state = e^G_c⊙state, of a chunk of `rows` rows. */
void AX_VEC(ax_delta_decay_state)(const struct ax_delta_head *s, int64_t rows, float *state);
/* What backward has of a chunk (delta_backward.c); d_sum [dk]. */
struct ax_delta_channels {
    const float *d_system, *d_weight, *d_state;
    float *dq, *left, *right;
    double *d_sum;
};
/* Adds to dq̂, l and r, which have the shares of states (r without its decay), those of pairs, and writes dg. */
void AX_VEC(ax_delta_channel_gradients)(const struct ax_delta_head *s,
                                        const struct ax_delta_channels *c, int64_t token,
                                        int64_t rows, const struct ax_tensor *dg);

/* Zeroes the rows that are no document's. */
void AX_VEC(ax_delta_clear)(const struct ax_tensor *x, const struct ax_tensor *cu);

/* A product of kernels/cpu/vec/attention/attention.h, with its fields. */
#define PRODUCT(...) AX_VEC(ax_attention_gemm)(&(struct ax_attention_gemm){.scale = 1, __VA_ARGS__})

/* Address of an element. */
static inline void *element_of(const struct ax_tensor *t, int64_t row, int64_t col) {
    return (char *)t->data + (row * t->row_stride + col) * (int64_t)ax_dtype_size(t->dtype);
}
static inline float float_of(const struct ax_tensor *t, int64_t row, int64_t col) {
    return ((const float *)t->data)[row * t->row_stride + col];
}

/* The head's factor of its result; 0: none. */
static inline float skip_of(const struct ax_delta_head *s) {
    const struct ax_tensor *skip = &s->a->skip;
    return skip->data ? (float)ax_load(skip->dtype, skip->data, s->head) : 0;
}

/* out = x·factor, of n elements, and zeros up to a full vector. */
AX_INLINE void load_scaled(enum ax_dtype dtype, const void *x, int64_t n, float factor,
                           float *out) {
    for (int64_t i = 0; i < n; i += AX_LANES)
        v_store_f32(out + i, AX_LANES, v_load(dtype, x, i, least(n - i, AX_LANES)) * v_set(factor));
}

/* Starts to read n elements of x from column `col` on, of the next chunk's token for t. Rows of other heads lie
 * between those of one, so the processor does not foresee them. */
static inline void fetch_next(const struct ax_delta_head *s, const struct ax_tensor *x, int64_t t,
                              int64_t col, int64_t n) {
    const int64_t next = t + s->ahead;
    if (next < s->first || next >= s->end)
        return;
    const char *at = element_of(x, next, col);
    const int64_t bytes = n * (int64_t)ax_dtype_size(x->dtype);
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + i, 0, 2);
    __builtin_prefetch(at + bytes - 1, 0, 2);
}

/* 1/√(Σx² + eps), or 1 if the rule is additive. */
AX_INLINE float inverse_norm(enum ax_dtype dtype, const struct ax_delta_rule *a, const void *x,
                             int64_t n) {
    v_float squares = v_set(0);
    if (a->additive)
        return 1;
    for (int64_t i = 0; i < n; i += AX_LANES) {
        const v_float v = v_load(dtype, x, i, least(n - i, AX_LANES));
        squares = v_fma(v, v, squares);
    }
    return (float)(1 / sqrt(v_sum(squares) + AX_DELTA_EPS));
}

/* out = factor·x̂ of a query or key. */
AX_INLINE void load_head(enum ax_dtype dtype, const struct ax_delta_head *s, const void *x,
                         float factor, float *out) {
    load_scaled(dtype, x, s->dk, factor * inverse_norm(dtype, s->a, x, s->dk), out);
}

/* Σ a·b of full vectors. */
static inline float dot_of(const float *a, const float *b, int64_t columns) {
    v_float sum = v_set(0);
    for (int64_t i = 0; i < columns; i += AX_LANES)
        sum = v_fma(v_load_f32(a + i, AX_LANES), v_load_f32(b + i, AX_LANES), sum);
    return (float)v_sum(sum);
}

/* x = x·factor, of full vectors. */
static inline void scale_row(float *x, int64_t columns, float factor) {
    for (int64_t i = 0; i < columns; i += AX_LANES)
        v_store_f32(x + i, AX_LANES, v_load_f32(x + i, AX_LANES) * v_set(factor));
}

#endif
