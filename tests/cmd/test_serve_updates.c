/* Adapters that clients load, replace and unload while `axtrain serve` answers: each answer is that of
 * `axtrain generate` with the version that was served when it was asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/program_case.h"
#include "tests/cmd/serve_case.h"

#define COMPLETE "/v1/completions"
#define LOAD     "/v1/load_lora_adapter"
#define UNLOAD   "/v1/unload_lora_adapter"
#define PROMPT   "The trains of the two lines went on through the night"
#define LENGTH   30
#define LONG     3000

static struct server server;
static char first[512], second[512]; /* folders of two adapters of one shape */

/* The first with larger numbers. */
static void make_second(void) {
    char *text;
    size_t len;
    uint64_t head;
    make_folder("second");
    snprintf(second, sizeof second, "%s", in_scratch("second"));
    assert_int_equal(
        ax_read_file(golden_path("lora/llama_r4/adapter_config.json"), 1 << 16, &text, &len),
        AX_OK);
    put_bytes("second/adapter_config.json", text, len);
    ax_free(text);
    assert_int_equal(
        ax_read_file(golden_path("lora/llama_r4/adapter_model.safetensors"), 1 << 24, &text, &len),
        AX_OK);
    memcpy(&head, text, sizeof head);
    for (size_t at = 8 + (size_t)head; at + 4 <= len; at += 4) {
        float x;
        memcpy(&x, text + at, sizeof x);
        x *= -1.5F * (float)(1 + at / 4 % 2);
        memcpy(text + at, &x, sizeof x);
    }
    put_bytes("second/adapter_model.safetensors", text, len);
    ax_free(text);
}

static int open_server(void **state) {
    char words[700];
    if (setup(state) != 0)
        return -1;
    make_second();
    snprintf(first, sizeof first, "%s", golden_path("lora/llama_r4"));
    make_long_model();
    snprintf(words, sizeof words,
             "--adapter %s --adapter-slots 2 --parallel 4 --context 8000 "
             "--cache-tokens 20000",
             first);
    serve_open(&server, long_model, words);
    return 0;
}

static int close_server(void **state) {
    serve_close(&server);
    return scratch_remove(state);
}

/* Text of `axtrain generate` with an adapter; free it. */
static json_t *generated(const char *adapter) {
    static char said[1 << 14];
    if (run(said, sizeof said,
            "generate %s --adapter %s --dtype float32 --json --prompt '" PROMPT
            "' --max-new-tokens %d 2>/dev/null",
            long_model, adapter, LENGTH) != 0)
        fail_msg("%s", said);
    const char *line = strstr(said, "{\"");
    json_t *row = json_loads(line ? line : "", JSON_DISABLE_EOF_CHECK, NULL);
    json_t *text = json_incref(at(row, "text"));
    json_decref(row);
    return text;
}

static json_t *answered(const char *name) {
    char body[512];
    snprintf(body, sizeof body,
             "{\"model\": \"%s\", \"prompt\": \"" PROMPT
             "\", \"max_tokens\": %d, \"temperature\": 0}",
             name, LENGTH);
    return post(&server, COMPLETE, body);
}

static void check_answer(const char *name, const char *adapter, bool fresh) {
    json_t *v = answered(name), *text = generated(adapter);
    if (!json_equal(at(v, "choices.0.text"), text))
        fail_msg("%s: \"%s\", not \"%s\"", name, text_at(v, "choices.0.text"),
                 json_string_value(text));
    assert_string_equal(text_at(v, "model"), name);
    const json_int_t cached =
        json_integer_value(at(v, "usage.prompt_tokens_details.cached_tokens"));
    assert_true(fresh ? cached == 0 : cached > 8);
    json_decref(v);
    json_decref(text);
}

static int update(const char *path, const char *body, struct client *c) {
    client_open(c, &server);
    const int status = ask(c, "POST", path, body);
    client_close(c);
    return status;
}

static int load(const char *name, const char *folder, bool replaces) {
    struct client c;
    char body[700];
    snprintf(body, sizeof body, "{\"lora_name\": \"%s\", \"lora_path\": \"%s\"%s}", name, folder,
             replaces ? ", \"load_inplace\": true" : "");
    return update(LOAD, body, &c);
}

static int unload(const char *name) {
    struct client c;
    char body[128];
    snprintf(body, sizeof body, "{\"lora_name\": \"%s\"}", name);
    return update(UNLOAD, body, &c);
}

