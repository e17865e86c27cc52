/* What the files of this folder share. Each file is one family of ops and contains everything that
 * holds for them on every backend. For each op, in this order:
 *
 *   check_OP     the contract of kernels/ops.h as conditions that a backend may rely on
 *   cost_OP      FLOPs (2 per multiply-add, 1 for any other arithmetic or transcendental) and bytes
 *                (each operand read or written once); usually PER_ELEMENT(OP, FLOPs, operand)
 *   build_OP     its operands for a shape; kernels/cases.h says what a case guarantees
 *   shapes_OP    the shapes on which tests and `axtrain bench ops` run it
 *   AX_OP_INFO(OP, operands …);   the table row through which kernels/operands.c finds all of this
 *
 * Conditions and costs depend on shapes and arguments alone, never on data, so a plan counts the
 * same as a run. */
#ifndef AX_KERNELS_OPS_FAMILY_H
#define AX_KERNELS_OPS_FAMILY_H

#include "base/rng.h"
#include "kernels/operands.h"
#include "kernels/shapes.h"

struct ax_case_builder;

struct ax_op_info {
    const char *name;
    size_t args_size;
    const struct ax_operand *(*operands)(void); /* ends with a row whose name is NULL */
    const char *(*check)(const void *args);     /* text of the first broken condition, or NULL */
    struct ax_op_cost (*cost)(const void *args);
    void (*build)(struct ax_case_builder *b, void *args);
    const struct ax_shape *shapes;
    int n_shapes;
    const char *file; /* its file in this folder */
};

#define AX_OP_INFO_NAME(op)                                                                        \
    extern const struct ax_op_info ax_op_info_##op;                                                \
    const struct ax_operand *ax_operands_##op(void);
AX_OP_LIST(AX_OP_INFO_NAME)
#undef AX_OP_INFO_NAME
const struct ax_op_info *ax_op_info(enum ax_op op);

/* Operands are IN(field), OUT(field) and INOUT(field) of the argument struct, with _ROWS, _SOME and
 * _PANELS for the flags of kernels/operands.h. */
