/* Attention over packed documents, forward and backward. */
#include "kernels/ops/attention.h"

#include <math.h>

#include "kernels/ops/family.h"

#define ATTENTION(...) OPTIONS(ax_attention_options, __VA_ARGS__)

static const struct ax_shape_document one_key[] = {{1, 1}};
static const struct ax_shape_document packed[] = {{5, 5}, {0, 0}, {1, 1}, {17, 17}, {0, 0}, {0, 0}};
static const struct ax_shape_document decoding[] = {{1, 9}, {1, 1}, {0, 6}, {1, 30}};
static const struct ax_shape_document decoding_17[] = {
    {1, 9}, {1, 1},  {0, 6}, {1, 30}, {1, 3}, {1, 4}, {1, 16}, {1, 17}, {1, 8},
    {0, 0}, {1, 12}, {2, 7}, {1, 5},  {1, 2}, {1, 1}, {1, 32}, {1, 33}};
static const struct ax_shape_document long_decoding[] = {
    {1, 700}, {0, 64}, {1, 0}, {1, 65}, {1, 300}};
static const struct ax_shape_document cached_2200[] = {{1, 2200}};
static const struct ax_shape_document prefix[] = {{3, 10}, {7, 7}};
static const struct ax_shape_document no_keys[] = {{4, 0}, {5, 2}, {3, 3}};
static const struct ax_shape_document tiles[] = {{150, 150}, {70, 70}};
static const struct ax_shape_document earlier[] = {{0, 5}, {9, 12}};
static const struct ax_shape_document earlier_tiles[] = {{0, 40}, {150, 110}};
static const struct ax_shape_document row_of_2048[] = {{2048, 2048}};
static const struct ax_shape_document cached_1024[] = {{1, 1024}};
static const struct ax_shape_document row_of_4096[] = {{4096, 4096}};
static const struct ax_shape_document cached_4096[] = {{1, 4096}};

static const char *check_attention(const struct ax_attention *a) {
    NEED(a->q.ndim == 3 && a->k.ndim == 3 && a->v.ndim == 3 && real(&a->q));
    int64_t tq = a->q.shape[0], heads = a->q.shape[1], head_dim = a->q.shape[2];
    int64_t tk = a->k.shape[0], kv_heads = a->k.shape[1];
    NEED(is_3d(&a->q, a->q.dtype, tq, heads, head_dim));
    NEED(is_3d(&a->k, a->q.dtype, tk, kv_heads, head_dim));
    NEED(is_3d(&a->v, a->q.dtype, tk, kv_heads, a->v.shape[2]));
    NEED(is_3d(&a->out, a->q.dtype, tq, heads, a->v.shape[2]));
    NEED(kv_heads > 0 && heads % kv_heads == 0);
    NEED(is_2d(&a->lse, accum(&a->q), tq, heads));
    NEED(a->cu_q.shape[0] >= 1 && is_1d(&a->cu_q, AX_I32, a->cu_q.shape[0]));
    NEED(is_1d(&a->cu_k, AX_I32, a->cu_q.shape[0]));
    NEED(!given(&a->sink) || is_1d(&a->sink, accum(&a->q), heads));
    NEED(a->max_q >= 0 && a->max_k >= 0 && a->window >= 0);
    NEED(a->window == 0 || a->causal);
    NEED(a->ahead >= 0 && (a->ahead == 0 || (a->causal && !given(&a->block_table))));
    NEED(!given(&a->chosen) || (a->causal && a->ahead == 0 && !given(&a->block_table)));
    NEED(!given(&a->chosen) || ax_chosen_fits(&a->chosen, tq, a->max_k));
    return NULL;
}

/* Of keys `ahead` of the queries: all, or what query i's window reaches, window − ahead − i. */
static double keys_ahead(const struct ax_attention *a) {
    const int64_t nq = a->max_q, most = a->max_k, reach = a->window - a->ahead;
    if (a->window == 0)
        return (double)most;
    int64_t full = reach - most + 1, some = reach; /* queries 0 … that see all; that see any */
    full = full < 0 ? 0 : full < nq ? full : nq;
    some = some < full ? full : some < nq ? some : nq;
    const double first = (double)(reach - full), last = (double)(reach - some + 1);
    return ((double)full * (double)most + (double)(some - full) * (first + last) / 2) /
           (double)(nq > 0 ? nq : 1);
}

