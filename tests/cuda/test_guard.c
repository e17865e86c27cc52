/* Operands that lie apart (apart.h): a read past the end of one ends the program, which nobody notices where they
 * lie in one block and nothing between them is guarded, as on a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/cuda/alone.h"
#include "tests/cuda/device_case.h"

/* A row of `src` that there is, or the one behind the last. */
static void name_row(struct ax_case *c, bool past) {
    const struct ax_combine_forward *a = c->args;
    *(int32_t *)a->rows.data = (int32_t)a->src.shape[0] - (past ? 0 : 1);
}

static void in_one_block(struct ax_case *c, struct machine *m) {
    const size_t mark = ax_stack_mark(&m->arena.scratch);
    assert_int_equal(ax_case_send(c, m->q), AX_OK);
    case_run(c, m);
    assert_int_equal(ax_case_fetch(c, m->q), AX_OK);
    ax_stack_release(&m->arena.scratch, mark);
}

static void combine(bool apart, bool past) {
    struct machine ref, cuda;
    struct ax_case got, want;
    int n;
    const struct ax_shape *shape = ax_op_shapes(AX_OP_combine_forward, &n);
    machine_open(&ref, "ref", 1);
    machine_open(&cuda, "cuda", 1);
    case_open(&got, AX_OP_combine_forward, shape, AX_F32, &ref);
    case_open(&want, AX_OP_combine_forward, shape, AX_F32, &ref);
    name_row(&got, past);
    name_row(&want, false);
    if (apart)
        case_run_there(&got, &cuda);
    else
        in_one_block(&got, &cuda);
    case_run(&want, &ref);
    if (!past)
        compare_outputs(&got, &want);
    ax_case_free(&want);
    ax_case_free(&got);
    machine_close(&cuda);
    machine_close(&ref);
}

struct trial {
    bool apart, past;
};

static void run_trial(void *ctx) {
    const struct trial *t = ctx;
    combine(t->apart, t->past);
}

/* True if a process of its own ends as it should; false if it read what is nobody's. */
static bool runs(bool apart, bool past) {
    static char said[ALONE_SAID];
    const int status = run_alone(run_trial, &(struct trial){apart, past}, said);
    if (status != 0 && !strstr(said, "AddressSanitizer: use-after-poison"))
        fail_msg("%s", said);
    return status == 0;
}

static void a_read_past_the_end_is_seen_apart(void **state) {
    (void)state;
    setenv("AXTRAIN_CUDA_GUARD", "1", 1);
    assert_true(runs(true, false));
    assert_true(runs(false, false));
    assert_true(runs(false, true));
    assert_false(runs(true, true));
    unsetenv("AXTRAIN_CUDA_GUARD");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_read_past_the_end_is_seen_apart)};
    return cmocka_run_group_tests_name("cuda guard", tests, NULL, NULL);
}
