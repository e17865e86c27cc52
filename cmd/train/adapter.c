/* Adapter keys: passed to PEFT as axolotl does, so that adapter_config.json is the same. The
 * modules they name are looked up in the base model before any data is read. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "model/convert/base_model.h"
#include "model/convert/merge.h"
#include "model/adapter/base_note.h"
#include "ckpt/hf/merge_note.h"
#include "cmd/train/setup.h"
#include "model/adapter/targets.h"
#include "model/arch/family.h"
#include "model/lora/match.h"
#include "model/model.h"

/* ---- the frozen base ---- */

static enum ax_status read_quantization(struct ax_train_setup *s, const struct ax_yaml_node *map) {
    s->base_store = AX_STORAGE_NF4_DOUBLE;
    for (size_t i = 0; map && i < map->n; i++) {
        const char *key = map->entries[i].key;
        const struct ax_yaml_node *v = map->entries[i].value;
        if (strcmp(key, "bnb_4bit_use_double_quant") == 0 && v->kind == AX_YAML_BOOL)
            s->base_store = v->boolean ? AX_STORAGE_NF4_DOUBLE : AX_STORAGE_NF4;
        else if (strcmp(key, "bnb_4bit_quant_type") != 0 || !v->text || strcmp(v->text, "nf4") != 0)
            return ax_config_error(
                s->cfg, "bnb_config_kwargs",
                "%s: %s is not supported; supported are bnb_4bit_use_double_quant "
                "(true or false) and bnb_4bit_quant_type: nf4",
                key, v->text ? v->text : "this");
    }
    return AX_OK;
}

/* A folder of bitsandbytes stays what it is, whatever the keys say, as in transformers. */
static void follow_folder(struct ax_train_setup *s) {
    const enum ax_storage own = s->arch.codes, asked = s->base_store;
    if (asked == AX_STORAGE_PLAIN || strcmp(s->arch.quant_method, "bitsandbytes") != 0)
        return;
    if (own == AX_STORAGE_PLAIN)
        ax_log_warn(
            "the base is dequantized: it has bitsandbytes' fp4, whose codes are not kept in "
            "memory; a folder in nf4, or one that is not quantized, takes less");
    else if (own != asked && (own != AX_STORAGE_NF4 || asked != AX_STORAGE_NF4_DOUBLE))
        ax_log_warn("the base stays in %s, as its folder has it, and not in %s",
                    ax_storage_name(own), ax_storage_name(asked));
    s->base_store = own;
    s->store_experts = true;
    s->coded = s->hf.dir ? &s->hf : NULL;
}

static enum ax_status read_store(struct ax_train_setup *s, const struct ax_adapter_keys *k) {
    const bool gptq = ax_config_holds(s->cfg, "gptq") && s->arch.codes == AX_STORAGE_INT4;
    if (strcmp(s->adapter_name, "qlora") == 0)
        AX_TRY(read_quantization(s, k->packing));
    else
        s->base_store = ax_config_holds(s->cfg, "load_in_8bit") ? AX_STORAGE_INT8
                        : gptq                                  ? AX_STORAGE_INT4
                                                                : AX_STORAGE_PLAIN;
    follow_folder(s);
    if (s->base_store == AX_STORAGE_INT4)
        s->coded = s->hf.dir ? &s->hf : NULL;
    return AX_OK;
}

/* ---- lists ---- */

static enum ax_status read_names(struct ax_peft_names *list, const struct ax_yaml_node *from) {
    const struct ax_yaml_node *v;
    for (size_t i = 0; (v = ax_config_element(from, i)) != NULL; i++)
        AX_TRY(ax_peft_names_add(list, v->text));
    return AX_OK;
}

/* A single string is a regular expression. */
static enum ax_status read_names_or_regex(struct ax_peft_names *list, char **regex,
                                          const struct ax_yaml_node *from) {
    if (from && from->kind == AX_YAML_STRING)
        return ax_strdup(regex, from->text);
    return read_names(list, from);
}

