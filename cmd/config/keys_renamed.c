/* Renamed keys, ignored keys, and other trainers' names for ours. Rows only. */
#include "cmd/config/table.h"

/* clang-format off */
#define KEY(old, now) {old, now, NULL, NULL}
#define FSDP(key)     KEY("fsdp_config.fsdp_" key, "fsdp_config." key)

const struct ax_config_renamed ax_config_renamed[] = {
    KEY("type_of_model", "model_type"), KEY("revision_of_model", "model_revision"),
    KEY("overrides_of_model_config", "model_config"),
    KEY("overrides_of_model_kwargs", "model_kwargs"), KEY("evaluation_strategy", "eval_strategy"),
    {"xformers_attention", "attn_implementation", "true", "xformers"},
    {"sage_attention", "attn_implementation", "true", "sage"},
    {"flex_attention", "attn_implementation", "true", "flex_attention"},
    {"flash_attention", "attn_implementation", "true", "flash_attention_2"},
    {"sdp_attention", "attn_implementation", "true", "sdpa"},
    {"eager_attention", "attn_implementation", "true", "eager"}, KEY("dpo_beta", "rl_beta"),
    KEY("noisy_embedding_alpha", "neftune_noise_alpha"),
    KEY("sequence_parallel_degree", "context_parallel_size"),
    KEY("pretrain_multipack_buffer_size", "streaming_multipack_buffer_size"),
    KEY("dataset_processes", "dataset_num_proc"), KEY("gc_steps", "torch_empty_cache_steps"),
    KEY("gc_steps", "gc_collect_steps"), KEY("eval_table_size", "generate_samples"),
    KEY("eval_max_new_tokens", "generation_max_new_tokens"),
    KEY("eval_table_max_new_tokens", "generation_max_new_tokens"),
    KEY("relora_steps", "jagged_restart_steps"),
    KEY("relora_warmup_steps", "jagged_restart_warmup_steps"),
    KEY("relora_anneal_steps", "jagged_restart_anneal_steps"),
    {"tokens", "special_tokens", "{}", NULL}, KEY("liger_swiglu", "liger_glu_activation"),
    {"gradient_checkpointing", "activation_offloading", "offload", "true"},
    {"gradient_checkpointing", "activation_offloading", "offload_disk", "disk"},
    {"gradient_checkpointing", "gradient_checkpointing", "offload*", "true"},
    {"rl", "dpo_loss_type", "ipo", "[ipo]"}, {"rl", "rl", "ipo", "dpo"},
    {"optimizer", "optimizer", "ao_adamw_8bit", "adamw_torch_8bit"},
    {"optimizer", "optimizer", "ao_adamw_4bit", "adamw_torch_4bit"},
    KEY("datasets[].message_field_role", "datasets[].message_property_mappings.role"),
    KEY("datasets[].message_field_content", "datasets[].message_property_mappings.content"),
    KEY("fsdp_final_state_dict_type", "fsdp_config.final_state_dict_type"),
    KEY("fsdp_transformer_layer_cls_to_wrap", "fsdp_config.transformer_layer_cls_to_wrap"),
    KEY("fsdp_config.version", "fsdp_config.fsdp_version"), FSDP("offload_params"),
    FSDP("reshard_after_forward"), FSDP("activation_checkpointing"), FSDP("state_dict_type"),
    FSDP("final_state_dict_type"), FSDP("auto_wrap_policy"), FSDP("transformer_layer_cls_to_wrap"),
    FSDP("min_num_params"), FSDP("cpu_ram_efficient_loading"), FSDP("cpu_offload_pin_memory"),
    FSDP("sync_module_states"), FSDP("use_orig_params"), FSDP("mixed_precision_policy"),
};
const size_t ax_config_n_renamed = sizeof ax_config_renamed / sizeof *ax_config_renamed;

