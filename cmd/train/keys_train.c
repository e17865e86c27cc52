/* Keys of steps, the optimizer, evaluation, saving, precision, the loss and adapters. Rows only. */
#include "cmd/config/table.h"
#include "cmd/train/serve.h"
#include "cmd/train/setup.h"
#include "optim/train/train.h"

#define AX_RUN(field) AX_INTO(AX_FIELD(struct ax_train_options, field))

const struct ax_config_key ax_config_keys_steps[] = {
    AX_KEY("micro_batch_size", AX_T_COUNT, "Rows per device in one forward and backward pass.",
           .dflt = "1", AX_INTO(AX_FIELD(struct ax_data_keys, micro_batch_size))),
    AX_KEY("gradient_accumulation_steps", AX_T_COUNT,
           "Micro-batches per device whose gradients are summed into one step.", .dflt = "1",
           AX_INTO(AX_FIELD(struct ax_data_keys, accumulation))),
    AX_KEY("batch_size", AX_T_COUNT,
           "Rows per device and step; gradient_accumulation_steps then follows from it."),
    AX_KEY("num_epochs", AX_T_POSITIVE,
           "Passes over the training set; if unset while max_steps is set, as many as those take.",
           .when = "!streaming && !pretraining_dataset", .dflt = "1.0"),
    AX_KEY(
        "max_steps", AX_T_INT | AX_RANGE(FROM_MINUS_ONE),
        "Number of steps; if num_epochs is set, too, the run ends with the earlier of the two, but "
        "streamed data begin again; if -1 or unset, num_epochs decides.",
        AX_RUN(max_steps)),
    AX_KEY("seed", AX_T_INDEX, "Seed for shuffling, dropout and new weights.", .dflt = "42",
           AX_INTO(
               AX_FIELD(struct ax_train_options, step.seed), AX_FIELD(struct ax_sampling, seed),
               AX_FIELD(struct ax_samples, sampling.seed),
               AX_FIELD(struct ax_format_synthetic, seed), AX_FIELD(struct ax_rows_options, seed),
               AX_FIELD(struct ax_corpus_options, seed), AX_FIELD(struct ax_corpus_weights, seed),
               AX_FIELD(struct ax_stream_options, seed), AX_FIELD(struct ax_loader_options, seed))),
    AX_KEY("logging_steps", AX_T_COUNT,
           "Log every N steps; if unset, 1/200 of the run, but 1 to 10.",
           AX_RUN(metrics.logging_steps)),
    AX_KEY("loss_watchdog_threshold", AX_T_POSITIVE,
           "Stop if the loss stays above this value; if unset, far above its recent range; null "
           "turns this off.",
           AX_RUN(watchdog)),
    AX_KEY("loss_watchdog_patience", AX_T_COUNT,
           "Number of logged losses above the threshold before training stops.", .dflt = "3",
           AX_RUN(watchdog_patience)),
    AX_KEY("replica_check_steps", AX_T_INDEX,
           "Compare the weights that several ranks hold in common every N steps, to notice damaged "
           "memory; if unset, as often as it takes 0.1 % of the time; 0 turns this off. They are "
           "also compared before each save.",
           AX_RUN(replica_check)),
    AX_KEY("include_tkps", AX_T_BOOL, "Log tokens per second.", .dflt = "true",
           AX_NO_EFFECT("tokens per second are always logged")),
    AX_KEY("profiler_steps", AX_T_INDEX,
           "Number of steps whose ops, transfers and waits are written to timeline.json in "
           "output_dir, of all ranks on one clock, for chrome://tracing or ui.perfetto.dev.",
           .dflt = "0", AX_RUN(profile_steps)),
    AX_KEY("profiler_steps_start", AX_T_INDEX, "Steps before the first one that is profiled.",
           .dflt = "0", AX_RUN(profile_first)),
    {0}};

