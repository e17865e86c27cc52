/* Rules between keys: conditions in a table, then rules that count or compare. They see the
 * values as set, before any are derived. */
#include "cmd/config/rules.h"

#include <math.h>
#include <stdio.h>

#include "base/net/endpoint.h"

#define NO_RL          "without rl this would be fine-tuning: set rl too, or remove it"
#define NO_OTHER_MODEL "distills into a language model: remove rl or the reward model"
/* A teacher gives sampled tokens advantages. */
#define SAMPLED_TOKENS                                                                             \
    "kd_teacher && (rl == grpo,gdpo || trl.distillation_objective == sampled_token,iw_opd)"
#define PPO_KL            "the weight of the KL divergence is ppo.kl_coef with rl: ppo: set that"
#define ROW_SCALES        "this scheme has a scale per row or tensor: remove group_size"
#define NVFP4_GROUPS      "must be 16 for nvfp4"
#define NO_SAMPLING_AHEAD "answers are sampled ahead with rl: grpo and gdpo: set it to 0"
#define NO_ENTIRE_WEIGHTS                                                                          \
    "ranks that sample have the entire model, and get its weights from ranks that gather them: "   \
    "set it to 1, or rollout_ranks to 0"
#define NO_OTHER_TERM                                                                              \
    "label_smoothing, z_loss_coef, use_eaft and use_dynamic_finetuning are not terms of its "      \
    "loss: "                                                                                       \
    "remove them"

