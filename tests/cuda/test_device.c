/* The device by CUDA's own rules, in the emulator: what is enqueued on the legacy stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/cuda.h"
#include "tests/kernels/harness.h"

#define N      1000
#define ORDERS 16

/* cudaMemset returns before it has filled the memory, and streams do not wait for it. */
static void fresh_memory_keeps_what_is_written(void **state) {
    (void)state;
    float in[N], out[N];
    for (int i = 0; i < N; i++)
        in[i] = (float)(i + 1);
    for (unsigned seed = 0; seed < ORDERS; seed++) {
        struct machine m;
        ax_emulated_seed(seed);
        machine_open(&m, "cuda", 1);
        void AX_DEVICE *x = ax_stack_push(m.q->scratch, "x", sizeof in);
        assert_int_equal(ax_queue_write(m.q, x, in, sizeof in), AX_OK);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(ax_queue_read(m.q, x, out, sizeof out, NULL), AX_OK);
            if (memcmp(in, out, sizeof in) != 0)
                fail_msg("order %u: what was written is gone at read %d", seed, i);
        }
        machine_close(&m);
    }
}

/* Memory that cannot be filled is no memory. */
static void fresh_memory_is_zero_or_none(void **state) {
    (void)state;
    struct ax_memory m;
    ax_device_cuda.allocate(&m, AX_TIER_DEVICE, 1 << 20);
    assert_non_null(m.base);
    ax_device_cuda.release(&m, AX_TIER_DEVICE);
    ax_emulated_fail(cudaErrorLaunchFailure, false);
    ax_device_cuda.allocate(&m, AX_TIER_DEVICE, 1 << 20);
    assert_null(m.base);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_memory_keeps_what_is_written),
        cmocka_unit_test(fresh_memory_is_zero_or_none),
    };
    return cmocka_run_group_tests_name("cuda device", tests, NULL, NULL);
}