const struct ax_config_key ax_config_keys_optim[] = {
    AX_KEY("optimizer", AX_T_STR, "The optimizer.",
           .choices = "@optimizers|adagrad|ademamix|ademamix_8bit|paged_ademamix_32bit|"
                      "paged_ademamix_8bit|rmsprop|rmsprop_bnb|rmsprop_bnb_8bit|rmsprop_bnb_32bit|"
                      "galore_*|apollo_*|lomo|adalomo|grokadamw|schedule_free_*|stable_adamw|"
                      "adopt_adamw|came_pytorch|dion|sinkgd|flash_adamw|flash_adam|flash_sgd|"
                      "flash_sgdw|flash_lion|q_galore_adamw8bit",
           .dflt = "adamw_torch_fused"),
    AX_KEY("learning_rate", AX_T_AMOUNT, "Peak learning rate.",
           AX_INTO(AX_FIELD(struct ax_lr_schedule, base_lr))),
    AX_KEY("weight_decay", AX_T_AMOUNT,
           "Decoupled weight decay of matrices and DoRA's magnitudes: never of biases, norms and "
           "other vectors, nor, with optimi_adamw and ao_adamw_fp8, of the tables of tokens.",
           .dflt = "0.0", .when = "!adapter || !loraplus_lr_ratio",
           AX_INTO(AX_FIELD(struct ax_optimizer_options, weight_decay))),
    AX_KEY("max_grad_norm", AX_T_AMOUNT,
           "Clip gradients to this global norm; 0 turns clipping off.", .dflt = "1.0",
           AX_RUN(step.max_norm)),
    AX_KEY("adam_beta1", AX_T_BELOW_ONE, "Decay rate of Adam's first moment; 0.95 with muon.",
           .dflt = "0.9", .when = "optimizer != sgd,adafactor",
           AX_INTO(AX_FIELD(struct ax_optimizer_options, beta1))),
    AX_KEY("adam_beta2", AX_T_BELOW_ONE,
           "Decay rate of Adam's second moment; 0.95 with muon, 0.99 with optimi_adamw.",
           .dflt = "0.999", .when = "optimizer != sgd,adafactor",
           AX_INTO(AX_FIELD(struct ax_optimizer_options, beta2))),
    AX_KEY("adam_epsilon", AX_T_AMOUNT,
           "Added to the square root of Adam's second moment; 1e-6 with optimi_adamw.",
           .dflt = "1e-8", .when = "optimizer != sgd,adafactor,lion*,paged_lion*",
           AX_INTO(AX_FIELD(struct ax_optimizer_options, eps))),
    AX_KEY(
        "optim_args", AX_T_STR | AX_T_OPTIONS,
        "More options for the optimizer: a map, or k=v,k=v. Muon's match_rms: false scales updates "
        "as torch.optim.Muon does."),
    {0}};

const struct ax_config_key ax_config_keys_schedule[] = {
    AX_KEY("lr_scheduler", AX_T_STR, "Learning-rate schedule.",
           .choices = "@schedules|reduce_lr_on_plateau|greedy|cosine_warmup_with_min_lr",
           .dflt = "cosine", AX_INTO(AX_FIELD(struct ax_lr_schedule, kind))),
    AX_KEY("lr_scheduler_kwargs", AX_T_OPTIONS,
           "Options of the schedule: num_cycles, power, min_lr and so on."),
    AX_KEY("warmup_steps", AX_T_AMOUNT,
           "Number of warm-up steps; a value below 1 is read as warmup_ratio.",
           .when = "lr_scheduler != constant", AX_RUN(warmup)),
    AX_KEY("warmup_ratio", AX_T_SHARE,
           "Warm-up as a fraction of all steps; if neither is set, 3 %, at most 100 steps.",
           .when = "lr_scheduler != constant", AX_RUN(warmup_ratio)),
    AX_KEY("cosine_min_lr_ratio", AX_T_SHARE, "Minimum learning rate, as a fraction of the peak.",
           .when = "lr_scheduler == cosine,rex"),
    AX_KEY("cosine_constant_lr_ratio", AX_T_SHARE,
           "Fraction of all steps after which the learning rate stays constant.",
           .when = "lr_scheduler == cosine"),
    AX_KEY("lr_quadratic_warmup", AX_T_BOOL, "Warm up quadratically instead of linearly.",
           .dflt = "false", .when = "lr_scheduler == cosine",
           AX_INTO(AX_FIELD(struct ax_lr_schedule, quadratic_warmup))),
    AX_KEY("relora", AX_T_BOOL,
           "Merge the adapter into the base after every jagged_restart_steps steps and start it "
           "anew (ReLoRA); the result is a model, not an adapter.",
           .dflt = "false", AX_FIXED),
    AX_KEY("relora_cpu_offload", AX_T_BOOL, "Merge in host memory.",
           AX_NO_EFFECT("weights are merged where they are stored")),
    AX_KEY("jagged_restart_steps", AX_T_INDEX,
           "Steps between restarts of the learning rate, whatever its schedule; 0 = none.",
           AX_INTO(AX_FIELD(struct ax_lr_schedule, restart))),
    AX_KEY("jagged_restart_warmup_steps", AX_T_INDEX, "Warm-up steps after a restart; 0 = 10.",
           .when = "jagged_restart_steps",
           AX_INTO(AX_FIELD(struct ax_lr_schedule, restart_warmup))),
    AX_KEY("jagged_restart_anneal_steps", AX_T_INDEX,
           "Steps before a restart in which the rate falls to cosine_min_lr_ratio (or 0.001) of "
           "the schedule's; 0 = 1.",
           .when = "jagged_restart_steps",
           AX_INTO(AX_FIELD(struct ax_lr_schedule, restart_anneal))),
    {0}};