const struct ax_config_rule ax_config_rules[] = {
    {"test_datasets && val_set_size", "val_set_size",
     "use test_datasets or val_set_size, not both"},
    {"warmup_steps && warmup_ratio", "warmup_ratio", "use warmup_steps or warmup_ratio, not both"},
    {"save_steps && save_strategy == no,epoch,best", "save_strategy",
     "save_steps needs save_strategy: steps, or no save_strategy"},
    {"save_steps && saves_per_epoch", "saves_per_epoch",
     "use save_steps or saves_per_epoch, not both"},
    {"saves_per_epoch && save_strategy == no,epoch,best", "save_strategy",
     "saves_per_epoch needs save_strategy: steps, or no save_strategy"},
    {"save_strategy == no && load_best_model_at_end", "load_best_model_at_end",
     "nothing is saved whose weights the run could end with: save_strategy: best saves those of "
     "the "
     "best evaluation alone"},
    {"save_strategy == best && !metric_for_best_model", "save_strategy",
     "best needs metric_for_best_model, e.g. eval_loss"},
    {"eval_steps && eval_strategy == no,epoch", "eval_strategy",
     "eval_steps needs eval_strategy: steps, or no eval_strategy"},
    {"eval_steps && evals_per_epoch", "evals_per_epoch",
     "use eval_steps or evals_per_epoch, not both"},
    {"evals_per_epoch && eval_strategy == no,epoch", "eval_strategy",
     "evals_per_epoch needs eval_strategy: steps, or no eval_strategy"},
    {"do_bench_eval && !evals_per_epoch && !eval_steps", "do_bench_eval",
     "set evals_per_epoch or eval_steps too"},
    {"chat_template == jinja && !chat_template_jinja", "chat_template",
     "jinja needs chat_template_jinja, with the template or its file"},
    {"(pretraining_dataset || streaming) && !max_steps", "max_steps",
     "the length of streamed data is unknown: set max_steps"},
    {"(pretraining_dataset || streaming) && val_set_size", "val_set_size",
     "val_set_size does not work with streamed data: use test_datasets"},
    {"pretraining_dataset && datasets", "datasets",
     "only pretraining_dataset would be trained on: use one of them"},
    {"(pretraining_dataset || streaming) && dataset_shard_num", "dataset_shard_num",
     "streamed records are not counted: use shards and shards_idx of a data set"},
    {"float32 && (bf16 == true || bfloat16 || fp16 || float16)", "float32",
     "contradicts bf16, bfloat16, fp16 or float16: use one of them"},
    {"dataset_mixing_strategy == weighted && !mixing_weights", "dataset_mixing_strategy",
     "weighted needs mixing_weights, a number for each data set"},
    {"dataset_mixing_strategy == concatenate && mixing_weights", "mixing_weights",
     "needs dataset_mixing_strategy: weighted, or no dataset_mixing_strategy"},
    {"use_dynamic_finetuning && use_eaft", "use_dynamic_finetuning",
     "weights each token, as use_eaft does: use one of them"},
    {"packing_strategy && !sample_packing && !eval_sample_packing", "packing_strategy",
     "needs sample_packing: true"},
    {"packing_strategy && sample_packing_sequentially", "packing_strategy",
     "use packing_strategy or sample_packing_sequentially, not both"},
    {"packing_strategy && set(excess_length_strategy)", "packing_strategy",
     "says what becomes of long records: remove excess_length_strategy"},
    {"packing_strategy && pretraining_dataset", "packing_strategy",
     "pretraining_dataset is packed by pretraining_sample_concatenation: remove the key"},
    {"packing_strategy && (rl || reward_model || process_reward_model)", "packing_strategy",
     "packs single records: remove the key"},
    {"packing_strategy && multipack_real_batches == false", "packing_strategy",
     "fills rows of sequence_len tokens: remove multipack_real_batches"},
    {"rl == grpo,gdpo,ppo,distill && neftune_noise_alpha", "neftune_noise_alpha",
     "answers are sampled without noise, and ratios would compare it: remove it"},
    {"trl.tools && rl != grpo,gdpo,ppo,distill", "trl.tools",
     "answers call tools with rl: grpo, gdpo, ppo and distill: remove it"},
    {"trl.environment_factory && rl != grpo,gdpo,ppo,distill", "trl.environment_factory",
     "answers have environments with rl: grpo, gdpo, ppo and distill: remove it"},
    {"trl.environment_factory && rl == distill && set(trl.lmbda) && trl.lmbda != 1,1.0",
     "trl.lmbda",
     "answers of the data set have no environment: set it to 1, or remove trl.environment_factory"},
    {"trl.tools && rl == distill && set(trl.lmbda) && trl.lmbda != 1,1.0", "trl.lmbda",
     "answers of the data set call no tools: set it to 1, or remove trl.tools"},
    {"rl == grpo,gdpo,ppo,distill,ebft && sample_packing", "sample_packing",
     "packing is not supported with this rl: set it to false"},
    {"(pretraining_dataset || streaming) && (rl || reward_model || process_reward_model)", "rl",
     "answers are not streamed: remove streaming, and use datasets"},
    {"rl && (reward_model || process_reward_model)", "rl", "use rl or a reward model, not both"},
    {"serve && (reward_model || process_reward_model)", "serve",
     "a reward model has no head that could answer: remove it"},
    {"reward_model && process_reward_model", "process_reward_model",
     "use reward_model or process_reward_model, not both"},
    {"!rl && !reward_model && !process_reward_model && trl", "trl", NO_RL},
    {"!rl && !trl && set(rl_beta)", "rl_beta", NO_RL},
    {"!rl && set(orpo_alpha)", "orpo_alpha", NO_RL},
    {"!rl && set(simpo_gamma)", "simpo_gamma", NO_RL},
    {"!rl && set(cpo_alpha)", "cpo_alpha", NO_RL},
    {"!reward_model && set(center_rewards_coefficient)", "center_rewards_coefficient",
     "is of a reward model: set reward_model: true, or remove it"},
    {"rl == dpo && label_smoothing", "label_smoothing",
     "is of fine-tuning; here it is called dpo_label_smoothing"},
    {"rl && (z_loss_coef || use_eaft || use_dynamic_finetuning || (rl != dpo && label_smoothing))",
     "rl", NO_OTHER_TERM},
    {"!rl && set(kto_desirable_weight)", "kto_desirable_weight", NO_RL},
    {"!rl && set(kto_undesirable_weight)", "kto_undesirable_weight", NO_RL},
    {"!rl && set(dpo_label_smoothing)", "dpo_label_smoothing", NO_RL},
    {"reward_model && num_labels && num_labels != 1", "num_labels",
     "a reward model has 1: remove the key"},
    {"process_reward_model && num_labels && num_labels != 2", "num_labels",
     "a process reward model has 2, wrong and right: remove the key"},
    {"(reward_model || process_reward_model) && (label_smoothing || z_loss_coef)", "reward_model",
     "label_smoothing and z_loss_coef are not terms of a reward model's loss: remove them"},
    {"(reward_model || process_reward_model) && (use_eaft || use_dynamic_finetuning)",
     "reward_model",
     "use_eaft and use_dynamic_finetuning weight predicted tokens; a reward model predicts none"},
    {"kd_trainer && kd_teacher", "kd_trainer",
     "distills from log-probs in the data sets, kd_teacher from a model: use one of them"},
    {"kd_trainer && !kd_topk", "kd_trainer",
     "set kd_topk: the most log-probs that the data sets have of a token"},
    {"kd_trainer && kd_beta", "kd_beta",
     "only the forward divergence (0) can be taken from a teacher's top tokens"},
    {"kd_trainer && pretraining_dataset", "kd_trainer",
     "log-probs of a teacher are read from datasets, not from pretraining_dataset"},
    {"kd_teacher && ((rl && rl != distill,grpo,gdpo) || reward_model || process_reward_model)",
     "kd_teacher", NO_OTHER_MODEL},
    {"kd_teacher && rl == grpo,gdpo && trl.distillation_objective == jsd",
     "trl.distillation_objective",
     "jsd is a loss of its own, for rl: distill; here the teacher gives tokens advantages: set it "
     "to "
     "sampled_token or iw_opd"},
    {"kd_teacher && rl == grpo,gdpo && (trl.importance_sampling_level == sequence || trl.loss_type "
     "== vespo)",
     "kd_teacher",
     "gives each token an advantage, which a ratio of whole answers cannot have: use "
     "importance_sampling_level: token and another loss_type"},
    {"max_staleness && rl == grpo,gdpo && trl.loss_type == vespo && "
     "trl.vllm_importance_sampling_correction && trl.vllm_importance_sampling_mode == "
     "sequence_truncate,sequence_mask",
     "trl.vllm_importance_sampling_mode",
     "vespo corrects tokens, whose ratios are a part of its own: use token_truncate or token_mask"},
    {"kd_teacher && rl == grpo,gdpo && trl.off_policy_mask_threshold",
     "trl.off_policy_mask_threshold",
     "leaves out answers by their advantage, and with kd_teacher each token has its own: remove "
     "it"},
    {"trl.distillation_objective && !kd_teacher", "trl.distillation_objective",
     "set kd_teacher: the model whose log-probs are followed"},
    {SAMPLED_TOKENS " && set(kd_beta) && kd_beta != 1,1.0", "kd_beta",
     "the advantages of sampled tokens follow the reverse divergence (1): remove it, or use rl: "
     "distill with trl.distillation_objective: jsd"},
    {SAMPLED_TOKENS " && kd_temperature", "kd_temperature",
     "tokens have the log-probs that they are drawn with, at trl.temperature: remove it"},
    {SAMPLED_TOKENS " && (kd_loss_top_k || set(kd_loss_top_p) || set(kd_loss_support) || "
                    "set(kd_loss_tail))",
     "kd_loss_top_k",
     "parts of distributions are compared with trl.distillation_objective: jsd: remove it, "
     "kd_loss_top_p, kd_loss_support and kd_loss_tail"},
    {"rl == distill && trl.distillation_objective == sampled_token,iw_opd && set(trl.lmbda) && "
     "trl.lmbda != 1,1.0",
     "trl.lmbda",
     "answers of the data set were not sampled, and their tokens have no advantages: set it to 1, "
     "or trl.distillation_objective to jsd"},
    {"rl == distill && !kd_teacher", "kd_teacher",
     "rl: distill needs a teacher: set it to a model with the same vocabulary"},
    {"rl == distill,grpo,gdpo && kd_ce_alpha", "kd_ce_alpha",
     "with rl: distill, grpo and gdpo the answers are the model's own, and no answers to learn: "
     "remove it"},
    {"rl == distill && trl.reward_funcs", "trl.reward_funcs",
     "rl: distill has no rewards, the teacher says what a token is worth: remove it"},
    {"rl == distill && (set(rl_beta) || set(trl.beta))", "rl_beta",
     "rl: distill has no reference; kd_beta chooses its divergence"},
    {"rl == ppo && set(rl_beta)", "rl_beta", PPO_KL},
    {"rl == ppo && set(trl.beta)", "trl.beta", PPO_KL},
    {"rl == distill && set(trl.num_generations) && trl.num_generations != 1", "trl.num_generations",
     "rl: distill samples one answer of a prompt: remove it"},
    {"kd_trainer && (rl || reward_model || process_reward_model)", "kd_trainer", NO_OTHER_MODEL},
    {"kd_teacher && (label_smoothing || z_loss_coef || use_eaft || use_dynamic_finetuning)",
     "kd_teacher", NO_OTHER_TERM},
    {"kd_trainer && (label_smoothing || z_loss_coef || use_eaft || use_dynamic_finetuning)",
     "kd_trainer", NO_OTHER_TERM},
    {"dpo_loss_weights && !dpo_loss_type", "dpo_loss_weights", "set dpo_loss_type too"},
    {"dpo_loss_type && rl != dpo", "dpo_loss_type", "needs rl: dpo"},
    {"rl == gdpo && trl.multi_objective_aggregation == sum_then_normalize",
     "trl.multi_objective_aggregation",
     "gdpo uses normalize_then_sum; use rl: grpo for sum_then_normalize"},
    {"load_in_4bit && !adapter", "load_in_4bit",
     "a quantized base cannot be trained: set adapter: qlora, or load_in_4bit to false"},
    {"load_in_8bit && !adapter", "load_in_8bit",
     "a quantized base cannot be trained: set adapter: lora, or load_in_8bit to false"},
    {"adapter == qlora && !load_in_4bit && !merge_lora", "adapter",
     "qlora needs load_in_4bit: true"},
    {"adapter == qlora && load_in_8bit", "load_in_8bit",
     "qlora stores the base in 4 bits: set it to false"},
    {"adapter == qlora && gptq", "gptq", "qlora quantizes the base itself: set it to false"},
    {"lora_target_parameters && lora_dropout > 0", "lora_dropout",
     "must be 0 with lora_target_parameters"},
    {"lr_groups && loraplus_lr_ratio", "lr_groups", "use lr_groups or loraplus_lr_ratio, not both"},
    {"peft_layers_pattern && !peft_layers_to_transform", "peft_layers_pattern",
     "set peft_layers_to_transform too"},
    {"adapter && unfrozen_parameters && peft_layers_to_transform", "unfrozen_parameters",
     "cannot be combined with peft_layers_to_transform"},
    {"quantize_moe_experts && (!adapter || (!load_in_4bit && !load_in_8bit))",
     "quantize_moe_experts",
     "needs adapter: qlora with load_in_4bit, or adapter: lora with "
     "load_in_8bit"},
    {"quantize_moe_experts && lora_target_linear", "lora_target_linear",
     "not supported with quantize_moe_experts: name the modules in lora_target_modules"},
    {"qat && gptq", "gptq", "qat quantizes the weights itself: set it to false"},
    {"qat && (load_in_4bit || load_in_8bit)", "qat",
     "quantizes the weights itself, so the base cannot be: set load_in_4bit and load_in_8bit to "
     "false"},
    {"qat && fp8", "fp8", "qat says what linears compute in: remove one of them"},
    {"fp8 && fp8_enable_fsdp_float8_all_gather && fp8_recipe == rowwise",
     "fp8_enable_fsdp_float8_all_gather",
     "needs fp8_recipe: tensorwise, as rowwise has other codes of a weight forward and backward: "
     "set "
     "it to false"},
    {"qat && quantization", "quantization", "qat says it already: remove one of them"},
    {"quantization.scheme && (set(quantization.weight_dtype) || "
     "set(quantization.activation_dtype))",
     "quantization.scheme", "says both types: remove weight_dtype and activation_dtype"},
    {"qat.scheme && (set(qat.weight_dtype) || set(qat.activation_dtype))", "qat.scheme",
     "says both types: remove weight_dtype and activation_dtype"},
    {"qat && !qat.scheme && !set(qat.weight_dtype)", "qat",
     "weight_dtype would be int8, which is no pair of axolotl's: set scheme to int8, or "
     "weight_dtype to int4"},
    {"qat && !qat.scheme && set(qat.weight_dtype) && qat.weight_dtype == int8", "qat.weight_dtype",
     "int8 is no pair of axolotl's: set scheme to int8 instead, or weight_dtype to int4"},
    {"qat && qat.weight_dtype == int4 && qat.activation_dtype == int4,nvfp4,mxfp4",
     "qat.activation_dtype", "int4 weights need int8 or fp8 activations, or no activation_dtype"},
    {"qat && qat.weight_dtype == fp8,float8* && qat.activation_dtype != fp8,float8*",
     "qat.activation_dtype", "fp8 weights need fp8 activations: set it to fp8"},
    {"quantization && !quantization.scheme && quantization.weight_dtype == int8 && "
     "set(quantization.activation_dtype) && quantization.activation_dtype != int8",
     "quantization.activation_dtype", "int8 weights need int8 activations, or no activation_dtype"},
    {"quantization && !quantization.scheme && quantization.weight_dtype == int4 && "
     "quantization.activation_dtype == int4,nvfp4,mxfp4",
     "quantization.activation_dtype",
     "int4 weights need int8 or fp8 activations, or no activation_dtype"},
    {"quantization && !quantization.scheme && quantization.weight_dtype == fp8,float8* && "
     "quantization.activation_dtype != fp8,float8*",
     "quantization.activation_dtype", "fp8 weights need fp8 activations: set it to fp8"},
    {"qat && (qat.weight_dtype == nvfp4 || qat.scheme == nvfp4*) && set(qat.group_size) && "
     "qat.group_size != 16",
     "qat.group_size", NVFP4_GROUPS},
    {"qat && qat.weight_dtype == nvfp4 && !set(qat.group_size)", "qat.group_size", NVFP4_GROUPS},
    {"qat && (qat.weight_dtype == mxfp4 || qat.scheme == mx*) && set(qat.group_size) && "
     "qat.group_size != 32",
     "qat.group_size", "must be 32 for mxfp4"},
    {"qat.scheme == int8*,fp8* && set(qat.group_size)", "qat.group_size", ROW_SCALES},
    {"quantization.scheme == int8*,fp8* && set(quantization.group_size)", "quantization.group_size",
     ROW_SCALES},
    {"quantization && !quantization.scheme && quantization.weight_dtype == int8 && "
     "set(quantization.group_size)",
     "quantization.group_size",
     "int8 weights have a scale per row: remove group_size, or set weight_dtype to int4"},
    {"quantization.scheme == q4_*,q6_*,q8_* && set(quantization.group_size)",
     "quantization.group_size", "llama.cpp's schemes have groups of their own: remove group_size"},
    {"quantization && (quantization.weight_dtype == nvfp4 || quantization.scheme == nvfp4*) && "
     "set(quantization.group_size) && quantization.group_size != 16",
     "quantization.group_size", NVFP4_GROUPS},
    {"fsdp && deepspeed", "fsdp", "use fsdp or deepspeed, not both"},
    {"set(zero_stage) && deepspeed", "zero_stage", "use zero_stage or deepspeed, not both"},
    {"set(zero_stage) && zero_stage == 3 && set(fsdp_config.reshard_after_forward) && "
     "!fsdp_config.reshard_after_forward",
     "zero_stage", "3 contradicts fsdp_config.reshard_after_forward: false; remove one of them"},
    {"fsdp_config.auto_wrap_policy == SIZE_BASED_WRAP && !fsdp_config.min_num_params",
     "fsdp_config.auto_wrap_policy", "SIZE_BASED_WRAP needs min_num_params"},
    {"max_memory && gpu_memory_limit", "gpu_memory_limit",
     "use max_memory or gpu_memory_limit, not both"},
    {"activation_offloading && (!set(gradient_checkpointing) || !gradient_checkpointing)",
     "activation_offloading", "needs gradient_checkpointing"},
    {"selective_checkpointing && (!set(gradient_checkpointing) || !gradient_checkpointing)",
     "selective_checkpointing", "needs gradient_checkpointing"},
    {"context_parallel_size > 1 && sample_packing && micro_batch_size > 1", "micro_batch_size",
     "must be 1 with context_parallel_size and sample_packing"},
    {"tokenizer_use_mistral_common && (special_tokens || tokens || added_tokens_overrides || "
     "chat_template)",
     "tokenizer_use_mistral_common",
     "remove it to use special_tokens, tokens, added_tokens_overrides or chat_template"},
    {"router_bias_update_speed && (adapter || unfrozen_parameters)", "router_bias_update_speed",
     "changes the model itself: train all of it, without adapter and unfrozen_parameters"},
    {"relora && !jagged_restart_steps", "relora", "set jagged_restart_steps too"},
    {"relora && !adapter", "relora", "restarts adapters: set adapter: lora"},
    {"relora && (load_in_4bit || load_in_8bit)", "relora",
     "a quantized base would round each merge to its few bits: set load_in_4bit and load_in_8bit "
     "to false, and adapter to lora"},
    {"relora && peft_use_dora", "peft_use_dora", "not supported with relora: set it to false"},
    {"relora && set(peft_init_lora_weights) && peft_init_lora_weights != true,gaussian",
     "peft_init_lora_weights", "a restarted adapter must start at 0: use true or gaussian"},
    {"relora && (lora_modules_to_save || unfrozen_parameters)", "relora",
     "trains only adapters: remove lora_modules_to_save and unfrozen_parameters"},
    {"relora && lora_target_parameters", "lora_target_parameters",
     "not supported with relora: remove it"},
    {"relora && merge_lora", "merge_lora", "with relora the trained model is merged: remove it"},
    {"relora && lr_scheduler == one_cycle", "lr_scheduler", "one_cycle does not work with relora"},
    {"scaling_softmax && attn_implementation != flex_attention", "scaling_softmax",
     "needs attn_implementation: flex_attention"},
    {"rollout_ranks && rl != grpo,gdpo", "rollout_ranks", NO_SAMPLING_AHEAD},
    {"max_staleness && rl != grpo,gdpo", "max_staleness", NO_SAMPLING_AHEAD},
    {"max_staleness > 1024", "max_staleness", "expected at most 1024"},
    {"(rollout_ranks || max_staleness) && kd_teacher", "kd_teacher",
     "not supported with rollout_ranks and max_staleness: remove it"},
    {"(rollout_ranks || max_staleness) && trl.num_iterations > 1", "trl.num_iterations",
     "answers that are sampled ahead (max_staleness, rollout_ranks) are those of one step: set it "
     "to 1"},
    {"(rollout_ranks || max_staleness) && elastic", "elastic",
     "a lost rank ends a run with rollout_ranks or max_staleness: set it to false"},
    {"rollout_ranks && tensor_parallel_size > 1", "tensor_parallel_size", NO_ENTIRE_WEIGHTS},
    {"rollout_ranks && pipeline_parallel_size > 1", "pipeline_parallel_size", NO_ENTIRE_WEIGHTS},
    {"rollout_ranks && expert_parallel_size > 1", "expert_parallel_size", NO_ENTIRE_WEIGHTS},
    {"rollout_ranks && (qat || fp8)", "rollout_ranks",
     "ranks that sample compute without qat and fp8: set it to 0, or remove these"},
    {"rollout_ranks && serve", "serve",
     "requests are answered by ranks that all take steps: remove it, or set rollout_ranks to 0"},
    {"rollout_ranks && relora", "relora",
     "changes frozen weights, which ranks that sample would not get: remove it, or rollout_ranks"},
    {"rl == ebft && !ebft", "rl", "ebft needs an ebft map"},
    {"trl.drafts && set(trl.repetition_penalty) && trl.repetition_penalty != 1,1.0", "trl.drafts",
     "answers with trl.repetition_penalty are sampled without drafts: remove one"},
    {"trl.drafts && mtp_loss_scaling_factor", "mtp_loss_scaling_factor",
     "trains the layer on texts alone, and answers are drafted by a frozen one: remove it"},
};
const size_t ax_config_n_rules = sizeof ax_config_rules / sizeof *ax_config_rules;

