/* `axtrain template`: conversations from files and stdin to stdout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>

#include "cmd/commands.h"
#include "tests/cmd/command_case.h"
#include "tests/data/scratch.h"

static char output[4096];

/* Runs the command with `input` on stdin; what it prints is in `output` after it. */
static enum ax_status run(const char *input, int argc, char **argv) {
    return run_command(ax_cmd_template, argc, argv, put_text("in", input), in_scratch("out"),
                       output, sizeof output);
}

#define RUN(input, ...)                                                                            \
    run((input), sizeof((char *[]){"template", __VA_ARGS__}) / sizeof(char *),                     \
        (char *[]){"template", __VA_ARGS__})

static char *path(const char *name) {
    return (char *)(uintptr_t)in_scratch(name);
}

static void from_a_file(void **state) {
    (void)state;
    put_text("t.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
                        "{{ tools | length if tools else 'none' }}");
    static const char list[] = "[{\"role\": \"user\", \"content\": \"h\xc3\xa9\"}]";
    static const char object[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}],"
                                 " \"tools\": [1, 2], \"extra\": 1}";
    assert_ok(RUN(list, "--file", path("t.jinja")));
    assert_string_equal(output, "<user>h\xc3\xa9\nnone");
    assert_ok(RUN(object, "--file", path("t.jinja")));
    assert_string_equal(output, "<user>a\n2");
    put_text("vars.json", object);
    assert_ok(RUN("", "--file", path("t.jinja"), path("vars.json")));
    assert_string_equal(output, "<user>a\n2");
    assert_ok(RUN("\xef\xbb\xbf[]", "--file", path("t.jinja")));
    assert_string_equal(output, "none");
}

static void from_a_model(void **state) {
    (void)state;
    make_folder("model");
    put_text("model/tokenizer_config.json",
             "{\"bos_token\": {\"content\": \"<s>\"}, \"chat_template\": ["
             "{\"name\": \"default\", \"template\": \"{{ bos_token }}{{ messages | length }}\"},"
             "{\"name\": \"tool_use\", \"template\": \"{{ tools | length }} tools\"}]}");
    assert_ok(RUN("[]", "--model", path("model")));
    assert_string_equal(output, "<s>0");
    assert_ok(RUN("{\"messages\": [], \"bos_token\": \"B\"}", "--model", path("model")));
    assert_string_equal(output, "B0");
    assert_ok(RUN("{\"messages\": [], \"tools\": [{}]}", "--model", path("model")));
    assert_string_equal(output, "1 tools");
    assert_ok(RUN("{\"messages\": [], \"tools\": null}", "--model", path("model")));
    assert_string_equal(output, "<s>0");
    make_folder("empty");
    assert_error(RUN("[]", "--model", path("empty")), AX_ERR_DATA, "no chat template");
}

static void spans_and_time(void **state) {
    (void)state;
    put_text("t.jinja", "{% for m in list %}\xc3\xa9{% generation %}{{ m }}{% endgeneration %}"
                        "{% endfor %}");
    assert_ok(
        RUN("{\"list\": [\"\xf0\x9f\x98\x80\", \"bc\"]}", "--file", path("t.jinja"), "--spans"));
    assert_string_equal(output, "[[1, 2], [3, 5]]\n");
    put_text("t.jinja", "{{ strftime_now('%Y-%m') }}");
    assert_ok(RUN("[]", "--file", path("t.jinja"), "--spans"));
    assert_string_equal(output, "[]\n");
    assert_ok(RUN("[]", "--file", path("t.jinja"), "--now", "1772719629"));
    assert_string_equal(output, "2026-03");
}

/* As training rows are read: what is beyond 64 bits becomes a float, which the text shows. */
static void numbers_are_those_of_rows(void **state) {
    (void)state;
    put_text("t.jinja", "{{ n }} {{ n + 1 }} {{ x | tojson }}");
    assert_ok(RUN("{\"n\": 9223372036854775806, \"x\": {\"b\": 1.0, \"a\": [1e22]}}", "--file",
                  path("t.jinja")));
    assert_string_equal(output, "9223372036854775806 9223372036854775807 "
                                "{\"b\": 1.0, \"a\": [1e+22]}");
    put_text("t.jinja", "{{ n }}");
    assert_ok(RUN("{\"n\": 123456789012345678901234567890}", "--file", path("t.jinja")));
    assert_string_equal(output, "1.2345678901234568e+29");
}

static void refusals_print_nothing(void **state) {
    (void)state;
    put_text("t.jinja", "text\n{{ raise_exception('roles must alternate') }}");
    assert_error(RUN("[]", "--file", path("t.jinja")), AX_ERR_DATA,
                 "t.jinja:2: the template raised: roles must alternate");
    assert_string_equal(output, "");
    put_text("t.jinja", "\n\n{% if %}");
    assert_error(RUN("[]", "--file", path("t.jinja")), AX_ERR_DATA, "t.jinja:3: ");
    put_text("t.jinja", "x");
    assert_error(RUN("[1,", "--file", path("t.jinja")), AX_ERR_DATA, "standard input");
    assert_error(RUN("3", "--file", path("t.jinja")), AX_ERR_DATA, "object or a list of messages");
    assert_error(RUN("[]", "--spans"), AX_ERR_CONFIG, "either --model DIR or --file");
    assert_error(RUN("[]", "--model", "m", "--file", "f"), AX_ERR_CONFIG, "either --model");
    assert_error(RUN("[]", "--file", path("gone.jinja")), AX_ERR_IO, "gone.jinja");
    assert_error(RUN("", "--file", path("t.jinja"), path("gone.json")), AX_ERR_IO, "gone.json");
    assert_string_equal(output, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_a_file),
        cmocka_unit_test(from_a_model),
        cmocka_unit_test(spans_and_time),
        cmocka_unit_test(numbers_are_those_of_rows),
        cmocka_unit_test(refusals_print_nothing),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
