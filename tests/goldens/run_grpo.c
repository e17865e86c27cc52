/* grpo: TRL's GRPOTrainer on recorded completions. A document is a prompt with one of its completions;
 * means over tokens are of a micro-batch (bnpo) or of what was generated at a time (dapo, cispo,
 * vespo). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/goldens/run.h"

#define MAX_PASSES 1024 /* micro-batches that one generated batch is trained on in */

static enum ax_status number_or(const struct ax_run *r, const char *key, double *value) {
    return ax_json_f64_or(ax_run_setting(r, key), *value, value);
}

static enum ax_status count_or(const struct ax_run *r, const char *key, int64_t otherwise,
                               int64_t *out) {
    const struct ax_json v = ax_run_setting(r, key);
    *out = otherwise;
    return json_is_null(v.v) ? AX_OK : ax_json_i64_or(v, 1, 1 << 20, otherwise, out);
}

/* true and false are group and none, too. */
static enum ax_status read_scale(const struct ax_run *r, struct ax_advantage_options *o) {
    const struct ax_json v = ax_run_setting(r, "scale_rewards");
    const char *name = json_is_false(v.v) ? "none" : "group";
    if (json_is_string(v.v))
        AX_TRY(ax_json_str(v, &name));
    const int scale = ax_scale_rewards_find(name);
    if (scale < 0)
        return ax_json_error(v, "\"%s\" is not supported", name);
    o->scale = (enum ax_scale_rewards)scale;
    return AX_OK;
}

static enum ax_status read_weights(const struct ax_run *r, struct ax_run_rollouts *o) {
    const struct ax_json list = ax_run_setting(r, "reward_weights");
    const size_t n = sizeof o->weights / sizeof *o->weights;
    if (ax_json_size(list) == 0)
        return AX_OK;
    if (ax_json_size(list) != n)
        return ax_json_error(list, "expected a weight of each of %zu functions", n);
    for (size_t i = 0; i < n; i++)
        AX_TRY(ax_json_f64(ax_json_at(list, i), &o->weights[i]));
    o->o.weights = o->weights;
    return AX_OK;
}

static enum ax_status read_rollouts(struct ax_run *r, int64_t accumulation) {
    struct ax_run_rollouts *o = &r->rollouts;
    int64_t batches, iterations, rows;
    const char *aggregation;
    AX_TRY(count_or(r, "num_generations", 8, &o->o.group));
    AX_TRY(count_or(r, "steps_per_generation", accumulation, &batches));
    AX_TRY(count_or(r, "num_iterations", 1, &iterations));
    AX_TRY(count_or(r, "per_device_train_batch_size", 8, &rows));
    if (batches * iterations > MAX_PASSES)
        return ax_json_error(r->settings, "more than %d micro-batches are generated at a time",
                             MAX_PASSES);
    o->batches = (int)batches;
    o->iterations = (int)iterations;
    o->rows = (int)rows;
    AX_TRY(read_scale(r, &o->o));
    AX_TRY(read_weights(r, o));
    AX_TRY(ax_json_bool_or(ax_run_setting(r, "mask_truncated_completions"), false, &o->masks));
    AX_TRY(ax_json_str_or(ax_run_setting(r, "multi_objective_aggregation"), "sum_then_normalize",
                          &aggregation));
    o->o.normalize_then_sum = strcmp(aggregation, "normalize_then_sum") == 0;
    return ax_run_rollouts_open(r);
}

static enum ax_status read_losses(struct ax_run *r, struct ax_policy_options *o) {
    const char *type, *level;
    AX_TRY(ax_json_str_or(ax_run_setting(r, "loss_type"), "dapo", &type));
    AX_TRY(ax_json_str_or(ax_run_setting(r, "importance_sampling_level"), "token", &level));
    if (!ax_policy_loss(type))
        return ax_error(AX_ERR_UNSUPPORTED, "loss_type: \"%s\" is not supported", type);
    *o = ax_policy_defaults(type);
    o->sequence = strcmp(level, "sequence") == 0;
    AX_TRY(number_or(r, "epsilon", &o->epsilon));
    o->epsilon_high = o->epsilon;
    struct {
        const char *key;
        double *value;
    } const numbers[] = {{"epsilon_high", &o->epsilon_high},
                         {"delta", &o->delta},
                         {"beta", &o->beta},
                         {"entropy_coef", &o->entropy_coef},
                         {"sapo_temperature_pos", &o->sapo_temperature[0]},
                         {"sapo_temperature_neg", &o->sapo_temperature[1]},
                         {"vespo_k_pos", &o->vespo_k[0]},
                         {"vespo_k_neg", &o->vespo_k[1]},
                         {"vespo_lambda_pos", &o->vespo_lambda[0]},
                         {"vespo_lambda_neg", &o->vespo_lambda[1]}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!json_is_null(ax_run_setting(r, numbers[i].key).v))
            AX_TRY(number_or(r, numbers[i].key, numbers[i].value));
    AX_TRY(ax_json_bool_or(ax_run_setting(r, "use_bias_correction_kl"), true, &o->correct_kl));
    return count_or(r, "max_completion_length", o->max_completion_length,
                    &o->max_completion_length);
}

