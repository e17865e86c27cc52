/* `axtrain serve` on processes: the answers of one rank, and of `axtrain generate` on the same mesh; a stop, a client
 * that leaves, and a rank that is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>

#include "tests/cmd/program_case.h"
#include "tests/cmd/serve_case.h"
#include "tests/cmd/experts_model.h"

#define COMPLETE "/v1/completions"
#define CHAT     "/v1/chat/completions"

static char said[1 << 18];

struct mesh {
    int ranks;
    const char *words;
    bool exact; /* every rank computes what one does */
};
static const struct mesh one_rank = {1, "", true};
static const struct mesh meshes[] = {
    {2, "--mesh tp=2", false},
    {2, "", true},
    {2, "--mesh dp_shard=2", true},
    {4, "--mesh tp=2,dp_replicate=2", false},
};
static const struct mesh expert_meshes[] = {{2, "--mesh tp=2,ep=2", false},
                                            {2, "--mesh dp_shard=2,ep=2", false}};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static void open_on(struct server *s, const struct mesh *m, const char *words) {
    char all[3000];
    snprintf(all, sizeof all,
             "launch -n %d -- serve %s --dtype float32 --threads 1 --port 0 --parallel 3 %s",
             m->ranks, words, m->words);
    server_start(s, all);
    server_find(s);
}

/* ---- answers ---- */

struct question {
    const char *path, *body;
    json_t *want;
};

/* What each answer has of its own: its name and time, and what others had computed for it. */
static void forget(json_t *v) {
    json_object_del(v, "id");
    json_object_del(v, "created");
    json_object_del(json_object_get(v, "usage"), "prompt_tokens_details");
    json_t *choices = json_object_get(v, "choices"), *c, *call;
    size_t i, k;
    json_array_foreach(choices, i, c) {
        json_array_foreach(json_object_get(json_object_get(c, "message"), "tool_calls"), k, call) {
            json_object_del(call, "id");
        }
    }
}

/* Numbers may differ by rounding if the mesh is not exact. */
static void same(const json_t *a, const json_t *b, bool exact, const char *where) {
    const char *key;
    json_t *x;
    if (json_typeof(a) != json_typeof(b))
        fail_msg("%s: other types", where);
    if (json_is_object(a)) {
        assert_int_equal(json_object_size(a), json_object_size(b));
        json_object_foreach((json_t *)(uintptr_t)a, key, x) {
            if (!json_object_get(b, key))
                fail_msg("%s: %s is missing", where, key);
            same(x, json_object_get(b, key), exact, where);
        }
    } else if (json_is_array(a)) {
        assert_int_equal(json_array_size(a), json_array_size(b));
        for (size_t i = 0; i < json_array_size(a); i++)
            same(json_array_get(a, i), json_array_get(b, i), exact, where);
    } else if (json_is_real(a)) {
        const double v = json_real_value(a), w = json_real_value(b);
        if (!(fabs(v - w) <= (exact ? 0 : 2e-5 * fmax(1, fabs(v)))))
            fail_msg("%s: %.17g, on one rank %.17g", where, w, v);
    } else if (!json_equal(a, b)) {
        char *p = json_dumps(a, JSON_ENCODE_ANY), *q = json_dumps(b, JSON_ENCODE_ANY);
        fail_msg("%s: %s, on one rank %s", where, q, p);
    }
}

struct asker {
    pthread_t thread;
    const struct server *s;
    const struct question *q;
    json_t *got;
};

static void *ask_one(void *arg) {
    struct asker *a = arg;
    a->got = post(a->s, a->q->path, a->q->body);
    forget(a->got);
    return NULL;
}

/* All at the same time, as many as three lanes have to share. */
static void ask_all(const struct server *s, struct question *list, size_t n, bool exact) {
    struct asker askers[16];
    assert_true(n <= COUNT(askers));
    for (size_t i = 0; i < n; i++) {
        askers[i] = (struct asker){.s = s, .q = &list[i]};
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_one, &askers[i]), 0);
    }
    for (size_t i = 0; i < n; i++) {
        pthread_join(askers[i].thread, NULL);
        if (!list[i].want) {
            list[i].want = askers[i].got;
            continue;
        }
        same(list[i].want, askers[i].got, exact, list[i].body);
        json_decref(askers[i].got);
    }
}

