#include "optim/lisa.h"

#include "base/mem.h"
#include "base/rng.h"

#define STREAM 0x4c495341 /* random stream: the letters LISA */

/* The step in which the layers of `step` were drawn. */
static int64_t drawn_in(const struct ax_lisa *l, int64_t step) {
    const int64_t multiple = step / l->o.interval * l->o.interval;
    return multiple > 0 || step == 0 ? multiple : 1;
}

/* The next step in which layers are drawn. */
static int64_t drawn_next(const struct ax_lisa *l, int64_t step) {
    return step == 0 ? 1 : (step / l->o.interval + 1) * l->o.interval;
}

/* Every layer gets a random number; those with the smallest ones are active. */
void ax_lisa_begin(struct ax_lisa *l, int64_t step) {
    const struct ax_rng_key key = {l->seed, (uint32_t)drawn_in(l, step), STREAM};
    const int end = l->n_units - 1;
    for (int i = 0; i < l->n_units; i++)
        l->drawn[i] = ax_rng_u32(key, (uint64_t)i);
    l->active[0] = l->active[end] = true;
    for (int i = 1; i < end; i++) {
        int before = 0;
        for (int k = 1; k < end; k++)
            before += l->drawn[k] < l->drawn[i] || (l->drawn[k] == l->drawn[i] && k < i);
        l->active[i] = before < l->o.layers;
    }
}

static void count(struct ax_lisa *l, int64_t steps) {
    for (int i = 0; i < l->n_units; i++)
        l->updates[i] += l->active[i] ? steps : 0;
}

void ax_lisa_count(struct ax_lisa *l) {
    count(l, 1);
}

void ax_lisa_restore(struct ax_lisa *l, int64_t steps) {
    for (int i = 0; i < l->n_units; i++)
        l->updates[i] = 0;
    for (int64_t step = 0, next; step < steps; step = next) {
        next = drawn_next(l, step) < steps ? drawn_next(l, step) : steps;
        ax_lisa_begin(l, step);
        count(l, next - step);
    }
}

enum ax_status ax_lisa_create(struct ax_lisa *l, const struct ax_lisa_options *o, uint64_t seed,
                              int n_units) {
    *l = (struct ax_lisa){.o = *o, .seed = seed, .n_units = n_units};
    if (o->layers > n_units - 2)
        return ax_error(AX_ERR_CONFIG,
                        "lisa_n_layers: expected at most the model's %d layers, got %d",
                        n_units - 2, o->layers);
    AX_TRY(ax_alloc(&l->active, (size_t)n_units, sizeof *l->active));
    AX_TRY(ax_alloc(&l->updates, (size_t)n_units, sizeof *l->updates));
    return ax_alloc(&l->drawn, (size_t)n_units, sizeof *l->drawn);
}

void ax_lisa_free(struct ax_lisa *l) {
    ax_free(l->active);
    ax_free(l->updates);
    ax_free(l->drawn);
    *l = (struct ax_lisa){0};
}
