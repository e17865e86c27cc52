/* Hostile templates end with an error, soon and in bounded memory; errors name the line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "base/clock.h"
#include "base/fault.h"
#include "tests/data/template_case.h"

/* ---- places ---- */

static void errors_name_the_line(void **state) {
    (void)state;
    refuses("a\n\n{{ x.y }}\n", "{}", "t:3: ", "'x' is undefined");
    refuses("{% if a %}\n{{ 1 +\n 'b' }}{% endif %}", "{\"a\": 1}", "t:2: ", "a int and a str");
    refuses("{% macro f(x) %}\n{{ x.y.z }}\n{% endmacro %}\n\n{{ f({}) }}", "{}",
            "t:2: ", "a dict has no 'y'");
    refuses("a\n{{ raise_exception('roles must ' + 'alternate') }}", "{}",
            "t:2: ", "the template raised: roles must alternate");
    refuses("\n\n{% for x in y %}\n", "{}", "t:3: ", "{% endfor %} is missing");
    refuses("\n{% set x 1 %}", "{}", "t:2: ", "expected the end of the tag, got a number");
    refuses("\r\n\r\n{% include 'x' %}", "{}", "t:3: ", "the tag {% include %} is not supported");
    refuses("{% nosuch x %}", "{}", "t:1: ", "unknown tag {% nosuch %}");
    refuses("a\n{{ x | nofilter }}", "{}", "t:2: ", "no filter named 'nofilter'");
    refuses("a\n{# b", "{}", "t:2: ", "a comment {# is never closed");
    refuses("{{ 'a }}", "{}", "t:1: ", "a string literal is never closed");
    refuses("a\n\n{{ \xc3\x28 }}", "{}", "t:3: ", "the template is not UTF-8 (byte 6)");
    refuses("{{ x ? y }}", "{}", "t:1: ", "unexpected character ? (U+003F)");
    refuses("{{ (1] }}", "{}", "t:1: ", "expected ')', got ']'");
    refuses("\n{{ [1] | map('upper') | length }}", "{}",
            "t:2: ", "a generator has no length: apply |list first");
    refuses("{{ [].append(1) }}", "{}", "t:1: ", "looking inside objects");
    struct ax_template *t = NULL;
    assert_int_equal(ax_template_compile(&t, "t", "{{ 0\0 }}", 8), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "t:1: unexpected character  (U+0000)");
}

/* ---- work, memory, output, depth ---- */

static const struct ax_template_options small = {
    .max_steps = 5000000, .max_memory = (size_t)64 << 20, .max_output = (size_t)16 << 20};

static void hostile_templates_end(void **state) {
    (void)state;
    static const char *const templates[] = {
        "{% for a in range(1000000000) %}{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% macro f(x) %}{% for y in x %}{{ y ~ f(x) | upper }}{% endfor %}{% endmacro %}{{ "
        "f('ab') }}",
        "{{ 'a' * 1000000000 }}",
        "{{ [0] * 1000000000 }}",
        "{% for a in range(100000) %}{{ 'x' * 10000 }}{% endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% "
        "endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(6000) %}{% set ns.s = [ns.s] %}{% endfor "
        "%}",
        "{% set ns = namespace(s={}) %}{% for i in range(6000) %}{% set ns.s = {'k': ns.s} %}{% "
        "endfor %}",
        "{% set ns = namespace(s={}, t={}) %}{% for i in range(25) %}"
        "{% set ns.s = {'a': ns.s, 'b': ns.s} %}{% set ns.t = {'a': ns.t, 'b': ns.t} %}{% endfor %}"
        "{{ ns.s == ns.t }}",
        "{% set ns = namespace(s=2) %}{% for i in range(60) %}{% set ns.s = ns.s * ns.s %}{% "
        "endfor %}",
        "{{ 'a' | indent(1000000000, true) }}",
        "{{ [1] | tojson(indent=1000000000) }}",
        "{% set x = '1' * 100000 %}{% for i in range(100000) %}{{ x | int }}{% endfor %}",
        "{% set x = 'ab' * 5000 %}{% set y = 'c' * 5000 ~ 'ab' %}{% for i in range(1000) %}"
        "{{ x.strip(y) }}{% endfor %}",
        "{% set x = 'a' * 100000 %}{% set y = 'a' * 50000 ~ 'b' %}{% for i in range(1000) %}"
        "{{ x.rfind(y) }}{% endfor %}",
        "{% set x = 'é' * 100000 %}{% for i in range(100000) %}{{ x[i] }}{% endfor %}",
        "{% set x = range(100000) | list %}{% for i in x %}{{ x | sort | length }}{% endfor %}",
        "{% set x = ['a'] * 10000 %}{% for i in x %}{{ x | join }}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++) {
        const double start = ax_clock_now();
        refuses_with(templates[i], "{}", &small, "t:1: ", "");
        if (ax_clock_now() - start > 20)
            fail_msg("%s took %.1f s", templates[i], ax_clock_now() - start);
    }
}

