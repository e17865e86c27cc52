/* trl.lmbda: steps of rl: distill on the model's own answers, and others on those of the data set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/on_policy_case.h"

enum { RECORDS = 4, STEPS = 8 };
static char texts[512], chats[512];

/* As many records as a step has answers: then their order is none. */
static void write_data(void) {
    char text[2048] = "", chat[2048] = "";
    for (int i = 0; i < RECORDS; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"prompt\": \"What is %d plus %d? \", \"completion\": \"It is %d.\"}\n", i,
                 i + 2, 2 * i + 2);
        snprintf(chat + strlen(chat), sizeof chat - strlen(chat),
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"%d plus %d?\"}, {\"role\": "
                 "\"assistant\", \"content\": \"That is %d\"}]}\n",
                 i, i + 2, 2 * i + 2);
    }
    snprintf(texts, sizeof texts, "%s", put_bytes("texts.jsonl", text, strlen(text)));
    snprintf(chats, sizeof chats, "%s", put_bytes("chats.jsonl", chat, strlen(chat)));
}

static void mixed(const char *out, const char *more) {
    char all[512];
    snprintf(all, sizeof all, "datasets='[{path: %s}]' max_steps=%d %s", texts, STEPS, more);
    distill(out, all);
}

/* ---- the answers of the data set ---- */

/* Supervised distillation on the same records: another way from records to tokens. */
static void supervise(const char *out, const char *set) {
    static const char text[] = "base_model: m\nkd_teacher: t\ndatasets: [{path: d}]\n"
                               "sequence_len: 128\nmicro_batch_size: 2\n"
                               "gradient_accumulation_steps: 2\nmax_steps: 1\n"
                               "learning_rate: 3e-3\nlr_scheduler: constant\nkd_beta: 1\n";
    char path[256];
    snprintf(path, sizeof path, "%s", put_bytes("sft.yaml", text, sizeof text - 1));
    if (run(said, sizeof said,
            "sft '%s' base_model='%s' kd_teacher='%s' datasets='[{%s}]' "
            "dataset_prepared_path='%s/cache' output_dir='%s/%s' --quiet float32=true "
            "logging_steps=1",
            path, student, teacher, set, scratch, scratch, out) != 0)
        fail_msg("%s", said);
}

static void its_answers_are_trained_on_as_if_supervised(void **state) {
    (void)state;
    for (int chat = 0; chat < 2; chat++) {
        double loss[2] = {0}, norm[2] = {0}, trained[2] = {0};
        char set[700], more[900];
        snprintf(set, sizeof set, "path: %s%s", chat ? chats : texts,
                 chat ? ", type: chat_template, chat_template: chatml" : "");
        snprintf(more, sizeof more, "datasets='[{%s}]' max_steps=1 trl.lmbda=0", set);
        distill("a", more);
        supervise("b", set);
        for (int i = 0; i < 2; i++) {
            const char *folder = i == 0 ? "a" : "b";
            assert_int_equal(numbers(folder, "loss", &loss[i], 1), 1);
            assert_int_equal(numbers(folder, "grad_norm", &norm[i], 1), 1);
            assert_int_equal(numbers(folder, "trained_tokens", &trained[i], 1), 1);
        }
        assert_true(trained[0] > 0 && trained[0] == trained[1]);
        if (!(fabs(loss[0] - loss[1]) < 1e-6 && fabs(norm[0] - norm[1]) < 1e-5 * norm[1]))
            fail_msg("chat %d: loss %.9g and %.9g, norm %.9g and %.9g", chat, loss[0], loss[1],
                     norm[0], norm[1]);
        clear("a");
        clear("b");
    }
}

/* What is longer than an answer may be loses its end, as one that is sampled. */
static void long_answers_are_cut(void **state) {
    (void)state;
    mixed("a", "max_steps=1 trl.lmbda=0 trl.max_completion_length=3");
    for (int i = 0; i < RECORDS; i++) {
        json_t *v = completion("a", i);
        assert_int_equal(json_integer_value(json_object_get(v, "tokens")), 3);
        assert_true(json_is_true(json_object_get(v, "truncated")));
        json_decref(v);
    }
    clear("a");
}

/* One that just fits is whole. */
static void answers_that_fit_are_whole(void **state) {
    (void)state;
    json_int_t tokens[RECORDS], longest = 0;
    char more[100];
    mixed("a", "max_steps=1 trl.lmbda=0 trl.max_completion_length=40");
    for (int i = 0; i < RECORDS; i++) {
        json_t *v = completion("a", i);
        tokens[i] = json_integer_value(json_object_get(v, "tokens"));
        longest = tokens[i] > longest ? tokens[i] : longest;
        json_decref(v);
    }
    clear("a");
    assert_true(longest > 3 && longest < 40);
    for (int less = 0; less < 2; less++) {
        int cut = 0, want = 0;
        double clipped = 0;
        snprintf(more, sizeof more, "max_steps=1 trl.lmbda=0 trl.max_completion_length=%lld",
                 (long long)longest - less);
        mixed("a", more);
        for (int i = 0; i < RECORDS; i++) {
            json_t *v = completion("a", i);
            cut += json_is_true(json_object_get(v, "truncated"));
            want += less && tokens[i] == longest;
            assert_int_equal(json_integer_value(json_object_get(v, "tokens")),
                             tokens[i] - (less && tokens[i] == longest));
            json_decref(v);
        }
        assert_int_equal(cut, want);
        assert_int_equal(numbers("a", "completions/clipped_ratio", &clipped, 1), 1);
        assert_true(clipped == (double)cut / RECORDS);
        clear("a");
    }
}

