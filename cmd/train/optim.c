/* Keys of the optimizer and the learning rate. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"
#include "cmd/config/table.h"
#include "cmd/train/setup.h"

/* ---- the optimizer ---- */

/* An option of optim_args, and the optimizers that use it. */
struct option {
    const char *name, *readers;
    double *number;
    bool *flag;
    unsigned types; /* AX_T_…, of a number */
};

static enum ax_status set_flag(const struct option *option, const struct ax_config *cfg,
                               const char *text) {
    if (strcasecmp(text, "true") != 0 && strcasecmp(text, "false") != 0)
        return ax_config_error(cfg, "optim_args", "%s: expected true or false, got \"%s\"",
                               option->name, text);
    *option->flag = strcasecmp(text, "true") == 0;
    return AX_OK;
}

static enum ax_status set_number(const struct option *option, const struct ax_config *cfg,
                                 const char *text) {
    char *end;
    const double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v))
        return ax_config_error(cfg, "optim_args", "%s: expected a number, got \"%s\"", option->name,
                               text);
    const struct ax_config_key key = {.types = option->types};
    if (!ax_config_in_range(ax_config_range_of(&key), v)) {
        struct ax_buf want = {0};
        enum ax_status st = ax_config_expected(&key, key.types, &want);
        if (st == AX_OK)
            st = ax_config_error(cfg, "optim_args", "%s: expected %s, got %s", option->name,
                                 want.data, text);
        ax_buf_free(&want);
        return st;
    }
    *option->number = v;
    return AX_OK;
}

/* Sets one option of optim_args. */
static enum ax_status set_option(struct ax_step_options *so, const struct ax_config *cfg,
                                 const char *name, const char *text) {
    struct ax_optimizer_options *o = &so->opt;
    const struct option all[] = {
        {"beta1", "adamw lion muon", &o->beta1, NULL, AX_T_BELOW_ONE},
        {"beta2", "adamw lion muon", &o->beta2, NULL, AX_T_BELOW_ONE},
        {"eps", "adamw muon adafactor", &o->eps, NULL, AX_T_AMOUNT},
        {"eps2", "adafactor", &o->eps2, NULL, AX_T_AMOUNT},
        {"decay_rate", "adafactor", &o->decay_rate, NULL, AX_T_NUM},
        {"clip_threshold", "adafactor", &o->clip_threshold, NULL, AX_T_POSITIVE},
        {"scale_parameter", "adafactor", NULL, &o->scale_parameter, AX_T_BOOL},
        {"momentum", "sgd muon", &o->momentum, NULL, AX_T_AMOUNT},
        {"nesterov", "sgd muon", NULL, &o->nesterov, AX_T_BOOL},
        {"match_rms", "muon", NULL, &o->match_rms, AX_T_BOOL},
        {"weight_decay", "adamw sgd lion muon adafactor", &o->weight_decay, NULL, AX_T_AMOUNT},
    };
    char known[256];
    size_t at = 0;
    known[0] = '\0';
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!strstr(all[i].readers, so->optimizer->name))
            continue;
        if (strcmp(all[i].name, name) == 0)
            return all[i].flag ? set_flag(&all[i], cfg, text ? text : "")
                               : set_number(&all[i], cfg, text ? text : "");
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", at > 0 ? ", " : "",
                               all[i].name);
    }
    return ax_config_error(cfg, "optim_args", "\"%s\" is not an option of %s; expected one of %s",
                           name, so->optimizer->name, known);
}

/* optim_args is a map, or text "k=v,k=v". */
static enum ax_status read_args(struct ax_step_options *so, const struct ax_config *cfg) {
    const struct ax_yaml_node *node = ax_config_node(cfg, "optim_args");
    if (!node)
        return AX_OK;
    if (node->kind == AX_YAML_MAP) {
        for (size_t i = 0; i < node->n; i++)
            AX_TRY(set_option(so, cfg, node->entries[i].key, node->entries[i].value->text));
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
            st = set_option(so, cfg, pair, value);
    }
    ax_free(text);
    return st;
}

/* Defaults of axolotl's own optimizers, which the keys of Adam replace: Muon of one device
 * (axolotl-contribs-mit), whose updates have the size of AdamW's, and AdamW of optimi and torchao, which get groups of
 * parameters from axolotl in which the tables of tokens do not decay. */
