/* JSON schemas as automata: what they accept and refuse; random texts of them, token by token, are values of the
 * schema by a validator of a few lines, and no state is without a token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/json.h"
#include "base/text/regex.h"
#include "base/text/unicode.h"
#include "data/grammar/mask.h"
#include "tests/data/grammar_case.h"

static json_t *read_json(const char *text) {
    json_error_t error;
    json_t *v = json_loads(text, JSON_DECODE_ANY, &error);
    if (!v)
        fail_msg("%s: %s", text, error.text);
    return v;
}

static bool alone[256];

static int set_alone(void **state) {
    (void)state;
    memset(alone, true, sizeof alone);
    return 0;
}

static struct ax_grammar *grammar_of(const char *schema) {
    struct ax_grammar *g;
    json_t *v = read_json(schema);
    if (ax_grammar_compile(&g, v, alone) != AX_OK)
        fail_msg("%s: %s", schema, ax_error_text());
    json_decref(v);
    return g;
}

/* ---- whole texts ---- */

#define POINT                                                                                      \
    "{\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"number\"}, \"y\": {\"type\": "    \
    "\"integer\"}, \"tag\": {\"enum\": [\"a\", \"ab\", null, 1, 12]}}, \"required\": [\"y\"], "    \
    "\"additionalProperties\": false}"
#define TREE                                                                                       \
    "{\"$defs\": {\"node\": {\"type\": \"object\", \"properties\": {\"v\": {\"type\": "            \
    "\"integer\", \"minimum\": 0}, \"next\": {\"anyOf\": [{\"$ref\": \"#/$defs/node\"}, "          \
    "{\"type\": \"null\"}]}}, \"required\": [\"v\", \"next\"], \"additionalProperties\": "         \
    "false}}, \"$ref\": \"#/$defs/node\"}"

