/* Judges: rewards by a model that a server has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "data/reward/rewards.h"
#include "tests/cmd/grpo_case.h"
#include "tests/endpoint_stub.h"

/* ---- a judge ---- */

/* SAYS: the answer is in the completion, after "say "; LENGTH: a score of what it was asked; SHORT: as SAYS, but long
 * completions are refused. */
enum mood { SAYS, LENGTH, SHORT, SILENT, NO_JSON, BUSY };

static char asked[4096]; /* the last request */

static int answer(struct stub *s, const char *head, const char *body, struct ax_buf *out) {
    if (strncmp(head, "GET /v1/models ", 15) == 0) {
        ax_buf_puts(out, "{\"data\":[{\"id\":\"org/Wise-7B\"}]}");
        return 200;
    }
    if (strncmp(head, "POST /v1/chat/completions ", 26) != 0)
        return 404;
    if (s->mood == BUSY && s->requests % 2 == 0)
        return 429;
    if (s->mood == SHORT && strstr(body, "long"))
        return 400;
    if (s->mood == SILENT)
        usleep(1300000);
    if (s->mood == NO_JSON) {
        ax_buf_puts(out, "it is fine");
        return 200;
    }
    snprintf(asked, sizeof asked, "%s", body);
    json_t *v = json_loads(body, 0, NULL), *list = json_object_get(v, "messages");
    const char *question = json_string_value(
                   json_object_get(json_array_get(list, json_array_size(list) - 1), "content")),
               *said_there = strstr(question, "say ");
    char score[64];
    snprintf(score, sizeof score, "Fine.\nScore: %zu", strlen(question) % 11);
    json_t *said_here =
        json_pack("{s[{s{ss ss}}]}", "choices", "message", "role", "assistant", "content",
                  s->mood == LENGTH ? score
                  : said_there      ? said_there + 4
                                    : "nothing");
    char *text = json_dumps(said_here, 0);
    ax_buf_puts(out, text);
    ax_free_hook(text);
    json_decref(said_here);
    json_decref(v);
    return 200;
}

static struct stub stub = {.answer = answer, .lines = "Retry-After: 0\r\n"};

static enum ax_status open_judge(struct ax_rewards **r, const char *url,
                                 const struct ax_judge_options *more) {
    const struct ax_reward_function f = {.name = url, .weight = 1};
    struct ax_rewards_options o = {.functions = &f, .n = 1, .judge = *more};
    o.judge.server = (struct ax_endpoint_options){.seconds = 1, .retries = 1, .concurrency = 4};
    o.judge.max_tokens = 100;
    if (o.judge.highest == 0)
        o.judge.highest = 10;
    return ax_rewards_open(r, &o);
}

static enum ax_status score(struct ax_rewards *r, size_t n, const char *const *completions,
                            double *out) {
    struct ax_reward_item items[8] = {0};
    json_t *record =
        json_pack("{s[{ss ss}{ss ss}] si sn}", "prompt", "role", "system", "content", "Be kind.",
                  "role", "user", "content", "What is \"2\"?", "answer", 2, "nothing");
    for (size_t i = 0; i < n; i++)
        items[i] = (struct ax_reward_item){.record = record,
                                           .prompt = "rendered",
                                           .completion = completions[i],
                                           .n = strlen(completions[i]),
                                           .chat = true};
    for (size_t i = 0; i < n; i++)
        out[i] = NAN;
    const enum ax_status st = ax_rewards_score(r, n, items, out);
    json_decref(record);
    return st;
}

