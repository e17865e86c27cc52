/* safetensors files that lie, are cut or were damaged: a clean error or the same tensors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/ckpt/folder.h"

struct image {
    unsigned char *bytes; /* exactly len, so that a sanitizer sees any step beyond */
    size_t len;
};

static struct image image_of(uint64_t claimed, const char *header, size_t header_len, size_t data) {
    struct image f = {.len = 8 + header_len + data};
    f.bytes = calloc(1, f.len);
    assert_non_null(f.bytes);
    for (int i = 0; i < 8; i++)
        f.bytes[i] = (unsigned char)(claimed >> (8 * i));
    memcpy(f.bytes + 8, header, header_len);
    return f;
}

static enum ax_status parse_header(const char *header, size_t data) {
    const size_t len = strlen(header);
    struct image f = image_of(len, header, len, data);
    struct ax_safetensors st;
    const uint64_t live = ax_mem_live_blocks();
    const enum ax_status status = ax_safetensors_parse(&st, "x.st", f.bytes, f.len);
    if (status != AX_OK) {
        assert_int_equal(strncmp(ax_error_text(), "x.st", 4), 0);
        assert_null(st.entries);
    }
    ax_safetensors_close(&st);
    assert_int_equal(ax_mem_live_blocks(), live);
    free(f.bytes);
    return status;
}

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end   \
    "]}"

