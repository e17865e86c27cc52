/* Saves during training, and the trained model at its end. */
#include <string.h>

#include "kernels/transfer.h"
#include "model/adapter/load.h"
#include "model/adapter/pissa.h"
#include "optim/train/run.h"
#include "parallel/job/progress.h"

/* ---- what a save contains ---- */

const struct ax_peft_config *ax_train_saved_adapter(const struct ax_train_options *o) {
    return o->step.relora.interval > 0 ? NULL : o->step.model.adapter;
}

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

/* With restarts, frozen weights change too, but rarely: they have units of their own. */
enum ax_status ax_train_save_create(struct ax_train *t) {
    struct ax_model *m = &t->step.model;
    const bool restarts = t->o->step.relora.interval > 0;
    const int units = restarts ? 2 * m->n_units : m->n_units;
    AX_TRY(ax_saver_create(&t->saver, m->rt->q, &t->team, units + t->value.step.model.n_units));
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
                                     .unit = restarts ? m->n_units + p->unit : p->unit,
                                     .dtype =
                                         p->adapter || p->buffer ? AX_F32 : t->o->save.hf.dtype};
        if (t->names)
            w->name = ax_adapter_tensor_name(p, t->names[t->n_weights], sizeof *t->names);
        add_parts(t, p, w);
        t->n_weights++;
    }
    AX_TRY(ax_param_states_parts(m, t->step.states, &t->parts));
    if (restarts)
        ax_relora_parts(m, &t->parts);
    AX_TRY(ax_train_value_parts(t, units));
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

static enum ax_status read_floats(struct ax_queue *q, const struct ax_tensor *value, float **out) {
    if (!*out)
        AX_TRY(ax_alloc(out, (size_t)ax_tensor_numel(value), sizeof **out));
    return ax_tensor_read(q, value, AX_F32, *out);
}

static int weight_of(const struct ax_train *t, const char *name) {
    int i = 0;
    while (strcmp(t->weights[i].name, name) != 0)
        i++;
    return i;
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
    float **both = &t->adapters[2 * i];
    AX_TRY(read_floats(t->rt->q, &A, &both[0]));
    AX_TRY(read_floats(t->rt->q, &B, &both[1]));
    struct ax_save_part *part = &t->weights[i].parts[0];
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
    ax_state_parts_free(&t->parts);
    for (int i = 0; t->adapters && i < 2 * t->n_weights; i++)
        ax_free(t->adapters[i]);
    ax_free(t->adapters);
    ax_free(t->weights);
    ax_free(t->names);
    ax_free(t->value.names);
    t->value.names = NULL;
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
        ax_progress_note(step);
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
    if (t->saving == 0 || (wait == AX_SAVE_LOOK && !t->vote.saved))
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
    AX_TRY(ax_train_take_adapters(t));
    if (t->o->eval.keep_best && t->kept.step > 0)
        job.keep[job.n_keep++] = t->kept.step;
    if (ax_train_is_main(t))
        AX_TRY(ax_train_describe(t, &job.run));
    const enum ax_status st = ax_saver_start(&t->saver, &job);
    t->saving = t->done;
    if (st == AX_OK || t->mesh.world > 1) /* the other ranks' savers wait for this one's */
        return st;
    return take_note(t, st, last);
}

/* ---- the trained model ---- */

/* The tensors of the model, and what this rank has of them. */
struct outputs {
    struct ax_st_output *tensors; /* [n_weights] */
    struct ax_st_part *parts;     /* [2·n_weights] */
    struct ax_st_source *sources; /* [2·n_weights] */
};

static void free_outputs(struct outputs *all) {
    ax_free(all->tensors);
    ax_free(all->parts);
    ax_free(all->sources);
}

