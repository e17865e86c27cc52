/* Products by cuBLASLt: what a queue keeps for them. */
#ifndef AX_KERNELS_CUDA_GEMM_BLAS_H
#define AX_KERNELS_CUDA_GEMM_BLAS_H

#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A kind of product, row-major: c [m][n] = alpha·op(a)·op(b) + …. Compared as bytes, so it has no
 * padding. */
struct ax_blas_key {
    int64_t m, n, k;
    int64_t stride_a, stride_b, stride_c, stride_addend; /* elements from a row to the next */
    int32_t align_a, align_b, align_c, align_addend; /* bytes: what addresses are multiples of */
    int32_t type_a, type_b, type_c;                  /* the library's */
    int32_t trans_a, trans_b;
    int32_t align_bias; /* 0: without bias */
    int32_t tf32;
    int32_t fp8; /* a and b are codes, with scales as ax_blas_scales says; else 0 */
};
/* One for each operand, or for each of its rows. */
enum ax_blas_scales { AX_BLAS_ONE_SCALE = 1, AX_BLAS_ROW_SCALES };

/* The library's descriptors of a kind, and how it is computed. */
struct ax_blas_plan {
    struct ax_blas_key key;
    int64_t m, k; /* sizes in the layouts now */
    ax_lt_desc desc;
    ax_lt_layout a, b, c, d; /* the library's: a is our b */
    ax_lt_algo algo;
    bool known; /* its algorithm is chosen, or there is nothing to measure any more */
};

/* The fastest algorithm of a kind. */
struct ax_blas_choice {
    struct ax_blas_key key;
    ax_lt_algo algo;
};

struct ax_blas {
    struct ax_cublaslt lt;
    ax_lt_handle handle;
    ax_lt_preference preference;
    int n; /* plans */
    struct ax_blas_plan *plans;
    int32_t *offsets; /* offsets of a grouped product, on the host */
    size_t n_offsets; /* room */
    /* Products are computed with the first n_chosen choices; the others have been measured and wait
     * for a later run. */
    size_t n_choices, n_chosen, room;
    struct ax_blas_choice *choices;
    struct ax_queue_counters *counters; /* borrowed */
};

/* Fixed, so that a plan of memory needs no GPU. The library splits sums into parts there. */
#define AX_BLAS_WORK ((size_t)32 << 20)

/* The library's version, if there is one: 130100 for 13.1.0. */
enum ax_status ax_blas_version(size_t *version);
enum ax_status ax_blas_open(struct ax_blas **out, struct ax_queue_counters *counters);
void ax_blas_close(struct ax_blas *b); /* NULL is fine */
/* AX_OK, or the library's text about `what`. */
enum ax_status ax_blas_check(const struct ax_blas *b, unsigned status, const char *what);
#define AX_LT_TRY(b, call) AX_TRY(ax_blas_check((b), (b)->lt.call, #call))
/* Whether the library has the products of codes in training, with scales of rows, on this GPU. */
bool ax_blas_has_row_scales(const struct ax_blas *b);
/* The plan of a kind, which the heuristic is asked for once. Valid until the next call. */
enum ax_status ax_blas_find(struct ax_blas *b, const struct ax_blas_key *key,
                            struct ax_blas_plan **out);
/* Makes it one for other m and k. */
enum ax_status ax_blas_resize(struct ax_blas *b, struct ax_blas_plan *p, int64_t m, int64_t k);

/* One product, from addresses on the device. */
struct ax_blas_product {
    const void *a, *b, *c;          /* the library's */
    const float *a_scale, *b_scale; /* scales of codes: one, or of rows */
    void *d;
    float alpha, beta;
    void *work;
    cudaStream_t stream;
};
/* The scales of the product that is computed next, for a kind of FP8. */
enum ax_status ax_blas_set_scales(const struct ax_blas *b, const struct ax_blas_plan *p,
                                  const struct ax_blas_product *x);
/* Enqueues it; the library's status. */
unsigned ax_blas_multiply(const struct ax_blas *b, const struct ax_blas_plan *p,
                          const ax_lt_algo *algo, const struct ax_blas_product *x);

/* ---- choices ---- */

/* Measures the algorithms of p's kind by this product, and waits for it; d is only overwritten with what
 * the product will have there. Memory for another d, where c is d: allocated for as long as that takes;
 * if there is none, nothing is measured. */
enum ax_status ax_blas_measure(struct ax_blas *b, struct ax_blas_plan *p,
                               const struct ax_blas_product *x);
/* Implement ax_queue_choices and ax_queue_choose. */
enum ax_status ax_blas_choices(const struct ax_blas *b, struct ax_buf *out);
enum ax_status ax_blas_choose(struct ax_blas *b, const char *text);

/* c[t][n] += bias[n], rounded to c's type. */
enum ax_status ax_cuda_add_bias(struct ax_queue *q, const struct ax_tensor *c,
                                const struct ax_tensor *bias);

#ifdef __cplusplus
}
#endif

#endif