static const struct {
    const char *name;
    double beta1, beta2, eps;
    bool match_rms, keeps_tables;
} axolotls[] = {{"muon", 0.95, 0.95, 1e-8, true, false},
                {"optimi_adamw", 0.9, 0.99, 1e-6, false, true},
                {"ao_adamw_fp8", 0.9, 0.999, 1e-8, false, true}};

static void set_axolotls(struct ax_optimizer_options *o, const struct ax_config *cfg) {
    for (size_t i = 0; i < sizeof axolotls / sizeof *axolotls; i++) {
        if (strcmp(axolotls[i].name, ax_config_str(cfg, "optimizer")) != 0)
            continue;
        o->match_rms = axolotls[i].match_rms;
        o->keeps_tables = axolotls[i].keeps_tables;
        if (!ax_config_is_set(cfg, "adam_beta1"))
            o->beta1 = axolotls[i].beta1;
        if (!ax_config_is_set(cfg, "adam_beta2"))
            o->beta2 = axolotls[i].beta2;
        if (!ax_config_is_set(cfg, "adam_epsilon"))
            o->eps = axolotls[i].eps;
    }
}

/* As in transformers' Trainer, Adafactor's epsilons and SGD's momentum keep their own defaults. */
static void read_common(struct ax_step_options *so, const struct ax_config *cfg) {
    const struct ax_optimizer_options own = so->opt;
    AX_FILL(cfg, "", struct ax_optimizer_options, &so->opt);
    set_axolotls(&so->opt, cfg);
    if (so->optimizer != &ax_optimizer_adafactor && so->optimizer != &ax_optimizer_sgd)
        return;
    so->opt.beta1 = own.beta1;
    so->opt.beta2 = own.beta2;
    so->opt.eps = own.eps;
}

enum ax_status ax_train_optimizer_read(struct ax_train_options *o, const struct ax_config *cfg) {
    struct ax_step_options *so = &o->step;
    AX_TRY(ax_optimizer_find(ax_config_str(cfg, "optimizer"), &so->optimizer, &so->opt));
    read_common(so, cfg);
    AX_FILL(cfg, "", struct ax_offload, &so->model.offload);
    if (ax_config_is_set(cfg, "moment_dtype"))
        AX_TRY(ax_moments_parse(ax_config_str(cfg, "moment_dtype"), &so->opt.moments));
    if (so->model.masters != AX_MASTERS_ACCUM && so->model.dtype != AX_BF16)
        return ax_config_error(cfg, "master_dtype",
                               "masters in bfloat16 need bf16: true, but this run computes in "
                               "float32");
    if (so->model.masters != AX_MASTERS_ACCUM && so->model.adapter)
        return ax_config_error(cfg, "master_dtype",
                               "an adapter is trained and saved in float32: remove the key");
    AX_TRY(read_args(so, cfg));
    return ax_optimizer_check(so->optimizer, &so->opt);
}

/* ---- the learning rate ---- */

#define CYCLE_MOMENTUM "cycle_momentum"

/* An option of lr_scheduler_kwargs, and the schedules that have it: bits 1 << enum ax_lr_kind. One with
 * neither field is a word. */
struct kwarg {
    const char *name;
    unsigned kinds;
    double *number;
    int64_t *count;
    bool off; /* what it asks for is not implemented: it can only be false */
};

static enum ax_status put_kwarg(const struct kwarg *kwarg, struct ax_lr_schedule *lr,
                                const struct ax_config *cfg, const struct ax_yaml_node *v) {
    const bool number = v->kind == AX_YAML_INT || v->kind == AX_YAML_FLOAT;
    const double x = number ? v->number : -1;
    if (kwarg->off && (v->kind != AX_YAML_BOOL || v->boolean))
        return ax_config_error(cfg, "lr_scheduler_kwargs", "%s: expected false", kwarg->name);
    if (kwarg->off)
        return AX_OK;
    if (!kwarg->number && !kwarg->count)
        return ax_lr_decay_parse(v->text ? v->text : "", &lr->decay_type);
    if (!isfinite(x) || x < 0 || (kwarg->count && (x != floor(x) || x > 1e15)))
        return ax_config_error(cfg, "lr_scheduler_kwargs", "%s: expected %s, 0 or more",
                               kwarg->name, kwarg->count ? "a number of steps" : "a number");
    if (kwarg->count)
        *kwarg->count = (int64_t)x;
    else if (strcmp(kwarg->name, "min_lr") == 0)
        *kwarg->number = lr->base_lr > 0 ? x / lr->base_lr : 0;
    else
        *kwarg->number = x;
    return AX_OK;
}

