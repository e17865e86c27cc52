/* State in memory, for a job that goes on without ranks it has lost: the launcher starts the command again, on fewer or on
 * other ranks (parallel/job/elastic.h), which resume from here. In its folder are
 *
 *   checkpoint-N/                          every o->elastic.steps steps, the newest; as on the disk, but of a model
 *                                          folder only what resuming needs
 *   rescue-N-K-of-M/checkpoint-N/          what one rank wrote alone, after another was lost: part K of M, which
 *                                          together are the state after step N
 *
 * A copy of the weights (dp_replicate) that has lost no rank has all M parts, several have some of them twice: who makes the
 * folder first writes it. Between updates, which need no other rank, a rank's masters and optimizer state are those after step
 * t->done. What describes the run then, t->elastic.run, is made after each step, as reading data has moved on since. */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/free_space.h"
#include "base/log.h"
#include "optim/train/run.h"
#include "parallel/job/notes.h"

/* ---- checkpoints in memory ---- */

/* Memory that stays free. */
#define SPARE ((double)((uint64_t)256 << 20))

bool ax_train_elastic_is_due(const struct ax_train *t, int64_t step) {
    const struct ax_train_elastic_options *o = &t->o->elastic;
    return o->dir && !t->elastic.full && step % o->steps == 0 && step < t->schedule.total;
}

/* What this process can still write there. */
static double free_bytes(const char *dir) {
    uint64_t disk = UINT64_MAX;
    const uint64_t memory = ax_mem_available();
    if (ax_disk_free(dir, &disk) != AX_OK)
        ax_error_clear();
    if (memory == 0) /* unknown */
        return (double)disk;
    return fmin((double)disk, fmax((double)memory - SPARE, 0));
}

/* What all ranks save there, which the checkpoint before it does not make room for. */
static enum ax_status check_room(struct ax_train *t) {
    double bytes = 0, room = -free_bytes(t->o->elastic.dir);
    char need[32], is[32];
    for (int i = 0; i < t->contents.parts.n; i++) {
        const struct ax_state_part *p = &t->contents.parts.list[i];
        bytes += p->elsewhere ? 0 : (double)p->n * (double)ax_dtype_size(p->dtype);
    }
    for (int i = 0; i < t->contents.n_weights && ax_train_has_buffers(t); i++)
        for (int k = 0; k < t->contents.weights[i].n_parts; k++)
            bytes += (double)ax_tensor_bytes(&t->contents.weights[i].parts[k].value);
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_SUM, &bytes, 1));
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, &room, 1));
    t->elastic.full = bytes > -room;
    if (t->elastic.full && ax_train_is_main(t))
        ax_log_warn("elastic: checkpoints in memory need %s, but only %s are free in %s: if ranks "
                    "are lost, the run goes on from the disk's",
                    ax_format_bytes(need, sizeof need, bytes),
                    ax_format_bytes(is, sizeof is, -room), t->o->elastic.dir);
    return AX_OK;
}

enum ax_status ax_train_elastic_save(struct ax_train *t) {
    if (t->late.pending || !ax_train_elastic_is_due(t, t->done) || t->saving > 0 ||
        t->saved == t->done || t->elastic.saved == t->done || t->pending_eval)
        return AX_OK;
    AX_TRY(check_room(t));
    return t->elastic.full ? AX_OK : ax_train_save_in_memory(t);
}

/* ---- after a rank was lost ---- */

/* Not where the device may have begun the next step, or where more than the state changes between steps: ReLoRA's
 * restarts, a value model's step, routers' biases. */
static bool can_rescue(const struct ax_train *t) {
    const struct ax_train_options *o = t->o;
    return o->elastic.dir && t->mesh.size[AX_ROLE_DP_REPLICATE] > 1 && !t->elastic.damaged &&
           !ax_queue_is_late(t->rt->q) && o->step.relora.interval == 0 && !ax_train_has_value(o) &&
           !ax_train_has_buffers(t);
}

