/* What `axtrain serve` refuses, what it survives, and how it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cmd/commands.h"
#include "tests/cmd/serve_case.h"

#define CHAT     "/v1/chat/completions"
#define COMPLETE "/v1/completions"
#define USER     "{\"role\": \"user\", \"content\": \"hi\"}"
#define E8       "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
#define E24      E8 E8 E8 /* 48 bytes */

/* Each names what is wrong. */
static const struct {
    const char *path, *body;
    int status;
    const char *param, *code, *says;
} wrong[] = {
    {COMPLETE, "{", 400, NULL, NULL, "body:1:"},
    {COMPLETE, "[]", 400, NULL, NULL, "expected a JSON object"},
    {COMPLETE, "{}", 400, "prompt", NULL, "it is missing"},
    {COMPLETE, "{\"prompt\": []}", 400, "prompt", NULL, "expected 1 to 2048 prompts"},
    {COMPLETE, "{\"prompt\": [[]]}", 400, "prompt", NULL, "no tokens"},
    {COMPLETE, "{\"prompt\": [512]}", 400, "prompt", NULL, "ids from 0 to 511"},
    {COMPLETE, "{\"prompt\": [1, \"a\"]}", 400, "prompt", NULL, "ids from 0 to 511"},
    {COMPLETE, "{\"prompt\": 7}", 400, "prompt", NULL, "expected a text"},
    {COMPLETE, "{\"prompt\": \"a\", \"suffix\": \"b\"}", 400, "suffix", NULL, "not supported yet"},
    {COMPLETE, "{\"prompt\": \"a\", \"n\": 0}", 400, "n", NULL, "from 1 to 128"},
    {COMPLETE, "{\"prompt\": \"a\", \"n\": 2, \"best_of\": 3}", 400, "best_of", NULL, "equal to n"},
    {COMPLETE, "{\"prompt\": \"a\", \"logprobs\": 21}", 400, "logprobs", NULL, "from 0 to 20"},
    {COMPLETE, "{\"prompt\": \"a\", \"stream_options\": {}}", 400, "stream_options", NULL,
     "stream"},
    {COMPLETE, "{\"prompt\": \"a\", \"n\": 129}", 400, "n", NULL, "from 1 to 128"},
    {COMPLETE, "{\"prompt\": \"a\", \"top_p\": 1.5}", 400, "top_p", NULL, "from 0 to 1"},
    {COMPLETE, "{\"prompt\": \"a\", \"min_p\": -0.1}", 400, "min_p", NULL, "from 0 to 1"},
    {COMPLETE, "{\"prompt\": \"a\", \"top_k\": -2}", 400, "top_k", NULL, "from -1 to 2147483647"},
    {COMPLETE, "{\"prompt\": \"a\", \"top_k\": 1.5}", 400, "top_k", NULL, "an integer"},
    {COMPLETE, "{\"prompt\": \"a\", \"temperature\": -1}", 400, "temperature", NULL,
     "from 0 to 100"},
    {COMPLETE, "{\"prompt\": \"a\", \"frequency_penalty\": -3}", 400, "frequency_penalty", NULL,
     "from -2 to 2"},
    {COMPLETE, "{\"prompt\": \"a\", \"repetition_penalty\": 0}", 400, "repetition_penalty", NULL,
     "from 0.01 to 100"},
    {COMPLETE, "{\"prompt\": \"a\", \"max_tokens\": -1}", 400, "max_tokens", NULL, "from 0 to"},
    {COMPLETE, "{\"prompt\": \"a\", \"seed\": 0.5}", 400, "seed", NULL, "an integer"},
    {COMPLETE, "{\"prompt\": \"a\", \"logprobs\": -1}", 400, "logprobs", NULL, "from 0 to 20"},
    {COMPLETE, "{\"prompt\": \"a\", \"temperature\": \"hot\"}", 400, "temperature", NULL,
     "a number"},
    {COMPLETE, "{\"prompt\": \"a\", \"presence_penalty\": 2.5}", 400, "presence_penalty", NULL,
     "from -2 to 2"},
    {COMPLETE, "{\"prompt\": \"a\", \"logit_bias\": {\"512\": 1}}", 400, "logit_bias", NULL,
     "ids from 0 to 511"},
    {COMPLETE, "{\"prompt\": \"a\", \"logit_bias\": {\"a\": 1}}", 400, "logit_bias", NULL,
     "ids from 0 to 511"},
    {COMPLETE, "{\"prompt\": \"a\", \"logit_bias\": {\"5\": 101}}", 400, "logit_bias", NULL,
     "from -100 to 100"},
    {COMPLETE, "{\"prompt\": \"a\", \"logit_bias\": []}", 400, "logit_bias", NULL, "an object"},
    {COMPLETE, "{\"prompt\": \"a\", \"min_tokens\": 17}", 400, "min_tokens", NULL, "at most 16"},
    {COMPLETE, "{\"prompt\": \"a\", \"prompt_logprobs\": -1}", 400, "prompt_logprobs", NULL,
     "from 0 to 20"},
    {COMPLETE, "{\"prompt\": \"a\", \"prompt_logprobs\": 1, \"stream\": true}", 400,
     "prompt_logprobs", NULL, "a stream has none"},
    {COMPLETE, "{\"prompt\": \"a\", \"tempersture\": 1}", 400, "tempersture", NULL,
     "did you mean temperature?"},
    {COMPLETE, "{\"prompt\": \"a\", \"messages\": []}", 400, "messages", NULL, "no such key"},
    {COMPLETE, "{\"prompt\": \"a\", \"n_predict\": 4}", 400, "n_predict", NULL,
     "no such key; write max_tokens"},
    {COMPLETE, "{\"prompt\": \"a\", \"extra_body\": {\"top_k\": 4}}", 400, "extra_body", NULL,
     "write the keys in it, one by one"},
    {COMPLETE, "{\"prompt\": \"a\", \"stop\": \"\"}", 400, "stop", NULL, "not empty"},
    {COMPLETE, "{\"prompt\": \"a\", \"stop_token_ids\": [-1]}", 400, "stop_token_ids", NULL, "ids"},
    {COMPLETE, "{\"prompt\": \"a\", \"model\": \"gpt\"}", 404, "model", "model_not_found",
     "available: llama"},
    {COMPLETE, "{\"prompt\": \"a\", \"max_tokens\": 255}", 400, "max_tokens",
     "context_length_exceeded", "the context has 256 tokens, but the prompt has 2"},
    {CHAT, "{\"messages\": []}", 400, "messages", NULL, "not an empty one"},
    {CHAT, "{\"messages\": [" USER ", {\"role\": \"robot\", \"content\": \"\"}]}", 400,
     "messages[1].role", NULL, "expected system"},
    {CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}", 400,
     "messages[0].content", NULL, "not image_url"},
    {CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": null}]}", 400, "messages[0].content",
     NULL, "expected text"},
    {CHAT, "{\"messages\": [" USER "], \"tools\": [{}]}", 400, "tools[0]", NULL, "\"function\""},
    {CHAT,
     "{\"messages\": [" USER "], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": "
     "\"f\"}}]}",
     400, "tools", NULL, "the chat template"},
    {CHAT, "{\"messages\": [" USER "], \"tool_choice\": \"required\"}", 400, "tool_choice", NULL,
     "needs tools"},
    {CHAT, "{\"messages\": [" USER "], \"response_format\": {\"type\": \"xml\"}}", 400,
     "response_format", NULL, "json_object"},
    {CHAT,
     "{\"messages\": [" USER "], \"continue_final_message\": true, \"add_generation_prompt\": "
     "true}",
     400, "continue_final_message", NULL, "add_generation_prompt"},
    {CHAT, "{\"messages\": [" USER "], \"chat_template_kwargs\": []}", 400, "chat_template_kwargs",
     NULL, "an object"},
    {CHAT, "{\"messages\": [" USER "], \"top_logprobs\": 1}", 400, "top_logprobs", NULL,
     "logprobs"},
    {CHAT, "{\"messages\": [" USER "], \"logprobs\": true, \"top_logprobs\": 21}", 400,
     "top_logprobs", NULL, "from 0 to 20"},
    {CHAT, "{\"messages\": [" USER "], \"max_completion_tokens\": 0}", 400, "max_completion_tokens",
     NULL, "from 1 to"},
    {CHAT, "{\"messages\": [" USER "], \"max_tokens\": 0}", 400, "max_tokens", NULL, "1 or more"},
    {CHAT, "{\"messages\": [" USER "], \"prompt\": \"a\"}", 400, "prompt", NULL, "no such key"},
    {"/tokenize", "{}", 400, "prompt", NULL, "either prompt or messages"},
    {"/tokenize", "{\"prompt\": \"a\", \"add_special_tokens\": \"no\"}", 400, "add_special_tokens",
     NULL, "true or false"},
    {"/tokenize", "{\"prompt\": \"a\", \"add_specail_tokens\": false}", 400, "add_specail_tokens",
     NULL, "did you mean add_special_tokens?"},
    {"/tokenize", "{\"messages\": [" USER "], \"chat_template\": \"x\"}", 400, "chat_template",
     NULL, "not supported yet"},
    {"/tokenize", "{\"prompt\": \"a\", \"return_token_strs\": true}", 400, "return_token_strs",
     NULL, "other than false"},
    {"/detokenize", "{\"tokens\": [1], \"prompt\": \"a\"}", 400, "prompt", NULL, "no such key"},
    {"/detokenize", "{\"tokens\": 5}", 400, "tokens", NULL, "a list"},
    {"/detokenize", "{\"tokens\": [512]}", 400, "tokens", NULL, "ids from 0 to 511"},
    {"/v1/embeddings", "{}", 404, NULL, NULL, "no route"},
    /* cut within a character, and bytes that are none */
    {COMPLETE, "{\"prompt\": \"a\", \"" E24 "\": 1}", 400,
     E8 E8 "\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\uFFFD", NULL, "no such key"},
    {CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"a" E24 "\"}]}]}", 400,
     "messages[0].content", NULL, "only parts of type text"},
    {COMPLETE, "{\"prompt\": \"a\", \"structured_outputs\": {\"a" E24 "\": 1}}", 400,
     "structured_outputs", NULL, "not supported yet"},
    {"/%FF", "{}", 404, NULL, NULL, "no route POST /\uFFFD"},
};

