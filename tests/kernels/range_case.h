/* The ranges that ops leave of their results (struct ax_range_of), against quant_range of what they wrote. Include
 * after cmocka.h and harness.h. */
#ifndef AX_TESTS_KERNELS_RANGE_CASE_H
#define AX_TESTS_KERNELS_RANGE_CASE_H

static const enum ax_op ranged_ops[] = {AX_OP_rmsnorm_forward, AX_OP_swiglu_forward,
                                        AX_OP_swiglu_backward};

/* The result of a case, and its range; t.data NULL: none is asked for. */
static inline struct ax_range_of range_in(const struct ax_case *c, struct ax_tensor *result) {
    switch (c->op) {
    case AX_OP_rmsnorm_forward:
        *result = ((const struct ax_rmsnorm_forward *)c->args)->y;
        return ((const struct ax_rmsnorm_forward *)c->args)->range;
    case AX_OP_swiglu_forward:
        *result = ((const struct ax_swiglu_forward *)c->args)->y;
        return ((const struct ax_swiglu_forward *)c->args)->range;
    default:
        *result = ((const struct ax_swiglu_backward *)c->args)->dgate_up;
        return ((const struct ax_swiglu_backward *)c->args)->range;
    }
}

/* Of a case that has run, in the host's memory; plain: a machine of `ref`. */
static inline void check_range(const struct ax_case *c, struct machine *plain) {
    struct ax_tensor result;
    const struct ax_range_of range = range_in(c, &result);
    const int64_t parts = range.t.shape[0], cols = result.shape[1] / parts;
    const struct ax_tensor rows = ax_tensor_rows(&result, 0, range.rows);
    for (int64_t i = 0; i < parts; i++) {
        float want[2];
        const struct ax_quant_range a = {.x = ax_tensor_cols(&rows, i * cols, cols),
                                         .range = ax_tensor_2d(AX_F32, want, 1, 2)};
        assert_int_equal(ax_run_quant_range(plain->q, &a), AX_OK);
        if (memcmp(want, ax_tensor_row(&range.t, i), sizeof want) != 0)
            fail_msg("%s \"%s\" %s: part %d has the range %g, %g, which is %g, %g",
                     ax_op_name(c->op), c->shape->name, ax_dtype_info(c->dtype)->name, (int)i,
                     (double)((float *)range.t.data)[2 * i],
                     (double)((float *)range.t.data)[2 * i + 1], (double)want[0], (double)want[1]);
    }
}

/* All cases with a range, run by `run` on m. */
static inline void check_ranges(struct machine *plain, struct machine *m,
                                void (*run)(struct ax_case *c, struct machine *m)) {
    int checked = 0;
    for (size_t k = 0; k < sizeof ranged_ops / sizeof *ranged_ops; k++) {
        int n;
        const struct ax_shape *shapes = ax_op_shapes(ranged_ops[k], &n);
        for (int i = 0; i < 2 * n; i++) {
            struct ax_tensor result;
            struct ax_case c;
            if (shapes[i / 2].big || shapes[i / 2].huge)
                continue;
            case_open(&c, ranged_ops[k], &shapes[i / 2], i % 2 ? AX_BF16 : AX_F32, plain);
            if (range_in(&c, &result).t.data != NULL) {
                /* a NaN of the input is one of the result */
                const struct ax_tensor *in = ax_operand_tensor(ax_op_operands(c.op), c.args);
                if (in->shape[1] > 40)
                    ax_store(in->dtype, in->data, 40, NAN);
                run(&c, m);
                check_range(&c, plain);
                checked++;
            }
            ax_case_free(&c);
        }
    }
    assert_true(checked >= 10);
}

#endif
