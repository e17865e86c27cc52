/* What runs report, of every method and of what changes it, is as it was: run_record.txt has their figures, warnings and
 * lines about evaluations. Losses are compared with references elsewhere; here are those figures that nothing else has, and
 * the ways from keys to them. Numbers may differ in the fourth digit, as sets of kernels sum in another order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <math.h>

#include "base/text/json.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/near_record.h"

static char model[600];

#define LATENTS                                                                                    \
    "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"deepseek_v3\", "           \
    "\"vocab_size\": 512, \"hidden_size\": 32, \"intermediate_size\": 48, "                        \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "           \
    "\"q_lora_rank\": 16, \"kv_lora_rank\": 16, \"qk_nope_head_dim\": 8, "                         \
    "\"qk_rope_head_dim\": 4, \"v_head_dim\": 8, \"n_routed_experts\": 8, \"n_group\": 2, "        \
    "\"topk_group\": 1, \"num_experts_per_tok\": 2, \"n_shared_experts\": 1, "                     \
    "\"moe_intermediate_size\": 16, \"first_k_dense_replace\": 1, \"norm_topk_prob\": true, "      \
    "\"routed_scaling_factor\": 2.5, "                                                             \
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6, \"hidden_act\": \"silu\", "          \
    "\"initializer_range\": 0.2}"

#define put_text(name, text) put_bytes(name, text, strlen(text))
#include "tests/cmd/experts_model.h"

#define RECORD "tests/cmd/run_record.txt"

enum data { TEXTS, PAIRS, LABELS, STEPS, PROMPTS, KINDS };
static const char *const files[KINDS] = {"texts", "pairs", "labels", "steps", "prompts"};

#define SAMPLES "trl.num_generations=4 trl.max_completion_length=8 "
#define BY_E    "'trl.reward_funcs=[\"format:e\"]' "
#define GRPO    "rl=grpo " SAMPLES BY_E "'trl.generation_kwargs={stop_strings: [a, o]}' "
#define GDPO    "rl=gdpo " SAMPLES
#define PPO     "rl=ppo ppo.response_length=8 " BY_E
#define DISTILL "rl=distill kd_teacher=@/experts trl.max_completion_length=8 "

static const struct run {
    const char *name;
    enum data data;
    const char *words;
} runs[] = {
    /* ---- supervised ---- */
    {"sft", TEXTS, ""},
    {"sft, packed", TEXTS, "sample_packing=true"},
    {"sft, padded to a multiple", TEXTS, "pad_to_sequence_len=true"},
    {"sft, by length", TEXTS, "group_by_length=true"},
    {"sft, streamed", TEXTS, "streaming=true"},
    {"sft, streamed and packed", TEXTS,
     "streaming=true sample_packing=true streaming_multipack_buffer_size=8 max_steps=4"},
    {"sft, in the file's order", TEXTS, "curriculum_sampling=true"},
    {"sft, cut", TEXTS, "sequence_len=8 excess_length_strategy=truncate min_sample_len=4"},
    {"sft, a part of the rows", TEXTS, "dataset_shard_num=3 dataset_shard_idx=1"},
    {"sft, packed one after the other", TEXTS,
     "sample_packing=true sample_packing_sequentially=true sample_packing_bin_size=2 max_steps=2"},
    {"sft, two sets", TEXTS,
     "'datasets=[{path: @/texts.jsonl, type: completion, shards: 2}, {path: @/pairs.jsonl, type: "
     "completion, field: chosen}]' shuffle_before_merging_datasets=true val_set_size=0.25 "
     "eval_steps=3"},
    {"sft, mixed sets", TEXTS,
     "'datasets=[{path: @/texts.jsonl, type: completion}, {path: @/pairs.jsonl, type: completion, "
     "field: rejected}]' 'mixing_weights=[1, 3]'"},
    {"sft, chats", TEXTS,
     "'datasets=[{path: @/chats.jsonl, type: chat_template}]' chat_template=chatml"},
    {"sft, all of chats", TEXTS,
     "'datasets=[{path: @/chats.jsonl, type: chat_template, roles_to_train: [user, assistant], "
     "train_on_eos: last}]' chat_template=chatml train_on_inputs=true"},
    {"sft, some layers", TEXTS, "'unfrozen_parameters=[model.layers.1.mlp, model.norm]'"},
    {"sft, in epochs", TEXTS, "max_steps=null num_epochs=1.5 logging_steps=2"},
    {"sft, cosine", TEXTS, "lr_scheduler=cosine warmup_ratio=0.5 cosine_min_lr_ratio=0.1"},
    {"sft, polynomial", TEXTS, "lr_scheduler=polynomial lr_scheduler_kwargs.power=2"},
    {"sft, restarts", TEXTS,
     "lr_scheduler=cosine_with_restarts lr_scheduler_kwargs.num_cycles=2 max_steps=6"},
    {"sft, inverse square root", TEXTS, "lr_scheduler=inverse_sqrt warmup_steps=2 max_steps=5"},
    {"sft, stable and decay", TEXTS,
     "lr_scheduler=warmup_stable_decay lr_scheduler_kwargs.num_decay_steps=2 warmup_steps=1 "
     "max_steps=5"},
    {"sft, smoothed", TEXTS, "label_smoothing=0.1"},
    {"sft, z loss", TEXTS, "z_loss_coef=0.01"},
    {"sft, dynamic", TEXTS, "use_dynamic_finetuning=true"},
    {"sft, by entropy", TEXTS, "use_eaft=true"},
    {"sft, noisy", TEXTS, "neftune_noise_alpha=5"},
    {"sft, clipped", TEXTS, "max_grad_norm=0.1 weight_decay=0.1"},
    {"sft, 8 bits", TEXTS, "optimizer=adamw_bnb_8bit"},
    {"sft, adafactor", TEXTS, "optimizer=adafactor"},
    {"sft, muon", TEXTS, "optimizer=muon"},
    {"sft, sgd", TEXTS, "optimizer=sgd"},
    {"sft, evaluated", TEXTS,
     "val_set_size=3 eval_steps=1 load_best_model_at_end=true save_strategy=steps save_steps=1"},
    {"sft, causal metrics", TEXTS,
     "val_set_size=3 eval_strategy=steps eval_steps=2 do_causal_lm_eval=true "
     "'eval_causal_lm_metrics=[perplexity]'"},
    {"sft, resumed", TEXTS,
     "max_steps=2 save_strategy=steps save_steps=1 val_set_size=3 eval_steps=1|max_steps=4 "
     "save_strategy=steps save_steps=1 save_total_limit=2 val_set_size=3 eval_steps=1 "
     "resume_from_checkpoint=auto resume_with_changes=true"},
    {"sft, with samples", TEXTS,
     "val_set_size=3 eval_steps=2 generate_samples=true num_generation_samples=2 "
     "generation_max_new_tokens=6"},
    {"sft, recomputed", TEXTS, "gradient_checkpointing=true sample_packing=true"},
    {"sft, stopped early", TEXTS,
     "val_set_size=3 eval_steps=1 save_strategy=steps save_steps=1 early_stopping_patience=1 "
     "learning_rate=0.3 max_steps=8"},
    {"lora", TEXTS, "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true"},
    {"lora+", TEXTS,
     "adapter=lora lora_r=4 lora_alpha=8 lora_dropout=0.2 lora_target_linear=true "
     "loraplus_lr_ratio=16"},
    {"dora", TEXTS,
     "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true peft_use_dora=true "
     "peft_use_rslora=true"},
    {"lora, some modules", TEXTS,
     "adapter=lora lora_r=4 lora_alpha=8 'lora_target_modules=[q_proj, down_proj]' "
     "'lora_rank_pattern={q_proj: 2}' 'lora_modules_to_save=[lm_head]'"},
    {"relora", TEXTS,
     "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true relora=true "
     "jagged_restart_steps=2 jagged_restart_warmup_steps=1 max_steps=5"},
    {"qlora", TEXTS,
     "adapter=qlora load_in_4bit=true lora_r=4 lora_alpha=8 lora_target_linear=true"},
    {"qat", TEXTS, "qat.scheme=int4"},
    {"mixture", TEXTS,
     "base_model=@/experts model_config.output_router_logits=true "
     "model_config.router_aux_loss_coef=0.1"},
    {"mixture, by sequence", TEXTS, "base_model=@/experts router_seq_aux_loss_coef=0.1"},
    {"latents", TEXTS, "base_model=@/latents router_bias_update_speed=0.01"},
    {"sft, rows on two ranks", TEXTS, "dp_shard_size=2 gradient_accumulation_steps=1"},
    {"sft, replicas", TEXTS,
     "dp_replicate_size=2 val_set_size=3 eval_steps=1 replica_check_steps=1"},
    {"sft, columns on two ranks", TEXTS, "tensor_parallel_size=2"},
    {"sft, stages", TEXTS, "pipeline_parallel_size=2 val_set_size=3 eval_steps=2"},
    {"sft, parts of rows", TEXTS, "context_parallel_size=2 sample_packing=true micro_batch_size=1"},
    {"mixture, experts on two ranks", TEXTS,
     "base_model=@/experts dp_shard_size=2 expert_parallel_size=2 "
     "model_config.output_router_logits=true"},
    /* ---- preferences ---- */
    {"dpo", PAIRS, "rl=dpo"},
    {"dpo, evaluated", PAIRS, "rl=dpo val_set_size=2 eval_steps=1"},
    {"dpo, smoothed", PAIRS, "rl=dpo dpo_label_smoothing=0.2 rl_beta=0.5"},
    {"dpo, of lengths", PAIRS, "rl=dpo ld_alpha=0.5"},
    {"dpo, hinge", PAIRS, "rl=dpo 'dpo_loss_type=[hinge]'"},
    {"dpo, ipo", PAIRS, "rl=dpo 'dpo_loss_type=[ipo]'"},
    {"dpo, robust", PAIRS, "rl=dpo 'dpo_loss_type=[robust]' dpo_label_smoothing=0.1"},
    {"dpo, exo", PAIRS, "rl=dpo 'dpo_loss_type=[exo_pair]' dpo_label_smoothing=0.001"},
    {"dpo, nca", PAIRS, "rl=dpo 'dpo_loss_type=[nca_pair]'"},
    {"dpo, bco", PAIRS, "rl=dpo 'dpo_loss_type=[bco_pair]'"},
    {"dpo, sppo", PAIRS, "rl=dpo 'dpo_loss_type=[sppo_hard]'"},
    {"dpo, apo", PAIRS, "rl=dpo 'dpo_loss_type=[apo_zero]'"},
    {"dpo, discopop", PAIRS, "rl=dpo 'dpo_loss_type=[discopop]'"},
    {"dpo, of two", PAIRS, "rl=dpo 'dpo_loss_type=[sigmoid, sft]' 'dpo_loss_weights=[1, 0.5]'"},
    {"dpo, lora", PAIRS, "rl=dpo adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true"},
    {"dpo, references first", PAIRS, "rl=dpo precompute_ref_log_probs=true num_epochs=2"},
    {"dpo, on two ranks", PAIRS, "rl=dpo tensor_parallel_size=2 rl_beta=0.3"},
    {"kto, on two ranks", LABELS, "rl=kto dp_shard_size=2"},
    {"orpo", PAIRS, "rl=orpo orpo_alpha=0.3"},
    {"cpo", PAIRS, "rl=cpo cpo_alpha=0.5"},
    {"simpo", PAIRS, "rl=simpo simpo_gamma=0.4 cpo_alpha=0.2"},
    {"kto", LABELS, "rl=kto kto_desirable_weight=0.5 kto_undesirable_weight=1.5"},
    {"kto, of pairs", PAIRS, "rl=kto"},
    {"kto, apo", LABELS, "rl=kto kto_loss_type=apo_zero_unpaired"},
    {"reward model", PAIRS,
     "reward_model=true center_rewards_coefficient=0.1 val_set_size=2 eval_steps=1"},
    {"process reward model", STEPS, "process_reward_model=true"},
    /* ---- answers of the model ---- */
    {"grpo", PROMPTS, GRPO},
    {"grpo, with a reference", PROMPTS,
     GRPO "trl.beta=0.1 trl.loss_type=grpo trl.epsilon_high=0.3"},
    {"grpo, twice", PROMPTS,
     GRPO "trl.num_iterations=2 trl.steps_per_generation=4 max_steps=4 trl.epsilon=0.05 "
          "trl.loss_type=bnpo"},
    {"grpo, sequences", PROMPTS,
     GRPO "trl.importance_sampling_level=sequence trl.num_iterations=2 trl.loss_type=dr_grpo "
          "trl.epsilon=0.02"},
    {"grpo, cispo", PROMPTS, GRPO "trl.loss_type=cispo trl.num_iterations=2 trl.epsilon_high=0.02"},
    {"grpo, sapo", PROMPTS, GRPO "trl.loss_type=sapo trl.num_iterations=2"},
    {"grpo, vespo", PROMPTS, GRPO "trl.loss_type=vespo trl.num_iterations=2"},
    {"grpo, luspo", PROMPTS, GRPO "trl.loss_type=luspo"},
    {"grpo, entropies", PROMPTS, GRPO "trl.top_entropy_quantile=0.5 trl.entropy_coef=0.01"},
    {"grpo, of the batch", PROMPTS, GRPO "trl.scale_rewards=batch"},
    {"grpo, unscaled", PROMPTS, GRPO "trl.scale_rewards=none trl.mask_truncated_completions=true"},
    {"grpo, weighed", PROMPTS,
     GRPO "'trl.reward_funcs=[\"format:e\", \"length:6\", \"soft_overlong:8:4\"]' "
          "'trl.reward_weights=[1, 0.5, 2]' trl.multi_objective_aggregation=normalize_then_sum"},
    {"grpo, dynamic", PROMPTS, GRPO "dynamic_sampling_rounds=2"},
    {"grpo, by a reward model", PROMPTS,
     "reward_model=true datasets.0.path=@/pairs.jsonl learning_rate=1e-12 output_dir=@/scorer|" GRPO
     "'trl.reward_funcs=[@/scorer, \"format:e\"]'"},
    {"grpo, lora", PROMPTS,
     GRPO "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true trl.beta=0.2"},
    {"grpo, narrow", PROMPTS, GRPO "trl.top_k=20 trl.top_p=0.9 trl.temperature=0.7"},
    {"grpo, evaluated", PROMPTS, GRPO "val_set_size=2 eval_steps=1 trl.num_generations_eval=2"},
    {"grpo, ahead", PROMPTS, GRPO "max_staleness=1"},
    {"grpo, on two ranks", PROMPTS, GRPO "dp_shard_size=2 trl.beta=0.1"},
    {"grpo, stages", PROMPTS, GRPO "pipeline_parallel_size=2"},
    {"gdpo", PROMPTS, GDPO "'trl.reward_funcs=[\"format:e\", \"length:6\"]'"},
    {"ppo", PROMPTS,
     PPO "ppo.num_mini_batches=2 ppo.missing_eos_penalty=1 "
         "ppo.whiten_rewards=true ppo.kl_coef=0.2"},
    {"ppo, lora", PROMPTS, PPO "adapter=lora lora_r=4 lora_alpha=8 lora_target_linear=true"},
    {"ppo, whole batches", PROMPTS,
     PPO "ppo.num_ppo_epochs=3 ppo.gamma=0.9 ppo.lam=0.8 ppo.vf_coef=0.5 "
         "ppo.cliprange_value=0.1 max_steps=4"},
    {"ppo, on two ranks", PROMPTS, PPO "dp_replicate_size=2 ppo.num_ppo_epochs=2"},
    {"ppo, k3", PROMPTS, PPO "ppo.kl_estimator=k3 ppo.cliprange=0.05"},
    /* ---- of a teacher ---- */
    {"teacher", TEXTS, "kd_teacher=@/experts kd_alpha=0.5 kd_ce_alpha=0.25 kd_temperature=2"},
    {"teacher, some tokens", TEXTS, "kd_teacher=@/experts kd_loss_top_k=8 kd_loss_tail=true"},
    {"distill", PROMPTS, DISTILL},
    {"distill, sampled", PROMPTS, DISTILL "trl.distillation_objective=sampled_token"},
    {"distill, weighed", PROMPTS, DISTILL "trl.distillation_objective=iw_opd trl.iw_opd_gamma=0.7"},
};

