/* adapter_config.json to struct ax_peft_config, and back. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "ckpt/hf/peft.h"

#define MAX_RANK  65536
#define MAX_NAMES 65536

/* ---- reading ---- */

static enum ax_status refuse(struct ax_json v, const char *what) {
    ax_json_error(v, "%s is not implemented", what);
    return AX_ERR_UNSUPPORTED;
}

enum ax_status ax_peft_names_add(struct ax_peft_names *list, const char *name) {
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->names[i], name) == 0)
            return AX_OK;
    const size_t n = (size_t)list->n;
    AX_TRY(ax_regrow(&list->names, n, n + 1, sizeof *list->names));
    AX_TRY(ax_strdup(&list->names[list->n], name));
    list->n++;
    return AX_OK;
}

void ax_peft_names_free(struct ax_peft_names *list) {
    for (int i = 0; i < list->n; i++)
        ax_free(list->names[i]);
    ax_free(list->names);
}

static enum ax_status names(struct ax_json v, struct ax_peft_names *out) {
    const size_t n = ax_json_size(v);
    if (!v.v)
        return AX_OK;
    if (!json_is_array(v.v) || n > MAX_NAMES)
        return ax_json_error(v, "expected a list of names");
    AX_TRY(ax_alloc(&out->names, n, sizeof *out->names));
    for (size_t i = 0; i < n; i++) {
        const char *name;
        AX_TRY(ax_json_str(ax_json_at(v, i), &name));
        AX_TRY(ax_strdup(&out->names[out->n], name));
        out->n++;
    }
    return AX_OK;
}

/* A list of names, or one regular expression. */
static enum ax_status names_or_regex(struct ax_json v, struct ax_peft_names *list, char **regex) {
    const char *text;
    if (!json_is_string(v.v))
        return names(v, list);
    AX_TRY(ax_json_str(v, &text));
    return ax_strdup(regex, text);
}

static enum ax_status targets(struct ax_peft_config *c, struct ax_json root) {
    const struct ax_json v = ax_json_get(root, "target_modules");
    AX_TRY(names_or_regex(v, &c->targets, &c->target_regex));
    if (c->target_regex && strcmp(c->target_regex, "all-linear") == 0) {
        ax_free(c->target_regex);
        c->target_regex = NULL;
        c->all_linear = true;
    }
    AX_TRY(names(ax_json_get(root, "target_parameters"), &c->parameters));
    if (!c->all_linear && !c->target_regex && c->targets.n + c->parameters.n == 0)
        return ax_json_error(v, "expected the names of the modules to adapt");
    return names_or_regex(ax_json_get(root, "exclude_modules"), &c->exclude, &c->exclude_regex);
}

static enum ax_status layers(struct ax_peft_config *c, struct ax_json root) {
    const struct ax_json v = ax_json_get(root, "layers_to_transform");
    if (!v.v)
        return AX_OK;
    const bool one = json_is_integer(v.v);
    const size_t n = one ? 1 : ax_json_size(v);
    if (n > MAX_NAMES)
        return ax_json_error(v, "%zu layers", n);
    AX_TRY(ax_alloc(&c->layers, n, sizeof *c->layers));
    for (size_t i = 0; i < n; i++)
        AX_TRY(ax_json_i64(one ? v : ax_json_at(v, i), 0, 1 << 20, &c->layers[i]));
    c->n_layers = (int)n;
    const struct ax_json pattern = ax_json_get(root, "layers_pattern");
    const struct ax_json first = json_is_array(pattern.v) ? ax_json_at(pattern, 0) : pattern;
    if (first.v && (!json_is_string(first.v) || ax_json_size(pattern) > 1 ||
                    strcmp(json_string_value(first.v), "layers") != 0))
        return refuse(pattern, "a pattern other than \"layers\"");
    return AX_OK;
}

