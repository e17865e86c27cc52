/* `axtrain grpo` with an environment: a tiny model plays with Guess of tests/goldens/tools/environments.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <math.h>
#include <unistd.h>

#include "tests/cmd/game_case.h"

/* ---- what a run does ---- */

/* The digits of a text as a number's; "0" if there are none, or nothing else. */
static void digits_of(const char *text, char *out, size_t size) {
    size_t n = 0;
    for (; *text && n + 1 < size; text++)
        if (isdigit((unsigned char)*text) && (n > 0 || *text != '0'))
            out[n++] = *text;
    if (n == 0)
        out[n++] = '0';
    out[n] = '\0';
}

/* Plays a line's game again: observations and rewards are those of the rules. Returns the rewards' sum. */
static double play(const json_t *v, bool *wins) {
    const json_t *messages = json_object_get(v, "messages"),
                 *rewards = json_object_get(v, "turn_rewards");
    const int secret = secret_of(v);
    double sum = 0;
    size_t turn = 0;
    for (size_t i = 0; i < json_array_size(messages); i += 2, turn++) {
        char guess[64], want[128];
        const json_t *own = json_array_get(messages, i), *next = json_array_get(messages, i + 1);
        assert_string_equal(text_of(own, "role"), "assistant");
        digits_of(text_of(own, "content"), guess, sizeof guess);
        if (turn == json_array_size(rewards)) { /* a turn that was cut */
            assert_true(json_is_true(json_object_get(v, "truncated")) && !next);
            break;
        }
        snprintf(want, sizeof want, "%d", secret);
        *wins = strcmp(guess, want) == 0;
        const double reward = *wins ? 1 : -0.25;
        assert_float_equal(json_number_value(json_array_get(rewards, turn)), reward, 0);
        sum += reward;
        if (!next)
            continue;
        assert_false(*wins);
        snprintf(want, sizeof want, "not %s, number %zu", guess, turn + 1);
        assert_string_equal(text_of(next, "role"), "user");
        assert_string_equal(text_of(next, "content"), want);
    }
    assert_true(turn <= 3);
    return sum;
}

/* What the model has not sampled is the text between its turns: observations, and the template's. */
static void check_spans(const json_t *v) {
    const json_t *spans = json_object_get(v, "model_tokens");
    int64_t sampled = 0;
    for (size_t i = 0; i < json_array_size(spans); i++) {
        const json_t *s = json_array_get(spans, i);
        sampled +=
            json_integer_value(json_array_get(s, 1)) - json_integer_value(json_array_get(s, 0));
    }
    assert_int_equal(sampled, json_integer_value(json_object_get(v, "tokens")));
    assert_int_equal(json_array_size(spans),
                     (json_array_size(json_object_get(v, "messages")) + 1) / 2);
}

static void a_model_plays(void **state) {
    double ratio[4] = {0}, kl[4] = {0}, turns[4] = {0}, mean[4] = {0}, sum[2] = {0};
    int n = 0, wins = 0, played[2] = {0};
    json_t *v;
    (void)state;
    train("a", configure_game(base, ""), "");
    for (; (v = line_of("a", n)) != NULL; n++) {
        bool win = false;
        const double reward = play(v, &win);
        const double given =
            json_number_value(json_object_get(json_object_get(v, "rewards"), "Guess"));
        assert_true(json_is_false(json_object_get(v, "lost")));
        assert_float_equal(given, reward, 0);
        check_spans(v);
        wins += win;
        sum[n / ANSWERS] += reward;
        played[n / ANSWERS] += (int)(json_array_size(json_object_get(v, "messages")) + 1) / 2;
        json_decref(v);
    }
    assert_int_equal(n, 2 * ANSWERS);
    assert_true(wins > 0 && played[0] > ANSWERS);
    assert_int_equal(numbers("a", "ratio_mean", ratio, 4), 2);
    assert_int_equal(numbers("a", "approx_kl", kl, 4), 2);
    assert_int_equal(numbers("a", "environment/turns", turns, 4), 2);
    assert_int_equal(numbers("a", "rewards/Guess/mean", mean, 4), 2);
    for (int i = 0; i < 2; i++) {
        assert_true(ratio[i] == 1 && kl[i] == 0);
        assert_true(turns[i] == played[i] / (double)ANSWERS);
        assert_float_equal(mean[i], sum[i] / ANSWERS, 1e-6);
    }
}