static const struct grammar_texts texts[] = {
    {POINT,
     {"{\"x\": 1.5, \"y\": 2}", "{\"y\":0}", "{\n  \"y\": -3, \"tag\": \"ab\"\n}",
      "{\"x\":-0.5e-3,\"y\":1,\"tag\":12}", "{\"y\": 7, \"tag\": null }"},
     {"{}", "{\"x\": 1}", "{\"y\": 1, \"x\"", "{\"y\": 01", "{\"y\": 1.5", "{\"z\"", "[", " {",
      "{\"y\": 1, \"tag\": \"b", "{\"y\": 1,}", "{\"y\": 1}}", "{\"y\": 1  ,"}},
    {"{}",
     {"null", "[1, [], {\"a\": {}}]", "\"\\ud83d\\ude00\\n\u00e4\"", "-1.25E+7",
      "{\"a\": true, \"b\": [false]}", "\"\xF0\x9F\x98\x80\""},
     {"nul1", "\"\\ud83d\"", "\"\\ud83dx", "\"\\ude00", "\"\n", "\"\xC0\xAF", "\"\xED\xA0", "01",
      "1e999", "+1", "[1,]", "{a"}},
    {"{\"type\": \"array\", \"items\": {\"type\": \"boolean\"}, \"minItems\": 1, \"maxItems\": 2}",
     {"[true]", "[true, false]"},
     {"[]", "[true,false,", "[1", "[true false"}},
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
     {"\"ab\"", "\"\u00e4\u00f6\U0001F600\"", "\"\\n\\u00e4\""},
     {"\"a\"", "\"abcd", "\"\u00e4\u00f6\u00fc\u00df"}},
    {"{\"type\": \"integer\", \"minimum\": -12, \"maximum\": 105}",
     {"0", "-12", "-1", "105", "99", "100", "-9", "12"},
     {"-13", "106", "-0", "-2345", "1000", "110", "00", "1.0", "1e1"}},
    {"{\"type\": \"number\", \"exclusiveMinimum\": 0.1, \"maximum\": 2.5}",
     {"0.100001", "2.5", "2.500000", "1", "0.9"},
     {"0.1000000", "2.6", "3", "-", "0.09", "2.500001", "1e", "10"}},
    {"{\"type\": \"integer\", \"exclusiveMaximum\": -7}",
     {"-8", "-100000", "-70"},
     {"-7.", "1", "0"}},
    {"{\"type\": \"number\"}", /* as many digits as may be */
     {"123456789012345", "-123456789012345.123456789012345e-12", "0.123456789012345E+99", "0e0"},
     {"1234567890123456", "0.1234567890123456", "1e123", "1e+123", "1.2e-345"}},
    {"{\"type\": [\"integer\", \"null\"]}", {"null", "-5"}, {"\"", "t", "1.5"}},
    {"{\"const\": {\"a\": [1, \"\u00e4\"]}}", {"{\"a\":[1,\"\u00e4\"]}"}, {"{\"a\": ", "{\"b"}},
    {"{\"properties\": {\"a\": {\"type\": \"string\"}}, \"additionalProperties\": {\"type\": "
     "\"integer\"}, \"required\": [\"b\"]}",
     {"{\"b\": 1}", "{\"a\": \"\", \"b\": 2, \"c\": 3}", "{\"b\": 1, \"aa\": 2, \"\": 3}"},
     {"{\"a\": \"\"}", "{\"b\": 1, \"a\"", "{\"b\": 1, \"\\u0061", "{\"c\"", "{\"b\": \""}},
    {TREE,
     {"{\"v\": 1, \"next\": null}", "{\"v\": 0, \"next\": {\"v\": 22, \"next\": null}}"},
     {"{\"v\": -", "{\"v\": 1}", "{\"v\": 1, \"next\": {}", "null"}},
    {"{\"anyOf\": [{\"type\": \"string\", \"maxLength\": 1}, {\"const\": \"long\"}, {\"type\": "
     "\"object\", \"properties\": {\"k\": {\"const\": 1}, \"p\": {\"type\": \"string\"}}, "
     "\"required\": [\"k\", \"p\"], \"additionalProperties\": false}, {\"type\": \"object\", "
     "\"properties\": {\"k\": {\"const\": 2}, \"q\": {}}, \"required\": [\"k\", \"q\"], "
     "\"additionalProperties\": false}]}",
     {"\"x\"", "\"long\"", "{\"k\":1,\"p\":\"\"}", "{\"k\":2,\"q\":[]}"},
     {"\"lo\"", "\"longer", "{\"k\":1,\"q", "{\"k\":2,\"p", "{\"k\":3"}},
    {"{\"type\": \"string\", \"pattern\": \"^[0-9]{2}(-[a-z\u00e4]+)?$\"}",
     {"\"12\"", "\"12-a\"", "\"12-\u00e4b\""},
     {"\"1\"", "\"123", "\"12-\"", "\"x", "\"\\"}},
    {"{\"pattern\": \"ab|^c|d$|\\\\$\"}", /* unanchored: as JSON Schema has it */
     {"\"ab\"", "\"xabx\"", "\"c\"", "\"cx\"", "\"xd\"", "\"a$b\"", "\"dab\""},
     {"\"\"", "\"xc\"", "\"dx\"", "\"a\"", "\"\\u0061", "\"\n"}},
    {"{\"type\": \"string\", \"pattern\": \"^(ab)*$\", \"maxLength\": 5}",
     {"\"\"", "\"ab\"", "\"abab\""},
     {"\"ababa", "\"a\"", "\"b"}},
    {"{\"type\": \"string\", \"pattern\": \"^[\u00e0-\u00ff]+!$\", \"maxLength\": 3, "
     "\"minLength\": 2}",
     {"\"\u00e4!\"", "\"\u00e4\u00e4!\""},
     {"\"\u00e4\"", "\"\u00e4\u00e4\u00e4", "\"!"}},
    {"{\"type\": \"array\", \"prefixItems\": [{\"type\": \"integer\"}, {\"type\": \"string\", "
     "\"maxLength\": 1}], \"items\": {\"type\": \"boolean\"}, \"minItems\": 1, \"maxItems\": 4}",
     {"[1]", "[1, \"a\"]", "[1,\"\",true,false]"},
     {"[]", "[\"", "[1, 2", "[1, \"a\", 1", "[1, \"a\", true, true,"}},
    {"{\"prefixItems\": [{\"const\": 1}, {\"const\": 2}], \"items\": false}",
     {"[]", "[1]", "[1,2]"},
     {"[2", "[1,1", "[1,2,"}},
    {"{\"prefixItems\": [{\"const\": 1}], \"minItems\": 3}", /* any number of any others */
     {"[1,2,3]", "[1,null,[],{}]"},
     {"[1]", "[1,2]", "[3"}},
    {"{\"$defs\": {\"cat\": {\"type\": \"object\", \"properties\": {\"kind\": {\"const\": "
     "\"cat\"}, "
     "\"lives\": {\"type\": \"integer\"}}, \"required\": [\"kind\"], \"additionalProperties\": "
     "false}, "
     "\"dog\": {\"type\": \"object\", \"properties\": {\"kind\": {\"enum\": [\"dog\", \"pup\"]}}, "
     "\"required\": [\"kind\"], \"additionalProperties\": false}}, \"discriminator\": "
     "{\"propertyName\": "
     "\"kind\"}, \"oneOf\": [{\"$ref\": \"#/$defs/cat\"}, {\"$ref\": \"#/$defs/dog\"}, {\"type\": "
     "\"null\"}]}",
     {"{\"kind\": \"cat\", \"lives\": 9}", "{\"kind\":\"pup\"}", "null"},
     {"{\"kind\": \"dog\", \"", "{}", "{\"kind\": \"c\""}},
    {"{\"$defs\": {\"a/b\": {\"const\": 7}}, \"allOf\": [{\"$ref\": \"#/$defs/a~1b\"}], "
     "\"default\": 7}",
     {"7"},
     {"6", "77"}},
};