static enum ax_status make_outputs(struct ax_train *t, struct outputs *all) {
    const size_t n = (size_t)t->n_weights;
    AX_TRY(ax_train_take_adapters(t));
    AX_TRY(ax_alloc(&all->tensors, n, sizeof *all->tensors));
    AX_TRY(ax_alloc(&all->parts, 2 * n, sizeof *all->parts));
    AX_TRY(ax_alloc(&all->sources, 2 * n, sizeof *all->sources));
    for (size_t i = 0; i < n; i++) {
        const struct ax_save_weight *w = &t->weights[i];
        all->tensors[i] = (struct ax_st_output){.name = w->name,
                                                .dtype = w->dtype,
                                                .ndim = w->ndim,
                                                .n_parts = w->n_parts,
                                                .parts = all->parts + 2 * i};
        memcpy(all->tensors[i].shape, w->shape, (size_t)w->ndim * sizeof *w->shape);
        for (int k = 0; k < w->n_parts; k++) {
            const struct ax_save_part *p = &w->parts[k];
            all->sources[2 * i + (size_t)k] =
                (struct ax_st_source){p->value, p->delta, w->dtype, t->rt->q};
            all->parts[2 * i + (size_t)k] = (struct ax_st_part){
                .block = p->block, .fill = ax_st_fill, .ctx = &all->sources[2 * i + (size_t)k]};
        }
    }
    return AX_OK;
}

/* All ranks together; AX_OK is this rank's. */
static enum ax_status write_model(struct ax_train *t, const char *dir, struct ax_sum_list *files) {
    struct outputs all = {0};
    struct ax_hf_save hf = t->o->save.hf;
    const enum ax_status st = ax_team_agree(&t->team, make_outputs(t, &all));
    if (st == AX_OK) {
        hf.adapter = ax_train_saved_adapter(t->o);
        hf.n = t->n_weights;
        hf.tensors = all.tensors;
        hf.sums = files;
        hf.team = &t->team;
    }
    const enum ax_status written = st == AX_OK ? ax_hf_write_into(dir, &hf) : st;
    free_outputs(&all);
    return written;
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

static enum ax_status load_best(struct ax_train *t) {
    char *best;
    if (!t->o->eval.load_best || t->kept.step == 0)
        return AX_OK;
    AX_TRY(ax_checkpoint_path(&best, t->o->save.output_dir, t->kept.step));
    const enum ax_status st = ax_train_load_weights(t, best);
    ax_free(best);
    return st;
}

static enum ax_status make_folder(const char *tmp) {
    AX_TRY(ax_remove_tree(tmp));
    return ax_mkdir(tmp);
}

static enum ax_status publish(struct ax_train *t, const char *tmp, struct ax_sum_list *files) {
    const bool leads = ax_train_is_main(t);
    const char *config = ax_train_saved_adapter(t->o) ? AX_PEFT_CONFIG : "config.json";
    AX_TRY(ax_team_agree(&t->team, load_best(t)));
    AX_TRY(ax_team_agree(&t->team, leads ? make_folder(tmp) : AX_OK));
    AX_TRY(ax_team_agree(&t->team, write_model(t, tmp, files)));
    enum ax_status st = AX_OK;
    if (leads)
        st = move_files(tmp, t->o->save.output_dir, files, config);
    if (leads && st == AX_OK)
        st = ax_remove_tree(tmp);
    return ax_team_agree(&t->team, st);
}

/* output_dir contains more than the model, so one rename cannot replace it: the files are written
 * and synced in a subfolder and then moved up. */
enum ax_status ax_train_publish(struct ax_train *t) {
    struct ax_sum_list files = {0};
    char *tmp;
    AX_TRY(ax_path_join(&tmp, t->o->save.output_dir, ".model.tmp"));
    enum ax_status st = publish(t, tmp, &files);
    if (st != AX_OK && ax_train_is_main(t)) {
        struct ax_error_record first;
        ax_error_save(&first, st);
        (void)ax_remove_tree(tmp); /* its files may be what fills the disk */
        st = ax_error_restore(&first);
    }
    ax_sum_list_free(&files);
    ax_free(tmp);
    return st;
}