/* ---- rules that count or compare ---- */

static enum ax_status broken(struct ax_config_build *b, const char *path, const char *message) {
    const struct ax_yaml_node *node = ax_config_lookup(b->cfg, path);
    return ax_config_problem(b, node != NULL ? node->line : 0, node != NULL ? node->column : 0, "",
                             "%s: %s", path, message);
}

/* A key's number, or NAN if it has none. */
static double number(const struct ax_config *cfg, const char *path) {
    const struct ax_yaml_node *node = ax_config_value_of(cfg, path);
    bool is = node != NULL && (node->kind == AX_YAML_INT || node->kind == AX_YAML_FLOAT);
    return is ? node->number : (double)NAN;
}

static bool divides(double part, double whole) {
    return part > 0 && fmod(whole, part) == 0;
}

/* Keys whose values below 1 are fractions. */
static enum ax_status check_counts(struct ax_config_build *b) {
    static const struct {
        const char *key, *message;
    } counts[] = {
        {"val_set_size", "a value above 1 is a number of records and must be an integer"},
        {"save_steps", "a value above 1 is a number of steps and must be an integer"},
        {"eval_steps", "a value above 1 is a number of steps and must be an integer"},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const double n = number(b->cfg, counts[i].key);
        if (n > 1 && n != floor(n))
            AX_TRY(broken(b, counts[i].key, counts[i].message));
    }
    return AX_OK;
}

