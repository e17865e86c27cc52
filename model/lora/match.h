/* The modules that a model's adapters target, matched by name as PEFT does. */
#ifndef AX_MODEL_LORA_MATCH_H
#define AX_MODEL_LORA_MATCH_H

#include "ckpt/hf/peft.h"

/* The config's settings for a module ("model.layers.0.mlp.up_proj"), by its name in the text model. */
struct ax_adapter_target {
    bool on;
    int64_t r;
    double scale;
};
enum ax_status ax_adapter_match(const struct ax_peft_config *c, const char *module, int layer,
                                struct ax_adapter_target *out);
/* The module's name in the base, which may contain the text model. */
void ax_adapter_full_name(const struct ax_peft_config *c, const char *module, char *out,
                          size_t size);
/* True if target_parameters names the weight of this module (its full name): PEFT then adapts it
 * whatever excludes modules or chooses layers, and patterns match the name with ".weight". */
bool ax_adapter_names_weight(const struct ax_peft_config *c, const char *module);
/* True if the expression matches the full name or, with `suffix`, everything after some dot. */
enum ax_status ax_adapter_matches(const char *pattern, bool suffix, const char *name, bool *yes);
/* True if `name` is `end`, or ends with a dot and `end`. */
bool ax_adapter_ends_in(const char *name, const char *end);
/* "a.b.c.weight" → "a.b.c". */
void ax_adapter_module_of(const char *param, char *out, size_t size);
bool ax_adapter_saves(const struct ax_peft_config *c, const char *param); /* modules_to_save */
/* PEFT compares the ends of module names without requiring a dot: "norm" matches every norm. */
bool ax_adapter_saves_module(const char *module, const char *end);
/* Saving the embedding or head in full makes them two matrices in a tied model, as with PEFT: both
 * start as the base's embedding, and one that is not listed stays so. */
bool ax_adapter_saves_embedding(const struct ax_peft_config *c);
bool ax_adapter_unties(const struct ax_peft_config *c);

enum ax_expert_weight { AX_GATE_UP, AX_DOWN, AX_EXPERT_WEIGHTS };
/* True for the module of Nemotron-H's experts, whose first weight is up_proj alone. */
bool ax_experts_ungated(const char *experts);
/* "model.layers.3.mlp.experts.gate_up_proj" in buf; `experts` is the module's name below the layer: mlp.experts. */
const char *ax_expert_weight_name(int layer, const char *experts, enum ax_expert_weight which,
                                  char *buf, size_t size);
/* The config's settings for a layer's expert weight, and the module that contains the adapter's
 * tensors. */
enum ax_status ax_adapter_experts_match(const struct ax_peft_config *c, int layer,
                                        const char *experts, enum ax_expert_weight which,
                                        struct ax_adapter_target *out, char *module, size_t size);

#endif