static enum ax_status read_patterns(int *n, struct ax_peft_pattern **list,
                                    const struct ax_yaml_node *map) {
    if (!map || map->n == 0)
        return AX_OK;
    AX_TRY(ax_alloc(list, map->n, sizeof **list));
    for (size_t i = 0; i < map->n; i++) {
        (*list)[i].value = map->entries[i].value->number;
        AX_TRY(ax_strdup(&(*list)[i].pattern, map->entries[i].key));
        (*n)++;
    }
    return AX_OK;
}

static enum ax_status read_layers(struct ax_train_setup *s, struct ax_peft_config *c,
                                  const struct ax_adapter_keys *k) {
    const struct ax_config *cfg = s->cfg;
    const struct ax_yaml_node *v;
    size_t n = 0;
    while (ax_config_element(k->layers, n))
        n++;
    if (n == 0)
        return AX_OK;
    if (c->target_regex)
        return ax_config_error(
            cfg, "peft_layers_to_transform",
            "cannot be combined with lora_target_modules as one expression; let the "
            "expression choose the layers, or name the modules in a list");
    for (size_t i = 0; (v = ax_config_element(k->layers_pattern, i)) != NULL; i++)
        if (strcmp(v->text, "layers") != 0)
            return ax_config_error(cfg, "peft_layers_pattern",
                                   "the layers of a %s model are in "
                                   "the list \"layers\"",
                                   s->arch.family->model_type);
    AX_TRY(ax_alloc(&c->layers, n, sizeof *c->layers));
    for (size_t i = 0; i < n; i++) {
        c->layers[i] = ax_config_element(k->layers, i)->integer;
        if (c->layers[i] >= s->arch.n_layers)
            return ax_config_error(cfg, "peft_layers_to_transform",
                                   "there is no layer %lld: the model has 0 to %lld",
                                   (long long)c->layers[i], (long long)s->arch.n_layers - 1);
    }
    c->n_layers = (int)n;
    return AX_OK;
}

/* ---- linears of the base ---- */

/* Builds the model without weights or memory and calls `look` with it. */
static enum ax_status with_model(const struct ax_train_setup *s, const struct ax_peft_config *c,
                                 enum ax_status (*look)(const struct ax_model *m, void *ctx),
                                 void *ctx) {
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    const struct ax_model_options mo = {.dtype = AX_F32,
                                        .max_positions = 1,
                                        .adapter = c,
                                        .base_store = s->base_store,
                                        .store_experts = s->store_experts,
                                        .coded = s->coded};
    struct ax_runtime rt;
    struct ax_model m;
    AX_TRY(ax_runtime_open_planning(&rt, &ro));
    enum ax_status st = ax_model_create(&m, &s->arch, &rt, &mo);
    if (st == AX_OK) {
        st = look(&m, ctx);
        ax_model_free(&m);
    }
    ax_runtime_close(&rt);
    return st;
}

/* Adds the last part of the name of each linear that can have an adapter:
 * "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight" → "up_proj". */
static enum ax_status add_linears(const struct ax_model *m, void *ctx) {
    for (int i = 0; i < m->n_params; i++) {
        char name[AX_NAME_MAX];
        snprintf(name, sizeof name, "%s", m->params[i].name);
        char *end = m->params[i].adapter ? strstr(name, ".lora_A.") : NULL;
        if (!end)
            continue;
        *end = '\0';
        AX_TRY(ax_peft_names_add(ctx, strrchr(name, '.') + 1));
    }
    return AX_OK;
}

