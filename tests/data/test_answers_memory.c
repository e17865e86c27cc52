/* Records of answers, steps and prompts when memory runs out, at every allocation: an error that says so, and
 * nothing left behind; never other examples, or another error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "tests/data/scratch.h"
#include "tests/data/format_case.h"
#include "tests/data/chat_case.h"
#include "tests/data/answers_case.h"

#define U(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"

static const struct {
    enum ax_task task;
    const char *type, *row;
} all[] = {
    {AX_TASK_PAIR, NULL, "{\"prompt\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}"},
    {AX_TASK_PAIR, NULL,
     "{\"prompt\": [" U("q") "], \"chosen\": [" A("1") "], \"rejected\": [" A("2") "]}"},
    {AX_TASK_PAIR, NULL,
     "{\"chosen\": [" U("q") ", " A("1") "], \"rejected\": [" U("q") ", " A("2") "]}"},
    {AX_TASK_UNPAIRED, NULL, "{\"prompt\": \"q\", \"completion\": \"1\", \"label\": true}"},
    {AX_TASK_REWARD, "bradley_terry.chat_template",
     "{\"system\": \"s\", \"input\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}"},
    {AX_TASK_PAIR, "chat_template.default",
     "{\"messages\": [" U("q") "], \"chosen\": \"1\", \"rejected\": " A("2") "}"},
    {AX_TASK_PAIR, "chat_template.argilla",
     "{\"chosen\": [" U("q") ", " A("1") "], \"rejected\": [" U("q") ", " A("2") "]}"},
    {AX_TASK_PAIR, "chat_template.argilla_chat",
     "{\"chosen\": [" U("q") ", " A("1") "], \"rejected\": [" U("q") ", " A("2") "]}"},
    {AX_TASK_PAIR, "chatml.intel",
     "{\"system\": \"s\", \"question\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}"},
    {AX_TASK_STEPS, NULL,
     "{\"prompt\": \"q\", \"completions\": [\"a\", \"b\"], \"labels\": [0.5, 0]}"},
    {AX_TASK_PROMPT, NULL, "{\"prompt\": \"q\", \"answer\": 5}"},
    {AX_TASK_PROMPT, NULL, "{\"prompt\": [" U("q") "], \"tools\": [{\"name\": \"f\"}]}"},
    {AX_TASK_PROMPT, "chat_template", "{\"messages\": [" U("q") ", " A("1") "]}"},
};

/* With allocation k failing; false if there are fewer. */
static bool fails_at(const struct ax_format *f, const char *json, unsigned k, size_t tokens) {
    struct ax_format_work w = {0};
    struct ax_example_list l = {.columns = ax_format_columns(f)};
    char fault[64];
    json_t *row = json_loads(json, 0, NULL);
    snprintf(fault, sizeof fault, "malloc:%u:enomem", k);
    assert_ok(ax_fault_configure(fault));
    const enum ax_status st = ax_format_record(f, &w, row, (struct ax_origin){.line = 1}, &l);
    const bool fired = ax_fault_fired();
    assert_ok(ax_fault_configure(NULL));
    if (st != AX_OK && st != AX_ERR_NOMEM)
        fail_msg("allocation %u of %s: %s", k, json, ax_error_text());
    if (st == AX_OK)
        assert_int_equal(l.n_tokens, tokens);
    else
        assert_int_equal(l.n, 0);
    ax_example_list_free(&l);
    ax_format_work_free(&w);
    json_decref(row);
    return fired;
}

static void every_allocation(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct answers_case c;
        struct ax_format *f;
        struct ax_example_list l = {.columns = &rated_columns};
        answers_open(&c, all[i].task, all[i].type);
        assert_ok(ax_format_new(&f, &c.o));
        assert_ok(run_record(f, all[i].row, &l));
        const uint64_t live = ax_mem_live_blocks();
        unsigned k = 1;
        while (fails_at(f, all[i].row, k, l.n_tokens))
            k++;
        assert_true(k > 5);
        assert_int_equal(ax_mem_live_blocks(), live);
        ax_example_list_free(&l);
        ax_format_free(f);
        answers_close(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation)};
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