const struct ax_config_ignored ax_config_ignored[] = {
    {"debug", "axtrain preview"}, {"gptq_groupsize", NULL}, {"gptq_model_v1", NULL},
    {"gptq_disable_exllama", NULL}, {"adam_eps", "adam_epsilon"},
    {"eta_min", "cosine_min_lr_ratio"}, {"context_parapllel_size", "context_parallel_size"},
    {"torch_dtype", "bf16"}, {"full_finetune", "adapter (leave it out for full fine-tuning)"},
    {"test_value", NULL}, {"base_model_ignore_patterns", NULL},
    {"sample_packing_seq_len_multiplier", NULL}, {"flash_attn_fuse_qkv", NULL},
    {"collator_pad_to_longest", NULL}, {"gptq_bits", NULL},
    {"fsdp_config.sharding_strategy", "fsdp_config.reshard_after_forward"},
    {"fsdp_config.limit_all_gathers", NULL}, {"fsdp_config.backward_prefetch", NULL},
    {"fsdp_config.forward_prefetch", NULL},
    {"fsdp_config.fsdp_sharding_strategy", "fsdp_config.reshard_after_forward"},
    {"fsdp_config.fsdp_limit_all_gathers", NULL}, {"fsdp_config.fsdp_backward_prefetch", NULL},
    {"fsdp_config.fsdp_forward_prefetch", NULL},
};
const size_t ax_config_n_ignored = sizeof ax_config_ignored / sizeof *ax_config_ignored;

const struct ax_config_other_trainers ax_config_other_trainers[] = {
    {"model_name_or_path", "base_model"}, {"model", "base_model"}, {"model_name", "base_model"},
    {"dataset", "datasets"}, {"train_dataset", "datasets"}, {"eval_dataset", "test_datasets"},
    {"max_length", "sequence_len"}, {"max_seq_length", "sequence_len"},
    {"max_seq_len", "sequence_len"}, {"sequence_length", "sequence_len"},
    {"cutoff_len", "sequence_len"}, {"packing", "sample_packing"},
    {"per_device_train_batch_size", "micro_batch_size"},
    {"per_device_eval_batch_size", "eval_batch_size"}, {"num_train_epochs", "num_epochs"},
    {"epochs", "num_epochs"}, {"lr", "learning_rate"}, {"optim", "optimizer"},
    {"lr_scheduler_type", "lr_scheduler"}, {"label_smoothing_factor", "label_smoothing"},
    {"clip_grad_norm", "max_grad_norm"}, {"use_peft", "adapter"}, {"lora_rank", "lora_r"},
    {"target_modules", "lora_target_modules"}, {"modules_to_save", "lora_modules_to_save"},
    {"lora_target_linear_modules", "lora_target_modules"},
    {"use_cut_cross_entropy", "cut_cross_entropy"}, {"use_dora", "peft_use_dora"},
    {"use_rslora", "peft_use_rslora"}, {"save_every_n_steps", "save_steps"},
    {"log_every_n_steps", "logging_steps"}, {"run_name", "wandb_name"},
    {"chat_template_path", "chat_template_jinja"},
    {"enable_activation_checkpointing", "gradient_checkpointing"}, {"dtype", "bf16"},
    {"pp_size", "pipeline_parallel_size"}, {"tp_size", "tensor_parallel_size"},
    {"virtual_pipeline_model_parallel_size", "virtual_pipeline_parallel_size"},
    {"cp_size", "context_parallel_size"}, {"ep_size", "expert_parallel_size"}, {"beta", "rl_beta"},
    {"num_generations", "trl.num_generations"}, {"file", "datasets[].path"},
    {"role_mapping", "datasets[].roles"}, {"push_to_hub", "hub_model_id"},
    {"gradient_clip", "max_grad_norm"}, {"gradient_clip_val", "max_grad_norm"},
};
const size_t ax_config_n_other_trainers =
    sizeof ax_config_other_trainers / sizeof *ax_config_other_trainers;
