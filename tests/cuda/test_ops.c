/* Every op that the emulated backend cuda has, on every shape: against ref, in four orders of streams and
 * warps, under the sanitizers; nothing is written that is no output, and what is between operands
 * cannot be read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/cuda/cuda.h"
#include "tests/cuda/device_case.h"

static struct machine ref, cuda;

static void check_case(enum ax_op op, const struct ax_shape *shape, enum ax_dtype dtype) {
    struct ax_case got, want;
    case_open(&got, op, shape, dtype, &ref);
    case_open(&want, op, shape, dtype, &ref);
    if (ax_ops_cuda.supports(cuda.q, op, got.args)) {
        case_run_there(&got, &cuda);
        case_run(&want, &ref);
        for (const struct ax_operand *o = ax_op_operands(op); o->name != NULL; o++) {
            const struct ax_tensor *t = ax_operand_tensor(o, want.args);
            if ((o->use & AX_OPERAND_OUT) != 0 && t->data != NULL)
                compare(&got, o->name, ax_operand_tensor(o, got.args), t);
        }
        compare_scalars(&got, &want);
    }
    ax_case_free(&got);
    ax_case_free(&want);
}

static void ops_agree_with_ref(void **state) {
    (void)state;
    for_each_case(false, check_case);
}

static int open_machines(void **state) {
    (void)state;
    machine_open(&ref, "ref", 1);
    machine_open(&cuda, "cuda", 1);
    return 0;
}

static int close_machines(void **state) {
    (void)state;
    machine_close(&cuda);
    machine_close(&ref);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_agree_with_ref),
    };
    return cmocka_run_group_tests_name("cuda ops", tests, open_machines, close_machines);
}
