/* Programs of a model that attack the tool python: each gets the result that tool_attacks.txt says, alone and with all
 * others at the same time, and an honest one beside it gets its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "base/text/json.h"
#include "data/tools/tools.h"
#include "tests/data/sandbox_case.h"

#define MOST 100

/* A block of the file: `=== TITLE: RESULT`, a JSON text, and the program. */
struct attack {
    char title[80];
    json_t *want, *call;
};
static struct attack attacks[MOST];
static size_t n_attacks;
static struct ax_tools *tools;

static json_t *call_of(json_t *code) {
    return json_pack("{s:{s:s, s:{s:o}}}", "function", "name", "python", "arguments", "code", code);
}

static void add_attack(const char *block, size_t n) {
    const char *line = memchr(block, '\n', n), *colon = strstr(block, ": \"");
    struct attack *a = &attacks[n_attacks++];
    assert_true(n_attacks < MOST && line && colon && colon < line);
    snprintf(a->title, sizeof a->title, "%.*s", (int)(colon - block), block);
    a->want = json_loadb(colon + 2, (size_t)(line - colon - 2), JSON_DECODE_ANY, NULL);
    a->call = call_of(json_stringn(line + 1, n - (size_t)(line + 1 - block)));
    assert_true(json_is_string(a->want) && a->call);
}

static int begin(void **state) {
    static const char *const names[] = {"python"};
    const struct ax_tools_options o = {.names = names,
                                       .n = 1,
                                       .program = getenv("AX_TEST_BIN"),
                                       .sandbox_cache = SANDBOX_CACHE,
                                       .threads = 2};
    char *text;
    size_t n;
    (void)state;
    if (ax_read_file("tests/data/tool_attacks.txt", 1 << 20, &text, &n) != AX_OK ||
        ax_tools_open(&tools, &o) != AX_OK)
        return -1;
    for (char *at = strstr(text, "=== "), *next; at; at = next) {
        next = strstr(at + 4, "\n=== ");
        add_attack(at + 4, next ? (size_t)(next - at) - 3 : strlen(at) - 4);
        next = next ? next + 1 : NULL;
    }
    ax_free(text);
    return 0;
}

static int end(void **state) {
    (void)state;
    for (size_t i = 0; i < n_attacks; i++) {
        json_decref(attacks[i].want);
        json_decref(attacks[i].call);
    }
    ax_tools_close(tools);
    return 0;
}

static void check(const struct attack *a, const struct ax_tool_result *r) {
    if (strcmp(r->text, json_string_value(a->want)) != 0)
        fail_msg("%s: %s", a->title, r->text);
}

static void each_is_harmless_alone(void **state) {
    json_t *honest = call_of(json_string("print(6 * 7)"));
    (void)state;
    assert_true(n_attacks >= 40);
    for (size_t i = 0; i < n_attacks; i++) {
        const struct ax_tool_request requests[] = {{.call = attacks[i].call, .rollout = 1},
                                                   {.call = honest, .rollout = 2}};
        for (size_t k = 0; k < 2; k++) { /* the honest one after it, in what it has left */
            struct ax_tool_result r = {0};
            assert_int_equal(ax_tools_run(tools, 1, &requests[k], NULL, &r), AX_OK);
            if (k == 0)
                check(&attacks[i], &r);
            else if (strcmp(r.text, "42") != 0)
                fail_msg("after %s: %s", attacks[i].title, r.text);
            ax_free(r.text);
        }
    }
    json_decref(honest);
}

static void all_are_harmless_together(void **state) {
    static struct ax_tool_request requests[2 * MOST];
    static struct ax_tool_result results[2 * MOST];
    json_t *honest = call_of(json_string("print(6 * 7)"));
    (void)state;
    for (size_t i = 0; i < n_attacks; i++) {
        requests[2 * i] = (struct ax_tool_request){.call = attacks[i].call, .rollout = 1};
        requests[2 * i + 1] = (struct ax_tool_request){.call = honest, .rollout = 2};
    }
    assert_int_equal(ax_tools_run(tools, 2 * n_attacks, requests, NULL, results), AX_OK);
    for (size_t i = 0; i < n_attacks; i++) {
        check(&attacks[i], &results[2 * i]);
        if (strcmp(results[2 * i + 1].text, "42") != 0)
            fail_msg("beside %s: %s", attacks[i].title, results[2 * i + 1].text);
    }
    for (size_t i = 0; i < 2 * n_attacks; i++)
        ax_free(results[i].text);
    json_decref(honest);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_harmless_alone),
        cmocka_unit_test(all_are_harmless_together),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
