/* Log-probs, losses, norms and metrics, each against its tolerance. */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/goldens/run.h"

#define TOKEN_TOLERANCE     1e-4
#define LATER_TOLERANCE     1e-3
#define ADVANTAGE_TOLERANCE 1e-5
#define RATE_TOLERANCE      1e-6 /* relative */

/* Tolerances of metrics, by FAMILY/NAME; the first that matches. */
static const struct {
    const char *pattern, *group;
    double tolerance;
} metric_groups[] = {
    {"*/num_*", "counts that differ", 0},
    {"*accurac*", "accuracies", 1e-6},
    {"*clip_ratio/*", "clipped", 1e-6},
    {"*/cispo_clip_ratio", "clipped", 1e-6},
    {"*clipfrac*", "clipped", 1e-6},
    {"ppo/objective/*", "log-prob metrics", 1e-4},
    /* exponentials of sums over a sequence's tokens, of which each log-prob may differ by 1e-4 and does by 3.5e-6 */
    {"grpo/vespo/phi_seq_*", "sequences' shares", 3e-5},
    {"grpo*/*", "other metrics", 1e-5},
    {"*/logps/*", "log-prob metrics", 1e-4},
    {"*/rewards/*", "log-prob metrics", 1e-4},
    {"*/logits/*", "logit metrics", 1e-4},
    {"*/kl", "log-prob metrics", 1e-4},
    {"*", "other metrics", 1e-5},
};

static void note(struct ax_run *r, const char *group, double figure, double tolerance, int step,
                 int micro, const char *what) {
    char where[96];
    int n = snprintf(where, sizeof where, "step %d", step + 1);
    if (micro >= 0)
        n += snprintf(where + n, sizeof where - (size_t)n, ", micro-batch %d", micro + 1);
    if (what)
        snprintf(where + n, sizeof where - (size_t)n, ", %s", what);
    ax_golden_note(r->report, group, figure, tolerance, where);
}

/* Before the first update with a rate each log-prob has to match. Later, Adam has made ± the rate of
 * gradients that are rounding noise: a rare token's row of the embedding may then be off by that,
 * and few log-probs by more than the tolerance. */
static enum ax_status compare_log_probs(struct ax_run *r, int step, int k, const char *name,
                                        struct ax_run_tokens *count, bool fixed,
                                        const struct ax_run_micro *m) {
    const bool old = strncmp(name, "old_", 4) == 0, of_answers = strstr(name, "per_token") != NULL;
    const double *got = fixed ? m->reference : old ? m->old : m->logprob;
    const int64_t *recorded = of_answers ? m->recorded_answer : m->recorded;
    struct ax_golden_tensor want;
    char full[64], where[64];
    snprintf(full, sizeof full, "m%02d.%s", k, name);
    if (!ax_safetensors_find(&r->own, full))
        return AX_OK;
    AX_TRY(ax_golden_read(&r->own, full, &want));
    const bool first = fixed || ax_run_at_start(r, step);
    for (int i = 0; i < m->n; i++) {
        const int64_t from = ax_run_micro_first(m, i);
        for (int64_t t = 0; t + 1 < m->docs[i].n; t++) {
            const int64_t at = recorded[i] + t;
            if (m->labels[from + t] < 0)
                continue;
            const double d = at < want.numel ? fabs(got[from + t] - want.v[at]) : INFINITY;
            snprintf(where, sizeof where, "document %d, token %lld", i + 1, (long long)t + 1);
            note(r,
                 fixed   ? "reference log-probs"
                 : first ? "log-probs"
                         : "later log-probs",
                 d, first ? TOKEN_TOLERANCE : LATER_TOLERANCE, step, k - r->first[step], where);
            count->n += !first;
            count->off += !first && !(d <= TOKEN_TOLERANCE);
        }
    }
    ax_golden_tensor_free(&want);
    return AX_OK;
}

bool ax_run_at_start(const struct ax_run *r, int step) {
    for (int i = 0; i < step; i++)
        if (ax_lr_at(&r->lr, i) != 0)
            return false;
    return true;
}

