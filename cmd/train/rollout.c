#include "cmd/train/rollout.h"

#include <limits.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "cmd/train/mesh.h"
#include "cmd/train/setup.h"
#include "model/convert/base_model.h"

#define GIB       ((double)((uint64_t)1 << 30))
#define AUTO_GIB  1.0 /* of keys and values, if the key does not say */
#define MAX_LANES 128

/* ---- how many ---- */

static const char batch_key[] = "trl.generation_batch_size",
                  batches_key[] = "trl.steps_per_generation";

/* Counts are ints later on. */
static enum ax_status check_size(const struct ax_config *cfg, const char *key, double n) {
    return n <= INT_MAX
               ? AX_OK
               : ax_config_error(cfg, key, "%.0f are too many: a generation has at most %d answers",
                                 n, INT_MAX);
}

/* An answer per prompt; a generation is PPO's batch, or a step's. */
static enum ax_status set_single_sizes(struct ax_rollout_options *r, const struct ax_config *cfg,
                                       const struct ax_train_options *o) {
    const struct ax_mesh_sizes *m = &o->runtime.sizes;
    const int64_t rows = o->data.sequences_per_batch * m->dp_replicate * m->dp_shard;
    const char *key = r->steps > 1 ? "ppo.num_mini_batches" : "micro_batch_size";
    AX_TRY(check_size(cfg, key, (double)rows * o->step.n_microbatches * r->steps));
    r->group = r->eval_group = 1;
    r->prompts = rows * o->step.n_microbatches * r->steps;
    return AX_OK;
}

/* A generation is a multiple of a step and of a group. */
static enum ax_status read_sizes(struct ax_rollout_options *r, const struct ax_rollout_keys *k,
                                 const struct ax_config *cfg, const struct ax_train_options *o) {
    const struct ax_mesh_sizes *m = &o->runtime.sizes;
    const int64_t ranks = (int64_t)m->dp_replicate * m->dp_shard;
    const int64_t rows = o->data.sequences_per_batch * ranks, accumulation = o->step.n_microbatches;
    const int64_t size = k->batch_size, steps = k->batches,
                  batches = size > 0    ? size / rows
                            : steps > 0 ? steps
                                        : accumulation;
    const char *key = size > 0 ? batch_key : steps > 0 ? batches_key : "micro_batch_size";
    if (size > 0 && steps > 0)
        return ax_config_error(cfg, batches_key, "says what %s says: remove one of them",
                               batch_key);
    AX_TRY(check_size(cfg, key, size > 0 ? (double)size : (double)rows * (double)batches));
    const int64_t answers = rows * batches;
    if (r->eval_group == 0)
        r->eval_group = r->group;
    if (size > 0 && answers != size)
        return ax_config_error(cfg, key,
                               "expected a multiple of %lld, which is micro_batch_size "
                               "of all data ranks",
                               (long long)rows);
    if (batches % accumulation != 0)
        return ax_config_error(cfg, key,
                               "%lld micro-batches are generated at a time, but a step takes %lld "
                               "(gradient_accumulation_steps): generate a multiple of that",
                               (long long)batches, (long long)accumulation);
    if (answers % r->group != 0)
        return ax_config_error(cfg, "trl.num_generations",
                               "%lld answers are generated at a time (%s), which is no multiple "
                               "of %lld",
                               (long long)answers,
                               size > 0    ? batch_key
                               : steps > 0 ? "micro_batch_size × trl.steps_per_generation × data "
                                             "ranks"
                                           : "micro_batch_size × gradient_accumulation_steps × "
                                             "data ranks",
                               (long long)r->group);
    r->steps = (int)(batches / accumulation);
    if (r->steps > 1 && (r->staleness > 0 || o->rollout_ranks > 0))
        return ax_config_error(
            cfg, key,
            "answers that are sampled ahead (max_staleness, rollout_ranks) are those of one "
            "step: generate %lld micro-batches at a time",
            (long long)accumulation);
    r->prompts = answers / r->group;
    return AX_OK;
}

/* ---- memory ---- */

/* Of a token's keys and values; the layer that drafts is as the last one. */
static int64_t token_bytes(const struct ax_train_options *o) {
    const int tp = o->runtime.sizes.tp;
    const enum ax_dtype dtype = o->step.model.dtype;
    struct ax_arch last = *o->arch;
    last.layers += last.n_layers - 1;
    last.n_layers = 1;
    return ax_kv_token_bytes(o->arch, tp, dtype) +
           (o->rollout.drafts ? ax_kv_token_bytes(&last, tp, dtype) : 0);
}

