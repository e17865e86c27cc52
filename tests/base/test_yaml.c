/* YAML: scalars as PyYAML resolves them, places, aliases and merges, refusals. */
#include "base/text/yaml.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"

static enum ax_status parse(struct ax_yaml_doc *doc, const char *text) {
    return ax_yaml_parse(doc, "c.yaml", text, strlen(text));
}

static void good(struct ax_yaml_doc *doc, const char *text) {
    if (parse(doc, text) != AX_OK)
        fail_msg("%s\n%s", text, ax_error_text());
}

static void refused(const char *text, const char *message) {
    struct ax_yaml_doc doc;
    uint64_t live = ax_mem_live_blocks();
    enum ax_status st = parse(&doc, text);
    if (st != AX_ERR_CONFIG || strncmp(ax_error_text(), message, strlen(message)) != 0) {
        fail_msg("%s\nexpected %s\n     got %s", text, message,
                 st == AX_OK ? "success" : ax_error_text());
    }
    assert_null(doc.root);
    ax_yaml_free(&doc);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void plain_scalars_resolve(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum ax_yaml_kind kind;
        double number; /* of BOOL too: 0 or 1 */
    } known[] = {
        {"~", AX_YAML_NULL, 0},
        {"null", AX_YAML_NULL, 0},
        {"Null", AX_YAML_NULL, 0},
        {"NULL", AX_YAML_NULL, 0},
        {"nULL", AX_YAML_STRING, 0},
        {"true", AX_YAML_BOOL, 1},
        {"True", AX_YAML_BOOL, 1},
        {"TRUE", AX_YAML_BOOL, 1},
        {"tRUE", AX_YAML_STRING, 0},
        {"yes", AX_YAML_BOOL, 1},
        {"On", AX_YAML_BOOL, 1},
        {"false", AX_YAML_BOOL, 0},
        {"No", AX_YAML_BOOL, 0},
        {"OFF", AX_YAML_BOOL, 0},
        {"n", AX_YAML_STRING, 0},
        {"Y", AX_YAML_STRING, 0},
        {"0", AX_YAML_INT, 0},
        {"-0", AX_YAML_INT, 0},
        {"42", AX_YAML_INT, 42},
        {"+42", AX_YAML_INT, 42},
        {"-42", AX_YAML_INT, -42},
        {"500_000", AX_YAML_INT, 500000},
        {"0x1F", AX_YAML_INT, 31},
        {"-0xff", AX_YAML_INT, -255},
        {"0b101", AX_YAML_INT, 5},
        {"017", AX_YAML_INT, 15},
        {"0o17", AX_YAML_INT, 15},
        {"08", AX_YAML_STRING, 0},
        {"0x", AX_YAML_STRING, 0},
        {"0xg", AX_YAML_STRING, 0},
        {"_1", AX_YAML_STRING, 0},
        {"1a", AX_YAML_STRING, 0},
        {"9223372036854775807", AX_YAML_INT, 9223372036854775807.0},
        {"-9223372036854775808", AX_YAML_INT, -9223372036854775808.0},
        {"9223372036854775808", AX_YAML_FLOAT, 9223372036854775808.0},
        {"-9223372036854775809", AX_YAML_FLOAT, -9223372036854775809.0},
        {"0xffffffffffffffff", AX_YAML_STRING, 0},
        {"123_456_789_012_345_678_901_234_567_890", AX_YAML_FLOAT,
         123456789012345678901234567890.0},
        {"1.5", AX_YAML_FLOAT, 1.5},
        {"-1.5", AX_YAML_FLOAT, -1.5},
        {"1.", AX_YAML_FLOAT, 1},
        {".5", AX_YAML_FLOAT, 0.5},
        {"2e-5", AX_YAML_FLOAT, 2e-5},
        {"1e4", AX_YAML_FLOAT, 1e4},
        {"2E4", AX_YAML_FLOAT, 2e4},
        {"1.5e+3", AX_YAML_FLOAT, 1500},
        {"1_000.5", AX_YAML_FLOAT, 1000.5},
        {"010.5", AX_YAML_FLOAT, 10.5},
        {"0_", AX_YAML_INT, 0},
        {"3._", AX_YAML_FLOAT, 3},
        {"1e1_0", AX_YAML_STRING, 0},
        {"-._5", AX_YAML_STRING, 0},
        {"1e", AX_YAML_STRING, 0},
        {"1e-", AX_YAML_STRING, 0},
        {"e5", AX_YAML_STRING, 0},
        {".", AX_YAML_STRING, 0},
        {"1.2.3", AX_YAML_STRING, 0},
        {"1e5x", AX_YAML_STRING, 0},
        {".inf", AX_YAML_FLOAT, INFINITY},
        {"-.Inf", AX_YAML_FLOAT, -INFINITY},
        {"+.INF", AX_YAML_FLOAT, INFINITY},
        {"inf", AX_YAML_STRING, 0},
        {"nan", AX_YAML_STRING, 0},
        {"1:30", AX_YAML_STRING, 0},
        {"2024-01-31", AX_YAML_STRING, 0},
        {"./data", AX_YAML_STRING, 0},
        {"meta-llama/Llama-3", AX_YAML_STRING, 0},
        {"'yes'", AX_YAML_STRING, 0},
        {"\"12\"", AX_YAML_STRING, 0},
        {"!!null ~", AX_YAML_NULL, 0},
        {"!!null null", AX_YAML_NULL, 0},
        {"!!seq [12]", AX_YAML_LIST, 0},
        {"!!map {a: 12}", AX_YAML_MAP, 0},
        {"!!str 12", AX_YAML_STRING, 0},
        {"! 12", AX_YAML_STRING, 0},
        {"!!int 12", AX_YAML_INT, 12},
        {"!!float 12", AX_YAML_FLOAT, 12},
        {"!!float '1e3'", AX_YAML_FLOAT, 1000},
        {"!!bool yes", AX_YAML_BOOL, 1},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct ax_yaml_doc doc;
        char text[100];
        snprintf(text, sizeof text, "k: %s", known[i].text);
        good(&doc, text);
        const struct ax_yaml_node *v = ax_yaml_get(doc.root, "k");
        double number = v->kind == AX_YAML_BOOL  ? (double)v->boolean
                        : v->kind == AX_YAML_INT ? (double)v->integer
                                                 : v->number;
        if (v->kind != known[i].kind || number != known[i].number)
            fail_msg("%s: %s, %g", known[i].text, ax_yaml_kind_name(v->kind), number);
        if (v->kind == AX_YAML_INT)
            assert_true(v->number == (double)v->integer);
        ax_yaml_free(&doc);
    }
    struct ax_yaml_doc doc;
    good(&doc, "a: .nan\nb: 9223372036854775807\nc: |\n  12\nd:\ne: 1_0.5\n");
    assert_true(isnan(ax_yaml_get(doc.root, "a")->number));
    assert_true(ax_yaml_get(doc.root, "b")->integer == INT64_MAX);
    assert_int_equal(ax_yaml_get(doc.root, "c")->kind, AX_YAML_STRING);
    assert_string_equal(ax_yaml_get(doc.root, "c")->text, "12\n");
    assert_true(ax_yaml_get(doc.root, "c")->quoted);
    assert_int_equal(ax_yaml_get(doc.root, "d")->kind, AX_YAML_NULL);
    assert_string_equal(ax_yaml_get(doc.root, "e")->text, "1_0.5");
    assert_false(ax_yaml_get(doc.root, "e")->quoted);
    ax_yaml_free(&doc);
}

