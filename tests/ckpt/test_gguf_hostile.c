/* GGUF files that lie about themselves: each is refused with what and where, nothing stays
 * allocated, and no count or length of the file is believed before it was checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "base/fault.h"
#include "tests/ckpt/folder.h"
#include "tests/ckpt/gguf_out.h"

#define SHAPE(...)                                                                                 \
    (const int64_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }
#define HUGE_COUNT (1ULL << 63)

/* Parses o and expects AX_ERR_DATA with `part` in its text. */
static void refused(struct gguf_out *o, const char *part) {
    struct ax_gguf g;
    gguf_out_finish(o);
    const uint64_t live = ax_mem_live_blocks();
    const enum ax_status st = ax_gguf_parse(&g, "x.gguf", o->file.data, o->file.len);
    if (st != AX_ERR_DATA && st != AX_ERR_UNSUPPORTED)
        fail_msg("status %d where \"%s\" was expected", (int)st, part);
    assert_true(strncmp(ax_error_text(), "x.gguf: ", 8) == 0);
    assert_mentions(part);
    assert_int_equal(ax_mem_live_blocks(), live);
    gguf_out_free(o);
}

static void counts_beyond_the_file(void **state) {
    (void)state;
    static const uint64_t counts[] = {HUGE_COUNT, UINT64_MAX, 1ULL << 32, 70000, 2};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct gguf_out o = {.n_tensors = counts[i]};
        refused(&o, "the number of tensors is");
        o.n_keys = counts[i];
        refused(&o, "the number of keys is");
    }
}

static void versions_and_byte_order(void **state) {
    (void)state;
    static const uint32_t versions[] = {1, 4, 0xffffffff};
    for (size_t i = 0; i < 3; i++) {
        struct gguf_out o = {.version = versions[i]};
        refused(&o, "versions 2 and 3 are supported");
    }
    struct gguf_out o = {.version = 0x03000000};
    refused(&o, "big-endian");
}

static void lengths_beyond_the_file(void **state) {
    (void)state;
    static const uint64_t lengths[] = {HUGE_COUNT, UINT64_MAX, UINT64_MAX - 7, 4096};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct gguf_out o = {.n_keys = 1};
        put_int(&o.keys, lengths[i], 8); /* of the name */
        put_bytes(&o.keys, "abcdefgh", 8);
        refused(&o, "a key's name at byte");
        key_start(&o, "text", AX_GGUF_STRING);
        put_int(&o.keys, lengths[i], 8);
        put_bytes(&o.keys, "abcdefgh", 8);
        refused(&o, "a key's value at byte");
        key_array(&o, "texts", AX_GGUF_STRING, 1);
        put_int(&o.keys, lengths[i], 8);
        refused(&o, "a key's value at byte");
    }
}

static void arrays_beyond_the_file(void **state) {
    (void)state;
    static const uint64_t counts[] = {HUGE_COUNT, UINT64_MAX, 1ULL << 61, (1ULL << 61) + 1, 4096};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct gguf_out o = {0};
        key_array(&o, "bytes", AX_GGUF_U8, counts[i]);
        refused(&o, "a key's value at byte");
        key_array(&o, "longs", AX_GGUF_U64, counts[i]); /* times 8: the product wraps around */
        refused(&o, "a key's value at byte");
        key_array(&o, "texts", AX_GGUF_STRING, counts[i]);
        refused(&o, "values do not fit");
        key_array(&o, "lists", AX_GGUF_ARRAY, counts[i]);
        refused(&o, "values do not fit");
    }
}

static void arrays_in_arrays_without_end(void **state) {
    (void)state;
    struct gguf_out o = {0};
    key_array(&o, "deep", AX_GGUF_ARRAY, 1);
    for (int i = 0; i < 100000; i++) {
        put_int(&o.keys, AX_GGUF_ARRAY, 4);
        put_int(&o.keys, 1, 8);
    }
    refused(&o, "key deep: arrays nested deeper than 8");
}