/* ---- data ---- */

static void put_line(struct ax_buf *b, const char *format, ...) {
    char line[400];
    va_list ap;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    assert_int_equal(ax_buf_printf(b, "%s\n", line), AX_OK);
}

static void put_chats(void) {
    struct ax_buf b = {0};
    for (int i = 0; i < 12; i++)
        put_line(&b,
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"%d?\"}, {\"role\": "
                 "\"assistant\", \"content\": \"it is %d\"}%s]}",
                 i, i,
                 i % 3 ? ""
                       : ", {\"role\": \"user\", \"content\": \"so\"}, {\"role\": "
                         "\"assistant\", \"content\": \"yes\"}");
    put_text("chats.jsonl", b.data);
    ax_buf_free(&b);
}

static void put_row(struct ax_buf *b, enum data kind, int i) {
    static const char *const words[] = {"red", "of the sea", "and so on", "ten"};
    const char *w = words[i % 4], *v = words[(i / 4 + 1) % 4];
    if (kind == TEXTS)
        put_line(b, "{\"text\": \"text %d, %s and %s\"}", i, w, v);
    else if (kind == PAIRS)
        put_line(b, "{\"prompt\": \"what is %d? \", \"chosen\": \"%s %d\", \"rejected\": \"%s\"}",
                 i, w, i, v);
    else if (kind == LABELS)
        put_line(b, "{\"prompt\": \"what is %d? \", \"completion\": \"%s\", \"label\": %s}", i, w,
                 i % 3 ? "true" : "false");
    else if (kind == STEPS)
        put_line(b,
                 "{\"prompt\": \"what is %d?\", \"completions\": [\"%s\", \"%s\"], \"labels\": "
                 "[%s, %s]}",
                 i, w, v, i % 2 ? "true" : "false", i % 3 ? "true" : "false");
    else
        put_line(b, "{\"prompt\": \"what is after %d?\", \"answer\": %d}", i, i + 1);
}

