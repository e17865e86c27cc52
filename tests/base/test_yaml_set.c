/* Overrides of a YAML tree by key path; a failure at every allocation of parse and set. */
#include "base/text/yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/mem.h"

static enum ax_status parse(struct ax_yaml_doc *doc, const char *text) {
    return ax_yaml_parse(doc, "c.yaml", text, strlen(text));
}

static const char config[] = "base_model: meta-llama/Llama-3.2-1B\n"
                             "learning_rate: 2e-5\n"
                             "datasets:\n"
                             "  - path: data/a.jsonl\n"
                             "    type: alpaca\n"
                             "  - {path: \"b\", shards: [1, 2]}\n"
                             "special_tokens:\n"
                             "   eos_token: '<|im_end|>'\n";

static const struct ax_yaml_node *at(const struct ax_yaml_doc *doc, const char *list, size_t i) {
    return ax_yaml_get(doc->root, list)->entries[i].value;
}

static void overrides_are_set(void **state) {
    (void)state;
    struct ax_yaml_doc doc;
    assert_int_equal(parse(&doc, config), AX_OK);
    assert_int_equal(ax_yaml_set(&doc, "learning_rate", "1e-4"), AX_OK);
    const struct ax_yaml_node *lr = ax_yaml_get(doc.root, "learning_rate");
    assert_true(lr->number == 1e-4);
    assert_int_equal(lr->line, 0);
    assert_int_equal(ax_yaml_set(&doc, "datasets.0.path", "c.jsonl"), AX_OK);
    assert_string_equal(ax_yaml_get(at(&doc, "datasets", 0), "path")->text, "c.jsonl");
    assert_int_equal(ax_yaml_set(&doc, "datasets.1.shards.1", "9"), AX_OK);
    assert_int_equal(ax_yaml_get(at(&doc, "datasets", 1), "shards")->entries[1].value->integer, 9);
    assert_int_equal(ax_yaml_set(&doc, "datasets.2.type", "completion"), AX_OK); /* adds one */
    assert_string_equal(ax_yaml_get(at(&doc, "datasets", 2), "type")->text, "completion");
    assert_int_equal(ax_yaml_set(&doc, "a.b.c", "{x: [1, 2]}"), AX_OK); /* makes maps */
    const struct ax_yaml_node *c = ax_yaml_get(ax_yaml_get(ax_yaml_get(doc.root, "a"), "b"), "c");
    assert_int_equal(ax_yaml_get(c, "x")->entries[1].value->integer, 2);
    assert_int_equal(ax_yaml_get(c, "x")->entries[1].value->line, 0);
    assert_int_equal(ax_yaml_set(&doc, "test_datasets.0.path", "t"), AX_OK); /* and a list */
    assert_string_equal(ax_yaml_get(at(&doc, "test_datasets", 0), "path")->text, "t");
    /* unset: null, nothing, an entry of a list, what is not there */
    assert_int_equal(ax_yaml_set(&doc, "special_tokens.eos_token", "null"), AX_OK);
    assert_int_equal(ax_yaml_get(doc.root, "special_tokens")->n, 1);
    assert_int_equal(ax_yaml_get(doc.root, "special_tokens")->entries[0].value->kind, AX_YAML_NULL);
    assert_int_equal(ax_yaml_set(&doc, "learning_rate", ""), AX_OK);
    assert_int_equal(ax_yaml_get(doc.root, "learning_rate")->kind, AX_YAML_NULL);
    assert_int_equal(ax_yaml_unset(&doc, "learning_rate"), AX_OK);
    assert_null(ax_yaml_get(doc.root, "learning_rate"));
    assert_int_equal(ax_yaml_unset(&doc, "no.such.key"), AX_OK);
    assert_int_equal(ax_yaml_unset(&doc, "a..b"), AX_ERR_CONFIG);
    assert_int_equal(ax_yaml_set(&doc, "datasets.0", "~"), AX_OK);
    assert_int_equal(ax_yaml_get(doc.root, "datasets")->n, 2);
    assert_string_equal(ax_yaml_get(at(&doc, "datasets", 0), "path")->text, "b");
    assert_int_equal(ax_yaml_set(&doc, "no.such.key", "null"), AX_OK);
    assert_null(ax_yaml_get(doc.root, "no"));
    assert_int_equal(ax_yaml_set(&doc, "special_tokens.pad", "'null'"), AX_OK);
    assert_string_equal(ax_yaml_get(ax_yaml_get(doc.root, "special_tokens"), "pad")->text, "null");
    /* lists that grew and shrank */
    for (int i = 0; i < 20; i++) {
        char path[32];
        snprintf(path, sizeof path, "grown.%d", i);
        assert_int_equal(ax_yaml_set(&doc, path, "1"), AX_OK);
        if (i % 3 == 2) {
            assert_int_equal(ax_yaml_set(&doc, "grown.0", "null"), AX_OK);
            i--;
            assert_int_equal(ax_yaml_set(&doc, path, "2"), AX_OK);
            i++;
        }
    }
    ax_yaml_free(&doc);

    assert_int_equal(parse(&doc, ""), AX_OK);
    assert_int_equal(ax_yaml_set(&doc, "0.a", "1"), AX_OK); /* the top is always a map */
    assert_int_equal(ax_yaml_get(ax_yaml_get(doc.root, "0"), "a")->integer, 1);
    ax_yaml_free(&doc);
}

