/* trl.reward_funcs: functions, programs, and models among them. ppo.reward_model_path is one more. */
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "model/convert/base_model.h"
#include "cmd/train/rollout.h"

#define FUNCS "trl.reward_funcs"
#define MODEL "ppo.reward_model_path"

/* ---- names ---- */

static size_t listed(const struct ax_reward_keys *k) {
    return k->functions ? k->functions->n : 0;
}

static size_t count(const struct ax_reward_keys *k) {
    return listed(k) + (k->model != NULL);
}

static const char *name_of(const struct ax_reward_keys *k, size_t i) {
    return i < listed(k) ? k->functions->entries[i].value->text : k->model;
}

static double weight_of(const struct ax_reward_keys *k, size_t i) {
    return i < listed(k) && k->weights && k->weights->n > 0 ? k->weights->entries[i].value->number
                                                            : 1;
}

/* "KEY (where)" in front of what went wrong. */
static enum ax_status wrong(const struct ax_reward_keys *k, const struct ax_config *cfg, size_t i,
                            enum ax_status st) {
    char where[256];
    return i < listed(k)
               ? ax_error_prefix(st, FUNCS " (%s)",
                                 ax_config_where(cfg, where, sizeof where, FUNCS ".%zu", i))
               : ax_error_prefix(st, MODEL " (%s)",
                                 ax_config_where(cfg, where, sizeof where, MODEL));
}

/* ---- models ---- */

/* By name if one is not there: a hub id. */
static bool is_same_folder(const char *a, const char *b) {
    struct stat x, y;
    if (stat(a, &x) != 0 || stat(b, &y) != 0)
        return strcmp(a, b) == 0;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* An adapter on the policy's base needs no copy of it. */
static enum ax_status find_lender(struct ax_setup_reward_model *m, const struct ax_config *cfg) {
    char *base;
    if (!m->model.adapter || ax_config_holds(cfg, "reinit_weights || set(model_revision)"))
        return AX_OK;
    AX_TRY(ax_peft_base(m->model.adapter, &base));
    if (is_same_folder(base, ax_config_str(cfg, "base_model")))
        m->model.lender = AX_LENDER_POLICY;
    ax_free(base);
    return AX_OK;
}

static enum ax_status open_models(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                  const struct ax_setup_reward_model_options *each,
                                  struct ax_rollout_options *o) {
    const struct ax_reward_keys *k = &r->reward_keys;
    const size_t n = count(k);
    if (n > AX_ROLLOUT_MAX_REWARDS)
        return ax_config_error(cfg, FUNCS, "at most %d", AX_ROLLOUT_MAX_REWARDS);
    AX_TRY(ax_alloc(&r->models, n, sizeof *r->models));
    for (size_t i = 0; i < n; i++) {
        struct ax_setup_reward_model_options mo = *each;
        mo.name = name_of(k, i);
        if (i < listed(k) && !ax_setup_is_reward_model(mo.name))
            continue;
        enum ax_status st = ax_setup_reward_model_open(&r->models[i], &mo);
        if (st == AX_OK)
            st = find_lender(&r->models[i], cfg);
        if (st != AX_OK)
            return wrong(k, cfg, i, st);
        r->n_models = (int)i + 1;
        o->models[o->n_models++] = &r->models[i].model;
    }
    return AX_OK;
}

/* The title of model i; where another one has it, too, its path. */
static const char *title_of(const struct ax_setup_rollout *r, int i) {
    for (int k = 0; k < r->n_models; k++)
        if (k != i && r->models[k].path && strcmp(r->models[k].title, r->models[i].title) == 0)
            return r->models[i].o.name;
    return r->models[i].title;
}

/* ---- all ---- */

static enum ax_status check(const struct ax_reward_keys *k, const struct ax_config *cfg) {
    const size_t n = listed(k), weights = k->weights ? k->weights->n : 0;
    if (count(k) == 0)
        return ax_config_error(cfg, ax_method_of(cfg)->value ? MODEL : FUNCS,
                               "not set: what are answers worth? See docs/rewards.md");
    if (weights > 0 && weights != n)
        return ax_config_error(cfg, "trl.reward_weights", "%zu weights for %zu functions", weights,
                               n);
    return AX_OK;
}

static enum ax_status open_functions(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                     const struct ax_train_options *o) {
    struct ax_reward_function functions[AX_ROLLOUT_MAX_REWARDS];
    const struct ax_reward_keys *k = &r->reward_keys;
    const size_t n = count(k);
    char *base, *cache;
    for (size_t i = 0; i < n; i++) {
        functions[i] =
            (struct ax_reward_function){.name = name_of(k, i), .weight = weight_of(k, i)};
        if (!r->models[i].path)
            continue;
        functions[i].name = title_of(r, (int)i);
        functions[i].score = ax_setup_reward_model_score;
        functions[i].ctx = &r->models[i];
    }
    AX_TRY(ax_base_model_cache(&base));
    enum ax_status st = ax_path_join(&cache, base, "sandbox");
    ax_free(base);
    AX_TRY(st);
    struct ax_rewards_options ro = {.functions = functions,
                                    .n = (int)n,
                                    .sandbox_cache = cache,
                                    .threads = ax_runtime_threads(&o->runtime)};
    AX_FILL(cfg, "", struct ax_rewards_options, &ro);
    st = ax_rewards_open(&r->rewards, &ro);
    ax_free(cache);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, FUNCS);
}

enum ax_status ax_setup_rewards_open(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                     const struct ax_tokenizer *tokenizer, bool planning,
                                     struct ax_train_options *o) {
    struct ax_rollout_options *ro = &o->rollout;
    const int64_t answer = ro->max_prompt + ro->max_new;
    const struct ax_setup_reward_model_options each = {.planning = planning,
                                                       .answer = answer,
                                                       .tokens =
                                                           o->data.sequences_per_batch * answer,
                                                       .policy = tokenizer};
    AX_FILL(cfg, "", struct ax_reward_keys, &r->reward_keys);
    if (planning)
        return open_models(r, cfg, &each, ro);
    AX_TRY(check(&r->reward_keys, cfg));
    AX_TRY(open_models(r, cfg, &each, ro));
    AX_TRY(open_functions(r, cfg, o));
    ro->rewards = r->rewards;
    return AX_OK;
}

void ax_setup_rewards_close(struct ax_setup_rollout *r) {
    ax_rewards_close(r->rewards);
    for (int i = 0; i < r->n_models; i++)
        ax_setup_reward_model_close(&r->models[i]);
    ax_free(r->models);
}
