/* Which requests `axtrain serve` takes, by the answers and the memory of those that are pending; and how much of an answer
 * may be sent before it has ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cmd/serve/engine.h"
#include "data/tools/format.h"

static struct ax_serve_engine engine;

static int open_engine(void **state) {
    (void)state;
    memset(&engine, 0, sizeof engine);
    ax_serve_engine_init(&engine);
    engine.state = AX_SERVE_READY;
    engine.most = 4;
    engine.most_bytes = 100;
    return 0;
}

static int close_engine(void **state) {
    (void)state;
    ax_serve_engine_free(&engine);
    return 0;
}

static void make(struct ax_serve_job *j, int64_t answers, size_t bytes) {
    memset(j, 0, sizeof *j);
    j->engine = &engine;
    j->n_units = answers;
    j->bytes = bytes;
    assert_int_equal(pthread_cond_init(&j->changed, NULL), 0);
}

static void submit(struct ax_serve_job *j, bool takes) {
    const enum ax_status st = ax_serve_submit(j);
    assert_int_equal(st, takes ? AX_OK : AX_ERR_FAILED);
    assert_int_equal(j->r.status, takes ? 0 : 429);
    j->r.status = 0;
    ax_error_clear();
}

/* One that leaves before it has begun gives back its answers and its memory. */
static void those_that_leave_make_room(void **state) {
    (void)state;
    struct ax_serve_job a, b, c;
    make(&a, 1, 60);
    make(&b, 3, 40);
    make(&c, 1, 1);
    submit(&a, true);
    submit(&b, true); /* as much as there is */
    submit(&c, false);
    ax_serve_leave(&b);
    assert_int_equal(engine.n_pending, 1);
    assert_int_equal(engine.left, 3);
    b.bytes = 41;
    submit(&b, false);
    b.bytes = 40;
    submit(&b, true);
    ax_serve_leave(&a);
    submit(&c, true);
    assert_ptr_equal(engine.waiting, &b); /* in the order they came */
    assert_ptr_equal(b.next, &c);
    ax_serve_leave(&c);
    ax_serve_leave(&b);
    assert_true(!engine.waiting && engine.n_pending == 0 && engine.left == 8);
    assert_int_equal(engine.refused, 2);
}

/* Where nothing is pending, one may be larger than the queue. */
static void one_is_always_taken(void **state) {
    (void)state;
    struct ax_serve_job a;
    make(&a, 5, 101);
    submit(&a, true);
    ax_serve_leave(&a);
}

/* What may become a call waits, whatever comes then; so do the blanks before it. */
static void beginnings_of_calls_wait(void **state) {
    (void)state;
    static const struct {
        const char *format, *text;
        size_t call_at; /* SIZE_MAX: no token has begun a call */
        size_t sent;
    } cases[] = {
        {"hermes", "", SIZE_MAX, 0},
        {"hermes", "plain", SIZE_MAX, 5},
        {"hermes", "plain \n", SIZE_MAX, 5},
        {"hermes", "a < b", SIZE_MAX, 5},
        {"hermes", "a <", SIZE_MAX, 1},
        {"hermes", "a<tool", SIZE_MAX, 1},
        {"hermes", "<tool_call", SIZE_MAX, 0},
        {"hermes", "a <tool_call>", SIZE_MAX, 1},
        {"hermes", "a <tool_call>{\"name\"", SIZE_MAX, 1},
        {"hermes", "a <tool_box", SIZE_MAX, 11},
        {"hermes", "a<tool_call><tool", SIZE_MAX, 1},
        {"hermes", "ab  cd", 4, 2},
        {"mistral", "ok[TOOL", SIZE_MAX, 2},
        {"mistral", "ok[TOOL]", SIZE_MAX, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_serve_tools tools = {.format = ax_tool_format_find(cases[i].format)};
        const struct ax_serve_model model = {.tools = &tools};
        struct ax_serve_job j = {.r = {.model = &model, .tool_choice = AX_TOOLS_AUTO}};
        struct ax_serve_choice c = {.job = &j, .call_at = cases[i].call_at};
        json_t *list = json_array();
        assert_non_null(tools.format);
        assert_int_equal(ax_buf_puts(&c.text, cases[i].text), AX_OK);
        const size_t all = strlen(cases[i].text);
        assert_int_equal(ax_serve_calls_hold(&c), all); /* a request without tools */
        j.r.tools = list;
        if (ax_serve_calls_hold(&c) != cases[i].sent)
            fail_msg("%s: %zu", cases[i].text, ax_serve_calls_hold(&c));
        c.finish = "stop";
        assert_int_equal(ax_serve_calls_hold(&c), all);
        c.finish = NULL;
        j.r.tool_choice = AX_TOOLS_NONE;
        assert_int_equal(ax_serve_calls_hold(&c), all);
        json_decref(list);
        ax_buf_free(&c.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(those_that_leave_make_room, open_engine, close_engine),
        cmocka_unit_test_setup_teardown(one_is_always_taken, open_engine, close_engine),
        cmocka_unit_test(beginnings_of_calls_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