static void requests(void **state) {
    (void)state;
    struct server s;
    struct client c;
    serve_open(&s, model, "");
    client_open(&c, &s);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) { /* on one connection */
        const int status = ask(&c, "POST", wrong[i].path, wrong[i].body);
        json_t *v = client_json(&c);
        const char *param = json_string_value(at(v, "error.param")),
                   *code = json_string_value(at(v, "error.code"));
        if (status != wrong[i].status || !strstr(text_at(v, "error.message"), wrong[i].says) ||
            strcmp(param ? param : "", wrong[i].param ? wrong[i].param : "") != 0 ||
            strcmp(code ? code : "", wrong[i].code ? wrong[i].code : "") != 0)
            fail_msg("%s: %d %s", wrong[i].body, status, c.body.data);
        json_decref(v);
    }
    /* what says nothing is no mistake */
    assert_int_equal(
        ask(&c, "POST", CHAT,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\", \"name\": null}], "
            "\"max_tokens\": 1, \"presence_penalty\": 0, \"top_logprobs\": 0, \"logit_bias\": {}, "
            "\"tools\": "
            "null, \"response_format\": {\"type\": \"text\"}, \"user\": \"me\", \"n\": "
            "null, \"stop\": null}"),
        200);
    assert_int_equal(ask(&c, "GET", CHAT, NULL), 405);
    assert_string_equal(client_header(&c, "Allow"), "POST");
    assert_int_equal(ask(&c, "OPTIONS", CHAT, NULL), 405);
    client_send(&c, "HEAD", "/health", NULL);
    assert_int_equal(client_head(&c), 200);
    client_close(&c);
    serve_close(&s);
}