static void headers_that_lie_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *says;
    } bad[] = {
        {"{" T("a", "U8", "[4]", "0", "4") "," T("a", "U8", "[4]", "0", "4") "}", 4,
         "x.st:1:54: duplicate object key near '\"a\"'"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
         "duplicate object key"},
        {"{" T("a", "U8", "[4]", "5", "1") "}", 8, "a.data_offsets: range 5 to 1 is not within"},
        {"{" T("a", "U8", "[4]", "0", "5") "}", 4, "range 0 to 5 is not within the 4 data bytes"},
        {"{" T("a", "U8", "[4]", "0", "3") "}", 4, "range of 3 bytes, but shape and dtype make 4"},
        {"{" T("a", "U8", "[4]", "0", "4") "," T("b", "U8", "[4]", "2", "6") "}", 6,
         "tensor b begins at data byte 2, inside another that ends at byte 4"},
        {"{" T("a", "U8", "[4]", "0", "4") "," T("b", "U8", "[4]", "0", "4") "}", 4,
         "begins at data byte 0, inside another that ends at byte 4"},
        {"{" T("a", "U8", "[4]", "0", "4") "," T("b", "U8", "[0]", "2", "2") "}", 4,
         "tensor b begins at data byte 2, inside another"},
        {"{" T("a", "U8", "[2]", "0", "2") "," T("b", "U8", "[2]", "3", "5") "}", 5,
         "tensor b begins at data byte 3, leaving a hole after byte 2"},
        {"{" T("a", "U8", "[2]", "1", "3") "}", 3, "leaving a hole after byte 0"},
        {"{" T("a", "U8", "[2]", "0", "2") "}", 3,
         "the last 1 of 3 data bytes do not belong to any tensor"},
        {"{}", 1, "the last 1 of 1 data bytes do not belong to any tensor"},
        {"{" T("a", "F32", "[2]", "0", "2") "}", 2, "range of 2 bytes, but shape and dtype make 8"},
        {"{" T("a", "F32", "[4611686018427387904]", "0", "0") "}", 0, "overflows"},
        {"{" T("a", "U8", "[9223372036854775807,2]", "0", "0") "}", 0, "overflows"},
        {"{" T("a", "U8", "[0,9223372036854775807,2]", "0", "0") "}", 0, "overflows"},
        {"{" T("a", "F64", "[0,4611686018427387904]", "0", "0") "}", 0, "overflows"},
        {"{" T("a", "U8", "[4294967296,4294967296]", "0", "0") "}", 0, "overflows"},
        {"{" T("a", "U8", "[18446744073709551616]", "0", "0") "}", 0, "expected an integer"},
        {"{" T("a", "U8", "[-1]", "0", "1") "}", 1, "a.shape[0]: expected an integer of at least"},
        {"{" T("a", "U8", "[-1,-1]", "0", "1") "}", 1, "at least 0, got -1"},
        {"{" T("a", "U8", "[1.0]", "0", "1") "}", 1, "a.shape[0]: expected an integer"},
        {"{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1,
         "a.shape: has 9 dimensions; at most 8 are supported"},
        {"{" T("a", "U8", "1", "0", "1") "}", 1, "a.shape: expected a list of sizes"},
        {"{" T("a", "U8", "null", "0", "1") "}", 1, "a.shape: expected a list of sizes"},
        {"{" T("a", "U8", "[1]", "-1", "0") "}", 1, "a.data_offsets[0]: expected an integer"},
        {"{" T("a", "U8", "[1]", "0", "\"1\"") "}", 1, "a.data_offsets[1]: expected an integer"},
        {"{" T("a", "U8", "[1]", "0", "1,1") "}", 1, "a.data_offsets: expected [begin, end]"},
        {"{" T("a", "F33", "[1]", "0", "4") "}", 4, "a.dtype: dtype \"F33\" is not supported"},
        {"{" T("a", "f32", "[1]", "0", "4") "}", 4, "a.dtype: dtype \"f32\" is not supported"},
        {"{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
         "a.dtype: expected a string, got 3"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "a.dtype: missing"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "a.shape: expected a list"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "a.data_offsets: expected [begin, end]"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
         "a: has keys besides"},
        {"{\"a\":null}", 0, "a: expected {dtype, shape, data_offsets}"},
        {"{\"a\":[1]}", 0, "a: expected {dtype, shape, data_offsets}"},
        {"{\"__metadata__\":3}", 0, "__metadata__: expected an object of strings"},
        {"{\"__metadata__\":{\"step\":3}}", 0, "__metadata__.step: expected a string, got 3"},
        {"[]", 0, "does not begin with \"{\""},
        {" {}", 0, "does not begin with \"{\""},
        {"\xEF\xBB\xBF{}", 0, "does not begin with \"{\""},
        {"{", 0, "x.st:1:2: string or '}' expected"},
        {"{}{}", 0, "x.st:1:3: end of file expected"},
        {"{\"a\\u0000b\":{}}", 0, "NUL byte in object key"},
        {"{\"\\ud800\":{}}", 0, "invalid Unicode"},
        {"{\"\xFF\":{}}", 0, "unable to decode byte"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const enum ax_status st = parse_header(bad[i].header, bad[i].data);
        if (st != AX_ERR_DATA && st != AX_ERR_UNSUPPORTED)
            fail_msg("status %d for %s", st, bad[i].header);
        assert_mentions(bad[i].says);
    }
    print_message("%zu lying headers\n", sizeof bad / sizeof *bad);
}

static void unusual_but_true_headers_are_read(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
    } good[] = {
        {"{}", 0},
        {"{}  \n\t ", 0},
        {"{\"__metadata__\":{}}", 0},
        {"{\"__metadata__\":null}", 0},
        {"{" T("b", "U8", "[1]", "1", "2") "," T("a", "U8", "[1]", "0", "1") "}", 2},
        {"{" T("a", "U8", "[0]", "0", "0") "," T("b", "U8", "[0]", "0", "0") "}", 0},
        {"{" T("a", "U8", "[0]", "1", "1") "," T("b", "U8", "[1]", "0", "1") "}", 1},
        {"{" T("a", "BOOL", "[3]", "0", "3") "}", 3},
        {"{" T("a", "F64", "[0,1152921504606846975]", "0", "0") "}", 0},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (parse_header(good[i].header, good[i].data) != AX_OK)
            fail_msg("%s: %s", good[i].header, ax_error_text());
}

