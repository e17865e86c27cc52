/* struct ax_peft_config to adapter_config.json. */
#include <math.h>
#include <stdio.h>

#include "ckpt/hf/hf.h"
#include "ckpt/hf/peft.h"

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
static json_t *number(double v) {
    return v == rint(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_real(v);
}

static json_t *list(const struct ax_peft_names *names) {
    json_t *out = json_array();
    for (int i = 0; out && i < names->n; i++)
        if (json_array_append_new(out, json_string(names->names[i])) != 0)
            return NULL;
    return out;
}

static json_t *list_or_null(const struct ax_peft_names *names) {
    return names->n > 0 ? list(names) : json_null();
}

static json_t *layers(const struct ax_peft_config *c) {
    if (c->n_layers == 0)
        return json_null();
    json_t *out = json_array();
    for (int i = 0; out && i < c->n_layers; i++)
        if (json_array_append_new(out, json_integer(c->layers[i])) != 0)
            return NULL;
    return out;
}

static json_t *patterns(int n, const struct ax_peft_pattern *p, double by) {
    json_t *out = json_object();
    for (int i = 0; out && i < n; i++)
        if (json_object_set_new(out, p[i].pattern, number(p[i].value * by)) != 0)
            return NULL;
    return out;
}

static json_t *targets(const struct ax_peft_config *c) {
    if (c->all_linear)
        return json_string("all-linear");
    return c->target_regex ? json_string(c->target_regex) : list(&c->targets);
}

/* Endings of names are those of other parts' modules, too: only the text model's have adapters. */
static json_t *all_others(const char *within) {
    char text[96];
    snprintf(text, sizeof text, "(?!%smodel\\.)(?!lm_head$).*", within);
    return json_string(text);
}

static json_t *excluded(const struct ax_peft_config *c) {
    if (c->exclude_regex || c->exclude.n > 0)
        return c->exclude_regex ? json_string(c->exclude_regex) : list(&c->exclude);
    return all_others(c->within);
}

/* PEFT refuses target_parameters with dropout, also where nothing is trained. */
static double dropout(const struct ax_peft_config *c) {
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
    SET("lora_alpha", number(c->alpha * alphas));
    SET("lora_dropout", json_real(dropout(c)));
    SET("use_rslora", json_boolean(c->rslora));
    SET("use_dora", json_boolean(c->dora));
    SET("target_modules", targets(c));
    SET("target_parameters", list_or_null(&c->parameters));
    if (exclude)
        SET("exclude_modules", excluded(c));
    SET("layers_to_transform", layers(c));
    SET("rank_pattern", patterns(c->n_ranks, c->ranks, ranks));
    SET("alpha_pattern", patterns(c->n_alphas, c->alphas, alphas));
    if (c->task_type)
        SET("task_type", json_string(c->task_type));
    SET("modules_to_save", list_or_null(&c->save));
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

enum ax_status ax_peft_write_config(const char *dir, const struct ax_peft_config *c,
                                    struct ax_sum_list *list) {
    json_t *v;
    char *path = NULL, *text = NULL;
    size_t len;
    struct ax_buf line = {0};
    struct ax_checksums *sums;
    struct ax_file f = {.fd = -1};
    AX_TRY(ax_sum_list_add(list, AX_PEFT_CONFIG, &sums));
    AX_TRY(ax_peft_config_json(c, &v));
    enum ax_status st;
    AX_TRY_GOTO(ax_json_dump(v, &text, &len), st, done);
    AX_TRY_GOTO(ax_buf_append(&line, text, len), st, done);
    AX_TRY_GOTO(ax_buf_puts(&line, "\n"), st, done);
    AX_TRY_GOTO(ax_checksums_add(sums, line.data, line.len), st, done);
    AX_TRY_GOTO(ax_path_join(&path, dir, AX_PEFT_CONFIG), st, done);
    AX_TRY_GOTO(ax_file_create(&f, path), st, done);
    AX_TRY_GOTO(ax_file_write(&f, line.data, line.len), st, done);
    AX_TRY_GOTO(ax_file_sync(&f), st, done);
done:
    st = ax_file_end(&f, st);
    ax_buf_free(&line);
    ax_free(path);
    ax_free(text);
    json_decref(v);
    return st;
}

enum ax_status ax_peft_write(const char *dir, const struct ax_peft_config *c, int n,
                             const struct ax_st_output *tensors) {
    return ax_hf_write(&(struct ax_hf_save){.dir = dir, .adapter = c, .n = n, .tensors = tensors});
}