static size_t count_models(void) {
    struct client c;
    client_open(&c, &server);
    assert_int_equal(ask(&c, "GET", "/v1/models", NULL), 200);
    json_t *v = client_json(&c);
    const size_t n = json_array_size(at(v, "data"));
    const json_t *last = json_array_get(at(v, "data"), n - 1);
    assert_string_equal(text_at(last, "parent"), "m");
    json_decref(v);
    client_close(&c);
    return n;
}

static void loaded_and_replaced(void **state) {
    (void)state;
    assert_int_equal(count_models(), 2);
    check_answer("llama_r4", first, true);
    assert_int_equal(load("new", second, false), 200);
    assert_int_equal(count_models(), 3);
    check_answer("new", second, true);
    check_answer("new", second, false);
    check_answer("llama_r4", first, false);
    assert_int_equal(load("new", first, false), 400); /* the name is taken */
    assert_int_equal(load("new", first, true), 200);
    check_answer("new", first, true); /* and shares nothing with the version before, */
    assert_int_equal(load("new", second, true), 200);
    check_answer("new", second, true);                     /* nor with the one whose place it has */
    assert_int_equal(load("llama_r4", second, true), 200); /* one from the command line */
    check_answer("llama_r4", second, true);
    assert_int_equal(load("llama_r4", first, true), 200);
    assert_int_equal(count_models(), 3);
    assert_int_equal(unload("new"), 200);
    assert_int_equal(count_models(), 2);
    assert_int_equal(unload("new"), 404);
}

/* ---- while in use ---- */

static void ask_long(struct client *c, const char *name) {
    char body[512];
    snprintf(body, sizeof body,
             "{\"model\": \"%s\", \"prompt\": \"" PROMPT "\", \"max_tokens\": %d, \"temperature\": "
             "0, \"ignore_eos\": true, \"stream\": true, \"return_token_ids\": true}",
             name, LONG);
    client_open(c, &server);
    client_send(c, "POST", COMPLETE, body);
    assert_int_equal(client_head(c), 200);
}

/* The rest of a stream: all of its ids. */
static json_t *read_ids(struct client *c) {
    json_t *ids = json_array();
    while (client_chunk(c))
        ;
    for (char *event = c->body.data; strncmp(event, "data: {", 7) == 0;) {
        char *end = strstr(event, "\n\n");
        json_t *v = json_loadb(event + 6, (size_t)(end - event - 6), JSON_ALLOW_NUL, NULL);
        json_array_extend(ids, at(v, "choices.0.token_ids"));
        json_decref(v);
        event = end + 2;
    }
    client_close(c);
    return ids;
}

static json_t *long_ids(const char *name) {
    struct client c;
    ask_long(&c, name);
    return read_ids(&c);
}

static void replaced_while_in_use(void **state) {
    (void)state;
    struct client c, other;
    assert_int_equal(load("x", first, false), 200);
    json_t *before = long_ids("x");
    ask_long(&c, "x");
    assert_true(client_chunk(&c));
    assert_int_equal(load("x", second, true), 200);
    check_answer("x", second, true);
    assert_true(metric(&server, "sequences_pending") == 1); /* it is still being answered */
    ask_long(&other, "x");
    assert_true(client_chunk(&other));
    assert_int_equal(load("y", first, false), 409); /* all places are in use */
    assert_int_equal(unload("x"), 200);
    char body[128];
    snprintf(body, sizeof body, "{\"model\": \"x\", \"prompt\": \"a\"}");
    assert_int_equal(update(COMPLETE, body, &(struct client){0}), 404);
    json_t *ids = read_ids(&c), *later = read_ids(&other);
    assert_int_equal(json_array_size(ids), LONG);
    assert_true(json_equal(ids, before));
    assert_int_equal(json_array_size(later), LONG);
    assert_false(json_equal(later, before));
    assert_int_equal(load("x", second, false), 200); /* there is room again */
    json_t *again = long_ids("x");
    assert_true(json_equal(again, later));
    assert_int_equal(unload("x"), 200);
    json_decref(again);
    json_decref(before);
    json_decref(later);
    json_decref(ids);
}

/* ---- what is refused ---- */

