/* Keys without effect and without planned support: path, type, reason. Type, range, choices and
 * rules with other keys are still checked. WHY applies to the rows below it. Data only. */
#include "cmd/config/table.h"

/* clang-format off */
#define KEY(path, types, ...)  {path, types, WHY, __VA_ARGS__}
#define BOOL(path, ...)        KEY(path, AX_T_BOOL, __VA_ARGS__)
#define INT(path, ...)         KEY(path, AX_T_INT, __VA_ARGS__)
#define COUNT(path, ...)       KEY(path, AX_T_COUNT, __VA_ARGS__)
#define INDEX(path, ...)       KEY(path, AX_T_INDEX, __VA_ARGS__)
#define NUM(path, ...)         KEY(path, AX_T_NUM, __VA_ARGS__)
#define AMOUNT(path, ...)      KEY(path, AX_T_AMOUNT, __VA_ARGS__)
#define SHARE(path, ...)       KEY(path, AX_T_SHARE, __VA_ARGS__)
#define STR(path, ...)         KEY(path, AX_T_STR, __VA_ARGS__)
#define WORD(path, words, ...) KEY(path, AX_T_STR, .choices = words, __VA_ARGS__)
#define STRINGS(path, ...)     KEY(path, AX_T_STRINGS, __VA_ARGS__)
#define OPTIONS(path, ...)     KEY(path, AX_T_OPTIONS, __VA_ARGS__)
#define MAP(path, ...)         KEY(path, AX_T_MAP, __VA_ARGS__)

const struct ax_config_key ax_config_keys_unsupported_data[] = {
#undef WHY
#define WHY AX_NEEDS(LONG_CONTEXT), .when = "use_pose"
    KEY("pose_split_on_token_ids", AX_T_LIST | AX_OF(AX_T_INT)), COUNT("pose_max_context_len"),
    COUNT("pose_num_chunks"),

    {"shrink_embeddings", AX_T_BOOL, AX_NEEDS(SHRINK)},
    {"fix_untrained_tokens", AX_T_INT | AX_T_LIST | AX_OF(AX_T_INT), AX_NEEDS(UNTRAINED_TOKENS)},
    {"datasets[].conversation", AX_T_STR, AX_NEEDS(DATASET_TYPES)},
    {"datasets[].input_transform", AX_T_STR, AX_NEEDS(PYTHON)},
    {"skip_prepare_dataset", AX_T_BOOL, .dflt = "false", AX_NEEDS(MULTIMODAL)},
    {"push_dataset_to_hub", AX_T_STR, AX_NEEDS(HUB_DATA_UPLOAD)},
    {"use_pose", AX_T_BOOL, AX_NEEDS(LONG_CONTEXT)},
    {0}};

