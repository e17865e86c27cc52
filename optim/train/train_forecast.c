/* What a run will need: memory, steps, tokens and disk space, from dry runs and counts. */
#include "optim/train/run.h"

static enum ax_status count(const struct ax_train_options *o, struct ax_train_schedule *s,
                            struct ax_train_forecast *f) {
    if (!o->data.countable && o->max_steps == 0)
        return AX_OK;
    const struct ax_mesh_sizes *sizes = &o->runtime.sizes;
    const int replicas = sizes->dp_replicate > 1 ? sizes->dp_replicate : 1;
    const int ranks = replicas * (sizes->dp_shard > 1 ? sizes->dp_shard : 1);
    AX_TRY(ax_train_schedule_make(s, o, ranks));
    f->steps = s->total;
    if (!o->data.countable)
        return AX_OK;
    AX_TRY(ax_loader_count_epoch(o->data.train, 0, 1, &f->epoch));
    const int64_t per_step = ax_train_sequences_per_step(o, ranks);
    const int64_t n = f->epoch.sequences / s->unit * s->unit, steps = (n + per_step - 1) / per_step;
    f->epochs = (double)s->total / (double)steps;
    f->tokens = (int64_t)(f->epochs * (double)f->epoch.tokens);
    return AX_OK;
}

enum ax_status ax_train_forecast(const struct ax_train_options *o, struct ax_step_options *step,
                                 struct ax_train_forecast *out) {
    struct ax_train t = {.o = o, .runtime = o->runtime, .lock = {.fd = -1}};
    struct ax_train_disk disk;
    *out = (struct ax_train_forecast){0};
    AX_TRY(ax_train_fit(o, step, &out->fit));
    enum ax_status st;
    AX_TRY_GOTO(count(o, &t.schedule, out), st, done);
    AX_TRY_GOTO(ax_train_disk(&t, step, &disk), st, done);
    out->checkpoints = disk.checkpoints;
    out->checkpoint_bytes = disk.checkpoint;
    out->disk_bytes = disk.need;
    out->disk_available = disk.available;
done:
    ax_train_schedule_free(&t.schedule);
    return st;
}
