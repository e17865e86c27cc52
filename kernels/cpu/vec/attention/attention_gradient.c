/* Attention backward of one block of queries: per key block, first a strip of rows at a time for p,
 * ds and dq, then dk and dv over all rows. */
#include "kernels/cpu/vec/attention/attention_gradient.h"

#define KEYS  AX_ATTENTION_KEYS
#define STRIP AX_ATTENTION_STRIP
#define TILE  AX_ATTENTION_TILE

struct ax_attention_worker AX_VEC(ax_attention_worker)(struct ax_attention_work *work,
                                                       const struct ax_attention_backward *args,
                                                       const struct ax_attention_shape *s) {
    const size_t size = sizeof(float);
    const int64_t rows = s->max_rows;
    const int64_t units = rows / s->per_unit;
    struct ax_attention_worker w = {
        .args = args,
        .s = s,
        .q_rows = carve(work, rows * s->k.units, size),
        .dout_rows = carve(work, rows * s->v.units, size),
        .q_sums = carve(work, units * s->k.columns, size),
        .dout_sums = carve(work, units * s->v.columns, size),
        .k_columns = carve(work, s->k.units * KEYS, size),
        .v_columns = carve(work, s->v.units * KEYS, size),
        .k_sums = carve(work, s->key_units * s->k.columns, size),
        .scores = carve(work, (int64_t)STRIP * KEYS, size),
        .dp = carve(work, (int64_t)STRIP * KEYS, size),
        .p_columns = carve(work, units * KEYS, size),
        .ds_columns = carve(work, units * KEYS, size),
        .dq = carve(work, rows * s->k.columns, size),
        .lse = carve(work, rows, size),
        .delta = carve(work, rows, size),
        .low = carve(work, rows, sizeof(int64_t)),
        .high = carve(work, rows, sizeof(int64_t)),
        .rows = carve(work, rows, sizeof(void *)),
        .out = carve(work, rows, sizeof(void *)),
        .keys = carve(work, KEYS, sizeof(void *)),
    };
    /* If a unit is one number, a(row, key) and a(key, row) are the same matrix. */
    w.ds_rows = s->pairs ? carve(work, rows * s->key_units, size) : w.ds_columns;
    return w;
}

/* n rows of the block from row `first`, and the keys of the block that they may see, rounded up to
 * vectors. */
struct strip {
    int64_t first, n, width;
};

/* Operands, lse and δ = Σ out·dout of the rows of a block. */
static void load_block(const struct ax_attention_worker *w, const struct ax_attention_block *b) {
    const struct ax_attention *a = &w->args->a;
    const struct ax_attention_shape *s = w->s;
    AX_VEC(ax_attention_visible)(a, s, b, w->low, w->high);
    AX_VEC(ax_attention_query_rows)(s, &a->q, b, w->rows);
    AX_VEC(ax_attention_pack_rows)(s, &s->k, w->rows, b->rows, w->q_rows);
    AX_VEC(ax_attention_pack_sums)(s, &s->k, w->rows, b->rows, summed(b->rows), w->q_sums);
    AX_VEC(ax_attention_query_rows)(s, &w->args->dout, b, w->rows);
    AX_VEC(ax_attention_pack_rows)(s, &s->v, w->rows, b->rows, w->dout_rows);
    AX_VEC(ax_attention_pack_sums)(s, &s->v, w->rows, b->rows, summed(b->rows), w->dout_sums);
    AX_VEC(ax_attention_query_rows)(s, &a->out, b, w->out);
    for (int64_t r = 0; r < b->rows; r++) {
        v_float sum = v_set(0.0f);
        for (int64_t i = 0; i < s->v.size; i += AX_LANES) {
            int64_t n = least(s->v.size - i, AX_LANES);
            sum = v_fma(v_load(s->dtype, w->rows[r], i, n), v_load(s->dtype, w->out[r], i, n), sum);
        }
        w->delta[r] = (float)v_sum(sum);
        /* −inf is for rows that see no keys: made finite, so that 2^(−inf − lse) is 0. */
        float lse = *AX_VEC(ax_attention_lse)(a, s, b, r) * AX_ATTENTION_LOG2E;
        w->lse[r] = lse == -INFINITY ? 0.0f : lse;
    }
    memset(w->dq, 0, (size_t)(b->rows * s->k.columns) * sizeof(float));
}

