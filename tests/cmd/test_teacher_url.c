/* A teacher behind a URL: runs that ask `axtrain serve` are those with the teacher in the process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/on_policy_case.h"
#include "tests/cmd/serve_case.h"
#include "tests/endpoint_stub.h"

static struct server server;
static char here[128], there[80], chats[128];

#define SAMPLED "trl.distillation_objective=sampled_token "
#define PART    "kd_loss_top_k=20 kd_loss_support=teacher "

/* The teacher has no tokenizer: the student's is its, too. */
static void make_teacher(void) {
    static const char *const parts[][2] = {{"opd_teacher", "config.json"},
                                           {"opd_teacher", "model.safetensors"},
                                           {"opd_student", "tokenizer.json"},
                                           {"opd_student", "tokenizer_config.json"}};
    make_folder("t");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char from[600], name[64];
        snprintf(name, sizeof name, "runs/models/%s/%s", parts[i][0], parts[i][1]);
        char *real = realpath(golden_path(name), NULL);
        snprintf(from, sizeof from, "%s", real);
        free(real);
        snprintf(name, sizeof name, "t/%s", parts[i][1]);
        assert_int_equal(symlink(from, in_scratch(name)), 0);
    }
    snprintf(here, sizeof here, "%s", in_scratch("t"));
}

static void make_chats(void) {
    struct ax_buf b = {0};
    for (int i = 0; i < 24; i++)
        assert_int_equal(
            ax_buf_printf(
                &b,
                "{\"messages\": [{\"role\": \"user\", \"content\": \"How many are %d and %d?\"}, "
                "{\"role\": \"assistant\", \"content\": \"They are %d.\"}]}\n",
                i, 3 * i, 4 * i),
            AX_OK);
    snprintf(chats, sizeof chats, "%s", put_bytes("chats.jsonl", b.data, b.len));
    ax_buf_free(&b);
}

static int begin(void **state) {
    static const char key[] = "sesame\n";
    char words[200];
    if (on_policy_begin(state) != 0)
        return -1;
    unsetenv("http_proxy");
    unsetenv("HTTP_PROXY");
    make_teacher();
    make_chats();
    snprintf(words, sizeof words, "--api-key-file %s", put_bytes("key", key, sizeof key - 1));
    serve_open(&server, here, words);
    snprintf(there, sizeof there, "http://127.0.0.1:%d/v1", server.port);
    setenv("AXTRAIN_API_KEY", "sesame", 1);
    return 0;
}

static int end(void **state) {
    serve_close(&server);
    return scratch_remove(state);
}

/* Both ways, in folders a (the process) and b (the URL). */
static void both(const char *command, const char *more, const char *more_there) {
    char all[600];
    if (try(command, config(), here, "a", more) != 0)
        fail_msg("a: %s", said);
    snprintf(all, sizeof all, "%s %s", more, more_there);
    if (try(command, config(), there, "b", all) != 0)
        fail_msg("b: %s", said);
}

static void close_numbers(const char *key, int n) {
    double a[8] = {0}, b[8] = {0};
    assert_int_equal(numbers("a", key, a, 8), n);
    assert_int_equal(numbers("b", key, b, 8), n);
    for (int i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) < 1e-6) || a[i] == 0)
            fail_msg("%s %d: %.9g and %.9g", key, i, a[i], b[i]);
}

static void clear_both(void) {
    clear("a");
    clear("b");
}

/* ---- the same numbers ---- */

static void divergences(void **state) {
    (void)state;
    static const char *const options[] = {PART, PART "kd_beta=0",
                                          PART "kd_beta=0.3 kd_loss_top_k=3",
                                          PART "kd_loss_tail=false kd_temperature=2 kd_beta=0.5",
                                          PART "val_set_size=0.3 eval_steps=2"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        both("train", options[i], "");
        same_completions("a", "b");
        close_numbers("loss", 4);
        if (strstr(options[i], "eval_steps"))
            close_numbers("eval_loss", 3);
        clear_both();
    }
}

