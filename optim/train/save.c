/* Saves during training, and the trained model at its end; contents.c says of what. */
#include <string.h>

#include "base/log.h"
#include "optim/train/run.h"
#include "parallel/job/notes.h"

/* ---- checkpoints ---- */

/* The one before it, or the newest on the disk, is there still. */
static enum ax_status note_save_in_memory(struct ax_train *t, enum ax_status st, int64_t step) {
    t->elastic.in_memory = false;
    if (st == AX_OK) {
        t->elastic.saved = step;
        ax_note_saved(step);
    } else if (st != AX_ERR_PEER) { /* else the next collective tells */
        ax_log_warn("elastic: no checkpoint of step %lld in memory: %s", (long long)step,
                    ax_error_text());
    }
    ax_error_clear();
    return AX_OK;
}

/* Training goes on after one failed save, since disk space may become free and the previous
 * checkpoint is intact, but not after two in a row, or without a rank. Only rank 0 knows what is on
 * the disk if a rank was lost. */
static enum ax_status note_failed_save(struct ax_train *t, enum ax_status st, int64_t step,
                                       bool last) {
    const char *how = t->saver.placed ? "was written, but not verified" : "was not saved";
    t->kept = t->kept_before;
    if (last || t->team.broken || ++t->failed_saves > 1)
        return ax_train_is_main(t) ? ax_error_prefix(st, "checkpoint-%lld %s", (long long)step, how)
                                   : st;
    ax_metrics_event(t->metrics, AX_EVENT_WARNING, t->done,
                     "checkpoint-%lld %s: %s; training continues, and the next save is tried again",
                     (long long)step, how, ax_error_text());
    ax_error_clear();
    return AX_OK;
}

static enum ax_status note_save(struct ax_train *t, enum ax_status st, bool last) {
    const int64_t step = t->saving;
    t->saving = 0;
    if (t->elastic.in_memory)
        return note_save_in_memory(t, st, step);
    if (st == AX_OK) {
        t->failed_saves = 0;
        t->saved = step;
        ax_note_saved(step);
        ax_metrics_event(t->metrics, AX_EVENT_SAVED, step, "%s/checkpoint-%lld",
                         t->o->save.output_dir, (long long)step);
        return AX_OK;
    }
    return note_failed_save(t, st, step, last);
}

enum ax_status ax_train_save_poll(struct ax_train *t, enum ax_save_wait wait) {
    if (t->saving == 0 || (wait == AX_SAVE_LOOK && !t->vote.saved))
        return AX_OK;
    return note_save(t, ax_saver_finish(&t->saver), wait == AX_SAVE_LAST);
}

/* The newest checkpoint in output_dir up to this step; *path is NULL if there is none. */
static enum ax_status newest_checkpoint(const struct ax_train *t, int64_t *step, char **path) {
    struct ax_checkpoint_list l;
    AX_TRY(ax_checkpoint_list(&l, t->o->save.output_dir));
    while (l.n > 0 && l.steps[l.n - 1] > t->done)
        l.n--;
    *step = l.n > 0 ? l.steps[l.n - 1] : 0;
    const enum ax_status st =
        l.n > 0 ? ax_checkpoint_path(path, t->o->save.output_dir, *step) : AX_OK;
    ax_checkpoint_list_free(&l);
    return st;
}

enum ax_status ax_train_saved_before(const struct ax_train *t, struct ax_metrics_saved *saved) {
    *saved = (struct ax_metrics_saved){0};
    if (t->done == 0)
        return AX_OK;
    AX_TRY(newest_checkpoint(t, &saved->step, &saved->path));
    saved->told = saved->path && ax_metrics_has_saved(t->o->save.output_dir, saved->step);
    if (!saved->path || saved->told || saved->step == t->saved ||
        ax_checkpoint_check(saved->path) == AX_OK)
        return AX_OK;
    ax_error_clear(); /* a save that failed when it was verified */
    ax_free(saved->path);
    saved->path = NULL;
    return AX_OK;
}

/* Starts the save that `job` describes, of the current step. */
static enum ax_status start_save(struct ax_train *t, struct ax_save_job *job, bool last) {
    AX_TRY(ax_train_check_weights(t));
    AX_TRY(ax_train_take_adapters(t));
    if (ax_train_is_main(t))
        AX_TRY(ax_train_describe(t, &job->run));
    const enum ax_status st = ax_saver_start(&t->saver, job);
    t->saving = t->done;
    if (st == AX_OK || t->mesh.world > 1) /* the other ranks' savers wait for this one's */
        return st;
    return note_save(t, st, last);
}