static enum ax_status check_batches(struct ax_config_build *b) {
    const struct ax_config *cfg = b->cfg;
    double micro = number(cfg, "micro_batch_size");
    double batch = number(cfg, "batch_size");
    double steps = number(cfg, "gradient_accumulation_steps");
    if (ax_config_holds(cfg, "set(gradient_accumulation_steps) && batch_size")) {
        if (batch < micro * steps || batch > micro * steps) {
            AX_TRY(broken(b, "batch_size",
                          "contradicts micro_batch_size × gradient_accumulation_steps: set only "
                          "one of batch_size and gradient_accumulation_steps"));
        }
    } else if (batch > 0 && !divides(micro, batch)) {
        AX_TRY(broken(b, "batch_size", "must be a multiple of micro_batch_size"));
    }
    double val = number(cfg, "val_set_size");
    if (val == 1) {
        AX_TRY(broken(b, "val_set_size",
                      "1 is neither a fraction nor a useful number of records; write e.g. 0.05"));
    }
    AX_TRY(check_counts(b));
    if (ax_config_holds(cfg, "early_stopping_patience") &&
        !divides(number(cfg, "eval_steps"), number(cfg, "save_steps"))) {
        AX_TRY(
            broken(b, "early_stopping_patience",
                   "needs eval_steps and save_steps; save_steps must be a multiple of eval_steps"));
    }
    return AX_OK;
}

