/* What the attention kernels share, private to this folder but for products and workspaces, which the delta rule
 * (kernels/cpu/vec/delta/) takes from here. Reading order: this file,
 * attention_gemm.c (register tiles; attention_gemm_tiles.c on AMX's), attention_pack.c (operands), attention_plan.c (shapes,
 * documents, tasks), attention_forward.c, attention_backward.c, attention_merge.c, top_keys.c (which keys are
 * attended to).
 *
 * The operands of the small matrix products consist of 32-bit *units*, stored as floats: with BF16
 * instructions a unit is a pair of neighbors in the summed dimension (as vdpbf16ps reads them),
 * else one number. So every product is the same loop: broadcast a unit of a, multiply it by vectors
 * of units of b, add to float sums.
 *
 * The rows of a block are (query, head) pairs of the heads that share a KV head: row r is query r /
 * group, head r % group. They share keys and values, and the range of keys they see only moves up
 * from row to row. (While a team of documents goes through the keys that they share, its rows are those of all of
 * them: attention_forward.c.)
 *
 * Key blocks start at key 0 of their document and query blocks at its query 0, and each sum runs in
 * that order in any tile. So a row's bits depend neither on the number of threads nor on other
 * documents, and in forward not on the document's other queries: a query decoded alone over nk keys
 * gets the same bits as in a prefill. */
#ifndef AX_KERNELS_CPU_VEC_ATTENTION_ATTENTION_H
#define AX_KERNELS_CPU_VEC_ATTENTION_ATTENTION_H

#include <math.h>

#include "kernels/cpu/vec/simd.h"
#include "kernels/cpu/vec/split.h"
#include "kernels/cpu/vec/tiles.h"
#include "kernels/cpu/vec/vec.h"

#define AX_ATTENTION_KEYS     64  /* keys per block */
#define AX_ATTENTION_HEAD_DIM 256 /* the largest head size whose blocks fit the L2 cache */
#define AX_ATTENTION_CACHED                                                                        \
    576                                   /* forward only: DeepSeek's latents, whose keys are their
                                     values */
#define AX_ATTENTION_LOG2E 0x1.715476p+0f /* scores are in units of log 2: e^s = 2^(s·log2 e) */
#define AX_ATTENTION_LN2   0x1.62e42fefa39efp-1

/* STRIP: rows whose scores are computed together: those of two strips and the keys fit the L1 cache, in backward with dp.
 * HEIGHT: products of a strip have a multiple of this many rows. TILE: rows of a register tile. SUMMED: sums over keys,
 * rows or elements of a head run over a multiple of this, padded with zeros. SCALES: products scale their sums; else
 * scaled() does when they are read, so that tiles are stored as they are. */
#ifdef AX_TILES
#define AX_ATTENTION_STRIP          (2 * AX_TILE_ROWS)
#define AX_ATTENTION_STRIP_BACKWARD AX_TILE_ROWS
#define AX_ATTENTION_HEIGHT         AX_TILE_ROWS
#define AX_ATTENTION_TILE           (2 * AX_TILE_ROWS)
#define AX_ATTENTION_SUMMED         (2 * AX_TILE_UNITS) /* pairs */
#define AX_ATTENTION_SCALES         false
#else
#define AX_ATTENTION_STRIP          12
#define AX_ATTENTION_STRIP_BACKWARD 12
#define AX_ATTENTION_HEIGHT         1
#define AX_ATTENTION_TILE           6
#define AX_ATTENTION_SUMMED         1
#define AX_ATTENTION_SCALES         true
#endif

/* One head's elements in a row of a tensor. */
struct ax_attention_head {
    int64_t size;    /* elements */
    int64_t units;   /* units of those elements, rounded up to SUMMED */
    int64_t columns; /* rounded up to full vectors */
};

