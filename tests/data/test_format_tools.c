/* What chat templates leave out of tools: definitions, calls and results. Templates written here and
 * the built-in ones, and each form in which records hold messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/records/format/tools.h"
#include "tests/data/scratch.h"
#include "tests/data/format_case.h"
#include "tests/data/chat_case.h"
#include "tests/data/answers_case.h"

#define NONE    0
#define TOOLS   (1U << AX_ODD_TOOLS)
#define CALLS   (1U << AX_ODD_CALLS)
#define RESULTS (1U << AX_ODD_RESULTS)
#define ALL     (TOOLS | CALLS | RESULTS)

#define U(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define RESULT(text)                                                                               \
    "{\"role\": \"tool\", \"name\": \"f\", \"tool_call_id\": \"123456789\", \"content\": \"" text  \
    "\"}"
#define CALL(name)                                                                                 \
    "{\"id\": \"123456789\", \"type\": \"function\", \"function\": {\"name\": \"" name "\", "      \
    "\"arguments\": {\"x\": 1}}}"
#define ASK(text, calls)                                                                           \
    "{\"role\": \"assistant\", \"content\": \"" text "\", \"tool_calls\": [" calls "]}"
#define DEFINITION(name)                                                                           \
    "{\"type\": \"function\", \"function\": {\"name\": \"" name "\", \"description\": \"d\", "     \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"integer\", "      \
    "\"description\": \"e\"}}, \"required\": [\"x\"]}}}"
#define DEFINED      ", \"tools\": [" DEFINITION("f") "]"
#define CONVERSATION U("q") ", " ASK("", CALL("f")) ", " RESULT("42") ", " A("It is 42.")

/* ---- templates ---- */

static unsigned lost_of(struct ax_template *t, const char *json) {
    const struct ax_template_options o = {
        .chat = true, .defaults = json_pack("{ss ss}", "bos_token", "<s>", "eos_token", "</s>")};
    struct ax_template_output text = {0};
    json_t *vars = json_loads(json, JSON_ALLOW_NUL, NULL);
    unsigned lost = 0;
    assert_non_null(vars);
    json_t *before = json_deep_copy(vars);
    const enum ax_status st = ax_template_render(t, vars, &o, &text);
    if (st == AX_OK)
        assert_ok(ax_tools_find_lost(t, vars, &o, &text, &lost));
    assert_true(json_equal(vars, before)); /* borrowed */
    ax_template_output_free(&text);
    json_decref((json_t *)(uintptr_t)o.defaults);
    json_decref(before);
    json_decref(vars);
    return st == AX_OK ? lost : ~0U;
}

#define LOOP(body) "{% for m in messages %}" body "{% endfor %}"
#define FIRST      "{% if m.tool_calls %}{{ m.tool_calls[0].function.name }}{% endif %}"
#define EACH(body) LOOP("{{ m.content }}{% for c in m.tool_calls %}" body "{% endfor %}")