static void same_on(const struct mesh *list, size_t n_meshes, const char *words,
                    struct question *questions, size_t n) {
    struct server s;
    open_on(&s, &one_rank, words);
    ask_all(&s, questions, n, true);
    serve_close(&s);
    for (size_t i = 0; i < n_meshes; i++) {
        open_on(&s, &list[i], words);
        for (int again = 0; again < 2; again++)
            ask_all(&s, questions, n, list[i].exact);
        assert_true(metric(&s, "generated_tokens_total") > 0);
        serve_close(&s);
    }
    for (size_t i = 0; i < n; i++)
        json_decref(questions[i].want);
}

static const char *lora(char *out, size_t size) {
    char one[512];
    snprintf(one, sizeof one, "%s", golden_path("lora/llama_r4"));
    snprintf(out, size, "--adapter a=%s --adapter b=%s", one, golden_path("lora/llama_r4_dora"));
    return out;
}

static void completions(void **state) {
    (void)state;
    char words[2600], adapters[1200];
    struct question questions[] = {
        {COMPLETE,
         "{\"prompt\": \"one two\", \"temperature\": 0, \"max_tokens\": 20, "
         "\"logprobs\": 3}",
         NULL},
        {COMPLETE,
         "{\"prompt\": [\"one two\", \"x = 1\"], \"n\": 3, \"seed\": 6, "
         "\"temperature\": 1, \"top_p\": 0.9, \"max_tokens\": 9, \"logprobs\": 2}",
         NULL},
        {COMPLETE,
         "{\"prompt\": \"The quick brown fox, and a long way on\", \"max_tokens\": 0, "
         "\"echo\": true, \"logprobs\": 4}",
         NULL},
        {COMPLETE,
         "{\"prompt\": \"a b c\", \"seed\": 1, \"max_tokens\": 12, \"presence_penalty\": "
         "1, \"frequency_penalty\": 0.5, \"logit_bias\": {\"65\": 4, \"70\": -100}, "
         "\"repetition_penalty\": 1.1, \"prompt_logprobs\": 1}",
         NULL},
        {COMPLETE,
         "{\"model\": \"a\", \"prompt\": \"one two\", \"temperature\": 0, "
         "\"max_tokens\": 25, \"logprobs\": 1}",
         NULL},
        {COMPLETE,
         "{\"model\": \"b\", \"prompt\": \"one two\", \"seed\": 9, \"n\": 2, "
         "\"max_tokens\": 25, \"stop\": [\"o\"], \"logprobs\": 0}",
         NULL},
    };
    snprintf(words, sizeof words, "%s %s", model, lora(adapters, sizeof adapters));
    same_on(meshes, COUNT(meshes), words, questions, COUNT(questions));
}

#define HELLO "\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"seed\": 3, "
#define SCHEMA                                                                                     \
    "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 8}, " \
    "\"age\": {\"type\": \"integer\", \"minimum\": 3, \"maximum\": 77}}, \"required\": "           \
    "[\"name\", \"age\"], \"additionalProperties\": false}"

static void chats(void **state) {
    (void)state;
    struct question questions[] = {
        {CHAT,
         "{" HELLO "\"max_tokens\": 60, \"guided_json\": " SCHEMA
         ", \"logprobs\": true, \"top_logprobs\": 2}",
         NULL},
        {CHAT,
         "{" HELLO "\"max_tokens\": 60, \"tool_choice\": \"required\", \"tools\": [{\"type\": "
         "\"function\", \"function\": {\"name\": \"add\", \"parameters\": " SCHEMA "}}]}",
         NULL},
        {CHAT, "{" HELLO "\"max_tokens\": 9, \"n\": 2, \"logprobs\": true}", NULL},
    };
    const char *folder = golden_path("runs/models/tools_qwen3");
    same_on(meshes, COUNT(meshes), folder, questions, COUNT(questions));
}