static void header_lengths_beyond_the_file_are_refused(void **state) {
    (void)state;
    static const uint64_t claims[] = {3,          4,          1ULL << 31,     1ULL << 32, 100000001,
                                      1ULL << 62, 1ULL << 63, UINT64_MAX - 7, UINT64_MAX};
    struct ax_safetensors st;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        struct image f = image_of(claims[i], "{}", 2, 0);
        const uint64_t calls = ax_mem_calls();
        assert_int_equal(ax_safetensors_parse(&st, "x.st", f.bytes, f.len), AX_ERR_DATA);
        assert_mentions("x.st: the header claims");
        assert_int_equal(ax_mem_calls(), calls); /* nothing was allocated for it */
        free(f.bytes);
    }
    for (size_t len = 0; len < 8; len++) {
        struct image f = image_of(0, "", 0, 0);
        assert_int_equal(ax_safetensors_parse(&st, "x.st", f.bytes, len), AX_ERR_DATA);
        assert_mentions("too small for a safetensors file");
        free(f.bytes);
    }
    assert_int_equal(parse_header("", 5), AX_ERR_DATA);
}

/* A header that fits its file but is beyond the cap: refused before anything is read or allocated.
 */
static void a_header_beyond_the_cap_is_refused(void **state) {
    (void)state;
    const uint64_t header = 100000001;
    struct image start = image_of(header, "{", 1, 0);
    const int fd = open(in_dir("big"), O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, start.bytes, start.len), start.len);
    assert_int_equal(ftruncate(fd, (off_t)header + 8), 0); /* sparse */
    close(fd);
    free(start.bytes);
    struct ax_safetensors st;
    const uint64_t calls = ax_mem_calls();
    assert_int_equal(ax_safetensors_open(&st, in_dir("big")), AX_ERR_DATA);
    assert_mentions("the limit is 100000000");
    assert_in_range(ax_mem_calls() - calls, 0, 1); /* its own path */
}

static void deep_and_wide_headers_are_refused(void **state) {
    (void)state;
    enum { DEEP = 100000, WIDE = 1000000 };
    char *text = malloc((size_t)WIDE * 12);
    assert_non_null(text);
    memset(text, '[', DEEP);
    memcpy(text, "{\"a\":", 5);
    text[DEEP] = '\0';
    assert_int_equal(parse_header(text, 0), AX_ERR_DATA);
    assert_mentions("nested deeper than");
    size_t at = 1;
    text[0] = '{';
    for (int i = 0; i < WIDE; i++)
        at += (size_t)sprintf(text + at, "%s\"%x\":0", i ? "," : "", (unsigned)i);
    memcpy(text + at, "}", 2);
    assert_int_equal(parse_header(text, 0), AX_ERR_DATA);
    assert_mentions("x.st: 0: expected {dtype, shape, data_offsets}");
    free(text);
}

/* The tensors of every accepted variant of the sample file must be the sample's. */
#define SAMPLE_W T("w", "F32", "[2,3]", "0", "24")
#define SAMPLE_B T("b", "BF16", "[5]", "24", "34")
#define SAMPLE_N T("n", "I64", "[]", "34", "42")
static struct image sample(void) {
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"}," SAMPLE_W "," SAMPLE_B "," SAMPLE_N "}  ";
    struct image f = image_of(sizeof header - 1, header, sizeof header - 1, 42);
    for (size_t i = 0; i < 42; i++)
        f.bytes[8 + sizeof header - 1 + i] = (unsigned char)(i * 7);
    return f;
}

