/* cuBLASLt's descriptors, one set per kind of product: after the first step of a kind the library is not
 * asked any more. Which algorithm computes it: blas_choose.c.
 *
 * Kinds are in a hash table. One that is full is emptied: packed batches have few lengths, so that
 * happens only where lengths are never seen again. */
#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/gemm/blas.h"
#include "kernels/cuda/libraries.h"

#define ROOM 2048 /* a power of two */

enum ax_status ax_blas_check(const struct ax_blas *b, unsigned status, const char *what) {
    if (status == AX_LT_OK)
        return AX_OK;
    return ax_error(AX_ERR_FAILED, "cuBLASLt's %.60s failed: %.100s (%u)", what,
                    b->lt.GetStatusString(status), status);
}

/* ---- opening ---- */

static enum ax_status open_library(struct ax_cublaslt *lt) {
    const struct ax_symbol symbols[] = {
#define ROW(result, name, parameters) {"cublasLt" #name, &lt->name},
        AX_CUBLASLT_FUNCTIONS(ROW)
#undef ROW
    };
    static const char remedy[] =
        "Install CUDA 13's libraries (pip install nvidia-cublas), or use device: cpu.";
    AX_TRY(
        ax_cuda_library_open(AX_CUBLASLT_FILE, remedy, symbols, sizeof symbols / sizeof *symbols));
    const size_t version = lt->GetVersion();
    if (version < AX_CUBLASLT_OLDEST)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "device cuda: " AX_CUBLASLT_FILE " is cuBLASLt %zu.%zu. %s",
                        version / 10000, version / 100 % 100, remedy);
    return AX_OK;
}

enum ax_status ax_blas_version(size_t *version) {
    struct ax_cublaslt lt;
    AX_TRY(open_library(&lt));
    *version = lt.GetVersion();
    return AX_OK;
}

static enum ax_status open_handle(struct ax_blas *b) {
    const uint64_t work = AX_BLAS_WORK;
    const uint32_t reduction = AX_LT_REDUCTION_COMPUTE_TYPE;
    AX_TRY(open_library(&b->lt));
    AX_TRY(ax_alloc(&b->plans, ROOM, sizeof *b->plans));
    AX_LT_TRY(b, Create(&b->handle));
    AX_LT_TRY(b, MatmulPreferenceCreate(&b->preference));
    AX_LT_TRY(b, MatmulPreferenceSetAttribute(b->preference, AX_LT_PREF_MAX_WORKSPACE, &work,
                                              sizeof work));
    /* Sums that are computed in parts: the parts are added as F32, never in the output's type. */
    AX_LT_TRY(b, MatmulPreferenceSetAttribute(b->preference, AX_LT_PREF_REDUCTION, &reduction,
                                              sizeof reduction));
    return AX_OK;
}

enum ax_status ax_blas_open(struct ax_blas **out, struct ax_queue_counters *counters) {
    struct ax_blas *b;
    AX_TRY(ax_alloc(&b, 1, sizeof *b));
    b->counters = counters;
    const enum ax_status st = open_handle(b);
    if (st == AX_OK)
        *out = b;
    else
        ax_blas_close(b);
    return st;
}

static void forget(const struct ax_blas *b, struct ax_blas_plan *p) {
    const ax_lt_layout layouts[] = {p->a, p->b, p->c, p->d};
    if (p->desc)
        (void)b->lt.MatmulDescDestroy(p->desc);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i])
            (void)b->lt.MatrixLayoutDestroy(layouts[i]);
    memset(p, 0, sizeof *p);
}

void ax_blas_forget(struct ax_blas *b) {
    for (int i = 0; b->plans && i < ROOM; i++)
        forget(b, &b->plans[i]);
    b->n = 0;
}

void ax_blas_close(struct ax_blas *b) {
    if (!b)
        return;
    ax_blas_forget(b);
    if (b->preference)
        (void)b->lt.MatmulPreferenceDestroy(b->preference);
    if (b->handle)
        (void)b->lt.Destroy(b->handle);
    ax_free(b->plans);
    ax_free(b->choices);
    ax_free(b->offsets);
    ax_free(b);
}

/* ---- a kind ---- */

static unsigned type_of(int32_t dtype) {
    return dtype == AX_BF16 ? AX_LT_REAL_16BF : AX_LT_REAL_32F;
}

static enum ax_status set(const struct ax_blas *b, ax_lt_desc desc, unsigned attribute,
                          int32_t value) {
    AX_LT_TRY(b, MatmulDescSetAttribute(desc, attribute, &value, sizeof value));
    return AX_OK;
}

/* The library's matrices are column-major: what it sees of row-major ones is their transposes. So it
 * computes cᵀ = op(b)ᵀ·op(a)ᵀ, of which ours are the operands without a transposition. */
static enum ax_status make_layouts(const struct ax_blas *b, struct ax_blas_plan *p) {
    const struct ax_blas_key *k = &p->key;
    const unsigned in = type_of(k->in), out = type_of(k->out);
    const uint64_t m = (uint64_t)k->m, n = (uint64_t)k->n, inner = (uint64_t)k->k;
    AX_LT_TRY(b, MatrixLayoutCreate(&p->a, in, k->trans_b ? inner : n, k->trans_b ? n : inner,
                                    k->stride_b));
    AX_LT_TRY(b, MatrixLayoutCreate(&p->b, in, k->trans_a ? m : inner, k->trans_a ? inner : m,
                                    k->stride_a));
    AX_LT_TRY(b, MatrixLayoutCreate(&p->c, out, n, m, k->stride_addend));
    AX_LT_TRY(b, MatrixLayoutCreate(&p->d, out, n, m, k->stride_c));
    p->m = k->m;
    p->k = k->k;
    return AX_OK;
}

