/* How Parquet files are read through DuckDB's C API, with a stand-in for the library (stub_duckdb.c
 * says what its files look like): chunks, nulls, texts of every length, failures at each stage, and
 * that nothing is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <sys/wait.h>

#include "tests/data/parquet_case.h"

static char *stub_fails; /* [32] */
static int *stub_live;

static void set_stage(const char *stage) {
    memcpy(stub_fails, stage, strlen(stage) + 1);
}

static struct ax_rows *open_rows(const char *path) {
    struct ax_rows *r;
    assert_ok(ax_rows_open(&r, &(struct ax_rows_options){.path = path}));
    return r;
}

static struct ax_raw_row next_row(struct ax_rows *r) {
    struct ax_raw_row row;
    bool got;
    assert_ok(ax_rows_next(r, &row, &got));
    assert_true(got);
    return row;
}

static void assert_ended(struct ax_rows *r) {
    struct ax_raw_row row;
    bool got;
    assert_ok(ax_rows_next(r, &row, &got));
    assert_false(got);
}

static void close_rows(struct ax_rows *r) {
    ax_rows_close(r);
    assert_int_equal(*stub_live, 0);
}

/* ---- rows ---- */

/* Rows of nested columns are the JSON that the library makes of them. */
static void rows_are_json(void **state) {
    (void)state;
    check(
        &(struct ax_rows_options){
            .path = put_text("chat.parquet", "PAR1\n{\"id\":7,\"messages\":[{\"role\":\"user\","
                                             "\"content\":\"say \\\"hé\\\"\\n\"},{\"role\":\"x\","
                                             "\"content\":null}],\"deep\":{\"a\":{\"b\":[1,2]}}}\n"
                                             "{\"id\":8,\"messages\":[]}\n--\n{}\n")},
        "1 {\"id\":7,\"messages\":[{\"role\":\"user\",\"content\":\"say \\\"hé\\\"\\n\"},"
        "{\"role\":\"x\",\"content\":null}],\"deep\":{\"a\":{\"b\":[1,2]}}}\n"
        "2 {\"id\":8,\"messages\":[]}\n3 {}\n");
    check(&(struct ax_rows_options){.path = put_text("empty.parquet", "PAR1\n")}, "");
    check(&(struct ax_rows_options){.path = put_text("holes.parquet",
                                                     "PAR1\n--\n--\n{\"i\":1}\n--\n--\n--\n"
                                                     "{\"i\":2}\n{\"i\":3}\n--\n--\n")},
          "1 {\"i\":1}\n2 {\"i\":2}\n3 {\"i\":3}\n");
    assert_int_equal(*stub_live, 0);
}

/* Texts of up to 12 bytes lie in the value, longer ones elsewhere. */
static void texts_of_every_length(void **state) {
    (void)state;
    struct ax_buf b = {0};
    assert_ok(ax_buf_puts(&b, "PAR1\n"));
    for (int n = 0; n < 40; n++)
        assert_ok(ax_buf_printf(&b, "%.*s\n", n, "0123456789abcdefghijklmnopqrstuvwxyzABCD"));
    struct ax_rows *r = open_rows(put_bytes("lengths.parquet", b.data, b.len));
    ax_buf_free(&b);
    for (size_t n = 0; n < 40; n++) {
        const struct ax_raw_row row = next_row(r);
        assert_int_equal(row.len, n);
        assert_memory_equal(row.text, "0123456789abcdefghijklmnopqrstuvwxyzABCD", n);
        assert_null(row.problem);
    }
    assert_ended(r);
    close_rows(r);
    /* 16 MiB is the most that a row may have */
    r = open_rows(put_text("long.parquet", "PAR1\n*16777216\n*16777217\n{}\n"));
    assert_int_equal(next_row(r).len, AX_ROWS_MAX_BYTES);
    const struct ax_raw_row row = next_row(r);
    assert_string_equal(row.problem, "a record of more than 16 MiB");
    assert_null(row.text);
    assert_int_equal(next_row(r).len, 2);
    close_rows(r);
}

/* Null or not, of row i of a chunk: each of the mask's words is another pattern. */
static bool is_null(size_t chunk, size_t i) {
    return (i * 2654435761U >> (3 + i / 64)) % 3 == 0 || i % 64 == chunk;
}

