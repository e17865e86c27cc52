/* gemm, grouped_gemm and fp8_gemm: c = alpha · op(a)·op(b) + …, by cuBLASLt. Sums in F32 (of TF32 products only
 * where that is asked for), rounded once to c's type, or, if that is BF16 and something is added, once before that,
 * too (13.1's kernels for Hopper). Bytes moved: each operand about once. */
#include "kernels/cuda/state.h"

#include "base/mem.h"
#include "kernels/cuda/gemm/grouped.h"
#include "kernels/operands.h"

/* What an address is a multiple of; the library's widest loads are 16 bytes. */
static int32_t alignment(const void *address) {
    const uintptr_t low = (uintptr_t)address | 16;
    return (int32_t)(low & -low);
}

/* Of one row, it does not matter; for the library it does. */
static int64_t stride_of(const struct ax_tensor *t) {
    return t->row_stride > t->shape[1] ? t->row_stride : t->shape[1];
}

static int64_t inner_of(const struct ax_gemm *g) {
    return g->a.shape[g->trans_a ? 0 : 1];
}

/* What c is added to: the addend, or itself, even where beta is 0. */
static const struct ax_tensor *added(const struct ax_gemm *g) {
    return g->addend.data ? &g->addend : &g->c;
}

static int32_t type_of(enum ax_dtype dtype) {
    return dtype == AX_BF16 ? AX_LT_REAL_16BF : AX_LT_REAL_32F;
}

static struct ax_blas_key key_of(const struct ax_queue *q, const struct ax_gemm *g) {
    /* The library adds a bias of c's type. */
    const bool bias = g->bias.data && g->bias.dtype == g->c.dtype;
    return (struct ax_blas_key){.m = g->c.shape[0],
                                .n = g->c.shape[1],
                                .k = inner_of(g),
                                .stride_a = stride_of(&g->a),
                                .stride_b = stride_of(&g->b),
                                .stride_c = stride_of(&g->c),
                                .stride_addend = stride_of(added(g)),
                                .align_a = alignment(g->a.data),
                                .align_b = alignment(g->b.data),
                                .align_c = alignment(g->c.data),
                                .align_addend = alignment(added(g)->data),
                                .type_a = type_of(g->a.dtype),
                                .type_b = type_of(g->b.dtype),
                                .type_c = type_of(g->c.dtype),
                                .trans_a = g->trans_a,
                                .trans_b = g->trans_b,
                                .align_bias = bias ? alignment(g->bias.data) : 0,
                                .tf32 = q->tf32 && g->a.dtype == AX_F32};
}

/* Sums of nothing. */
static enum ax_status without_terms(struct ax_queue *q, const struct ax_gemm *g) {
    if (g->addend.data)
        AX_TRY(ax_cuda_copy(q, &(struct ax_copy){.dst = g->c, .src = g->addend}, NULL));
    else if (!g->accumulate)
        AX_TRY(ax_cuda_fill(q, &(struct ax_fill){.dst = g->c}, NULL));
    return g->bias.data ? ax_cuda_add_bias(q, &g->c, &g->bias) : AX_OK;
}

/* Scales of codes, on the device; NULL: a and b are numbers. */
struct scales {
    const float *a, *b;
};

/* *status: the library's, of the product by the plan of `key`. */
static enum ax_status multiply(struct ax_queue *q, const struct ax_gemm *g, struct scales scales,
                               const struct ax_blas_key *key, void *work, unsigned *status) {
    struct ax_blas *b = ax_cuda_state(q)->blas;
    struct ax_blas_plan *p;
    const uintptr_t start = ((uintptr_t)work + AX_LT_WORK_ALIGN - 1) & -(uintptr_t)AX_LT_WORK_ALIGN;
    const struct ax_blas_product x = {.a = g->b.data,
                                      .b = g->a.data,
                                      .c = added(g)->data,
                                      .a_scale = scales.b,
                                      .b_scale = scales.a,
                                      .d = g->c.data,
                                      .alpha = (float)g->alpha,
                                      .beta = g->addend.data || g->accumulate ? 1 : 0,
                                      .work = (void *)start,
                                      .stream = ax_cuda_stream(q)};
    AX_TRY(ax_blas_find(b, key, &p));
    AX_TRY(ax_blas_resize(b, p, g->c.shape[0], inner_of(g)));
    if (key->align_bias > 0)
        AX_LT_TRY(b, MatmulDescSetAttribute(p->desc, AX_LT_DESC_BIAS_POINTER, &g->bias.data,
                                            sizeof g->bias.data));
    if (key->fp8)
        AX_TRY(ax_blas_set_scales(b, p, &x));
    if (q->measures && !p->known)
        AX_TRY(ax_blas_measure(b, p, &x));
    *status = ax_blas_multiply(b, p, &p->algo, &x);
    return AX_OK;
}

