/* `axtrain grpo`: what it samples and trains on depends on nothing but the seed; it goes on where it
 * was; and what it says of mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <sched.h>

#include "base/fit.h"
#include "data/records/rows/rows.h"
#include "data/reward/sandbox/sandbox.h"
#include "tests/cmd/grpo_case.h"
#include "tests/golden_files.h"
#include "tests/long.h"

#define ADAPTER "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true "

static void has(const char *part) {
    if (!strstr(said, part))
        fail_msg("\"%s\" lacks \"%s\"", said, part);
}

static int count(const char *part) {
    int n = 0;
    for (const char *at = said; (at = strstr(at, part)) != NULL; at++)
        n++;
    return n;
}

/* ---- what a run has left ---- */

static void same_run(const char *a, const char *b, const char *weights) {
    same_completions(a, b);
    if (hash_of(a, weights) != hash_of(b, weights))
        fail_msg("%s and %s have different weights", a, b);
}

static void close_losses(const char *a, const char *b, double tolerance) {
    double x[8], y[8];
    const int n = numbers(a, "loss", x, 8);
    assert_int_equal(numbers(b, "loss", y, 8), n);
    for (int i = 0; i < n; i++)
        if (!(fabs(x[i] - y[i]) <= tolerance))
            fail_msg("step %d: loss %.9g of %s, %.9g of %s", i + 1, x[i], a, y[i], b);
}

/* ---- numbers ---- */

/* The log-probs that tokens were drawn with are those that training computes, to the bit: the ratio is
 * 1 until the policy has moved. Where it is trained twice on the same, the second time it is not. */
static void the_first_ratio_is_one(void **state) {
    (void)state;
    static const char *const options[] = {
        "",
        ADAPTER,
        "trl.temperature=0.7",
        "trl.top_k=20 trl.top_p=0.9",
        "trl.loss_type=grpo",
        "trl.importance_sampling_level=sequence trl.loss_type=grpo"};
    double ratio[4], kl[4], norm[4];
    const char *config = configure("", "micro_batch_size: 4\ngradient_accumulation_steps: 2\n");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        train("one", config, options[i]);
        assert_int_equal(numbers("one", "ratio_mean", ratio, 4), 4);
        assert_int_equal(numbers("one", "approx_kl", kl, 4), 4);
        assert_int_equal(numbers("one", "grad_norm", norm, 4), 4);
        for (int k = 0; k < 4; k++)
            if (ratio[k] != 1 || kl[k] != 0)
                fail_msg("%s, step %d: ratio %.17g, approx_kl %g, grad_norm %g", options[i], k + 1,
                         ratio[k], kl[k], norm[k]);
        assert_true(norm[0] + norm[1] + norm[2] + norm[3] > 0);
        clear("one");
    }
    train("one", config, "trl.num_iterations=2");
    assert_int_equal(numbers("one", "ratio_mean", ratio, 4), 4);
    for (int k = 0; k < 4; k++)
        assert_int_equal(ratio[k] == 1, k % 2 == 0);
    clear("one");
}

/* Answers that the policy has moved away from are left out: none of the first pass, which is drawn from
 * the policy itself, and in the second those with a negative advantage, where any distance is too far. */
static void answers_of_another_policy_are_left_out(void **state) {
    (void)state;
    double all[4], near[4], few[4];
    const char *config = configure("", "micro_batch_size: 4\ngradient_accumulation_steps: 2\n");
    const char *const options[] = {"trl.num_iterations=2",
                                   "trl.num_iterations=2 trl.off_policy_mask_threshold=100",
                                   "trl.num_iterations=2 trl.off_policy_mask_threshold=1e-30"};
    double *const norms[] = {all, near, few};
    for (int i = 0; i < 3; i++) {
        train("one", config, options[i]);
        assert_int_equal(numbers("one", "grad_norm", norms[i], 4), 4);
        clear("one");
    }
    assert_memory_equal(all, near, sizeof all);
    assert_true(few[0] == all[0] && few[3] != all[3]);
}

/* SCRATCH/latent: a random DeepSeek-V3 with the tiny llama's tokenizer. */
static void make_latent(void) {
    char path[700], name[64], *text;
    static const char *const tokenizer[] = {"tokenizer.json", "tokenizer_config.json"};
    struct ax_json_doc doc;
    size_t len;
    make_folder("latent");
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", golden_path("models/llama"), tokenizer[i]);
        snprintf(name, sizeof name, "latent/%s", tokenizer[i]);
        assert_int_equal(ax_read_file(path, 1 << 24, &text, &len), AX_OK);
        put_bytes(name, text, len);
        ax_free(text);
    }
    snprintf(path, sizeof path, "%s/config.json", golden_path("models/deepseek_v3"));
    assert_int_equal(ax_json_load(&doc, path, 1 << 20), AX_OK);
    json_object_set_new(doc.root, "vocab_size", json_integer(512));
    json_object_set_new(doc.root, "eos_token_id", json_integer(2));
    assert_int_equal(ax_json_dump(doc.root, &text, &len), AX_OK);
    put_bytes("latent/config.json", text, len);
    ax_free(text);
    ax_json_free(&doc);
}

