/* Training the indexer of sparse attention. */
#include "kernels/ops/attention.h"
#include "kernels/ops/family.h"

struct index_options {
    int64_t first, first_key; /* of all queries and keys */
    bool chosen;
};
#define INDEX(...) OPTIONS(index_options, __VA_ARGS__)

static bool is_column(tensor t, enum ax_dtype dtype, int64_t rows) {
    return is_2d(t, dtype, rows, 1);
}

static bool is_table(tensor t) {
    return given(t) && t->ndim == 2 && sums(t) && rows_apart(t);
}

/* ---- index_target ---- */

static const char *check_index_target(const struct ax_index_target *a) {
    NEED(is_table(&a->s) && a->p.dtype == a->s.dtype && same_shape(&a->p, &a->s));
    NEED(is_column(&a->lse, a->s.dtype, a->s.shape[0]));
    return NULL;
}

PER_ELEMENT(index_target, 4, s) /* −, exp, ·, + */

static struct ax_tensor column(struct ax_case_builder *b, int64_t rows, int64_t pad) {
    return ax_case_place(b, b->accum, pad, 2, (const int64_t[]){rows, 1});
}

static void build_index_target(struct ax_case_builder *b, struct ax_index_target *a) {
    const struct ax_shape *s = b->shape;
    a->s = ax_case_in2(b, b->accum, s->rows, s->cols);
    a->lse = column(b, s->rows, s->pad);
    ax_case_randomize(b, &a->lse, 1, 3);
    a->accumulate = ax_case_has(b, ACC);
    a->p = a->accumulate ? ax_case_in2(b, b->accum, s->rows, s->cols)
                         : ax_case_out2(b, b->accum, s->rows, s->cols);
    a->share = 0.25;
}

#define TABLE_SHAPES                                                                               \
    {"one", .rows = 1, .cols = 1}, {"odd", .rows = 3, .cols = 37},                                 \
        {"added", .rows = 5, .cols = 85, .flags = ACC},                                            \
        {"strided", .rows = 7, .cols = 24, .pad = 8, .flags = ACC}, {                              \
        "training", .big = true, .rows = 512, .cols = 2048, .flags = ACC                           \
    }

static const struct ax_shape shapes_index_target[] = {TABLE_SHAPES};

AX_OP_INFO(index_target, IN_ROWS(s), IN_ROWS(lse), INOUT_ROWS(p));

/* ---- index_scores ---- */

static const char *check_index_scores(const struct ax_index_scores *a) {
    NEED(is_table(&a->z) && a->x.dtype == a->z.dtype && same_shape(&a->x, &a->z));
    NEED(is_column(&a->w, a->z.dtype, a->z.shape[0]));
    return NULL;
}

PER_ELEMENT(index_scores, 3, z) /* max, ·, + */

static void build_index_scores(struct ax_case_builder *b, struct ax_index_scores *a) {
    const struct ax_shape *s = b->shape;
    a->z = ax_case_in2(b, b->accum, s->rows, s->cols);
    a->w = column(b, s->rows, s->pad);
    ax_case_randomize(b, &a->w, -1, 1);
    a->accumulate = ax_case_has(b, ACC);
    a->x = a->accumulate ? ax_case_in2(b, b->accum, s->rows, s->cols)
                         : ax_case_out2(b, b->accum, s->rows, s->cols);
}

static const struct ax_shape shapes_index_scores[] = {TABLE_SHAPES};

AX_OP_INFO(index_scores, IN_ROWS(z), IN_ROWS(w), INOUT_ROWS(x));

/* ---- index_loss ---- */

static const char *check_index_loss(const struct ax_index_loss *a) {
    const int64_t documents = a->cu_q.shape[0] - 1;
    NEED(is_table(&a->p) && a->x.dtype == a->p.dtype && same_shape(&a->x, &a->p));
    NEED(is_1d(&a->kl, a->p.dtype, a->p.shape[0]));
    NEED(documents >= 0 && is_1d(&a->cu_q, AX_I32, documents + 1));
    NEED(is_1d(&a->cu_k, AX_I32, documents + 1));
    NEED(a->first >= 0 && a->first_key >= 0 && a->max_k >= 0);
    NEED(!given(&a->chosen) || ax_chosen_fits(&a->chosen, a->p.shape[0], a->max_k));
    NEED(a->scalars != NULL);
    return NULL;
}