/* Trains an adapter of experts, and what `keys` say; its folder. */
static void train_adapter(const char *base, const char *name, const char *keys) {
    char text[2048], file[32];
    snprintf(text, sizeof text,
             "base_model: %s\noutput_dir: %s/%s\ndatasets:\n  - path: %s/rows.jsonl\n    type: "
             "completion\nsequence_len: 32\nfloat32: true\nlearning_rate: 3e-2\nmax_steps: 4\n"
             "num_epochs: 9\nadapter: lora\nlora_r: 4\nlora_alpha: 8\n%s",
             base, scratch, name, scratch, keys);
    snprintf(file, sizeof file, "%s.yaml", name);
    put_text("rows.jsonl", "{\"text\": \"one, two, three and four\"}\n{\"text\": \"x = 1\"}\n");
    if (run(said, sizeof said, "train %s", put_text(file, text)) != 0)
        fail_msg("%s", said);
}

#define ASK(model)                                                                                 \
    {                                                                                              \
        COMPLETE,                                                                                  \
            "{\"model\": \"" model "\", \"prompt\": [\"one, two\", \"a\"], \"n\": 2, \"seed\": "   \
            "5, \"max_tokens\": 30, \"logprobs\": 0, \"ignore_eos\": true}",                       \
            NULL                                                                                   \
    }

/* Ranks that exchange rows of experts, or parts of a head, must all be at the same adapter. */
static void experts(void **state) {
    (void)state;
    char base[300], words[1200];
    snprintf(base, sizeof base, "%s", make_experts());
    train_adapter(base, "a",
                  "lora_target_parameters: [mlp.experts.down_proj, mlp.experts.gate_up_proj]\n");
    train_adapter(base, "b", "lora_target_linear: true\nlora_modules_to_save: [lm_head]\n");
    struct question questions[] = {
        ASK("experts"),
        ASK("a"),
        ASK("b"),
        {COMPLETE,
         "{\"model\": \"b\", \"prompt\": \"x = 1, and so on\", \"temperature\": 0, "
         "\"max_tokens\": 9, \"logprobs\": 0, \"echo\": true}",
         NULL},
    };
    snprintf(words, sizeof words, "%s --adapter a=%s/a --adapter b=%s/b", base, scratch, scratch);
    same_on(expert_meshes, COUNT(expert_meshes), words, questions, COUNT(questions));
}

/* ---- the bits of `axtrain generate` on the same mesh ---- */

static void bits_of_generate(void **state) {
    (void)state;
    struct server s;
    for (size_t i = 0; i < COUNT(meshes); i++) {
        if (run(said, sizeof said,
                "launch -n %d -- generate %s --dtype float32 --threads 1 --json --prompt 'one two' "
                "--max-new-tokens 12 --temperature 0 %s",
                meshes[i].ranks, model, meshes[i].words) != 0)
            fail_msg("%s", said);
        json_t *row = json_loads(strstr(said, "{\""), JSON_DISABLE_EOF_CHECK, NULL), *p;
        open_on(&s, &meshes[i], model);
        json_t *v = post(&s, COMPLETE,
                         "{\"prompt\": \"one two\", \"temperature\": 0, \"max_tokens\": 12, "
                         "\"logprobs\": 0}");
        double sum = 0;
        size_t k;
        json_array_foreach(at(v, "choices.0.logprobs.token_logprobs"), k, p) {
            sum += json_real_value(p);
        }
        assert_string_equal(text_at(v, "choices.0.text"), text_at(row, "text"));
        assert_true(sum == json_real_value(at(row, "logprob")));
        json_decref(v);
        json_decref(row);
        serve_close(&s);
    }
}

/* ---- faults ---- */

#define LONG "{\"prompt\": \"a\", \"max_tokens\": 90000, \"ignore_eos\": true, \"stream\": true}"

static void open_long(struct server *s, const struct mesh *m) {
    char words[700];
    make_long_model();
    snprintf(words, sizeof words, "%s --context 100000 --cache-tokens 100000", long_model);
    open_on(s, m, words);
}