static void accepted(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ax_grammar *g = grammar_of(texts[i].source);
        check_texts(g, &texts[i]);
        ax_grammar_free(g);
    }
}

/* Texts as the RFCs have them, and others of which some readers make something. */
static const struct {
    const char *format, *values[6], *others[10];
} formats[] = {
    {"date",
     {"2024-02-29", "1999-12-31", "2000-02-29", "2023-06-30"},
     {"2023-02-29", "1900-02-29", "2023-06-31", "2023-13-01", "0000-01-01", "2023-1-1",
      "2023-01-00"}},
    {"time",
     {"23:59:59Z", "00:00:00.123456+01:30", "12:00:00-00:00"},
     {"24:00:00Z", "12:00Z", "12:00:60Z", "12:00:00", "12:00:00.Z", "12:00:00+24:00"}},
    {"date-time", {"2024-02-29T12:00:00Z"}, {"2024-02-30T12:00:00Z", "2024-02-29 12:00:00Z"}},
    {"duration",
     {"P1D", "P2W", "PT36H", "P1Y2M3DT4H5M6S", "P1Y", "PT1M"},
     {"P", "PT", "P1DT", "P1Y1D", "P1W1D", "1D", "PT1H1S", "P1S"}},
    {"uuid",
     {"0b8e1f0e-6d3e-4b57-9F0A-1c1c2c3c4c5c"},
     {"0b8e1f0e6d3e4b579f0a1c1c2c3c4c5c", "0b8e1f0e-6d3e-4b57-9f0a-1c1c2c3c4c5g"}},
    {"email", {"a.b+c@d-e.org"}, {"a", "a@b", ".a@b.de", "a..b@c.de", "a@-b.de", "a@b.d"}},
    {"hostname", {"a", "a-b.c9.example"}, {"", "-a", "a-", "a..b", "a_b", "a."}},
    {"ipv4", {"0.0.0.0", "255.249.19.9"}, {"256.0.0.0", "01.0.0.0", "1.2.3", "1.2.3.4.5"}},
    {"ipv6",
     {"1:2:3:4:5:6:7:ffff", "::", "::1", "fe80::1", "1:2:3:4:5:6::8"},
     {"1:2:3:4:5:6:7", "1::2::3", "1:2:3:4:5:6:7::8", "12345::", ":1", "1:"}},
    {"uri",
     {"https://a.example/b/c%20d?e=f/g#h", "x+y://host:8080"},
     {"a", "://a", "http:/a", "http://a b", "http://a:0", "http://a/%2", "http://a#b#c",
      "http://"}},
    {"password", {"", "anything"}, {NULL}},
};

