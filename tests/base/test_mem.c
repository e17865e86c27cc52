/* Allocation: alignment, zeroes, overflow, counting, a failure at every call. */
#include "base/mem.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/mem_guard.h"

static void blocks_are_aligned_and_zero(void **state) {
    (void)state;
    uint64_t live = ax_mem_live_blocks();
    uint64_t calls = ax_mem_calls();
    for (size_t n = 0; n < 300; n += 7) {
        char *p;
        assert_int_equal(ax_alloc(&p, n, 3), AX_OK);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < 3 * n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xAA, 3 * n);
        ax_free(p);
    }
    assert_int_equal(ax_mem_live_blocks(), live);
    assert_int_equal(ax_mem_calls() - calls, 43);
    ax_free(NULL);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void regrow_keeps_and_zeroes(void **state) {
    (void)state;
    int32_t *p = NULL;
    assert_int_equal(ax_regrow(&p, 0, 3, sizeof *p), AX_OK);
    for (int32_t i = 0; i < 3; i++)
        p[i] = i + 1;
    assert_int_equal(ax_regrow(&p, 3, 1000, sizeof *p), AX_OK);
    for (int32_t i = 0; i < 1000; i++)
        assert_int_equal(p[i], i < 3 ? i + 1 : 0);
    ax_free(p);
}

static void lists_double(void **state) {
    int32_t *list = NULL;
    size_t n = 0, cap = 0;
    (void)state;
    const uint64_t calls = ax_mem_calls();
    for (; n < 1000; n++) {
        assert_int_equal(ax_grow(&list, n, &cap, sizeof *list), AX_OK);
        assert_true(n < cap && cap <= 16 + 2 * n);
        for (size_t i = n; i < cap; i++)
            assert_int_equal(list[i], 0);
        list[n] = (int32_t)n + 1;
    }
    assert_int_equal(cap, 1024);
    assert_int_equal(ax_mem_calls() - calls, 7); /* 16, 32, … 1024 */
    for (size_t i = 0; i < n; i++)
        assert_int_equal(list[i], i + 1);
    assert_int_equal(ax_grow(&list, cap, &cap, SIZE_MAX / 4), AX_ERR_NOMEM);
    assert_int_equal(cap, 1024);
    ax_free(list);
}

static void impossible_sizes_fail_and_leave_the_pointer(void **state) {
    (void)state;
    char mark;
    char *p = &mark;
    assert_int_equal(ax_alloc(&p, SIZE_MAX / 2, 3), AX_ERR_NOMEM);
    assert_ptr_equal(p, &mark);
    assert_int_equal(ax_alloc(&p, SIZE_MAX - 1, 1), AX_ERR_NOMEM);
    assert_ptr_equal(p, &mark);
    assert_int_equal(ax_alloc(&p, (size_t)1 << 60, 4), AX_ERR_NOMEM);
    assert_ptr_equal(p, &mark);
    assert_string_equal(ax_error_text(),
                        "out of memory: could not allocate 4.00 EiB (4611686018427387904 bytes)");
    size_t product;
    assert_true(ax_mul_overflow(SIZE_MAX, 2, &product));
    assert_false(ax_mul_overflow(6, 7, &product));
    assert_int_equal(product, 42);
}

static void products_see_overflow_through_zero(void **state) {
    (void)state;
    int64_t out = -1;
    assert_int_equal(ax_product((int64_t[]){3, 4, 5}, 3, &out), AX_OK);
    assert_int_equal(out, 60);
    assert_int_equal(ax_product(NULL, 0, &out), AX_OK);
    assert_int_equal(out, 1);
    assert_int_equal(ax_product((int64_t[]){3, 0}, 2, &out), AX_OK);
    assert_int_equal(out, 0);
    assert_int_equal(ax_product((int64_t[]){INT64_MAX, 1}, 2, &out), AX_OK);
    assert_true(out == INT64_MAX);
    const int64_t big = (int64_t)1 << 32;
    assert_int_equal(ax_product((int64_t[]){big, big}, 2, &out), AX_ERR_DATA);
    assert_int_equal(ax_product((int64_t[]){0, big, big}, 3, &out), AX_ERR_DATA);
    assert_int_equal(ax_product((int64_t[]){big, 0, big}, 3, &out), AX_ERR_DATA);
    assert_int_equal(ax_product((int64_t[]){4, -1}, 2, &out), AX_ERR_DATA);
}

static void strings_are_copied(void **state) {
    (void)state;
    char *a;
    char *b;
    char *c;
    assert_int_equal(ax_strdup(&a, "weights"), AX_OK);
    assert_int_equal(ax_strndup(&b, "weights", 3), AX_OK);
    assert_int_equal(ax_sprintf(&c, "%s-%05d-of-%05d", "model", 1, 12), AX_OK);
    assert_string_equal(a, "weights");
    assert_string_equal(b, "wei");
    assert_string_equal(c, "model-00001-of-00012");
    ax_free(a);
    ax_free(b);
    ax_free(c);
}

