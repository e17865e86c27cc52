/* Small templates against what jinja2 made of them: the golden cases of the reference, and our own
 * (jinja_cases.json, written by tests/peers/make_jinja_cases.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/data/template_case.h"

static int failures;

static void say(const json_t *c, const char *got) {
    printf("template %s\n  got  %s\n  want %s\n", json_string_value(json_object_get(c, "template")),
           got, json_string_value(json_object_get(c, "text")));
    failures++;
}

static bool same_spans(const json_t *want, const struct ax_template_output *out) {
    if (json_array_size(want) != out->n_spans)
        return false;
    for (size_t i = 0; i < out->n_spans; i++) {
        const json_t *span = json_array_get(want, i);
        if ((size_t)json_integer_value(json_array_get(span, 0)) != out->spans[i].start ||
            (size_t)json_integer_value(json_array_get(span, 1)) != out->spans[i].end)
            return false;
    }
    return true;
}

static void check_text(const json_t *c, const struct ax_template_output *out) {
    const json_t *text = json_object_get(c, "text");
    if (text == NULL || json_string_length(text) != out->len ||
        memcmp(json_string_value(text), out->text, out->len) != 0)
        say(c, out->text);
    else if (!same_spans(json_object_get(c, "spans"), out))
        say(c, "other spans");
}

static void check_error(const json_t *c) {
    const char *message = json_string_value(json_object_get(c, "message"));
    const char *text = ax_error_text();
    if (!json_is_true(json_object_get(c, "error")) || strncmp(text, "t:", 2) != 0)
        say(c, text);
    else if (message != NULL && (strlen(text) < strlen(message) ||
                                 strcmp(text + strlen(text) - strlen(message), message) != 0))
        say(c, text);
}

static void check_case(const json_t *c, const json_t *vars) {
    const json_t *source = json_object_get(c, "template");
    struct ax_template *t = NULL;
    struct ax_template_output out;
    enum ax_status st =
        ax_template_compile(&t, "t", json_string_value(source), json_string_length(source));
    if (st == AX_OK)
        st = ax_template_render(t, vars, &stopped, &out);
    if (st == AX_OK) {
        check_text(c, &out);
        ax_template_output_free(&out);
    } else {
        check_error(c);
    }
    ax_template_free(t);
}

static void check_file(const char *path, size_t at_least) {
    struct ax_json_doc doc;
    failures = 0;
    if (ax_json_load(&doc, path, (size_t)16 << 20) != AX_OK)
        fail_msg("%s", ax_error_text());
    const uint64_t live = ax_mem_live_blocks();
    const json_t *cases = json_object_get(doc.root, "cases");
    const json_t *common = json_object_get(doc.root, "vars");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        check_case(c, common != NULL ? common : json_object_get(c, "vars"));
    }
    assert_int_equal(ax_mem_live_blocks(), live);
    printf("%zu cases of %s\n", json_array_size(cases), path);
    assert_true(json_array_size(cases) >= at_least);
    ax_json_free(&doc);
    assert_int_equal(failures, 0);
}

static void golden(void **state) {
    (void)state;
    char path[512];
    check_file(fixture(path, sizeof path, "jinja/cases.json"), 136);
}

static void own(void **state) {
    (void)state;
    check_file("tests/data/jinja_cases.json", 270);
}

int main(void) {
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden), cmocka_unit_test(own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
