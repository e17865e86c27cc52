/* Attention forward: softmax(scale·q·kᵀ)·v block by block with a running maximum (Milakov &
 * Gimelshein 2018, Dao et al. 2022).
 *
 * A task is one block of one KV head. For each key block it packs the keys and values once and then
 * processes its rows a strip at a time: scores, probabilities, out += p·v. It visits only key
 * blocks that some row sees, and a strip computes only the vectors of keys that it sees. Keys that a row did
 * not choose have a score of −inf, so its bits are the same as without `chosen` if it chose all.
 *
 * Answers to one prompt have its keys in the same blocks of the cache. Their rows form a team, which goes through
 * these keys as one block; then each goes on through its own. */
#include "kernels/cpu/vec/attention/attention.h"
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/simd_int.h"

#include <float.h>
#include <stdlib.h>

#define KEYS  AX_ATTENTION_KEYS
#define STRIP AX_ATTENTION_STRIP
/* Before the final division probabilities are at most 2^SLACK: harmless in a float, and it avoids
 * nearly all the rescaling that following the running maximum exactly would need. */
#define SLACK 8.0f

/* Rows of a block. */
#define LEAST_ROWS 192
#ifdef AX_TILES
#define MOST_ROWS 768
#else
#define MOST_ROWS LEAST_ROWS
#endif

/* One thread and its memory. */
struct worker {
    const struct ax_attention *a;
    const struct ax_attention_shape *s;
    float *q;            /* a  [rows][k.units] */
    float *k;            /* b  [k.units][KEYS] */
    float *v;            /* b  [key_units][v.columns] */
    float *scores[2];    /*    [STRIP][KEYS] of a strip and the next, then p: a [STRIP][KEYS] */
    float *out;          /*    [rows][v.columns], not yet divided by sum */
    float *shift;        /*    [rows] approximately the largest score so far */
    float *sum;          /*    [rows][LANES] Σ 2^(score − shift), by lane */
    int64_t *low, *high; /*    [rows] visible keys */
    void **rows, **keys, **ahead; /*    addresses */
};

/* A document, and the blocks of the cache that have its keys. */
struct place {
    int64_t doc, n;
    const int32_t *blocks; /* [n] */
};

/* Documents whose rows go through their first keys together. A document alone is a team as well. */
struct team {
    const struct place *of; /* [n] */
    int64_t n;
    /* keys, in full blocks, that they have in the same places and all their rows see; 0 if n is 1 */
    int64_t shared;
};

static struct worker carve_worker(struct ax_attention_work *work, const struct ax_attention *a,
                                  const struct ax_attention_shape *s) {
    const size_t size = sizeof(float);
    return (struct worker){
        .a = a,
        .s = s,
        .q = carve(work, s->max_rows * s->k.units, size),
        .k = carve(work, s->k.units * KEYS, size),
        .v = carve(work, s->key_units * s->v.columns, size),
        .scores = {carve(work, (int64_t)STRIP * KEYS, size),
                   carve(work, (int64_t)STRIP * KEYS, size)},
        .out = carve(work, s->max_rows * s->v.columns, size),
        .shift = carve(work, s->max_rows, size),
        .sum = carve(work, s->max_rows * AX_LANES, size),
        .low = carve(work, s->max_rows, sizeof(int64_t)),
        .high = carve(work, s->max_rows, sizeof(int64_t)),
        .rows = carve(work, s->max_rows, sizeof(void *)),
        .keys = carve(work, KEYS, sizeof(void *)),
        .ahead = carve(work, KEYS, sizeof(void *)),
    };
}

/* n rows of the block from row `first`, and the keys of the block that they may see, rounded up to
 * vectors. */
struct strip {
    int64_t first, n, width;
    int turn; /* which scores and p are its */
};

/* The row's sums so far are of another shift. */
static void move_shift(const struct worker *w, int64_t r, float to) {
    const v_float shrink = v_exp2(v_set(w->shift[r] - to));
    float *sum = w->sum + r * AX_LANES, *out = w->out + r * w->s->v.columns;
    w->shift[r] = to;
    v_store_f32(sum, AX_LANES, v_load_f32(sum, AX_LANES) * shrink);
    for (int64_t j = 0; j < w->s->v.columns; j += AX_LANES)
        v_store_f32(out + j, AX_LANES, v_load_f32(out + j, AX_LANES) * shrink);
}

