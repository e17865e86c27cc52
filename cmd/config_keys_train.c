/* Keys of steps, the optimizer, evaluation, saving, precision, the loss and adapters. Rows only. */
#include "cmd/config_table.h"

#define MEASURED AX_NO_EFFECT("time per phase is always measured")

const struct ax_config_key ax_config_keys_steps[] = {
    AX_KEY("micro_batch_size", AX_T_COUNT, "Rows per device in one forward and backward pass.",
           .dflt = "1"),
    AX_KEY("gradient_accumulation_steps", AX_T_COUNT,
           "Micro-batches per device whose gradients make one step.", .dflt = "1"),
    AX_KEY("batch_size", AX_T_COUNT,
           "Rows per device and step; then gradient_accumulation_steps follows."),
    AX_KEY("num_epochs", AX_T_POSITIVE, "Passes over the training set.", .dflt = "1.0"),
    AX_KEY("max_steps", AX_T_INT | AX_RANGE(FROM_MINUS_ONE),
           "Steps at most; -1 or unset means num_epochs decides."),
    AX_KEY("seed", AX_T_INDEX, "Seed of shuffling, dropout and fresh weights.", .dflt = "42"),
    AX_KEY("logging_steps", AX_T_COUNT,
           "Steps between log lines; about one in 200, 1 to 10 apart, unless set."),
    AX_KEY("loss_watchdog_threshold", AX_T_POSITIVE, "Stop when the loss stays above this."),
    AX_KEY("loss_watchdog_patience", AX_T_COUNT,
           "Logged losses above the threshold before it stops.", .dflt = "3",
           .when = "loss_watchdog_threshold"),
    AX_KEY("include_tkps", AX_T_BOOL, "Log tokens per second.", .dflt = "true"),
    AX_KEY("profiler_steps", AX_T_INDEX, "Steps to run a profiler for.", MEASURED),
    AX_KEY("profiler_steps_start", AX_T_INDEX, "Step at which the profiler starts.", .dflt = "0",
           MEASURED),
    {0}};

const struct ax_config_key ax_config_keys_optim[] = {
    AX_KEY(
        "optimizer", AX_T_STR, "The optimizer.",
        .choices =
            "adamw_torch|adamw_torch_fused|adamw_torch_8bit|adamw_torch_4bit|adamw_bnb_8bit|adamw_"
            "8bit|paged_adamw_8bit|paged_adamw_32bit|ao_adamw_fp8|optimi_adamw|adamw_anyprecision|"
            "adamw_apex_fused|adamw_torch_xla|adamw_torch_npu_fused|sgd|lion_32bit|lion_8bit|paged_"
            "lion_32bit|paged_lion_8bit|adafactor|muon|adagrad|ademamix|ademamix_8bit|paged_"
            "ademamix_"
            "32bit|paged_ademamix_8bit|rmsprop|rmsprop_bnb|rmsprop_bnb_8bit|rmsprop_bnb_32bit|"
            "galore_*"
            "|apollo_*|lomo|adalomo|grokadamw|schedule_free_*|stable_adamw|adopt_adamw|came_"
            "pytorch|"
            "dion|sinkgd|flash_adamw|flash_adam|flash_sgd|flash_sgdw|flash_lion|q_galore_adamw8bit",
        .dflt = "adamw_torch_fused"),
    AX_KEY("learning_rate", AX_T_AMOUNT, "Largest learning rate."),
    AX_KEY("weight_decay", AX_T_AMOUNT, "Decoupled weight decay; never on biases and norms.",
           .dflt = "0.0"),
    AX_KEY("max_grad_norm", AX_T_AMOUNT, "Gradients are scaled down to this global norm; 0 = off.",
           .dflt = "1.0"),
    AX_KEY("adam_beta1", AX_T_BELOW_ONE, "Decay of Adam's first moment.", .dflt = "0.9"),
    AX_KEY("adam_beta2", AX_T_BELOW_ONE, "Decay of Adam's second moment.", .dflt = "0.999"),
    AX_KEY("adam_epsilon", AX_T_AMOUNT, "Added to the root of Adam's second moment.",
           .dflt = "1e-8"),
    AX_KEY("optim_args", AX_T_STR | AX_T_OPTIONS,
           "Further options of the optimizer: a map, or k=v,k=v."),
    AX_KEY("lisa_n_layers", AX_T_COUNT, "Layers trained at a time (LISA).",
           AX_NEEDS(PARTIAL_TRAINING)),
    AX_KEY("lisa_step_interval", AX_T_COUNT, "Steps before LISA picks other layers.",
           AX_NEEDS(PARTIAL_TRAINING), .when = "lisa_n_layers"),
    AX_KEY("lisa_layers_attribute", AX_T_STR, "Where LISA finds the layers.",
           .dflt = "model.layers", AX_NEEDS(PARTIAL_TRAINING), .when = "lisa_n_layers"),
    {0}};

