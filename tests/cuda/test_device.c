/* The device by CUDA's own rules, in the emulator: what is enqueued on the legacy stream, and which GPU a thread
 * uses. */
#include <pthread.h>
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

/* Memory that nobody has written is zero, which cudaMalloc does not promise. */
static void fresh_memory_is_zero(void **state) {
    (void)state;
    struct machine m;
    float out[N];
    machine_open(&m, "cuda", 1);
    void AX_DEVICE *x = ax_stack_push(m.q->scratch, "x", sizeof out);
    assert_int_equal(ax_queue_read(m.q, x, out, sizeof out, NULL), AX_OK);
    for (int i = 0; i < N; i++)
        assert_true(out[i] == 0);
    machine_close(&m);
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

/* As a loader's or a saver's thread does; the emulator ends the program if one uses a GPU that it has not chosen. */
static void *write_and_read(void *arg) {
    struct ax_queue *q = arg;
    static float in[N], out[N];
    void AX_DEVICE *x = ax_stack_push(q->scratch, "x", sizeof in);
    in[N - 1] = 3;
    for (int i = 0; i < 3; i++) { /* the third time it is a graph */
        const struct ax_tensor t = ax_tensor_1d(AX_F32, x, N);
        for (int k = 0; k < 8; k++)
            if (ax_run_scale(q, &(struct ax_scale){.y = t, .x = t, .alpha = 0.5}) != AX_OK)
                return q;
        if (ax_queue_write(q, x, in, sizeof in) != AX_OK ||
            ax_queue_read(q, x, out, sizeof out, NULL) != AX_OK || out[N - 1] != 3)
            return q;
    }
    return NULL;
}

static void other_threads_use_the_gpu(void **state) {
    (void)state;
    struct machine m;
    pthread_t thread;
    void *failed;
    machine_open(&m, "cuda", 1);
    assert_int_equal(pthread_create(&thread, NULL, write_and_read, m.q), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    machine_close(&m);
}

/* How often memory that was copied to the host tier, filled with zeros and copied back is not what it was. */
static int wrong_orders(bool waits) {
    struct ax_memory host;
    float in[N], out[N];
    int wrong = 0;
    for (int i = 0; i < N; i++)
        in[i] = (float)(i + 1);
    ax_device_cuda.allocate(&host, AX_TIER_HOST, sizeof in);
    assert_non_null(host.base);
    for (unsigned seed = 0; seed < ORDERS; seed++) {
        struct machine m;
        uint64_t away, back;
        ax_emulated_seed(seed);
        machine_open(&m, "cuda", 1);
        struct ax_tensor x = ax_stack_take(m.q->scratch, "x", ax_tensor_1d(AX_F32, NULL, N));
        assert_int_equal(ax_queue_write(m.q, x.data, in, sizeof in), AX_OK);
        assert_int_equal(
            ax_queue_copy_beside(m.q, AX_TIER_HOST, host.base, x.data, sizeof in, &away), AX_OK);
        if (waits)
            assert_int_equal(ax_queue_after(m.q, away), AX_OK);
        assert_int_equal(ax_run_fill(m.q, &(struct ax_fill){x, 0}), AX_OK);
        assert_int_equal(ax_queue_after(m.q, away), AX_OK);
        assert_int_equal(
            ax_queue_copy_beside(m.q, AX_TIER_DEVICE, x.data, host.base, sizeof in, &back), AX_OK);
        if (waits)
            assert_int_equal(ax_queue_after(m.q, back), AX_OK);
        assert_int_equal(ax_queue_read(m.q, x.data, out, sizeof out, NULL), AX_OK);
        wrong += memcmp(in, out, sizeof in) != 0;
        machine_close(&m);
    }
    ax_device_cuda.release(&host, AX_TIER_HOST);
    return wrong;
}

static void copies_are_beside_what_does_not_wait(void **state) {
    (void)state;
    assert_int_equal(wrong_orders(true), 0);
    assert_true(wrong_orders(false) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_memory_keeps_what_is_written),
        cmocka_unit_test(fresh_memory_is_zero),
        cmocka_unit_test(fresh_memory_is_zero_or_none),
        cmocka_unit_test(other_threads_use_the_gpu),
        cmocka_unit_test(copies_are_beside_what_does_not_wait),
    };
    return cmocka_run_group_tests_name("cuda device", tests, NULL, NULL);
}