static int set_up(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    setenv("OMP_NUM_THREADS", "1", 1); /* tiny models: more threads only wait for each other */
    snprintf(model, sizeof model, "%s", golden_path("models/llama"));
    (void)make_experts();
    (void)make_random("latents", LATENTS);
    struct ax_buf config = {0};
    assert_int_equal(
        ax_buf_printf(
            &config,
            "base_model: %s\noutput_dir: %s/out\ndatasets:\n  - path: x\nsequence_len: 64\n"
            "micro_batch_size: 2\ngradient_accumulation_steps: 2\nlearning_rate: 0.02\n"
            "lr_scheduler: linear\nfloat32: true\nmax_steps: 3\nval_set_size: 0\n"
            "logging_steps: 1\nsave_strategy: no\nseed: 3\n",
            model, scratch),
        AX_OK);
    put_text("c.yaml", config.data);
    ax_buf_free(&config);
    put_chats();
    for (int kind = 0; kind < KINDS; kind++) {
        struct ax_buf b = {0};
        char name[32];
        for (int i = 0; i < 16; i++)
            put_row(&b, (enum data)kind, i);
        snprintf(name, sizeof name, "%s.jsonl", files[kind]);
        put_text(name, b.data);
        ax_buf_free(&b);
    }
    return 0;
}