static void formats_are_known(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char schema[80], text[80];
        snprintf(schema, sizeof schema, "{\"format\": \"%s\"}", formats[i].format);
        struct ax_grammar *g = grammar_of(schema);
        for (int k = 0; k < 16; k++) {
            const bool fits = k < 6;
            const char *given = fits ? formats[i].values[k] : formats[i].others[k - 6];
            snprintf(text, sizeof text, "\"%s\"", given ? given : "");
            if (given && (try_text(g, text, strlen(text)) == 2) != fits)
                fail_msg("%s is %s %s", text, fits ? "no" : "a", formats[i].format);
        }
        ax_grammar_free(g);
    }
}

/* ---- schemas ---- */

static const struct {
    const char *schema, *says;
} wrong[] = {
    {"{\"pattern\": \"a(?=b)\"}", "pattern (schema #): "},
    {"{\"pattern\": \"^\\\\n$\"}", "pattern (schema #): no text"},
    {"{\"pattern\": 1}", "pattern: expected the text of an expression"},
    {"{\"pattern\": \"a\", \"format\": \"date\"}", "pattern: no format is supported beside it"},
    {"{\"pattern\": \"ab\", \"minLength\": 3}", "minLength: a text of 2 characters fits pattern"},
    {"{\"format\": \"uuid\", \"maxLength\": 35}",
     "maxLength: no text that fits format is as short"},
    {"{\"properties\": {\"a\": {\"type\": \"string\", \"format\": \"iban\"}}}",
     "format: expected date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6, uri or "
     "password (schema #/properties/a)"},
    {"{\"items\": {\"uniqueItems\": true}}",
     "uniqueItems: this keyword is not supported (schema #"},
    {"{\"oneOf\": []}", "oneOf: "},
    {"{\"oneOf\": [{\"type\": \"integer\"}, {\"type\": \"null\"}, {\"type\": \"number\"}]}",
     "oneOf: a value may fit both 0 and 2; write anyOf"},
    {"{\"oneOf\": [{\"properties\": {\"k\": {\"const\": 1}}}, {\"properties\": {\"k\": {\"const\": "
     "2}}, \"required\": [\"k\"]}]}",
     "oneOf: a value may fit both 0 and 1"},
    {"{\"oneOf\": [{\"const\": 1}, {\"enum\": [2, 1.0]}]}", "oneOf: a value may fit both 0 and 1"},
    {"{\"oneOf\": [{\"const\": 1.0}, {\"type\": \"integer\"}]}", "a value may fit both 0 and 1"},
    {"{\"allOf\": [{}, {}]}", "allOf: expected a list of one schema"},
    {"{\"properties\": {\"a\": {\"items\": [{}]}}}",
     "items: expected one schema; a list of them is prefixItems (schema #/properties/a)"},
    {"{\"prefixItems\": []}", "prefixItems: expected a list of schemas"},
    {"{\"prefixItems\": [{}], \"items\": false, \"minItems\": 2}",
     "minItems: it is more than prefixItems has, and items is false (schema #)"},
    {"{\"properties\": {\"a\": {\"prefixItems\": [{}, {\"not\": {}}]}}}",
     "(schema #/properties/a/prefixItems/1)"},
    {"{\"prefixItems\": [{}], \"items\": [{}]}", "them is prefixItems (schema #)"},
    {"{\"prefixItems\": [{\"$ref\": \"#\"}], \"minItems\": 1}", "schema: its smallest value"},
    {"{\"not\": {}}", "not: "},
    {"{\"type\": \"integer\", \"multipleOf\": 2}", "multipleOf: "},
    {"{\"patternProperties\": {}}", "patternProperties: "},
    {"{\"type\": \"text\"}", "type: expected object"},
    {"{\"type\": []}", "type: expected a type"},
    {"false", "schema: expected an object"},
    {"{\"enum\": []}", "enum: no value fits"},
    {"{\"enum\": [1], \"type\": \"string\"}", "enum: no value fits"},
    {"{\"anyOf\": []}", "anyOf: expected a list"},
    {"{\"anyOf\": [{}], \"minLength\": 1}", "anyOf: no other keyword"},
    {"{\"$ref\": \"#/$defs/a\"}", "$ref: there is no #/$defs/a"},
    {"{\"$ref\": \"http://x\"}", "$ref: expected one within"},
    {"{\"$ref\": \"#\"}", "$ref: a schema refers to itself"},
    {"{\"$defs\": {\"a\": {\"anyOf\": [{\"$ref\": \"#/$defs/a\"}, {}]}}, \"$ref\": \"#/$defs/a\"}",
     "$ref: a schema refers to itself"},
    {"{\"properties\": {\"a\": {\"$ref\": \"#\"}}, \"required\": [\"a\"]}",
     "schema: its smallest value"},
    {"{\"type\": \"array\", \"items\": {\"$ref\": \"#\"}, \"minItems\": 1}",
     "schema: its smallest value"},
    {"{\"minItems\": 3, \"maxItems\": 2}", "minItems: it is more than maxItems"},
    {"{\"minLength\": -1}", "minLength: expected an integer"},
    {"{\"type\": \"integer\", \"minimum\": 0.2, \"maximum\": 0.8}", "minimum: no integer"},
    {"{\"minimum\": 1e10}", "minimum: expected a number from"},
    {"{\"type\": \"object\", \"properties\": {}, \"required\": [\"a\"], "
     "\"additionalProperties\": false}",
     "required: there is no property \"a\""},
};