#define EVAL_ROWS "val_set_size || test_datasets"
#define SAMPLES   .when = "generate_samples && (" EVAL_ROWS ")"
#define SAMPLED   "generate_samples && generation_do_sample && (" EVAL_ROWS ")"

const struct ax_config_key ax_config_keys_eval[] = {
    AX_KEY("eval_batch_size", AX_T_COUNT,
           "Evaluation rows per device in one pass; micro_batch_size if unset.",
           AX_INTO(AX_FIELD(struct ax_data_keys, eval_batch_size))),
    AX_KEY("eval_strategy", AX_T_STR,
           "When to evaluate; with steps and no eval_steps, every logging_steps, or 500 if that is "
           "unset, too.",
           .choices = "no|epoch|steps", .when = EVAL_ROWS,
           AX_INTO(AX_FIELD(struct ax_run_keys, eval.strategy))),
    AX_KEY("eval_steps", AX_T_POSITIVE, "Evaluate every N steps; below 1, a fraction of all steps.",
           .when = EVAL_ROWS, AX_INTO(AX_FIELD(struct ax_run_keys, eval.steps))),
    AX_KEY("evals_per_epoch", AX_T_INDEX, "Number of evaluations per epoch.", .when = EVAL_ROWS,
           AX_INTO(AX_FIELD(struct ax_run_keys, eval.per_epoch))),
    AX_KEY(
        "early_stopping_patience", AX_T_COUNT,
        "Evaluations without improvement before training stops; the weights are then those of the "
        "best one, as with load_best_model_at_end.",
        AX_RUN(eval.patience)),
    AX_KEY("load_best_model_at_end", AX_T_BOOL,
           "Finish with the weights of the best evaluation among those of saved steps; a warning "
           "says if another step's was better.",
           .dflt = "false", AX_RUN(eval.load_best)),
    AX_KEY("metric_for_best_model", AX_T_STR, "Metric that decides which evaluation is best.",
           AX_INTO(AX_FIELD(struct ax_run_keys, metric))),
    AX_KEY("greater_is_better", AX_T_BOOL, "Whether a higher value of that metric is better.",
           AX_INTO(AX_FIELD(struct ax_run_keys, greater_is_better))),
    AX_KEY("do_causal_lm_eval", AX_T_BOOL,
           "Compute the eval_causal_lm_metrics at each evaluation."),
    AX_KEY("eval_causal_lm_metrics", AX_T_STRINGS, "Metrics beside the loss.",
           .choices = "perplexity|sacrebleu|comet|ter|chrf", .when = "do_causal_lm_eval"),
    AX_KEY("lm_eval_tasks", AX_T_STRINGS,
           "Tasks of lm-evaluation-harness, by name or YAML file, that each evaluation runs on the "
           "model as it is; needs lm_eval in AXTRAIN_PYTHON or python3 (docs/eval.md).",
           .when = EVAL_ROWS, AX_INTO(AX_FIELD(struct ax_task_keys, tasks))),
    AX_KEY("lm_eval_batch_size", AX_T_COUNT, "Texts that tasks score or continue at a time.",
           .dflt = "8", .when = "lm_eval_tasks && (" EVAL_ROWS ")",
           AX_INTO(AX_FIELD(struct ax_task_keys, lanes))),
    AX_KEY(
        "generate_samples", AX_T_BOOL | AX_T_INT,
        "At each evaluation, answer the prompts of the first evaluation rows, for people to read; "
        "a number is how many.",
        .dflt = "false", .when = EVAL_ROWS, AX_INTO(AX_FIELD(struct ax_sample_keys, samples))),
    AX_KEY("num_generation_samples", AX_T_COUNT, "Number of prompts, at most 64.", .dflt = "3",
           SAMPLES, AX_INTO(AX_FIELD(struct ax_sample_keys, n))),
    AX_KEY("generation_max_new_tokens", AX_T_COUNT, "Maximum number of tokens in each answer.",
           .dflt = "50", SAMPLES, AX_INTO(AX_FIELD(struct ax_samples, max_new))),
    AX_KEY("generation_temperature", AX_T_AMOUNT, "Sampling temperature of answers.", .dflt = "0.7",
           .when = SAMPLED, AX_INTO(AX_FIELD(struct ax_samples, sampling.temperature))),
    AX_KEY("generation_top_p", AX_T_SHARE, "Nucleus sampling of answers.", .when = SAMPLED,
           AX_INTO(AX_FIELD(struct ax_samples, sampling.top_p))),
    AX_KEY("generation_top_k", AX_T_INDEX, "Most likely tokens that answers are drawn from.",
           .when = SAMPLED, AX_INTO(AX_FIELD(struct ax_samples, sampling.top_k))),
    AX_KEY("generation_prompt_ratio", AX_T_SHARE,
           "Fraction of a row used as the prompt; if unset, what precedes the first trained token, "
           "or half of a row that is trained on from its beginning.",
           .dflt = "0.5", SAMPLES, AX_INTO(AX_FIELD(struct ax_sample_keys, prompt_ratio))),
    AX_KEY("generation_do_sample", AX_T_BOOL,
           "Draw answers at random, with the same random numbers at each evaluation; else take the "
           "most likely tokens.",
           .dflt = "true", SAMPLES),
    {0}};