static void buffers_double(void **state) {
    (void)state;
    struct ax_buf b = {0};
    uint64_t calls = ax_mem_calls();
    for (int i = 0; i < 1 << 20; i++) {
        char c = (char)('a' + i % 26);
        assert_int_equal(ax_buf_append(&b, &c, 1), AX_OK);
    }
    assert_true(ax_mem_calls() - calls <= 16);
    assert_int_equal(b.len, 1 << 20);
    assert_int_equal(strlen(b.data), b.len);
    assert_int_equal(b.data[27], 'b');
    ax_buf_free(&b);
    assert_null(b.data);
    assert_int_equal(ax_buf_puts(&b, ""), AX_OK);
    assert_string_equal(b.data, ""); /* a string even when nothing was put in */
    assert_int_equal(ax_buf_printf(&b, "%d:%0100d", 4, 2), AX_OK);
    assert_int_equal(ax_buf_append(&b, "x\0y", 3), AX_OK);
    assert_int_equal(b.len, 105);
    assert_memory_equal(b.data + 100, "02x\0y", 6);
    assert_int_equal(ax_buf_append(&b, "", SIZE_MAX - 1), AX_ERR_NOMEM);
    assert_int_equal(b.len, 105);
    ax_buf_free(&b);
}

static enum ax_status use_everything(void) {
    enum ax_status st;
    char *a = NULL;
    char *text = NULL;
    struct ax_buf b = {0};
    AX_TRY_GOTO(ax_alloc(&a, 10, 1), st, done);
    AX_TRY_GOTO(ax_regrow(&a, 10, 20, 1), st, done);
    AX_TRY_GOTO(ax_sprintf(&text, "%d", 5), st, done);
    AX_TRY_GOTO(ax_buf_printf(&b, "%0200d", 1), st, done);
    AX_TRY_GOTO(ax_buf_printf(&b, "%0200d", 2), st, done);
done:
    ax_free(a);
    ax_free(text);
    ax_buf_free(&b);
    return st;
}

static void every_call_can_fail(void **state) {
    (void)state;
    uint64_t live = ax_mem_live_blocks();
    int failures = 0;
    for (int k = 1;; k++) {
        char spec[32];
        snprintf(spec, sizeof spec, "malloc:%d:enomem", k);
        assert_int_equal(ax_fault_configure(spec), AX_OK);
        enum ax_status st = use_everything();
        assert_int_equal(ax_mem_live_blocks(), live);
        if (!ax_fault_fired()) {
            assert_int_equal(st, AX_OK);
            break;
        }
        assert_int_equal(st, AX_ERR_NOMEM);
        failures++;
    }
    assert_int_equal(ax_fault_configure("malloc:2:enomem"), AX_OK);
    void *p = ax_malloc_hook(10);
    assert_non_null(p);
    assert_null(ax_malloc_hook(10));
    ax_free_hook(p);
    ax_free_hook(NULL);
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    assert_int_equal(ax_mem_live_blocks(), live);
    assert_int_equal(failures, 5);
}

/* The signal that ends a process which writes the byte `at` of a guarded block of `bytes` and frees it; 0
 * if none does. */
static int signal_of_write(size_t alignment, size_t bytes, ptrdiff_t at) {
    const pid_t child = fork();
    if (child == 0) {
        fclose(stderr);
        char *p = ax_guarded_alloc(alignment, bytes);
        memset(p, 0, bytes);
        p[at] = 0;
        ax_guarded_free(p);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void guards_notice_writes_outside(void **state) {
    (void)state;
    static const size_t alignments[] = {64, 4096};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        for (size_t bytes = 1; bytes < 200; bytes += 33) {
            char *p = ax_guarded_alloc(alignments[i], bytes);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % alignments[i], 0);
            assert_true(p[-1] != 0 && p[bytes] != 0);
            ax_guarded_free(p);
            assert_int_equal(signal_of_write(alignments[i], bytes, 0), 0);
            assert_int_equal(signal_of_write(alignments[i], bytes, (ptrdiff_t)bytes - 1), 0);
            static const ptrdiff_t outside[] = {0, 1, 47};
            for (size_t k = 0; k < sizeof outside / sizeof *outside; k++) {
                assert_int_equal(
                    signal_of_write(alignments[i], bytes, (ptrdiff_t)bytes + outside[k]), SIGABRT);
                assert_int_equal(signal_of_write(alignments[i], bytes, -1 - outside[k]), SIGABRT);
            }
        }
    }
}

static void the_kernel_tells_usage(void **state) {
    (void)state;
    enum { BYTES = 32 << 20 };
    uint64_t before = ax_mem_rss();
    uint64_t faults = ax_mem_minor_faults();
    char *p;
    assert_int_equal(ax_alloc(&p, BYTES, 1), AX_OK);
    memset(p, 1, BYTES);
    assert_true(ax_mem_rss() >= before + BYTES / 2);
    assert_true(ax_mem_minor_faults() > faults);
    ax_free(p);
    assert_true(ax_mem_peak_rss() >= before + BYTES / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_zero),
        cmocka_unit_test(regrow_keeps_and_zeroes),
        cmocka_unit_test(lists_double),
        cmocka_unit_test(impossible_sizes_fail_and_leave_the_pointer),
        cmocka_unit_test(products_see_overflow_through_zero),
        cmocka_unit_test(strings_are_copied),
        cmocka_unit_test(buffers_double),
        cmocka_unit_test(every_call_can_fail),
        cmocka_unit_test(guards_notice_writes_outside),
        cmocka_unit_test(the_kernel_tells_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