/* What cached latents say of a token is what training computes of it without them, up to rounding; the
 * same in another run. */
static void latents_sample_what_is_trained(void **state) {
    (void)state;
    double ratio[4], kl[4], norm[4];
    char more[300];
    const char *config = configure("", "micro_batch_size: 4\ngradient_accumulation_steps: 2\n");
    make_latent();
    snprintf(more, sizeof more, "base_model='%s/latent' reinit_weights=true", scratch);
    train("a", config, more);
    assert_int_equal(numbers("a", "ratio_mean", ratio, 4), 4);
    assert_int_equal(numbers("a", "approx_kl", kl, 4), 4);
    assert_int_equal(numbers("a", "grad_norm", norm, 4), 4);
    for (int k = 0; k < 4; k++)
        if (!(fabs(ratio[k] - 1) < 1e-5 && fabs(kl[k]) < 1e-5 && isfinite(norm[k])))
            fail_msg("step %d: ratio %.17g, approx_kl %g", k + 1, ratio[k], kl[k]);
    assert_true(norm[0] + norm[1] + norm[2] + norm[3] > 0);
    train("b", config, more);
    same_run("a", "b", "model.safetensors");
    clear("b");
    clear("a");
}

/* Of two tokens, whatever the model says of the others; ranks that split the vocabulary agree. */
static void log_probs_are_of_what_is_left(void **state) {
    (void)state;
    double all[4], two[4], kl[4];
    const char *config = configure("", "micro_batch_size: 8\n");
    train("a", config, "");
    assert_int_equal(numbers("a", "entropy", all, 4), 4);
    clear("a");
    train("a", config, "trl.top_k=2 trl.temperature=3 trl.beta=0.1");
    assert_int_equal(numbers("a", "entropy", two, 4), 4);
    assert_int_equal(numbers("a", "kl", kl, 4), 4);
    assert_true(kl[0] == 0 && kl[3] != 0); /* of the reference, too */
    for (int i = 0; i < 4; i++)
        assert_true(all[i] > 1 && two[i] > 0.1 && two[i] <= log(2) + 1e-6);
    if (run(said, sizeof said,
            "launch -n 2 -- grpo '%s' output_dir='%s/b' --quiet tensor_parallel_size=2 "
            "trl.top_k=2 trl.temperature=3 trl.beta=0.1",
            config, scratch) != 0)
        fail_msg("%s", said);
    same_completions("a", "b");
    close_losses("a", "b", 1e-5);
    clear("a");
    clear("b");
}

/* Each answer has one of them at its end, or none and all tokens. */
static void texts_end_answers(void **state) {
    (void)state;
    int ended = 0, n = 0;
    train("a", configure("", "micro_batch_size: 8\n"),
          "trl.generation_kwargs='{stop_strings: [\"e\", \"on\"]}' generation_kv_memory=0.00003");
    char *text = read_text("a", "completions.jsonl"), *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line; n++) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL),
               *answer = json_object_get(v, "completion");
        const char *characters = json_string_value(answer);
        const size_t len = json_string_length(answer);
        const bool cut = json_is_true(json_object_get(v, "truncated"));
        const bool ends = memmem(characters, len, "e", 1) || memmem(characters, len, "on", 2);
        const json_int_t tokens = json_integer_value(json_object_get(v, "tokens"));
        assert_true(cut ? tokens == 10 : tokens <= 10);
        assert_true(!cut || !ends);
        ended += !cut && ends && tokens < 10;
        json_decref(v);
    }
    assert_int_equal(n, 32);
    assert_true(ended > 5);
    ax_free(text);
    clear("a");
}

