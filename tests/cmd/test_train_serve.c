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
#include "tests/cmd/experts_model.h"
#include "tests/long.h"

#define COMPLETE "/v1/completions"
#define PROMPT   "say 3 and"

static char said[1 << 16];
static int max_steps = 40;

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

/* A configuration that trains a base on a file of rows and writes to a folder of this name; its path. */
static const char *configure_base(const char *base, const char *name, const char *rows,
                                  const char *more) {
    static char path[256];
    char text[2048], file[64];
    snprintf(text, sizeof text,
             "base_model: %s\noutput_dir: %s/%s\ndatasets:\n  - path: %s/%s.jsonl\n%s"
             "sequence_len: 64\nfloat32: true\nlearning_rate: 1e-2\n"
             "micro_batch_size: 2\nnum_epochs: 99\nmax_steps: %d\nsave_steps: 1\n"
             "save_total_limit: 99\n%s",
             base, scratch, name, scratch, rows,
             strcmp(rows, "rows") == 0 ? "    type: completion\n" : "", max_steps, more);
    snprintf(file, sizeof file, "%s.yaml", name);
    snprintf(path, sizeof path, "%s", put_text(file, text));
    return path;
}

static const char *configure(const char *name, const char *rows, const char *more) {
    return configure_base(model, name, rows, more);
}

