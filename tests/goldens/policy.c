/* objectives/grpo: advantages, and the losses of completions with their gradients. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/goldens/labels.h"
#include "optim/losses/advantages.h"
#include "optim/losses/policy.h"

struct completions {
    struct ax_golden_report *report;
    const struct ax_golden_options *o;
    const struct ax_safetensors *st;
    struct ax_golden_tensor logps, old, reference, sampler, mask, rewards; /* [n][width]; [n] */
    double *advantages;                                                    /* [n] */
    double tokens;
    int64_t group;
};

/* Computes the advantages that a case uses, and compares them. */
static enum ax_status find_advantages(struct completions *c, const char *mode) {
    const int scale = ax_scale_rewards_find(mode);
    char name[64];
    struct ax_golden_tensor want;
    if (scale < 0)
        return ax_error(AX_ERR_DATA, "%s: no advantages are called %s", c->st->path, mode);
    const struct ax_advantage_options o = {
        .group = c->group, .n_rewards = 1, .scale = (enum ax_scale_rewards)scale};
    snprintf(name, sizeof name, "advantages.%s", mode);
    AX_TRY(ax_golden_read(c->st, name, &want));
    const bool match = want.numel == c->rewards.numel;
    ax_advantages(&o, c->rewards.numel, c->rewards.v, c->advantages);
    if (match)
        ax_golden_note(c->report, "advantages",
                       ax_golden_max_abs(c->advantages, want.v, want.numel),
                       AX_GOLDEN_OBJECTIVE_TOLERANCE, mode);
    ax_golden_tensor_free(&want);
    return match ? AX_OK : ax_error(AX_ERR_DATA, "%s: %s has a wrong shape", c->st->path, name);
}

static enum ax_status number_or(struct ax_json e, const char *key, double otherwise, double *out) {
    return ax_json_f64_or(ax_json_get(e, key), otherwise, out);
}

static enum ax_status read_case(struct ax_json e, struct ax_policy_options *o) {
    const char *loss, *importance;
    bool on_policy;
    double cap;
    AX_TRY(ax_json_str(ax_json_get(e, "loss"), &loss));
    if (!ax_policy_loss(loss))
        return ax_json_error(ax_json_get(e, "loss"), "no loss of completions is called %s", loss);
    *o = ax_policy_defaults(loss);
    AX_TRY(ax_json_str_or(ax_json_get(e, "importance"), "token", &importance));
    AX_TRY(ax_json_bool_or(ax_json_get(e, "on_policy"), false, &on_policy));
    o->sequence = strcmp(importance, "sequence") == 0;
    o->old = !on_policy;
    AX_TRY(number_or(e, "epsilon_low", o->epsilon, &o->epsilon));
    AX_TRY(number_or(e, "epsilon_high", o->epsilon_high, &o->epsilon_high));
    AX_TRY(number_or(e, "delta", 0, &o->delta));
    AX_TRY(number_or(e, "beta", 0, &o->beta));
    AX_TRY(ax_json_bool_or(ax_json_get(e, "use_bias_correction_kl"), false, &o->correct_kl));
    AX_TRY(number_or(e, "sampler_ratio_cap", 0, &cap));
    o->sampler = (struct ax_sampler_ratio){.given = cap > 0, .most = cap};
    AX_TRY(number_or(e, "tau_pos", o->sapo_temperature[0], &o->sapo_temperature[0]));
    AX_TRY(number_or(e, "tau_neg", o->sapo_temperature[1], &o->sapo_temperature[1]));
    return ax_json_i64_or(ax_json_get(e, "max_completion_length"), 1, INT32_MAX,
                          o->max_completion_length, &o->max_completion_length);
}

/* Shares of clipped tokens; the file has them also where one ratio is a completion's, of which the
 * product reports completions. */
static enum ax_status compare_measures(const struct completions *c, struct ax_json e,
                                       const struct ax_golden_labels *l,
                                       const struct ax_policy_options *o) {
    static const struct {
        const char *ours, *theirs;
        bool of_tokens;
    } names[] = {{"kl", "kl_mean", false},
                 {"ratio_mean", "ratio_mean", false},
                 {"clip_ratio/low_mean", "clip_low", true},
                 {"clip_ratio/high_mean", "clip_high", true}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int m = 0; l->objective->measures[m]; m++)
            if (strcmp(l->objective->measures[m], names[i].ours) == 0 && l->measures.of[m] > 0 &&
                !(names[i].of_tokens && o->sequence))
                AX_TRY(ax_golden_expect(c->report, e, "grpo", names[i].theirs,
                                        l->measures.sum[m] / l->measures.of[m]));
    return AX_OK;
}