/* "", or what became of a quantized folder's codes. */
static void tell_codes(const struct ax_train_setup *s, const struct ax_model *m, char *out,
                       size_t size) {
    int n = 0;
    *out = '\0';
    for (int i = 0; i < m->n_params; i++)
        n += m->params[i].storage != AX_STORAGE_PLAIN;
    if (s->coded && s->base_store != AX_STORAGE_PLAIN)
        snprintf(out, size, " (%d matrices, with the folder's codes; others are plain)", n);
    else if (*s->arch.quant_method && s->base_store == AX_STORAGE_PLAIN)
        snprintf(out, size, " (dequantized from %s)", s->arch.quant_method);
    else if (*s->arch.quant_method && s->base_store != AX_STORAGE_INT8)
        snprintf(out, size, " (dequantized from %s, and rounded again)", s->arch.quant_method);
}

static enum ax_status look_at_model(const struct ax_model *m, void *ctx) {
    struct ax_train_setup *s = ctx;
    const int64_t all = ax_model_parameters(m), mine = ax_model_trainable(m);
    char codes[96];
    tell_codes(s, m, codes, sizeof codes);
    ax_log_info("adapter: %lld of %lld parameters are trained (%.3g %%), base stored as %s%s",
                (long long)mine, (long long)all, 100 * (double)mine / (double)all,
                ax_storage_name(s->base_store), codes);
    return ax_adapter_settle_targets(m, s->start.dir ? &s->start.config : &s->new_adapter);
}

/* ---- the adapter ---- */

/* Removes it; false: it is not in the list. */
static bool take_name(struct ax_peft_names *list, const char *name) {
    for (int i = 0; i < list->n; i++) {
        if (strcmp(list->names[i], name) != 0)
            continue;
        ax_free(list->names[i]);
        list->names[i] = list->names[--list->n];
        return true;
    }
    return false;
}

static enum ax_status read_targets(struct ax_train_setup *s, struct ax_peft_config *c,
                                   const struct ax_adapter_keys *k) {
    AX_TRY(k->all_linear ? read_names(&c->targets, k->targets)
                         : read_names_or_regex(&c->targets, &c->target_regex, k->targets));
    const bool every_linear = take_name(&c->targets, "all-linear") || k->all_linear;
    if (c->target_regex && strcmp(c->target_regex, "all-linear") == 0) {
        ax_free(c->target_regex);
        c->target_regex = NULL;
        c->all_linear = true;
    }
    /* PEFT has no layers beside "all-linear" */
    if (every_linear || (c->all_linear && ax_config_element(k->layers, 0))) {
        c->all_linear = false;
        const struct ax_peft_config every = {.r = 1, .alpha = 1, .all_linear = true};
        AX_TRY(with_model(s, &every, add_linears, &c->targets));
    }
    AX_TRY(read_names(&c->parameters, k->parameters));
    return read_names_or_regex(&c->exclude, &c->exclude_regex, k->exclude);
}

static enum ax_status check_complete(const struct ax_peft_config *c,
                                     const struct ax_adapter_keys *k, const struct ax_config *cfg) {
    if (c->r == 0)
        return ax_config_error(cfg, "adapter", "set lora_r, its rank (for example 16)");
    if (c->alpha == 0)
        return ax_config_error(cfg, "adapter",
                               "set lora_alpha: what it adds is scaled by lora_alpha / lora_r "
                               "(for example twice lora_r)");
    if (!ax_config_element(k->targets, 0) && !k->all_linear && !k->parameters)
        return ax_config_error(cfg, "adapter",
                               "set lora_target_linear: true, or name modules in "
                               "lora_target_modules");
    return AX_OK;
}

/* peft_init_lora_weights */
static enum ax_status read_start(const struct ax_train_setup *s, struct ax_peft_config *c,
                                 const char *text) {
    static const char key[] = "peft_init_lora_weights", niter[] = "pissa_niter_";
    char *end = NULL;
    if (strcmp(text, "true") == 0)
        return AX_OK;
    if (strcmp(text, "false") == 0) {
        c->start = AX_LORA_RANDOM;
        return AX_OK;
    }
    if (strcmp(text, "gaussian") == 0) {
        c->start = AX_LORA_GAUSSIAN;
        return AX_OK;
    }
    c->start = AX_LORA_PISSA;
    if (strncmp(text, niter, strlen(niter)) == 0) {
        const long n = strtol(text + strlen(niter), &end, 10);
        c->iterations = n > 0 && n <= 1000 && *end == '\0' ? (int)n : -1;
    }
    if (strcmp(text, "pissa") != 0 && c->iterations <= 0)
        return ax_config_error(s->cfg, key,
                               "expected true, false, gaussian, pissa or pissa_niter_N with N from "
                               "1 to 1000, got \"%s\"",
                               text);
    return s->reinit ? ax_config_error(s->cfg, key,
                                       "there are no weights to start from with reinit_weights")
                     : AX_OK;
}