/* The mask has a bit for each row, in words of 64; chunks without nulls have no mask. */
static void nulls_in_every_word_of_the_mask(void **state) {
    (void)state;
    static const size_t sizes[] = {300, 64, 100, 65, 1, 2048, 129};
    enum { CHUNKS = sizeof sizes / sizeof *sizes };
    struct ax_buf b = {0};
    assert_ok(ax_buf_puts(&b, "PAR1\n"));
    for (size_t c = 0; c < CHUNKS; c++) {
        for (size_t i = 0; i < sizes[c]; i++) /* the third has none */
            assert_ok(c != 2 && is_null(c, i) ? ax_buf_puts(&b, "null\n")
                                              : ax_buf_printf(&b, "{\"%zu\":%zu}\n", c, i));
        assert_ok(ax_buf_puts(&b, "--\n"));
    }
    struct ax_rows *r = open_rows(put_bytes("nulls.parquet", b.data, b.len));
    ax_buf_free(&b);
    uint64_t line = 0;
    for (size_t c = 0; c < CHUNKS; c++)
        for (size_t i = 0; i < sizes[c]; i++) {
            char want[64];
            const struct ax_raw_row row = next_row(r);
            assert_int_equal(row.line, ++line);
            if (c != 2 && is_null(c, i)) {
                assert_string_equal(row.problem, "a record that is null");
                continue;
            }
            assert_null(row.problem);
            assert_int_equal(row.len, snprintf(want, sizeof want, "{\"%zu\":%zu}", c, i));
            assert_memory_equal(row.text, want, row.len);
        }
    assert_ended(r);
    close_rows(r);
}

/* A row with a null is reported and can be skipped; it does not end the file. */
static void nulls_are_named(void **state) {
    (void)state;
    json_t *v;
    struct ax_rows *r = open_rows(put_text("null.parquet", "PAR1\n{\"i\":1}\nnull\n{\"i\":3}\n"));
    (void)next_row(r);
    struct ax_raw_row row = next_row(r);
    assert_error(ax_rows_parse(r, &row, &v), AX_ERR_DATA, "null.parquet:2: a record that is null");
    row = next_row(r);
    assert_ok(ax_rows_parse(r, &row, &v));
    assert_int_equal(json_integer_value(json_object_get(v, "i")), 3);
    json_decref(v);
    close_rows(r);
}

/* ---- files ---- */

static void slices_splits_and_odd_names(void **state) {
    (void)state;
    make_folder("set/data");
    put_text("set/data/train-00000-of-00002.parquet",
             "PAR1\n{\"i\":0}\n--\n{\"i\":1}\n{\"i\":2}\n");
    put_text("set/data/train-00001-of-00002.parquet",
             "PAR1\n{\"i\":3}\n{\"i\":4}\n--\n{\"i\":5}\n");
    put_text("set/data/test_sft-00000-of-00001.parquet", "PAR1\n{\"i\":9}\n");
    const char *set = in_scratch("set");
    check(&(struct ax_rows_options){.path = set, .split = "train[2:4]"},
          "3 {\"i\":2}\n1 {\"i\":3}\n");
    check(&(struct ax_rows_options){.path = set, .split = "train[-1:]+test_sft"},
          "3 {\"i\":5}\n1 {\"i\":9}\n");
    check(&(struct ax_rows_options){.path = put_text("a=1[x]*?''.parquet", "PAR1\n{\"i\":1}\n")},
          "1 {\"i\":1}\n");
    check(&(struct ax_rows_options){.path = put_text("plain", "PAR1\n{\"i\":2}\n"),
                                    .format = "parquet"},
          "1 {\"i\":2}\n");
    assert_int_equal(*stub_live, 0);
}

static void rows_are_sought(void **state) {
    (void)state;
    struct ax_buf b = {0};
    assert_ok(ax_buf_puts(&b, "PAR1\n"));
    for (int i = 0; i < 500; i++)
        assert_ok(ax_buf_printf(&b, "{\"i\":%d}\n%s", i, i % 70 == 69 ? "--\n" : ""));
    struct ax_rows *r = open_rows(put_bytes("many.parquet", b.data, b.len));
    ax_buf_free(&b);
    static const int64_t places[] = {499, 0, 70, 69, 71, 71, 300, 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char want[32];
        assert_ok(ax_rows_seek(r, places[i]));
        const struct ax_raw_row row = next_row(r);
        assert_int_equal(row.index, places[i]);
        assert_int_equal(row.line, places[i] + 1);
        assert_int_equal(row.len, snprintf(want, sizeof want, "{\"i\":%d}", (int)places[i]));
        assert_memory_equal(row.text, want, row.len);
    }
    close_rows(r); /* in the middle of a chunk */
}

/* ---- failures ---- */