/* Scores of row i of the strip: scaled, capped, and masked. width: of the strip; a constant if it is KEYS. */
AX_INLINE void load_scores(const struct worker *w, const struct ax_attention_block *b,
                           const struct strip *strip, int64_t i, int64_t width,
                           v_float x[KEYS / AX_LANES]) {
    const int64_t r = strip->first + i;
    const int64_t low = w->low[r] - b->key, high = w->high[r] - b->key;
    const v_float cap = v_set(w->s->cap);
    for (int64_t v = 0; v < width / AX_LANES; v++)
        x[v] = scaled(w->s, v_load_f32(w->scores[strip->turn] + i * KEYS + v * AX_LANES, AX_LANES));
    for (int64_t v = 0; w->s->cap > 0 && v < width / AX_LANES; v++)
        x[v] = cap * v_tanh(x[v]);
    for (int64_t v = 0; (low > 0 || high < width) && v < width / AX_LANES; v++)
        x[v] = v_between(x[v], low - v * AX_LANES, high - v * AX_LANES);
    for (int64_t v = 0; w->a->chosen.data && v < width / AX_LANES; v++)
        x[v] = v_chosen(x[v], chosen_bits(w->a, w->s, b, r, v * AX_LANES));
}

/* p = 2^(scores − shift) of row i of the strip. If a score exceeds the row's shift by more than SLACK, the largest
 * becomes the shift. */
AX_INLINE void probabilities(bool pairs, const struct worker *w, const struct ax_attention_block *b,
                             const struct strip *strip, int64_t i, int64_t width) {
    const int64_t r = strip->first + i;
    v_float x[KEYS / AX_LANES], most = v_set(-INFINITY);
    load_scores(w, b, strip, i, width, x);
    for (int64_t v = 0; v < width / AX_LANES; v++)
        most = v_max(most, x[v]);
    if (v_any_less(v_set(w->shift[r] + SLACK), most))
        move_shift(w, r, v_max_lane(most));
    const v_float shift = v_set(w->shift[r]);
    float *p = w->scores[strip->turn] + i * KEYS, *total = w->sum + r * AX_LANES;
    v_float sum = v_set(0.0f);
    for (int64_t v = 0; v < width / AX_LANES; v++) {
        x[v] = v_exp2(x[v] - shift);
        sum += x[v];
    }
    v_store_f32(total, AX_LANES, v_load_f32(total, AX_LANES) + sum);
#ifdef __AVX512BF16__
    for (int64_t v = 0; pairs && v < width / AX_LANES; v += 2) {
        const v_float y = v + 1 < width / AX_LANES ? x[v + 1] : v_set(0.0f);
        v_store_f32(p + v * AX_LANES / 2, AX_LANES, (v_float)_mm512_cvtne2ps_pbh(y, x[v]));
    }
#endif
    for (int64_t v = 0; !pairs && v < width / AX_LANES; v++)
        v_store_f32(p + v * AX_LANES, AX_LANES, x[v]);
}

/* The strip from row `first` on or after it that sees some of the block's keys; n is 0 if there is none. */
static struct strip next_strip(const struct worker *w, const struct ax_attention_block *b,
                               int64_t first, int turn) {
    for (int64_t r = first; r < b->rows; r += STRIP) {
        const int64_t n = least(STRIP, b->rows - r);
        const int64_t seen = least(w->high[r + n - 1] - b->key, b->keys);
        if (seen > 0 && w->low[r] < b->key + b->keys &&
            AX_VEC(ax_attention_any)(w->a, w->s, b, r, n))
            return (struct strip){r, n, round_up(seen, AX_LANES), turn};
    }
    return (struct strip){0};
}

static void queue_scores(const struct worker *w, const struct strip *strip,
                         struct ax_attention_products *products) {
    const struct ax_attention_shape *s = w->s;
    if (strip->n == 0)
        return;
    AX_VEC(ax_attention_queue)
    (products, &(struct ax_attention_gemm){
                   .pairs = s->pairs,
                   .m = product_rows(strip->n),
                   .n = strip->width,
                   .units = s->k.units,
                   .a = w->q + strip->first * s->k.units,
                   .a_row = s->k.units,
                   .a_unit = 1,
                   .b = w->k,
                   .b_unit = KEYS,
                   .c = w->scores[strip->turn],
                   .c_row = KEYS,
                   .scale = product_scale(s),
               });
}

