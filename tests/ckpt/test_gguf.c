/* GGUF: keys of every type, tensors by name, and the values of every block type to the bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash/crc32c.h"
#include "base/text/json.h"
#include "tests/ckpt/folder.h"
#include "tests/ckpt/gguf_out.h"
#include "tests/golden_files.h"

#define SHAPE(...)                                                                                 \
    (const int64_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }

static void open_built(struct ax_gguf *g, struct gguf_out *o) {
    gguf_out_finish(o);
    if (ax_gguf_parse(g, "x.gguf", o->file.data, o->file.len) != AX_OK)
        fail_msg("%s", ax_error_text());
}

static bool text_is(struct ax_gguf_text t, const char *s) {
    return t.len == strlen(s) && memcmp(t.s, s, t.len) == 0;
}

/* --- keys --- */

static void integers_of_every_width_are_read(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t type;
        uint64_t bits;
        int bytes;
        int64_t value;
    } cases[] = {
        {"u8", AX_GGUF_U8, 0xfe, 1, 254},
        {"i8", AX_GGUF_I8, 0xfe, 1, -2},
        {"u16", AX_GGUF_U16, 0xfffe, 2, 65534},
        {"i16", AX_GGUF_I16, 0xfffe, 2, -2},
        {"u32", AX_GGUF_U32, 0xfffffffe, 4, 4294967294},
        {"i32", AX_GGUF_I32, 0xfffffffe, 4, -2},
        {"u64", AX_GGUF_U64, INT64_MAX, 8, INT64_MAX},
        {"i64", AX_GGUF_I64, (uint64_t)INT64_MIN, 8, INT64_MIN},
    };
    struct gguf_out o = {0};
    struct ax_gguf g;
    int64_t v;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        key_start(&o, cases[i].name, cases[i].type);
        put_int(&o.keys, cases[i].bits, cases[i].bytes);
    }
    open_built(&g, &o);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ax_gguf_i64(&g, cases[i].name, INT64_MIN, INT64_MAX, &v), AX_OK);
        assert_true(v == cases[i].value);
    }
    assert_int_equal(ax_gguf_i64(&g, "u8", 0, 253, &v), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "x.gguf: key u8: 254 is not between 0 and 253");
    assert_int_equal(ax_gguf_i64(&g, "i9", 0, 9, &v), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "x.gguf: key i9 is missing");
    assert_int_equal(ax_gguf_i64_or(&g, "i9", 0, 9, 77, &v), AX_OK);
    assert_int_equal(v, 77);
    ax_gguf_close(&g);
    gguf_out_free(&o);
}

/* What people wrote comes back, not the neighbor that single precision made of it. */
static void floats_are_the_shortest_decimal(void **state) {
    (void)state;
    static const struct {
        float stored;
        double value;
    } cases[] = {{1e-5f, 1e-5}, {1e-6f, 1e-6},       {500000.0f, 500000}, {0.1f, 0.1},
                 {32.0f, 32},   {-2.5e20f, -2.5e20}, {0.0f, 0},           {1e-40f, 1e-40}};
    struct gguf_out o = {0};
    struct ax_gguf g;
    double v;
    char name[8];
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "f%d", i);
        key_f32(&o, name, cases[i].stored);
    }
    key_start(&o, "double", AX_GGUF_F64);
    const double precise = 0.1;
    uint64_t bits;
    memcpy(&bits, &precise, sizeof bits);
    put_int(&o.keys, bits, 8);
    key_u32(&o, "whole", 7);
    key_f32(&o, "inf", INFINITY);
    open_built(&g, &o);
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "f%d", i);
        assert_int_equal(ax_gguf_f64(&g, name, &v), AX_OK);
        assert_true(v == cases[i].value);
        assert_true((float)v == cases[i].stored);
    }
    assert_int_equal(ax_gguf_f64(&g, "double", &v), AX_OK);
    assert_true(v == 0.1);
    assert_int_equal(ax_gguf_f64_or(&g, "whole", 1, &v), AX_OK);
    assert_true(v == 7);
    assert_int_equal(ax_gguf_f64_or(&g, "absent", 1.5, &v), AX_OK);
    assert_true(v == 1.5);
    assert_int_equal(ax_gguf_f64(&g, "inf", &v), AX_ERR_DATA);
    assert_mentions("key inf: inf is not a finite number");
    ax_gguf_close(&g);
    gguf_out_free(&o);
}

