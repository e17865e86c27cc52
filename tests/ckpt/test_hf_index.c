/* The shard index: every lie in it is refused and named, and nothing outside the folder is opened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "ckpt/hf/index.h"
#include "tests/ckpt/folder.h"

#define SHAPE(...)                                                                                 \
    (const int64_t[]) {                                                                            \
        __VA_ARGS__                                                                                \
    }
#define INDEX "m/model.safetensors.index.json"

/* m/a.st holds "a1" and "a2", m/b.st holds "b". */
static int make_shards(void **state) {
    if (make_dir(state) != 0 || ax_mkdir(in_dir("m")) != AX_OK)
        return -1;
    const struct ax_st_output a[] = {output("a1", AX_F32, 1, SHAPE(2)),
                                     output("a2", AX_F32, 1, SHAPE(3))};
    const struct ax_st_output b = output("b", AX_F32, 1, SHAPE(4));
    return ax_safetensors_write(in_dir("m/a.st"), 2, a) == AX_OK &&
                   ax_safetensors_write(in_dir("m/b.st"), 1, &b) == AX_OK &&
                   ax_safetensors_write(in_dir("outside.st"), 1, &b) == AX_OK
               ? 0
               : -1;
}

static enum ax_status open_with(const char *index) {
    struct ax_hf hf;
    const uint64_t live = ax_mem_live_blocks();
    put_text(INDEX, index);
    const enum ax_status st = ax_hf_open(&hf, in_dir("m"));
    if (st != AX_OK) {
        assert_int_equal(strncmp(ax_error_text(), dir, strlen(dir)), 0); /* names the file */
        assert_null(hf.files);
    }
    ax_hf_close(&hf);
    assert_int_equal(ax_mem_live_blocks(), live);
    return st;
}

#define MAP(entries) "{\"weight_map\":{" entries "}}"
#define A            "\"a1\":\"a.st\",\"a2\":\"a.st\""
#define AB           A ",\"b\":\"b.st\""

static void a_true_index_is_read(void **state) {
    (void)state;
    assert_int_equal(open_with(MAP(AB)), AX_OK);
    assert_int_equal(open_with(MAP(A)), AX_OK);
    assert_int_equal(open_with("{\"metadata\":{\"total_size\":7},\"weight_map\":{\"b\":\"b.st\","
                               "\"a2\":\"a.st\",\"a1\":\"a.st\"},\"x\":0}"),
                     AX_OK);
}

static void shard_names_that_leave_the_folder_are_refused(void **state) {
    (void)state;
    static const char *const names[] = {
        "../outside.st", "/etc/passwd", "./b.st",     "sub/b.st", "..", ".", "b.st/", "",
        "a\\\\b.st",     "b\\n.st",     "..\\\\b.st", "\\u007f"};
    char index[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(index, sizeof index, MAP(A ",\"b\":\"%s\""), names[i]);
        put_text(INDEX, index);
        assert_int_equal(ax_fault_configure(NULL), AX_OK); /* zeroes the counters */
        struct ax_hf hf;
        assert_int_equal(ax_hf_open(&hf, in_dir("m")), AX_ERR_DATA);
        /* the folder above (for leftovers) and the index, but no shard */
        assert_in_range(ax_fault_count(AX_FAULT_OPEN), 1, 4);
        const int with_index = (int)ax_fault_count(AX_FAULT_OPEN);
        assert_mentions("weight_map.b: ");
        assert_mentions("is not a plain file name");
        put_text(INDEX, "{");
        assert_int_equal(ax_fault_configure(NULL), AX_OK);
        assert_int_equal(ax_hf_open(&hf, in_dir("m")), AX_ERR_DATA);
        assert_int_equal(ax_fault_count(AX_FAULT_OPEN), with_index);
    }
    assert_int_equal(open_with(MAP(A ",\"b\":\"b.st\\u0000\"")), AX_ERR_DATA);
    assert_mentions("contains a NUL");
    print_message("%zu shard names\n", sizeof names / sizeof *names + 1);
}

