/* A teacher's advantages of sampled tokens (optim/losses/teach.h), and figures of them. */
#include "optim/rollout/taught.h"

#include <math.h>

#include "base/mem.h"

/* A completion's sampled tokens, without those that were inserted: log-probs by model and teacher, advantages,
 * weights. */
struct tokens {
    double *logprob, *teacher, *advantages, *weights;
    int64_t n;
};

static void gather_tokens(const struct ax_rollout *r, const struct ax_completion *c,
                          struct tokens *x) {
    for (int64_t at = c->start + c->n_prompt; at < c->start + c->n; at++) {
        if (!ax_rollout_is_sampled(r, at))
            continue;
        x->logprob[x->n] = (double)r->logprobs[at];
        x->teacher[x->n++] = (double)r->teacher[at];
    }
}

static void add_figures(const struct tokens *x, struct ax_taught *out) {
    for (int64_t t = 0; t < x->n; t++) {
        out->kl += x->logprob[t] - x->teacher[t];
        out->size += fabs(x->logprob[t] - x->teacher[t]);
        out->advantage += x->advantages[t];
        out->weight += x->weights[t];
        out->least = fmin(out->least, x->weights[t]);
        out->most = fmax(out->most, x->weights[t]);
    }
    out->n += x->n;
}

/* Added to those of rewards; without rewards, a completion's advantage is its tokens' mean, for people. One that its
 * environment has lost has no tokens here, and so the advantage 0. */
static void store_advantages(const struct ax_rollout *r, struct ax_completion *c,
                             const struct tokens *x) {
    double sum = 0;
    for (int64_t at = c->start + c->n_prompt, t = 0; at < c->start + c->n; at++) {
        const bool sampled = ax_rollout_is_sampled(r, at);
        const double own = sampled && !c->lost ? r->o->teach.coef * x->advantages[t++] : 0;
        r->advantages[at] = (float)((double)c->advantage + own);
        sum += own;
    }
    if (!r->o->rewards)
        c->advantage = (float)(sum / fmax((double)x->n, 1));
}

static void teach_completion(const struct ax_rollout *r, struct ax_completion *c, struct tokens *x,
                             struct ax_taught *out) {
    double kl = out->kl;
    x->n = 0;
    if (!c->lost)
        gather_tokens(r, c, x);
    ax_teach(&r->o->teach, x->n, x->logprob, x->teacher, x->advantages, x->weights);
    add_figures(x, out);
    c->taught_kl = (float)((out->kl - kl) / fmax((double)x->n, 1));
    if (r->advantages)
        store_advantages(r, c, x);
}

enum ax_status ax_rollout_teach(struct ax_rollout *r, struct ax_taught *out) {
    const size_t most = (size_t)r->o->max_new;
    double *all;
    *out = (struct ax_taught){.least = INFINITY, .most = -INFINITY};
    AX_TRY(ax_alloc(&all, 4 * most, sizeof *all));
    struct tokens x = {all, all + most, all + 2 * most, all + 3 * most, 0};
    for (int64_t i = 0; i < r->n; i++)
        teach_completion(r, &r->list[i], &x, out);
    ax_free(all);
    double *const means[] = {&out->kl, &out->size, &out->advantage, &out->weight};
    for (size_t i = 0; i < sizeof means / sizeof *means; i++)
        *means[i] /= fmax((double)out->n, 1);
    return AX_OK;
}