static void types_that_do_not_exist(void **state) {
    (void)state;
    static const uint32_t types[] = {UINT32_MAX, 13, 1u << 31, 999};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct gguf_out o = {0};
        key_start(&o, "k", types[i]);
        put_int(&o.keys, 0, 8);
        refused(&o, "key k: unknown value type");
        key_array(&o, "k", types[i], 0);
        refused(&o, "key k: unknown value type");
        tensor(&o, "t", types[i] == 13 ? 4 : types[i], 1, SHAPE(32), "", 0);
        refused(&o, "tensor t: unknown type");
    }
    struct gguf_out o = {0};
    key_start(&o, "flag", AX_GGUF_BOOL);
    put_int(&o.keys, 2, 1);
    refused(&o, "is neither true nor false");
    key_array(&o, "flags", AX_GGUF_BOOL, 2);
    put_int(&o.keys, 0x0201, 2);
    refused(&o, "key flags: byte");
}

static void names_twice_or_unfit(void **state) {
    (void)state;
    struct gguf_out o = {0};
    key_u32(&o, "same", 1);
    key_u32(&o, "other", 1);
    key_text(&o, "same", "x");
    refused(&o, "key same appears twice");
    tensor(&o, "same", 0, 1, SHAPE(1), "abcd", 4);
    tensor(&o, "other", 0, 1, SHAPE(1), "abcd", 4);
    tensor(&o, "same", 0, 1, SHAPE(1), "abcd", 4);
    refused(&o, "tensor same appears twice");
    key_u32(&o, "", 1);
    refused(&o, "a name of 0 bytes");
    key_u32(&o, "a\nb", 1);
    refused(&o, "contains a control character");
    o.n_keys = 1;
    put_text_n(&o.keys, "a\0b", 3);
    put_int(&o.keys, AX_GGUF_U8, 4);
    put_int(&o.keys, 0, 1);
    refused(&o, "contains a control character");
    char *name;
    assert_int_equal(ax_alloc(&name, 70001, 1), AX_OK);
    memset(name, 'n', 70000);
    tensor(&o, name, 0, 1, SHAPE(1), "abcd", 4);
    refused(&o, "a name of 70000 bytes");
    ax_free(name);
}

static void alignments(void **state) {
    (void)state;
    static const uint32_t wrong[] = {0, 3, 33, UINT32_MAX};
    static const char *const parts[] = {"is not between 1", "is not a power of two",
                                        "is not a power of two", "is not between 1"};
    for (int i = 0; i < 4; i++) {
        struct gguf_out o = {0};
        key_u32(&o, "general.alignment", wrong[i]);
        refused(&o, parts[i]);
    }
    struct gguf_out o = {0};
    key_text(&o, "general.alignment", "32");
    refused(&o, "general.alignment: expected an integer");
    key_start(&o, "general.alignment", AX_GGUF_I32);
    put_int(&o.keys, (uint64_t)-32, 4);
    refused(&o, "-32 is not between 1");
    /* a power of two beyond the file: the data would begin far behind its end */
    key_u32(&o, "general.alignment", 1u << 30);
    tensor_info(&o, "t", 0, 1, SHAPE(1), 0);
    put_bytes(&o.data, "abcd", 4);
    refused(&o, "tensor t has 4 bytes starting at data byte 0, but the file has only 0");
}