/* The first step, whose answers the same weights have drawn: bfloat16 rounds what comes later to other tokens. */
static void in_bfloat16(void **state) {
    (void)state;
    static struct server rounded;
    char words[400];
    snprintf(words, sizeof words, "serve %s --dtype bfloat16 --port 0", here);
    server_start(&rounded, words);
    server_find(&rounded);
    snprintf(words, sizeof words, "kd_teacher=http://127.0.0.1:%d", rounded.port);
    both("train", PART "float32=false bf16=true max_steps=1 save_steps=1", words);
    close_numbers("loss", 1);
    clear_both();
    serve_close(&rounded);
}

static void sampled_tokens(void **state) {
    (void)state;
    static const char *const options[] = {
        SAMPLED, "trl.distillation_objective=iw_opd val_set_size=0.3 eval_steps=2",
        "rl=grpo trl.num_generations=2 trl.reward_funcs=\"['format:a']\" trl.num_iterations=2 "
        "kd_alpha=0.1"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        both("train", options[i], "kd_server.prompts=3 kd_server.concurrency=2");
        same_completions("a", "b");
        assert_true(hash_of("a", "model.safetensors") == hash_of("b", "model.safetensors"));
        clear_both();
    }
}

/* `axtrain sft`, in whose configuration nothing is sampled. */
static void given_texts(void **state) {
    (void)state;
    static const char *const options[] = {
        "kd_ce_alpha=0.5 val_set_size=0.3 eval_steps=2",
        "kd_beta=0.5 kd_loss_support=teacher sample_packing=true eval_sample_packing=true"};
    struct ax_buf b = {0};
    char file[256];
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: %s\nkd_teacher: t\nkd_loss_top_k: 20\ndatasets: [{path: %s}]\n"
                      "sequence_len: 128\nmicro_batch_size: 2\nmax_steps: 4\nlogging_steps: 1\n"
                      "learning_rate: 3e-3\nfloat32: true\ndataset_prepared_path: %s/cache\n",
                      student, chats, scratch),
        AX_OK);
    snprintf(file, sizeof file, "%s", put_bytes("sft.yaml", b.data, b.len));
    ax_buf_free(&b);
    for (size_t i = 0; i < 2; i++) {
        if (run(said, sizeof said, "sft %s kd_teacher=%s output_dir=%s/a --quiet %s", file, here,
                scratch, options[i]) != 0 ||
            run(said, sizeof said, "sft %s kd_teacher=%s output_dir=%s/b --quiet %s", file, there,
                scratch, options[i]) != 0)
            fail_msg("%s", said);
        close_numbers("loss", 4);
        if (i == 0)
            close_numbers("eval_loss", 3);
        clear_both();
    }
}

/* ---- meshes ---- */

static void meshes(void **state) {
    (void)state;
    static const char *const options[] = {"dp_shard_size=2 gradient_accumulation_steps=1",
                                          "tensor_parallel_size=2", "context_parallel_size=2",
                                          "pipeline_parallel_size=2"};
    char all[200];
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        snprintf(all, sizeof all, "%s%s", PART, options[i]);
        both("launch -n 2 -- train", all, "");
        same_completions("a", "b");
        close_numbers("kd_loss", 4);
        clear_both();
    }
    snprintf(all, sizeof all, "%s%s", SAMPLED, options[0]);
    both("launch -n 2 -- train", all, "");
    same_completions("a", "b");
    assert_true(hash_of("a", "model.safetensors") == hash_of("b", "model.safetensors"));
    clear_both();
}

/* ---- a run that goes on ---- */

/* The server may have another name by then. */
static void resuming(void **state) {
    (void)state;
    char moved[80];
    snprintf(moved, sizeof moved, "http://localhost:%d", server.port);
    static const char *const options[] = {PART, SAMPLED};
    char all[400];
    for (size_t i = 0; i < 2; i++) {
        if (try("train", config(), there, "a", options[i]) != 0)
            fail_msg("%s", said);
        snprintf(all, sizeof all, "%s max_steps=2", options[i]);
        if (try("train", config(), there, "b", all) != 0)
            fail_msg("%s", said);
        snprintf(all, sizeof all, "%s auto_resume_from_checkpoints=true", options[i]);
        if (try("train", config(), moved, "b", all) != 0)
            fail_msg("%s", said);
        assert_true(hash_of("a", "model.safetensors") == hash_of("b", "model.safetensors"));
        clear_both();
    }
}