static void load_keys(const struct ax_attention_worker *w, const struct ax_attention_block *b) {
    const struct ax_attention *a = &w->args->a;
    AX_VEC(ax_attention_key_rows)(a, &a->k, b, w->keys);
    AX_VEC(ax_attention_pack_columns)(w->s, &w->s->k, w->keys, b->keys, w->k_columns);
    AX_VEC(ax_attention_pack_sums)
    (w->s, &w->s->k, w->keys, b->keys, summed(round_up(b->keys, AX_LANES)), w->k_sums);
    AX_VEC(ax_attention_key_rows)(a, &a->v, b, w->keys);
    AX_VEC(ax_attention_pack_columns)(w->s, &w->s->v, w->keys, b->keys, w->v_columns);
}

struct gradient {
    v_float p, ds;
};

/* p and ds of row i of the strip for keys j … of the block; 0 past the strip. The slope of a capped
 * score is 1 − tanh². */
AX_INLINE struct gradient gradient_at(const struct ax_attention_worker *w,
                                      const struct ax_attention_block *b, const struct strip *strip,
                                      int64_t i, int64_t j) {
    struct gradient g = {v_set(0.0f), v_set(0.0f)};
    if (i >= strip->n || j >= strip->width)
        return g;
    int64_t low = w->low[strip->first + i] - b->key - j;
    int64_t high = w->high[strip->first + i] - b->key - j;
    v_float x = v_load_f32(w->scores + i * KEYS + j, AX_LANES), slope = v_set(1.0f);
    if (w->s->cap > 0) {
        const v_float t = v_tanh(x);
        x = v_set(w->s->cap) * t;
        slope = v_fnma(t, t, slope);
    }
    if (low > 0 || high < AX_LANES)
        x = v_between(x, low, high);
    v_float delta = v_set(w->delta[strip->first + i]);
    g.p = v_exp2(x - v_set(w->lse[strip->first + i]));
    g.ds = g.p * (v_load_f32(w->dp + i * KEYS + j, AX_LANES) - delta);
    if (w->s->cap > 0)
        g.ds = g.ds * slope;
    return g;
}

/* p and ds of the strip as operands, for all KEYS keys. */
#ifdef __AVX512BF16__
/* Units of the pairs of lanes. */
AX_INLINE v_float pair_lanes(v_float even, v_float odd) {
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_castsi512_ps(
        _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even)));
}

AX_INLINE void store_bf16(float *units, int64_t j, v_float x) {
    _mm256_storeu_si256((void *)((uint16_t *)units + j), (__m256i)_mm512_cvtneps_pbh(x));
}

static void gradient_pairs(const struct ax_attention_worker *w, const struct ax_attention_block *b,
                           const struct strip *strip) {
    for (int64_t i = 0; i < summed(strip->n); i += 2) {
        int64_t row = strip->first + i;
        for (int64_t j = 0; j < KEYS; j += AX_LANES) {
            struct gradient even = gradient_at(w, b, strip, i, j);
            struct gradient odd = gradient_at(w, b, strip, i + 1, j);
            v_store_f32(w->p_columns + row / 2 * KEYS + j, AX_LANES, pair_lanes(even.p, odd.p));
            v_store_f32(w->ds_columns + row / 2 * KEYS + j, AX_LANES, pair_lanes(even.ds, odd.ds));
            /* There is a row for `odd` even if it is past the last: max_rows is even. */
            store_bf16(w->ds_rows + row * w->s->key_units, j, even.ds);
            store_bf16(w->ds_rows + (row + 1) * w->s->key_units, j, odd.ds);
        }
    }
}
#endif

static void gradients(const struct ax_attention_worker *w, const struct ax_attention_block *b,
                      const struct strip *strip) {
#ifdef __AVX512BF16__
    if (w->s->pairs) {
        gradient_pairs(w, b, strip);
        return;
    }
#endif
    for (int64_t i = 0; i < strip->n; i++) {
        for (int64_t j = 0; j < KEYS; j += AX_LANES) {
            struct gradient g = gradient_at(w, b, strip, i, j);
            v_store_f32(w->p_columns + (strip->first + i) * KEYS + j, AX_LANES, g.p);
            v_store_f32(w->ds_columns + (strip->first + i) * KEYS + j, AX_LANES, g.ds);
        }
    }
}