#define SERVE(field) AX_INTO(AX_FIELD(struct ax_serve_keys, field))

const struct ax_config_key ax_config_keys_serve[] = {
    AX_KEY(
        "serve", AX_T_MAP,
        "Answer OpenAI's HTTP API with the weights in training, between steps (docs/serving.md). "
        "axtrain's own key."),
    AX_KEY("serve.port", AX_T_INDEX, "Port to listen on; 0: any free one, which the log names.",
           .dflt = "8000", .when = "serve", SERVE(o.port)),
    AX_KEY("serve.host", AX_T_STR,
           "Address to listen on; others than this machine's own need a key.", .dflt = "127.0.0.1",
           .when = "serve", SERVE(o.host)),
    AX_KEY("serve.api_key_file", AX_T_PATH,
           "File whose only line is the key that requests must have.", .when = "serve",
           SERVE(o.key_file)),
    AX_KEY("serve.name", AX_T_STR,
           "The model's name in requests; if unset, the last part of base_model.", .when = "serve",
           SERVE(name)),
    AX_KEY("serve.context", AX_T_INT | AX_RANGE(FROM_TWO),
           "Most tokens of a prompt and its answer; if unset, 4096, or as many as the model has "
           "positions.",
           .when = "serve", SERVE(context)),
    AX_KEY("serve.parallel", AX_T_COUNT, "Sequences that are generated together on each data rank.",
           .dflt = "4", .when = "serve", SERVE(lanes)),
    AX_KEY("serve.queue", AX_T_INDEX, "Sequences that may wait; more get status 429.",
           .dflt = "256", .when = "serve", SERVE(queue)),
    AX_KEY("serve.cache_tokens", AX_T_COUNT,
           "Tokens that the cache holds; if unset, a quarter of what all sequences could fill.",
           .when = "serve", SERVE(cache_tokens)),
    {0}};

