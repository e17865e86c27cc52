/* The table of keys: its sections in reading order, and what the program cannot do yet. The rows
 * are in cmd/train/keys_*.c, cmd/tracker/tracker_keys.c and keys_rest.c. */
#include <string.h>

#include "cmd/config/table.h"

const struct ax_config_section ax_config_sections[] = {
    {"Model", ax_config_keys_model, false, false},
    {"Tokenizer and chat template", ax_config_keys_tokenizer, true, false},
    {"Datasets", ax_config_keys_datasets, true, false},
    {"Length, packing and padding", ax_config_keys_packing, true, false},
    {"Batches and steps", ax_config_keys_steps, false, false},
    {"Optimizer", ax_config_keys_optim, false, false},
    {"Learning rate", ax_config_keys_schedule, false, false},
    {"Evaluation", ax_config_keys_eval, false, false},
    {"Serving", ax_config_keys_serve, false, false},
    {"Output, saving and resuming", ax_config_keys_save, false, false},
    {"Precision and memory", ax_config_keys_precision, false, false},
    {"Loss", ax_config_keys_loss, false, false},
    {"Adapters", ax_config_keys_adapter, false, false},
    {"Preference and reinforcement training", ax_config_keys_rl, false, false},
    {"Distillation", ax_config_keys_kd, false, false},
    {"Quantization", ax_config_keys_quant, false, false},
    {"Parallelism", ax_config_keys_mesh, false, false},
    {"Logging", ax_config_keys_log, false, false},
    {"Not supported, data", ax_config_keys_unsupported_data, true, true},
    {"Not supported", ax_config_keys_unsupported, false, true},
    {"No effect here", ax_config_keys_no_effect, false, true},
    {"Removed", ax_config_keys_removed, false, true},
};
const size_t ax_config_n_sections = sizeof ax_config_sections / sizeof *ax_config_sections;

const struct ax_capability_info *ax_capability_info(enum ax_capability cap) {
#define AX_CAP_INFO(id, name, meaning) [AX_CAP_##id] = {name, meaning},
    static const struct ax_capability_info all[] = {{"none", "nothing"},
                                                    AX_CAPABILITIES(AX_CAP_INFO)};
#undef AX_CAP_INFO
    return &all[cap];
}

const char *ax_config_support_name(enum ax_config_support support) {
    static const char *const names[] = {
        [AX_SUPPORT_ACTS] = "acts",           [AX_SUPPORT_APPROXIMATED] = "approximated",
        [AX_SUPPORT_NO_EFFECT] = "no effect", [AX_SUPPORT_NOT_YET] = "not supported yet",
        [AX_SUPPORT_REFUSED] = "refused",
    };
    return names[support];
}

enum ax_config_support ax_config_support_of(enum ax_config_support support,
                                            enum ax_capability needs) {
    return needs != AX_CAP_NONE && support <= AX_SUPPORT_APPROXIMATED ? AX_SUPPORT_NOT_YET
                                                                      : support;
}

bool ax_config_hides(const char *path, const struct ax_yaml_node *node) {
    const struct ax_config_key *key = ax_config_find(path);
    return key != NULL && key->secret && node->kind != AX_YAML_NULL;
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

bool ax_config_same_reason(const struct ax_config_key *a, const struct ax_config_key *b) {
    return a->support == b->support && a->needs == b->needs && same_text(a->note, b->note) &&
           same_text(a->when, b->when);
}
