/* What requests to `axtrain serve` may say about choosing tokens beyond a temperature: penalties, biases, lengths,
 * log-probs of many tokens, and the variables of the template. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/serve_case.h"

static struct server server;

#define CHAT     "/v1/chat/completions"
#define COMPLETE "/v1/completions"
#define MOST     20
#define LENGTH   24

static int open_server(void **state) {
    if (setup(state) != 0)
        return -1;
    serve_open(&server, model, "--parallel 8");
    return 0;
}

static int close_server(void **state) {
    serve_close(&server);
    return scratch_remove(state);
}

/* A completion of 24 tokens with as many log-probs as there may be. */
static json_t *complete(const char *more) {
    char body[700];
    snprintf(
        body, sizeof body,
        "{\"prompt\": \"The train\", \"max_tokens\": %d, \"logprobs\": %d, \"return_token_ids\": "
        "true, \"return_tokens_as_token_ids\": true%s%s}",
        LENGTH, MOST, more[0] ? ", " : "", more);
    return post(&server, COMPLETE, body);
}

static int id_at(const json_t *answer, size_t i) {
    return (int)json_integer_value(json_array_get(at(answer, "choices.0.token_ids"), i));
}

static const json_t *tops_at(const json_t *answer, size_t i) {
    return json_array_get(at(answer, "choices.0.logprobs.top_logprobs"), i);
}

static size_t count_before(const json_t *answer, size_t i, int id) {
    size_t n = 0;
    for (size_t k = 0; k < i; k++)
        n += id_at(answer, k) == id;
    return n;
}

/* ---- the likeliest tokens ---- */

/* The first of them is what one alone is, and they are those that scoring finds in each place. */
static void twenty_likeliest(void **state) {
    (void)state;
    json_t *v = complete("\"temperature\": 0");
    char *ids = json_dumps(at(v, "choices.0.token_ids"), JSON_COMPACT);
    json_t *prompt = post(&server, "/tokenize", "{\"prompt\": \"The train\"}");
    char *first = json_dumps(at(prompt, "tokens"), JSON_COMPACT), body[1024];
    const size_t n = json_array_size(at(prompt, "tokens"));
    snprintf(body, sizeof body,
             "{\"prompt\": %.*s, %s, \"max_tokens\": 0, \"echo\": true, \"logprobs\": 20, "
             "\"return_tokens_as_token_ids\": true, \"prompt_logprobs\": 7}",
             (int)strlen(first) - 1, first, ids + 1);
    json_t *scored = post(&server, COMPLETE, body);
    assert_int_equal(json_array_size(at(v, "choices.0.token_ids")), LENGTH);
    for (size_t i = 0; i < LENGTH; i++) {
        const json_t *tops = tops_at(v, i), *again = tops_at(scored, n + i);
        const char *name;
        json_t *x;
        double last = INFINITY;
        assert_int_equal(json_object_size(tops), MOST);
        assert_true(json_equal(tops, again)); /* and their log-probs, to the bit */
        json_object_foreach((json_t *)(uintptr_t)tops, name, x) {
            assert_true(json_number_value(x) <= last); /* in order */
            last = json_number_value(x);
        }
        const json_t *ranked = json_array_get(at(scored, "choices.0.prompt_logprobs"), n + i);
        char key[16];
        assert_int_equal(json_object_size(ranked), 7);
        snprintf(key, sizeof key, "%d", id_at(v, i)); /* greedy: the first */
        assert_int_equal(json_integer_value(at(at(ranked, key), "rank")), 1);
        snprintf(key, sizeof key, "token_id:%d", id_at(v, i));
        assert_true(json_equal(at(json_object_get(ranked, key + 9), "logprob"), at(tops, key)));
    }
    assert_true(json_is_null(at(scored, "choices.0.prompt_logprobs.0")));
    ax_free_hook(ids);
    ax_free_hook(first);
    json_decref(prompt);
    json_decref(scored);
    json_decref(v);
}

