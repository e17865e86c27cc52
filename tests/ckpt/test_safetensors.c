/* safetensors: what was written reads back to the bit, for every type and odd shape. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/ckpt/folder.h"

#define SHAPE(...)                                                                                 \
    (const int64_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }

static void write_and_compare(int n, const struct ax_st_output *t) {
    struct ax_safetensors st;
    const uint64_t live = ax_mem_live_blocks();
    const char *path = in_dir("x.safetensors");
    assert_int_equal(ax_safetensors_write(path, n, t), AX_OK);
    if (ax_safetensors_open(&st, path) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(st.n, n);
    for (int i = 0; i < n; i++) {
        assert_tensor(ax_safetensors_find(&st, t[i].name), &t[i]);
        assert_true(i == 0 || strcmp(st.entries[i - 1].name, st.entries[i].name) < 0);
    }
    assert_null(ax_safetensors_find(&st, "absent"));
    assert_null(ax_safetensors_find(&st, "~"));
    ax_safetensors_close(&st);
    ax_safetensors_close(&st);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void every_type_and_shape_comes_back(void **state) {
    (void)state;
    const struct ax_st_output t[] = {
        output("zz.last name first", AX_F32, 2, SHAPE(3, 5)),
        output("f64", AX_F64, 1, SHAPE(7)),
        output("bf16", AX_BF16, 2, SHAPE(5, 3)),
        output("f16", AX_F16, 3, SHAPE(1, 2, 3)),
        output("i64", AX_I64, 1, SHAPE(2)),
        output("i32", AX_I32, 1, SHAPE(1)),
        output("i8", AX_I8, 1, SHAPE(13)),
        output("u8", AX_U8, 1, SHAPE(3)),
        output("scalar", AX_F32, 0, NULL),
        output("none", AX_F32, 1, SHAPE(0)),
        output("none of many", AX_BF16, 3, SHAPE(4, 0, 9)),
        output("eight dimensions", AX_U8, 8, SHAPE(1, 2, 1, 3, 1, 2, 1, 2)),
        output("not aligned", AX_F64, 1, SHAPE(3)),
        output("", AX_U8, 1, SHAPE(1)),
        output("quote\" back\\slash \n \xC3\xA9 \xF0\x9F\x98\x80", AX_U8, 1, SHAPE(2)),
    };
    write_and_compare((int)(sizeof t / sizeof *t), t);
    write_and_compare(0, NULL);
    const struct ax_st_output empty = output("alone", AX_F64, 2, SHAPE(0, 3));
    write_and_compare(1, &empty);
}

/* Sizes of which no file can be are refused, not shortened to what fits a number. */
static void too_many_bytes_are_refused(void **state) {
    (void)state;
    const int64_t half = (int64_t)1 << 62;
    const struct ax_st_output one = output("large", AX_F32, 2, SHAPE(half / 2, 2));
    const struct ax_st_output two[] = {output("first", AX_U8, 1, SHAPE(half)),
                                       output("second", AX_U8, 2, SHAPE(2, half / 2))};
    const uint64_t live = ax_mem_live_blocks();
    assert_int_equal(ax_safetensors_write(in_dir("x.safetensors"), 1, &one), AX_ERR_DATA);
    assert_mentions("tensor large: its bytes: the product of 3 sizes exceeds 2^63");
    assert_int_equal(ax_safetensors_write(in_dir("x.safetensors"), 2, two), AX_ERR_DATA);
    assert_mentions("tensor second: it would end at more than 2^63 bytes");
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* A tensor of several pieces; `fill` must see ascending ranges that follow each other. */
struct walk {
    int64_t next, calls;
};
static enum ax_status fill_walk(void *ctx, int64_t first, int64_t n, void *out) {
    struct walk *w = ctx;
    assert_int_equal(first, w->next);
    assert_true(n > 0 && n <= 1 << 16);
    w->next = first + n;
    w->calls++;
    return fill_bytes("walk", 2, first, n, out);
}

static void large_tensors_are_filled_in_pieces(void **state) {
    (void)state;
    struct walk w = {0};
    struct ax_st_output t = output("walk", AX_BF16, 2, SHAPE(3, 700001));
    struct ax_safetensors st;
    t.fill = fill_walk;
    t.ctx = &w;
    assert_int_equal(ax_safetensors_write(in_dir("w"), 1, &t), AX_OK);
    assert_int_equal(w.next, 3 * 700001);
    assert_int_equal(w.calls, (3 * 700001 + (1 << 16) - 1) >> 16);
    assert_int_equal(ax_safetensors_open(&st, in_dir("w")), AX_OK);
    t.ctx = "walk";
    assert_tensor(&st.entries[0], &t);
    ax_safetensors_close(&st);
}

/* Sparse: it takes neither disk space nor time. */
static void offsets_beyond_four_gigabytes(void **state) {
    (void)state;
    static const char json[] =
        "{\"low\":{\"dtype\":\"U8\",\"shape\":[4294967307],\"data_offsets\":[0,4294967307]},"
        "\"high\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[4294967307,4294967312]}} ";
    const uint64_t header = sizeof json - 1, data = sizeof header + header;
    struct ax_safetensors st;
    FILE *f = fopen(in_dir("large"), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(&header, sizeof header, 1, f), 1);
    assert_int_equal(fwrite(json, header, 1, f), 1);
    assert_int_equal(fseeko(f, (off_t)(data + 4294967307U), SEEK_SET), 0);
    assert_int_equal(fwrite("hello", 5, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    if (ax_safetensors_open(&st, in_dir("large")) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_memory_equal(ax_safetensors_find(&st, "high")->data, "hello", 5);
    assert_int_equal(ax_safetensors_find(&st, "low")->numel, 4294967307);
    ax_safetensors_close(&st);
    assert_int_equal(unlink(in_dir("large")), 0);
}

static enum ax_status fill_fails(void *ctx, int64_t first, int64_t n, void *out) {
    (void)ctx;
    (void)out;
    return ax_error(AX_ERR_DIVERGED, "elements %lld to %lld are lost", (long long)first,
                    (long long)(first + n));
}

static void a_failing_fill_ends_the_write(void **state) {
    (void)state;
    const uint64_t live = ax_mem_live_blocks();
    struct ax_st_output t = output("x", AX_F32, 1, SHAPE(4));
    t.fill = fill_fails;
    assert_int_equal(ax_safetensors_write(in_dir("f"), 1, &t), AX_ERR_DIVERGED);
    assert_string_equal(ax_error_text(), "elements 0 to 4 are lost");
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* What other writers rely on: the length, the padding, the offsets in the order given. */
static void the_file_looks_as_the_format_says(void **state) {
    (void)state;
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                                 "\"a\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[4,8]}}";
    const struct ax_st_output t[] = {output("b", AX_F16, 1, SHAPE(2)),
                                     output("a", AX_I32, 0, NULL)};
    char *file;
    size_t len;
    assert_int_equal(ax_safetensors_write(in_dir("y"), 2, t), AX_OK);
    assert_int_equal(ax_read_file(in_dir("y"), 4096, &file, &len), AX_OK);
    const size_t padded = (strlen(header) + 7) / 8 * 8;
    assert_int_equal(len, 8 + padded + 8);
    assert_int_equal((unsigned char)file[0], padded);
    for (int i = 1; i < 8; i++)
        assert_int_equal(file[i], 0);
    assert_memory_equal(file + 8, header, strlen(header));
    for (size_t i = strlen(header); i < padded; i++)
        assert_int_equal(file[8 + i], ' ');
    assert_int_equal((unsigned char)file[8 + padded], made_up("b", 0));
    assert_int_equal((unsigned char)file[8 + padded + 4], made_up("a", 0));
    ax_free(file);
}

static void files_that_cannot_be_read_are_named(void **state) {
    (void)state;
    struct ax_safetensors st;
    assert_int_equal(ax_safetensors_open(&st, in_dir("absent")), AX_ERR_IO);
    assert_mentions("absent: cannot open: No such file");
    assert_int_equal(ax_safetensors_open(&st, dir), AX_ERR_DATA);
    assert_mentions("not a regular file");
    put_file("empty", "", 0);
    assert_int_equal(ax_safetensors_open(&st, in_dir("empty")), AX_ERR_DATA);
    assert_mentions("empty: 0 bytes is too small");
    assert_int_equal(ax_safetensors_write(in_dir("no/such/folder"), 0, NULL), AX_ERR_IO);
    assert_mentions("no/such/folder: cannot create");
}

/* Bytes of files that this process has in its memory. */
static double mapped(void) {
    long long all, resident, shared;
    FILE *f = fopen("/proc/self/statm", "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lld %lld %lld", &all, &resident, &shared), 3);
    fclose(f);
    return (double)shared * (double)sysconf(_SC_PAGESIZE);
}

static void touch(const struct ax_mapping *m) {
    volatile const unsigned char *bytes = m->data;
    for (size_t i = 0; i < m->len; i += 512)
        (void)bytes[i];
}

static enum ax_status nothing(void *ctx, int64_t first, int64_t n, void *out) {
    (void)ctx, (void)first, (void)n, (void)out;
    return AX_OK;
}

/* What was read gives its memory back; another form of the elements after the last one. */
static void dropped_elements_use_no_memory(void **state) {
    (void)state;
    enum { N = 8 << 20, SLACK = N / 16 };
    struct ax_mapping m;
    char *bytes;
    const char *path = in_dir("large");
    assert_int_equal(ax_alloc(&bytes, N, 1), AX_OK);
    assert_int_equal(ax_write_file_atomic(path, bytes, N), AX_OK);
    ax_free(bytes);
    assert_int_equal(ax_map_file(&m, path), AX_OK);
    const double none = mapped();
    struct ax_st_entry e = {.dtype = AX_F32, .numel = N / 4, .data = m.data, .bytes = N};
    touch(&m);
    assert_true(mapped() - none > N - SLACK);
    ax_st_drop(&e, N / 16, N / 16); /* the second quarter */
    assert_true(fabs(mapped() - none - 0.75 * N) < SLACK);
    ax_st_drop(&e, 0, N / 4);
    assert_true(mapped() - none < SLACK);
    e = (struct ax_st_entry){
        .dtype = AX_F32, .numel = 1000, .read = nothing, .stored = m.data, .stored_bytes = N / 2};
    touch(&m);
    ax_st_drop(&e, 0, 999);
    assert_true(mapped() - none > N - SLACK);
    ax_st_drop(&e, 999, 1);
    assert_true(fabs(mapped() - none - 0.5 * N) < SLACK);
    ax_unmap_file(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_shape_comes_back),
        cmocka_unit_test(too_many_bytes_are_refused),
        cmocka_unit_test(large_tensors_are_filled_in_pieces),
        cmocka_unit_test(offsets_beyond_four_gigabytes),
        cmocka_unit_test(a_failing_fill_ends_the_write),
        cmocka_unit_test(the_file_looks_as_the_format_says),
        cmocka_unit_test(files_that_cannot_be_read_are_named),
        cmocka_unit_test(dropped_elements_use_no_memory),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
