/* Saves during training, and the trained model at its end. */
#include <string.h>

#include "optim/train_state.h"

/* ---- what a save contains ---- */

const struct ax_peft_config *ax_train_saved_adapter(const struct ax_train_options *o) {
    return o->step.relora.interval > 0 ? NULL : o->step.adapter;
}

static bool is_saved(const struct ax_train *t, const struct ax_param *p) {
    return ax_train_saved_adapter(t->o) ? p->trainable : !p->adapter;
}

/* The saved weights are those the model computes with. Masters are saved only if a wider dtype is
 * requested, and always for adapters, which are saved in float32. */
static struct ax_tensor saved_value(const struct ax_train *t, const struct ax_param *p) {
    const struct ax_segment *seg = &t->step.model.units[p->unit].segments[p->segment];
    if (p->adapter || seg->compute != t->o->save.hf.dtype)
        return ax_model_value(&t->step.model, p);
    char AX_DEVICE *data = seg->shard.data;
    data += (size_t)p->offset * ax_dtype_size(seg->compute);
    return ax_tensor_nd(seg->compute, data, p->ndim, p->shape);
}

/* With restarts, frozen weights change too, but rarely: they have units of their own. */
enum ax_status ax_train_save_create(struct ax_train *t) {
    struct ax_model *m = &t->step.model;
    const bool restarts = t->o->step.relora.interval > 0;
    AX_TRY(ax_saver_create(&t->saver, m->rt->q, restarts ? 2 * m->n_units : m->n_units));
    AX_TRY(ax_alloc(&t->weights, (size_t)m->n_params, sizeof *t->weights));
    if (ax_train_saved_adapter(t->o))
        AX_TRY(ax_alloc(&t->names, (size_t)m->n_params, sizeof *t->names));
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        struct ax_save_weight *w = &t->weights[t->n_weights];
        if (!is_saved(t, p))
            continue;
        *w = (struct ax_save_weight){.name = p->name,
                                     .ndim = p->ndim,
                                     .value = saved_value(t, p),
                                     .unit = restarts ? m->n_units + p->unit : p->unit,
                                     .dtype = p->adapter ? AX_F32 : t->o->save.hf.dtype};
        if (t->names)
            w->name = ax_adapter_tensor_name(p, t->names[t->n_weights], sizeof *t->names);
        w->concat = ax_adapter_concat(m, p, w->shape);
        t->n_weights++;
    }
    AX_TRY(ax_param_states_parts(m, t->step.states, &t->parts));
    if (restarts)
        ax_relora_parts(m, &t->parts);
    ax_saver_create_stage(&t->saver, t->n_weights, t->weights,
                          t->o->save.only_model ? NULL : &t->parts, AX_SAVER_STAGE);
    if (!restarts)
        return AX_OK;
    return ax_alloc(&t->adapters, 2 * (size_t)t->n_weights, sizeof *t->adapters);
}

enum ax_status ax_train_save_plan(struct ax_train *t) {
    if (!ax_queue_has_host_tier(t->rt->q))
        return AX_OK;
    const enum ax_status st = ax_train_save_create(t);
    ax_train_save_free(t);
    return st;
}

static enum ax_status read_floats(struct ax_train *t, const struct ax_param *p, float **out) {
    const struct ax_tensor value = ax_model_value(&t->step.model, p);
    AX_ASSERT(value.dtype == AX_F32);
    if (!*out)
        AX_TRY(ax_alloc(out, (size_t)ax_param_numel(p), sizeof **out));
    return ax_queue_read(t->rt->q, value.data, *out, ax_tensor_bytes(&value), NULL);
}

static struct ax_save_weight *weight_of(const struct ax_train *t, const char *name) {
    int i = 0;
    while (strcmp(t->weights[i].name, name) != 0)
        i++;
    return &t->weights[i];
}

/* Takes the adapters as they are now, because the optimizer changes them while a save is being
 * written. */
static enum ax_status take_adapters(struct ax_train *t) {
    struct ax_model *m = &t->step.model;
    for (int unit = 0; t->adapters && unit < m->n_units; unit++) {
        const struct ax_adapter *adapters[AX_UNIT_MAX_ADAPTERS];
        const int n = ax_adapter_of_unit(m, unit, adapters);
        for (int i = 0; i < n; i++) {
            const struct ax_adapter *a = adapters[i];
            struct ax_save_weight *w = weight_of(t, a->weight->name);
            float **both = &t->adapters[2 * (w - t->weights)];
            AX_TRY(read_floats(t, a->a, &both[0]));
            AX_TRY(read_floats(t, a->b, &both[1]));
            w->delta = (struct ax_delta){.cols = a->weight->shape[1],
                                         .r = a->a->shape[0],
                                         .scale = a->scale,
                                         .a = both[0],
                                         .b = both[1]};
        }
    }
    return AX_OK;
}

void ax_train_save_free(struct ax_train *t) {
    ax_saver_free(&t->saver);
    ax_state_parts_free(&t->parts);
    for (int i = 0; t->adapters && i < 2 * t->n_weights; i++)
        ax_free(t->adapters[i]);
    ax_free(t->adapters);
    ax_free(t->weights);
    ax_free(t->names);
    t->adapters = NULL;
    t->weights = NULL;
    t->names = NULL;
}

/* ---- checkpoints ---- */

/* Training goes on after one failed save, since disk space may become free and the previous
 * checkpoint is intact, but not after two in a row. */