const struct ax_config_key ax_config_keys_unsupported[] = {
#undef WHY
#define WHY AX_NEEDS(PYTHON)
    OPTIONS("model_kwargs"), STR("trainer_cls"), STR("trl.rollout_func"),
#undef WHY
#define WHY AX_NEEDS(OTEL)
    BOOL("use_otel_metrics", .dflt = "false"),
    STR("otel_metrics_host", .dflt = "localhost", .when = "use_otel_metrics"),
    COUNT("otel_metrics_port", .dflt = "8000", .when = "use_otel_metrics"),
#undef WHY
#define WHY AX_NEEDS(LINEAR_EXPERTS)
    BOOL("llama4_linearized_experts"),
#undef WHY
#define WHY AX_NEEDS(BITNET)
    BOOL("use_onebitllms"),
#undef WHY
#define WHY AX_NEEDS(NVFP4)
    BOOL("nvfp4_merge_aware"), WORD("dsv4_fp4_grouped_mode", "nvfp4|fp8"),
#undef WHY
#define WHY AX_NEEDS(NONEXPERT)
    STR("nonexpert_quantization"), WORD("dsv4_fp8_nonexpert_mode", "float8tensor|bf16"),
    BOOL("gemma4_fp8_nonexpert"), BOOL("gemma4_nf4_nonexpert"),
#undef WHY
#define WHY AX_NEEDS(SPARSE_ATTENTION)
    BOOL("use_dsv4_kernels"), BOOL("use_glm_dsa_kernels"), BOOL("dsv4_fp8_lora_kernel"),
    BOOL("dsv4_shared_mlp_lora_kernel"), BOOL("dsv4_bf16_all"),
#undef WHY
#define WHY AX_NEEDS(MULTIMODAL)
    STR("processor_type"), OPTIONS("processor_kwargs"), BOOL("freeze_mm_modules"),
    KEY("image_size", AX_T_LIST | AX_T_COUNT | AX_OF(AX_T_INT)),
    WORD("image_resize_algorithm", "bilinear|bicubic|lanczos"), KEY("role_boundaries", AX_T_MAPS),
    STR("role_boundaries[].role"), STR("role_boundaries[].start"), STR("role_boundaries[].end"),
    BOOL("role_boundaries[].include_start", .dflt = "false"),
    BOOL("role_boundaries[].include_end", .dflt = "true"),
#undef WHY
#define WHY AX_NEEDS(OTHER_OPTIM), .when = "optimizer == dion"
    AMOUNT("dion_lr"), KEY("dion_momentum", AX_T_BELOW_ONE),
    SHARE("dion_rank_fraction", .dflt = "1.0"), COUNT("dion_rank_multiple_of", .dflt = "1"),
#undef WHY
#define WHY AX_NEEDS(OTHER_OPTIM), .when = "optimizer == q_galore_*"
    COUNT("qgalore_rank", .dflt = "256"), COUNT("qgalore_update_proj_gap", .dflt = "200"),
    NUM("qgalore_scale", .dflt = "0.25"), STR("qgalore_proj_type", .dflt = "std"),
    BOOL("qgalore_proj_quant", .dflt = "true"), COUNT("qgalore_proj_bits", .dflt = "4"),
    COUNT("qgalore_proj_group_size", .dflt = "256"), NUM("qgalore_cos_threshold", .dflt = "0.4"),
    COUNT("qgalore_gamma_proj", .dflt = "2"), COUNT("qgalore_queue_size", .dflt = "5"),
#undef WHY
#define WHY AX_NEEDS(LR_GROUPS)
    AMOUNT("embedding_lr"), AMOUNT("embedding_lr_scale"), KEY("lr_groups", AX_T_MAPS),
    STR("lr_groups[].name"), STRINGS("lr_groups[].modules"), AMOUNT("lr_groups[].lr"),
#undef WHY
#define WHY AX_NEEDS(LOFTQ), .when = "adapter"
    MAP("peft"),
#undef WHY
#define WHY AX_NEEDS(LORA_INIT), .when = "adapter"
    KEY("peft_layer_replication", AX_T_LIST | AX_OF(AX_T_LIST)),
    KEY("peft_trainable_token_indices", AX_T_LIST | AX_T_MAP | AX_OF(AX_T_INT | AX_T_LIST)),
    BOOL("peft_ensure_weight_tying"),
#undef WHY
#define WHY AX_NEEDS(OTHER_RL)
    STR("trl.vllm_guided_decoding_regex"),
    INDEX("trl.replay_buffer_size", .dflt = "0"), SHARE("trl.reroll_start_fraction", .dflt = "1.0"),
    COUNT("trl.reroll_max_groups", .dflt = "1"), BOOL("trl.use_adaptive_entropy"),
#undef WHY
#define WHY AX_NEEDS(OTHER_RL), .when = "trl.use_adaptive_entropy"
    NUM("trl.entropy_target"), NUM("trl.entropy_coef_min"), NUM("trl.entropy_coef_max"),
    NUM("trl.entropy_coef_delta"),
#undef WHY
#define WHY AX_NEEDS(EBFT)
    WORD("ebft.mode", "structured|strided", .dflt = "structured"),
    KEY("ebft.feature_layers", AX_T_LIST | AX_OF(AX_T_NUM), .dflt = "[0.25, 0.5, 0.75]"),
    WORD("ebft.embed_method", "last_token|mean_pooling|completion_mean|concat",
        .dflt = "last_token"), BOOL("ebft.use_whitening", .dflt = "false"),
    NUM("ebft.alignment_coef", .dflt = "1.0"), NUM("ebft.diversity_coef", .dflt = "1.0"),
    NUM("ebft.ce_coef", .dflt = "0.0"), NUM("ebft.rl_coef", .dflt = "1.0"),
    BOOL("ebft.adaptive_max_tokens", .dflt = "true"),
    KEY("ebft.gt_length_multiplier", AX_T_POSITIVE, .dflt = "1.5"),
    COUNT("ebft.stride", .dflt = "8"), COUNT("ebft.context_length", .dflt = "8"),
    COUNT("ebft.generate_max_len", .dflt = "8"), COUNT("ebft.n_samples_per_prompt", .dflt = "4"),
    AMOUNT("ebft.temperature", .dflt = "0.6"), SHARE("ebft.top_p", .dflt = "1.0"),
    WORD("ebft.advantage_estimator", "rloo|group_norm|reinforce", .dflt = "rloo"),
    INDEX("ebft.min_completion_prefix", .dflt = "0"),
#undef WHY
#define WHY AX_NEEDS(PLUGINS)
    MAP("diffusion"), WORD("diffusion.noise_schedule", "linear|cosine", .dflt = "linear"),
    SHARE("diffusion.min_mask_ratio", .dflt = "0.1"),
    SHARE("diffusion.max_mask_ratio", .dflt = "0.9"),
    COUNT("diffusion.num_diffusion_steps", .dflt = "128"), SHARE("diffusion.eps", .dflt = "0.001"),
    BOOL("diffusion.importance_weighting", .dflt = "true"), INDEX("diffusion.mask_token_id"),
    STR("diffusion.mask_token_str"), BOOL("diffusion.generate_samples", .dflt = "true"),
    COUNT("diffusion.generation_interval", .dflt = "100"),
    COUNT("diffusion.num_generation_samples", .dflt = "3"),
    COUNT("diffusion.generation_steps", .dflt = "128"),
    AMOUNT("diffusion.generation_temperature", .dflt = "0.0"),
    COUNT("diffusion.generation_max_length", .dflt = "100"), MAP("llmcompressor"),
    KEY("llmcompressor.recipe", AX_T_ANY), BOOL("llmcompressor.save_compressed", .dflt = "false"),
    MAP("mora"), BOOL("mora.use_mora", .dflt = "true"),
    KEY("mora.mora_type", AX_T_INT | AX_T_STR, .choices = "rope|sharing", .dflt = "rope"),
    MAP("hatchery"), WORD("hatchery.backend", "tinker|hatchery", .dflt = "tinker"),
    STR("hatchery.base_url"), STR("hatchery.api_key"), STR("hatchery.project_id"),
    COUNT("hatchery.lora_rank", .dflt = "32"), BOOL("hatchery.train_attn", .dflt = "true"),
    BOOL("hatchery.train_mlp", .dflt = "true"), BOOL("hatchery.train_unembed", .dflt = "true"),
    WORD("hatchery.loss_fn", "cross_entropy|importance_sampling|ppo|cispo|dro",
        .dflt = "cross_entropy"), OPTIONS("hatchery.loss_fn_config"),
    BOOL("hatchery.pipeline", .dflt = "true"), COUNT("hatchery.max_sample_tokens", .dflt = "256"),
    AMOUNT("hatchery.sample_temperature", .dflt = "1.0"),
    COUNT("hatchery.num_samples", .dflt = "4"), STRINGS("hatchery.reward_funcs"),
    COUNT("hatchery.save_steps"), STR("hatchery.save_name_prefix", .dflt = "checkpoint"),
    KEY("hatchery.future_timeout", AX_T_POSITIVE, .dflt = "600.0"),
#undef WHY
#define WHY AX_NEEDS(PLUGINS), .when = "plugins == *NemoGymPlugin"
    BOOL("nemo_gym_enabled"), STR("nemo_gym_dir"), BOOL("nemo_gym_auto_clone"),
    STRINGS("nemo_gym_config_paths"), INT("nemo_gym_head_port", .dflt = "11000"),
    INT("nemo_gym_server_timeout", .dflt = "360"), INT("nemo_gym_verify_timeout", .dflt = "30"),
    INT("nemo_gym_run_timeout", .dflt = "300"),
    KEY("nemo_gym_datasets", AX_T_LIST | AX_OF(AX_T_ANY)),
    BOOL("nemo_gym_auto_start", .dflt = "true"), STR("nemo_gym_model_name"),
    BOOL("nemo_gym_multi_turn"), COUNT("nemo_gym_max_turns"),

    {"auto_find_batch_size", AX_T_BOOL, AX_NEEDS(AUTO_BATCH)},
    {"adam_beta3", AX_T_BELOW_ONE, AX_NEEDS(OTHER_OPTIM),
        .when = "optimizer == came_pytorch,ademamix*,paged_ademamix*"},
    {"adam_epsilon2", AX_T_AMOUNT, AX_NEEDS(OTHER_OPTIM), .when = "optimizer == came_pytorch"},
    {"optim_target_modules", AX_T_STR | AX_T_STRINGS, AX_NEEDS(OTHER_OPTIM),
        .when = "optimizer == galore_*,apollo_*,q_galore_*"},
    {"do_bench_eval", AX_T_BOOL, AX_NEEDS(TEXT_METRICS)},
    {"bench_dataset", AX_T_STR, AX_NEEDS(TEXT_METRICS), .when = "do_bench_eval"},
    {"bench_split", AX_T_STR, AX_NEEDS(TEXT_METRICS), .when = "do_bench_eval"},
    {"scaling_softmax", AX_T_BOOL, AX_NEEDS(SCALED_SOFTMAX)},
    {"scaling_softmax_factor", AX_T_NUM, AX_NEEDS(SCALED_SOFTMAX), .when = "scaling_softmax"},
    {"scaling_softmax_bias", AX_T_NUM, AX_NEEDS(SCALED_SOFTMAX), .when = "scaling_softmax"},
    {"peft.loftq_config", AX_T_MAP, AX_NEEDS(LOFTQ)},
    {"peft.loftq_config.loftq_bits", AX_T_COUNT, .dflt = "4", AX_NEEDS(LOFTQ)},
    {"dpo_use_weighting", AX_T_BOOL, AX_NEEDS(OTHER_RL), .when = "rl == dpo"},
    {"trl.replay_recompute_logps", AX_T_BOOL, .dflt = "true", AX_NEEDS(OTHER_RL),
        .when = "trl.replay_buffer_size"}, {"ebft", AX_T_MAP, AX_NEEDS(EBFT), .when = "rl == ebft"},
    {"expert_parallel_token_capacity", AX_T_COUNT, AX_NEEDS(TOKEN_CAPACITY)},
    {"liger_use_token_scaling", AX_T_BOOL, AX_NEEDS(TOKEN_SCALING)},
    {"nvfp4_merge_aware_start_step", AX_T_AMOUNT, AX_NEEDS(NVFP4),
        .when = "nvfp4_merge_aware"},
    {"spectrum_top_fraction", AX_T_SHARE, .dflt = "0.5", AX_NEEDS(PLUGINS),
        .when = "plugins == *SpectrumPlugin"},
    {"spectrum_model_name", AX_T_STR, AX_NEEDS(PLUGINS), .when = "plugins == *SpectrumPlugin"},
    {"grokfast_alpha", AX_T_NUM, .dflt = "0.98", AX_NEEDS(PLUGINS),
        .when = "plugins == *GrokfastPlugin"},
    {"grokfast_lamb", AX_T_NUM, .dflt = "2.0", AX_NEEDS(PLUGINS),
        .when = "plugins == *GrokfastPlugin"},
    {"dense_mixer", AX_T_BOOL, AX_NEEDS(PLUGINS), .when = "plugins == *DenseMixerPlugin"},
    {0}};