static void tensors_of_absurd_size(void **state) {
    (void)state;
    struct gguf_out o = {0};
    tensor(&o, "t", 0, 1, SHAPE(1LL << 60), "abcd", 4);
    refused(&o, "tensor t has 4611686018427387904 bytes");
    tensor(&o, "t", 0, 1, SHAPE(1LL << 61), "abcd", 4);
    refused(&o, "the number of bytes overflows");
    tensor(&o, "t", 0, 1, SHAPE(-1), "abcd", 4); /* 2⁶⁴ − 1 */
    refused(&o, "tensor t has a size of 18446744073709551615");
    tensor(&o, "t", 0, 2, SHAPE(1LL << 32, 1LL << 32), "abcd", 4);
    refused(&o, "the number of elements overflows");
    tensor(&o, "t", 0, 3, SHAPE(0, 1LL << 32, 1LL << 32), "abcd", 4); /* also through a zero */
    refused(&o, "the number of elements overflows");
    tensor(&o, "t", 0, 1, SHAPE(2), "abcd", 4);
    refused(&o, "tensor t has 8 bytes starting at data byte 0, but the file has only 4");
    tensor(&o, "t", 2, 2, SHAPE(32, 31), "", 0);
    refused(&o, "tensor t: rows of 31 elements are not a multiple of the Q4_0 block size 32");
    tensor_info(&o, "t", 0, 0, NULL, 0);
    refused(&o, "tensor t has 0 dimensions");
    tensor_info(&o, "t", 0, 5, SHAPE(1, 1, 1, 1, 1), 0);
    refused(&o, "tensor t has 5 dimensions");
    o.n_tensors = 1;
    put_str(&o.infos, "t");
    put_int(&o.infos, UINT32_MAX, 4);
    put_int(&o.infos, 0, 32);
    refused(&o, "tensor t has 4294967295 dimensions");
}

static void tensors_in_the_wrong_place(void **state) {
    (void)state;
    struct gguf_out o = {0};
    tensor_info(&o, "t", 0, 1, SHAPE(1), 4);
    put_int(&o.data, 0, 8);
    refused(&o, "tensor t: offset 4 is not a multiple of the alignment 32");
    tensor_info(&o, "t", 0, 1, SHAPE(1), 32);
    put_int(&o.data, 0, 32);
    refused(&o, "tensor t has 4 bytes starting at data byte 32, but the file has only 32");
    tensor_info(&o, "t", 0, 1, SHAPE(1), UINT64_MAX - 31);
    put_int(&o.data, 0, 32);
    refused(&o, "starting at data byte 18446744073709551584");
    tensor_info(&o, "a", 0, 1, SHAPE(9), 0);
    tensor_info(&o, "b", 0, 1, SHAPE(1), 32);
    for (int i = 0; i < 36; i++)
        put_int(&o.data, 0, 1);
    refused(&o, "tensors a and b share bytes");
    tensor_info(&o, "a", 0, 1, SHAPE(1), 0);
    tensor_info(&o, "b", 0, 1, SHAPE(1), 0);
    put_int(&o.data, 0, 32);
    refused(&o, "share bytes");
}

/* --- sweeps --- */

/* One key of every kind and three tensors; what follows is about every byte of it. */
static void build_sample(struct gguf_out *o) {
    key_u32(o, "general.alignment", 32);
    key_text(o, "general.architecture", "llama");
    key_bool(o, "flag", true);
    key_f32(o, "f", 1.5f);
    key_start(o, "i64", AX_GGUF_I64);
    put_int(&o->keys, 5, 8);
    key_texts(o, "texts", 3, (const char *const[]){"a", "", "ccc"});
    key_array(o, "nested", AX_GGUF_ARRAY, 1);
    put_int(&o->keys, AX_GGUF_U16, 4);
    put_int(&o->keys, 2, 8);
    put_int(&o->keys, 0, 4);
    tensor(o, "q", 2, 2, SHAPE(1, 32), "0123456789abcdefgh", 18);
    tensor(o, "x", 0, 2, SHAPE(2, 3), "0123456789abcdefghijklmn", 24);
    tensor(o, "last", 1, 1, SHAPE(4), "01234567", 8);
    gguf_out_finish(o);
}