/* TRL's, of the rewards that completions.jsonl has. */
/* What a reader of Parquet finds is what the lines say. */
static void a_table_of_answers(void **state) {
    (void)state;
    char path[160];
    struct ax_rows *r;
    struct ax_raw_row row;
    bool got;
    int n = 0;
    train("a", configure("", "micro_batch_size: 4\n"),
          "max_steps=1 trl.reward_funcs='[\"format:e\", \"length:9\"]'");
    snprintf(path, sizeof path, "%s", in_scratch("a/completions.parquet"));
    char *text = read_text("a", "completions.jsonl"), *rest = text;
    const struct ax_rows_options o = {.path = path};
    enum ax_status st = ax_rows_open(&r, &o);
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
    for (st = ax_rows_next(r, &row, &got); st == AX_OK && got;
         st = ax_rows_next(r, &row, &got), n++) {
        json_t *v, *line = json_loads(strsep(&rest, "\n"), JSON_ALLOW_NUL, NULL);
        assert_int_equal(ax_rows_parse(r, &row, &v), AX_OK);
        assert_true(json_object_size(json_object_get(v, "rewards")) == 2);
        assert_true(json_equal(v, line));
        json_decref(v);
        json_decref(line);
    }
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_true(n == 4 && *rest == '\0');
    ax_rows_close(r);
    ax_free(text);
    clear("a");
}

static void advantages_are_of_groups(void **state) {
    (void)state;
    char *text, *rest;
    double reward[4], advantage[4];
    int n = 0, spread = 0;
    train("a", configure("", "micro_batch_size: 8\n"), "");
    rest = text = read_text("a", "completions.jsonl");
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line; n++) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *rewards = json_object_get(v, "rewards");
        reward[n % 4] = json_number_value(json_object_get(rewards, "format:e"));
        advantage[n % 4] = json_number_value(json_object_get(v, "advantage"));
        assert_int_equal(json_integer_value(json_object_get(v, "step")), 1 + n / 8);
        const json_t *text_of = json_object_get(v, "completion");
        const bool e = memchr(json_string_value(text_of), 'e', json_string_length(text_of)) != NULL;
        assert_true(reward[n % 4] == (e ? 1 : 0));
        json_decref(v);
        if (n % 4 < 3)
            continue;
        double mean = 0, squares = 0;
        for (int i = 0; i < 4; i++)
            mean += reward[i] / 4;
        for (int i = 0; i < 4; i++)
            squares += (reward[i] - mean) * (reward[i] - mean);
        for (int i = 0; i < 4; i++)
            assert_true(fabs(advantage[i] - (reward[i] - mean) / (sqrt(squares / 3) + 1e-4)) <
                        1e-6);
        spread += squares > 0;
    }
    assert_int_equal(n, 32);
    assert_true(spread > 0);
    ax_free(text);
    clear("a");
}

/* The reference is the model as the run finds it: it agrees with the policy until that has moved. */
static void the_reference_is_the_start(void **state) {
    (void)state;
    char on[160];
    const char *const options[] = {
        "trl.temperature=0.7", "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true", on};
    const char *config = configure("  beta: 0.1\n", "micro_batch_size: 8\n");
    snprintf(on, sizeof on, "adapter=lora lora_model_dir='%s/a'", scratch);
    train("a", config, options[1]);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        double kl[4];
        train("b", config, options[i]);
        assert_int_equal(numbers("b", "kl", kl, 4), 4);
        assert_true(kl[0] == 0 && kl[3] > 0);
        clear("b");
    }
    clear("a");
}

/* ---- what must not make a difference ---- */

static void only_the_seed_matters(void **state) {
    (void)state;
    const char *config = configure("", "micro_batch_size: 4\ngradient_accumulation_steps: 2\n");
    train("a", config, "");
    train("b", config, "generation_kv_memory=0.00001"); /* of one sequence */
    same_run("a", "b", "model.safetensors");
    clear("b");
    train("b", config, "micro_batch_size=8 gradient_accumulation_steps=1");
    same_completions("a", "b");
    close_losses("a", "b", 1e-5);
    clear("b");
    train("b", config, "seed=7");
    assert_true(hash_of("a", "completions.jsonl") != hash_of("b", "completions.jsonl"));
    clear("a");
    clear("b");
}

static void any_number_of_threads(void **state) {
    (void)state;
    char command[600];
    const char *config = configure("", "micro_batch_size: 8\n");
    train("a", config, "");
    snprintf(command, sizeof command, "taskset -c %d '%s' grpo '%s' output_dir='%s/b' --quiet",
             sched_getcpu(), getenv("AX_TEST_BIN") ? getenv("AX_TEST_BIN") : "build/axtrain",
             config, scratch);
    assert_int_equal(system(command), 0);
    same_run("a", "b", "model.safetensors");
    clear("a");
    clear("b");
}

#define CERTAIN "trl.top_entropy_quantile=0.3 trl.entropy_coef=0.1"

