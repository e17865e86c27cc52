/* `axtrain ppo`: its advantages are those of the formulas, it goes on where it was to the bit, and it
 * says what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <sched.h>
#include <sys/stat.h>

#include "base/hash/hash.h"
#include "base/text/json.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

enum { ANSWERS = 8, LENGTH = 10 };

#define ADAPTER "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true"

static char model[512]; /* whose tokenizer a mixture has */

#include "tests/cmd/experts_model.h"

static char said[1 << 16];

static void must(int code) {
    if (code != 0)
        fail_msg("exit code %d: %s", code, said);
}

static void clear(const char *name) {
    assert_int_equal(ax_remove_tree(in_scratch(name)), AX_OK);
}

/* Tokens that end an answer, beside EOS. */
#define STOPS        10, 50, 78, 100, 150, 200, 496, 300
#define TEXT(x)      TEXT_OF(x)
#define TEXT_OF(...) #__VA_ARGS__

static bool stops(json_int_t token) {
    static const json_int_t list[] = {STOPS};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i] == token)
            return true;
    return false;
}

/* Two steps of a generation, each taken twice. */
static const char *configure(void) {
    static char path[128];
    char base[512], rm[512], text[3000];
    struct ax_buf rows = {0};
    for (int i = 0; i < 24; i++)
        assert_int_equal(
            ax_buf_printf(&rows, "{\"prompt\": \"What is after %d%.*s?\"}\n", i, i % 7, " or so"),
            AX_OK);
    put_bytes("prompts.jsonl", rows.data, rows.len);
    ax_buf_free(&rows);
    snprintf(base, sizeof base, "%s", golden_path("models/llama"));
    snprintf(rm, sizeof rm, "%s", golden_path("runs/reward/margin_trained"));
    snprintf(
        text, sizeof text,
        "base_model: %s\nrl: ppo\nppo:\n  reward_model_path: %s\n  response_length: %d\n"
        "  num_ppo_epochs: 2\n  num_mini_batches: 2\n  missing_eos_penalty: 0.5\n"
        "trl:\n  reward_funcs: ['format:e']\n  reward_weights: [0.5]\n"
        "  generation_kwargs: {stop_token_ids: [" TEXT(
            STOPS) "]}\n"
                   "dataset_prepared_path: %s/cache\ndatasets:\n  - path: %s/prompts.jsonl\n"
                   "sequence_len: 64\nlearning_rate: 1e-3\nlr_scheduler: constant\nfloat32: true\n"
                   "val_set_size: 0\nmax_steps: 6\nlogging_steps: 1\nsave_steps: 1\n"
                   "save_total_limit: 10\nmicro_batch_size: 4\n",
        base, rm, LENGTH, scratch, scratch);
    snprintf(path, sizeof path, "%s", put_text("c.yaml", text));
    return path;
}

static void train(const char *out, const char *launch, const char *more) {
    must(run(said, sizeof said, "%sppo '%s' output_dir='%s/%s' --quiet %s", launch, configure(),
             scratch, out, more));
}

static uint64_t hash_of(const char *folder, const char *name) {
    char path[256], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/%s/%s", scratch, folder, name);
    assert_int_equal(ax_read_file(path, 1 << 24, &text, &n), AX_OK);
    const uint64_t hash = ax_hash64(text, n, 0);
    ax_free(text);
    return hash;
}