/* Sizes that follow from shapes and dtypes. */
struct ax_attention_shape {
    enum ax_dtype dtype;
    bool pairs;        /* a unit is two bf16 */
    int64_t per_unit;  /* elements in a unit: 2 or 1 */
    int64_t kv_heads;  /* Hk */
    int64_t group;     /* Hq / Hk */
    int64_t key_units; /* units of AX_ATTENTION_KEYS elements */
    int64_t block;     /* queries per block */
    int64_t max_rows;  /* maximum rows of a block in this call, rounded up to full units, SUMMED */
    float scale,
        cap; /* a score in units of log 2 is scale·q·k, or cap·tanh(scale·q·k) if cap > 0 */
    struct ax_attention_head k, v; /* a head of q and k; a head of v and out */
};

struct ax_attention_doc {
    int64_t index;
    int64_t first_q, n_q; /* rows of q, out, lse, dout, dq */
    int64_t first_k, n_k; /* rows of k, v, dk, dv if there is no block table */
};

/* Some queries of a document, for the heads that read one KV head, and some keys. */
struct ax_attention_block {
    struct ax_attention_doc doc;
    int64_t kv_head;
    int64_t query, rows; /* the first query, and (query, head) rows from there */
    int64_t key, keys;   /* the first key, and how many */
};

/* c[m][n] = scale · Σ_u a(m,u)·b[u][n], or c += Σ_u … if accumulate (the sum then starts from c).
 * a(m,u) is a[m·a_row + u·a_unit]; n is a multiple of AX_LANES; u ascends from 0, and units may be 0. With tiles, the
 * units are full tiles, a_unit is 1, and a has rows up to the next multiple of AX_TILE_ROWS; it is fastest if m
 * is a multiple, and scale 1. */
struct ax_attention_gemm {
    bool pairs, accumulate;
    int64_t m, n, units;
    const float *a, *b;
    int64_t a_row, a_unit, b_unit;
    float *c;
    int64_t c_row;
    float scale;
};
void AX_VEC(ax_attention_gemm)(const struct ax_attention_gemm *g);

/* Products on tiles that a thread computes a few at a time, between rows of what vectors do: then results have left the
 * core when they are read, and the tile unit stays awake, which it takes 0.2 µs to become after as long without a
 * product. Vectors of 512 bits and tiles share an execution port, so their times add up otherwise. Without tiles a
 * product is computed when it is queued. Starts as {0}. Products are computed in order, but sums are stored late: none
 * may read what one queued with it writes. */
#define AX_ATTENTION_QUEUED 3
struct ax_attention_products {
    struct ax_attention_gemm of[AX_ATTENTION_QUEUED];
    int queued, at, tile;
    int64_t m, n, u;     /* place of the next step in of[at] */
    int64_t steps, done; /* sums over all queued */
    float *sums[4];      /* where tiles 0 … 3 are to be stored, or NULL */
    int64_t row[4];      /* bytes from row to row there */
};
#ifdef AX_TILES
void AX_VEC(ax_attention_queue)(struct ax_attention_products *p, const struct ax_attention_gemm *g);
/* part / parts of all steps queued are done after this, in order. */
void AX_VEC(ax_attention_advance)(struct ax_attention_products *p, int64_t part, int64_t parts);
#else
static inline void AX_VEC(ax_attention_queue)(struct ax_attention_products *p,
                                              const struct ax_attention_gemm *g) {
    (void)p;
    AX_VEC(ax_attention_gemm)(g);
}

static inline void AX_VEC(ax_attention_advance)(struct ax_attention_products *p, int64_t part,
                                                int64_t parts) {
    (void)p;
    (void)part;
    (void)parts;
}
#endif

/* n rows of one head h, at addresses rows[…], as operands:
 *   rows:    a(row, element)  → [n][units]
 *   columns: b(element, row)  → [units][AX_ATTENTION_KEYS], n rounded up to vectors
 *   sums:    b(row, element)  → [n / per_unit][columns], n rounded up to `padded`
 *   turned:  a(element, row)  → [columns][n / per_unit], n rounded up to `padded`, a multiple of SUMMED; of bf16
 * Rounding up pads with zeros. */