/* `key` may be that of a product of numbers with some more rows or terms, whose algorithm may not take these. */
static enum ax_status run(struct ax_queue *q, const struct ax_gemm *g, struct scales scales,
                          const struct ax_blas_key *key, void *work) {
    const struct ax_blas_key exact = key_of(q, g);
    unsigned status;
    if (g->c.shape[0] == 0 || g->c.shape[1] == 0)
        return AX_OK;
    if (exact.k == 0)
        return without_terms(q, g);
    AX_TRY(multiply(q, g, scales, key, work, &status));
    if ((status == AX_LT_NOT_SUPPORTED || status == AX_LT_INVALID_VALUE) &&
        (key->m != exact.m || key->k != exact.k))
        AX_TRY(multiply(q, g, scales, &exact, work, &status));
    AX_TRY(ax_blas_check(ax_cuda_state(q)->blas, status, "Matmul"));
    return g->bias.data && key->align_bias == 0 ? ax_cuda_add_bias(q, &g->c, &g->bias) : AX_OK;
}

size_t ax_cuda_gemm_work(const struct ax_gemm *g) {
    (void)g;
    return AX_BLAS_WORK + AX_LT_WORK_ALIGN - AX_ARENA_ALIGN;
}

enum ax_status ax_cuda_gemm(struct ax_queue *q, const struct ax_gemm *g, void *work) {
    const struct ax_blas_key key = key_of(q, g);
    return run(q, g, (struct scales){0}, &key, work);
}

/* ---- codes ---- */

size_t ax_cuda_fp8_gemm_work(const struct ax_fp8_gemm *a) {
    (void)a;
    return ax_cuda_gemm_work(NULL);
}

static int32_t type_of_codes(enum ax_quant kind) {
    return kind == AX_QUANT_E5M2 ? AX_LT_REAL_8F_E5M2 : AX_LT_REAL_8F_E4M3;
}

/* The library computes products of FP8 as aᵀ·b alone, its matrices being our rows. */
enum ax_status ax_cuda_fp8_gemm(struct ax_queue *q, const struct ax_fp8_gemm *a, void *work) {
    const struct ax_gemm g = {.a = a->a,
                              .b = a->b,
                              .c = a->c,
                              .bias = a->bias,
                              .addend = a->addend,
                              .trans_b = true,
                              .accumulate = a->accumulate,
                              .alpha = 1};
    struct ax_blas_key key = key_of(q, &g);
    const struct scales scales = {a->a_scale.data, a->b_scale.data};
    key.type_a = type_of_codes(a->a_kind);
    key.type_b = type_of_codes(a->b_kind);
    key.fp8 = ax_fp8_gemm_by_rows(a) ? AX_BLAS_ROW_SCALES : AX_BLAS_ONE_SCALE;
    if (g.c.dtype != AX_BF16) /* the library adds one in BF16 alone */
        key.align_bias = 0;
    return run(q, &g, scales, &key, work);
}

/* ---- grouped products ---- */

size_t ax_cuda_grouped_gemm_work(const struct ax_grouped_gemm *a) {
    (void)a;
    return ax_cuda_gemm_work(NULL);
}

/* Counts of tokens hardly ever repeat: kinds are those of the next larger count with four significant
 * bits. */
static int64_t round_count(int64_t n) {
    int64_t unit = 1;
    while (n >= 16 * unit)
        unit *= 2;
    return (n + unit - 1) / unit * unit;
}

/* *out: the offsets on the host, valid until the next call. Without a mirror the host waits for them. */
static enum ax_status find_offsets(struct ax_queue *q, const struct ax_grouped_gemm *a,
                                   const void **out) {
    struct ax_blas *b = ax_cuda_state(q)->blas;
    const size_t n = (size_t)a->offsets.shape[0];
    AX_TRY(ax_queue_mirrored(q, a->mirror, a->offsets.data, out));
    if (*out)
        return AX_OK;
    if (n > b->n_offsets) {
        AX_TRY(ax_regrow(&b->offsets, b->n_offsets, n, sizeof *b->offsets));
        b->n_offsets = n;
    }
    *out = b->offsets;
    return ax_queue_read(q, a->offsets.data, b->offsets, n * sizeof *b->offsets, NULL);
}

/* One product per group. */
static enum ax_status run_groups(struct ax_queue *q, const struct ax_grouped_gemm *a, void *work) {
    struct ax_grouped_gemm here = *a;
    const void *found;
    AX_TRY(find_offsets(q, a, &found));
    const int32_t *offsets = found;
    here.offsets.data = (void *)(uintptr_t)found;
    for (int64_t group = 0; group + 1 < a->offsets.shape[0]; group++) {
        if (offsets[group + 1] == offsets[group])
            continue;
        const struct ax_gemm g = ax_grouped_gemm_of(&here, group);
        struct ax_blas_key key = key_of(q, &g);
        int64_t *count = a->trans_a ? &key.k : &key.m;
        *count = round_count(*count);
        AX_TRY(run(q, &g, (struct scales){0}, &key, work));
    }
    return AX_OK;
}

enum ax_status ax_cuda_grouped_gemm(struct ax_queue *q, const struct ax_grouped_gemm *a,
                                    void *work) {
    return ax_cuda_grouped_suits(a) ? ax_cuda_grouped_tiles(q, a) : run_groups(q, a, work);
}
