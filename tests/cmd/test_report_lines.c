/* `axtrain report`: lines of a run folder that are of an abandoned attempt, or that no page can show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/report/report.h"
#include "tests/data/scratch.h"

static void put_completion(struct ax_buf *b, int step, const char *text) {
    assert_ok(
        ax_buf_printf(b,
                      "{\"step\": %d, \"prompt\": \"p\", \"completion\": \"%s\", \"rewards\": "
                      "{}, \"advantage\": null}\n",
                      step, text));
}

static void put_folder(const char *name, const char *metrics, struct ax_buf *completions) {
    char path[96];
    make_folder(name);
    snprintf(path, sizeof path, "%s/metrics.jsonl", name);
    put_text(path, metrics);
    snprintf(path, sizeof path, "%s/completions.jsonl", name);
    if (!completions)
        return;
    put_bytes(path, completions->data, completions->len);
    ax_buf_free(completions);
}

/* The run resumed from step 2 of 4, and has come to 3. */
static void a_resumed_run_replaces_completions(void **state) {
    (void)state;
    struct ax_buf b = {0};
    struct ax_report_run run;
    for (int i = 1; i <= 4; i++) {
        put_completion(&b, i, "first");
        put_completion(&b, i, "second of the step");
    }
    put_completion(&b, 3, "again");
    put_completion(&b, 3, "second of the step");
    put_folder("resumed", "{\"step\": 3, \"loss\": 1}\n", &b);
    assert_ok(ax_report_read(&run, in_scratch("resumed")));
    assert_int_equal(run.n_samples, 3);
    assert_string_equal(run.samples[1].text, "first");
    assert_int_equal(run.samples[2].step, 3);
    assert_string_equal(run.samples[2].text, "again");
    assert_string_equal(run.samples[2].worth, "advantage none");
    assert_int_equal(run.n_problems, 1); /* no run.json */
    ax_report_close(&run);
}

#define SAMPLE(step, text) "{\"step\": " #step ", \"event\": \"sample\", \"text\": \"" text "\"}\n"

/* The same of texts that metrics.jsonl has: what was sampled after the step that a run resumed from is of no run. */
static void a_resumed_run_replaces_samples(void **state) {
    (void)state;
    struct ax_report_run run;
    put_folder("samples",
               SAMPLE(1, "a") SAMPLE(2, "b") SAMPLE(3, "c") SAMPLE(4, "d") SAMPLE(2, "e"), NULL);
    assert_ok(ax_report_read(&run, in_scratch("samples")));
    assert_int_equal(run.n_samples, 3);
    assert_string_equal(run.samples[0].text, "a");
    assert_string_equal(run.samples[1].text, "b");
    assert_string_equal(run.samples[2].text, "e");
    ax_report_close(&run);
}

static void lines_that_are_left_out_are_named(void **state) {
    (void)state;
    struct ax_buf b = {0};
    struct ax_report_run run;
    char *much;
    static const char *const want[] = {
        "metrics.jsonl:2: loss: 1e+308 is beyond 1e+30 and was left out",
        "metrics.jsonl:2: rewards/a/mean: -1e+300 is beyond 1e+30 and was left out",
        "metrics.jsonl:2: forward: 1e+31 is beyond 1e+30 and was left out",
        "completions.jsonl:2: is longer than 1 MiB and was skipped",
        "completions.jsonl:3: has no step, prompt or completion and was skipped",
        "completions.jsonl:4: is incomplete"};
    assert_ok(ax_alloc(&much, ((size_t)1 << 20) + 1, 1));
    memset(much, 'x', (size_t)1 << 20);
    put_completion(&b, 1, "short");
    put_completion(&b, 2, much);
    assert_ok(ax_buf_puts(&b, "{\"step\": 3}\n{\"step\": 4, "));
    ax_free(much);
    put_folder("left-out",
               "{\"step\": 1, \"loss\": null, \"rewards/a/mean\": 1}\n"
               "{\"step\": 2, \"loss\": 1e308, \"rewards/a/mean\": -1e300, "
               "\"phase_seconds\": {\"forward\": 1e31}}\n",
               &b);
    assert_ok(ax_report_read(&run, in_scratch("left-out")));
    assert_int_equal(run.n_problems, sizeof want / sizeof *want + 1);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (strncmp(run.problems[i], want[i], strlen(want[i])) != 0)
            fail_msg("%s, not %s", run.problems[i], want[i]);
    assert_int_equal(run.n_samples, 1);
    assert_true(isnan(run.steps[1].figures[AX_FIGURE_LOSS]) && isnan(run.steps[1].rewards[0]) &&
                run.steps[1].phases[0] == 0);
    ax_report_close(&run);
}