/* p, ds and dq of a strip. */
static void run_strip(const struct ax_attention_worker *w, const struct ax_attention_block *b,
                      const struct strip *strip) {
    const struct ax_attention_shape *s = w->s;
    struct ax_attention_gemm g = {
        .pairs = s->pairs,
        .m = strip->n,
        .n = strip->width,
        .units = s->k.units,
        .a = w->q_rows + strip->first * s->k.units,
        .a_row = s->k.units,
        .a_unit = 1,
        .b = w->k_columns,
        .b_unit = KEYS,
        .c = w->scores,
        .c_row = KEYS,
        .scale = s->scale,
    };
    AX_VEC(ax_attention_gemm)(&g);
    g.units = s->v.units;
    g.a = w->dout_rows + strip->first * s->v.units;
    g.a_row = s->v.units;
    g.b = w->v_columns;
    g.c = w->dp;
    g.scale = 1.0f;
    AX_VEC(ax_attention_gemm)(&g);
    gradients(w, b, strip);
    g = (struct ax_attention_gemm){
        .pairs = s->pairs,
        .accumulate = true,
        .m = strip->n,
        .n = s->k.columns,
        .units = summed(strip->width) / s->per_unit,
        .a = w->ds_rows + strip->first * s->key_units,
        .a_row = s->key_units,
        .a_unit = 1,
        .b = w->k_sums,
        .b_unit = s->k.columns,
        .c = w->dq + strip->first * s->k.columns,
        .c_row = s->k.columns,
    };
    AX_VEC(ax_attention_gemm)(&g);
}

/* dk and dv of the block's keys, a tile at a time, each over the rows that see some of its keys. */
static void sum_keys(const struct ax_attention_worker *w, const struct ax_attention_block *b,
                     const struct ax_attention_sums *sums) {
    const struct ax_attention_shape *s = w->s;
    int64_t first = 0;
    int64_t last = 0;
    for (int64_t j = 0; j < b->keys; j += TILE) {
        int64_t n = least(TILE, b->keys - j);
        while (first < b->rows && w->high[first] <= b->key + j)
            first++;
        while (last < b->rows && w->low[last] < b->key + j + n)
            last++;
        int64_t unit = first / AX_ATTENTION_SUMMED * AX_ATTENTION_SUMMED / s->per_unit;
        struct ax_attention_gemm g = {
            .pairs = s->pairs,
            .accumulate = b->key < sums->reached,
            .m = n,
            .n = s->v.columns,
            .units = ceil_div(summed(last), s->per_unit) - unit,
            .a = w->p_columns + unit * KEYS + j,
            .a_row = 1,
            .a_unit = KEYS,
            .b = w->dout_sums + unit * s->v.columns,
            .b_unit = s->v.columns,
            .c = sums->dv + (b->key + j) * s->v.columns,
            .c_row = s->v.columns,
            .scale = 1.0f,
        };
        AX_VEC(ax_attention_gemm)(&g);
        g.n = g.b_unit = g.c_row = s->k.columns;
        g.a = w->ds_columns + unit * KEYS + j;
        g.b = w->q_sums + unit * s->k.columns;
        g.c = sums->dk + (b->key + j) * s->k.columns;
        AX_VEC(ax_attention_gemm)(&g);
    }
}

void AX_VEC(ax_attention_reach)(const struct ax_attention_worker *w, struct ax_attention_sums *sums,
                                int64_t key) {
    const int64_t k = w->s->k.columns, v = w->s->v.columns;
    if (key > sums->reached) {
        size_t keys = (size_t)(key - sums->reached);
        memset(sums->dk + sums->reached * k, 0, keys * (size_t)k * sizeof(float));
        memset(sums->dv + sums->reached * v, 0, keys * (size_t)v * sizeof(float));
        sums->reached = key;
    }
}

void AX_VEC(ax_attention_block_backward)(const struct ax_attention_worker *w,
                                         struct ax_attention_block b,
                                         struct ax_attention_sums *sums) {
    const struct ax_attention_shape *s = w->s;
    load_block(w, &b);
    int64_t start = w->low[0] / KEYS * KEYS;
    AX_VEC(ax_attention_reach)(w, sums, start);
    for (b.key = start; b.key < w->high[b.rows - 1]; b.key += KEYS) {
        b.keys = least(KEYS, b.doc.n_k - b.key);
        load_keys(w, &b);
        for (int64_t r = 0; r < b.rows; r += STRIP) {
            int64_t n = least(STRIP, b.rows - r);
            int64_t seen = least(w->high[r + n - 1] - b.key, b.keys);
            if (seen > 0 && w->low[r] < b.key + b.keys)
                run_strip(w, &b, &(struct strip){r, n, round_up(seen, AX_LANES)});
        }
        sum_keys(w, &b, sums);
        sums->reached = b.key < sums->reached ? sums->reached : b.key + b.keys;
    }
    AX_VEC(ax_attention_query_rows)(s, &w->args->dq, &b, w->rows);
    v_float scale = v_set((float)w->args->a.scale);
    for (int64_t r = 0; r < b.rows; r++) {
        for (int64_t i = 0; i < s->k.size; i += AX_LANES) {
            v_store(s->dtype, w->rows[r], i, least(s->k.size - i, AX_LANES),
                    v_load_f32(w->dq + r * s->k.columns + i, AX_LANES) * scale);
        }
    }
}
