/* How CSV and text files are divided: the delimiter that a header says, and lines, paragraphs, files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "data/records/rows/rows.h"
#include "tests/data/scratch.h"

/* Each record as LINE:JSON, separated by spaces; a bad one as its error text. */
static enum ax_status list_rows(const struct ax_rows_options *o, struct ax_buf *out) {
    struct ax_rows *r;
    AX_TRY(ax_rows_open(&r, o));
    enum ax_status st = ax_buf_puts(out, "");
    for (bool got = true; got && st == AX_OK;) {
        struct ax_raw_row row;
        json_t *v = NULL;
        st = ax_rows_next(r, &row, &got);
        if (st != AX_OK || !got)
            break;
        if (ax_rows_parse(r, &row, &v) == AX_OK) {
            char *text = json_dumps(v, JSON_COMPACT);
            st = ax_buf_printf(out, "%llu:%s ", (unsigned long long)row.line, text);
            ax_free(text);
        } else {
            st = ax_buf_printf(out, "! %s ", strrchr(ax_error_text(), '/') + 1);
        }
        json_decref(v);
    }
    ax_rows_close(r);
    return st;
}

static void check(const struct ax_rows_options *o, const char *want) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_buf got = {0};
    assert_ok(list_rows(o, &got));
    assert_string_equal(got.data, want);
    ax_buf_free(&got);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void check_fails(const struct ax_rows_options *o, enum ax_status status, const char *part) {
    struct ax_buf got = {0};
    assert_error(list_rows(o, &got), status, part);
    ax_buf_free(&got);
}