static void refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ax_grammar *g;
        json_t *v = read_json(wrong[i].schema);
        if (ax_grammar_compile(&g, v, alone) != AX_ERR_DATA ||
            !strstr(ax_error_text(), wrong[i].says))
            fail_msg("%s: %s", wrong[i].schema, ax_error_text());
        assert_null(g);
        json_decref(v);
    }
}

/* Keywords that would hold answers to less than they ask for, wherever they are. */
static void keywords_that_are_refused(void **state) {
    (void)state;
    static const char *const names[] = {"uniqueItems",
                                        "multipleOf",
                                        "minProperties",
                                        "maxProperties",
                                        "not",
                                        "patternProperties",
                                        "propertyNames",
                                        "if",
                                        "then",
                                        "else",
                                        "dependentRequired",
                                        "dependentSchemas",
                                        "dependencies",
                                        "contains",
                                        "minContains",
                                        "maxContains",
                                        "additionalItems",
                                        "unevaluatedItems",
                                        "unevaluatedProperties",
                                        "contentEncoding",
                                        "contentMediaType",
                                        "$dynamicRef",
                                        "nullable",
                                        "minimun"};
    static const char *const around[][2] = {
        {"{\"%s\": 1}", "(schema #)"},
        {"{\"properties\": {\"a\": {\"items\": {\"%s\": 1}}}}", "(schema #/properties/a/items)"},
        {"{\"anyOf\": [{}, {\"type\": \"integer\", \"%s\": {}}]}", "(schema #/anyOf/1)"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
            struct ax_grammar *g;
            struct ax_buf text = {0};
            char says[128], *mark;
            snprintf(says, sizeof says, "%s: this keyword is not supported %s", names[i],
                     around[k][1]);
            mark = strstr(around[k][0], "%s");
            assert_int_equal(ax_buf_printf(&text, "%.*s%s%s", (int)(mark - around[k][0]),
                                           around[k][0], names[i], mark + 2),
                             AX_OK);
            json_t *v = read_json(text.data);
            if (ax_grammar_compile(&g, v, alone) != AX_ERR_DATA || !strstr(ax_error_text(), says))
                fail_msg("%s: %s", text.data, ax_error_text());
            json_decref(v);
            ax_buf_free(&text);
        }
}

/* ---- a validator ---- */

static bool is_valid(const json_t *v, const json_t *schema, const json_t *root);

static bool is_type(const json_t *v, const json_t *type) {
    for (size_t i = 0; json_is_array(type) && i < json_array_size(type); i++)
        if (is_type(v, json_array_get(type, i)))
            return true;
    const char *t = json_string_value(type);
    return t && (strcmp(t, "object") == 0    ? json_is_object(v)
                 : strcmp(t, "array") == 0   ? json_is_array(v)
                 : strcmp(t, "string") == 0  ? json_is_string(v)
                 : strcmp(t, "integer") == 0 ? json_is_integer(v)
                 : strcmp(t, "number") == 0  ? json_is_number(v)
                 : strcmp(t, "boolean") == 0 ? json_is_boolean(v)
                                             : json_is_null(v));
}

static double limit(const json_t *schema, const char *name, double none) {
    const json_t *v = json_object_get(schema, name);
    return v ? json_number_value(v) : none;
}

static size_t characters(const json_t *v) {
    size_t n = 0;
    for (size_t i = 0; i < json_string_length(v); i++)
        n += ((unsigned char)json_string_value(v)[i] & 0xC0U) != 0x80U;
    return n;
}

static bool is_valid_object(const json_t *v, const json_t *schema, const json_t *root) {
    const json_t *properties = json_object_get(schema, "properties"),
                 *required = json_object_get(schema, "required"),
                 *more = json_object_get(schema, "additionalProperties");
    const char *name;
    json_t *item;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(v, json_string_value(json_array_get(required, i))))
            return false;
    json_object_foreach((json_t *)(uintptr_t)v, name, item) {
        const json_t *own = json_object_get(properties, name);
        own = own ? own : more;
        if (json_is_false(own) || (own && !json_is_true(own) && !is_valid(item, own, root)))
            return false;
    }
    return true;
}

