/* What `axtrain serve` answers is as it was: serve_record.txt has the status and all values of the answers to requests of each
 * kind and with each key, those that are refused among them. Streams, whose pieces depend on the moment, are tested elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/serve_case.h"
#include "tests/near_record.h"

#define RECORD "tests/cmd/serve_record.txt"

static struct server server;

static int open_server(void **state) {
    if (setup(state) != 0)
        return -1;
    serve_open(&server, model, "--parallel 4 --name tiny");
    return 0;
}

static int close_server(void **state) {
    serve_close(&server);
    return scratch_remove(state);
}

#define CHAT     "/v1/chat/completions"
#define COMPLETE "/v1/completions"
#define ASK      "\"messages\": [{\"role\": \"user\", \"content\": \"Say 7.\"}], "
#define TEXT     "\"prompt\": \"The train\", \"max_tokens\": 6, "
#define TOOL                                                                                       \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"add\", \"description\": "     \
    "\"sums\", \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": "         \
    "\"integer\"}}, \"required\": [\"a\"], \"additionalProperties\": false}}}], "
#define NAMES                                                                                      \
    "{\"type\": \"object\", \"properties\": {\"n\": {\"enum\": [\"x\", \"yy\"]}}, \"required\": "  \
    "[\"n\"], \"additionalProperties\": false}"

static const struct {
    const char *path, *body; /* without braces; NULL: GET */
} requests[] = {
    {"/v1/models", NULL},
    {"/v1/models/tiny", NULL},
    {"/v1/models/none", NULL},
    {"/health", NULL},
    {"/tokenizer_info", NULL},
    {"/is_paused", NULL},
    {"/nowhere", NULL},
    /* ---- texts ---- */
    {COMPLETE, TEXT "\"temperature\": 0"},
    {COMPLETE, TEXT "\"seed\": 1"},
    {COMPLETE, TEXT "\"seed\": 1, \"model\": \"tiny\", \"user\": \"me\""},
    {COMPLETE, TEXT "\"seed\": 2, \"n\": 3, \"temperature\": 0.5"},
    {COMPLETE, TEXT "\"seed\": 3, \"n\": 2, \"best_of\": 4, \"logprobs\": 1"},
    {COMPLETE, TEXT "\"temperature\": 0, \"logprobs\": 3"},
    {COMPLETE, TEXT "\"temperature\": 0, \"logprobs\": 2, \"echo\": true"},
    {COMPLETE, TEXT "\"temperature\": 0, \"prompt_logprobs\": 2"},
    {COMPLETE, TEXT "\"temperature\": 0, \"return_token_ids\": true"},
    {COMPLETE, TEXT "\"temperature\": 0, \"logprobs\": 1, \"return_tokens_as_token_ids\": true"},
    {COMPLETE, TEXT "\"seed\": 4, \"top_k\": 3"},
    {COMPLETE, TEXT "\"seed\": 4, \"top_p\": 0.2"},
    {COMPLETE, TEXT "\"seed\": 4, \"min_p\": 0.5"},
    {COMPLETE, TEXT "\"seed\": 4, \"repetition_penalty\": 1.5, \"temperature\": 0.7"},
    {COMPLETE, TEXT "\"seed\": 4, \"presence_penalty\": 1.5, \"frequency_penalty\": -0.5"},
    {COMPLETE, TEXT "\"temperature\": 0, \"logit_bias\": {\"97\": 50, \"98\": -100}"},
    {COMPLETE, TEXT "\"seed\": 5, \"stop\": [\"e\", \"a\"]"},
    {COMPLETE, TEXT "\"seed\": 5, \"stop\": \"e\", \"include_stop_str_in_output\": true"},
    {COMPLETE, TEXT "\"seed\": 5, \"stop\": \"e\", \"min_tokens\": 4"},
    {COMPLETE, TEXT "\"temperature\": 0, \"stop_token_ids\": [97, 101]"},
    {COMPLETE, TEXT "\"temperature\": 0, \"ignore_eos\": true, \"add_special_tokens\": false"},
    {COMPLETE, "\"prompt\": [\"a\", \"b c\"], \"max_tokens\": 3, \"temperature\": 0"},
    {COMPLETE, "\"prompt\": [65, 66, 67], \"max_tokens\": 3, \"temperature\": 0"},
    {COMPLETE, "\"prompt\": [[65], [66, 67]], \"max_tokens\": 3, \"temperature\": 0"},
    {COMPLETE, "\"prompt\": \"a\", \"max_tokens\": 0, \"echo\": true, \"logprobs\": 1"},
    {COMPLETE, TEXT "\"guided_choice\": [\"yes\", \"no\"], \"seed\": 1"},
    {COMPLETE, TEXT "\"guided_regex\": \"[a-c]{2}[0-9]\", \"seed\": 1"},
    {COMPLETE, "\"prompt\": \"a\", \"max_tokens\": 20, \"guided_json\": " NAMES ", \"seed\": 1"},
    {COMPLETE, TEXT "\"structured_outputs\": {\"choice\": [\"left\", \"right\"]}, \"seed\": 2"},
    /* ---- chats ---- */
    {CHAT, ASK "\"max_tokens\": 6, \"temperature\": 0"},
    {CHAT, ASK "\"max_completion_tokens\": 4, \"seed\": 1, \"n\": 2"},
    {CHAT, ASK "\"max_tokens\": 4, \"temperature\": 0, \"logprobs\": true, \"top_logprobs\": 2"},
    {CHAT, ASK "\"max_tokens\": 4, \"temperature\": 0, \"prompt_logprobs\": 1"},
    {CHAT, "\"messages\": [{\"role\": \"system\", \"content\": \"Count.\"}, {\"role\": \"user\", "
           "\"content\": [{\"type\": \"text\", \"text\": \"abc\"}]}], \"max_tokens\": 4, "
           "\"temperature\": 0"},
    {CHAT, "\"messages\": [{\"role\": \"user\", \"content\": \"abc\"}, {\"role\": \"assistant\", "
           "\"content\": \"de\"}], \"max_tokens\": 4, \"temperature\": 0, "
           "\"continue_final_message\": true, \"add_generation_prompt\": false"},
    {CHAT, ASK "\"max_tokens\": 24, \"seed\": 1, \"response_format\": {\"type\": \"json_schema\", "
               "\"json_schema\": {\"name\": \"n\", \"schema\": " NAMES "}}"},
    {CHAT, ASK "\"max_tokens\": 12, \"seed\": 1, \"response_format\": {\"type\": \"json_object\"}"},
    {CHAT, ASK TOOL "\"max_tokens\": 6, \"temperature\": 0"},
    {CHAT, ASK TOOL "\"max_tokens\": 6, \"temperature\": 0, \"tool_choice\": \"none\""},
    {CHAT, ASK TOOL "\"max_tokens\": 60, \"temperature\": 0, \"tool_choice\": \"required\""},
    /* ---- tokens ---- */
    {"/tokenize", "\"prompt\": \"The train\""},
    {"/tokenize", "\"prompt\": \"The train\", \"add_special_tokens\": false"},
    {"/tokenize", ASK "\"add_generation_prompt\": true"},
    {"/tokenize", ASK "\"add_generation_prompt\": false, \"model\": \"tiny\""},
    {"/detokenize", "\"tokens\": [72, 105]"},
    /* ---- refused ---- */
    {COMPLETE, "\"prompt\": 7"},
    {COMPLETE, "\"max_tokens\": 5"},
    {COMPLETE, TEXT "\"temperature\": -1"},
    {COMPLETE, TEXT "\"temperature\": \"hot\""},
    {COMPLETE, TEXT "\"top_p\": 2"},
    {COMPLETE, TEXT "\"n\": 0"},
    {COMPLETE, TEXT "\"n\": 3, \"best_of\": 2"},
    {COMPLETE, TEXT "\"model\": \"other\""},
    {COMPLETE, TEXT "\"nonsense\": 1"},
    {COMPLETE, TEXT "\"suffix\": \"x\""},
    {COMPLETE, TEXT "\"logprobs\": 1000"},
    {COMPLETE, TEXT "\"logit_bias\": {\"x\": 1}"},
    {COMPLETE, TEXT "\"stop\": [1]"},
    {COMPLETE, TEXT "\"guided_regex\": \"(\""},
    {COMPLETE, TEXT "\"guided_regex\": \"a\", \"guided_choice\": [\"b\"]"},
    {COMPLETE, "\"prompt\": \"a\", \"max_tokens\": 100000"},
    {COMPLETE, "\"prompt\": [100000], \"max_tokens\": 1"},
    {CHAT, "\"messages\": []"},
    {CHAT, "\"messages\": [{\"role\": \"user\"}]"},
    {CHAT, "\"messages\": [{\"role\": \"nobody\", \"content\": \"x\"}], \"max_tokens\": 1"},
    {CHAT, ASK "\"top_logprobs\": 2"},
    {CHAT, ASK "\"tool_choice\": \"required\""},
    {CHAT, ASK TOOL "\"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"sub\"}}"},
    {CHAT, ASK "\"response_format\": {\"type\": \"poem\"}"},
    {CHAT, ASK "\"functions\": [{\"name\": \"f\"}]"},
    {"/detokenize", "\"tokens\": [\"x\"]"},
    {"/tokenize", "\"text\": \"a\""},
};