static enum ax_status read_new(struct ax_train_setup *s, struct ax_peft_config *c,
                               const struct ax_adapter_keys *k) {
    const struct ax_config *cfg = s->cfg;
    AX_FILL(cfg, "", struct ax_peft_config, c);
    AX_TRY(check_complete(c, k, cfg));
    AX_TRY(read_start(s, c, k->init));
    AX_TRY(read_targets(s, c, k));
    AX_TRY(read_layers(s, c, k));
    AX_TRY(read_patterns(&c->n_ranks, &c->ranks, k->ranks));
    AX_TRY(read_patterns(&c->n_alphas, &c->alphas, k->alphas));
    return read_names(&c->save, k->save);
}

static bool has_name(const struct ax_peft_names *list, const char *name) {
    for (int i = 0; i < list->n; i++)
        if (ax_adapter_ends_in(list->names[i], name) || ax_adapter_ends_in(name, list->names[i]))
            return true;
    return false;
}

static void warn_names(const char *key, const struct ax_yaml_node *names,
                       const struct ax_peft_names *of_adapter) {
    const struct ax_yaml_node *v;
    for (size_t i = 0; (v = ax_config_element(names, i)) != NULL; i++)
        if (!has_name(of_adapter, v->text))
            ax_log_warn("%s: %s is not used: the adapter in lora_model_dir has no such module", key,
                        v->text);
}

/* The same about modules. With experts, a folder has other names than the YAML that it was made with. */
static void warn_modules(const struct ax_train_setup *s, const struct ax_adapter_keys *k) {
    const struct ax_peft_config *c = &s->start.config;
    const bool named = c->targets.n > 0 && s->arch.moe.n_experts == 0;
    if (named && k->targets && k->targets->kind == AX_YAML_LIST)
        warn_names("lora_target_modules", k->targets, &c->targets);
    warn_names("lora_modules_to_save", k->save, &c->save);
}

/* Warns about keys of the YAML that the adapter's own configuration overrides. */
static void warn_ignored(const struct ax_train_setup *s, const struct ax_peft_config *c) {
    struct ax_peft_config keys = *c;
    AX_FILL(s->cfg, "", struct ax_peft_config, &keys);
    const struct {
        const char *key;
        bool flag;
        double value, folder;
    } all[] = {{"lora_r", false, (double)keys.r, (double)c->r},
               {"lora_alpha", false, keys.alpha, c->alpha},
               {"lora_dropout", false, keys.dropout, c->dropout},
               {"peft_use_rslora", true, keys.rslora, c->rslora},
               {"peft_use_dora", true, keys.dora, c->dora}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *key = all[i].key;
        char folder[32];
        snprintf(folder, sizeof folder, "%g", all[i].folder);
        if (ax_config_is_set(s->cfg, "%s", key) && fabs(all[i].value - all[i].folder) > 1e-9)
            ax_log_warn("%s: %s is not used: the adapter in lora_model_dir has %s", key,
                        ax_config_str(s->cfg, "%s", key),
                        !all[i].flag         ? folder
                        : all[i].folder != 0 ? "true"
                                             : "false");
    }
}