static const char config[] = "base_model: meta-llama/Llama-3.2-1B\n" /* line 1 */
                             "# a comment\n"
                             "learning_rate: 2e-5\n"
                             "datasets:\n"
                             "  - path: data/a.jsonl\n" /* 5 */
                             "    type: alpaca\n"
                             "  - {path: \"b\", shards: [1, 2]}\n"
                             "special_tokens:\n"
                             "   eos_token: '<|im_end|>'\n";

static void is_at(const struct ax_yaml_node *node, int line, int column) {
    assert_int_equal(node->line, line);
    assert_int_equal(node->column, column);
}

static void nodes_know_their_place(void **state) {
    (void)state;
    struct ax_yaml_doc doc;
    good(&doc, config);
    assert_int_equal(doc.root->kind, AX_YAML_MAP);
    assert_int_equal(doc.root->n, 4);
    assert_string_equal(doc.root->entries[1].key, "learning_rate");
    assert_int_equal(doc.root->entries[1].line, 3);
    assert_int_equal(doc.root->entries[1].column, 1);
    is_at(doc.root->entries[1].value, 3, 16);
    const struct ax_yaml_node *datasets = ax_yaml_get(doc.root, "datasets");
    assert_int_equal(datasets->kind, AX_YAML_LIST);
    assert_int_equal(datasets->n, 2);
    assert_null(datasets->entries[0].key);
    const struct ax_yaml_node *type = ax_yaml_get(datasets->entries[0].value, "type");
    is_at(type, 6, 11);
    const struct ax_yaml_node *shards = ax_yaml_get(datasets->entries[1].value, "shards");
    is_at(shards->entries[1].value, 7, 29);
    const struct ax_yaml_node *eos =
        ax_yaml_get(ax_yaml_get(doc.root, "special_tokens"), "eos_token");
    assert_string_equal(eos->text, "<|im_end|>");
    assert_true(eos->quoted);
    assert_null(ax_yaml_get(doc.root, "absent"));
    assert_null(ax_yaml_get(datasets, "path"));
    assert_null(ax_yaml_get(NULL, "path"));
    ax_yaml_free(&doc);
    ax_yaml_free(&doc);

    good(&doc, "");
    assert_int_equal(doc.root->kind, AX_YAML_NULL);
    assert_true(doc.root->line == 1 && doc.root->column == 1);
    ax_yaml_free(&doc);
    good(&doc, "# only a comment\n");
    assert_int_equal(doc.root->kind, AX_YAML_NULL);
    ax_yaml_free(&doc);
    good(&doc, "--- \na: 1\n...\n");
    assert_int_equal(ax_yaml_get(doc.root, "a")->integer, 1);
    ax_yaml_free(&doc);
}

