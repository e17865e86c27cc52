/* Attention backward in one pass over (query block, key block) pairs, five products each: scores
 * recomputed from q and k, probabilities from lse, dp = dout·vᵀ, ds = p·(dp − δ), then dv +=
 * pᵀ·dout, dk += dsᵀ·q and dq += ds·k (Dao et al. 2022).
 *
 * A task is one KV head of one document: its query blocks in order, so that every sum has a fixed
 * order. A block's dq stays in the thread's memory; dk and dv are summed in floats in the
 * workspace. A long document is divided into parts (every n-th query block) with separate sums,
 * added in order at the end; their number depends only on its length, never on the threads. */
#include "kernels/cpu/vec/attention/attention.h"
#include "kernels/cpu/vec/entries.h"

#define KEYS  AX_ATTENTION_KEYS
#define STRIP AX_ATTENTION_STRIP_BACKWARD
#define TILE  AX_ATTENTION_TILE
/* Rows of strips that are run or left out together, since a sum over rows reads all of them. */
#define GROUP (STRIP > AX_ATTENTION_SUMMED ? STRIP : AX_ATTENTION_SUMMED)

/* The sums of dk and dv, of `columns` elements each: [keys][columns]. Tiles sum their transpose, so that p and ds are
 * right operands as they are stored: block after block of KEYS keys [columns][keys], a document's last one with as many
 * keys as full vectors have. */
#ifdef AX_TILES
#define PADDING    (AX_LANES - 1) /* keys that the last block may have too many */
#define BLOCK_ROWS 384
#else
#define PADDING    0
#define BLOCK_ROWS 192
#endif

/* Element (key, 0) of a document of n_k keys. */
struct sum_place {
    int64_t at;     /* elements from the document's first */
    int64_t stride; /* from one element of the key to the next */
};

static inline struct sum_place sum_place(int64_t key, int64_t n_k, int64_t columns) {
#ifdef AX_TILES
    const int64_t first = key / KEYS * KEYS;
    return (struct sum_place){first * columns + key - first,
                              least(KEYS, round_up(n_k - first, AX_LANES))};
#else
    (void)n_k;
    return (struct sum_place){key * columns, 1};
#endif
}

/* ---- a block of queries: per key block, first a strip of rows at a time for p, ds and dq, then dk
 * and dv over all rows ---- */

/* One thread and its memory. */
struct worker {
    const struct ax_attention_backward *args;
    const struct ax_attention_shape *s;
    float *q_rows, *dout_rows;    /* a  [rows][k.units], [rows][v.units] */
    float *q_sums, *dout_sums;    /* b  [rows / per_unit][k.columns], … (tiles: a, turned) */
    float *k_columns, *v_columns; /* b  [k.units][KEYS], [v.units][KEYS] */
    float *k_sums;                /* b  [key_units][k.columns] */
    float *scores[2], *dp[2];     /*    [STRIP][KEYS] of a strip and the next */
    float *p_columns;             /* a  [rows / per_unit][KEYS]: summed over rows (tiles: b) */
    float *ds_columns;            /* a  [rows / per_unit][KEYS]: summed over rows (tiles: b) */
    float *dq;                    /*    [rows][k.columns] */
    float *lse, *delta;           /*    [rows]; lse in units of log 2 */
    int64_t *low, *high;          /*    [rows] visible keys */
    void **rows, **out, **keys;   /*    addresses */
};

/* One task's sums of its document's keys. Keys 0 … reached − 1 are initialized. */
struct sums {
    float *dk, *dv;
    int64_t reached;
};