/* ---- a run ---- */

/* @ is the scratch folder; | ends the words of a command before another one. */
static const char *words_of(const char *from) {
    static char words[1000];
    size_t n = 0;
    for (const char *c = from; *c && *c != '|'; c++)
        n += (size_t)snprintf(words + n, sizeof words - n, *c == '@' ? "%s" : "%.1s",
                              *c == '@' ? scratch : c);
    words[n] = '\0';
    return words;
}

static bool is_on_two(const struct run *r) {
    static const char *const keys[] = {"shard_size=2", "replicate_size=2", "parallel_size=2"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strstr(r->words, keys[i]))
            return true;
    return false;
}

static void train(const struct run *r) {
    static char said[1 << 16];
    assert_int_equal(ax_remove_tree(in_scratch("out")), AX_OK);
    for (const char *words = r->words; words;
         words = strchr(words, '|') ? strchr(words, '|') + 1 : NULL)
        if (run(said, sizeof said,
                "%s train '%s/c.yaml' datasets.0.path='%s/%s.jsonl' %s --quiet %s 2>&1",
                is_on_two(r) ? "launch -n 2 --" : "", scratch, scratch, files[r->data],
                r->data == TEXTS ? "datasets.0.type=completion" : "", words_of(words)) != 0)
            fail_msg("%s: %s", r->name, said);
}