const struct ax_config_key ax_config_keys_schedule[] = {
    AX_KEY("lr_scheduler", AX_T_STR, "Course of the learning rate.",
           .choices =
               "linear|cosine|constant|constant_with_warmup|cosine_with_restarts|polynomial|"
               "inverse_sqrt|cosine_with_min_lr|warmup_stable_decay|one_cycle|rex|reduce_lr_on_"
               "plateau|greedy|cosine_warmup_with_min_lr",
           .dflt = "cosine"),
    AX_KEY("lr_scheduler_kwargs", AX_T_OPTIONS,
           "Options of the course: num_cycles, power, min_lr and so on."),
    AX_KEY("warmup_steps", AX_T_AMOUNT,
           "Steps in which the learning rate rises; below 1 read as warmup_ratio."),
    AX_KEY("warmup_ratio", AX_T_SHARE,
           "The same as a share of all steps; 3 %, at most 100 steps, when neither is set."),
    AX_KEY("cosine_min_lr_ratio", AX_T_SHARE, "Smallest learning rate, as a share.",
           .when = "lr_scheduler == cosine,rex"),
    AX_KEY("cosine_constant_lr_ratio", AX_T_SHARE, "Share of all steps after which the decay ends.",
           .when = "lr_scheduler == cosine"),
    AX_KEY("lr_quadratic_warmup", AX_T_BOOL, "Let the learning rate rise with the square.",
           .dflt = "false", .when = "lr_scheduler == cosine"),
    AX_KEY("relora", AX_T_BOOL, "Merge and restart the adapter now and then.",
           AX_NEEDS(PARTIAL_TRAINING)),
    AX_KEY("relora_prune_ratio", AX_T_SHARE, "Share of the optimizer state dropped at a restart.",
           AX_NEEDS(PARTIAL_TRAINING), .when = "relora"),
    AX_KEY("relora_prune_method", AX_T_STR, "Which part of it is dropped.",
           .choices = "magnitude|random|reset", .dflt = "magnitude", AX_NEEDS(PARTIAL_TRAINING),
           .when = "relora"),
    AX_KEY("relora_cpu_offload", AX_T_BOOL, "Merge in host memory.", AX_NEEDS(PARTIAL_TRAINING),
           .when = "relora"),
    AX_KEY("jagged_restart_steps", AX_T_INDEX, "Steps between restarts of the learning rate.",
           AX_NEEDS(PARTIAL_TRAINING)),
    AX_KEY("jagged_restart_warmup_steps", AX_T_INDEX, "Steps of the rise after a restart.",
           AX_NEEDS(PARTIAL_TRAINING), .when = "jagged_restart_steps"),
    AX_KEY("jagged_restart_anneal_steps", AX_T_INDEX, "Steps of the fall before a restart.",
           AX_NEEDS(PARTIAL_TRAINING), .when = "jagged_restart_steps"),
    {0}};

#define EVAL_ROWS "val_set_size || test_datasets"
#define SAMPLES   AX_NO_EFFECT("see generate_samples")

