/* Short causal convolutions, forward and backward. Vectors are over channels, so taps are transposed first. A task
 * is a block of rows and a tile of channels; backward's blocks are those of rowsum.h, whose sums are dw and
 * dbias.
 *
 * Where all taps of a row are in its document, which is nearly everywhere, a vector of channels goes down the rows with
 * its last inputs, and in backward its last gradients and its sums, in registers. The first rows of documents go one
 * by one, in the same order of sums. */
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/rows/rowsum.h"

#define TILE 128 /* channels of a task */
#define ROWS 32  /* of a task of forward */
#define MOST AX_CONV_TAPS

/* One convolution, and its taps [K][columns] with the bias as row K; columns are those of full tiles. */
struct convolution {
    const struct ax_conv *a;
    enum ax_dtype dtype;
    int64_t taps, channels, columns;
    const float *w;
};

static int64_t columns_of(const struct ax_conv *a) {
    return ceil_div(a->x.shape[1], TILE) * TILE;
}
static size_t taps_bytes(const struct ax_conv *a) {
    return (size_t)((a->w.shape[1] + 1) * columns_of(a)) * sizeof(float);
}

static float value_of(const struct ax_tensor *t, int64_t i) {
    return (float)ax_load(t->dtype, t->data, i);
}

static struct convolution transpose(const struct ax_conv *a, float *w) {
    const int64_t taps = a->w.shape[1], channels = a->x.shape[1], columns = columns_of(a);
    memset(w, 0, taps_bytes(a));
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t i = 0; i < taps; i++)
            w[i * columns + c] = value_of(&a->w, c * taps + i);
        if (a->bias.data)
            w[taps * columns + c] = value_of(&a->bias, c);
    }
    return (struct convolution){a, a->x.dtype, taps, channels, columns, w};
}

/* ---- documents ---- */

/* The document of a row, or an empty one at its place. */
struct document {
    int64_t number, first, end, past; /* past: tokens before it, for which there are inputs */
};

static struct document document_at(const struct ax_conv *a, int64_t t) {
    const int32_t *cu = a->cu_q.data;
    int64_t low = 0, high = a->cu_q.shape[0] - 1, n = high;
    while (low < high) { /* the first document that ends after t */
        const int64_t middle = (low + high) / 2;
        if (cu[middle + 1] > t)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == n || cu[low] > t)
        return (struct document){low, t, low == n ? a->x.shape[0] : cu[low], -1};
    struct document d = {low, cu[low], cu[low + 1], 0};
    if (a->before.data) {
        const int32_t *cu_k = a->cu_k.data;
        d.past = cu_k[low + 1] - cu_k[low] - (d.end - d.first);
    }
    return d;
}

/* Addresses of the inputs of row t from channel c on, tap by tap; the first *from taps have none. */
static int64_t find_inputs(const struct convolution *v, const struct document *d, int64_t t,
                           int64_t c, const void *in[MOST]) {
    const int64_t size = (int64_t)ax_dtype_size(v->dtype);
    int64_t from = v->taps;
    while (from > 0 && t - (v->taps - from) >= d->first - d->past) {
        const int64_t at = t - (v->taps - from), before = d->first - at;
        const struct ax_tensor *x = before > 0 ? &v->a->before : &v->a->x;
        const int64_t row = before > 0 ? (d->number + 1) * (v->taps - 1) - before : at;
        in[--from] = (const char *)x->data + (row * x->row_stride + c) * size;
    }
    return from;
}

static void *element_at(const struct ax_tensor *x, int64_t t, int64_t c) {
    return (char *)ax_tensor_row(x, t) + c * (int64_t)ax_dtype_size(x->dtype);
}

AX_INLINE v_float sigmoid(v_float x) {
    const v_float one = v_set(1.0f);
    return one / (one + v_exp(-x));
}

/* z of n channels, from element i of the inputs and channel c + i of the taps on. */
AX_INLINE v_float sum_taps(enum ax_dtype real, const struct convolution *v, const void *const *in,
                           int64_t from, int64_t c, int64_t i, int64_t n) {
    v_float z = v_load_f32(v->w + v->taps * v->columns + c + i, AX_LANES);
    for (int64_t k = from; k < v->taps; k++)
        z = v_fma(v_load_f32(v->w + k * v->columns + c + i, AX_LANES), v_load(real, in[k], i, n),
                  z);
    return z;
}

