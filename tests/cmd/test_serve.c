/* `axtrain serve`: what is asked for by the protocol comes, and the tokens are those of
 * `axtrain generate`, whoever else is being served. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "tests/cmd/program_case.h"
#include "tests/cmd/serve_case.h"

static struct server server;

#define CHAT     "/v1/chat/completions"
#define COMPLETE "/v1/completions"
#define HELLO    "\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]"

static int open_server(void **state) {
    if (setup(state) != 0)
        return -1;
    serve_open(&server, model, "--parallel 32");
    return 0;
}

static int close_server(void **state) {
    serve_close(&server);
    return scratch_remove(state);
}

static void about_the_model(void **state) {
    (void)state;
    struct client c;
    client_open(&c, &server);
    for (int i = 0; i < 100; i++) /* on one connection */
        assert_int_equal(ask(&c, "GET", "/health", NULL), 200);
    assert_int_equal(ask(&c, "GET", "/v1/models", NULL), 200);
    json_t *v = client_json(&c);
    assert_string_equal(text_at(v, "data.0.id"), "llama");
    assert_int_equal(json_integer_value(at(v, "data.0.max_model_len")), 256);
    json_decref(v);
    assert_int_equal(ask(&c, "GET", "/v1/models/llama", NULL), 200);
    assert_int_equal(ask(&c, "GET", "/v1/models/other", NULL), 404);
    assert_int_equal(ask(&c, "GET", "/version", NULL), 200);
    assert_int_equal(ask(&c, "GET", "/tokenizer_info", NULL), 200);
    v = client_json(&c);
    assert_string_equal(text_at(v, "eos_token"), "<|eot_id|>");
    assert_non_null(strstr(text_at(v, "chat_template"), "{%- for"));
    json_decref(v);
    client_send(&c, "GET", "/v1/models", NULL); /* pipelined */
    client_send(&c, "GET", "/health", NULL);
    assert_int_equal(client_answer(&c), 200);
    assert_non_null(strstr(c.body.data, "llama"));
    assert_int_equal(client_answer(&c), 200);
    assert_non_null(strstr(c.body.data, "ok"));
    client_close(&c);
}

static void tokens(void **state) {
    (void)state;
    json_t *v = post(&server, "/tokenize", "{\"prompt\": \"The train\"}");
    assert_int_equal(json_integer_value(at(v, "count")), 5);
    assert_int_equal(json_integer_value(at(v, "tokens.0")), 500);
    char *ids = json_dumps(at(v, "tokens"), JSON_COMPACT), body[256];
    snprintf(body, sizeof body, "{\"tokens\": %s}", ids);
    ax_free_hook(ids);
    json_decref(v);
    v = post(&server, "/detokenize", body);
    assert_string_equal(text_at(v, "prompt"), "<|begin_of_text|>The train");
    json_decref(v);
    v = post(&server, "/tokenize", "{\"prompt\": \"The train\", \"add_special_tokens\": false}");
    assert_int_equal(json_integer_value(at(v, "count")), 4);
    json_decref(v);
    v = post(&server, "/tokenize", "{" HELLO "}");
    json_t *answer =
        post(&server, CHAT, "{" HELLO ", \"max_tokens\": 1, \"return_token_ids\": true}");
    assert_true(json_equal(at(v, "tokens"), at(answer, "prompt_token_ids")));
    json_decref(v);
    json_decref(answer);
}

static void documented(void **state) {
    (void)state;
    assert_int_equal(
        run_documented(&server, "/v1/chat/completions", "", "", "\"object\":\"chat.completion\""),
        1);
}

/* ---- the tokens of `axtrain generate` ---- */

static char said[1 << 16];

/* Answer i of the last `axtrain generate --json`; free it. */
static json_t *generated(int i) {
    const char *line = said;
    while (i-- > 0)
        line = strchr(line, '\n') + 1;
    json_t *row = json_loadb(line, strcspn(line, "\n"), JSON_ALLOW_NUL, NULL);
    if (!json_is_object(row))
        fail_msg("%s", said);
    return row;
}

#define GENERATE(words)                                                                            \
    assert_int_equal(                                                                              \
        run(said, sizeof said, "generate %s --dtype float32 --json " words " 2>/dev/null", model), \
        0)

static double sum(const json_t *list) {
    double all = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        all += json_number_value(json_array_get(list, i));
    return all;
}

