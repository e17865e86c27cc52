/* Data sets of a hub: only the files that are wanted come, once, and the rows are read from them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/records/rows/hub_dataset.h"
#include "tests/data/scratch.h"
#include "tests/hub_server.h"

static struct hub_server s;
static struct ax_hub hub;
static struct ax_hub_report report;

static const char card[] =
    "---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: main/train-*\n"
    "  - split: test\n    path: main/test-*\n- config_name: other\n  data_files: "
    "other/*.csv\n---\n";

static void add(const char *path, const char *text) {
    hub_add(&s, path, text, strlen(text), false);
}

static int start(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    memset(&s, 0, sizeof s);
    s.id = "org/set";
    s.kind = "datasets";
    hub_start(&s);
    unsetenv("HF_TOKEN");
    unsetenv("HF_HUB_OFFLINE");
    setenv("HOME", scratch, 1);
    setenv("HF_ENDPOINT", s.endpoint, 1);
    setenv("HF_HUB_CACHE", in_scratch("hub"), 1);
    assert_int_equal(ax_hub_open(&hub), AX_OK);
    hub.retry_seconds = 0.001;
    hub.quiet = true;
    return 0;
}

static int stop(void **state) {
    ax_hub_close(&hub);
    hub_stop(&s);
    return scratch_remove(state);
}

static void with_card(void) {
    add("README.md", card);
    add("main/test-00000.jsonl", "{\"i\": 9}\n");
    add("main/train-00000.jsonl", "{\"i\": 1}\n{\"i\": 2}\n");
    add("main/train-00001.jsonl", "{\"i\": 3}\n");
    add("other/a.csv", "x\n5\n");
    add("script.py", "print()");
}

static enum ax_status read_all(const struct ax_rows_options *o, struct ax_buf *out) {
    struct ax_rows *r;
    struct ax_raw_row row;
    bool got = true;
    AX_TRY(ax_hub_dataset_get(&hub, o, &report));
    AX_TRY(ax_rows_open(&r, o));
    enum ax_status st = AX_OK;
    while (st == AX_OK && (st = ax_rows_next(r, &row, &got)) == AX_OK && got)
        st = ax_buf_printf(out, "%.*s ", (int)row.len, row.text);
    ax_rows_close(r);
    return st;
}

static void reads(const struct ax_rows_options *o, const char *want) {
    struct ax_buf got = {0};
    const uint64_t live = ax_mem_live_blocks();
    if (read_all(o, &got) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_string_equal(got.data ? got.data : "", want);
    ax_buf_free(&got);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void reads_not(const struct ax_rows_options *o, enum ax_status status, const char *part) {
    struct ax_buf got = {0};
    const uint64_t live = ax_mem_live_blocks();
    assert_error(read_all(o, &got), status, part);
    ax_buf_free(&got);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static bool has(const char *path) {
    char name[160];
    snprintf(name, sizeof name, "hub/datasets--org--set/snapshots/" HUB_COMMIT "/%s", path);
    return ax_path_exists(in_scratch(name));
}

static void the_files_of_the_split_come_once(void **state) {
    (void)state;
    with_card();
    const struct ax_rows_options train = {.path = "org/set", .name = "main"};
    const struct ax_rows_options test = {.path = "org/set", .name = "main", .split = "test"};
    reads(&train, "{\"i\": 1} {\"i\": 2} {\"i\": 3} ");
    assert_true(has("README.md"));
    assert_false(has("main/test-00000.jsonl"));
    assert_false(has("other/a.csv"));
    const int before = s.connections;
    reads(&train, "{\"i\": 1} {\"i\": 2} {\"i\": 3} ");
    assert_int_equal(s.connections, before);
    assert_false(report.asked);
    reads(&test, "{\"i\": 9} ");
    assert_true(report.asked);
    reads(&(struct ax_rows_options){.path = "org/set", .name = "other"}, "5 ");
    reads(&(struct ax_rows_options){.path = "org/set", .name = "main", .split = "train[2:]+test"},
          "{\"i\": 3} {\"i\": 9} ");
    static const char *const files[] = {"main/*-00001.jsonl"};
    reads(
        &(struct ax_rows_options){
            .path = "org/set", .data_files = files, .n_data_files = 1, .revision = "v1"},
        "{\"i\": 3} ");
    static const char *const both[] = {"main/train-00001*", "main/test-*"};
    reads(
        &(struct ax_rows_options){
            .path = "org/set", .data_files = both, .n_data_files = 2, .revision = "v1"},
        "{\"i\": 3} {\"i\": 9} ");
}

static void mistakes_are_told_before_anything_comes(void **state) {
    (void)state;
    with_card();
    reads_not(&(struct ax_rows_options){.path = "org/set"}, AX_ERR_DATA,
              "org/set: the data set has several configurations; set name: to one of main, other");
    reads_not(&(struct ax_rows_options){.path = "org/set", .name = "mian"}, AX_ERR_DATA,
              "configuration \"mian\" is not available");
    reads_not(&(struct ax_rows_options){.path = "org/set", .name = "main", .split = "valid"},
              AX_ERR_DATA, "split \"valid\" is not available; expected one of train, test");
    reads_not(&(struct ax_rows_options){.path = "org/sett", .name = "main"}, AX_ERR_CONFIG,
              "has no such data set, or it is private. Check the spelling");
    static const char *const files[] = {"nothing/*"};
    reads_not(&(struct ax_rows_options){.path = "org/set", .data_files = files, .n_data_files = 1},
              AX_ERR_DATA, "data_files: no such file: nothing/*");
    assert_false(has("main/train-00000.jsonl"));
}

static void what_is_partly_there_is_not_taken_for_all(void **state) {
    (void)state;
    add("a.jsonl", "{\"i\": 1}\n");
    add("b.jsonl", "{\"i\": 2}\n");
    static const char *const files[] = {"a.jsonl"};
    const struct ax_rows_options one = {.path = "org/set", .data_files = files, .n_data_files = 1};
    const struct ax_rows_options all = {.path = "org/set"};
    reads(&one, "{\"i\": 1} ");
    hub.offline = true;
    const int before = s.connections;
    reads(&one, "{\"i\": 1} ");
    reads_not(&all, AX_ERR_CONFIG, "the local Hugging Face cache has no b.jsonl of it");
    reads_not(&(struct ax_rows_options){.path = "org/other"}, AX_ERR_CONFIG,
              "the local Hugging Face cache has no snapshot of it; HF_HUB_OFFLINE disables the "
              "network");
    reads_not(&(struct ax_rows_options){.path = "org/set", .revision = "v9"}, AX_ERR_CONFIG,
              "the local Hugging Face cache has no v9 of it");
    assert_int_equal(s.connections, before);
    hub.offline = false;
    reads(&all, "{\"i\": 1} {\"i\": 2} ");
}

static void what_other_tools_brought_is_used(void **state) {
    (void)state;
    make_folder("hub/datasets--org--set/refs");
    make_folder("hub/datasets--org--set/snapshots/abc");
    put_text("hub/datasets--org--set/refs/main", "abc");
    put_text("hub/datasets--org--set/snapshots/abc/train.jsonl", "{\"i\": 1}");
    reads(&(struct ax_rows_options){.path = "org/set"}, "{\"i\": 1} ");
    assert_int_equal(s.connections, 0);
}

static void only_code(void **state) {
    (void)state;
    add("README.md", "hello");
    add("set.py", "print()");
    reads_not(&(struct ax_rows_options){.path = "org/set"}, AX_ERR_UNSUPPORTED,
              "only Python code (set.py), which axtrain does not run. Try `revision: "
              "refs/convert/parquet`");
}

static void what_is_an_id(void **state) {
    (void)state;
    make_folder("here/now");
    assert_int_equal(chdir(scratch), 0);
    assert_true(ax_hub_dataset_is("org/set"));
    assert_false(ax_hub_dataset_is("here/now"));
    assert_false(ax_hub_dataset_is("data/train.jsonl"));
    assert_false(ax_hub_dataset_is("set"));
    assert_false(ax_hub_dataset_is("./set"));
    assert_false(ax_hub_dataset_is("a/b/c"));
    assert_false(ax_hub_dataset_is("a/*"));
    assert_false(ax_hub_dataset_is("-"));
    assert_int_equal(chdir("/"), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_files_of_the_split_come_once),
        TEST(mistakes_are_told_before_anything_comes),
        TEST(what_is_partly_there_is_not_taken_for_all),
        TEST(what_other_tools_brought_is_used),
        TEST(only_code),
        TEST(what_is_an_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
