/* Numbers of evaluation tasks: Python's random numbers and texts, filters, metrics of a record,
 * aggregations and standard errors. Expected values are computed by hand or come from Python 3.11
 * and scikit-learn, as lm-evaluation-harness uses them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "optim/evaluate/tasks/filters.h"
#include "tests/optim/task_case.h"

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-12 * fmax(1, fabs(want))))
        fail_msg("%.17g, expected %.17g", got, want);
}

/* ---- Python ---- */

static void random_numbers(void **state) {
    (void)state;
    static const uint32_t small[3][3] = {{7, 1, 0}, {1, 0, 9}, {1, 5, 3}},
                          large[2][5] = {{989, 796, 451, 119, 7}, {92, 932, 965, 961, 826}},
                          eight[8] = {74, 4, 85, 88, 10, 12, 98, 45};
    struct ax_python_random r;
    uint32_t got[8];
    ax_python_seed(&r, 1234);
    near(ax_python_uniform(&r), 0.9664535356921388);
    ax_python_seed(&r, 0);
    near(ax_python_uniform(&r), 0.8444218515250481);
    ax_python_seed(&r, 1234); /* a pool of 10 */
    for (int i = 0; i < 3; i++) {
        must(ax_python_sample(&r, 10, 3, got));
        assert_memory_equal(got, small[i], sizeof small[i]);
    }
    ax_python_seed(&r, 1234); /* 1000, of which what was drawn is kept in a set */
    for (int i = 0; i < 2; i++) {
        must(ax_python_sample(&r, 1000, 5, got));
        assert_memory_equal(got, large[i], sizeof large[i]);
    }
    must(ax_python_sample(&r, 100, 8, got)); /* more than five: a larger pool */
    assert_memory_equal(got, eight, sizeof eight);
    ax_python_seed(&r, 7);
    must(ax_python_sample(&r, 1, 1, got));
    assert_int_equal(got[0], 0);
    assert_int_equal(ax_python_randbelow(&r, 1 << 20), 316353);
}

static void changed(const char *in, const char *want, int how) {
    struct ax_buf b = {0};
    must(ax_buf_puts(&b, in));
    if (how < 2)
        must(ax_python_case(&b, how == 1));
    else if (how == 2)
        ax_python_delete_punctuation(&b);
    else
        ax_python_delete_unicode_punctuation(&b);
    assert_string_equal(b.data, want);
    ax_buf_free(&b);
}

static void texts(void **state) {
    (void)state;
    changed("Ab ÉΣ ΟΔΟΣ.", "ab éς οδος.", 0);
    changed("aé1ß", "AÉ1SS", 1);
    changed("a.b, $c+d «e» —", "ab cd «e» —", 2);
    changed("a.b, $c+d «e» —", "ab $c+d e ", 3);
    assert_int_equal(ax_python_words("", 0), 1);
    assert_int_equal(ax_python_words("a b", 3), 2);
    assert_int_equal(ax_python_words(" a\t\n b ", 7), 4); /* leading and trailing pieces count */
    assert_int_equal(ax_python_rstrip("a \xe2\x80\x83\n", 6), 1);
    assert_int_equal(ax_python_length("é—a", 6), 3);
}

/* ---- filters ---- */

/* What the pipeline "x" of the steps makes of the answers, as JSON. */
static void filtered(const char *steps, const char *answers, const char *want) {
    struct ax_task t;
    struct ax_buf yaml = {0};
    json_t *in = json_loads(answers, JSON_ALLOW_NUL, NULL),
           *doc = json_pack("{s[sss]}", "choices", "the cat", "The cat, sleeping", "dog"), *out;
    must(ax_buf_printf(&yaml, "%srepeats: 4\nfilter_list: [{name: x, filter: %s}]\n", GENERATE,
                       steps));
    load(&t, yaml.data);
    must(ax_task_filter(&t.filters[0], in, doc, &out));
    char *got = json_dumps(out, JSON_ENCODE_ANY | JSON_COMPACT);
    if (strcmp(got, want) != 0)
        fail_msg("%s of %s\n  gave %s\n  not  %s", steps, answers, got, want);
    ax_free(got);
    json_decref(out);
    json_decref(in);
    json_decref(doc);
    ax_buf_free(&yaml);
    ax_task_free(&t);
}

#define FIRST ", {function: take_first}]"

