/* Rows: what is read from each kind of file, with its place; slices, splits, shards; and files that
 * are broken, cut, hostile or huge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "data/records/rows/rows.h"
#include "data/records/rows/shuffle.h"
#include "tests/data/scratch.h"

/* All rows, one line each: "FILE:LINE index JSON", FILE without its folder; a bad row gives its
 * error text. */
static enum ax_status list_rows(const struct ax_rows_options *o, struct ax_buf *out) {
    struct ax_rows *r;
    AX_TRY(ax_rows_open(&r, o));
    enum ax_status st = AX_OK;
    for (;;) {
        struct ax_raw_row row;
        bool got;
        AX_TRY_GOTO(ax_rows_next(r, &row, &got), st, done);
        if (!got)
            break;
        json_t *v = NULL;
        if (ax_rows_parse(r, &row, &v) != AX_OK) {
            const char *slash = strrchr(ax_error_text(), '/');
            AX_TRY_GOTO(ax_buf_printf(out, "! %s\n", slash ? slash + 1 : ax_error_text()), st,
                        done);
            continue;
        }
        const char *file = ax_rows_file(r, row.file);
        const char *slash = strrchr(file, '/');
        char *text = json_dumps(v, JSON_COMPACT);
        st = ax_buf_printf(out, "%s:%llu %lld %s\n", slash ? slash + 1 : file,
                           (unsigned long long)row.line, (long long)row.index, text);
        ax_free(text);
        json_decref(v);
        if (st != AX_OK)
            break;
    }
done:
    ax_rows_close(r);
    return st;
}

static void check_options(const struct ax_rows_options *o, const char *want) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_buf got = {0};
    assert_ok(list_rows(o, &got));
    assert_string_equal(got.data ? got.data : "", want);
    ax_buf_free(&got);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void check(const char *path, const char *want) {
    check_options(&(struct ax_rows_options){.path = path}, want);
}

static void check_fails(const struct ax_rows_options *o, enum ax_status status, const char *part) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_buf got = {0};
    assert_error(list_rows(o, &got), status, part);
    ax_buf_free(&got);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void json_lines(void **state) {
    (void)state;
    check(put_text("a.jsonl",
                   "\xEF\xBB\xBF{\"a\": 1}\n\n  \t\r\n{\"a\": \"x\\u0000y\"}\r\n{\"b\": null}"),
          "a.jsonl:1 0 {\"a\":1}\na.jsonl:4 1 {\"a\":\"x\\u0000y\"}\na.jsonl:5 2 {\"b\":null}\n");
    check(put_text("empty.jsonl", ""), "");
    check(put_text("blank.jsonl", "\n \n"), "");
    check(put_text("noname", "{\"a\": 1}"), "noname:1 0 {\"a\":1}\n");
}

static void bad_json_lines(void **state) {
    (void)state;
    check(
        put_text("b.jsonl", "{\"a\": 1}\n{\"a\": }\n[1]\n{\"a\": \"\xFF\"}\n{\"a\": 1, \"a\": 2}\n"
                            "{\"a\": \"\\ud800\"}\n{\"a\": NaN}\n\"text\"\n{\"a\": 2}\n"),
        "b.jsonl:1 0 {\"a\":1}\n"
        "! b.jsonl:2:7: unexpected token near '}'\n"
        "! b.jsonl:3: expected an object, {\"column\": value, …}\n"
        "! b.jsonl:4:7: unable to decode byte 0xff near '\"'\n"
        "! b.jsonl:5:10: duplicate object key near '\"a\"'\n"
        "! b.jsonl:6:7: invalid Unicode '\\uD800' near '\"\\ud800\"'\n"
        "! b.jsonl:7:7: NaN and Infinity are not JSON numbers, though Python writes them; put null "
        "or a number in its place\n"
        "! b.jsonl:8: expected an object, {\"column\": value, …}\n"
        "b.jsonl:9 8 {\"a\":2}\n");
}

