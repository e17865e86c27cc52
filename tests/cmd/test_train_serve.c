/* serve: the weights in training answer between steps, each answer by one version of them; training is the same
 * as without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "tests/cmd/program_case.h"
#include "tests/cmd/serve_case.h"

#define COMPLETE "/v1/completions"
#define PROMPT   "say 3 and"

static char said[1 << 16];

static int make_data(void **state) {
    struct ax_buf rows = {0};
    if (setup(state) != 0)
        return -1;
    for (int i = 0; i < 8; i++)
        assert_int_equal(ax_buf_printf(&rows, "{\"text\": \"say %d and %d, no, no\"}\n", i, i * 7),
                         AX_OK);
    put_text("rows.jsonl", rows.data);
    ax_buf_free(&rows);
    return 0;
}

/* A configuration that trains on a file of rows and writes to a folder of this name; its path. */
static const char *configure(const char *name, const char *rows, const char *more) {
    static char path[256];
    char text[2048], file[64];
    snprintf(text, sizeof text,
             "base_model: %s\noutput_dir: %s/%s\ndatasets:\n  - path: %s/%s.jsonl\n%s"
             "sequence_len: 64\nfloat32: true\nlearning_rate: 1e-2\n"
             "micro_batch_size: 2\nnum_epochs: 99\nmax_steps: 40\nsave_steps: 1\n"
             "save_total_limit: 99\n%s",
             model, scratch, name, scratch, rows,
             strcmp(rows, "rows") == 0 ? "    type: completion\n" : "", more);
    snprintf(file, sizeof file, "%s.yaml", name);
    snprintf(path, sizeof path, "%s", put_text(file, text));
    return path;
}

static void start(struct server *s, const char *name, const char *rows, const char *more) {
    char words[600];
    snprintf(words, sizeof words, "train %s", configure(name, rows, more));
    server_start(s, words);
}

/* ---- clients ---- */

/* Like post, but false if there is no server any more. */
static bool try_post(const struct server *s, const char *body, json_t **out) {
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)s->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct client c = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    char head[256];
    bool answered = connect(c.fd, (const struct sockaddr *)&a, sizeof a) == 0;
    const int n = snprintf(head, sizeof head,
                           "POST " COMPLETE " HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                           "application/json\r\nContent-Length: %zu\r\n\r\n",
                           strlen(body));
    answered = answered && send(c.fd, head, (size_t)n, MSG_NOSIGNAL) == n &&
               send(c.fd, body, strlen(body), MSG_NOSIGNAL) == (ssize_t)strlen(body) &&
               client_more(&c);
    if (answered) {
        const int status = client_answer(&c);
        if (status != 200 && status != 503)
            fail_msg("%s", c.body.data);
        answered = status == 200;
    }
    *out = answered ? client_json(&c) : NULL;
    client_close(&c);
    return answered;
}

#define MOST_ANSWERS 4000

struct asker {
    pthread_t thread;
    const struct server *s;
    const char *keys;
    int n;
    struct answer {
        int64_t version;
        char text[256];
    } answers[MOST_ANSWERS];
};

/* Asks until the server has gone. */
static void *ask_on(void *arg) {
    struct asker *a = arg;
    char body[512];
    json_t *v;
    snprintf(body, sizeof body, "{\"prompt\": \"" PROMPT "\", \"max_tokens\": 8, %s}", a->keys);
    while (a->n < MOST_ANSWERS && try_post(a->s, body, &v)) {
        a->answers[a->n].version = json_integer_value(at(v, "weight_version"));
        snprintf(a->answers[a->n++].text, sizeof a->answers[0].text, "%s",
                 text_at(v, "choices.0.text"));
        json_decref(v);
    }
    return NULL;
}

/* What `axtrain generate` answers with the checkpoint of a step; free it. */
static char *generated(const char *name, bool adapter, int64_t step, const char *options) {
    char checkpoint[300], from[700];
    snprintf(checkpoint, sizeof checkpoint, "%s/%s/checkpoint-%lld", scratch, name,
             (long long)step);
    snprintf(from, sizeof from, "%s%s%s", adapter || step == 0 ? model : checkpoint,
             adapter && step > 0 ? " --adapter " : "", adapter && step > 0 ? checkpoint : "");
    if (run(said, sizeof said,
            "generate %s --dtype float32 --json --prompt '" PROMPT "' --max-new-tokens 8 %s", from,
            options) != 0)
        fail_msg("%s", said);
    const char *line = strstr(said, "{\"");
    json_t *row = json_loads(line ? line : "", JSON_DISABLE_EOF_CHECK, NULL);
    char *text = strdup(text_at(row, "text"));
    json_decref(row);
    return text;
}