const struct ax_config_key ax_config_keys_save[] = {
    AX_KEY("output_dir", AX_T_PATH, "Folder for checkpoints, logs and the trained model.",
           .dflt = "./model-out", AX_RUN(save.output_dir)),
    AX_KEY("save_strategy", AX_T_STR,
           "When to save; every epoch unless save_steps or saves_per_epoch is set; with steps and "
           "neither, every 500 steps.",
           .choices = "no|epoch|steps|best", AX_INTO(AX_FIELD(struct ax_run_keys, save.strategy))),
    AX_KEY("save_steps", AX_T_POSITIVE, "Save every N steps; below 1, a fraction of all steps.",
           AX_INTO(AX_FIELD(struct ax_run_keys, save.steps))),
    AX_KEY("saves_per_epoch", AX_T_INDEX, "Number of saves per epoch.",
           AX_INTO(AX_FIELD(struct ax_run_keys, save.per_epoch))),
    AX_KEY("save_total_limit", AX_T_COUNT, "Number of checkpoints to keep; older ones are removed.",
           .dflt = "4", AX_RUN(save.limit)),
    AX_KEY("save_first_step", AX_T_BOOL,
           "Save after the first step, to find out early whether saving works.", .dflt = "false",
           AX_RUN(save.first_step)),
    AX_KEY("save_only_model", AX_T_BOOL, "Save the weights but not the state needed to resume.",
           .dflt = "false", AX_RUN(save.only_model)),
    AX_KEY("save_safetensors", AX_T_BOOL, "Save as safetensors, the only supported format.",
           .dflt = "true"),
    AX_KEY("resume_from_checkpoint", AX_T_BOOL | AX_T_PATH,
           "Checkpoint folder to resume from; auto or true for the newest in output_dir; "
           "latest-good skips damaged ones.",
           AX_INTO(AX_FIELD(struct ax_run_keys, resume))),
    AX_KEY("auto_resume_from_checkpoints", AX_T_BOOL,
           "Resume from the newest checkpoint in output_dir.", .dflt = "false",
           AX_INTO(AX_FIELD(struct ax_run_keys, resumes))),
    AX_KEY("resume_with_changes", AX_T_BOOL,
           "Resume although the data changed: the epoch begins again with the new data.",
           .dflt = "false", AX_RUN(save.resume_with_changes)),
    AX_KEY("dynamic_checkpoint", AX_T_MAP, "Save on request, signaled by a file."),
    AX_KEY("dynamic_checkpoint.enabled", AX_T_BOOL, "Look for the file that requests a save.",
           .dflt = "false", AX_INTO(AX_FIELD(struct ax_run_keys, triggered))),
    AX_KEY("dynamic_checkpoint.check_interval", AX_T_COUNT, "Look for the file every N steps.",
           .dflt = "10", AX_RUN(save.trigger_interval)),
    AX_KEY("dynamic_checkpoint.trigger_file_path", AX_T_STR,
           "Path of the file, in output_dir unless it is absolute; if unset, "
           "axolotl_checkpoint.save.",
           AX_INTO(AX_FIELD(struct ax_run_keys, trigger_file))),
    AX_KEY("hub_model_id", AX_T_STR,
           "Hub repository to upload the trained model to, using the `hf` command; a new "
           "repository is private."),
    AX_KEY("hub_strategy", AX_T_STR,
           "What to upload and when; the trained model is uploaded once, at the end.",
           .choices = "end|every_save|checkpoint|all_checkpoints", .when = "hub_model_id"),
    AX_KEY("hub_revision", AX_T_STR, "Branch to upload to.", .when = "hub_model_id"),
    {0}};

