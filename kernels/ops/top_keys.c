/* Choosing the keys of sparse attention. */
#include <math.h>
#include <string.h>

#include "kernels/ops/attention.h"
#include "kernels/ops/family.h"

struct top_options {
    int64_t block_size; /* > 0: with a block table */
    int64_t top;
    bool rows; /* the result is rows */
    bool ties; /* k are few different rows, so that keys have equal scores */
};
#define TOP(...) OPTIONS(top_options, __VA_ARGS__)

static const struct ax_shape_document one_key[] = {{1, 1}};
static const struct ax_shape_document short_rows[] = {{5, 5}, {19, 19}};
static const struct ax_shape_document packed[] = {{5, 5}, {0, 0}, {1, 1}, {40, 40}, {7, 7}, {0, 0}};
static const struct ax_shape_document decoding[] = {{1, 9}, {1, 1}, {0, 6}, {1, 130}, {3, 70}};
static const struct ax_shape_document row_of_2048[] = {{2048, 2048}};
static const struct ax_shape_document cached_4096[] = {{1, 4096}};

static const char *check_top_keys(const struct ax_top_keys *a) {
    NEED(a->q.ndim == 3 && a->k.ndim == 3 && real(&a->q));
    const int64_t rows = a->q.shape[0], heads = a->q.shape[1], size = a->q.shape[2];
    const int64_t documents = a->cu_q.shape[0] - 1;
    tensor table = &a->block_table;
    NEED(is_3d(&a->q, a->q.dtype, rows, heads, size));
    NEED(is_3d(&a->k, a->q.dtype, a->k.shape[0], 1, size));
    NEED(is_2d(&a->w, accum(&a->q), rows, heads));
    NEED(documents >= 0 && is_1d(&a->cu_q, AX_I32, documents + 1));
    NEED(is_1d(&a->cu_k, AX_I32, documents + 1));
    NEED(a->max_q >= 0 && a->max_k >= 0 && a->top >= 1);
    NEED(!given(table) || (a->block_size > 0 && a->k.shape[0] % a->block_size == 0));
    NEED(!given(table) || is_2d(table, AX_I32, documents, table->shape[1]));
    NEED(given(&a->rows) != given(&a->chosen));
    NEED(!given(&a->rows) || is_dense_2d(&a->rows, AX_I32, rows, a->top));
    NEED(!given(&a->chosen) || ax_chosen_fits(&a->chosen, rows, a->max_k));
    return NULL;
}

/* Keys that a query sees, on average, as attention counts them. */
static double keys_per_query(const struct ax_top_keys *a) {
    const double nq = (double)a->max_q, most = (double)a->max_k;
    return nq > 0 ? fmax(most - (nq - 1) / 2, 0) : 0;
}

static struct ax_op_cost cost_top_keys(const struct ax_top_keys *a) {
    /* of a pair: a product for each head, and its largest with 0, weight and sum */
    const double heads = (double)a->q.shape[1], of_pair = heads * (2 * (double)a->q.shape[2] + 3);
    double bytes = ax_op_operand_bytes(ax_operands_top_keys(), a);
    if (given(&a->block_table)) { /* of the cache, the blocks of these documents */
        const double rows = (double)a->block_table.shape[0] * (double)a->max_k;
        const double most = (double)a->k.shape[0];
        bytes -= (rows < most ? 1 - rows / most : 0) * bytes_of(&a->k);
    }
    return (struct ax_op_cost){of_pair * (double)a->q.shape[0] * keys_per_query(a), bytes};
}

/* Blocks in order of documents, from the last one of the cache on. */
static int64_t hand_out_blocks(const struct ax_shape *s, int64_t block_size, int32_t *table,
                               int64_t columns, int64_t total) {
    int64_t used = 0;
    for (int64_t d = 0; d < s->n_documents; d++)
        for (int64_t c = 0; c * block_size < s->documents[d].nk; c++) {
            used++;
            if (table)
                table[d * columns + c] = (int32_t)(total - used);
        }
    return used;
}