/* What an environment adds may differ among the answers of a group, which then have prompts of their own; rewards are
 * of the prompts with it. */
static void prompts_of_a_group_may_differ(void **state) {
    (void)state;
    static const char source[] =
        "class Varied:\n"
        "    made = 0\n"
        "    def reset(self, **columns):\n"
        "        Varied.made += 1\n"
        "        self.number = Varied.made\n"
        "        return ' Guess' + ' now' * (Varied.made % 3) + '.'\n"
        "    def step(self, answer):\n"
        "        return None, float(self.number), True\n"
        "\n"
        "def saw(prompts, **columns):\n"
        "    return [float(p[-1]['content'].count(' Guess') == 1) for p in prompts]\n";
    double ratio[4] = {0}, seen[4] = {0};
    char more[700];
    put_bytes("varied.py", source, sizeof source - 1);
    snprintf(more, sizeof more,
             "trl.environment_factory=%s/varied.py:Varied trl.reward_funcs=[varied.saw] "
             "tool_workers=1",
             scratch);
    assert_int_equal(setenv("PYTHONPATH", scratch, 1), 0);
    train("varied", configure_game(base, ""), more);
    assert_int_equal(unsetenv("PYTHONPATH"), 0);
    assert_int_equal(numbers("varied", "ratio_mean", ratio, 4), 2);
    assert_int_equal(numbers("varied", "rewards/varied.saw/mean", seen, 4), 2);
    for (int i = 0; i < 2; i++)
        assert_true(ratio[i] == 1 && seen[i] == 1);
    json_t *a = line_of("varied", 0), *b = line_of("varied", 1);
    assert_string_not_equal(text_of(a, "prompt"), text_of(b, "prompt"));
    json_decref(a);
    json_decref(b);
}

static void same(const char *a, const char *b, const char *file) {
    char *x = read_text(a, file), *y = read_text(b, file);
    if (strcmp(x, y) != 0)
        fail_msg("%s of %s and %s differ", file, a, b);
    ax_free(x);
    ax_free(y);
}

static bool agree(const json_t *x, const json_t *y, const char *key) {
    return json_equal(json_object_get(x, key), json_object_get(y, key));
}

/* The first n completions are those of run `a`, but for the ones that run `b` has lost, whose number it returns. */
static int alike(const char *a, const char *b, int n) {
    int lost = 0;
    for (int i = 0; i < n; i++) {
        json_t *x = line_of(a, i), *y = line_of(b, i), *v;
        const json_t *rewards = json_object_get(y, "rewards");
        const char *name;
        assert_true(x && y);
        if (json_is_true(json_object_get(y, "lost"))) {
            json_object_foreach((json_t *)(uintptr_t)rewards, name, v) assert_true(json_is_null(v));
            assert_float_equal(json_number_value(json_object_get(y, "advantage")), 0, 0);
            lost++;
        } else if (!(agree(x, y, "completion_ids") && agree(x, y, "model_tokens") &&
                     agree(x, y, "messages") && agree(x, y, "turn_rewards") &&
                     agree(json_object_get(x, "rewards"), rewards, "Guess"))) {
            fail_msg("completion %d of %s and %s differs", i, a, b);
        }
        json_decref(x);
        json_decref(y);
    }
    return lost;
}

/* Of the games that have a third turn, is the first half not of the first half of all? Then a rank that took its share of
 * those that go on would get games of another one. */
static bool shares_move(const char *name) {
    int first = 0, all = 0;
    for (int i = 0; i < ANSWERS; i++) {
        json_t *v = line_of(name, i);
        const bool third = json_array_size(json_object_get(v, "messages")) == 5;
        all += third;
        first += third && i < ANSWERS / 2;
        json_decref(v);
    }
    return first != (all + 1) / 2;
}