static void any_mesh(void **state) {
    (void)state;
    static const char *const meshes[] = {"dp_replicate_size=2", "dp_shard_size=2"};
    static const char *const models[] = {
        "", "adapter=qlora load_in_4bit=true lora_r=4 lora_alpha=8 lora_target_linear=true"};
    const char *config = configure("", "micro_batch_size: 4\n");
    for (size_t i = 0; i < 2 * sizeof meshes / sizeof *meshes; i++) {
        const char *mesh = meshes[i % 2], *model = models[i / 2];
        char more[160];
        snprintf(more, sizeof more, "gradient_accumulation_steps=2 %s", model);
        train("a", config, more);
        if (run(said, sizeof said, "launch -n 2 -- grpo '%s' output_dir='%s/b' --quiet %s %s",
                config, scratch, mesh, model) != 0)
            fail_msg("%s: %s", mesh, said);
        same_completions("a", "b");
        close_losses("a", "b", 1e-5);
        clear("a");
        clear("b");
    }
    clear("a");
    train("a", config, "gradient_accumulation_steps=2 " CERTAIN);
    if (run(said, sizeof said,
            "launch -n 2 -- grpo '%s' output_dir='%s/b' --quiet dp_shard_size=2 " CERTAIN, config,
            scratch) != 0)
        fail_msg("%s", said);
    same_completions("a", "b");
    close_losses("a", "b", 1e-5);
    clear("b");
    clear("a");
}

/* Ranks that have a part of each row or of the layers sample whole answers, too; the first pass over them finds the
 * log-probs that they were drawn with. */
static void rows_and_layers_may_be_split(void **state) {
    (void)state;
    static const struct {
        const char *mesh;
        double off; /* of the ratio, from 1 */
    } meshes[] = {{"pipeline_parallel_size=2", 0},
                  {"context_parallel_size=2 context_parallel_method=gather", 0},
                  {"context_parallel_size=2 context_parallel_method=ring", 1e-5}};
    const char *config = configure("", "micro_batch_size: 4\n");
    train("a", config, "gradient_accumulation_steps=2 " CERTAIN);
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        double ratio[4] = {0};
        if (run(said, sizeof said,
                "launch -n 2 -- grpo '%s' output_dir='%s/b' --quiet gradient_accumulation_steps=2 "
                "%s " CERTAIN,
                config, scratch, meshes[i].mesh) != 0)
            fail_msg("%s: %s", meshes[i].mesh, said);
        same_completions("a", "b");
        close_losses("a", "b", 1e-5);
        assert_int_equal(numbers("b", "ratio_mean", ratio, 4), 4);
        for (int s = 0; s < 4; s++)
            if (!(fabs(ratio[s] - 1) <= meshes[i].off))
                fail_msg("%s: ratio %.9g in step %d", meshes[i].mesh, ratio[s], s + 1);
        clear("b");
    }
    clear("a");
}

/* Of all ranks' programs, each in one generation. */
static void verdicts_are_counted(void **state) {
    (void)state;
    static const char *const commands[] = {"grpo", "launch -n 2 -- grpo"};
    double ended[4], stopped[4];
    const char *config = configure("", "micro_batch_size: 4\n");
    for (int i = 0; i < 2; i++) {
        if (run(said, sizeof said,
                "%s '%s' output_dir='%s/a' --quiet max_steps=2 trl.reward_funcs=\"['code']\" "
                "gradient_accumulation_steps=%d",
                commands[i], config, scratch, 2 - i) != 0)
            fail_msg("%s", said);
        assert_int_equal(numbers("a", "code/verdicts/exit", ended, 4), 2);
        assert_int_equal(numbers("a", "code/stopped", stopped, 4), 2);
        for (int k = 0; k < 2; k++)
            assert_true(ended[k] == 8 && stopped[k] == 0);
        clear("a");
    }
}

/* ---- going on ---- */

/* Two prompts of 40 are done after the last of the four turns that they are trained in. */
static void expect_epochs(const char *folder) {
    static const double prompts[] = {0, 0, 0, 2, 2, 2};
    double epoch[8];
    assert_int_equal(numbers(folder, "epoch", epoch, 8), 6);
    for (int k = 0; k < 6; k++)
        if (!(fabs(epoch[k] - prompts[k] / 40) < 1e-6))
            fail_msg("%s, step %d: epoch %g, expected %g", folder, k + 1, epoch[k],
                     prompts[k] / 40);
}