static void texts_flags_and_wrong_types(void **state) {
    (void)state;
    struct gguf_out o = {0};
    struct ax_gguf g;
    struct ax_gguf_text t;
    bool b;
    int64_t i;
    key_text(&o, "empty", "");
    key_text(&o, "text", "a\"b \xC3\xA9");
    key_bool(&o, "yes", true);
    key_bool(&o, "no", false);
    key_texts(&o, "list", 1, (const char *const[]){"x"});
    open_built(&g, &o);
    assert_int_equal(ax_gguf_string_or_null(&g, "text", &t), AX_OK);
    assert_true(text_is(t, "a\"b \xC3\xA9"));
    assert_int_equal(ax_gguf_string_or_null(&g, "empty", &t), AX_OK);
    assert_true(t.s && t.len == 0);
    assert_int_equal(ax_gguf_string_or_null(&g, "absent", &t), AX_OK);
    assert_null(t.s);
    assert_int_equal(ax_gguf_bool_or(&g, "yes", false, &b), AX_OK);
    assert_true(b);
    assert_int_equal(ax_gguf_bool_or(&g, "no", true, &b), AX_OK);
    assert_false(b);
    assert_int_equal(ax_gguf_bool_or(&g, "absent", true, &b), AX_OK);
    assert_true(b);
    assert_int_equal(ax_gguf_string_or_null(&g, "yes", &t), AX_ERR_DATA);
    assert_string_equal(ax_error_text(),
                        "x.gguf: key yes: expected a string, but it is true/false");
    assert_int_equal(ax_gguf_i64(&g, "text", 0, 9, &i), AX_ERR_DATA);
    assert_mentions("key text: expected an integer, but it is a string");
    assert_int_equal(ax_gguf_bool_or(&g, "list", true, &b), AX_ERR_DATA);
    assert_mentions("key list: expected true or false, but it is a list, each element a string");
    ax_gguf_close(&g);
    gguf_out_free(&o);
}