static bool is_of_the_moment(const char *key) {
    const char *last = strrchr(key, '.') ? strrchr(key, '.') + 1 : key;
    return strcmp(last, "id") == 0 || strcmp(last, "created") == 0;
}

static void put_object(struct ax_buf *out, const char *text) {
    const char *key;
    struct ax_buf masked = {0};
    near_put_masked(&masked, text, model);
    json_t *x, *v = json_loadb(masked.data, masked.len, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(v))
        fail_msg("not an object: %s", text);
    assert_int_equal(ax_buf_puts(out, " "), AX_OK);
    json_object_foreach(v, key, x) near_put(out, key, x, is_of_the_moment);
    assert_int_equal(ax_buf_puts(out, "\n"), AX_OK);
    json_decref(v);
    ax_buf_free(&masked);
}

static void answers_are_as_recorded(void **state) {
    (void)state;
    struct ax_buf now = {0};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        struct client c;
        char body[2000];
        snprintf(body, sizeof body, "{%s}", requests[i].body ? requests[i].body : "");
        client_open(&c, &server);
        const int status = ask(&c, requests[i].body ? "POST" : "GET", requests[i].path,
                               requests[i].body ? body : NULL);
        assert_int_equal(ax_buf_printf(&now, "%s %s: %d\n", requests[i].path,
                                       requests[i].body ? requests[i].body : "", status),
                         AX_OK);
        put_object(&now, c.body.data);
        client_close(&c);
    }
    near_compare(RECORD, &now);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_are_as_recorded)};
    return cmocka_run_group_tests(tests, open_server, close_server);
}