/* Sums, or means, over the answers: chosen ones, then rejected ones. */
static enum ax_status compare_sequences(struct ax_run *r, int step, int k) {
    const struct ax_run_micro *m = &r->micro[k];
    struct ax_golden_tensor want;
    char name[64], where[64];
    snprintf(name, sizeof name, "m%02d.sequence_logps", k);
    if (!ax_safetensors_find(&r->own, name))
        return AX_OK;
    AX_TRY(ax_golden_read(&r->own, name, &want));
    for (int i = 0; i < m->n; i++) {
        const int at = i / 2 + (i % 2) * (m->n / 2);
        const int64_t first = ax_run_micro_first(m, i);
        double sum = 0, n = 0;
        for (int64_t t = first; t < first + m->docs[i].n; t++) {
            sum += (double)m->share[t] * m->logprob[t];
            n += (double)m->share[t];
        }
        sum /= r->preference.o.mean ? n : 1;
        snprintf(where, sizeof where, "document %d", i + 1);
        note(r, "log-probs of answers", at < want.numel ? fabs(sum - want.v[at]) : INFINITY,
             TOKEN_TOLERANCE, step, k - r->first[step], where);
    }
    ax_golden_tensor_free(&want);
    return AX_OK;
}

/* The logits of label `c` of n, from their mean and the log-prob of the token's own label: of two, the
 * difference is the log-odds. */
static double logit_of(const struct ax_run_micro *m, int64_t t, int64_t c, int64_t n) {
    const double own = m->logprob[t], odds = own - log(-expm1(own));
    return n == 1 ? m->mean_logit[t] : m->mean_logit[t] + (m->labels[t] == c ? 0.5 : -0.5) * odds;
}

/* A classifier's, at its labeled tokens: scores [2·pairs], chosen then rejected; or logits
 * [rows][S][labels]. */
static enum ax_status compare_logits(struct ax_run *r, int step, int k,
                                     struct ax_run_tokens *count) {
    const struct ax_run_micro *m = &r->micro[k];
    const int64_t labels = r->arch.n_labels;
    const bool first = ax_run_at_start(r, step);
    struct ax_golden_tensor want;
    char name[64], where[64];
    snprintf(name, sizeof name, "m%02d.%s", k, labels == 1 ? "scores" : "logits");
    if (!r->family->head || !ax_safetensors_find(&r->own, name))
        return AX_OK;
    AX_TRY(ax_golden_read(&r->own, name, &want));
    const int64_t S = want.ndim == 3 ? want.shape[1] : 1;
    for (int64_t i = 0; i < m->n; i++)
        for (int64_t t = 0; t < m->docs[i].n * labels; t++) {
            const int64_t from = ax_run_micro_first(m, (int)i) + t / labels;
            const int64_t at = S == 1 ? m->recorded[i] : (m->recorded[i] * S) * labels + t;
            if (m->labels[from] < 0)
                continue;
            const double d = at < want.numel
                                 ? fabs(logit_of(m, from, t % labels, labels) - want.v[at])
                                 : INFINITY;
            snprintf(where, sizeof where, "document %lld, token %lld", (long long)i + 1,
                     (long long)(t / labels));
            note(r, first ? "logits of labels" : "later logits of labels", d,
                 first ? TOKEN_TOLERANCE : LATER_TOLERANCE, step, k - r->first[step], where);
            count->n += !first;
            count->off += !first && !(d <= TOKEN_TOLERANCE);
        }
    ax_golden_tensor_free(&want);
    return AX_OK;
}

static enum ax_status compare_advantages(struct ax_run *r, int step, int k) {
    const struct ax_run_micro *m = &r->micro[k];
    struct ax_golden_tensor want;
    char name[64], where[64];
    snprintf(name, sizeof name, "m%02d.advantages", k);
    if (!ax_safetensors_find(&r->own, name))
        return AX_OK;
    AX_TRY(ax_golden_read(&r->own, name, &want));
    for (int i = 0; i < m->n; i++) {
        snprintf(where, sizeof where, "document %d", i + 1);
        note(r, "advantages", i < want.numel ? fabs((double)m->advantage[i] - want.v[i]) : INFINITY,
             ADVANTAGE_TOLERANCE, step, k - r->first[step], where);
    }
    ax_golden_tensor_free(&want);
    return AX_OK;
}