static void as_generate(void **state) {
    (void)state;
    GENERATE("--prompt 'The train' --max-new-tokens 20 --n 3 --temperature 1 --seed 5");
    json_t *v = post(&server, COMPLETE,
                     "{\"prompt\": \"The train\", \"max_tokens\": 20, \"n\": 3, \"seed\": 5, "
                     "\"logprobs\": 0, \"return_tokens_as_token_ids\": true}");
    assert_int_equal(json_array_size(at(v, "choices")), 3);
    for (int i = 0; i < 3; i++) {
        json_t *row = generated(i), *choice = json_array_get(at(v, "choices"), (size_t)i);
        assert_true(json_equal(json_object_get(row, "text"), at(choice, "text")));
        assert_true(json_number_value(at(row, "logprob")) ==
                    sum(at(choice, "logprobs.token_logprobs")));
        json_decref(row);
    }
    json_decref(v);
    GENERATE("--prompt hello --chat --max-new-tokens 20");
    v = post(&server, CHAT, "{" HELLO ", \"max_tokens\": 20, \"temperature\": 0}");
    json_t *row = generated(0);
    assert_true(json_equal(at(row, "text"), at(v, "choices.0.message.content")));
    assert_true(json_equal(at(row, "prompt_tokens"), at(v, "usage.prompt_tokens")));
    assert_true(json_equal(at(row, "tokens"), at(v, "usage.completion_tokens")));
    json_decref(v);
    json_t *one = post(&server, CHAT, "{" HELLO ", \"max_tokens\": 20, \"top_k\": 1, \"seed\": 3}");
    assert_true(json_equal(at(row, "text"), at(one, "choices.0.message.content")));
    json_decref(one);
    json_decref(row);
    GENERATE("--prompt Two --max-new-tokens 20 --temperature 0.8 --top-k 40 --top-p 0.9 --min-p "
             "0.02 --repetition-penalty 1.2 --seed 12");
    v = post(&server, COMPLETE,
             "{\"prompt\": \"Two\", \"max_tokens\": 20, \"temperature\": 0.8, \"top_k\": 40, "
             "\"top_p\": 0.9, \"min_p\": 0.02, \"repetition_penalty\": 1.2, \"seed\": 12}");
    row = generated(0);
    assert_true(json_equal(at(row, "text"), at(v, "choices.0.text")));
    json_decref(row);
    json_decref(v);
}

/* The folder of an adapter, which names its base. */
static void an_adapter(void **state) {
    (void)state;
    struct server s;
    char folder[600];
    snprintf(folder, sizeof folder, "%.*s/lora/llama_r4", (int)(strstr(model, "/models/") - model),
             model);
    serve_open(&s, folder, "--parallel 1");
    assert_int_equal(run(said, sizeof said,
                         "generate %s --dtype float32 --json --prompt 'The train' --max-new-tokens "
                         "20 2>/dev/null",
                         folder),
                     0);
    json_t *row = generated(0), *v = post(&s, COMPLETE,
                                          "{\"model\": \"llama_r4\", \"prompt\": \"The train\", "
                                          "\"max_tokens\": 20, \"temperature\": 0}");
    assert_true(json_equal(at(row, "text"), at(v, "choices.0.text")));
    json_decref(v);
    v = post(&server, COMPLETE,
             "{\"prompt\": \"The train\", \"max_tokens\": 20, \"temperature\": 0}");
    assert_false(json_equal(at(row, "text"), at(v, "choices.0.text"))); /* the base's */
    json_decref(v);
    json_decref(row);
    serve_close(&s);
}

/* ---- 32 clients ---- */

#define CLIENTS 32
#define ROUNDS  2

/* Request k, of many kinds. */
static void make_request(char *body, size_t size, int k, bool stream) {
    static const char *const samplings[] = {
        "\"temperature\": 0", "\"seed\": 7", "\"seed\": 8, \"temperature\": 0.7, \"top_k\": 20",
        "\"seed\": 7, \"top_p\": 0.8, \"repetition_penalty\": 1.3"};
    snprintf(body, size,
             "{\"prompt\": [\"%.*s\"], \"max_tokens\": %d, %s, \"stream\": %s, \"logprobs\": 1, "
             "\"return_token_ids\": true, \"return_tokens_as_token_ids\": true}",
             3 + k * 5 % 60,
             "The trains of the two lines went on through the night, and the weights",
             8 + k * 7 % 60, samplings[k % 4], stream ? "true" : "false");
}