static void refused(void **state) {
    (void)state;
    struct client c;
    char shape[700], shortened[700];
    make_folder("short");
    char *text;
    size_t len;
    assert_int_equal(
        ax_read_file(golden_path("lora/llama_r4/adapter_config.json"), 1 << 16, &text, &len),
        AX_OK);
    put_bytes("short/adapter_config.json", text, len);
    ax_free(text);
    snprintf(shape, sizeof shape, "{\"lora_name\": \"a\", \"lora_path\": \"%s\"}",
             golden_path("lora/llama_r4_dora"));
    snprintf(shortened, sizeof shortened, "{\"lora_name\": \"a\", \"lora_path\": \"%s\"}",
             in_scratch("short"));
    const struct {
        const char *path, *body;
        int status;
        const char *says;
    } wrong[] = {
        {LOAD, "{", 400, "body"},
        {LOAD, "[]", 400, "lora_name"},
        {LOAD, "{\"lora_name\": \"\", \"lora_path\": \"a\"}", 400, "lora_name"},
        {LOAD, "{\"lora_name\": \"a\"}", 400, "lora_path"},
        {LOAD, "{\"lora_name\": \"a\", \"lora_path\": \"/no/such\"}", 400, "/no/such"},
        {LOAD, "{\"lora_name\": \"m\", \"lora_path\": \"a\", \"load_inplace\": true}", 400,
         "the server's own model"},
        {LOAD, "{\"lora_name\": \"a\", \"lora_path\": \"a\", \"load_inplace\": 1}", 400,
         "load_inplace"},
        {LOAD, "{\"lora_name\": \"a\", \"lora_int_id\": 1}", 400, "only lora_name"},
        {LOAD, shape, 400, "use_dora is not that of"},
        {LOAD, shortened, 400, "adapter_model.safetensors"},
        {UNLOAD, "{}", 400, "lora_name"},
        {UNLOAD, "{\"lora_name\": \"b\"}", 404, "there is no model"},
        {UNLOAD, "{\"lora_name\": \"m\"}", 400, "as long as the server runs"},
    };
    client_open(&c, &server);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const int status = ask(&c, "POST", wrong[i].path, wrong[i].body);
        if (status != wrong[i].status || !strstr(c.body.data, wrong[i].says))
            fail_msg("%s: %d %s", wrong[i].body, status, c.body.data);
    }
    client_close(&c);
    check_answer("llama_r4", first, true);
}

/* Values that do not fit are found on the way into the place: what is served stays as it is. */
static void does_not_fit(void **state) {
    (void)state;
    char *text, *at_name;
    size_t len;
    make_folder("other");
    assert_int_equal(
        ax_read_file(golden_path("lora/llama_r4/adapter_config.json"), 1 << 16, &text, &len),
        AX_OK);
    put_bytes("other/adapter_config.json", text, len);
    ax_free(text);
    assert_int_equal(
        ax_read_file(golden_path("lora/llama_r4/adapter_model.safetensors"), 1 << 24, &text, &len),
        AX_OK);
    assert_non_null(at_name = memmem(text, len, "layers.1.", 9));
    at_name[7] = '7';
    put_bytes("other/adapter_model.safetensors", text, len);
    ax_free(text);
    assert_int_equal(load("a", in_scratch("other"), false), 400);
    assert_int_equal(count_models(), 2);
    assert_int_equal(load("a", second, false), 200);
    check_answer("a", second, true);
    assert_int_equal(unload("a"), 200);
}

static void documented(void **state) {
    (void)state;
    assert_int_equal(
        run_documented(&server, "/v1/load_lora_adapter", "runs/sql", second, "\"loaded\""), 1);
    check_answer("sql", second, true);
    assert_int_equal(run_documented(&server, "/v1/unload_lora_adapter", "", "", "\"unloaded\""), 1);
    assert_int_equal(count_models(), 2);
}

static void without_places(void **state) {
    (void)state;
    struct server s;
    struct client c;
    serve_open(&s, model, "");
    client_open(&c, &s);
    assert_int_equal(ask(&c, "POST", LOAD, "{}"), 404);
    assert_non_null(strstr(c.body.data, "--adapter-slots N"));
    client_close(&c);
    serve_close(&s);
    serve_start(&s, model, "--adapter-slots 1");
    assert_int_equal(serve_wait(&s, 60), 2);
    assert_non_null(strstr(server_said(&s), "give one with --adapter"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loaded_and_replaced),
        cmocka_unit_test(replaced_while_in_use),
        cmocka_unit_test(refused),
        cmocka_unit_test(does_not_fit),
        cmocka_unit_test(documented),
        cmocka_unit_test(without_places),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