static json_t *lines(const char *folder, const char *name) {
    char path[256];
    json_t *list = json_array(), *v;
    snprintf(path, sizeof path, "%s/%s/%s", scratch, folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while ((v = json_loadf(f, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL)) != NULL)
        json_array_append_new(list, v);
    fclose(f);
    return list;
}

/* ---- numbers ---- */

static double at(const json_t *c, const char *key, int64_t i) {
    const json_t *x = json_array_get(json_object_get(c, key), (size_t)i);
    assert_true(json_is_number(x));
    return json_number_value(x);
}

static void near(const json_t *figures, const char *key, double want) {
    const json_t *x = json_object_get(figures, key);
    if (!json_is_number(x) || fabs(json_number_value(x) - want) > 1e-5 * (1 + fabs(want)))
        fail_msg("%s: %g, expected %g", key, json_number_value(x), want);
}

/* What the functions and the reward model say of an answer: one that says nothing counts as 0. */
static double worth(const json_t *said_of) {
    const json_t *picky = json_object_get(said_of, in_scratch("picky"));
    return picky ? json_number_value(picky)
                 : 0.5 * json_number_value(json_object_get(said_of, "format:e")) +
                       json_number_value(json_object_get(said_of, "margin_trained"));
}

/* As TRL's PPOTrainer computes them, from what a checkpoint within the second generation has; `figures`
 * are that generation's. How many ended by themselves. */
static int judge(const json_t *list, const json_t *logged, const json_t *figures, bool whitens) {
    double raw[ANSWERS][LENGTH], rewards[ANSWERS][LENGTH] = {{0}}, mean = 0, squares = 0;
    double kl = 0, entropy = 0, score = 0;
    int64_t n[ANSWERS], places[ANSWERS], all = 0;
    int ended = 0;
    for (int i = 0; i < ANSWERS; i++) {
        const json_t *c = json_array_get(list, (size_t)i);
        const json_t *got = json_object_get(json_array_get(logged, (size_t)i), "rewards");
        const bool cut = json_is_true(json_object_get(c, "truncated"));
        n[i] = (int64_t)json_array_size(json_object_get(c, "completion"));
        places[i] = n[i] < LENGTH ? n[i] + 1 : n[i];
        assert_int_equal(json_array_size(json_object_get(c, "values")), places[i]);
        const json_t *last = json_array_get(json_object_get(c, "completion"), (size_t)(n[i] - 1));
        assert_int_equal(cut, n[i] == LENGTH && !stops(json_integer_value(last)));
        ended += !cut;
        for (int64_t t = 0; t < n[i]; t++) {
            rewards[i][t] = -0.05 * (at(c, "logprobs", t) - at(c, "reference", t));
            kl += (at(c, "logprobs", t) - at(c, "reference", t)) / ANSWERS;
            entropy -= at(c, "logprobs", t) / ANSWERS;
        }
        rewards[i][places[i] - 1] += worth(got) - (cut ? 0.5 : 0);
        score += (worth(got) - (cut ? 0.5 : 0)) / ANSWERS;
        for (int64_t t = 0; t < places[i]; t++, all++)
            mean += rewards[i][t];
    }
    assert_true(kl != 0);
    near(figures, "objective/kl", kl);
    near(figures, "objective/entropy", entropy);
    near(figures, "objective/scores", score);
    near(figures, "objective/non_score_reward", -0.05 * kl);
    near(figures, "val/num_eos_tokens", ended);
    mean /= (double)all;
    for (int i = 0; i < ANSWERS; i++)
        for (int64_t t = 0; t < places[i]; t++)
            squares += pow(rewards[i][t] - mean, 2);
    for (int i = 0; whitens && i < ANSWERS; i++)
        for (int64_t t = 0; t < places[i]; t++)
            rewards[i][t] =
                (rewards[i][t] - mean) / sqrt(squares / (double)(all - 1) + 1e-8) + mean;
    mean = squares = 0;
    all = 0;
    for (int i = 0; i < ANSWERS; i++) {
        const json_t *c = json_array_get(list, (size_t)i);
        double last = 0;
        for (int64_t t = places[i] - 1; t >= 0; t--) {
            const double next = t + 1 < places[i] ? at(c, "values", t + 1) : 0;
            last = rewards[i][t] + next - at(c, "values", t) + 0.95 * last;
            raw[i][t] = last;
            assert_true(fabs(at(c, "returns", t) - (last + at(c, "values", t))) < 1e-5);
        }
        for (int64_t t = 0; t < n[i]; t++, all++)
            mean += raw[i][t];
    }
    mean /= (double)all;
    for (int i = 0; i < ANSWERS; i++)
        for (int64_t t = 0; t < n[i]; t++)
            squares += pow(raw[i][t] - mean, 2);
    for (int i = 0; i < ANSWERS; i++)
        for (int64_t t = 0; t < n[i]; t++)
            assert_true(fabs(at(json_array_get(list, (size_t)i), "advantages", t) -
                             (raw[i][t] - mean) / sqrt(squares / (double)(all - 1) + 1e-8)) < 1e-4);
    return ended;
}

/* A program that has an opinion of answers with an e only, as an option. */
static void put_picky(char *option, size_t size) {
    snprintf(option, size,
             "ppo.reward_model_path=null trl.reward_weights=[1] trl.reward_funcs=\"['%s']\"",
             put_text("picky",
                      "#!/usr/bin/env python3\n"
                      "import json, sys\n"
                      "for line in sys.stdin:\n"
                      "    print(json.dumps({'rewards': [2.0 if 'e' in c else None for c in "
                      "json.loads(line)['completions']]}), flush=True)\n"));
    assert_int_equal(chmod(in_scratch("picky"), 0700), 0);
}

/* Of the functions and the reward model, whitened, and of a function that says nothing of some answers. */
static void advantages_are_those_of_the_formulas(void **state) {
    (void)state;
    char picky[400];
    put_picky(picky, sizeof picky);
    const char *const ways[] = {"", "ppo.whiten_rewards=true", picky};
    int ended = 0;
    for (int way = 0; way < 3; way++) {
        train("a", "", ways[way]);
        json_t *metrics = lines("a", "metrics.jsonl"), *figures = NULL, *v;
        size_t k;
        json_array_foreach(metrics, k, v) if (json_object_get(v, "episode")) figures = v;
        json_t *logged = lines("a", "completions.jsonl"), *second = json_array();
        for (size_t i = 0; i < ANSWERS; i++)
            json_array_append(second, json_array_get(logged, ANSWERS + i));
        v = json_load_file(in_scratch("a/checkpoint-5/state/manifest.json"), 0, NULL);
        assert_non_null(v);
        const json_t *rollout = json_object_get(json_object_get(v, "run"), "rollout");
        const json_t *list = json_object_get(rollout, "completions");
        assert_int_equal(json_array_size(list), ANSWERS);
        ended += judge(list, second, figures, way == 1);
        json_decref(metrics);
        json_decref(v);
        json_decref(second);
        json_decref(logged);
        clear("a");
    }
    assert_true(ended > 0 && ended < 3 * ANSWERS);
}

/* TRL's names in every line, and of a generation in its first; the policy has not moved there. */
static void metrics_have_trls_names(void **state) {
    (void)state;
    static const char *const each[] = {"loss/value_avg",      "val/clipfrac_avg",
                                       "policy/clipfrac_avg", "policy/approxkl_avg",
                                       "policy/entropy_avg",  "val/ratio"};
    static const char *const first[] = {"objective/kl",
                                        "objective/entropy",
                                        "objective/scores",
                                        "objective/non_score_reward",
                                        "objective/rlhf_reward",
                                        "val/num_eos_tokens",
                                        "episode"};
    int steps = 0, generations = 0;
    double episode = 0, before = 0;
    train("a", "", "");
    json_t *all = lines("a", "metrics.jsonl");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *v = json_array_get(all, i);
        if (!json_object_get(v, "grad_norm"))
            continue;
        for (size_t k = 0; k < sizeof each / sizeof *each; k++)
            assert_true(json_is_number(json_object_get(v, each[k])));
        assert_null(json_object_get(v, "frac_reward_zero_std")); /* there are no groups */
        const double tokens = json_number_value(json_object_get(v, "tokens"));
        const double trained = json_number_value(json_object_get(v, "trained_tokens"));
        assert_true(trained > 0 && tokens > trained); /* prompts, too */
        const double ratio = json_number_value(json_object_get(v, "val/ratio"));
        assert_int_equal(ratio == 1, steps % 4 == 0);
        steps++;
        generations += json_is_number(json_object_get(v, "episode"));
        for (size_t k = 0; k < sizeof first / sizeof *first; k++)
            assert_int_equal(json_is_number(json_object_get(v, first[k])), steps % 4 == 1);
        if (steps % 4 != 1)
            continue;
        const double sum = json_number_value(json_object_get(v, "objective/scores")) +
                           json_number_value(json_object_get(v, "objective/non_score_reward"));
        assert_true(fabs(json_number_value(json_object_get(v, "objective/rlhf_reward")) - sum) <
                    1e-9);
        episode = json_number_value(json_object_get(v, "episode"));
        assert_true(episode > 0 && (generations < 2 || episode == 2 * before));
        before = episode;
    }
    assert_int_equal(steps, 6);
    assert_int_equal(generations, 2);
    json_decref(all);
    clear("a");
}