static void lanes_and_meshes_change_nothing(void **state) {
    static const char *const meshes[] = {"dp_shard_size=2 gradient_accumulation_steps=1",
                                         "dp_replicate_size=2 gradient_accumulation_steps=1",
                                         "tensor_parallel_size=2"};
    (void)state;
    const char *config = configure_game(base, "");
    assert_true(shares_move("a"));
    train("few", config, "generation_kv_memory=0.002");
    assert_int_equal(alike("a", "few", 2 * ANSWERS), 0);
    same("a", "few", "model.safetensors");
    setenv("AXTRAIN_TOOL_MOOD", "slow", 1); /* several processes */
    train("slow", config, "");
    unsetenv("AXTRAIN_TOOL_MOOD");
    assert_int_equal(alike("a", "slow", 2 * ANSWERS), 0);
    same("a", "slow", "model.safetensors");
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        if (run(said, sizeof said,
                "launch -n 2 -- grpo '%s' output_dir='%s/two' --quiet max_steps=1 %s", config,
                scratch, meshes[i]) != 0)
            fail_msg("%s: %s", meshes[i], said);
        assert_int_equal(alike("a", "two", ANSWERS), 0);
        clear("two");
    }
}

/* Data ranks tell each other log-probs and entropies of answers: those below the quantile of all have no loss. */
static void entropies_are_shared(void **state) {
    (void)state;
    double norm[2], loss[2], entropy[2];
    const char *config = configure_game(base, "");
    train("one", config, "max_steps=1 trl.top_entropy_quantile=0.3 trl.num_iterations=2");
    if (run(said, sizeof said,
            "launch -n 2 -- grpo '%s' output_dir='%s/two' --quiet max_steps=1 dp_shard_size=2 "
            "gradient_accumulation_steps=1 trl.top_entropy_quantile=0.3 trl.num_iterations=2",
            config, scratch) != 0)
        fail_msg("%s", said);
    static const char *const runs[] = {"one", "two"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(numbers(runs[i], "grad_norm", &norm[i], 1), 1);
        assert_int_equal(numbers(runs[i], "loss", &loss[i], 1), 1);
        assert_int_equal(numbers(runs[i], "entropy", &entropy[i], 1), 1);
    }
    if (fabs(norm[1] - norm[0]) > 1e-4 * norm[0] || fabs(loss[1] - loss[0]) > 1e-5)
        fail_msg("a norm of %g and %g, a loss of %g and %g", norm[0], norm[1], loss[0], loss[1]);
    assert_true(fabs(entropy[1] - entropy[0]) < 1e-4 * entropy[0]);
    clear("one");
    clear("two");
}

/* Of several, records choose one each: their answers are those of a run with that one for all, with its tools alone in
 * the prompt, and no other's reward. */
static void records_choose_an_environment(void **state) {
    static const char *const names[] = {"Guess", "Both"};
    struct ax_buf b = {0};
    char factories[2][300], more[900];
    int seen[2] = {0};
    (void)state;
    for (int i = 0; i < QUESTIONS; i++)
        assert_ok(ax_buf_printf(&b,
                                "{\"prompt\": [{\"role\": \"user\", \"content\": \"A number of one "
                                "digit.\"}], \"secret\": %d, \"environment\": \"%s\"}\n",
                                i % 10, i % 2 ? "with hints" : "plain"));
    const char *data = put_bytes("choosing.jsonl", b.data, b.len);
    ax_buf_free(&b);
    for (int k = 0; k < 2; k++) {
        snprintf(factories[k], sizeof factories[k], "%s:%s", golden_path("tools/environments.py"),
                 names[k]);
        snprintf(more, sizeof more,
                 "datasets.0.path='%s' max_steps=1 gradient_accumulation_steps=4 "
                 "trl.environment_factory='%s'",
                 data, factories[k]);
        train(names[k], configure_game(base, ""), more);
    }
    snprintf(more, sizeof more,
             "datasets.0.path='%s' max_steps=1 gradient_accumulation_steps=4 "
             "trl.environment_factory='{plain: \"%s\", with hints: \"%s\"}'",
             data, factories[0], factories[1]);
    train("mixed", configure_game(base, ""), more);
    for (int i = 0; i < 2 * ANSWERS; i++) {
        json_t *v = line_of("mixed", i);
        const json_t *rewards = json_object_get(v, "rewards");
        const int k = json_is_null(json_object_get(rewards, "Guess"));
        json_t *alone = line_of(names[k], i);
        assert_true(json_is_number(json_object_get(rewards, names[k])));
        assert_true(json_is_null(json_object_get(rewards, names[!k])));
        assert_true((strstr(text_of(v, "prompt"), "Tells the number.") != NULL) == (k == 1));
        if (!agree(v, alone, "prompt") || !agree(v, alone, "completion_ids") ||
            !agree(v, alone, "messages") || !agree(v, alone, "turn_rewards"))
            fail_msg("completion %d is not that of a run with %s alone", i, names[k]);
        json_decref(v);
        json_decref(alone);
        seen[k]++;
    }
    assert_true(seen[0] > 0 && seen[1] > 0);
}