static void build_top_keys(struct ax_case_builder *b, struct ax_top_keys *a) {
    const struct top_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    int64_t key_rows = 0;
    for (int i = 0; i < s->n_documents; i++) {
        const struct ax_shape_document *d = &s->documents[i];
        a->max_q = d->nq > a->max_q ? d->nq : a->max_q;
        a->max_k = d->nk > a->max_k ? d->nk : a->max_k;
        key_rows += d->nk;
    }
    if (o->block_size > 0) {
        const int64_t columns = (a->max_k + o->block_size - 1) / o->block_size;
        const int64_t blocks = hand_out_blocks(s, o->block_size, NULL, columns, 0);
        a->block_table = ax_case_dense2(b, AX_I32, s->n_documents, columns);
        if (b->memory) {
            memset(a->block_table.data, 0, ax_tensor_bytes(&a->block_table));
            hand_out_blocks(s, o->block_size, a->block_table.data, columns, blocks);
        }
        a->block_size = o->block_size;
        key_rows = blocks * o->block_size;
    }
    a->q = ax_case_in3(b, s->rows, s->heads);
    a->k = ax_case_in3(b, key_rows, 1);
    for (int64_t r = 2; b->memory && o->ties && r < key_rows; r++)
        memcpy(ax_tensor_row(&a->k, r), ax_tensor_row(&a->k, r % 2),
               (size_t)s->head_dim * ax_dtype_size(b->real));
    a->w = ax_case_in2(b, b->accum, s->rows, s->heads);
    a->cu_q = ax_case_cumulative(b, false);
    a->cu_k = ax_case_cumulative(b, true);
    a->top = o->top;
    a->scale = 1 / sqrt((double)s->head_dim);
    if (o->rows)
        a->rows = ax_case_dense2(b, AX_I32, s->rows, o->top);
    else
        a->chosen = ax_case_dense2(b, AX_I32, s->rows, ax_chosen_words(a->max_k));
}

/* −1, and words of which the last bit is set, are results like others. */
#define NONE .flags = AX_SHAPE_PADDING

static const struct ax_shape shapes_top_keys[] = {
    {"one", DOCUMENTS(one_key), .rows = 1, .heads = 1, .head_dim = 1, TOP(.top = 1)},
    {"short", DOCUMENTS(short_rows), .rows = 24, .heads = 2, .head_dim = 8, TOP(.top = 3)},
    {"packed", DOCUMENTS(packed), .rows = 55, .heads = 6, .head_dim = 16, .pad = 3, NONE,
     TOP(.top = 8)},
    {"one of them", DOCUMENTS(packed), .rows = 53, .heads = 3, .head_dim = 13, NONE, TOP(.top = 1)},
    {"ties", DOCUMENTS(packed), .rows = 53, .heads = 5, .head_dim = 8, NONE,
     TOP(.top = 6, .ties = true)},
    {"rows", DOCUMENTS(packed), .rows = 55, .heads = 2, .head_dim = 24, NONE,
     TOP(.top = 9, .rows = true)},
    {"decoding", DOCUMENTS(decoding), .rows = 7, .heads = 33, .head_dim = 32, NONE, TOP(.top = 64)},
    {"paged", DOCUMENTS(decoding), .rows = 6, .heads = 4, .head_dim = 20, NONE,
     TOP(.top = 12, .block_size = 4, .rows = true)},
    {"paged, ties", DOCUMENTS(decoding), .rows = 7, .heads = 4, .head_dim = 20, NONE,
     TOP(.top = 33, .block_size = 16, .rows = true, .ties = true)},
    {"all of them", DOCUMENTS(decoding), .rows = 6, .heads = 40, .head_dim = 72, NONE,
     TOP(.top = 200, .block_size = 16, .rows = true)},
    {"training", .big = true, DOCUMENTS(row_of_2048), .rows = 2048, .heads = 16, .head_dim = 128,
     TOP(.top = 512)},
    {"one token, paged", .huge = true, DOCUMENTS(cached_4096), .rows = 1, .heads = 64,
     .head_dim = 128, TOP(.top = 2048, .block_size = 16, .rows = true)},
};

AX_OP_INFO(top_keys, IN(q), IN(k), IN(w), IN(cu_q), IN(cu_k), IN(block_table), OUT(chosen),
           OUT(rows));
