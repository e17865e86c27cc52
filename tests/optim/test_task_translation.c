/* BLEU, chrF, chrF++ and TER of evaluation tasks. Expected values come from sacrebleu 2.6.0, called
 * as lm-evaluation-harness 0.4.13 calls it: corpus_bleu(answers, [targets]) and so on; the standard
 * errors are the deviations of 100 bootstrap samples drawn by random.Random(0).choices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "tests/optim/task_case.h"

static const char *const texts[][2] = {
    {"The cat sat on the mat.", "The cat sat on mat."},
    {"It costs $1,200.50, doesn't it?", "It costs 1,200.50 dollars, isn't it?"},
    {"Über die Brücke geht STRASSE 5-6", "über die Brücke geht die straße 5-6 ."},
    {"今天 天气 很 好 ， 我们 去 公园", "我们 今天 去 公园 ， 天气 好"},
    {"a b c d e f g h i j", "f g h i j a b c d e"},
    {"&quot;x&quot; &amp; y <skipped>z", "\"x\" & y z"},
    {"one", ""},
    {"", "two words"},
};
#define TEXTS (sizeof texts / sizeof *texts)

/* Of each text alone, of all together, and that one's standard error. */
static const struct {
    enum ax_task_aggregation how;
    double each[TEXTS], all, error;
} golden[] = {
    {AX_AGGREGATE_BLEU,
     {51.15078115793242, 17.286039232097043, 26.269098944241577, 15.573639697508131,
      78.56293018010261, 100.00000000000004, 0, 0},
     47.9264683091401,
     13.874826549165258},
    {AX_AGGREGATE_CHRF,
     {66.67806908310806, 58.61892692727433, 57.285515071419965, 24.9535648709387, 59.06084656084657,
      2.7322404371584708, 0, 0},
     44.639791858528,
     10.85033855209186},
    {AX_AGGREGATE_CHRF_WORDS,
     {69.66352557717607, 56.67733595108796, 55.46906891425566, 31.773849217190943,
      67.90674603174605, 4.05858382262729, 0, 0},
     48.04740127353136,
     10.129137929609543},
    {AX_AGGREGATE_TER, {16.666666666666664, 60, 50, 50, 10, 75, 100, 100}, 45, 13.957879492871765},
};

static void near(const char *what, double got, double want) {
    if (!(fabs(got - want) <= 1e-10 * fmax(1, fabs(want))))
        fail_msg("%s: %.17g, expected %.17g", what, got, want);
}

static void scores(void **state) {
    (void)state;
    struct ax_task_value v[TEXTS] = {0};
    struct ax_task_result r;
    for (size_t i = 0; i < TEXTS; i++)
        v[i].pair = json_pack("[ss]", texts[i][0], texts[i][1]);
    for (size_t g = 0; g < sizeof golden / sizeof *golden; g++) {
        const char *name = ax_task_aggregation_name(golden[g].how);
        for (size_t i = 0; i < TEXTS; i++) {
            must(ax_task_aggregate(golden[g].how, &v[i], 1, &r));
            near(name, r.value, golden[g].each[i]);
            assert_true(isnan(r.error));
        }
        must(ax_task_aggregate(golden[g].how, v, TEXTS, &r));
        near(name, r.value, golden[g].all);
        near(name, r.error, golden[g].error);
    }
    for (size_t i = 0; i < TEXTS; i++)
        json_decref(v[i].pair);
}

static void same(const char *target, const char *answer, enum ax_task_aggregation how,
                 double want) {
    struct ax_task_value v = {.pair = json_pack("[ss]", target, answer)};
    struct ax_task_result r;
    must(ax_task_aggregate(how, &v, 1, &r));
    near(answer, r.value, want);
    json_decref(v.pair);
}

/* Random texts with edits: each alone, then all together (translation_cases.json). */
static void edited_texts(void **state) {
    (void)state;
    static const enum ax_task_aggregation how[] = {AX_AGGREGATE_BLEU, AX_AGGREGATE_CHRF,
                                                   AX_AGGREGATE_CHRF_WORDS, AX_AGGREGATE_TER};
    struct ax_task_value v[64] = {0};
    struct ax_task_result r;
    json_error_t e;
    json_t *root = json_load_file("tests/optim/translation_cases.json", 0, &e);
    if (!root)
        fail_msg("translation_cases.json: %s", e.text);
    const json_t *cases = json_object_get(root, "cases");
    const size_t n = json_array_size(cases);
    assert_in_range(n, 30, 64);
    for (size_t g = 0; g < sizeof how / sizeof *how; g++) {
        for (size_t i = 0; i < n; i++) {
            const json_t *c = json_array_get(cases, i);
            v[i].pair = json_pack("[OO]", json_array_get(c, 0), json_array_get(c, 1));
            must(ax_task_aggregate(how[g], &v[i], 1, &r));
            near(json_string_value(json_array_get(c, 1)), r.value,
                 json_number_value(json_array_get(c, 2 + g)));
        }
        must(ax_task_aggregate(how[g], v, n, &r));
        near("all", r.value, json_number_value(json_array_get(json_object_get(root, "all"), g)));
        for (size_t i = 0; i < n; i++)
            json_decref(v[i].pair);
    }
    json_decref(root);
}