static enum ax_status take_note(struct ax_train *t, enum ax_status st, bool last) {
    const int64_t step = t->saving;
    t->saving = 0;
    if (st == AX_OK) {
        t->failed_saves = 0;
        t->saved = step;
        ax_metrics_event(t->metrics, AX_EVENT_SAVED, step, "%s/checkpoint-%lld",
                         t->o->save.output_dir, (long long)step);
        return AX_OK;
    }
    t->kept = t->kept_before;
    if (last || ++t->failed_saves > 1)
        return st;
    ax_metrics_event(t->metrics, AX_EVENT_WARNING, t->done,
                     "checkpoint-%lld was not saved: %s; training continues, and the next save is "
                     "tried again",
                     (long long)step, ax_error_text());
    ax_error_clear();
    return AX_OK;
}

enum ax_status ax_train_save_poll(struct ax_train *t, enum ax_save_wait wait) {
    if (t->saving == 0 || (wait == AX_SAVE_LOOK && !ax_saver_is_due(&t->saver)))
        return AX_OK;
    return take_note(t, ax_saver_finish(&t->saver), wait == AX_SAVE_LAST);
}

enum ax_status ax_train_save_start(struct ax_train *t, bool last) {
    const struct ax_train_save *save = &t->o->save;
    struct ax_save_job job = {.output_dir = save->output_dir,
                              .step = t->done,
                              .hf = save->hf,
                              .n_weights = t->n_weights,
                              .weights = t->weights,
                              .parts = save->only_model ? NULL : &t->parts,
                              .mesh = &t->rt->mesh,
                              .limit = save->limit};
    job.hf.adapter = ax_train_saved_adapter(t->o);
    AX_TRY(take_adapters(t));
    if (t->o->eval.keep_best && t->kept.step > 0)
        job.keep[job.n_keep++] = t->kept.step;
    AX_TRY(ax_train_describe(t, &job.run));
    const enum ax_status st = ax_saver_start(&t->saver, &job);
    t->saving = t->done;
    return st == AX_OK ? AX_OK : take_note(t, st, last);
}

/* ---- the trained model ---- */

static enum ax_status write_model(struct ax_train *t, const char *dir, struct ax_sum_list *files) {
    struct ax_st_output *tensors = NULL;
    struct ax_st_source *sources = NULL;
    const size_t n = (size_t)t->n_weights;
    struct ax_hf_save hf = t->o->save.hf;
    hf.adapter = ax_train_saved_adapter(t->o);
    enum ax_status st;
    AX_TRY_GOTO(take_adapters(t), st, done);
    AX_TRY_GOTO(ax_alloc(&tensors, n, sizeof *tensors), st, done);
    AX_TRY_GOTO(ax_alloc(&sources, n, sizeof *sources), st, done);
    for (size_t i = 0; i < n; i++) {
        const struct ax_save_weight *w = &t->weights[i];
        sources[i] = (struct ax_st_source){w->value, w->concat, w->delta, w->dtype, t->rt->q};
        tensors[i] = (struct ax_st_output){.name = w->name,
                                           .dtype = w->dtype,
                                           .ndim = w->ndim,
                                           .fill = ax_st_fill,
                                           .ctx = &sources[i]};
        memcpy(tensors[i].shape, w->shape, (size_t)w->ndim * sizeof *w->shape);
    }
    hf.n = t->n_weights;
    hf.tensors = tensors;
    hf.sums = files;
    AX_TRY_GOTO(ax_hf_write_into(dir, &hf), st, done);
done:
    ax_free(sources);
    ax_free(tensors);
    return st;
}

static enum ax_status move_file(const char *from_dir, const char *to_dir, const char *name) {
    char *from = NULL, *to = NULL;
    AX_TRY(ax_path_join(&from, from_dir, name));
    enum ax_status st = ax_path_join(&to, to_dir, name);
    if (st == AX_OK)
        st = ax_rename(from, to);
    ax_free(to);
    ax_free(from);
    return st;
}

/* Moves `config` last: nothing recognizes a folder without it as a model or adapter. */
static enum ax_status move_files(const char *from, const char *to, const struct ax_sum_list *files,
                                 const char *config) {
    AX_TRY(ax_train_folder_clear(to));
    for (size_t i = 0; i < files->n; i++)
        if (strcmp(files->files[i].name, config) != 0)
            AX_TRY(move_file(from, to, files->files[i].name));
    AX_TRY(ax_sync_dir(to));
    AX_TRY(move_file(from, to, config));
    return ax_sync_dir(to);
}

/* output_dir contains more than the model, so one rename cannot replace it: the files are written
 * and synced in a subfolder and then moved up. */
enum ax_status ax_train_publish(struct ax_train *t) {
    const char *output_dir = t->o->save.output_dir;
    const char *config = ax_train_saved_adapter(t->o) ? AX_PEFT_CONFIG : "config.json";
    struct ax_sum_list files = {0};
    char *tmp, *best = NULL;
    enum ax_status st = AX_OK;
    AX_TRY(ax_path_join(&tmp, output_dir, ".model.tmp"));
    if (t->o->eval.load_best && t->kept.step > 0) {
        AX_TRY_GOTO(ax_checkpoint_path(&best, output_dir, t->kept.step), st, done);
        AX_TRY_GOTO(ax_train_load_weights(t, best), st, done);
    }
    AX_TRY_GOTO(ax_remove_tree(tmp), st, done);
    AX_TRY_GOTO(ax_mkdir(tmp), st, done);
    AX_TRY_GOTO(write_model(t, tmp, &files), st, done);
    AX_TRY_GOTO(move_files(tmp, output_dir, &files, config), st, done);
    AX_TRY_GOTO(ax_remove_tree(tmp), st, done);
done:
    if (st != AX_OK) {
        struct ax_error_record first;
        ax_error_save(&first, st);
        (void)ax_remove_tree(tmp); /* its files may be what fills the disk */
        st = ax_error_restore(&first);
    }
    ax_sum_list_free(&files);
    ax_free(best);
    ax_free(tmp);
    return st;
}
