/* Requests that the model answers between steps, in the arena's rollout phase. Nothing of a step depends on them. */
#include "optim/train/run.h"

enum ax_status ax_train_requests_look(struct ax_train *t, bool last, bool *any) {
    const struct ax_train_requests *r = &t->o->requests;
    *any = false;
    if (r->o.n_seqs == 0)
        return AX_OK;
    double pending = r->pending(r->ctx, last) ? 1 : 0;
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, &pending, 1));
    *any = pending > 0;
    return AX_OK;
}

static enum ax_status answer(struct ax_train *t, struct ax_generator *g) {
    const struct ax_train_requests *r = &t->o->requests;
    double none;
    struct ax_sequence s = {.logprobs = &none};
    if (ax_runtime_planning(t->rt))
        return ax_generate(g, 1, &s);
    ax_metrics_doing(t->metrics, "answering", 0, 0);
    return r->answer(r->ctx, g, &t->between, t->done);
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
