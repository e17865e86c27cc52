/* Modelfiles for ollama. That Go makes of their TEMPLATE what Jinja makes of the model's template is
 * checked by tests/peers/check_modelfile.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cmd/commands.h"
#include "model/convert/modelfile.h"
#include "data/text/template/template.h"
#include "tests/ckpt/folder.h"
#include "tests/cmd/command_case.h"
#include "tests/golden_files.h"

static char model[512], text[1 << 16], why[512];

static int start(void **state) {
    snprintf(model, sizeof model, "%s", golden_path("models/llama"));
    return make_dir(state);
}

static void ok(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void copy_of_model(const char *name) {
    char *content, path[600], to[96];
    size_t len;
    snprintf(path, sizeof path, "%s/%s", model, name);
    snprintf(to, sizeof to, "model/%s", name);
    ok(ax_read_file(path, 1 << 24, &content, &len));
    put_file(to, content, len);
    ax_free(content);
}

/* The golden model's tokenizer with this template; its Modelfile is in `text`. */
static void write_with(const char *template, size_t len) {
    ok(ax_mkdir(in_dir("model")));
    copy_of_model("config.json");
    copy_of_model("tokenizer.json");
    copy_of_model("tokenizer_config.json");
    put_file("model/chat_template.jinja", template, len);
    ok(ax_modelfile_write(in_dir("model"), in_dir("my.gguf"), why));
    char *written = get_text("Modelfile");
    snprintf(text, sizeof text, "%s", written);
    ax_free(written);
}

static void write_builtin(const char *name) {
    struct ax_template *t;
    size_t len;
    ok(ax_template_builtin(&t, name));
    const char *source = ax_template_source(t, &len);
    write_with(source, len);
    ax_template_free(t);
}

static void chatml_in_full(void **state) {
    (void)state;
    write_builtin("chatml");
    assert_string_equal(why, "");
    assert_string_equal(
        text, "FROM ./my.gguf\n\n"
              "TEMPLATE \"\"\"{{- $before := \"\" }}\n"
              "{{- range .Messages }}\n"
              "{{- if eq .Role \"system\" }}{{ \"<|im_start|>system\\n\" }}{{ .Content }}\n"
              "{{- else if eq .Role \"user\" }}\n"
              "{{- if eq $before \"\" }}{{ \"<|im_start|>user\\n\" }}\n"
              "{{- else if eq $before \"system\" }}{{ \"<|im_end|>\\n<|im_start|>user\\n\" }}\n"
              "{{- else }}{{ \"<|im_end|>\\n<|im_start|>user\\n\" }}\n"
              "{{- end }}{{ .Content }}\n"
              "{{- else if eq .Role \"assistant\" }}{{ \"<|im_end|>\\n<|im_start|>assistant\\n\" }}"
              "{{ .Content }}\n"
              "{{- end }}\n"
              "{{- $before = .Role }}\n"
              "{{- end }}\n"
              "{{- if ne $before \"assistant\" }}{{ \"<|im_end|>\\n<|im_start|>assistant\\n\" }}"
              "{{ end }}\"\"\"\n"
              "PARAMETER stop \"<|eot_id|>\"\n");
}

/* The reader of the file puts BOS first, if the tokenizer does. */
static void bos_is_left_to_the_reader(void **state) {
    (void)state;
    write_builtin("llama3");
    assert_string_equal(why, "");
    assert_null(strstr(text, "<|begin_of_text|>"));
    assert_non_null(strstr(text, "{{ \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}"));
}

static void every_builtin_is_expressed_or_named(void **state) {
    (void)state;
    static const struct {
        const char *name, *why;
    } refused[] = {
        {"llama3_2_vision", "contains the date"},
        {"mistral_v2v3", "not made of equal turns"}, /* the system text is in the last one */
        {"mistral_v3_tekken", "not made of equal turns"},
        {"mistral_v7_tekken", "contains the date"},
        {"pixtral", "not made of equal turns"}};
    const char *name;
    for (size_t i = 0; (name = ax_template_name(i)) != NULL; i++) {
        const char *want = NULL;
        for (size_t k = 0; k < sizeof refused / sizeof *refused; k++)
            want = strcmp(refused[k].name, name) == 0 ? refused[k].why : want;
        write_builtin(name);
        if (want ? !strstr(why, want) : why[0] != '\0')
            fail_msg("%s: %s", name, why);
        assert_true((strstr(text, "TEMPLATE") != NULL) == (want == NULL));
    }
}

