/* Modules of WebAssembly: a small one is read and written anew, as one that exports its state and as
 * a snapshot; damaged ones are refused. The engine's view of the results is tested in
 * test_sandbox.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "data/reward/sandbox/snapshot.h"
#include "tests/data/scratch.h"

/* (func (export "_start")), one imported function, a memory of one page, a mutable and a constant
 * global, a table. */
static const unsigned char small[] = {
    0,  'a', 's', 'm',  1,    0,    0,    0,                              /* */
    1,  4,   1,   0x60, 0,    0,                                          /* types: () -> () */
    2,  7,   1,   1,    'm',  1,    'f',  0,    0,                        /* imports: m.f */
    3,  2,   1,   0,                                                      /* functions */
    4,  4,   1,   0x70, 0,    1,                                          /* table of 1 */
    5,  3,   1,   0,    1,                                                /* memory of 1 page */
    6,  11,  2,   0x7f, 1,    0x41, 5,    0x0b, 0x7f, 0,   0x41, 7, 0x0b, /* globals */
    7,  10,  1,   6,    '_',  's',  't',  'a',  'r',  't', 0,    1,       /* exports */
    9,  7,   1,   0,    0x41, 0,    0x0b, 1,    1,                        /* elements: function 1 */
    10, 4,   1,   2,    0,    0x0b,                                       /* code: end */
    11, 7,   1,   0,    0x41, 0,    0x0b, 1,    'x',                      /* data */
    0,  3,   1,   'n',  0                                                 /* custom */
};

static void reads(void **state) {
    struct ax_wasm_module m;
    (void)state;
    assert_int_equal(ax_module_read(&m, small, sizeof small), AX_OK);
    assert_int_equal(m.imported_functions, 1);
    assert_int_equal(m.memory_min, 1);
    assert_true(m.memory_max == UINT32_MAX);
    assert_true(m.globals[0].is_mutable);
    assert_false(m.globals[1].is_mutable);
    assert_int_equal(m.sections[AX_WASM_DATA].n, 1);
}

static void writes_with_its_state_exported(void **state) {
    struct ax_wasm_module m, again;
    struct ax_buf out = {0};
    static const char exports[] = "\6_start\0\1\6memory\2\0\2g0\3";
    (void)state;
    assert_int_equal(ax_module_read(&m, small, sizeof small), AX_OK);
    assert_int_equal(ax_module_write_open(&m, &out), AX_OK);
    assert_int_equal(ax_module_read(&again, out.data, out.len), AX_OK);
    assert_int_equal(again.sections[AX_WASM_EXPORTS].n, 3);
    assert_int_equal(again.sections[AX_WASM_EXPORTS].len, sizeof exports);
    assert_memory_equal(again.sections[AX_WASM_EXPORTS].data, exports, sizeof exports);
    assert_int_equal(again.sections[AX_WASM_DATA].n, 1);
    ax_buf_free(&out);
}

static void writes_a_snapshot(void **state) {
    static unsigned char memory[3 * AX_WASM_PAGE];
    struct ax_wasm_module m, again;
    struct ax_wasm_state s = {.memory = memory, .memory_len = sizeof memory, .function = 300};
    struct ax_buf out = {0};
    (void)state;
    memory[5000] = 1;
    memory[18 * 4096 - 1] = 2; /* alone in its page */
    s.globals[0] = -129;
    s.argument = 0x80000000;
    assert_int_equal(ax_module_read(&m, small, sizeof small), AX_OK);
    assert_int_equal(ax_module_write_snapshot(&m, &s, &out), AX_OK);
    assert_int_equal(ax_module_read(&again, out.data, out.len), AX_OK);
    assert_int_equal(again.memory_min, 3);
    assert_int_equal(again.sections[AX_WASM_TYPES].n, 3);
    assert_int_equal(again.sections[AX_WASM_CODE].n, 2);
    static const unsigned char global[] = {0x41, 0xff, 0x7e, 0x0b}; /* −129 in LEB128 */
    assert_int_equal(again.globals[0].init_len, sizeof global);
    assert_memory_equal(again.globals[0].init, global, sizeof global);
    /* pages 1 to 17: one segment at 4096 */
    const struct ax_wasm_section *data = &again.sections[AX_WASM_DATA];
    static const unsigned char head[] = {0, 0x41, 0x80, 0x20, 0x0b, 0x80, 0xa0, 0x04};
    assert_int_equal(data->n, 1);
    assert_memory_equal(data->data, head, 5);
    assert_int_equal(data->len, 5 + 3 + 17 * 4096);
    assert_memory_equal(data->data + 8, memory + 4096, 17 * 4096);
    /* the body of run: i32.const −2^31, 0, 0, 0, 300; call_indirect type 1, table 0; end */
    static const unsigned char run[] = {0x41, 0x80, 0x80, 0x80, 0x80, 0x78, 0x41, 0, 0x41, 0,
                                        0x41, 0,    0x41, 0xac, 0x02, 0x11, 1,    0, 0x0b};
    const struct ax_wasm_section *code = &again.sections[AX_WASM_CODE];
    assert_memory_equal(code->data + code->len - sizeof run, run, sizeof run);
    ax_buf_free(&out);
}

static void refuses_damage(void **state) {
    struct ax_wasm_module m;
    unsigned char damaged[sizeof small];
    (void)state;
    assert_error(ax_module_read(&m, "\177ELF", 4), AX_ERR_DATA, "does not begin with");
    for (size_t n = 8; n < sizeof small; n++) /* no end is read beyond (sanitizers) */
        (void)ax_module_read(&m, small, n);
    memcpy(damaged, small, sizeof small);
    damaged[17] = 2; /* an import of a memory */
    damaged[22] = 2;
    assert_error(ax_module_read(&m, damaged, sizeof damaged), AX_ERR_DATA, "imports");
    memcpy(damaged, small, sizeof small);
    damaged[9] = 200; /* a section longer than the file */
    assert_error(ax_module_read(&m, damaged, sizeof damaged), AX_ERR_DATA, "not a WebAssembly");
    memcpy(damaged, small, sizeof small);
    damaged[41] = 0x7e; /* a mutable i64 */
    assert_error(ax_module_read(&m, damaged, sizeof damaged), AX_ERR_DATA, "not an i32");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(writes_with_its_state_exported),
        cmocka_unit_test(writes_a_snapshot),
        cmocka_unit_test(refuses_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
