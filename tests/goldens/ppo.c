/* objectives/ppo: rewards of tokens, their advantages and returns, and the clipped losses of policy and
 * values. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tests/goldens/labels.h"
#include "optim/losses/gae.h"
#include "optim/losses/policy.h"
#include "optim/losses/value.h"

struct ppo {
    struct ax_golden_report *report;
    const struct ax_golden_options *o;
    const struct ax_safetensors *st;
    struct ax_golden_tensor logps, old, reference, values, old_values, mask, scores;
    double *rewards, *advantages, *returns; /* [n][width] */
    double tokens;
};

static enum ax_status number(struct ax_json e, const char *key, double *out) {
    return ax_json_f64(ax_json_get(e, key), out);
}

static enum ax_status compare(const struct ppo *c, struct ax_json e, const char *field,
                              const double *got) {
    const char *name;
    char full[128], group[80];
    struct ax_golden_tensor want;
    double largest = 0;
    AX_TRY(ax_json_str(ax_json_get(e, "name"), &name));
    snprintf(full, sizeof full, "%s.%s", name, field);
    AX_TRY(ax_golden_read(c->st, full, &want));
    const bool match = want.numel == c->mask.numel;
    for (int64_t i = 0; i < want.numel; i++)
        largest = fmax(largest, fabs(want.v[i]));
    snprintf(group, sizeof group, "ppo %s", field);
    if (match)
        ax_golden_note(c->report, group,
                       ax_golden_max_abs(got, want.v, want.numel) / fmax(largest, 1e-2),
                       AX_GOLDEN_OBJECTIVE_TOLERANCE, name);
    ax_golden_tensor_free(&want);
    return match ? AX_OK : ax_error(AX_ERR_DATA, "%s: %s has a wrong shape", c->st->path, full);
}

/* Row by row; a completion's tokens come first. */
static enum ax_status find_advantages(struct ppo *c, struct ax_json e) {
    const int64_t width = c->mask.shape[1];
    const char *name;
    double gamma, lambda, coef;
    AX_TRY(number(e, "gamma", &gamma));
    AX_TRY(number(e, "lam", &lambda));
    AX_TRY(number(e, "kl_coef", &coef));
    AX_TRY(ax_json_str(ax_json_get(e, "kl"), &name));
    const int kl = ax_kl_estimator_find(name);
    if (kl < 0)
        return ax_json_error(ax_json_get(e, "kl"), "no estimator is called %s", name);
    for (int64_t i = 0; i < c->mask.numel; i++)
        c->rewards[i] = c->advantages[i] = c->returns[i] = 0;
    for (int64_t row = 0; row < c->mask.shape[0]; row++) {
        const int64_t at = row * width;
        int64_t n = 0;
        while (n < width && c->mask.v[at + n] != 0)
            n++;
        ax_token_rewards((enum ax_kl_estimator)kl, coef, n, c->old.v + at, c->reference.v + at,
                         c->scores.v[row], n, c->rewards + at);
        ax_gae(gamma, lambda, n, c->rewards + at, c->old_values.v + at, c->advantages + at);
        for (int64_t t = at; t < at + n; t++)
            c->returns[t] = c->advantages[t] + c->old_values.v[t];
    }
    AX_TRY(compare(c, e, "token_rewards", c->rewards));
    AX_TRY(compare(c, e, "raw_advantages", c->advantages));
    return compare(c, e, "returns", c->returns);
}

/* Over all tokens of the batch. */
static enum ax_status whiten(struct ppo *c, struct ax_json e) {
    bool wanted;
    double *x;
    int64_t n = 0, k = 0;
    AX_TRY(ax_json_bool_or(ax_json_get(e, "whiten"), true, &wanted));
    AX_TRY(ax_alloc(&x, (size_t)c->mask.numel, sizeof *x));
    for (int64_t i = 0; i < c->mask.numel; i++)
        if (c->mask.v[i] != 0)
            x[n++] = c->advantages[i];
    if (wanted)
        ax_whiten(n, x);
    for (int64_t i = 0; i < c->mask.numel; i++)
        if (c->mask.v[i] != 0)
            c->advantages[i] = x[k++];
    ax_free(x);
    return compare(c, e, "advantages", c->advantages);
}

static double measure(const struct ax_golden_labels *l, const char *name) {
    for (int m = 0; l->objective->measures[m]; m++)
        if (strcmp(l->objective->measures[m], name) == 0)
            return l->measures.sum[m] / l->measures.of[m];
    return NAN;
}

static struct ax_golden_labels labels_of(const struct ppo *c, const struct ax_objective *o) {
    return (struct ax_golden_labels){.objective = o,
                                     .n = c->mask.shape[0],
                                     .width = c->mask.shape[1],
                                     .mask = c->mask.v,
                                     .inv_weight = 1 / c->tokens};
}