static void anchors_and_merges(void **state) {
    (void)state;
    struct ax_yaml_doc doc;
    good(&doc, "base: &b {lr: 1, steps: 10, opt: {name: adamw}}\n"
               "other: &o\n  steps: 20\n  wd: 3\n"
               "one:\n  lr: 5\n  <<: *b\n"
               "two:\n  <<: [*o, *b]\n  wd: 4\n"
               "three: {<<: &inner {x: 1}, y: 2}\n"
               "copy: *b\n"
               "again: *inner\n"
               "word: &w text\n"
               "*w : from an alias\n"
               "quoted: {\"<<\": 1}\n");
    const struct ax_yaml_node *one = ax_yaml_get(doc.root, "one");
    assert_int_equal(one->n, 3);
    assert_int_equal(ax_yaml_get(one, "lr")->integer, 5);
    assert_int_equal(ax_yaml_get(one, "steps")->integer, 10);
    assert_string_equal(ax_yaml_get(ax_yaml_get(one, "opt"), "name")->text, "adamw");
    const struct ax_yaml_node *two = ax_yaml_get(doc.root, "two");
    assert_int_equal(two->n, 4);
    assert_int_equal(ax_yaml_get(two, "steps")->integer, 20); /* the first of the list wins */
    assert_int_equal(ax_yaml_get(two, "lr")->integer, 1);
    assert_int_equal(ax_yaml_get(two, "wd")->integer, 4);
    assert_int_equal(ax_yaml_get(ax_yaml_get(doc.root, "three"), "x")->integer, 1);
    assert_int_equal(ax_yaml_get(doc.root, "copy")->n, 3);
    assert_int_equal(ax_yaml_get(doc.root, "copy")->line, 1); /* where it was written */
    assert_int_equal(ax_yaml_get(ax_yaml_get(doc.root, "again"), "x")->integer, 1);
    assert_string_equal(ax_yaml_get(doc.root, "text")->text, "from an alias");
    assert_int_equal(ax_yaml_get(ax_yaml_get(doc.root, "quoted"), "<<")->integer, 1);
    ax_yaml_free(&doc);
    /* a name given again means the later one */
    good(&doc, "[&a 1, *a, &a 2, *a]");
    assert_int_equal(doc.root->entries[1].value->integer, 1);
    assert_int_equal(doc.root->entries[3].value->integer, 2);
    ax_yaml_free(&doc);
}