static enum ax_status check_shards_of(struct ax_config_build *b, const char *name) {
    const struct ax_config *cfg = b->cfg;
    const struct ax_yaml_node *list = ax_config_lookup(cfg, name);
    for (size_t i = 0; list != NULL && list->kind == AX_YAML_LIST && i < list->n; i++) {
        char idx[AX_CONFIG_PATH];
        char num[AX_CONFIG_PATH];
        snprintf(idx, sizeof idx, "%s.%zu.shards_idx", name, i);
        snprintf(num, sizeof num, "%s.%zu.shards", name, i);
        const bool counted = ax_config_is_set(cfg, "%s", num);
        if (number(cfg, idx) >= (counted ? number(cfg, num) : 1))
            AX_TRY(broken(b, idx, counted ? "must be below shards" : "set shards, their number"));
    }
    return AX_OK;
}

static enum ax_status check_shards(struct ax_config_build *b) {
    const struct ax_config *cfg = b->cfg;
    if (ax_config_is_set(cfg, "dataset_shard_num") != ax_config_is_set(cfg, "dataset_shard_idx")) {
        return broken(b,
                      ax_config_is_set(cfg, "dataset_shard_num") ? "dataset_shard_num"
                                                                 : "dataset_shard_idx",
                      "set both dataset_shard_num and dataset_shard_idx, or neither");
    }
    if (number(cfg, "dataset_shard_idx") >= number(cfg, "dataset_shard_num"))
        return broken(b, "dataset_shard_idx", "must be below dataset_shard_num");
    static const char *const lists[] = {"datasets", "test_datasets", "pretraining_dataset"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        AX_TRY(check_shards_of(b, lists[i]));
    return AX_OK;
}

/* Weights apply to stored training sets and must be set in only one way. */
static enum ax_status check_sets(struct ax_config_build *b) {
    static const struct {
        const char *list, *key, *condition, *message;
    } rules[] = {
        {"datasets", "weight", "mixing_weights", "use weight or mixing_weights, not both"},
        {"datasets", "weight", "streaming",
         "the length of streamed data is unknown: use mixing_weights"},
        {"pretraining_dataset", "weight", "pretraining_dataset",
         "the length of streamed data is unknown: use mixing_weights"},
        {"test_datasets", "weight", "test_datasets",
         "evaluation uses every record once: remove it"},
        {"datasets", "logprobs_field", "!kd_trainer",
         "log-probs of a teacher are read with kd_trainer: set it to true, or remove this key"},
    };
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        const struct ax_yaml_node *list = ax_config_lookup(b->cfg, rules[r].list);
        const bool applies = ax_config_holds(b->cfg, rules[r].condition);
        for (size_t i = 0; applies && list && list->kind == AX_YAML_LIST && i < list->n; i++) {
            char path[AX_CONFIG_PATH];
            snprintf(path, sizeof path, "%s.%zu.%s", rules[r].list, i, rules[r].key);
            if (ax_config_is_set(b->cfg, "%s", path))
                AX_TRY(broken(b, path, rules[r].message));
        }
    }
    const struct ax_yaml_node *sets = ax_config_lookup(b->cfg, "pretraining_dataset");
    const struct ax_yaml_node *weights = ax_config_lookup(b->cfg, "mixing_weights");
    if (!ax_config_truthy(sets))
        sets = ax_config_lookup(b->cfg, "datasets");
    if (ax_config_truthy(sets) && ax_config_truthy(weights) && sets->n != weights->n)
        return broken(b, "mixing_weights", "needs one number for each data set");
    return AX_OK;
}

