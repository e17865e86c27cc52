/* The shard index: every lie in it is refused and named, and nothing outside the folder is opened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>
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
        {MAP(A ",\"b\":\"c.st\""), "m/c.st: cannot open: No such file or directory; "
                                   "model.safetensors.index.json names this file: get the folder "
                                   "again"},
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
    assert_mentions("get the folder again");
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

/* ---- without an index ---- */

static void put_shard(const char *name, const char *tensor) {
    char path[128];
    const struct ax_st_output t = output(tensor, AX_F32, 1, SHAPE(2));
    snprintf(path, sizeof path, "s/%s", name);
    assert_int_equal(ax_safetensors_write(in_dir(path), 1, &t), AX_OK);
}

/* The files by their names; each has one tensor, with the name of its place in the list, or the one after =. */
static enum ax_status open_shards(const char *list, const char *want) {
    struct ax_hf hf;
    char names[512], *rest = names;
    const uint64_t live = ax_mem_live_blocks();
    assert_int_equal(ax_remove_tree(in_dir("s")), AX_OK);
    assert_int_equal(ax_mkdir(in_dir("s")), AX_OK);
    snprintf(names, sizeof names, "%s", list);
    for (char c[2] = "a", *name; (name = strsep(&rest, " ")) != NULL; c[0]++) {
        char *tensor = strchr(name, '=');
        if (tensor)
            *tensor++ = '\0';
        put_shard(name, tensor ? tensor : c);
    }
    const enum ax_status st = ax_hf_open(&hf, in_dir("s"));
    if (st != AX_OK)
        assert_int_equal(strncmp(ax_error_text(), dir, strlen(dir)), 0);
    for (int i = 0; st == AX_OK && i < (int)strlen(want); i++)
        assert_true(ax_hf_count(&hf) == (int)strlen(want) && ax_hf_at(&hf, i)->name[0] == want[i]);
    ax_hf_close(&hf);
    assert_int_equal(ax_mem_live_blocks(), live);
    return st;
}

#define OF(n)    "-of-" n ".safetensors"
#define SHARD(i) "model-0000" i OF("00003")

static void complete_shards_are_read(void **state) {
    (void)state;
    assert_int_equal(open_shards(SHARD("3") " " SHARD("1") " " SHARD("2"), "bca"), AX_OK);
    assert_int_equal(open_shards("model-00001" OF("00001"), "a"), AX_OK);
    assert_int_equal(open_shards("model-00002" OF("000002") " model-00001" OF("000002"), "ba"),
                     AX_OK);
    /* other files are not shards */
    assert_int_equal(
        open_shards("model-00001" OF("00001") " x.safetensors model-00001" OF("x"), "a"), AX_OK);
}

static void incomplete_shards_are_named(void **state) {
    static const struct {
        const char *files, *says;
    } bad[] = {
        {SHARD("1") " " SHARD("3"),
         "s: there is no model.safetensors.index.json, and 1 of the 3 shards "
         "model-…-of-….safetensors are missing, the first of them number 2; get the folder again"},
        {SHARD("3"), "2 of the 3 shards"},
        {SHARD("1") " " SHARD("2") " " SHARD("3") " model-00001" OF("00002"),
         "there is no model.safetensors.index.json, and model-0000"},
        {SHARD("1") " " SHARD("2") " " SHARD("3") " model-00001" OF("00002"),
         "beside shards of another save, of which there are "},
        {SHARD("1") " " SHARD("2") " " SHARD("3") " model-1" OF("3"), "another save"},
        {SHARD("1") "=w " SHARD("2") " " SHARD("3") "=w", "tensor w is in model-0000"},
        {"model-00000" OF("00001"), "no weights: found neither"},
        {"model-00002" OF("00001"), "no weights: found neither"},
        {"model-00001" OF("100001"), "no weights: found neither"},
        {"model-00001" OF("99999999999999999999"), "no weights: found neither"},
        {"model-" OF("00001"), "no weights: found neither"},
        {"model-00001" OF(""), "no weights: found neither"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(open_shards(bad[i].files, ""), AX_ERR_DATA);
        assert_mentions(bad[i].says);
    }
}

/* A damaged one is named as any other file. */
static void a_cut_shard_is_named(void **state) {
    struct ax_hf hf;
    (void)state;
    assert_int_equal(open_shards(SHARD("1") " " SHARD("2") " " SHARD("3"), "abc"), AX_OK);
    put_text("s/" SHARD("2"), "x");
    assert_int_equal(ax_hf_open(&hf, in_dir("s")), AX_ERR_DATA);
    assert_mentions("s/" SHARD("2"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_true_index_is_read),
        cmocka_unit_test(shard_names_that_leave_the_folder_are_refused),
        cmocka_unit_test(maps_that_lie_are_refused),
        cmocka_unit_test(shards_that_are_no_files_are_refused),
        cmocka_unit_test(a_damaged_shard_is_named),
        cmocka_unit_test(an_index_of_many_shards_is_quick),
        cmocka_unit_test(complete_shards_are_read),
        cmocka_unit_test(incomplete_shards_are_named),
        cmocka_unit_test(a_cut_shard_is_named),
    };
    return cmocka_run_group_tests(tests, make_shards, remove_dir);
}
