/* GPTQ (Frantar et al. 2023): a matrix W [out][in] rounded column by column, where each column's error
 * is made up for by the columns that are still to come. With the inputs X that calibration sees,
 *
 *   H = 2/T·XᵀX + λ·I,  λ = damping · mean of H's diagonal;   H⁻¹ = UᵀU, U upper triangular
 *   for i = 0, 1, …:  q = the value of column i;  e = (w_i − q)/U_ii;  w_j −= e·U_ij for j > i
 *
 * which is what is left of H⁻¹ after each column (its Cholesky factor). Columns go in their order, a
 * group's scale being that of its weights when its first column is reached; or, by `act_order`, those of
 * the largest diagonal first, with the scales of the original groups, so that files need no order of
 * columns. A column whose inputs were all 0 becomes 0. */
#ifndef AX_MODEL_QUANTIZE_GPTQ_H
#define AX_MODEL_QUANTIZE_GPTQ_H

#include "kernels/queue.h"

struct ax_gptq_options {
    double damping;
    bool act_order;
};

/* State shared by linears that read the same inputs. */
struct ax_gptq {
    int64_t n, tokens; /* inputs; rows seen */
    float *h;          /* [n][n]: Σ xᵀx above and on the diagonal; then H without λ */
    float *u;          /* [n][n], in order; from ax_gptq_factor */
    int32_t *order;    /* [n] */
};
enum ax_status ax_gptq_open(struct ax_gptq *g, int64_t n);
void ax_gptq_close(struct ax_gptq *g); /* safe on a zeroed one */
/* Adds x F32 or BF16 [rows][n]. */
enum ax_status ax_gptq_see(struct ax_queue *q, struct ax_gptq *g, const struct ax_tensor *x);
/* After the last of them. AX_ERR_DATA if H is not positive. */
enum ax_status ax_gptq_factor(struct ax_queue *q, struct ax_gptq *g,
                              const struct ax_gptq_options *o);

/* A matrix to round to int4. */
struct ax_gptq_matrix {
    int64_t rows, block;
    const float *w;       /* [rows][n] */
    signed char *codes;   /* out: [rows][n] */
    float *scale, *value; /* out: [rows][n/block], [rows][n] */
    int threads;
};
enum ax_status ax_gptq_round(struct ax_queue *q, const struct ax_gptq *g,
                             const struct ax_gptq_options *o, const struct ax_gptq_matrix *m);
/* *out = Σ (e·xᵀ)² of all inputs seen, over all rows of e [rows][n], times 2/T. */
enum ax_status ax_gptq_error(struct ax_queue *q, const struct ax_gptq *g, int64_t rows,
                             const float *e, double *out);

#endif