/* out += p·v */
static void queue_values(const struct worker *w, const struct strip *strip,
                         struct ax_attention_products *products) {
    const struct ax_attention_shape *s = w->s;
    if (strip->n == 0)
        return;
    AX_VEC(ax_attention_queue)
    (products, &(struct ax_attention_gemm){
                   .pairs = s->pairs,
                   .accumulate = true,
                   .m = product_rows(strip->n),
                   .n = s->v.columns,
                   .units = summed(strip->width) / s->per_unit,
                   .a = w->scores[strip->turn],
                   .a_row = KEYS,
                   .a_unit = 1,
                   .b = w->v,
                   .b_unit = s->v.columns,
                   .c = w->out + strip->first * s->v.columns,
                   .c_row = s->v.columns,
               });
}

AX_INLINE void all_probabilities(bool pairs, const struct worker *w,
                                 const struct ax_attention_block *b, const struct strip *strip,
                                 struct ax_attention_products *products) {
    for (int64_t i = 0; i < strip->n; i++) {
        if (strip->width == KEYS)
            probabilities(pairs, w, b, strip, i, KEYS);
        else
            probabilities(pairs, w, b, strip, i, strip->width);
        AX_VEC(ax_attention_advance)(products, i + 1, strip->n);
    }
}

/* Adds the block's keys to the sums of all strips. Beside a strip's probabilities run the products of the next one's scores,
 * and of the values with the probabilities of the one before. */
static void add_keys(const struct worker *w, const struct ax_attention_block *b) {
    struct ax_attention_products products = {0};
    struct strip before = {0}, strip = next_strip(w, b, 0, 0);
    queue_scores(w, &strip, &products);
    AX_VEC(ax_attention_advance)(&products, 1, 1);
    while (strip.n > 0) {
        const struct strip next = next_strip(w, b, strip.first + STRIP, !strip.turn);
        queue_values(w, &before, &products); /* first: the next scores are stored where its p is */
        queue_scores(w, &next, &products);
        if (w->s->pairs)
            all_probabilities(true, w, b, &strip, &products);
        else
            all_probabilities(false, w, b, &strip, &products);
        before = strip;
        strip = next;
    }
    queue_values(w, &before, &products);
    AX_VEC(ax_attention_advance)(&products, 1, 1);
}

static void load_block(const struct worker *w, const struct ax_attention_block *b) {
    AX_VEC(ax_attention_visible)(w->a, w->s, b, w->low, w->high);
    AX_VEC(ax_attention_query_rows)(w->s, &w->a->q, b, w->rows);
    AX_VEC(ax_attention_pack_rows)(w->s, &w->s->k, w->rows, b->rows, w->q);
    memset(w->out, 0, (size_t)(b->rows * w->s->v.columns) * sizeof(float));
    memset(w->sum, 0, (size_t)(b->rows * AX_LANES) * sizeof(float));
    for (int64_t r = 0; r < b->rows; r++)
        w->shift[r] = -FLT_MAX; /* not −inf: −inf − −inf would be NaN where no key was seen yet */
    const float *sink = w->a->sink.data;
    for (int64_t r = 0; r < b->rows && sink; r++) { /* the first score, without a value */
        w->shift[r] = sink[b->kv_head * w->s->group + r % w->s->group] * AX_ATTENTION_LOG2E;
        w->sum[r * AX_LANES] = 1.0f;
    }
}

/* Prefetches rows `from` … `to` − 1 of the addresses `ahead`, which are rows of one head of x. */
AX_INLINE void prefetch_rows(const struct ax_tensor *x, void *const *ahead, int64_t from,
                             int64_t to) {
    const int64_t bytes = x->shape[2] * (int64_t)ax_dtype_size(x->dtype);
    for (int64_t i = from; i < to; i++)
        for (int64_t at = 0; at < bytes; at += 64)
            __builtin_prefetch((const char *)ahead[i] + at, 0, 2);
}

/* Packs the block's keys and values, and prefetches those of `next`: rows of one head are not adjacent,
 * which limits the hardware prefetcher, and decoding does little but wait for them. A few rows at a time, because
 * a core waits for few lines at the same time. */