/* ---- what is refused ---- */

static void keys(void **state) {
    (void)state;
    static const struct {
        const char *options, *why;
    } wrong[] = {
        {"", "kd_loss_top_k: not set: kd_teacher is a URL"},
        {"kd_loss_top_k=20", "kd_loss_support: kd_teacher is a URL, and a server does not know"},
        {PART "kd_loss_top_p=0.9", "kd_loss_top_p: kd_teacher is a URL"},
        {PART "kd_loss_support=student", "kd_loss_support: kd_teacher is a URL"},
        {PART "kd_temperature=2", "kd_temperature: kd_teacher is a URL"},
        {PART "trl.temperature=0.5", "kd_temperature: kd_teacher is a URL"},
        {PART "kd_loss_top_k=257", "kd_loss_top_k: expected at most 256"},
        {SAMPLED "trl.temperature=0.5", "trl.temperature: kd_teacher is a URL"},
        {SAMPLED "kd_server.model=none", "there is no \"none\"; the first of its models is \"t\""},
        {SAMPLED "sequence_len=4000", "reads up to 2048 tokens, and texts have up to 4000"},
        {PART "kd_loss_top_k=21", "status 400"},
        {SAMPLED "kd_server.api_key_file=/dev/null", "expected one line with a key"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (try("train", config(), there, "out", wrong[i].options) != 2 ||
            !strstr(said, wrong[i].why))
            fail_msg("%s: %s", wrong[i].options, said);
    setenv("AXTRAIN_API_KEY", "another-and-secret", 1);
    assert_int_equal(try("train", config(), there, "out", SAMPLED), 2);
    assert_non_null(strstr(said, "status 401"));
    assert_null(strstr(said, "secret"));
    setenv("AXTRAIN_API_KEY", "sesame", 1);
}

/* ---- servers that fail ---- */

enum mood { DOWN, OTHER, HANGS_UP, RUBBISH, SLOW, SLOWER };

/* All tokens are as likely, but from the third request on `mood` decides. */
static int answer(struct stub *s, const char *head, const char *body, struct ax_buf *out) {
    if (strncmp(head, "GET", 3) == 0) {
        ax_buf_printf(out, "{\"data\":[{\"id\":\"%s\"}]}", s->mood == OTHER ? "other" : "m");
        return 200;
    }
    if (!strstr(head, "/v1/completions"))
        return 404;
    if (s->requests > 6 && s->mood == HANGS_UP)
        return 0;
    if (s->requests > 6 && s->mood >= SLOW)
        sleep(s->mood == SLOW ? 3 : 6);
    json_t *v = json_loads(body, 0, NULL), *prompts = json_object_get(v, "prompt");
    ax_buf_puts(out, "{\"choices\":[");
    for (size_t p = 0; p < json_array_size(prompts); p++) {
        const json_t *ids = json_array_get(prompts, p);
        ax_buf_printf(out, "%s{\"index\":%zu,\"prompt_logprobs\":[null", p > 0 ? "," : "", p);
        for (size_t i = 1; i < json_array_size(ids); i++)
            ax_buf_printf(out, ",{\"%d\":{\"logprob\":%s}}",
                          (int)json_integer_value(json_array_get(ids, i)),
                          s->requests > 6 && s->mood == RUBBISH ? "\"-1\"" : "-5");
        ax_buf_puts(out, "]}");
    }
    ax_buf_puts(out, "]}");
    json_decref(v);
    return 200;
}

static void failures(void **state) {
    (void)state;
    static const struct {
        enum mood mood;
        int code;
        const char *why;
    } cases[] = {
        {HANGS_UP, 1, "asked 2 times: http://127.0.0.1:"},
        {RUBBISH, 3, "/v1/completions: choices[0].prompt_logprobs["},
        {SLOW, 1, "no answer in 1 seconds"},
        {DOWN, 1, "kd_teacher (command line): asked 2 times: http://127.0.0.1:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stub stub = {.answer = answer, .mood = (int)cases[i].mood};
        stub_start(&stub);
        if (cases[i].mood == DOWN)
            stub_stop(&stub);
        const int code = try("train", config(), stub.url, "out",
                             SAMPLED "save_steps=1 kd_server.retries=1 kd_server.timeout=1 "
                                     "kd_server.concurrency=1 kd_server.prompts=2");
        if (code != cases[i].code || !strstr(said, cases[i].why))
            fail_msg("%zu: %d %s", i, code, said);
        if (cases[i].mood != DOWN) {
            stub_stop(&stub);
            assert_int_equal(ax_path_exists(in_scratch("out/checkpoint-1")), 1);
            clear("out");
        }
    }
}

/* A run may go on with a server that has another model, and says so. */
static void another_model(void **state) {
    (void)state;
    struct stub stub = {.answer = answer};
    stub_start(&stub);
    if (try("train", config(), stub.url, "out", SAMPLED "max_steps=1") != 0)
        fail_msg("%s", said);
    for (int again = 0; again < 2; again++) {
        static const char warning[] = "the teacher was \"m\" in the run that wrote ";
        stub.mood = again ? OTHER : DOWN;
        if (try("train", config(), stub.url, "out",
                again ? SAMPLED "max_steps=3 auto_resume_from_checkpoints=true"
                      : SAMPLED "max_steps=2 auto_resume_from_checkpoints=true") != 0 ||
            (strstr(said, warning) != NULL) != again)
            fail_msg("%d: %s", again, said);
    }
    stub_stop(&stub);
    clear("out");
}

/* A run that waits for a server saves and ends when it is asked to, before there is an answer. */
static void stopping(void **state) {
    (void)state;
    struct stub stub = {.answer = answer, .mood = SLOWER};
    struct server training;
    struct ax_buf b = {0};
    char words[300];
    stub_start(&stub);
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: %s\nkd_teacher: %s\nrl: distill\ndatasets: [{path: %s}]\n"
                      "sequence_len: 128\nmicro_batch_size: 4\nmax_steps: 9\nlearning_rate: 1e-3\n"
                      "trl: {distillation_objective: sampled_token, max_completion_length: 24}\n"
                      "kd_server: {timeout: 30, concurrency: 1, prompts: 2}\nsave_steps: 100\n"
                      "dataset_prepared_path: %s/cache\noutput_dir: %s/out\n",
                      student, stub.url, data, scratch, scratch),
        AX_OK);
    snprintf(words, sizeof words, "train %s --quiet", put_bytes("slow.yaml", b.data, b.len));
    ax_buf_free(&b);
    server_start(&training, words);
    for (const double until = ax_clock_now() + 60; stub.requests <= 6; nap(0.01))
        if (ax_clock_now() > until)
            fail_msg("the run asks nothing: %s", server_said(&training));
    const double start = ax_clock_now();
    assert_int_equal(kill(training.pid, SIGTERM), 0);
    assert_int_equal(serve_wait(&training, 20), 75);
    assert_true(ax_clock_now() - start < 5); /* an answer takes 6 s */
    assert_non_null(strstr(server_said(&training), "asked to stop after step "));
    stub_stop(&stub);
    clear("out");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divergences),    cmocka_unit_test(in_bfloat16),
        cmocka_unit_test(sampled_tokens), cmocka_unit_test(given_texts),
        cmocka_unit_test(meshes),         cmocka_unit_test(resuming),
        cmocka_unit_test(keys),           cmocka_unit_test(failures),
        cmocka_unit_test(another_model),  cmocka_unit_test(stopping)};
    return cmocka_run_group_tests(tests, begin, end);
}
