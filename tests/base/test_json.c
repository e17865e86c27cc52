/* JSON: places of errors, limits, typed getters, and dumps equal to Python's. */
#include "base/text/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"

static enum ax_status parse(struct ax_json_doc *doc, const char *text) {
    return ax_json_parse(doc, "c.json", text, strlen(text));
}

/* Python writes it; a whole root, or after a minus, it is no number of JSON here either. */
static void infinity_of_files(void **state) {
    (void)state;
    static const struct {
        const char *text, *dump;
    } read[] = {
        {"[0.0, Infinity]", "[0.0,{\"__float__\":\"Infinity\"}]"},
        {"{\"a\":Infinity,\"b\":[{\"c\":Infinity}]}",
         "{\"a\":{\"__float__\":\"Infinity\"},\"b\":[{\"c\":{\"__float__\":\"Infinity\"}}]}"},
        {"[\"Infinity\", 1234567890123456789012, Infinity]",
         "[\"Infinity\",1.2345678901234568e21,{\"__float__\":\"Infinity\"}]"},
    };
    static const char *const wrong[][2] = {
        {"[1,\n -Infinity]", "c.json:2:3: NaN and Infinity are not JSON numbers"},
        {"[NaN, Infinity]", "c.json:1:2: NaN and Infinity are not JSON numbers"},
        {"[Infinitys]", "c.json:1:"},
        {"{Infinity: 1}", "c.json:1:"},
    };
    uint64_t live = ax_mem_live_blocks();
    struct ax_json_doc doc;
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        assert_int_equal(ax_json_parse_file(&doc, "c.json", read[i].text, strlen(read[i].text)),
                         AX_OK);
        char *text = json_dumps(doc.root, JSON_COMPACT | JSON_ENCODE_ANY);
        assert_string_equal(text, read[i].dump);
        ax_free_hook(text);
        ax_json_free(&doc);
        assert_int_equal(parse(&doc, read[i].text), AX_ERR_DATA);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(ax_json_parse_file(&doc, "c.json", wrong[i][0], strlen(wrong[i][0])),
                         AX_ERR_DATA);
        if (strncmp(ax_error_text(), wrong[i][1], strlen(wrong[i][1])) != 0)
            fail_msg("%s: %s", wrong[i][0], ax_error_text());
    }
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void syntax_errors_have_a_place(void **state) {
    (void)state;
    static const struct {
        const char *text, *place;
    } wrong[] = {
        {"{\"a\": 1,\n \"b\": x}", "c.json:2:7: invalid token near 'x'"},
        {"{\"a\": 1,\n\n  \"a\": 2}", "c.json:3:3: duplicate object key near '\"a\"'"},
        {"{\"\xC3\xA9\xC3\xA9\": truth}", "c.json:1:8: invalid token near 'truth'"},
        {"[1, 2", "c.json:1:6: ']' expected near end of file"},
        {"[1,\n", "c.json:2:1: ']' expected near end of file"},
        {"", "c.json:1:1: "},
        {"[1] 2", "c.json:1:5: end of file expected near '2'"},
        {"[1e999]", "c.json:1:2: real number overflow near '1e999'"},
        {"[01]", "c.json:1:"},
        {"[1.]", "c.json:1:2: invalid token near '1.'"},
        {"[-]", "c.json:1:2: invalid token near '-'"},
        {"{\"x\": NaN}", "c.json:1:7: NaN and Infinity are not JSON numbers"},
        {"[1,\n -Infinity]", "c.json:2:3: NaN and Infinity are not JSON numbers"},
        {"[\"\\ud800\"]", "c.json:1:2: invalid Unicode '\\uD800' near '\"\\ud800\"'"},
        {"[\"\xFF\"]", "c.json:1:2: unable to decode byte 0xff"},
        {"[\"a\nb\"]", "c.json:1:2: unexpected newline"},
        {"{\"a\\u0000b\": 1}", "c.json:1:2: NUL byte in object key"},
        {"[\"open", "c.json:1:2: premature end of input near '\"open'"},
        {"[\"open\\", "c.json:1:2: invalid escape near"},
        {"{'a': 1}", "c.json:1:2: string or '}' expected near '''"},
    };
    uint64_t live = ax_mem_live_blocks();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct ax_json_doc doc;
        assert_int_equal(parse(&doc, wrong[i].text), AX_ERR_DATA);
        if (strncmp(ax_error_text(), wrong[i].place, strlen(wrong[i].place)) != 0) {
            fail_msg("%s\nexpected %s\n     got %s", wrong[i].text, wrong[i].place,
                     ax_error_text());
        }
        assert_null(doc.root);
        ax_json_free(&doc);
    }
    struct ax_json_doc doc;
    assert_int_equal(ax_json_parse(&doc, "c.json", "[\"\0\"]", 5), AX_ERR_DATA);
    assert_int_equal(ax_json_parse(&doc, "c.json", "[1]\0", 4), AX_ERR_DATA);
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* Nothing behind the text is read: it ends where the memory does. */
static void texts_end_where_they_end(void **state) {
    (void)state;
    static const char *const texts[] = {"{\"a\": [1, -2.5e3, true, \"b\\u00e9\"]}",
                                        "[\"a",
                                        "[\"a\\",
                                        "[\"a\\u12",
                                        "[-",
                                        "[12345678901234567890",
                                        "[tru",
                                        "[Na",
                                        "[-Infinit",
                                        "[\"\xC3",
                                        "{\"a\":"};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(two != MAP_FAILED);
    assert_int_equal(mprotect(two + page, page, PROT_NONE), 0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const size_t n = strlen(texts[i]);
        struct ax_json_doc doc;
        memcpy(two + page - n, texts[i], n);
        const enum ax_status st = ax_json_parse(&doc, "c.json", two + page - n, n);
        assert_int_equal(st, i == 0 ? AX_OK : AX_ERR_DATA);
        if (st == AX_OK)
            ax_json_free(&doc);
    }
    assert_int_equal(munmap(two, 2 * page), 0);
}

