/* Every op on every small shape, in one dtype each: the cpu backend computes it, on two threads, and agrees with ref.
 * test_ops, which takes longer, has all dtypes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/kernels/machines.h"
#include "tests/skip.h"

static void compare_with_reference(enum ax_op op, const struct ax_shape *shape,
                                   enum ax_dtype dtype) {
    struct ax_case got, want;
    case_open(&got, op, shape, dtype, &ref);
    /* to float64, and of panels in float32, it may leave them to ref */
    if (op != AX_OP_copy && op != AX_OP_packed_gemm && !cpu.q->ops->supports(cpu.q, op, got.args))
        fail_msg("%s \"%s\" %s: left to ref", ax_op_name(op), shape->name,
                 ax_dtype_info(dtype)->name);
    case_open(&want, op, shape, dtype, &ref);
    case_run(&got, &cpu);
    case_run(&want, &ref);
    compare_outputs(&got, &want);
    ax_case_free(&got);
    ax_case_free(&want);
}

static void cpu_agrees_with_ref(void **state) {
    (void)state;
    if (!have_cpu())
        skip_because("hardware, AVX2");
    for (int op = 0; op < AX_OP_COUNT; op++) {
        int n;
        const struct ax_shape *shapes = ax_op_shapes((enum ax_op)op, &n);
        for (int i = 0; i < n; i++)
            if (!shapes[i].big)
                compare_with_reference((enum ax_op)op, &shapes[i], i % 2 ? AX_BF16 : AX_F32);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cpu_agrees_with_ref)};
    return cmocka_run_group_tests(tests, open_machines, close_machines);
}