static void begin_long(struct client *c, const struct server *s) {
    client_open(c, s);
    client_send(c, "POST", COMPLETE, LONG);
    assert_int_equal(client_head(c), 200);
    assert_true(client_chunk(c));
}

static void wait_for(const struct server *s, const char *name, double value) {
    for (const double until = ax_clock_now() + 30; metric(s, name) != value; nap(0.01))
        if (ax_clock_now() > until)
            fail_msg("%s stays %g", name, metric(s, name));
}

/* Clients that leave in the middle of an answer free its lane on whichever rank computes it. */
static void clients_that_leave(void **state) {
    (void)state;
    struct server s;
    struct client c[3];
    for (size_t i = 0; i < 3; i++) {
        open_long(&s, &meshes[i]);
        for (int k = 0; k < 3; k++)
            begin_long(&c[k], &s);
        for (int k = 0; k < 3; k++)
            client_close(&c[k]);
        wait_for(&s, "sequences_pending", 0);
        json_decref(post(&s, COMPLETE, "{\"prompt\": \"a\", \"max_tokens\": 2}"));
        serve_close(&s);
    }
}

/* The ranks' processes: the launcher's children. */
static int ranks_of(const struct server *s, pid_t *out, int most) {
    char path[64], *text;
    size_t len;
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)s->pid, (int)s->pid);
    assert_int_equal(ax_read_file(path, 1 << 12, &text, &len), AX_OK);
    for (char *rest = text, *word; n < most && (word = strsep(&rest, " ")) != NULL;)
        if (*word)
            out[n++] = (pid_t)strtol(word, NULL, 10);
    ax_free(text);
    return n;
}

/* Clock ticks that a process has used. */
static long ticks_of(pid_t pid) {
    char path[64], *text;
    size_t len;
    long user, system;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    assert_int_equal(ax_read_file(path, 1 << 12, &text, &len), AX_OK);
    assert_int_equal(sscanf(strrchr(text, ')'),
                            ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user,
                            &system),
                     2);
    ax_free(text);
    return user + system;
}

/* KiB of memory that a process has for data, touched or not. */
static long data_of(pid_t pid) {
    char path[64], *text;
    size_t len;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    assert_int_equal(ax_read_file(path, 1 << 16, &text, &len), AX_OK);
    const char *line = strstr(text, "\nVmData:");
    assert_non_null(line);
    const long kib = strtol(line + strlen("\nVmData:"), NULL, 10);
    ax_free(text);
    return kib;
}

/* Every rank frees a finished job, here of 90000 tokens with five logprobs each, before the next ones: 4 + 8 bytes for
 * each of one and five are more than 6 MiB, of which ten jobs would keep 60. */
static void jobs_are_freed_everywhere(void **state) {
    (void)state;
    struct server s;
    pid_t ranks[2] = {0};
    long before[2] = {0};
    open_long(&s, &meshes[0]);
    assert_int_equal(ranks_of(&s, ranks, 2), 2);
    for (int i = 0; i < 13; i++) {
        struct client c;
        client_open(&c, &s);
        client_send(&c, "POST", COMPLETE,
                    "{\"prompt\": \"a\", \"max_tokens\": 90000, \"ignore_eos\": true, "
                    "\"stream\": true, \"logprobs\": 5}");
        assert_int_equal(client_head(&c), 200);
        assert_true(client_chunk(&c));
        client_close(&c);
        wait_for(&s, "sequences_pending", 0);
        for (int k = 0; k < 2 && i == 2; k++)
            before[k] = data_of(ranks[k]);
    }
    for (int k = 0; k < 2; k++)
        assert_true(data_of(ranks[k]) - before[k] < 30 << 10);
    serve_close(&s);
}