static enum ax_status patterns(struct ax_json v, double least, int *n,
                               struct ax_peft_pattern **out) {
    const char *key;
    json_t *value;
    if (!v.v)
        return AX_OK;
    if (!json_is_object(v.v))
        return ax_json_error(v, "expected names and numbers");
    AX_TRY(ax_alloc(out, ax_json_size(v), sizeof **out));
    json_object_foreach((json_t *)v.v, key, value) {
        struct ax_peft_pattern *p = &(*out)[*n];
        AX_TRY(ax_json_f64(ax_json_get(v, key), &p->value));
        if (p->value < least || p->value > MAX_RANK)
            return ax_json_error(ax_json_get(v, key), "expected %g to %d", least, MAX_RANK);
        AX_TRY(ax_strdup(&p->pattern, key));
        (*n)++;
    }
    return AX_OK;
}

/* Settings that change what the tensors mean. */
static enum ax_status refuse_unknown(struct ax_json root) {
    static const char *const off[] = {"fan_in_fan_out",
                                      "lora_bias",
                                      "use_qalora",
                                      "use_bdlora",
                                      "layer_replication",
                                      "trainable_token_indices",
                                      "alora_invocation_tokens",
                                      "arrow_config",
                                      "kasa_config",
                                      "monteclora_config",
                                      "velora_config"};
    const char *text;
    AX_TRY(ax_json_str(ax_json_get(root, "peft_type"), &text));
    if (strcmp(text, "LORA") != 0)
        return refuse(ax_json_get(root, "peft_type"), text);
    AX_TRY(ax_json_str_or(ax_json_get(root, "bias"), "none", &text));
    if (strcmp(text, "none") != 0)
        return refuse(ax_json_get(root, "bias"), "training biases");
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        const struct ax_json v = ax_json_get(root, off[i]);
        const bool empty = (json_is_array(v.v) || json_is_object(v.v)) && ax_json_size(v) == 0;
        if (v.v && !json_is_false(v.v) && !empty)
            return refuse(v, "this setting");
    }
    const struct ax_json init = ax_json_get(root, "init_lora_weights");
    static const char *const moved[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    for (size_t i = 0; json_is_string(init.v) && i < sizeof moved / sizeof *moved; i++)
        if (strncasecmp(json_string_value(init.v), moved[i], strlen(moved[i])) == 0)
            return refuse(init, "an adapter whose initialization changed the base weights (convert "
                                "it to plain LoRA where it was trained); this one");
    return AX_OK;
}

static bool has_end(const struct ax_peft_names *names) {
    bool has = false;
    for (int i = 0; i < names->n; i++) {
        const char *dot = strrchr(names->names[i], '.'), *last = dot ? dot + 1 : names->names[i];
        has = has || strcmp(last, "embed_tokens") == 0 || strcmp(last, "lm_head") == 0;
    }
    return has;
}

/* The setting is of adapters of the embedding and the head alone: others may have it, as Unsloth's do. */
static enum ax_status refuse_tied_ends(const struct ax_peft_config *c, struct ax_json root) {
    const struct ax_json v = ax_json_get(root, "ensure_weight_tying");
    const bool ends = has_end(&c->targets) || has_end(&c->save) || c->target_regex;
    return json_is_true(v.v) && ends ? refuse(v, "one adapter of embedding and head") : AX_OK;
}

