/* cuBLASLt's descriptors, one set per kind of product: after the first step of a kind the library is not
 * asked any more. Which of its algorithms computes the kind is measured once, and told as text to whoever keeps
 * it (kernels/queue.h). A choice read from there is only made if the library accepts it.
 *
 * Kinds are in a hash table. One that is full is emptied: packed batches have few lengths, so that
 * happens only where lengths are never seen again. */
#include <stdio.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/io.h"
#include "base/mem.h"
#include "kernels/cuda/gemm/blas.h"
#include "kernels/cuda/libraries.h"

#define ROOM   2048  /* plans; a power of two */
#define TRIED  8     /* algorithms of a kind */
#define MOST   16384 /* kinds: later ones are not measured */
#define RUNS   3     /* of each algorithm, after one that does not count */
#define BETTER 0.97  /* of the favorite's time, or the favorite is kept */

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

static void forget_plan(const struct ax_blas *b, struct ax_blas_plan *p) {
    const ax_lt_layout layouts[] = {p->a, p->b, p->c, p->d};
    if (p->desc)
        (void)b->lt.MatmulDescDestroy(p->desc);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i])
            (void)b->lt.MatrixLayoutDestroy(layouts[i]);
    memset(p, 0, sizeof *p);
}

static void forget_plans(struct ax_blas *b) {
    for (int i = 0; b->plans && i < ROOM; i++)
        forget_plan(b, &b->plans[i]);
    b->n = 0;
}