static bool is_valid_array(const json_t *v, const json_t *schema, const json_t *root) {
    const json_t *prefix = json_object_get(schema, "prefixItems"),
                 *items = json_object_get(schema, "items");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *own = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (json_is_false(own) || (own && !is_valid(json_array_get(v, i), own, root)))
            return false;
    }
    return (double)json_array_size(v) >= limit(schema, "minItems", 0) &&
           (double)json_array_size(v) <= limit(schema, "maxItems", 1e9);
}

/* Somewhere in the text, by PCRE2. */
static bool has_match(const json_t *v, const json_t *pattern) {
    struct ax_regex *re;
    struct ax_regex_work work = {0};
    size_t start, end;
    bool found;
    if (!pattern)
        return true;
    assert_ok(
        ax_regex_compile_python(&re, json_string_value(pattern), json_string_length(pattern)));
    struct ax_regex_iter it =
        ax_regex_search(re, &work, json_string_value(v), json_string_length(v));
    assert_ok(ax_regex_next(&it, &found, &start, &end));
    ax_regex_work_free(&work);
    ax_regex_free(re);
    return found;
}

static bool is_valid(const json_t *v, const json_t *schema, const json_t *root) {
    const json_t *type = json_object_get(schema, "type"), *list = json_object_get(schema, "enum"),
                 *one = json_object_get(schema, "const"), *any = json_object_get(schema, "anyOf"),
                 *only = json_object_get(schema, "oneOf"), *ways = only ? only : any,
                 *all = json_object_get(schema, "allOf");
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    int found = !list && !ways;
    if (ref) /* #/$defs/NAME */
        return is_valid(
            v,
            json_object_get(json_object_get(root, "$defs"),
                            strcmp(ref, "#/$defs/a~1b") == 0 ? "a/b" : ref + strlen("#/$defs/")),
            root);
    for (size_t i = 0; i < json_array_size(list); i++)
        found += json_equal(v, json_array_get(list, i));
    for (size_t i = 0; i < json_array_size(ways); i++)
        found += is_valid(v, json_array_get(ways, i), root);
    for (size_t i = 0; i < json_array_size(all); i++)
        found *= is_valid(v, json_array_get(all, i), root);
    if (found == 0 || (only && found > 1) || (type && !is_type(v, type)) ||
        (one && !json_equal(one, v)))
        return false;
    if (json_is_object(v))
        return is_valid_object(v, schema, root);
    if (json_is_number(v)) {
        const double x = json_number_value(v);
        return x >= limit(schema, "minimum", x) && x <= limit(schema, "maximum", x) &&
               x > limit(schema, "exclusiveMinimum", -INFINITY) &&
               x < limit(schema, "exclusiveMaximum", INFINITY);
    }
    if (json_is_string(v))
        return (double)characters(v) >= limit(schema, "minLength", 0) &&
               (double)characters(v) <= limit(schema, "maxLength", 1e9) &&
               has_match(v, json_object_get(schema, "pattern"));
    return !json_is_array(v) || is_valid_array(v, schema, root);
}