static void every_truncation_is_found(void **state) {
    (void)state;
    struct gguf_out o = {0};
    struct ax_gguf g;
    build_sample(&o);
    const uint64_t live = ax_mem_live_blocks();
    for (size_t len = 0; len < o.file.len; len++) {
        /* a copy of its own, so that a sanitizer sees a read behind its end */
        char *copy;
        assert_int_equal(ax_alloc(&copy, len, 1), AX_OK);
        memcpy(copy, o.file.data, len);
        if (ax_gguf_parse(&g, "x.gguf", copy, len) == AX_OK)
            fail_msg("%zu of %zu bytes were accepted", len, o.file.len);
        ax_free(copy);
    }
    assert_int_equal(ax_gguf_parse(&g, "x.gguf", o.file.data, o.file.len), AX_OK);
    ax_gguf_close(&g);
    assert_int_equal(ax_mem_live_blocks(), live);
    printf("%zu lengths\n", o.file.len);
    gguf_out_free(&o);
}

static void every_flipped_bit_is_refused_or_harmless(void **state) {
    (void)state;
    struct gguf_out o = {0};
    struct ax_gguf g;
    size_t accepted = 0;
    build_sample(&o);
    const uint64_t live = ax_mem_live_blocks();
    const size_t header = o.file.len - o.data.len;
    for (size_t bit = 0; bit < 8 * header; bit++) {
        o.file.data[bit / 8] = (char)(o.file.data[bit / 8] ^ 1 << bit % 8);
        if (ax_gguf_parse(&g, "x.gguf", o.file.data, o.file.len) == AX_OK) {
            accepted++;
            for (size_t i = 0; i < g.n_tensors; i++) {
                const struct ax_gguf_tensor *t = &g.tensors[i];
                const unsigned char *begin = (const unsigned char *)o.file.data;
                assert_true(!t->data ||
                            (t->data >= begin && t->data + t->bytes <= begin + o.file.len));
            }
            ax_gguf_close(&g);
        }
        o.file.data[bit / 8] = (char)(o.file.data[bit / 8] ^ 1 << bit % 8);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    printf("%zu flips, %zu of them still a file\n", 8 * header, accepted);
    gguf_out_free(&o);
}

static void memory_may_fail_at_every_call(void **state) {
    (void)state;
    struct gguf_out o = {0};
    build_sample(&o);
    const uint64_t live = ax_mem_live_blocks();
    int k = 1;
    for (bool fired = true; fired; k++) {
        char spec[32];
        struct ax_gguf g;
        struct ax_gguf_text *texts = NULL;
        size_t n;
        snprintf(spec, sizeof spec, "malloc:%d:enomem", k);
        assert_int_equal(ax_fault_configure(spec), AX_OK);
        enum ax_status st = ax_gguf_parse(&g, "x.gguf", o.file.data, o.file.len);
        if (st == AX_OK)
            st = ax_gguf_strings(&g, "texts", &texts, &n);
        fired = ax_fault_fired();
        assert_int_equal(ax_fault_configure(NULL), AX_OK);
        assert_int_equal(st, fired ? AX_ERR_NOMEM : AX_OK);
        ax_free(texts);
        ax_gguf_close(&g);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    assert_true(k > 4);
    gguf_out_free(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_beyond_the_file),
        cmocka_unit_test(versions_and_byte_order),
        cmocka_unit_test(lengths_beyond_the_file),
        cmocka_unit_test(arrays_beyond_the_file),
        cmocka_unit_test(arrays_in_arrays_without_end),
        cmocka_unit_test(types_that_do_not_exist),
        cmocka_unit_test(names_twice_or_unfit),
        cmocka_unit_test(alignments),
        cmocka_unit_test(tensors_of_absurd_size),
        cmocka_unit_test(tensors_in_the_wrong_place),
        cmocka_unit_test(every_truncation_is_found),
        cmocka_unit_test(every_flipped_bit_is_refused_or_harmless),
        cmocka_unit_test(memory_may_fail_at_every_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
