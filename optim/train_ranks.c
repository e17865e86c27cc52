/* What the ranks of a run decide together: all of them stop, save and evaluate in the same step. */
#include "optim/train_state.h"

enum ax_status ax_train_find_mesh(struct ax_train *t) {
    t->runtime = t->o->runtime;
    t->runtime.may_stay_below = true;
    struct ax_runtime_options *ro = &t->runtime;
    const int world = ro->fabric ? ro->fabric->world : 1, rank = ro->fabric ? ro->fabric->rank : 0;
    int *sizes[] = {&ro->sizes.pp, &ro->sizes.dp_replicate, &ro->sizes.dp_shard,
                    &ro->sizes.cp, &ro->sizes.tp,           &ro->sizes.ep};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (*sizes[i] == 0)
            *sizes[i] = 1;
    AX_TRY(ax_mesh_create(&t->mesh, ro->sizes, world, rank));
    ro->n_slots = ax_schedule_slots(t->mesh.coord[AX_ROLE_PP], t->mesh.size[AX_ROLE_PP],
                                    t->o->step.n_microbatches);
    return AX_OK;
}

bool ax_train_is_main(const struct ax_train *t) {
    return t->mesh.rank == 0;
}

enum ax_status ax_train_max(const struct ax_train *t, double *values, int n) {
    return ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, values, n);
}

enum ax_status ax_train_sum(const struct ax_train *t, double *values, int64_t n) {
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_LOSS, AX_SUM, values, n));
    return ax_runtime_combine(t->rt, AX_ROLE_PP, AX_SUM, values, n);
}

/* True if the trigger file that requests a save exists, after the last step that was begun. */
static bool is_triggered(const struct ax_train *t) {
    const struct ax_train_save *s = &t->o->save;
    const int64_t step = t->done + (t->late.pending ? 1 : 0);
    return ax_train_is_main(t) && s->trigger_file && step % s->trigger_interval == 0 &&
           ax_path_exists(s->trigger_file);
}

enum ax_status ax_train_take_vote(struct ax_train *t, bool after_step) {
    double v[] = {(double)ax_stop_requested(), after_step && is_triggered(t) ? 1 : 0};
    AX_TRY(ax_train_max(t, v, 2));
    t->vote = (struct ax_train_vote){.stop = (enum ax_stop)v[0], .trigger = v[1] > 0};
    return AX_OK;
}

enum ax_status ax_train_check_ranks(const struct ax_train *t) {
    const struct ax_train_options *o = t->o;
    const bool saves = o->save.when.when != AX_NEVER || o->save.resume != AX_RESUME_NO ||
                       o->save.trigger_file || o->eval.load_best;
    if (t->mesh.world == 1)
        return AX_OK;
    if (saves)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "save_strategy: a run on %d ranks writes no checkpoints so far. Set it to "
                        "no, or train on one rank",
                        t->mesh.world);
    if (o->recompute_auto)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "gradient_checkpointing: the ranks of a mesh cannot agree on auto so far. "
                        "Set it to true or false");
    if (o->samples.n > 0)
        return ax_error(
            AX_ERR_UNSUPPORTED,
            "samples: a run on %d ranks generates no answers so far. Remove the key, or "
            "train on one rank",
            t->mesh.world);
    return AX_OK;
}