/* Where a value ends is counted in bytes, over lines. */
static void the_first_value_ends_at_a_byte(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t used;
    } cases[] = {{"{\"a\": 1}rest", 8}, {"{\"a\":\n 1} {}", 9}, {"[\"\u00e9\"]]", 6}, {"7", 1}};
    struct ax_json_first first;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ax_json_first(cases[i].text, strlen(cases[i].text), &first), AX_OK);
        assert_non_null(first.v);
        assert_int_equal(first.used, cases[i].used);
        json_decref(first.v);
    }
    assert_int_equal(ax_json_first("]", 1, &first), AX_OK);
    assert_null(first.v);
    assert_true(first.used == 0 && *first.why);
}

static void nesting_has_a_limit(void **state) {
    (void)state;
    enum { DEEP = 100000 };
    struct ax_json_doc doc;
    char *text = malloc(2 * DEEP);
    assert_non_null(text);
    for (int depth = 511; depth <= 513; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        enum ax_status st = ax_json_parse(&doc, "c.json", text, 2 * (size_t)depth);
        assert_int_equal(st, depth <= 512 ? AX_OK : AX_ERR_DATA);
        ax_json_free(&doc);
    }
    assert_non_null(strstr(ax_error_text(), "c.json:1:513: nested deeper than 512"));
    memset(text, '{', 2 * DEEP);
    assert_int_equal(ax_json_parse(&doc, "c.json", text, 2 * DEEP), AX_ERR_DATA);
    /* brackets in strings do not count */
    memset(text, '[', 2 * DEEP);
    text[0] = text[2 * DEEP - 1] = '"';
    assert_int_equal(ax_json_parse(&doc, "c.json", text, 2 * DEEP), AX_OK);
    ax_json_free(&doc);
    free(text);
}

