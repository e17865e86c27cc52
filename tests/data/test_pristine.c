/* An instance is made as it was to the byte, by either of the kernel's ways to say what was written,
 * and is replaced where that is not possible. What it returns is read from its memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/reward/sandbox/pristine.h"
#include "data/reward/sandbox/sandbox.h"

enum { PAGES = 4, BYTES = PAGES * AX_WASM_PAGE };

/* (memory 4), a mutable global 5, (func (export "_start") global.set 0 (i32.const 9)), 3 bytes of data
 * at 70000 */
static const unsigned char module[] = {
    0, 'a',  's', 'm', 1,   0,   0,    0,    1,    4,    1,    0x60, 0,   0,    3,    2,  1,
    0, 5,    3,   1,   0,   4,   6,    6,    1,    0x7f, 1,    0x41, 5,   0x0b, 7,    10, 1,
    6, '_',  's', 't', 'a', 'r', 't',  0,    0,    10,   8,    1,    6,   0,    0x41, 9,  0x24,
    0, 0x0b, 11,  11,  1,   0,   0x41, 0xf0, 0xa2, 4,    0x0b, 3,    'a', 'b',  'c'};

static struct ax_engine engine;
static struct ax_guest guest;
static struct ax_pristine pristine;

static enum ax_status open_engine(const char *library) {
    const struct ax_wasmtime *lib;
    const struct ax_wasi wasi = {.fuel_limit = 1000};
    struct ax_wasm_module m;
    struct ax_buf wasm = {0};
    AX_TRY(ax_wasmtime_open(library, &lib));
    AX_TRY(ax_engine_create(&engine, lib, 2, (size_t)1 << 20));
    AX_TRY(ax_module_read(&m, module, sizeof module));
    AX_TRY(ax_module_write_open(&m, &wasm));
    const enum ax_status st = ax_engine_compile(&engine, wasm.data, wasm.len);
    ax_buf_free(&wasm);
    AX_TRY(st);
    AX_TRY(ax_guest_open(&guest, &engine, "_start"));
    AX_TRY(ax_guest_begin(&guest, &wasi, (size_t)1 << 20));
    return ax_pristine_take(&pristine, &guest);
}

static int open_all(void **state) {
    struct ax_sandbox_parts parts;
    (void)state;
    if (ax_sandbox_find(&parts, NULL, "/dev/null") != AX_OK)
        fail_msg("%s", ax_error_text());
    const enum ax_status st = open_engine(parts.wasmtime);
    if (st != AX_OK)
        print_message("%s\n", ax_error_text());
    ax_sandbox_parts_free(&parts);
    return st == AX_OK ? 0 : -1;
}

static int close_all(void **state) {
    (void)state;
    ax_pristine_free(&pristine);
    ax_guest_close(&guest);
    ax_engine_free(&engine);
    return 0;
}

static unsigned char *memory(void) {
    size_t size;
    const unsigned char *p = ax_guest_memory(&guest, &size);
    assert_int_equal(size, BYTES);
    return (unsigned char *)(uintptr_t)p;
}

static int32_t global(void) {
    struct ax_wasm_extern g;
    struct ax_wasm_val v = {0};
    assert_true(ax_guest_export(&guest, "g0", &g));
    engine.lib->global_get(guest.context, &g.of, &v);
    return v.of.i32;
}

/* Writes here and there, and everywhere; runs the function that sets the global. */
static void write_and_restore(void) {
    uint32_t ignored;
    for (size_t every = 1; every < BYTES; every = every * 7 + 1) {
        for (size_t i = 0; i < BYTES; i += every)
            memory()[i] = (unsigned char)(i + every);
        assert_int_equal(ax_guest_call(&guest, &ignored), AX_GUEST_RETURNED);
        assert_int_equal(global(), 9);
        assert_true(ax_pristine_restore(&pristine, &guest));
        assert_int_equal(global(), 5);
        assert_memory_equal(memory(), pristine.memory, BYTES);
    }
    assert_memory_equal(memory() + 70000, "abc", 3);
}

static void restored_by_ranges(void **state) {
    (void)state;
    if (!pristine.has_scan)
        print_message("this kernel has no PAGEMAP_SCAN\n");
    write_and_restore();
}

static void restored_by_entries(void **state) {
    const bool has_scan = pristine.has_scan;
    (void)state;
    pristine.has_scan = false;
    write_and_restore();
    pristine.has_scan = has_scan;
}

static void replaced_otherwise(void **state) {
    struct ax_pristine other = pristine;
    (void)state;
    other.pagemap = -1;
    assert_false(ax_pristine_restore(&other, &guest));
    other = pristine;
    other.len -= AX_WASM_PAGE; /* the memory has grown */
    assert_false(ax_pristine_restore(&other, &guest));
    other = pristine;
    other.pagemap = open("/dev/null", O_RDONLY); /* says nothing of pages */
    for (int scans = 0; scans < 2; scans++) {
        other.has_scan = scans;
        assert_false(ax_pristine_restore(&other, &guest));
    }
    assert_int_equal(close(other.pagemap), 0);
}

/* The length, 4 bytes at 8, and the bytes, from 16 on. */
static void bytes_are_read(void **state) {
    (void)state;
    struct ax_bytes got;
    const uint32_t at = 1000, n = 3;
    memcpy(memory() + at + 8, &n, 4);
    memcpy(memory() + at + 16, "xyz", 3);
    assert_true(ax_guest_bytes(&guest, at, 3, &got));
    assert_int_equal(got.n, 3);
    assert_memory_equal(got.data, "xyz", 3);
    assert_false(ax_guest_bytes(&guest, at, 2, &got));
    assert_false(ax_guest_bytes(&guest, BYTES - 15, 3, &got));
    memcpy(memory() + BYTES - 10, &n, 4);
    assert_false(ax_guest_bytes(&guest, BYTES - 18, 3, &got)); /* two bytes, then the end */
    assert_true(ax_pristine_restore(&pristine, &guest));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restored_by_ranges),
        cmocka_unit_test(restored_by_entries),
        cmocka_unit_test(replaced_otherwise),
        cmocka_unit_test(bytes_are_read),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