#define AX_OP_INFO(op, ...)                                                                        \
    const struct ax_operand *ax_operands_##op(void) {                                              \
        typedef struct ax_##op args;                                                               \
        static const struct ax_operand list[] = {__VA_ARGS__,                                      \
                                                 {NULL, sizeof(args), AX_OPERAND_IN, 0}};          \
        _Static_assert(sizeof(list) / sizeof(list[0]) <= AX_MAX_OPERANDS,                          \
                       "AX_MAX_OPERANDS holds the operands of " #op " and the end row");           \
        return list;                                                                               \
    }                                                                                              \
    static const char *any_check_##op(const void *args) {                                          \
        return check_##op(args);                                                                   \
    }                                                                                              \
    static struct ax_op_cost any_cost_##op(const void *args) {                                     \
        return cost_##op(args);                                                                    \
    }                                                                                              \
    static void any_build_##op(struct ax_case_builder *b, void *args) {                            \
        build_##op(b, args);                                                                       \
    }                                                                                              \
    const struct ax_op_info ax_op_info_##op = {                                                    \
        #op,                                                                                       \
        sizeof(struct ax_##op),                                                                    \
        ax_operands_##op,                                                                          \
        any_check_##op,                                                                            \
        any_cost_##op,                                                                             \
        any_build_##op,                                                                            \
        shapes_##op,                                                                               \
        (int)(sizeof(shapes_##op) / sizeof(shapes_##op[0])),                                       \
        __FILE__}
#define OPERAND(field, use, flags)                                                                 \
    { #field, offsetof(args, field), AX_OPERAND_##use, flags }
#define IN(field)         OPERAND(field, IN, 0)
#define IN_ROWS(field)    OPERAND(field, IN, AX_OPERAND_ROWS)
#define IN_PANELS(field)  OPERAND(field, IN, AX_OPERAND_PANELS)
#define OUT(field)        OPERAND(field, OUT, 0)
#define OUT_ROWS(field)   OPERAND(field, OUT, AX_OPERAND_ROWS)
#define OUT_SOME(field)   OPERAND(field, OUT, AX_OPERAND_SOME)
#define INOUT(field)      OPERAND(field, INOUT, 0)
#define INOUT_ROWS(field) OPERAND(field, INOUT, AX_OPERAND_ROWS)
#define NO_OPERANDS                                                                                \
    { NULL, 0, AX_OPERAND_IN, 0 }

/* Conditions, in the terms of the contract (kernels/ops.h). */
#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return #condition;                                                                     \
        }                                                                                          \
    } while (0)

typedef const struct ax_tensor *tensor;

static inline bool given(tensor t) {
    return t->data != NULL;
}

static inline bool real(tensor t) {
    return t->dtype == AX_F64 || t->dtype == AX_F32 || t->dtype == AX_BF16;
}

static inline bool rows_apart(tensor t) {
    return t->shape[0] <= 1 || t->row_stride >= ax_tensor_row_len(t);
}

static inline bool is_1d(tensor t, enum ax_dtype dtype, int64_t n) {
    return given(t) && t->ndim == 1 && t->dtype == dtype && t->shape[0] == n &&
           ax_tensor_is_dense(t);
}

static inline bool is_2d(tensor t, enum ax_dtype dtype, int64_t rows, int64_t cols) {
    return given(t) && t->ndim == 2 && t->dtype == dtype && t->shape[0] == rows &&
           t->shape[1] == cols && rows_apart(t);
}

static inline bool is_3d(tensor t, enum ax_dtype dtype, int64_t a, int64_t b, int64_t c) {
    return given(t) && t->ndim == 3 && t->dtype == dtype && t->shape[0] == a && t->shape[1] == b &&
           t->shape[2] == c && rows_apart(t);
}

static inline bool same_shape(tensor a, tensor b) {
    bool same = given(a) && given(b) && a->ndim == b->ndim && rows_apart(a) && rows_apart(b);
    for (int i = 0; i < a->ndim && same; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

/* True if `out` is apart from `in`, or over it (ax_tensor_over). */
static inline bool apart_or_over(tensor out, tensor in) {
    const int64_t to = (int64_t)ax_dtype_size(out->dtype), from = (int64_t)ax_dtype_size(in->dtype);
    return out->data != in->data ||
           (to <= from && (in->shape[0] <= 1 || out->row_stride * to == in->row_stride * from));
}

static inline enum ax_dtype accum(tensor t) {
    return ax_dtype_accum(t->dtype);
}

/* True if the dtypes are equal, or one is the other's accumulation dtype. */
static inline bool real_or_accum(tensor t, tensor other) {
    return real(t) && real(other) &&
           (t->dtype == other->dtype || t->dtype == accum(other) || other->dtype == accum(t));
}

/* "residual" of ops.h, for operands of dtype `of`. */
static inline bool is_stream(tensor t, enum ax_dtype of) {
    return t->dtype == of || t->dtype == ax_dtype_accum(of);
}

/* i32 [rows] or [rows][k]. */
static inline bool is_index(tensor t, int64_t rows) {
    return given(t) && (t->ndim == 1 || t->ndim == 2) && t->dtype == AX_I32 &&
           t->shape[0] == rows && ax_tensor_is_dense(t);
}

/* Is it absent, or of a tensor with a scale for each of `parts`, or one for all? */
static inline bool fits_range(const struct ax_range_of *range, int64_t parts) {
    return !given(&range->t) ||
           (is_2d(&range->t, AX_F32, range->t.shape[0], 2) && ax_tensor_is_dense(&range->t) &&
            (range->t.shape[0] == 1 || range->t.shape[0] == parts) && range->rows >= 0);
}

static inline bool sums(tensor t) {
    return t->dtype == AX_F32 || t->dtype == AX_F64;
}

static inline bool is_dense_2d(tensor t, enum ax_dtype dtype, int64_t rows, int64_t cols) {
    return is_2d(t, dtype, rows, cols) && ax_tensor_is_dense(t);
}

/* Costs. */
static inline double elements(tensor t) {
    return given(t) ? (double)ax_tensor_numel(t) : 0;
}

static inline double bytes_of(tensor t) {
    return given(t) ? (double)ax_tensor_bytes(t) : 0;
}

/* Bytes of every operand once, INOUT twice. */
double ax_op_operand_bytes(const struct ax_operand *list, const void *args);
/* flops_per FLOPs for each element of t; bytes of all operands. */
struct ax_op_cost ax_op_per_element(const struct ax_operand *list, const void *args,
                                    double flops_per, tensor t);

#define PER_ELEMENT(op, flops_per, field)                                                          \
    static struct ax_op_cost cost_##op(const struct ax_##op *a) {                                  \
        return ax_op_per_element(ax_operands_##op(), a, flops_per, &a->field);                     \
    }

/* Cases: laying out the operands for a shape, of which an op uses only some fields. */
#define AX_CASE_GAP 64 /* guard bytes after each operand; also their alignment */

struct ax_case_builder {
    const struct ax_shape *shape;
    enum ax_dtype real, accum;
    struct ax_rng_key key; /* .tensor counts the operands placed so far */
    char *memory;          /* NULL in the counting pass: then nothing is filled */
    size_t used;
    struct ax_step_scalars *scalars;
    struct ax_step_measures *measures;
};

bool ax_case_has(const struct ax_case_builder *b, unsigned flag);
/* The shape's family options; all zero if it has none. */
const void *ax_case_options(const struct ax_case_builder *b);
/* "residual" of ops.h: accumulation if the shape has the flag, AX_SHAPE_ACCUM_IN or _OUT. */
enum ax_dtype ax_case_stream(const struct ax_case_builder *b, unsigned flag);

/* Space for an operand, not filled; its rows are `pad` elements longer than their data. */
struct ax_tensor ax_case_place(struct ax_case_builder *b, enum ax_dtype dtype, int64_t pad,
                               int ndim, const int64_t *shape);
struct ax_tensor ax_case_out1(struct ax_case_builder *b, enum ax_dtype dtype, int64_t n);
struct ax_tensor ax_case_out2(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                              int64_t cols); /* with padded rows, as the shape says */
struct ax_tensor ax_case_dense2(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                                int64_t cols); /* without padding */
struct ax_tensor ax_case_out3(struct ax_case_builder *b, int64_t rows, int64_t heads);

/* The same, filled with numbers uniform in [−1, 1). */
struct ax_tensor ax_case_in1(struct ax_case_builder *b, enum ax_dtype dtype, int64_t n);
struct ax_tensor ax_case_in2(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                             int64_t cols);
struct ax_tensor ax_case_dense_in2(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                                   int64_t cols);
struct ax_tensor ax_case_in3(struct ax_case_builder *b, int64_t rows, int64_t heads);
/* Room for the range of a result of n parts: of some of the shape's rows. */
struct ax_range_of ax_case_range(struct ax_case_builder *b, int64_t n);
/* i32 [n], uniform in [low, high). */
struct ax_tensor ax_case_ids(struct ax_case_builder *b, int64_t n, int64_t low, int64_t high);

/* i32 [n_documents + 1]: running sums of the documents' nq, or nk. */
struct ax_tensor ax_case_cumulative(struct ax_case_builder *b, bool keys);

/* Fills the operand placed last; _uniform gives number i of it, uniform in [low, high). */
void ax_case_randomize(const struct ax_case_builder *b, const struct ax_tensor *t, double low,
                       double high);
double ax_case_uniform(const struct ax_case_builder *b, int64_t i, double low, double high);

/* Short names for the lists of shapes. */
#define TA    AX_SHAPE_TRANS_A
#define TB    AX_SHAPE_TRANS_B
#define ACC   AX_SHAPE_ACCUMULATE
#define OUT32 AX_SHAPE_ACCUM_OUT
#define IN32  AX_SHAPE_ACCUM_IN

/* Each family has its own options struct, beyond kernels/shapes.h. */
#define OPTIONS(type, ...)                                                                         \
    .options = &(const struct type) {                                                              \
        __VA_ARGS__                                                                                \
    }

#define DOCUMENTS(list) .documents = (list), .n_documents = (int)(sizeof(list) / sizeof((list)[0]))

#endif