const struct ax_config_key ax_config_keys_no_effect[] = {
#undef WHY
#define WHY AX_NO_EFFECT("this follows from config.json")
    BOOL("is_falcon_derived_model"), BOOL("is_llama_derived_model"),
    BOOL("is_mistral_derived_model"), BOOL("is_qwen_derived_model"),
#undef WHY
#define WHY AX_NO_EFFECT("tokenizer.json and tokenizer_config.json decide")
    STR("tokenizer_type"), BOOL("tokenizer_use_fast"), BOOL("tokenizer_legacy"),
#undef WHY
#define WHY AX_NO_EFFECT("threads follow the machine")
    COUNT("dataset_num_proc"), INDEX("dataloader_num_workers"),
    COUNT("trl.reward_num_workers", .dflt = "1"),
#undef WHY
#define WHY AX_NO_EFFECT("speed only")
    BOOL("dataloader_pin_memory"), COUNT("dataloader_prefetch_factor"),
    BOOL("dpo_use_liger_kernel"), BOOL("trl.use_liger_loss"), COUNT("ddp_bucket_cap_mb"),
#undef WHY
#define WHY AX_NO_EFFECT("internal to another program")
    BOOL("preprocess_iterable"), BOOL("trl.log_multimodal"), BOOL("is_preprocess"), STR("axolotl_config_path"),
#undef WHY
#define WHY AX_NO_EFFECT("affects memory only; see gradient_checkpointing: selective")
    KEY("selective_checkpointing", AX_T_BOOL | AX_T_MAP),
    STRINGS("selective_checkpointing.save", .dflt = "[attention]"),
    BOOL("selective_checkpointing.save_sliding_window", .dflt = "false"),
    STRINGS("selective_checkpointing.recompute_layer_types"),
    BOOL("selective_checkpointing.offload", .dflt = "false"),
#undef WHY
#define WHY AX_NO_EFFECT("speed or memory only; the result is the same")
    BOOL("flash_attn_fuse_mlp"), BOOL("flash_attn_cross_entropy"), BOOL("flash_optimum"),
    BOOL("sdpa_varlen"), BOOL("fused_attn_kernel"),
    WORD("large_head_attention", "auto|sdpa|triton_flash"), BOOL("flash_attn_d512"),
    BOOL("gemma4_hybrid_attn_impl"), OPTIONS("flex_attn_compile_kwargs"),
    KEY("torch_compile", AX_T_BOOL | AX_T_STR, .choices = "auto"), STR("torch_compile_backend"),
    WORD("torch_compile_mode", "default|reduce-overhead|max-autotune*"),
    OPTIONS("torch_compile_options"), STR("experts_implementation"), BOOL("lora_mlp_kernel"),
    BOOL("lora_qkv_kernel"), BOOL("lora_o_kernel"), BOOL("lora_embedding_kernel"),
    STR("liger_kernel_impl"), BOOL("ple_cpu_offload"),
    BOOL("tiled_mlp"), COUNT("tiled_mlp_num_shards"),
    BOOL("tiled_mlp_use_original_mlp", .dflt = "true"), BOOL("deepcompile"), BOOL("liger_rope"),
    BOOL("liger_rms_norm"), BOOL("liger_rms_norm_gated"), BOOL("liger_layer_norm"),
    BOOL("liger_glu_activation"), BOOL("liger_cross_entropy"), BOOL("use_scattermoe"),
    BOOL("use_sonicmoe"), WORD("expert_backend", "eager|builtin|scattermoe|sonicmoe"),
    WORD("moe_grouped_backend", "auto|marlin|deepgemm|cutlass"), COUNT("moe_dequant_chunk_size"),
    BOOL("moe_bnb_fast"),
#undef WHY
#define WHY AX_NO_EFFECT("the head always works in chunks and never stores all logits")
    BOOL("chunked_cross_entropy"), BOOL("cut_cross_entropy"),
    BOOL("liger_fused_linear_cross_entropy"),
#undef WHY
#define WHY AX_NO_EFFECT("answers are generated in this process by axtrain's own kernels")
    BOOL("trl.use_vllm", .dflt = "false"), WORD("trl.vllm_mode", "server|colocate"),
    STR("trl.vllm_server_host", .dflt = "0.0.0.0"), INT("trl.vllm_server_port", .dflt = "8000"),
    INT("trl.vllm_server_timeout"), BOOL("trl.vllm_enable_sleep_mode"),
    INT("trl.vllm_sync_interval"), BOOL("trl.vllm_lora_sync", .dflt = "false"),
    BOOL("trl.use_data_producer", .dflt = "false"), BOOL("trl.async_prefetch", .dflt = "false"),
    INT("trl.prefetch_depth"), BOOL("trl.streaming_partial_batch"), INT("trl.streaming_min_groups"),
    MAP("vllm"), STR("vllm.device", .dflt = "auto"),
    INT("vllm.tensor_parallel_size"), INT("vllm.data_parallel_size"),
    SHARE("vllm.gpu_memory_utilization", .dflt = "0.9"), STR("vllm.dtype", .dflt = "auto"),
    INT("vllm.max_model_len"), BOOL("vllm.enable_prefix_caching"),
    STR("vllm.host", .dflt = "0.0.0.0"), INT("vllm.port", .dflt = "8000"),
    BOOL("vllm.enable_reasoning"), STR("vllm.reasoning_parser"), BOOL("vllm.enforce_eager"),
    STR("vllm.serve_module"), STR("vllm.worker_extension_cls"),
#undef WHY
#define WHY AX_NO_EFFECT("sharding is always by block")
    COUNT("fsdp_version"), COUNT("fsdp_config.fsdp_version"),
    WORD("fsdp_config.auto_wrap_policy", "TRANSFORMER_BASED_WRAP|SIZE_BASED_WRAP"),
    KEY("fsdp_config.transformer_layer_cls_to_wrap", AX_T_STR | AX_T_STRINGS),
    COUNT("fsdp_config.min_num_params"), BOOL("fsdp_config.use_orig_params"),
#undef WHY
#define WHY AX_NO_EFFECT("ranks are started by axtrain launch, srun or torchrun")
    BOOL("ddp"), INT("local_rank"), COUNT("world_size"), BOOL("use_ray", .dflt = "false"),
    STR("ray_run_name"), COUNT("ray_num_workers", .dflt = "1"), OPTIONS("resources_per_worker"),
#undef WHY
#define WHY \
    AX_NO_EFFECT("only metrics are sent, to the server that SwanLab's login names"), \
    .when = "use_swanlab || swanlab_project || report_to"
    STR("swanlab_web_host"), STR("swanlab_api_host"),
    STR("swanlab_lark_webhook_url", .secret = true), STR("swanlab_lark_secret", .secret = true), BOOL("swanlab_log_completions", .dflt = "true"),
    COUNT("swanlab_completion_log_interval", .dflt = "100"),
    COUNT("swanlab_completion_max_buffer", .dflt = "128"),
#undef WHY
#define WHY AX_NO_EFFECT("there is no web UI; use axtrain chat")
    STR("gradio_title"), BOOL("gradio_share"), STR("gradio_server_name"), INT("gradio_server_port"),
    INT("gradio_max_new_tokens"), NUM("gradio_temperature"),

    {"cls_model_config", AX_T_STR, AX_NO_EFFECT("the class follows from config.json")},
    {"trust_remote_code", AX_T_BOOL,
        AX_NO_EFFECT("no Python runs here; the architecture must be built in")},
    {"use_kernels", AX_T_BOOL, AX_NO_EFFECT("speed only; the kernels are built in")},
    {"experimental_skip_move_to_device", AX_T_BOOL, .dflt = "true",
        AX_NO_EFFECT("weights are read directly to their final location")},
    {"device_map", AX_T_ANY, AX_NO_EFFECT("placement follows from the mesh")},
    {"max_memory", AX_T_MAP | AX_OF(AX_T_INT | AX_T_STR),
        AX_NO_EFFECT("placement follows the plan")},
    {"gpu_memory_limit", AX_T_INT | AX_T_STR, AX_NO_EFFECT("placement follows the plan")},
    {"low_cpu_mem_usage", AX_T_BOOL, AX_NO_EFFECT("weights are never held in memory twice")},
    {"embeddings_skip_upcast", AX_T_BOOL,
        AX_NO_EFFECT("embeddings are treated like the other weights")},
    {"tokenizer_save_jinja_files", AX_T_BOOL, .dflt = "true",
        AX_NO_EFFECT("the template is saved as the base saved it")},
    {"default_system_message", AX_T_STR,
        AX_NO_EFFECT("no template contains the phrase it replaced")},
    {"datasets[].trust_remote_code", AX_T_BOOL, .dflt = "false",
        AX_NO_EFFECT("no Python runs here")},
    {"datasets[].preprocess_shards", AX_T_COUNT, AX_NO_EFFECT("records are always streamed")},
    {"dataset_keep_in_memory", AX_T_BOOL, AX_NO_EFFECT("the cache is a mapped file")},
    {"num_dataset_shards_to_save", AX_T_COUNT, AX_NO_EFFECT("the cache is one file")},
    {"accelerator_config", AX_T_OPTIONS,
        AX_NO_EFFECT("batches never depend on how ranks are launched")},
    {"remove_unused_columns", AX_T_BOOL,
        AX_NO_EFFECT("only the columns that the type names are read")},
    {"hf_use_auth_token", AX_T_BOOL,
        AX_NO_EFFECT("HF_TOKEN or the stored token is used if present")},
    {"max_prompt_len", AX_T_COUNT, AX_NO_EFFECT("this key is not read")},
    {"sample_packing_mp_start_method", AX_T_STR, AX_NO_EFFECT("packing runs in this process")},
    {"sample_packing_eff_est", AX_T_AMOUNT, AX_NO_EFFECT("steps are counted, not estimated")},
    {"total_num_tokens", AX_T_INDEX, AX_NO_EFFECT("tokens are counted, not estimated")},
    {"total_supervised_tokens", AX_T_INDEX, AX_NO_EFFECT("tokens are counted, not estimated")},
    {"batch_flattening", AX_T_BOOL | AX_T_STR, .choices = "auto",
        AX_NO_EFFECT("batches are never padded between rows")},
    {"include_tokens_per_second", AX_T_BOOL, AX_NO_EFFECT("tokens per second are always logged")},
    {"torchdistx_path", AX_T_STR, AX_NO_EFFECT("a path for a Python library")},
    {"lr_div_factor", AX_T_NUM, AX_NO_EFFECT("this key is not read")},
    {"fp32_norms", AX_T_BOOL,
        AX_NO_EFFECT("master weights and norm statistics are always float32")},
    {"fp32_norm_classes", AX_T_STRINGS, AX_NO_EFFECT("see fp32_norms"), .when = "fp32_norms"},
    {"gradient_checkpointing_kwargs", AX_T_OPTIONS,
        AX_NO_EFFECT("every kind of recomputation gives the same bits")},
    {"torch_empty_cache_steps", AX_T_INT | AX_RANGE(FROM_MINUS_ONE),
        AX_NO_EFFECT("memory is planned; there is no cache to empty")},
    {"gc_collect_steps", AX_T_INT | AX_RANGE(FROM_MINUS_ONE),
        AX_NO_EFFECT("there is no garbage to collect")},
    {"attn_implementation", AX_T_STR,
        .choices = "eager|sdpa|flash_attention_2|flash_attention_3|flex_attention|xformers|"
        "sage|fp8|*/*",
        AX_NO_EFFECT("there is one exact attention, which separates packed documents")},
    {"chunked_cross_entropy_num_chunks", AX_T_COUNT, AX_NO_EFFECT("the plan chooses the chunks")},
    {"lora_fan_in_fan_out", AX_T_BOOL, AX_NO_EFFECT("the layout follows from the architecture")},
    {"lora_on_cpu", AX_T_BOOL, AX_NO_EFFECT("memory only")},
    {"qlora_sharded_model_loading", AX_T_BOOL, .dflt = "false",
        AX_NO_EFFECT("the base is always read shard by shard")},
    {"merge_method", AX_T_STR, .choices = "legacy|memory_efficient", .dflt = "memory_efficient",
        AX_NO_EFFECT("merging is always done shard by shard")},
    {"dpo_padding_free", AX_T_BOOL, AX_NO_EFFECT("rows are never padded")},
    {"expert_parallel_backend", AX_T_STR, .choices = "deep_ep", .dflt = "deep_ep",
        AX_NO_EFFECT("dispatch is built in")},
    {"expert_parallel_fallback_on_unsupported", AX_T_BOOL, .dflt = "true",
        AX_NO_EFFECT("dispatch is built in")},
    {"expert_parallel_num_nvl_bytes", AX_T_INDEX, .dflt = "268435456",
        AX_NO_EFFECT("buffers are planned")},
    {"expert_parallel_num_rdma_bytes", AX_T_INDEX, .dflt = "0",
        AX_NO_EFFECT("buffers are planned")},
    {"ring_attn_func", AX_T_STR, .choices = "varlen_llama3|batch_ring",
        AX_NO_EFFECT("chosen by the mesh")},
    {"heads_k_stride", AX_T_COUNT, AX_NO_EFFECT("chosen by the mesh")},
    {"fsdp", AX_T_STR | AX_T_STRINGS, AX_NO_EFFECT("only fsdp_config is used")},
    {"fsdp_config.cpu_ram_efficient_loading", AX_T_BOOL,
        AX_NO_EFFECT("each rank reads only what it owns")},
    {"fsdp_config.cpu_offload_pin_memory", AX_T_BOOL, AX_NO_EFFECT("what is offloaded is always pinned")},
    {"fsdp_config.sync_module_states", AX_T_BOOL,
        AX_NO_EFFECT("each rank reads only what it owns")},
    {"fsdp_config.mixed_precision_policy", AX_T_STR, AX_NO_EFFECT("bf16 and master_dtype decide")},
    {"ddp_broadcast_buffers", AX_T_BOOL, AX_NO_EFFECT("there are none")},
    {"ddp_find_unused_parameters", AX_T_BOOL, AX_NO_EFFECT("the action table lists them")},
    {"strict", AX_T_BOOL, .dflt = "false", AX_NO_EFFECT("keys are always checked")},
    {"lm_eval_post_train", AX_T_BOOL, .dflt = "true",
        AX_NO_EFFECT("lm_eval_tasks are evaluated at evaluations"), .when = "lm_eval_tasks"},
    {"lm_eval_model", AX_T_STR, AX_NO_EFFECT("lm_eval_tasks evaluate the model in training"),
        .when = "lm_eval_tasks"},
    {0}};