PER_ELEMENT(index_loss, 9, p) /* max, −, exp, +; log, −, ·, +; factor */

static void build_index_loss(struct ax_case_builder *b, struct ax_index_loss *a) {
    const struct index_options *o = ax_case_options(b);
    const struct ax_shape *s = b->shape;
    for (int i = 0; i < s->n_documents; i++)
        a->max_k = s->documents[i].nk > a->max_k ? s->documents[i].nk : a->max_k;
    a->p = ax_case_in2(b, b->accum, s->rows, s->cols);
    ax_case_randomize(b, &a->p, 0, 0.1);
    a->x = ax_case_in2(b, b->accum, s->rows, s->cols);
    a->kl = ax_case_out1(b, b->accum, s->rows);
    a->cu_q = ax_case_cumulative(b, false);
    a->cu_k = ax_case_cumulative(b, true);
    if (o->chosen) { /* of 32 keys the even ones but the last */
        a->chosen = ax_case_dense2(b, AX_I32, s->rows, ax_chosen_words(a->max_k));
        for (int64_t i = 0; b->memory && i < ax_tensor_numel(&a->chosen); i++)
            ((int32_t *)a->chosen.data)[i] = 0x15555555;
    }
    a->first = o->first;
    a->first_key = o->first_key;
    a->coef = 0.5;
    a->scalars = b->scalars;
}

static const struct ax_shape_document one_key[] = {{1, 1}};
static const struct ax_shape_document packed[] = {{5, 5}, {0, 0}, {1, 1}, {40, 40}, {7, 7}, {0, 0}};
static const struct ax_shape_document later[] = {{3, 9}, {0, 6}, {5, 130}, {1, 1}};
static const struct ax_shape_document row_of_2048[] = {{2048, 2048}};

static const struct ax_shape shapes_index_loss[] = {
    {"one", DOCUMENTS(one_key), .rows = 1, .cols = 1},
    {"packed", DOCUMENTS(packed), .rows = 55, .cols = 53, .pad = 3},
    {"chosen", DOCUMENTS(packed), .rows = 53, .cols = 60, INDEX(.chosen = true)},
    {"part", DOCUMENTS(packed), .rows = 19, .cols = 41, INDEX(.first = 28, .first_key = 6)},
    {"later", DOCUMENTS(later), .rows = 6, .cols = 137, .pad = 1,
     INDEX(.first = 3, .first_key = 9, .chosen = true)},
    {"training", .big = true, DOCUMENTS(row_of_2048), .rows = 512, .cols = 2048,
     INDEX(.first = 1536, .chosen = true)},
};

AX_OP_INFO(index_loss, INOUT(p), IN(x), OUT(kl), IN(cu_q), IN(cu_k), IN(chosen));

/* ---- index_backward ---- */

static const char *check_index_backward(const struct ax_index_backward *a) {
    NEED(is_table(&a->dx) && a->z.dtype == a->dx.dtype && same_shape(&a->z, &a->dx));
    NEED(real(&a->dz) && accum(&a->dz) == a->dx.dtype && same_shape(&a->dz, &a->dx));
    NEED(is_column(&a->w, a->dx.dtype, a->dx.shape[0]));
    NEED(is_column(&a->dw, a->dx.dtype, a->dx.shape[0]));
    return NULL;
}

PER_ELEMENT(index_backward, 4, dx) /* ·, max, ·, + */

static void build_index_backward(struct ax_case_builder *b, struct ax_index_backward *a) {
    const struct ax_shape *s = b->shape;
    a->dx = ax_case_in2(b, b->accum, s->rows, s->cols);
    a->z = ax_case_in2(b, b->accum, s->rows, s->cols);
    a->w = column(b, s->rows, s->pad);
    ax_case_randomize(b, &a->w, -1, 1);
    a->dz = ax_case_out2(b, b->real, s->rows, s->cols);
    a->dw = column(b, s->rows, s->pad);
}

static const struct ax_shape shapes_index_backward[] = {
    {"one", .rows = 1, .cols = 1},
    {"odd", .rows = 3, .cols = 37},
    {"strided", .rows = 7, .cols = 85, .pad = 3},
    {"training", .big = true, .rows = 512, .cols = 2048},
};

AX_OP_INFO(index_backward, IN_ROWS(dx), IN_ROWS(z), IN_ROWS(w), OUT_ROWS(dz), OUT_ROWS(dw));