static bool has_url(const struct ax_yaml_node *list) {
    const struct ax_yaml_node *node;
    for (size_t i = 0; (node = ax_config_element(list, i)) != NULL; i++)
        if (ax_endpoint_is_url(node->text))
            return true;
    return false;
}

/* How servers are asked is nothing where no server is. */
static enum ax_status check_servers(struct ax_config_build *b) {
    static const struct {
        const char *how, *whom, *message;
    } rules[] = {
        {"kd_server", "kd_teacher",
         "says how a server is asked, and kd_teacher is not the URL of one: remove it"},
        {"judge", "trl.reward_funcs",
         "says how judges are asked, and trl.reward_funcs has no URL of one: remove it"},
    };
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
        if (ax_config_truthy(ax_config_lookup(b->cfg, rules[r].how)) &&
            !has_url(ax_config_lookup(b->cfg, rules[r].whom)))
            AX_TRY(broken(b, rules[r].how, rules[r].message));
    return AX_OK;
}

static enum ax_status check_losses(struct ax_config_build *b) {
    static const char *const fused[] = {"cut_cross_entropy", "chunked_cross_entropy",
                                        "liger_cross_entropy", "liger_fused_linear_cross_entropy"};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++) {
        char text[AX_CONFIG_PATH];
        if (!ax_config_holds(b->cfg, fused[i]))
            continue;
        if (first != NULL) {
            snprintf(text, sizeof text, "computes the same loss as %s: keep one", first);
            AX_TRY(broken(b, fused[i], text));
        }
        first = fused[i];
    }
    const struct ax_yaml_node *types = ax_config_lookup(b->cfg, "dpo_loss_type");
    const struct ax_yaml_node *weights = ax_config_lookup(b->cfg, "dpo_loss_weights");
    if (ax_config_truthy(types) && ax_config_truthy(weights) && types->n != weights->n)
        return broken(b, "dpo_loss_weights", "needs one weight for each entry of dpo_loss_type");
    return AX_OK;
}