void ax_blas_close(struct ax_blas *b) {
    if (!b)
        return;
    forget_plans(b);
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

static enum ax_status set_desc(const struct ax_blas *b, ax_lt_desc desc, unsigned attribute,
                               int32_t value) {
    AX_LT_TRY(b, MatmulDescSetAttribute(desc, attribute, &value, sizeof value));
    return AX_OK;
}

/* The library's matrices are column-major: what it sees of row-major ones is their transposes. So it
 * computes cᵀ = op(b)ᵀ·op(a)ᵀ, of which ours are the operands without a transposition. */
static enum ax_status make_layouts(const struct ax_blas *b, struct ax_blas_plan *p) {
    const struct ax_blas_key *k = &p->key;
    const unsigned out = (unsigned)k->type_c;
    const uint64_t m = (uint64_t)k->m, n = (uint64_t)k->n, inner = (uint64_t)k->k;
    AX_LT_TRY(b, MatrixLayoutCreate(&p->a, (unsigned)k->type_b, k->trans_b ? inner : n,
                                    k->trans_b ? n : inner, k->stride_b));
    AX_LT_TRY(b, MatrixLayoutCreate(&p->b, (unsigned)k->type_a, k->trans_a ? m : inner,
                                    k->trans_a ? inner : m, k->stride_a));
    AX_LT_TRY(b, MatrixLayoutCreate(&p->c, out, n, m, k->stride_addend));
    AX_LT_TRY(b, MatrixLayoutCreate(&p->d, out, n, m, k->stride_c));
    p->m = k->m;
    p->k = k->k;
    return AX_OK;
}

/* Addresses of scales; as the heuristic is asked, none that is read: it only refuses to have none. */
static enum ax_status set_scales(const struct ax_blas *b, ax_lt_desc desc, const float *a_scale,
                                 const float *b_scale) {
    AX_LT_TRY(b, MatmulDescSetAttribute(desc, AX_LT_DESC_A_SCALE, &a_scale, sizeof a_scale));
    AX_LT_TRY(b, MatmulDescSetAttribute(desc, AX_LT_DESC_B_SCALE, &b_scale, sizeof b_scale));
    return AX_OK;
}

static enum ax_status make_desc(const struct ax_blas *b, struct ax_blas_plan *p) {
    const struct ax_blas_key *k = &p->key;
    /* Never read here: only which multiple it is counts. */
    const void *bias = (const void *)(uintptr_t)k->align_bias;
    const float *unread = (const float *)(uintptr_t)AX_LT_WORK_ALIGN;
    AX_LT_TRY(b,
              MatmulDescCreate(&p->desc, k->tf32 ? AX_LT_COMPUTE_32F_FAST_TF32 : AX_LT_COMPUTE_32F,
                               AX_LT_REAL_32F));
    AX_TRY(set_desc(b, p->desc, AX_LT_DESC_TRANSA, k->trans_b ? AX_LT_OP_T : AX_LT_OP_N));
    AX_TRY(set_desc(b, p->desc, AX_LT_DESC_TRANSB, k->trans_a ? AX_LT_OP_T : AX_LT_OP_N));
    if (k->fp8)
        AX_TRY(set_scales(b, p->desc, unread, unread));
    if (k->fp8 == AX_BLAS_ROW_SCALES) {
        AX_TRY(set_desc(b, p->desc, AX_LT_DESC_A_SCALE_MODE, AX_LT_SCALE_OUTER));
        AX_TRY(set_desc(b, p->desc, AX_LT_DESC_B_SCALE_MODE, AX_LT_SCALE_OUTER));
    }
    if (!bias)
        return AX_OK;
    AX_TRY(set_desc(b, p->desc, AX_LT_DESC_EPILOGUE, AX_LT_EPILOGUE_BIAS));
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

/* The algorithms that the library names for p's kind, its favorite first: *n ≥ 1, or
 * AX_ERR_UNSUPPORTED. */
static enum ax_status ask_library(const struct ax_blas *b, const struct ax_blas_plan *p, int wanted,
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

/* y = x·Wᵀ in BF16 and F32, dx and dW of some size, if the library has them all. */
bool ax_blas_has_row_scales(const struct ax_blas *b) {
    enum { SIZE = 1024, E4M3 = AX_LT_REAL_8F_E4M3, E5M2 = AX_LT_REAL_8F_E5M2 };
    static const int32_t types[][2] = {{E4M3, AX_LT_REAL_16BF},
                                       {E4M3, AX_LT_REAL_32F},
                                       {E5M2, AX_LT_REAL_16BF},
                                       {E5M2, AX_LT_REAL_32F}};
    enum ax_status st = AX_OK;
    for (size_t i = 0; st == AX_OK && i < sizeof types / sizeof *types; i++) {
        struct ax_blas_plan p = {.key = {.m = SIZE,
                                         .n = SIZE,
                                         .k = SIZE,
                                         .stride_a = SIZE,
                                         .stride_b = SIZE,
                                         .stride_c = SIZE,
                                         .stride_addend = SIZE,
                                         .align_a = 16,
                                         .align_b = 16,
                                         .align_c = 16,
                                         .align_addend = 16,
                                         .type_a = types[i][0],
                                         .type_b = E4M3,
                                         .type_c = types[i][1],
                                         .trans_b = true,
                                         .fp8 = AX_BLAS_ROW_SCALES}};
        ax_lt_choice found = {0};
        int n;
        st = make_layouts(b, &p);
        if (st == AX_OK)
            st = make_desc(b, &p);
        if (st == AX_OK)
            st = ask_library(b, &p, 1, &found, &n);
        forget_plan(b, &p);
    }
    ax_error_clear();
    return st == AX_OK;
}

/* ---- what is chosen ---- */

static const struct ax_blas_choice *find_choice(const struct ax_blas *b,
                                                const struct ax_blas_key *key, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&b->choices[i].key, key, sizeof *key) == 0)
            return &b->choices[i];
    return NULL;
}

static bool is_accepted(const struct ax_blas *b, const struct ax_blas_plan *p,
                        const ax_lt_algo *algo) {
    ax_lt_choice found = {0};
    return b->lt.MatmulAlgoCheck(b->handle, p->desc, p->a, p->b, p->c, p->d, algo, &found) ==
               AX_LT_OK &&
           found.workspaceSize <= AX_BLAS_WORK;
}

/* p->algo: what is chosen, if the library takes it, or its favorite. */
static enum ax_status settle_plan(const struct ax_blas *b, struct ax_blas_plan *p) {
    const struct ax_blas_choice *chosen = find_choice(b, &p->key, b->n_chosen);
    ax_lt_choice favorite = {0};
    int n;
    p->known = chosen && is_accepted(b, p, &chosen->algo);
    if (p->known) {
        p->algo = chosen->algo;
        return AX_OK;
    }
    AX_TRY(ask_library(b, p, 1, &favorite, &n));
    p->algo = favorite.algo;
    p->known = find_choice(b, &p->key, b->n_choices) != NULL || b->n_choices == MOST;
    return AX_OK;
}

static enum ax_status add_choice(struct ax_blas *b, const struct ax_blas_choice *c) {
    if (b->n_choices == b->room) {
        const size_t room = b->room ? 2 * b->room : 64;
        AX_TRY(ax_regrow(&b->choices, b->room, room, sizeof *b->choices));
        b->room = room;
    }
    b->choices[b->n_choices++] = *c;
    return AX_OK;
}

/* ---- plans ---- */

static enum ax_status make_plan(const struct ax_blas *b, struct ax_blas_plan *p) {
    b->counters->asked++;
    AX_TRY(make_layouts(b, p));
    AX_TRY(make_desc(b, p));
    return settle_plan(b, p);
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
        forget_plans(b);
    uint64_t at = hash_of(key) % ROOM;
    while (b->plans[at].desc && memcmp(&b->plans[at].key, key, sizeof *key) != 0)
        at = (at + 1) % ROOM;
    *out = &b->plans[at];
    if ((*out)->desc)
        return AX_OK;
    (*out)->key = *key;
    const enum ax_status st = make_plan(b, *out);
    if (st == AX_OK)
        b->n++;
    else
        forget_plan(b, *out);
    return st;
}

unsigned ax_blas_multiply(const struct ax_blas *b, const struct ax_blas_plan *p,
                          const ax_lt_algo *algo, const struct ax_blas_product *x) {
    return b->lt.Matmul(b->handle, p->desc, &x->alpha, x->a, p->a, x->b, p->b, &x->beta, x->c, p->c,
                        x->d, p->d, algo, x->work, AX_BLAS_WORK, x->stream);
}

enum ax_status ax_blas_set_scales(const struct ax_blas *b, const struct ax_blas_plan *p,
                                  const struct ax_blas_product *x) {
    return set_scales(b, p->desc, x->a_scale, x->b_scale);
}

/* ---- other sizes ---- */

static enum ax_status resize_layout(const struct ax_blas *b, ax_lt_layout layout, int64_t rows,
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
    AX_TRY(resize_layout(b, p->a, key->trans_b ? k : key->n, key->trans_b ? key->n : k));
    AX_TRY(resize_layout(b, p->b, key->trans_a ? m : k, key->trans_a ? k : m));
    AX_TRY(resize_layout(b, p->c, key->n, m));
    AX_TRY(resize_layout(b, p->d, key->n, m));
    p->m = m;
    p->k = k;
    return AX_OK;
}

/* ---- measuring ---- */

/* *milliseconds of the fastest run, or AX_OK with a negative number where the algorithm does not take
 * the product. */
static enum ax_status time_algo(const struct ax_blas *b, const struct ax_blas_plan *p,
                                const ax_lt_algo *algo, const struct ax_blas_product *x,
                                const cudaEvent_t at[2], float *milliseconds) {
    *milliseconds = -1;
    for (int run = 0; run <= RUNS; run++) {
        float took;
        AX_CUDA_TRY(cudaEventRecord(at[0], x->stream));
        if (ax_blas_multiply(b, p, algo, x) != AX_LT_OK)
            return AX_OK;
        AX_CUDA_TRY(cudaEventRecord(at[1], x->stream));
        AX_CUDA_TRY(cudaEventSynchronize(at[1]));
        AX_CUDA_TRY(cudaEventElapsedTime(&took, at[0], at[1]));
        if (run == 1 || (run > 1 && took < *milliseconds))
            *milliseconds = took;
    }
    return AX_OK;
}

static enum ax_status find_fastest(struct ax_blas *b, const struct ax_blas_plan *p,
                                   const struct ax_blas_product *x, const cudaEvent_t at[2]) {
    ax_lt_choice found[TRIED] = {0};
    struct ax_blas_choice best = {.key = p->key, .algo = p->algo};
    float least, took;
    int n;
    AX_TRY(ask_library(b, p, TRIED, found, &n));
    AX_TRY(time_algo(b, p, &p->algo, x, at, &least));
    least *= (float)BETTER;
    for (int i = 1; i < n; i++) { /* the first is p's */
        if (found[i].state != AX_LT_OK)
            continue;
        AX_TRY(time_algo(b, p, &found[i].algo, x, at, &took));
        if (took >= 0 && took < least) {
            least = took;
            best.algo = found[i].algo;
        }
    }
    b->counters->measured++;
    return add_choice(b, &best);
}

static enum ax_status run_measurement(struct ax_blas *b, const struct ax_blas_plan *p,
                                      const struct ax_blas_product *x) {
    cudaEvent_t at[2] = {0};
    enum ax_status st = ax_cuda_check(cudaEventCreateWithFlags(&at[0], 0), "cudaEventCreate");
    if (st == AX_OK)
        st = ax_cuda_check(cudaEventCreateWithFlags(&at[1], 0), "cudaEventCreate");
    if (st == AX_OK)
        st = find_fastest(b, p, x, at);
    for (int i = 0; i < 2; i++)
        if (at[i])
            (void)cudaEventDestroy(at[i]);
    return st;
}

enum ax_status ax_blas_measure(struct ax_blas *b, struct ax_blas_plan *p,
                               const struct ax_blas_product *x) {
    const struct ax_blas_key *k = &p->key;
    struct ax_blas_product here = *x;
    void *other = NULL;
    p->known = true;
    if (x->beta != 0 && x->c == x->d) { /* each run would add to it */
        const size_t element = k->type_c == AX_LT_REAL_16BF ? 2 : 4;
        const size_t n = (size_t)(p->m - 1) * (size_t)k->stride_c + (size_t)k->n;
        if (cudaMalloc(&other, n * element) != cudaSuccess) {
            (void)cudaGetLastError();
            return AX_OK;
        }
        here.d = other;
    }
    const enum ax_status st = run_measurement(b, p, &here);
    if (other)
        (void)cudaFree(other);
    return st;
}

/* ---- as text ---- */

/* What a choice holds for: the GPU, the library, and what a line means. */
static enum ax_status put_title(const struct ax_blas *b, char *out, size_t size) {
    struct cudaDeviceProp gpu;
    int device;
    AX_CUDA_TRY(cudaGetDevice(&device));
    AX_CUDA_TRY(cudaGetDeviceProperties(&gpu, device));
    snprintf(out, size, "axtrain gemm 2: %.200s, sm_%d%d, %d processors, cuBLASLt %zu", gpu.name,
             gpu.major, gpu.minor, gpu.multiProcessorCount, b->lt.GetVersion());
    return AX_OK;
}

#define KEY_DIGITS  (2 * sizeof(struct ax_blas_key))
#define ALGO_DIGITS (2 * sizeof(ax_lt_algo))

enum ax_status ax_blas_choices(const struct ax_blas *b, struct ax_buf *out) {
    char title[320], key[KEY_DIGITS + 1], algo[ALGO_DIGITS + 1];
    AX_TRY(put_title(b, title, sizeof title));
    AX_TRY(ax_buf_printf(out, "%s\n", title));
    for (size_t i = 0; i < b->n_choices; i++) {
        ax_hex(key, (const unsigned char *)&b->choices[i].key, sizeof b->choices[i].key);
        ax_hex(algo, (const unsigned char *)&b->choices[i].algo, sizeof b->choices[i].algo);
        AX_TRY(ax_buf_printf(out, "%s %s\n", key, algo));
    }
    return AX_OK;
}

/* n bytes of 2n digits, as ax_hex writes them. */
static bool from_hex(void *out, const char *text, size_t n) {
    static const char digits[] = "0123456789abcdef";
    unsigned char *to = out;
    for (size_t i = 0; i < n; i++) {
        const char *high = text[2 * i] ? strchr(digits, text[2 * i]) : NULL;
        const char *low = high && text[2 * i + 1] ? strchr(digits, text[2 * i + 1]) : NULL;
        if (!low)
            return false;
        to[i] = (unsigned char)(16 * (high - digits) + (low - digits));
    }
    return true;
}

static enum ax_status read_lines(struct ax_blas *b, const char *text) {
    struct ax_blas_choice c;
    for (int line = 2; *text; line++) {
        const char *algo = text + KEY_DIGITS + 1;
        if (b->n_choices == MOST || !from_hex(&c.key, text, sizeof c.key) || algo[-1] != ' ' ||
            !from_hex(&c.algo, algo, sizeof c.algo) || algo[ALGO_DIGITS] != '\n')
            return ax_error(AX_ERR_DATA, "line %d is damaged", line);
        AX_TRY(add_choice(b, &c));
        text = algo + ALGO_DIGITS + 1;
    }
    return AX_OK;
}

enum ax_status ax_blas_choose(struct ax_blas *b, const char *text) {
    struct ax_blas read = {0};
    char title[320];
    AX_TRY(put_title(b, title, sizeof title));
    const size_t n = strlen(title);
    if (strncmp(text, title, n) != 0 || text[n] != '\n')
        return ax_error(AX_ERR_DATA, "they are of \"%.*s\", and this is \"%s\"",
                        (int)(strcspn(text, "\n") < 300 ? strcspn(text, "\n") : 300), text, title);
    const enum ax_status st = read_lines(&read, text + n + 1);
    if (st != AX_OK) {
        ax_free(read.choices);
        return st;
    }
    ax_free(b->choices);
    b->choices = read.choices;
    b->n_choices = b->n_chosen = read.n_choices;
    b->room = read.room;
    forget_plans(b); /* the plans' algorithms */
    return AX_OK;
}