/* Mean number of keys a query sees in a document of max_q queries and max_k keys: query i sees
 * i + 1 + max_k − max_q of them if causal (at most `window`), else all. For full documents this is
 * exact: (n + 1)/2 of n. */
static double keys_per_query(const struct ax_attention *a) {
    double nq = (double)a->max_q;
    double most = (double)a->max_k;
    if (a->ahead > 0)
        return keys_ahead(a);
    if (!a->causal || a->max_q <= 0)
        return most;
    double least = most - nq + 1;
    double empty = least < 1 ? 1 - least : 0; /* queries before the first key */
    least = least < 1 ? 1 : least;
    double limit = a->window > 0 && (double)a->window < most ? (double)a->window : most;
    double rising = limit >= least ? limit - least + 1 : 0; /* queries that see least … limit */
    double full = nq - empty - rising;
    return (rising * (least + limit) / 2 + full * limit) / nq;
}

static double attention_pairs(const struct ax_attention *a) {
    return (double)a->q.shape[0] * (double)a->q.shape[1] * keys_per_query(a);
}

/* Assigns blocks to documents in turn, back to front, so that no document's blocks are in order.
 * Returns their number; table may be NULL. */
static int64_t hand_out_blocks(const struct ax_shape *s, int32_t *table, int64_t columns,
                               int64_t total) {
    const struct ax_attention_options *o = s->options;
    int64_t used = 0;
    for (int64_t column = 0; column < columns; column++) {
        for (int64_t d = 0; d < s->n_documents; d++) {
            if (column * o->block_size >= s->documents[d].nk)
                continue;
            used++;
            if (table != NULL)
                table[d * columns + column] = (int32_t)(total - used);
        }
    }
    return used;
}

/* [rows][heads][vd]. */
static struct ax_tensor values_out(struct ax_case_builder *b, int64_t rows, int64_t heads) {
    const struct ax_attention_options *o = ax_case_options(b);
    const int64_t size = o->value_dim > 0 ? o->value_dim : b->shape->head_dim;
    return ax_case_place(b, b->real, b->shape->pad, 3, (const int64_t[]){rows, heads, size});
}

bool ax_chosen_fits(tensor chosen, int64_t rows, int64_t max_k) {
    return chosen->ndim == 2 && is_2d(chosen, AX_I32, rows, chosen->shape[1]) &&
           chosen->shape[1] >= ax_chosen_words(max_k);
}

/* Of every four rows one chooses half of the keys, one an eighth, one those of some words alone, and one none. */
static struct ax_tensor choose_some(struct ax_case_builder *b, int64_t rows, int64_t max_k) {
    const int64_t words = ax_chosen_words(max_k);
    const struct ax_tensor t = ax_case_dense2(b, AX_I32, rows, words);
    for (int64_t i = 0; i < rows * words * 32 && b->memory != NULL; i++) {
        const int64_t kind = i / (32 * words) % 4;
        const double x = ax_case_uniform(b, kind == 2 ? i / 32 : i, 0, 1);
        const uint32_t on = kind == 3 ? 0 : x < (kind == 1 ? 0.125 : 0.5), at = (uint32_t)i % 32;
        uint32_t *word = (uint32_t *)t.data + i / 32;
        *word = (at == 0 ? 0 : *word) | on << at;
    }
    return t;
}

