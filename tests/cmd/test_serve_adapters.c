/* `axtrain serve --adapter`: each adapter is a model, and its answers are those of `axtrain generate` with it,
 * whichever others are asked at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "tests/cmd/program_case.h"
#include "tests/cmd/serve_case.h"

#define COMPLETE "/v1/completions"
#define ADAPTERS 3
#define MODELS   (ADAPTERS + 1)

/* The first is the base. */
static const char *const names[MODELS] = {"llama", "llama_r4", "two", "rs"};
static const char *const folders[MODELS] = {NULL, "llama_r4", "llama_r4_dora", "llama_r4_rslora"};
static struct server server;
static char options[2000];

static int open_server(void **state) {
    size_t n = 0;
    if (setup(state) != 0)
        return -1;
    for (int i = 1; i < MODELS; i++) {
        char path[64];
        snprintf(path, sizeof path, "lora/%s", folders[i]);
        n += (size_t)snprintf(options + n, sizeof options - n, " --adapter %s%s%s",
                              i > 1 ? names[i] : "", i > 1 ? "=" : "", golden_path(path));
    }
    char words[2100];
    snprintf(words, sizeof words, "--parallel 5%s", options);
    serve_open(&server, model, words);
    return 0;
}

static int close_server(void **state) {
    serve_close(&server);
    return scratch_remove(state);
}

static void each_is_a_model(void **state) {
    (void)state;
    struct client c;
    client_open(&c, &server);
    assert_int_equal(ask(&c, "GET", "/v1/models", NULL), 200);
    json_t *v = client_json(&c);
    assert_int_equal(json_array_size(at(v, "data")), MODELS);
    for (size_t i = 0; i < MODELS; i++) {
        const json_t *m = json_array_get(at(v, "data"), i);
        assert_string_equal(text_at(m, "id"), names[i]);
        if (i == 0)
            assert_true(json_is_null(at(m, "parent")));
        else
            assert_string_equal(text_at(m, "parent"), "llama");
    }
    json_decref(v);
    assert_int_equal(ask(&c, "GET", "/v1/models/two", NULL), 200);
    v = client_json(&c);
    assert_string_equal(text_at(v, "id"), "two");
    json_decref(v);
    assert_int_equal(ask(&c, "POST", COMPLETE, "{\"model\": \"three\", \"prompt\": \"a\"}"), 404);
    v = client_json(&c);
    assert_string_equal(text_at(v, "error.code"), "model_not_found");
    assert_non_null(strstr(text_at(v, "error.message"), "llama, llama_r4, two, rs"));
    json_decref(v);
    client_close(&c);
}

/* ---- the tokens of `axtrain generate` ---- */

#define KINDS  2  /* greedy and seeded */
#define LENGTH 40 /* tokens, of several turns of an adapter */

static const struct {
    const char *options, *keys;
} kinds[KINDS] = {{"", "\"temperature\": 0"},
                  {"--temperature 0.9 --seed 3", "\"temperature\": 0.9, \"seed\": 3"}};
#define PROMPT "The trains of the two lines went on through the night"

static json_t *wanted[MODELS][KINDS]; /* texts */

static void generate(int m, int k) {
    static char said[1 << 14];
    char adapter[600] = "", path[64];
    if (folders[m]) {
        snprintf(path, sizeof path, "lora/%s", folders[m]);
        snprintf(adapter, sizeof adapter, "--adapter %s", golden_path(path));
    }
    if (run(said, sizeof said,
            "generate %s %s --dtype float32 --json --prompt '" PROMPT "' --max-new-tokens %d %s "
            "2>/dev/null",
            model, adapter, LENGTH, kinds[k].options) != 0)
        fail_msg("%s", said);
    const char *line = strstr(said, "{\""); /* behind the log */
    json_t *row = json_loads(line ? line : "", JSON_DISABLE_EOF_CHECK, NULL);
    wanted[m][k] = json_incref(at(row, "text"));
    json_decref(row);
}

/* A client that asks each model in turn, from a model of its own on. */
struct asker {
    pthread_t thread;
    int number, wrong;
};

static void *ask_all(void *arg) {
    struct asker *a = arg;
    for (int i = 0; i < MODELS * KINDS; i++) {
        const int m = (a->number + i) % MODELS, k = (a->number / 2 + i / MODELS) % KINDS;
        char body[512];
        snprintf(body, sizeof body,
                 "{\"model\": \"%s\", \"prompt\": \"" PROMPT "\", \"max_tokens\": %d, %s}",
                 names[m], LENGTH, kinds[k].keys);
        json_t *v = post(&server, COMPLETE, body);
        a->wrong += !json_equal(at(v, "choices.0.text"), wanted[m][k]) ||
                    strcmp(text_at(v, "model"), names[m]) != 0;
        json_decref(v);
    }
    return NULL;
}

static void as_generate(void **state) {
    (void)state;
    static struct asker askers[2 * MODELS];
    for (int m = 0; m < MODELS; m++)
        for (int k = 0; k < KINDS; k++) {
            generate(m, k);
            for (int other = 0; other < m; other++)
                assert_false(json_equal(wanted[m][k], wanted[other][k]));
        }
    ask_all(&askers[0]); /* one after the other, of which each finds the last one's prompt */
    assert_int_equal(askers[0].wrong, 0);
    for (int i = 0; i < 2 * MODELS; i++) {
        askers[i].number = i;
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_all, &askers[i]), 0);
    }
    for (int i = 0; i < 2 * MODELS; i++) {
        pthread_join(askers[i].thread, NULL);
        assert_int_equal(askers[i].wrong, 0);
    }
    for (int m = 0; m < MODELS; m++)
        for (int k = 0; k < KINDS; k++)
            json_decref(wanted[m][k]);
}