static enum ax_status set_kwarg(struct ax_lr_schedule *lr, const struct ax_config *cfg,
                                const char *name, const struct ax_yaml_node *v) {
    enum {
        FLOOR = 1U << AX_LR_COSINE_WITH_MIN_LR,
        STABLE = 1U << AX_LR_WARMUP_STABLE_DECAY,
        WAVES = 1U << AX_LR_COSINE | 1U << AX_LR_COSINE_WITH_RESTARTS | FLOOR | STABLE,
        POWER = 1U << AX_LR_POLYNOMIAL,
    };
    const struct kwarg all[] = {
        {"num_cycles", WAVES, &lr->num_cycles, NULL, false},
        {"power", POWER, &lr->power, NULL, false},
        {"lr_end", POWER, &lr->lr_end, NULL, false},
        {"min_lr", FLOOR | STABLE, &lr->min_lr_ratio, NULL, false},
        {"min_lr_rate", FLOOR | STABLE, &lr->min_lr_ratio, NULL, false},
        {"min_lr_ratio", FLOOR | STABLE, &lr->min_lr_ratio, NULL, false},
        {"timescale", 1U << AX_LR_INVERSE_SQRT, NULL, &lr->timescale, false},
        {"num_stable_steps", STABLE, NULL, &lr->stable, false},
        {"num_decay_steps", STABLE, NULL, &lr->decay, false},
        {"decay_type", STABLE, NULL, NULL, false},
        {CYCLE_MOMENTUM, 1U << AX_LR_ONE_CYCLE, NULL, NULL, true},
    };
    char known[256] = "";
    size_t at = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!(all[i].kinds >> lr->kind & 1U))
            continue;
        if (strcmp(all[i].name, name) == 0)
            return put_kwarg(&all[i], lr, cfg, v);
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", at > 0 ? ", " : "",
                               all[i].name);
    }
    return ax_config_error(cfg, "lr_scheduler_kwargs",
                           "\"%s\" is not an option of %s, which has %s", name,
                           ax_lr_kind_name(lr->kind), at > 0 ? known : "none");
}

/* What transformers asks for, too: without these options two schedules would be another one, and the
 * third would rise. */
static enum ax_status check_kwargs(const struct ax_lr_schedule *lr, const struct ax_config *cfg,
                                   const struct ax_yaml_node *kwargs) {
    const char *const floors[] = {"min_lr", "min_lr_rate", "min_lr_ratio"};
    int n_floors = 0;
    for (size_t i = 0; i < 3 && kwargs; i++)
        n_floors += ax_yaml_get(kwargs, floors[i]) != NULL;
    if (n_floors > 1)
        return ax_config_error(cfg, "lr_scheduler_kwargs",
                               "min_lr and min_lr_rate (or min_lr_ratio) are the same floor: give "
                               "one of them");
    if (lr->kind == AX_LR_COSINE_WITH_MIN_LR && n_floors == 0)
        return ax_config_error(cfg, "lr_scheduler",
                               "cosine_with_min_lr needs lr_scheduler_kwargs with min_lr or "
                               "min_lr_rate");
    if (lr->min_lr_ratio > 1)
        return ax_config_error(
            cfg, "lr_scheduler_kwargs",
            "min_lr must be at most learning_rate, and min_lr_rate, a fraction of "
            "it, at most 1");
    if (lr->kind == AX_LR_WARMUP_STABLE_DECAY && lr->decay == 0)
        return ax_config_error(cfg, "lr_scheduler",
                               "warmup_stable_decay needs lr_scheduler_kwargs with "
                               "num_decay_steps, 1 or more");
    if (lr->kind == AX_LR_POLYNOMIAL && !(lr->lr_end < lr->base_lr))
        return ax_config_error(cfg, "learning_rate",
                               "must be above lr_end (%g) of lr_scheduler_kwargs, where "
                               "polynomial ends",
                               lr->lr_end);
    return AX_OK;
}