/* The memory by name in run.json is that of all models: the value model trains, too. */
static void memory_is_of_all_models(void **state) {
    (void)state;
    double moments = 0;
    size_t i;
    json_t *block;
    train("m", "", "max_steps=1");
    json_t *all = lines("m", "run.json");
    const json_t *run = json_array_get(all, 0), *memory = json_object_get(run, "memory");
    const double parameters = json_number_value(json_object_get(run, "parameters"));
    json_array_foreach(json_object_get(memory, "blocks"), i, block) {
        if (strcmp(json_string_value(json_object_get(block, "name")), "exp_avg") == 0)
            moments += json_number_value(json_object_get(block, "bytes"));
    }
    assert_true(parameters > 0 && moments > 1.5 * 4 * parameters);
    json_decref(all);
    clear("m");
}

/* Half the mean square of what the value model's first step in a generation is off by: it predicts what it
 * predicted, at the same tokens. */
static void the_value_model_learns_its_own_tokens(void **state) {
    (void)state;
    train("a", "", "ppo.num_mini_batches=1 ppo.vf_coef=1 max_steps=3");
    json_t *all = lines("a", "metrics.jsonl");
    json_t *v = json_load_file(in_scratch("a/checkpoint-3/state/manifest.json"), 0, NULL);
    const json_t *rollout = json_object_get(json_object_get(v, "run"), "rollout");
    const json_t *list = json_object_get(rollout, "completions");
    double squares = 0, got = NAN;
    size_t places = 0;
    assert_true(json_array_size(list) > 0);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        const size_t n = json_array_size(json_object_get(c, "values"));
        for (size_t t = 0; t < n; t++)
            squares += pow(at(c, "values", (int64_t)t) - at(c, "returns", (int64_t)t), 2);
        places += n;
    }
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *line = json_array_get(all, i);
        if (json_object_get(line, "grad_norm")) /* the last: step 3 */
            got = json_number_value(json_object_get(line, "loss/value_avg"));
    }
    const double want = 0.5 * squares / (double)places;
    if (!(fabs(got - want) < 1e-4 * want))
        fail_msg("loss/value_avg %.9g, expected %.9g", got, want);
    json_decref(v);
    json_decref(all);
    clear("a");
}

