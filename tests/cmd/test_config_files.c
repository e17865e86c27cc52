/* Whole files in the style people publish, written for this test: each loads, and needs exactly the
 * capabilities that it should. */
#include "config_case.h"

#define TEXT  "text-data"
#define TRAIN "sft-training"

struct file {
    const char *name;
    const char *needs[10];
    const char *yaml;
};

static const struct file files[] = {
    {"full fine-tuning on alpaca rows",
     {TEXT, TRAIN},
     "base_model: HuggingFaceTB/SmolLM2-135M\nmodel_type: AutoModelForCausalLM\n"
     "tokenizer_type: AutoTokenizer\n\ndatasets:\n  - path: mhenrichsen/alpaca_2k_test\n"
     "    type: alpaca\ndataset_prepared_path:\nval_set_size: 0.05\noutput_dir: ./out\n\n"
     "sequence_len: 2048\nsample_packing: true\n\nwandb_project:\nwandb_entity:\nwandb_watch:\n"
     "wandb_name:\nwandb_log_model:\n\ngradient_accumulation_steps: 4\nmicro_batch_size: 2\n"
     "num_epochs: 3\noptimizer: adamw_torch_fused\nlr_scheduler: cosine\nlearning_rate: 2e-5\n\n"
     "bf16: auto\ntf32: false\ngradient_checkpointing: true\nresume_from_checkpoint:\n"
     "logging_steps: 1\nflash_attention: true\n\nwarmup_ratio: 0.1\nevals_per_epoch: 2\n"
     "saves_per_epoch: 1\nweight_decay: 0.0\nspecial_tokens:\n   pad_token: <|endoftext|>\n"},
    {"LoRA chat",
     {TEXT, TRAIN, "lora", "8-bit-moments"},
     "base_model: meta-llama/Llama-3.2-1B\nload_in_8bit: true\nload_in_4bit: false\n"
     "chat_template: llama3\ndatasets:\n  - path: fozziethebeat/alpaca_messages_2k_test\n"
     "    type: chat_template\n    field_messages: messages\n    message_property_mappings:\n"
     "      role: role\n      content: content\n    roles:\n      user:\n        - user\n"
     "      assistant:\n        - assistant\nadapter: lora\nlora_model_dir:\nlora_r: 32\n"
     "lora_alpha: 16\nlora_dropout: 0.05\nlora_target_linear: true\nlora_modules_to_save:\n"
     "  - embed_tokens\n  - lm_head\nsequence_len: 4096\nmicro_batch_size: 2\n"
     "gradient_accumulation_steps: 4\noptimizer: adamw_bnb_8bit\nlearning_rate: 0.0002\n"
     "train_on_inputs: false\ngroup_by_length: false\nfp16:\ns2_attention:\n"},
    {"QLoRA with packing",
     {TEXT, TRAIN, "lora", "qlora", "8-bit-moments"},
     "base_model: NousResearch/Llama-2-7b-hf\nload_in_4bit: true\nadapter: qlora\nlora_r: 32\n"
     "lora_alpha: 16\nlora_dropout: 0.05\nlora_target_modules:\n  - q_proj\n  - k_proj\n  - "
     "v_proj\n"
     "sequence_len: 4096\nsample_packing: true\npad_to_sequence_len: true\ndatasets:\n"
     "  - path: tatsu-lab/alpaca\n    type: alpaca\nmicro_batch_size: 2\n"
     "gradient_accumulation_steps: 4\nnum_epochs: 4\noptimizer: paged_adamw_8bit\n"
     "lr_scheduler: cosine\nlearning_rate: 2e-4\nattn_implementation: flash_attention_2\n"
     "bnb_config_kwargs:\n  bnb_4bit_use_double_quant: true\n"},
    {"share-style conversations",
     {TEXT, TRAIN},
     "base_model: Qwen/Qwen2.5-0.5B\nchat_template: qwen_25\ndatasets:\n"
     "  - path: mlabonne/FineTome-100k\n    type: chat_template\n    split: train[:20%]\n"
     "    field_messages: conversations\n    message_property_mappings: {role: from, content: "
     "value}\n"
     "default_system_message: You are a helpful assistant.\neot_tokens: ['<|im_end|>']\n"
     "sequence_len: 2048\nlearning_rate: 1e-5\nmicro_batch_size: 1\n"},
    {"old message field names",
     {TEXT, TRAIN},
     "base_model: m\ndatasets:\n  - path: a.jsonl\n    type: chat_template\n"
     "    message_field_role: from\n    message_field_content: value\nlearning_rate: 1e-5\n"},
    {"several sets",
     {TEXT, TRAIN},
     "base_model: m\nlearning_rate: 1e-5\ndatasets:\n  - {path: a.jsonl, type: alpaca}\n"
     "  - {path: b.csv, ds_type: csv, type: completion, field: body}\n"
     "  - path: dir\n    data_files: [x.jsonl.zst, y.jsonl.gz]\n    type: input_output\n"
     "  - path: c.jsonl\n    type: {field_instruction: q, field_output: a, format: "
     "'{instruction}'}\n"
     "  - {path: d.jsonl, type: chat_template, roles_to_train: [assistant, tool], train_on_eos: "
     "all}\n"
     "shuffle_merged_datasets: false\ndataset_exact_deduplication: true\n"},
    {"own prompt text",
     {TEXT, TRAIN},
     "base_model: m\nlearning_rate: 1e-5\ndatasets:\n  - path: a.jsonl\n    type:\n"
     "      system_prompt: Answer briefly.\n      field_instruction: question\n"
     "      field_input: context\n      field_output: answer\n"
     "      format: |-\n        Q: {instruction}\n        C: {input}\n        A:\n"
     "      no_input_format: \"Q: {instruction}\\nA:\"\n"},
    {"streamed pretraining",
     {TEXT, TRAIN},
     "base_model: m\npretraining_dataset:\n  - path: allenai/c4\n    name: en\n    type: pretrain\n"
     "    split: train\n    text_column: text\n    skip: 10\nmax_steps: 200\nstreaming: true\n"
     "streaming_multipack_buffer_size: 10000\npretrain_multipack_attn: true\n"
     "sample_packing: true\nlearning_rate: 2e-4\nmicro_batch_size: 1\n"},
    {"completion with a separate test set",
     {TEXT, TRAIN},
     "base_model: m\ndatasets: [{path: train.txt, ds_type: text, type: completion}]\n"
     "test_datasets: [{path: test.txt, ds_type: text, type: completion, split: train}]\n"
     "eval_strategy: steps\neval_steps: 0.1\nlearning_rate: 1e-4\n"},
    {"early stopping and the best model",
     {TEXT, TRAIN},
     "base_model: m\ndatasets: [{path: a, type: alpaca}]\nval_set_size: 200\nsave_steps: 100\n"
     "eval_steps: 50\nearly_stopping_patience: 3\nload_best_model_at_end: true\n"
     "metric_for_best_model: eval_loss\ngreater_is_better: false\nlearning_rate: 5e-5\n"
     "loss_watchdog_threshold: 5.0\nloss_watchdog_patience: 3\n"},
    {"reasoning text",
     {TEXT, TRAIN},
     "base_model: Qwen/Qwen3-0.6B\nchat_template: qwen3\ndatasets:\n  - path: a.jsonl\n"
     "    type: chat_template\n    field_thinking: thinking\n    template_thinking_key: thinking\n"
     "    split_thinking: true\nchat_template_kwargs: {enable_thinking: false}\n"
     "learning_rate: 1e-5\n"},
    {"inline template",
     {TEXT, TRAIN},
     "base_model: m\nchat_template: jinja\nchat_template_jinja: |\n"
     "  {% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n  {% endfor %}\n"
     "datasets: [{path: a.jsonl, type: chat_template}]\nlearning_rate: 1e-5\n"},
    {"added tokens",
     {TEXT, TRAIN},
     "base_model: m\ntokens: ['<|im_start|>', '<tool>']\nspecial_tokens:\n  eos_token: <|im_end|>\n"
     "  additional_special_tokens: ['<a>', '<b>']\nadded_tokens_overrides: {128041: '<x>'}\n"
     "resize_token_embeddings_to_32x: true\nmean_resizing_embeddings: true\n"
     "datasets: [{path: a, type: alpaca}]\nlearning_rate: 1e-5\n"},
    {"DPO with ChatML rows",
     {TEXT, TRAIN, "dpo", "qlora", "lora"},
     "base_model: m\nrl: dpo\nrl_beta: 0.1\ndatasets:\n  - path: Intel/orca_dpo_pairs\n"
     "    split: train\n    type: chatml.intel\nadapter: qlora\nload_in_4bit: true\nlora_r: 16\n"
     "lora_alpha: 32\nlora_target_linear: true\nlearning_rate: 5e-6\nsample_packing: false\n"},
    {"DPO from conversations",
     {TEXT, TRAIN, "dpo"},
     "base_model: m\nrl: dpo\ndpo_loss_type: [sigmoid]\ndpo_label_smoothing: 0.1\ndatasets:\n"
     "  - path: fozziethebeat/alpaca_messages_2k_dpo_test\n    type: chat_template.default\n"
     "    field_messages: conversation\n    field_chosen: chosen\n    field_rejected: rejected\n"
     "    message_property_mappings: {role: role, content: content}\n"
     "    roles: {system: [system], user: [user], assistant: [assistant]}\nlearning_rate: 5e-6\n"},
    {"ORPO",
     {TEXT, TRAIN, "orpo", "dpo"},
     "base_model: m\nrl: orpo\norpo_alpha: 0.2\nremove_unused_columns: false\ndatasets:\n"
     "  - {path: argilla/ultrafeedback, type: chat_template.argilla}\nlearning_rate: 5e-6\n"},
    {"KTO",
     {TEXT, TRAIN, "kto", "dpo"},
     "base_model: m\nrl: kto\nrl_beta: 0.5\nkto_desirable_weight: 0.2\nremove_unused_columns: "
     "false\n"
     "datasets:\n  - {path: argilla/kto-mix, type: llama3.argilla, split: 'train[:95%]'}\n"
     "learning_rate: 5e-6\n"},
    {"GRPO",
     {TEXT, TRAIN, "grpo", "dpo"},
     "base_model: m\nrl: grpo\nrl_beta: 0.001\ntrl:\n  num_generations: 4\n"
     "  max_completion_length: 256\n  reward_funcs: [exact_match, my.module_reward]\n"
     "  reward_weights: [1.0, 0.5]\n  use_vllm: true\n  vllm_server_port: 8000\n"
     "  temperature: 0.9\nvllm: {gpu_memory_utilization: 0.8, dtype: auto}\nmicro_batch_size: 4\n"
     "datasets: [{path: openai/gsm8k, name: main, type: alpaca}]\nlearning_rate: 5e-6\n"},
    {"reward model",
     {TEXT, TRAIN, "reward-model"},
     "base_model: google/gemma-2-2b\nmodel_type: AutoModelForSequenceClassification\nnum_labels: "
     "1\n"
     "reward_model: true\ncenter_rewards_coefficient: 0.01\nchat_template: gemma\n"
     "datasets: [{path: argilla/x, type: bradley_terry.chat_template}]\nlearning_rate: 1e-5\n"},
    {"process reward model",
     {TEXT, TRAIN, "process-reward-model", "reward-model"},
     "base_model: m\nmodel_type: AutoModelForTokenClassification\nnum_labels: 2\n"
     "process_reward_model: true\ndatasets:\n  - path: trl-lib/math_shepherd\n"
     "    type: stepwise_supervised\n    step_separator: \"\\n\"\n    max_completion_length:\n"
     "    train_on_last_step_only: false\nlearning_rate: 1e-5\n"},
    {"sharded over ranks, old names",
     {TEXT, TRAIN},
     "base_model: m\ndatasets: [{path: a, type: alpaca}]\nlearning_rate: 1e-5\nfsdp:\n"
     "  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_limit_all_gathers: true\n"
     "  fsdp_sync_module_states: true\n  fsdp_offload_params: false\n  fsdp_use_orig_params: "
     "false\n"
     "  fsdp_cpu_ram_efficient_loading: true\n"
     "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
     "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"
     "  fsdp_state_dict_type: FULL_STATE_DICT\n  fsdp_sharding_strategy: FULL_SHARD\n"},
    {"a mesh",
     {TEXT, TRAIN, "sharding", "tensor-parallel", "context-parallel", "expert-parallel",
      "pipeline-parallel"},
     "base_model: m\ndatasets: [{path: a, type: alpaca}]\nlearning_rate: 1e-5\ndp_shard_size: 2\n"
     "dp_replicate_size: 2\ntensor_parallel_size: 2\ncontext_parallel_size: 2\n"
     "expert_parallel_size: 2\npipeline_parallel_size: 2\nfsdp_version: 2\nfsdp_config:\n"
     "  offload_params: false\n  state_dict_type: SHARDED_STATE_DICT\n"
     "  auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  reshard_after_forward: true\n"
     "plugins:\n  - axolotl.integrations.expert_parallel.ExpertParallelPlugin\n"},
    {"DeepSpeed",
     {TEXT, TRAIN},
     "base_model: m\ndatasets: [{path: a, type: alpaca}]\nlearning_rate: 1e-5\n"
     "deepspeed: deepspeed_configs/zero3_bf16.json\n"},
    {"plugins that only save time",
     {TEXT, TRAIN},
     "base_model: m\ndatasets: [{path: a, type: alpaca}]\nlearning_rate: 1e-5\nplugins:\n"
     "  - axolotl.integrations.liger.LigerPlugin\n"
     "  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\nliger_rope: true\n"
     "liger_rms_norm: true\nliger_glu_activation: true\nliger_layer_norm: true\n"
     "cut_cross_entropy: true\nlora_mlp_kernel: true\nlora_qkv_kernel: true\ntorch_compile: "
     "auto\n"},
    {"plugins that change the result",
     {TEXT, TRAIN, "plugins", "token-scaling"},
     "base_model: m\ndatasets: [{path: a, type: alpaca}]\nlearning_rate: 1e-5\nplugins:\n"
     "  - axolotl.integrations.grokfast.GrokfastPlugin\ngrokfast_alpha: 0.9\n"
     "liger_use_token_scaling: true\nuse_eaft: true\neaft_alpha: 1.0\n"},
    {"distillation",
     {TEXT, TRAIN},
     "base_model: m\ndatasets: [{path: a, type: alpaca}]\nlearning_rate: 1e-5\nplugins:\n"
     "  - axolotl.integrations.kd.KDPlugin\nkd_teacher: t\nkd_alpha: 0.9\n"
     "kd_ce_alpha: 0.1\nkd_temperature: 2.0\nkd_beta: 0.5\n"},
    {"distillation from stored log-probs",
     {TEXT, TRAIN},
     "base_model: m\ndatasets: [{path: a, type: axolotl.integrations.kd.chat_template, "
     "logprobs_field: l, temperature: 0.7}]\nlearning_rate: 1e-5\nplugins:\n"
     "  - axolotl.integrations.kd.KDPlugin\nkd_trainer: true\nkd_topk: 64\nkd_alpha: 0.9\n"
     "kd_ce_alpha: 0.1\nkd_temperature: 2.0\nkd_normalize_topk: false\n"},
    {"distillation from a server",
     {TEXT, TRAIN, "teacher-logprobs"},
     "base_model: m\ndatasets: [{path: a, type: alpaca}]\nlearning_rate: 1e-5\nkd_teacher: t\n"
     "kd_online_server_base_url: http://h\n"},
    {"quantization-aware",
     {TEXT, TRAIN},
     "base_model: m\ndatasets: [{path: a, type: alpaca}]\nlearning_rate: 1e-5\nqat:\n"
     "  activation_dtype: int8\n  weight_dtype: int4\n  group_size: 32\n"
     "  fake_quant_after_n_steps: 100\n"},
    {"trackers",
     {TEXT, TRAIN, "tensorboard"},
     "base_model: m\ndatasets: [{path: a, type: alpaca}]\nlearning_rate: 1e-5\nwandb_project: p\n"
     "wandb_entity: e\nwandb_name: n\nwandb_mode: offline\nuse_mlflow: true\n"
     "mlflow_tracking_uri: http://x\nuse_comet: true\ncomet_online: false\nuse_tensorboard: true\n"
     "use_swanlab: true\nswanlab_project: s\ntrackio_project_name: t\n"},
    {"uploads",
     {TEXT, TRAIN, "hub-upload", "hub-data-upload"},
     "base_model: m\ndatasets: [{path: a, type: alpaca}]\nlearning_rate: 1e-5\n"
     "hub_model_id: me/model\nhub_strategy: every_save\nhf_use_auth_token: true\n"
     "push_dataset_to_hub: me/rows\n"},
    {"images",
     {TEXT, TRAIN, "multimodal"},
     "base_model: google/gemma-3-4b-it\nprocessor_type: AutoProcessor\nskip_prepare_dataset: true\n"
     "remove_unused_columns: false\nsample_packing: false\nchat_template: gemma3\n"
     "datasets: [{path: HuggingFaceH4/llava, type: chat_template, split: 'train[:1%]'}]\n"
     "image_size: [512, 512]\nimage_resize_algorithm: bilinear\nlearning_rate: 2e-5\n"},
    {"optimizer details",
     {TEXT, TRAIN, "lr-groups"},
     "base_model: m\ndatasets: [{path: a, type: alpaca}]\nlearning_rate: 1e-5\n"
     "optimizer: adamw_torch\nadam_beta1: 0.9\nadam_beta2: 0.95\nadam_epsilon: 1e-5\n"
     "max_grad_norm: 1.0\nembedding_lr: 1e-6\nlr_groups:\n"
     "  - {name: o, modules: [o_proj], lr: 1e-6}\noptim_args: {amsgrad: false}\n"
     "lr_scheduler: cosine\ncosine_min_lr_ratio: 0.1\ncosine_constant_lr_ratio: 0.8\n"
     "lr_scheduler_kwargs: {num_cycles: 1}\n"},
    {"our own keys",
     {TEXT, TRAIN, "bf16-masters", "8-bit-moments"},
     "base_model: m\ndatasets: [{path: a, type: alpaca}]\nlearning_rate: 1e-5\n"
     "master_dtype: bf16_remainder\nmoment_dtype: int8\nmax_bad_rows: 5\nlabel_smoothing: 0.1\n"
     "z_loss_coef: 1e-4\ngradient_checkpointing: auto\n"},
    {"anchors and merges",
     {TEXT, TRAIN},
     "base_model: m\nlearning_rate: 1e-5\ndatasets:\n  - &first\n    path: a.jsonl\n    type: "
     "alpaca\n"
     "  - <<: *first\n    path: b.jsonl\n"},
    {"a file of nulls",
     {TEXT, TRAIN},
     "base_model: m\nlearning_rate: 1e-5\nadapter:\nlora_model_dir: null\nlora_r: ~\nlora_alpha:\n"
     "lora_dropout:\nlora_target_modules:\nlora_fan_in_fan_out:\ndeepspeed:\nfsdp:\nfsdp_config:\n"
     "special_tokens:\ntokens:\nxformers_attention:\nearly_stopping_patience:\nlocal_rank:\n"
     "gptq_groupsize:\ndebug:\ntorchdistx_path:\npush_dataset_to_hub:\nsave_steps:\n"
     "max_packed_sequence_len:\nwarmup_ratio:\ndatasets: [{path: a, type: }]\n"},
};