static void load_keys(const struct worker *w, const struct ax_attention_block *b,
                      const struct ax_attention_block *next) {
    const struct ax_attention_shape *s = w->s;
    const struct ax_tensor *k = &w->a->k, *v = &w->a->v;
    AX_VEC(ax_attention_key_rows)(w->a, k, b, w->keys);
    AX_VEC(ax_attention_key_rows)(w->a, k, next, w->ahead);
    for (int64_t i = 0; i < KEYS; i += AX_LANES) {
        prefetch_rows(k, w->ahead, i, least(next->keys, i + AX_LANES));
        AX_VEC(ax_attention_pack_columns)
        (s, &s->k, w->keys + i, least(b->keys - i, AX_LANES), w->k + i);
    }
    AX_VEC(ax_attention_key_rows)(w->a, v, b, w->keys);
    AX_VEC(ax_attention_key_rows)(w->a, v, next, w->ahead);
    for (int64_t i = 0; i < KEYS; i += AX_LANES) {
        const int64_t n = least(b->keys - i, AX_LANES);
        prefetch_rows(v, w->ahead, i, least(next->keys, i + AX_LANES));
        if (n <= 0)
            continue;
        /* the zeros that pad a sum may be where the next rows follow */
        AX_VEC(ax_attention_pack_sums)
        (s, &s->v, w->keys + i, n, least(summed(AX_LANES), KEYS - i),
         w->v + i / s->per_unit * s->v.columns);
    }
}

/* out /= Σ p, and lse. Rows that saw no keys: out = 0 and lse = −inf. */
static void finish(const struct worker *w, const struct ax_attention_block *b) {
    const struct ax_attention_shape *s = w->s;
    AX_VEC(ax_attention_query_rows)(s, &w->a->out, b, w->rows);
    for (int64_t r = 0; r < b->rows; r++) {
        float sum = (float)v_sum(v_load_f32(w->sum + r * AX_LANES, AX_LANES));
        v_float inverse = v_set(sum == 0.0f ? 0.0f : 1.0f / sum);
        for (int64_t i = 0; i < s->v.size; i += AX_LANES) {
            v_float x = v_load_f32(w->out + r * s->v.columns + i, AX_LANES) * inverse;
            v_store(s->dtype, w->rows[r], i, least(s->v.size - i, AX_LANES), x);
        }
        *AX_VEC(ax_attention_lse)(w->a, s, b, r) =
            (float)((double)w->shift[r] * AX_ATTENTION_LN2 + (double)logf(sum));
    }
}

/* Adds the keys from b.key to `end`. `after`: the keys that this thread most likely reads next. */
static void add_range(const struct worker *w, struct ax_attention_block b, int64_t end,
                      const struct ax_attention_block *after) {
    for (; b.key < end; b.key += KEYS) {
        struct ax_attention_block next = b;
        next.key += KEYS;
        b.keys = least(KEYS, b.doc.n_k - b.key);
        next.keys = least(KEYS, b.doc.n_k - next.key);
        load_keys(w, &b, next.key < end ? &next : after);
        add_keys(w, &b);
    }
}

/* The same thread's memory for the rows from `first` on. */
static struct worker rows_from(struct worker w, int64_t first) {
    w.q += first * w.s->k.units;
    w.out += first * w.s->v.columns;
    w.shift += first;
    w.sum += first * AX_LANES;
    w.low += first;
    w.high += first;
    return w;
}

/* Document i of a team of which b is the first, with its first keys of its own. */
static struct ax_attention_block member(const struct worker *w, const struct team *team,
                                        const struct ax_attention_block *b, int64_t i) {
    struct ax_attention_block one = *b;
    if (team->n > 1) {
        one.doc = AX_VEC(ax_attention_doc)(w->a, team->of[i].doc);
        one.rows = one.doc.n_q * w->s->group;
        one.key = team->shared;
        one.keys = least(KEYS, one.doc.n_k - one.key);
    }
    return one;
}

/* b: of the first document, with its first keys. `after` is most likely this thread's next. */
static void run_team(const struct worker *w, const struct team *team,
                     const struct ax_attention_block *b, const struct ax_attention_block *after) {
    struct ax_attention_block all = *b;
    int64_t rows = 0;
    for (int64_t i = 0; i < team->n; i++) {
        const struct ax_attention_block one = member(w, team, b, i);
        const struct worker own = rows_from(*w, rows);
        load_block(&own, &one);
        rows += one.rows;
    }
    all.rows = rows;
    const struct ax_attention_block last = member(w, team, b, team->n - 1);
    add_range(w, all, team->shared, &last);
    /* the last one first: products of few rows add to those behind them as well, which then are done with */
    for (int64_t i = team->n - 1; i >= 0; i--) {
        struct ax_attention_block one = member(w, team, b, i);
        const struct ax_attention_block next = i > 0 ? member(w, team, b, i - 1) : *after;
        rows -= one.rows;
        const struct worker own = rows_from(*w, rows);
        one.key = team->n > 1 ? team->shared : own.low[0] / KEYS * KEYS;
        add_range(&own, one, own.high[one.rows - 1], &next);
        finish(&own, &one);
    }
}

