/* output_dir before training: checks it (not used by another run, writable, the same on all hosts, enough disk
 * space), selects the checkpoint to resume from, and writes run.json. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/log.h"
#include "optim/plan/plan.h"
#include "optim/train/run.h"

/* ---- models in a folder ---- */

/* The files that mark a folder as a model or adapter: the configs, without which nothing loads the
 * rest, and the weights or their index. */
#define N_CONFIGS 2
static const char *const model_files[] = {"config.json", AX_PEFT_CONFIG, "model.safetensors",
                                          "model.safetensors.index.json", AX_PEFT_WEIGHTS};
static const size_t n_model_files = sizeof model_files / sizeof *model_files;

/* Does the folder contain one of the marks from first to before end, no matter who wrote it? */
static enum ax_status has_marks(const char *dir, size_t first, size_t end, bool *found) {
    *found = false;
    for (size_t i = first; !*found && i < end; i++) {
        char *path;
        AX_TRY(ax_path_join(&path, dir, model_files[i]));
        *found = ax_path_exists(path);
        ax_free(path);
    }
    return AX_OK;
}

static enum ax_status remove_files(const char *dir, size_t first, size_t end, bool *removed) {
    for (size_t i = first; i < end; i++) {
        char *path;
        enum ax_status st = AX_OK;
        AX_TRY(ax_path_join(&path, dir, model_files[i]));
        if (ax_path_exists(path)) {
            *removed = true;
            st = ax_unlink(path);
        }
        ax_free(path);
        AX_TRY(st);
    }
    return AX_OK;
}

enum ax_status ax_train_folder_clear(const char *dir) {
    bool removed = false;
    AX_TRY(remove_files(dir, 0, N_CONFIGS, &removed));
    if (removed)
        AX_TRY(ax_sync_dir(dir));
    return remove_files(dir, N_CONFIGS, n_model_files, &removed);
}

static enum ax_status refuse_used(const char *dir, const struct ax_checkpoint_list *l) {
    bool holds_model;
    if (l->n > 0)
        return ax_error(AX_ERR_CONFIG,
                        "output_dir: %s contains the checkpoints of another run (newest: "
                        "checkpoint-%lld); resume it with resume_from_checkpoint: auto, or choose "
                        "another folder",
                        dir, (long long)l->steps[l->n - 1]);
    if (l->stateless > 0) {
        AX_TRY(ax_checkpoint_refuse_links(dir, 0));
        return ax_error(
            AX_ERR_CONFIG,
            "output_dir: %s contains checkpoint-%lld, which has no %s, so it is another "
            "program's, and a save would replace it; choose another folder",
            dir, (long long)l->stateless, AX_CHECKPOINT_MANIFEST);
    }
    AX_TRY(has_marks(dir, 0, n_model_files, &holds_model));
    if (holds_model)
        return ax_error(AX_ERR_CONFIG,
                        "output_dir: %s already contains a model; choose another folder", dir);
    return AX_OK;
}

/* True if `dir` is a direct child of output_dir. */
static bool lies_inside(const char *dir, const char *output_dir) {
    char a[PATH_MAX], b[PATH_MAX];
    if (!realpath(dir, a) || !realpath(output_dir, b))
        return false;
    char *slash = strrchr(a, '/');
    if (slash)
        *slash = '\0';
    return strcmp(a, b) == 0;
}

/* ---- the checkpoint to resume from ---- */

/* The newest intact checkpoint; *path is NULL if there is none. */
static enum ax_status newest_good(const char *output_dir, const struct ax_checkpoint_list *l,
                                  char **path) {
    for (size_t i = l->n; i-- > 0;) {
        AX_TRY(ax_checkpoint_path(path, output_dir, l->steps[i]));
        if (ax_checkpoint_check(*path) == AX_OK)
            return AX_OK;
        ax_log_warn("skipping %s: %s", *path, ax_error_text());
        ax_error_clear();
        ax_free(*path);
        *path = NULL;
    }
    return AX_OK;
}

