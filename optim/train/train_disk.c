/* Disk space: how much the checkpoints and the model of a run need, and whether it is available. */
#include <math.h>

#include "base/clock.h"
#include "base/free_space.h"
#include "base/io_path.h"
#include "optim/train/run.h"

static double weight_bytes(const struct ax_train *t) {
    double bytes = 0;
    for (int i = 0; i < t->n_weights; i++) {
        const struct ax_save_weight *w = &t->weights[i];
        const struct ax_block all = ax_block_whole(w->ndim, w->shape);
        bytes += (double)all.n * (double)ax_dtype_size(w->dtype);
    }
    return bytes;
}

/* Remaining saves, including the final one. */
static int64_t planned_saves(const struct ax_train *t) {
    const struct ax_train_schedule *s = &t->schedule;
    if (t->o->save.when.when == AX_NEVER)
        return 0;
    if (s->save_every > 0)
        return (s->total + s->save_every - 1) / s->save_every;
    return (int64_t)ceil((double)s->total / s->of_epoch - 1e-9);
}

/* Free space of the file system where `dir` is or will be created. */
static enum ax_status free_at(const char *dir, uint64_t *bytes) {
    char *at;
    AX_TRY(ax_strdup(&at, dir));
    enum ax_status st = AX_OK;
    while (st == AX_OK && !ax_path_is_dir(at)) {
        char *parent;
        st = ax_path_parent(&parent, at);
        if (st != AX_OK)
            break;
        ax_free(at);
        at = parent;
    }
    if (st == AX_OK)
        st = ax_disk_free(at, bytes);
    ax_free(at);
    return st;
}

static enum ax_status count(const struct ax_train *t, struct ax_train_disk *d) {
    const struct ax_train_save *save = &t->o->save;
    struct ax_checkpoint_list l = {0};
    if (ax_path_is_dir(save->output_dir))
        AX_TRY(ax_checkpoint_list(&l, save->output_dir));
    const int64_t there = (int64_t)l.n;
    ax_checkpoint_list_free(&l);
    const double model = weight_bytes(t);
    const double each = model + (save->only_model ? 0 : (double)ax_state_parts_bytes(&t->parts));
    int64_t kept = planned_saves(t);
    if (save->limit > 0 && kept > save->limit)
        kept = save->limit + 1; /* the oldest is removed only after the newest is complete */
    kept = kept > there ? kept - there : 0;
    *d = (struct ax_train_disk){
        .checkpoints = kept, .checkpoint = each, .need = (double)kept * each + model};
    return free_at(save->output_dir, &d->available);
}

/* Runs on a planning runtime, which has the names and shapes of what is saved, but no data. */
enum ax_status ax_train_disk(const struct ax_train *t, const struct ax_step_options *so,
                             struct ax_train_disk *d) {
    struct ax_runtime rt;
    struct ax_train dry = {.o = t->o, .rt = &rt, .schedule = t->schedule, .lock = {.fd = -1}};
    const struct ax_runtime_options one = {.backend = t->runtime.backend, .threads = 1};
    AX_TRY(ax_runtime_open_planning(&rt, &one)); /* the mesh does not change what is saved */
    enum ax_status st = ax_step_create(&dry.step, &rt, t->o->arch, so);
    if (st == AX_OK) {
        st = ax_train_value_create(&dry);
        if (st == AX_OK)
            st = ax_train_save_create(&dry);
        if (st == AX_OK)
            st = count(&dry, d);
        ax_train_save_free(&dry);
        ax_train_value_free(&dry);
        ax_step_free(&dry.step);
    }
    ax_runtime_close(&rt);
    return st;
}

enum ax_status ax_train_check_disk(const struct ax_train *t, const struct ax_step_options *so) {
    const struct ax_train_save *save = &t->o->save;
    struct ax_train_disk d;
    AX_TRY(ax_train_disk(t, so, &d));
    if (d.need <= (double)d.available)
        return AX_OK;
    char a[32], b[32], c[32];
    return ax_error(AX_ERR_STORAGE,
                    "output_dir: %s has %s free, but %lld more checkpoints of %s and the trained "
                    "model need %s; lower save_total_limit, set save_only_model: true, or choose "
                    "another folder",
                    save->output_dir, ax_format_bytes(a, sizeof a, (double)d.available),
                    (long long)d.checkpoints, ax_format_bytes(b, sizeof b, d.checkpoint),
                    ax_format_bytes(c, sizeof c, d.need));
}
