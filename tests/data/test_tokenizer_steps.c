/* Every normalizer, pre-tokenizer, decoder, post-processor and flag against what the HF library
 * makes of the same texts: ids, spans and decoded text. The rows are in tokenizer_steps.json, which
 * tests/peers/make_tokenizer_steps.py writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/data/tokenizer_case.h"

static struct ax_json_doc golden;

static int load_golden(void **state) {
    (void)state;
    return ax_json_load(&golden, "tests/data/tokenizer_steps.json", 16 * 1024 * 1024) == AX_OK ? 0
                                                                                               : -1;
}

static int free_golden(void **state) {
    (void)state;
    ax_json_free(&golden);
    return 0;
}

/* tokenizer.json of a case: its parts, and the model with the options of parts.model. */
static struct ax_tokenizer *build(const json_t *c) {
    json_t *parts = json_object_get(c, "parts"), *doc = json_copy(parts);
    const char *model = json_string_value(json_object_get(c, "model"));
    json_t *base = json_copy(json_object_get(json_object_get(golden.root, "models"), model));
    json_object_update(base, json_object_get(parts, "model"));
    json_object_set_new(doc, "model", base);
    char *text;
    size_t len;
    struct ax_tokenizer *t;
    MUST(ax_json_dump(doc, &text, &len));
    MUST(ax_tokenizer_parse(&t, json_string_value(json_object_get(c, "name")), text, len));
    ax_free(text);
    json_decref(doc);
    return t;
}

static void check_spans(const struct ax_encoding *e, const json_t *want, const char *what) {
    assert_int_equal(e->n, json_array_size(want));
    for (size_t i = 0; i < e->n; i++) {
        const json_t *pair = json_array_get(want, i);
        size_t start = (size_t)json_integer_value(json_array_get(pair, 0));
        size_t end = (size_t)json_integer_value(json_array_get(pair, 1));
        if (e->spans[i].start != start || e->spans[i].end != end)
            fail_msg("%s: token %zu covers %zu–%zu, expected %zu–%zu", what, i, e->spans[i].start,
                     e->spans[i].end, start, end);
    }
}

static const json_t *other_or(const json_t *row, const char *key, const char *same) {
    const json_t *v = json_object_get(row, key);
    return v != NULL ? v : json_object_get(row, same);
}

static void check_row(const struct ax_tokenizer *t, const json_t *row, const char *name) {
    char what[400];
    const json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "ids");
    struct ax_encoding e = {0};
    const struct ax_encode_options opt = {.spans = true};
    snprintf(what, sizeof what, "%s: \"%s\"", name, json_string_value(text));
    MUST(ax_tokenizer_encode(t, json_string_value(text), json_string_length(text), &opt, &e));
    assert_ids(&e, ids, what);
    if (json_object_get(row, "spans") != NULL)
        check_spans(&e, json_object_get(row, "spans"), what);
    ax_encoding_free(&e);
    assert_encodes(t, text, ids, false); /* again, from the word cache and without spans */
    assert_encodes(t, text, other_or(row, "ids_special", "ids"), true);
    assert_decodes(t, ids, json_object_get(row, "decoded"), false);
    assert_decodes(t, ids, other_or(row, "decoded_skip_special", "decoded"), true);
}

static void steps_equal_the_library(void **state) {
    (void)state;
    size_t i, k, rows = 0;
    json_t *c, *row;
    json_array_foreach(json_object_get(golden.root, "cases"), i, c) {
        const char *name = json_string_value(json_object_get(c, "name"));
        uint64_t live = ax_mem_live_blocks();
        struct ax_tokenizer *t = build(c);
        json_array_foreach(json_object_get(c, "rows"), k, row) {
            check_row(t, row, name);
            rows++;
        }
        ax_tokenizer_free(t);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    printf("%zu configurations, %zu rows\n", i, rows);
    assert_true(i >= 80 && rows >= 2000);
}

/* Spans where ours say more than HF's: a composed character covers all that it came from. */
static void spans_of_composed_characters(void **state) {
    (void)state;
    static const char text[] =
        "e\xcc\x81-\xe1\x84\x80\xe1\x85\xa1"; /* e + acute, -, hangul g + a */
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"é\":0,\"-\":1,\"가\":2},\"merges\":[]},"
        "\"normalizer\":{\"type\":\"NFC\"}}";
    struct ax_tokenizer *t;
    struct ax_encoding e = {0};
    const struct ax_encode_options opt = {.spans = true};
    MUST(ax_tokenizer_parse(&t, "nfc", json, strlen(json)));
    MUST(ax_tokenizer_encode(t, text, strlen(text), &opt, &e));
    assert_int_equal(e.n, 3);
    const struct ax_span want[] = {{0, 3}, {3, 4}, {4, 10}};
    assert_memory_equal(e.spans, want, sizeof want);
    assert_int_equal(ax_encoding_covering(&e, 0, 2), 0);
    assert_int_equal(ax_encoding_covering(&e, 0, 3), 1);
    assert_int_equal(ax_encoding_covering(&e, 1, 9), 2);
    assert_int_equal(ax_encoding_covering(&e, 0, 10), 3);
    ax_encoding_free(&e);
    ax_tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_equal_the_library),
        cmocka_unit_test(spans_of_composed_characters),
    };
    ax_log_set_level(AX_LOG_ERROR); /* the added tokens' ids in the rows are not the real ones */
    return cmocka_run_group_tests(tests, load_golden, free_golden);
}
