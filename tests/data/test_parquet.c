/* Parquet files: nested columns come out as the JSON rows they stand for; slices; broken files; and
 * what is said where DuckDB's library is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/wait.h>

#include "data/records/rows/parquet.h"
#include "tests/data/parquet_case.h"

/* Runs SQL to its end. */
static void run(const char *sql) {
    struct ax_duckdb *d;
    const char *text;
    size_t len;
    bool got = true;
    if (ax_duckdb_open(&d, sql) != AX_OK)
        fail_msg("%s", ax_error_text());
    while (got)
        assert_int_equal(ax_duckdb_next(d, &text, &len, &got), AX_OK);
    ax_duckdb_close(d);
}

static void write_parquet(const char *name, const char *select) {
    char sql[2048];
    const int n =
        snprintf(sql, sizeof sql, "COPY (%s) TO '%s' (FORMAT parquet, ROW_GROUP_SIZE 2048)", select,
                 in_scratch(name));
    assert_true(n > 0 && (size_t)n < sizeof sql);
    run(sql);
}

static void nested_columns_are_the_json_they_stand_for(void **state) {
    (void)state;
    write_parquet("chat.parquet",
                  "SELECT 7 AS id, [{'role': 'user', 'content': 'say \"hé\"\n'}, {'role': "
                  "'assistant', 'content': NULL}] AS messages, {'a': {'b': [1, 2]}} AS deep "
                  "UNION ALL SELECT 8, [], {'a': {'b': NULL}} ORDER BY id");
    check(&(struct ax_rows_options){.path = in_scratch("chat.parquet")},
          "1 {\"id\":7,\"messages\":[{\"role\":\"user\",\"content\":\"say \\\"hé\\\"\\n\"},"
          "{\"role\":\"assistant\",\"content\":null}],\"deep\":{\"a\":{\"b\":[1,2]}}}\n"
          "2 {\"id\":8,\"messages\":[],\"deep\":{\"a\":{\"b\":null}}}\n");
    write_parquet("types.parquet",
                  "SELECT true AS b, -3::TINYINT AS i, 9007199254740993 AS l, 0.25::FLOAT AS f, "
                  "1.50::DECIMAL(6, 2) AS d, DATE '2024-02-29' AS t, MAP {'k': 1} AS m, NULL::INT "
                  "AS n, 'twelve bytes' AS s, 'thirteen byte' AS longer");
    check(&(struct ax_rows_options){.path = in_scratch("types.parquet")},
          "1 {\"b\":true,\"i\":-3,\"l\":9007199254740993,\"f\":0.25,\"d\":1.5,\"t\":\"2024-02-29\","
          "\"m\":{\"k\":1},\"n\":null,\"s\":\"twelve bytes\",\"longer\":\"thirteen byte\"}\n");
}

static void numbers_that_json_lacks_are_null(void **state) {
    (void)state;
    write_parquet("nan.parquet",
                  "SELECT 1 AS id, 'NaN' AS a, 'NaN'::DOUBLE AS b, {'x': ['-inf'::FLOAT, 2, "
                  "'inf'::FLOAT]} AS c, 'a \"b\" \\ Infinity' AS d, 'nan'::FLOAT AS e");
    check(&(struct ax_rows_options){.path = in_scratch("nan.parquet")},
          "1 {\"id\":1,\"a\":\"NaN\",\"b\":null,\"c\":{\"x\":[null,2.0,null]},\"d\":\"a \\\"b\\\" "
          "\\\\ Infinity\",\"e\":null}\n");
}