static void build_attention(struct ax_case_builder *b, struct ax_attention *a) {
    const struct ax_attention_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    int64_t key_rows = 0;
    for (int i = 0; i < s->n_documents; i++) {
        const struct ax_shape_document *d = &s->documents[i];
        a->max_q = d->nq > a->max_q ? d->nq : a->max_q;
        a->max_k = d->nk > a->max_k ? d->nk : a->max_k;
        key_rows += d->nk;
    }
    if (o->block_size > 0) {
        int64_t columns = (a->max_k + o->block_size - 1) / o->block_size;
        int64_t blocks = hand_out_blocks(s, NULL, columns, 0);
        a->block_table = ax_case_dense2(b, AX_I32, s->n_documents, columns);
        if (b->memory != NULL)
            hand_out_blocks(s, a->block_table.data, columns, blocks);
        a->block_size = o->block_size;
        key_rows = blocks * o->block_size;
    }
    a->q = ax_case_in3(b, s->rows, s->heads);
    a->k = ax_case_in3(b, key_rows + (o->block_size > 0 ? 0 : 2), s->kv_heads);
    a->v = values_out(b, a->k.shape[0], s->kv_heads);
    ax_case_randomize(b, &a->v, -1, 1);
    a->out = values_out(b, s->rows, s->heads);
    a->lse = ax_case_dense2(b, b->accum, s->rows, s->heads);
    a->cu_q = ax_case_cumulative(b, false);
    a->cu_k = ax_case_cumulative(b, true);
    if (o->sink)
        a->sink = ax_case_in1(b, b->accum, s->heads);
    a->window = o->window;
    a->ahead = o->ahead;
    a->scale = 3 / sqrt((double)s->head_dim); /* sharper than usual: probabilities far from
                                                 uniform */
    a->softcap = o->softcap;
    a->causal = !o->not_causal;
    if (o->chosen)
        a->chosen = choose_some(b, s->rows, a->max_k);
}

static const char *check_attention_forward(const struct ax_attention_forward *f) {
    const struct ax_attention *a = &f->a;
    tensor table = &a->block_table;
    NEED(!given(table) || (a->block_size > 0 && a->k.shape[0] % a->block_size == 0));
    NEED(!given(table) || is_2d(table, AX_I32, a->cu_q.shape[0] - 1, table->shape[1]));
    return check_attention(a);
}

static struct ax_op_cost cost_attention_forward(const struct ax_attention_forward *f) {
    const struct ax_attention *a = &f->a;
    double dims = (double)(a->q.shape[2] + a->v.shape[2]); /* q·kᵀ, p·v */
    double bytes = ax_op_operand_bytes(ax_operands_attention_forward(), f);
    if (a->block_table.data != NULL) { /* of the cache, the blocks of these documents */
        double rows = (double)a->block_table.shape[0] * (double)a->max_k;
        double most = (double)a->k.shape[0];
        double unread = rows < most ? 1 - rows / most : 0;
        bytes -= unread * (bytes_of(&a->k) + bytes_of(&a->v));
    }
    return (struct ax_op_cost){2 * dims * attention_pairs(a), bytes};
}

static void build_attention_forward(struct ax_case_builder *b, struct ax_attention_forward *a) {
    build_attention(b, &a->a);
}

#define SMOLLM2_HEADS .heads = 9, .kv_heads = 3, .head_dim = 64

