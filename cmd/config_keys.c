/* THE table of keys: its sections in the order people read them, what the program can do, and how a
 * row is found. The rows themselves are in config_keys_*.c. */
#include "cmd/config_keys.h"

/* When a capability lands, its `true` here turns the fate of every key that needs it. */
static const struct ax_capability_info capabilities[] = {
    [AX_CAP_NONE] = {"none", true, "nothing"},
    [AX_CAP_DATA] = {"text-data", true, "tokenizers, templates, datasets and packing from a YAML"},
    [AX_CAP_TRAIN] = {"sft-training", true, "fine-tuning from a YAML"},
    [AX_CAP_OPTIM_8BIT] = {"8-bit-moments", true, "AdamW with 8-bit moments"},
    [AX_CAP_MASTERS] = {"bf16-masters", true, "masters in bfloat16"},
    [AX_CAP_LION] = {"lion", true, "the Lion optimizer"},
    [AX_CAP_ADAFACTOR] = {"adafactor", true, "the Adafactor optimizer"},
    [AX_CAP_MUON] = {"muon", true, "the Muon optimizer"},
    [AX_CAP_OTHER_OPTIM] = {"other-optimizers", false,
                            "optimizers beyond AdamW, SGD, Lion, "
                            "Adafactor and Muon"},
    [AX_CAP_NEFTUNE] = {"neftune", true, "noise on embeddings"},
    [AX_CAP_LORA] = {"lora", true, "LoRA adapters"},
    [AX_CAP_QLORA] = {"qlora", true, "LoRA over a 4-bit base"},
    [AX_CAP_DORA] = {"dora", true, "DoRA adapters"},
    [AX_CAP_LORA_INIT] = {"adapter-variants", false,
                          "other starts, shapes and learning rates of adapters"},
    [AX_CAP_EXPERT_LORA] = {"expert-lora", true, "adapters on expert weights"},
    [AX_CAP_MERGE] = {"merge", true, "merging an adapter into its base"},
    [AX_CAP_DPO] = {"dpo", false, "preference training with DPO and IPO"},
    [AX_CAP_ORPO] = {"orpo", false, "preference training with ORPO"},
    [AX_CAP_KTO] = {"kto", false, "preference training with KTO"},
    [AX_CAP_SIMPO] = {"simpo", false, "preference training with SimPO"},
    [AX_CAP_GRPO] = {"grpo", false, "reinforcement training with GRPO and GDPO"},
    [AX_CAP_PPO] = {"ppo", false, "reinforcement training with PPO"},
    [AX_CAP_EBFT] = {"ebft", false, "energy-based fine-tuning"},
    [AX_CAP_OTHER_RL] = {"other-rl", false,
                         "further losses and options of preference and "
                         "reinforcement training"},
    [AX_CAP_REWARD_MODEL] = {"reward-model", false, "training reward models"},
    [AX_CAP_PRM] = {"process-reward-model", false, "training process reward models"},
    [AX_CAP_QAT] = {"qat", false, "training with int4 weights in mind"},
    [AX_CAP_OTHER_QAT] = {"other-qat", false, "training with other quantised types in mind"},
    [AX_CAP_QUANTIZE] = {"quantize", false, "quantising a trained model"},
    [AX_CAP_SHARD] = {"sharding", false, "sharding over ranks from a YAML"},
    [AX_CAP_TENSOR_PARALLEL] = {"tensor-parallel", false, "tensor parallelism from a YAML"},
    [AX_CAP_CONTEXT_PARALLEL] = {"context-parallel", false, "context parallelism from a YAML"},
    [AX_CAP_PIPELINE_PARALLEL] = {"pipeline-parallel", false, "pipeline parallelism from a YAML"},
    [AX_CAP_EXPERT_PARALLEL] = {"expert-parallel", false, "expert parallelism from a YAML"},
    [AX_CAP_FP8] = {"fp8", false, "8-bit floating-point training"},
    [AX_CAP_TENSORBOARD] = {"tensorboard", true, "TensorBoard event files"},
    [AX_CAP_WANDB] = {"wandb", false, "logging to Weights & Biases"},
    [AX_CAP_MLFLOW] = {"mlflow", false, "logging to MLflow"},
    [AX_CAP_COMET] = {"comet", false, "logging to Comet"},
    [AX_CAP_TRACKIO] = {"trackio", false, "logging to Trackio"},
    [AX_CAP_SWANLAB] = {"swanlab", false, "logging to SwanLab"},
    [AX_CAP_OTEL] = {"opentelemetry", false, "metrics over OpenTelemetry"},
    [AX_CAP_HUB_UPLOAD] = {"hub-upload", true, "uploading the model to the hub"},
    [AX_CAP_HUB_DATA_UPLOAD] = {"hub-data-upload", false, "uploading prepared rows to the hub"},
    [AX_CAP_REMOTE_DATA] = {"remote-data", false, "data from URLs and object stores"},
    [AX_CAP_DATASET_TYPES] = {"other-dataset-types", false, "rarer dataset types"},
    [AX_CAP_TEMPLATES] = {"other-templates", false,
                          "rarer named chat templates; give them as "
                          "chat_template_jinja"},
    [AX_CAP_PYTHON] = {"python", false, "Python code named in the YAML"},
    [AX_CAP_MISTRAL_COMMON] = {"mistral-common", false, "the mistral-common tokenizer"},
    [AX_CAP_MULTIMODAL] = {"multimodal", false, "images and audio"},
    [AX_CAP_PREQUANTIZED] = {"quantised-bases", false, "bases in other quantised formats"},
    [AX_CAP_MODEL_OPTIONS] = {"model-options", false, "overriding the model's own settings"},
    [AX_CAP_OTHER_LR] = {"other-schedules", false, "rarer learning-rate schedules"},
    [AX_CAP_LR_GROUPS] = {"lr-groups", false, "learning rates of their own for some parameters"},
    [AX_CAP_LOSS_VARIANTS] = {"loss-variants", false, "other losses and attention scores"},
    [AX_CAP_LONG_CONTEXT] = {"pose", false, "position skipping"},
    [AX_CAP_PARTIAL_TRAINING] = {"partial-training", false,
                                 "training some parameters, by name, by "
                                 "turns or with restarts"},
    [AX_CAP_TEXT_METRICS] = {"text-metrics", false, "benchmarks and text metrics while training"},
    [AX_CAP_AUTO_BATCH] = {"auto-batch", false, "finding the batch size by trial"},
    [AX_CAP_PLUGINS] = {"plugins", false, "what this plugin adds"},
};
_Static_assert(sizeof capabilities / sizeof *capabilities == AX_CAP_COUNT, "one row each");