/* ---- transport ---- */

static int send_text(const struct server *s, const char *text, struct client *c) {
    client_open(c, s);
    client_write(c, text, strlen(text));
    return client_answer(c);
}

static void transport(void **state) {
    (void)state;
    struct server s;
    struct client c;
    serve_open(&s, model, "");
    assert_int_equal(send_text(&s,
                               "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                               "text/plain\r\nContent-Length: 2\r\n\r\n{}",
                               &c),
                     415);
    client_close(&c);
    assert_int_equal(send_text(&s,
                               "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                               "application/json\r\nContent-Length: 67108865\r\n\r\n",
                               &c),
                     413);
    client_close(&c);
    assert_int_equal(send_text(&s,
                               "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                               "application/json; charset=utf-8\r\nTransfer-Encoding: "
                               "chunked\r\nExpect: 100-continue\r\n\r\n"
                               "d\r\n{\"prompt\": \"a\r\n13\r\n\", \"max_tokens\": 1}\r\n0\r\n\r\n",
                               &c),
                     200);
    client_close(&c);
    client_open(&c, &s); /* half requests, and none, in the way of nobody */
    client_write(&c, "POST /v1/compl", 14);
    struct client idle[50];
    for (int i = 0; i < 50; i++)
        client_open(&idle[i], &s);
    json_decref(post(&s, COMPLETE, "{\"prompt\": \"a\", \"max_tokens\": 1}"));
    for (int i = 0; i < 50; i++)
        client_close(&idle[i]);
    client_close(&c);
    static const struct {
        const char *host;
        int status;
    } hosts[] = {
        {"localhost", 200},         {"LOCALHOST:8000", 200},    {"127.0.0.1:1", 200},
        {"[::1]:80", 200},          {"evil.example", 403},      {"localhost.evil.example", 403},
        {"localhost:80.evil", 403}, {"127.0.0.1.evil:80", 403}, {"", 403}};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        char text[128];
        snprintf(text, sizeof text, "GET /health HTTP/1.1\r\nHost: %s\r\n\r\n", hosts[i].host);
        if (send_text(&s, text, &c) != hosts[i].status)
            fail_msg("%s: %s", hosts[i].host, c.body.data);
        client_close(&c);
    }
    assert_int_equal(send_text(&s, "GET /health HTTP/9.x\r\n\r\n", &c), 400);
    client_close(&c);
    /* a body of 70 MB in chunks: read to its end, and not kept */
    static char piece[1 << 20];
    memset(piece, ' ', sizeof piece);
    client_open(&c, &s);
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                               "application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    client_write(&c, head, sizeof head - 1);
    for (int i = 0; i < 70; i++) {
        client_write(&c, "100000\r\n", 8);
        client_write(&c, piece, sizeof piece);
        client_write(&c, "\r\n", 2);
    }
    client_write(&c, "0\r\n\r\n", 5);
    assert_int_equal(client_answer(&c), 413);
    client_close(&c);
    serve_close(&s);
}

