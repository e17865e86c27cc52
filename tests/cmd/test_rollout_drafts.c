/* `axtrain grpo` and others with trl.drafts: answers and weights are those without, bit for bit, whatever samples them, in
 * fewer passes; and what cannot draft is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/tools_case.h"

enum { STEPS = 2, ANSWERS = 8 };

/* Two layers and one for multi-token prediction, with the tokens of the model of tools_case.h. */
static const char config[] =
    "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"deepseek_v3\", "
    "\"num_hidden_layers\": 2, \"num_nextn_predict_layers\": 1, \"hidden_size\": 32, "
    "\"intermediate_size\": 80, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
    "\"first_k_dense_replace\": 1, \"kv_lora_rank\": 16, \"q_lora_rank\": null, "
    "\"qk_nope_head_dim\": 12, \"qk_rope_head_dim\": 8, \"v_head_dim\": 12, "
    "\"moe_intermediate_size\": 32, \"n_group\": 1, \"n_routed_experts\": 4, "
    "\"n_shared_experts\": 1, \"num_experts_per_tok\": 2, \"topk_group\": 1, "
    "\"routed_scaling_factor\": 1.5, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-6, "
    "\"max_position_embeddings\": 2048, \"rope_theta\": 100000.0, \"initializer_range\": 0.05, "
    "\"tie_word_embeddings\": false, \"vocab_size\": 512, \"eos_token_id\": 482, "
    "\"pad_token_id\": 480}";

/* Both the model and the layer know the lessons by heart. */
static int teach(void **state) {
    if (make_lessons(state) != 0)
        return -1;
    make_folder("latent");
    copy_golden("runs/models/tools_qwen3", "tokenizer.json", "latent");
    copy_golden("runs/models/tools_qwen3", "tokenizer_config.json", "latent");
    copy_golden("runs/models/tools_qwen3", "chat_template.jinja", "latent");
    put_text("latent/config.json", config);
    char model[256];
    (void)snprintf(model, sizeof model, "%s", in_scratch("latent"));
    teach_from(model, "reinit_weights=true mtp_loss_scaling_factor=0.5");
    return 0;
}

/* One run, by `ranks` ranks. */
static void train_on(int ranks, const char *out, const char *command, const char *more) {
    char launch[32] = "";
    if (ranks > 1)
        (void)snprintf(launch, sizeof launch, "launch -n %d --", ranks);
    if (run(said, sizeof said, "%s %s '%s' output_dir='%s/%s' --quiet max_steps=%d %s", launch,
            command, configure_tools(base, ""), scratch, out, STEPS, more) != 0)
        fail_msg("%s: %s", more, said);
}

static void same_weights(const char *a, const char *b, const char *more) {
    const char *file = strstr(more, "adapter=") ? "adapter_model.safetensors" : "model.safetensors";
    if (hash_of(a, file) != hash_of(b, file))
        fail_msg("%s: other weights", more);
}

/* Returns how many of the first generation. */
static double some_accepted(const char *folder, const char *more) {
    double tried[STEPS], accepted[STEPS];
    assert_int_equal(numbers(folder, "drafts/tried", tried, STEPS), STEPS);
    assert_int_equal(numbers(folder, "drafts/accepted", accepted, STEPS), STEPS);
    for (int i = 0; i < STEPS; i++)
        if (!(accepted[i] > 0 && accepted[i] <= tried[i]))
            fail_msg("%s: %g of %g drafts accepted", more, accepted[i], tried[i]);
    return accepted[0];
}

struct way {
    int ranks;
    const char *command, *more;
};

static double compare(const struct way *w) {
    char with[600];
    (void)snprintf(with, sizeof with, "%s trl.drafts=true", w->more);
    train_on(w->ranks, "a", w->command, w->more);
    train_on(w->ranks, "b", w->command, with);
    alike_but_for_seconds("a", "b", STEPS * ANSWERS);
    same_weights("a", "b", w->more);
    const double accepted = some_accepted("b", w->more);
    clear("a");
    clear("b");
    return accepted;
}

#define ALONE "trl.tools= trl.max_tool_calling_iterations= trl.reward_funcs=\"['format:e']\" "