/* ---- random walks ---- */

static void random_texts(void **state) {
    (void)state;
    struct ax_grammar_vocabulary v;
    struct ax_buf text = {0};
    int ended = 0;
    put_tokenizer();
    assert_ok(ax_grammar_vocabulary_open(&v, tokenizer, (int64_t)ax_tokenizer_size(tokenizer)));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ax_grammar *g = grammar_of(texts[i].source);
        struct ax_grammar_masks *m;
        json_t *schema = read_json(texts[i].source);
        assert_ok(ax_grammar_masks_create(&m, g, &v));
        for (seed = 0; seed < 1U << 30; seed += (1U << 30) / 120) {
            const uint32_t before = seed;
            if (walk(m, g, &v, &text)) {
                json_error_t error;
                json_t *x =
                    json_loadb(text.data, text.len,
                               JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
                if (!x && !strstr(error.text, "duplicate") && !strstr(error.text, "NUL"))
                    fail_msg("%.*s: %s", (int)text.len, text.data, error.text);
                if (x && !is_valid(x, schema, schema))
                    fail_msg("%.*s is no value of %s", (int)text.len, text.data, texts[i].source);
                ended += x != NULL;
                json_decref(x);
            }
            seed = before;
        }
        ax_grammar_masks_free(m);
        ax_grammar_free(g);
        json_decref(schema);
    }
    assert_true(ended > 1000);
    ax_buf_free(&text);
    ax_grammar_vocabulary_close(&v);
    drop_tokenizer();
}

static void masks(void **state) {
    (void)state;
    struct ax_grammar_vocabulary v;
    put_tokenizer();
    assert_ok(ax_grammar_vocabulary_open(&v, tokenizer, (int64_t)ax_tokenizer_size(tokenizer)));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ax_grammar *g = grammar_of(texts[i].source);
        struct ax_grammar_masks *m;
        assert_ok(ax_grammar_masks_create(&m, g, &v));
        for (int k = 0; k < 8 && texts[i].values[k]; k++)
            check_masks(m, g, &v, texts[i].values[k]);
        ax_grammar_masks_free(m);
        ax_grammar_free(g);
    }
    ax_grammar_vocabulary_close(&v);
    drop_tokenizer();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepted),     cmocka_unit_test(formats_are_known),
        cmocka_unit_test(refused),      cmocka_unit_test(keywords_that_are_refused),
        cmocka_unit_test(random_texts), cmocka_unit_test(masks)};
    return cmocka_run_group_tests(tests, set_alone, NULL);
}