const struct ax_config_key ax_config_keys_removed[] = {
#undef WHY
#define WHY AX_REFUSED("remove it")
    BOOL("unsloth_cross_entropy_loss"), BOOL("unsloth_lora_mlp"), BOOL("unsloth_lora_qkv"),
    BOOL("unsloth_lora_o"), BOOL("unsloth_rms_norm"), BOOL("unsloth_rope"),
    BOOL("dpo_use_logits_to_keep"),

    {"datasets[].field_human", AX_T_STR,
        AX_REFUSED("use message_property_mappings and roles to name the columns")},
    {"datasets[].field_model", AX_T_STR,
        AX_REFUSED("use message_property_mappings and roles to name the columns")},
    {"datasets[].input_format", AX_T_STR,
        AX_REFUSED("give type a map with format and no_input_format")},
    {"datasets[].train_on_split", AX_T_STR, AX_REFUSED("write split")},
    {"max_packed_sequence_len", AX_T_INT, AX_REFUSED("use sample_packing and sequence_len")},
    {"rope_scaling", AX_T_ANY, AX_REFUSED("set it under model_config")},
    {"s2_attention", AX_T_BOOL, AX_REFUSED("remove it; context_parallel_size splits long rows")},
    {"flash_attn_rms_norm", AX_T_BOOL, AX_REFUSED("remove it; norms are fused already")},
    {"dpo_norm_loss", AX_T_BOOL, AX_REFUSED("use dpo_loss_type: [sigmoid_norm]")},
    {"rpo_alpha", AX_T_NUM, AX_REFUSED("use dpo_loss_type: [sigmoid, sft] with dpo_loss_weights")},
    {"fp8_config", AX_T_OPTIONS, AX_REFUSED("write fp8_recipe and fp8_format")},
    {"lisa_n_layers", AX_T_COUNT, AX_REFUSED("use adapter: lora, or name what trains in unfrozen_parameters")},
    {"lisa_step_interval", AX_T_COUNT, AX_REFUSED("remove it; layers are not drawn")},
    {"lisa_layers_attribute", AX_T_STR, AX_REFUSED("remove it; layers are not drawn")},
    {"relora_prune_ratio", AX_T_SHARE, AX_REFUSED("remove it; a restart sets all moments of the adapter to 0")},
    {"relora_prune_method", AX_T_STR, AX_REFUSED("remove it; a restart sets all moments of the adapter to 0")},
    {"dpo_generate_during_eval", AX_T_BOOL, AX_REFUSED("remove it; use axtrain generate")},
    {0}};