static void answers_and_weights_are_those_without(void **state) {
    (void)state;
    static const struct way ways[] = {
        {1, "grpo", ALONE "trl.max_completion_length=40"},
        {1, "grpo",
         ALONE "trl.temperature=0.8 trl.top_p=0.9 trl.generation_kwargs='{stop_strings: "
               "[mult, thi]}'"},
        {1, "grpo", ALONE "generation_kv_memory=0.0001 trl.top_k=30"},
        {1, "grpo",
         ALONE "adapter=qlora load_in_4bit=true lora_r=4 lora_alpha=8 "
               "lora_target_linear=true trl.beta=0.1"},
        {1, "grpo", ALONE "max_staleness=1 trl.beta=0.1 float32=false bf16=true"},
        {1, "grpo", "trl.temperature=0.7"},
        {1, "grpo", "max_staleness=1"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        compare(&ways[i]);
}

/* Of eight answers that are sampled together the longest takes a pass for each of its tokens, without drafts. */
static void passes_are_fewer(void **state) {
    (void)state;
    double passes[STEPS], longest[STEPS];
    train_on(1, "a", "grpo", ALONE "trl.max_completion_length=40 trl.drafts=true");
    assert_int_equal(numbers("a", "drafts/passes", passes, STEPS), STEPS);
    assert_int_equal(numbers("a", "completions/max_length", longest, STEPS), STEPS);
    for (int i = 0; i < STEPS; i++) {
        print_message("%.0f passes, %.0f tokens\n", passes[i], longest[i]);
        assert_true(passes[i] > 0 && passes[i] < longest[i]);
    }
    clear("a");
}

/* The first generation, before a step, is that of one rank, drafts included. */
static void on_any_mesh(void **state) {
    (void)state;
    static const struct way alone = {1, "grpo", ALONE}, with_tools = {1, "grpo", ""};
    const double accepted = compare(&alone), of_turns = compare(&with_tools);
    static const struct way ways[] = {
        {2, "grpo", ALONE "dp_shard_size=2 gradient_accumulation_steps=1"},
        {2, "grpo", "dp_shard_size=2 gradient_accumulation_steps=1"},
        {2, "grpo", ALONE "tensor_parallel_size=2"},
        {2, "grpo", ALONE "dp_shard_size=2 expert_parallel_size=2 gradient_accumulation_steps=1"},
        {2, "grpo", ALONE "pipeline_parallel_size=2"},
        {2, "grpo", "pipeline_parallel_size=2"},
        {2, "grpo", ALONE "max_staleness=1 rollout_ranks=1"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const double one = strstr(ways[i].more, ALONE) ? accepted : of_turns;
        const double got = compare(&ways[i]);
        if (got < one || got > one)
            fail_msg("%s: %g drafts accepted, not %g", ways[i].more, got, one);
    }
}

/* PPO's value model and a teacher's are models of their own. */
static void of_other_methods(void **state) {
    (void)state;
    char teacher[300];
    const struct way ways[] = {
        {1, "ppo",
         ALONE "rl=ppo trl.num_generations= trl.max_completion_length= ppo.response_length=40 "
               "ppo.num_ppo_epochs=1"},
        {1, "train", teacher},
    };
    (void)snprintf(teacher, sizeof teacher,
                   "rl=distill trl.num_generations= trl.reward_funcs= kd_teacher='%s'", base);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        compare(&ways[i]);
}

/* Killed when the first step is saved, and resumed from there, also without drafts. */
static void a_resumed_run_is_the_same(void **state) {
    (void)state;
    char words[300];
    train_on(1, "a", "grpo", "trl.drafts=true");
    for (int drafts = 0; drafts < 2; drafts++) {
        setenv("AX_FAULT", "weights:60:kill", 1);
        const int code = run(said, sizeof said,
                             "grpo '%s' output_dir='%s/b' --quiet max_steps=%d trl.drafts=true",
                             configure_tools(base, ""), scratch, STEPS);
        unsetenv("AX_FAULT");
        if (code != -1 && code != 128 + 9)
            fail_msg("it ended with %d: %s", code, said);
        (void)snprintf(words, sizeof words,
                       "resume_from_checkpoint='%s/b/checkpoint-1' trl.drafts=%s", scratch,
                       drafts ? "true" : "false");
        train_on(1, "b", "grpo", words);
        alike_but_for_seconds("a", "b", STEPS * ANSWERS);
        same_weights("a", "b", "");
        clear("b");
    }
    clear("a");
}

static void fails(const char *model, const char *more, const char *says) {
    if (run(said, sizeof said, "grpo '%s' output_dir='%s/b' --quiet trl.drafts=true %s",
            configure_tools(model, ""), scratch, more) != 2)
        fail_msg("%s: %s", more, said);
    if (!strstr(said, says))
        fail_msg("\"%s\" lacks \"%s\"", said, says);
}

static void what_cannot_draft_is_refused(void **state) {
    (void)state;
    fails(golden_path("runs/models/tools_qwen3"), "",
          "trl.drafts: this qwen3 model has no layer for multi-token prediction");
    fails(base, "trl.repetition_penalty=1.2",
          "trl.drafts: answers with trl.repetition_penalty are sampled without drafts");
    fails(base, "mtp_loss_scaling_factor=0.1",
          "mtp_loss_scaling_factor: trains the layer on texts alone");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_and_weights_are_those_without),
        cmocka_unit_test(passes_are_fewer),
        cmocka_unit_test(on_any_mesh),
        cmocka_unit_test(of_other_methods),
        cmocka_unit_test(a_resumed_run_is_the_same),
        cmocka_unit_test(what_cannot_draft_is_refused),
    };
    return cmocka_run_group_tests(tests, teach, scratch_remove);
}