static void big_integers_become_reals(void **state) {
    (void)state;
    static const char *const texts[] = {
        "9223372036854775808",
        "-9223372036854775809",
        "1000000000000000019884624838656",
        "99999999999999999999",
        "18446744073709551615",
        "9999999999999999999",
        "123456789012345678901234567890123456789012345678901234567890",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char text[100];
        struct ax_json_doc doc;
        snprintf(text, sizeof text, "[%s, \"99999999999999999999\", x]", texts[i]);
        assert_int_equal(parse(&doc, text), AX_ERR_DATA); /* later places stay true */
        char place[32];
        snprintf(place, sizeof place, "c.json:1:%zu:", strlen(texts[i]) + 28);
        assert_memory_equal(ax_error_text(), place, strlen(place));
        snprintf(text, sizeof text, "[%s, \"99999999999999999999\"]", texts[i]);
        assert_int_equal(parse(&doc, text), AX_OK);
        double x;
        assert_int_equal(ax_json_f64(ax_json_at(ax_json_root(&doc), 0), &x), AX_OK);
        assert_true(x == strtod(texts[i], NULL));
        int64_t integer;
        assert_int_equal(ax_json_i64(ax_json_at(ax_json_root(&doc), 0), 0, 1, &integer),
                         AX_ERR_DATA);
        const char *s;
        assert_int_equal(ax_json_str(ax_json_at(ax_json_root(&doc), 1), &s), AX_OK);
        assert_string_equal(s, "99999999999999999999");
        ax_json_free(&doc);
    }
    struct ax_json_doc doc;
    int64_t i;
    assert_int_equal(parse(&doc, "[9223372036854775807, -9223372036854775808]"), AX_OK);
    struct ax_json root = ax_json_root(&doc);
    assert_int_equal(ax_json_i64(ax_json_at(root, 0), INT64_MIN, INT64_MAX, &i), AX_OK);
    assert_true(i == INT64_MAX);
    assert_int_equal(ax_json_i64(ax_json_at(root, 1), INT64_MIN, INT64_MAX, &i), AX_OK);
    assert_true(i == INT64_MIN);
    ax_json_free(&doc);
    char *huge = malloc(100001);
    assert_non_null(huge);
    memset(huge, '9', 100000);
    huge[100000] = '\0';
    assert_int_equal(parse(&doc, huge), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "c.json:1:"));
    free(huge);
}

static const char sample[] = "{\"n\": 32, \"rope\": {\"factor\": 8, \"list\": [1.5, null, \"x\"]},"
                             " \"tie\": true, \"name\": \"llama\", \"none\": null,"
                             " \"nul\": \"a\\u0000b\", \"empty\": {}}";

static void getters_give_values(void **state) {
    (void)state;
    struct ax_json_doc doc;
    assert_int_equal(parse(&doc, sample), AX_OK);
    struct ax_json root = ax_json_root(&doc);
    struct ax_json rope = ax_json_get(root, "rope");
    int64_t i;
    double x;
    bool b;
    const char *s;
    assert_int_equal(ax_json_i64(ax_json_get(root, "n"), 1, 64, &i), AX_OK);
    assert_int_equal(i, 32);
    assert_int_equal(ax_json_f64(ax_json_get(rope, "factor"), &x), AX_OK);
    assert_true(x == 8.0);
    assert_int_equal(ax_json_bool(ax_json_get(root, "tie"), &b), AX_OK);
    assert_true(b);
    assert_int_equal(ax_json_str(ax_json_get(root, "name"), &s), AX_OK);
    assert_string_equal(s, "llama");
    assert_int_equal(ax_json_size(root), 7);
    assert_int_equal(ax_json_size(ax_json_get(rope, "list")), 3);
    assert_int_equal(ax_json_size(ax_json_get(root, "n")), 0);
    assert_int_equal(ax_json_size(ax_json_get(root, "absent")), 0);
    assert_null(ax_json_get(root, "none").v);
    assert_null(ax_json_at(ax_json_get(rope, "list"), 1).v);
    assert_null(ax_json_at(ax_json_get(rope, "list"), 3).v);
    assert_null(ax_json_get(ax_json_get(root, "n"), "x").v);

    assert_int_equal(ax_json_i64_or(ax_json_get(root, "none"), 0, 9, 5, &i), AX_OK);
    assert_int_equal(i, 5);
    assert_int_equal(ax_json_f64_or(ax_json_get(root, "absent"), 0.5, &x), AX_OK);
    assert_true(x == 0.5);
    assert_int_equal(ax_json_bool_or(ax_json_get(root, "absent"), false, &b), AX_OK);
    assert_false(b);
    assert_int_equal(ax_json_str_or(ax_json_get(root, "absent"), "d", &s), AX_OK);
    assert_string_equal(s, "d");
    assert_int_equal(ax_json_i64_or(ax_json_get(root, "n"), 0, 64, 5, &i), AX_OK);
    assert_int_equal(i, 32);
    assert_int_equal(ax_json_f64_or(ax_json_get(root, "n"), 0.5, &x), AX_OK);
    assert_true(x == 32.0);
    assert_int_equal(ax_json_bool_or(ax_json_get(root, "tie"), false, &b), AX_OK);
    assert_true(b);
    assert_int_equal(ax_json_str_or(ax_json_get(root, "name"), "d", &s), AX_OK);
    assert_string_equal(s, "llama");
    ax_json_free(&doc);
}