static void keys(void **state) {
    (void)state;
    struct server s;
    struct client c;
    char words[300];
    snprintf(words, sizeof words, "--api-key-file %s", put_text("key", "sk-secret\n"));
    serve_open(&s, model, words);
    assert_int_equal(send_text(&s, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", &c), 200);
    client_close(&c);
    static const struct {
        const char *header;
        int status;
    } tries[] = {{"", 401},
                 {"Authorization: Bearer sk-secre\r\n", 401},
                 {"Authorization: Bearer sk-secrets\r\n", 401},
                 {"Authorization: Bearer \r\n", 401},
                 {"Authorization: sk-secret\r\n", 401},
                 {"Authorization: Bearer sk-secret\r\n", 200}};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        char text[256];
        snprintf(text, sizeof text, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
                 tries[i].header);
        assert_int_equal(send_text(&s, text, &c), tries[i].status);
        client_close(&c);
    }
    assert_null(strstr(server_said(&s), "sk-secret"));
    serve_close(&s);
}

/* ---- starting ---- */

static void refuses_to_start(const char *folder, const char *words, int code, const char *says) {
    struct server s;
    serve_start(&s, folder, words);
    assert_int_equal(serve_wait(&s, 60), code);
    if (!strstr(server_said(&s), says) || strstr(server_said(&s), " url="))
        fail_msg("\"%s\" is not in: %s", says, server_said(&s));
}

static void starting(void **state) {
    (void)state;
    struct server s;
    char words[300];
    snprintf(words, sizeof words, "%s/", model);
    serve_open(&s, words, "");
    struct client c;
    client_open(&c, &s);
    assert_int_equal(ask(&c, "GET", "/v1/models/llama", NULL), 200); /* the last part */
    client_close(&c);
    snprintf(words, sizeof words, "--port %d", s.port);
    refuses_to_start(model, words, 1, "Address already in use. Choose another --port");
    serve_close(&s);
    refuses_to_start(model, "--name=", 2, "the name of a served model");
    refuses_to_start(model, "--host 0.0.0.0", 2, "give --api-key-file FILE");
    refuses_to_start(model, "--host no.such.host.invalid", 2, "--host no.such.host.invalid: ");
    refuses_to_start(model, "--context 300", 2, "the model has only 256 positions");
    snprintf(words, sizeof words, "--api-key-file %s", put_text("bad", "two words\n"));
    refuses_to_start(model, words, 2, "expected one line with a key");
    refuses_to_start(model, "--api-key-file /no/such/file", 1, "/no/such/file");
    make_folder("empty");
    put_text("empty/config.json", "{}");
    refuses_to_start(in_scratch("empty"), "", 3, "");
    make_long_model();
    char tokenizer[300], moved[300];
    snprintf(tokenizer, sizeof tokenizer, "%s", in_scratch("m/tokenizer.json"));
    snprintf(moved, sizeof moved, "%s", in_scratch("tokenizer.json"));
    assert_int_equal(rename(tokenizer, moved), 0);
    refuses_to_start(long_model, "", 3, "tokenizer");
    assert_int_equal(rename(moved, tokenizer), 0);
    char config[300];
    snprintf(config, sizeof config, "%s", in_scratch("m/config.json"));
    json_t *fields = json_load_file(config, 0, NULL), *one = json_deep_copy(fields);
    json_object_set_new(one, "max_position_embeddings", json_integer(1));
    assert_int_equal(json_dump_file(one, config, 0), 0);
    refuses_to_start(long_model, "", 2, "max_position_embeddings of its config.json is 1");
    assert_int_equal(json_dump_file(fields, config, 0), 0);
    json_decref(fields);
    json_decref(one);
}

/* ---- a tokenizer with more tokens than the model ---- */

/* The golden llama, with token 512 in its tokenizer, and ends that it has no logits of. */
static const char *put_larger_tokenizer(void) {
    static const char *const files[] = {"model.safetensors", "config.json",
                                        "tokenizer_config.json"};
    struct ax_json_doc doc;
    char from[1024], name[64], *text;
    size_t len;
    make_folder("larger");
    for (size_t i = 0; i < 3; i++) {
        snprintf(from, sizeof from, "%s/%s", model, files[i]);
        snprintf(name, sizeof name, "larger/%s", files[i]);
        char *real = realpath(from, NULL);
        assert_int_equal(symlink(real, in_scratch(name)), 0);
        free(real);
    }
    snprintf(from, sizeof from, "%s/tokenizer.json", model);
    assert_int_equal(ax_json_load(&doc, from, 1 << 22), AX_OK);
    json_array_append_new(json_object_get(doc.root, "added_tokens"),
                          json_pack("{si ss sb sb sb sb sb}", "id", 512, "content", "<|more|>",
                                    "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0,
                                    "special", 1));
    assert_int_equal(ax_json_dump(doc.root, &text, &len), AX_OK);
    put_bytes("larger/tokenizer.json", text, len);
    ax_free(text);
    ax_json_free(&doc);
    put_text("larger/generation_config.json", "{\"eos_token_id\": [511, 512, 2147483647]}");
    return in_scratch("larger");
}

/* A request with it is refused, and the server goes on. */
static void more_tokens(void **state) {
    (void)state;
    static const char *const wrong_texts[][2] = {
        {COMPLETE, "{\"prompt\": \"a<|more|>\"}"},
        {COMPLETE, "{\"prompt\": [\"a\", \"<|more|>\"]}"},
        {CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"<|more|>\"}]}"}};
    struct server s;
    struct client c;
    serve_open(&s, put_larger_tokenizer(), "");
    client_open(&c, &s);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ask(&c, "POST", wrong_texts[i][0], wrong_texts[i][1]), 400);
        json_t *v = client_json(&c);
        assert_non_null(strstr(text_at(v, "error.message"), "token 512 of a text"));
        json_decref(v);
    }
    client_close(&c);
    json_decref(post(&s, COMPLETE, "{\"prompt\": \"a\", \"max_tokens\": 4, \"min_tokens\": 2}"));
    json_t *v =
        post(&s, COMPLETE, "{\"prompt\": \"a\", \"max_tokens\": 4, \"guided_choice\": [\"b\"]}");
    assert_string_equal(text_at(v, "choices.0.text"), "b");
    json_decref(v);
    serve_close(&s);
}

