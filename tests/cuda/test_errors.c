/* What CUDA says has failed, in one line with the op, the GPU, and whether the GPU can still be used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cuda/cuda.h"
#include "parallel/fabric/comm_local.h"
#include "parallel/fabric/comm_nccl.h"
#include "tests/comm_cases.h"
#include "tests/kernels/harness.h"

static void expect_parts(enum ax_status st, int n, const char *const *parts) {
    assert_int_equal(st, AX_ERR_FAILED);
    for (int i = 0; i < n; i++)
        if (!strstr(ax_error_text(), parts[i]))
            fail_msg("no \"%s\" in: %s", parts[i], ax_error_text());
    assert_null(strchr(ax_error_text(), '\n'));
}

/* A launch that fails leaves the GPU as it was. */
static void errors_of_a_launch_name_the_op(void **state) {
    (void)state;
    static const char *const parts[] = {"fill on cuda (dst float32 [3][5])", "GPU 0",
                                        "fill_kernel failed", "can be used again"};
    struct machine m;
    float out[15];
    machine_open(&m, "cuda", 1);
    const struct ax_tensor x = ax_tensor_2d(AX_F32, ax_stack_push(m.q->scratch, "x", 256), 3, 5);
    ax_emulated_fail(cudaErrorLaunchFailure, false);
    expect_parts(ax_run_fill(m.q, &(struct ax_fill){x, 1}), 4, parts);
    assert_int_equal(ax_run_fill(m.q, &(struct ax_fill){x, 2}), AX_OK);
    assert_int_equal(ax_queue_read(m.q, x.data, out, sizeof out, NULL), AX_OK);
    assert_true(out[0] == 2 && out[14] == 2);
    machine_close(&m);
}

/* An error that ends the context comes with the next wait, and with all that follows. */
static void errors_that_stay_say_so(void **state) {
    (void)state;
    static const char *const parts[] = {"GPU 0", "cannot be used any more", "start again"};
    struct machine m;
    float out[15];
    machine_open(&m, "cuda", 1);
    const struct ax_tensor x = ax_tensor_2d(AX_F32, ax_stack_push(m.q->scratch, "x", 256), 3, 5);
    ax_emulated_fail(cudaErrorLaunchFailure, true);
    expect_parts(ax_queue_finish(m.q), 3, parts);
    expect_parts(ax_queue_read(m.q, x.data, out, sizeof out, NULL), 3, parts);
    expect_parts(ax_run_fill(m.q, &(struct ax_fill){x, 1}), 3, parts);
    ax_emulated_fail(cudaSuccess, false);
    machine_close(&m);
}

static enum ax_status lose_a_gpu(struct ax_fabric *host, void *ctx) {
    struct ax_fabric f;
    struct ax_comm c;
    struct machine m;
    float out[4];
    (void)ctx;
    machine_open(&m, "cuda", 1);
    AX_TRY(ax_nccl_fabric_open(&f, host, &m.arena.memory, 0));
    comm_cases_queue = m.q;
    AX_TRY(comm_cases_open(&f, AX_ROLE_TP, &c));
    float *x = ax_stack_push(m.q->scratch, "x", 256);
    if (f.rank == 1)
        ax_emulated_fail(cudaErrorLaunchFailure, true);
    enum ax_status st = ax_comm_sum(&c, m.q, AX_F32, x, 4);
    if (st == AX_OK)
        st = ax_queue_read(m.q, x, out, sizeof out, NULL);
    if (f.rank == 1) {
        assert_int_equal(st, AX_ERR_FAILED);
        ax_emulated_fail(cudaSuccess, false);
    }
    if (st != AX_OK)
        (f.ops->fail)(&f, st);
    ax_comm_free(&c);
    f.ops->free(&f);
    machine_close(&m);
    return st;
}

/* No rank goes on without the one whose GPU is lost. */
static void errors_of_a_gpu_end_all_ranks(void **state) {
    (void)state;
    static const char *const parts[] = {"GPU 0", "cannot be used any more"};
    expect_parts(ax_local_run(2, &(struct ax_local_options){.timeout = 1}, lose_a_gpu, NULL), 2,
                 parts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_of_a_launch_name_the_op),
        cmocka_unit_test(errors_that_stay_say_so),
        cmocka_unit_test(errors_of_a_gpu_end_all_ranks),
    };
    return cmocka_run_group_tests_name("cuda errors", tests, NULL, NULL);
}