enum { LONG = 160000, MANY = 4000 }; /* characters; items */

/* Texts x, y and u, lists n and m, dicts d and e, each as y, m and e are. */
static void put_long_data(struct ax_buf *json) {
    assert_int_equal(ax_buf_puts(json, "{\"x\": \""), AX_OK);
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < (k < 2 ? LONG : LONG / 2); i++)
            assert_int_equal(ax_buf_puts(json, k < 2 ? "a" : "\xc3\xa9"), AX_OK);
        assert_int_equal(ax_buf_puts(json, k < 2 ? (k ? "\", \"u\": \"" : "\", \"y\": \"") : "\""),
                         AX_OK);
    }
    for (int k = 0; k < 4; k++) {
        assert_int_equal(ax_buf_printf(json, ", \"%c\": %c", "nmde"[k], "[[{{"[k]), AX_OK);
        for (int i = 0; i < MANY; i++)
            assert_int_equal(k < 2 ? ax_buf_printf(json, "%s%d", i > 0 ? "," : "", i)
                                   : ax_buf_printf(json, "%s\"k%d\":%d", i > 0 ? "," : "", i, i),
                             AX_OK);
        assert_int_equal(ax_buf_printf(json, "%c", "]]}}"[k]), AX_OK);
    }
    assert_int_equal(ax_buf_puts(json, "}"), AX_OK);
}

static bool ends_within(const char *source, const struct ax_buf *json, int64_t steps) {
    const struct ax_template_options o = {.max_steps = (size_t)steps};
    struct ax_template *t;
    struct ax_template_output out;
    assert_int_equal(ax_template_compile(&t, "t", source, strlen(source)), AX_OK);
    const enum ax_status st = ax_template_render_text(t, json->data, json->len, &o, &out);
    if (st == AX_OK)
        ax_template_output_free(&out);
    else if (!strstr(ax_error_text(), "gave up after"))
        fail_msg("%s: %s", source, ax_error_text());
    ax_template_free(t);
    return st == AX_OK;
}

/* An operation on all of a value costs steps by its size, as a loop over it would. */
static void operations_cost_what_they_take(void **state) {
    (void)state;
    static const struct {
        const char *reads; /* what costs as much before the operation */
        const char *operations[40];
    } groups[] = {
        {"x",
         {"'b' in x",
          "x in d",
          "x == y",
          "x < y",
          "[x] == [y]",
          "x > y",
          "x ~ 'a'",
          "x + 'a'",
          "x * 2",
          "x[::2]",
          "x.strip('a')",
          "x.split('b')",
          "x.split()",
          "x.find('b')",
          "x.lower()",
          "x.startswith(y)",
          "x.upper()",
          "x.endswith((y,))",
          "x.title()",
          "x.splitlines()",
          "x.capitalize()",
          "x.replace('b', 'c')",
          "x.join(['a', 'b', 'c'])",
          "x.isdigit()",
          "x | upper",
          "x | title",
          "x | capitalize",
          "x | replace('b', 'c')",
          "x | indent",
          "x | int",
          "x | float",
          "x | list",
          "x | reverse",
          "x | tojson",
          "x is in([y])",
          "x is equalto y",
          "x is gt y",
          "{x: 1}"}},
        {"u", {"u[5]", "u[1:]", "u | length", "u.upper()", "u | upper", "u | reverse"}},
        {"n",
         {"-1 in n", "n * 2", "n + n", "n[::2]", "n | sort", "n | join", "n | map('string') | list",
          "n | select('odd') | list", "n | reverse | list", "n | tojson", "n | string",
          "n.index(-1)", "n.count(7)", "n == [0] + n", "n | rejectattr('a') | list",
          "range(9999) | list"}},
        {"m] + [n", {"n == m", "n is in([m])", "n < m", "[n] == [m]"}},
        {"d",
         {"d | dictsort", "d | items | list", "d.items() | list", "d.keys() | list",
          "d.values() | list", "d | tojson", "d | list", "d | string"}},
        {"d] + [e", {"d == e"}},
    };
    struct ax_buf json = {0};
    char source[200];
    put_long_data(&json);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        int64_t low = 1, high = 1 << 20;
        snprintf(source, sizeof source, "{%% set q = [%s] %%}", groups[g].reads);
        while (low < high) {
            const int64_t mid = (low + high) / 2;
            if (ends_within(source, &json, mid))
                high = mid;
            else
                low = mid + 1;
        }
        for (int i = 0; groups[g].operations[i]; i++) {
            snprintf(source, sizeof source, "{%% set q = [%s] %%}{%% set z = %s %%}",
                     groups[g].reads, groups[g].operations[i]);
            if (ends_within(source, &json, low + LONG / 64 / 2))
                fail_msg("%s costs nothing", groups[g].operations[i]);
        }
    }
    ax_buf_free(&json);
    ax_error_clear();
}