/* In the middle of a generation: two steps of it, each taken twice. */
static void goes_on_within_a_generation(void **state) {
    (void)state;
    static const char *const options[] = {"", "trl.beta=0.1",
                                          "trl.top_entropy_quantile=0.3 trl.entropy_coef=0.1"};
    const char *config = configure("  num_iterations: 2\n  steps_per_generation: 2\n",
                                   "micro_batch_size: 4\ngradient_accumulation_steps: 1\n");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char more[100];
        snprintf(more, sizeof more, "max_steps=6 %s", options[i]);
        train("a", config, more);
        snprintf(more, sizeof more, "max_steps=3 %s", options[i]);
        train("b", config, more);
        snprintf(more, sizeof more, "resume_from_checkpoint=auto max_steps=6 %s", options[i]);
        train("b", config, more);
        same_run("a", "b", "model.safetensors");
        expect_epochs("a");
        expect_epochs("b");
        clear("a");
        clear("b");
    }
}

static void goes_on_after_a_kill(void **state) {
    (void)state;
    char more[400];
    put_judge("SIGKILL", 2, 3, more, sizeof more);
    const char *config = configure("", "micro_batch_size: 8\n");
    train("a", config, more);
    put_text("kill", "");
    assert_int_not_equal(
        run(said, sizeof said, "grpo '%s' output_dir='%s/b' --quiet %s", config, scratch, more), 0);
    assert_false(ax_path_exists(in_scratch("kill")));
    assert_false(ax_path_exists(in_scratch("b/model.safetensors")));
    char again[500];
    snprintf(again, sizeof again, "%s resume_from_checkpoint=auto", more);
    train("b", config, again);
    same_run("a", "b", "model.safetensors");
    clear("a");
    clear("b");
}

/* With an injected fault (base/fault.h), which this process does not read. */
static int train_with(const char *fault, const char *out, const char *config, const char *more) {
    assert_int_equal(setenv("AX_FAULT", fault, 1), 0);
    const int code = run(said, sizeof said, "grpo '%s' output_dir='%s/%s' --quiet %s", config,
                         scratch, out, more);
    unsetenv("AX_FAULT");
    return code;
}

/* Killed anywhere: while it samples, rewards, updates or saves. */
static void goes_on_after_any_kill(void **state) {
    (void)state;
    int kills = 0, within = 0;
    const char *config = configure("  num_iterations: 2\n", "micro_batch_size: 8\n");
    train("a", config, "");
    for (int k = 7000;; k += 11000) {
        char fault[60];
        snprintf(fault, sizeof fault, "malloc:%d:kill", k);
        if (train_with(fault, "b", config, "") == 0)
            break;
        kills++;
        within += ax_path_exists(in_scratch("b/checkpoint-1")) &&
                  !ax_path_exists(in_scratch("b/model.safetensors"));
        train("b", config, "resume_from_checkpoint=auto");
        same_run("a", "b", "model.safetensors");
        clear("b");
    }
    print_message("%d kills, %d of them between the first save and the last\n", kills, within);
    assert_true(kills >= 4 && within >= 2);
    clear("a");
    clear("b");
}

/* Completions that cannot be written are a warning, and change nothing else. */
static void a_full_disk(void **state) {
    (void)state;
    int warned = 0;
    const char *config = configure("", "micro_batch_size: 8\n");
    static const char more[] = "save_steps=null save_strategy=no";
    train("a", config, more);
    for (int k = 2; k <= 50; k += 4) {
        char fault[60];
        snprintf(fault, sizeof fault, "write:%d:enospc", k);
        const int code = train_with(fault, "b", config, more);
        if (code == 0 && hash_of("a", "model.safetensors") != hash_of("b", "model.safetensors"))
            fail_msg("%s: other weights", fault);
        if (strstr(said, "completions.jsonl: ") && strstr(said, "continues without this record")) {
            assert_int_equal(code, 0);
            warned++;
        }
        if (ax_path_exists(in_scratch("b")))
            clear("b");
    }
    assert_true(warned >= 5);
    clear("a");
}

/* ---- evaluations ---- */

#define EVALUATIONS 5 /* before the first step, and after each */

static void same_evaluations(const char *a, const char *b) {
    double x[8], y[8];
    assert_int_equal(numbers(a, "eval_reward", x, 8), EVALUATIONS);
    assert_int_equal(numbers(b, "eval_reward", y, 8), EVALUATIONS);
    for (int i = 0; i < EVALUATIONS; i++)
        if (x[i] != y[i])
            fail_msg("evaluation %d: reward %g of %s, %g of %s", i, x[i], a, y[i], b);
}