static void arrays_are_copied(void **state) {
    (void)state;
    struct gguf_out o = {0};
    struct ax_gguf g;
    struct ax_gguf_text *texts;
    int32_t *ints;
    float *floats;
    size_t n;
    const uint64_t live = ax_mem_live_blocks();
    key_texts(&o, "texts", 3, (const char *const[]){"one", "", "t\xC3\xA9"});
    key_array(&o, "i8s", AX_GGUF_I8, 3);
    put_bytes(&o.keys, "\xff\x00\x7f", 3);
    key_array(&o, "u64s", AX_GGUF_U64, 1);
    put_int(&o.keys, 1ULL << 31, 8);
    key_array(&o, "floats", AX_GGUF_F32, 2);
    put_f32(&o.keys, 0.1f);
    put_f32(&o.keys, -3);
    key_array(&o, "none", AX_GGUF_F32, 0);
    /* [[1, 2], []], and a list of lists of strings */
    key_array(&o, "nested", AX_GGUF_ARRAY, 2);
    put_int(&o.keys, AX_GGUF_U16, 4);
    put_int(&o.keys, 2, 8);
    put_int(&o.keys, 1, 2);
    put_int(&o.keys, 2, 2);
    put_int(&o.keys, AX_GGUF_STRING, 4);
    put_int(&o.keys, 0, 8);
    key_u32(&o, "behind", 5);
    open_built(&g, &o);
    assert_int_equal(ax_gguf_strings(&g, "texts", &texts, &n), AX_OK);
    assert_int_equal(n, 3);
    assert_true(text_is(texts[0], "one") && text_is(texts[1], "") &&
                text_is(texts[2], "t\xC3\xA9"));
    ax_free(texts);
    assert_int_equal(ax_gguf_i32s(&g, "i8s", &ints, &n), AX_OK);
    assert_int_equal(n, 3);
    assert_true(ints[0] == -1 && ints[1] == 0 && ints[2] == 127);
    ax_free(ints);
    assert_int_equal(ax_gguf_i32s(&g, "u64s", &ints, &n), AX_ERR_DATA);
    assert_mentions("key u64s: element 0 is 2147483648");
    assert_true(n == 0 && !ints);
    assert_int_equal(ax_gguf_f32s(&g, "floats", &floats, &n), AX_OK);
    assert_true(n == 2 && floats[0] == 0.1f && floats[1] == -3);
    ax_free(floats);
    assert_int_equal(ax_gguf_f32s(&g, "i8s", &floats, &n), AX_OK);
    assert_true(n == 3 && floats[0] == -1);
    ax_free(floats);
    int32_t dirt = 0;
    ints = &dirt;
    n = 1;
    assert_int_equal(ax_gguf_i32s(&g, "absent", &ints, &n), AX_OK);
    assert_true(n == 0 && !ints);
    assert_int_equal(ax_gguf_f32s(&g, "none", &floats, &n), AX_OK);
    assert_true(n == 0 && floats);
    ax_free(floats);
    n = 1;
    assert_int_equal(ax_gguf_f32s(&g, "absent", &floats, &n), AX_OK);
    assert_true(n == 0 && !floats);
    assert_int_equal(ax_gguf_i32s(&g, "texts", &ints, &n), AX_ERR_DATA);
    assert_mentions(
        "key texts: expected a list of integers, but it is a list, each element a string");
    assert_true(n == 0 && !ints);
    assert_int_equal(ax_gguf_f32s(&g, "texts", &floats, &n), AX_ERR_DATA);
    assert_true(n == 0 && !floats);
    assert_int_equal(ax_gguf_strings(&g, "behind", &texts, &n), AX_ERR_DATA);
    assert_mentions("key behind: expected a list of strings, but it is an integer");
    assert_int_equal(ax_gguf_f32s(&g, "nested", &floats, &n), AX_ERR_DATA);
    ax_gguf_close(&g);
    gguf_out_free(&o);
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* --- tensors --- */

static void check_two_tensors(const struct ax_gguf *g) {
    const struct ax_gguf_tensor *t = ax_gguf_tensor(g, "b.weight");
    assert_int_equal(g->n_tensors, 2);
    assert_non_null(t);
    assert_string_equal(t->type->name, "F16");
    assert_true(t->ndim == 2 && t->shape[0] == 3 && t->shape[1] == 2 && t->numel == 6);
    assert_int_equal(t->bytes, 12);
    assert_memory_equal(t->data, "0123456789ab", 12);
    t = ax_gguf_tensor(g, "a");
    assert_true(t && t->ndim == 1 && t->numel == 32 && t->bytes == 34 && t->data[33] == 'x');
    assert_null(ax_gguf_tensor(g, "b"));
    assert_null(ax_gguf_tensor(g, "b.weights"));
    assert_true(text_is(g->tensors[0].name, "a"));
}

static void tensors_lie_where_the_file_says(void **state) {
    (void)state;
    static const char q8[] = "0123456789abcdef0123456789abcdef.x";
    static const struct {
        uint32_t version;
        uint64_t alignment;
    } files[] = {{3, 32}, {2, 32}, {3, 1}, {3, 4096}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct gguf_out o = {.version = files[i].version, .alignment = files[i].alignment};
        struct ax_gguf g;
        if (files[i].alignment != 32)
            key_u32(&o, "general.alignment", (uint32_t)files[i].alignment);
        tensor(&o, "b.weight", 1, 2, SHAPE(3, 2), "0123456789ab", 12);
        tensor(&o, "a", 8, 1, SHAPE(32), q8, 34);
        open_built(&g, &o);
        check_two_tensors(&g);
        ax_gguf_close(&g);
        put_file("x.gguf", o.file.data, o.file.len);
        assert_true(ax_gguf_is(in_dir("x.gguf")));
        assert_int_equal(ax_gguf_open(&g, in_dir("x.gguf")), AX_OK);
        check_two_tensors(&g);
        ax_gguf_close(&g);
        ax_gguf_close(&g);
        gguf_out_free(&o);
    }
}

static void a_type_that_is_not_read_is_listed_without_data(void **state) {
    (void)state;
    struct gguf_out o = {0};
    struct ax_gguf g;
    tensor(&o, "w", 16, 1, SHAPE(256), "", 0);
    tensor(&o, "empty", 2, 2, SHAPE(0, 32), "", 0);
    open_built(&g, &o);
    const struct ax_gguf_tensor *t = ax_gguf_tensor(&g, "w");
    assert_string_equal(t->type->name, "IQ2_XXS");
    assert_null(t->type->dequantize);
    assert_null(t->data);
    t = ax_gguf_tensor(&g, "empty");
    assert_true(t->numel == 0 && t->bytes == 0 && t->data);
    ax_gguf_close(&g);
    gguf_out_free(&o);
}

static void what_is_no_gguf_file_is_named(void **state) {
    (void)state;
    struct ax_gguf g;
    assert_int_equal(ax_gguf_open(&g, in_dir("absent")), AX_ERR_IO);
    assert_mentions("absent: cannot open: No such file");
    assert_false(ax_gguf_is(in_dir("absent")));
    assert_string_equal(ax_error_text(), "");
    put_text("text", "GGML 1234567890");
    assert_int_equal(ax_gguf_open(&g, in_dir("text")), AX_ERR_DATA);
    assert_mentions("text: does not begin with \"GGUF\": not a GGUF file");
    assert_false(ax_gguf_is(in_dir("text")));
    assert_false(ax_gguf_is(dir));
    put_text("empty", "");
    assert_int_equal(ax_gguf_open(&g, in_dir("empty")), AX_ERR_DATA);
    assert_mentions("empty: does not begin with");
}

/* --- block types --- */

static size_t from_hex(const char *hex, unsigned char *out) {
    const size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        const char byte[] = {hex[2 * i], hex[2 * i + 1], '\0'};
        out[i] = (unsigned char)strtoul(byte, NULL, 16);
    }
    return n;
}