static void getters_name_the_key_path(void **state) {
    (void)state;
    struct ax_json_doc doc;
    assert_int_equal(parse(&doc, sample), AX_OK);
    struct ax_json root = ax_json_root(&doc);
    struct ax_json list = ax_json_get(ax_json_get(root, "rope"), "list");
    int64_t i;
    double x;
    bool b;
    const char *s;
    assert_int_equal(ax_json_i64(ax_json_at(list, 2), 0, 1, &i), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "c.json: rope.list[2]: expected an integer, got \"x\"");
    assert_int_equal(ax_json_i64(ax_json_at(list, 0), 0, 1, &i), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "c.json: rope.list[0]: expected an integer, got 1.5");
    assert_int_equal(ax_json_i64(ax_json_get(root, "n"), 33, 99, &i), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "c.json: n: expected an integer of at least 33, got 32");
    assert_int_equal(ax_json_i64(ax_json_get(root, "n"), 0, 31, &i), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "c.json: n: expected an integer of at most 31, got 32");
    assert_int_equal(ax_json_f64(ax_json_get(root, "tie"), &x), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "c.json: tie: expected a number, got true");
    assert_int_equal(ax_json_bool(ax_json_get(root, "rope"), &b), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "c.json: rope: expected true or false, got an object");
    assert_int_equal(ax_json_str(list, &s), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "c.json: rope.list: expected a string, got a list");
    assert_int_equal(ax_json_str(ax_json_get(root, "n"), &s), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "c.json: n: expected a string, got 32");
    assert_int_equal(ax_json_str(ax_json_get(root, "gone"), &s), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "c.json: gone: missing; expected a string");
    assert_int_equal(ax_json_str(ax_json_get(root, "nul"), &s), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "c.json: nul: the string contains a NUL"));
    assert_int_equal(ax_json_str_or(ax_json_get(root, "n"), "d", &s), AX_ERR_DATA);
    assert_int_equal(ax_json_error(root, "no %s", "layers"), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "c.json: no layers");
    struct ax_json deep = root;
    for (int k = 0; k < 100; k++)
        deep = ax_json_get(deep, "a_long_key"); /* the path is cut, not overrun */
    assert_true(strlen(deep.path) < sizeof deep.path);
    ax_json_free(&doc);
}

static void long_values_are_shown_cut(void **state) {
    (void)state;
    struct ax_buf b = {0};
    /* characters of 2 bytes at odd places, so that the cut at 60 bytes falls into one */
    assert_int_equal(ax_buf_puts(&b, "[\"a"), AX_OK);
    for (int i = 0; i < 40; i++)
        assert_int_equal(ax_buf_puts(&b, "\xC3\xA9"), AX_OK);
    assert_int_equal(ax_buf_puts(&b, "\"]"), AX_OK);
    struct ax_json_doc doc;
    int64_t i;
    assert_int_equal(parse(&doc, b.data), AX_OK);
    assert_int_equal(ax_json_i64(ax_json_at(ax_json_root(&doc), 0), 0, 1, &i), AX_ERR_DATA);
    const char *shown = strchr(ax_error_text(), '"');
    assert_int_equal(strlen(shown), 1 + 59 + 1);
    assert_string_equal(shown + 58, "\xC3\xA9\"");
    ax_json_free(&doc);
    ax_buf_free(&b);
}

static void expect_dump(const char *text, const char *expected) {
    struct ax_json_doc doc;
    char *out;
    size_t len;
    assert_int_equal(parse(&doc, text), AX_OK);
    assert_int_equal(ax_json_dump(doc.root, &out, &len), AX_OK);
    assert_string_equal(out, expected);
    assert_int_equal(len, strlen(expected));
    ax_free(out);
    ax_json_free(&doc);
}