/* They change nothing, have the same random numbers each time, and are the same on any mesh. */
static void evaluations(void **state) {
    (void)state;
    double reward[8], rows[8];
    const char *config = configure("", "micro_batch_size: 8\n");
    train("a", config, "val_set_size=0.2 eval_strategy=no");
    train("b", config, "val_set_size=0.2 eval_steps=1 generation_kv_memory=0.00003");
    same_run("a", "b", "model.safetensors");
    assert_int_equal(numbers("a", "eval_reward", reward, 8), 0);
    assert_int_equal(numbers("b", "eval_completions/mean_length", rows, 8), EVALUATIONS);
    clear("a");
    if (run(said, sizeof said,
            "launch -n 2 -- grpo '%s' output_dir='%s/a' --quiet val_set_size=0.2 eval_steps=1 "
            "dp_shard_size=2 micro_batch_size=4",
            config, scratch) != 0)
        fail_msg("%s", said);
    same_evaluations("a", "b");
    clear("a");
    train("a", config,
          "val_set_size=0.2 eval_steps=1 learning_rate=1e-30 trl.num_generations_eval=1");
    assert_int_equal(numbers("a", "eval_reward", reward, 8), EVALUATIONS);
    for (int i = 1; i < EVALUATIONS; i++)
        assert_true(reward[i] == reward[0]);
    clear("a");
    clear("b");
}

/* An evaluation that a signal has interrupted is made by the run that goes on; the best one counts. */
static void evaluations_go_on(void **state) {
    (void)state;
    char more[400], again[500];
    put_judge("SIGTERM", 2, 2, more, sizeof more); /* in the first step: then it evaluates */
    strncat(more, " val_set_size=0.2 eval_steps=1 load_best_model_at_end=true",
            sizeof more - strlen(more) - 1);
    const char *config = configure("", "micro_batch_size: 8\n");
    train("a", config, more);
    put_text("kill", "");
    assert_int_not_equal(
        run(said, sizeof said, "grpo '%s' output_dir='%s/b' --quiet %s", config, scratch, more), 0);
    assert_false(ax_path_exists(in_scratch("kill")));
    snprintf(again, sizeof again, "%s resume_from_checkpoint=auto", more);
    train("b", config, again);
    same_run("a", "b", "model.safetensors");
    same_evaluations("a", "b");
    clear("a");
    clear("b");
}

/* ---- what is trained ---- */

static double largest_norm(const char *folder) {
    double norm[8], most = 0;
    const int n = numbers(folder, "grad_norm", norm, 8);
    for (int i = 0; i < n; i++)
        most = fmax(most, norm[i]);
    return most;
}

/* Answers that are all alike teach nothing; masked ones are no step. */
static void nothing_to_learn(void **state) {
    (void)state;
    const char *config = configure("", "micro_batch_size: 8\noptimizer: sgd\n");
    double zero[4] = {0};
    train("a", config, "trl.reward_funcs=\"['length:100']\"");
    assert_true(largest_norm("a") == 0);
    assert_int_equal(numbers("a", "frac_reward_zero_std", zero, 4), 4);
    assert_true(zero[0] == 1 && zero[3] == 1);
    clear("a");
    if (run(said, sizeof said,
            "grpo '%s' output_dir='%s/a' trl.mask_truncated_completions=true "
            "trl.max_completion_length=1",
            config, scratch) != 0)
        fail_msg("%s", said);
    has("no token of this step is trained: it is skipped");
    /* the first three answers, and what they are worth; all that are asked for of each step */
    assert_int_equal(count("(format:e "), 3);
    clear("a");
    if (run(said, sizeof said,
            "grpo '%s' output_dir='%s/a' max_steps=2 trl.log_completions=true "
            "trl.num_completions_to_print=2",
            config, scratch) != 0)
        fail_msg("%s", said);
    assert_int_equal(count("(format:e "), 3 + 2);
    clear("a");
}

/* Answers that wait are JSON, and name the file of their prompt, whose name need not be UTF-8. */
static void files_of_any_name(void **state) {
    (void)state;
    const char *config = configure("", "micro_batch_size: 4\n");
    char more[200], to[160];
    snprintf(to, sizeof to, "%s/d", scratch);
    assert_int_equal(mkdir(to, 0700), 0);
    snprintf(to, sizeof to, "%s/d/b\xff.jsonl", scratch);
    assert_int_equal(rename(in_scratch("prompts.jsonl"), to), 0);
    snprintf(more, sizeof more,
             "max_staleness=1 max_steps=2 dataset_prepared_path=null datasets=\"[{path: %s/d}]\"",
             scratch);
    train("a", config, more);
    char *text = read_text("a", "completions.jsonl");
    assert_non_null(strstr(text, "/b\xef\xbf\xbd.jsonl\""));
    ax_free(text);
    clear("a");
    clear("d");
}