static void failures_of_every_stage(void **state) {
    (void)state;
    static const struct {
        const char *stage;
        enum ax_status st;
        const char *why;
    } stages[] = {
        {"config", AX_ERR_NOMEM, "one.parquet: out of memory for DuckDB"},
        {"open", AX_ERR_DATA, "one.parquet: IO Error: as asked"},
        {"connect", AX_ERR_FAILED, "one.parquet: cannot connect to DuckDB"},
        {"prepare", AX_ERR_DATA, "one.parquet: IO Error: as asked"},
        {"pending", AX_ERR_DATA, "one.parquet: IO Error: as asked"},
        {"execute", AX_ERR_DATA, "one.parquet: IO Error: as asked"},
    };
    char path[256];
    snprintf(path, sizeof path, "%s", put_text("one.parquet", "PAR1\n{\"i\":1}\n"));
    const struct ax_rows_options o = {.path = path};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        const uint64_t live = ax_mem_live_blocks();
        struct ax_buf got = {0};
        set_stage(stages[i].stage);
        assert_error(list_rows(&o, &got), stages[i].st, stages[i].why);
        assert_null(strchr(ax_error_text(), '\n'));
        assert_null(got.data);
        assert_int_equal(*stub_live, 0);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    set_stage("");
    check(&o, "1 {\"i\":1}\n");
    struct ax_buf got = {0};
    assert_error(
        list_rows(&(struct ax_rows_options){.path = put_text("b.parquet", "PAR no")}, &got),
        AX_ERR_DATA, "b.parquet: Invalid Input Error: No magic bytes found");
    assert_int_equal(*stub_live, 0);
}

/* What came before the failure was given out; the failure is named with the row it would be. */
static void failures_on_the_way(void **state) {
    (void)state;
    static const char *const files[] = {"PAR1\n! IO Error: torn\n",
                                        "PAR1\n{}\n{}\n! IO Error: torn\nand more\n",
                                        "PAR1\n{}\n{}\n--\n--\n! IO Error: torn\n"};
    for (int i = 0; i < 3; i++) {
        struct ax_buf got = {0};
        assert_error(
            list_rows(&(struct ax_rows_options){.path = put_text("torn.parquet", files[i])}, &got),
            AX_ERR_DATA, i == 0 ? "torn.parquet:1: IO Error: torn" : "torn.parquet:3: IO Error: t");
        assert_null(strchr(ax_error_text(), '\n'));
        if (i == 0)
            assert_null(got.data);
        else
            assert_string_equal(got.data, "1 {}\n2 {}\n");
        ax_buf_free(&got);
        assert_int_equal(*stub_live, 0);
    }
}

/* Where tools/get-duckdb puts it; in a process of its own, because the library is opened once. */
static void what_npm_installs_is_found(void **state) {
    (void)state;
    const char *path =
        in_scratch(".local/lib/axtrain/node_modules/@duckdb/node-bindings-linux-x64/libduckdb.so");
    char folder[256], stub[512];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    snprintf(stub, sizeof stub, "%s", getenv("AXTRAIN_DUCKDB"));
    assert_ok(ax_mkdir_parents(folder));
    assert_int_equal(symlink(stub, path), 0);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        struct ax_buf got = {0};
        unsetenv("AXTRAIN_DUCKDB");
        setenv("HOME", scratch, 1);
        const char *rows = put_text("home.parquet", "PAR1\n{}\n");
        _exit(list_rows(&(struct ax_rows_options){.path = rows}, &got) == AX_OK ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* The stand-in is beside this program. */
static int start(void **state) {
    char path[512];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
    if (n <= 0 || scratch_make(state) != 0)
        return -1;
    path[n] = '\0';
    strcpy(strrchr(path, '/'), "/stub_duckdb.so");
    void *stub = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!stub) {
        print_error("%s\n", dlerror());
        return -1;
    }
    stub_fails = dlsym(stub, "stub_fails");
    stub_live = dlsym(stub, "stub_live");
    return stub_fails && stub_live ? setenv("AXTRAIN_DUCKDB", path, 1) : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_npm_installs_is_found),
        cmocka_unit_test(rows_are_json),
        cmocka_unit_test(texts_of_every_length),
        cmocka_unit_test(nulls_in_every_word_of_the_mask),
        cmocka_unit_test(nulls_are_named),
        cmocka_unit_test(slices_splits_and_odd_names),
        cmocka_unit_test(rows_are_sought),
        cmocka_unit_test(failures_of_every_stage),
        cmocka_unit_test(failures_on_the_way),
    };
    return cmocka_run_group_tests(tests, start, scratch_remove);
}