/* By place in the data, since a flipped bit may rename a tensor; returns how many were renamed. */
static int compare_with_sample(const struct ax_safetensors *st, const unsigned char *data) {
    static const struct {
        const char *name;
        enum ax_dtype dtype;
        int ndim;
        int64_t first;
        size_t at, bytes;
    } truth[] = {
        {"w", AX_F32, 2, 2, 0, 24}, {"b", AX_BF16, 1, 5, 24, 10}, {"n", AX_I64, 0, 0, 34, 8}};
    int renamed = 0;
    assert_int_equal(st->n, 3);
    for (int i = 0; i < 3; i++) {
        int at = 0;
        while (at < 3 && st->entries[at].data != data + truth[i].at)
            at++;
        assert_in_range(at, 0, 2);
        const struct ax_st_entry *found = &st->entries[at];
        assert_int_equal(found->dtype, truth[i].dtype);
        assert_int_equal(found->ndim, truth[i].ndim);
        assert_int_equal(found->bytes, truth[i].bytes);
        assert_true(found->ndim == 0 || found->shape[0] == truth[i].first);
        renamed += strcmp(found->name, truth[i].name) != 0;
    }
    return renamed;
}

static void every_flipped_header_bit_is_found_or_harmless(void **state) {
    (void)state;
    struct image f = sample();
    const size_t header_end = f.len - 42;
    int refused = 0, renamed = 0, same = 0;
    const uint64_t live = ax_mem_live_blocks();
    for (size_t bit = 0; bit < 8 * header_end; bit++) {
        struct ax_safetensors st;
        f.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (ax_safetensors_parse(&st, "x.st", f.bytes, f.len) == AX_OK) {
            const int names = compare_with_sample(&st, f.bytes + header_end);
            assert_in_range(names, 0, 1);
            renamed += names;
            same += names == 0;
        } else {
            assert_int_equal(strncmp(ax_error_text(), "x.st", 4), 0);
            refused++;
        }
        ax_safetensors_close(&st);
        assert_int_equal(ax_mem_live_blocks(), live);
        f.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    print_message("%zu header bits flipped: %d refused, %d rename a tensor, %d only the metadata\n",
                  8 * header_end, refused, renamed, same);
    assert_in_range(renamed, 1, 3 * 8);
    assert_in_range(same, 1, 8 * (int)strlen("formatpt"));
    free(f.bytes);
}

static void every_truncation_is_found(void **state) {
    (void)state;
    const struct image f = sample();
    struct ax_safetensors st;
    for (size_t len = 0; len < f.len; len++) {
        unsigned char *cut = malloc(len + 1);
        assert_non_null(cut);
        memcpy(cut + 1, f.bytes, len); /* ends where the block ends */
        assert_int_equal(ax_safetensors_parse(&st, "x.st", cut + 1, len), AX_ERR_DATA);
        free(cut);
    }
    assert_int_equal(ax_safetensors_parse(&st, "x.st", f.bytes, f.len), AX_OK);
    assert_int_equal(compare_with_sample(&st, f.bytes + f.len - 42), 0);
    ax_safetensors_close(&st);
    unsigned char *grown = calloc(1, f.len + 1);
    assert_non_null(grown);
    memcpy(grown, f.bytes, f.len);
    assert_int_equal(ax_safetensors_parse(&st, "x.st", grown, f.len + 1), AX_ERR_DATA);
    assert_mentions("the last 1 of 43 data bytes do not belong to any tensor");
    print_message("cut at %zu lengths\n", f.len);
    free(grown);
    free(f.bytes);
}

static void what_is_not_a_file_is_refused(void **state) {
    (void)state;
    struct ax_safetensors st;
    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
    assert_int_equal(ax_safetensors_open(&st, in_dir("fifo")), AX_ERR_DATA); /* and does not wait */
    assert_mentions("fifo: not a regular file");
    assert_int_equal(ax_safetensors_open(&st, "/dev/zero"), AX_ERR_DATA);
    assert_mentions("/dev/zero: not a regular file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_that_lie_are_refused),
        cmocka_unit_test(unusual_but_true_headers_are_read),
        cmocka_unit_test(header_lengths_beyond_the_file_are_refused),
        cmocka_unit_test(a_header_beyond_the_cap_is_refused),
        cmocka_unit_test(deep_and_wide_headers_are_refused),
        cmocka_unit_test(every_flipped_header_bit_is_found_or_harmless),
        cmocka_unit_test(every_truncation_is_found),
        cmocka_unit_test(what_is_not_a_file_is_refused),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
