/* Keys of the optimizer and the learning rate. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/train_setup.h"

/* ---- the optimizer ---- */

/* Whose names begin so: all forms of an optimizer are one here. */
static const struct {
    const char *pattern, *name;
} optimizers[] = {
    {"*adamw*", "adamw"},       {"sgd", "sgd"},   {"*lion*", "lion"},
    {"adafactor", "adafactor"}, {"muon", "muon"},
};

static enum ax_status find_optimizer(struct ax_step_options *so, const char *key) {
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        if (fnmatch(optimizers[i].pattern, key, 0) == 0)
            return ax_optimizer_find(optimizers[i].name, &so->optimizer);
    return ax_optimizer_find(key, &so->optimizer);
}

/* One option of optim_args. */
static enum ax_status set_option(struct ax_optimizer_options *o, const struct ax_config *cfg,
                                 const char *name, const char *text) {
    struct {
        const char *name;
        double *out;
    } const all[] = {
        {"beta1", &o->beta1},
        {"beta2", &o->beta2},
        {"eps", &o->eps},
        {"momentum", &o->momentum},
        {"weight_decay", &o->weight_decay},
    };
    char *end;
    const double v = text ? strtod(text, &end) : 0;
    if (strcmp(name, "nesterov") == 0 && text) {
        o->nesterov = strcmp(text, "true") == 0 || strcmp(text, "True") == 0;
        return AX_OK;
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) != 0)
            continue;
        if (!text || end == text || *end)
            return ax_config_error(cfg, "optim_args", "%s: expected a number, got \"%s\"", name,
                                   text ? text : "");
        *all[i].out = v;
        return AX_OK;
    }
    return ax_config_error(cfg, "optim_args",
                           "\"%s\" is none of beta1, beta2, eps, momentum, nesterov, weight_decay",
                           name);
}

/* A map, or "k=v,k=v". */
static enum ax_status read_args(struct ax_optimizer_options *o, const struct ax_config *cfg) {
    const struct ax_yaml_node *node = ax_config_node(cfg, "optim_args");
    if (!node)
        return AX_OK;
    if (node->kind == AX_YAML_MAP) {
        for (size_t i = 0; i < node->n; i++)
            AX_TRY(set_option(o, cfg, node->entries[i].key, node->entries[i].value->text));
        return AX_OK;
    }
    char *text;
    AX_TRY(ax_strdup(&text, node->text ? node->text : ""));
    enum ax_status st = AX_OK;
    char *rest = text;
    for (char *pair = strsep(&rest, ", "); pair && st == AX_OK; pair = strsep(&rest, ", ")) {
        char *value = strchr(pair, '=');
        if (value)
            *value++ = '\0';
        if (*pair)
            st = set_option(o, cfg, pair, value);
    }
    ax_free(text);
    return st;
}

enum ax_status ax_train_optimizer_read(struct ax_train_options *o, const struct ax_config *cfg) {
    struct ax_step_options *so = &o->step;
    AX_TRY(find_optimizer(so, ax_config_str(cfg, "optimizer")));
    so->opt = (struct ax_optimizer_options){.beta1 = ax_config_f64(cfg, "adam_beta1"),
                                            .beta2 = ax_config_f64(cfg, "adam_beta2"),
                                            .eps = ax_config_f64(cfg, "adam_epsilon"),
                                            .weight_decay = ax_config_f64(cfg, "weight_decay")};
    so->max_norm = ax_config_f64(cfg, "max_grad_norm");
    return read_args(&so->opt, cfg);
}

/* ---- the learning rate ---- */

static enum ax_status set_kwarg(struct ax_lr_schedule *lr, const struct ax_config *cfg,
                                const char *name, const struct ax_yaml_node *v) {
    const bool number = v->kind == AX_YAML_INT || v->kind == AX_YAML_FLOAT;
    if (strcmp(name, "decay_type") == 0 && v->text)
        return ax_lr_decay_parse(v->text, &lr->decay_type);
    const double x = v->number;
    if (!number)
        return ax_config_error(cfg, "lr_scheduler_kwargs", "%s: expected a number", name);
    if (strcmp(name, "num_cycles") == 0)
        lr->num_cycles = x;
    else if (strcmp(name, "power") == 0)
        lr->power = x;
    else if (strcmp(name, "lr_end") == 0)
        lr->lr_end = x;
    else if (strcmp(name, "min_lr") == 0)
        lr->min_lr_ratio = lr->base_lr > 0 ? x / lr->base_lr : 0;
    else if (strcmp(name, "min_lr_rate") == 0 || strcmp(name, "min_lr_ratio") == 0)
        lr->min_lr_ratio = x;
    else if (strcmp(name, "timescale") == 0)
        lr->timescale = (int64_t)x;
    else if (strcmp(name, "num_stable_steps") == 0)
        lr->stable = (int64_t)x;
    else if (strcmp(name, "num_decay_steps") == 0)
        lr->decay = (int64_t)x;
    else
        return ax_config_error(cfg, "lr_scheduler_kwargs",
                               "\"%s\" is none of num_cycles, power, lr_end, min_lr, min_lr_rate, "
                               "timescale, num_stable_steps, num_decay_steps, decay_type",
                               name);
    return AX_OK;
}

enum ax_status ax_train_lr_read(struct ax_train_options *o, const struct ax_config *cfg) {
    struct ax_lr_schedule *lr = &o->lr;
    *lr = (struct ax_lr_schedule){.base_lr = ax_config_f64(cfg, "learning_rate"),
                                  .num_cycles = 0.5,
                                  .lr_end = 1e-7,
                                  .power = 1,
                                  .stable = -1};
    AX_TRY(ax_lr_kind_parse(ax_config_str(cfg, "lr_scheduler"), &lr->kind));
    if (lr->kind == AX_LR_COSINE_WITH_RESTARTS)
        lr->num_cycles = 1;
    if (lr->kind == AX_LR_COSINE && ax_config_has(cfg, "cosine_min_lr_ratio") &&
        ax_config_f64(cfg, "cosine_min_lr_ratio") > 0) {
        lr->kind = AX_LR_COSINE_WITH_MIN_LR;
        lr->min_lr_ratio = ax_config_f64(cfg, "cosine_min_lr_ratio");
    }
    const struct ax_yaml_node *kwargs = ax_config_node(cfg, "lr_scheduler_kwargs");
    for (size_t i = 0; kwargs && i < kwargs->n; i++)
        AX_TRY(set_kwarg(lr, cfg, kwargs->entries[i].key, kwargs->entries[i].value));
    if (ax_config_has(cfg, "adapter") && ax_config_has(cfg, "loraplus_lr_ratio"))
        o->step.lr_groups =
            ax_lr_groups_loraplus(lr->base_lr, ax_config_f64(cfg, "loraplus_lr_ratio"),
                                  ax_config_f64(cfg, "loraplus_lr_embedding"));
    o->warmup = ax_config_has(cfg, "warmup_steps") ? ax_config_i64(cfg, "warmup_steps") : -1;
    o->warmup_ratio = ax_config_has(cfg, "warmup_ratio") ? ax_config_f64(cfg, "warmup_ratio") : -1;
    return AX_OK;
}
