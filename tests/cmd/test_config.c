/* What loading refuses: unknown keys, wrong types, rules between keys; each error with its place
 * and what to do, and all errors in one run. */
#include "config_case.h"

#include "base/fault.h"

static void unknown_keys(void **state) {
    (void)state;
    FAILS("sequnce_len: 2048\n", "unknown key \"sequnce_len\" (c.yaml:1:1)",
          "did you mean sequence_len?");
    FAILS("base_model: m\n\n  \nlearnign_rate: 1e-4\n", "\"learnign_rate\" (c.yaml:4:1)",
          "did you mean learning_rate?");
    FAILS("MICRO-BATCH-Size: 1\n", "did you mean micro_batch_size?");
    FAILS("zebra_crossing_lights: 1\n", "unknown key \"zebra_crossing_lights\" (c.yaml:1:1)");
    assert_null(strstr(ax_error_text(), "did you mean"));
    /* the right name in the wrong place */
    FAILS("offload_params: true\n", "did you mean fsdp_config.offload_params?");
    FAILS("fsdp_config: {lora_r: 8}\n", "\"lora_r\" in fsdp_config (c.yaml:1:15)",
          "did you mean lora_r at the top level?");
    FAILS("trl.beta: 0.1\n", "write it as a map: trl: {…}");
    /* other trainers' names */
    FAILS("per_device_train_batch_size: 4\n", "here it is called micro_batch_size");
    FAILS("max_seq_length: 4\n", "here it is called sequence_len");
    FAILS("sequence_length: 4\n", "here it is called sequence_len");
    FAILS("lr: 4\n", "here it is called learning_rate");
    FAILS("rl: ppo\ntotal_episodes: 4\n",
          "max_steps, which counts steps: total_episodes × ppo.num_ppo_epochs / (");
    FAILS("rl: ppo\nppo: {total_episodes: 4}\n", "\"total_episodes\" in ppo", "max_steps, which");
    FAILS("rl: ppo\nppo: {sft_model_path: m}\n", "here it is called base_model");
    FAILS("rl: ppo\nppo: {stop_token: eos}\n", "leave it out: answers end at the end tokens");
    FAILS("trl: {vllm_gpu_memory_utilization: 0.3}\n", "leave it out: the process that trains");
    FAILS("uld_student_temperature: 1\n", "leave it out: ULD compares sorted probabilities");
    FAILS("export_dir: out\n", "leave it out: `axtrain merge BASE ADAPTER DST` writes");
    FAILS("trl: {seed: 1}\n", "did you mean seed at the top level?");
    /* old spellings lead to today's */
    FAILS("flash_atention: true\n", "did you mean attn_implementation?");
}

static void unknown_nested_keys(void **state) {
    (void)state;
    FAILS("datasets:\n  - path: a\n    typ: alpaca\n",
          "unknown key \"typ\" in datasets.0 (c.yaml:3:5); did you mean type?");
    FAILS("datasets:\n  - path: a\n  - path: b\n    feild_messages: x\n",
          "in datasets.1 (c.yaml:4:5); did you mean field_messages?");
    FAILS("test_datasets: [{pth: a}]\n", "in test_datasets.0", "did you mean path?");
    FAILS("pretraining_dataset: [{text_colum: a}]\n", "did you mean text_column?");
    FAILS("pretraining_dataset: {path: a, text_colum: b}\n",
          "in pretraining_dataset.0 (c.yaml:1:32); did you mean text_column?");
    FAILS("datasets: [{text_column: a}]\n", "did you mean pretraining_dataset[].text_column?");
    FAILS("datasets: [{type: {field_instructoin: a}}]\n", "in datasets.0.type",
          "did you mean field_instruction?");
    FAILS("trl: {num_generation: 4}\n", "did you mean num_generations?");
    FAILS("peft: {loftq_config: {loftq_bit: 4}}\n", "did you mean loftq_bits?");
    FAILS("special_tokens: {eos: x}\n", "unknown key \"eos\" in special_tokens (c.yaml:1:18)");
    FAILS("a: {b: {c: 1}}\n", "unknown key \"a\" (c.yaml:1:1)");
}

