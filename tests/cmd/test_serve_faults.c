/* `axtrain serve` where something goes wrong: the engine ends, a log cannot be written, hundreds of connections say
 * nothing, numbers are infinite; and many requests in a row take no more memory than a few. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cmd/serve/serve.h"
#include "model/core/adapters.h"
#include "tests/cmd/serve_case.h"

#define CHAT     "/v1/chat/completions"
#define COMPLETE "/v1/completions"
#define HELLO    "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"stream\": "

/* ---- a server whose engine computes nothing, as in a prompt without end ---- */

struct silent {
    struct ax_serve serve;
    struct ax_text_side side;
    struct ax_arg_list stop;
    struct server at;
};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void silent_open(struct silent *s) {
    struct ax_serve_options o = AX_SERVE_OPTIONS;
    memset(s, 0, sizeof *s);
    o.port = 0;
    o.most = 8;
    must(ax_text_side_open(&s->side, model, model));
    must(ax_serve_init(&s->serve));
    must(ax_serve_listen(&s->serve, &o));
    const struct ax_serve_model m = {.name = "silent",
                                     .adapter = AX_ADAPTER_NONE,
                                     .side = &s->side,
                                     .context = 256,
                                     .vocab_size = 512,
                                     .sampling = {.temperature = 1, .repetition_penalty = 1},
                                     .stop = &s->stop};
    must(ax_serve_models_add(&s->serve.engine.models, &m));
    must(ax_serve_start(&s->serve));
    s->serve.engine.ping_seconds = 0.3;
    s->at.port = ax_http_port(s->serve.http);
}

static void silent_close(struct silent *s) {
    ax_serve_close(&s->serve);
    ax_text_side_close(&s->side);
}

static void loading(void **state) {
    (void)state;
    static struct silent s;
    struct client c;
    silent_open(&s);
    client_open(&c, &s.at);
    assert_int_equal(ask(&c, "GET", "/health", NULL), 503);
    assert_string_equal(client_header(&c, "Retry-After"), "1");
    assert_non_null(strstr(c.body.data, "the server is loading"));
    assert_int_equal(ask(&c, "POST", COMPLETE, "{\"prompt\": \"a\"}"), 503);
    client_close(&c);
    silent_close(&s);
}

/* A stream gets pings, then an error as an event, and its connection ends; another request a status. */
static void engine_ends(void **state) {
    (void)state;
    static struct silent s;
    struct client c, whole;
    silent_open(&s);
    s.serve.engine.state = AX_SERVE_READY;
    client_open(&c, &s.at);
    client_send(&c, "POST", CHAT, HELLO "true}");
    assert_int_equal(client_head(&c), 200);
    assert_true(client_chunk(&c));
    assert_non_null(strstr(c.body.data, "\"role\":\"assistant\""));
    client_open(&whole, &s.at);
    client_send(&whole, "POST", CHAT, HELLO "false}");
    for (int i = 0; i < 2; i++) {
        c.body.len = 0;
        assert_true(client_chunk(&c));
        assert_int_equal(c.body.len, 8);
        assert_memory_equal(c.body.data, ": ping\n\n", 8);
    }
    ax_serve_engine_end(&s.serve.engine);
    c.body.len = 0;
    assert_true(client_chunk(&c));
    static const char event[] = "data: {\"error\": {\"message\": \"the server is stopping\"";
    assert_memory_equal(c.body.data, event, sizeof event - 1);
    assert_false(client_chunk(&c));
    client_close(&c);
    assert_int_equal(client_answer(&whole), 503);
    client_close(&whole);
    silent_close(&s);
}

/* ---- infinite numbers ---- */

/* Where a tensor's values begin in a safetensors file. */
static size_t values_of(const char *file, const char *name) {
    uint64_t head;
    memcpy(&head, file, sizeof head);
    json_t *v = json_loadb(file + 8, (size_t)head, 0, NULL);
    const json_t *tensor = json_object_get(v, name);
    assert_string_equal(text_at(tensor, "dtype"), "F32");
    const size_t at =
        (size_t)json_integer_value(json_array_get(json_object_get(tensor, "data_offsets"), 0));
    json_decref(v);
    return 8 + (size_t)head + at;
}