/* The bounds that nobody set: who meets one is told which. */
static void each_bound_says_which(void **state) {
    (void)state;
    const struct ax_template_options none = {0};
    refuses_with("{% for a in range(1000000000) %}{% endfor %}", "{}", &none,
                 "t:1: ", "range: more than 100000 numbers");
    refuses_with("{% for a in range(2305843009213693951, 0, 1) %}{% endfor %}{{ x.y.z }}", "{}",
                 &none, "t:1: ", "'x' is undefined");
    refuses_with("{% for a in range(2305843009213693952, 0, 1) %}{% endfor %}{{ x.y.z }}", "{}",
                 &none, "t:1: ", "range: the argument is too large");
    refuses_with(
        "{% for a in range(100000) %}\n{% for b in range(100000) %}{% endfor %}{% endfor %}", "{}",
        &none, "t:2: ", "gave up after 200000000 steps: does a loop never end?");
    refuses_with("{% macro f(n) %}\n{% filter upper %}{{ f(n + 1) ~ 'x' }}{% endfilter %}"
                 "{% endmacro %}{{ f(0) }}",
                 "{}", &none,
                 "t:2: ", "nested more than 5000 deep: does a macro call itself forever?");
    refuses_with("\n{% for a in range(100000) %}{{ 'x' * 10000 }}{% endfor %}", "{}", &none,
                 "t:2: ", "the text is longer than 256 MiB");
    refuses_with("{% for i in range(100000) %}{% set x = [0] * 100000 %}{% endfor %}", "{}", &none,
                 "t:1: ", "the template needs more than 512 MiB of memory");
}

/* Where there is little data, little memory is enough, and hostile templates get no more. */
static void bounds_follow_the_text(void **state) {
    (void)state;
    static const char source[] = "{{ x[0] * 30000000 }}";
    struct ax_template *t;
    struct ax_template_output out;
    struct ax_buf json = {0};
    assert_int_equal(ax_template_compile(&t, "t", source, sizeof source - 1), AX_OK);
    assert_int_equal(ax_template_render_text(t, "{\"x\": \"a\"}", 10, NULL, &out), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "t:1: the text is longer than 16.0 MiB");
    assert_int_equal(ax_buf_printf(&json, "{\"x\": \"a%02000000d\"}", 0), AX_OK);
    assert_int_equal(ax_template_render_text(t, json.data, json.len, NULL, &out), AX_OK);
    assert_int_equal(out.len, 30000000);
    ax_template_output_free(&out);
    ax_template_free(t);
    ax_buf_free(&json);
}

/* A source of n times `unit` between `before` and `after` is refused, whatever it nests. */
static void nests(const char *before, const char *unit, size_t n, const char *after) {
    struct ax_buf source = {0};
    assert_int_equal(ax_buf_puts(&source, before), AX_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ax_buf_puts(&source, unit), AX_OK);
    assert_int_equal(ax_buf_puts(&source, after), AX_OK);
    struct ax_template_output out;
    if (render(source.data, "{\"a\": {}}", &small, &out) == AX_OK)
        fail_msg("%s… was accepted", unit);
    assert_int_equal(strncmp(ax_error_text(), "t:1: ", 5), 0);
    ax_buf_free(&source);
}