/* ---- what it has left ---- */

/* Of the machine, the clock, or the folder. */
static bool is_of_a_machine(const char *key) {
    static const char *const keys[] = {
        "seconds",       "tokens_per_second", "mfu",   "hfu",   "memory_bytes", "peak_memory_bytes",
        "phase_seconds", "eval_seconds",      "waits", "ranks", "file"};
    const size_t n = strlen(key);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return n > 2 && strcmp(key + n - 2, "_s") == 0;
}

/* What was said, without paths and times. */
static void put_event(struct ax_buf *out, const json_t *v) {
    const char *event = json_string_value(json_object_get(v, "event"));
    const char *text = json_string_value(json_object_get(v, "text"));
    const bool says = strcmp(event, "warning") == 0 || strcmp(event, "stopped") == 0;
    if (strcmp(event, "peak") == 0 || strcmp(event, "saved") == 0) /* whenever it is */
        return;
    assert_int_equal(ax_buf_printf(out, "  %s at %lld%s", event,
                                   json_integer_value(json_object_get(v, "step")),
                                   says ? ": " : "\n"),
                     AX_OK);
    if (!says)
        return;
    near_put_masked(out, text, scratch);
    assert_int_equal(ax_buf_puts(out, "\n"), AX_OK);
}

static void put_line_of(struct ax_buf *out, const char *what, const char *line) {
    json_error_t e;
    const char *key;
    json_t *v = json_loads(line, JSON_ALLOW_NUL, &e), *x;
    if (!v)
        fail_msg("%s: %s", line, e.text);
    if (json_object_get(v, "event")) {
        put_event(out, v);
    } else {
        assert_int_equal(ax_buf_printf(out, "  %s", what), AX_OK);
        json_object_foreach(v, key, x) near_put(out, key, x, is_of_a_machine);
        assert_int_equal(ax_buf_puts(out, "\n"), AX_OK);
    }
    json_decref(v);
}