/* Calls function(dtype, taps, …) with both as constants, for the numbers of taps that models have. */
#define BY_TAPS(v, function, ...)                                                                  \
    ((v)->taps == 4   ? AX_BY_DTYPE((v)->dtype, function, 4, __VA_ARGS__)                          \
     : (v)->taps == 3 ? AX_BY_DTYPE((v)->dtype, function, 3, __VA_ARGS__)                          \
                      : AX_BY_DTYPE((v)->dtype, function, (v)->taps, __VA_ARGS__))

/* A vector of channels of some rows: element i of inputs that begin with the row taps − 1 before the first. */
struct column {
    v_float w[MOST], bias, in[MOST];
    const char *x;
    int64_t step; /* bytes to the next row of x */
};

AX_INLINE void begin_column(enum ax_dtype real, int64_t taps, const struct convolution *v,
                            int64_t t, int64_t c, int64_t i, int64_t n, struct column *s) {
    const struct ax_tensor *x = &v->a->x;
    s->x = (const char *)ax_tensor_row(x, t - taps + 1) + c * (int64_t)ax_dtype_size(real);
    s->step = x->row_stride * (int64_t)ax_dtype_size(real);
    s->bias = v_load_f32(v->w + taps * v->columns + c + i, AX_LANES);
    for (int64_t k = 0; k < taps; k++)
        s->w[k] = v_load_f32(v->w + k * v->columns + c + i, AX_LANES);
    for (int64_t k = 0; k + 1 < taps; k++, s->x += s->step)
        s->in[k + 1] = v_load(real, s->x, i, n);
}

/* z of the next row, whose inputs are then s->in. */
AX_INLINE v_float next_sum(enum ax_dtype real, int64_t taps, struct column *s, int64_t i,
                           int64_t n) {
    v_float z = s->bias;
    for (int64_t k = 0; k + 1 < taps; k++)
        s->in[k] = s->in[k + 1];
    s->in[taps - 1] = v_load(real, s->x, i, n);
    s->x += s->step;
    for (int64_t k = 0; k < taps; k++)
        z = v_fma(s->w[k], s->in[k], z);
    return z;
}

/* The first row from t on, up to `end`, all of whose taps are rows of x. */
static int64_t first_inside(const struct convolution *v, const struct document *d, int64_t t,
                            int64_t end) {
    const int64_t inside = d->past < 0 ? end : d->first + v->taps - 1;
    return least(end, inside > t ? inside : t);
}

/* ---- forward ---- */

/* Rows of y in a tile. */
struct run {
    const struct convolution *v;
    int64_t t, end, c;
};

AX_INLINE void forward_column(enum ax_dtype real, int64_t taps, const struct run *r, int64_t i,
                              int64_t n) {
    struct column s;
    const int64_t step = r->v->a->y.row_stride * (int64_t)ax_dtype_size(real);
    char *y = element_at(&r->v->a->y, r->t, r->c);
    begin_column(real, taps, r->v, r->t, r->c, i, n, &s);
    for (int64_t t = r->t; t < r->end; t++, y += step) {
        v_float z = next_sum(real, taps, &s, i, n);
        if (r->v->a->silu)
            z = z * sigmoid(z);
        v_store(real, y, i, n, z);
    }
}

AX_INLINE void forward_run(enum ax_dtype real, int64_t taps, const struct run *r,
                           int64_t channels) {
    AX_EACH_VECTOR(channels, forward_column, real, taps, r);
}

AX_INLINE void forward_vector(enum ax_dtype real, const struct convolution *v,
                              const void *const *in, int64_t from, int64_t c, void *y, int64_t i,
                              int64_t n) {
    v_float z = sum_taps(real, v, in, from, c, i, n);
    if (v->a->silu)
        z = z * sigmoid(z);
    v_store(real, y, i, n, z);
}

AX_INLINE void forward_row(enum ax_dtype real, const struct convolution *v, const void *const *in,
                           int64_t from, int64_t c, int64_t channels, void *y) {
    AX_EACH_VECTOR(channels, forward_vector, real, v, in, from, c, y);
}