/* All probabilities are below 1 together, and those of a chat are sorted. */
static void of_a_chat(void **state) {
    (void)state;
    json_t *v = post(&server, CHAT,
                     "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], "
                     "\"max_tokens\": 6, \"seed\": 2, \"logprobs\": true, \"top_logprobs\": 20, "
                     "\"prompt_logprobs\": 0}");
    for (size_t i = 0; i < 6; i++) {
        const json_t *tops =
            at(json_array_get(at(v, "choices.0.logprobs.content"), i), "top_logprobs");
        double sum = 0, last = 0;
        assert_int_equal(json_array_size(tops), MOST);
        for (size_t k = 0; k < MOST; k++) {
            const double x = json_number_value(at(json_array_get(tops, k), "logprob"));
            assert_true(x <= last);
            last = x;
            sum += exp(x);
        }
        assert_true(sum < 1);
    }
    assert_int_equal(json_array_size(at(v, "prompt_logprobs")),
                     json_integer_value(at(v, "usage.prompt_tokens")));
    assert_int_equal(json_object_size(at(v, "prompt_logprobs.3")), 1);
    json_decref(v);
}

/* ---- penalties and biases ---- */

/* Every token is the largest of the model's log-probs less its penalties; those that are listed are all that may be,
 * as far as none of the others could be. */
static void penalties(void **state) {
    (void)state;
    static const struct {
        const char *keys;
        double presence, frequency;
    } rows[] = {{"\"presence_penalty\": 1.5", 1.5, 0},
                {"\"frequency_penalty\": 0.75", 0, 0.75},
                {"\"presence_penalty\": -0.5, \"frequency_penalty\": 2", -0.5, 2}};
    json_t *plain = complete("\"temperature\": 0");
    size_t repeated = 0;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char more[128];
        snprintf(more, sizeof more, "\"temperature\": 0, %s", rows[k].keys);
        json_t *v = complete(more);
        assert_false(json_equal(at(v, "choices.0.token_ids"), at(plain, "choices.0.token_ids")));
        for (size_t i = 0; i < LENGTH; i++) {
            const char *name;
            json_t *x;
            double best = -INFINITY, chosen = NAN;
            json_object_foreach((json_t *)(uintptr_t)tops_at(v, i), name, x) {
                const int id = (int)strtol(name + strlen("token_id:"), NULL, 10);
                const size_t n = count_before(v, i, id);
                const double z = json_number_value(x) - rows[k].frequency * (double)n -
                                 (n > 0 ? rows[k].presence : 0);
                best = fmax(best, z);
                chosen = id == id_at(v, i) ? z : chosen;
                repeated += n > 0;
            }
            assert_true(fabs(chosen - best) < 1e-5);
        }
        json_decref(v);
    }
    assert_true(repeated > 20);
    json_decref(plain);
}

static void biases(void **state) {
    (void)state;
    char more[256];
    json_t *plain = complete("\"temperature\": 0");
    const int first = id_at(plain, 0);
    json_t *v = complete("\"seed\": 1, \"logit_bias\": {\"77\": 100}");
    for (size_t i = 0; i < LENGTH; i++)
        assert_int_equal(id_at(v, i), 77);
    json_decref(v);
    snprintf(more, sizeof more, "\"temperature\": 0, \"logit_bias\": {\"%d\": -100}", first);
    v = complete(more);
    for (size_t i = 0; i < LENGTH; i++)
        assert_int_not_equal(id_at(v, i), first);
    /* log-probs are the model's: the excluded token is still the likeliest of the first place */
    snprintf(more, sizeof more, "token_id:%d", first);
    assert_true(json_equal(at(tops_at(v, 0), more), at(tops_at(plain, 0), more)));
    json_decref(v);
    json_decref(plain);
}