/* Is every capability that is missed expected, and every expected one either there or missed? */
static void check_needs(const struct ax_config *cfg, const struct file *file) {
    for (size_t i = 0; i < cfg->n_notes; i++) {
        bool expected = cfg->notes[i].kind != AX_NOTE_NOT_YET;
        for (size_t k = 0; file->needs[k] != NULL; k++)
            expected = expected || strcmp(file->needs[k], cfg->notes[i].text) == 0;
        if (!expected)
            fail_msg("%s: %s needs %s", file->name, cfg->notes[i].path, cfg->notes[i].text);
    }
    for (size_t k = 0; file->needs[k] != NULL; k++) {
        bool met = true; /* what has landed is no longer a capability that is missing */
        for (int c = 0; c < AX_CAP_COUNT; c++) {
            const char *name = ax_capability_info((enum ax_capability)c)->name;
            met = met && strcmp(name, file->needs[k]) != 0;
        }
        for (size_t i = 0; i < cfg->n_notes; i++) {
            met = met || (cfg->notes[i].kind == AX_NOTE_NOT_YET &&
                          strcmp(cfg->notes[i].text, file->needs[k]) == 0);
        }
        if (!met)
            fail_msg("%s: nothing asks for %s", file->name, file->needs[k]);
    }
}

static void published_files(void **state) {
    (void)state;
    assert_true(sizeof files / sizeof *files >= 30);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct ax_config cfg;
        struct ax_buf out = {0};
        if (load_with(&cfg, files[i].yaml, NULL) != AX_OK)
            fail_msg("%s: %s", files[i].name, ax_error_text());
        check_needs(&cfg, &files[i]);
        assert_non_null(ax_config_str(&cfg, "base_model"));
        assert_true(ax_config_f64(&cfg, "learning_rate") > 0);
        assert_int_equal(ax_config_show(&cfg, true, &out), AX_OK);
        assert_true(strstr(out.data, "not supported yet") != NULL ||
                    ax_config_require(&cfg, AX_CONFIG_FOR_TRAINING) == AX_OK);
        ax_buf_free(&out);
        ax_config_free(&cfg);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(published_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