#define KINDS 2
static const struct {
    const char *keys, *options;
} kinds[KINDS] = {{"\"temperature\": 0", ""},
                  {"\"seed\": 5, \"stream\": false", "--temperature 1 --seed 5"}};

/* The versions of an asker's answers rise, and some of them are compared with checkpoints. */
static void compare(const struct asker *a, const char *name, bool adapter, const char *options) {
    int versions = 0;
    int64_t last = -1;
    for (int i = 0; i < a->n; i++) {
        assert_true(a->answers[i].version >= last);
        if (a->answers[i].version == last)
            continue;
        last = a->answers[i].version;
        if (versions++ % 5 != 0)
            continue;
        char *text = generated(name, adapter, last, options);
        assert_string_equal(a->answers[i].text, text);
        free(text);
    }
    assert_true(versions >= 3 && last > 0);
}

static void answers_are_of_one_version(bool adapter, const char *name, const char *more) {
    static struct asker askers[KINDS];
    struct server s;
    char *texts[2];
    start(&s, name, "rows", more);
    server_find(&s);
    for (int k = 0; k < KINDS; k++) {
        askers[k] = (struct asker){.s = &s, .keys = kinds[k].keys};
        assert_int_equal(pthread_create(&askers[k].thread, NULL, ask_on, &askers[k]), 0);
    }
    for (int k = 0; k < KINDS; k++)
        pthread_join(askers[k].thread, NULL);
    if (serve_wait(&s, 60) != 0)
        fail_msg("%s", server_said(&s));
    for (int k = 0; k < KINDS; k++)
        compare(&askers[k], name, adapter, kinds[k].options);
    texts[0] = generated(name, adapter, 0, "");
    texts[1] = generated(name, adapter, 40, "");
    assert_string_not_equal(texts[0], texts[1]); /* it has learned something */
    free(texts[0]);
    free(texts[1]);
}

static void all_weights(void **state) {
    (void)state;
    answers_are_of_one_version(false, "full", "serve:\n  port: 0\n");
}

static void adapters(void **state) {
    (void)state;
    answers_are_of_one_version(true, "lora",
                               "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: "
                               "true\nserve:\n  port: 0\n  parallel: 1\n");
}

/* A run whose steps train on answers that it samples itself. */
static void beside_rollouts(void **state) {
    (void)state;
    struct ax_buf rows = {0};
    for (int i = 0; i < 20; i++)
        assert_int_equal(
            ax_buf_printf(&rows, "{\"prompt\": \"after %d?\", \"answer\": %d}\n", i, i + 1), AX_OK);
    put_text("prompts.jsonl", rows.data);
    ax_buf_free(&rows);
    char more[600];
    snprintf(more, sizeof more,
             "rl: grpo\ntrl:\n  num_generations: 2\n  max_completion_length: 10\n"
             "  reward_funcs: ['format:e']\nserve:\n  port: 0\n");
    static struct asker asker;
    struct server s;
    start(&s, "rollouts", "prompts", more);
    server_find(&s);
    asker = (struct asker){.s = &s, .keys = kinds[1].keys};
    ask_on(&asker);
    if (serve_wait(&s, 60) != 0)
        fail_msg("%s", server_said(&s));
    compare(&asker, "rollouts", false, kinds[1].options);
}

/* The run that answered all along has the weights of one that did not. */
static void training_is_the_same(void **state) {
    (void)state;
    char *x, *y;
    size_t n, m;
    if (run(said, sizeof said, "train %s", configure("alone", "rows", "")) != 0)
        fail_msg("%s", said);
    assert_int_equal(ax_read_file(in_scratch("alone/model.safetensors"), 1 << 26, &x, &n), AX_OK);
    assert_int_equal(ax_read_file(in_scratch("full/model.safetensors"), 1 << 26, &y, &m), AX_OK);
    assert_true(n == m && memcmp(x, y, n) == 0);
    ax_free(x);
    ax_free(y);
}

/* ---- faults ---- */

/* Half a request, a client that leaves while it waits, and one that leaves in the middle of an answer: others are
 * answered, and the run ends as ever. */