static void delimiters(void **state) {
    (void)state;
    static const struct {
        const char *name, *text;
        char delimiter;
        const char *want;
    } all[] = {
        {"a.csv", "q;a\n1,5;\"x;y\"\n", 0, "2:{\"q\":\"1,5\",\"a\":\"x;y\"} "},
        {"a.csv", "q\ta\n1;\t2\n", 0, "2:{\"q\":\"1;\",\"a\":\"2\"} "},
        {"a.csv", "q|a\n1|2\n", 0, "2:{\"q\":\"1\",\"a\":\"2\"} "},
        {"a.csv", "q;b,a\n1;2,3\n", 0, "2:{\"q;b\":\"1;2\",\"a\":\"3\"} "},
        {"a.csv", "q;b,a\n1;2,3\n", ';', "2:{\"q\":\"1\",\"b,a\":\"2,3\"} "},
        {"a.csv", "\"q,x\";a\n1;2\n", 0, "2:{\"q,x\":\"1\",\"a\":\"2\"} "},
        {"a.csv", "q;\"a\nb\"\n1;2\n", 0, "3:{\"q\":\"1\",\"a\\nb\":\"2\"} "},
        {"a.csv", "\xEF\xBB\xBFq;a\r\n1;2\r\n", 0, "2:{\"q\":\"1\",\"a\":\"2\"} "},
        {"a.csv", "\xEF\xBB\xBF\"Q\ntext\",A\na,b\n", 0, "3:{\"Q\\ntext\":\"a\",\"A\":\"b\"} "},
        {"a.csv", "\xEF\xBB\xBF\nq,a\n1,2\n", 0, "3:{\"q\":\"1\",\"a\":\"2\"} "},
        {"a.csv", "\xEF\xBB\xBF", 0, ""},
        {"a.csv", "text\nx\n", 0, "2:{\"text\":\"x\"} "},
        {"a.csv", "q;a\n1,2\n", 0, "! a.csv:2: 1 fields, but the header names 2 columns "},
        {"a.csv", "q#a\n1#2\n", '#', "2:{\"q\":\"1\",\"a\":\"2\"} "},
        {"a.tsv", "q, or so\ta\n1\t2\n", 0, "2:{\"q, or so\":\"1\",\"a\":\"2\"} "},
        {"a.tsv", "q;a\n1;2\n", 0, "2:{\"q\":\"1\",\"a\":\"2\"} "},
        {"a.csv", "", 0, ""},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check(&(struct ax_rows_options){.path = put_text(all[i].name, all[i].text),
                                        .delimiter = all[i].delimiter},
              all[i].want);
    check_fails(&(struct ax_rows_options){.path = put_text("a.jsonl", "{}\n"), .delimiter = ';'},
                AX_ERR_CONFIG, "a.jsonl is not CSV; remove the key, or set ds_type: csv");
}

/* Counting for a slice opens the file twice. */
static void opened_again(void **state) {
    (void)state;
    check(&(struct ax_rows_options){.path = put_text("a.csv", "q;\"a,b\"\n1;2\n3;4\n"),
                                    .split = "train[50%:]"},
          "3:{\"q\":\"3\",\"a,b\":\"4\"} ");
}

static void texts(void **state) {
    (void)state;
    static const char text[] = "\xEF\xBB\xBF\n a\r\nb\r\n \t\r\n\n\nc\n";
    static const struct {
        const char *text;
        enum ax_sample_by by;
        const char *want;
    } all[] = {
        {text, AX_SAMPLE_LINE, "2:{\"text\":\" a\"} 3:{\"text\":\"b\"} 7:{\"text\":\"c\"} "},
        {text, AX_SAMPLE_PARAGRAPH, "2:{\"text\":\" a\\nb\"} 7:{\"text\":\"c\"} "},
        {text, AX_SAMPLE_DOCUMENT, "1:{\"text\":\"\\n a\\nb\\n \\t\\n\\n\\nc\\n\"} "},
        {"a\n\nb", AX_SAMPLE_PARAGRAPH, "1:{\"text\":\"a\"} 3:{\"text\":\"b\"} "},
        {"a", AX_SAMPLE_DOCUMENT, "1:{\"text\":\"a\"} "},
        {"", AX_SAMPLE_DOCUMENT, ""},
        {"\n \n", AX_SAMPLE_DOCUMENT, ""},
        {"\n \n", AX_SAMPLE_PARAGRAPH, ""},
        {"a\n\xFF\n\nb", AX_SAMPLE_PARAGRAPH, "! a.txt:1: not UTF-8 text 4:{\"text\":\"b\"} "},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check(&(struct ax_rows_options){.path = put_text("a.txt", all[i].text),
                                        .sample_by = all[i].by},
              all[i].want);
    check_fails(&(struct ax_rows_options){.path = put_text("a.jsonl", "{}\n"),
                                          .sample_by = AX_SAMPLE_LINE,
                                          .sample_by_set = true},
                AX_ERR_CONFIG, "a.jsonl is not text; remove the key, or set ds_type: text");
}

/* A paragraph over pieces of the file, and one of more than a record may have. */
static void long_texts(void **state) {
    (void)state;
    const size_t n = AX_ROWS_MAX_BYTES + 103;
    char *text = test_malloc(n);
    memset(text, 'x', n);
    for (size_t i = 99; i < n; i += 100)
        text[i] = '\n';
    memcpy(text + n - 4, "\n\ny", 3);
    text[n - 1] = '\n';
    struct ax_rows_options o = {.path = put_bytes("a.txt", text, n),
                                .sample_by = AX_SAMPLE_PARAGRAPH};
    check(&o, "! a.txt:1: a record of more than 16 MiB 167776:{\"text\":\"y\"} ");
    memcpy(text + 1000003, "\n\n", 2);
    memcpy(text + n / 2, "\n\n", 2);
    o.path = put_bytes("a.txt", text, n);
    struct ax_buf got = {0};
    assert_ok(list_rows(&o, &got));
    assert_true(got.len > n && strncmp(got.data, "1:{\"text\":\"xxx", 13) == 0);
    static const char last[] = ":{\"text\":\"y\"} ";
    assert_string_equal(got.data + got.len - (sizeof last - 1), last);
    ax_buf_free(&got);
    memset(text, ' ', n); /* a blank line belongs to no paragraph, however long */
    memcpy(text, "a\nb\n", 4);
    memcpy(text + n - 3, "\ny\n", 3);
    o.path = put_bytes("a.txt", text, n);
    check(&o, "1:{\"text\":\"a\\nb\"} 4:{\"text\":\"y\"} ");
    o.path = put_bytes("a.txt", text + 4, n - 4);
    check(&o, "2:{\"text\":\"y\"} ");
    memset(text, 'x', n - 3); /* the paragraph before it stays too long */
    memcpy(text + AX_ROWS_MAX_BYTES + 1, "\n \n", 3);
    o.path = put_bytes("a.txt", text, n);
    got.len = 0;
    assert_ok(list_rows(&o, &got));
    assert_non_null(strstr(got.data, "! a.txt:1: a record of more than 16 MiB 3:{\"text\":\"x"));
    ax_buf_free(&got);
    test_free(text);
}

static void check_form(const struct ax_rows_options *o, bool doubts, const char *want) {
    struct ax_rows *r;
    struct ax_buf out = {0};
    assert_ok(ax_rows_open(&r, o));
    assert_ok(ax_buf_puts(&out, ""));
    assert_ok(ax_rows_put_form(r, doubts, &out));
    const char *slash = strrchr(out.data, '/');
    assert_string_equal(slash ? slash + 1 : out.data, want);
    ax_buf_free(&out);
    ax_rows_close(r);
}

static void forms(void **state) {
    (void)state;
    check_form(&(struct ax_rows_options){.path = put_text("a.csv", "q;a\n1;2\n")}, false,
               "a.csv: fields are separated by \";\", 2 columns: \"q\", \"a\"\n");
    check_form(&(struct ax_rows_options){.path = put_text("a.csv", "q;a\n1;2\n")}, true, "");
    check_form(&(struct ax_rows_options){.path = put_text("a.tsv", "q\ta;b\n")}, true,
               "a.tsv: the header has a tab and \";\"; fields are read as separated by a tab: if "
               "they are not, set delimiter\n");
    check_form(&(struct ax_rows_options){.path = put_text("a.tsv", "q\ta;b\n"), .delimiter = ';'},
               true, "");
    check_form(&(struct ax_rows_options){.path = put_text("a.csv", "\xFF\n")}, false, "");
    check_form(&(struct ax_rows_options){.path = put_text("a.jsonl", "{}\n")}, false, "");
    check_form(&(struct ax_rows_options){.path = put_text("a.txt", "x\n"),
                                         .sample_by = AX_SAMPLE_PARAGRAPH},
               false, "a.txt: a record per paragraph (sample_by: paragraph)\n");
}

static void check_unread(const struct ax_rows_options *o, const char *want) {
    struct ax_rows *r;
    struct ax_buf out = {0};
    assert_ok(ax_rows_open(&r, o));
    assert_ok(ax_rows_put_form(r, true, &out));
    ax_rows_close(r);
    assert_int_equal(out.len > 0, want != NULL);
    if (want)
        assert_memory_equal(out.data, want, strlen(want));
    if (want)
        assert_non_null(strstr(out.data, "set/a.jsonl\n"));
    ax_buf_free(&out);
}

static void files_without_a_split(void **state) {
    (void)state;
    static const char *const files[] = {"*.jsonl"};
    const char *const set = (make_folder("set"), in_scratch("set"));
    put_text("set/train.jsonl", "{}\n");
    check_unread(&(struct ax_rows_options){.path = set}, NULL);
    put_text("set/a.jsonl", "{}\n");
    check_unread(&(struct ax_rows_options){.path = set}, "1 file is not read: the name says no");
    put_text("set/b.jsonl", "{}\n");
    check_unread(&(struct ax_rows_options){.path = set, .split = "train[:1]+train[1:]"},
                 "2 files are not read: ");
    check_unread(&(struct ax_rows_options){.path = in_scratch("set/*.jsonl")},
                 "2 files are not read: ");
    check_unread(&(struct ax_rows_options){.path = in_scratch("set/a.jsonl")}, NULL);
    check_unread(&(struct ax_rows_options){.path = in_scratch("set/[ab].jsonl")}, NULL);
    check_unread(&(struct ax_rows_options){.path = set, .data_files = files, .n_data_files = 1},
                 NULL);
}

/* What is cached for one form is not taken for another. */
static void descriptions(void **state) {
    (void)state;
    const struct ax_rows_options all[] = {
        {.path = put_text("a.csv", "q;a\n")}, {.delimiter = ';'}, {.delimiter = ','}};
    json_t *v[3];
    for (int i = 0; i < 3; i++) {
        struct ax_rows_options o = all[i];
        struct ax_rows *r;
        o.path = all[0].path;
        assert_ok(ax_rows_open(&r, &o));
        assert_ok(ax_rows_describe(r, &v[i]));
        assert_non_null(v[i]);
        ax_rows_close(r);
    }
    assert_false(json_equal(v[0], v[1]) || json_equal(v[1], v[2]) || json_equal(v[0], v[2]));
    for (int i = 0; i < 3; i++)
        json_decref(v[i]);
}

/* As on an old Macintosh: all of the file would be the header. Inside of quotes, and of records, a
 * carriage return is text. */
static void carriage_returns_alone(void **state) {
    (void)state;
    static const char *const bad[] = {"q,a\r1,2\r3,4\r", "q\rx,a\n1,2\n", "\"q\",a\r\r\n1,2\n"};
    for (int i = 0; i < 3; i++)
        check_fails(&(struct ax_rows_options){.path = put_text("mac.csv", bad[i])}, AX_ERR_DATA,
                    "mac.csv:1: the header has a carriage return without a line feed");
    check(&(struct ax_rows_options){.path = put_text("mac.csv", "\"q\rx\",a\r\n1\r2,3\r\n")},
          "2:{\"q\\rx\":\"1\\r2\",\"a\":\"3\"} ");
}

/* What axtrain does not unpack is named, whatever the file's name says; a text may begin almost like it. */
static void other_packings(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *why;
    } all[] = {
        {"\xFD"
         "7zXZ\1",
         "xz data, which axtrain does not unpack: unpack the file with `xz -d`"},
        {"BZh91AY", "bzip2 data, which"},
        {"PK\3\4\1", "zip data, which"},
        {"7z\xBC\xAF\1", "7z data, which"},
        {"\x04\x22\x4D\x18\1", "lz4 data, which"},
    };
    static const char *const names[] = {"p.jsonl", "p.csv.xz", "p.txt", "p"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *path = put_text(names[i % 4], all[i].bytes);
        struct ax_buf got = {0};
        assert_error(list_rows(&(struct ax_rows_options){.path = path}, &got), AX_ERR_UNSUPPORTED,
                     all[i].why);
        assert_non_null(strstr(ax_error_text(), path));
        ax_buf_free(&got);
    }
    check(&(struct ax_rows_options){.path = put_text("p.txt", "BZh\nPK")},
          "1:{\"text\":\"BZh\"} 2:{\"text\":\"PK\"} ");
}

/* Wherever memory runs out while a record is parsed, the error is not that it is no text. */
static void memory_runs_out(void **state) {
    (void)state;
    for (int file = 0; file < 2; file++) {
        const uint64_t live = ax_mem_live_blocks();
        struct ax_rows_options o = {.path = file ? put_text("a.txt", "x\n")
                                                 : put_text("a.csv", "q,a\n1,2\n")};
        struct ax_raw_row row;
        struct ax_rows *r;
        bool got, fired = true;
        assert_ok(ax_rows_open(&r, &o));
        assert_ok(ax_rows_next(r, &row, &got));
        assert_true(got);
        for (int k = 1; fired; k++) {
            char spec[32];
            json_t *v = NULL;
            snprintf(spec, sizeof spec, "malloc:%d:enomem", k);
            assert_ok(ax_fault_configure(spec));
            const enum ax_status st = ax_rows_parse(r, &row, &v);
            fired = ax_fault_fired();
            assert_ok(ax_fault_configure(NULL));
            assert_int_equal(st, fired ? AX_ERR_NOMEM : AX_OK);
            assert_true(fired || k > 4);
            json_decref(v);
        }
        ax_rows_close(r);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delimiters),      cmocka_unit_test(opened_again),
        cmocka_unit_test(texts),           cmocka_unit_test(long_texts),
        cmocka_unit_test(forms),           cmocka_unit_test(descriptions),
        cmocka_unit_test(memory_runs_out), cmocka_unit_test(files_without_a_split),
        cmocka_unit_test(other_packings),  cmocka_unit_test(carriage_returns_alone),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