static void start_on(struct server *s, int ranks, const char *config) {
    char words[600];
    snprintf(words, sizeof words, "launch -n %d -- train %s", ranks, config);
    server_start(s, ranks > 1 ? words : strstr(words, "train "));
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

/* On which ranks a run is, and the words before and after those of `generate` for the same bits. */
struct way {
    const char *name, *keys;
    int ranks;
    const char *launch, *mesh, *base;
    bool adapter;
};

/* What `axtrain generate` answers with the checkpoint of a step; free it. */
static char *generated(const struct way *w, int64_t step, const char *options) {
    char checkpoint[300], from[700];
    const bool adapter = w->adapter && step > 0;
    snprintf(checkpoint, sizeof checkpoint, "%s/%s/checkpoint-%lld", scratch, w->name,
             (long long)step);
    snprintf(from, sizeof from, "%s%s%s", adapter || step == 0 ? w->base : checkpoint,
             adapter ? " --adapter " : "", adapter ? checkpoint : "");
    if (run(said, sizeof said,
            "%s generate %s --dtype float32 --json --prompt '" PROMPT "' --max-new-tokens 8 %s %s",
            w->launch, from, options, w->mesh) != 0)
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
static void compare(const struct asker *a, const struct way *w, const char *options) {
    int versions = 0;
    int64_t last = -1;
    for (int i = 0; i < a->n; i++) {
        assert_true(a->answers[i].version >= last);
        if (a->answers[i].version == last)
            continue;
        last = a->answers[i].version;
        if (versions++ % 5 != 0)
            continue;
        char *text = generated(w, last, options);
        assert_string_equal(a->answers[i].text, text);
        free(text);
    }
    assert_true(versions >= 3 && last > 0);
}

static void answers_are_of_one_version(const struct way *w) {
    static struct asker askers[KINDS];
    struct server s;
    char *texts[2];
    start_on(&s, w->ranks, configure_base(w->base, w->name, "rows", w->keys));
    server_find(&s);
    for (int k = 0; k < KINDS; k++) {
        askers[k] = (struct asker){.s = &s, .keys = kinds[k].keys};
        assert_int_equal(pthread_create(&askers[k].thread, NULL, ask_on, &askers[k]), 0);
    }
    for (int k = 0; k < KINDS; k++)
        pthread_join(askers[k].thread, NULL);
    if (serve_wait(&s, 60) != 0)
        fail_msg("%s", server_said(&s));
    const char *announced = strstr(server_said(&s), "serving model=");
    assert_true(announced && !strstr(announced + 1, "serving model="));
    for (int k = 0; k < KINDS; k++)
        compare(&askers[k], w, kinds[k].options);
    texts[0] = generated(w, 0, "");
    texts[1] = generated(w, max_steps, "");
    assert_string_not_equal(texts[0], texts[1]); /* it has learned something */
    free(texts[0]);
    free(texts[1]);
}

static void all_weights(void **state) {
    (void)state;
    answers_are_of_one_version(
        &(struct way){"full", "serve:\n  port: 0\n", 1, "", "", model, false});
}

#define LORA "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n"

static void adapters(void **state) {
    (void)state;
    answers_are_of_one_version(
        &(struct way){"lora", LORA "serve:\n  port: 0\n  parallel: 1\n", 1, "", "", model, true});
}

/* The run that answered all along has the weights of one that did not. */
static void same_as_alone(const char *launch, const char *name, const char *keys) {
    char *x, *y, folder[32], file[64];
    size_t n, m;
    snprintf(folder, sizeof folder, "%s-alone", name);
    if (run(said, sizeof said, "%s train %s", launch, configure(folder, "rows", keys)) != 0)
        fail_msg("%s", said);
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    assert_int_equal(ax_read_file(in_scratch(file), 1 << 26, &x, &n), AX_OK);
    snprintf(file, sizeof file, "%s/model.safetensors", name);
    assert_int_equal(ax_read_file(in_scratch(file), 1 << 26, &y, &m), AX_OK);
    assert_true(n == m && memcmp(x, y, n) == 0);
    ax_free(x);
    ax_free(y);
}

#define SERVE  "serve:\n  port: 0\n"
#define SHARDS "dp_shard_size: 2\n"
#define STAGES "pipeline_parallel_size: 2\ngradient_accumulation_steps: 2\n"

/* The weights of a step are asked on all ranks of a mesh; those that split no product compute what one rank does. */
static void meshes(void **state) {
    (void)state;
    char experts[300];
    snprintf(experts, sizeof experts, "%s", make_experts());
    const struct way ways[] = {
        {"shards", SHARDS SERVE, 2, "", "", model, false},
        {"stages", STAGES SERVE, 2, "", "", model, false},
        {"parts", "context_parallel_size: 2\n" SERVE, 2, "", "", model, false},
        {"tensors", LORA "tensor_parallel_size: 2\n" SERVE, 4, "launch -n 4 --",
         "--mesh tp=2,dp_shard=2", model, true},
        {"mixture", SHARDS "expert_parallel_size: 2\n" SERVE, 2, "launch -n 2 --",
         "--mesh dp_shard=2,ep=2", experts, false},
    };
    max_steps = 20;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        answers_are_of_one_version(&ways[i]);
    same_as_alone("launch -n 2 --", "shards", SHARDS);
    same_as_alone("launch -n 2 --", "stages", STAGES);
    max_steps = 40;
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
    start_on(&s, 1, configure("rollouts", "prompts", more));
    server_find(&s);
    asker = (struct asker){.s = &s, .keys = kinds[1].keys};
    ask_on(&asker);
    if (serve_wait(&s, 60) != 0)
        fail_msg("%s", server_said(&s));
    compare(&asker, &(struct way){"rollouts", "", 1, "", "", model, false}, kinds[1].options);
}

static void training_is_the_same(void **state) {
    (void)state;
    same_as_alone("", "full", "");
}

/* ---- faults ---- */

/* Half a request, a client that leaves while it waits, and one that leaves in the middle of an answer: others are
 * answered, and the run ends as ever. */
static void clients_go(int ranks) {
    struct server s;
    struct client half, leaves;
    char name[32];
    max_steps = 40;
    snprintf(name, sizeof name, "faults%d", ranks);
    start_on(&s, ranks, configure(name, "rows", SERVE "  name: mine\n"));
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

static void clients_that_go(void **state) {
    (void)state;
    clients_go(1);
    clients_go(2);
}

/* A stop saves, and does not wait for long answers. */
static void stop_on(int ranks) {
    struct server s;
    struct client c;
    char name[32];
    make_long_model();
    max_steps = 100000;
    snprintf(name, sizeof name, "stopped%d", ranks);
    start_on(&s, ranks,
             configure_base(long_model, name, "rows",
                            SERVE "  context: 100000\n  parallel: 1\n  cache_tokens: 100000\n"));
    max_steps = 40;
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

static void a_stop(void **state) {
    (void)state;
    stop_on(1);
    stop_on(2);
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
}

/* A plan has the generator's memory: the keys and values of as many tokens as it may keep. */
static void a_plan_has_its_memory(void **state) {
    (void)state;
    enum { LAYERS = 3, KV_HEADS = 2, HEAD_DIM = 16, TOKENS = 8192 };
    int64_t arena[3];
    const char *const keys[] = {"", "serve:\n  port: 0\n  parallel: 64\n  cache_tokens: 8192\n",
                                "serve:\n  port: 0\n  parallel: 64\n  cache_tokens: 16384\n"};
    for (int i = 0; i < 3; i++) {
        if (run(said, sizeof said, "plan %s --json", configure("planned", "rows", keys[i])) != 0)
            fail_msg("%s", said);
        json_t *v = json_loads(said, 0, NULL);
        arena[i] = json_integer_value(at(at(v, "memory"), "arena_bytes"));
        json_decref(v);
    }
    const int64_t each = 2 * LAYERS * KV_HEADS * HEAD_DIM * (int64_t)sizeof(float);
    assert_int_equal(arena[2] - arena[1], TOKENS * each);
    assert_true(arena[1] - arena[0] > TOKENS * each);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(all_weights)),
        LONG_TEST(cmocka_unit_test(adapters)),
        LONG_TEST(cmocka_unit_test(beside_rollouts)),
        LONG_TEST(cmocka_unit_test(training_is_the_same)),
        LONG_TEST(cmocka_unit_test(meshes)),
        LONG_TEST(cmocka_unit_test(clients_that_go)),
        LONG_TEST(cmocka_unit_test(a_stop)),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(a_plan_has_its_memory),
    };
    return cmocka_run_group_tests(tests, make_data, scratch_remove);
}
