/* Rewards without children: what the built-ins give, what names mean, what is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <unistd.h>

#include "data/reward/answer.h"
#include "data/reward/function.h"
#include "tests/data/scratch.h"
#include "tests/data/reward_case.h"

static const struct ax_rewards_options defaults;

#define assert_reward(name, completion, record, expected)                                          \
    do {                                                                                           \
        const double got_ = reward_of(name, completion, record), want_ = expected;                 \
        if (!(got_ == want_ || (isnan(got_) && isnan(want_))))                                     \
            fail_msg("%s of \"%s\" with %s: %g instead of %g", name, completion, record, got_,     \
                     want_);                                                                       \
    } while (0)

static void exact(void **state) {
    (void)state;
    assert_reward("exact", " a b\n", "{\"answer\": \"a b\"}", 1);
    assert_reward("exact", "a b", "{\"answer\": \"\\ta b  \"}", 1);
    assert_reward("exact", "a  b", "{\"answer\": \"a b\"}", 0);
    assert_reward("exact", "A b", "{\"answer\": \"a b\"}", 0);
    assert_reward("exact", "a b c", "{\"answer\": \"a b\"}", 0);
    assert_reward("exact", "", "{\"answer\": \"\"}", 1);
    assert_reward("exact", "7", "{\"answer\": 7}", 1);
    assert_reward("exact", "0.1", "{\"answer\": 0.1}", 1);
    assert_reward("exact", "true", "{\"answer\": true}", 1);
    assert_reward("exact", "7", "{\"answer\": null}", NAN);
    assert_reward("exact", "7", "{\"answer\": [7]}", NAN);
    assert_reward("exact", "7", "{\"solution\": \"7\"}", NAN);
}

static void final_answer(void **state) {
    (void)state;
    assert_reward("final_answer", "so it is\n#### 1,250", "{\"answer\": \"x\\n#### 1250\"}", 1);
    assert_reward("final_answer", "#### $1250.00", "{\"answer\": \"1,250\"}", 1);
    assert_reward("final_answer", "#### 1250", "{\"answer\": 1250}", 1);
    assert_reward("final_answer", "#### 1250", "{\"answer\": \"\\n 1250 \\n\"}", 1);
    assert_reward("final_answer", "#### 1251", "{\"answer\": \"1250\"}", 0);
    assert_reward("final_answer", "1250", "{\"answer\": \"1250\"}", 0);
    assert_reward("final_answer", "#### blue", "{\"answer\": \"blue\"}", 1);
    assert_reward("final_answer", "#### blue", "{\"answer\": \"a\\nblue\"}", NAN);
    assert_reward("final_answer", "#### a", "{\"answer\": \"\"}", NAN);
    assert_reward("final_answer", "#### 1", "{}", NAN);
    assert_reward("final_answer:solution", "#### 1", "{\"answer\": 2, \"solution\": 1}", 1);
    assert_reward("final_answer:solution", "#### 1", "{\"answer\": 1}", NAN);
}

static void numeric(void **state) {
    static const struct {
        const char *text, *last;
    } cases[] = {
        {"3 + 4 = 7.", "7"},
        {"first 1, then 2", "2"},
        {"a total of $1,234.50!", "1234.5"},
        {"-5", "-5"},
        {"x = -5", "-5"},
        {"(-5)", "-5"},
        {"it is -$5", "-5"},
        {"$-5", "-5"},
        {"10-5", "5"},
        {"a-5", "5"},
        {"f(x)-5", "5"},
        {"+5", "5"},
        {"007", "7"},
        {".5", "0.5"},
        {"12.", "12"},
        {"1,2,3", "3"},
        {"1,234,567", "1234567"},
        {"1,2345", "2345"},
        {"1234,567", "567"},
        {"50%", "50"},
        {"2.50", "2.5"},
        {"-0", "0"},
        {"no number", NULL},
        {"", NULL},
        {"-", NULL},
        {".", NULL},
    };
    char out[AX_FINAL_ANSWER_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool got = ax_reward_last_number(cases[i].text, strlen(cases[i].text), out);
        if (got != (cases[i].last != NULL) || (got && strcmp(out, cases[i].last) != 0))
            fail_msg("the last number in \"%s\": %s", cases[i].text, got ? out : "none");
    }
    assert_reward("numeric", "it is 5, no, 7.0", "{\"answer\": \"x\\n#### 7\"}", 1);
    assert_reward("numeric", "7 of 8", "{\"answer\": 7}", 0);
    assert_reward("numeric", "none", "{\"answer\": 7}", 0);
    assert_reward("numeric", "7", "{\"answer\": \"seven\"}", NAN);
    assert_reward("numeric", "7", "{\"answer\": \"1/7\"}", NAN);
    char digits[200] = "1";
    memset(digits + 1, '0', 150);
    assert_reward("numeric", digits, "{\"answer\": 1}", 0);
}

static void format(void **state) {
    (void)state;
    assert_reward("format:b+", "abbc", "{}", 1);
    assert_reward("format:^b+", "abbc", "{}", 0);
    assert_reward("format:^a.c$", "a\nc", "{}", 0);
    assert_reward("format:(?s)^a.c$", "a\nc", "{}", 1);
    assert_reward("format:^<a>.*?</a>$", "<a>x</a>", "{}", 1);
    assert_reward("format:a:b", "xa:b", "{}", 1);
    assert_reward("format:^..x$", "\xff\xfex", "{}", 1);
    assert_reward("format:^(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "{}", NAN);
}

/* tests/data/rewards.json says how it was made. */
static void as_trl(void **state) {
    struct ax_json_doc doc;
    (void)state;
    assert_ok(ax_json_load(&doc, "tests/data/rewards.json", 1 << 20));
    const json_t *think = json_object_get(doc.root, "think_format"),
                 *overlong = json_object_get(doc.root, "soft_overlong"), *v;
    size_t i, k;
    assert_true(json_array_size(think) > 50 && json_array_size(overlong) > 5);
    json_array_foreach(think, i, v) {
        assert_reward("think_format", json_string_value(json_array_get(v, 0)), "{}",
                      json_number_value(json_array_get(v, 1)));
    }
    json_array_foreach(overlong, i, v) {
        char name[64], plain[64];
        const long long max = json_integer_value(json_object_get(v, "max"));
        const long long cache = json_integer_value(json_object_get(v, "cache"));
        snprintf(name, sizeof name, "soft_overlong:%lld:%lld", max, cache);
        snprintf(plain, sizeof plain, "length:%lld", max);
        const json_t *length;
        json_array_foreach(json_object_get(v, "lengths"), k, length) {
            static struct reward_items items;
            const struct ax_reward_function both[] = {{.name = name, .weight = 1},
                                                      {.name = plain, .weight = 1}};
            struct ax_rewards *r;
            double out[2];
            add_item(&items, "", "{}");
            items.item[0].n_ids = json_integer_value(length);
            assert_ok(ax_rewards_open(
                &r, &(struct ax_rewards_options){
                        .functions = both, .n = 2, .program = getenv("AX_TEST_BIN")}));
            assert_ok(ax_rewards_score(r, 1, items.item, out));
            const double want = json_number_value(json_array_get(json_object_get(v, "rewards"), k));
            assert_true(out[0] == want);
            assert_true(out[1] == (json_integer_value(length) > max ? -1 : 0));
            ax_rewards_close(r);
            free_items(&items);
        }
    }
    ax_json_free(&doc);
}