static void wrong_types(void **state) {
    (void)state;
    FAILS("base_model: m\nsequence_len: 2k\n",
          "sequence_len: expected a positive integer, got \"2k\" (c.yaml:2:15)");
    FAILS("micro_batch_size: 0\n", "micro_batch_size: expected a positive integer, got \"0\"");
    FAILS("micro_batch_size: 1.5\n", "expected a positive integer, got \"1.5\"");
    FAILS("num_epochs: many\n", "num_epochs: expected a positive number, got \"many\"");
    FAILS("lora_dropout: 1\n", "expected a number from 0 to just below 1, got \"1\"");
    FAILS("warmup_ratio: 1.5\n", "expected a number from 0 to 1");
    FAILS("learning_rate: .nan\n", "learning_rate: expected a number of 0 or more, got \".nan\"");
    FAILS("sample_packing: maybe\n", "sample_packing: expected true or false, got \"maybe\"");
    FAILS("base_model: true\n", "base_model: expected a string, got \"true\"");
    FAILS("base_model: [a]\n", "base_model: expected a string, got a list (c.yaml:1:13)");
    FAILS("special_tokens: [a]\n", "special_tokens: expected a map, got a list");
    FAILS("datasets: {path: a}\n", "datasets: expected a list of maps, got a map", "\"- \"");
    FAILS("datasets: [a]\n", "datasets.0: expected a map, got \"a\" (c.yaml:1:12)");
    FAILS("eot_tokens: <x>\n", "eot_tokens: expected a list", "write [\"<x>\"]");
    FAILS("lora_target_modules: {a: b}\n", "expected a string or a list, got a map");
    FAILS("lora_rank_pattern: {q: 0}\n", "lora_rank_pattern.q: expected a positive integer");
    FAILS("lora_rank_pattern: {p: null, q: 0, r: ~}\n", "lora_rank_pattern.q: expected a positive");
    FAILS("datasets: [{roles: {user: human}}]\n", "datasets.0.roles.user: expected a list");
    FAILS("trl: {num_generations: 1}\n", "expected an integer of 2 or more");
    FAILS("seed: \"a\\e[31m\\n\\tb\"\n\"k\\e\": 1\n", "got \"a?[31m??b\"", "unknown key \"k?\"");
    FAILS("seed: ääääääääääääääääääääääääääääääääääääääääääääää\n", "ää…\" (c.yaml:1:7)");
    FAILS("seed: 99999999999999999999\n", "seed: expected an integer of 0 or more");
}

/* JSON has no infinity, so such a value would be missing where it is passed on. */
static void passed_numbers_are_finite(void **state) {
    (void)state;
    FAILS("chat_template_kwargs: {a: .inf}\n",
          "chat_template_kwargs.a: expected a finite number, got \".inf\" (c.yaml:1:27)");
    FAILS("model_config: {a: [1, {b: 1e999}]}\n", "model_config.a.1.b: expected a finite number",
          "(c.yaml:1:27)");
    FAILS("optim_args: {beta1: .nan}\n",
          "optim_args.beta1: expected a finite number, got \".nan\"");
    FAILS("lr_scheduler_kwargs: {power: .nan}\n", "lr_scheduler_kwargs.power: expected a finite");
}

static void wrong_choices(void **state) {
    (void)state;
    FAILS("excess_length_strategy: cut\n",
          "expected one of drop, truncate, raise, got \"cut\" (c.yaml:1:25)");
    FAILS("lr_scheduler: cosin\n", "axtrain config help lr_scheduler", "did you mean cosine?");
    FAILS("optimizer: adamw_8bits\n", "did you mean adamw_8bit?");
    FAILS("gradient_checkpointing: selectiv\n", "expected true or false or one of auto, selective",
          "did you mean selective?");
    FAILS("datasets: [{path: a, type: chat_templat}]\n", "datasets.0.type",
          "did you mean chat_template?");
    FAILS("dpo_loss_type: [sigmod]\nrl: dpo\n", "dpo_loss_type.0", "did you mean sigmoid?");
    FAILS("dpo_loss_type: hinge\nrl: dpo\n", "dpo_loss_type: expected a list, got \"hinge\"",
          "; for a list of one, write [\"hinge\"]");
    FAILS("attn_implementation: flash\n", "attn_implementation", "flash_attention_2");
    FAILS("datasets: [{path: a, type: sharegpt}]\n", "write type: chat_template");
    FAILS("save_safetensors: false\n", "\"false\" is not accepted: remove it");
    FAILS("rope_scaling: {type: linear, factor: 2}\n", "set it under model_config");
    FAILS("datasets: [{path: a, train_on_split: train}]\n", "write split");
}