/* A column may have any name, also the ones that the query itself could have. */
static void names_of_columns(void **state) {
    (void)state;
    write_parquet("names.parquet",
                  "SELECT {'q': 1} AS r, 2 AS record, 3 AS \"a.b\", 4 AS filename, "
                  "5 AS \"x\"\"y\", {'r': {'r': 6}, 'R2': 7} AS s");
    check(&(struct ax_rows_options){.path = in_scratch("names.parquet")},
          "1 {\"r\":{\"q\":1},\"record\":2,\"a.b\":3,\"filename\":4,\"x\\\"y\":5,"
          "\"s\":{\"r\":{\"r\":6},\"R2\":7}}\n");
    /* siblings are told apart from members of others */
    write_parquet("apart.parquet", "SELECT {'a': 1, 'b': [{'a': 2}], 'c': {'A': 3}} AS a, MAP "
                                   "{'A': {'b': 4}} AS b, 5 AS c");
    check(
        &(struct ax_rows_options){.path = in_scratch("apart.parquet")},
        "1 {\"a\":{\"a\":1,\"b\":[{\"a\":2}],\"c\":{\"A\":3}},\"b\":{\"A\":{\"b\":4}},\"c\":5}\n");
}

/* Files that DuckDB cannot write, but other programs do. */
static void columns_that_would_change_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *name, *why;
    } files[] = {
        {"twins", "the columns \"text\" and \"Text\" have one name for DuckDB, which ignores case"},
        {"deep_twins", "the columns \"b\" and \"B\" have one name"},
        {"wide_decimal", "column \"price\": decimals of 50 digits, of which DuckDB reads 38"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct ax_buf got = {0};
        char path[128];
        snprintf(path, sizeof path, "tests/data/parquet/%s.parquet", files[i].name);
        assert_error(list_rows(&(struct ax_rows_options){.path = path}, &got), AX_ERR_DATA, path);
        assert_non_null(strstr(ax_error_text(), files[i].why));
        ax_buf_free(&got);
    }
}

static void slices_splits_and_odd_names(void **state) {
    (void)state;
    make_folder("set/data");
    write_parquet("set/data/train-00000-of-00002.parquet", "SELECT range AS i FROM range(3)");
    write_parquet("set/data/train-00001-of-00002.parquet", "SELECT range + 3 AS i FROM range(3)");
    write_parquet("set/data/test_sft-00000-of-00001.parquet", "SELECT 9 AS i");
    const char *set = in_scratch("set");
    check(&(struct ax_rows_options){.path = set, .split = "train[2:4]"},
          "3 {\"i\":2}\n1 {\"i\":3}\n");
    check(&(struct ax_rows_options){.path = set, .split = "train[-1:]+test_sft"},
          "3 {\"i\":5}\n1 {\"i\":9}\n");
    write_parquet("a=1[x]*?''.parquet", "SELECT 1 AS i");
    write_parquet("a=1x.parquet", "SELECT 2 AS i"); /* what the name would match as a pattern */
    check(&(struct ax_rows_options){.path = in_scratch("a=1[x]*?'.parquet")}, "1 {\"i\":1}\n");
    assert_int_equal(ax_rename(in_scratch("a=1x.parquet"), in_scratch("plain")), AX_OK);
    check(&(struct ax_rows_options){.path = in_scratch("plain"), .format = "parquet"},
          "1 {\"i\":2}\n");
}

static void many_rows_come_in_order_and_can_be_sought(void **state) {
    (void)state;
    struct ax_rows *r;
    struct ax_raw_row row;
    bool got = true;
    char want[64];
    write_parquet("many.parquet", "SELECT range AS i, repeat('x', 20) AS s FROM range(20000)");
    assert_int_equal(
        ax_rows_open(&r, &(struct ax_rows_options){.path = in_scratch("many.parquet")}), AX_OK);
    for (int64_t i = 0; i < 20000; i++) {
        assert_int_equal(ax_rows_next(r, &row, &got), AX_OK);
        const int n = snprintf(want, sizeof want, "{\"i\":%lld,\"s\":\"xxxxxxxxxxxxxxxxxxxx\"}",
                               (long long)i);
        assert_true(got && row.index == i && row.len == (size_t)n);
        assert_memory_equal(row.text, want, row.len);
    }
    assert_int_equal(ax_rows_next(r, &row, &got), AX_OK);
    assert_false(got);
    for (int64_t at = 15000; at >= 0; at -= 5000) {
        assert_int_equal(ax_rows_seek(r, at), AX_OK);
        assert_int_equal(ax_rows_next(r, &row, &got), AX_OK);
        assert_true(got && row.index == at && row.line == (uint64_t)at + 1);
    }
    json_t *about;
    assert_int_equal(ax_rows_describe(r, &about), AX_OK);
    assert_non_null(about);
    json_decref(about);
    ax_rows_close(r);
}