/* With neighbors that are biased and others that are not, tokens stay what they are alone. */
static void among_others(void **state) {
    (void)state;
    static const char *const kinds[] = {
        "\"seed\": 3, \"frequency_penalty\": 1.1, \"repetition_penalty\": 1.2", "\"seed\": 3",
        "\"seed\": 4, \"logit_bias\": {\"60\": 3.5, \"61\": -4}, \"top_k\": 30",
        "\"temperature\": 0, \"presence_penalty\": 2",
        "\"temperature\": 0, \"logprobs\": 3, \"return_tokens_as_token_ids\": true"};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    json_t *alone[KINDS];
    struct client c[2 * KINDS];
    char body[400];
    for (int i = 0; i < 2 * KINDS; i++) {
        snprintf(body, sizeof body,
                 "{\"prompt\": \"Trains\", \"max_tokens\": 60, \"return_token_ids\": true, %s}",
                 kinds[i % KINDS]);
        if (i < KINDS)
            alone[i] = post(&server, COMPLETE, body);
        client_open(&c[i], &server);
    }
    for (int i = 0; i < 2 * KINDS; i++) {
        snprintf(body, sizeof body,
                 "{\"prompt\": \"Trains\", \"max_tokens\": 60, \"return_token_ids\": true, %s}",
                 kinds[i % KINDS]);
        client_send(&c[i], "POST", COMPLETE, body);
    }
    for (int i = 0; i < 2 * KINDS; i++) {
        assert_int_equal(client_answer(&c[i]), 200);
        json_t *v = client_json(&c[i]);
        assert_true(json_equal(at(v, "choices.0"), at(alone[i % KINDS], "choices.0")));
        json_decref(v);
        client_close(&c[i]);
    }
    for (int i = 0; i < KINDS; i++)
        json_decref(alone[i]);
}

/* ---- lengths ---- */

static void min_tokens(void **state) {
    (void)state;
    char more[256];
    json_t *plain = complete("\"temperature\": 0");
    const int stop = id_at(plain, 2);
    snprintf(more, sizeof more, "\"temperature\": 0, \"stop_token_ids\": [%d]", stop);
    json_t *v = complete(more);
    assert_true(json_array_size(at(v, "choices.0.token_ids")) <= 3);
    json_decref(v);
    snprintf(more, sizeof more,
             "\"temperature\": 0, \"min_tokens\": 9, \"stop_token_ids\": [%d], \"stop\": \"%s\"",
             stop, "t");
    v = complete(more);
    const size_t n = json_array_size(at(v, "choices.0.token_ids"));
    assert_true(n >= 9);
    assert_int_equal(count_before(v, 9, stop), 0);
    json_decref(v);
    json_decref(plain);
}

/* ---- the template ---- */

static json_t *prompt_of(const char *body) {
    json_t *v = post(&server, "/tokenize", body);
    char *ids = json_dumps(at(v, "tokens"), JSON_COMPACT);
    struct ax_buf request = {0};
    assert_int_equal(ax_buf_printf(&request, "{\"tokens\": %s}", ids), AX_OK);
    json_t *text = post(&server, "/detokenize", request.data);
    ax_buf_free(&request);
    ax_free_hook(ids);
    json_decref(v);
    return text;
}

#define TURNS                                                                                      \
    "\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}, {\"role\": \"assistant\", "      \
    "\"content\": \" The sky is \"}]"

static void prompts(void **state) {
    (void)state;
    json_t *whole = prompt_of("{" TURNS "}"),
           *bare = prompt_of("{" TURNS ", \"add_generation_prompt\": false}"),
           *cut = prompt_of("{" TURNS ", \"continue_final_message\": true, "
                            "\"add_generation_prompt\": false}");
    const char *text[] = {text_at(whole, "prompt"), text_at(bare, "prompt"),
                          text_at(cut, "prompt")};
    assert_true(strlen(text[0]) > strlen(text[1]) && strlen(text[1]) > strlen(text[2]));
    for (int i = 1; i < 3; i++) /* each is the beginning of the one before */
        assert_memory_equal(text[i], text[i - 1], strlen(text[i]));
    const char *end = strstr(text[2], "The sky is");
    assert_true(end && strlen(end) <= strlen("The sky is "));
    json_decref(whole);
    json_decref(bare);
    json_decref(cut);
    json_t *v = post(&server, CHAT,
                     "{" TURNS ", \"continue_final_message\": true, \"max_tokens\": 3, "
                     "\"chat_template_kwargs\": {\"anything\": 1}, \"reasoning_effort\": \"low\"}");
    json_decref(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twenty_likeliest), cmocka_unit_test(of_a_chat),
        cmocka_unit_test(penalties),        cmocka_unit_test(biases),
        cmocka_unit_test(among_others),     cmocka_unit_test(min_tokens),
        cmocka_unit_test(prompts),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
