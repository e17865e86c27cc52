/* `axtrain eval --task final-answer`: the question of a row is what stands before its last trained
 * stretch; a row without one, or without a final answer in it, is not asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tests/cmd/sft_case.h"

#define USER(text)      "{\"role\": \"user\", \"content\": \"" text "\"}"
#define ASSISTANT(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"

static const struct {
    const char *messages, *expected; /* NULL: not asked */
} rows[] = {
    {USER("one and two") ", " ASSISTANT("1 + 2 = 3\\n#### 3"), "3"},
    {USER("one and two"), NULL},
    {USER("one and two") ", " ASSISTANT("three"), NULL},
    {USER("one and two") ", " ASSISTANT("#### 3") ", " USER("sure?"), "3"},
    {USER("one and two") ", " ASSISTANT("#### 3") ", " USER("and four") ", " ASSISTANT("#### 7"),
     "7"},
    {USER("one and two") ", " ASSISTANT("#### 3") ", " USER("sure?") ", " ASSISTANT("yes"), NULL},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Text of one JSON object a line: of each row, then of them all. */
static void what_is_asked(void **state) {
    (void)state;
    char text[4096] = "", file[256], said[16384];
    int asked = 0, seen = 0;
    need_binary();
    for (int i = 0; i < ROWS; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"messages\": [%s]}\n",
                 rows[i].messages);
        asked += rows[i].expected != NULL;
    }
    snprintf(file, sizeof file, "%s", put_text("ask.jsonl", text));
    sft_command = "eval";
    const char *const args[] = {
        "--model", golden_llama(),     "--data", file,     "--task",   "final-answer", "--batch",
        "2",       "--max-new-tokens", "4",      "--json", "--per-row"};
    if (sft(said, sizeof said, sizeof args / sizeof *args, args) != 0)
        fail_msg("%s", said);
    char *rest = said;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = *line == '{' ? json_loads(line, JSON_ALLOW_NUL, NULL) : NULL;
        const json_t *row = json_object_get(v, "row");
        if (row) {
            const int i = (int)json_integer_value(row);
            const char *expected = json_string_value(json_object_get(v, "expected"));
            assert_int_equal(i, seen++);
            assert_true(i < ROWS);
            if (rows[i].expected)
                assert_string_equal(expected ? expected : "nothing", rows[i].expected);
            else
                assert_null(expected);
        } else if (v) {
            const json_t *all = json_object_get(v, "final_answer");
            assert_int_equal(json_integer_value(json_object_get(all, "asked")), asked);
            assert_int_equal(json_integer_value(json_object_get(v, "rows")), ROWS);
        }
        json_decref(v);
    }
    assert_int_equal(seen, ROWS);
}

/* Nothing that could be asked. */
static void nothing_is_asked(void **state) {
    (void)state;
    char file[256], said[8192];
    need_binary();
    snprintf(file, sizeof file, "%s",
             put_text("none.jsonl", "{\"messages\": [" USER("a") ", " ASSISTANT("b") "]}\n"));
    sft_command = "eval";
    const char *const args[] = {"--model", golden_llama(), "--data",
                                file,      "--task",       "final-answer"};
    assert_true(sft(said, sizeof said, sizeof args / sizeof *args, args) != 0);
    assert_non_null(strstr(said, "none.jsonl:1: "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_asked),
        cmocka_unit_test(nothing_is_asked),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
