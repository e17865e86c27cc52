/* A conversation as the mistral-common package writes it. Include after cmocka.h. */
#ifndef AX_TESTS_DATA_MISTRAL_CASE_H
#define AX_TESTS_DATA_MISTRAL_CASE_H

#include "data/template/template.h"
#include "tests/data/scratch.h"
#include "tests/data/tokenizer_case.h"

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

#endif