static const struct ax_shape shapes_attention_forward[] = {
    {"one", DOCUMENTS(one_key), .rows = 1, .heads = 1, .kv_heads = 1, .head_dim = 1},
    {"packed", DOCUMENTS(packed), .rows = 26, .heads = 4, .kv_heads = 2, .head_dim = 13},
    {"strided", DOCUMENTS(packed), .rows = 23, .heads = 2, .kv_heads = 2, .head_dim = 16,
     .pad = 32},
    {"window", DOCUMENTS(packed), .rows = 23, .heads = 3, .kv_heads = 1, .head_dim = 8,
     ATTENTION(.window = 4)},
    {"window of one", DOCUMENTS(prefix), .rows = 10, .heads = 1, .kv_heads = 1, .head_dim = 8,
     ATTENTION(.window = 1)},
    {"not causal", DOCUMENTS(packed), .rows = 23, .heads = 2, .kv_heads = 1, .head_dim = 24,
     ATTENTION(.not_causal = true)},
    {"soft cap", DOCUMENTS(prefix), .rows = 10, .heads = 2, .kv_heads = 2, .head_dim = 32,
     ATTENTION(.softcap = 1.5)},
    {"sink", DOCUMENTS(no_keys), .rows = 13, .heads = 4, .kv_heads = 2, .head_dim = 16,
     ATTENTION(.sink = true)},
    {"no keys", DOCUMENTS(no_keys), .rows = 12, .heads = 2, .kv_heads = 1, .head_dim = 16},
    {"decoding", DOCUMENTS(decoding), .rows = 3, .heads = 6, .kv_heads = 2, .head_dim = 16},
    {"paged", DOCUMENTS(decoding), .rows = 3, .heads = 6, .kv_heads = 2, .head_dim = 16,
     ATTENTION(.block_size = 4)},
    {"paged, small values", DOCUMENTS(decoding), .rows = 3, .heads = 6, .kv_heads = 2,
     .head_dim = 24, ATTENTION(.block_size = 4, .value_dim = 16)},
    {"paged, latents", DOCUMENTS(decoding), .rows = 3, .heads = 20, .kv_heads = 1, .head_dim = 576,
     ATTENTION(.block_size = 3, .value_dim = 512)},
    {"paged, window", DOCUMENTS(prefix), .rows = 10, .heads = 2, .kv_heads = 2, .head_dim = 8,
     ATTENTION(.window = 5, .block_size = 2)},
    {"paged, many documents", DOCUMENTS(decoding_17), .rows = 17, .heads = 4, .kv_heads = 2,
     .head_dim = 16, ATTENTION(.block_size = 16)},
    {"paged, sink", DOCUMENTS(decoding), .rows = 4, .heads = 6, .kv_heads = 2, .head_dim = 16,
     ATTENTION(.sink = true, .block_size = 16)},
    {"paged, cap and sink", DOCUMENTS(prefix), .rows = 10, .heads = 4, .kv_heads = 2,
     .head_dim = 16, ATTENTION(.softcap = 2.5, .sink = true, .block_size = 4)},
    {"decoding, many keys", DOCUMENTS(long_decoding), .rows = 5, .heads = 8, .kv_heads = 2,
     .head_dim = 64, .pad = 24, ATTENTION(.sink = true)},
    {"decoding, many heads", DOCUMENTS(long_decoding), .rows = 4, .heads = 18, .kv_heads = 1,
     .head_dim = 256, ATTENTION(.value_dim = 136, .softcap = 2.5)},
    {"decoding, window", DOCUMENTS(long_decoding), .rows = 4, .heads = 6, .kv_heads = 2,
     .head_dim = 80, ATTENTION(.window = 130)},
    {"decoding, not causal", DOCUMENTS(long_decoding), .rows = 4, .heads = 2, .kv_heads = 2,
     .head_dim = 8, ATTENTION(.not_causal = true)},
    {"paged, many keys", DOCUMENTS(long_decoding), .rows = 4, .heads = 8, .kv_heads = 2,
     .head_dim = 128, ATTENTION(.block_size = 16)},
    {"paged, 35 parts", DOCUMENTS(cached_2200), .rows = 1, .heads = 2, .kv_heads = 1,
     .head_dim = 16, ATTENTION(.block_size = 16)},
    {"paged, blocks of 3", DOCUMENTS(long_decoding), .rows = 5, .heads = 4, .kv_heads = 2,
     .head_dim = 64, ATTENTION(.window = 90, .sink = true, .block_size = 3)},
    {"small values", DOCUMENTS(packed), .rows = 26, .heads = 4, .kv_heads = 2, .head_dim = 24,
     .pad = 5, ATTENTION(.value_dim = 13)},
    {"small values, window", DOCUMENTS(tiles), .rows = 220, .heads = 2, .kv_heads = 1,
     .head_dim = 192, ATTENTION(.window = 70, .value_dim = 128)},
    {"large values", DOCUMENTS(prefix), .rows = 10, .heads = 4, .kv_heads = 2, .head_dim = 16,
     ATTENTION(.value_dim = 40)},
    {"tiles", DOCUMENTS(tiles), .rows = 220, .heads = 3, .kv_heads = 1, .head_dim = 64},
    {"tiles, window", DOCUMENTS(tiles), .rows = 220, .heads = 2, .kv_heads = 1, .head_dim = 40,
     ATTENTION(.window = 70)},
    {"tiles, 128 columns", DOCUMENTS(tiles), .rows = 221, .heads = 2, .kv_heads = 1,
     .head_dim = 128, ATTENTION(.window = 130)},
    {"tiles, soft cap", DOCUMENTS(tiles), .rows = 222, .heads = 4, .kv_heads = 2, .head_dim = 40,
     ATTENTION(.window = 70, .softcap = 2.5)},
    {"tiles, sink", DOCUMENTS(tiles), .rows = 222, .heads = 4, .kv_heads = 2, .head_dim = 64,
     ATTENTION(.window = 70, .sink = true)},
    {"earlier keys", DOCUMENTS(earlier), .rows = 12, .heads = 4, .kv_heads = 2, .head_dim = 13,
     ATTENTION(.ahead = 1)},
    {"earlier keys, window", DOCUMENTS(earlier), .rows = 11, .heads = 3, .kv_heads = 1,
     .head_dim = 8, ATTENTION(.ahead = 3, .window = 9)},
    {"earlier keys, out of sight", DOCUMENTS(earlier), .rows = 11, .heads = 2, .kv_heads = 2,
     .head_dim = 8, ATTENTION(.ahead = 9, .window = 9)},
    {"earlier tiles, window", DOCUMENTS(earlier_tiles), .rows = 152, .heads = 4, .kv_heads = 2,
     .head_dim = 40, ATTENTION(.ahead = 20, .window = 115, .softcap = 2.5)},
    {"chosen", DOCUMENTS(packed), .rows = 26, .heads = 4, .kv_heads = 2, .head_dim = 13,
     ATTENTION(.chosen = true)},
    {"chosen of earlier keys", DOCUMENTS(prefix), .rows = 10, .heads = 2, .kv_heads = 2,
     .head_dim = 24, ATTENTION(.chosen = true, .value_dim = 16, .sink = true)},
    {"chosen, tiles", DOCUMENTS(tiles), .rows = 222, .heads = 2, .kv_heads = 2, .head_dim = 40,
     ATTENTION(.chosen = true)},
    {"chosen, small values", DOCUMENTS(tiles), .rows = 220, .heads = 2, .kv_heads = 1,
     .head_dim = 192, ATTENTION(.chosen = true, .window = 70, .value_dim = 128)},
    {"training", .big = true, DOCUMENTS(row_of_2048), .rows = 2048, SMOLLM2_HEADS, .pad = 384},
    {"one token", .big = true, DOCUMENTS(cached_1024), .rows = 1, SMOLLM2_HEADS},
    {"64 heads", .huge = true, DOCUMENTS(row_of_4096), .rows = 4096, .heads = 64, .kv_heads = 8,
     .head_dim = 128},
    {"8B one token, paged", .huge = true, DOCUMENTS(cached_4096), .rows = 1, .heads = 32,
     .kv_heads = 8, .head_dim = 128, ATTENTION(.block_size = 16)},
};