/* Figures have names of a fixed size: of a reward with a long one, each has its own nevertheless. */
static void long_names_have_all_figures(void **state) {
    (void)state;
    double mean[4], std[4];
    char name[140] = "format:", figure[96], more[200];
    memset(name + strlen(name), 'e', 100);
    snprintf(name + strlen(name), sizeof name - strlen(name), "|e");
    snprintf(more, sizeof more, "trl.reward_funcs=\"['%s']\" max_steps=2", name);
    train("a", configure("", "micro_batch_size: 4\n"), more);
    ax_fit(figure, sizeof figure, "rewards/%s/mean", name);
    assert_int_equal(numbers("a", figure, mean, 4), 2);
    ax_fit(figure, sizeof figure, "rewards/%s/std", name);
    assert_int_equal(numbers("a", figure, std, 4), 2);
    clear("a");
}

/* The records of a bad step: whether prompts are shared or not, an answer is judged after its prompt. */
static void bad_records_are_named(void **state) {
    (void)state;
    char worst[2][64];
    const char *config = configure("", "micro_batch_size: 8\n");
    for (int i = 0; i < 2; i++) {
        if (run(said, sizeof said,
                "grpo '%s' output_dir='%s/a' max_steps=1 trl.entropy_coef=-10 micro_batch_size=%d "
                "gradient_accumulation_steps=%d loss_watchdog_threshold=1 "
                "loss_watchdog_patience=100",
                config, scratch, i ? 1 : 8, i ? 8 : 1) != 0)
            fail_msg("%s", said);
        const char *list = strstr(said, "; records: ");
        const char *loss = list ? strstr(list, "(loss ") : NULL;
        assert_non_null(loss);
        assert_int_equal(sscanf(loss, "(loss %60[^)]", worst[i]), 1);
        assert_true(strtod(worst[i], NULL) > 1);
        clear("a");
    }
    assert_string_equal(worst[0], worst[1]);
}

/* It knows of what is sampled without a reward function or weights. */
static void a_plan_has_its_memory(void **state) {
    (void)state;
    const char *config = configure("", "micro_batch_size: 8\n");
    assert_int_equal(
        run(said, sizeof said, "plan '%s' output_dir='%s/x' trl.num_iterations=3", config, scratch),
        0);
    has("sampling 2 prompts × 4 answers for 3 steps, 8 at a time: keys and values ");
    assert_int_equal(run(said, sizeof said,
                         "plan '%s' output_dir='%s/x' generation_kv_memory=0.00003 trl.beta=0.1",
                         config, scratch),
                     0);
    has(" answers for 1 step, 2 at a time: keys and values of 32 tokens in all");
    static const char *const rows[][2] = {{"32", "; weights gathered in each pass"},
                                          {"4", "; weights gathered once"}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run(said, sizeof said,
                             "plan '%s' output_dir='%s/x' --world 2 dp_shard_size=2 "
                             "micro_batch_size=1 gradient_accumulation_steps=%s | grep sampling",
                             config, scratch, rows[i][0]),
                         0);
        has(rows[i][1]);
    }
}

/* ---- mistakes ---- */

static void refuses(const char *more, int code, const char *what) {
    const char *config = configure("", "micro_batch_size: 8\n");
    const int got = run(said, sizeof said, "grpo '%s' output_dir='%s/x' %s", config, scratch, more);
    if (got != code || !strstr(said, what))
        fail_msg("%s: exit %d, expected %d and \"%s\": %s", more, got, code, what, said);
}