static void mistakes_are_named_by_line(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"a: 1\nb: 2\na: 3\n", "c.yaml:3:1: duplicate key \"a\", first on line 1; remove one"},
        {"m:\n  x: 1\n  'x': 2\n", "c.yaml:3:3: duplicate key \"x\", first on line 2"},
        {"a: 1\n\tb: 2\n", "c.yaml:2:1: a tab cannot indent YAML; use spaces"},
        {"a:\n\t- 1\n", "c.yaml:2:1: a tab cannot indent YAML; use spaces"},
        {"# \xc3\xa4\xe2\x82\xac\na:\n\t- 1\n", "c.yaml:3:1: a tab cannot indent YAML; use spaces"},
        {"\xef\xbb\xbf"
         "a:\n\t- 1\n",
         "c.yaml:2:1: a tab cannot indent YAML; use spaces"},
        {"# \xc3\xa4\xc3\xa4\xc3\xa4\na: [x\t\nb: 1\n",
         "c.yaml:3:2: did not find expected ',' or ']'"},
        {"a: 1\n---\nb: 2\n", "c.yaml:2:1: a second document"},
        {"a: [1, 2\nb: 3\n", "c.yaml:2:"},
        {"a: 'open\n", "c.yaml:2:1: found unexpected end of stream while scanning a quoted "
                       "scalar that begins on line 1"},
        {"a: b: c\n", "c.yaml:1:5: mapping values are not allowed"},
        {"a: *nobody\n", "c.yaml:1:4: alias *nobody: there is no anchor &nobody before it"},
        {"a: &x [1, *x]\n", "c.yaml:1:11: alias *x appears inside what it names"},
        {"a: {<<: 3}\n", "c.yaml:1:5: key \"<<\" must be followed by a map"},
        {"a: {<<: [{b: 1}, 2]}\n", "c.yaml:1:5: key \"<<\" must be followed by a map"},
        {"a:\n  <<: {b: 1}\n  <<: {c: 1}\n", "c.yaml:3:3: duplicate key \"<<\""},
        {"? [a, b]\n: c\n", "c.yaml:1:3: a key must be a word"},
        {": c\n", "c.yaml:1:1: did not find expected key"},
        {"a: !!python/object:os.system x\n", "c.yaml:1:4: tag \"tag:yaml.org,2002:python/object"},
        {"a: !custom {b: 1}\n", "c.yaml:1:4: tag \"!custom\" is not supported"},
        {"a: !!int abc\n", "c.yaml:1:4: the tag asks for an integer, but this is a string"},
        {"a: !!seq {b: 1}\n", "c.yaml:1:4: the tag asks for a list, but this is a map"},
        {"a: \"x\\0y\"\n", "c.yaml:1:4: a NUL character"},
        {"a: 1\nb: \xFF\n", "c.yaml:2:4: invalid leading UTF-8 octet (byte 0xFF)"},
        {"a: 1\n# \xE9\n", "c.yaml:2:3: incomplete UTF-8 octet sequence"},
        {"a: 1\nb: x\x01\n", "c.yaml:2:5: control characters are not allowed"},
        {"a: @b\n", "c.yaml:1:4: found character that cannot start any token"},
        {"a: %b\n", "c.yaml:1:4: found character that cannot start any token"},
        {"%YAML 3.0\n---\na: 1\n", "c.yaml:1:1: found incompatible YAML document"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        refused(wrong[i][0], wrong[i][1]);
    struct ax_yaml_doc doc;
    assert_int_equal(ax_yaml_parse(&doc, "c.yaml", "a: b\0c", 6), AX_ERR_CONFIG);
}