enum ax_status ax_run_compare_tokens(struct ax_run *r, int step, int k,
                                     struct ax_run_tokens *count) {
    if (!r->own.path)
        return AX_OK;
    AX_TRY(compare_sequences(r, step, k));
    AX_TRY(compare_logits(r, step, k, count));
    AX_TRY(compare_log_probs(r, step, k, "logps", count, false, &r->micro[k]));
    AX_TRY(compare_log_probs(r, step, k, "ref_logps", count, true, &r->micro[k]));
    AX_TRY(compare_log_probs(r, step, k, "old_per_token_logps", count, false, &r->micro[k]));
    AX_TRY(compare_log_probs(r, step, k, "ref_per_token_logps", count, true, &r->micro[k]));
    AX_TRY(compare_advantages(r, step, k));
    if (!r->mismatched)
        return AX_OK;
    AX_TRY(compare_log_probs(r, step, k, "kl_logps", count, false, &r->mismatched[k]));
    return compare_log_probs(r, step, k, "ref_kl_logps", count, true, &r->mismatched[k]);
}

enum ax_status ax_run_compare_divergences(struct ax_run *r, int k, int64_t first, int64_t n,
                                          const double *got) {
    const struct ax_run_micro *m = &r->micro[k];
    struct ax_golden_tensor want;
    char name[64], where[64];
    int64_t row = 0;
    int step = 0;
    snprintf(name, sizeof name, "m%02d.divergence", k);
    if (!r->own.path || !ax_safetensors_find(&r->own, name))
        return AX_OK;
    AX_TRY(ax_golden_read(&r->own, name, &want));
    while (r->first[step + 1] <= k)
        step++;
    for (int i = 0; i < m->n; i++)
        for (int64_t t = 0; t + 1 < m->docs[i].n; t++) {
            const int64_t at = m->recorded_answer[i] + t;
            if (m->labels[ax_run_micro_first(m, i) + t] < 0)
                continue;
            const int64_t own = row++ - first;
            if (own < 0 || own >= n)
                continue;
            snprintf(where, sizeof where, "document %d, token %lld", i + 1, (long long)t + 1);
            note(r, "divergences", at < want.numel ? fabs(got[own] - want.v[at]) : INFINITY,
                 TOKEN_TOLERANCE, step, k - r->first[step], where);
        }
    ax_golden_tensor_free(&want);
    return AX_OK;
}

void ax_run_compare_share(struct ax_run *r, const struct ax_run_tokens *count) {
    if (count->n > 0)
        ax_golden_note(r->report, "later log-probs > 1e-4 (share)",
                       (double)count->off / (double)count->n,
                       ceil(r->later_share * (double)count->n) / (double)count->n, "");
}

/* ---- metrics ---- */

static void note_metric(struct ax_run *r, const char *name, json_t *want, double got, int step,
                        int micro) {
    char full[96];
    size_t g = 0;
    snprintf(full, sizeof full, "%s/%s", r->family->name, name);
    while (fnmatch(metric_groups[g].pattern, full, 0) != 0)
        g++;
    const double w = json_is_number(want) ? json_number_value(want) : NAN;
    note(r, metric_groups[g].group, fabs(got - w), metric_groups[g].tolerance, step, micro, name);
}

static bool ignored(const struct ax_run *r, const char *name) {
    for (const char *const *i = r->family->ignore; i && *i; i++)
        if (fnmatch(*i, name, 0) == 0)
            return true;
    return strcmp(name, "loss") == 0 ||
           strcmp(name, "rollouts") == 0; /* of another place, no metric */
}

void ax_run_compare_metrics(struct ax_run *r, struct ax_json recorded,
                            const struct ax_run_metrics *got, int step, int micro) {
    const char *name;
    json_t *want;
    json_object_foreach((json_t *)(uintptr_t)recorded.v, name, want) {
        if (ignored(r, name) || json_is_null(want))
            continue;
        const struct ax_run_metric *m = ax_run_metric_find(got, name);
        note_metric(r, name, want, m ? m->value : NAN, step, micro);
    }
}