const struct ax_config_key ax_config_keys_eval[] = {
    AX_KEY("eval_batch_size", AX_T_COUNT,
           "Evaluation rows per device in one pass; micro_batch_size unless set."),
    AX_KEY("eval_strategy", AX_T_STR, "When to evaluate.", .choices = "no|epoch|steps",
           .when = EVAL_ROWS),
    AX_KEY("eval_steps", AX_T_POSITIVE, "Steps between evaluations; below 1 a share of all steps.",
           .when = EVAL_ROWS),
    AX_KEY("evals_per_epoch", AX_T_INDEX, "Evaluations in each epoch.", .when = EVAL_ROWS),
    AX_KEY("early_stopping_patience", AX_T_COUNT,
           "Evaluations without improvement before training stops."),
    AX_KEY("load_best_model_at_end", AX_T_BOOL, "End with the weights of the best evaluation.",
           .dflt = "false"),
    AX_KEY("metric_for_best_model", AX_T_STR, "The metric that says which is best."),
    AX_KEY("greater_is_better", AX_T_BOOL, "More of that metric is better."),
    AX_KEY("do_causal_lm_eval", AX_T_BOOL,
           "Compute the eval_causal_lm_metrics at each evaluation."),
    AX_KEY("eval_causal_lm_metrics", AX_T_STRINGS, "Metrics beside the loss.",
           .choices = "perplexity|sacrebleu|comet|ter|chrf", .when = "do_causal_lm_eval"),
    AX_KEY("generate_samples", AX_T_BOOL | AX_T_INT, "Print completions while training.",
           .dflt = "false", AX_NO_EFFECT("axtrain generate shows samples of any checkpoint")),
    AX_KEY("num_generation_samples", AX_T_COUNT, "Completions to print.", .dflt = "3", SAMPLES),
    AX_KEY("generation_max_new_tokens", AX_T_COUNT, "Tokens of each completion at most.",
           .dflt = "50", SAMPLES),
    AX_KEY("generation_temperature", AX_T_AMOUNT, "Sampling temperature of completions.",
           .dflt = "0.7", SAMPLES),
    AX_KEY("generation_top_p", AX_T_SHARE, "Nucleus sampling of completions.", SAMPLES),
    AX_KEY("generation_top_k", AX_T_INT, "Most likely tokens that completions are drawn from.",
           SAMPLES),
    AX_KEY("generation_prompt_ratio", AX_T_SHARE, "Share of a row used as the prompt.",
           .dflt = "0.5", SAMPLES),
    AX_KEY("generation_do_sample", AX_T_BOOL, "Draw completions at random.", .dflt = "true",
           SAMPLES),
    {0}};

const struct ax_config_key ax_config_keys_save[] = {
    AX_KEY("output_dir", AX_T_STR, "Folder for checkpoints, logs and the trained model.",
           .dflt = "./model-out"),
    AX_KEY("save_strategy", AX_T_STR,
           "When to save; each epoch unless save_steps or saves_per_epoch is set.",
           .choices = "no|epoch|steps|best"),
    AX_KEY("save_steps", AX_T_POSITIVE, "Steps between saves; below 1 a share of all steps."),
    AX_KEY("saves_per_epoch", AX_T_INDEX, "Saves in each epoch."),
    AX_KEY("save_total_limit", AX_T_COUNT, "Checkpoints kept; older ones are removed.",
           .dflt = "4"),
    AX_KEY("save_first_step", AX_T_BOOL,
           "Save after the first step, to see early that saving works.", .dflt = "false"),
    AX_KEY("save_only_model", AX_T_BOOL, "Save weights without the state that resuming needs.",
           .dflt = "false"),
    AX_KEY("save_safetensors", AX_T_BOOL, "Save as safetensors; there is no other way.",
           .dflt = "true"),
    AX_KEY(
        "resume_from_checkpoint", AX_T_BOOL | AX_T_STR,
        "Checkpoint folder to go on from; auto or true for the newest in output_dir; latest-good "
        "passes over damaged ones."),
    AX_KEY("auto_resume_from_checkpoints", AX_T_BOOL,
           "Go on from the newest checkpoint in output_dir.", .dflt = "false"),
    AX_KEY("dynamic_checkpoint", AX_T_MAP, "Saving on request, by a file."),
    AX_KEY("dynamic_checkpoint.enabled", AX_T_BOOL, "Look for the file that asks for a save.",
           .dflt = "false"),
    AX_KEY("dynamic_checkpoint.check_interval", AX_T_COUNT, "Steps between looks.", .dflt = "10"),
    AX_KEY("dynamic_checkpoint.trigger_file_path", AX_T_STR,
           "The file; axolotl_checkpoint.save in output_dir unless set."),
    AX_KEY(
        "hub_model_id", AX_T_STR,
        "Hub repository that the trained model is uploaded to, by the `hf` command; a new one is "
        "private."),
    AX_KEY("hub_strategy", AX_T_STR, "What to upload, and when: the trained model, at the end.",
           .choices = "end|every_save|checkpoint|all_checkpoints", .when = "hub_model_id"),
    AX_KEY("hub_revision", AX_T_STR, "Branch to upload to.", .when = "hub_model_id"),
    {0}};

