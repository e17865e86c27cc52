/* ppo: its keys beside those of its loss (method.c), and the value model. */
#include "base/log.h"
#include "cmd/train/setup.h"

void ax_setup_ppo_read(struct ax_setup_rollout *r, const struct ax_config *cfg,
                       struct ax_train_options *o) {
    const char *estimator = r->keys.kl_estimator;
    r->ppo = (struct ax_rollout_ppo){.kl = (enum ax_kl_estimator)ax_kl_estimator_find(estimator)};
    r->value_options = (struct ax_value_options){0};
    AX_FILL(cfg, "", struct ax_rollout_ppo, &r->ppo);
    AX_FILL(cfg, "", struct ax_value_options, &r->value_options);
    r->value = ax_objective_value(&r->value_options);
    o->rollout.ppo = &r->ppo;
}

/* The model of ppo.reward_model_path, which is the last one; NULL: the key is unset. */
static struct ax_setup_reward_model *judge(const struct ax_setup_rollout *r) {
    const struct ax_reward_keys *k = &r->reward_keys;
    return k->model ? &r->models[k->functions ? k->functions->n : 0] : NULL;
}

/* A model of its own that reads the policy's tokens. */
static bool can_value(const struct ax_setup_reward_model *m, const struct ax_arch *policy,
                      const struct ax_tokenizer *tokenizer) {
    const struct ax_tokenizer *own = m->reader.scorer.side.tokenizer;
    return m->model.arch->classifier == &ax_classifier_reward && !m->model.adapter &&
           m->model.arch->vocab_size == policy->vocab_size &&
           (!own || !tokenizer || ax_train_other_token(tokenizer, own) < 0);
}

/* Where it starts from. */
static enum ax_status choose_base(struct ax_setup_rollout *r, const struct ax_tokenizer *tokenizer,
                                  struct ax_train_options *o) {
    struct ax_setup_reward_model *m = judge(r);
    o->value.on_policy = !m || !can_value(m, o->arch, tokenizer);
    if (!o->value.on_policy) {
        m->model.lender = AX_LENDER_VALUE;
        o->value.arch = m->model.arch;
        o->value.weights = m->model.weights;
        return AX_OK;
    }
    if (m)
        ax_log_info("ppo: the value model starts from base_model: %s is an adapter, a process "
                    "reward model, or has other tokens",
                    m->path);
    r->value_arch = *o->arch;
    o->value.arch = &r->value_arch;
    o->value.weights = o->weights;
    return ax_classifier_choose(&r->value_arch, &ax_classifier_reward);
}

enum ax_status ax_setup_value_open(struct ax_setup_rollout *r, const struct ax_tokenizer *tokenizer,
                                   struct ax_train_options *o) {
    o->value.objective = &r->value;
    AX_TRY(choose_base(r, tokenizer, o));
    if (!o->step.model.adapter)
        return AX_OK;
    AX_TRY(ax_peft_config_like(&r->value_adapter, o->step.model.adapter));
    o->value.adapter = &r->value_adapter;
    return ax_classifier_adapter(o->value.arch, &r->value_adapter);
}