static enum ax_status check_rl(struct ax_config_build *b) {
    const struct ax_config *cfg = b->cfg;
    double beta = number(cfg, "rl_beta");
    double trl_beta = number(cfg, "trl.beta");
    if (beta < trl_beta || beta > trl_beta)
        return broken(b, "rl_beta", "differs from trl.beta: keep one");
    return AX_OK;
}

/* The location of a rule's message is its own key, or else the first key of the condition that
 * is set. */
static enum ax_status broken_rule(struct ax_config_build *b, const struct ax_config_rule *rule) {
    const struct ax_yaml_node *node = ax_config_lookup(b->cfg, rule->path);
    char key[AX_CONFIG_PATH];
    for (size_t i = 0; node == NULL && ax_config_condition_key(rule->when, i, key, sizeof key); i++)
        node = ax_config_lookup(b->cfg, key);
    return ax_config_problem(b, node != NULL ? node->line : 0, node != NULL ? node->column : 0, "",
                             "%s: %s", rule->path, rule->message);
}

enum ax_status ax_config_check_rules(struct ax_config_build *b) {
    for (size_t i = 0; i < ax_config_n_rules; i++)
        if (ax_config_holds(b->cfg, ax_config_rules[i].when))
            AX_TRY(broken_rule(b, &ax_config_rules[i]));
    AX_TRY(check_batches(b));
    AX_TRY(check_shards(b));
    AX_TRY(check_sets(b));
    AX_TRY(check_servers(b));
    AX_TRY(check_losses(b));
    return check_rl(b);
}