/* ---- tasks ---- */

/* By their blocks, so that documents that share most are neighbours. */
static int by_blocks(const void *x, const void *y) {
    const struct place *a = x, *b = y;
    for (int64_t i = 0; i < least(a->n, b->n); i++)
        if (a->blocks[i] != b->blocks[i])
            return a->blocks[i] < b->blocks[i] ? -1 : 1;
    return a->doc < b->doc ? -1 : a->doc > b->doc;
}

/* All documents; where they may share keys, in that order. */
static void find_places(const struct ax_attention *a, bool may_share, struct place *places) {
    const int64_t docs = AX_VEC(ax_attention_docs)(a);
    for (int64_t d = 0; d < docs; d++)
        places[d] = (struct place){.doc = d};
    for (int64_t d = 0; d < docs && may_share; d++) {
        places[d].n = ceil_div(AX_VEC(ax_attention_doc)(a, d).n_k, a->block_size);
        places[d].blocks = ax_tensor_row(&a->block_table, d);
    }
    if (may_share)
        qsort(places, (size_t)docs, sizeof *places, by_blocks);
}

/* How many keys from the first on, in full blocks, p[0] and p[1] have in the same places and all their rows see. */
static int64_t shared_keys(const struct ax_attention *a, const struct ax_attention_shape *s,
                           const struct place *p) {
    int64_t most = INT64_MAX, same = 0;
    for (int i = 0; i < 2; i++) {
        int64_t low, seen; /* by its first row, which sees the fewest */
        const struct ax_attention_block one = {.doc = AX_VEC(ax_attention_doc)(a, p[i].doc),
                                               .rows = 1};
        if (one.doc.n_q == 0 || one.doc.n_q > s->block)
            return 0;
        AX_VEC(ax_attention_visible)(a, s, &one, &low, &seen);
        most = least(most, seen);
    }
    while (same * a->block_size < most && p[0].blocks[same] == p[1].blocks[same])
        same++;
    return least(same * a->block_size, most) / KEYS * KEYS;
}

static int64_t doc_tasks(const struct ax_attention_shape *s, int64_t n_q) {
    return ceil_div(n_q, s->block) * s->kv_heads;
}

/* What all threads read: the documents, the teams into which they are divided, and first[t] = tasks of the teams
 * before t. */
struct plan {
    struct place *places;
    struct team *teams;
    int64_t *first, n;
};

static struct plan carve_plan(struct ax_attention_work *work, const struct ax_attention *a) {
    const int64_t docs = AX_VEC(ax_attention_docs)(a);
    return (struct plan){.places = carve(work, docs, sizeof(struct place)),
                         .teams = carve(work, docs, sizeof(struct team)),
                         .first = carve(work, docs + 1, sizeof(int64_t))};
}

/* A document joins the one before unless it shares more with the one behind, or the team more already. */
static void make_teams(const struct ax_queue *q, const struct ax_attention *a,
                       const struct ax_attention_shape *s, struct plan *p) {
    const bool may_share = a->block_table.data && a->window == 0 && !a->chosen.data;
    const int64_t docs = AX_VEC(ax_attention_docs)(a);
    const int64_t most = docs * s->kv_heads / (2 * q->threads); /* all threads get some */
    int64_t queries = 0, before = 0;
    struct team *t = NULL;
    find_places(a, may_share, p->places);
    p->n = p->first[0] = 0;
    for (int64_t i = 0; i < docs; i++) {
        const struct place *at = p->places + i;
        const int64_t behind = may_share && i + 1 < docs ? shared_keys(a, s, at) : 0;
        const int64_t n_q = AX_VEC(ax_attention_doc)(a, at->doc).n_q;
        if (before > 0 && t->n < most && queries + n_q <= s->block &&
            before >= (t->n > 1 ? t->shared : behind)) {
            t->shared = t->n > 1 ? t->shared : before;
            t->n++;
            queries += n_q;
        } else {
            t = p->teams + p->n++;
            *t = (struct team){.of = at, .n = 1};
            p->first[p->n] = p->first[p->n - 1] + doc_tasks(s, n_q);
            queries = n_q;
        }
        before = behind;
    }
}