const struct ax_config_key ax_config_keys_precision[] = {
    AX_KEY("bf16", AX_T_BOOL | AX_T_STR,
           "Compute in bfloat16 over masters of master_dtype; auto where the machine can.",
           .choices = "auto", .dflt = "auto"),
    AX_KEY("bfloat16", AX_T_BOOL, "As bf16: true."),
    AX_KEY("fp16", AX_T_BOOL, "Compute in float16.",
           AX_ROUGHLY("bfloat16 is used instead of float16")),
    AX_KEY("float16", AX_T_BOOL, "As fp16: true.",
           AX_ROUGHLY("bfloat16 is used instead of float16")),
    AX_KEY("float32", AX_T_BOOL, "Compute in float32."),
    AX_KEY("tf32", AX_T_BOOL | AX_T_STR, "TensorFloat-32 products on a GPU.", .choices = "auto",
           .dflt = "auto", AX_NO_EFFECT("CPU arithmetic has no such type")),
    AX_KEY("fp8", AX_T_BOOL, "Compute linears in 8-bit floats.", AX_NEEDS(FP8)),
    AX_KEY("fp8_enable_fsdp_float8_all_gather", AX_T_BOOL,
           "Gather sharded weights as 8-bit floats.", AX_NEEDS(FP8), .when = "fp8"),
    AX_KEY("master_dtype", AX_T_STR,
           "Master weights: float32, bfloat16 with the 16 missing bits beside it, or bfloat16 with "
           "stochastic rounding. axtrain's own key.",
           .choices = "float32|bf16_remainder|bf16_sr", .dflt = "float32"),
    AX_KEY(
        "moment_dtype", AX_T_STR,
        "Optimizer moments: float32, bfloat16 with stochastic rounding (or to nearest), or 8-bit "
        "blocks. axtrain's own key.",
        .choices = "float32|bfloat16|bfloat16_nearest|int8", .dflt = "float32"),
    AX_KEY("gradient_checkpointing", AX_T_BOOL | AX_T_STR,
           "Recompute activations in the backward pass: all of a layer (true), only what costs "
           "next to "
           "nothing, norms and activation functions (selective), or the least that fits (auto).",
           .choices = "auto|selective", .dflt = "selective"),
    AX_KEY("activation_offloading", AX_T_BOOL | AX_T_STR,
           "Move activations off the device between the passes.",
           .choices = "legacy|disk|hidden_states", .dflt = "false",
           AX_NO_EFFECT("memory only; activations stay on the device")),
    AX_KEY("layer_offloading", AX_T_BOOL, "Move layers off the device while they rest.",
           .dflt = "false", AX_NO_EFFECT("memory only; weights stay on the device")),
    {0}};

const struct ax_config_key ax_config_keys_loss[] = {
    AX_KEY("label_smoothing", AX_T_BELOW_ONE,
           "Share of the target spread over the vocabulary. axtrain's own key.", .dflt = "0.0"),
    AX_KEY("z_loss_coef", AX_T_AMOUNT,
           "Weight of the squared log-sum-exp of the logits. axtrain's own key.", .dflt = "0.0"),
    AX_KEY("neftune_noise_alpha", AX_T_POSITIVE, "Strength of the noise added to embeddings."),
    AX_KEY("use_eaft", AX_T_BOOL, "Weight tokens by their entropy.", AX_NEEDS(LOSS_VARIANTS)),
    AX_KEY("eaft_alpha", AX_T_NUM, "Exponent of that weight.", .dflt = "1.0",
           AX_NEEDS(LOSS_VARIANTS), .when = "use_eaft"),
    AX_KEY("eaft_k", AX_T_COUNT, "Most likely tokens the entropy is estimated from.", .dflt = "20",
           AX_NEEDS(LOSS_VARIANTS), .when = "use_eaft"),
    {0}};