static void json_lists(void **state) {
    (void)state;
    check(put_text("l.json", "\n [ {\"a\": [1, {\"b\": \"]}\\\"\"}]} ,\n\n {\"a\":\n 2}\n]\n"),
          "l.json:2 0 {\"a\":[1,{\"b\":\"]}\\\"\"}]}\nl.json:4 1 {\"a\":2}\n");
    check(put_text("e.json", "[]"), "");
    check(put_text("s.json", "[1, \"x\", {\"a\": 1}, [2], {\"a\": }]"),
          "! s.json:1: expected an object, {\"column\": value, …}\n"
          "! s.json:1: expected an object, {\"column\": value, …}\n"
          "s.json:1 2 {\"a\":1}\n"
          "! s.json:1: expected an object, {\"column\": value, …}\n"
          "! s.json:1:7: unexpected token near '}'\n");
    static const char *const broken[][2] = {
        {"[{\"a\": 1}", "l.json:1: the file ends before the list's \"]\""},
        {"[{\"a\": 1},\n]", "l.json:2: expected a record in the list of records, got \"]\""},
        {"[{\"a\": 1}\n{}]", "l.json:2: expected \",\" or \"]\""},
        {"[\n\n{\"a\": ", "l.json:3: the file ends inside this record"},
        {"[,{}]", "l.json:1: expected a record or \"]\" in the list of records, got \",\""},
        {"[{},,{}]", "l.json:1: expected a record in the list of records, got \",\""},
        {"[{},", "l.json:1: the file ends before the list's \"]\""},
        {"[{}] {}", "l.json:1: text after the list"},
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        check_fails(&(struct ax_rows_options){.path = put_text("l.json", broken[i][0])},
                    AX_ERR_DATA, broken[i][1]);
    /* a byte of 0 is not the end */
    check_fails(&(struct ax_rows_options){.path = put_bytes("l.json", "[{}]\0{}", 7)}, AX_ERR_DATA,
                "l.json:1: text after the list of records");
    check_fails(&(struct ax_rows_options){.path = put_bytes("l.json", "[{}\0,{}]", 8)}, AX_ERR_DATA,
                "l.json:1: expected \",\" or \"]\" in the list of records, got the byte 0");
    check_fails(&(struct ax_rows_options){.path = put_bytes("l.json", "[\0{}]", 5)}, AX_ERR_DATA,
                "expected a record or \"]\" in the list of records, got the byte 0");
}

static void csv(void **state) {
    (void)state;
    check(
        put_text("c.csv", "\xEF\xBB\xBFq,a\r\n1,\"x,\"\"y\"\"\nz\"\r\n\n ,\n\"5\"\" disk\",b\"c\n"),
        "c.csv:2 0 {\"q\":\"1\",\"a\":\"x,\\\"y\\\"\\nz\"}\n"
        "c.csv:5 1 {\"q\":\" \",\"a\":\"\"}\n"
        "c.csv:6 2 {\"q\":\"5\\\" disk\",\"a\":\"b\\\"c\"}\n");
    check(put_text("c.tsv", "q\ta\n1,2\t\"x\ty\"\n"),
          "c.tsv:2 0 {\"q\":\"1,2\",\"a\":\"x\\ty\"}\n");
    check(put_text("n.csv", "q,a\n1\n1,2,3\n1,\xFF\n1,2"),
          "! n.csv:2: 1 fields, but the header names 2 columns\n"
          "! n.csv:3: 3 fields, but the header names 2 columns\n"
          "! n.csv:4: column \"a\": not UTF-8 text\n"
          "n.csv:5 3 {\"q\":\"1\",\"a\":\"2\"}\n");
    check(put_text("h.csv", "q,a"), "");
    check_fails(&(struct ax_rows_options){.path = put_text("d.csv", "q,q\n1,2\n")}, AX_ERR_DATA,
                "d.csv:1: two columns are named \"q\"");
    check_fails(&(struct ax_rows_options){.path = put_text("o.csv", "q,a\n1,2\n3,\"4\n5,6\n")},
                AX_ERR_DATA, "o.csv:3: a quote opened in this row is never closed");
}

static void text(void **state) {
    (void)state;
    check(put_text("t.txt", "one\r\n\n two \nthr\xC3\xA9\x65"),
          "t.txt:1 0 {\"text\":\"one\"}\nt.txt:3 1 {\"text\":\" two \"}\n"
          "t.txt:4 2 {\"text\":\"thrée\"}\n");
    /* a byte order mark is one at the start of the file alone, and nothing else is cut */
    check(put_text("bom.txt", "\xEF\xBB\xBFone\n\xEF\xBB\xBFtwo\n"),
          "bom.txt:1 0 {\"text\":\"one\"}\nbom.txt:2 1 {\"text\":\"\xEF\xBB\xBFtwo\"}\n");
    check(put_text("only.txt", "\xEF\xBB\xBF"), "");
    check(put_text("blank.txt", "\xEF\xBB\xBF \r\nx"), "blank.txt:2 0 {\"text\":\"x\"}\n");
    check(put_text("part.txt", "\xEF\xBB"), "! part.txt:1: not UTF-8 text\n");
    check(put_text("u.txt", "\xFF\nok"),
          "! u.txt:1: not UTF-8 text\nu.txt:2 1 {\"text\":\"ok\"}\n");
    check_options(&(struct ax_rows_options){.path = put_text("f.jsonl", "{}\n"), .format = "text"},
                  "f.jsonl:1 0 {\"text\":\"{}\"}\n");
}

/* gzip data of `text`, appended to out. */
static void gzip(struct ax_buf *out, const char *text, size_t len) {
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    unsigned char *packed;
    const size_t cap = deflateBound(&z, len);
    assert_ok(ax_alloc(&packed, cap, 1));
    z.next_in = (unsigned char *)(uintptr_t)text;
    z.avail_in = (unsigned)len;
    z.next_out = packed;
    z.avail_out = (unsigned)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    assert_ok(ax_buf_append(out, packed, cap - z.avail_out));
    deflateEnd(&z);
    ax_free(packed);
}

static void zstd(struct ax_buf *out, const char *text, size_t len) {
    char *packed;
    const size_t cap = ZSTD_compressBound(len);
    assert_ok(ax_alloc(&packed, cap, 1));
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    const size_t n = ZSTD_compress2(c, packed, cap, text, len);
    ZSTD_freeCCtx(c);
    assert_false(ZSTD_isError(n));
    assert_ok(ax_buf_append(out, packed, n));
    ax_free(packed);
}

/* 40,000 rows of about 30 bytes: several pieces, plain and packed. */
static void many_rows(struct ax_buf *text) {
    for (int i = 0; i < 40000; i++)
        assert_ok(
            ax_buf_printf(text, "{\"i\": %d, \"x\": \"%08x\"}\n", i, (unsigned)i * 2654435761U));
}

static void count_rows(const char *path) {
    struct ax_rows *r;
    assert_ok(ax_rows_open(&r, &(struct ax_rows_options){.path = path}));
    bool got = true;
    for (int64_t i = 0; i <= 40000; i++) {
        struct ax_raw_row row;
        assert_ok(ax_rows_next(r, &row, &got));
        assert_int_equal(got, i < 40000);
        if (!got)
            break;
        assert_int_equal(row.line, i + 1);
        json_t *v;
        assert_ok(ax_rows_parse(r, &row, &v));
        assert_int_equal(json_integer_value(json_object_get(v, "i")), i);
        json_decref(v);
    }
    ax_rows_close(r);
}

static void packed_files(void **state) {
    (void)state;
    struct ax_buf text = {0};
    struct ax_buf packed = {0};
    many_rows(&text);
    count_rows(put_bytes("m.jsonl", text.data, text.len));
    gzip(&packed, text.data, text.len / 2); /* two members, cut in the middle of a row */
    gzip(&packed, text.data + text.len / 2, text.len - text.len / 2);
    count_rows(put_bytes("m.jsonl.gz", packed.data, packed.len));
    for (size_t cut = 3; cut < packed.len; cut += packed.len / 7)
        check_fails(&(struct ax_rows_options){.path = put_bytes("x.jsonl.gz", packed.data, cut)},
                    AX_ERR_DATA, "truncated");
    struct ax_buf named = {0}; /* its header, with a name of 300 KiB, is longer than a piece */
    assert_ok(ax_buf_append(&named, "\x1f\x8b\x08\x08\0\0\0\0\0\x03", 10));
    for (int i = 0; i < 300 << 10; i++)
        assert_ok(ax_buf_append(&named, i % 80 ? "n" : "/", 1));
    assert_ok(ax_buf_append(&named, "", 1));
    assert_int_equal(packed.data[3], 0); /* the first member has only the 10 bytes */
    assert_ok(ax_buf_append(&named, packed.data + 10, packed.len - 10));
    count_rows(put_bytes("n.jsonl.gz", named.data, named.len));
    ax_buf_free(&named);
    const size_t sound = packed.len;
    char zeros[4096] = {0}; /* as of tar and tapes, in this and in the next pieces */
    for (int i = 0; i < 100; i++)
        assert_ok(ax_buf_append(&packed, zeros, sizeof zeros));
    count_rows(put_bytes("z.jsonl.gz", packed.data, packed.len));
    assert_ok(ax_buf_puts(&packed, "text"));
    check_fails(&(struct ax_rows_options){.path = put_bytes("z.jsonl.gz", packed.data, packed.len)},
                AX_ERR_DATA, "corrupted gzip data");
    packed.len = sound;
    packed.data[packed.len / 3] ^= 0x10;
    check_fails(&(struct ax_rows_options){.path = put_bytes("y.jsonl.gz", packed.data, packed.len)},
                AX_ERR_DATA, "corrupted gzip data");
    packed.len = 0;
    zstd(&packed, text.data, text.len / 2);
    zstd(&packed, text.data + text.len / 2, text.len - text.len / 2);
    count_rows(put_bytes("m.jsonl.zst", packed.data, packed.len));
    for (size_t cut = 5; cut < packed.len / 2; cut += packed.len / 9)
        check_fails(&(struct ax_rows_options){.path = put_bytes("x.jsonl.zst", packed.data, cut)},
                    AX_ERR_DATA, "truncated");
    packed.data[packed.len / 3] ^= 0x10;
    check_fails(
        &(struct ax_rows_options){.path = put_bytes("y.jsonl.zst", packed.data, packed.len)},
        AX_ERR_DATA, "y.jsonl.zst:");
    ax_buf_free(&packed);
    ax_buf_free(&text);
}

/* A frame of zstd --long=27, and one of --long=28, whose data is sound. */
static void zstd_windows(void **state) {
    (void)state;
    char frame[] = "\x28\xB5\x2F\xFD\0\x88\x11\0\0{}";
    check(put_bytes("w.jsonl.zst", frame, sizeof frame - 1), "w.jsonl.zst:1 0 {}\n");
    frame[5] += 8;
    check_fails(
        &(struct ax_rows_options){.path = put_bytes("w.jsonl.zst", frame, sizeof frame - 1)},
        AX_ERR_UNSUPPORTED,
        "w.jsonl.zst:1: the zstd data needs a window of more than 128 MiB of memory; compress it");
}

/* A byte order mark whose bytes a decoder returns one by one, and one that is the whole file. */
static void packed_byte_order_marks(void **state) {
    (void)state;
    static const char text[] = "\xEF\xBB\xBF\"q\n\",a\n1,2\n";
    const size_t n = sizeof text - 1;
    for (int packing = 0; packing < 2; packing++) {
        struct ax_buf packed = {0};
        for (size_t i = 0; i < n; i++)
            (packing ? zstd : gzip)(&packed, text + i, 1);
        check(put_bytes("b.csv.gz", packed.data, packed.len),
              "b.csv.gz:3 0 {\"q\\n\":\"1\",\"a\":\"2\"}\n");
        packed.len = 0;
        (packing ? zstd : gzip)(&packed, text, 3);
        check(put_bytes("b.txt.gz", packed.data, packed.len), "");
        ax_buf_free(&packed);
    }
}

/* A row of 1 GB, out of a gzip file of 1 MB: a bad row, not memory. */
static void huge_row(void **state) {
    (void)state;
    static char block[1 << 20];
    memset(block, 'x', sizeof block);
    char name[96];
    snprintf(name, sizeof name, "%s", in_scratch("huge.jsonl.gz"));
    gzFile f = gzopen(name, "wb1");
    assert_non_null(f);
    gzputs(f, "{\"a\": 1}\n{\"a\": \"");
    for (int i = 0; i < 1024; i++)
        assert_int_equal(gzwrite(f, block, sizeof block), sizeof block);
    gzputs(f, "\"}\n{\"a\": 3}\n");
    assert_int_equal(gzclose(f), Z_OK);
    const uint64_t before = ax_mem_peak_rss();
    check(name, "huge.jsonl.gz:1 0 {\"a\":1}\n"
                "! huge.jsonl.gz:2: a record of more than 16 MiB\n"
                "huge.jsonl.gz:3 2 {\"a\":3}\n");
    assert_true(ax_mem_peak_rss() - before < (uint64_t)64 << 20);
}

/* Too long a row in a list or a CSV file, and what stands behind it. */
static void long_elements(void **state) {
    (void)state;
    struct ax_buf b = {0};
    char *x;
    const size_t n = AX_ROWS_MAX_BYTES + 1;
    assert_ok(ax_alloc(&x, n, 1));
    memset(x, 'x', n);
    assert_ok(ax_buf_puts(&b, "[{\"a\": 1},\n{\"a\": \""));
    assert_ok(ax_buf_append(&b, x, n));
    assert_ok(ax_buf_puts(&b, "\"},\n{\"a\": 3}]"));
    check(put_bytes("long.json", b.data, b.len), "long.json:1 0 {\"a\":1}\n"
                                                 "! long.json:2: a record of more than 16 MiB\n"
                                                 "long.json:3 2 {\"a\":3}\n");
    b.len = 0;
    assert_ok(ax_buf_puts(&b, "a\n1\n\""));
    assert_ok(ax_buf_append(&b, x, n));
    assert_ok(ax_buf_puts(&b, "\"\n3\n"));
    check(put_bytes("long.csv", b.data, b.len), "long.csv:2 0 {\"a\":\"1\"}\n"
                                                "! long.csv:3: a record of more than 16 MiB\n"
                                                "long.csv:4 2 {\"a\":\"3\"}\n");
    check_fails(&(struct ax_rows_options){.path = put_bytes("head.csv", x, n)}, AX_ERR_DATA,
                "head.csv:1: a header line of more than 16 MiB");
    b.len = 0;
    for (int i = 0; i < 20000; i++)
        assert_ok(ax_buf_printf(&b, "%s%d", i ? "," : "", i));
    check_fails(&(struct ax_rows_options){.path = put_bytes("wide.csv", b.data, b.len)},
                AX_ERR_DATA, "wide.csv:1: more than 10000 columns");
    ax_buf_free(&b);
    ax_free(x);
}

/* Rows that are large in other ways than bytes, or hold what no row should. */
static void hostile_rows(void **state) {
    (void)state;
    static const bool good[] = {true, false, false, false, true, false, true};
    struct ax_buf b = {0};
    assert_ok(ax_buf_puts(&b, "{}\n{\"a\": "));
    for (int i = 0; i < 100000; i++)
        assert_ok(ax_buf_puts(&b, "["));
    assert_ok(ax_buf_puts(&b, "\n{\"n\": "));
    for (int i = 0; i < 1000000; i++)
        assert_ok(ax_buf_puts(&b, "9"));
    assert_ok(ax_buf_puts(&b, "}\n{\"n\": 1e999}\n{"));
    for (int i = 0; i < 100000; i++)
        assert_ok(ax_buf_printf(&b, "%s\"%d\": 0", i ? "," : "", i));
    assert_ok(ax_buf_puts(&b, "}\n{\"a\": \"x"));
    assert_ok(ax_buf_append(&b, "\0", 1));
    assert_ok(ax_buf_puts(&b, "y\"}\n{}"));
    struct ax_rows *r;
    const char *path = put_bytes("hostile.jsonl", b.data, b.len);
    ax_buf_free(&b);
    assert_ok(ax_rows_open(&r, &(struct ax_rows_options){.path = path}));
    for (int i = 0; i < 7; i++) {
        struct ax_raw_row row;
        bool got;
        json_t *v = NULL;
        assert_ok(ax_rows_next(r, &row, &got));
        assert_true(got);
        assert_int_equal(row.line, i + 1);
        const enum ax_status st = ax_rows_parse(r, &row, &v);
        assert_int_equal(st, good[i] ? AX_OK : AX_ERR_DATA);
        if (!good[i])
            assert_non_null(strstr(ax_error_text(), "hostile.jsonl:"));
        json_decref(v);
    }
    ax_rows_close(r);
}

static void folders_and_globs(void **state) {
    (void)state;
    make_folder("set/data");
    put_text("set/data/train-00001.jsonl", "{\"i\": 1}");
    put_text("set/data/train-00000.jsonl", "{\"i\": 0}");
    put_text("set/data/test-00000.csv", "i\n2\n");
    put_text("set/README.md", "text");
    put_text("set/dataset_info.json", "{\"not\": \"a row\"}");
    put_text("set/notes.jsonl", "{\"i\": 9}");
    const char *set = in_scratch("set");
    check(set, "train-00000.jsonl:1 0 {\"i\":0}\ntrain-00001.jsonl:1 1 {\"i\":1}\n");
    check_options(&(struct ax_rows_options){.path = set, .split = "test"},
                  "test-00000.csv:2 0 {\"i\":\"2\"}\n");
    check_options(&(struct ax_rows_options){.path = set, .split = "train[1:]+test"},
                  "train-00001.jsonl:1 1 {\"i\":1}\ntest-00000.csv:2 2 {\"i\":\"2\"}\n");
    check_fails(&(struct ax_rows_options){.path = set, .split = "validation"}, AX_ERR_DATA,
                "split \"validation\" is not available");
    static const char *const files[] = {"notes.jsonl", "data/test*"};
    check_options(&(struct ax_rows_options){.path = set, .data_files = files, .n_data_files = 1},
                  "notes.jsonl:1 0 {\"i\":9}\n");
    check_options(&(struct ax_rows_options){.path = set, .data_files = files, .n_data_files = 2},
                  "notes.jsonl:1 0 {\"i\":9}\ntest-00000.csv:2 1 {\"i\":\"2\"}\n");
    check_fails(
        &(struct ax_rows_options){
            .path = set, .data_files = files + 1, .n_data_files = 1, .split = "test"},
        AX_ERR_DATA, "split \"test\" is not available; expected one of train");
    check(in_scratch("set/data/train*.jsonl"),
          "train-00000.jsonl:1 0 {\"i\":0}\ntrain-00001.jsonl:1 1 {\"i\":1}\n");
    make_folder("none");
    check_fails(&(struct ax_rows_options){.path = in_scratch("none")}, AX_ERR_DATA,
                "no data files found");
    check_fails(&(struct ax_rows_options){.path = in_scratch("absent.jsonl")}, AX_ERR_DATA,
                "no such file or folder");
    check_fails(&(struct ax_rows_options){.path = put_text("p.arrow", "ARROW1")},
                AX_ERR_UNSUPPORTED, "\"arrow\" is not supported");
    check_fails(&(struct ax_rows_options){.path = "https://example.org/a.jsonl"},
                AX_ERR_UNSUPPORTED, "kind of URL");
}

static void hub_cache(void **state) {
    (void)state;
    make_folder("hub/datasets--o--n/refs");
    make_folder("hub/datasets--o--n/snapshots/abc/main");
    put_text("hub/datasets--o--n/refs/main", "abc\n");
    put_text("hub/datasets--o--n/snapshots/abc/train.jsonl", "{\"i\": 1}");
    put_text("hub/datasets--o--n/snapshots/abc/main/train.jsonl", "{\"i\": 2}");
    setenv("HF_HUB_CACHE", in_scratch("hub"), 1);
    check_options(&(struct ax_rows_options){.path = "o/n", .name = "main"},
                  "train.jsonl:1 0 {\"i\":2}\n");
    check_options(&(struct ax_rows_options){.path = "o/n", .name = "main", .revision = "abc"},
                  "train.jsonl:1 0 {\"i\":2}\n");
    check_fails(&(struct ax_rows_options){.path = "o/n", .name = "x"}, AX_ERR_DATA, "no folder");
    check_fails(&(struct ax_rows_options){.path = "o/n", .revision = "../abc"}, AX_ERR_CONFIG,
                "is not a branch, tag or commit");
    check_fails(&(struct ax_rows_options){.path = "o/other"}, AX_ERR_DATA,
                "nor as a data set in the local cache");
    unsetenv("HF_HUB_CACHE");
}

static void standard_input(void **state) {
    (void)state;
    const char *path = put_text("in.jsonl", "{\"i\": 0}\n{\"i\": 1}\n");
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        struct ax_buf got = {0};
        const bool ok = freopen(path, "r", stdin) &&
                        list_rows(&(struct ax_rows_options){.path = "-", .split = "train[1:]"},
                                  &got) == AX_OK &&
                        strcmp(got.data, "-:2 1 {\"i\":1}\n") == 0 &&
                        list_rows(&(struct ax_rows_options){.path = "-", .split = "train[:50%]"},
                                  &got) == AX_ERR_CONFIG;
        _exit(ok ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void skip_and_seek(void **state) {
    (void)state;
    const char *path = put_text("k.jsonl", "{\"i\":0}\n{\"i\":1}\n{\"i\":2}\n{\"i\":3}\n");
    check_options(&(struct ax_rows_options){.path = path, .split = "train[1:]", .skip = 1},
                  "k.jsonl:3 2 {\"i\":2}\nk.jsonl:4 3 {\"i\":3}\n");
    struct ax_rows *r;
    struct ax_raw_row row;
    bool got;
    assert_ok(
        ax_rows_open(&r, &(struct ax_rows_options){.path = path, .split = "train[2:]+train[:2]"}));
    static const int64_t order[] = {2, 3, 0, 1};
    static const int64_t index[] = {2, 3, 4, 5};
    for (int seek = 0; seek < 6; seek++) {
        assert_ok(ax_rows_seek(r, seek));
        const int first = seek > 2 ? seek - 2 : 0;
        for (int i = first; i < 4; i++) {
            assert_ok(ax_rows_next(r, &row, &got));
            assert_true(got);
            assert_int_equal(row.line, order[i] + 1);
            assert_int_equal(row.index, index[i]);
        }
        assert_ok(ax_rows_next(r, &row, &got));
        assert_false(got);
    }
    ax_rows_close(r);
}

static const char *put_numbers(const char *name, int n) {
    struct ax_buf text = {0};
    for (int i = 0; i < n; i++)
        assert_ok(ax_buf_printf(&text, "{\"i\":%d}\n", i));
    const char *path = put_bytes(name, text.data, text.len);
    ax_buf_free(&text);
    return path;
}

/* The indices of the rows that are left; rises from row to row. */
static size_t rest_of(struct ax_rows *r, int64_t *index) {
    size_t n = 0;
    for (;; n++) {
        struct ax_raw_row row;
        bool got;
        assert_ok(ax_rows_next(r, &row, &got));
        if (!got)
            return n;
        index[n] = row.index;
        assert_true(n == 0 || index[n] > index[n - 1]);
    }
}

static size_t selected(const struct ax_rows_options *o, int64_t *index) {
    struct ax_rows *r;
    assert_ok(ax_rows_open(&r, o));
    const size_t n = rest_of(r, index);
    ax_rows_close(r);
    return n;
}

/* Wherever rows are sought, forwards or back, what follows is what was selected from there on. */
static void seeking_keeps_the_selection(void **state) {
    (void)state;
    const char *path = put_numbers("seek.jsonl", 40);
    const struct ax_rows_options cases[] = {
        {.path = path, .skip = 5},
        {.path = path, .split = "train[7:30]", .skip = 4},
        {.path = path, .split = "train[30:]+train[:10]", .skip = 3},
        {.path = path, .n_shards = 3, .shard = 1, .seed = 7},
        {.path = path, .split = "train[7:30]", .skip = 4, .n_shards = 2, .shard = 1, .seed = 7},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct ax_rows *r;
        int64_t all[64];
        int64_t rest[64];
        const size_t n = selected(&cases[c], all);
        assert_ok(ax_rows_open(&r, &cases[c]));
        for (int64_t k = 0; k < 100; k++) {
            const int64_t place = k * 37 % 45; /* up and down */
            assert_ok(ax_rows_seek(r, place));
            const size_t left = rest_of(r, rest);
            size_t first = 0;
            while (first < n && all[first] < place)
                first++;
            assert_int_equal(left, n - first);
            assert_memory_equal(rest, all + first, left * sizeof *rest);
            assert_ok(ax_rows_seek(r, place / 2)); /* to go on from a place that is not the end */
            assert_ok(ax_rows_seek_number(r, place));
            first = (size_t)place < n ? (size_t)place : n;
            assert_int_equal(rest_of(r, rest), n - first);
            assert_memory_equal(rest, all + first, (n - first) * sizeof *rest);
            assert_ok(ax_rows_seek_number(r, place / 3));
        }
        ax_rows_close(r);
    }
}

/* Every row of the slice is in exactly one shard, shards are of equal size, and the seed deals. */
static void shards(void **state) {
    (void)state;
    const char *path = put_numbers("s.jsonl", 100);
    static const struct {
        const char *split;
        int64_t from, to;
        size_t sizes[3];
    } cases[] = {
        {NULL, 0, 100, {34, 33, 33}},
        {"train[:31]", 0, 31, {11, 10, 10}},
        {"train[69:]", 69, 100, {11, 10, 10}},
        {"train[20:300]", 20, 100, {27, 27, 26}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int seen[100] = {0};
        int64_t gaps = 0;
        int64_t index[100];
        int64_t other[100];
        for (int shard = 0; shard < 3; shard++) {
            struct ax_rows_options o = {
                .path = path, .split = cases[c].split, .n_shards = 3, .shard = shard, .seed = 7};
            const size_t n = selected(&o, index);
            assert_int_equal(n, cases[c].sizes[shard]);
            for (size_t i = 0; i < n; i++) {
                assert_in_range(index[i], cases[c].from, cases[c].to - 1);
                seen[index[i]]++;
                gaps += i > 0 && index[i] != index[i - 1] + 1;
            }
            o.seed = 8;
            assert_int_equal(selected(&o, other), n);
            assert_memory_not_equal(index, other, n * sizeof *index);
        }
        for (int64_t i = 0; i < 100; i++)
            assert_int_equal(seen[i], i >= cases[c].from && i < cases[c].to);
        assert_true(gaps > 10);
    }
}

/* Bounds that need the number of rows: each part's are of its own files. */
static void parts_are_counted_alone(void **state) {
    (void)state;
    make_folder("parts");
    put_numbers("parts/train.jsonl", 10);
    put_numbers("parts/test.jsonl", 4);
    static const struct {
        const char *split;
        const char *rows;
    } cases[] = {
        {"train[:50%]+test[50%:]", "0123423"},
        {"test[50%:]+train[:30%]", "23012"},
        {"train[-2:]+test[-1:]+train[:10%]", "8930"},
        {"test[:25%]+test[-25%:]", "03"},
        {"train[20%:40%]+test", "230123"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ax_rows_options o = {.path = in_scratch("parts"), .split = cases[i].split};
        struct ax_buf got = {0}, digits = {0};
        assert_ok(list_rows(&o, &got));
        for (const char *at = got.data; (at = strstr(at, "{\"i\":")) != NULL; at++)
            assert_ok(ax_buf_append(&digits, at + 5, 1));
        assert_string_equal(digits.data, cases[i].rows);
        ax_buf_free(&got);
        ax_buf_free(&digits);
    }
}

static void shuffles(void **state) {
    (void)state;
    uint32_t *a;
    uint32_t *b;
    assert_ok(ax_shuffled(&a, 1000, (struct ax_shuffle_key){42, 0, "x"}));
    assert_ok(ax_shuffled(&b, 1000, (struct ax_shuffle_key){42, 0, "x"}));
    assert_memory_equal(a, b, 1000 * sizeof *a);
    bool seen[1000] = {0};
    int fixed = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(a[i] < 1000 && !seen[a[i]]);
        seen[a[i]] = true;
        fixed += a[i] == (uint32_t)i;
    }
    assert_true(fixed < 10);
    static const struct ax_shuffle_key others[] = {{43, 0, "x"}, {42, 1, "x"}, {42, 0, "y"}};
    for (int i = 0; i < 3; i++) {
        ax_free(b);
        assert_ok(ax_shuffled(&b, 1000, others[i]));
        assert_memory_not_equal(a, b, 1000 * sizeof *a);
    }
    ax_free(a);
    ax_free(b);
    assert_ok(ax_shuffled(&a, 0, others[0]));
    ax_free(a);
}

static void empty_rows(void **state) {
    (void)state;
    check_options(&(struct ax_rows_options){.empty_rows = 2},
                  "synthetic:1 0 {}\nsynthetic:2 1 {}\n");
}

static void descriptions(void **state) {
    (void)state;
    struct ax_rows *r;
    json_t *a;
    json_t *b;
    const char *path = put_text("q.jsonl", "{}\n");
    assert_ok(ax_rows_open(&r, &(struct ax_rows_options){.path = path}));
    assert_ok(ax_rows_describe(r, &a));
    put_text("q.jsonl", "{}\n{}\n");
    assert_ok(ax_rows_describe(r, &b));
    assert_true(a && b && !json_equal(a, b));
    json_decref(b);
    ax_rows_close(r);
    /* contents of the same size and date */
    struct stat was;
    assert_ok(ax_rows_open(&r, &(struct ax_rows_options){.path = path}));
    put_text("q.jsonl", "{\"a\": 1}\n");
    assert_int_equal(stat(path, &was), 0);
    assert_ok(ax_rows_describe(r, &b));
    put_text("q.jsonl", "{\"a\": 2}\n");
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){was.st_atim, was.st_mtim}, 0),
                     0);
    json_decref(a);
    assert_ok(ax_rows_describe(r, &a));
    assert_true(a && b && !json_equal(a, b));
    json_decref(b);
    ax_rows_close(r);
    json_decref(a);
    /* whatever selects rows makes another description */
    const struct ax_rows_options o[] = {
        {.path = path},
        {.path = path, .split = "train[1:]"},
        {.path = path, .skip = 1},
        {.path = path, .format = "text"},
        {.path = path, .n_shards = 2, .seed = 1},
        {.path = path, .n_shards = 3, .seed = 1},
        {.path = path, .n_shards = 2, .shard = 1, .seed = 1},
        {.path = path, .n_shards = 2, .seed = 2},
        {.empty_rows = 4},
        {.empty_rows = 5},
    };
    enum { N = sizeof o / sizeof *o };
    json_t *all[N];
    for (int i = 0; i < N; i++) {
        assert_ok(ax_rows_open(&r, &o[i]));
        assert_ok(ax_rows_describe(r, &all[i]));
        ax_rows_close(r);
        assert_non_null(all[i]);
        for (int k = 0; k < i; k++)
            assert_false(json_equal(all[i], all[k]));
    }
    for (int i = 0; i < N; i++)
        json_decref(all[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_lines),    cmocka_unit_test(bad_json_lines),
        cmocka_unit_test(json_lists),    cmocka_unit_test(csv),
        cmocka_unit_test(text),          cmocka_unit_test(packed_files),
        cmocka_unit_test(zstd_windows),  cmocka_unit_test(packed_byte_order_marks),
        cmocka_unit_test(huge_row),      cmocka_unit_test(long_elements),
        cmocka_unit_test(hostile_rows),  cmocka_unit_test(folders_and_globs),
        cmocka_unit_test(hub_cache),     cmocka_unit_test(standard_input),
        cmocka_unit_test(skip_and_seek), cmocka_unit_test(seeking_keeps_the_selection),
        cmocka_unit_test(shards),        cmocka_unit_test(parts_are_counted_alone),
        cmocka_unit_test(shuffles),      cmocka_unit_test(empty_rows),
        cmocka_unit_test(descriptions),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