static void hostile_documents_are_bounded(void **state) {
    (void)state;
    struct ax_buf b = {0};
    /* each level names the one before it nine times */
    assert_int_equal(ax_buf_puts(&b, "l0: &l0 lol\n"), AX_OK);
    for (int i = 1; i <= 9; i++) {
        assert_int_equal(ax_buf_printf(&b, "l%d: &l%d [", i, i), AX_OK);
        for (int j = 0; j < 9; j++)
            assert_int_equal(ax_buf_printf(&b, "%s*l%d", j > 0 ? ", " : "", i - 1), AX_OK);
        assert_int_equal(ax_buf_puts(&b, "]\n"), AX_OK);
    }
    refused(b.data, "c.yaml:6:");
    assert_non_null(strstr(ax_error_text(), "more than 100000 values"));
    ax_buf_free(&b);
    /* few nodes, much text */
    assert_int_equal(ax_buf_printf(&b, "a: &a %0100000d\nb: [", 1), AX_OK);
    for (int j = 0; j < 200; j++)
        assert_int_equal(ax_buf_puts(&b, "*a, "), AX_OK);
    assert_int_equal(ax_buf_puts(&b, "]\n"), AX_OK);
    refused(b.data, "c.yaml:2:");
    assert_non_null(strstr(ax_error_text(), "repeat more than 16777216 bytes"));
    ax_buf_free(&b);
    /* many anchors */
    for (int j = 0; j <= 1000; j++)
        assert_int_equal(ax_buf_printf(&b, "- &a%d x\n", j), AX_OK);
    refused(b.data, "c.yaml:1001:3: more than 1000 anchors");
    ax_buf_free(&b);
    /* depth */
    for (int depth = 100; depth <= 101; depth++) {
        char text[203] = {0};
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        struct ax_yaml_doc doc;
        assert_int_equal(parse(&doc, text), depth == 100 ? AX_OK : AX_ERR_CONFIG);
        ax_yaml_free(&doc);
    }
    assert_string_equal(ax_error_text(), "c.yaml:1:101: nested deeper than 100 levels");
    char *deep = malloc(100001);
    assert_non_null(deep);
    memset(deep, '{', 100000);
    deep[100000] = '\0';
    refused(deep, "c.yaml:1:");
    free(deep);
    /* many keys: duplicates are found by sorting */
    for (int j = 0; j < 40000; j++)
        assert_int_equal(ax_buf_printf(&b, "key%d: 1\n", j), AX_OK);
    struct ax_yaml_doc doc;
    good(&doc, b.data);
    assert_int_equal(doc.root->n, 40000);
    ax_yaml_free(&doc);
    assert_int_equal(ax_buf_puts(&b, "key5: 1\n"), AX_OK);
    refused(b.data, "c.yaml:40001:1: duplicate key \"key5\", first on line 6");
    ax_buf_free(&b);
}

static void files_are_loaded(void **state) {
    (void)state;
    char path[] = "/tmp/axtrain-yaml-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "a: [1,\n", 7), 7);
    close(fd);
    struct ax_yaml_doc doc;
    assert_int_equal(ax_yaml_load(&doc, path, 7), AX_ERR_CONFIG);
    assert_memory_equal(ax_error_text(), path, strlen(path));
    assert_int_equal(ax_yaml_load(&doc, path, 6), AX_ERR_DATA);
    unlink(path);
    assert_int_equal(ax_yaml_load(&doc, path, 100), AX_ERR_IO);
    ax_yaml_free(&doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_scalars_resolve),
        cmocka_unit_test(nodes_know_their_place),
        cmocka_unit_test(anchors_and_merges),
        cmocka_unit_test(mistakes_are_named_by_line),
        cmocka_unit_test(hostile_documents_are_bounded),
        cmocka_unit_test(files_are_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