/* Rows [t, end) of a document from channel c on, one by one. */
static void forward_edge(const struct convolution *v, const struct document *d, int64_t t,
                         int64_t end, int64_t c, int64_t channels) {
    const void *in[MOST];
    for (; t < end; t++) {
        void *y = element_at(&v->a->y, t, c);
        if (d->past < 0)
            memset(y, 0, (size_t)channels * ax_dtype_size(v->dtype));
        else
            AX_BY_DTYPE(v->dtype, forward_row, v, in, find_inputs(v, d, t, c, in), c, channels, y);
    }
}

/* Rows [t, end) from channel c on. */
static void forward_rows(const struct convolution *v, int64_t t, int64_t end, int64_t c) {
    const int64_t channels = least(TILE, v->channels - c);
    while (t < end) {
        const struct document d = document_at(v->a, t);
        const int64_t to = least(end, d.end), inside = first_inside(v, &d, t, to);
        const struct run r = {v, inside, to, c};
        forward_edge(v, &d, t, inside, c, channels);
        if (inside < to)
            BY_TAPS(v, forward_run, &r, channels);
        t = to;
    }
}

size_t AX_VEC(ax_cpu_conv_forward_workspace)(struct ax_queue *q, const struct ax_conv_forward *f) {
    (void)q;
    return taps_bytes(&f->a);
}

enum ax_status AX_VEC(ax_cpu_conv_forward)(struct ax_queue *q, const struct ax_conv_forward *f,
                                           void *work) {
    const struct convolution v = transpose(&f->a, work);
    const int64_t rows = f->a.x.shape[0], tiles = v.columns / TILE;
    AX_PARALLEL_FOR (team(q, rows * v.channels), task, ceil_div(rows, ROWS) * tiles) {
        const int64_t first = task / tiles * ROWS;
        forward_rows(&v, first, least(rows, first + ROWS), task % tiles * TILE);
    }
    return AX_OK;
}

/* ---- backward ---- */

/* Rows [first, end). */
struct span {
    int64_t first, end;
};

/* A tile of channels in a block of rows: g of the last rows, [K][TILE], row t in t % K; sums [K + 1][TILE], of dw
 * and of dbias. */
struct tile {
    float g[MOST][TILE], sums[MOST + 1][TILE];
};

AX_INLINE void slope_vector(enum ax_dtype real, const struct convolution *v, const void *const *in,
                            int64_t from, int64_t c, const void *dy, float *g, int64_t i,
                            int64_t n) {
    v_float d = v_load(real, dy, i, n);
    if (v->a->silu) {
        const v_float z = sum_taps(real, v, in, from, c, i, n), s = sigmoid(z);
        d = d * s * v_fma(z, v_set(1.0f) - s, v_set(1.0f));
    }
    v_store_f32(g + i, AX_LANES, d);
}

AX_INLINE void slope_row(enum ax_dtype real, const struct convolution *v, const void *const *in,
                         int64_t from, int64_t c, int64_t channels, const void *dy, float *g) {
    AX_EACH_VECTOR(channels, slope_vector, real, v, in, from, c, dy, g);
}

/* sums[k] += g·x of tap k, the last += g. */
AX_INLINE void sums_vector(enum ax_dtype real, const struct convolution *v, const void *const *in,
                           int64_t from, struct tile *tile, const float *g, int64_t i, int64_t n) {
    const v_float d = v_load_f32(g + i, AX_LANES);
    for (int64_t k = from; k < v->taps; k++) {
        float *sum = tile->sums[k] + i;
        v_store_f32(sum, AX_LANES, v_fma(d, v_load(real, in[k], i, n), v_load_f32(sum, AX_LANES)));
    }
    float *last = tile->sums[v->taps] + i;
    v_store_f32(last, AX_LANES, v_load_f32(last, AX_LANES) + d);
}

AX_INLINE void sums_row(enum ax_dtype real, const struct convolution *v, const void *const *in,
                        int64_t from, int64_t channels, struct tile *tile, const float *g) {
    AX_EACH_VECTOR(channels, sums_vector, real, v, in, from, tile, g);
}