void AX_VEC(ax_attention_pack_rows)(const struct ax_attention_shape *s,
                                    const struct ax_attention_head *h, void *const *rows, int64_t n,
                                    float *dst);
void AX_VEC(ax_attention_pack_columns)(const struct ax_attention_shape *s,
                                       const struct ax_attention_head *h, void *const *rows,
                                       int64_t n, float *dst);
void AX_VEC(ax_attention_pack_sums)(const struct ax_attention_shape *s,
                                    const struct ax_attention_head *h, void *const *rows, int64_t n,
                                    int64_t padded, float *dst);

void AX_VEC(ax_attention_pack_turned)(const struct ax_attention_head *h, void *const *rows,
                                      int64_t n, int64_t padded, float *dst);

/* True for dtypes that forward and backward support, with heads of at most `most` elements. */
bool AX_VEC(ax_attention_supports)(const struct ax_attention *a, int64_t most);
/* Blocks of about `rows` rows; half as many with heads of more than 128 elements. */
struct ax_attention_shape AX_VEC(ax_attention_shape)(const struct ax_attention *a, int64_t rows);
int64_t AX_VEC(ax_attention_docs)(const struct ax_attention *a);
struct ax_attention_doc AX_VEC(ax_attention_doc)(const struct ax_attention *a, int64_t index);

/* first[d] = tasks of the documents before d, where a document of n_q queries has tasks(s, n_q).
 * first has docs + 1 elements; the last is also returned. */
int64_t AX_VEC(ax_attention_count)(const struct ax_attention *a, const struct ax_attention_shape *s,
                                   int64_t (*tasks)(const struct ax_attention_shape *s,
                                                    int64_t n_q),
                                   int64_t *first);
/* The document that a task belongs to. */
int64_t AX_VEC(ax_attention_find)(const int64_t *first, int64_t docs, int64_t task);

/* Addresses of the block's rows in x (q, out, dout or dq), and of its keys in x (k or v). */
void AX_VEC(ax_attention_query_rows)(const struct ax_attention_shape *s, const struct ax_tensor *x,
                                     const struct ax_attention_block *b, void **rows);
void AX_VEC(ax_attention_key_rows)(const struct ax_attention *a, const struct ax_tensor *x,
                                   const struct ax_attention_block *b, void **rows);
/* Address of lse of row r of the block. */
float *AX_VEC(ax_attention_lse)(const struct ax_attention *a, const struct ax_attention_shape *s,
                                const struct ax_attention_block *b, int64_t r);
/* Row r of the block sees keys low[r] ≤ j < high[r] of its document. */
void AX_VEC(ax_attention_visible)(const struct ax_attention *a, const struct ax_attention_shape *s,
                                  const struct ax_attention_block *b, int64_t *low, int64_t *high);
/* True if one of the block's rows [first, first + n) may attend to one of its keys, as far as a->chosen says. */
bool AX_VEC(ax_attention_any)(const struct ax_attention *a, const struct ax_attention_shape *s,
                              const struct ax_attention_block *b, int64_t first, int64_t n);
/* Zeroes the rows of x from `first` on, which belong to no document. */
void AX_VEC(ax_attention_clear)(const struct ax_tensor *x, int64_t first);

static inline int64_t round_up(int64_t n, int64_t to) {
    return ceil_div(n, to) * to;
}

/* A score as its product left it, scaled: the same bits for every set. */
AX_INLINE v_float scaled(const struct ax_attention_shape *s, v_float score) {
    if (!AX_ATTENTION_SCALES)
        score = score * v_set(s->scale);
    return score;
}

static inline float product_scale(const struct ax_attention_shape *s) {
    return AX_ATTENTION_SCALES ? s->scale : 1.0f;
}