static void check_type(const char *name, struct ax_json v) {
    int64_t id, elements, bytes;
    const char *hex, *bits;
    assert_int_equal(ax_json_i64(ax_json_get(v, "type"), 0, 99, &id), AX_OK);
    assert_int_equal(ax_json_i64(ax_json_get(v, "block_elements"), 1, 999, &elements), AX_OK);
    assert_int_equal(ax_json_i64(ax_json_get(v, "block_bytes"), 1, 999, &bytes), AX_OK);
    assert_int_equal(ax_json_str(ax_json_get(v, "data"), &hex), AX_OK);
    assert_int_equal(ax_json_str(ax_json_get(v, "f32_bits"), &bits), AX_OK);
    const struct ax_block_type *t = ax_block_type_find((uint32_t)id);
    assert_non_null(t);
    assert_string_equal(t->name, name);
    assert_true(t->elements == elements && t->bytes == bytes);

    unsigned char data[1024];
    float values[1024 + 64];
    const size_t blocks = from_hex(hex, data) / (size_t)bytes;
    assert_true(blocks > 0 && blocks * (size_t)elements <= 1024);
    float *after = values + blocks * (size_t)elements;
    for (int i = 0; i < 64; i++)
        after[i] = 0x1p99f;
    t->dequantize(data, (int64_t)blocks, values);
    for (int i = 0; i < 64; i++)
        assert_true(after[i] == 0x1p99f);
    for (size_t i = 0; i < blocks * (size_t)elements; i++) {
        char *end;
        uint32_t got;
        const unsigned long want = strtoul(bits, &end, 16);
        assert_true(end > bits);
        bits = end;
        memcpy(&got, &values[i], sizeof got);
        if (got != want)
            fail_msg("%s: element %zu is %08x, not %08lx", name, i, got, want);
    }
    assert_int_equal(strspn(bits, " "), strlen(bits));
}

static void every_block_type_gives_the_reference_bits(void **state) {
    (void)state;
    struct ax_json_doc doc;
    int checked = 0;
    assert_int_equal(ax_json_load(&doc, golden_path("gguf/blocks.json"), 1 << 20), AX_OK);
    const char *name;
    json_t *value;
    json_object_foreach(doc.root, name, value) {
        if (!json_is_object(value))
            continue;
        check_type(name, ax_json_get(ax_json_root(&doc), name));
        checked++;
    }
    assert_int_equal(checked, 10);
    ax_json_free(&doc);
}