static void maps_that_lie_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *index, *says;
    } bad[] = {
        {MAP(A ",\"b\":\"c.st\""), "m/c.st: cannot open: No such file"},
        {MAP(A ",\"b\":\"a.st\""), "weight_map.b: a.st has no tensor of this name"},
        {MAP(A ",\"b\":\"b.st\",\"c\":\"b.st\""), "weight_map.c: b.st has no tensor of this name; "
                                                  "the index and its files are not of one save: "
                                                  "get the folder again"},
        {MAP("\"a1\":\"a.st\",\"b\":\"b.st\""), "weight_map: does not list tensor a2 of a.st; the "
                                                "index and its files are not of one save"},
        {MAP(A ",\"b\":\"b2.st\""), "weight_map.b: b2.st has no tensor of this name"},
        {MAP(A ",\"b\":\"b.st\",\"b\":\"b.st\""), "duplicate object key"},
        {MAP(A ",\"b\":\"a_copy.st\""), "has no tensor of this name"},
        {MAP("\"a1\":\"a.st\",\"a2\":\"a_copy.st\""), "does not list tensor a2 of a.st"},
        {MAP(""), "weight_map: names no tensor"},
        {"{}", "weight_map: expected an object"},
        {"[]", "weight_map: expected an object"},
        {"{\"weight_map\":[\"a.st\"]}", "weight_map: expected an object"},
        {MAP("\"b\":7"), "weight_map.b: expected a string, got 7"},
        {MAP("\"b\":null"), "weight_map.b: missing"},
        {MAP("\"b\":{}"), "weight_map.b: expected a string"},
        {"", "model.safetensors.index.json:1:1"},
        {"{\"weight_map\":{\"b\":\"b.st\"}", "model.safetensors.index.json:1:"},
    };
    const struct ax_st_output other = output("other", AX_F32, 1, SHAPE(4));
    assert_int_equal(ax_safetensors_write(in_dir("m/b2.st"), 1, &other), AX_OK);
    assert_int_equal(symlink("a.st", in_dir("m/a_copy.st")), 0); /* one file under two names */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const enum ax_status st = open_with(bad[i].index);
        if (st != AX_ERR_DATA && st != AX_ERR_IO)
            fail_msg("status %d for %s", st, bad[i].index);
        assert_mentions(bad[i].says);
    }
    print_message("%zu lying indexes\n", sizeof bad / sizeof *bad);
}

static void shards_that_are_no_files_are_refused(void **state) {
    (void)state;
    assert_int_equal(mkfifo(in_dir("m/fifo"), 0600), 0);
    assert_int_equal(ax_mkdir(in_dir("m/folder")), AX_OK);
    assert_int_equal(symlink("/dev/zero", in_dir("m/zero")), 0);
    assert_int_equal(open_with(MAP("\"b\":\"fifo\"")), AX_ERR_DATA);
    assert_mentions("m/fifo: not a regular file");
    assert_int_equal(open_with(MAP("\"b\":\"folder\"")), AX_ERR_DATA);
    assert_mentions("m/folder: not a regular file");
    assert_int_equal(open_with(MAP("\"b\":\"zero\"")), AX_ERR_DATA);
    assert_mentions("m/zero: not a regular file");
    assert_int_equal(symlink("nowhere", in_dir("m/dangling")), 0);
    assert_int_equal(open_with(MAP("\"b\":\"dangling\"")), AX_ERR_IO);
    assert_mentions("m/dangling: cannot open");
}

/* A damaged shard is named, not the index. */
static void a_damaged_shard_is_named(void **state) {
    (void)state;
    char *text;
    size_t len;
    assert_int_equal(ax_read_file(in_dir("m/b.st"), 4096, &text, &len), AX_OK);
    put_file("m/cut.st", text, len - 1);
    ax_free(text);
    assert_int_equal(open_with(MAP("\"b\":\"cut.st\"")), AX_ERR_DATA);
    assert_mentions("m/cut.st: b.data_offsets: range 0 to 16 is not within the 15 data bytes");
}

/* Time must grow with the index, not with its square. */
static void an_index_of_many_shards_is_quick(void **state) {
    (void)state;
    enum { MANY = 90000 };
    struct ax_buf b = {0};
    struct ax_hf_index ix;
    assert_int_equal(ax_buf_puts(&b, "{\"weight_map\":{"), AX_OK);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(ax_buf_printf(&b, "%s\"t%d\":\"s%d\"", i ? "," : "", i, MANY - i), AX_OK);
    assert_int_equal(ax_buf_puts(&b, "}}"), AX_OK);
    assert_int_equal(ax_hf_index_parse(&ix, "i.json", b.data, b.len), AX_OK);
    assert_int_equal(ix.n_shards, MANY);
    struct ax_safetensors *none = calloc(MANY, sizeof *none);
    assert_non_null(none);
    assert_int_equal(ax_hf_index_check(&ix, none), AX_ERR_DATA);
    assert_mentions("i.json: weight_map.t0: s90000 has no tensor of this name");
    free(none);
    ax_hf_index_free(&ix);
    ax_buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_true_index_is_read),
        cmocka_unit_test(shard_names_that_leave_the_folder_are_refused),
        cmocka_unit_test(maps_that_lie_are_refused),
        cmocka_unit_test(shards_that_are_no_files_are_refused),
        cmocka_unit_test(a_damaged_shard_is_named),
        cmocka_unit_test(an_index_of_many_shards_is_quick),
    };
    return cmocka_run_group_tests(tests, make_shards, remove_dir);
}