/* Adds a micro-batch's metrics to the step's means. */
static void gather(struct ax_run_metrics *mean, int *counts, const struct ax_run_metrics *one) {
    for (int i = 0; i < one->n; i++) {
        if (isnan(one->list[i].value))
            continue;
        struct ax_run_metric *m =
            (struct ax_run_metric *)(uintptr_t)ax_run_metric_find(mean, one->list[i].name);
        if (!m) {
            counts[mean->n] = 0;
            ax_run_metric_add(mean, one->list[i].name, 0);
            m = &mean->list[mean->n - 1];
        }
        m->value += one->list[i].value;
        counts[m - mean->list]++;
    }
}

/* ---- a step ---- */

static void note_loss(struct ax_run *r, const char *group, double got, double want, int step,
                      int micro) {
    note(r, group, fabs(got - want) / fmax(1, fabs(want)), r->loss, step, micro, NULL);
}

static enum ax_status compare_micro(struct ax_run *r, int step, int m,
                                    const struct ax_run_step *got, struct ax_json recorded,
                                    struct ax_run_metrics *metrics) {
    double want, means[AX_MEASURES];
    AX_TRY(ax_json_f64(ax_json_get(recorded, "loss"), &want));
    note_loss(r, "loss of each micro-batch", got->loss[m], want, step, m);
    *metrics = (struct ax_run_metrics){0};
    ax_measures_mean(r->objective.documents, &got->measures[m], means);
    for (int i = 0; r->objective.measures && r->objective.measures[i]; i++)
        if (!isnan(means[i]))
            ax_run_metric_add(metrics, r->objective.measures[i], means[i]);
    r->micro[r->first[step] + m].loss = got->loss[m];
    if (r->family->metrics)
        r->family->metrics(r, &r->micro[r->first[step] + m], metrics);
    if (r->step.balance_coef > 0)
        ax_run_metric_add(metrics, "aux_loss", got->aux[m]);
    struct ax_run_metrics all = *metrics;
    ax_run_metric_add(&all, "num_items_in_batch", got->result.weight_total);
    ax_run_compare_metrics(r, recorded, &all, step, m);
    return AX_OK;
}

enum ax_status ax_run_compare_step(struct ax_run *r, int step, const struct ax_run_step *got) {
    const struct ax_json recorded = ax_json_at(r->steps, (size_t)step),
                         micro = ax_json_get(recorded, "micro");
    struct ax_run_metrics mean = {0}, one;
    int counts[AX_RUN_MAX_METRICS];
    double loss, norm, lr;
    AX_TRY(ax_json_f64(ax_json_get(recorded, "loss"), &loss));
    AX_TRY(ax_json_f64(ax_json_get(recorded, "grad_norm"), &norm));
    AX_TRY(ax_json_f64(ax_json_get(recorded, "learning_rate"), &lr));
    for (int m = 0; m < r->first[step + 1] - r->first[step]; m++) {
        AX_TRY(compare_micro(r, step, m, got, ax_json_at(micro, (size_t)m), &one));
        gather(&mean, counts, &one);
    }
    for (int i = 0; i < mean.n; i++)
        mean.list[i].value /= counts[i];
    note_loss(r, "loss of each step", got->total, loss, step, -1);
    note(r, "grad norm (relative)", fabs(got->result.grad_norm - norm) / norm, r->grad_norm, step,
         -1, NULL);
    note(r, "learning rate (relative)",
         lr != 0 ? fabs(got->result.lr - lr) / lr : fabs(got->result.lr), RATE_TOLERANCE, step, -1,
         NULL);
    if (r->family->step_metrics)
        r->family->step_metrics(r, step, &mean);
    ax_run_metric_add(&mean, "num_tokens", (double)got->num_tokens);
    ax_run_compare_metrics(r, ax_json_get(recorded, "metrics"), &mean, step, -1);
    return AX_OK;
}