static enum ax_status run_case(struct completions *c, struct ax_json e) {
    struct ax_policy_options o;
    struct ax_policy policy;
    const char *mode;
    double weight;
    AX_TRY(read_case(e, &o));
    AX_TRY(ax_json_str_or(ax_json_get(e, "advantages"), "group", &mode));
    AX_TRY(find_advantages(c, mode));
    const struct ax_objective objective = ax_objective_policy(&policy, &o);
    const double usual = objective.per == AX_PER_TOKEN ? c->tokens : (double)c->logps.shape[0];
    AX_TRY(number_or(e, "num_items_in_batch", usual, &weight));
    struct ax_golden_labels l = {.objective = &objective,
                                 .n = c->logps.shape[0],
                                 .width = c->logps.shape[1],
                                 .mask = c->mask.v,
                                 .logprob = c->logps.v,
                                 .columns = {{"advantage", c->advantages},
                                             {"old", c->old.v},
                                             {"reference", c->reference.v},
                                             {"sampler", c->sampler.v}},
                                 .inv_weight = 1 / weight};
    enum ax_status st;
    AX_TRY_GOTO(ax_golden_labels_run(&l, c->o), st, done);
    AX_TRY_GOTO(ax_golden_expect(c->report, e, "grpo", "loss", l.loss), st, done);
    AX_TRY_GOTO(compare_measures(c, e, &l, &o), st, done);
    st = ax_golden_gradient(c->report, c->st, e, "grpo", "logps", l.g_logprob, c->logps.numel);
done:
    ax_golden_labels_free(&l);
    return st;
}

static enum ax_status run(struct ax_golden_report *r, const char *path, struct ax_json root,
                          const struct ax_golden_options *o, const void *ctx) {
    struct ax_safetensors file;
    (void)ctx;
    AX_TRY(ax_safetensors_open(&file, path));
    struct completions c = {
        .report = r,
        .o = o,
        .st = &file,
    };
    struct {
        const char *name;
        struct ax_golden_tensor *to;
    } const inputs[] = {{"logps", &c.logps},         {"old_logps", &c.old},
                        {"ref_logps", &c.reference}, {"sampler_logps", &c.sampler},
                        {"mask", &c.mask},           {"rewards", &c.rewards}};
    const size_t n = sizeof inputs / sizeof *inputs;
    enum ax_status st;
    AX_TRY_GOTO(ax_json_i64(ax_json_get(root, "group_size"), 1, INT32_MAX, &c.group), st, done);
    for (size_t i = 0; i < n; i++)
        AX_TRY_GOTO(ax_golden_read(&file, inputs[i].name, inputs[i].to), st, done);
    bool match =
        c.logps.ndim == 2 && c.rewards.numel == c.logps.shape[0] && c.rewards.numel % c.group == 0;
    for (size_t i = 0; i + 1 < n; i++)
        match &= inputs[i].to->numel == c.logps.numel;
    if (!match)
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: input shapes do not match", path), st, done);
    AX_TRY_GOTO(ax_alloc(&c.advantages, (size_t)c.rewards.numel, sizeof *c.advantages), st, done);
    for (int64_t i = 0; i < c.mask.numel; i++)
        c.tokens += c.mask.v[i] != 0;
    const struct ax_json cases = ax_json_get(root, "cases");
    for (size_t i = 0; i < ax_json_size(cases); i++)
        AX_TRY_GOTO(run_case(&c, ax_json_at(cases, i)), st, done);
done:
    for (size_t i = 0; i < n; i++)
        ax_golden_tensor_free(inputs[i].to);
    ax_free(c.advantages);
    ax_safetensors_close(&file);
    return st;
}

bool ax_golden_policies(struct ax_golden_report *r, const char *dir,
                        const struct ax_golden_options *o) {
    return ax_golden_objective(r, dir, "grpo", o, run, NULL);
}
