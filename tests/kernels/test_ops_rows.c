/* A result row does not depend on the other rows of the call: bit for bit on small shapes, and on
 * the big ones a few rows are computed by ref alone and compared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/kernels/machines.h"
#include "tests/skip.h"

static bool is_by_row(const struct ax_operand *o) {
    return (o->flags & AX_OPERAND_ROWS) != 0;
}

/* True of a product of codes where each row of a and b has a scale. */
static bool has_scales(const struct ax_case *c) {
    return c->op == AX_OP_fp8_gemm && ax_fp8_gemm_by_rows(c->args);
}

/* Are the results of the op rows? */
static bool has_rows(enum ax_op op) {
    bool any = false;
    for (const struct ax_operand *o = ax_op_operands(op); o->name != NULL; o++)
        any = any || is_by_row(o);
    return any;
}

/* Cuts the arguments down to rows [first, first + n). With trans_a a row of c is a column of a. */
static void cut_rows(struct ax_case *c, int64_t first, int64_t n) {
    for (const struct ax_operand *o = ax_op_operands(c->op); o->name != NULL; o++) {
        struct ax_tensor *t = ax_operand_tensor(o, c->args);
        bool column = c->op == AX_OP_gemm && strcmp(o->name, "a") == 0 &&
                      ((struct ax_gemm *)c->args)->trans_a;
        if (t->data != NULL && (is_by_row(o) || (has_scales(c) && strcmp(o->name, "a_scale") == 0)))
            *t = column ? ax_tensor_cols(t, first, n) : ax_tensor_rows(t, first, n);
    }
}

/* Where the elements' drawn numbers are counted from. */
static struct ax_draw *draw_of(struct ax_case *c) {
    switch (c->op) {
    case AX_OP_adamw:
        return &((struct ax_adamw *)c->args)->draw;
    case AX_OP_sgd:
        return &((struct ax_sgd *)c->args)->draw;
    case AX_OP_lion:
        return &((struct ax_lion *)c->args)->draw;
    default:
        return NULL;
    }
}

/* Padding and drawn numbers are counted from the first row of the call. */
static void move_first(struct ax_case *c, int64_t first) {
    struct ax_draw *draw = draw_of(c);
    if (c->op == AX_OP_router_forward)
        ((struct ax_router_forward *)c->args)->first += first;
    if (draw != NULL) {
        draw->first += first;
        if (draw->row > 0) {
            draw->first += (first + draw->column) / draw->row * draw->gap;
            draw->column = (first + draw->column) % draw->row;
        }
    }
}

static int64_t rows_of(const struct ax_case *c) {
    for (const struct ax_operand *o = ax_op_operands(c->op); o->name != NULL; o++)
        if ((o->use & AX_OPERAND_OUT) != 0 && is_by_row(o))
            return ax_operand_tensor(o, c->args)->shape[0];
    return 0;
}

/* Runs rows [first, first + n) of `part`, a case like `whole` before it ran, on m and compares them
 * with those of `whole`. Parts of one case must not overlap. */
static void check_part(const struct ax_case *whole, const struct ax_case *part, struct machine *m,
                       int64_t first, int64_t n, bool bitwise) {
    struct ax_case rows = *part;
    size_t args_size = ax_op_args_size(whole->op);
    assert_int_equal(ax_alloc(&rows.args, 1, args_size), AX_OK);
    memcpy(rows.args, part->args, args_size);
    cut_rows(&rows, first, n);
    move_first(&rows, first);
    case_run(&rows, m);
    for (const struct ax_operand *o = ax_op_operands(whole->op); o->name != NULL; o++) {
        const struct ax_tensor *all = ax_operand_tensor(o, whole->args);
        if ((o->use & AX_OPERAND_OUT) == 0 || all->data == NULL || !is_by_row(o))
            continue;
        const struct ax_tensor together = ax_tensor_rows(all, first, n);
        const struct ax_tensor *alone = ax_operand_tensor(o, rows.args);
        if (!bitwise) {
            compare(whole, o->name, &together, alone);
        } else if (!same_bits(&together, alone)) {
            fail_msg("%s \"%s\" %s: rows %lld + %lld of %s differ when they are alone",
                     ax_op_name(whole->op), whole->shape->name, ax_dtype_info(whole->dtype)->name,
                     (long long)first, (long long)n, o->name);
        }
    }
    ax_free(rows.args);
}

static void check_small(struct machine *m, enum ax_op op, const struct ax_shape *shape,
                        enum ax_dtype dtype) {
    bool sums_over_rows = op == AX_OP_gemm && (shape->flags & AX_SHAPE_TRANS_A) != 0;
    if (!has_rows(op) || sums_over_rows)
        return;
    struct ax_case whole, part;
    case_open(&whole, op, shape, dtype, &ref);
    case_open(&part, op, shape, dtype, &ref);
    case_run(&whole, m);
    const int64_t rows = rows_of(&whole);
    const int64_t step = has_scales(&whole) ? 4 : 1; /* scales begin at multiples of 16 bytes */
    const int64_t first = rows < step ? rows : step;
    const int64_t middle = (rows / 3 / step + 1) * step;
    check_part(&whole, &part, m, 0, first, true);
    if (rows > step) {
        check_part(&whole, &part, m, first, middle - first, true);
        check_part(&whole, &part, m, middle, rows - middle, true);
    }
    ax_case_free(&whole);
    ax_case_free(&part);
}

static void check_small_everywhere(enum ax_op op, const struct ax_shape *shape,
                                   enum ax_dtype dtype) {
    check_small(&ref, op, shape, dtype);
    if (have_cpu())
        check_small(&cpu, op, shape, dtype);
}

static void rows_are_independent(void **state) {
    (void)state;
    for_each_case(false, check_small_everywhere);
}

static void check_big(enum ax_op op, const struct ax_shape *shape, enum ax_dtype dtype) {
    if (!has_rows(op) || dtype == AX_F64) /* F64 is for the reference */
        return;
    struct ax_case whole, part;
    case_open(&whole, op, shape, dtype, &ref);
    case_open(&part, op, shape, dtype, &ref);
    case_run(&whole, &cpu);
    int64_t rows = rows_of(&whole);
    check_part(&whole, &part, &ref, 0, 2, false);
    check_part(&whole, &part, &ref, rows - 1, 1, false);
    ax_case_free(&whole);
    ax_case_free(&part);
}

static void big_shapes_agree_with_ref_in_some_rows(void **state) {
    (void)state;
    if (!have_cpu())
        skip_because("hardware, AVX2");
    for_each_case(true, check_big);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_independent),
        unit_test_if(!skips_big(), big_shapes_agree_with_ref_in_some_rows),
    };
    return cmocka_run_group_tests(tests, open_machines, close_machines);
}