static enum ax_status make_desc(const struct ax_blas *b, struct ax_blas_plan *p) {
    const struct ax_blas_key *k = &p->key;
    /* Never read here: only which multiple it is counts. */
    const void *bias = (const void *)(uintptr_t)k->align_bias;
    AX_LT_TRY(b,
              MatmulDescCreate(&p->desc, k->tf32 ? AX_LT_COMPUTE_32F_FAST_TF32 : AX_LT_COMPUTE_32F,
                               AX_LT_REAL_32F));
    AX_TRY(set(b, p->desc, AX_LT_DESC_TRANSA, k->trans_b ? AX_LT_OP_T : AX_LT_OP_N));
    AX_TRY(set(b, p->desc, AX_LT_DESC_TRANSB, k->trans_a ? AX_LT_OP_T : AX_LT_OP_N));
    if (!bias)
        return AX_OK;
    AX_TRY(set(b, p->desc, AX_LT_DESC_EPILOGUE, AX_LT_EPILOGUE_BIAS));
    AX_LT_TRY(b, MatmulDescSetAttribute(p->desc, AX_LT_DESC_BIAS_POINTER, &bias, sizeof bias));
    return AX_OK;
}

static enum ax_status prefer(const struct ax_blas *b, const struct ax_blas_key *k) {
    const struct {
        unsigned attribute;
        int32_t value;
    } wishes[] = {
        {AX_LT_PREF_ALIGNMENT_A, k->align_b},
        {AX_LT_PREF_ALIGNMENT_B, k->align_a},
        {AX_LT_PREF_ALIGNMENT_C, k->align_addend},
        {AX_LT_PREF_ALIGNMENT_D, k->align_c},
    };
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        AX_LT_TRY(b, MatmulPreferenceSetAttribute(b->preference, wishes[i].attribute,
                                                  &wishes[i].value, sizeof wishes[i].value));
    return AX_OK;
}

enum ax_status ax_blas_ask(const struct ax_blas *b, const struct ax_blas_plan *p, int wanted,
                           ax_lt_choice *found, int *n) {
    *n = 0;
    AX_TRY(prefer(b, &p->key));
    const unsigned status = b->lt.MatmulAlgoGetHeuristic(b->handle, p->desc, p->a, p->b, p->c, p->d,
                                                         b->preference, wanted, found, n);
    if (status == AX_LT_NOT_SUPPORTED ||
        (status == AX_LT_OK && (*n < 1 || found[0].state != AX_LT_OK)))
        return ax_error(AX_ERR_UNSUPPORTED, "cuBLASLt has no algorithm for this product");
    return ax_blas_check(b, status, "MatmulAlgoGetHeuristic");
}

static enum ax_status make(const struct ax_blas *b, struct ax_blas_plan *p) {
    b->counters->asked++;
    AX_TRY(make_layouts(b, p));
    AX_TRY(make_desc(b, p));
    return ax_blas_settle(b, p);
}

/* FNV-1a. */
static uint64_t hash_of(const struct ax_blas_key *key) {
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < sizeof *key; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    return h ^ h >> 32;
}

enum ax_status ax_blas_find(struct ax_blas *b, const struct ax_blas_key *key,
                            struct ax_blas_plan **out) {
    if (b->n > ROOM / 4 * 3)
        ax_blas_forget(b);
    uint64_t at = hash_of(key) % ROOM;
    while (b->plans[at].desc && memcmp(&b->plans[at].key, key, sizeof *key) != 0)
        at = (at + 1) % ROOM;
    *out = &b->plans[at];
    if ((*out)->desc)
        return AX_OK;
    (*out)->key = *key;
    const enum ax_status st = make(b, *out);
    if (st == AX_OK)
        b->n++;
    else
        forget(b, *out);
    return st;
}

unsigned ax_blas_multiply(const struct ax_blas *b, const struct ax_blas_plan *p,
                          const ax_lt_algo *algo, const struct ax_blas_product *x) {
    return b->lt.Matmul(b->handle, p->desc, &x->alpha, x->a, p->a, x->b, p->b, &x->beta, x->c, p->c,
                        x->d, p->d, algo, x->work, AX_BLAS_WORK, x->stream);
}

/* ---- other sizes ---- */

static enum ax_status resize(const struct ax_blas *b, ax_lt_layout layout, int64_t rows,
                             int64_t cols) {
    const uint64_t r = (uint64_t)rows, c = (uint64_t)cols;
    AX_LT_TRY(b, MatrixLayoutSetAttribute(layout, AX_LT_LAYOUT_ROWS, &r, sizeof r));
    AX_LT_TRY(b, MatrixLayoutSetAttribute(layout, AX_LT_LAYOUT_COLS, &c, sizeof c));
    return AX_OK;
}

enum ax_status ax_blas_resize(struct ax_blas *b, struct ax_blas_plan *p, int64_t m, int64_t k) {
    const struct ax_blas_key *key = &p->key;
    if (p->m == m && p->k == k)
        return AX_OK;
    AX_TRY(resize(b, p->a, key->trans_b ? k : key->n, key->trans_b ? key->n : k));
    AX_TRY(resize(b, p->b, key->trans_a ? m : k, key->trans_a ? k : m));
    AX_TRY(resize(b, p->c, key->n, m));
    AX_TRY(resize(b, p->d, key->n, m));
    p->m = m;
    p->k = k;
    return AX_OK;
}