AX_OP_INFO(attention_forward, IN(a.q), IN(a.k), IN(a.v), OUT(a.out), OUT(a.lse), IN(a.cu_q),
           IN(a.cu_k), IN(a.sink), IN(a.block_table), IN(a.chosen));

static const char *check_attention_backward(const struct ax_attention_backward *b) {
    const struct ax_attention *a = &b->a;
    NEED(!given(&a->block_table));
    NEED(same_shape(&b->dout, &a->out) && b->dout.dtype == a->q.dtype);
    NEED(same_shape(&b->dq, &a->q) && b->dq.dtype == a->q.dtype);
    NEED(same_shape(&b->dk, &a->k) && b->dk.dtype == a->q.dtype);
    NEED(same_shape(&b->dv, &a->v) && b->dv.dtype == a->q.dtype);
    NEED(!given(&b->dsink) || given(&a->sink));
    NEED(!given(&b->dsink) || is_1d(&b->dsink, accum(&a->q), a->q.shape[1]));
    return check_attention(a);
}

static struct ax_op_cost cost_attention_backward(const struct ax_attention_backward *b) {
    /* q·kᵀ again, dq, dk; dout·vᵀ, dv */
    double dims = (double)(3 * b->a.q.shape[2] + 2 * b->a.v.shape[2]);
    return (struct ax_op_cost){2 * dims * attention_pairs(&b->a),
                               ax_op_operand_bytes(ax_operands_attention_backward(), b)};
}

