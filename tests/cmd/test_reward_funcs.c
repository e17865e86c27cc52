/* Reward models among `axtrain grpo`'s rewards: they say what `axtrain eval --task reward|prm` says of the
 * same conversations, on any mesh, and mistakes are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/text/json.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

enum { PROMPTS = 12 };

static char said[1 << 16], rm[512], prm[512], base[512];

static void has(const char *part) {
    if (!strstr(said, part))
        fail_msg("\"%s\" lacks \"%s\"", said, part);
}

static void must(int code) {
    if (code != 0)
        fail_msg("exit code %d: %s", code, said);
}

static void clear(const char *name) {
    assert_int_equal(ax_remove_tree(in_scratch(name)), AX_OK);
}

static void find_goldens(void) {
    snprintf(base, sizeof base, "%s", golden_path("models/llama"));
    snprintf(rm, sizeof rm, "%s", golden_path("runs/reward/margin_trained"));
    snprintf(prm, sizeof prm, "%s", golden_path("runs/prm/prm_trained"));
}

/* The i-th prompt: a text, or messages. */
static json_t *prompt_of(int i, bool chat) {
    char text[64];
    snprintf(text, sizeof text, "What is after %d?", i);
    return !chat ? json_string(text)
                 : json_pack("[{ssss}{ssss}]", "role", "system", "content", "Be brief.", "role",
                             "user", "content", text);
}

static void write_lines(const char *name, const json_t *list) {
    FILE *f = fopen(in_scratch(name), "w");
    assert_non_null(f);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_dumpf(json_array_get(list, i), f, JSON_COMPACT);
        fputc('\n', f);
    }
    fclose(f);
}

static json_t *read_lines(const char *name) {
    json_t *list = json_array(), *v;
    FILE *f = fopen(in_scratch(name), "r");
    assert_non_null(f);
    while ((v = json_loadf(f, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL)) != NULL)
        json_array_append_new(list, v);
    fclose(f);
    return list;
}

/* A run with these rewards, written as a list in YAML. */
static const char *configure(const char *rewards, bool chat) {
    static char path[128];
    char text[3000];
    json_t *list = json_array();
    for (int i = 0; i < PROMPTS; i++)
        json_array_append_new(list,
                              json_pack("{so si}", "prompt", prompt_of(i, chat), "answer", i + 1));
    write_lines("prompts.jsonl", list);
    json_decref(list);
    snprintf(text, sizeof text,
             "base_model: %s\nrl: grpo\ntrl:\n  num_generations: 4\n  max_completion_length: 12\n"
             "  reward_funcs: [%s]\ndataset_prepared_path: %s/cache\ndatasets:\n"
             "  - path: %s/prompts.jsonl\nsequence_len: 96\nlearning_rate: 1e-3\nfloat32: true\n"
             "val_set_size: 0\nmax_steps: 2\nlogging_steps: 1\nmicro_batch_size: 4\n",
             base, rewards, scratch, scratch);
    snprintf(path, sizeof path, "%s", put_text("c.yaml", text));
    return path;
}

static void train(const char *out, const char *config, const char *launch, const char *more) {
    must(run(said, sizeof said, "%sgrpo '%s' output_dir='%s/%s' --quiet %s", launch, config,
             scratch, out, more));
}

/* ---- the same as eval ---- */

/* The run's completions as eval's records; rewards of `name` as a list. */
static json_t *records_of(const char *out, const char *name, bool chat, bool steps) {
    char path[64];
    snprintf(path, sizeof path, "%s/completions.jsonl", out);
    json_t *all = read_lines(path), *rows = json_array(), *rewards = json_array();
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *c = json_array_get(all, i);
        const json_t *reward = json_object_get(json_object_get(c, "rewards"), name);
        json_t *text = json_object_get(c, "completion");
        if (!json_is_number(reward) || (steps && strchr(json_string_value(text), '\n')))
            continue;
        json_t *prompt = prompt_of((int)json_integer_value(json_object_get(c, "line")) - 1, chat);
        json_array_append(rewards, (json_t *)(uintptr_t)reward);
        json_array_append_new(rows,
                              steps  ? json_pack("{so s[O]}", "prompt", prompt, "completions", text)
                              : chat ? json_pack("{so s[{ss sO}]}", "prompt", prompt, "completion",
                                                 "role", "assistant", "content", text)
                                     : json_pack("{so sO}", "prompt", prompt, "completion", text));
    }
    assert_true(json_array_size(rows) >= 6);
    write_lines("rows.jsonl", rows);
    json_decref(rows);
    json_decref(all);
    return rewards;
}