static void deep_sources_are_refused(void **state) {
    (void)state;
    const size_t n = 20000;
    nests("{{ ", "(", n, "1 }}");
    nests("{{ ", "[", n, " }}");
    nests("{{ ", "{1:", n, " }}");
    nests("{{ ", "-", n, "1 }}");
    nests("{{ ", "not ", n, "1 }}");
    nests("{{ 1", " + 1", n, " }}");
    nests("{{ a", ".b", n, " }}");
    nests("{{ a", "[0]", n, " }}");
    nests("{{ a", " | d", n, " }}");
    nests("{{ a", "(1)", n, " }}");
    nests("{{ ", "1 if 1 else ", n, "1 }}");
    nests("{{ 1", " and 1", n, " }}");
    nests("{{ ", "f(", n, " }}");
    nests("", "{% if 1 %}", n, "");
    nests("", "{% for x in y %}", n, "");
    nests("", "{% macro f() %}", n, "");
    nests("", "{% generation %}", n, "");
}

/* As deep as the limit and not deeper, whatever is innermost. */
static void values_nest_to_the_limit(void **state) {
    (void)state;
    const int deepest = 998; /* 1000 with the innermost and ns */
    static const char *const innermost[] = {"[]", "{}", "()", "{'k': 1}", "[1]"};
    for (size_t i = 0; i < sizeof innermost / sizeof *innermost; i++) {
        for (int more = 0; more < 2; more++) {
            char source[160];
            struct ax_template_output out;
            snprintf(source, sizeof source,
                     "{%% set ns = namespace(s=%s) %%}{%% for i in range(%d) %%}"
                     "{%% set ns.s = [ns.s] %%}{%% endfor %%}",
                     innermost[i], deepest + more);
            const enum ax_status st = render(source, "{}", NULL, &out);
            if ((st == AX_OK) == (more > 0))
                fail_msg("%s in %d lists: %s", innermost[i], deepest + more, ax_error_text());
            ax_template_output_free(&out);
        }
    }
}

/* What is long but flat is fine. */
static void flat_sources_are_accepted(void **state) {
    (void)state;
    struct ax_buf source = {0};
    struct ax_template_output out;
    for (int i = 0; i < 20000; i++)
        assert_int_equal(ax_buf_printf(&source, "{%% set v%d = %d %%}{{ v%d }}", i, i % 10, i),
                         AX_OK);
    assert_int_equal(render(source.data, "{}", NULL, &out), AX_OK);
    assert_int_equal(out.len, 20000);
    ax_template_output_free(&out);
    ax_buf_free(&source);
    struct ax_template *t;
    char *big;
    assert_int_equal(ax_alloc(&big, AX_TEMPLATE_MAX_SOURCE + 1, 1), AX_OK);
    memset(big, ' ', AX_TEMPLATE_MAX_SOURCE + 1);
    assert_int_equal(ax_template_compile(&t, "t", big, AX_TEMPLATE_MAX_SOURCE), AX_OK);
    ax_template_free(t);
    assert_int_equal(ax_template_compile(&t, "t", big, AX_TEMPLATE_MAX_SOURCE + 1), AX_ERR_DATA);
    ax_free(big);
}

/* Accumulating text piece by piece costs memory in proportion to the text. */
static void growing_text_is_linear(void **state) {
    (void)state;
    const struct ax_template_options tight = {.max_memory = (size_t)24 << 20};
    struct ax_template_output out;
    assert_int_equal(render("{% set ns = namespace(s='') %}{% for i in range(20000) %}"
                            "{% set ns.s = ns.s + 'twenty bytes of text' %}{% endfor %}{{ ns.s }}",
                            "{}", &tight, &out),
                     AX_OK);
    assert_int_equal(out.len, 400000);
    ax_template_output_free(&out);
}