/* Queries and keys with the same documents have one list of them, as in training. */
static bool has_one_list(const struct ax_shape *s) {
    for (int i = 0; i < s->n_documents; i++)
        if (s->documents[i].nq != s->documents[i].nk)
            return false;
    return true;
}

/* ax_case_prepare computes out and lse. */
static void build_attention_backward(struct ax_case_builder *b, struct ax_attention_backward *a) {
    const struct ax_attention_options *o = ax_case_options(b);
    build_attention(b, &a->a);
    if (has_one_list(b->shape))
        a->a.cu_k = a->a.cu_q;
    a->dout = values_out(b, a->a.q.shape[0], b->shape->heads);
    ax_case_randomize(b, &a->dout, -1, 1);
    a->dq = ax_case_out3(b, a->a.q.shape[0], b->shape->heads);
    a->dk = ax_case_out3(b, a->a.k.shape[0], b->shape->kv_heads);
    a->dv = values_out(b, a->a.k.shape[0], b->shape->kv_heads);
    if (o->sink)
        a->dsink = ax_case_in1(b, b->accum, b->shape->heads);
}

static const struct ax_shape shapes_attention_backward[] = {
    {"one", DOCUMENTS(one_key), .rows = 1, .heads = 1, .kv_heads = 1, .head_dim = 1},
    {"packed", DOCUMENTS(packed), .rows = 26, .heads = 4, .kv_heads = 2, .head_dim = 13},
    {"strided", DOCUMENTS(packed), .rows = 23, .heads = 2, .kv_heads = 2, .head_dim = 16,
     .pad = 32},
    {"window", DOCUMENTS(packed), .rows = 23, .heads = 3, .kv_heads = 1, .head_dim = 8,
     ATTENTION(.window = 4)},
    {"not causal", DOCUMENTS(packed), .rows = 23, .heads = 2, .kv_heads = 1, .head_dim = 24,
     ATTENTION(.not_causal = true)},
    {"soft cap", DOCUMENTS(prefix), .rows = 10, .heads = 2, .kv_heads = 2, .head_dim = 32,
     ATTENTION(.softcap = 1.5)},
    {"sink", DOCUMENTS(no_keys), .rows = 13, .heads = 4, .kv_heads = 2, .head_dim = 16,
     ATTENTION(.sink = true)},
    {"no keys", DOCUMENTS(no_keys), .rows = 12, .heads = 2, .kv_heads = 1, .head_dim = 16},
    {"small values", DOCUMENTS(packed), .rows = 26, .heads = 4, .kv_heads = 2, .head_dim = 24,
     .pad = 5, ATTENTION(.value_dim = 13)},
    {"small values, window", DOCUMENTS(tiles), .rows = 220, .heads = 2, .kv_heads = 1,
     .head_dim = 192, ATTENTION(.window = 70, .value_dim = 128)},
    {"large values", DOCUMENTS(prefix), .rows = 10, .heads = 4, .kv_heads = 2, .head_dim = 16,
     ATTENTION(.value_dim = 40)},
    {"tiles", DOCUMENTS(tiles), .rows = 220, .heads = 3, .kv_heads = 1, .head_dim = 64},
    {"tiles, window", DOCUMENTS(tiles), .rows = 220, .heads = 2, .kv_heads = 1, .head_dim = 40,
     ATTENTION(.window = 70)},
    {"tiles, 128 columns", DOCUMENTS(tiles), .rows = 221, .heads = 2, .kv_heads = 1,
     .head_dim = 128, ATTENTION(.window = 130)},
    {"tiles, soft cap", DOCUMENTS(tiles), .rows = 222, .heads = 4, .kv_heads = 2, .head_dim = 40,
     ATTENTION(.window = 70, .softcap = 2.5)},
    {"tiles, sink", DOCUMENTS(tiles), .rows = 222, .heads = 4, .kv_heads = 2, .head_dim = 64,
     ATTENTION(.window = 70, .sink = true)},
    {"earlier keys", DOCUMENTS(earlier), .rows = 12, .heads = 4, .kv_heads = 2, .head_dim = 13,
     ATTENTION(.ahead = 1)},
    {"earlier keys, window", DOCUMENTS(earlier), .rows = 11, .heads = 3, .kv_heads = 1,
     .head_dim = 8, ATTENTION(.ahead = 3, .window = 9)},
    {"earlier keys, out of sight", DOCUMENTS(earlier), .rows = 11, .heads = 2, .kv_heads = 2,
     .head_dim = 8, ATTENTION(.ahead = 9, .window = 9)},
    {"earlier tiles, window", DOCUMENTS(earlier_tiles), .rows = 152, .heads = 4, .kv_heads = 2,
     .head_dim = 40, ATTENTION(.ahead = 20, .window = 115, .softcap = 2.5)},
    {"chosen", DOCUMENTS(packed), .rows = 26, .heads = 4, .kv_heads = 2, .head_dim = 13,
     ATTENTION(.chosen = true)},
    {"chosen of earlier keys", DOCUMENTS(prefix), .rows = 10, .heads = 2, .kv_heads = 2,
     .head_dim = 24, ATTENTION(.chosen = true, .value_dim = 16, .sink = true)},
    {"chosen, tiles", DOCUMENTS(tiles), .rows = 222, .heads = 2, .kv_heads = 2, .head_dim = 40,
     ATTENTION(.chosen = true)},
    {"chosen, small values", DOCUMENTS(tiles), .rows = 220, .heads = 2, .kv_heads = 1,
     .head_dim = 192, ATTENTION(.chosen = true, .window = 70, .value_dim = 128)},
    {"training", .big = true, DOCUMENTS(row_of_2048), .rows = 2048, SMOLLM2_HEADS, .pad = 384},
    {"64 heads", .huge = true, DOCUMENTS(row_of_4096), .rows = 4096, .heads = 64, .kv_heads = 8,
     .head_dim = 128},
    {"1B heads", .huge = true, DOCUMENTS(row_of_4096), .rows = 4096, .heads = 32, .kv_heads = 8,
     .head_dim = 64},
};