static enum ax_status parse(struct ax_peft_config *c, struct ax_json root) {
    const char *base;
    AX_TRY(refuse_unknown(root));
    AX_TRY(ax_json_str_or(ax_json_get(root, "base_model_name_or_path"), NULL, &base));
    if (base)
        AX_TRY(ax_strdup(&c->base, base));
    AX_TRY(ax_json_i64(ax_json_get(root, "r"), 1, MAX_RANK, &c->r));
    AX_TRY(ax_json_f64(ax_json_get(root, "lora_alpha"), &c->alpha));
    AX_TRY(ax_json_f64_or(ax_json_get(root, "lora_dropout"), 0, &c->dropout));
    if (!(c->dropout >= 0 && c->dropout < 1))
        return ax_json_error(ax_json_get(root, "lora_dropout"), "expected 0 to less than 1");
    AX_TRY(ax_json_bool_or(ax_json_get(root, "use_rslora"), false, &c->rslora));
    AX_TRY(ax_json_bool_or(ax_json_get(root, "use_dora"), false, &c->dora));
    AX_TRY(targets(c, root));
    AX_TRY(layers(c, root));
    AX_TRY(patterns(ax_json_get(root, "rank_pattern"), 1, &c->n_ranks, &c->ranks));
    AX_TRY(patterns(ax_json_get(root, "alpha_pattern"), 0, &c->n_alphas, &c->alphas));
    AX_TRY(names(ax_json_get(root, "modules_to_save"), &c->save));
    AX_TRY(refuse_tied_ends(c, root));
    c->json = json_deep_copy(root.v);
    return c->json ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for adapter_config.json");
}

enum ax_status ax_peft_config_parse(struct ax_peft_config *c, struct ax_json root) {
    *c = (struct ax_peft_config){0};
    const enum ax_status st =
        json_is_object(root.v) ? parse(c, root) : ax_json_error(root, "expected an object");
    if (st != AX_OK)
        ax_peft_config_free(c);
    return st;
}

enum ax_status ax_peft_config_like(struct ax_peft_config *out, const struct ax_peft_config *c) {
    struct ax_peft_config bare = *c;
    char name[] = AX_PEFT_CONFIG;
    struct ax_json_doc doc = {.name = name};
    bare.start = AX_LORA_USUAL;
    bare.dropout = 0;
    bare.save = (struct ax_peft_names){0};
    *out = (struct ax_peft_config){0};
    AX_TRY(ax_peft_config_json(&bare, &doc.root));
    const enum ax_status st = ax_peft_config_parse(out, ax_json_root(&doc));
    json_decref(doc.root);
    json_decref(out->json); /* of a folder, which a new one does not have */
    out->json = NULL;
    return st;
}

static void patterns_free(int n, struct ax_peft_pattern *list) {
    for (int i = 0; i < n; i++)
        ax_free(list[i].pattern);
    ax_free(list);
}

void ax_peft_config_free(struct ax_peft_config *c) {
    ax_free(c->base);
    ax_free(c->target_regex);
    ax_free(c->exclude_regex);
    ax_free(c->layers);
    ax_peft_names_free(&c->targets);
    ax_peft_names_free(&c->parameters);
    ax_peft_names_free(&c->exclude);
    ax_peft_names_free(&c->save);
    patterns_free(c->n_ranks, c->ranks);
    patterns_free(c->n_alphas, c->alphas);
    json_decref(c->json);
    *c = (struct ax_peft_config){0};
}

/* ---- writing ---- */

/* Keys in the order of PEFT's own files, which are sorted; values are set later. */
static json_t *blank(void) {
    return json_pack("{s{} sn sn ss sb sb sb sn sn s{} sn sf sb sf sn ss sn ss sn s{} sn s[] sn ss "
                     "sn sb sb}",
                     "alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "none",
                     "fan_in_fan_out", 0, "inference_mode", 1, "init_lora_weights", 1,
                     "layer_replication", "layers_pattern", "loftq_config", "layers_to_transform",
                     "lora_alpha", 0.0, "lora_bias", 0, "lora_dropout", 0.0, "megatron_config",
                     "megatron_core", "megatron.core", "modules_to_save", "peft_type", "LORA", "r",
                     "rank_pattern", "revision", "target_modules", "target_parameters", "task_type",
                     "CAUSAL_LM", "trainable_token_indices", "use_dora", 0, "use_rslora", 0);
}

