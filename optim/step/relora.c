#include "optim/step/relora.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/adapter/restart.h"
#include "optim/step/step.h"

#define STREAM 0x52654c6f /* random stream: the letters ReLo */

static uint64_t seed_of(uint64_t seed, int64_t number) {
    uint32_t word[4];
    ax_rng_block((struct ax_rng_key){seed, (uint32_t)number, STREAM}, 0, word);
    return (uint64_t)word[0] << 32 | word[1];
}

/* Waits until a save has read what will change. */
static void before(const struct ax_step *s) {
    for (int unit = 0; s->before_update && unit < s->model.n_units; unit++) {
        s->before_update(s->before_update_ctx, unit);
        s->before_update(s->before_update_ctx, s->model.n_units + unit);
    }
}

/* As before the first update, in whatever dtype and place the state is kept. */
static enum ax_status reset(struct ax_queue *q, const struct ax_param_state *state) {
    for (int k = 0; k < state->n; k++) {
        const struct ax_tensor *value = &state->slots[k].value;
        const size_t bytes = ax_tensor_bytes(value);
        char *zeros;
        AX_TRY(ax_alloc(&zeros, bytes, 1));
        const enum ax_status st = ax_queue_write(q, value->data, zeros, bytes);
        ax_free(zeros);
        if (st != AX_OK)
            return st;
    }
    return AX_OK;
}

/* The new adapter's compute copies are rounded as in the last update, and so as a resumed run
 * rounds them. */
static enum ax_status begin_states(struct ax_step *s) {
    AX_TRY(ax_step_set_scalars(s));
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_param *p = &s->model.params[i];
        if (!p->adapter || !ax_unit_present(&s->model.units[p->unit]))
            continue;
        AX_TRY(ax_param_round(&s->model, i, &s->states[i], s->count > 0 ? s->scalars : NULL));
        AX_TRY(reset(s->rt->q, &s->states[i]));
    }
    return AX_OK;
}

enum ax_status ax_step_restart(struct ax_step *s, int64_t number) {
    const uint64_t seed = seed_of(s->o.seed, number);
    before(s);
    AX_TRY(ax_contract_enter(&s->rt->contracts, "restart"));
    AX_TRY(ax_adapter_restart(&s->model, seed));
    AX_TRY(begin_states(s));
    return ax_contract_leave(&s->rt->contracts, s->rt->comms);
}

enum ax_status ax_step_restart_if_due(struct ax_step *s, int64_t done) {
    const int64_t every = s->o.relora.interval;
    if (every == 0 || done == 0 || done % every != 0)
        return AX_OK;
    ax_log_info("merging the adapter into the base after step %lld", (long long)done);
    return ax_step_restart(s, done / every);
}

void ax_relora_parts(struct ax_model *m, struct ax_state_parts *out) {
    for (int unit = 0; unit < m->n_units; unit++) {
        const struct ax_adapter *adapters[AX_UNIT_MAX_ADAPTERS];
        const int n = ax_adapter_of_unit(m, unit, adapters);
        for (int i = 0; i < n; i++)
            ax_state_parts_add_frozen(out, &m->rt->mesh, &m->units[unit], adapters[i]->weight,
                                      "base", m->n_units + unit);
    }
}