const struct ax_config_key ax_config_keys_precision[] = {
    AX_KEY("bf16", AX_T_BOOL | AX_T_STR,
           "Compute in bfloat16 with master weights of master_dtype; auto: if that is faster on "
           "this machine (of several ranks, rank 0's), or as the checkpoint that a run resumes "
           "from did.",
           .choices = "auto", .dflt = "auto"),
    AX_KEY("bfloat16", AX_T_BOOL, "Same as bf16: true."),
    AX_KEY("fp16", AX_T_BOOL, "Compute in float16.",
           AX_ROUGHLY("bfloat16 is used instead of float16")),
    AX_KEY("float16", AX_T_BOOL, "Same as fp16: true.",
           AX_ROUGHLY("bfloat16 is used instead of float16")),
    AX_KEY("float32", AX_T_BOOL, "Compute in float32."),
    AX_KEY("tf32", AX_T_BOOL | AX_T_STR,
           "Float32 products on a GPU round their operands to TensorFloat-32; auto: no.",
           .choices = "auto", .dflt = "auto"),
    AX_KEY("attention_deterministic", AX_T_BOOL,
           "Gradients of attention on a GPU have the same bits each time. false: cuDNN may add "
           "them in the order in which blocks end, which can be faster.",
           .dflt = "true"),
    AX_KEY("fp8", AX_T_BOOL,
           "Products of the layers' linears have operands in 8-bit floats (docs/quantization.md).",
           .dflt = "false", AX_FIXED),
    AX_KEY("fp8_recipe", AX_T_STR, "What shares a scale: all of an operand, or a row or column.",
           .choices = "@fp8_recipes", .dflt = "tensorwise", .when = "fp8", AX_FIXED),
    AX_KEY("fp8_format", AX_T_STR,
           "Gradients in e5m2 (hybrid), or e4m3 as weights and activations.",
           .choices = "hybrid|e4m3", .dflt = "hybrid", .when = "fp8", AX_FIXED),
    AX_KEY("num_layers_at_start_in_bf16", AX_T_INDEX,
           "First layers whose products stay in the compute type.", .dflt = "0", .when = "fp8",
           AX_RUN(step.model.unquantized_first), AX_FIXED),
    AX_KEY("num_layers_at_end_in_bf16", AX_T_INDEX,
           "Last layers whose products stay in the compute type.", .dflt = "0", .when = "fp8",
           AX_RUN(step.model.unquantized_last), AX_FIXED),
    AX_KEY("fp8_enable_fsdp_float8_all_gather", AX_T_BOOL,
           "Gather the sharded weights of such linears as 8-bit floats, half the bytes of "
           "bfloat16, with the same results. Only with the tensorwise recipe.",
           .dflt = "false", .when = "fp8", AX_INTO(AX_FIELD(struct ax_sharding, coded))),
    AX_KEY("master_dtype", AX_T_STR,
           "Master weights: float32, bfloat16 plus the 16 missing bits, or bfloat16 with "
           "stochastic rounding. axtrain's own key.",
           .choices = "@masters", .dflt = "float32", AX_RUN(step.model.masters)),
    AX_KEY("moment_dtype", AX_T_STR,
           "Optimizer moments: float32, bfloat16 rounded stochastically or to nearest, or 8-bit "
           "blocks. axtrain's own key.",
           .choices = "@moments", .dflt = "float32"),
    AX_KEY(
        "gradient_checkpointing", AX_T_BOOL | AX_T_STR,
        "Recompute activations in the backward pass: all of a layer (true), only the cheap ones, "
        "norms and activation functions (selective), or as little as fits in memory (auto).",
        .choices = "auto|selective", .dflt = "selective"),
    AX_KEY("activation_offloading", AX_T_BOOL | AX_T_STR,
           "Keep the inputs of layers in host memory between forward and backward of a GPU "
           "(whichever of the values); the cpu computes there anyway.",
           .choices = "legacy|disk|hidden_states", .dflt = "false", .when = "device != cpu",
           AX_INTO(AX_FIELD(struct ax_offload, activations))),
    AX_KEY("layer_offloading", AX_T_BOOL,
           "Keep frozen weights of layers in host memory while they are idle on a GPU; the cpu "
           "computes there anyway.",
           .dflt = "false", .when = "device != cpu", AX_INTO(AX_FIELD(struct ax_offload, layers))),
    {0}};