/* dx of row t from g of the rows up to `end` − 1, in the order of the taps. */
AX_INLINE void dx_vector(enum ax_dtype real, const struct convolution *v, const struct tile *tile,
                         int64_t t, int64_t end, int64_t c, void *dx, int64_t i, int64_t n) {
    v_float sum = v_set(0);
    for (int64_t k = 0; k < v->taps; k++) {
        const int64_t later = t + v->taps - 1 - k;
        if (later < end)
            sum = v_fma(v_load_f32(v->w + k * v->columns + c + i, AX_LANES),
                        v_load_f32(tile->g[later % v->taps] + i, AX_LANES), sum);
    }
    v_store(real, dx, i, n, sum);
}

AX_INLINE void dx_row(enum ax_dtype real, const struct convolution *v, const struct tile *tile,
                      int64_t t, int64_t end, int64_t c, int64_t channels, void *dx) {
    AX_EACH_VECTOR(channels, dx_vector, real, v, tile, t, end, c, dx);
}

/* Rows [t, end) of a document in a tile, whose inputs and the rows before which in the tile's g are all there. */
struct back_run {
    struct run r;
    const struct ax_conv_backward *b;
    struct tile *tile;
};

AX_INLINE void backward_column(enum ax_dtype real, int64_t taps, const struct back_run *of,
                               int64_t i, int64_t n) {
    const struct run *r = &of->r;
    const int64_t size = (int64_t)ax_dtype_size(real), last = r->end - 1;
    const char *dy = element_at(&of->b->dy, r->t, r->c);
    char *dx = element_at(&of->b->dx, r->t - taps + 1, r->c);
    struct tile *tile = of->tile;
    struct column s;
    v_float g[MOST], sums[MOST + 1]; /* g[k]: of k rows ago */
    begin_column(real, taps, r->v, r->t, r->c, i, n, &s);
    for (int64_t k = 0; k <= taps; k++)
        sums[k] = v_load_f32(tile->sums[k] + i, AX_LANES);
    for (int64_t k = 0; k + 1 < taps; k++)
        g[k] = v_load_f32(tile->g[(r->t - 1 - k) % taps] + i, AX_LANES);
    for (int64_t t = r->t; t < r->end; t++) {
        const v_float z = next_sum(real, taps, &s, i, n);
        v_float d = v_load(real, dy, i, n), sum = v_set(0);
        if (r->v->a->silu) {
            const v_float gate = sigmoid(z);
            d = d * gate * v_fma(z, v_set(1.0f) - gate, v_set(1.0f));
        }
        for (int64_t k = taps - 1; k > 0; k--)
            g[k] = g[k - 1];
        g[0] = d;
        for (int64_t k = 0; k < taps; k++)
            sums[k] = v_fma(d, s.in[k], sums[k]);
        sums[taps] = sums[taps] + d;
        for (int64_t k = 0; k < taps; k++)
            sum = v_fma(s.w[k], g[k], sum);
        v_store(real, dx, i, n, sum);
        dy += of->b->dy.row_stride * size;
        dx += of->b->dx.row_stride * size;
    }
    for (int64_t k = 0; k <= taps; k++)
        v_store_f32(tile->sums[k] + i, AX_LANES, sums[k]);
    for (int64_t k = 0; k < taps; k++)
        v_store_f32(tile->g[(last - k) % taps] + i, AX_LANES, g[k]);
}

AX_INLINE void backward_run(enum ax_dtype real, int64_t taps, const struct back_run *of,
                            int64_t channels) {
    AX_EACH_VECTOR(channels, backward_column, real, taps, of);
}

/* Row t of a document's rows [first, end) of the block: g, of which it may be one of the K − 1 rows after them, then
 * the sums, and dx of the row that needs no later g. */