/* The model with a token whose logit is endlessly large or small: which depends on the sign. */
static const char *make_endless(const char *name, float sign) {
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};
    char from[700], path[64], *text;
    size_t len;
    make_folder(name);
    for (size_t i = 0; i < 3; i++) {
        snprintf(from, sizeof from, "%s/%s", model, files[i]);
        snprintf(path, sizeof path, "%s/%s", name, files[i]);
        assert_int_equal(ax_read_file(from, 1 << 24, &text, &len), AX_OK);
        put_bytes(path, text, len);
        ax_free(text);
    }
    snprintf(from, sizeof from, "%s/model.safetensors", model);
    assert_int_equal(ax_read_file(from, 1 << 28, &text, &len), AX_OK);
    struct ax_json_doc config;
    snprintf(path, sizeof path, "%s/config.json", name);
    assert_int_equal(ax_json_load(&config, in_scratch(path), 1 << 20), AX_OK);
    const size_t width = (size_t)json_integer_value(at(config.root, "hidden_size"));
    ax_json_free(&config);
    const float large = 1e4F, huge = sign * 3e38F;
    memcpy(text + values_of(text, "model.norm.weight"), &large, sizeof large);
    char *row = text + values_of(text, "lm_head.weight") + 65 * width * sizeof(float);
    memset(row, 0, width * sizeof(float));
    memcpy(row, &huge, sizeof huge);
    snprintf(path, sizeof path, "%s/model.safetensors", name);
    put_bytes(path, text, len);
    ax_free(text);
    return in_scratch(name);
}

/* JSON has no −∞: a log-prob is then −9999. */
static void minus_infinity(void **state) {
    (void)state;
    int found = 0;
    for (int i = 0; i < 2; i++) {
        struct server s;
        struct client c;
        serve_open(&s, make_endless(i ? "above" : "below", i ? 1.0F : -1.0F), "");
        client_open(&c, &s);
        if (ask(&c, "POST", COMPLETE,
                "{\"prompt\": [500, 65], \"max_tokens\": 0, \"echo\": true, \"logprobs\": 1, "
                "\"return_tokens_as_token_ids\": true}") == 200) {
            json_t *v = client_json(&c);
            found += json_number_value(at(v, "choices.0.logprobs.token_logprobs.1")) == -9999.0 &&
                     strstr(c.body.data, "-9999.0");
            json_decref(v);
        }
        assert_int_equal(ask(&c, "GET", "/health", NULL), 200);
        client_close(&c);
        serve_close(&s);
    }
    assert_int_equal(found, 1);
}

/* ---- logs, connections ---- */

static int free_port(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static bool answers(const struct server *s) {
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)s->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool connects = connect(fd, (const struct sockaddr *)&a, sizeof a) == 0;
    struct client c;
    close(fd);
    if (!connects)
        return false;
    client_open(&c, s);
    const bool healthy = ask(&c, "GET", "/health", NULL) == 200;
    client_close(&c);
    return healthy;
}

/* A log on a full disk is lost, and nothing else. */
static void full_log(void **state) {
    (void)state;
    struct server s = {.port = free_port(), .log = "/dev/null"};
    char command[2000];
    const char *bin = getenv("AX_TEST_BIN");
    snprintf(command, sizeof command,
             "exec %s serve %s --dtype float32 --port %d >/dev/full 2>/dev/full",
             bin ? bin : "build/axtrain", model, s.port);
    char *argv[] = {"sh", "-c", command, NULL};
    assert_int_equal(posix_spawnp(&s.pid, "sh", NULL, NULL, argv, environ), 0);
    for (const double until = ax_clock_now() + 60; !answers(&s); nap(0.02))
        assert_true(ax_clock_now() < until);
    json_decref(post(&s, COMPLETE, "{\"prompt\": \"a\", \"max_tokens\": 3}"));
    serve_close(&s);
}

#define MANY 500