/* TRL's corrections where tokens came from another sampler, whose log-probs are recorded then. */
static enum ax_status read_sampler(const struct ax_run *r, struct ax_policy_options *o) {
    const char *mode;
    AX_TRY(
        ax_json_str_or(ax_run_setting(r, "vllm_importance_sampling_mode"), "sequence_mask", &mode));
    o->sampler = (struct ax_sampler_ratio){
        .given = ax_safetensors_find(&r->own, "m00.sampling_per_token_logps") != NULL,
        .sequence = strncmp(mode, "sequence", 8) == 0,
        .masks = strstr(mode, "mask") != NULL,
        .most = 3};
    AX_TRY(number_or(r, "vllm_importance_sampling_clip_min", &o->sampler.least));
    AX_TRY(number_or(r, "vllm_importance_sampling_clip_max", &o->sampler.most));
    return number_or(r, "off_policy_mask_threshold", &o->off_policy_threshold);
}

static double top_quantile(const struct ax_run *r) {
    double top = 1;
    return number_or(r, "top_entropy_quantile", &top) == AX_OK ? top : 1;
}

/* vespo's weights multiply rounding by ten. GDPO's advantages of equal rewards are 0 but for rounding
 * (−3e-9 in the reference), of which Adam makes steps. */
static enum ax_status objective(struct ax_run *r) {
    struct ax_policy_options o;
    int64_t accumulation;
    double temperature = 1;
    AX_TRY(count_or(r, "gradient_accumulation_steps", 1, &accumulation));
    AX_TRY(read_losses(r, &o));
    AX_TRY(read_sampler(r, &o));
    AX_TRY(read_rollouts(r, accumulation));
    o.old = o.sampler.given ||
            accumulation % ((int64_t)r->rollouts.batches * r->rollouts.iterations) != 0;
    o.entropy_mask = top_quantile(r) < 1;
    AX_TRY(number_or(r, "temperature", &temperature));
    r->objective = ax_objective_policy(&r->policy, &o);
    r->objective.temperature = temperature;
    if (strcmp(o.loss->name, "vespo") == 0) {
        r->loss = 1e-4;
        r->grad_norm = 5e-5;
    }
    /* Products of ratios multiply rounding. */
    if (o.sampler.given) {
        r->loss = 5e-5;
        r->grad_norm = 3e-5;
    }
    /* Where all rewards are equal, TRL's are about −3e-9 and ours 0 (runs/README.md: "about 0"). Adam
     * divides a gradient by its own size, so that some weights make a whole step there and none here. */
    if (r->rollouts.o.normalize_then_sum)
        r->later_share = 1e-2;
    return AX_OK;
}

/* ---- documents ---- */

/* Tokens that are not those of the data's completion; one that is masked has none. */
static void compare_completion(struct ax_run *r, int k, int i) {
    const struct ax_run_micro *m = &r->micro[k];
    const json_t *want = r->rollouts.ids[ax_run_completion_of(r, k, i)];
    const int64_t prompt = m->prompt[i], n = m->docs[i].n - prompt;
    int64_t first = 0;
    double differ = fabs((double)json_array_size(want) - (double)n);
    char where[64];
    if (r->rollouts.masks && n == 0)
        return;
    for (int d = 0; d < i; d++)
        first += m->docs[d].n;
    for (int64_t t = 0; t < n; t++)
        differ += json_integer_value(json_array_get(want, (size_t)t)) != m->ids[first + prompt + t];
    snprintf(where, sizeof where, "micro-batch %d of the run, document %d", k + 1, i + 1);
    ax_golden_note(r->report, "tokens of completions that differ", differ, 0, where);
}