static void code_blocks(void **state) {
    static const struct {
        const char *text, *code;
    } cases[] = {
        {"print(1)", "print(1)"},
        {"so:\n```python\na\nb\n```\ndone", "a\nb\n"},
        {"```python\na\n```\n```python\nb\n```\n", "b\n"},
        {"```python\na\n```\n```\nout\n```\n", "a\n"},
        {"```py\na\n```", "a\n"},
        {"```Python3 \na\n```", "a\n"},
        {"```python\na", "a"},
        {"```python\na\n```\n```python\nb", "b"},
        {"```python", ""},
        {"```\na\n```", "```\na\n```"},
        {"```pythonic\na\n```", "```pythonic\na\n```"},
        {"```js\n```python\na", "```js\n```python\na"},
        {"x = '```python'", "x = '```python'"},
        {"```python\nx = '''\n ```\n'''\n```", "x = '''\n ```\n'''\n"},
        {"", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ax_reward_text t = ax_reward_code_block(cases[i].text, strlen(cases[i].text));
        if (t.n != strlen(cases[i].code) || memcmp(t.s, cases[i].code, t.n) != 0)
            fail_msg("the code in \"%s\": \"%.*s\"", cases[i].text, (int)t.n, t.s);
    }
}

/* Rows are completions, columns are functions; names, weights and counters are theirs. */
static void several(void **state) {
    static struct reward_items items;
    const struct ax_reward_function functions[] = {{.name = "exact", .weight = 2},
                                                   {.name = "format:a", .weight = 0.5},
                                                   {.name = "length:2", .weight = 1}};
    struct ax_rewards *r;
    double out[9];
    (void)state;
    add_item(&items, "a", "{\"answer\": \"a\"}");
    add_item(&items, "b", "{\"answer\": \"a\"}");
    add_item(&items, "a", "{}");
    assert_ok(ax_rewards_open(&r, &(struct ax_rewards_options){.functions = functions,
                                                               .n = 3,
                                                               .program = getenv("AX_TEST_BIN")}));
    assert_int_equal(ax_rewards_count(r), 3);
    assert_string_equal(ax_rewards_name(r, 1), "format:a");
    assert_true(ax_rewards_weight(r, 1) == 0.5);
    for (size_t n = 1; n <= 3; n++)
        assert_ok(ax_rewards_score(r, n, items.item, out));
    assert_ok(ax_rewards_score(r, 0, items.item, NULL));
    static const double expected[9] = {1, 1, -1, 0, 0, -1, NAN, 1, -1};
    for (int i = 0; i < 9; i++)
        assert_true(out[i] == expected[i] || (isnan(out[i]) && isnan(expected[i])));
    assert_int_equal(ax_rewards_counters(r, 0)->calls, 4);
    assert_int_equal(ax_rewards_counters(r, 0)->nones, 1);
    assert_int_equal(ax_rewards_counters(r, 1)->nones, 0);
    assert_int_equal(ax_rewards_counters(r, 0)->failures, 0);
    assert_true(ax_rewards_counters(r, 2)->seconds >= 0);
    ax_rewards_close(r);
    free_items(&items);
}

static enum ax_status count_items(void *ctx, size_t n, const struct ax_reward_item *items,
                                  double *out) {
    size_t *total = ctx;
    (void)items;
    *total += n;
    for (size_t i = 0; i < n; i++)
        out[i] = (double)(i + 1);
    return AX_OK;
}

/* A function of the caller: a rank that has no items, or other ones, calls it with the others. */
static void functions_of_all_ranks(void **state) {
    static struct reward_items items;
    size_t total = 0;
    const struct ax_reward_function functions[] = {
        {.name = "exact", .weight = 1},
        {.name = "model", .weight = 1, .score = count_items, .ctx = &total}};
    struct ax_rewards_options o = {
        .functions = functions, .n = 1, .program = getenv("AX_TEST_BIN")};
    struct ax_rewards *r;
    double out[6];
    (void)state;
    for (int i = 0; i < 3; i++)
        add_item(&items, "a", "{\"answer\": \"a\"}");
    assert_ok(ax_rewards_open(&r, &o));
    assert_false(ax_rewards_are_joint(r));
    assert_ok(ax_rewards_join(r, 3, items.item));
    assert_int_equal(ax_rewards_counters(r, 0)->calls, 0);
    ax_rewards_close(r);
    o.n = 2;
    assert_ok(ax_rewards_open(&r, &o));
    assert_true(ax_rewards_are_joint(r));
    assert_ok(ax_rewards_join(r, 2, items.item));
    assert_int_equal(total, 2);
    assert_int_equal(ax_rewards_counters(r, 0)->calls, 0);
    assert_ok(ax_rewards_score(r, 3, items.item, out));
    assert_int_equal(total, 5);
    for (int i = 0; i < 3; i++)
        assert_true(out[2 * i] == 1 && out[2 * i + 1] == i + 1);
    ax_rewards_close(r);
    free_items(&items);
}

/* What a child may answer; docs/rewards.md. */
static void answers(void **state) {
    static const struct {
        const char *line;
        enum ax_reward_failure failure;
        const char *text; /* in the failure's */
        double a, b;
        size_t not_finite;
    } cases[] = {
        {"{\"rewards\": [1, -2.5e-1]}", AX_REWARD_FINE, NULL, 1, -0.25, 0},
        {" {\"rewards\": [null, \"nan\"], \"x\": 1} \r", AX_REWARD_FINE, NULL, NAN, NAN, 1},
        {"{\"rewards\": [\"inf\", \"-inf\"]}", AX_REWARD_FINE, NULL, NAN, NAN, 2},
        {"{\"rewards\": [1]}", AX_REWARD_COUNT, "1 for 2 completions", NAN, NAN, 0},
        {"{\"rewards\": [1, 2, 3]}", AX_REWARD_COUNT, "3 for 2 completions", NAN, NAN, 0},
        {"{\"rewards\": [1, \"good\"]}", AX_REWARD_RUBBISH, "rewards[1] is neither", NAN, NAN, 0},
        {"{\"rewards\": [1, true]}", AX_REWARD_RUBBISH, "rewards[1] is neither", NAN, NAN, 0},
        {"{\"rewards\": [1, [2]]}", AX_REWARD_RUBBISH, "rewards[1] is neither", NAN, NAN, 0},
        {"{\"rewards\": [1, NaN]}", AX_REWARD_RUBBISH, "its line:1:17: ", NAN, NAN, 0},
        {"{\"rewards\": [1, 1e999]}", AX_REWARD_RUBBISH, "its line:1:", NAN, NAN, 0},
        {"{\"rewards\": 1}", AX_REWARD_RUBBISH, "neither a list", NAN, NAN, 0},
        {"[1, 2]", AX_REWARD_RUBBISH, "neither a list", NAN, NAN, 0},
        {"", AX_REWARD_RUBBISH, "its line", NAN, NAN, 0},
        {"{\"rewards\": [1, 2]", AX_REWARD_RUBBISH, "its line", NAN, NAN, 0},
        {"{\"error\": \"x\\n\\u001b[31my\"}", AX_REWARD_EXCEPTION, "x  [31my", NAN, NAN, 0},
        {"{\"error\": \"x\", \"at\": \"f.py:3\"}", AX_REWARD_EXCEPTION, "x (f.py:3)", NAN, NAN, 0},
        {"{\"error\": \"x\", \"at\": null, \"rewards\": [1, 2]}", AX_REWARD_EXCEPTION, "x", NAN,
         NAN, 0},
        {"{\"error\": null, \"rewards\": [1, 2]}", AX_REWARD_FINE, NULL, 1, 2, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_reward_outcome outcome;
        double out[2] = {-7, -7};
        const double want[2] = {cases[i].a, cases[i].b};
        size_t not_finite = 9;
        assert_ok(ax_reward_answer_read(cases[i].line, strlen(cases[i].line), 2, false, out,
                                        &not_finite, &outcome));
        if (outcome.failure != cases[i].failure || not_finite != cases[i].not_finite ||
            (cases[i].text && !strstr(outcome.text, cases[i].text)))
            fail_msg("%s: %s, %s, %zu", cases[i].line, ax_reward_failure_names[outcome.failure],
                     outcome.failure ? outcome.text : "", not_finite);
        for (int k = 0; k < 2; k++)
            assert_true(out[k] == want[k] || (isnan(out[k]) && isnan(want[k])));
    }
}

static void a_missing_answer_is_said_once(void **state) {
    static const char line[] = "rewards: exact: a record has no text or number in the column "
                               "\"answer\": no reward (this is said only once)\n";
    struct reward_items items = {0};
    struct ax_rewards *r;
    double out[2];
    char *said;
    size_t n;
    (void)state;
    add_item(&items, "7", "{}");
    add_item(&items, "8", "{}");
    assert_ok(open_named(&r, "exact", defaults));
    const int saved = dup(STDERR_FILENO);
    const int file = open(in_scratch("said"), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(saved >= 0 && dup2(file, STDERR_FILENO) >= 0);
    ax_log_set_level(AX_LOG_WARN);
    assert_ok(ax_rewards_score(r, 2, items.item, out));
    ax_log_set_level(AX_LOG_ERROR);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    close(file);
    ax_rewards_close(r);
    free_items(&items);
    assert_ok(ax_read_file(in_scratch("said"), 4096, &said, &n));
    const char *first = strstr(said, line);
    assert_non_null(first);
    assert_null(strstr(first + 1, line));
    ax_free(said);
}

static void bad_names(void **state) {
    static const struct {
        const char *name;
        enum ax_status status;
        const char *part;
    } cases[] = {
        {"final_anwser", AX_ERR_CONFIG, "did you mean \"final_answer\"?"},
        {"fromat:x", AX_ERR_CONFIG, "did you mean \"format\"?"},
        {"helpfulness", AX_ERR_CONFIG,
         "Expected one of exact[:COLUMN], final_answer[:COLUMN], numeric[:COLUMN], format:REGEX"},
        {"", AX_ERR_CONFIG, "there is no such function"},
        {"a..b", AX_ERR_CONFIG, "there is no such function"},
        {".a", AX_ERR_CONFIG, "there is no such function"},
        {"a.", AX_ERR_CONFIG, "there is no such function"},
        {"a.1b", AX_ERR_CONFIG, "there is no such function"},
        {"a.b c", AX_ERR_CONFIG, "there is no such function"},
        {"think_format:1", AX_ERR_CONFIG, "\"think_format\" takes no argument"},
        {"exact:", AX_ERR_CONFIG, "expected a column's name behind the colon"},
        {"format", AX_ERR_CONFIG, "expected a regular expression: format:REGEX"},
        {"format:(", AX_ERR_CONFIG, "reward function \"format:(\": "},
        {"length", AX_ERR_CONFIG, "length:MAX"},
        {"length:0", AX_ERR_CONFIG, "length:MAX"},
        {"length:-1", AX_ERR_CONFIG, "length:MAX"},
        {"length:2x", AX_ERR_CONFIG, "length:MAX"},
        {"length:99999999999999999999", AX_ERR_CONFIG, "length:MAX"},
        {"soft_overlong:10", AX_ERR_CONFIG, "soft_overlong:MAX:CACHE"},
        {"soft_overlong:10:11", AX_ERR_CONFIG, "soft_overlong:MAX:CACHE"},
        {"soft_overlong:10:", AX_ERR_CONFIG, "soft_overlong:MAX:CACHE"},
        {"code:most", AX_ERR_CONFIG, "expected code, or code:all"},
        {"./no/such", AX_ERR_CONFIG, "there is no such file"},
    };
    struct ax_rewards *r;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_error(open_named(&r, cases[i].name, defaults), cases[i].status, cases[i].part);
        assert_null(strchr(ax_error_text(), '\n'));
    }
    assert_error(open_named(&r, put_text("plain", "x"), defaults), AX_ERR_CONFIG, "chmod +x");
    make_folder("folder");
    assert_error(open_named(&r, in_scratch("folder"), defaults), AX_ERR_CONFIG,
                 "a folder is no program");
    /* what was opened before is closed */
    const struct ax_reward_function functions[] = {{.name = "format:a", .weight = 1},
                                                   {.name = "nothing", .weight = 1}};
    assert_error(
        ax_rewards_open(&r, &(struct ax_rewards_options){.functions = functions,
                                                         .n = 2,
                                                         .program = getenv("AX_TEST_BIN")}),
        AX_ERR_CONFIG, "\"nothing\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact),     cmocka_unit_test(final_answer),
        cmocka_unit_test(numeric),   cmocka_unit_test(format),
        cmocka_unit_test(as_trl),    cmocka_unit_test(code_blocks),
        cmocka_unit_test(several),   cmocka_unit_test(functions_of_all_ranks),
        cmocka_unit_test(answers),   cmocka_unit_test(a_missing_answer_is_said_once),
        cmocka_unit_test(bad_names),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