/* Blocks of made-up bytes; what the gguf package 0.19.0 reads in them, as a checksum of the floats. */
static void further_types_give_the_reference_bits(void **state) {
    (void)state;
    static const struct {
        uint32_t id;
        size_t bytes;
        size_t scales[2]; /* high bytes of half-precision numbers, made finite and small */
        uint32_t crc;
    } cases[] = {{11, 110, {109, 109}, 0x336ae613},
                 {13, 176, {1, 3}, 0x30c7949b},
                 {20, 18, {1, 1}, 0x91103b72},
                 {10, 84, {81, 83}, 0xc8ab771e},
                 {23, 136, {1, 1}, 0x46f38ed5}};
    enum { BLOCKS = 50 };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct ax_block_type *t = ax_block_type_find(cases[c].id);
        unsigned char p[BLOCKS * 176];
        float out[BLOCKS * 256];
        uint32_t seed = 1;
        assert_int_equal(t->bytes, cases[c].bytes);
        for (size_t i = 0; i < BLOCKS * cases[c].bytes; i++) {
            const size_t at = i % cases[c].bytes;
            seed = seed * 1664525 + 1013904223;
            p[i] = (unsigned char)(seed >> 24);
            if (at == cases[c].scales[0] || at == cases[c].scales[1])
                p[i] &= 0x3f;
        }
        t->dequantize(p, BLOCKS, out);
        assert_int_equal(ax_crc32c_portable(0, out, BLOCKS * (size_t)t->elements * sizeof *out),
                         cases[c].crc);
    }
}

/* The formulas of the two large blocks, written the long way round on random bytes. */
static double q4_k_element(const unsigned char *p, int i) {
    const int j = i / 32, k = i % 32;
    const unsigned char *sc = p + 4;
    const int s = j < 4 ? sc[j] & 63 : (sc[j + 4] & 15) | (sc[j - 4] >> 6 << 4);
    const int m = j < 4 ? sc[j + 4] & 63 : (sc[j + 4] >> 4) | (sc[j] >> 6 << 4);
    const int byte = p[16 + j / 2 * 32 + k], q = j % 2 ? byte >> 4 : byte & 15;
    const double d = (double)ax_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
    const double dmin = (double)ax_f16_to_f32((uint16_t)(p[2] | p[3] << 8));
    return d * s * q - dmin * m;
}

static double q6_k_element(const unsigned char *p, int i) {
    const int h = i / 128, g = i % 128 / 32, l = i % 32;
    const int byte = p[64 * h + 32 * (g & 1) + l], low = g < 2 ? byte & 15 : byte >> 4;
    const int high = p[128 + 32 * h + l] / (1 << 2 * g) % 4;
    const double d = (double)ax_f16_to_f32((uint16_t)(p[208] | p[209] << 8));
    return d * (int8_t)p[192 + i / 16] * (low + high * 16 - 32);
}

static void large_blocks_follow_their_formula(void **state) {
    (void)state;
    const struct ax_block_type *q4 = ax_block_type_find(12), *q6 = ax_block_type_find(14);
    unsigned char p[2 * 210];
    float out[512];
    uint64_t seed = 1;
    for (int round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof p; i++)
            p[i] = (unsigned char)(ax_hash64(&i, sizeof i, seed++) >> 20);
        p[1] &= 0x3f; /* scales that are finite and small */
        p[3] &= 0x3f;
        p[209] &= 0x3f;
        q4->dequantize(p, 1, out);
        for (int i = 0; i < 256; i++)
            assert_true(fabs((double)out[i] - q4_k_element(p, i)) <= 1e-3);
        q6->dequantize(p, 1, out);
        for (int i = 0; i < 256; i++)
            assert_true((double)out[i] == (double)(float)q6_k_element(p, i));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_of_every_width_are_read),
        cmocka_unit_test(floats_are_the_shortest_decimal),
        cmocka_unit_test(texts_flags_and_wrong_types),
        cmocka_unit_test(arrays_are_copied),
        cmocka_unit_test(tensors_lie_where_the_file_says),
        cmocka_unit_test(a_type_that_is_not_read_is_listed_without_data),
        cmocka_unit_test(what_is_no_gguf_file_is_named),
        cmocka_unit_test(every_block_type_gives_the_reference_bits),
        cmocka_unit_test(further_types_give_the_reference_bits),
        cmocka_unit_test(large_blocks_follow_their_formula),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