static enum ax_status read_completions(struct ax_run *r, int k, struct ax_run_micro *m) {
    AX_TRY(ax_run_read_answers(r, k, m));
    if (m->n != r->rollouts.rows)
        return ax_error(AX_ERR_DATA, "%s: micro-batch %d has %d rows, expected %d", r->fed.path, k,
                        m->n, r->rollouts.rows);
    for (int i = 0; i < m->n; i++) {
        m->advantage[i] = (float)r->rollouts.advantage[ax_run_completion_of(r, k, i)];
        compare_completion(r, k, i);
    }
    return AX_OK;
}

/* ---- what the reference divides by ---- */

static void bound_entropy(const struct ax_run *r, const struct ax_run_micro *m,
                          struct ax_run_divisors *d) {
    double *entropies;
    int64_t n = 0, kept;
    d->entropy_tokens = (double)m->scored;
    if (!r->policy.o.entropy_mask || m->scored == 0 ||
        ax_alloc(&entropies, (size_t)m->scored, sizeof *entropies) != AX_OK)
        return;
    for (int64_t t = 0; t < m->tokens; t++)
        if (m->labels[t] >= 0)
            entropies[n++] = m->entropy[t];
    d->entropy_cut = ax_policy_entropy_cut(entropies, n, top_quantile(r), &kept);
    d->entropy_tokens = (double)kept;
    ax_free(entropies);
}

/* The loss is per token of the generated batch, not of the micro-batch. */
static bool per_batch(const struct ax_run *r) {
    return r->objective.per == AX_PER_TOKEN && strcmp(r->policy.o.loss->name, "bnpo") != 0;
}

static struct ax_run_divisors divide(const struct ax_run *r, int k, int n) {
    const struct ax_run_micro *m = &r->micro[k];
    struct ax_run_divisors d = {.weight = (double)m->n};
    if (strcmp(r->policy.o.loss->name, "bnpo") == 0)
        d.weight = fmax((double)m->scored, 1);
    else if (per_batch(r))
        d.weight = fmax(ax_run_generated_tokens(r, k), 1) / r->rollouts.batches;
    bound_entropy(r, m, &d);
    d.weight *= n;
    d.entropy_tokens = fmax(d.entropy_tokens, 1) * n;
    return d;
}

/* ---- metrics ---- */

/* The loss without what entropy adds to it, and a count that is the generated batch's. */
static void metrics(const struct ax_run *r, const struct ax_run_micro *m,
                    struct ax_run_metrics *out) {
    const double coef = r->policy.o.entropy_coef;
    const int k = (int)(m - r->micro);
    ax_run_metric_add(out, "num_items_in_batch", ax_run_generated_tokens(r, k));
    if (coef == 0)
        return;
    int step = 0;
    while (r->first[step + 1] <= k)
        step++;
    const int n = r->first[step + 1] - r->first[step];
    const struct ax_run_divisors d = divide(r, k, n);
    double entropy = 0;
    for (int64_t t = 0; t < m->tokens; t++)
        entropy += m->labels[t] >= 0 && m->entropy[t] >= d.entropy_cut ? m->entropy[t] : 0;
    const double policy = m->loss + coef * entropy / d.entropy_tokens; /* a micro-batch's share */
    ax_run_metric_add(out, "policy_loss", per_batch(r) ? policy : policy * n);
    ax_run_metric_add(out, "entropy_coef", coef);
}

const struct ax_run_family ax_run_family_grpo = {.name = "grpo",
                                                 .loss = 2e-5,
                                                 .grad_norm = 1e-5,
                                                 .objective = objective,
                                                 .read = read_completions,
                                                 .record = ax_run_answer_record,
                                                 .metrics = metrics,
                                                 .step_metrics = ax_run_rollout_metrics,
                                                 .divide = divide};

/* How far another sampler was: TRL's figures are those of a generation, and ours of a step's micro-batches. */
static const char *const of_samplers[] = {"sampling/*", NULL};

/* Completions that call tools. */
const struct ax_run_family ax_run_family_grpo_tools = {.name = "grpo_tools",
                                                       .loss = 5e-6,
                                                       .grad_norm = 1e-5,
                                                       .ignore = of_samplers,
                                                       .objective = objective,
                                                       .read = ax_run_read_turns,
                                                       .compare = ax_run_compare_turns,
                                                       .metrics = metrics,
                                                       .step_metrics = ax_run_rollout_metrics,
                                                       .divide = divide};