/* Of an answer without line breaks, its only step's. */
static double score_of(const json_t *row) {
    const json_t *score = json_object_get(row, "score"), *last = json_object_get(row, "last");
    assert_true(json_is_number(score) || json_is_number(last));
    return json_number_value(json_is_number(score) ? score : last);
}

static void same_as_eval(const char *model, const char *name, const char *task, bool chat) {
    json_t *rewards = records_of("a", name, chat, strcmp(task, "prm") == 0);
    double spread = 0;
    must(run(said, sizeof said,
             "eval --model '%s' --task %s --data '%s/rows.jsonl' --dtype float32 -o "
             "'%s/scores.jsonl'",
             model, task, scratch, scratch));
    json_t *scores = read_lines("scores.jsonl");
    assert_int_equal(json_array_size(scores), json_array_size(rewards));
    for (size_t i = 0; i < json_array_size(scores); i++) {
        const double got = json_number_value(json_array_get(rewards, i)),
                     want = score_of(json_array_get(scores, i));
        if (!(fabs(got - want) <= 1e-6))
            fail_msg("%s, answer %zu: reward %.9g, eval says %.9g", name, i, got, want);
        spread += fabs(got - json_number_value(json_array_get(rewards, 0)));
    }
    assert_true(spread > 1e-3);
    json_decref(scores);
    json_decref(rewards);
}

static void rewards_are_evals_scores(void **state) {
    (void)state;
    char rewards[1200];
    find_goldens();
    snprintf(rewards, sizeof rewards, "'format:e/?', %s/, '%s:last'", rm, prm);
    for (int chat = 0; chat < 2; chat++) {
        train("a", configure(rewards, chat), "", "trl.reward_weights=[1,0.5,2]");
        same_as_eval(rm, "margin_trained", "reward", chat);
        if (!chat)
            same_as_eval(prm, "prm_trained", "prm", chat);
        json_t *metrics = read_lines("a/metrics.jsonl");
        int found = 0;
        for (size_t i = 0; i < json_array_size(metrics); i++)
            found += json_is_number(
                json_object_get(json_array_get(metrics, i), "rewards/margin_trained/mean"));
        assert_int_equal(found, 2);
        json_decref(metrics);
        clear("a");
    }
}

/* Answers that are much longer than their prompts are scored, too: all that have a text. */
static void long_answers_have_rewards(void **state) {
    (void)state;
    size_t longest = 0;
    find_goldens();
    train("a", configure(rm, false), "", "trl.max_completion_length=80 max_steps=1");
    json_t *all = read_lines("a/completions.jsonl");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *c = json_array_get(all, i);
        const char *text = json_string_value(json_object_get(c, "completion"));
        longest = strlen(text) > longest ? strlen(text) : longest;
        if (text[strspn(text, " \n")] &&
            !json_is_number(json_object_get(json_object_get(c, "rewards"), "margin_trained")))
            fail_msg("no reward for \"%s\"", text);
    }
    assert_true(longest > 160);
    json_decref(all);
    clear("a");
}

/* Trains a reward model for a step; its folder. */
static const char *reward_model(const char *of, const char *more) {
    static char path[128];
    char pairs[512], text[1500];
    snprintf(pairs, sizeof pairs, "%s", golden_path("runs/data/preference_margin.jsonl"));
    snprintf(text, sizeof text,
             "base_model: %s\nreward_model: true\ndatasets:\n  - path: %s\nsequence_len: 128\n"
             "micro_batch_size: 2\nlearning_rate: 1e-2\nmax_steps: 2\nval_set_size: 0\n"
             "float32: true\n%s",
             of, pairs, more);
    snprintf(path, sizeof path, "%s", in_scratch("judge"));
    must(run(said, sizeof said, "train '%s' output_dir='%s' --quiet", put_text("rm.yaml", text),
             path));
    return path;
}

/* An adapter over the same base; a model with another tokenizer, template and width. */
static void any_reward_model(void **state) {
    (void)state;
    char other[512];
    find_goldens();
    snprintf(other, sizeof other, "%s", golden_path("models/qwen3"));
    for (int i = 0; i < 2; i++) {
        const char *dir = reward_model(
            i ? other : base,
            i ? "" : "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n");
        train("a", configure(dir, true), "", "");
        same_as_eval(dir, "judge", "reward", true);
        clear("a");
        clear("judge");
    }
}