static void wrong_overrides_change_nothing(void **state) {
    (void)state;
    static const char *const wrong[][3] = {
        {"datasets.5.path", "x", "datasets.5.path: datasets is a list of 2; after it, use the"},
        {"datasets.path", "x", "datasets.path: datasets is a list of 2"},
        {"datasets.-1", "x", "datasets.-1: datasets is a list"},
        {"datasets.9999999999", "x", "datasets.9999999999: datasets is a list"},
        {"base_model.x", "1", "base_model.x: base_model is a string, so it has nothing to set"},
        {"learning_rate.x.y", "1", "learning_rate.x.y: learning_rate is a number, so"},
        {"", "1", "\"\": expected a key path"},
        {"a..b", "1", "\"a..b\": expected a key path"},
        {".a", "1", "\".a\": expected a key path"},
        {"a.", "1", "\"a.\": expected a key path"},
        {"lora_r", "[1, 2", "lora_r=[1, 2: did not find expected"},
        {"x", "- a", "x=- a: write a list as [a, b]"},
        {"x", "a: b", "x=a: b: write a list as [a, b]"},
        {"x", "{a: 1, a: 2}", "x={a: 1, a: 2}: duplicate key \"a\""},
        {"x", "*a", "x=*a: alias *a: there is no anchor"},
        {"x", "a\n---\nb", "x=a\n---\nb: a second document"},
    };
    struct ax_yaml_doc doc;
    assert_int_equal(parse(&doc, config), AX_OK);
    uint64_t live = ax_mem_live_blocks();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        enum ax_status st = ax_yaml_set(&doc, wrong[i][0], wrong[i][1]);
        if (st != AX_ERR_CONFIG || strncmp(ax_error_text(), wrong[i][2], strlen(wrong[i][2])) != 0)
            fail_msg("expected %s\n     got %s", wrong[i][2], ax_error_text());
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    assert_int_equal(doc.root->n, 4);
    ax_yaml_free(&doc);
}

static enum ax_status parse_and_set(void) {
    struct ax_yaml_doc doc = {0};
    enum ax_status st;
    AX_TRY_GOTO(parse(&doc, "a: &a {x: 1, y: [2, three]}\nb: {<<: *a, x: 2}\nc: [*a]\n"), st, done);
    AX_TRY_GOTO(ax_yaml_set(&doc, "c.1.z", "{q: [1]}"), st, done);
    assert_int_equal(ax_yaml_get(at(&doc, "c", 1), "z")->n, 1);
done:
    ax_yaml_free(&doc);
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
        enum ax_status st = parse_and_set();
        bool fired = ax_fault_fired();
        assert_int_equal(ax_fault_configure(NULL), AX_OK);
        assert_int_equal(ax_mem_live_blocks(), live);
        assert_int_equal(st, fired ? AX_ERR_NOMEM : AX_OK);
        if (!fired)
            break;
        points++;
    }
    print_message("failed at %d allocations\n", points);
    assert_true(points >= 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overrides_are_set),
        cmocka_unit_test(wrong_overrides_change_nothing),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