/* The right-hand sides are what Python 3 prints with json.dumps(x, indent=2). */
static void dumps_equal_pythons(void **state) {
    (void)state;
    expect_dump(
        "{\"z\":1,\"a\":[],\"m\":{},\"b\":[1,[true,false],null],\"c\":{\"y\":-2}}",
        "{\n  \"z\": 1,\n  \"a\": [],\n  \"m\": {},\n  \"b\": [\n    1,\n    [\n"
        "      true,\n      false\n    ],\n    null\n  ],\n  \"c\": {\n    \"y\": -2\n  }\n}");
    expect_dump("\"\\u00e9 \\\"q\\\" \\\\ / \\n\\r\\t\\b\\f \\u001f \\u007f \\ud83d\\ude00 \\u20ac"
                "\\u0000.\"",
                "\"\\u00e9 \\\"q\\\" \\\\ / \\n\\r\\t\\b\\f \\u001f \\u007f \\ud83d\\ude00 \\u20ac"
                "\\u0000.\"");
    expect_dump("{\"\xE2\x82\xAC\": \"\xF0\x9F\x98\x80\"}",
                "{\n  \"\\u20ac\": \"\\ud83d\\ude00\"\n}");
    static const char *const numbers[][2] = {
        {"1e-05", "1e-05"},
        {"1E-6", "1e-06"},
        {"10000.0", "10000.0"},
        {"0.02", "0.02"},
        {"0.0001", "0.0001"},
        {"0.00001234", "1.234e-05"},
        {"-0.0", "-0.0"},
        {"0.1", "0.1"},
        {"1e22", "1e+22"},
        {"1e15", "1000000000000000.0"},
        {"1e16", "1e+16"},
        {"123456789012345680.0", "1.2345678901234568e+17"},
        {"5e-324", "5e-324"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"500000.0", "500000.0"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"9007199254740993.0", "9007199254740992.0"},
        {"2.2250738585072014e-308", "2.2250738585072014e-308"},
        {"1000000000000000019884624838656", "1e+30"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"3.0e2", "300.0"},
        {"7.120236347223045e-307", "7.120236347223045e-307"},
        {"9.5367431640625e-07", "9.5367431640625e-07"},
        {"9007199254740992.0", "9007199254740992.0"},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        expect_dump(numbers[i][0], numbers[i][1]);
}

static void files_are_loaded(void **state) {
    (void)state;
    char path[] = "/tmp/axtrain-json-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "\xEF\xBB\xBF{\"a\":\n bad}", 14), 14);
    close(fd);
    struct ax_json_doc doc;
    char place[64];
    snprintf(place, sizeof place, "%s:2:2: ", path);
    assert_int_equal(ax_json_load(&doc, path, 14), AX_ERR_DATA);
    assert_memory_equal(ax_error_text(), place, strlen(place));
    assert_int_equal(ax_json_load(&doc, path, 13), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "limit of 13 bytes"));
    unlink(path);
    assert_int_equal(ax_json_load(&doc, path, 100), AX_ERR_IO);
    ax_json_free(&doc);
}

static enum ax_status parse_and_dump(void) {
    struct ax_json_doc doc = {0};
    char *text = NULL;
    size_t len;
    enum ax_status st;
    AX_TRY_GOTO(parse(&doc, "{\"a long key for the lexer's buffer\": [1234567890123456789012345, "
                            "1.25, \"a string of more than sixteen bytes\"], \"b\": {\"c\": 17}}"),
                st, done);
    AX_TRY_GOTO(ax_json_dump(doc.root, &text, &len), st, done);
    assert_string_equal(text, "{\n  \"a long key for the lexer's buffer\": [\n"
                              "    1.2345678901234568e+24,\n    1.25,\n"
                              "    \"a string of more than sixteen bytes\"\n  ],\n"
                              "  \"b\": {\n    \"c\": 17\n  }\n}");
done:
    ax_free(text);
    ax_json_free(&doc);
    return st;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    uint64_t live = ax_mem_live_blocks();
    int points = 0;
    for (int k = 1;; k++) {
        char spec[32];
        snprintf(spec, sizeof spec, "malloc:%d:enomem", k);
        assert_int_equal(ax_fault_configure(spec), AX_OK);
        enum ax_status st = parse_and_dump();
        bool fired = ax_fault_fired();
        assert_int_equal(ax_fault_configure(NULL), AX_OK);
        assert_int_equal(ax_mem_live_blocks(), live);
        assert_int_equal(st, fired ? AX_ERR_NOMEM : AX_OK);
        if (!fired)
            break;
        points++;
    }
    print_message("failed at %d allocations\n", points);
    assert_true(points >= 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infinity_of_files),
        cmocka_unit_test(syntax_errors_have_a_place),
        cmocka_unit_test(texts_end_where_they_end),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(the_first_value_ends_at_a_byte),
        cmocka_unit_test(big_integers_become_reals),
        cmocka_unit_test(getters_give_values),
        cmocka_unit_test(getters_name_the_key_path),
        cmocka_unit_test(long_values_are_shown_cut),
        cmocka_unit_test(dumps_equal_pythons),
        cmocka_unit_test(files_are_loaded),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