/* Tercom's limits: 10 words in a shift, 50 words far, a beam around the diagonal. */
static void shifts(void **state) {
    (void)state;
    struct ax_buf a = {0}, b = {0}, c = {0};
    for (int i = 0; i < 60; i++)
        must(ax_buf_printf(&a, "w%d ", i));
    for (int i = 0; i < 60; i++)
        must(ax_buf_printf(&b, "w%d ", (i + 12) % 60));
    for (int i = 0; i < 60; i++)
        must(ax_buf_printf(&c, "w%d ", (i + 5) % 60));
    same(a.data, c.data, AX_AGGREGATE_TER, 100.0 * 10 / 60); /* the other 5 words are 55 away */
    same(a.data, b.data, AX_AGGREGATE_TER, 100.0 * 2 / 60);  /* 12 words: two shifts */
    same("x", a.data, AX_AGGREGATE_TER, 6000);
    same(a.data, "w59", AX_AGGREGATE_TER, 100.0 * 59 / 60);
    same("a b c d", "A B", AX_AGGREGATE_TER, 50); /* in small letters; two words missing */
    same("a b", "b a", AX_AGGREGATE_TER, 50);
    ax_buf_free(&a);
    ax_buf_free(&b);
    ax_buf_free(&c);
}

/* From an answer to its numbers, through a task. */
static enum ax_status run_task(const char *options, const char *target, struct ax_task_result *r) {
    const struct ax_task_prompt_options o = {.num_fewshot = 0, .folder = dir};
    struct ax_task_job j = {0};
    struct ax_task_request list[1] = {0};
    struct ax_task_answer answer = {0};
    size_t first[] = {0, 1};
    char yaml[512], row[256];
    snprintf(yaml, sizeof yaml, GENERATE "%s", options);
    snprintf(row, sizeof row, "{\"q\": \"?\", \"a\": %s}\n", target);
    put("rows.jsonl", row);
    load(&j.task, yaml);
    must(ax_task_prompts_build(&j.prompts, &j.task, NULL, &o));
    must(ax_buf_puts(&answer.text, "The cat sat on mat."));
    const struct ax_task_requests requests = {
        .prompts = &j.prompts, .list = list, .first = first, .samples = 1, .answers = &answer};
    enum ax_status st = ax_task_score(&j.scores, &requests);
    if (st == AX_OK)
        st =
            ax_task_aggregate(j.task.metrics[0].aggregation, ax_task_values(&j.scores, 0, 0), 1, r);
    if (st == AX_OK) {
        const json_t *pair = ax_task_values(&j.scores, 0, 0)[0].pair;
        assert_string_equal(json_string_value(json_array_get(pair, 1)), "The cat sat on mat.");
    }
    ax_task_scores_free(&j.scores);
    ax_task_prompts_free(&j.prompts);
    ax_task_free(&j.task);
    ax_buf_free(&answer.text);
    return st;
}

static void tasks(void **state) {
    (void)state;
    struct ax_task_result r;
    const char *target = "\"The cat sat on the mat.\"";
    must(run_task("metric_list: [{metric: bleu}]\n", target, &r));
    near("bleu", r.value, golden[0].each[0]);
    must(run_task("metric_list: [{metric: chrf++, aggregation: chrf++}]\n", target, &r));
    near("chrf++", r.value, golden[2].each[0]);
    must(run_task("metric_list: [{metric: ter}]\nfilter_list: [{name: x, filter: [{function: "
                  "remove_whitespace}]}]\n",
                  target, &r)); /* a list of one answer */
    near("ter", r.value, golden[3].each[0]);
    assert_int_equal(run_task("metric_list: [{metric: chrf}]\n", "[\"a\", \"b\"]", &r),
                     AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "chrf: expected one target and one answer, a text"));
    assert_int_equal(run_task("metric_list: [{metric: ter}]\nrepeats: 2\nfilter_list: [{name: x, "
                              "filter: [{function: lowercase}]}]\n",
                              target, &r),
                     AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "end the filter with take_first"));
}

/* A sum over records has no mean, and the other way around. */
static void aggregations_of_their_own(void **state) {
    (void)state;
    static const char *const wrong[] = {"{metric: bleu, aggregation: mean}",
                                        "{metric: exact_match, aggregation: bleu}",
                                        "{metric: ter, aggregation: chrf}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct ax_task t;
        char yaml[512];
        snprintf(yaml, sizeof yaml, GENERATE "metric_list: [%s]\n", wrong[i]);
        assert_int_equal(ax_task_load(&t, &(struct ax_task_spec){.path = put("task.yaml", yaml)}),
                         AX_ERR_CONFIG);
        assert_non_null(strstr(ax_error_text(), "does not fit this metric"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores),
        cmocka_unit_test(edited_texts),
        cmocka_unit_test(shifts),
        cmocka_unit_test(tasks),
        cmocka_unit_test(aggregations_of_their_own),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