const struct ax_config_key ax_config_keys_loss[] = {
    AX_KEY("label_smoothing", AX_T_BELOW_ONE,
           "Fraction of the target probability spread over the vocabulary. axtrain's own key.",
           .dflt = "0.0", AX_INTO(AX_FIELD(struct ax_sft_options, label_smoothing))),
    AX_KEY("z_loss_coef", AX_T_AMOUNT,
           "Weight of the squared log-sum-exp of the logits. axtrain's own key.", .dflt = "0.0",
           AX_INTO(AX_FIELD(struct ax_sft_options, z_loss))),
    AX_KEY("use_dynamic_finetuning", AX_T_BOOL,
           "Multiply each token's loss by its probability, taken as a constant (DFT).",
           .dflt = "false", AX_INTO(AX_FIELD(struct ax_sft_options, dynamic))),
    AX_KEY(
        "router_seq_aux_loss_coef", AX_T_AMOUNT,
        "Weight of the routers' balancing loss within each document (DeepSeek's seq_aux with its "
        "aux_loss_alpha: V2 was trained with 0.001, V3 with 0.0001). axtrain's own key.",
        .dflt = "0.0", AX_RUN(step.sequence_coef)),
    AX_KEY(
        "router_bias_update_speed", AX_T_POSITIVE,
        "Balance experts without a loss: how far the biases by which routers choose them move in a "
        "step, up for those with fewer tokens than the mean of their layer, else down "
        "(deepseek_v3 and glm4_moe; DeepSeek-V3 was trained with 0.001).",
        AX_RUN(step.router_bias_speed)),
    AX_KEY(
        "mtp_loss_scaling_factor", AX_T_AMOUNT,
        "Train the model's layer for multi-token prediction (num_nextn_predict_layers; deepseek_v3 "
        "and glm4_moe), with this weight of its loss beside that of the next token (Megatron's "
        "key; DeepSeek-V3 was trained with 0.3, then 0.1). 0: the layer is saved as it is.",
        .dflt = "0.0", AX_RUN(step.mtp_coef)),
    AX_KEY("indexer_training", AX_T_STR,
           "Train the indexers of sparse attention (deepseek_v32 and glm_moe_dsa) to score keys as "
           "attention weighs them, by the divergence of the two. warm_up: nothing else trains, and "
           "attention is to all keys; sparse: over the chosen keys, while all else trains by its "
           "loss. axtrain's own key.",
           .choices = "frozen|warm_up|sparse", .dflt = "frozen", AX_FIXED,
           AX_RUN(step.model.indexers)),
    AX_KEY("indexer_loss_coef", AX_T_AMOUNT,
           "Weight of that divergence, a mean over tokens. axtrain's own key.", .dflt = "1.0",
           .when = "indexer_training == warm_up,sparse", AX_RUN(step.index_coef)),
    AX_KEY("neftune_noise_alpha", AX_T_POSITIVE, "Strength of the noise added to embeddings.",
           AX_RUN(step.neftune_alpha)),
    AX_KEY(
        "use_eaft", AX_T_BOOL,
        "Multiply each token's loss by a power of the entropy of what the model predicts (EAFT).",
        .dflt = "false"),
    AX_KEY("eaft_alpha", AX_T_AMOUNT, "The power.", .dflt = "1.0", .when = "use_eaft",
           AX_INTO(AX_FIELD(struct ax_sft_options, entropy_alpha))),
    AX_KEY("eaft_k", AX_T_COUNT,
           "How many of the likeliest tokens the entropy is computed from (at most 256).",
           .dflt = "20", .when = "use_eaft", AX_INTO(AX_FIELD(struct ax_sft_options, entropy_k))),
    {0}};