/* ---- the last step's record: all ranks know most of it, but rank 0 writes it, and may be the one that is lost ---- */

/* What is in a record for all methods. */
static const struct {
    const char *key;
    size_t offset;
} figures[] = {{"epoch", offsetof(struct ax_step_figures, epoch)},
               {"loss", offsetof(struct ax_step_figures, loss)},
               {"grad_norm", offsetof(struct ax_step_figures, grad_norm)},
               {"learning_rate", offsetof(struct ax_step_figures, learning_rate)},
               {"seconds", offsetof(struct ax_step_figures, seconds)},
               {"flops", offsetof(struct ax_step_figures, flops)}};
static const struct {
    const char *key;
    size_t offset;
} counts[] = {{"tokens", offsetof(struct ax_step_figures, tokens)},
              {"trained_tokens", offsetof(struct ax_step_figures, trained_tokens)},
              {"computed_tokens", offsetof(struct ax_step_figures, computed_tokens)}};

void ax_train_elastic_record(struct ax_train *t, const struct ax_step_figures *f) {
    t->elastic.last = *f;
    t->elastic.before = t->window;
}

/* What is not finite is left out. */
static void put_number(json_t *v, const char *key, double x) {
    if (isfinite(x))
        json_object_set_new(v, key, json_real(x));
}

static json_t *record_json(const struct ax_train_elastic *e) {
    const char *last = (const char *)&e->last;
    json_t *v =
        json_pack("{sI sb sI sf}", "step", (json_int_t)e->last.step, "skipped", e->last.skipped,
                  "window_steps", (json_int_t)e->before.steps, "window_loss", e->before.loss);
    for (size_t i = 0; v && i < sizeof figures / sizeof *figures; i++)
        put_number(v, figures[i].key, *(const double *)(last + figures[i].offset));
    for (size_t i = 0; v && i < sizeof counts / sizeof *counts; i++)
        json_object_set_new(v, counts[i].key,
                            json_integer(*(const int64_t *)(last + counts[i].offset)));
    for (int i = 0; v && i < AX_MEASURES; i++) {
        char key[24];
        snprintf(key, sizeof key, "measure_%d", i);
        put_number(v, key, e->last.measures[i]);
    }
    return v;
}

static enum ax_status read_record(struct ax_train_elastic *e, struct ax_json v) {
    char *last = (char *)&e->last;
    e->last = (struct ax_step_figures){0};
    AX_TRY(ax_json_i64_or(ax_json_get(v, "step"), 0, INT64_MAX, 0, &e->last.step));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "skipped"), false, &e->last.skipped));
    AX_TRY(ax_json_i64_or(ax_json_get(v, "window_steps"), 0, INT64_MAX, 0, &e->before.steps));
    AX_TRY(ax_json_f64_or(ax_json_get(v, "window_loss"), 0, &e->before.loss));
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        AX_TRY(ax_json_f64_or(ax_json_get(v, figures[i].key), NAN,
                              (double *)(last + figures[i].offset)));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        AX_TRY(ax_json_i64_or(ax_json_get(v, counts[i].key), 0, INT64_MAX, 0,
                              (int64_t *)(last + counts[i].offset)));
    for (int i = 0; i < AX_MEASURES; i++) {
        char key[24];
        snprintf(key, sizeof key, "measure_%d", i);
        AX_TRY(ax_json_f64_or(ax_json_get(v, key), NAN, &e->last.measures[i]));
    }
    return AX_OK;
}

bool ax_train_elastic_lacks_record(const struct ax_train *t) {
    return t->elastic.resumed && t->elastic.last.step == t->done && t->done > 0 &&
           !ax_metrics_has_step(t->o->save.output_dir, t->done);
}

void ax_train_elastic_mark(struct ax_train *t, enum ax_train_after after) {
    t->elastic.after = after;
    if (t->elastic.run)
        json_object_set_new(t->elastic.run, "after", json_integer(after));
}