/* Of a file with many lines some are enough. */
static void put_lines(struct ax_buf *out, const char *file, int each) {
    char name[64], *text;
    size_t len;
    snprintf(name, sizeof name, "out/%s", file);
    if (!ax_path_exists(in_scratch(name)))
        return;
    assert_int_equal(ax_read_file(in_scratch(name), 1 << 22, &text, &len), AX_OK);
    char *rest = text;
    int i = 0;
    for (char *line = strsep(&rest, "\n"); line && rest; line = strsep(&rest, "\n"))
        if (i++ % each == 0)
            put_line_of(out, each > 1 ? "answer" : "", line);
    ax_free(text);
}

static void put_data(struct ax_buf *out) {
    char *text;
    size_t len;
    const char *key;
    json_t *x;
    assert_int_equal(ax_read_file(in_scratch("out/run.json"), 1 << 22, &text, &len), AX_OK);
    json_t *v = json_loads(text, 0, NULL);
    assert_int_equal(ax_buf_puts(out, "  data"), AX_OK);
    json_object_foreach(json_object_get(v, "data"), key, x) near_put(out, key, x, is_of_a_machine);
    near_put(out, "parameters", json_object_get(v, "parameters"), NULL);
    assert_int_equal(ax_buf_puts(out, "\n"), AX_OK);
    json_decref(v);
    ax_free(text);
}

static int is_shown(const struct dirent *d) {
    return d->d_name[0] != '.';
}

static void put_files(struct ax_buf *out) {
    struct dirent **list;
    const int n = scandir(in_scratch("out"), &list, is_shown, alphasort);
    assert_true(n > 0);
    assert_int_equal(ax_buf_puts(out, "  files"), AX_OK);
    for (int i = 0; i < n; i++) {
        assert_int_equal(ax_buf_printf(out, " %s", list[i]->d_name), AX_OK);
        free(list[i]);
    }
    free(list);
    assert_int_equal(ax_buf_puts(out, "\n"), AX_OK);
}

/* ---- the record ---- */

static void runs_are_as_recorded(void **state) {
    (void)state;
    struct ax_buf now = {0};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        train(&runs[i]);
        assert_int_equal(ax_buf_printf(&now, "%s\n", runs[i].name), AX_OK);
        put_lines(&now, "metrics.jsonl", 1);
        put_lines(&now, "completions.jsonl", 3);
        put_data(&now);
        put_files(&now);
    }
    near_compare(RECORD, &now);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(runs_are_as_recorded)};
    return cmocka_run_group_tests(tests, set_up, scratch_remove);
}
