/* Values whose support differs from their key's, and values derived from other keys. Rows only. */
#include "ckpt/hub/hub.h"
#include "cmd/config/table.h"
#include "kernels/quant/scheme.h"

#define HUB_URL AX_HUB_ENDPOINT "/*|https://hf.co/*|hf://*"
#define AT_END  "the model is uploaded once, at the end; checkpoints stay in output_dir"

const struct ax_config_value ax_config_values[] = {
    {"model_type", "*ForConditionalGeneration|*ForImageTextToText", AX_NEEDS(MULTIMODAL)},
    {"chat_template", "phi_4", AX_REFUSED("give it as chat_template_jinja")},
    {"chat_template", "command_a*", AX_NEEDS(COMMAND_A)},
    {"base_model", HUB_URL,
     AX_REFUSED(
         "write its id on the hub, org/name; revision_of_model names a branch, tag or commit")},
    {"datasets[].path", HUB_URL,
     AX_REFUSED(
         "write its id on the hub, org/name; revision, name, split and data_files say what of it")},
    {"datasets[].path", "s3://*|gs://*|gcs://*|az://*|oci://*|http*://*", AX_NEEDS(REMOTE_DATA)},
    {"datasets[].type", "sharegpt*",
     AX_REFUSED("write type: chat_template with field_messages: conversations and "
                "message_property_mappings: {role: from, content: value}")},
    {"datasets[].type", "alpaca:load_*", AX_NEEDS(PYTHON)},
    {"datasets[].type",
     "chat_template.argilla*|chat_template.default|chat_template|chatml*|llama3*|passthrough|"
     "bradley_terry.*|stepwise_supervised|alpaca:*|axolotl.integrations.kd.chat_template*",
     .support = AX_SUPPORT_ACTS},
    {"datasets[].type",
     "alpaca_*|context_qa.*|creative_acr.*|llama2_chat*|orcamini*|metharme*|pygmalion*|messages*|"
     "reflection*|summarizetldr*|explainchoice*|concisechoice*|zephyr.*",
     AX_NEEDS(DATASET_TYPES)},
    {"datasets[].type", "*.*", AX_NEEDS(PYTHON)},
    {"save_safetensors", "false", AX_REFUSED("remove it: weights are saved as safetensors")},
    {"attn_implementation", "flash", AX_REFUSED("write flash_attention_2")},
    {"attn_implementation", "flex", AX_REFUSED("write flex_attention")},
    {"attn_implementation", "sdp", AX_REFUSED("write sdpa")},
    {"eval_causal_lm_metrics", "perplexity", .support = AX_SUPPORT_ACTS},
    {"eval_causal_lm_metrics", "*", AX_NEEDS(TEXT_METRICS)},
    {"optimizer", "*", AX_NEEDS(OTHER_OPTIM)},
    {"lr_scheduler", "reduce_lr_on_plateau|greedy|cosine_warmup_with_min_lr", AX_NEEDS(OTHER_LR)},
    {"adapter", "lora|qlora", .support = AX_SUPPORT_ACTS},
    {"adapter", "llama-adapter", AX_NEEDS(LORA_INIT)},
    {"adapter", "mora", AX_NEEDS(PLUGINS)},
    {"adapter", "dora", AX_REFUSED("set adapter: lora and peft_use_dora: true")},
    {"adapter", "rslora", AX_REFUSED("set adapter: lora and peft_use_rslora: true")},
    {"peft_init_lora_weights", "true|false|gaussian|pissa*", .support = AX_SUPPORT_ACTS},
    {"peft_init_lora_weights", "loftq", AX_NEEDS(LOFTQ)},
    {"peft_init_lora_weights", "*", AX_NEEDS(LORA_INIT)},
    {"hub_strategy", "every_save|*checkpoint*", AX_ROUGHLY(AT_END)},
    {"peft_autocast_adapter_dtype", "false",
     AX_ROUGHLY("the adapter's master weights stay float32")},
    {"kd_normalize_topk", "true",
     AX_REFUSED("write false: the model's probabilities are those among all tokens")},
    {"qat.weight_dtype", "mxfp4", AX_ROUGHLY(AX_NO_FILE_FORM)},
    {"quantization.weight_dtype", "mxfp4", AX_ROUGHLY(AX_NO_FILE_FORM)},
    {"rl", "ebft", AX_NEEDS(EBFT)},
    {"dpo_loss_type", "aot*", AX_NEEDS(OTHER_RL)},
    {"plugins",
     "*CutCrossEntropyPlugin|*LigerPlugin|*KernelsPlugin|*ExpertParallelPlugin|*KDPlugin|"
     "*SwanLabPlugin|*LMEvalPlugin",
     .support = AX_SUPPORT_ACTS},
    {"plugins",
     "axolotl.integrations.*|*DiffusionPlugin|*LLMCompressorPlugin|*SpectrumPlugin|"
     "*GrokfastPlugin|*MoraPlugin|*HatcheryPlugin|*NemoGymPlugin|*DenseMixerPlugin",
     AX_NEEDS(PLUGINS)},
    {"plugins", "*.*", AX_NEEDS(PYTHON)},
};
const size_t ax_config_n_values = sizeof ax_config_values / sizeof *ax_config_values;

const struct ax_config_derived ax_config_derived[] = {
    {"tokenizer_config", "base_model", "=base_model"},
    {"chat_template", "chat_template_jinja", "jinja"},
    {"eval_batch_size", "micro_batch_size", "=micro_batch_size"},
    {"eval_sequence_len", "sequence_len", "=sequence_len"},
    {"eval_sample_packing", "sample_packing", "true"},
    {"pad_to_sequence_len", "sample_packing || reward_model", "true"},
    {"num_labels", "reward_model", "1"},
    {"num_labels", "process_reward_model", "2"},
    {"rl_beta", "set(trl.beta)", "=trl.beta"},
};
const size_t ax_config_n_derived = sizeof ax_config_derived / sizeof *ax_config_derived;