static void clients_that_go(void **state) {
    (void)state;
    struct server s;
    struct client half, leaves;
    start(&s, "faults", "rows", "serve:\n  port: 0\n  name: mine\n");
    server_find(&s);
    client_open(&half, &s);
    client_write(&half, "POST " COMPLETE " HTTP/1.1\r\nContent-Le", 40);
    for (int i = 0; i < 3; i++) {
        client_open(&leaves, &s);
        client_send(&leaves, "POST", COMPLETE,
                    "{\"prompt\": \"a\", \"max_tokens\": 250, \"stream\": true}");
        if (i > 0)
            assert_int_equal(client_head(&leaves), 200);
        if (i > 1)
            assert_true(client_chunk(&leaves));
        client_close(&leaves);
    }
    json_t *v = post(&s, COMPLETE, "{\"model\": \"mine\", \"prompt\": \"a\", \"max_tokens\": 2}");
    assert_true(json_integer_value(at(v, "weight_version")) >= 0);
    json_decref(v);
    if (serve_wait(&s, 60) != 0 || !strstr(server_said(&s), "trained 40 of 40 steps"))
        fail_msg("%s", server_said(&s));
    client_close(&half);
}

/* A stop saves, and does not wait for long answers. */
static void a_stop(void **state) {
    (void)state;
    struct server s;
    struct client c;
    make_long_model();
    char more[700];
    snprintf(more, sizeof more,
             "base_model: %s\nmax_steps: 100000\nsave_steps: 100000\nserve:\n"
             "  port: 0\n  context: 100000\n  parallel: 1\n  cache_tokens: 100000\n",
             long_model);
    char text[3000], *config;
    size_t len;
    assert_int_equal(ax_read_file(configure("stopped", "rows", ""), 1 << 16, &config, &len), AX_OK);
    snprintf(text, sizeof text, "%s", strchr(config, '\n') + 1); /* without its base_model */
    for (const char *const *key = (const char *const[]){"max_steps: 40\n", "save_steps: 1\n", NULL};
         *key; key++) {
        char *found = strstr(text, *key);
        memmove(found, found + strlen(*key), strlen(found + strlen(*key)) + 1);
    }
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s", more);
    ax_free(config);
    char words[600];
    snprintf(words, sizeof words, "train %s", put_text("stopped.yaml", text));
    server_start(&s, words);
    server_find(&s);
    client_open(&c, &s);
    client_send(&c, "POST", COMPLETE,
                "{\"prompt\": \"a\", \"max_tokens\": 90000, \"ignore_eos\": true, \"stream\": "
                "true}");
    assert_int_equal(client_head(&c), 200);
    assert_true(client_chunk(&c));
    kill(s.pid, SIGTERM);
    const int code = serve_wait(&s, 40);
    if (!strstr(server_said(&s), "asked to stop after step"))
        fail_msg("exit code %d: %s", code, server_said(&s));
    client_close(&c);
}

static void refused(const char *more, const char *why) {
    char text[600];
    if (run(said, sizeof said, "train %s", configure("refused", "rows", more)) == 0 ||
        !strstr(said, why))
        fail_msg("%s", said);
    snprintf(text, sizeof text, "%s/refused/run.json", scratch);
    assert_false(ax_path_exists(text));
}

static void what_is_refused(void **state) {
    (void)state;
    struct server s;
    char more[128];
    serve_open(&s, model, "");
    snprintf(more, sizeof more, "serve:\n  port: %d\n", s.port);
    refused(more, "in use");
    assert_non_null(strstr(said, "serve (")); /* where */
    assert_null(strstr(said, "rows.jsonl"));  /* before the data */
    serve_close(&s);
    refused("serve:\n  port: 0\n  host: 0.0.0.0\n", "needs a key");
    refused("serve:\n  port: 70000\n", "serve.port: expected 0 to 65535");
    refused("serve:\n  port: 0\n  context: 1000\n", "only 256 positions");
    refused("serve:\n  port: 0\n  api_key_file: /nowhere/key\n", "/nowhere/key");
    refused("serve:\n  port: 0\nreward_model: true\n", "a reward model has no head");
    if (run(said, sizeof said, "launch -n 2 -- train %s",
            configure("refused", "rows", "serve:\n  port: 0\ndp_shard_size: 2\n")) == 0 ||
        !strstr(said, "serve: supports only one rank so far"))
        fail_msg("%s", said);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_weights),     cmocka_unit_test(adapters),
        cmocka_unit_test(beside_rollouts), cmocka_unit_test(training_is_the_same),
        cmocka_unit_test(clients_that_go), cmocka_unit_test(a_stop),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, make_data, scratch_remove);
}
