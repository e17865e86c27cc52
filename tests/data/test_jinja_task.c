/* Templates of evaluation tasks, whose rules are not those of chat templates, and Python literals.
 * The texts are what lm-evaluation-harness's Jinja environment gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "data/text/jinja/literal.h"
#include "tests/data/template_case.h"

static enum ax_status render_task(const char *source, const char *vars,
                                  struct ax_template_output *out) {
    struct ax_template *t;
    struct ax_json_doc doc;
    AX_TRY(ax_template_compile_task(&t, "t", source, strlen(source)));
    enum ax_status st = ax_json_parse(&doc, "vars", vars, strlen(vars));
    if (st == AX_OK)
        st = ax_template_render(t, doc.root, NULL, out);
    ax_json_free(&doc);
    ax_template_free(t);
    return st;
}

static const char vars[] =
    "{\"q\": \"What is é?\", \"choices\": {\"text\": [\"a\", \"it's\", \"x\\ny\"], \"label\": "
    "[\"A\", \"B\", \"C\"]}, \"answerKey\": \"B\", \"n\": null, \"text\": \"a1b22c\"}";

static void gives_task(const char *source, const char *want) {
    struct ax_template_output out;
    const uint64_t live = ax_mem_live_blocks();
    if (render_task(source, vars, &out) != AX_OK)
        fail_msg("%s\n  %s", source, ax_error_text());
    if (strcmp(out.text, want) != 0)
        fail_msg("%s\n  gave %s\n  not  %s", source, out.text, want);
    ax_template_output_free(&out);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void texts(void **state) {
    (void)state;
    gives_task("Q: {{q}}\nA:\n", "Q: What is é?\nA:\n");           /* the last newline stays */
    gives_task("  {% if q %}\nx\n  {% endif %}\n", "  \nx\n  \n"); /* so does what is around tags */
    gives_task("{{choices.label.index(answerKey)}}", "1");
    gives_task("{{choices.text}}", "['a', \"it's\", 'x\\ny']");
    gives_task("{{choices.label.count('C')}}{{(1,2,1).index(2)}}", "11");
    gives_task("{{n}}{{missing is defined}}{{missing|default('d')}}", "NoneFalsed");
    gives_task("{{text|regex_replace('[0-9]+', '<\\\\g<0>>')}}", "a<1>b<22>c");
    gives_task("{{text|regex_replace('(?P<l>[a-z])([0-9])', '\\\\2\\\\g<l>', 1)}}", "1ab22c");
    gives_task("{{text|regex_replace('x*', '-')}}", "-a-1-b-2-2-c-");
}

static void mistakes(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"a\n{{missing}}", "t:2: 'missing' is undefined"},
        {"{{ 'x' if missing else 'y' }}", "t:1: 'missing' is undefined"},
        {"{% if missing %}{% endif %}", "t:1: 'missing' is undefined"},
        {"{% for x in missing %}{% endfor %}", "t:1: 'missing' is undefined"},
        {"{{ missing|length }}", "t:1: 'missing' is undefined"},
        {"{{ missing == 1 }}", "t:1: 'missing' is undefined"},
        {"{{ not missing }}", "t:1: 'missing' is undefined"},
        {"{{ choices.nothing }}", "t:1: a dict has no 'nothing'"},
        {"{{ choices.label.index('Z') }}", "t:1: index: the value is not in the list"},
        {"{{ q|regex_replace('(', '') }}", "bad regular expression"},
        {"{{ text|regex_replace('(a)', '\\\\2') }}", "the replacement names no group"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ax_template_output out = {0};
        if (render_task(wrong[i][0], vars, &out) == AX_OK)
            fail_msg("%s\n  gave %s", wrong[i][0], out.text);
        if (!strstr(ax_error_text(), wrong[i][1]))
            fail_msg("%s\n  said %s\n  not  %s", wrong[i][0], ax_error_text(), wrong[i][1]);
    }
    /* chat templates are as they were */
    gives("a\n", "{}", "a");
    gives("a\r\nb\rc\r\r\nd\n\re\r\n", "{}", "a\nb\nc\n\nd\n\ne"); /* line ends of any kind */
    gives("a\r", "{}", "a");
    gives("{{ missing }}|{{ missing|length }}", "{}", "|0");
    refuses("{{ q|regex_replace('a', '') }}", "{}", "t:1: ", "no filter named 'regex_replace'");
}

static void literal(const char *text, const char *want) {
    const uint64_t live = ax_mem_live_blocks();
    json_t *v;
    ax_error_clear();
    assert_int_equal(ax_jinja_literal(text, strlen(text), &v), AX_OK);
    assert_string_equal(ax_error_text(), ""); /* to be no literal is no error */
    char *got = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (want ? !got || strcmp(got, want) != 0 : got != NULL)
        fail_msg("%s\n  gave %s\n  not  %s", text, got ? got : "nothing", want ? want : "nothing");
    ax_free(got);
    json_decref(v);
    assert_int_equal(ax_mem_live_blocks(), live);
}

static void literals(void **state) {
    (void)state;
    literal("['a', \"it's\", 'x\\ny', '\\xe9\\u4e2d']", "[\"a\",\"it's\",\"x\\ny\",\"é中\"]");
    literal("[1, -2, 2.5, -0.5, True, False, None]", "[1,-2,2.5,-0.5,true,false,null]");
    literal("('a', ['b', ('c',)])", "[\"a\",[\"b\",[\"c\"]]]");
    literal("{'a': 1, 'b': [2]}", "{\"a\":1,\"b\":[2]}");
    literal("[]", "[]");
    literal("12", "12");
    literal("'a' 'b'", "\"ab\"");
    literal("[x]", NULL); /* names, calls, operators: nothing that has to be computed */
    literal("[range(3)]", NULL);
    literal("[1+2]", NULL);
    literal("['a'|upper]", NULL);
    literal("[1", NULL);
    literal("] }} x {{ [", NULL);
    literal("1 }}{{ 2", NULL);
    literal("", NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(mistakes),
                                       cmocka_unit_test(literals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