static void set_pad(const char *folder, json_t *pad) {
    char path[200];
    snprintf(path, sizeof path, "%s/config.json", folder);
    json_t *v = json_load_file(path, 0, NULL);
    assert_non_null(v);
    assert_int_equal(json_object_set_new(v, "pad_token_id", pad), 0);
    assert_int_equal(json_dump_file(v, path, 0), 0);
    json_decref(v);
}

/* TRL sets pad_token_id to the tokenizer's pad token: rewards are the scores of a folder that says so. */
static void the_tokenizer_says_what_pads(void **state) {
    (void)state;
    find_goldens();
    const char *dir = reward_model(base, "special_tokens:\n  pad_token: <|eot_id|>\n");
    set_pad(dir, json_null());
    train("a", configure(dir, true), "", "");
    set_pad(dir, json_integer(504));
    same_as_eval(dir, "judge", "reward", true);
    clear("a");
    clear("judge");
}

/* ---- two of a name ---- */

static void copy_reward_model(const char *to, int positions) {
    static const char *const files[] = {"model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    char path[600];
    make_folder(to);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        copy_golden("runs/reward/margin_trained", files[i], to);
    snprintf(path, sizeof path, "%s/config.json", rm);
    json_t *v = json_load_file(path, 0, NULL);
    json_object_set_new(v, "max_position_embeddings", json_integer(positions));
    snprintf(path, sizeof path, "%s/config.json", to);
    assert_int_equal(json_dump_file(v, in_scratch(path), 0), 0);
    json_decref(v);
}

static bool is_reward(const json_t *line, const char *folder) {
    char key[200];
    snprintf(key, sizeof key, "rewards/%s/mean", folder);
    return json_is_number(json_object_get(line, key));
}

/* Folders of the same name are told apart by their paths. One reads at most as many tokens as a prompt has: its
 * answers have no reward, which is said once, not at each step. */
static void two_of_a_name(void **state) {
    (void)state;
    char rewards[600];
    find_goldens();
    copy_reward_model("x/judge", 96);
    copy_reward_model("y/judge", 8);
    snprintf(rewards, sizeof rewards, "'format:e', %s/x/judge, %s/y/judge", scratch, scratch);
    must(run(said, sizeof said, "grpo '%s' output_dir='%s/a'", configure(rewards, false), scratch));
    static const char text[] = "/y/judge: answers without any text, or with more than 8 of its ";
    const char *warning = strstr(said, text);
    assert_non_null(warning);
    assert_null(strstr(warning + strlen(text), text));
    json_t *metrics = read_lines("a/metrics.jsonl");
    int read = 0;
    for (size_t i = 0; i < json_array_size(metrics); i++) {
        const json_t *line = json_array_get(metrics, i);
        assert_false(is_reward(line, "judge"));
        read += is_reward(line, in_scratch("x/judge"));
    }
    assert_int_equal(read, 2);
    json_decref(metrics);
    clear("a");
    clear("x");
    clear("y");
}

/* ---- meshes ---- */

static void any_mesh(void **state) {
    (void)state;
    static const char *const meshes[] = {"dp_shard_size=2 gradient_accumulation_steps=1",
                                         "dp_replicate_size=2 gradient_accumulation_steps=1",
                                         "tensor_parallel_size=2"};
    char rewards[1200];
    find_goldens();
    snprintf(rewards, sizeof rewards, "%s, 'format:e', '%s:product'", rm, prm);
    const char *config = configure(rewards, false);
    train("a", config, "", "gradient_accumulation_steps=2");
    json_t *one = read_lines("a/completions.jsonl");
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        char more[100];
        snprintf(more, sizeof more, "gradient_accumulation_steps=2 %s", meshes[i]);
        train("b", config, "launch -n 2 -- ", more);
        json_t *two = read_lines("b/completions.jsonl");
        assert_int_equal(json_array_size(one), json_array_size(two));
        for (size_t k = 0; k < 8; k++) { /* of the first step: the weights are the same */
            const json_t *x = json_array_get(one, k), *y = json_array_get(two, k);
            assert_true(
                json_equal(json_object_get(x, "completion"), json_object_get(y, "completion")));
            const char *name;
            json_t *v;
            json_object_foreach(json_object_get(x, "rewards"), name, v) {
                const double want = json_number_value(v), got = json_number_value(json_object_get(
                                                              json_object_get(y, "rewards"), name));
                if (!(fabs(got - want) <= 1e-5))
                    fail_msg("%s, %s: %.9g, on one rank %.9g", meshes[i], name, got, want);
            }
        }
        json_decref(two);
        clear("b");
    }
    json_decref(one);
    clear("a");
}

