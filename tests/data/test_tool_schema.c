/* Arguments of tool calls against the types of their schemas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "data/tools/schema.h"

static void assert_ok(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* The definition of f(v), in a list. */
static json_t *one_argument(const char *schema) {
    json_t *v = json_loads(schema, 0, NULL);
    json_t *tools = json_pack("[{s:s, s:{s:s, s:{s:s, s:{s:o}, s:[s]}}}]", "type", "function",
                              "function", "name", "f", "parameters", "type", "object", "properties",
                              "v", v, "required", "v");
    assert_non_null(tools);
    return tools;
}

/* Each value against each type, as JSON Schema has it, but that 1.0 is no integer. */
static void types_are_those_of_json(void **state) {
    static const struct {
        const char *text, *type;
    } values[] = {{"\"x\"", "str"},     {"1", "int"},   {"1.5", "float"}, {"true", "bool"},
                  {"null", "NoneType"}, {"[]", "list"}, {"{}", "dict"}};
    static const struct {
        const char *schema, *fits, *must; /* fits: y for each value that does */
    } cases[] = {
        {"{\"type\": \"string\"}", "y------", "a string"},
        {"{\"type\": \"integer\"}", "-y-----", "an integer"},
        {"{\"type\": \"number\"}", "-yy----", "a number"},
        {"{\"type\": \"boolean\"}", "---y---", "a boolean"},
        {"{\"type\": \"null\"}", "----y--", "null"},
        {"{\"type\": \"array\"}", "-----y-", "a list"},
        {"{\"type\": \"object\"}", "------y", "an object"},
        {"{\"type\": \"any\"}", "yyyyyyy", ""},
        {"{\"type\": [\"integer\", \"string\"]}", "yy-----", "an integer"},
        {"{\"type\": \"integer\", \"nullable\": true}", "-y--y--", "an integer"},
        {"{}", "yyyyyyy", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *tools = one_argument(cases[i].schema);
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            char want[128] = "";
            struct ax_buf why = {0};
            json_t *v = json_pack("{s:o}", "v", json_loads(values[k].text, JSON_DECODE_ANY, NULL));
            if (cases[i].fits[k] != 'y')
                snprintf(want, sizeof want, "f() argument 'v' must be %s, not %s", cases[i].must,
                         values[k].type);
            assert_ok(ax_tool_misfit(ax_tool_function(tools, "f"), v, &why));
            assert_string_equal(why.data ? why.data : "", want);
            ax_buf_free(&why);
            json_decref(v);
        }
        json_decref(tools);
    }
}

/* Formats that write arguments without their types: a text becomes what its schema has, or remains a text. The values are
 * those of transformers' parser of responses. */
static void texts_become_what_schemas_say(void **state) {
    static const struct {
        const char *type, *text, *value; /* NULL: remains a text */
    } cases[] = {
        {"integer", "5", "5"},
        {"integer", " 5 ", "5"},
        {"integer", "5x", NULL},
        {"integer", "1.5", NULL},
        {"integer", "", NULL},
        {"number", "1.5", "1.5"},
        {"boolean", "true", "true"},
        {"boolean", "True", "true"},
        {"boolean", "False", "false"},
        {"boolean", "false", "false"},
        {"boolean", "TRUE", "true"},
        {"boolean", "1", "true"},
        {"boolean", "0", "false"},
        {"boolean", "2", NULL},
        {"integer", "5.0", "5"},
        {"integer", "1e3", "1000"},
        {"integer", "-1_000", "-1000"},
        {"integer", "1__0", NULL},
        {"integer", "9007199254740993", "9007199254740993"},
        {"number", "007", "7"},
        {"number", "1e3", "1000"},
        {"number", ".5", "0.5"},
        {"number", "5.", "5.0"},
        {"number", "nan", NULL},
        {"number", "1e400", NULL},
        {"null", "Null", NULL},
        {"null", "None", "null"},
        {"array", "[1, \"x\"]", "[1, \"x\"]"},
        {"array", "[1", NULL},
        {"object", "{\"a\": 1}\n", "{\"a\": 1}"},
        {"string", "5", NULL},
        {"string", "None", NULL},
        {"object", "[]", NULL},
        {"{\"type\": \"string\", \"nullable\": true}", "None", "null"},
        {"{\"type\": \"string\", \"nullable\": true}", "5", NULL},
        {"{\"type\": [\"integer\", \"string\"]}", "5", "5"},
        {"{\"type\": [\"string\", \"integer\"]}", "5", "5"},
        {"{\"type\": [\"integer\", \"string\"]}", "5 or 6", NULL},
        {"{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"array\"}]}", "5", "5"},
        {"{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"array\"}]}", "[5]", "[5]"},
        {"{\"oneOf\": [{\"type\": \"boolean\"}, {\"type\": \"number\"}]}", "1.5", "1.5"},
        {"{}", "5", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char schema[64];
        snprintf(schema, sizeof schema, cases[i].type[0] == '{' ? "%s" : "{\"type\": \"%s\"}",
                 cases[i].type);
        json_t *tools = one_argument(schema),
               *calls = json_pack("[{s:{s:s, s:{s:s}}}]", "function", "name", "f", "arguments", "v",
                                  cases[i].text),
               *want = cases[i].value ? json_loads(cases[i].value, JSON_DECODE_ANY, NULL)
                                      : json_string(cases[i].text);
        assert_true(ax_tool_coerce(calls, tools));
        const json_t *function = json_object_get(json_array_get(calls, 0), "function"),
                     *got = json_object_get(json_object_get(function, "arguments"), "v");
        if (!json_equal(got, want))
            fail_msg("%s as %s", cases[i].text, cases[i].type);
        json_decref(want);
        json_decref(calls);
        json_decref(tools);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_those_of_json),
        cmocka_unit_test(texts_become_what_schemas_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
