/* Goldens of the mistral-common package, and a conversation as it writes it. Include after cmocka.h. */
#ifndef AX_TESTS_DATA_MISTRAL_CASE_H
#define AX_TESTS_DATA_MISTRAL_CASE_H

#include "data/text/template/template.h"
#include "tests/data/scratch.h"
#include "tests/data/tokenizer_case.h"

static struct ax_json_doc cases;

/* For a test's own set-up, which names the file. */
static inline int load_cases_of(void **state, const char *path) {
    return ax_json_load(&cases, path, 16 << 20) == AX_OK ? scratch_make(state) : -1;
}

static inline int free_cases(void **state) {
    ax_json_free(&cases);
    return scratch_remove(state);
}

static inline json_t *member(const char *key) {
    json_t *list = json_object_get(cases.root, key);
    assert_true(json_array_size(list) > 50);
    return list;
}

static inline json_t *variables(const json_t *row) {
    json_t *vars = json_object();
    json_object_set(vars, "messages", json_object_get(row, "messages"));
    if (json_object_get(row, "tools"))
        json_object_set(vars, "tools", json_object_get(row, "tools"));
    return vars;
}

static inline void check_chat(const struct ax_template *template, const struct ax_tokenizer *t,
                              const json_t *row) {
    const struct ax_template_options o = {.chat = true};
    const char *name = json_string_value(json_object_get(row, "name"));
    const json_t *want = json_object_get(row, "text");
    struct ax_template_output out = {0};
    json_t *vars = variables(row);
    const enum ax_status st = ax_template_render(template, vars, &o, &out);
    json_decref(vars);
    if (json_object_get(row, "error")) {
        assert_int_equal(st, AX_ERR_DATA);
        return;
    }
    if (st != AX_OK)
        fail_msg("%s: %s", name, ax_error_text());
    if (want && (out.len != json_string_length(want) ||
                 memcmp(out.text, json_string_value(want), out.len) != 0))
        fail_msg("%s\ngot  %s\nwant %s", name, out.text, json_string_value(want));
    json_t *text = json_stringn(out.text, out.len);
    assert_encodes(t, text, json_object_get(row, "ids"), false);
    json_decref(text);
    ax_template_output_free(&out);
}

/* What a template makes of messages, as JSON, and an effort or NULL; `want` NULL: it refuses them. */
static inline void check_text(const struct ax_template *template, const char *messages,
                              const char *effort, const char *want) {
    const struct ax_template_options o = {.chat = true};
    struct ax_template_output out = {0};
    json_t *list = json_loads(messages, 0, NULL);
    json_t *vars = json_pack("{so ss*}", "messages", list, "reasoning_effort", effort);
    assert_non_null(vars);
    const enum ax_status st = ax_template_render(template, vars, &o, &out);
    if (st == AX_OK && want)
        assert_string_equal(out.text, want);
    else
        assert_int_equal(st, want ? AX_OK : AX_ERR_DATA);
    ax_template_output_free(&out);
    json_decref(vars);
}

#endif