/* Opens the newest checkpoint, or the newest of those that can be opened. */
static enum ax_status open_newest(struct ax_checkpoint *c, const struct ax_train_save *save,
                                  const struct ax_checkpoint_list *l) {
    enum ax_status st = AX_OK;
    for (size_t i = l->n; i-- > 0;) {
        char *path;
        ax_error_clear(); /* of a newer one */
        AX_TRY(ax_checkpoint_path(&path, save->output_dir, l->steps[i]));
        st = ax_checkpoint_open(c, path);
        ax_free(path);
        if (st == AX_OK || st == AX_ERR_NOMEM || save->resume != AX_RESUME_NEWEST_GOOD)
            break;
    }
    return st;
}

enum ax_status ax_train_resumed_dtype(const struct ax_train_save *save, enum ax_dtype *dtype) {
    struct ax_checkpoint_list l = {0};
    struct ax_checkpoint c = {0};
    enum ax_status st = AX_OK;
    if (save->resume == AX_RESUME_NEWEST || save->resume == AX_RESUME_NEWEST_GOOD)
        st = ax_checkpoint_list(&l, save->output_dir);
    if (st == AX_OK && l.n > 0)
        st = open_newest(&c, save, &l);
    else if (st == AX_OK && save->resume != AX_RESUME_NO && save->resume_dir)
        st = ax_checkpoint_open(&c, save->resume_dir);
    if (st != AX_OK && st != AX_ERR_NOMEM) { /* it is reported when the run resumes */
        ax_error_clear();
        st = AX_OK;
    }
    const char *name = json_string_value(json_object_get(c.run, "compute_dtype"));
    if (name && ax_dtype_parse(name, dtype) != AX_OK)
        st = ax_error_prefix(AX_ERR_DATA, "%s", c.dir);
    ax_checkpoint_close(&c);
    ax_checkpoint_list_free(&l);
    return st;
}

/* The folder of a run has checkpoints, and is none. */
static enum ax_status refuse_no_checkpoint(const char *dir) {
    char *path;
    AX_TRY(ax_path_join(&path, dir, AX_CHECKPOINT_MANIFEST));
    const bool there = ax_path_exists(path);
    ax_free(path);
    return there ? AX_OK
                 : ax_error(AX_ERR_CONFIG,
                            "resume_from_checkpoint: %s is not a checkpoint, as it has no %s; give "
                            "a folder checkpoint-N of a run",
                            dir, AX_CHECKPOINT_MANIFEST);
}

/* Checks that this run may write to output_dir. Called before anything is written there. */
static enum ax_status judge_folder(const struct ax_train_save *save,
                                   const struct ax_checkpoint_list *l) {
    if (save->resume == AX_RESUME_NO)
        return refuse_used(save->output_dir, l);
    if (save->resume != AX_RESUME_FOLDER)
        return l->n == 0 ? refuse_used(save->output_dir, l) : AX_OK;
    if (!ax_path_is_dir(save->resume_dir))
        return ax_error(AX_ERR_CONFIG, "resume_from_checkpoint: folder %s does not exist",
                        save->resume_dir);
    AX_TRY(refuse_no_checkpoint(save->resume_dir));
    return lies_inside(save->resume_dir, save->output_dir) ? AX_OK
                                                           : refuse_used(save->output_dir, l);
}

static enum ax_status choose_checkpoint(const struct ax_train_save *save,
                                        const struct ax_checkpoint_list *l, char **path) {
    *path = NULL;
    AX_TRY(judge_folder(save, l));
    if (save->resume == AX_RESUME_NO)
        return AX_OK;
    if (save->resume == AX_RESUME_FOLDER)
        return ax_strdup(path, save->resume_dir);
    if (save->resume == AX_RESUME_NEWEST_GOOD)
        AX_TRY(newest_good(save->output_dir, l, path));
    else if (l->n > 0)
        AX_TRY(ax_checkpoint_path(path, save->output_dir, l->steps[l->n - 1]));
    else if (save->resume_dir)
        return ax_strdup(path, save->resume_dir);
    if (*path)
        return AX_OK;
    if (l->n > 0) /* starting over would mix them with new ones, or remove them */
        return ax_error(
            AX_ERR_DATA,
            "resume_from_checkpoint: no checkpoint in %s is intact (%zu damaged); delete "
            "the folder to train from the beginning, or choose another output_dir",
            save->output_dir, l->n);
    return AX_OK;
}