static void filters(void **state) {
    (void)state;
    filtered("[{function: take_first}]", "[\"a\", \"b\"]", "\"a\"");
    filtered("[{function: take_first_k, k: 2}]", "[\"a\", \"b\", \"c\"]", "[\"a\",\"b\"]");
    filtered("[{function: majority_vote}" FIRST, "[\"a\", \"b\", \"b\", \"a\"]", "\"a\"");
    filtered("[{function: majority_vote}" FIRST, "[\"a\", \"b\", \"b\", \"c\"]", "\"b\"");
    filtered("[{function: remove_whitespace}, {function: uppercase}]", "[\" ab \"]", "[\"AB\"]");
    filtered("[{function: lowercase}, {function: map, mapping_dict: {\"a\": 1, b: x}}]",
             "[\"A\", \"b\", \"c\"]", "[1,\"x\",null]");
    filtered("[{function: regex}" FIRST, "[\"so #### 1,200. x\"]", "\"1,200.\"");
    filtered("[{function: regex}" FIRST, "[\"nothing\"]", "\"[invalid]\"");
    filtered(
        "[{function: regex, regex_pattern: '(-?[$0-9.,]{2,})|(-?[0-9]+)', group_select: -1}" FIRST,
        "[\"12 or 7\"]", "\"7\"");
    filtered("[{function: regex, regex_pattern: 'a\\s*', group_select: 1}" FIRST, "[\"a a  b\"]",
             "\"a\"");
    filtered("[{function: regex, regex_pattern: '(x)?(y)?', fallback: none}" FIRST, "[\"z\"]",
             "\"none\"");
    filtered("[{function: regex, regex_pattern: 'x*'}" FIRST, "[\"z\"]", "\"\"");
    filtered("[{function: regex, regex_pattern: 'b.d'}" FIRST, "[\"a\\u0000bcd\"]", "\"bcd\"");
}

#define CHOICES(more)                                                                              \
    "[{function: multi_choice_regex, regex_pattern: '\\(([A-C])\\)'" more "}" FIRST

static void multi_choice(void **state) {
    (void)state;
    filtered(CHOICES(""), "[\"It is (B).\"]", "\"B\"");
    filtered(CHOICES(""), "[\"surely the cat\"]", "\"(A)\"");
    filtered(CHOICES(""), "[\"The cat, sleeping\"]", "\"(B)\"");
    filtered(CHOICES(", ignore_case: true, ignore_punctuation: true"), "[\"THE CAT sleeping!\"]",
             "\"(B)\""); /* the longest that fits */
    filtered(CHOICES(", group_select: -1"), "[\"dog, the cat\"]", "\"(A)\"");
    filtered(CHOICES(", regexes_to_ignore: ['[aeiou]']"), "[\"thecat th ct\"]", "\"(A)\"");
    filtered(CHOICES(""), "[\"answer:  C\"]", "\"(C)\"");
    filtered(CHOICES(""), "[\"answer C\"]", "\"[invalid]\"");
}

/* ---- metrics of records ---- */

/* One record with these fields, and what the model answered. */
struct scored {
    struct ax_task task;
    struct ax_task_prompts prompts;
    struct ax_task_requests requests;
    struct ax_task_request list[8];
    size_t first[2];
    struct ax_task_answer answers[4];
    struct ax_task_scores scores;
};

static void open_record(struct scored *s, const char *yaml, const char *row) {
    const struct ax_task_prompt_options o = {.num_fewshot = 0, .folder = dir};
    memset(s, 0, sizeof *s);
    put("rows.jsonl", row);
    load(&s->task, yaml);
    must(ax_task_prompts_build(&s->prompts, &s->task, NULL, &o));
    s->requests = (struct ax_task_requests){
        .prompts = &s->prompts, .list = s->list, .first = s->first, .samples = 1};
}

static void close_record(struct scored *s) {
    ax_task_scores_free(&s->scores);
    ax_task_prompts_free(&s->prompts);
    ax_task_free(&s->task);
}

static double value(const struct scored *s, size_t metric) {
    return ax_task_values(&s->scores, 0, metric)[0].x;
}

/* Three choices of 1, 2 characters (3 bytes), and 4; log-likelihoods −2, −3, −4; alone −1, −5, −2. */
static void choose(struct scored *s, const char *target) {
    static const double ll[] = {-2, -3, -4, -1, -5, -2};
    char row[128];
    snprintf(row, sizeof row, "{\"q\": \"?\", \"c\": [\"a\", \"éa\", \"long\"], \"a\": %s}\n",
             target);
    open_record(s,
                CHOICE "metric_list: [{metric: acc, weight_by_size: true}, {metric: acc_norm}, "
                       "{metric: acc_bytes}, "
                       "{metric: acc_mutual_info}, {metric: exact_match}, {metric: brier_score}, "
                       "{metric: mcc}]\n",
                row);
    for (int i = 0; i < 6; i++)
        s->list[i] = (struct ax_task_request){.loglikelihood = ll[i], .greedy = i == 1};
    s->first[1] = 6;
    must(ax_task_score(&s->scores, &s->requests));
}