/* Half requests, wrong ones and silence in the way of nobody. */
static void many_connections(void **state) {
    (void)state;
    static struct client idle[MANY];
    static const char *const said[] = {
        "", "POST /v1/comple", "GET /health HTTP/1.1\r\nHost: localhost\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nContent-Length: 100\r\n\r\n{\"prompt\""};
    struct server s;
    struct client c;
    serve_open(&s, model, "--parallel 2");
    for (int i = 0; i < MANY; i++) {
        client_open(&idle[i], &s);
        client_write(&idle[i], said[i % 4], strlen(said[i % 4]));
    }
    const double start = ax_clock_now();
    json_decref(post(&s, COMPLETE, "{\"prompt\": \"a\", \"max_tokens\": 5}"));
    assert_true(ax_clock_now() - start < 20);
    client_open(&c, &s);
    assert_int_equal(ask(&c, "POST", COMPLETE, "{\"prompt\": "), 400);
    client_close(&c);
    for (int i = 0; i < MANY; i++)
        client_close(&idle[i]);
    json_decref(post(&s, COMPLETE, "{\"prompt\": \"a\", \"max_tokens\": 5}"));
    serve_close(&s);
}

/* The key is in a file, so neither the command line nor the log has it. */
static void key_is_hidden(void **state) {
    (void)state;
    struct server s;
    struct client c;
    char words[300], path[64], *text;
    size_t len;
    snprintf(words, sizeof words, "--api-key-file %s", put_text("key", "sk-unseen\n"));
    serve_open(&s, model, words);
    client_open(&c, &s);
    static const char head[] = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"
                               "Authorization: Bearer sk-unseen-and-wrong\r\n\r\n";
    client_write(&c, head, sizeof head - 1);
    assert_int_equal(client_answer(&c), 401);
    assert_null(strstr(c.body.data, "sk-unseen"));
    client_close(&c);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", (int)s.pid, i ? "environ" : "cmdline");
        assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
        assert_null(memmem(text, len, "sk-unseen", 9));
        ax_free(text);
    }
    assert_null(strstr(server_said(&s), "sk-unseen"));
    serve_close(&s);
}

/* ---- memory ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MOST_KIB (1L << 20) /* what is freed is kept for a while */
#else
#define MOST_KIB 1024L
#endif

static long resident_kib(const struct server *s) {
    char path[64], *text;
    size_t len;
    snprintf(path, sizeof path, "/proc/%d/status", (int)s->pid);
    assert_int_equal(ax_read_file(path, 1 << 16, &text, &len), AX_OK);
    const char *line = strstr(text, "VmRSS:");
    assert_non_null(line);
    const long kib = strtol(line + 6, NULL, 10);
    ax_free(text);
    return kib;
}

static void ask_many(const struct server *s, int from, int n) {
    static const char *const more[] = {"", ", \"stream\": true", ", \"logprobs\": 2, \"n\": 2",
                                       ", \"stop\": [\"e\"], \"seed\": 1"};
    struct client c;
    client_open(&c, s);
    for (int i = from; i < from + n; i++) {
        char body[200];
        if (i % 50 == 0) { /* another connection, and so another thread */
            client_close(&c);
            client_open(&c, s);
        }
        snprintf(body, sizeof body, "{\"prompt\": \"train %d\", \"max_tokens\": 4%s}", i,
                 more[i % 4]);
        assert_int_equal(ask(&c, "POST", COMPLETE, body), 200);
    }
    client_close(&c);
}

static void constant_memory(void **state) {
    (void)state;
    struct server s;
    serve_open(&s, model, "--parallel 4");
    ask_many(&s, 0, 300);
    const long before = resident_kib(&s);
    ask_many(&s, 300, 1000);
    const long more = resident_kib(&s) - before;
    if (more > MOST_KIB)
        fail_msg("%ld KiB more after 1,000 requests, of %ld", more, before);
    serve_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading),          cmocka_unit_test(engine_ends),
        cmocka_unit_test(minus_infinity),   cmocka_unit_test(full_log),
        cmocka_unit_test(many_connections), cmocka_unit_test(key_is_hidden),
        cmocka_unit_test(constant_memory),
    };
    return cmocka_run_group_tests(tests, setup, scratch_remove);
}