static void broken_files_are_named(void **state) {
    (void)state;
    struct ax_buf got = {0};
    char *data;
    size_t len;
    assert_error(
        list_rows(&(struct ax_rows_options){.path = put_text("b.parquet", "PAR1 no")}, &got),
        AX_ERR_DATA, "b.parquet: ");
    write_parquet("whole.parquet", "SELECT range AS i, md5(range::VARCHAR) AS s FROM range(9000)");
    assert_int_equal(ax_read_file(in_scratch("whole.parquet"), 1 << 24, &data, &len), AX_OK);
    for (size_t cut = 1; cut < len; cut += len / 13) {
        put_bytes("cut.parquet", data, cut);
        assert_error(list_rows(&(struct ax_rows_options){.path = in_scratch("cut.parquet")}, &got),
                     AX_ERR_DATA, "cut.parquet");
    }
    for (size_t i = 8; i < len - 8; i += len / 13) { /* changed bytes: an error, or other rows */
        data[i] = (char)(data[i] ^ 0x55);
        put_bytes("bad.parquet", data, len);
        (void)list_rows(&(struct ax_rows_options){.path = in_scratch("bad.parquet")}, &got);
        data[i] = (char)(data[i] ^ 0x55);
    }
    ax_free(data);
    ax_buf_free(&got);
}

/* Whether a file is refused in one line that has these parts; in a process of its own, because the
 * library is opened once in each. */
static void check_refused(const char *library, const char *why) {
    const char *path = put_text("p.parquet", "PAR1");
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        struct ax_buf got = {0};
        setenv("AXTRAIN_DUCKDB", library, 1);
        const bool ok =
            list_rows(&(struct ax_rows_options){.path = path}, &got) == AX_ERR_UNSUPPORTED &&
            strstr(ax_error_text(),
                   "p.parquet: cannot open DuckDB's library (1.1 or later), which reads Parquet") &&
            strstr(ax_error_text(), "npm install --prefix ~/.local/lib/axtrain "
                                    "@duckdb/node-bindings-linux-x64`") &&
            strstr(ax_error_text(), why) && !strchr(ax_error_text(), '\n');
        _exit(ok ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void no_library_is_one_line_with_the_remedy(void **state) {
    (void)state;
    check_refused("/nowhere/libduckdb.so", "/nowhere/libduckdb.so: cannot open");
    check_refused("libm.so.6", "libm.so.6 has no function duckdb_create_config; is it too old?");
}

static int start(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    return 0;
}

int main(void) {
    const struct CMUnitTest first[] = {
        cmocka_unit_test(no_library_is_one_line_with_the_remedy),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nested_columns_are_the_json_they_stand_for),
        cmocka_unit_test(numbers_that_json_lacks_are_null),
        cmocka_unit_test(names_of_columns),
        cmocka_unit_test(columns_that_would_change_are_refused),
        cmocka_unit_test(slices_splits_and_odd_names),
        cmocka_unit_test(many_rows_come_in_order_and_can_be_sought),
        cmocka_unit_test(broken_files_are_named),
    };
    int failed = cmocka_run_group_tests(first, start, scratch_remove);
    failed += cmocka_run_group_tests(tests, start, scratch_remove);
    return failed;
}