static void choices(void **state) {
    (void)state;
    static const struct {
        const char *target;
        double acc, norm, mutual, match;
    } cases[] = {
        {"0", 1, 0, 0, 0},      {"1", 0, 0, 1, 1}, {"2", 0, 1, 0, 0},        {"\"a\"", 1, 0, 0, 0},
        {"[1, 2]", 0, 1, 1, 1}, {"7", 0, 0, 0, 0}, {"\"none\"", 0, 0, 0, 0}, {"true", 0, 0, 1, 1},
        {"-2", 0, 0, 0, 1}, /* Python counts from the end: is choice 1 greedy? */
    };
    struct scored s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        choose(&s, cases[i].target);
        near(value(&s, 0), cases[i].acc);    /* −2 is the largest */
        near(value(&s, 1), cases[i].norm);   /* −2, −1.5, −1 */
        near(value(&s, 2), cases[i].mutual); /* −2, −1, −1: of equals the first */
        near(value(&s, 3), cases[i].mutual); /* −1, 2, −2 */
        near(value(&s, 4), cases[i].match);
        if (i == 0) {
            const double a = 1, b = exp(-1), c = exp(-2), all = a + b + c;
            near(value(&s, 5), (a / all - 1) * (a / all - 1) + (b * b + c * c) / (all * all));
            near(ax_task_values(&s.scores, 0, 6)[0].y, 0);
        }
        close_record(&s);
    }
}

/* acc_bytes and acc_norm differ where characters have several bytes. */
static void lengths(void **state) {
    (void)state;
    static const double ll[] = {-1.5, -4};
    struct scored s;
    open_record(&s, CHOICE "metric_list: [{metric: acc_norm}, {metric: acc_bytes}]\n",
                "{\"q\": \"?\", \"c\": [\"a\", \"ééé\"], \"a\": 1}\n");
    for (int i = 0; i < 2; i++)
        s.list[i].loglikelihood = ll[i];
    s.first[1] = 2;
    must(ax_task_score(&s.scores, &s.requests));
    near(value(&s, 0), 1); /* −1.5 and −1.33 */
    near(value(&s, 1), 1); /* −1.5 and −0.67 */
    close_record(&s);
    open_record(&s, CHOICE "metric_list: [{metric: acc_norm}, {metric: acc_bytes}]\n",
                "{\"q\": \"?\", \"c\": [\"a\", \"ééé\"], \"a\": 1}\n");
    s.list[0].loglikelihood = -1;
    s.list[1].loglikelihood = -4.5;
    s.first[1] = 2;
    must(ax_task_score(&s.scores, &s.requests));
    near(value(&s, 0), 0); /* −1 and −1.5 */
    near(value(&s, 1), 1); /* −1 and −0.75 */
    close_record(&s);
}

static double matched(const char *options, const char *target, const char *answer) {
    struct scored s;
    char yaml[512], row[256];
    snprintf(yaml, sizeof yaml, "%smetric_list: [{metric: exact_match%s}]\n", GENERATE, options);
    snprintf(row, sizeof row, "{\"q\": \"?\", \"a\": %s}\n", target);
    open_record(&s, yaml, row);
    must(ax_buf_puts(&s.answers[0].text, answer));
    s.requests.answers = s.answers;
    s.first[1] = 1;
    must(ax_task_score(&s.scores, &s.requests));
    const double v = value(&s, 0);
    close_record(&s);
    ax_buf_free(&s.answers[0].text);
    return v;
}

static void exact_match(void **state) {
    (void)state;
    near(matched("", "\"ab\"", "ab"), 1);
    near(matched("", "\"ab\"", "Ab"), 0);
    near(matched(", ignore_case: true", "\"aB\"", "Ab"), 1);
    near(matched(", ignore_punctuation: true", "\"a.b\"", "a,b"), 1);
    near(matched(", ignore_numbers: true", "\"a1\"", "a22"), 1);
    near(
        matched(", regexes_to_ignore: [',', '(?s).*#### ', '\\.$']", "\"x\\n#### 1,200\"", "1200."),
        1);
    near(matched("", "5", "5"), 1);      /* the target becomes text */
    near(matched("", "2.50", "2.5"), 1); /* as Python spells it */
    near(matched("", "true", "True"), 1);
    near(matched("", "[\"x\", \"ab\"]", "ab"), 1); /* any of several */
    near(matched("", "[\"x\", \"y\"]", "ab"), 0);
}