/* Data as deep as the JSON reader lets it be. */
static void deep_data_is_printed(void **state) {
    (void)state;
    struct ax_buf vars = {0};
    const int depth = 400;
    assert_int_equal(ax_buf_puts(&vars, "{\"x\": "), AX_OK);
    for (int i = 0; i < depth; i++)
        assert_int_equal(ax_buf_puts(&vars, "{\"k\": ["), AX_OK);
    for (int i = 0; i < depth; i++)
        assert_int_equal(ax_buf_puts(&vars, "]}"), AX_OK);
    assert_int_equal(ax_buf_puts(&vars, "}"), AX_OK);
    struct ax_template_output out;
    json_error_t e;
    json_t *json = json_loads(vars.data, 0, &e);
    struct ax_template *t;
    const char *source = "{{ x | tojson | length }} {{ x | string | length }} {{ x == x }}";
    assert_non_null(json);
    assert_int_equal(ax_template_compile(&t, "t", source, strlen(source)), AX_OK);
    assert_int_equal(ax_template_render(t, json, NULL, &out), AX_OK);
    assert_string_equal(out.text, "3600 3600 True");
    ax_template_output_free(&out);
    ax_template_free(t);
    json_decref(json);
    ax_buf_free(&vars);
}

/* ---- memory that fails, threads ---- */

static const char rich[] =
    "{% macro f(x, y='d') %}{% generation %}{{ x | upper ~ y }}{% endgeneration %}{% endmacro %}"
    "{% set ns = namespace(n=0) %}{% for m in ms | selectattr('k') if m.k > 1 %}"
    "{% set ns.n = ns.n + m.k %}{{ f(m.t) }}{{ m | tojson(indent=1) }}{% endfor %}"
    "{{ ns.n }}{{ ms[0] | string | length }}{{ ms | sort(attribute='k') | map(attribute='t') | "
    "join }}";
static const char rich_vars[] =
    "{\"ms\": [{\"k\": 3, \"t\": \"a\"}, {\"k\": 1, \"t\": \"b\"}, {\"k\": 2, \"t\": \"é\"}]}";

static void every_allocation_may_fail(void **state) {
    (void)state;
    struct ax_template_output out;
    int k = 1;
    for (;; k++) {
        char spec[32];
        const uint64_t live = ax_mem_live_blocks();
        snprintf(spec, sizeof spec, "malloc:%d:enomem", k);
        assert_int_equal(ax_fault_configure(spec), AX_OK);
        enum ax_status st = render(rich, rich_vars, NULL, &out);
        const bool fired = ax_fault_fired();
        ax_fault_configure(NULL);
        if (!fired) {
            assert_int_equal(st, AX_OK);
            ax_template_output_free(&out);
            break;
        }
        if (st == AX_OK)
            fail_msg("allocation %d failed unnoticed", k);
        assert_int_equal(st, AX_ERR_NOMEM);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    printf("%d allocations failed in turn\n", k - 1);
    assert_true(k > 8);
}

struct job {
    const struct ax_template *t;
    const json_t *vars;
    const char *want;
    int wrong;
};

static void *render_often(void *arg) {
    struct job *job = arg;
    for (int i = 0; i < 300; i++) {
        struct ax_template_output out;
        if (ax_template_render(job->t, job->vars, NULL, &out) != AX_OK) {
            job->wrong++;
            continue;
        }
        job->wrong += strcmp(out.text, job->want) != 0 || out.n_spans != 2;
        ax_template_output_free(&out);
    }
    return NULL;
}

static void threads_share_a_template(void **state) {
    (void)state;
    struct ax_template *t;
    struct ax_json_doc doc;
    pthread_t threads[4];
    struct job jobs[4];
    struct ax_template_output out;
    assert_int_equal(ax_template_compile(&t, "t", rich, strlen(rich)), AX_OK);
    assert_int_equal(ax_json_parse(&doc, "vars", rich_vars, strlen(rich_vars)), AX_OK);
    assert_int_equal(ax_template_render(t, doc.root, NULL, &out), AX_OK);
    for (int i = 0; i < 4; i++) {
        jobs[i] = (struct job){.t = t, .vars = doc.root, .want = out.text};
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(jobs[i].wrong, 0);
    }
    ax_template_output_free(&out);
    ax_json_free(&doc);
    ax_template_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_name_the_line),
        cmocka_unit_test(operations_cost_what_they_take),
        cmocka_unit_test(hostile_templates_end),
        cmocka_unit_test(each_bound_says_which),
        cmocka_unit_test(bounds_follow_the_text),
        cmocka_unit_test(deep_sources_are_refused),
        cmocka_unit_test(flat_sources_are_accepted),
        cmocka_unit_test(values_nest_to_the_limit),
        cmocka_unit_test(growing_text_is_linear),
        cmocka_unit_test(deep_data_is_printed),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(threads_share_a_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