/* Writes an integral number as an integer, as PEFT does with lora_alpha. */
static json_t *number_json(double v) {
    return v == rint(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_real(v);
}

static json_t *list_json(const struct ax_peft_names *names) {
    json_t *out = json_array();
    for (int i = 0; out && i < names->n; i++)
        if (json_array_append_new(out, json_string(names->names[i])) != 0)
            return NULL;
    return out;
}

static json_t *list_or_null_json(const struct ax_peft_names *names) {
    return names->n > 0 ? list_json(names) : json_null();
}

static json_t *layers_json(const struct ax_peft_config *c) {
    if (c->n_layers == 0)
        return json_null();
    json_t *out = json_array();
    for (int i = 0; out && i < c->n_layers; i++)
        if (json_array_append_new(out, json_integer(c->layers[i])) != 0)
            return NULL;
    return out;
}

static json_t *patterns_json(int n, const struct ax_peft_pattern *p, double by) {
    json_t *out = json_object();
    for (int i = 0; out && i < n; i++)
        if (json_object_set_new(out, p[i].pattern, number_json(p[i].value * by)) != 0)
            return NULL;
    return out;
}

static json_t *targets_json(const struct ax_peft_config *c) {
    if (c->all_linear)
        return json_string("all-linear");
    return c->target_regex ? json_string(c->target_regex) : list_json(&c->targets);
}

static bool has_head(const char *within) {
    return strncmp(within, "model.", strlen("model.")) != 0;
}

bool ax_peft_is_within(const struct ax_peft_config *c, const char *module) {
    return c->within && (has_head(c->within) || strncmp(module, "model.", strlen("model.")) == 0);
}

/* Endings of names are those of other parts' modules, too: only the text model's have adapters. */
static json_t *all_others(const char *within) {
    char text[96];
    snprintf(text, sizeof text, "(?!%smodel\\.)(?!%slm_head$).*", within,
             has_head(within) ? within : "");
    return json_string(text);
}

static json_t *excluded(const struct ax_peft_config *c) {
    if (c->exclude_regex || c->exclude.n > 0)
        return c->exclude_regex ? json_string(c->exclude_regex) : list_json(&c->exclude);
    return all_others(c->within);
}

/* PEFT refuses target_parameters with dropout, also where nothing is trained. */
static double dropout_json(const struct ax_peft_config *c) {
    return c->parameters.n > 0 ? 0 : c->dropout;
}

enum ax_status ax_peft_config_json(const struct ax_peft_config *c, json_t **out) {
    json_t *v = c->json ? json_deep_copy(c->json) : blank();
    const double ranks = c->start == AX_LORA_PISSA ? 2 : 1;
    const double alphas = c->rslora ? sqrt(ranks) : ranks; /* keeps the scale the same */
    const bool exclude = c->exclude_regex || c->exclude.n > 0 || (c->within && !c->target_regex);
    bool ok = v != NULL;
#define SET(key, value) ok = ok && json_object_set_new(v, key, value) == 0
    SET("base_model_name_or_path", c->base ? json_string(c->base) : json_null());
    SET("r", json_integer((json_int_t)ranks * c->r));
    SET("lora_alpha", number_json(c->alpha * alphas));
    SET("lora_dropout", json_real(dropout_json(c)));
    SET("use_rslora", json_boolean(c->rslora));
    SET("use_dora", json_boolean(c->dora));
    SET("target_modules", targets_json(c));
    SET("target_parameters", list_or_null_json(&c->parameters));
    if (exclude)
        SET("exclude_modules", excluded(c));
    SET("layers_to_transform", layers_json(c));
    SET("rank_pattern", patterns_json(c->n_ranks, c->ranks, ranks));
    SET("alpha_pattern", patterns_json(c->n_alphas, c->alphas, alphas));
    if (c->task_type)
        SET("task_type", json_string(c->task_type));
    SET("modules_to_save", list_or_null_json(&c->save));
    SET("inference_mode", json_true());
    SET("init_lora_weights", json_true());
#undef SET
    if (!ok) {
        json_decref(v);
        return ax_error(AX_ERR_NOMEM, "out of memory for adapter_config.json");
    }
    *out = v;
    return AX_OK;
}