/* Task i of a team: in order of KV heads, so that a head's keys stay in the cache; of a document alone the last
 * block first, because under a causal mask it takes longest. */
static struct ax_attention_block block_of(const struct ax_attention *a,
                                          const struct ax_attention_shape *s,
                                          const struct team *team, int64_t i) {
    const struct ax_attention_doc doc = AX_VEC(ax_attention_doc)(a, team->of->doc);
    int64_t blocks = ceil_div(doc.n_q, s->block);
    int64_t query = (blocks - 1 - i % blocks) * s->block;
    return (struct ax_attention_block){
        .doc = doc,
        .kv_head = i / blocks,
        .query = query,
        .rows = least(s->block, doc.n_q - query) * s->group,
        .keys = least(KEYS, doc.n_k),
    };
}

/* Many rows amortize the packing of keys, but have to stay in the L2 cache, and all threads get some. */
static struct ax_attention_shape shape_for(const struct ax_queue *q, const struct ax_attention *a) {
    int64_t rows = MOST_ROWS;
    while (rows > LEAST_ROWS && a->q.shape[0] * a->q.shape[1] < rows * 4 * q->threads)
        rows /= 2;
    struct ax_attention_shape s = AX_VEC(ax_attention_shape)(a, rows);
    if (a->block_size > 0) /* of a team, and what products of few rows compute behind them */
        s.max_rows = summed(round_up(least(s.block, a->q.shape[0]) * s.group, s.per_unit) +
                            AX_ATTENTION_HEIGHT);
    return s;
}

bool AX_VEC(ax_cpu_attention_forward_supports)(const struct ax_queue *q,
                                               const struct ax_attention_forward *args) {
    (void)q;
    return AX_VEC(ax_attention_supports)(&args->a, AX_ATTENTION_CACHED);
}

size_t AX_VEC(ax_cpu_attention_forward_workspace)(struct ax_queue *q,
                                                  const struct ax_attention_forward *args) {
    struct ax_attention_shape s = shape_for(q, &args->a);
    struct ax_attention_work count = {0};
    carve_plan(&count, &args->a);
    for (int i = 0; i < q->threads; i++)
        carve_worker(&count, &args->a, &s);
    return count.used;
}

enum ax_status AX_VEC(ax_cpu_attention_forward)(struct ax_queue *q,
                                                const struct ax_attention_forward *args,
                                                void *work) {
    const struct ax_attention *a = &args->a;
    const struct ax_attention_shape s = shape_for(q, a);
    struct ax_attention_work rest = {.base = work}, one = {0};
    struct plan p = carve_plan(&rest, a);
    make_teams(q, a, &s, &p);
    const int64_t tasks = p.first[p.n];
    const int threads = tasks > 1 ? q->threads : 1;
    struct ax_turns turns;
    carve_worker(&one, a, &s);
    ax_turns_start(&turns, tasks, threads);
#pragma omp parallel num_threads(threads)
    {
        const int thread = omp_get_thread_num();
        struct ax_attention_work own = {.base = rest.base + rest.used + (size_t)thread * one.used};
        const struct worker w = carve_worker(&own, a, &s);
        ax_tiles_begin();
        AX_TURNS_FOR (&turns, thread, task) {
            struct ax_attention_block after = {0};
            const int64_t t = AX_VEC(ax_attention_find)(p.first, p.n, task);
            const struct ax_attention_block b = block_of(a, &s, p.teams + t, task - p.first[t]);
            if (task + 1 < tasks) {
                const int64_t next = AX_VEC(ax_attention_find)(p.first, p.n, task + 1);
                after = block_of(a, &s, p.teams + next, task + 1 - p.first[next]);
            }
            run_team(&w, p.teams + t, &b, &after);
        }
        ax_tiles_end();
    }
    const int64_t used = ((const int32_t *)a->cu_q.data)[AX_VEC(ax_attention_docs)(a)];
    AX_VEC(ax_attention_clear)(&a->out, used);
    for (int64_t i = used * a->q.shape[1]; i < a->q.shape[0] * a->q.shape[1]; i++) {
        float *lse = ax_tensor_row(&a->lse, i / a->q.shape[1]);
        lse[i % a->q.shape[1]] = -INFINITY;
    }
    return AX_OK;
}
