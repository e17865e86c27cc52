/* PEFT adapter folders: adapter_config.json with adapter_model.safetensors.
 *
 * The config selects modules and the kind of adapter; the model decides which of its modules match.
 * Tensor names are those of PEFT's files: for a module M of the base model
 * base_model.model.M.lora_A.weight [r][in], .lora_B.weight [out][r] and, with DoRA,
 * * .lora_magnitude_vector [out]; a fully trained module is base_model.model.M.weight. Modules of a
 * text model inside another model have the same names here as in a model of their own. */
#ifndef AX_CKPT_HF_PEFT_H
#define AX_CKPT_HF_PEFT_H

#include "base/text/json.h"
#include "ckpt/hf/safetensors.h"
#include "ckpt/hf/checksums.h"

#define AX_PEFT_PREFIX  "base_model.model."
#define AX_PEFT_CONFIG  "adapter_config.json"
#define AX_PEFT_WEIGHTS "adapter_model.safetensors"

struct ax_peft_names {
    int n;
    char **names;
};
enum ax_status ax_peft_names_add(struct ax_peft_names *list,
                                 const char *name); /* unless it is there */
void ax_peft_names_free(struct ax_peft_names *list);
struct ax_peft_pattern {
    char *pattern; /* regular expression for the end of a module name */
    double value;
};

/* Initialization of new adapters: PEFT's init_lora_weights. */
enum ax_lora_start {
    AX_LORA_USUAL,    /* true: A uniform, B = 0 */
    AX_LORA_RANDOM,   /* false: B uniform too */
    AX_LORA_GAUSSIAN, /* A normal, B = 0 */
    AX_LORA_PISSA     /* largest singular triplets of the base, which are subtracted from it */
};

struct ax_peft_config {
    char *base; /* base_model_name_or_path as written; NULL = missing */
    /* prefix before "model." in the names of modules, if the base contains the text model
     * (hf.h), else NULL; static */
    const char *within;
    /* names begin with a word that folders have, not transformers' modules (ax_hf_after_word) */
    bool folder_words;
    int64_t r;
    double alpha, dropout;
    bool rslora, dora;
    /* for new adapters; not stored in folders: PiSSA is saved with twice the rank and alpha, for
     * the unchanged base */
    enum ax_lora_start start;
    int iterations;                  /* PiSSA's, for its subspace; 0 = until convergence */
    bool all_linear;                 /* target_modules: "all-linear" */
    char *target_regex;              /* matches full names; NULL = `targets` */
    struct ax_peft_names targets;    /* names, or their endings */
    struct ax_peft_names parameters; /* target_parameters: the same for stacked weights */
    char *exclude_regex;
    struct ax_peft_names exclude;
    int n_layers; /* layers_to_transform; 0 = all */
    int64_t *layers;
    int n_ranks, n_alphas; /* rank_pattern, alpha_pattern */
    struct ax_peft_pattern *ranks, *alphas;
    const char *task_type;     /* a new adapter's; NULL = CAUSAL_LM */
    struct ax_peft_names save; /* modules_to_save */
    json_t *json;              /* the original file; NULL = none */
};

/* AX_ERR_DATA names file and key; settings that affect the result but are not implemented are
 * rejected with AX_ERR_UNSUPPORTED. */
enum ax_status ax_peft_config_parse(struct ax_peft_config *c, struct ax_json root);
/* True for a module of the text model that has `within` before its name: all of them if the base has the text model's
 * head in it, too, and those of its body if it has a head of its own (then `within` begins with "model."). */
bool ax_peft_is_within(const struct ax_peft_config *c, const char *module);
void ax_peft_config_free(struct ax_peft_config *c); /* safe on a zeroed one */
/* A new adapter with the same modules, ranks and scales, without modules_to_save and dropout, that
 * starts without changing its base. */
enum ax_status ax_peft_config_like(struct ax_peft_config *out, const struct ax_peft_config *c);
/* Contents of adapter_config.json: keys of the original file are kept unless this struct sets
 * them. */
enum ax_status ax_peft_config_json(const struct ax_peft_config *c, json_t **out);

struct ax_peft {
    char *dir;
    struct ax_peft_config config;
    struct ax_safetensors weights;
};
enum ax_status ax_peft_open(struct ax_peft *p, const char *dir);
void ax_peft_close(struct ax_peft *p);
/* True if the folder has an adapter_config.json. */
bool ax_peft_is_folder(const char *dir);
/* The base model's name: a relative path that exists from the adapter's folder is resolved,
 * anything else (a hub id) is unchanged. AX_ERR_DATA if the config has none. */
enum ax_status ax_peft_base(const struct ax_peft *p, char **out);
/* The same for the name `base` in the folder `dir`. */
enum ax_status ax_peft_base_from(const char *dir, const char *base, char **out);

/* Writes a folder that appears complete or not at all. */
enum ax_status ax_peft_write(const char *dir, const struct ax_peft_config *c, int n,
                             const struct ax_st_output *tensors);

#endif