static void rules_between_keys(void **state) {
    (void)state;
    static const struct {
        const char *yaml, *text;
    } cases[] = {
        {"batch_size: 8\ngradient_accumulation_steps: 4\n",
         "set only one of batch_size and gradient_accumulation_steps (c.yaml:1:13)"},
        {"batch_size: 5\nmicro_batch_size: 2\n", "must be a multiple of micro_batch_size"},
        {"warmup_steps: 10\nwarmup_ratio: 0.1\n", "use warmup_steps or warmup_ratio, not both"},
        {"test_datasets: [{path: a}]\nval_set_size: 0.1\n", "test_datasets or val_set_size"},
        {"val_set_size: 1\n", "val_set_size: 1 is neither"},
        {"val_set_size: 20.5\n", "must be an integer"},
        {"save_steps: 2.5\n",
         "save_steps: a value above 1 is a number of steps and must be an integer"},
        {"val_set_size: 0.1\neval_steps: 1.5\n",
         "eval_steps: a value above 1 is a number of steps"},
        {"save_steps: 10\nsaves_per_epoch: 1\n", "save_steps or saves_per_epoch"},
        {"save_steps: 10\nsave_strategy: epoch\n", "save_steps needs save_strategy: steps"},
        {"save_strategy: best\n", "best needs metric_for_best_model"},
        {"eval_steps: 10\nevals_per_epoch: 1\n", "eval_steps or evals_per_epoch"},
        {"chat_template: jinja\n", "jinja needs chat_template_jinja"},
        {"pretraining_dataset: [{path: a}]\n", "set max_steps (c.yaml:1:22)"},
        {"streaming: true\nmax_steps: 5\nval_set_size: 0.1\n", "use test_datasets"},
        {"rl: grpo\nsample_packing: true\n", "packing is not supported with this rl"},
        {"rl: dpo\ndpo_loss_weights: [1]\n", "set dpo_loss_type too"},
        {"rl: dpo\ndpo_loss_type: [sigmoid, sft]\ndpo_loss_weights: [1]\n", "one weight for each"},
        {"rl: kto\ndpo_loss_type: [ipo]\n", "needs rl: dpo"},
        {"rl: dpo\nrl_beta: 0.1\ntrl: {beta: 0.2}\n", "differs from trl.beta"},
        {"load_in_4bit: true\n",
         "load_in_4bit: a quantized base cannot be trained: set adapter: q"},
        {"load_in_8bit: true\n",
         "load_in_8bit: a quantized base cannot be trained: set adapter: l"},
        {"adapter: dora\n", "set adapter: lora and peft_use_dora: true"},
        {"push_to_hub: true\n", "here it is called hub_model_id"},
        {"gradient_clip: 1\n", "here it is called max_grad_norm"},
        {"router_aux_loss_coef: 0.1\n", "model_config, with this key and output_router_logits"},
        {"optimizer: adamww\n", "did you mean adamw_torch?"},
        {"optimizer: xylophone\n", "got \"xylophone\" (c.yaml"},
        {"adapter: qlora\n", "qlora needs load_in_4bit: true"},
        {"adapter: qlora\nload_in_4bit: true\nload_in_8bit: true\n", "4 bits"},
        {"adapter: lora\nlora_dropout: 0.1\nlora_target_parameters: [w]\n", "must be 0"},
        {"peft_layers_pattern: [layers]\n", "set peft_layers_to_transform too"},
        {"qat: {weight_dtype: int4}\nadapter: lora\nload_in_8bit: true\n", "quantizes the weights"},
        {"qat: {scheme: int4_int8}\n", "did you mean int4-int8?"},
        {"qat: {scheme: int8, weight_dtype: int4}\n", "remove weight_dtype and activation_dtype"},
        {"qat: {scheme: fp8, group_size: 32}\n", "remove group_size"},
        {"qat: {scheme: nvfp4, group_size: 32}\n", "must be 16 for nvfp4"},
        {"qat: {weight_dtype: int4, activation_dtype: int4}\n", "need int8 or fp8 activations"},
        {"qat: {group_size: 32}\n", "weight_dtype would be int8"},
        {"qat: {weight_dtype: nvfp4}\n", "must be 16 for nvfp4"},
        {"qat: {weight_dtype: fp8, activation_dtype: int8}\n", "fp8 weights need fp8"},
        {"quantization: {weight_dtype: fp8, activation_dtype: int8}\n", "set it to fp8"},
        {"quantization: {weight_dtype: int4, activation_dtype: nvfp4}\n", "need int8 or fp8"},
        {"quantization: {weight_dtype: int8, activation_dtype: fp8}\n", "int8 weights need int8"},
        {"quantization: {scheme: int8, group_size: 32}\n", "a scale per row or tensor: remove"},
        {"quantization: {scheme: fp8, group_size: 32}\n", "a scale per row or tensor: remove"},
        {"quantization: {group_size: 32}\n", "int8 weights have a scale per row: remove"},
        {"quantization: {scheme: q4_0, group_size: 32}\n", "have groups of their own: remove"},
        {"quantization: {scheme: nvfp4, group_size: 32}\n", "must be 16 for nvfp4"},
        {"quantization: {weight_dtype: nvfp4, group_size: 32}\n", "must be 16 for nvfp4"},
        {"early_stopping_patience: 3\nsave_steps: 10\neval_steps: 3\n", "a multiple of eval_steps"},
        {"early_stopping_patience: 3\n", "needs eval_steps and save_steps"},
        {"chunked_cross_entropy: true\nliger_cross_entropy: true\n",
         "liger_cross_entropy: computes the same loss as chunked_cross_entropy: keep one"},
        {"cut_cross_entropy: true\nchunked_cross_entropy: true\nliger_cross_entropy: true\n",
         "liger_cross_entropy: computes the same loss as chunked_cross_entropy: keep one"},
        {"deepspeed: a.json\nfsdp: [full_shard]\n", "use fsdp or deepspeed"},
        {"activation_offloading: true\n", "needs gradient_checkpointing"},
        {"context_parallel_size: 2\nsample_packing: true\nmicro_batch_size: 2\n", "must be 1"},
        {"dataset_shard_num: 2\n", "dataset_shard_num: set both"},
        {"dataset_shard_idx: 0\n", "dataset_shard_idx: set both"},
        {"dataset_shard_num: 2\ndataset_shard_idx: 2\n",
         "dataset_shard_idx: must be below dataset_shard_num (c.yaml:2:20)"},
        {"datasets: [{path: b}, {path: a, shards: 2, shards_idx: 2}]\n",
         "datasets.1.shards_idx: must be below shards (c.yaml:1:56)"},
        {"quantize_moe_experts: true\n", "needs adapter: qlora with load_in_4bit"},
        {"datasets: [{path: a, weight: 0}]\n", "expected a positive number, got \"0\""},
        {"datasets: [{path: a, weight: 2}]\nmixing_weights: [1]\n",
         "datasets.0.weight: use weight or mixing_weights"},
        {"datasets: [{path: a, weight: 2}]\nstreaming: true\nmax_steps: 1\n", "use mixing_weights"},
        {"pretraining_dataset: [{path: a, weight: 2}]\nmax_steps: 1\n", "use mixing_weights"},
        {"pretraining_dataset: [{path: a}]\nmixing_weights: [1, 2]\nmax_steps: 1\n",
         "one number for each data set"},
        {"test_datasets: [{path: a, weight: 2}]\n", "test_datasets.0.weight: evaluation uses"},
        {"datasets: [{path: a}]\nmixing_weights: [1, 2]\n", "one number for each data set"},
        {"datasets: [{path: a}]\nmixing_weights: [0]\n", "expected a positive number"},
        {"dataset_mixing_strategy: weighted\n", "weighted needs mixing_weights"},
        {"datasets: [{path: a}]\nmixing_weights: [1]\ndataset_mixing_strategy: concatenate\n",
         "needs dataset_mixing_strategy: weighted"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        FAILS(cases[i].yaml, cases[i].text);
}

/* The same keys, with values that fit together. */
static void rules_that_are_kept(void **state) {
    (void)state;
    static const char *const cases[] = {
        "batch_size: 8\ngradient_accumulation_steps: 4\nmicro_batch_size: 2\n",
        "batch_size: 6\nmicro_batch_size: 2\n",
        "val_set_size: 2\n",
        "val_set_size: 0.5\n",
        "early_stopping_patience: 3\nsave_steps: 9\neval_steps: 3\n",
        "dataset_shard_num: 2\ndataset_shard_idx: 1\n",
        "datasets: [{path: a, shards: 2, shards_idx: 1}]\n",
        "datasets: [{path: a}, {path: b}]\nmixing_weights: [1, 2]\n",
        "datasets: [{path: a, weight: 2}]\n",
        "liger_cross_entropy: true\n",
        "rl: dpo\ndpo_loss_type: [sigmoid, sft]\ndpo_loss_weights: [1, 2]\n",
        "rl: grpo\nmicro_batch_size: 4\ntrl: {num_generations: 2}\n",
        "qat: {scheme: nvfp4, group_size: 16}\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_config cfg;
        load_ok(&cfg, cases[i], NULL);
        ax_config_free(&cfg);
    }
}

static void all_problems_at_once(void **state) {
    (void)state;
    FAILS("zzz: 1\nsequence_len: 2k\nbatch_size: 8\ngradient_accumulation_steps: 2\n"
          "sample_packing: perhaps\n",
          "c.yaml: 4 problems\n", "\n  unknown key \"zzz\" (c.yaml:1:1)",
          "\n  sequence_len: expected", "\n  batch_size: contradicts",
          "\n  sample_packing: expected");
    /* in the order of the file */
    const char *text = ax_error_text();
    assert_true(strstr(text, ":1:1") < strstr(text, ":2:15"));
    assert_true(strstr(text, ":2:15") < strstr(text, ":3:13"));
    assert_true(strstr(text, ":3:13") < strstr(text, ":5:17"));

    struct ax_buf many = {0};
    for (int i = 0; i < 200; i++)
        assert_int_equal(ax_buf_printf(&many, "unknown_key_number_%d: 1\n", i), AX_OK);
    FAILS(many.data, "c.yaml: 200 problems", "unknown_key_number_0\"", "\n  … and ");
    assert_true(strlen(ax_error_text()) < 2048);
    ax_buf_free(&many);
}

static void files_that_are_no_configs(void **state) {
    (void)state;
    FAILS("", "expected a map of keys, got nothing");
    FAILS("- a\n- b\n", "expected a map of keys, got a list");
    load_fails("hello\n", OVERRIDES("--learning_rate", "1e-4"),
               (const char *const[]){"c.yaml: expected a map of keys, got a string", NULL});
    FAILS("base_model: m\n\tlearning_rate: 1\n", "c.yaml:2");
    FAILS("seed: 1\nseed: 2\n", "duplicate key");
    FAILS("project_name:\nvolumes:\n  - name: a\n    mount: /b\ngpu: h100\nmemory: 128\n",
          "a cloud launch");
    struct ax_config cfg;
    assert_int_equal(ax_config_load(&cfg, "/nonexistent/c.yaml", 0, NULL), AX_ERR_CONFIG);
    expect_text(ax_error_text(), "/nonexistent/c.yaml");
}

/* Each allocation of a load may fail; nothing is left behind. */
static void out_of_memory(void **state) {
    (void)state;
    static const char text[] =
        "base_model: m\nflash_attention: true\nbatch_size: 4\nwandb_name: x\n"
        "datasets: [{path: a, message_field_role: from}]\nfp16: true\n";
    uint64_t live = ax_mem_live_blocks();
    struct ax_config cfg;
    uint64_t before = ax_mem_calls();
    load_ok(&cfg, text, NULL);
    ax_config_free(&cfg);
    uint64_t calls = ax_mem_calls() - before;
    ax_config_free(&cfg); /* harmless: nothing is left of it */
    assert_true(calls > 100);
    for (uint64_t k = 1; k <= calls; k += k < 40 || k + 400 > calls ? 1 : 37) {
        char spec[64];
        snprintf(spec, sizeof spec, "malloc:%llu:enomem", (unsigned long long)k);
        assert_int_equal(ax_fault_configure(spec), AX_OK);
        enum ax_status st = load_with(&cfg, text, NULL);
        assert_int_equal(ax_fault_configure(NULL), AX_OK);
        if (st == AX_OK) { /* the last ones may lie beyond */
            ax_config_free(&cfg);
            assert_true(k + 5 > calls);
        } else {
            assert_int_equal(st, AX_ERR_NOMEM);
        }
        assert_int_equal(ax_mem_live_blocks(), live);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_keys),
        cmocka_unit_test(unknown_nested_keys),
        cmocka_unit_test(wrong_types),
        cmocka_unit_test(passed_numbers_are_finite),
        cmocka_unit_test(wrong_choices),
        cmocka_unit_test(rules_between_keys),
        cmocka_unit_test(rules_that_are_kept),
        cmocka_unit_test(all_problems_at_once),
        cmocka_unit_test(files_that_are_no_configs),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
