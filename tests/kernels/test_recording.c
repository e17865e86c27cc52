/* What is recorded of products: their sizes are those of their FLOPs, and the dtype is their operands'. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/recording.h"
#include "tests/kernels/harness.h"

static const enum ax_op products[] = {AX_OP_gemm, AX_OP_grouped_gemm, AX_OP_packed_gemm,
                                      AX_OP_fp8_gemm};

static void check(struct ax_recording *r, const struct ax_case *c, const struct ax_tensor *rows) {
    const struct ax_op_cost cost = ax_op_cost(c->op, c->args);
    assert_int_equal(ax_record_op(r, c->op, c->args, cost), AX_OK);
    const struct ax_op_event *e = &r->events[r->n - 1].op;
    const double sum = 2 * (double)e->m * (double)e->n * (double)e->k;
    /* of groups, k is the mean number of rows, rounded down */
    const double off = c->op == AX_OP_grouped_gemm ? 2 * (double)e->m * (double)e->n : 0;
    if (e->op != c->op || sum > cost.flops || (sum < cost.flops && cost.flops >= sum + off))
        fail_msg("%s \"%s\": %lld x %lld x %lld are %g FLOPs, not %g", ax_op_name(c->op),
                 c->shape->name, (long long)e->m, (long long)e->n, (long long)e->k, sum,
                 cost.flops);
    if (rows)
        assert_true(e->m == rows->shape[0] && e->n == rows->shape[1]);
    assert_true(e->fp8 == (c->op == AX_OP_fp8_gemm));
}

static void sizes_are_those_of_the_flops(void **state) {
    (void)state;
    struct ax_recording r = {0};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        int n;
        const struct ax_shape *shapes = ax_op_shapes(products[i], &n);
        for (int k = 0; k < n; k++) {
            struct ax_case c;
            if (shapes[k].big)
                continue;
            assert_int_equal(ax_case_create(&c, products[i], &shapes[k], AX_BF16, 1), AX_OK);
            const struct ax_tensor *out = NULL;
            for (const struct ax_operand *o = ax_op_operands(c.op); o->name; o++)
                if (strcmp(o->name, "c") == 0 && c.op != AX_OP_grouped_gemm)
                    out = ax_operand_tensor(o, c.args);
            check(&r, &c, out);
            ax_case_free(&c);
        }
    }
    assert_true(r.n > 30);
    ax_recording_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_are_those_of_the_flops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