/* All ids and log-probs of a streamed or a whole answer. */
struct got {
    json_t *ids, *logprobs;
    struct ax_buf text;
};

static void add(struct got *g, const json_t *choice) {
    json_array_extend(g->ids, at(choice, "token_ids"));
    json_array_extend(g->logprobs, at(choice, "logprobs.token_logprobs"));
    const json_t *text = at(choice, "text");
    assert_int_equal(ax_buf_append(&g->text, json_string_value(text), json_string_length(text)),
                     AX_OK);
}

static void get(struct got *g, struct client *c, int k, bool stream) {
    char body[512];
    make_request(body, sizeof body, k, stream);
    *g = (struct got){.ids = json_array(), .logprobs = json_array()};
    if (ask(c, "POST", COMPLETE, body) != 200)
        fail_msg("%s: %s", body, c->body.data);
    if (!stream) {
        json_t *v = client_json(c);
        add(g, at(v, "choices.0"));
        json_decref(v);
        return;
    }
    for (char *event = c->body.data; strncmp(event, "data: {", 7) == 0;) {
        char *end = strstr(event, "\n\n");
        json_t *v = json_loadb(event + 6, (size_t)(end - event - 6), JSON_ALLOW_NUL, NULL);
        add(g, at(v, "choices.0"));
        json_decref(v);
        event = end + 2;
    }
    assert_non_null(strstr(c->body.data, "\n\ndata: [DONE]\n\n"));
}

static void drop(struct got *g) {
    json_decref(g->ids);
    json_decref(g->logprobs);
    ax_buf_free(&g->text);
}

static struct got alone[CLIENTS];

struct one {
    pthread_t thread;
    int number, wrong;
};

