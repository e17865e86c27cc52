/* PEFT adapter folders: adapter_config.json beside adapter_model.safetensors.
 *
 * The config says which modules are adapted and how; whether a module is meant is for the model to
 * decide, which knows its modules. Tensor names are those of PEFT's files: for a module M of the
 * base model base_model.model.M.lora_A.weight [r][in], .lora_B.weight [out][r] and, with DoRA,
 * .lora_magnitude_vector [out]; a module trained whole is base_model.model.M.weight. */
#ifndef AX_CKPT_HF_PEFT_H
#define AX_CKPT_HF_PEFT_H

#include "base/json.h"
#include "ckpt/hf/safetensors.h"
#include "ckpt/hf/checksums.h"

#define AX_PEFT_PREFIX  "base_model.model."
#define AX_PEFT_CONFIG  "adapter_config.json"
#define AX_PEFT_WEIGHTS "adapter_model.safetensors"

struct ax_peft_names {
    int n;
    char **names;
};
struct ax_peft_pattern {
    char *pattern; /* regular expression for the end of a module's name */
    double value;
};

/* How new adapters begin: init_lora_weights of PEFT. */
enum ax_lora_start {
    AX_LORA_USUAL,    /* true: A uniform, B = 0 */
    AX_LORA_RANDOM,   /* false: B uniform too */
    AX_LORA_GAUSSIAN, /* A normal, B = 0 */
    AX_LORA_PISSA     /* the base's largest singular triplets, which the base loses */
};

struct ax_peft_config {
    char *base; /* base_model_name_or_path as written; NULL = not said */
    int64_t r;
    double alpha, dropout;
    bool rslora, dora;
    enum ax_lora_start start;     /* of new ones. Not read from folders, nor written: those of PiSSA
                                     have twice the rank and alpha, for the base as it was */
    int iterations;               /* PiSSA's, for its subspace; 0 = as many as it takes */
    bool all_linear;              /* target_modules: "all-linear" */
    char *target_regex;           /* for whole names; NULL = `targets` */
    struct ax_peft_names targets; /* names, or what they end in */
    struct ax_peft_names parameters; /* target_parameters: the same of stacked weights */
    char *exclude_regex;
    struct ax_peft_names exclude;
    int n_layers; /* layers_to_transform; 0 = all */
    int64_t *layers;
    int n_ranks, n_alphas; /* rank_pattern, alpha_pattern */
    struct ax_peft_pattern *ranks, *alphas;
    struct ax_peft_names save; /* modules_to_save */
    json_t *json;              /* the file this came from; NULL = none */
};

/* AX_ERR_DATA names file and key; what would change the result and is not implemented is refused
 * with AX_ERR_UNSUPPORTED. */
enum ax_status ax_peft_config_parse(struct ax_peft_config *c, struct ax_json root);
void ax_peft_config_free(struct ax_peft_config *c); /* safe on a zeroed one */
/* What adapter_config.json shall hold: the keys of the file it came from stay as they are, but for
 * what this struct says. */
enum ax_status ax_peft_config_json(const struct ax_peft_config *c, json_t **out);

struct ax_peft {
    char *dir;
    struct ax_peft_config config;
    struct ax_safetensors weights;
};
enum ax_status ax_peft_open(struct ax_peft *p, const char *dir);
void ax_peft_close(struct ax_peft *p);
/* Is there an adapter_config.json? */
bool ax_peft_is_folder(const char *dir);
/* The base model's name: a relative path that is there as seen from the adapter's folder becomes a
 * path, anything else (a hub id) stays as written. AX_ERR_DATA where the config has none. */
enum ax_status ax_peft_base(const struct ax_peft *p, char **out);

/* Writes a folder that appears whole or not at all. */
enum ax_status ax_peft_write(const char *dir, const struct ax_peft_config *c, int n,
                             const struct ax_st_output *tensors);
/* The same into a folder that exists and that the caller commits; `sums` gets the checksums of both
 * files, or is NULL. */
enum ax_status ax_peft_write_into(const char *dir, const struct ax_peft_config *c, int n,
                                  const struct ax_st_output *tensors, struct ax_sum_list *sums);

#endif