enum ax_status ax_train_elastic_note(struct ax_train *t, enum ax_train_after after) {
    struct ax_train_elastic *e = &t->elastic;
    if (!t->o->elastic.dir)
        return AX_OK;
    ax_note_done(t->mesh.rank, t->done);
    json_decref(e->run);
    e->run = NULL;
    if (can_rescue(t)) {
        AX_TRY(ax_train_describe(t, &e->run));
        json_object_set_new(e->run, "last", record_json(e));
    }
    ax_train_elastic_mark(t, after);
    return AX_OK;
}

enum ax_status ax_train_elastic_evaluated(struct ax_train *t) {
    double here = 0;
    if (can_rescue(t))
        AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, &here, 1));
    return ax_train_elastic_note(t, AX_AFTER_EVALUATION);
}

/* Parts of a copy of the weights: this rank's, and how many there are. */
static int part_of(const struct ax_mesh *m, int *n) {
    const int stage = m->world / m->size[AX_ROLE_PP] / m->size[AX_ROLE_DP_REPLICATE];
    *n = stage * m->size[AX_ROLE_PP];
    return m->coord[AX_ROLE_PP] * stage + m->rank % stage;
}

struct rescue {
    int n;
    struct ax_state_part *parts;  /* [n] */
    struct ax_st_output *outputs; /* [n] */
    struct ax_st_source *sources; /* [n] */
    struct ax_st_part *pieces;    /* [n] */
    uint64_t bytes;
};

static void free_rescue(struct rescue *r) {
    for (int i = 0; r->outputs && i < r->n; i++)
        ax_free((void *)(uintptr_t)r->outputs[i].name);
    ax_free(r->parts);
    ax_free(r->outputs);
    ax_free(r->sources);
    ax_free(r->pieces);
}

static enum ax_status add_part(struct rescue *r, struct ax_queue *q,
                               const struct ax_state_part *p) {
    const int i = r->n++;
    char *key;
    AX_TRY(ax_checkpoint_key(&key, p));
    r->parts[i] = *p;
    r->bytes += (uint64_t)p->n * ax_dtype_size(p->dtype);
    r->sources[i] = (struct ax_st_source){
        .value = ax_tensor_1d(p->dtype, p->data, p->n), .dtype = p->dtype, .q = q};
    r->pieces[i] = (struct ax_st_part){
        .block = ax_block_whole(1, &p->n), .fill = ax_st_fill, .ctx = &r->sources[i]};
    r->outputs[i] = (struct ax_st_output){.name = key,
                                          .dtype = p->dtype,
                                          .ndim = 1,
                                          .shape = {p->n},
                                          .n_parts = 1,
                                          .parts = &r->pieces[i]};
    return AX_OK;
}

static enum ax_status list_parts(struct rescue *r, const struct ax_train *t) {
    const struct ax_state_parts *all = &t->contents.parts;
    AX_TRY(ax_alloc(&r->parts, (size_t)all->n, sizeof *r->parts));
    AX_TRY(ax_alloc(&r->outputs, (size_t)all->n, sizeof *r->outputs));
    AX_TRY(ax_alloc(&r->sources, (size_t)all->n, sizeof *r->sources));
    AX_TRY(ax_alloc(&r->pieces, (size_t)all->n, sizeof *r->pieces));
    for (int i = 0; i < all->n; i++)
        if (!all->list[i].copied)
            AX_TRY(add_part(r, t->rt->q, &all->list[i]));
    return AX_OK;
}

static enum ax_status write_parts(const struct ax_train *t, const char *dir, int part) {
    struct rescue r = {0};
    struct ax_mesh mesh = t->mesh;
    char *path = NULL;
    enum ax_status st;
    mesh.rank = part;
    AX_TRY_GOTO(list_parts(&r, t), st, done);
    if ((double)r.bytes > free_bytes(dir)) {
        st = ax_error(AX_ERR_STORAGE, "there is no room in memory");
        goto done;
    }
    AX_TRY_GOTO(ax_checkpoint_path(&path, dir, t->done), st, done);
    const struct ax_checkpoint_save save = {.dir = path,
                                            .step = t->done,
                                            .state_only = true,
                                            .mesh = &mesh,
                                            .n_parts = r.n,
                                            .parts = r.parts,
                                            .state = r.outputs,
                                            .run = t->elastic.run};
    st = ax_checkpoint_write(&save);
done:
    ax_free(path);
    free_rescue(&r);
    return st;
}