enum ax_status ax_train_folder_judge(const struct ax_train_save *save) {
    struct ax_checkpoint_list l = {0};
    if (ax_path_is_dir(save->output_dir))
        AX_TRY(ax_checkpoint_list(&l, save->output_dir));
    const enum ax_status st = judge_folder(save, &l);
    ax_checkpoint_list_free(&l);
    return st;
}

/* Who can write there can exchange checkpoints, which a resumed run believes. */
static void warn_of_writers(const char *dir) {
    struct stat s;
    if (stat(dir, &s) != 0 || (s.st_mode & S_ISVTX) != 0)
        return;
    if ((s.st_mode & S_IWOTH) != 0)
        ax_log_warn("output_dir: every user of this machine can write to %s (mode %04o), and so "
                    "replace its checkpoints: `chmod o-w %s`",
                    dir, (unsigned)(s.st_mode & 07777), dir);
    else if ((s.st_mode & S_IWGRP) != 0 && s.st_uid != geteuid())
        ax_log_warn("output_dir: %s belongs to another user (%ld), and its group can write to it "
                    "(mode %04o), and so replace its checkpoints: choose a folder of your own, or "
                    "`chmod g-w %s`",
                    dir, (long)s.st_uid, (unsigned)(s.st_mode & 07777), dir);
}

#define SIGN ".axtrain.ranks-"

/* NAME.tmp-NUMBER, as a file is called until it is whole (base/io.h). */
static bool is_unfinished(const char *name) {
    static const char mark[] = ".tmp-";
    const char *at = strstr(name, mark), *digits = at ? at + sizeof mark - 1 : "";
    return *digits && strspn(digits, "0123456789") == strlen(digits);
}

/* What killed runs have left: signs (put_sign), and files that are not whole. Folders stay. */
static enum ax_status sweep_files(const char *output_dir) {
    struct ax_dir d;
    ax_dir_open(&d, output_dir);
    for (const char *name; (name = ax_dir_next(&d)) != NULL;)
        if (strncmp(name, SIGN, sizeof SIGN - 1) == 0 || is_unfinished(name))
            (void)unlinkat(dirfd(d.dir), name, 0);
    return ax_dir_end(&d, AX_OK);
}

static enum ax_status open_folder(struct ax_train *t, char **resume_from) {
    const struct ax_train_save *save = &t->o->save;
    struct ax_checkpoint_list l = {0};
    *resume_from = NULL;
    enum ax_status st = ax_mkdir_parents(save->output_dir);
    if (st != AX_OK)
        return ax_error_prefix(st, "output_dir");
    warn_of_writers(save->output_dir);
    st = ax_checkpoint_claim(&t->lock, save->output_dir);
    if (st != AX_OK)
        return ax_error_prefix(st, "output_dir");
    AX_TRY(ax_checkpoint_sweep(save->output_dir));
    AX_TRY(sweep_files(save->output_dir));
    AX_TRY(ax_checkpoint_warn_incomplete(save->output_dir));
    AX_TRY(ax_checkpoint_list(&l, save->output_dir));
    st = choose_checkpoint(save, &l, resume_from); /* check again, under the lock */
    ax_checkpoint_list_free(&l);
    if (st == AX_OK)
        st = ax_train_elastic_choose(t, resume_from);
    if (st == AX_OK && save->resume != AX_RESUME_NO && !*resume_from)
        ax_log_info("no checkpoint in %s yet: training starts from the beginning",
                    save->output_dir);
    return st;
}

/* ---- run.json: what stays constant during a run ---- */