/* In the middle of a generation, whose second half is trained on after it. */
static void a_run_goes_on_with_its_games(void **state) {
    (void)state;
    const char *config = configure_game(base, "");
    const char *more = "trl.steps_per_generation=4 trl.beta=0.1";
    char words[256];
    train("all", config, more);
    snprintf(words, sizeof words, "%s max_steps=1", more);
    train("part", config, words);
    snprintf(words, sizeof words, "%s resume_from_checkpoint='%s/part/checkpoint-1'", more,
             scratch);
    train("part", config, words);
    same("all", "part", "model.safetensors");
}

static void a_teacher_reads_observations(void **state) {
    double trained[2] = {0}, length[2] = {0}, turns[2] = {0};
    (void)state;
    if (run(said, sizeof said,
            "train '%s' output_dir='%s/distilled' --quiet rl=distill kd_teacher='%s' "
            "trl.num_generations= trl.top_k=4",
            configure_game(base, ""), scratch, golden_path("runs/models/tools_qwen3")) != 0)
        fail_msg("%s", said);
    assert_int_equal(numbers("distilled", "trained_tokens", trained, 2), 2);
    assert_int_equal(numbers("distilled", "completions/mean_length", length, 2), 2);
    assert_int_equal(numbers("distilled", "environment/turns", turns, 2), 2);
    for (int i = 0; i < 2; i++)
        assert_true(trained[i] == ANSWERS * length[i] && turns[i] > 1);
}

/* ---- what goes wrong ---- */

static void a_death_ends_one_episode(void **state) {
    double lost[2] = {0};
    char flag[256];
    json_t *last =
        line_of("a", ANSWERS - 1); /* others are played again, and go on, before and after it */
    (void)state;
    snprintf(flag, sizeof flag, "%s/died-%d", scratch, secret_of(last));
    json_decref(last);
    setenv("AXTRAIN_TOOL_MOOD", flag, 1);
    train("dies", configure_game(base, ""), "max_steps=1 trl.reward_funcs=\"['format:I']\"");
    unsetenv("AXTRAIN_TOOL_MOOD");
    assert_int_equal(alike("a", "dies", ANSWERS), 1);
    assert_int_equal(numbers("dies", "environment/lost_frequency", lost, 2), 1);
    assert_true(lost[0] == 1.0 / ANSWERS);
}

/* All but the lost game's tokens train, whichever form the teacher's loss has. */
static void a_teacher_leaves_lost_games_out(void **state) {
    static const char *const forms[] = {"trl.top_k=4", "trl.distillation_objective=sampled_token"};
    char flag[256];
    json_t *v = line_of("distilled", ANSWERS - 1);
    (void)state;
    snprintf(flag, sizeof flag, "%s/died-%d", scratch, secret_of(v));
    json_decref(v);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        double trained[2] = {0};
        json_int_t want = 0, all = 0;
        (void)unlink(flag);
        setenv("AXTRAIN_TOOL_MOOD", flag, 1);
        const int code = run(said, sizeof said,
                             "train '%s' output_dir='%s/taught-%zu' --quiet rl=distill "
                             "kd_teacher='%s' trl.num_generations= max_steps=1 %s",
                             configure_game(base, ""), scratch, i,
                             golden_path("runs/models/tools_qwen3"), forms[i]);
        unsetenv("AXTRAIN_TOOL_MOOD");
        if (code != 0)
            fail_msg("%s", said);
        char folder[32];
        snprintf(folder, sizeof folder, "taught-%zu", i);
        for (int k = 0; k < ANSWERS; k++) {
            v = line_of(folder, k);
            const json_int_t n = json_integer_value(json_object_get(v, "tokens"));
            all += n;
            if (json_is_true(json_object_get(v, "lost")))
                assert_true(json_number_value(json_object_get(v, "advantage")) == 0);
            else
                want += n;
            json_decref(v);
        }
        assert_true(want < all);
        assert_int_equal(numbers(folder, "trained_tokens", trained, 2), 1);
        assert_true(trained[0] == (double)want);
    }
}

