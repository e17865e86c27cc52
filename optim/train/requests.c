/* Requests that the model answers between steps, in the arena's rollout phase. Nothing of a step depends on them. */
#include "optim/train/run.h"

bool ax_train_requests_pending(const struct ax_train *t, bool last) {
    const struct ax_train_requests *r = &t->o->requests;
    return r->o.n_seqs > 0 && r->pending(r->ctx, last);
}

static enum ax_status answer(struct ax_train *t, struct ax_generator *g) {
    const struct ax_train_requests *r = &t->o->requests;
    double none;
    struct ax_sequence s = {.logprobs = &none};
    if (ax_runtime_planning(t->rt))
        return ax_generate(g, 1, &s);
    ax_metrics_doing(t->metrics, "answering", 0, 0);
    return r->answer(r->ctx, g, t->done);
}

enum ax_status ax_train_requests_answer(struct ax_train *t) {
    struct ax_arena *arena = &t->rt->arena;
    const enum ax_phase before = arena->phase;
    struct ax_generator g;
    AX_TRY(ax_generator_create(&g, &t->step.model, &t->o->requests.o));
    const enum ax_status st = answer(t, &g);
    ax_generator_free(&g);
    ax_arena_enter(arena, before);
    return st;
}