/* ---- leaving, a full queue, stopping ---- */

static void wait_pending(const struct server *s, double n) {
    for (const double until = ax_clock_now() + 60; metric(s, "sequences_pending") != n; nap(0.01))
        if (ax_clock_now() > until)
            fail_msg("pending: %g, not %g", metric(s, "sequences_pending"), n);
}

#define LONG(stream)                                                                               \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"chat\"}], \"temperature\": 0, "           \
    "\"max_tokens\": 50000, \"stream\": " stream "}"

/* The lane of a client that closes its connection is free soon, not at the end of its answer. */
static void leaving(void **state) {
    (void)state;
    struct server s;
    struct client c;
    make_long_model();
    serve_open(&s, long_model, "--context 60000 --parallel 2 --queue 0");
    for (int stream = 0; stream < 2; stream++) {
        client_open(&c, &s);
        client_send(&c, "POST", CHAT, stream ? LONG("true") : LONG("false"));
        wait_pending(&s, 1);
        if (stream) {
            assert_int_equal(client_head(&c), 200);
            assert_true(client_chunk(&c) && client_chunk(&c));
        }
        client_close(&c);
        wait_pending(&s, 0);
    }
    assert_true(metric(&s, "sequences_left_total") == 2);
    assert_true(metric(&s, "generated_tokens_total") < 40000);
    /* two more are all there is room for */
    struct client two[2];
    for (int i = 0; i < 2; i++) {
        client_open(&two[i], &s);
        client_send(&two[i], "POST", CHAT, LONG("true"));
        assert_int_equal(client_head(&two[i]), 200);
    }
    client_open(&c, &s);
    assert_int_equal(ask(&c, "POST", COMPLETE, "{\"prompt\": \"a\"}"), 429);
    assert_string_equal(client_header(&c, "Retry-After"), "1");
    client_close(&two[0]);
    wait_pending(&s, 1);
    assert_int_equal(ask(&c, "POST", COMPLETE, "{\"prompt\": \"a\"}"), 200);
    client_close(&two[1]);
    wait_pending(&s, 0);
    /* one that is being answered is answered to its end, and another one refused */
    client_open(&two[0], &s);
    client_send(
        &two[0], "POST", COMPLETE,
        "{\"prompt\": \"chat\", \"max_tokens\": 1500, \"temperature\": 0, \"stop\": \"never "
        "to be found\"}");
    wait_pending(&s, 1);
    assert_int_equal(kill(s.pid, SIGTERM), 0);
    while (!strstr(server_said(&s), "stopping"))
        nap(0.005);
    assert_int_equal(ask(&c, "POST", COMPLETE, "{\"prompt\": \"a\"}"), 503);
    assert_int_equal(client_answer(&two[0]), 200);
    json_t *v = client_json(&two[0]);
    assert_int_equal(json_integer_value(at(v, "usage.completion_tokens")), 1500);
    json_decref(v);
    client_close(&two[0]);
    client_close(&c);
    assert_int_equal(serve_wait(&s, 60), 0);
}