/* A save that others will not finish is pending for the run that follows, and the checkpoint that it would keep does not
 * exist. */
static void drop_save(struct ax_train *t) {
    const bool writing = t->saving > 0 && !t->elastic.in_memory;
    const struct ax_train_kept kept = writing ? t->kept_before : t->kept;
    const json_t *after = json_object_get(t->elastic.run, "after");
    json_t *best = json_object_get(t->elastic.run, "best");
    if (t->elastic.asked <= t->saved)
        return;
    json_object_set_new(best, "kept_step", json_integer(kept.step));
    json_object_set_new(best, "kept_value", json_real(kept.value));
    if (json_integer_value(after) == AX_AFTER_ALL)
        ax_train_elastic_mark(t, AX_AFTER_EVALUATION);
}

static enum ax_status rescue(const struct ax_train *t) {
    char *dir;
    int n;
    const int part = part_of(&t->mesh, &n);
    enum ax_status st = AX_OK;
    AX_TRY(ax_sprintf(&dir, "%s/rescue-%lld-%d-of-%d", t->o->elastic.dir, (long long)t->done, part,
                      n));
    if (mkdir(dir, 0700) == 0)
        st = write_parts(t, dir, part);
    else if (errno != EEXIST) /* else another copy's rank writes it */
        st = ax_error(AX_ERR_IO, "%s: %s", dir, strerror(errno));
    ax_free(dir);
    return st;
}

void ax_train_elastic_rescue(struct ax_train *t, enum ax_status st) {
    struct ax_train_elastic *e = &t->elastic;
    struct ax_error_record first;
    if (st != AX_ERR_PEER || !e->run || !can_rescue(t))
        return;
    ax_error_save(&first, st);
    ax_note_writes(t->mesh.rank, true);
    drop_save(t);
    if (rescue(t) != AX_OK)
        ax_log_error("elastic: rank %d could not keep its state of step %lld: %s", t->mesh.rank,
                     (long long)t->done, ax_error_text());
    ax_note_writes(t->mesh.rank, false);
    (void)ax_error_restore(&first);
}

/* ---- resuming ---- */

struct rescued {
    int64_t step;
    int n; /* parts, if all are there; else 0 */
};

/* The newest rescued step before `before`; step −1: none. */
static enum ax_status newest_rescued(const char *dir, int64_t before, struct rescued *newest) {
    struct ax_dir d;
    *newest = (struct rescued){.step = -1};
    ax_dir_open(&d, dir);
    for (const char *name; (name = ax_dir_next(&d)) != NULL;) {
        long long step;
        int part, n;
        if (sscanf(name, "rescue-%lld-%d-of-%d", &step, &part, &n) == 3 && step < before &&
            step > newest->step)
            *newest = (struct rescued){step, n};
    }
    return ax_dir_end(&d, AX_OK);
}

static enum ax_status open_part(struct ax_checkpoint *c, const char *dir,
                                const struct rescued *from, int part) {
    char *path;
    AX_TRY(ax_sprintf(&path, "%s/rescue-%lld-%d-of-%d/checkpoint-%lld", dir, (long long)from->step,
                      part, from->n, (long long)from->step));
    const enum ax_status st = ax_checkpoint_open(c, path);
    ax_free(path);
    return st;
}

/* False: not all parts are there. */
static bool join_rescued(const char *dir, const struct rescued *from) {
    struct ax_checkpoint *parts = NULL;
    char *path = NULL;
    int n = 0;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&parts, (size_t)from->n, sizeof *parts), st, done);
    AX_TRY_GOTO(ax_checkpoint_path(&path, dir, from->step), st, done);
    for (; n < from->n; n++)
        AX_TRY_GOTO(open_part(&parts[n], dir, from, n), st, done);
    st = ax_checkpoint_join(path, n, parts);
