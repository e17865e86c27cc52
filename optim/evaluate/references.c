#include "optim/evaluate/references.h"

#include <math.h>

#include "base/mem.h"

static struct ax_reference_set *find_set(const struct ax_references *r,
                                         const struct ax_examples *set) {
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

enum ax_status ax_references_put(struct ax_references *r, const struct ax_examples *set,
                                 size_t example, float logprob) {
    struct ax_reference_set *s = find_set(r, set);
    if (!s)
        AX_TRY(add_set(r, set, &s));
    s->logprob[example] = logprob;
    return AX_OK;
}

float ax_references_get(const struct ax_references *r, const struct ax_examples *set,
                        size_t example) {
    const struct ax_reference_set *s = find_set(r, set);
    return s ? s->logprob[example] : NAN;
}

void ax_references_free(struct ax_references *r) {
    for (size_t i = 0; i < r->n; i++)
        ax_free(r->sets[i].logprob);
    ax_free(r->sets);
    *r = (struct ax_references){0};
}