/* {"bytes", "recompute", "blocks": [{"name", "where", "bytes"}]}: the plan's bytes per name. */
static enum ax_status add_memory(json_t *about, const struct ax_train_fit *fit, int64_t parameters,
                                 const struct ax_step_options *so) {
    json_t *blocks = json_array();
    for (int i = 0; i < fit->blocks.n; i++) {
        const struct ax_plan_block *b = &fit->blocks.list[i];
        json_array_append_new(blocks, json_pack("{ss ss sI}", "name", b->name, "where", b->where,
                                                "bytes", (json_int_t)b->bytes));
    }
    json_t *memory = json_pack("{sI ss so}", "bytes", (json_int_t)fit->arena, "recompute",
                               ax_recompute_name(so->recompute), "blocks", blocks);
    if (!memory || json_object_set_new(about, "memory", memory) != 0 ||
        json_object_set_new(about, "compute_dtype",
                            json_string(ax_dtype_info(so->model.dtype)->name)) != 0 ||
        json_object_set_new(about, "parameters", json_integer(parameters)) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for run.json");
    return AX_OK;
}

static enum ax_status write_about(const struct ax_train *t, const struct ax_step_options *so) {
    const struct ax_train_options *o = t->o;
    struct ax_plan *plan = NULL;
    char *path = NULL, *text = NULL;
    size_t len;
    json_t *about = json_copy((json_t *)(uintptr_t)o->about); /* jansson takes no const */
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&plan, 1, sizeof *plan), st, done);
    AX_TRY_GOTO(ax_plan_make(plan, &t->runtime, o->arch, so), st, done);
    AX_TRY_GOTO(add_memory(about, &t->fit, plan->parameters, so), st, done);
    AX_TRY_GOTO(ax_json_dump(about, &text, &len), st, done);
    AX_TRY_GOTO(ax_path_join(&path, o->save.output_dir, AX_RUN_FILE), st, done);
    st = ax_write_file_atomic(path, text, len);
done:
    json_decref(about);
    ax_free(plan);
    ax_free(path);
    ax_free(text);
    return st;
}

static void try_write_about(const struct ax_train *t, const struct ax_step_options *so) {
    if (!t->o->about || write_about(t, so) == AX_OK)
        return;
    ax_log_warn("run.json: %s", ax_error_text());
    ax_error_clear();
}

/* ---- before the first step ---- */

/* No step remains, and output_dir contains the model of the step that t has reached. */
static enum ax_status is_finished(const struct ax_train *t, bool *finished) {
    const char *dir = t->o->save.output_dir;
    const bool trained = t->done >= t->schedule.total || t->stop_early;
    bool weights;
    AX_TRY(has_marks(dir, 0, N_CONFIGS, finished));
    AX_TRY(has_marks(dir, N_CONFIGS, n_model_files, &weights));
    *finished =
        *finished && weights && trained && !t->pending_eval && ax_metrics_is_finished(dir, t->done);
    return AX_OK;
}

/* A run that goes on from an earlier checkpoint of its folder leaves later ones behind, which are what
 * `auto` and a launcher's restart take, unless it comes so far that it replaces them. */
static enum ax_status warn_of_later(const struct ax_train *t) {
    const struct ax_train_save *save = &t->o->save;
    struct ax_checkpoint_list l;
    if (save->resume != AX_RESUME_FOLDER)
        return AX_OK;
    AX_TRY(ax_checkpoint_list(&l, save->output_dir));
    const int64_t newest = l.n > 0 ? l.steps[l.n - 1] : 0;
    ax_checkpoint_list_free(&l);
    if (newest > t->done)
        ax_log_warn(
            "output_dir: %s has checkpoints after step %lld (newest: checkpoint-%lld). If this "
            "run stops, resume_from_checkpoint: auto goes on from the newest, which is not of "
            "this run: remove those after step %lld, or choose another output_dir",
            save->output_dir, (long long)t->done, (long long)newest, (long long)t->done);
    return AX_OK;
}

