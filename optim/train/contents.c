/* What a checkpoint and the trained model contain: their tensors, what this rank has of each, and, with
 * restarts, the adapters that are applied to them. */
#include <string.h>

#include "kernels/transfer.h"
#include "model/adapter/load.h"
#include "model/adapter/pissa.h"
#include "optim/train/run.h"

static bool is_saved(const struct ax_train *t, const struct ax_param *p) {
    return ax_train_saved_adapter(t->o) ? p->trainable : !p->adapter;
}

/* The saved weights are those the model computes with. Masters are saved only if a wider dtype is
 * requested, and always for adapters, which are saved in float32. */
static void add_parts(const struct ax_train *t, const struct ax_param *p,
                      struct ax_save_weight *w) {
    const struct ax_model *m = &t->step.model;
    const struct ax_unit *unit = &m->units[p->unit];
    const bool master = p->adapter || unit->segments[p->segment].compute != t->o->save.hf.dtype;
    struct ax_save_part *own = &w->parts[0];
    struct ax_tensor start;
    struct ax_block at;
    int64_t run;
    const bool joined = ax_adapter_start(m, p, w->shape, &start, &at);
    w->n_parts = ax_state_value(&t->rt->mesh, unit, p, master, &own->value, &own->block);
    memcpy(own->block.shape, w->shape, sizeof w->shape);
    const bool first = w->n_parts > 0 && ax_block_index(&own->block, 0, &run) == 0;
    if (joined &&
        first) /* all that have the parameter have it: who has the first element saves it */
        w->parts[w->n_parts++] = (struct ax_save_part){.value = start, .block = at};
}

static int weight_of(const struct ax_train *t, const char *name) {
    int i = 0;
    while (strcmp(t->contents.weights[i].name, name) != 0)
        i++;
    return i;
}

/* Those of the embedding and the head, under the names that they have beside the layer for multi-token
 * prediction. */
static void add_copies(struct ax_train *t) {
    const struct ax_model *m = &t->step.model;
    struct ax_train_contents *c = &t->contents;
    const char *const of[AX_ARCH_COPIES] = {m->embed->name, m->lm_head->name};
    for (int i = 0; i < AX_ARCH_COPIES; i++) {
        struct ax_save_weight *w = &c->weights[c->n_weights++];
        *w = c->weights[weight_of(t, of[i])];
        w->name = ax_arch_copy_name(&m->arch, i, c->copies[i], sizeof c->copies[i]);
    }
}

/* With restarts, frozen weights change too, but rarely: they have units of their own. */
enum ax_status ax_train_save_create(struct ax_train *t) {
    struct ax_model *m = &t->step.model;
    const bool restarts = t->o->step.relora.interval > 0;
    const int units = restarts ? 2 * m->n_units : m->n_units;
    AX_TRY(ax_saver_create(&t->saver, m->rt->q, &t->team, units + t->value.step.model.n_units));
    AX_TRY(ax_alloc(&t->contents.weights, (size_t)m->n_params + AX_ARCH_COPIES,
                    sizeof *t->contents.weights));
    if (ax_train_saved_adapter(t->o))
        AX_TRY(ax_alloc(&t->contents.names, (size_t)m->n_params, sizeof *t->contents.names));
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        struct ax_save_weight *w = &t->contents.weights[t->contents.n_weights];
        if (!is_saved(t, p))
            continue;
        *w = (struct ax_save_weight){.name = p->name,
                                     .ndim = p->ndim,
                                     .unit = restarts ? m->n_units + p->unit : p->unit,
                                     .dtype =
                                         p->adapter || p->buffer ? AX_F32 : t->o->save.hf.dtype};
        if (t->contents.names)
            w->name = ax_adapter_tensor_name(p, t->contents.names[t->contents.n_weights],
                                             sizeof *t->contents.names);
        add_parts(t, p, w);
        t->contents.n_weights++;
    }
    if (ax_arch_predicts(&m->arch) && !ax_train_saved_adapter(t->o))
        add_copies(t);
    AX_TRY(ax_param_states_parts(m, t->step.states, &t->contents.parts));
    if (restarts)
        ax_relora_parts(m, &t->contents.parts);
    AX_TRY(ax_train_value_parts(t, units));
    ax_saver_create_stage(&t->saver, t->contents.n_weights, t->contents.weights,
                          t->o->save.only_model ? NULL : &t->contents.parts, AX_SAVER_STAGE);
    if (!restarts)
        return AX_OK;
    return ax_alloc(&t->contents.adapters, 2 * (size_t)t->contents.n_weights,
                    sizeof *t->contents.adapters);
}

static enum ax_status read_floats(struct ax_queue *q, const struct ax_tensor *value, float **out) {
    if (!*out)
        AX_TRY(ax_alloc(out, (size_t)ax_tensor_numel(value), sizeof **out));
    return ax_tensor_read(q, value, AX_F32, *out);
}

/* Of one matrix on this rank, a slice of which it may have: its part of A and B, unsharded. */
static enum ax_status take_adapter(struct ax_train *t, const struct ax_adapter *a,
                                   struct ax_tensor gathered[AX_MAX_SEGMENTS]) {
    struct ax_tensor A, B;
    AX_TRY(ax_unit_master(a->unit, t->rt, a->a, gathered, &A));
    AX_TRY(ax_unit_master(a->unit, t->rt, a->b, gathered, &B));
    if (ax_runtime_planning(t->rt))
        return AX_OK;
    const int i = weight_of(t, a->weight->name);
    float **both = &t->contents.adapters[2 * i];
    AX_TRY(read_floats(t->rt->q, &A, &both[0]));
    AX_TRY(read_floats(t->rt->q, &B, &both[1]));
    struct ax_save_part *part = &t->contents.weights[i].parts[0];
    part->delta = (struct ax_delta){.cols = A.shape[1],
                                    .r = A.shape[0],
                                    .start = part->block.first,
                                    .scale = a->scale,
                                    .a = both[0],
                                    .b = both[1]};
    return AX_OK;
}

static enum ax_status take_unit(struct ax_train *t, int unit) {
    const struct ax_adapter *adapters[AX_UNIT_MAX_ADAPTERS];
    struct ax_tensor gathered[AX_MAX_SEGMENTS] = {0};
    struct ax_stack *scratch = &t->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const int n = ax_adapter_of_unit(&t->step.model, unit, adapters);
    for (int i = 0; i < n; i++)
        AX_TRY(take_adapter(t, adapters[i], gathered));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_train_take_adapters(struct ax_train *t) {
    if (t->o->step.relora.interval == 0)
        return AX_OK;
    AX_TRY(ax_contract_enter(&t->rt->contracts, "adapters"));
    for (int unit = 0; unit < t->step.model.n_units; unit++)
        AX_TRY(take_unit(t, unit));
    return ax_contract_leave(&t->rt->contracts, t->rt->comms);
}

void ax_train_save_free(struct ax_train *t) {
    ax_saver_free(&t->saver);
    ax_state_parts_free(&t->contents.parts);
    for (int i = 0; t->contents.adapters && i < 2 * t->contents.n_weights; i++)
        ax_free(t->contents.adapters[i]);
    ax_free(t->contents.adapters);
    ax_free(t->contents.weights);
    ax_free(t->contents.names);
    ax_free(t->value.names);
    t->value.names = NULL;
    t->contents.adapters = NULL;
    t->contents.weights = NULL;
    t->contents.names = NULL;
}