static enum ax_status open_start(struct ax_train_setup *s, const struct ax_adapter_keys *k) {
    struct ax_base_model found;
    char where[256];
    enum ax_status st = ax_base_model_find(&found, k->start, NULL);
    if (st == AX_OK)
        st = ax_peft_open(&s->start, found.path);
    if (st == AX_OK && s->base)
        st = ax_merge_note_check(s->base, &s->start);
    if (st == AX_OK && s->base)
        st = ax_base_note_check(s->base, &s->start);
    ax_base_model_free(&found);
    if (st != AX_OK)
        return ax_error_prefix(st, "lora_model_dir (%s)",
                               ax_config_where(s->cfg, where, sizeof where, "lora_model_dir"));
    warn_ignored(s, &s->start.config);
    warn_modules(s, k);
    return AX_OK;
}

static void warn_serving(const struct ax_peft_config *c) {
    const char *what = c->dora ? "DoRA" : c->save.n > 0 ? "lora_modules_to_save" : NULL;
    if (what)
        ax_log_warn("adapter: vLLM does not load adapters with %s; to serve it there, merge it "
                    "into its base (`axtrain merge`)",
                    what);
}

/* As in TRL: what compares answers would compare the noise of dropout, too. */
static void leave_out_dropout(const struct ax_train_setup *s, struct ax_peft_config *c) {
    if (ax_method_of(s->cfg)->task == AX_TASK_TEXT || !(c->dropout > 0))
        return;
    ax_log_info("adapter: its dropout of %g acts in fine-tuning only, and is left out", c->dropout);
    c->dropout = 0;
}

static enum ax_status read_adapter(struct ax_train_setup *s, const struct ax_adapter_keys *k) {
    struct ax_peft_config *c = k->start ? &s->start.config : &s->new_adapter;
    AX_TRY(k->start ? open_start(s, k) : read_new(s, c, k));
    leave_out_dropout(s, c);
    AX_TRY(ax_classifier_adapter(&s->arch, c));
    ax_free(c->base);
    c->base = NULL;
    AX_TRY(ax_strdup(&c->base, s->base_name));
    c->within = s->arch.wrapper ? s->arch.wrapper->module : NULL;
    s->adapter = c;
    if (!s->arch.classifier)
        warn_serving(c);
    return AX_OK;
}

enum ax_status ax_train_adapter_open(struct ax_train_setup *s) {
    char where[256];
    struct ax_adapter_keys k = {0};
    if (!s->adapter_name)
        return AX_OK;
    AX_FILL(s->cfg, "", struct ax_adapter_keys, &k);
    if (s->merges && s->reinit)
        return ax_config_error(s->cfg, "merge_lora",
                               "there is no base to merge into with "
                               "reinit_weights");
    AX_TRY(read_store(s, &k));
    AX_TRY(read_adapter(s, &k));
    const enum ax_status st = with_model(s, s->adapter, look_at_model, s);
    if (st == AX_OK)
        return AX_OK;
    return ax_error_prefix(st, "adapter (%s)",
                           ax_config_where(s->cfg, where, sizeof where, "adapter"));
}

/* ---- merging after training ---- */

/* Removes an earlier result of merge_lora; any other folder is left alone. */
static enum ax_status clear_merged(const char *dst) {
    char *note;
    AX_TRY(ax_path_join(&note, dst, AX_MERGE_NOTE));
    const enum ax_status st = ax_path_exists(note) ? ax_remove_tree(dst) : AX_OK;
    ax_free(note);
    return st;
}

enum ax_status ax_train_merge(const struct ax_train_setup *s, bool keep) {
    const char *out = s->o.save.output_dir;
    char *dst;
    if (!s->adapter || !s->merges)
        return AX_OK;
    AX_TRY(ax_path_join(&dst, out, "merged"));
    if (keep && ax_path_is_dir(dst)) {
        ax_free(dst);
        return AX_OK;
    }
    struct ax_merge m = {.base = s->base, .adapter = out, .dst = dst};
    enum ax_status st = clear_merged(dst);
    if (st == AX_OK)
        st = ax_merge_run(&m);
    ax_free(dst);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "merge_lora");
}