/* How many answers at a time, and the room that they share: some are short. */
static void read_room(struct ax_rollout_options *r, const struct ax_config *cfg,
                      const struct ax_train_options *o) {
    const double gib = ax_config_holds(cfg, "generation_kv_memory == auto")
                           ? AUTO_GIB
                           : ax_config_f64(cfg, "generation_kv_memory");
    const double fit = gib * GIB / (double)token_bytes(o);
    const struct ax_mesh_sizes *sizes = &o->runtime.sizes;
    const int64_t ranks = o->rollout_ranks > 0
                              ? o->rollout_ranks
                              : (int64_t)sizes->dp_replicate * sizes->dp_shard * sizes->cp;
    const int64_t own = (r->prompts * r->group + ranks - 1) / ranks;
    r->lanes = own < MAX_LANES ? own : MAX_LANES;
    r->kv_tokens = fit < 1 ? 1 : fit < (double)INT64_MAX / 2 ? (int64_t)fit : INT64_MAX / 2;
    const struct ax_generate_options go = ax_rollout_generator(r, false);
    r->kv_tokens = ax_generate_room(&go);
    r->lanes = r->lanes < r->kv_tokens / AX_KV_BLOCK ? r->lanes : r->kv_tokens / AX_KV_BLOCK;
    r->kv_bytes = r->kv_tokens * token_bytes(o);
}

/* ---- what ends an answer ---- */

#define KWARGS "trl.generation_kwargs"

static enum ax_status add_stop_id(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                  const struct ax_yaml_node *v) {
    struct ax_stop_tokens *stop = &r->stop;
    if (v->kind != AX_YAML_INT || v->integer < 0 || v->integer > INT32_MAX)
        return ax_config_error(cfg, KWARGS, "stop_token_ids: expected token ids");
    if (stop->n == AX_MAX_STOP_TOKENS)
        return ax_config_error(cfg, KWARGS, "stop_token_ids: at most %d ids end an answer",
                               AX_MAX_STOP_TOKENS);
    stop->ids[stop->n++] = (int32_t)v->integer;
    return AX_OK;
}

static enum ax_status add_stop_string(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                      const struct ax_yaml_node *v) {
    if (v->kind != AX_YAML_STRING || !v->text[0])
        return ax_config_error(cfg, KWARGS, "stop_strings: expected texts");
    if (r->n_stop_strings == AX_MAX_STOP_TOKENS)
        return ax_config_error(cfg, KWARGS, "stop_strings: at most %d texts end an answer",
                               AX_MAX_STOP_TOKENS);
    r->stop_strings[r->n_stop_strings++] = v->text;
    return AX_OK;
}

static const struct {
    const char *name;
    enum ax_status (*add)(struct ax_setup_rollout *r, const struct ax_config *cfg,
                          const struct ax_yaml_node *v);
} stops[] = {{"stop_token_ids", add_stop_id}, {"stop_strings", add_stop_string}};

/* One of them, or a list. */
static enum ax_status add_stops(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                const char *name, const struct ax_yaml_node *v) {
    size_t i = 0;
    while (i < sizeof stops / sizeof *stops && strcmp(name, stops[i].name) != 0)
        i++;
    if (i == sizeof stops / sizeof *stops)
        return ax_config_error(cfg, KWARGS,
                               "%s is not supported here; stop_token_ids and stop_strings are, and "
                               "temperature, top_p, top_k, min_p and repetition_penalty are keys "
                               "of trl",
                               name);
    if (v->kind != AX_YAML_LIST)
        return stops[i].add(r, cfg, v);
    for (size_t k = 0; k < v->n; k++)
        AX_TRY(stops[i].add(r, cfg, v->entries[k].value));
    return AX_OK;
}

static enum ax_status read_stop(struct ax_setup_rollout *r, struct ax_rollout_options *o,
                                const struct ax_config *cfg, const struct ax_setup_data *d,
                                const char *base) {
    const struct ax_yaml_node *more = r->keys.stops;
    if (base)
        AX_TRY(ax_setup_stops(&r->stop, base, d));
    for (size_t i = 0; more && i < more->n; i++)
        AX_TRY(add_stops(r, cfg, more->entries[i].key, more->entries[i].value));
    o->n_stop = r->stop.n;
    o->stop = r->stop.ids;
    o->n_stop_strings = r->n_stop_strings;
    o->stop_strings = r->stop_strings;
    return AX_OK;
}

/* ---- advantages ---- */

static void read_scale(struct ax_advantage_options *a, const char *scale) {
    const int found = ax_scale_rewards_find(strcmp(scale, "true") == 0    ? "group"
                                            : strcmp(scale, "false") == 0 ? "none"
                                                                          : scale);
    AX_ASSERT(found >= 0);
    a->scale = (enum ax_scale_rewards)found;
}

/* ---- a teacher of sampled tokens ---- */

static enum ax_status read_teacher(struct ax_teach_options *o, const struct ax_config *cfg) {
    AX_FILL(cfg, "", struct ax_teach_options, o);
    return o->coef > 0 ? AX_OK
                       : ax_config_error(cfg, "kd_alpha",
                                         "is 0: the teacher is not used. Set it above 0, or remove "
                                         "kd_teacher");
}

/* ---- PPO ---- */