/* ---- what must not make a difference ---- */

static uint64_t state_of(const char *folder, int step) {
    char name[80];
    snprintf(name, sizeof name, "checkpoint-%d/state/rank-00000.safetensors", step);
    return hash_of(folder, name);
}

/* Both models take a step at the rate of that step. */
static void rates_are_of_their_step(void **state) {
    (void)state;
    train("a", "", "max_steps=2");
    train("b", "", "max_steps=2 lr_scheduler=linear"); /* begins with the full rate */
    assert_true(state_of("a", 1) == state_of("b", 1));
    assert_true(state_of("a", 2) != state_of("b", 2));
    clear("a");
    clear("b");
}

/* A save that waits for the disk before it reads anything saves what the models were, as the last save of a
 * run does. */
static void slow_saves_are_of_their_step(void **state) {
    (void)state;
    train("a", "", "max_steps=2");
    setenv("AX_FAULT",
           "mkdir:1:delay,mkdir:2:delay,mkdir:3:delay,mkdir:4:delay,mkdir:5:delay,mkdir:6:delay,"
           "mkdir:7:delay,mkdir:8:delay,mkdir:9:delay,mkdir:10:delay",
           1);
    train("b", "", "max_steps=3");
    unsetenv("AX_FAULT");
    assert_true(state_of("a", 2) == state_of("b", 2));
    clear("a");
    clear("b");
}