static enum ax_status read_kwargs(struct ax_lr_schedule *lr, const struct ax_config *cfg) {
    const struct ax_yaml_node *kwargs = ax_config_node(cfg, "lr_scheduler_kwargs");
    if (lr->kind == AX_LR_ONE_CYCLE && !(kwargs && ax_yaml_get(kwargs, CYCLE_MOMENTUM)))
        ax_log_warn("lr_scheduler: one_cycle moves the learning rate alone; axolotl's also moves "
                    "beta1 or the momentum, from 0.95 to 0.85 and back, unless "
                    "lr_scheduler_kwargs is {" CYCLE_MOMENTUM ": false}");
    for (size_t i = 0; kwargs && i < kwargs->n; i++)
        AX_TRY(set_kwarg(lr, cfg, kwargs->entries[i].key, kwargs->entries[i].value));
    return check_kwargs(lr, cfg, kwargs);
}

/* 0: unset. */
static double number_of(const struct ax_config *cfg, const char *key) {
    return ax_config_has(cfg, "%s", key) ? ax_config_f64(cfg, "%s", key) : 0;
}

/* Axolotl's variants of the cosine schedule. There, quadratic warmup cannot be combined with a
 * floor. */
static enum ax_status read_floor(struct ax_lr_schedule *lr, const struct ax_config *cfg) {
    const char *const floor = "cosine_min_lr_ratio", *const constant = "cosine_constant_lr_ratio";
    const double ratio = number_of(cfg, floor), end = number_of(cfg, constant);
    if (lr->kind == AX_LR_REX)
        lr->min_lr_ratio = ratio;
    if (lr->kind != AX_LR_COSINE)
        return AX_OK;
    if (lr->quadratic_warmup && (ratio > 0 || end > 0))
        return ax_config_error(cfg, "lr_quadratic_warmup", "cannot be combined with %s or %s",
                               floor, constant);
    if (end > 0 && ratio == 0)
        return ax_config_error(cfg, constant, "needs %s, the rate that it keeps", floor);
    if (ratio > 0) {
        lr->kind = AX_LR_COSINE_WITH_MIN_LR;
        lr->min_lr_ratio = ratio;
        lr->constant_ratio = end;
    }
    return AX_OK;
}

static enum ax_status read_relora(struct ax_train_options *o, const struct ax_config *cfg) {
    if (!ax_config_holds(cfg, "relora"))
        return AX_OK;
    if (o->step.optimizer != &ax_optimizer_adamw)
        return ax_config_error(cfg, "optimizer",
                               "relora resets the moments of AdamW, but %s is set; use adamw_torch",
                               o->step.optimizer->name);
    o->step.relora.interval = o->lr.restart;
    return AX_OK;
}

/* Of a count that is 0, axolotl has a default. */
static void read_restarts(struct ax_lr_schedule *lr, const struct ax_config *cfg) {
    const double ratio = number_of(cfg, "cosine_min_lr_ratio");
    lr->restart_warmup = lr->restart_warmup > 0 ? lr->restart_warmup : 10;
    lr->restart_anneal = lr->restart_anneal > 0 ? lr->restart_anneal : 1;
    lr->restart_floor = ratio > 0 ? ratio : 0.001;
}

enum ax_status ax_train_lr_read(struct ax_train_options *o, const struct ax_config *cfg) {
    struct ax_lr_schedule *lr = &o->lr;
    *lr = (struct ax_lr_schedule){.num_cycles = 0.5,
                                  .lr_end = 1e-7,
                                  .power = 1,
                                  .stable = -1,
                                  .decay_type = AX_LR_DECAY_COSINE};
    AX_FILL(cfg, "", struct ax_lr_schedule, lr);
    if (lr->kind == AX_LR_COSINE_WITH_RESTARTS)
        lr->num_cycles = 1;
    AX_TRY(read_kwargs(lr, cfg)); /* before a floor makes another kind of cosine */
    AX_TRY(read_floor(lr, cfg));
    read_restarts(lr, cfg);
    AX_TRY(read_relora(o, cfg));
    if (!ax_config_holds(cfg, "adapter && loraplus_lr_ratio"))
        return AX_OK;
    o->step.lr_groups = ax_lr_groups_loraplus(lr->base_lr, number_of(cfg, "loraplus_lr_ratio"),
                                              number_of(cfg, "loraplus_lr_embedding"));
    o->step.opt.weight_decay = 0; /* as in PEFT, whose groups have a decay of their own */
    return AX_OK;
}