/* What takes longer than a server that ends gives is cut, streamed or not. */
static void cut(void **state) {
    (void)state;
    static const char body[] =
        "{\"prompt\": \"chat\", \"max_tokens\": 100000, \"ignore_eos\": true, "
        "\"stream\": %s}";
    struct server s;
    struct client c[2];
    make_long_model();
    serve_open(&s, long_model,
               "--parallel 2 --context 110000 --cache-tokens 220000 --stop-seconds 1");
    for (int i = 0; i < 2; i++) {
        char text[200];
        snprintf(text, sizeof text, body, i == 0 ? "true" : "false");
        client_open(&c[i], &s);
        client_send(&c[i], "POST", COMPLETE, text);
    }
    wait_pending(&s, 2);
    assert_int_equal(kill(s.pid, SIGTERM), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(client_answer(&c[i]), 200);
        assert_non_null(strstr(c[i].body.data, "\"finish_reason\":\"abort\""));
        assert_true(i == 1 || strstr(c[i].body.data, "data: [DONE]"));
        client_close(&c[i]);
    }
    assert_int_equal(serve_wait(&s, 60), 0);
    assert_non_null(strstr(server_said(&s), "may go on for 1 seconds"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests),    cmocka_unit_test(transport), cmocka_unit_test(keys),
        cmocka_unit_test(starting),    cmocka_unit_test(leaving),   cmocka_unit_test(cut),
        cmocka_unit_test(more_tokens),
    };
    return cmocka_run_group_tests(tests, setup, scratch_remove);
}