static bool same_text(const struct ax_buf *a, const struct ax_buf *b) {
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static void *be_client(void *arg) {
    struct one *o = arg;
    struct client c;
    client_open(&c, &server);
    for (int i = 0; i < ROUNDS; i++) {
        struct got g;
        const int k = (o->number * 5 + i * 3) % CLIENTS;
        get(&g, &c, k, (o->number + i) % 2 == 0);
        o->wrong += !json_equal(g.ids, alone[k].ids) ||
                    !json_equal(g.logprobs, alone[k].logprobs) ||
                    !same_text(&g.text, &alone[k].text);
        drop(&g);
    }
    client_close(&c);
    return NULL;
}

static void among_others(void **state) {
    (void)state;
    static struct one ones[CLIENTS];
    struct client c;
    client_open(&c, &server);
    for (int k = 0; k < CLIENTS; k++)
        get(&alone[k], &c, k, false);
    client_close(&c);
    for (int i = 0; i < CLIENTS; i++) {
        ones[i].number = i;
        assert_int_equal(pthread_create(&ones[i].thread, NULL, be_client, &ones[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(ones[i].thread, NULL);
        assert_int_equal(ones[i].wrong, 0);
    }
    for (int k = 0; k < CLIENTS; k++)
        drop(&alone[k]);
    assert_true(metric(&server, "sequences_pending") == 0);
}

/* ---- what else an answer has ---- */

/* Tokens that were chosen, as a prompt: their log-probs have the same bits. */
static void log_probs(void **state) {
    (void)state;
    char body[1024];
    json_t *v = post(&server, COMPLETE,
                     "{\"prompt\": [500, 60, 61, 62], \"max_tokens\": 9, \"temperature\": 0.5, "
                     "\"seed\": 1, \"logprobs\": 1, \"return_token_ids\": true}");
    json_t *ids = json_copy(at(v, "choices.0.prompt_token_ids"));
    json_array_extend(ids, at(v, "choices.0.token_ids"));
    const size_t made = json_array_size(at(v, "choices.0.token_ids"));
    char *list = json_dumps(ids, JSON_COMPACT);
    snprintf(body, sizeof body,
             "{\"prompt\": [%s, [500]], \"max_tokens\": 0, \"echo\": true, \"logprobs\": 1}", list);
    json_t *scored = post(&server, COMPLETE, body);
    assert_int_equal(json_integer_value(at(scored, "usage.completion_tokens")), 0);
    const json_t *of = at(scored, "choices.0.logprobs.token_logprobs"),
                 *tops = at(scored, "choices.0.logprobs.top_logprobs");
    assert_int_equal(json_array_size(of), 4 + made);
    assert_true(json_is_null(json_array_get(of, 0)) && json_is_null(json_array_get(tops, 0)));
    assert_int_equal(json_array_size(at(scored, "choices.1.logprobs.tokens")), 1);
    for (size_t i = 0; i < made; i++) {
        const json_t *want = json_array_get(at(v, "choices.0.logprobs.token_logprobs"), i);
        assert_true(json_equal(json_array_get(of, 4 + i), want));
        const json_t *top = json_array_get(tops, 4 + i);
        assert_true(json_equal(json_array_get(at(v, "choices.0.logprobs.top_logprobs"), i), top));
        const char *name;
        json_t *x;
        bool has = false;
        json_object_foreach((json_t *)(uintptr_t)top, name, x) {
            has = has || json_equal(x, want); /* the token is in its dictionary, and not above it */
            assert_true(json_number_value(x) >= json_number_value(want));
        }
        assert_true(has);
    }
    /* what lm-eval asks for: the prompt, and one token more */
    snprintf(body, sizeof body,
             "{\"model\": \"llama\", \"prompt\": [%s], \"temperature\": 0, \"max_tokens\": 1, "
             "\"logprobs\": 1, \"seed\": 1234, \"echo\": true}",
             list);
    json_t *harness = post(&server, COMPLETE, body);
    assert_int_equal(json_array_size(at(harness, "choices.0.logprobs.token_logprobs")), 5 + made);
    ax_free_hook(list);
    json_decref(ids);
    json_decref(v);
    json_decref(scored);
    json_decref(harness);
}

static void echoes(void **state) {
    (void)state;
    json_t *v = post(&server, COMPLETE,
                     "{\"prompt\": [\"The train\", \"a\"], \"max_tokens\": 0, \"echo\": true}");
    assert_string_equal(text_at(v, "choices.0.text"), "The train");
    assert_string_equal(text_at(v, "choices.1.text"), "a");
    json_decref(v);
    json_t *nul =
        post(&server, COMPLETE, "{\"prompt\": \"a\\u0000b\", \"max_tokens\": 0, \"echo\": true}");
    assert_int_equal(json_string_length(at(nul, "choices.0.text")), 3);
    assert_memory_equal(text_at(nul, "choices.0.text"), "a\0b", 4);
    json_decref(nul);
    json_t *ids = post(&server, COMPLETE,
                       "{\"prompt\": [500, 65], \"max_tokens\": 2, \"echo\": true, "
                       "\"temperature\": 0, \"return_tokens_as_token_ids\": true, "
                       "\"logprobs\": 0}");
    assert_string_equal(text_at(ids, "choices.0.logprobs.tokens.1"), "token_id:65");
    json_decref(ids);
}

static void chat_log_probs(void **state) {
    (void)state;
    json_t *v = post(&server, CHAT,
                     "{" HELLO ", \"max_tokens\": 6, \"temperature\": 0, \"logprobs\": "
                     "true, \"top_logprobs\": 1}");
    const json_t *content = at(v, "choices.0.logprobs.content");
    assert_int_equal(json_array_size(content), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *x = json_array_get(content, i), *bytes = at(x, "bytes");
        const char *token = text_at(x, "token");
        assert_true(json_equal(at(x, "logprob"), at(x, "top_logprobs.0.logprob")));
        assert_true(json_equal(bytes, at(x, "top_logprobs.0.bytes")));
        for (size_t k = 0; !strstr(token, "\uFFFD") && k <= strlen(token); k++)
            assert_int_equal(json_integer_value(json_array_get(bytes, k)), (unsigned char)token[k]);
    }
    json_decref(v);
    json_t *none = post(&server, CHAT,
                        "{" HELLO ", \"max_tokens\": 1, \"logprobs\": false, \"top_logprobs\": 0}");
    assert_true(json_is_null(at(none, "choices.0.logprobs")));
    json_decref(none);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(about_the_model), cmocka_unit_test(tokens),
        cmocka_unit_test(as_generate),     cmocka_unit_test(among_others),
        cmocka_unit_test(log_probs),       cmocka_unit_test(echoes),
        cmocka_unit_test(chat_log_probs),  cmocka_unit_test(documented),
        cmocka_unit_test(an_adapter),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