static void scores(void **state) {
    (void)state;
    static const char *const completions[] = {
        "say Score: 7",       "say I think score: 3 is low. Score: 10",
        "say Score: 11",      "say so",
        "say SCORE:  2.5/10", "say Score: -1"};
    double out[6];
    struct ax_rewards *r;
    static const enum mood moods[] = {SAYS, BUSY};
    for (size_t m = 0; m < 2; m++) {
        stub.mood = moods[m];
        stub.requests = 0;
        assert_ok(open_judge(&r, stub.url, &(struct ax_judge_options){0}));
        assert_string_equal(ax_rewards_name(r, 0), "Wise-7B");
        if (m == 1) /* each is asked again */
            stub.requests = 1;
        assert_ok(score(r, m == 0 ? 6 : 1, completions, out));
        assert_true(out[0] == 0.7);
        if (m == 0) {
            assert_true(out[1] == 1 && isnan(out[2]) && isnan(out[3]) && out[4] == 0.25 &&
                        isnan(out[5]));
            assert_int_equal(ax_rewards_counters(r, 0)->nones, 3);
        }
        ax_rewards_close(r);
    }
}

/* The prompt has the conversation, columns, and braces that are none of ours. */
static void questions(void **state) {
    (void)state;
    static const char *const completions[] = {"say [[4]]"};
    const struct ax_judge_options o = {.model = "org/Wise-7B",
                                       .system = "You are strict.",
                                       .prompt = "{\"a\": 1} {prompt} | {answer} | {completion} "
                                                 "{an answer} {answer",
                                       .score = "\\[\\[[0-9]+\\]\\]",
                                       .lowest = 2,
                                       .highest = 6,
                                       .temperature = 0.5};
    struct ax_rewards *r;
    double out[1];
    stub.mood = SAYS;
    assert_ok(open_judge(&r, stub.url, &o));
    assert_ok(score(r, 1, completions, out));
    assert_true(out[0] == 0.5);
    json_t *v = json_loads(asked, 0, NULL), *list = json_object_get(v, "messages");
    assert_string_equal(json_string_value(json_object_get(v, "model")), "org/Wise-7B");
    assert_true(json_number_value(json_object_get(v, "temperature")) == 0.5);
    assert_int_equal(json_integer_value(json_object_get(v, "max_tokens")), 100);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "content")),
                        "You are strict.");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "content")),
                        "{\"a\": 1} system: Be kind.\n\nuser: What is \"2\"? | 2 | say [[4]] "
                        "{an answer} {answer");
    json_decref(v);
    ax_rewards_close(r);
    /* a record without the column has no reward */
    assert_ok(
        open_judge(&r, stub.url, &(struct ax_judge_options){.prompt = "{nothing} {completion}"}));
    assert_ok(score(r, 1, completions, out));
    assert_true(isnan(out[0]));
    ax_rewards_close(r);
}

/* One answer that cannot be had, or read, leaves the others their rewards. */
static void one_without(void **state) {
    (void)state;
    static const char *const refused[] = {"say Score: 7", "long. say Score: 3", "say Score: 1"};
    static const char *const slow[] = {"say aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
                                       "say aa7"};
    struct ax_rewards *r;
    double out[3];
    stub.mood = SHORT;
    assert_ok(open_judge(&r, stub.url, &(struct ax_judge_options){0}));
    assert_ok(score(r, 3, refused, out));
    assert_true(out[0] == 0.7 && isnan(out[1]) && out[2] == 0.1);
    assert_int_equal(ax_rewards_counters(r, 0)->nones, 1);
    ax_rewards_close(r);
    stub.mood = SAYS;
    assert_ok(open_judge(&r, stub.url, &(struct ax_judge_options){.score = "(a+)+[0-9]"}));
    assert_ok(score(r, 2, slow, out));
    assert_true(isnan(out[0]) && out[1] == 0.7);
    ax_rewards_close(r);
}