static void same_run(const char *a, const char *b, const char *weights) {
    assert_true(hash_of(a, "completions.jsonl") == hash_of(b, "completions.jsonl"));
    assert_true(hash_of(a, weights) == hash_of(b, weights));
    /* the value model, too */
    assert_true(hash_of(a, "checkpoint-6/state/rank-00000.safetensors") ==
                hash_of(b, "checkpoint-6/state/rank-00000.safetensors"));
}

static void goes_on_within_a_generation(void **state) {
    (void)state;
    static const char *const options[] = {"", ADAPTER};
    for (int i = 0; i < 2; i++) {
        char more[200];
        train("a", "", options[i]);
        snprintf(more, sizeof more, "max_steps=3 %s", options[i]);
        train("b", "", more);
        snprintf(more, sizeof more, "resume_from_checkpoint=auto %s", options[i]);
        train("b", "", more);
        same_run("a", "b", i ? "adapter_model.safetensors" : "model.safetensors");
        clear("a");
        clear("b");
    }
}

/* An adapter with a score on the tiny llama, whose folder is named in it as `base`. */
static void put_judge(const char *base) {
    char text[1500], of[512];
    snprintf(of, sizeof of, "%s", base);
    snprintf(text, sizeof text,
             "base_model: %s\nreward_model: true\nadapter: lora\nlora_r: 2\nlora_alpha: 4\n"
             "lora_target_linear: true\ndatasets:\n  - path: %s\nsequence_len: 128\nmax_steps: 2\n"
             "learning_rate: 1e-2\nval_set_size: 0\nfloat32: true\n",
             of, golden_path("runs/data/preference_margin.jsonl"));
    put_text("rm.yaml", text);
    must(run(said, sizeof said, "train '%s/rm.yaml' output_dir='%s/rm' --quiet", scratch, scratch));
}

/* Policy, reference, value and reward model read one folder's weights: copies of it are no better. */
static void one_base_for_all(void **state) {
    (void)state;
    char more[400], copy[200];
    put_judge(golden_path("models/llama"));
    snprintf(more, sizeof more, ADAPTER " ppo.reward_model_path='%s/rm'", scratch);
    train("a", "", more);
    must(run(said, sizeof said, "plan '%s' output_dir='%s/x' %s", configure(), scratch, more));
    assert_non_null(strstr(said, "whose adapter trains on the policy's base"));
    assert_non_null(strstr(said, "frozen, on the policy's base"));
    clear("rm");
    snprintf(copy, sizeof copy, "%s/copy", scratch);
    snprintf(said, sizeof said, "cp -rL '%s' '%s'", golden_path("models/llama"), copy);
    assert_int_equal(system(said), 0);
    put_judge(copy);
    train("b", "", more);
    must(run(said, sizeof said, "plan '%s' output_dir='%s/x' %s", configure(), scratch, more));
    assert_null(strstr(said, "frozen, on the policy's base"));
    same_run("a", "b", "adapter_model.safetensors");
    /* with a reward model of its own, the value model is on that */
    train("c", "", ADAPTER);
    must(run(said, sizeof said, "plan '%s' output_dir='%s/x' " ADAPTER, configure(), scratch));
    assert_non_null(strstr(said, "whose adapter trains on the reward model's weights"));
    for (char name[] = "a"; *name <= 'c'; ++*name)
        clear(name);
    clear("rm");
    clear("copy");
}