/* Takes a thread's memory from a workspace; without a base it only counts bytes. */
static struct worker carve_worker(struct ax_attention_work *work,
                                  const struct ax_attention_backward *args,
                                  const struct ax_attention_shape *s) {
    const size_t size = sizeof(float);
    const int64_t rows = s->max_rows;
    const int64_t units = rows / s->per_unit;
    return (struct worker){
        .args = args,
        .s = s,
        .q_rows = carve(work, rows * s->k.units, size),
        .dout_rows = carve(work, rows * s->v.units, size),
        .q_sums = carve(work, units * s->k.columns, size),
        .dout_sums = carve(work, units * s->v.columns, size),
        .k_columns = carve(work, s->k.units * KEYS, size),
        .v_columns = carve(work, s->v.units * KEYS, size),
        .k_sums = carve(work, s->key_units * s->k.columns, size),
        .scores = {carve(work, (int64_t)STRIP * KEYS, size),
                   carve(work, (int64_t)STRIP * KEYS, size)},
        .dp = {carve(work, (int64_t)STRIP * KEYS, size), carve(work, (int64_t)STRIP * KEYS, size)},
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
}

/* n rows of the block from row `first`, and the keys of the block that they may see, rounded up to
 * vectors. */
struct strip {
    int64_t first, n, width;
    int turn; /* which scores and dp are its */
};

/* ds of a strip: a [n][KEYS], summed over keys. Pairs are where the scores were; if a unit is one number, a(row, key)
 * and a(key, row) are the same matrix. */
static float *ds_rows(const struct worker *w, const struct strip *strip) {
    return w->s->pairs ? w->scores[strip->turn] : w->ds_columns + strip->first * KEYS;
}

/* Operands of sums over the block's rows. */
static void pack_sums(const struct worker *w, const struct ax_attention_head *h,
                      const struct ax_attention_block *b, float *dst) {
#ifdef AX_TILES
    AX_VEC(ax_attention_pack_turned)(h, w->rows, b->rows, summed(b->rows), dst);
#else
    AX_VEC(ax_attention_pack_sums)(w->s, h, w->rows, b->rows, summed(b->rows), dst);
#endif
}

/* Operands, lse and δ = Σ out·dout of the rows of a block. */
static void load_block(const struct worker *w, const struct ax_attention_block *b) {
    const struct ax_attention *a = &w->args->a;
    const struct ax_attention_shape *s = w->s;
    AX_VEC(ax_attention_visible)(a, s, b, w->low, w->high);
    AX_VEC(ax_attention_query_rows)(s, &a->q, b, w->rows);
    AX_VEC(ax_attention_pack_rows)(s, &s->k, w->rows, b->rows, w->q_rows);
    pack_sums(w, &s->k, b, w->q_sums);
    AX_VEC(ax_attention_query_rows)(s, &w->args->dout, b, w->rows);
    AX_VEC(ax_attention_pack_rows)(s, &s->v, w->rows, b->rows, w->dout_rows);
    pack_sums(w, &s->v, b, w->dout_sums);
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
    /* rows that pad sums */
    const int64_t units = ceil_div(b->rows, s->per_unit),
                  all = ceil_div(summed(b->rows), s->per_unit);
    memset(w->p_columns + units * KEYS, 0, (size_t)((all - units) * KEYS) * sizeof(float));
    memset(w->ds_columns + units * KEYS, 0, (size_t)((all - units) * KEYS) * sizeof(float));
    memset(w->dq, 0, (size_t)(summed(b->rows) * s->k.columns) * sizeof(float));
}

static void load_keys(const struct worker *w, const struct ax_attention_block *b) {
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

/* p and ds of one vector of a row's keys, of scores in units of log 2. */
AX_INLINE struct gradient gradient_of(v_float score, v_float dp, float lse, float delta) {
    const v_float p = v_exp2(score - v_set(lse));
    return (struct gradient){p, p * (dp - v_set(delta))};
}

/* The same of row i of the strip for keys j … of the block, masked; 0 past the strip. The slope of a capped
 * score is 1 − tanh². */
AX_INLINE struct gradient gradient_at(const struct worker *w, const struct ax_attention_block *b,
                                      const struct strip *strip, int64_t i, int64_t j) {
    struct gradient g = {v_set(0.0f), v_set(0.0f)};
    if (i >= strip->n || j >= strip->width)
        return g;
    const int64_t r = strip->first + i, at = i * KEYS + j;
    const int64_t low = w->low[r] - b->key - j, high = w->high[r] - b->key - j;
    v_float x = scaled(w->s, v_load_f32(w->scores[strip->turn] + at, AX_LANES)),
            slope = v_set(1.0f);
    if (w->s->cap > 0) {
        const v_float t = v_tanh(x);
        x = v_set(w->s->cap) * t;
        slope = v_fnma(t, t, slope);
    }
    if (low > 0 || high < AX_LANES)
        x = v_between(x, low, high);
    if (w->args->a.chosen.data)
        x = v_chosen(x, chosen_bits(&w->args->a, w->s, b, r, j));
    g = gradient_of(x, v_load_f32(w->dp[strip->turn] + at, AX_LANES), w->lse[r], w->delta[r]);
    if (w->s->cap > 0)
        g.ds = g.ds * slope;
    return g;
}

/* p and ds of the strip as operands, for all KEYS keys. */
#ifdef __AVX512BF16__
/* 2 · AX_LANES elements of two rows as units of both: the first AX_LANES, then the others. */
AX_INLINE void store_units(float *units, v_float even, v_float odd) {
    const __m512i first =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    const __m512i x = _mm512_castps_si512(even), y = _mm512_castps_si512(odd);
    v_store_f32(units, AX_LANES, (v_float)_mm512_permutex2var_epi16(x, first, y));
    v_store_f32(units + AX_LANES, AX_LANES, (v_float)_mm512_permutex2var_epi16(x, second, y));
}

AX_INLINE v_float two_bf16(v_float low, v_float high) {
    return (v_float)_mm512_cvtne2ps_pbh(high, low);
}

/* A row's p and ds for 2 · AX_LANES keys from j on. `whole`: without masks. */
AX_INLINE struct gradient row_gradient(bool whole, const struct worker *w,
                                       const struct ax_attention_block *b,
                                       const struct strip *strip, int64_t i, int64_t j) {
    struct gradient g[2];
    for (int64_t v = 0; v < 2; v++) {
        const int64_t at = i * KEYS + j + v * AX_LANES, r = strip->first + i;
        if (whole)
            g[v] =
                gradient_of(scaled(w->s, v_load_f32(w->scores[strip->turn] + at, AX_LANES)),
                            v_load_f32(w->dp[strip->turn] + at, AX_LANES), w->lse[r], w->delta[r]);
        else
            g[v] = gradient_at(w, b, strip, i, j + v * AX_LANES);
    }
    return (struct gradient){two_bf16(g[0].p, g[1].p), two_bf16(g[0].ds, g[1].ds)};
}

/* Rows i and i + 1 of the strip; there is a row i + 1 even if it is past the last, as STRIP is even. Whole lines are
 * stored, since a tile is not loaded from halves before they have left the core. */
AX_INLINE void row_pair(bool whole, const struct worker *w, const struct ax_attention_block *b,
                        const struct strip *strip, int64_t i) {
    float *rows = ds_rows(w, strip) + i * KEYS;
    for (int64_t j = 0; j < KEYS; j += 2 * AX_LANES) {
        const struct gradient even = row_gradient(whole, w, b, strip, i, j);
        const struct gradient odd = row_gradient(whole, w, b, strip, i + 1, j);
        const int64_t at = (strip->first + i) / 2 * KEYS + j;
        store_units(w->p_columns + at, even.p, odd.p);
        store_units(w->ds_columns + at, even.ds, odd.ds);
        v_store_f32(rows + j / 2, AX_LANES, even.ds);
        v_store_f32(rows + KEYS + j / 2, AX_LANES, odd.ds);
    }
}

static void gradient_pairs(const struct worker *w, const struct ax_attention_block *b,
                           const struct strip *strip, struct ax_attention_products *products) {
    const int64_t n = round_up(product_rows(strip->n), 2), last = strip->first + strip->n - 1;
    const bool whole = strip->n == n && strip->width == KEYS && w->low[last] <= b->key &&
                       w->high[strip->first] >= b->key + KEYS && w->s->cap == 0 &&
                       !w->args->a.chosen.data;
    for (int64_t i = 0; i < n; i += 2) {
        if (whole)
            row_pair(true, w, b, strip, i);
        else
            row_pair(false, w, b, strip, i);
        AX_VEC(ax_attention_advance)(products, i + 2, n);
    }
}
#endif

static void gradients(const struct worker *w, const struct ax_attention_block *b,
                      const struct strip *strip, struct ax_attention_products *products) {
#ifdef __AVX512BF16__
    if (w->s->pairs) {
        gradient_pairs(w, b, strip, products);
        return;
    }
#endif
    (void)products;
    for (int64_t i = 0; i < strip->n; i++) {
        for (int64_t j = 0; j < KEYS; j += AX_LANES) {
            struct gradient g = gradient_at(w, b, strip, i, j);
            v_store_f32(w->p_columns + (strip->first + i) * KEYS + j, AX_LANES, g.p);
            v_store_f32(w->ds_columns + (strip->first + i) * KEYS + j, AX_LANES, g.ds);
        }
    }
}

/* The strip from row `first` on or after it whose group sees some of the block's keys; n is 0 if there is none. */
static struct strip next_strip(const struct worker *w, const struct ax_attention_block *b,
                               int64_t first, int turn) {
    for (int64_t r = first; r < b->rows; r += STRIP) {
        const int64_t n = least(STRIP, b->rows - r), group = r / GROUP * GROUP;
        const int64_t last = least(group + GROUP, b->rows) - 1;
        if (w->high[last] <= b->key || w->low[group] >= b->key + b->keys)
            continue;
        const int64_t seen = least(w->high[r + n - 1] - b->key, b->keys);
        return (struct strip){r, n, round_up(seen > 0 ? seen : 0, AX_LANES), turn};
    }
    return (struct strip){0};
}

/* Products of a strip's scores and dp. */
static void queue_scores(const struct worker *w, const struct strip *strip,
                         struct ax_attention_products *products) {
    const struct ax_attention_shape *s = w->s;
    struct ax_attention_gemm g = {
        .pairs = s->pairs,
        .m = product_rows(strip->n),
        .n = strip->width,
        .units = s->k.units,
        .a = w->q_rows + strip->first * s->k.units,
        .a_row = s->k.units,
        .a_unit = 1,
        .b = w->k_columns,
        .b_unit = KEYS,
        .c = w->scores[strip->turn],
        .c_row = KEYS,
        .scale = product_scale(s),
    };
    if (strip->width == 0)
        return;
    AX_VEC(ax_attention_queue)(products, &g);
    g.units = s->v.units;
    g.a = w->dout_rows + strip->first * s->v.units;
    g.a_row = s->v.units;
    g.b = w->v_columns;
    g.c = w->dp[strip->turn];
    g.scale = 1.0f;
    AX_VEC(ax_attention_queue)(products, &g);
}

static void queue_dq(const struct worker *w, const struct strip *strip,
                     struct ax_attention_products *products) {
    const struct ax_attention_shape *s = w->s;
    const struct ax_attention_gemm g = {
        .pairs = s->pairs,
        .accumulate = true,
        .m = product_rows(strip->n),
        .n = s->k.columns,
        .units = summed(strip->width) / s->per_unit,
        .a = ds_rows(w, strip),
        .a_row = KEYS,
        .a_unit = 1,
        .b = w->k_sums,
        .b_unit = s->k.columns,
        .c = w->dq + strip->first * s->k.columns,
        .c_row = s->k.columns,
    };
    if (strip->width > 0)
        AX_VEC(ax_attention_queue)(products, &g);
}

/* p, ds and dq of all strips. Beside a strip's p and ds run the products of the next one's scores and dp, and of dq of the
 * one before. */
static void run_strips(const struct worker *w, const struct ax_attention_block *b) {
    struct ax_attention_products products = {0};
    struct strip before = {0}, strip = next_strip(w, b, 0, 0);
    queue_scores(w, &strip, &products);
    AX_VEC(ax_attention_advance)(&products, 1, 1);
    while (strip.n > 0) {
        const struct strip next = next_strip(w, b, strip.first + STRIP, !strip.turn);
        queue_dq(w, &before, &products); /* first: the next scores are stored where its ds is */
        queue_scores(w, &next, &products);
        gradients(w, b, &strip, &products);
        before = strip;
        strip = next;
    }
    queue_dq(w, &before, &products);
    AX_VEC(ax_attention_advance)(&products, 1, 1);
}

/* Units of rows. */
struct range {
    int64_t first, n;
};

/* Sums of n keys from the block's j-th on: coefficients (p or ds) by dout or q. */
static void add_rows(const struct worker *w, const struct ax_attention_block *b, int64_t j,
                     int64_t n, struct range rows, const struct ax_attention_head *h,
                     const float *coefficients, const float *by, bool accumulate, float *sums) {
    const struct sum_place place = sum_place(b->key + j, b->doc.n_k, h->columns);
    struct ax_attention_gemm g = {
        .pairs = w->s->pairs,
        .accumulate = accumulate,
        .units = rows.n,
        .c = sums + place.at,
        .scale = 1.0f,
    };
    coefficients += rows.first * KEYS + j;
#ifdef AX_TILES
    g.m = h->columns;
    g.n = round_up(n, AX_LANES);
    g.a = by + rows.first;
    g.a_row = summed(b->rows) / w->s->per_unit;
    g.a_unit = 1;
    g.b = coefficients;
    g.b_unit = KEYS;
    g.c_row = place.stride;
#else
    g.m = n;
    g.n = g.b_unit = g.c_row = h->columns;
    g.a = coefficients;
    g.a_row = 1;
    g.a_unit = KEYS;
    g.b = by + rows.first * h->columns;
#endif
    AX_VEC(ax_attention_gemm)(&g);
}

/* dk and dv of the block's keys, a tile at a time, each over the rows that see some of its keys. */
static void sum_keys(const struct worker *w, const struct ax_attention_block *b,
                     const struct sums *sums) {
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
        const int64_t end = ceil_div(summed(last), s->per_unit);
        const struct range rows = {unit, end > unit ? end - unit : 0};
        add_rows(w, b, j, n, rows, &s->v, w->p_columns, w->dout_sums, b->key < sums->reached,
                 sums->dv);
        add_rows(w, b, j, n, rows, &s->k, w->ds_columns, w->q_sums, b->key < sums->reached,
                 sums->dk);
    }
}

/* `from` is a multiple of KEYS; the padding of the last block is zeroed, too. */
static void zero_keys(float *sums, int64_t from, int64_t to, int64_t columns) {
    to = round_up(to, PADDING + 1);
    memset(sums + from * columns, 0, (size_t)((to - from) * columns) * sizeof *sums);
}

/* Zeroes the sums of uninitialized keys up to `key`. */
static void reach_key(const struct worker *w, struct sums *sums, int64_t key) {
    if (key <= sums->reached)
        return;
    zero_keys(sums->dk, sums->reached, key, w->s->k.columns);
    zero_keys(sums->dv, sums->reached, key, w->s->v.columns);
    sums->reached = key;
}

/* All gradients of one block of queries over all the keys it sees (b.key and b.keys are not read): writes its
 * rows of dq, adds to dk and dv. */
static void run_block(const struct worker *w, struct ax_attention_block b, struct sums *sums) {
    const struct ax_attention_shape *s = w->s;
    load_block(w, &b);
    int64_t start = w->low[0] / KEYS * KEYS;
    reach_key(w, sums, start);
    for (b.key = start; b.key < w->high[b.rows - 1]; b.key += KEYS) {
        b.keys = least(KEYS, b.doc.n_k - b.key);
        if (!AX_VEC(ax_attention_any)(&w->args->a, s, &b, 0, b.rows)) {
            reach_key(w, sums, b.key + b.keys);
            continue;
        }
        load_keys(w, &b);
        run_strips(w, &b);
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

/* ---- tasks ---- */

#define PART_QUERIES 1024 /* minimum queries per further part */
#define MAX_PARTS    4

static int64_t parts_of(int64_t n_q) {
    int64_t parts = n_q / PART_QUERIES;
    return n_q == 0 ? 0 : parts < 1 ? 1 : least(parts, MAX_PARTS);
}

static int64_t doc_tasks(const struct ax_attention_shape *s, int64_t n_q) {
    return parts_of(n_q) * s->kv_heads;
}

/* What all threads share. */
struct call {
    const struct ax_attention_backward *args;
    struct ax_attention_shape s;
    int64_t *first; /* tasks before each document */
    int64_t rows;   /* those of a part's head: keys, and padding after each document's */
    float *dk, *dv; /* [parts][Hk][rows] of k.columns, v.columns */
};

static struct call carve_call(struct ax_attention_work *work,
                              const struct ax_attention_backward *args) {
    struct call c = {.args = args, .s = AX_VEC(ax_attention_shape)(&args->a, BLOCK_ROWS)};
    const int64_t docs = AX_VEC(ax_attention_docs)(&args->a);
    c.rows = args->a.k.shape[0] + docs * PADDING;
    const int64_t rows = parts_of(args->a.max_q) * c.s.kv_heads * c.rows;
    c.first = carve(work, docs + 1, sizeof(*c.first));
    c.dk = carve(work, rows * c.s.k.columns, sizeof(float));
    c.dv = carve(work, rows * c.s.v.columns, sizeof(float));
    return c;
}

/* Row at which the sums of a document's part and KV head start in dk and dv. */
static int64_t sums_row(const struct call *c, const struct ax_attention_doc *doc, int64_t part,
                        int64_t kv_head) {
    int64_t head = part * c->s.kv_heads + kv_head;
    return head * c->rows + doc->first_k + doc->index * PADDING;
}

static void run_task(const struct call *c, const struct worker *w,
                     const struct ax_attention_doc *doc, int64_t task) {
    int64_t part = task / c->s.kv_heads;
    int64_t kv_head = task % c->s.kv_heads;
    int64_t row = sums_row(c, doc, part, kv_head);
    struct sums sums = {c->dk + row * c->s.k.columns, c->dv + row * c->s.v.columns, 0};
    int64_t step = parts_of(doc->n_q) * c->s.block;
    for (int64_t query = part * c->s.block; query < doc->n_q; query += step) {
        struct ax_attention_block b = {
            .doc = *doc,
            .kv_head = kv_head,
            .query = query,
            .rows = least(c->s.block, doc->n_q - query) * c->s.group,
        };
        run_block(w, b, &sums);
    }
    reach_key(w, &sums, doc->n_k);
}

/* dk or dv, and the factor of its parts' sums. */
struct result {
    const struct ax_attention_head *h;
    const float *sums;
    float scale;
    const struct ax_tensor *to;
};

/* Elements of a key, `stride` apart. */
AX_INLINE v_float load_sums(const float *at, int64_t stride) {
#ifdef AX_TILES
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_i32gather_ps(_mm512_mullo_epi32(lanes, _mm512_set1_epi32((int)stride)), at, 4);
#else
    (void)stride;
    return v_load_f32(at, AX_LANES);
#endif
}

/* Writes its row of one key and KV head: the parts' sums in order. */
static void add_parts(const struct call *c, const struct result *result,
                      const struct ax_attention_doc *doc, int64_t kv_head, int64_t key) {
    const struct ax_attention_head *h = result->h;
    const struct sum_place place = sum_place(key, doc->n_k, h->columns);
    const int64_t parts = parts_of(doc->n_q);
    void *row = ax_tensor_row(result->to, doc->first_k + key);
    for (int64_t i = 0; i < h->size; i += AX_LANES) {
        v_float x = v_set(0.0f);
        for (int64_t part = 0; part < parts; part++) {
            const int64_t at = sums_row(c, doc, part, kv_head) * h->columns + place.at;
            x += load_sums(result->sums + at + i * place.stride, place.stride);
        }
        v_store(c->s.dtype, row, kv_head * h->size + i, least(h->size - i, AX_LANES),
                x * v_set(result->scale));
    }
}

/* dsink −= Σ e^(sink − lse)·δ over the rows of the documents, in order, a thread one head. */
static void sink_gradient(const struct ax_queue *q, const struct ax_attention_backward *args,
                          int64_t rows) {
    const struct ax_attention *a = &args->a;
    const int64_t heads = a->q.shape[1], vd = a->v.shape[2];
    AX_PARALLEL_FOR (team(q, rows * heads * vd), h, heads) {
        const float sink = ((const float *)a->sink.data)[h];
        double sum = 0;
        for (int64_t t = 0; t < rows; t++) {
            const void *out = ax_tensor_row(&a->out, t), *dout = ax_tensor_row(&args->dout, t);
            const float lse = ((const float *)ax_tensor_row(&a->lse, t))[h];
            v_float delta = v_set(0.0f);
            for (int64_t i = 0; i < vd; i += AX_LANES) {
                const int64_t n = least(vd - i, AX_LANES);
                delta = v_fma(v_load(a->q.dtype, out, h * vd + i, n),
                              v_load(a->q.dtype, dout, h * vd + i, n), delta);
            }
            sum += (double)exp_one(sink - lse) * v_sum(delta);
        }
        float *dsink = (float *)args->dsink.data + h;
        *dsink = (float)((double)*dsink - sum);
    }
}

bool AX_VEC(ax_cpu_attention_backward_supports)(const struct ax_queue *q,
                                                const struct ax_attention_backward *args) {
    (void)q;
    return AX_VEC(ax_attention_supports)(&args->a, AX_ATTENTION_HEAD_DIM);
}

size_t AX_VEC(ax_cpu_attention_backward_workspace)(struct ax_queue *q,
                                                   const struct ax_attention_backward *args) {
    struct ax_attention_work count = {0};
    struct call c = carve_call(&count, args);
    for (int i = 0; i < q->threads; i++)
        carve_worker(&count, args, &c.s);
    return count.used;
}

enum ax_status AX_VEC(ax_cpu_attention_backward)(struct ax_queue *q,
                                                 const struct ax_attention_backward *args,
                                                 void *work) {
    struct ax_attention_work rest = {.base = work};
    const struct call c = carve_call(&rest, args);
    const int64_t docs = AX_VEC(ax_attention_docs)(&args->a);
    const int64_t tasks = AX_VEC(ax_attention_count)(&args->a, &c.s, doc_tasks, c.first);
    const struct result dk = {&c.s.k, c.dk, (float)args->a.scale, &args->dk};
    const struct result dv = {&c.s.v, c.dv, 1.0f, &args->dv};
    const int threads = tasks > 1 ? q->threads : 1;
    (void)threads; /* a compiler without OpenMP runs all tasks here */
#pragma omp parallel num_threads(threads)
    {
        struct worker w;
#pragma omp critical
        w = carve_worker(&rest, args, &c.s);
        ax_tiles_begin();
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tasks; task++) {
            int64_t d = AX_VEC(ax_attention_find)(c.first, docs, task);
            struct ax_attention_doc doc = AX_VEC(ax_attention_doc)(&args->a, d);
            run_task(&c, &w, &doc, task - c.first[d]);
        }
        ax_tiles_end();
        for (int64_t d = 0; d < docs; d++) {
            struct ax_attention_doc doc = AX_VEC(ax_attention_doc)(&args->a, d);
#pragma omp for schedule(static) nowait
            for (int64_t i = 0; i < doc.n_k * c.s.kv_heads; i++) {
                int64_t head = i % c.s.kv_heads, key = i / c.s.kv_heads;
                add_parts(&c, &dk, &doc, head, key);
                add_parts(&c, &dv, &doc, head, key);
            }
        }
    }
    const int64_t used = ((const int32_t *)args->a.cu_q.data)[docs];
    if (args->dsink.data)
        sink_gradient(q, args, used);
    AX_VEC(ax_attention_clear)(&args->dq, used);
    AX_VEC(ax_attention_clear)(&args->dk, ((const int32_t *)args->a.cu_k.data)[docs]);
    AX_VEC(ax_attention_clear)(&args->dv, ((const int32_t *)args->a.cu_k.data)[docs]);
    return AX_OK;
}
