#include "optim/references.h"

#include <math.h>

#include "base/mem.h"

static struct ax_reference_set *find(const struct ax_references *r, const struct ax_examples *set) {
    for (size_t i = 0; i < r->n; i++)
        if (r->sets[i].set == set)
            return &r->sets[i];
    return NULL;
}

static enum ax_status add_set(struct ax_references *r, const struct ax_examples *set,
                              struct ax_reference_set **out) {
    AX_TRY(ax_regrow(&r->sets, r->n, r->n + 1, sizeof *r->sets));
    struct ax_reference_set *s = &r->sets[r->n];
    *s = (struct ax_reference_set){.set = set};
    AX_TRY(ax_alloc(&s->logprob, set->n, sizeof *s->logprob));
    for (size_t i = 0; i < set->n; i++)
        s->logprob[i] = NAN;
    r->n++;
    *out = s;
    return AX_OK;
}

/* What an evaluation's callbacks get: the caller's are called in turn. */
struct pass {
    struct ax_references *r;
    const struct ax_eval_options *o;
};

static enum ax_status note(void *ctx, const struct ax_eval_document *d) {
    struct pass *p = ctx;
    struct ax_reference_set *s = find(p->r, d->set);
    if (!s)
        AX_TRY(add_set(p->r, d->set, &s));
    s->logprob[d->example] = (float)d->sums.logprob;
    return AX_OK;
}

static void progress(void *ctx, int64_t rows_done) {
    const struct pass *p = ctx;
    if (p->o->progress)
        p->o->progress(p->o->ctx, rows_done);
}

static bool stop(void *ctx) {
    const struct pass *p = ctx;
    return p->o->stop && p->o->stop(p->o->ctx);
}

enum ax_status ax_references_compute(struct ax_references *r, struct ax_model *m,
                                     struct ax_loader *loader, const struct ax_eval_options *o) {
    struct pass p = {r, o};
    struct ax_eval_options own = *o;
    struct ax_eval_result result;
    struct ax_loader_state at;
    own.document = note;
    own.progress = progress;
    own.stop = stop;
    own.ctx = &p;
    if (ax_runtime_planning(m->rt))
        return ax_evaluate(m, loader, &own, &result);
    ax_loader_save(loader, &at);
    AX_TRY(ax_evaluate(m, loader, &own, &result));
    AX_TRY(ax_loader_restore(loader, &at));
    return result.stopped ? ax_error(AX_INTERRUPTED, "interrupted before the first step") : AX_OK;
}

float ax_references_get(const struct ax_references *r, const struct ax_examples *set,
                        size_t example) {
    const struct ax_reference_set *s = find(r, set);
    return s ? s->logprob[example] : NAN;
}

void ax_references_free(struct ax_references *r) {
    for (size_t i = 0; i < r->n; i++)
        ax_free(r->sets[i].logprob);
    ax_free(r->sets);
    *r = (struct ax_references){0};
}