/* ---- the draw ---- */

static void steps_are_drawn(void **state) {
    (void)state;
    double own[STEPS] = {0};
    int n = 0;
    mixed("a", "trl.lmbda=0.5");
    assert_int_equal(numbers("a", "on_policy", own, STEPS), STEPS);
    for (int k = 0; k < STEPS; k++)
        n += own[k] == 1;
    assert_true(n > 0 && n < STEPS);
    for (int i = 0; i < STEPS * RECORDS; i++) {
        json_t *v = completion("a", i);
        const char *text = json_string_value(json_object_get(v, "completion"));
        const bool sampled = json_is_true(json_object_get(v, "on_policy"));
        assert_true(sampled == (own[i / RECORDS] == 1));
        assert_true(sampled == (strncmp(text, "It is ", 6) != 0));
        json_decref(v);
    }
    mixed("b", "trl.lmbda=0.5 seed=7");
    double other[STEPS] = {0};
    assert_int_equal(numbers("b", "on_policy", other, STEPS), STEPS);
    assert_memory_not_equal(own, other, sizeof own);
    clear("a");
    clear("b");
}

static void the_ends_are_one_kind(void **state) {
    (void)state;
    mixed("a", "");
    mixed("b", "trl.lmbda=1");
    same_completions("a", "b");
    assert_true(hash_of("a", "model.safetensors") == hash_of("b", "model.safetensors"));
    json_t *v = completion("b", 0);
    assert_null(json_object_get(v, "on_policy"));
    json_decref(v);
    clear("a");
    clear("b");
}

static void a_resumed_run_is_the_run(void **state) {
    (void)state;
    mixed("a", "trl.lmbda=0.5");
    mixed("b", "trl.lmbda=0.5 max_steps=4");
    mixed("b", "trl.lmbda=0.5 resume_from_checkpoint=auto");
    same_completions("a", "b");
    assert_true(hash_of("a", "model.safetensors") == hash_of("b", "model.safetensors"));
    clear("a");
    clear("b");
}

static void ranks_draw_the_same(void **state) {
    (void)state;
    static const char *const meshes[] = {"dp_shard_size=2 gradient_accumulation_steps=1",
                                         "tensor_parallel_size=2"};
    for (size_t i = 0; i < 2; i++) {
        char more[900];
        mixed("a", "trl.lmbda=0.5 learning_rate=1e-7");
        snprintf(more, sizeof more,
                 "datasets='[{path: %s}]' max_steps=%d trl.lmbda=0.5 learning_rate=1e-7 %s", texts,
                 STEPS, meshes[i]);
        if (try("launch -n 2 -- train", config(), teacher, "b", more) != 0)
            fail_msg("%s", said);
        same_completions("a", "b");
        near_steps("loss", STEPS, 1e-6, meshes[i]);
        clear("a");
        clear("b");
    }
}

/* ---- mistakes ---- */

static void a_preview_shows_the_prompts(void **state) {
    (void)state;
    char more[700];
    snprintf(more, sizeof more,
             "datasets='[{path: %s}]' trl.lmbda=0.5 trl.max_completion_length=24", texts);
    if (run(said, sizeof said, "preview '%s' base_model='%s' kd_teacher='%s' %s", config(), student,
            teacher, more) != 0)
        fail_msg("%s", said);
    assert_non_null(strstr(said, "What is "));
}

static void mistakes(void **state) {
    (void)state;
    char more[900], path[512];
    static const char bad[] = "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"c\"}\n",
                      talk[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n",
                      number[] = "{\"prompt\": \"a\", \"completion\": 3}\n";
    static const struct {
        const char *text, *type, *says;
    } cases[] = {{bad, "", "bad.jsonl:2: completion is missing: trl.lmbda below 1"},
                 {number, "", "completion: expected text, as the prompt is one, got a number"},
                 {talk, ", type: chat_template", "the conversation does not end with an answer"},
                 {bad, ", type: {field_prompt: prompt, prompt_format: \"{prompt}\"}",
                  "a map makes prompts without answers of their own"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(path, sizeof path, "%s",
                 put_bytes("bad.jsonl", cases[i].text, strlen(cases[i].text)));
        snprintf(more, sizeof more, "datasets='[{path: %s%s}]' trl.lmbda=0.5", path, cases[i].type);
        const int rc = try("train", config(), teacher, "out", more);
        if ((rc != 2 && rc != 3) || !strstr(said, cases[i].says))
            fail_msg("%d, expected \"%s\" in: %s", rc, cases[i].says, said);
        clear("out");
    }
    assert_int_equal(try("train", config(), teacher, "out", "trl.lmbda=0.5 trl.tools='[python]'"),
                     2);
    assert_non_null(strstr(said, "trl.lmbda: answers of the data set call no tools"));
    assert_int_equal(try("train", config(), teacher, "out", "trl.lmbda=1.5"), 2);
}

static int begin(void **state) {
    const int failed = on_policy_begin(state);
    if (!failed)
        write_data();
    return failed;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_answers_are_trained_on_as_if_supervised),
        cmocka_unit_test(long_answers_are_cut),
        cmocka_unit_test(answers_that_fit_are_whole),
        cmocka_unit_test(steps_are_drawn),
        cmocka_unit_test(the_ends_are_one_kind),
        cmocka_unit_test(a_resumed_run_is_the_run),
        cmocka_unit_test(ranks_draw_the_same),
        cmocka_unit_test(a_preview_shows_the_prompts),
        cmocka_unit_test(mistakes)};
    return cmocka_run_group_tests(tests, begin, scratch_remove);
}
