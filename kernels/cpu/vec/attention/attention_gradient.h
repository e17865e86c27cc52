/* The work of one task of attention backward (attention_backward.c), a query block at a time. */
#ifndef AX_KERNELS_CPU_VEC_ATTENTION_ATTENTION_GRADIENT_H
#define AX_KERNELS_CPU_VEC_ATTENTION_ATTENTION_GRADIENT_H

#include "kernels/cpu/vec/attention/attention.h"

/* One thread and its memory. */
struct ax_attention_worker {
    const struct ax_attention_backward *args;
    const struct ax_attention_shape *s;
    float *q_rows, *dout_rows;    /* a  [rows][k.units], [rows][v.units] */
    float *q_sums, *dout_sums;    /* b  [rows / per_unit][k.columns], [..][v.columns] */
    float *k_columns, *v_columns; /* b  [k.units][KEYS], [v.units][KEYS] */
    float *k_sums;                /* b  [key_units][k.columns] */
    float *scores, *dp;           /*    [STRIP][KEYS] */
    float *p_columns;             /* a  [rows / per_unit][KEYS]: summed over rows */
    float *ds_columns;            /* a  [rows / per_unit][KEYS]: summed over rows */
    float *ds_rows;               /* a  [rows][key_units]: summed over keys */
    float *dq;                    /*    [rows][k.columns] */
    float *lse, *delta;           /*    [rows]; lse in units of log 2 */
    int64_t *low, *high;          /*    [rows] visible keys */
    void **rows, **out, **keys;   /*    addresses */
};

/* One task's sums: [n_k][k.columns], [n_k][v.columns]. Keys 0 … reached − 1 are initialized. */
struct ax_attention_sums {
    float *dk, *dv;
    int64_t reached;
};

/* Takes a thread's memory from a workspace; without a base it only counts bytes. */
struct ax_attention_worker AX_VEC(ax_attention_worker)(struct ax_attention_work *work,
                                                       const struct ax_attention_backward *args,
                                                       const struct ax_attention_shape *s);

/* All gradients of one block of queries over all the keys it sees (b.key and b.keys are not read):
 * writes its rows of dq, adds to dk and dv. */
void AX_VEC(ax_attention_block_backward)(const struct ax_attention_worker *w,
                                         struct ax_attention_block b,
                                         struct ax_attention_sums *sums);
/* Zeroes the sums of uninitialized keys up to `key`. */
void AX_VEC(ax_attention_reach)(const struct ax_attention_worker *w, struct ax_attention_sums *sums,
                                int64_t key);

#endif