/* Its keys beside those of its loss (method.c). */
static void read_ppo(struct ax_setup_rollout *r, const struct ax_config *cfg,
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

/* Where the value model starts from; rewards must be open. */
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

static enum ax_status open_value_model(struct ax_setup_rollout *r,
                                       const struct ax_tokenizer *tokenizer,
                                       struct ax_train_options *o) {
    o->value.objective = &r->value;
    AX_TRY(choose_base(r, tokenizer, o));
    if (!o->step.model.adapter)
        return AX_OK;
    AX_TRY(ax_peft_config_like(&r->value_adapter, o->step.model.adapter));
    o->value.adapter = &r->value_adapter;
    return ax_classifier_adapter(o->value.arch, &r->value_adapter);
}

/* ---- all ---- */

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* A document is a prompt with an answer. Data that are not counted may have prompts of any length. */
static void make_room(struct ax_train_options *o, const struct ax_setup_data *d) {
    struct ax_rollout_options *r = &o->rollout;
    const int64_t most = d->keys.sequence_len[false] - r->max_new,
                  own = least(o->data.doc_tokens, most),
                  eval = least(o->data.eval_doc_tokens, d->keys.sequence_len[true] - r->max_new);
    r->max_prompt = own > eval ? own : eval;
    if (ax_config_holds(d->cfg, "trl.environment_factory")) /* which may add to it */
        r->max_prompt = r->max_prompt > most ? r->max_prompt : most;
    o->data.doc_tokens = o->data.sequence_tokens = r->max_prompt + r->max_new;
    o->data.drop_last = true;
    o->data.drop_partial = o->data.keeps_short = false;
    if (!o->data.eval || !o->step.objective->head.distill)
        return;
    o->data.eval_doc_tokens = o->data.doc_tokens;
    o->data.eval_tokens = d->keys.eval_batch_size * o->data.doc_tokens;
    o->data.eval_docs = d->keys.eval_batch_size;
}

/* With a new adapter the reference is the base without it, so nothing else may change what that computes. */
static enum ax_status check_reference(const struct ax_config *cfg,
                                      const struct ax_rollout_options *o) {
    static const struct {
        const char *when, *key, *why;
    } changes[] = {
        {"lora_modules_to_save", "lora_modules_to_save", "trains modules of the base"},
        {"peft_init_lora_weights == pissa*", "peft_init_lora_weights", "changes the base"},
        {"relora", "relora", "merges the adapter into the base at each restart"},
    };
    const char *by = o->ppo                              ? "ppo.kl_coef"
                     : ax_config_is_set(cfg, "trl.beta") ? "trl.beta"
                                                         : "rl_beta";
    if (!ax_rollout_refers(o) || !ax_config_holds(cfg, "adapter"))
        return AX_OK;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        if (ax_config_holds(cfg, changes[i].when))
            return ax_config_error(cfg, changes[i].key,
                                   "%s, which is the reference of %s: remove it, or set that to 0",
                                   changes[i].why, by);
    return AX_OK;
}

enum ax_status ax_setup_rollout_read(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                     const struct ax_setup_data *d, const char *base,
                                     struct ax_train_options *o) {
    const struct ax_method *method = ax_method_of(cfg);
    const bool distills = ax_config_holds(cfg, "rl == distill");
    struct ax_rollout_options *ro = &o->rollout;
    if (method->task != AX_TASK_PROMPT)
        return AX_OK;
    ro->top_entropy = 1;
    ro->steps = ro->iterations = 1;
    ro->advantages.normalize_then_sum = method->normalize_then_sum;
    AX_FILL(cfg, "", struct ax_rollout_options, ro);
    AX_FILL(cfg, "", struct ax_rollout_keys, &r->keys);
    if (distills)
        ro->own_share = 1 - ax_config_f64(cfg, "trl.lmbda");
    make_room(o, d);
    ro->policy = d->method.objective.head.distill ? NULL : &d->method.policy;
    if (method->value)
        read_ppo(r, cfg, o);
    AX_TRY(check_reference(cfg, ro));
    if (ro->drafts)
        AX_TRY(ax_arch_check_predict(o->arch, "trl.drafts"));
    if (ax_config_has(cfg, "kd_teacher") && ro->policy)
        AX_TRY(read_teacher(&ro->teach, cfg));
    if (ro->ppo || distills) {
        AX_TRY(set_single_sizes(ro, cfg, o));
    } else {
        AX_TRY(read_sizes(ro, &r->keys, cfg, o));
        read_scale(&ro->advantages, r->keys.scale);
    }
    ax_setup_read_sampling(&ro->sampling, cfg);
    AX_TRY(read_stop(r, ro, cfg, d, base));
    ro->tokenizer = d->tok.tokenizer;
    AX_TRY(ax_setup_turns_read(r, cfg, d, !base, ro));
    read_room(ro, cfg, o);
    if (distills)
        return AX_OK;
    AX_TRY(ax_setup_rewards_open(r, cfg, d->tok.tokenizer, !base, o));
    if (ro->n_models > 0 && o->rollout_ranks > 0)
        return ax_config_error(
            cfg, "trl.reward_funcs",
            "a reward model is not supported with rollout_ranks: remove it, or set "
            "rollout_ranks to 0");
    return ro->ppo ? open_value_model(r, d->tok.tokenizer, o) : AX_OK;
}

void ax_setup_rollout_close(struct ax_setup_rollout *r) {
    ax_setup_rewards_close(r);
    ax_peft_config_free(&r->value_adapter);
    *r = (struct ax_setup_rollout){0};
}