static void numbers_that_are_none_are_no_nan(void **state) {
    (void)state;
    struct ax_report_run run;
    struct ax_buf page = {0};
    put_folder("none",
               "{\"step\": 0, \"eval_loss\": null}\n{\"step\": 1, \"loss\": null}\n"
               "{\"step\": 2, \"loss\": 1e308, \"phase_seconds\": {\"forward\": 1e308}}\n"
               "{\"step\": 2, \"eval_loss\": 2.5}\n",
               NULL);
    assert_ok(ax_report_read(&run, in_scratch("none")));
    const struct ax_report r = {.runs = &run, .n = 1};
    assert_ok(ax_report_put(&page, &r));
    assert_non_null(strstr(page.data, "none \xe2\x86\x92 2.5000"));
    assert_non_null(strstr(page.data, "none \xe2\x86\x92 none"));
    assert_null(strstr(page.data, "nan"));
    assert_null(strstr(page.data, "inf "));
    ax_buf_free(&page);
    ax_report_close(&run);
}

/* The run chose step 2, by another metric than the loss; a run that goes on from there has not chosen yet. */
static void the_best_is_what_the_run_chose(void **state) {
    (void)state;
    static const char run_of_4[] =
        "{\"step\": 2, \"loss\": 1}\n{\"step\": 2, \"eval_loss\": 1.5, \"eval_accuracy\": 0.75}\n"
        "{\"step\": 4, \"loss\": 1}\n{\"step\": 4, \"eval_loss\": 1.25, \"eval_accuracy\": 0.5}\n"
        "{\"step\": 2, \"event\": \"best\", \"text\": \"out has the weights of checkpoint-2\"}\n"
        "{\"step\": 4, \"event\": \"finished\", \"text\": \"out\"}\n";
    static const char resumed[] = "{\"step\": 4, \"event\": \"resumed\", \"text\": \"\"}\n";
    static const char *const said[] = {"1.5000 at step 2", "1.2500 at step 4"};
    for (int i = 0; i < 2; i++) {
        struct ax_report_run run;
        struct ax_buf text = {0}, page = {0};
        assert_ok(ax_buf_printf(&text, "%s%s", run_of_4, i ? resumed : ""));
        put_folder("best", text.data, NULL);
        assert_ok(ax_report_read(&run, in_scratch("best")));
        const struct ax_report_eval *best = ax_report_best(&run);
        assert_true(i == 0 ? best && best->step == 2 : !best);
        assert_ok(ax_report_put_figures(&page, &(struct ax_report){&run, 1}));
        assert_non_null(strstr(page.data, said[i]));
        ax_buf_free(&text);
        ax_buf_free(&page);
        ax_report_close(&run);
    }
}