static void failures(void **state) {
    (void)state;
    static const char *const completions[] = {"say Score: 7", "well", "long"};
    static const struct {
        enum mood mood;
        size_t first;
        const char *why;
    } cases[] = {{SILENT, 0, "no answer in 1 seconds"},
                 {NO_JSON, 0, "the answer is no JSON object"},
                 {SHORT, 2, "\"org/Wise-7B\" has refused every question (status 400)"},
                 {SAYS, 1, "no answer of \"org/Wise-7B\" has a score from 0 to 10"}};
    struct ax_rewards *r;
    double out[1];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stub.mood = SAYS;
        assert_ok(open_judge(&r, stub.url, &(struct ax_judge_options){0}));
        stub.mood = cases[i].mood;
        for (int k = 0; k < AX_REWARDS_STRIKES - 1; k++) {
            assert_ok(score(r, 1, completions + cases[i].first, out));
            assert_true(isnan(out[0]));
        }
        assert_error(score(r, 1, completions + cases[i].first, out), AX_ERR_DATA, cases[i].why);
        ax_rewards_close(r);
    }
    stub.mood = SAYS;
    assert_error(open_judge(&r, "http://127.0.0.1:1", &(struct ax_judge_options){0}), AX_ERR_IO,
                 "judge \"http://127.0.0.1:1\": asked 2 times: http://127.0.0.1:1/v1/models");
    assert_error(open_judge(&r, "http://me:secret@127.0.0.1:1", &(struct ax_judge_options){0}),
                 AX_ERR_CONFIG, "judge \"URL\": expected a URL");
    assert_error(open_judge(&r, stub.url, &(struct ax_judge_options){.prompt = "x"}), AX_ERR_CONFIG,
                 "{completion} is missing");
    assert_error(open_judge(&r, stub.url, &(struct ax_judge_options){.lowest = 10}), AX_ERR_CONFIG,
                 "judge.lowest");
    assert_error(open_judge(&r, stub.url, &(struct ax_judge_options){.score = "("}), AX_ERR_CONFIG,
                 "judge.score");
    assert_error(open_judge(&r, stub.url, &(struct ax_judge_options){.model = "none"}),
                 AX_ERR_CONFIG, "there is no \"none\"");
}

/* ---- runs ---- */

static void a_run(void **state) {
    (void)state;
    double mean[4];
    char trl[300], url[100];
    stub.mood = LENGTH;
    snprintf(trl, sizeof trl, "trl.reward_funcs=\"['%s/v1/', 'format:e']\" max_steps=2", stub.url);
    train("out",
          configure("", "micro_batch_size: 8\njudge: {prompt: 'Is {answer} in {completion}?'}\n"),
          trl);
    assert_int_equal(numbers("out", "rewards/Wise-7B/mean", mean, 4), 2);
    assert_true(mean[0] > 0 && mean[0] < 1);
    assert_non_null(strstr(asked, "\"content\":\"Is "));
    clear("out");
    snprintf(url, sizeof url, "trl.reward_funcs=\"['http://127.0.0.1:1/v1']\" judge.retries=0");
    if (run(said, sizeof said, "grpo '%s' output_dir='%s/out' %s",
            configure("", "micro_batch_size: 8\n"), scratch, url) != 1 ||
        !strstr(said, "trl.reward_funcs: judge \"http://127.0.0.1:1/v1\": "))
        fail_msg("%s", said);
    stub.mood = NO_JSON;
    snprintf(trl, sizeof trl, "trl.reward_funcs=\"['%s/v1']\"", stub.url);
    if (run(said, sizeof said, "grpo '%s' output_dir='%s/out' %s",
            configure("", "micro_batch_size: 8\n"), scratch, trl) != 3 ||
        !strstr(said, "failed 3 times in a row"))
        fail_msg("%s", said);
}

static int begin(void **state) {
    unsetenv("http_proxy");
    unsetenv("HTTP_PROXY");
    stub_start(&stub);
    return scratch_make(state);
}

static int end(void **state) {
    stub_stop(&stub);
    return scratch_remove(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(scores), cmocka_unit_test(questions),
                                       cmocka_unit_test(one_without), cmocka_unit_test(failures),
                                       cmocka_unit_test(a_run)};
    return cmocka_run_group_tests(tests, begin, end);
}