static void rolling(void **state) {
    (void)state;
    struct scored s;
    struct ax_task_result r;
    open_record(&s, "task: t\n" DATA "output_type: loglikelihood_rolling\ndoc_to_target: q\n",
                "{\"q\": \"one twö  three\"}\n");
    s.list[0].loglikelihood = -3;
    s.list[1].loglikelihood = -9;
    s.first[1] = 2;
    must(ax_task_score(&s.scores, &s.requests));
    assert_int_equal(s.task.n_metrics, 3); /* the usual ones */
    near(value(&s, 0), -12);
    near(ax_task_values(&s.scores, 0, 0)[0].y, 3);
    near(ax_task_values(&s.scores, 0, 1)[0].y, 15);
    must(ax_task_aggregate(s.task.metrics[0].aggregation, ax_task_values(&s.scores, 0, 0), 1, &r));
    near(r.value, exp(4));
    must(ax_task_aggregate(s.task.metrics[1].aggregation, ax_task_values(&s.scores, 0, 1), 1, &r));
    near(r.value, exp(0.8));
    must(ax_task_aggregate(s.task.metrics[2].aggregation, ax_task_values(&s.scores, 0, 2), 1, &r));
    near(r.value, 0.8 / log(2));
    close_record(&s);
}

/* ---- aggregations ---- */

static void aggregated(enum ax_task_aggregation how, const double (*v)[2], size_t n, double value_,
                       double error) {
    struct ax_task_value list[8];
    struct ax_task_result r;
    for (size_t i = 0; i < n; i++)
        list[i] = (struct ax_task_value){.x = v[i][0], .y = v[i][1]};
    must(ax_task_aggregate(how, list, n, &r));
    if (isnan(value_))
        assert_true(isnan(r.value));
    else
        near(r.value, value_);
    if (isnan(error))
        assert_true(isnan(r.error));
    else if (!(fabs(r.error - error) <= 1e-9 * error)) /* 100,000 terms in another order */
        fail_msg("%s: standard error %.17g, expected %.17g", ax_task_aggregation_name(how), r.error,
                 error);
}

static void aggregations(void **state) {
    (void)state;
    static const double hits[][2] = {{1, 0}, {0, 0}, {1, 0}, {1, 0}},
                        nll[][2] = {{-1, 0}, {-2, 0}, {-0.5, 0}},
                        sorted[][2] = {{1, 0}, {2, 0}, {4, 0}, {8, 0}},
                        labels[][2] = {{1, 1}, {0, 1}, {1, 0}, {1, 1}, {0, 0}},
                        three[][2] = {{0, 0}, {1, 2}, {2, 2}, {2, 1}, {1, 1}, {0, 0}},
                        weighted[][2] = {{-10, 4}, {-2, 2}}, missing[][2] = {{NAN, 0}, {3, 0}};
    aggregated(AX_AGGREGATE_MEAN, hits, 4, 0.75, 0.25); /* √(0.75/3)/2 */
    aggregated(AX_AGGREGATE_MEAN, hits, 1, 1, NAN);
    aggregated(AX_AGGREGATE_PERPLEXITY, nll, 3, exp(3.5 / 3), 1.3033394421465523);
    aggregated(AX_AGGREGATE_MEDIAN, sorted, 4, 4, 2.357049992437148);
    aggregated(AX_AGGREGATE_NANMEAN, missing, 1, NAN, NAN);
    aggregated(AX_AGGREGATE_F1, labels, 5, 2.0 / 3, 0.25707440309289226);
    aggregated(AX_AGGREGATE_MCC, labels, 5, 1.0 / 6, 0.45810437153678274);
    aggregated(AX_AGGREGATE_MCC, three, 1, 0, NAN);
    aggregated(AX_AGGREGATE_WEIGHTED_PERPLEXITY, weighted, 2, exp(2), NAN);
    aggregated(AX_AGGREGATE_BITS_PER_BYTE, weighted, 2, 2 / log(2), NAN);
    aggregated(AX_AGGREGATE_BRIER, hits, 4, 0.75, NAN);
    struct ax_task_value all[6];
    struct ax_task_result r;
    for (size_t i = 0; i < 6; i++)
        all[i] = (struct ax_task_value){.x = three[i][0], .y = three[i][1]};
    must(ax_task_aggregate(AX_AGGREGATE_MCC, all, 6, &r));
    near(r.value, 0.5); /* (4·6 − 12)/√((36 − 12)(36 − 12)) */
    assert_int_equal(ax_task_aggregate(AX_AGGREGATE_F1, all, 6, &r), AX_ERR_DATA);
    all[0].x = -100;
    assert_int_equal(ax_task_aggregate(AX_AGGREGATE_MCC, all, 6, &r), AX_ERR_DATA);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_numbers), cmocka_unit_test(texts),   cmocka_unit_test(filters),
        cmocka_unit_test(multi_choice),   cmocka_unit_test(choices), cmocka_unit_test(lengths),
        cmocka_unit_test(exact_match),    cmocka_unit_test(rolling), cmocka_unit_test(aggregations),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