#define SECTION(title, name, text)                                                                 \
    { title, ax_config_keys_##name, &ax_config_n_keys_##name, text }

const struct ax_config_section ax_config_sections[] = {
    SECTION("Model", model, false),
    SECTION("Tokenizer and chat template", tokenizer, true),
    SECTION("Datasets", datasets, true),
    SECTION("Length, packing and padding", packing, true),
    SECTION("Batches and steps", steps, false),
    SECTION("Optimizer", optim, false),
    SECTION("Learning rate", schedule, false),
    SECTION("Evaluation", eval, false),
    SECTION("Output, saving and resuming", save, false),
    SECTION("Precision and memory", precision, false),
    SECTION("Loss and kernels", kernels, false),
    SECTION("Adapters", adapter, false),
    SECTION("Preference and reinforcement training", rl, false),
    SECTION("Other reinforcement training", rl_other, false),
    SECTION("Quantisation", quant, false),
    SECTION("Parallelism", mesh, false),
    SECTION("Logging", log, false),
    SECTION("Plugins", plugins, false),
    SECTION("Removed", removed, false),
};
const size_t ax_config_n_sections = sizeof ax_config_sections / sizeof *ax_config_sections;

const struct ax_capability_info *ax_capability_info(enum ax_capability cap) {
    return &capabilities[cap];
}

const char *ax_config_fate_name(enum ax_config_fate fate) {
    static const char *const names[] = {
        [AX_FATE_ACTS] = "acts",           [AX_FATE_APPROXIMATED] = "approximated",
        [AX_FATE_NO_EFFECT] = "no effect", [AX_FATE_NOT_YET] = "not supported yet",
        [AX_FATE_REFUSED] = "refused",
    };
    return names[fate];
}

enum ax_config_fate ax_config_fate_of(enum ax_config_fate fate, enum ax_capability needs) {
    bool wants = fate == AX_FATE_ACTS || fate == AX_FATE_APPROXIMATED;
    return wants && !capabilities[needs].present ? AX_FATE_NOT_YET : fate;
}
