/* Laying out the operands of a case: see cases.h for what a case promises. ax_case_build_<op> reads
 * the fields of struct ax_shape that its op has a use for. */
#ifndef AX_KERNELS_CASES_BUILDER_H
#define AX_KERNELS_CASES_BUILDER_H

#include "base/rng.h"
#include "kernels/shapes.h"

#define AX_CASE_GAP 64 /* bytes behind each operand that nobody may touch; also their alignment */

struct ax_case_builder {
    const struct ax_shape *shape;
    enum ax_dtype real, accum;
    struct ax_rng_key key; /* .tensor counts the operands placed so far */
    char *memory;          /* NULL in the counting pass: then nothing is filled */
    size_t used;
    struct ax_step_scalars *scalars;
};

bool ax_case_has(const struct ax_case_builder *b, unsigned flag);
/* "stream" of ops.h: accum where the shape has the flag, AX_SHAPE_ACCUM_IN or _OUT. */
enum ax_dtype ax_case_stream(const struct ax_case_builder *b, unsigned flag);

/* Room for an operand, not filled: its rows are `pad` elements longer than their data. */
struct ax_tensor ax_case_place(struct ax_case_builder *b, enum ax_dtype dtype, int64_t pad,
                               int ndim, const int64_t *shape);
struct ax_tensor ax_case_out1(struct ax_case_builder *b, enum ax_dtype dtype, int64_t n);
struct ax_tensor ax_case_out2(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                              int64_t cols); /* with the shape's pad */
struct ax_tensor ax_case_dense2(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                                int64_t cols); /* without */
struct ax_tensor ax_case_out3(struct ax_case_builder *b, int64_t rows, int64_t heads);

/* The same, filled with numbers uniform in [−1, 1). */
struct ax_tensor ax_case_in1(struct ax_case_builder *b, enum ax_dtype dtype, int64_t n);
struct ax_tensor ax_case_in2(struct ax_case_builder *b, enum ax_dtype dtype, int64_t rows,
                             int64_t cols);
struct ax_tensor ax_case_in3(struct ax_case_builder *b, int64_t rows, int64_t heads);
/* i32 [n], uniform in [low, high). */
struct ax_tensor ax_case_ids(struct ax_case_builder *b, int64_t n, int64_t low, int64_t high);

/* Fills the operand placed last; number i of it, uniform in [low, high). */
void ax_case_randomize(const struct ax_case_builder *b, const struct ax_tensor *t, double low,
                       double high);
double ax_case_uniform(const struct ax_case_builder *b, int64_t i, double low, double high);

#define AX_CASE_BUILD(op) void ax_case_build_##op(struct ax_case_builder *b, struct ax_##op *args);
AX_OP_LIST(AX_CASE_BUILD)
#undef AX_CASE_BUILD

#endif
