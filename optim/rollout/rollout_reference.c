/* Log-probs of completions by a model that does not train. */
#include "base/mem.h"
#include "optim/rollout/rollout.h"

/* A base without its adapter is the same model with it, between steps. */
static enum ax_status score(const struct ax_rollout_options *o, struct ax_model *m, int64_t n,
                            struct ax_sequence *seqs) {
    m->adapter_run.off = true;
    const enum ax_status st = ax_rollout_run(o, m, true, n, seqs);
    m->adapter_run.off = false;
    return st;
}

struct scored {
    struct ax_sequence *seqs; /* [n] */
    double *logprobs;         /* [n][max_new] */
    int32_t *tokens;          /* [n], unused */
};

static enum ax_status scored_create(struct scored *s, const struct ax_rollout *r) {
    const size_t n = (size_t)r->n;
    AX_TRY(ax_alloc(&s->seqs, n, sizeof *s->seqs));
    AX_TRY(ax_alloc(&s->tokens, n, sizeof *s->tokens));
    AX_TRY(ax_alloc(&s->logprobs, n * (size_t)r->o->max_new, sizeof *s->logprobs));
    for (int64_t i = 0; i < r->n; i++) {
        const struct ax_completion *c = &r->list[i];
        const int32_t *ids = r->ids + c->start;
        s->seqs[i] = (struct ax_sequence){.n_prompt = c->n - 1,
                                          .prompt = ids,
                                          .n_scored = c->n - c->n_prompt,
                                          .scored = ids + c->n_prompt,
                                          .tokens = s->tokens + i,
                                          .logprobs = s->logprobs + i * r->o->max_new};
    }
    return AX_OK;
}

/* Unless a rank was asked to stop. */
static void take(struct ax_rollout *r, const struct scored *s, bool *stopped) {
    for (int64_t i = 0; i < r->n; i++)
        *stopped = *stopped || s->seqs[i].finish == AX_FINISH_CALLER;
    for (int64_t i = 0; i < r->n && !*stopped; i++) {
        const struct ax_completion *c = &r->list[i];
        for (int64_t k = 0; k < c->n - c->n_prompt; k++)
            r->reference[c->start + c->n_prompt + k] = (float)s->seqs[i].logprobs[k];
    }
}

enum ax_status ax_rollout_refer(struct ax_rollout *r, struct ax_model *reference, bool *stopped) {
    struct scored s = {0};
    enum ax_status st;
    if (ax_runtime_planning(reference->rt)) {
        double logprob;
        int32_t token;
        struct ax_sequence one = {.n_scored = 1, .logprobs = &logprob, .tokens = &token};
        return score(r->o, reference, 1, &one);
    }
    AX_TRY_GOTO(scored_create(&s, r), st, done);
    AX_TRY_GOTO(score(r->o, reference, r->n, s.seqs), st, done);
    take(r, &s, stopped);
done:
    ax_free(s.seqs);
    ax_free(s.logprobs);
    ax_free(s.tokens);
    return st;
}