static void backward_row(const struct convolution *v, const struct ax_conv_backward *b,
                         const struct document *d, const struct span *s, int64_t t, int64_t c,
                         struct tile *tile) {
    const int64_t channels = least(TILE, v->channels - c), done = t - v->taps + 1;
    const int64_t last = least(d->end, s->end + v->taps - 1);
    const void *in[MOST];
    if (t < last) {
        const int64_t from = find_inputs(v, d, t, c, in);
        float *g = tile->g[t % v->taps];
        AX_BY_DTYPE(v->dtype, slope_row, v, in, from, c, channels, element_at(&b->dy, t, c), g);
        if (t < s->end)
            AX_BY_DTYPE(v->dtype, sums_row, v, in, from, channels, tile, g);
    }
    if (done >= s->first && done < s->end)
        AX_BY_DTYPE(v->dtype, dx_row, v, tile, done, last, c, channels,
                    element_at(&b->dx, done, c));
}

static void backward_document(const struct convolution *v, const struct ax_conv_backward *b,
                              const struct document *d, const struct span *s, int64_t c,
                              struct tile *tile) {
    const int64_t channels = least(TILE, v->channels - c);
    const int64_t inside = first_inside(v, d, s->first + v->taps - 1, s->end);
    const struct back_run run = {{v, inside, s->end, c}, b, tile};
    for (int64_t t = s->first; t < inside; t++)
        backward_row(v, b, d, s, t, c, tile);
    if (inside < s->end)
        BY_TAPS(v, backward_run, &run, channels);
    for (int64_t t = s->end; t < s->end + v->taps - 1; t++)
        backward_row(v, b, d, s, t, c, tile);
}

static void backward_block(const struct convolution *v, const struct ax_conv_backward *b,
                           int64_t first, int64_t end, int64_t c, struct tile *tile) {
    const size_t bytes = (size_t)least(TILE, v->channels - c) * ax_dtype_size(v->dtype);
    memset(tile->sums, 0, sizeof tile->sums);
    for (int64_t t = first; t < end;) {
        const struct document d = document_at(v->a, t);
        const int64_t to = least(end, d.end);
        for (int64_t k = t; d.past < 0 && k < to; k++)
            memset(element_at(&b->dx, k, c), 0, bytes);
        if (d.past >= 0)
            backward_document(v, b, &d, &(struct span){t, to}, c, tile);
        t = to;
    }
}

size_t AX_VEC(ax_cpu_conv_backward_workspace)(struct ax_queue *q,
                                              const struct ax_conv_backward *b) {
    (void)q;
    return 2 * taps_bytes(&b->a) +
           block_sums_bytes(b->a.x.shape[0], (b->a.w.shape[1] + 1) * columns_of(&b->a));
}

/* dw and dbias += `sums`, [K + 1][columns]. */
static void add_sums(const struct convolution *v, const struct ax_conv_backward *b,
                     const float *sums) {
    float *dw = b->dw.data, *dbias = b->dbias.data;
    for (int64_t c = 0; c < v->channels; c++) {
        for (int64_t k = 0; dw && k < v->taps; k++)
            dw[c * v->taps + k] += sums[k * v->columns + c];
        if (dbias)
            dbias[c] += sums[v->taps * v->columns + c];
    }
}

enum ax_status AX_VEC(ax_cpu_conv_backward)(struct ax_queue *q, const struct ax_conv_backward *b,
                                            void *work) {
    const struct convolution v = transpose(&b->a, work);
    const int64_t rows = b->a.x.shape[0], tiles = v.columns / TILE, kinds = v.taps + 1;
    const struct row_blocks blocks = block_rows(rows);
    float *total = (float *)work + kinds * v.columns, *sums = total + kinds * v.columns;
    AX_PARALLEL_FOR (team(q, rows * v.channels), task, blocks.count * tiles) {
        struct tile tile;
        const int64_t block = task / tiles, c = task % tiles * TILE;
        backward_block(&v, b, block * blocks.rows, least(rows, (block + 1) * blocks.rows), c,
                       &tile);
        for (int64_t k = 0; k < kinds; k++)
            memcpy(sums + (block * kinds + k) * v.columns + c, tile.sums[k], sizeof tile.sums[k]);
    }
    if (!b->dw.data && !b->dbias.data)
        return AX_OK;
    memset(total, 0, (size_t)(kinds * v.columns) * sizeof *total);
    add_blocks(q, total, sums, blocks.count, kinds * v.columns);
    add_sums(&v, b, total);
    return AX_OK;
}