/* ---- plans and mistakes ---- */

static void a_plan_has_its_memory(void **state) {
    (void)state;
    uint64_t arena[4];
    char rewards[600];
    find_goldens();
    for (int i = 0; i < 4; i++) {
        snprintf(rewards, sizeof rewards, "'format:e'%s%s", i % 2 ? ", " : "", i % 2 ? rm : "");
        must(run(said, sizeof said, "plan '%s' output_dir='%s/x' --json%s",
                 configure(rewards, false), scratch, i > 1 ? " float32=false bf16=true" : ""));
        json_t *v = json_loads(said, 0, NULL);
        const json_t *memory = json_object_get(v, "memory");
        arena[i] = (uint64_t)json_integer_value(json_object_get(memory, "arena_bytes"));
        json_decref(v);
    }
    const uint64_t weights = 163840 * 4; /* more than half of the folder's */
    if (!(arena[1] > arena[0] + weights / 2))
        fail_msg("arena of %llu bytes, with a reward model %llu", (unsigned long long)arena[0],
                 (unsigned long long)arena[1]);
    /* in the dtype of the trained one */
    assert_true(arena[3] > arena[2] + weights / 4);
    assert_true(arena[1] - arena[0] > arena[3] - arena[2] + weights / 4);
    must(run(said, sizeof said, "plan '%s' output_dir='%s/x'", configure(rewards, false), scratch));
    has("margin_trained: a reward model, llama, ");
    has(" parameters, frozen; the memory above includes it");
}

static void refuses(const char *reward, const char *what) {
    const int got = run(said, sizeof said, "grpo '%s' output_dir='%s/x' --quiet",
                        configure(reward, false), scratch);
    if (got != 2 || !strstr(said, what) || !strstr(said, "trl.reward_funcs"))
        fail_msg("%s: exit %d, expected 2 and \"%s\": %s", reward, got, what, said);
    assert_false(ax_path_exists(in_scratch("x")));
}

static void mistakes_are_named(void **state) {
    (void)state;
    char word[700];
    find_goldens();
    refuses(base,
            "expected a reward model or a process reward model, but this is a language model");
    snprintf(word, sizeof word, "'%s:mean'", prm);
    refuses(word, "expected min, product or last, got \"mean\"");
    snprintf(word, sizeof word, "'%s:min'", rm);
    refuses(word, "min, product and last are for process reward models");
    refuses("./nosuch", "reward function \"./nosuch\": there is no such file");
    refuses(in_scratch(""), "a folder is no program, and this one is no reward model");

    const char *dir = reward_model(base, "");
    snprintf(word, sizeof word, "%s", dir);
    json_t *config = json_load_file(in_scratch("judge/config.json"), 0, NULL);
    assert_non_null(config);
    json_object_set_new(config, "id2label", json_pack("{ssss}", "0", "LABEL_0", "1", "LABEL_1"));
    assert_int_equal(json_dump_file(config, in_scratch("judge/config.json"), 0), 0);
    json_decref(config);
    refuses(word, "a reward model needs 1 label, but this model has 2");
    clear("judge");
    reward_model(base, "");
    assert_int_equal(ax_unlink(in_scratch("judge/tokenizer.json")), AX_OK);
    const int got = run(said, sizeof said, "grpo '%s' output_dir='%s/x' --quiet",
                        configure(word, false), scratch);
    assert_true(got == 2 || got == 3);
    has("judge: tokenizer.json is missing in this folder");
    clear("judge");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewards_are_evals_scores),
        cmocka_unit_test(long_answers_have_rewards),
        cmocka_unit_test(the_tokenizer_says_what_pads),
        cmocka_unit_test(any_reward_model),
        cmocka_unit_test(two_of_a_name),
        cmocka_unit_test(any_mesh),
        cmocka_unit_test(a_plan_has_its_memory),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