static enum ax_status run_policy(const struct ppo *c, struct ax_json e, double *loss) {
    struct ax_policy policy;
    struct ax_policy_options o = ax_policy_defaults("bnpo");
    enum ax_status st;
    AX_TRY(number(e, "cliprange", &o.epsilon));
    o.epsilon_high = o.epsilon;
    o.token_advantages = o.old = true;
    const struct ax_objective objective = ax_objective_policy(&policy, &o);
    struct ax_golden_labels l = labels_of(c, &objective);
    l.logprob = c->logps.v;
    l.columns[0].name = "advantage";
    l.columns[0].values = c->advantages;
    l.columns[1].name = "old";
    l.columns[1].values = c->old.v;
    AX_TRY_GOTO(ax_golden_labels_run(&l, c->o), st, done);
    *loss += l.loss;
    AX_TRY_GOTO(ax_golden_expect(c->report, e, "ppo", "policy_loss", l.loss), st, done);
    AX_TRY_GOTO(ax_golden_expect(c->report, e, "ppo", "policy_clip_share",
                                 measure(&l, "clip_ratio/region_mean")),
                st, done);
    AX_TRY_GOTO(ax_golden_expect(c->report, e, "ppo", "approx_kl", measure(&l, "approx_kl")), st,
                done);
    st = ax_golden_gradient(c->report, c->st, e, "ppo", "logps", l.g_logprob, c->mask.numel);
done:
    ax_golden_labels_free(&l);
    return st;
}

static enum ax_status run_values(const struct ppo *c, struct ax_json e, double *loss) {
    struct ax_value_options o;
    enum ax_status st;
    AX_TRY(number(e, "vf_coef", &o.coef));
    AX_TRY(number(e, "cliprange_value", &o.cliprange));
    const struct ax_objective objective = ax_objective_value(&o);
    struct ax_golden_labels l = labels_of(c, &objective);
    l.lse = c->values.v;
    l.columns[0].name = "old_value";
    l.columns[0].values = c->old_values.v;
    l.columns[1].name = "return";
    l.columns[1].values = c->returns;
    AX_TRY_GOTO(ax_golden_labels_run(&l, c->o), st, done);
    *loss += l.loss;
    AX_TRY_GOTO(ax_golden_expect(c->report, e, "ppo", "value_loss", measure(&l, "loss/value_avg")),
                st, done);
    AX_TRY_GOTO(
        ax_golden_expect(c->report, e, "ppo", "value_clip_share", measure(&l, "val/clipfrac_avg")),
        st, done);
    st = ax_golden_gradient(c->report, c->st, e, "ppo", "values", l.g_lse, c->mask.numel);
done:
    ax_golden_labels_free(&l);
    return st;
}

static enum ax_status run_case(struct ppo *c, struct ax_json e) {
    double loss = 0;
    AX_TRY(find_advantages(c, e));
    AX_TRY(whiten(c, e));
    AX_TRY(run_policy(c, e, &loss));
    AX_TRY(run_values(c, e, &loss));
    return ax_golden_expect(c->report, e, "ppo", "loss", loss);
}

static enum ax_status run(struct ax_golden_report *r, const char *path, struct ax_json root,
                          const struct ax_golden_options *o, const void *ctx) {
    const struct ax_json cases = ax_json_get(root, "cases");
    struct ax_safetensors file;
    (void)ctx;
    AX_TRY(ax_safetensors_open(&file, path));
    struct ppo c = {.report = r, .o = o, .st = &file};
    struct {
        const char *name;
        struct ax_golden_tensor *to;
    } const inputs[] = {{"mask", &c.mask},     {"logps", &c.logps},
                        {"old_logps", &c.old}, {"ref_logps", &c.reference},
                        {"values", &c.values}, {"old_values", &c.old_values},
                        {"scores", &c.scores}};
    const size_t n = sizeof inputs / sizeof *inputs;
    double **const computed[] = {&c.rewards, &c.advantages, &c.returns};
    enum ax_status st;
    for (size_t i = 0; i < n; i++)
        AX_TRY_GOTO(ax_golden_read(&file, inputs[i].name, inputs[i].to), st, done);
    bool match = c.mask.ndim == 2 && c.scores.numel == c.mask.shape[0];
    for (size_t i = 0; i + 1 < n; i++)
        match &= inputs[i].to->numel == c.mask.numel;
    if (!match)
        AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: input shapes do not match", path), st, done);
    for (size_t i = 0; i < sizeof computed / sizeof *computed; i++)
        AX_TRY_GOTO(ax_alloc(computed[i], (size_t)c.mask.numel, sizeof **computed[i]), st, done);
    for (int64_t i = 0; i < c.mask.numel; i++)
        c.tokens += c.mask.v[i] != 0;
    for (size_t i = 0; i < ax_json_size(cases); i++)
        AX_TRY_GOTO(run_case(&c, ax_json_at(cases, i)), st, done);
done:
    for (size_t i = 0; i < n; i++)
        ax_golden_tensor_free(inputs[i].to);
    for (size_t i = 0; i < sizeof computed / sizeof *computed; i++)
        ax_free(*computed[i]);
    ax_safetensors_close(&file);
    return st;
}

bool ax_golden_ppo(struct ax_golden_report *r, const char *dir, const struct ax_golden_options *o) {
    return ax_golden_objective(r, dir, "ppo", o, run, NULL);
}