static void what_cannot_be_expressed_is_said(void **state) {
    (void)state;
    static const struct {
        const char *template, *why;
    } cases[] = {
        {"{{ strftime_now('%Y') }}{% for m in messages %}[{{ m.content }}]{% endfor %}",
         "contains the date"},
        {"{% for m in messages %}[{{ m.content | upper }}]{% endfor %}", "not made of equal turns"},
        {"{% for m in messages %}{{ loop.index }}[{{ m.content }}]{% endfor %}",
         "a conversation of 5 messages is not made of equal turns"},
        {"{{ raise_exception('no more of this') }}", "no more of this"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_with(cases[i].template, strlen(cases[i].template));
        if (!strstr(why, cases[i].why))
            fail_msg("\"%s\" is not in: %s", cases[i].why, why);
        assert_null(strstr(text, "TEMPLATE"));
        assert_non_null(strstr(text, "PARAMETER stop"));
    }
}

static void texts_are_quoted_for_go(void **state) {
    (void)state;
    static const char template[] =
        "{% for m in messages %}{{ '\\t\"a\\\\b\" ' ~ m.content }}{% endfor %}";
    write_with(template, sizeof template - 1);
    assert_string_equal(why, "");
    assert_non_null(strstr(text, "{{ \"\\x09\\\"a\\\\b\\\" \" }}"));
}

static void a_model_without_system_messages(void **state) {
    (void)state;
    static const char template[] =
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
        "{% endif %}[{{ m.content }}]{% endfor %}";
    write_with(template, sizeof template - 1);
    assert_string_equal(why, "");
    assert_null(strstr(text, "system"));
}

static enum ax_status convert(const char *const *argv) {
    int n = 0;
    while (argv[n])
        n++;
    return run_command(ax_cmd_convert, n, (char **)(uintptr_t)argv, NULL, in_dir("out"), text,
                       sizeof text);
}
#define RUN(...) convert((const char *const[]){"convert", __VA_ARGS__, NULL})

static void the_command_writes_one_beside_the_file(void **state) {
    (void)state;
    ok(ax_mkdir(in_dir("new")));
    ok(RUN(model, in_dir("new/m.gguf"), "--quant", "q8_0", "--ollama"));
    assert_non_null(strstr(text, "new/Modelfile: for `ollama create"));
    char *written = get_text("new/Modelfile");
    assert_int_equal(strncmp(written, "FROM ./m.gguf\n", 14), 0);
    ax_free(written);
    assert_int_equal(RUN(model, in_dir("new/n.gguf"), "--ollama"), AX_ERR_CONFIG);
    assert_mentions("new/Modelfile: the file exists");
    assert_false(ax_path_exists(in_dir("new/n.gguf")));
    ok(RUN(model, in_dir("new/n.gguf"), "--ollama", "--overwrite"));
    assert_int_equal(RUN(in_dir("new/m.gguf"), in_dir("hf"), "--to", "hf", "--ollama"),
                     AX_ERR_CONFIG);
    assert_mentions("--ollama needs --to gguf");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chatml_in_full),
        cmocka_unit_test(bos_is_left_to_the_reader),
        cmocka_unit_test(every_builtin_is_expressed_or_named),
        cmocka_unit_test(what_cannot_be_expressed_is_said),
        cmocka_unit_test(texts_are_quoted_for_go),
        cmocka_unit_test(a_model_without_system_messages),
        cmocka_unit_test(the_command_writes_one_beside_the_file),
    };
    return cmocka_run_group_tests(tests, start, remove_dir);
}