const struct ax_config_key ax_config_keys_adapter[] = {
    AX_KEY("adapter", AX_T_STR,
           "Train an adapter instead of all weights: lora, or qlora over a 4-bit base.",
           .choices = "lora|qlora|llama-adapter|mora"),
    AX_KEY("load_in_4bit", AX_T_BOOL, "Hold the frozen base in 4 bits (NF4).", .dflt = "false",
           .when = "adapter == qlora"),
    AX_KEY("load_in_8bit", AX_T_BOOL, "Hold the frozen base in 8 bits.", .dflt = "false",
           AX_ROUGHLY("int8 by rows, without outlier columns of their own"),
           .when = "adapter == lora"),
    AX_KEY("bnb_config_kwargs", AX_T_OPTIONS,
           "Options of the 4-bit base: bnb_4bit_use_double_quant, bnb_4bit_quant_type.",
           .when = "adapter == qlora"),
    AX_KEY("lora_model_dir", AX_T_STR,
           "Adapter to go on from, or to merge: a PEFT folder or a hub id."),
    AX_KEY("lora_r", AX_T_COUNT, "Rank of the adapter.", .when = "adapter"),
    AX_KEY("lora_alpha", AX_T_POSITIVE, "The adapter's output is scaled by lora_alpha / lora_r.",
           .when = "adapter"),
    AX_KEY("lora_dropout", AX_T_BELOW_ONE, "Dropout before the adapter.", .dflt = "0.0",
           .when = "adapter"),
    AX_KEY("lora_target_modules", AX_T_STR | AX_T_STRINGS,
           "Modules that get an adapter: a list of names, or one regular expression.",
           .when = "adapter"),
    AX_KEY("lora_target_linear", AX_T_BOOL,
           "Adapt every linear but the output head, beside lora_target_modules.",
           .when = "adapter"),
    AX_KEY("lora_target_parameters", AX_T_STR | AX_T_STRINGS,
           "Expert weight tensors that get an adapter, by end of name.", .when = "adapter"),
    AX_KEY("lora_exclude_modules", AX_T_STR | AX_T_STRINGS, "Modules that get none.",
           .when = "adapter"),
    AX_KEY("lora_modules_to_save", AX_T_STRINGS,
           "Modules trained and saved in full, e.g. embed_tokens and lm_head.", .when = "adapter"),
    AX_KEY("lora_rank_pattern", AX_T_MAP | AX_OF(AX_T_INT) | AX_RANGE(POSITIVE),
           "Ranks of their own, by regular expression.", .when = "adapter"),
    AX_KEY("lora_alpha_pattern", AX_T_MAP | AX_OF(AX_T_NUM) | AX_RANGE(POSITIVE),
           "Alphas of their own, by regular expression.", .when = "adapter"),
    AX_KEY("peft_layers_to_transform", AX_T_LIST | AX_T_INDEX | AX_OF(AX_T_INT),
           "Layers that get an adapter, by number.", .when = "adapter"),
    AX_KEY("peft_layers_pattern", AX_T_STR | AX_T_STRINGS,
           "Name of the list that those numbers count in.", .when = "adapter"),
    AX_KEY("peft_use_dora", AX_T_BOOL, "Train magnitude and direction apart.", .when = "adapter"),
    AX_KEY("peft_use_rslora", AX_T_BOOL, "Scale by lora_alpha over the root of lora_r.",
           .when = "adapter"),
    AX_KEY(
        "peft_init_lora_weights", AX_T_BOOL | AX_T_STR,
        "How the adapter starts: true (without effect), false, gaussian, pissa or pissa_niter_N. "
        "PiSSA's is saved as a plain one of twice the rank, for the same base.",
        .dflt = "true", .when = "adapter"),
    AX_KEY("peft_autocast_adapter_dtype", AX_T_BOOL, "Keep the adapter's weights in float32.",
           .dflt = "true", .when = "adapter"),
    AX_KEY("loraplus_lr_ratio", AX_T_POSITIVE, "Learning rate of B as a multiple of A's (LoRA+).",
           .when = "adapter"),
    AX_KEY("loraplus_lr_embedding", AX_T_AMOUNT, "Learning rate of adapted embeddings (LoRA+).",
           .dflt = "1e-6", .when = "adapter && loraplus_lr_ratio"),
    AX_KEY("merge_lora", AX_T_BOOL,
           "Merge the trained adapter into the base, as output_dir/merged.", .when = "adapter"),
    {0}};