AX_OP_INFO(attention_backward, IN(a.q), IN(a.k), IN(a.v), IN(a.out), IN(a.lse), IN(a.cu_q),
           IN(a.cu_k), IN(a.sink), IN(a.chosen), IN(dout), OUT(dq), OUT(dk), OUT(dv), INOUT(dsink));

static const char *check_attention_merge(const struct ax_attention_merge *a) {
    NEED(a->part.ndim == 3 && real(&a->part));
    const int64_t rows = a->part.shape[0], heads = a->part.shape[1];
    NEED(is_3d(&a->part, a->part.dtype, rows, heads, a->part.shape[2]));
    NEED(is_3d(&a->out, accum(&a->part), rows, heads, a->part.shape[2]));
    NEED(is_2d(&a->lse, accum(&a->part), rows, heads));
    NEED(is_2d(&a->part_lse, accum(&a->part), rows, heads));
    return NULL;
}

PER_ELEMENT(attention_merge, 3, out)

static void build_attention_merge(struct ax_case_builder *b, struct ax_attention_merge *a) {
    const struct ax_shape *s = b->shape;
    const int64_t shape[] = {s->rows, s->heads, s->head_dim};
    a->out = ax_case_place(b, b->accum, s->pad, 3, shape);
    ax_case_randomize(b, &a->out, -1, 1);
    a->lse = ax_case_dense_in2(b, b->accum, s->rows, s->heads);
    a->part = ax_case_in3(b, s->rows, s->heads);
    a->part_lse = ax_case_dense_in2(b, b->accum, s->rows, s->heads);
}

static const struct ax_shape shapes_attention_merge[] = {
    {"one", .rows = 1, .heads = 1, .kv_heads = 1, .head_dim = 1},
    {"strided", .rows = 7, .heads = 3, .kv_heads = 3, .head_dim = 21, .pad = 32},
    {"training", .big = true, .rows = 2048, SMOLLM2_HEADS},
};

AX_OP_INFO(attention_merge, INOUT(out), INOUT(lse), IN(part), IN(part_lse));