static void templates(void **state) {
    (void)state;
    static const struct {
        const char *source, *vars;
        unsigned lost;
    } cases[] = {
        {chatml, CONVERSATION DEFINED, TOOLS | CALLS},
        {full_chat, CONVERSATION DEFINED, NONE},
        {chatml, U("q") "," A("a"), NONE},
        {chatml, U("q") "," ASK("a", "") ", \"tools\": []", NONE},
        {chatml, U("q") ", \"tools\": null", NONE},
        /* one kind of the three */
        {"{{ tools | tojson }}" LOOP("{{ m.content }}"), CONVERSATION DEFINED, CALLS},
        {EACH("{{ c.function.name }}"), CONVERSATION DEFINED, TOOLS},
        {"{{ tools | tojson }}" LOOP("{% if m.role != 'tool' %}{{ m | tojson }}{% endif %}"),
         CONVERSATION DEFINED, RESULTS},
        {LOOP("{% if m.role == 'user' %}{{ m.content }}{% endif %}"), CONVERSATION DEFINED, ALL},
        /* a header is no definition, nor is a test */
        {"{% if tools %}Tools:{% endif %}" LOOP("{{ m.content }}"), U("q") DEFINED, TOOLS},
        {"{% if tools is not none %}Tools: {% for t in tools if t.type == 'x' %}{{ t.name }}"
         "{% endfor %}{% endif %}" LOOP("{{ m.content }}"),
         U("q") DEFINED, TOOLS},
        {LOOP("{% if not m.content and not m.tool_calls %}{{ raise_exception('empty') }}{% endif %}"
              "{{ m.content }}"),
         U("q") "," ASK("", CALL("f")), CALLS},
        /* some of several */
        {LOOP("{{ m.content }}" FIRST), U("q") "," ASK("", CALL("f") "," CALL("f")), CALLS},
        {LOOP("{% if m.content %}{{ m.content }}{% else %}" FIRST "{% endif %}"),
         U("q") "," ASK("", CALL("f")) "," U("r") "," ASK("a", CALL("g")), CALLS},
        {LOOP("{% if m.content %}{{ m.content }}{% else %}" FIRST "{% endif %}"),
         U("q") "," ASK("", CALL("f")) "," U("r") "," ASK("", CALL("g")), NONE},
        {"{{ tools[0].function.name }}" LOOP("{{ m.content }}"),
         U("q") ", \"tools\": [" DEFINITION("f") "," DEFINITION("g") "]", TOOLS},
        {EACH("{% if loop.index0 != 1 %}{{ c.function.name }}{% endif %}"),
         ASK("", CALL("f") "," CALL("f") "," CALL("f") "," CALL("f") "," CALL("f") "," CALL(
                     "f") "," CALL("f") "," CALL("f") "," CALL("f") "," CALL("f") "," CALL("f")),
         CALLS},
        /* written in another way */
        {EACH("{{ c.function.name | upper }}"), U("q") "," ASK("", CALL("f")), NONE},
        {EACH("{{ c.function.name | length }}"), U("q") "," ASK("", CALL("f")), NONE},
        {EACH("{% if c.function.name != 'f' %}{{ raise_exception('no') }}{% endif %}"),
         U("q") "," ASK("", CALL("f")), NONE},
        /* other forms of calls, definitions and results */
        {EACH("{{ (c.function or {}).name }}"),
         U("q") "," ASK("", "{\"name\": \"f\", \"arguments\": {}}"), CALLS},
        {EACH("{{ c.name }}"), U("q") "," ASK("", "{\"name\": \"f\", \"arguments\": {}}"), NONE},
        {LOOP("{{ m.content }}"),
         "{\"role\": \"assistant\", \"content\": \"\", \"function_call\": {\"name\": \"f\"}}",
         CALLS},
        {LOOP("{{ m.content }}{{ m.function_call.name }}"),
         "{\"role\": \"assistant\", \"content\": \"\", \"function_call\": {\"name\": \"f\"}}",
         NONE},
        {LOOP("{{ m.content }}"),
         "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": {\"name\": \"f\"}}", CALLS},
        {LOOP("{{ m.content }}{{ m.tool_calls }}"),
         "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": {\"name\": \"f\"}}", NONE},
        {LOOP("{{ m.content }}"),
         "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": \"f(1)\"}", CALLS},
        {LOOP("{{ m.content }}{{ m.tool_calls }}"),
         "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": \"f(1)\"}", NONE},
        {LOOP("{{ m.content }}"),
         "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": \"\"}", NONE},
        {LOOP("{{ m.content }}"), ASK("", "\"f(1)\""), CALLS},
        {LOOP("{{ m.content }}{{ m.tool_calls }}"), ASK("", "\"f(1)\""), NONE},
        {LOOP("{{ m.content }}"), U("q") ", \"tools\": [{\"search\": {}}]", TOOLS},
        {"{{ tools }}" LOOP("{{ m.content }}"), U("q") ", \"tools\": [{\"search\": {}}]", NONE},
        {LOOP("{% if m.role == 'user' %}{{ m.content }}{% endif %}"),
         U("q") ", {\"role\": \"ipython\", \"content\": [{\"type\": \"text\", \"text\": \"5\"}]}",
         RESULTS},
        {LOOP("{{ m.content }}"),
         U("q") ", {\"role\": \"ipython\", \"content\": [{\"type\": \"text\", \"text\": \"5\"}]}",
         NONE},
        {LOOP("{% if m.role == 'user' %}{{ m.content }}{% endif %}"), U("q") "," RESULT(""), NONE},
        {LOOP("{% if m.role == 'user' %}{{ m.content }}{% endif %}"), U("q\\u0000") "," RESULT("1"),
         RESULTS},
        {LOOP("{{ m.content }}"), U("q\\u0000") "," RESULT("1"), NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_template *t;
        char vars[4096];
        assert_ok(ax_template_compile(&t, "t", cases[i].source, strlen(cases[i].source)));
        snprintf(vars, sizeof vars, "{\"messages\": [%s%s}", cases[i].vars,
                 strstr(cases[i].vars, "\"tools\": ") ? "" : "]");
        char *end = strstr(vars, ", \"tools\": "); /* the list ends before it */
        if (end) {
            memmove(end + 1, end, strlen(end) + 1);
            *end = ']';
        }
        const unsigned lost = lost_of(t, vars);
        if (lost != cases[i].lost)
            fail_msg("%s of %s: %#x instead of %#x", cases[i].source, vars, lost, cases[i].lost);
        ax_template_free(t);
    }
}

/* ---- built-in templates ---- */

static void built_in(void **state) {
    (void)state;
    static const struct {
        const char *name;
        unsigned lost;
    } names[] = {
        {"alpaca", ALL},
        {"chatml", TOOLS | CALLS},
        {"deepseek_v2", ALL},
        {"exaone", TOOLS | CALLS},
        {"exaone4", NONE},
        {"falcon_h1", CALLS},
        {"gemma4", NONE},
        {"jamba", NONE},
        {"llama3", TOOLS | CALLS},
        {"llama4", NONE},
        {"llama3_2_vision", NONE},
        {"llava", TOOLS | CALLS},
        {"metharme", ALL},
        {"mistral_v2v3", NONE},
        {"mistral_v3_tekken", NONE},
        {"phi_3", ALL},
        {"phi_35", ALL},
        {"qwen2_vl", TOOLS | CALLS},
        {"qwen3", NONE},
        {"qwen3_5", NONE},
        {"qwen_25", NONE},
    };
    size_t recommended = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct ax_template *t;
        assert_ok(ax_template_builtin(&t, names[i].name));
        const unsigned lost = lost_of(t, "{\"messages\": [" CONVERSATION "]" DEFINED "}");
        if (lost != names[i].lost)
            fail_msg("%s: %#x instead of %#x", names[i].name, lost, names[i].lost);
        if (strstr(AX_TOOLS_REMEDY, names[i].name)) {
            assert_int_equal(lost, NONE);
            recommended++;
        }
        ax_template_free(t);
    }
    assert_int_equal(recommended, 2);
}

/* ---- forms of records ---- */

/* The record's examples, of which the first has the oddities, and its status. */
static void check_form(const struct ax_format_options *o, const char *json, enum ax_status status,
                       unsigned lost) {
    struct ax_format *f;
    struct ax_format_work w = {0};
    struct ax_example_list l = {.columns = o->columns};
    json_t *row = json_loads(json, 0, NULL);
    assert_non_null(row);
    assert_ok(ax_format_new(&f, o));
    const enum ax_status st = ax_format_record(f, &w, row, (struct ax_origin){.line = 1}, &l);
    if (st != status || (w.oddities & AX_ODD_LOST) != lost)
        fail_msg("status %d, %#x instead of %#x: %s\n%s", (int)st, w.oddities, lost, json,
                 st == AX_OK ? "" : ax_error_text());
    for (size_t i = 0; i < l.n; i++)
        assert_int_equal(l.items[i].oddities & AX_ODD_LOST, i == 0 ? lost : NONE);
    assert_true(st != AX_OK || l.n > 0);
    json_decref(row);
    ax_example_list_free(&l);
    ax_format_work_free(&w);
    ax_format_free(f);
}

#define BEFORE U("q") ", " ASK("", CALL("f")) ", " RESULT("42")

static const struct {
    enum ax_task task;
    const char *type, *row;
    unsigned lost; /* by a template of roles and contents */
} forms[] = {
    {AX_TASK_TEXT, "chat_template", "{\"messages\": [" CONVERSATION "]" DEFINED "}", TOOLS | CALLS},
    {AX_TASK_TEXT, "chat_template", "{\"messages\": [" CONVERSATION "]}", CALLS},
    {AX_TASK_TEXT, "chat_template", "{\"messages\": [" U("q") "," A("a") "]" DEFINED "}", TOOLS},
    {AX_TASK_TEXT, "chat_template", "{\"messages\": [" U("q") "," A("a") "], \"tools\": \"\"}",
     NONE},
    {AX_TASK_TEXT, "chat_template", "{\"messages\": [" U("q") "," A("a") "], \"tools\": \"null\"}",
     NONE},
    {AX_TASK_TEXT, "chat_template",
     "{\"messages\": [" U("q") "," A("a") "], \"tools\": \"[{\\\"name\\\": \\\"f\\\"}]\"}", TOOLS},
    {AX_TASK_TEXT, "chat_template",
     "{\"messages\": [" U("q") ", {\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": "
                               "\"[{\\\"name\\\": \\\"f\\\"}]\"}]}",
     CALLS},
    {AX_TASK_TEXT, "chat_template",
     "{\"messages\": [" U("q") "," A("a") "], \"functions\": [{\"name\": \"f\"}]}", TOOLS},
    {AX_TASK_PROMPT, NULL, "{\"prompt\": [" U("q") "], \"functions\": [{\"name\": \"f\"}]}", TOOLS},
    {AX_TASK_TEXT, "chat_template",
     "{\"messages\": [" U("q") "," A("a") "], \"functions\": [\"of a company\"]}", NONE},
    {AX_TASK_TEXT, NULL, "{\"messages\": [" CONVERSATION "]" DEFINED "}", TOOLS | CALLS},
    {AX_TASK_TEXT, NULL, "{\"prompt\": [" BEFORE "], \"completion\": [" A("a") "]" DEFINED "}",
     TOOLS | CALLS},
    {AX_TASK_TEXT, NULL, "{\"prompt\": [" U("q") "], \"completion\": [" ASK("a", CALL("f")) "]}",
     CALLS},
    {AX_TASK_PAIR, NULL,
     "{\"prompt\": [" BEFORE "], \"chosen\": [" A("a") "], \"rejected\": [" A("b") "]" DEFINED "}",
     TOOLS | CALLS},
    {AX_TASK_PAIR, NULL,
     "{\"prompt\": [" U("q") "], \"chosen\": [" A("a") "], \"rejected\": [" ASK("b",
                                                                                CALL("f")) "]}",
     CALLS},
    {AX_TASK_PAIR, NULL,
     "{\"chosen\": [" BEFORE "," A("a") "], \"rejected\": [" BEFORE "," A("b") "]" DEFINED "}",
     TOOLS | CALLS},
    {AX_TASK_REWARD, NULL,
     "{\"chosen\": [" BEFORE "," A("a") "], \"rejected\": [" BEFORE "," A("b") "]" DEFINED "}",
     TOOLS | CALLS},
    {AX_TASK_UNPAIRED, NULL,
     "{\"prompt\": [" BEFORE "], \"completion\": [" A("a") "], \"label\": true" DEFINED "}",
     TOOLS | CALLS},
    {AX_TASK_UNPAIRED, NULL,
     "{\"prompt\": [" U("q") "], \"chosen\": [" A("a") "], \"rejected\": [" A("b") "]" DEFINED "}",
     TOOLS},
    {AX_TASK_PAIR, "chat_template.default",
     "{\"messages\": [" BEFORE "], \"chosen\": " A("a") ", \"rejected\": " A("b") DEFINED "}",
     TOOLS | CALLS},
    {AX_TASK_PAIR, "chat_template.default",
     "{\"messages\": [" U("q") "], \"chosen\": " ASK("a", CALL("f")) ", \"rejected\": " A("b") "}",
     CALLS},
    {AX_TASK_PAIR, "chat_template.argilla_chat",
     "{\"chosen\": [" BEFORE "," A("a") "], \"rejected\": [" A("b") "]" DEFINED "}", TOOLS | CALLS},
    {AX_TASK_PAIR, "chat_template.argilla",
     "{\"chosen\": [" U("q") "," ASK("x", CALL("f")) "," U("r") "," A("a") "], \"rejected\": [" U(
         "q") "," A("b") "]" DEFINED "}",
     TOOLS | CALLS},
    {AX_TASK_REWARD, "bradley_terry.chat_template",
     "{\"input\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\"" DEFINED "}", TOOLS},
    {AX_TASK_PROMPT, NULL, "{\"prompt\": [" BEFORE "]" DEFINED "}", TOOLS | CALLS},
    {AX_TASK_PROMPT, "chat_template", "{\"messages\": [" CONVERSATION "]" DEFINED "}",
     TOOLS | CALLS},
    /* the answer is no part of a prompt */
    {AX_TASK_PROMPT, "chat_template", "{\"messages\": [" U("q") "," ASK("", CALL("f")) "]}", NONE},
};

/* Of a template that writes roles and contents, and of one that writes everything. */
static void each_form(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct answers_case c;
        struct ax_template *full, *plain;
        answers_open(&c, forms[i].task, forms[i].type);
        plain = c.chat.template;
        check_form(&c.o, forms[i].row, AX_OK, forms[i].lost);
        assert_ok(ax_template_compile(&full, "full", full_chat, strlen(full_chat)));
        c.chat.chat.template = full;
        if (!strstr(forms[i].row, "\"tool_calls\": \"")) /* it writes lists */
            check_form(&c.o, forms[i].row, AX_OK, NONE);
        c.chat.chat.template = plain;
        ax_template_free(full);
        answers_close(&c);
    }
}

/* A record whose answer is calls alone has nothing to learn from without them. */
static void calls_alone(void **state) {
    (void)state;
    static const struct {
        enum ax_task task;
        const char *row, *why;
    } rows[] = {
        {AX_TASK_TEXT, "{\"messages\": [" U("q") "," ASK("", CALL("f")) "]" DEFINED "}",
         "messages: the answer is empty; tool calls are left out by the chat template t"},
        {AX_TASK_PAIR,
         "{\"prompt\": [" U("q") "], \"chosen\": [" ASK("",
                                                        CALL("f")) "], \"rejected\": [" A("b") "]}",
         "chosen: the answer is empty; tool calls are left out by the chat template t"},
        {AX_TASK_PAIR,
         "{\"chosen\": [" U("q") "," A("b") "], \"rejected\": [" U("q") "," ASK("", CALL("f")) "]}",
         "rejected: the answer is empty; tool calls are left out by the chat template t"},
        {AX_TASK_UNPAIRED,
         "{\"prompt\": [" U("q") "], \"completion\": [" ASK("", CALL("f")) "], \"label\": true}",
         "completion: the answer is empty; tool calls are left out by the chat template t"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct answers_case c;
        answers_open(&c, rows[i].task, NULL);
        c.o.type = rows[i].task == AX_TASK_TEXT ? "chat_template" : NULL;
        check_form(&c.o, rows[i].row, AX_ERR_EMPTY, CALLS);
        check_bad_record(&c.o, rows[i].row, rows[i].why);
        answers_close(&c);
    }
    struct answers_case c;
    answers_open(&c, AX_TASK_PAIR, NULL);
    check_bad_record(&c.o,
                     "{\"prompt\": [" U("q") "], \"chosen\": [" ASK(
                         "a", CALL("f")) "], "
                                         "\"rejected\": [" A("a") "]}",
                     "chosen and rejected give the same text, without the tool calls that the chat "
                     "template leaves out; a pair needs two answers");
    answers_close(&c);
}

/* Definitions reach the template in every type that has one. */
static void types_write_tools(void **state) {
    (void)state;
    static const char source[] = "{% if tools is not none %}T{{ tools[0].name }} {% endif %}"
                                 "{% for m in messages %}{{ m.role[0] }} {{ m.content }};"
                                 "{% endfor %}";
    static const struct {
        enum ax_task task;
        const char *type, *row, *want;
    } rows[] = {
        {AX_TASK_PAIR, "chat_template.default",
         "{\"messages\": [" U("q") "], \"chosen\": " A("1") ", \"rejected\": " A("2") "%s}",
         "%su q;⟦1;</s>⟧ | %su q;⟦2;</s>⟧"},
        {AX_TASK_PAIR, "chat_template.argilla_chat",
         "{\"chosen\": [" U("q") "," A("1") "], \"rejected\": [" U("q") "," A("2") "]%s}",
         "%su q;⟦1;</s>⟧ | %su q;⟦2;</s>⟧"},
        {AX_TASK_PAIR, "chat_template.argilla",
         "{\"chosen\": [" U("q") "," A("1") "], \"rejected\": [" U("q") "," A("2") "]%s}",
         "%su q;⟦a 1;⟧ | %su q;⟦a 2;⟧"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct answers_case c;
        char row[512], want[512];
        answers_open(&c, rows[i].task, rows[i].type);
        ax_template_free(c.chat.template);
        assert_ok(ax_template_compile(&c.chat.template, "t", source, strlen(source)));
        c.chat.chat.template = c.chat.template;
        snprintf(row, sizeof row, rows[i].row, ", \"tools\": [{\"name\": \"f\"}]");
        snprintf(want, sizeof want, rows[i].want, "Tf ", "Tf ");
        check_record(&c.o, row, want);
        snprintf(row, sizeof row, rows[i].row, ", \"tools\": []");
        snprintf(want, sizeof want, rows[i].want, "", "");
        check_record(&c.o, row, want);
        answers_close(&c);
    }
}

/* ---- the warning ---- */

static void warnings(void **state) {
    (void)state;
    static char *files[] = {(char *)(uintptr_t) "a.jsonl", (char *)(uintptr_t) "b.jsonl"};
    struct ax_template *t;
    struct ax_buf text = {0};
    struct ax_oddities counted[AX_ODDITIES] = {{0}}, more[AX_ODDITIES] = {{0}};
    assert_ok(ax_template_builtin(&t, "chatml"));
    assert_ok(ax_tools_put_lost(&text, t, counted, files, 2));
    assert_int_equal(text.len, 0);
    ax_oddities_count(counted, CALLS | 1U << AX_ODD_ROLE, &(struct ax_origin){1, 7, 0});
    assert_ok(ax_tools_put_lost(&text, t, counted, files, 2));
    assert_string_equal(text.data, "the chat template chatml leaves out the tool calls of 1 "
                                   "conversation (the first is b.jsonl:7)");
    ax_oddities_count(counted, TOOLS | CALLS, &(struct ax_origin){1, 9, 0});
    text.len = 0;
    assert_ok(ax_tools_put_lost(&text, t, counted, files, 2));
    assert_string_equal(text.data, "the chat template chatml leaves out the tool definitions of 1 "
                                   "conversation (the first is b.jsonl:9) and the tool calls of 2 "
                                   "conversations (the first is b.jsonl:7)");
    ax_oddities_count(more, RESULTS | CALLS, &(struct ax_origin){0, 8, 0});
    ax_oddities_add(counted, more);
    text.len = 0;
    assert_ok(ax_tools_put_lost(&text, t, counted, files, 2));
    assert_string_equal(text.data,
                        "the chat template chatml leaves out the tool definitions of 1 "
                        "conversation (the first is b.jsonl:9), the tool calls of 3 conversations "
                        "(the first is a.jsonl:8) and the tool results of 1 conversation (the "
                        "first is a.jsonl:8)");
    assert_int_equal(counted[AX_ODD_ROLE].n, 1);
    ax_buf_free(&text);
    ax_template_free(t);
}

/* `functions` is what `tools` would be: the template sees the same. */
static void functions(void **state) {
    (void)state;
    json_t *want = json_loads("[" DEFINITION("f") "]", 0, NULL);
    json_t *f = json_object_get(json_array_get(want, 0), "function");
    json_t *rows[2] = {json_pack("{s[O]}", "functions", f)};
    char *text = json_dumps(json_object_get(rows[0], "functions"), 0);
    rows[1] = json_pack("{ss}", "functions", text);
    for (int i = 0; i < 2; i++) {
        json_t *tools = NULL;
        assert_ok(ax_tools_read(rows[i], "tools", &tools));
        assert_true(json_equal(tools, want));
        json_decref(tools);
        tools = NULL;
        assert_ok(ax_tools_read(rows[i], "others", &tools));
        assert_null(tools);
        json_decref(rows[i]);
    }
    ax_free(text);
    json_decref(want);
}

/* A template that cannot write calls says what would. */
static void refused(void **state) {
    (void)state;
    struct answers_case c;
    struct ax_template *t, *before;
    static const char source[] = LOOP("{% for c in m.tool_calls %}{{ c.function.arguments + 'x' }}"
                                      "{% endfor %}{{ m.content }}");
    answers_open(&c, AX_TASK_TEXT, "chat_template");
    before = c.chat.template;
    assert_ok(ax_template_compile(&t, "t", source, strlen(source)));
    c.chat.chat.template = t;
    check_bad_record(&c.o, "{\"messages\": [" CONVERSATION "]}",
                     "the record has tool calls: if the template cannot write them, set "
                     "chat_template to one that writes them");
    c.chat.chat.template = before;
    ax_template_free(t);
    answers_close(&c);
}

int main(void) {
    const struct CMUnitTest t[] = {
        cmocka_unit_test(templates),         cmocka_unit_test(built_in),
        cmocka_unit_test(each_form),         cmocka_unit_test(calls_alone),
        cmocka_unit_test(types_write_tools), cmocka_unit_test(warnings),
        cmocka_unit_test(functions),         cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(t, load_tokenizers, free_tokenizers);
}