static void mistakes_are_named(void **state) {
    (void)state;
    refuses("trl.reward_funcs=null", 2, "what are answers worth?");
    refuses("trl.num_generations=3", 2,
            "trl.num_generations: 8 answers are generated at a time (micro_batch_size × "
            "gradient_accumulation_steps × data ranks), which is no multiple of 3");
    refuses(
        "trl.num_generations=3 trl.steps_per_generation=2", 2,
        "16 answers are generated at a time (micro_batch_size × trl.steps_per_generation × data "
        "ranks), which");
    refuses("trl.num_generations=3 trl.generation_batch_size=16", 2,
            "16 answers are generated at a time (trl.generation_batch_size), which");
    refuses("trl.steps_per_generation=4294967296", 2,
            "trl.steps_per_generation: 34359738368 are too many: a generation has at most "
            "2147483647 answers");
    /* of all data ranks together */
    refuses("trl.num_generations=8 micro_batch_size=1", 2, "1 answers are generated at a time");
    const char *config = configure("", "micro_batch_size: 1\n");
    assert_int_equal(run(said, sizeof said,
                         "plan '%s' output_dir='%s/x' --world 8 dp_shard_size=8 "
                         "trl.num_generations=8",
                         config, scratch),
                     0);
    refuses("trl.generation_batch_size=4294967296", 2, "trl.generation_batch_size: 4294967296 are");
    refuses("trl.reward_weights='[1, 2]'", 2, "2 weights for 1 functions");
    refuses("trl.reward_funcs='[nosuch]'", 2, "nosuch");
    refuses("neftune_noise_alpha=5", 2, "answers are sampled without noise");
    refuses("val_set_size=0.1 eval_steps=1 metric_for_best_model=eval_loss", 2,
            "\"eval_loss\" is not one of eval_reward");
    refuses("trl.steps_per_generation=3 gradient_accumulation_steps=2", 2,
            "trl.steps_per_generation: 3 micro-batches are generated at a time, but a step takes 2 "
            "(gradient_accumulation_steps): generate a multiple of that");
    refuses("trl.generation_batch_size=20", 2,
            "trl.generation_batch_size: expected a multiple of 8");
    refuses("trl.generation_batch_size=24 gradient_accumulation_steps=2", 2,
            "trl.generation_batch_size: 3 micro-batches are generated at a time");
    refuses("trl.generation_batch_size=8 trl.steps_per_generation=1", 2, "remove one of them");
    refuses("trl.generation_kwargs='{num_beams: 2}'", 2, "num_beams is not supported");
    refuses("trl.generation_kwargs='{stop_strings: [3]}'", 2, "stop_strings: expected texts");
    refuses(ADAPTER "trl.beta=0.04 relora=true jagged_restart_steps=2", 2,
            "relora: merges the adapter into the base at each restart, which is the reference of "
            "trl.beta: remove it, or set that to 0");
    refuses(ADAPTER "rl_beta=0.04 peft_init_lora_weights=pissa", 2,
            "peft_init_lora_weights: changes the base, which is the reference of rl_beta");
    refuses(ADAPTER "trl.beta=0.04 lora_modules_to_save='[lm_head]'", 2,
            "lora_modules_to_save: trains modules of the base, which is the reference of trl.beta");
    refuses(ADAPTER "relora=true jagged_restart_steps=2 micro_batch_size=256", 3,
            "there are only 40 prompts");
    refuses("micro_batch_size=256", 3, "there are only 40 prompts, but 64 are sampled at a time");
    assert_int_equal(run(said, sizeof said, "sft '%s' output_dir='%s/x'",
                         configure("", "micro_batch_size: 8\n"), scratch),
                     2);
    has("`axtrain sft` needs a configuration with no rl");
    assert_int_equal(run(said, sizeof said, "dpo '%s' output_dir='%s/x'",
                         configure("", "micro_batch_size: 8\n"), scratch),
                     2);
    has("`axtrain dpo` needs a configuration with rl: dpo, orpo, cpo, simpo or kto; `axtrain "
        "train`");
    assert_false(ax_path_exists(in_scratch("x/completions.jsonl")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(the_first_ratio_is_one)),
        LONG_TEST(cmocka_unit_test(answers_of_another_policy_are_left_out)),
        cmocka_unit_test(latents_sample_what_is_trained),
        LONG_TEST(cmocka_unit_test(log_probs_are_of_what_is_left)),
        cmocka_unit_test(texts_end_answers),
        cmocka_unit_test(a_table_of_answers),
        cmocka_unit_test(advantages_are_of_groups),
        cmocka_unit_test(the_reference_is_the_start),
        LONG_TEST(cmocka_unit_test(only_the_seed_matters)),
        cmocka_unit_test(any_number_of_threads),
        LONG_TEST(cmocka_unit_test(any_mesh)),
        LONG_TEST(cmocka_unit_test(rows_and_layers_may_be_split)),
        LONG_TEST(cmocka_unit_test(goes_on_within_a_generation)),
        LONG_TEST(cmocka_unit_test(goes_on_after_a_kill)),
        LONG_TEST(cmocka_unit_test(verdicts_are_counted)),
        LONG_TEST(cmocka_unit_test(goes_on_after_any_kill)),
        LONG_TEST(cmocka_unit_test(a_full_disk)),
        LONG_TEST(cmocka_unit_test(evaluations)),
        LONG_TEST(cmocka_unit_test(evaluations_go_on)),
        cmocka_unit_test(nothing_to_learn),
        cmocka_unit_test(files_of_any_name),
        cmocka_unit_test(long_names_have_all_figures),
        cmocka_unit_test(bad_records_are_named),
        cmocka_unit_test(a_plan_has_its_memory),
        LONG_TEST(cmocka_unit_test(mistakes_are_named)),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