/* Calls of one tool have their results in order, also where another one's come between. */
static void calls_of_one_name_keep_their_order(void **state) {
    (void)state;
    static const char text[] = "[{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": ["
                               "{\"function\": {\"name\": \"add\", \"arguments\": {\"a\": 1}}}, "
                               "{\"function\": {\"name\": \"look\", \"arguments\": {}}}, "
                               "{\"function\": {\"name\": \"add\", \"arguments\": {\"a\": 2}}}]}, "
                               "{\"role\": \"tool\", \"name\": \"add\", \"content\": \"first\"}, "
                               "{\"role\": \"tool\", \"name\": \"add\", \"content\": \"second\"}, "
                               "{\"role\": \"tool\", \"name\": \"look\", \"content\": \"seen\"}]";
    struct ax_buf out = {0};
    json_t *messages = json_loads(text, 0, NULL);
    assert_ok(ax_report_put_turns(&out, messages, NULL));
    assert_non_null(strstr(out.data, "<pre>{&quot;a&quot;: 1}</pre><pre>\xe2\x86\x90 first</pre>"));
    assert_non_null(strstr(out.data, "<pre>{}</pre><pre>\xe2\x86\x90 seen</pre>"));
    assert_non_null(
        strstr(out.data, "<pre>{&quot;a&quot;: 2}</pre><pre>\xe2\x86\x90 second</pre>"));
    json_decref(messages);
    ax_buf_free(&out);
}

/* Of many ranks the first are drawn, and it is said that there are more. */
static void many_ranks_are_not_all_drawn(void **state) {
    (void)state;
    enum { RANKS = 20, DRAWN = 16 };
    for (int ranks = DRAWN; ranks <= RANKS; ranks += RANKS - DRAWN) {
        struct ax_report_run run;
        struct ax_buf text = {0}, page = {0};
        size_t drawn = 0;
        put_folder("ranks", "{\"step\": 1, \"loss\": 1}\n", NULL);
        assert_ok(ax_buf_puts(&text, "{\"traceEvents\": ["));
        for (int i = 0; i < ranks; i++)
            assert_ok(ax_buf_printf(&text,
                                    "%s{\"ph\": \"X\", \"pid\": %d, \"tid\": 0, \"ts\": 0, "
                                    "\"dur\": 10, \"cat\": \"op\", \"name\": \"gemm\"}",
                                    i ? ", " : "", i));
        assert_ok(ax_buf_puts(&text, "]}"));
        put_bytes("ranks/timeline.json", text.data, text.len);
        assert_ok(ax_report_read(&run, in_scratch("ranks")));
        assert_int_equal(run.timeline.n, ranks);
        assert_ok(ax_report_put_timelines(&page, &(struct ax_report){&run, 1}));
        for (const char *at = page.data; (at = strstr(at, "<b>rank ")) != NULL; at++)
            drawn++;
        assert_int_equal(drawn, DRAWN);
        assert_true((strstr(page.data, ", the first 16 of 20 ranks") != NULL) == (ranks > DRAWN));
        ax_buf_free(&text);
        ax_buf_free(&page);
        ax_report_close(&run);
    }
}

/* Also if no answer is right; of answers that nobody judged, there is nothing to say. */
static void solved_records_are_counted(void **state) {
    (void)state;
    static const struct {
        const char *line, *says;
    } cases[] = {{"{\"where\": \"a:1\", \"answer\": \"5\", \"solved\": false}\n",
                  "<span>1 record, 0 of 1 solved</span>"},
                 {"{\"where\": \"a:1\", \"answer\": \"5\", \"solved\": true}\n",
                  "<span>1 record, 1 of 1 solved</span>"},
                 {"{\"where\": \"a:1\", \"answer\": \"5\"}\n", "<span>1 record</span>"},
                 /* lines that are damaged, or have no answer; the last one has no end */
                 {"{\"answer\": \"5\", \"solved\": true}\n{\"answ\n{\"solved\": true}\n"
                  "{\"answer\": \"6\", \"solved\": false}",
                  "<span>2 records, 1 of 2 solved</span>"},
                 {"{\"answer\": \"5\"}\n{\"answer\": \"6\"}", "<span>2 records</span>"},
                 /* of a harness */
                 {"{\"resps\": [[\"5\"]], \"metrics\": [\"exact_match\"], \"exact_match\": 1.0}\n"
                  "{\"resps\": [[\"6\"]], \"metrics\": [\"exact_match\"], \"exact_match\": 0.0}\n"
                  "{\"resps\": [[\"7\"]], \"metrics\": [\"f1\"], \"f1\": 0.5}\n"
                  "{\"resps\": [[\"8\"]]}\n",
                  "<span>4 records, 1 of 2 solved</span>"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_report_run run;
        struct ax_buf page = {0};
        put_folder("asked", "{\"step\": 1, \"loss\": 1}\n", NULL);
        put_text("asked/eval.jsonl", cases[i].line);
        assert_ok(ax_report_read(&run, in_scratch("asked")));
        assert_ok(ax_report_put_answers(&page, &(struct ax_report){&run, 1}));
        if (!strstr(page.data, cases[i].says))
            fail_msg("%s: %s", cases[i].line, page.data);
        ax_buf_free(&page);
        ax_report_close(&run);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_replaces_completions),
        cmocka_unit_test(a_resumed_run_replaces_samples),
        cmocka_unit_test(lines_that_are_left_out_are_named),
        cmocka_unit_test(numbers_that_are_none_are_no_nan),
        cmocka_unit_test(the_best_is_what_the_run_chose),
        cmocka_unit_test(calls_of_one_name_keep_their_order),
        cmocka_unit_test(many_ranks_are_not_all_drawn),
        cmocka_unit_test(solved_records_are_counted),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