/* A long answer of one adapter does not hold up another's. */
static void in_turn(void **state) {
    (void)state;
    struct server s;
    struct client c;
    char words[2100];
    make_long_model();
    snprintf(words, sizeof words, "--parallel 2 --context 100000 --cache-tokens 100000%s", options);
    serve_open(&s, long_model, words);
    client_open(&c, &s);
    client_send(
        &c, "POST", COMPLETE,
        "{\"model\": \"two\", \"prompt\": \"a\", \"max_tokens\": 90000, \"ignore_eos\": true, "
        "\"stream\": true}");
    assert_int_equal(client_head(&c), 200);
    assert_true(client_chunk(&c));
    json_t *v = post(&s, COMPLETE,
                     "{\"model\": \"rs\", \"prompt\": \"a\", \"max_tokens\": 50, \"ignore_eos\": "
                     "true}");
    assert_int_equal(json_integer_value(at(v, "usage.completion_tokens")), 50);
    json_decref(v);
    assert_true(metric(&s, "sequences_pending") == 1);
    client_close(&c);
    serve_close(&s);
}

/* ---- what is refused ---- */

/* All before the port, which is in use. */
static void refused(const char *words, const char *why) {
    struct server s;
    char all[2200];
    snprintf(all, sizeof all, "--port %d %s", server.port, words);
    serve_start(&s, model, all);
    const int code = serve_wait(&s, 60);
    if (code == 0 || !strstr(server_said(&s), why))
        fail_msg("exit code %d: %s", code, server_said(&s));
}

/* The folder of llama_r4 with another text in place of one of its config's. */
static const char *altered(const char *name, const char *from, const char *to) {
    char path[512], *text, *found;
    size_t len;
    struct ax_buf other = {0};
    make_folder(name);
    snprintf(path, sizeof path, "%s", golden_path("lora/llama_r4/adapter_model.safetensors"));
    char *real = realpath(path, NULL), link[64];
    snprintf(link, sizeof link, "%s/adapter_model.safetensors", name);
    assert_int_equal(symlink(real, in_scratch(link)), 0);
    free(real);
    assert_int_equal(
        ax_read_file(golden_path("lora/llama_r4/adapter_config.json"), 1 << 16, &text, &len),
        AX_OK);
    assert_non_null(found = strstr(text, from));
    assert_int_equal(
        ax_buf_printf(&other, "%.*s%s%s", (int)(found - text), text, to, found + strlen(from)),
        AX_OK);
    snprintf(link, sizeof link, "%s/adapter_config.json", name);
    put_bytes(link, other.data, other.len);
    ax_buf_free(&other);
    ax_free(text);
    return in_scratch(name);
}

static void bad_adapters(void **state) {
    (void)state;
    char words[1500];
    const char *good = golden_path("lora/llama_r4");
    snprintf(words, sizeof words, "--adapter a=%s", altered("rank", "\"r\": 4", "\"r\": 8"));
    refused(words, "has rank 4, but adapter_config.json says 8");
    snprintf(words, sizeof words, "--adapter a=%s", altered("fewer", "\"q_proj\",", ""));
    refused(words, "unexpected tensor");
    snprintf(words, sizeof words, "--adapter a=%s --adapter a=%s", good, good);
    refused(words, "is also named \"a\"");
    snprintf(words, sizeof words, "--adapter llama=%s", good);
    refused(words, "two models are named \"llama\"");
    refused("--adapter a=/nowhere", "/nowhere");
    snprintf(words, sizeof words, "--adapter a=%s", good);
    refused(words, "in use"); /* nothing else is wrong */
}

/* The folder of an adapter as MODEL: it is the only one, of the base that it names. */
static void the_folder_of_an_adapter(void **state) {
    (void)state;
    struct server s;
    struct client c;
    serve_open(&s, altered("only", "../../models/llama", model), "--parallel 1");
    client_open(&c, &s);
    assert_int_equal(ask(&c, "GET", "/v1/models", NULL), 200);
    json_t *v = client_json(&c);
    assert_int_equal(json_array_size(at(v, "data")), 1);
    assert_string_equal(text_at(v, "data.0.id"), "only");
    assert_true(json_is_null(at(v, "data.0.parent")));
    json_decref(v);
    client_close(&c);
    char body[512];
    snprintf(body, sizeof body, "{\"prompt\": \"" PROMPT "\", \"max_tokens\": %d, %s}", LENGTH,
             kinds[0].keys);
    generate(1, 0);
    v = post(&s, COMPLETE, body);
    assert_true(json_equal(at(v, "choices.0.text"), wanted[1][0]));
    json_decref(v);
    json_decref(wanted[1][0]);
    serve_close(&s);
}

/* An adapter of a model of another shape. */
static void another_base(void **state) {
    (void)state;
    struct server s;
    char words[1500];
    snprintf(words, sizeof words, "--port %d --adapter a=%s", server.port,
             golden_path("lora/llama_r4"));
    char other[600];
    snprintf(other, sizeof other, "%s", golden_path("models/qwen3"));
    serve_start(&s, other, words);
    assert_int_not_equal(serve_wait(&s, 60), 0);
    if (!strstr(server_said(&s), "the adapter is for another model"))
        fail_msg("%s", server_said(&s));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_a_model),
        cmocka_unit_test(as_generate),
        cmocka_unit_test(in_turn),
        cmocka_unit_test(bad_adapters),
        cmocka_unit_test(the_folder_of_an_adapter),
        cmocka_unit_test(another_base),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