/* n rows of a strip as its products have them. */
static inline int64_t product_rows(int64_t n) {
    return round_up(n, AX_ATTENTION_HEIGHT);
}

/* n keys, rows or elements rounded up to the length that a sum over them has. */
static inline int64_t summed(int64_t n) {
    return round_up(n, AX_ATTENTION_SUMMED);
}

/* a->chosen of row r of the block, from key b->key + j on, as many keys as a vector has. */
AX_INLINE uint32_t chosen_bits(const struct ax_attention *a, const struct ax_attention_shape *s,
                               const struct ax_attention_block *b, int64_t r, int64_t j) {
    const int64_t row = b->doc.first_q + b->query + r / s->group, key = b->key + j;
    const uint32_t *words = (const uint32_t *)a->chosen.data + row * a->chosen.row_stride;
    return words[key / 32] >> key % 32;
}

/* Divides a workspace into pieces; with base NULL it only counts the bytes. */
struct ax_attention_work {
    char *base;
    size_t used;
};
static inline void *carve(struct ax_attention_work *w, int64_t n, size_t size) {
    void *piece = w->base == NULL ? NULL : w->base + w->used;
    w->used += ax_arena_round((size_t)n * size);
    return piece;
}

/* 2^x within 1.1 ulp for x < 128, 0 for x ≤ −151: x = k + r with integer k and 0 ≤ r < 1, and 2^r
 * by a polynomial of degree 6, fitted for least relative error (2e-9), that is 1 at 0. */
AX_INLINE v_float v_exp2(v_float x) {
#ifdef __AVX512F__
    v_float r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF); /* 0 for −inf */
    v_float k = x;                                          /* v_scale uses its integer part */
#else
    x = v_max(v_set(-151.0f), x);
#ifdef __AVX2__
    v_float k = _mm256_floor_ps(x);
#else
    v_float k = vrndmq_f32(x);
#endif
    v_float r = x - k;
#endif
    v_float p = v_set(0x1.c54176p-13f);
    p = v_fma(p, r, v_set(0x1.46d64cp-10f));
    p = v_fma(p, r, v_set(0x1.3d0b92p-7f));
    p = v_fma(p, r, v_set(0x1.c68912p-5f));
    p = v_fma(p, r, v_set(0x1.ebfd58p-3f));
    p = v_fma(p, r, v_set(0x1.62e42cp-1f));
    return v_scale(v_fma(p, r, v_set(1.0f)), k);
}

/* x in lanes low … high − 1, −inf in the others; any low and high. */
AX_INLINE v_float v_between(v_float x, int64_t low, int64_t high) {
    x = v_keep(high > 0 ? high : 0, x, -INFINITY);
    if (low <= 0)
        return x;
#ifdef __AVX512F__
    return _mm512_mask_blend_ps(low < AX_LANES ? v_first(low) : 0xffff, x, v_set(-INFINITY));
#elif !defined(__AVX2__)
    return vbslq_f32(v_first(low), v_set(-INFINITY), x);
#else
    return _mm256_blendv_ps(x, v_set(-INFINITY), _mm256_castsi256_ps(v_first(low)));
#endif
}

/* x in lanes whose bit is set, −inf in the others. */
AX_INLINE v_float v_chosen(v_float x, uint32_t bits) {
#ifdef __AVX512F__
    return _mm512_mask_blend_ps((__mmask16)bits, v_set(-INFINITY), x);
#elif !defined(__AVX2__)
    const uint32x4_t lanes = {1, 2, 4, 8};
    return vbslq_f32(vtstq_u32(vdupq_n_u32(bits), lanes), x, v_set(-INFINITY));
#else
    const __m256i lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i on = _mm256_and_si256(_mm256_set1_epi32((int)bits), lanes);
    return _mm256_blendv_ps(v_set(-INFINITY), x,
                            _mm256_castsi256_ps(_mm256_cmpeq_epi32(on, lanes)));
#endif
}

#endif