/* *resume: the checkpoint to resume from, whose state of the run is read; or NULL. */
static enum ax_status start_folder(struct ax_train *t, const struct ax_step_options *so,
                                   char **resume) {
    const bool is_new = !ax_path_is_dir(t->o->save.output_dir);
    if (is_new)
        AX_TRY(ax_train_check_disk(t, so));
    AX_TRY(open_folder(t, resume));
    if (*resume) {
        AX_TRY(ax_train_read_run(t, *resume));
        AX_TRY(is_finished(t, &t->out->nothing_to_do));
    }
    if (t->out->nothing_to_do)
        return AX_OK;
    AX_TRY(warn_of_later(t));
    ax_train_schedule_warn(&t->schedule, t->o);
    AX_TRY(ax_checkpoint_refuse_links(t->o->save.output_dir, t->done));
    if (!is_new) /* only now, because a finished run needs no space */
        AX_TRY(ax_train_check_disk(t, so));
    try_write_about(t, so);
    return AX_OK;
}

/* ---- the same folder on all ranks ---- */

/* What rank 0 has found in output_dir. */
struct found {
    bool nothing_to_do;
    char resume[PATH_MAX]; /* "": from the start */
    char sign[64];         /* name of a file that is there while others look for it */
};

/* Every host must see the same folder: each rank looks for a file that rank 0 has made there. */
static enum ax_status put_sign(const struct ax_train *t, const char *sign) {
    char *path;
    struct ax_file f;
    AX_TRY(ax_path_join(&path, t->o->save.output_dir, sign));
    enum ax_status st = ax_file_create(&f, path);
    if (st == AX_OK)
        st = ax_file_close(&f);
    ax_free(path);
    return st;
}

static enum ax_status remove_sign(const struct ax_train *t, const char *sign) {
    char *path;
    AX_TRY(ax_path_join(&path, t->o->save.output_dir, sign));
    const enum ax_status st = ax_unlink(path);
    ax_free(path);
    return st;
}

static enum ax_status look_for_sign(const struct ax_train *t, const char *sign) {
    char *path;
    AX_TRY(ax_path_join(&path, t->o->save.output_dir, sign));
    const bool found = ax_path_exists(path);
    ax_free(path);
    if (found)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "output_dir: on this host %s is not the folder that rank 0 writes to; choose "
                    "one on a file system that all hosts share",
                    t->o->save.output_dir);
}

static enum ax_status lead_folder(struct ax_train *t, const struct ax_step_options *so,
                                  char **resume, struct found *found) {
    AX_TRY(start_folder(t, so, resume));
    found->nothing_to_do = t->out->nothing_to_do;
    if (*resume)
        snprintf(found->resume, sizeof found->resume, "%s", *resume);
    if (t->team.size == 1)
        return AX_OK;
    snprintf(found->sign, sizeof found->sign, SIGN "%ld", (long)getpid());
    return put_sign(t, found->sign);
}

static enum ax_status follow_folder(struct ax_train *t, const struct found *found, char **resume) {
    AX_TRY(look_for_sign(t, found->sign));
    t->out->nothing_to_do = found->nothing_to_do;
    if (!found->resume[0])
        return AX_OK;
    AX_TRY(ax_strdup(resume, found->resume));
    return ax_train_read_run(t, *resume);
}

enum ax_status ax_train_folder_open(struct ax_train *t, const struct ax_step_options *so,
                                    char **resume) {
    struct found found = {0};
    const bool leads = ax_train_is_main(t);
    AX_TRY(ax_team_agree(&t->team, leads ? lead_folder(t, so, resume, &found) : AX_OK));
    AX_TRY(ax_team_share(&t->team, &found, sizeof found));
    enum ax_status st = ax_team_agree(&t->team, leads ? AX_OK : follow_folder(t, &found, resume));
    if (!leads || !found.sign[0])
        return st;
    if (st == AX_OK)
        return remove_sign(t, found.sign);
    struct ax_error_record first;
    ax_error_save(&first, st);
    (void)remove_sign(t, found.sign);
    return ax_error_restore(&first);
}