/* A mixture counts its experts' loads over ranks; the value model, which starts from a dense reward model, has none. */
static void ranks_follow_both_models(void **state) {
    (void)state;
    char more[512];
    snprintf(model, sizeof model, "%s", golden_path("models/llama"));
    snprintf(more, sizeof more, "base_model='%s' max_steps=2 micro_batch_size=2", make_experts());
    train("both", "launch -n 2 -- ", more);
    clear("both");
}

static void any_number_of_threads(void **state) {
    (void)state;
    char command[600];
    train("a", "", "");
    snprintf(command, sizeof command, "taskset -c %d '%s' ppo '%s' output_dir='%s/b' --quiet",
             sched_getcpu(), getenv("AX_TEST_BIN") ? getenv("AX_TEST_BIN") : "build/axtrain",
             configure(), scratch);
    assert_int_equal(system(command), 0);
    same_run("a", "b", "model.safetensors");
    clear("a");
    clear("b");
}

/* ---- plans and mistakes ---- */

static void refuses(const char *more, const char *what) {
    const int got =
        run(said, sizeof said, "ppo '%s' output_dir='%s/x' %s", configure(), scratch, more);
    if (got != 2 || !strstr(said, what))
        fail_msg("%s: exit %d, expected 2 and \"%s\": %s", more, got, what, said);
}

static void mistakes_are_named(void **state) {
    (void)state;
    char more[700];
    refuses("ppo.reward_model_path=null trl.reward_funcs=null trl.reward_weights=null",
            "what are answers worth?");
    snprintf(more, sizeof more, "ppo.reward_model_path=%s", golden_path("models/llama"));
    refuses(more, "expected a reward model or a process reward model");
    refuses("ppo.kl_coeff=0.1", "unknown key");
    refuses("ppo.kl_estimator=k2", "ppo.kl_estimator");
    refuses("ppo.num_mini_batches=2147483647", "are too many: a generation has at most");
    refuses(ADAPTER " relora=true jagged_restart_steps=2 ppo.kl_coef=0.05",
            "relora: merges the adapter into the base at each restart, which is the reference of "
            "ppo.kl_coef");
    refuses("rl=grpo", "`axtrain ppo` needs a configuration with rl: ppo");
    must(run(said, sizeof said, "plan '%s' output_dir='%s/x'", configure(), scratch));
    assert_non_null(strstr(said, "value    a model with one label, llama, "));
    assert_non_null(strstr(said, "sampling 8 prompts × 1 answer for 4 steps"));
}

/* A value model that is not finite is named before the first step, where its file was read all the same. */
static void nan_in_the_value_model(void **state) {
    (void)state;
    char command[1200];
    snprintf(command, sizeof command,
             "cp -r '%s' '%s/nan' && cd '%s/nan' && printf '\\0\\0\\300\\177' | dd "
             "of=model.safetensors bs=1 conv=notrunc status=none "
             "seek=$(($(stat -L -c %%s model.safetensors) - 4))",
             golden_path("runs/reward/margin_trained"), scratch, scratch);
    assert_int_equal(system(command), 0);
    setenv("AXTRAIN_NONFINITE", "allow", 1);
    assert_int_equal(run(said, sizeof said,
                         "ppo '%s' output_dir='%s/x' ppo.reward_model_path='%s/nan'", configure(),
                         scratch, scratch),
                     3);
    unsetenv("AXTRAIN_NONFINITE");
    if (!strstr(said, "/nan: the value model's tensor ") || !strstr(said, " is nan, and a model "))
        fail_msg("%s", said);
    clear("x");
    clear("nan");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_in_the_value_model),
        cmocka_unit_test(advantages_are_those_of_the_formulas),
        cmocka_unit_test(metrics_have_trls_names),
        cmocka_unit_test(memory_is_of_all_models),
        cmocka_unit_test(the_value_model_learns_its_own_tokens),
        cmocka_unit_test(rates_are_of_their_step),
        cmocka_unit_test(slow_saves_are_of_their_step),
        cmocka_unit_test(goes_on_within_a_generation),
        cmocka_unit_test(one_base_for_all),
        cmocka_unit_test(ranks_follow_both_models),
        cmocka_unit_test(any_number_of_threads),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