/* Ranks that wait for requests use next to no time. */
static void idle_ranks_sleep(void **state) {
    (void)state;
    struct server s;
    pid_t ranks[2] = {0};
    open_on(&s, &meshes[0], model);
    json_decref(post(&s, COMPLETE, "{\"prompt\": \"a\", \"max_tokens\": 2}"));
    assert_int_equal(ranks_of(&s, ranks, 2), 2);
    const long before = ticks_of(ranks[0]) + ticks_of(ranks[1]);
    nap(3);
    assert_in_range(ticks_of(ranks[0]) + ticks_of(ranks[1]) - before, 0, sysconf(_SC_CLK_TCK) / 4);
    serve_close(&s);
}

/* A rank that is lost, in the middle of an answer or between two, ends the server, which names it. */
static void a_lost_rank(void **state) {
    (void)state;
    struct server s;
    struct client c;
    pid_t ranks[2] = {0};
    for (int idle = 0; idle < 2; idle++)
        for (size_t i = 0; i < 2; i++) {
            open_long(&s, &meshes[i]);
            if (!idle)
                begin_long(&c, &s);
            assert_int_equal(ranks_of(&s, ranks, 2), 2);
            kill(ranks[1], SIGKILL);
            assert_int_equal(serve_wait(&s, 20), 4);
            const char *text = server_said(&s);
            /* in the middle of a pass, the launcher may be the first to notice */
            if ((idle && !strstr(text, "rank 1 is gone")) || strstr(text, "a bug in") ||
                !strstr(text, "error rank 1 (process") || !strstr(text, "was killed by signal 9"))
                fail_msg("%s", text);
            while (!idle && client_more(&c)) /* to its end */
                ;
            if (!idle)
                client_close(&c);
        }
}

/* SIGTERM, to the launcher or to a rank that is not the first: answers end, and then all ranks. */
static void a_stop(void **state) {
    (void)state;
    struct server s;
    struct client c;
    pid_t ranks[2] = {0};
    for (int to_rank = 0; to_rank < 2; to_rank++) {
        open_on(&s, &meshes[to_rank], model);
        client_open(&c, &s);
        client_send(&c, "POST", COMPLETE,
                    "{\"prompt\": \"a\", \"max_tokens\": 200, \"ignore_eos\": true, \"stream\": "
                    "true}");
        assert_int_equal(client_head(&c), 200);
        assert_true(client_chunk(&c));
        assert_int_equal(ranks_of(&s, ranks, 2), 2);
        kill(to_rank ? ranks[1] : s.pid, SIGTERM);
        while (client_chunk(&c))
            ;
        assert_non_null(strstr(c.body.data, "\"finish_reason\":\"length\""));
        client_close(&c);
        const int code = serve_wait(&s, 30);
        if (code != 0 || !strstr(server_said(&s), "stopping: "))
            fail_msg("exit code %d: %s", code, server_said(&s));
    }
}

static void mistakes(void **state) {
    (void)state;
    static const struct {
        const char *words, *why;
    } cases[] = {
        {"--mesh pp=2", "serve supports only tp, ep, dp_replicate and dp_shard so far"},
        {"--mesh cp=2", "Nearest: pp 1 and cp 1."},
        {"--mesh tp=3", "does not equal the number of ranks, 2"},
        {"--host 0.0.0.0", "needs a key"},
        {"--mesh tp=2 --allow-control", "--allow-control is for a server on one rank"},
        {"--mesh tp=2 --adapter-slots 1", "--adapter-slots is for a server on one rank"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        if (run(said, sizeof said, "launch -n 2 -- serve %s --port 0 %s", model, cases[i].words) !=
                2 ||
            !strstr(said, cases[i].why))
            fail_msg("%s: %s", cases[i].words, said);
    assert_int_equal(run(said, sizeof said, "serve %s --allow-control --queue 1024", model), 2);
    assert_non_null(strstr(said, "can be 1008 together"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completions),
        cmocka_unit_test(chats),
        cmocka_unit_test(experts),
        cmocka_unit_test(bits_of_generate),
        cmocka_unit_test(clients_that_leave),
        cmocka_unit_test(jobs_are_freed_everywhere),
        cmocka_unit_test(idle_ranks_sleep),
        cmocka_unit_test(a_lost_rank),
        cmocka_unit_test(a_stop),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, setup, scratch_remove);
}