static void an_environment_that_dies_ends_the_run(void **state) {
    (void)state;
    setenv("AXTRAIN_TOOL_MOOD", "die", 1);
    const int code = run(said, sizeof said, "grpo '%s' output_dir='%s/dies3' --quiet",
                         configure_game(base, ""), scratch);
    unsetenv("AXTRAIN_TOOL_MOOD");
    assert_int_equal(code, 3);
    assert_non_null(strstr(said, "environments.py:Guess: it died: exit code 3 (failure 1 in a "
                                 "row)"));
    assert_non_null(strstr(said, "failed 3 times in a row; the last: it died: exit code 3"));
}

static void what_cannot_be_is_refused(void **state) {
    static const struct {
        const char *more, *why;
    } cases[] = {
        {"trl.environment_factory=no_such.Thing",
         "environment \"no_such.Thing\": ModuleNotFoundError"},
        {"trl.environment_factory=thing", "expected module.Class or file.py:Class"},
        {"trl.generation_kwargs='{stop_strings: [x]}'", "stop_strings end an answer within a turn"},
        {"rl=dpo trl.max_completion_length= trl.num_generations= trl.max_turns=",
         "answers have environments with rl: grpo, gdpo, ppo and distill"},
        {"rl=distill trl.num_generations= trl.lmbda=0.5 kd_teacher=x",
         "answers of the data set have no environment"},
        {"datasets.0.path=%s/texts.jsonl", "environments need a prompt of messages, not a text"},
        {"trl.environment_factory='{}'", "0 environments: expected 1 to 16"},
        {"trl.environment_factory='{a: games.A, b: games.A}'", "environment \"games.A\": "},
        {"datasets.0.path='%s/other.jsonl' trl.environment_factory='{a: "
         "\"tests/goldens/tools/environments.py:Guess\"}'",
         "other.jsonl:1: column \"environment\": expected one of trl.environment_factory (a), got "
         "\"b\""},
        {"trl.environment_factory='{a: \"tests/goldens/tools/environments.py:Guess\"}'",
         "column \"environment\": expected one of trl.environment_factory (a), there is none"},
    };
    (void)state;
    const char *config = configure_game(base, "");
    put_text("texts.jsonl", "{\"prompt\": \"A number.\", \"secret\": 3}\n");
    put_text("other.jsonl", "{\"prompt\": [{\"role\": \"user\", \"content\": \"A number.\"}], "
                            "\"environment\": \"b\"}\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char more[512];
        snprintf(more, sizeof more, cases[i].more, scratch);
        const int code = run(said, sizeof said, "grpo '%s' output_dir='%s/no' --quiet %s", config,
                             scratch, more);
        if (code == 0 || !strstr(said, cases[i].why))
            fail_msg("%s: %d: %s", more, code, said);
    }
}

/* ---- the page ---- */

static void the_example_of_the_page_runs(void **state) {
    char *page;
    size_t n;
    (void)state;
    assert_ok(ax_read_file("docs/environments.md", 1 << 20, &page, &n));
    make_folder("page");
    write_block(page, "python", "page/games.py");
    write_block(page, "yaml", "page/c.yaml");
    ax_free(page);
    if (run(said, sizeof said,
            "grpo '%s/page/c.yaml' output_dir='%s/page/out' --quiet base_model='%s' "
            "datasets='[{path: %s/questions.jsonl}]' "
            "trl.environment_factory='%s/page/games.py:Guess'",
            scratch, scratch, base, scratch, scratch) != 0)
        fail_msg("%s", said);
    json_t *v = line_of("page/out", 0);
    assert_non_null(
        strstr(text_of(v, "prompt"), "A number of one digit. It is between 1 and 100."));
    json_decref(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_plays),
        cmocka_unit_test(prompts_of_a_group_may_differ),
        cmocka_unit_test(lanes_and_meshes_change_nothing),
        cmocka_unit_test(entropies_are_shared),
        cmocka_unit_test(records_choose_an_environment),
        cmocka_unit_test(a_run_goes_on_with_its_games),
        cmocka_unit_test(a_teacher_reads_observations),
        cmocka_unit_test(a_death_ends_one_episode),
        cmocka_unit_test(a_teacher_leaves_lost_games_out),
        cmocka_unit_test(an_environment_that_dies_ends_the_run),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(the_example_of_the_page_runs),
    };
    return cmocka_run_group_tests(tests, begin, scratch_remove);
}