enum ax_status ax_train_save_start(struct ax_train *t, bool last) {
    const struct ax_train_save *save = &t->o->save;
    struct ax_save_job job = {.output_dir = save->output_dir,
                              .step = t->done,
                              .hf = save->hf,
                              .n_weights = t->contents.n_weights,
                              .weights = t->contents.weights,
                              .parts = save->only_model ? NULL : &t->contents.parts,
                              .mesh = &t->rt->mesh,
                              .limit = save->limit};
    job.hf.adapter = ax_train_saved_adapter(t->o);
    if (t->o->eval.keep_best && t->kept.step > 0)
        job.keep[job.n_keep++] = t->kept.step;
    t->elastic.asked = t->done;
    AX_TRY(ax_train_ahead_collect(t));
    return start_save(t, &job, last);
}

enum ax_status ax_train_save_in_memory(struct ax_train *t) {
    struct ax_save_job job = {.output_dir = t->o->elastic.dir,
                              .step = t->done,
                              .hf = t->o->save.hf,
                              .state_only = !ax_train_has_buffers(t),
                              .n_weights = t->contents.n_weights,
                              .weights = t->contents.weights,
                              .parts = &t->contents.parts,
                              .mesh = &t->rt->mesh,
                              .limit = 1};
    job.hf.adapter = ax_train_saved_adapter(t->o);
    t->elastic.in_memory = true;
    return start_save(t, &job, false);
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
    const size_t n = (size_t)t->contents.n_weights;
    AX_TRY(ax_train_take_adapters(t));
    AX_TRY(ax_alloc(&all->tensors, n, sizeof *all->tensors));
    AX_TRY(ax_alloc(&all->parts, 2 * n, sizeof *all->parts));
    AX_TRY(ax_alloc(&all->sources, 2 * n, sizeof *all->sources));
    for (size_t i = 0; i < n; i++) {
        const struct ax_save_weight *w = &t->contents.weights[i];
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
        hf.n = t->contents.n_weights;
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
    const bool below = strchr(name, '/') != NULL;
    if (st == AX_OK && below)
        st = ax_mkdir_for(to);
    if (st == AX_OK)
        st = ax_rename(from, to);
    if (st == AX_OK && below)
        st = ax_sync_parent(to);
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

static enum ax_status make_empty_folder(const char *tmp) {
    AX_TRY(ax_remove_tree(tmp));
    return ax_mkdir(tmp);
}

static enum ax_status publish_model(struct ax_train *t, const char *tmp,
                                    struct ax_sum_list *files) {
    const bool leads = ax_train_is_main(t);
    const char *config = ax_train_saved_adapter(t->o) ? AX_PEFT_CONFIG : "config.json";
    AX_TRY(ax_team_agree(&t->team, load_best(t)));
    AX_TRY(ax_team_agree(&t->team, leads ? make_empty_folder(tmp) : AX_OK));
    AX_TRY(ax_team_agree(&t->team, write_model(t, tmp, files)));
    enum ax_status st = AX_OK;
    if (leads)
        st = move_files(tmp, t->o->save.output_dir, files, config);
    if (leads && st == AX_OK)
        st = ax_remove_tree(tmp);
    return ax_team_agree(&t->team, st);
}

/* A better evaluation may be that of a step that is not saved. */
static void tell_best(struct ax_train *t) {
    const int64_t step = t->kept.step;
    const char *dir = t->o->save.output_dir;
    if (!t->o->eval.load_best)
        return;
    if (step > 0)
        ax_metrics_event(t->metrics, AX_EVENT_BEST, step,
                         "%s has the weights of checkpoint-%lld, whose eval_%s is %.5g", dir,
                         (long long)step, ax_train_best_by(t), t->kept.value);
    if (ax_train_is_main(t) && t->best_step > 0 && (step == 0 || t->best != t->kept.value))
        ax_log_warn("load_best_model_at_end: the best evaluation was that of step %lld, which was "
                    "not saved in %s; let save_steps be eval_steps, or save_strategy best",
                    (long long)t->best_step, dir);
}

/* output_dir contains more than the model, so one rename cannot replace it: the files are written
 * and synced in a subfolder and then moved up. */
enum ax_status ax_train_publish(struct ax_train *t) {
    struct ax_sum_list files = {0};
    char *tmp;
    AX_TRY(ax_path_join(&tmp, t->o->save.output_dir, ".model.tmp"));
    enum ax_status st = publish_model(t, tmp, &files);
    if (st != AX_OK && ax_train_is_main(t)) {
        struct ax_error_record first;
        ax_error_save(&first, st);
        (void)ax_remove_tree(tmp); /* its files may be what fills the disk */
        st = ax_error_restore(&first);
    }
    if (st == AX_OK)
        tell_best(t);
    ax_sum_list_free(&files);
    ax_free(tmp);
    return st;
}