const struct ax_config_key ax_config_keys_adapter[] = {
    AX_KEY("adapter", AX_T_STR,
           "Train an adapter instead of all weights: lora, or qlora over a 4-bit base.",
           .choices = "lora|qlora|llama-adapter|mora", AX_FIXED,
           AX_INTO(AX_FIELD(struct ax_train_setup, adapter_name))),
    AX_KEY("load_in_4bit", AX_T_BOOL, "Store the frozen base in 4 bits (NF4).", .dflt = "false",
           .when = "adapter == qlora", AX_FIXED),
    AX_KEY("load_in_8bit", AX_T_BOOL, "Store the frozen base in 8 bits.", .dflt = "false",
           AX_ROUGHLY("int8 per row, without separate outlier columns"), .when = "adapter == lora",
           AX_FIXED),
    AX_KEY("bnb_config_kwargs", AX_T_OPTIONS,
           "Options of the 4-bit base: bnb_4bit_use_double_quant, bnb_4bit_quant_type.",
           .when = "adapter == qlora", AX_FIXED,
           AX_INTO(AX_FIELD(struct ax_adapter_keys, packing))),
    AX_KEY("lora_model_dir", AX_T_PATH,
           "Adapter to continue training or to merge: a PEFT folder or a hub id.", AX_FIXED,
           AX_INTO(AX_FIELD(struct ax_adapter_keys, start))),
    AX_KEY("lora_r", AX_T_COUNT, "Rank of the adapter.", .when = "adapter", AX_FIXED,
           AX_INTO(AX_FIELD(struct ax_peft_config, r))),
    AX_KEY("lora_alpha", AX_T_POSITIVE, "The adapter's output is scaled by lora_alpha / lora_r.",
           .when = "adapter", AX_FIXED, AX_INTO(AX_FIELD(struct ax_peft_config, alpha))),
    AX_KEY("lora_dropout", AX_T_BELOW_ONE, "Dropout before the adapter.", .dflt = "0.0",
           .when = "adapter", AX_INTO(AX_FIELD(struct ax_peft_config, dropout))),
    AX_KEY(
        "lora_target_modules", AX_T_STR | AX_T_STRINGS,
        "Modules that get an adapter: a list of names, or one regular expression; all-linear, also "
        "in a list, is every linear layer except the output head.",
        .when = "adapter", AX_FIXED, AX_INTO(AX_FIELD(struct ax_adapter_keys, targets))),
    AX_KEY("lora_target_linear", AX_T_BOOL,
           "Adapt every linear layer except the output head, in addition to lora_target_modules.",
           .when = "adapter", AX_FIXED, AX_INTO(AX_FIELD(struct ax_adapter_keys, all_linear))),
    AX_KEY("lora_target_parameters", AX_T_STR | AX_T_STRINGS,
           "Expert weight tensors that get an adapter, matched by the end of their names.",
           .when = "adapter", AX_FIXED, AX_INTO(AX_FIELD(struct ax_adapter_keys, parameters))),
    AX_KEY("lora_exclude_modules", AX_T_STR | AX_T_STRINGS, "Modules that get no adapter.",
           .when = "adapter", AX_FIXED, AX_INTO(AX_FIELD(struct ax_adapter_keys, exclude))),
    AX_KEY("lora_modules_to_save", AX_T_STRINGS,
           "Modules trained and saved in full, e.g. embed_tokens and lm_head.", .when = "adapter",
           AX_FIXED, AX_INTO(AX_FIELD(struct ax_adapter_keys, save))),
    AX_KEY("lora_rank_pattern", AX_T_MAP | AX_OF(AX_T_INT) | AX_RANGE(POSITIVE),
           "Ranks for individual modules, by regular expression.", .when = "adapter",
           AX_INTO(AX_FIELD(struct ax_adapter_keys, ranks))),
    AX_KEY("lora_alpha_pattern", AX_T_MAP | AX_OF(AX_T_NUM) | AX_RANGE(POSITIVE),
           "Alphas for individual modules, by regular expression.", .when = "adapter", AX_FIXED,
           AX_INTO(AX_FIELD(struct ax_adapter_keys, alphas))),
    AX_KEY("peft_layers_to_transform", AX_T_LIST | AX_T_INDEX | AX_OF(AX_T_INT),
           "Layers that get an adapter, by number.", .when = "adapter", AX_FIXED,
           AX_INTO(AX_FIELD(struct ax_adapter_keys, layers))),
    AX_KEY("peft_layers_pattern", AX_T_STR | AX_T_STRINGS,
           "Name of the module list that those numbers index.", .when = "adapter",
           AX_INTO(AX_FIELD(struct ax_adapter_keys, layers_pattern))),
    AX_KEY("peft_use_dora", AX_T_BOOL, "Train magnitude and direction separately (DoRA).",
           .when = "adapter", AX_FIXED, AX_INTO(AX_FIELD(struct ax_peft_config, dora))),
    AX_KEY("peft_use_rslora", AX_T_BOOL,
           "Scale by lora_alpha over the square root of lora_r (rsLoRA).", .when = "adapter",
           AX_FIXED, AX_INTO(AX_FIELD(struct ax_peft_config, rslora))),
    AX_KEY("peft_init_lora_weights", AX_T_BOOL | AX_T_STR,
           "How the adapter is initialized: true (no effect at the start), false, gaussian, pissa "
           "or pissa_niter_N. PiSSA adapters are saved as plain ones of twice the rank, for the "
           "unchanged base.",
           .dflt = "true", .when = "adapter", AX_FIXED,
           AX_INTO(AX_FIELD(struct ax_adapter_keys, init))),
    AX_KEY("peft_autocast_adapter_dtype", AX_T_BOOL, "Keep the adapter's weights in float32.",
           .dflt = "true", .when = "adapter"),
    AX_KEY("loraplus_lr_ratio", AX_T_POSITIVE,
           "Learning rate of B as a multiple of that of A (LoRA+).", .when = "adapter"),
    AX_KEY("loraplus_lr_embedding", AX_T_AMOUNT, "Learning rate of adapted embeddings (LoRA+).",
           .dflt = "1e-6", .when = "adapter && loraplus_lr_ratio"),
    AX_KEY("merge_lora", AX_T_BOOL,
           "Merge the trained adapter into the base and save it to output_dir/merged.",
           .when = "adapter", AX_INTO(AX_FIELD(struct ax_train_setup, merges))),
    {0}};