done:
    if (st != AX_OK) {
        ax_log_warn("elastic: the ranks did not keep all parts of step %lld: %s",
                    (long long)from->step, ax_error_text());
        ax_error_clear();
    }
    while (n > 0)
        ax_checkpoint_close(&parts[--n]);
    ax_free(parts);
    ax_free(path);
    return st == AX_OK;
}

static enum ax_status remove_rescued(const char *dir) {
    struct ax_dir d;
    enum ax_status st = AX_OK;
    ax_dir_open(&d, dir);
    for (const char *name; st == AX_OK && (name = ax_dir_next(&d)) != NULL;) {
        char *path;
        if (strncmp(name, "rescue-", 7) != 0)
            continue;
        st = ax_path_join(&path, dir, name);
        if (st == AX_OK)
            st = ax_remove_tree(path);
        ax_free(path);
    }
    return ax_dir_end(&d, st);
}

/* The step of checkpoint folder `path`. */
static int64_t step_of(const char *path) {
    struct ax_checkpoint c;
    if (!path || ax_checkpoint_open(&c, path) != AX_OK) {
        ax_error_clear(); /* it is reported when the run resumes */
        return -1;
    }
    const int64_t step = c.step;
    ax_checkpoint_close(&c);
    return step;
}

enum ax_status ax_train_elastic_choose(const struct ax_train *t, char **resume) {
    const char *dir = t->o->elastic.dir;
    struct ax_checkpoint_list l;
    if (!dir)
        return AX_OK;
    struct rescued from;
    AX_TRY(newest_rescued(dir, INT64_MAX, &from));
    while (from.step >= 0 && !join_rescued(dir, &from))
        AX_TRY(newest_rescued(dir, from.step, &from));
    AX_TRY(remove_rescued(dir));
    AX_TRY(ax_checkpoint_sweep(dir));
    AX_TRY(ax_checkpoint_list(&l, dir));
    const int64_t step = l.n > 0 ? l.steps[l.n - 1] : -1;
    ax_checkpoint_list_free(&l);
    if (step <= step_of(*resume))
        return AX_OK;
    ax_free(*resume);
    *resume = NULL;
    return ax_checkpoint_path(resume, dir, step);
}

enum ax_status ax_train_elastic_read(struct ax_train *t, const char *dir, struct ax_json run) {
    const char *memory = t->o->elastic.dir;
    int64_t after;
    AX_TRY(ax_json_i64_or(ax_json_get(run, "after"), AX_AFTER_ALL, AX_AFTER_EVALUATION,
                          AX_AFTER_ALL, &after));
    t->elastic.after = (enum ax_train_after)after;
    t->elastic.resumed = memory && strncmp(dir, memory, strlen(memory)) == 0;
    t->elastic.saved = t->elastic.resumed ? t->done : 0;
    return read_record(&t->elastic, ax_json_get(run, "last"));
}

void ax_train_elastic_say(const struct ax_train *t) {
    const int64_t reached = ax_notes_reached(), first = t->done + 1;
    const char *from = t->elastic.resumed ? "memory" : t->done > 0 ? "the disk" : "the start";
    char again[96] = "no step is done again";
    if (!t->o->elastic.dir)
        return;
    ax_note_done(t->mesh.rank, t->done);
    if (!ax_train_is_main(t) || !ax_notes_restarted())
        return;
    ax_note_saved(t->done);
    if (reached == first)
        snprintf(again, sizeof again, "step %lld is done again", (long long)first);
    else if (reached > first)
        snprintf(again, sizeof again, "steps %lld to %lld are done again", (long long)first,
                 (long long)reached);
    ax_log_info("elastic: the run goes on after step %lld, from %s; %s", (long long)t->done, from,
                again);
}
