/* In order: what one save has to read and where it goes, what the thread does, what the training thread
 * does. */
#include "ckpt/state/saver.h"

#include <string.h>

#include "base/clock.h"
#include "base/free_space.h"
#include "base/mem.h"

/* Memory that copies of units leave free. */
#define SPARE ((uint64_t)512 << 20)

/* ---- one save: the weights that this rank has, and its state ---- */

/* A tensor to write: read_source reads it piece by piece, and count_off follows the last one. */
struct ax_save_source {
    struct ax_saver *saver;
    struct ax_live from; /* live memory, or the unit's copy */
    struct ax_delta delta;
    enum ax_dtype wanted;
    bool copied;
    uint64_t ticket; /* ticket of its copy to the stage; 0: none */
    int64_t read;    /* elements read so far, of `numel` */
    int64_t numel;
    int unit;
};

struct ax_saver_work {
    struct ax_saver *saver;
    struct ax_save_job job;
    char *output_dir, *dir;
    struct ax_st_output *tensors; /* weights, then state */
    struct ax_state_part *saved;  /* [n_saved]: parts of the state that this rank saves */
    int n_saved;
    char **keys; /* [n_saved] */
    size_t n_sources;
    struct ax_save_source *sources;
    struct ax_st_part *parts; /* [n_sources] */
    struct ax_save_copy {
        char *data; /* owned */
        int left;   /* sources still to be read from it */
    } *copies;      /* [n_units] */
    /* the source that the writer is reading, without the lock */
    const struct ax_save_source *reading;
    bool ended;
};

/* Call with the lock held, when the source has been read. */
static void count_off(struct ax_saver *saver, const struct ax_save_source *s) {
    struct ax_save_copy *copy = &saver->work->copies[s->unit];
    if (!s->copied) {
        saver->pending[s->unit]--;
    } else if (copy->data && --copy->left == 0) {
        ax_free(copy->data);
        copy->data = NULL;
    }
}

static enum ax_status read_source(void *ctx, int64_t first, int64_t n, void *out) {
    struct ax_save_source *s = ctx;
    struct ax_saver *saver = s->saver;
    pthread_mutex_lock(&saver->mutex);
    const struct ax_save_source now = *s;
    saver->work->reading = s;
    pthread_mutex_unlock(&saver->mutex);
    enum ax_status st = now.ticket > 0 ? ax_stage_wait(&saver->stage, now.ticket) : AX_OK;
    if (st == AX_OK)
        st = ax_delta_convert(&now.delta, &now.from, now.wanted, first, n, out);
    pthread_mutex_lock(&saver->mutex);
    saver->work->reading = NULL;
    s->read = first + n;
    if (s->read == s->numel && now.read < s->numel)
        count_off(saver, s);
    pthread_cond_signal(&saver->read);
    pthread_mutex_unlock(&saver->mutex);
    return st;
}

static void free_work(struct ax_saver_work *w) {
    if (!w)
        return;
    for (int i = 0; w->keys && i < w->n_saved; i++)
        ax_free(w->keys[i]);
    for (int i = 0; w->copies && i < w->saver->n_units; i++)
        ax_free(w->copies[i].data);
    ax_free(w->copies);
    ax_free(w->keys);
    ax_free(w->saved);
    ax_free(w->tensors);
    ax_free(w->sources);
    ax_free(w->parts);
    ax_free(w->output_dir);
    ax_free(w->dir);
    json_decref(w->job.run);
    ax_free(w);
}

/* Adds a source of live memory, and the part of a tensor that it is. */
static void add_source(struct ax_saver_work *w, const struct ax_save_source *source,
                       const struct ax_block *block) {
    struct ax_save_source *s = &w->sources[w->n_sources];
    *s = *source;
    s->saver = w->saver;
    s->from.q = w->saver->q;
    w->parts[w->n_sources++] = (struct ax_st_part){.block = *block, .fill = read_source, .ctx = s};
    w->saver->pending[s->unit]++;
}

static void add_weight(struct ax_saver_work *w, int i) {
    const struct ax_save_weight *weight = &w->job.weights[i];
    struct ax_st_output *t = &w->tensors[i];
    *t = (struct ax_st_output){.name = weight->name,
                               .dtype = weight->dtype,
                               .ndim = weight->ndim,
                               .n_parts = weight->n_parts,
                               .parts = w->parts + w->n_sources};
    memcpy(t->shape, weight->shape, (size_t)weight->ndim * sizeof *weight->shape);
    for (int k = 0; k < weight->n_parts; k++) {
        const struct ax_save_part *p = &weight->parts[k];
        add_source(
            w,
            &(struct ax_save_source){.from = {.dtype = p->value.dtype, .data = p->value.data},
                                     .wanted = weight->dtype,
                                     .delta = p->delta,
                                     .numel = ax_tensor_numel(&p->value),
                                     .unit = weight->unit},
            &p->block);
    }
}

static enum ax_status add_state(struct ax_saver_work *w, int i) {
    const struct ax_state_part *p = &w->saved[i];
    struct ax_st_output *t = &w->tensors[w->job.n_weights + i];
    const struct ax_block all = ax_block_whole(1, &p->n);
    AX_TRY(ax_checkpoint_key(&w->keys[i], p));
    *t = (struct ax_st_output){.name = w->keys[i],
                               .dtype = p->dtype,
                               .ndim = 1,
                               .shape = {p->n},
                               .n_parts = 1,
                               .parts = w->parts + w->n_sources};
    add_source(w,
               &(struct ax_save_source){.from = {.dtype = p->dtype, .data = p->data},
                                        .wanted = p->dtype,
                                        .numel = p->n,
                                        .unit = p->unit},
               &all);
    return AX_OK;
}

/* What this rank saves of the state. */
static enum ax_status choose_state(struct ax_saver_work *w) {
    const struct ax_state_parts *parts = w->job.parts;
    AX_TRY(ax_alloc(&w->saved, parts ? (size_t)parts->n : 0, sizeof *w->saved));
    for (int i = 0; parts && i < parts->n; i++)
        if (!parts->list[i].elsewhere)
            w->saved[w->n_saved++] = parts->list[i];
    return AX_OK;
}

/* Lists the tensors to save, and counts them as pending. On an error the caller frees *w. */
static enum ax_status fill_work(struct ax_saver_work *w) {
    AX_TRY(choose_state(w));
    size_t sources = (size_t)w->n_saved;
    for (int i = 0; i < w->job.n_weights; i++)
        sources += (size_t)w->job.weights[i].n_parts;
    const size_t n = (size_t)w->job.n_weights + (size_t)w->n_saved;
    AX_TRY(ax_strdup(&w->output_dir, w->job.output_dir));
    AX_TRY(ax_checkpoint_path(&w->dir, w->output_dir, w->job.step));
    AX_TRY(ax_alloc(&w->tensors, n, sizeof *w->tensors));
    AX_TRY(ax_alloc(&w->sources, sources, sizeof *w->sources));
    AX_TRY(ax_alloc(&w->parts, sources, sizeof *w->parts));
    AX_TRY(ax_alloc(&w->copies, (size_t)w->saver->n_units, sizeof *w->copies));
    AX_TRY(ax_alloc(&w->keys, (size_t)w->n_saved, sizeof *w->keys));
    for (int i = 0; i < w->job.n_weights; i++)
        add_weight(w, i);
    for (int i = 0; i < w->n_saved; i++)
        AX_TRY(add_state(w, i));
    return AX_OK;
}

/* ---- what the thread does ---- */

static enum ax_status verify(const struct ax_saver_work *w) {
    struct ax_checkpoint c;
    enum ax_status st = ax_team_agree(w->saver->team, ax_checkpoint_open(&c, w->dir));
    if (st == AX_OK)
        st = ax_checkpoint_verify(&c, w->saver->team);
    ax_checkpoint_close(&c);
    return st;
}

/* Runs after verification, so that only a verified checkpoint replaces older ones. Always keeps
 * this one rather than the highest step: a later checkpoint may be corrupted and was skipped. */
static void prune(const struct ax_saver_work *w) {
    int64_t keep[1 + sizeof w->job.keep / sizeof *w->job.keep] = {w->job.step};
    memcpy(keep + 1, w->job.keep, sizeof w->job.keep);
    ax_checkpoint_prune(w->output_dir, w->job.limit, 1 + w->job.n_keep, keep);
}

static enum ax_status save(struct ax_saver_work *w) {
    const struct ax_save_job *job = &w->job;
    struct ax_checkpoint_save what = {.dir = w->dir,
                                      .step = job->step,
                                      .hf = job->hf,
                                      .state_only = job->state_only,
                                      .mesh = job->mesh,
                                      .n_parts = w->n_saved,
                                      .parts = w->saved,
                                      .state = w->tensors + job->n_weights,
                                      .run = job->run,
                                      .placed = &w->saver->placed};
    what.hf.n = job->n_weights;
    what.hf.tensors = w->tensors;
    what.hf.team = w->saver->team;
    AX_TRY(ax_checkpoint_write(&what));
    AX_TRY(verify(w));
    if (ax_team_leads(w->saver->team))
        prune(w);
    return AX_OK;
}

static enum ax_status run(void *arg) {
    struct ax_saver_work *w = arg;
    struct ax_saver *s = w->saver;
    const enum ax_status st = save(w);
    pthread_mutex_lock(&s->mutex);
    memset(s->pending, 0, (size_t)s->n_units * sizeof *s->pending); /* also after an error */
    w->ended = true;
    pthread_cond_signal(&s->read);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

/* ---- what the training thread does ---- */

static enum ax_status start(struct ax_saver *s, const struct ax_save_job *job) {
    const enum ax_status alloc = ax_alloc(&s->work, 1, sizeof *s->work);
    if (alloc != AX_OK) {
        json_decref(job->run);
        return alloc;
    }
    s->work->saver = s;
    s->work->job = *job;
    if (job->state_only)
        s->work->job.n_weights = 0;
    enum ax_status st = fill_work(s->work);
    if (st == AX_OK)
        st = ax_worker_start(&s->worker, run, s->work);
    s->busy = st == AX_OK;
    if (st != AX_OK) {
        memset(s->pending, 0, (size_t)s->n_units * sizeof *s->pending);
        free_work(s->work);
        s->work = NULL;
    }
    return st;
}

static enum ax_status finish(struct ax_saver *s) {
    if (!s->busy)
        return AX_OK;
    const enum ax_status st = ax_worker_join(&s->worker);
    free_work(s->work);
    s->work = NULL;
    s->busy = false;
    return st;
}

enum ax_status ax_saver_create(struct ax_saver *s, struct ax_queue *training, struct ax_team *team,
                               int n_units) {
    *s = (struct ax_saver){.n_units = n_units, .training = training, .team = team};
    if (training)
        AX_TRY(ax_queue_create(&s->q, training->ops->name, training->model->name, 1,
                               training->scratch));
    const enum ax_status st = ax_alloc(&s->pending, (size_t)n_units, sizeof *s->pending);
    if (st != AX_OK) {
        ax_queue_free(s->q);
        return st;
    }
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->read, NULL);
    return AX_OK;
}

void ax_saver_create_stage(struct ax_saver *s, int n_weights, const struct ax_save_weight *weights,
                           const struct ax_state_parts *parts, size_t most) {
    size_t bytes = 0;
    for (int i = 0; i < n_weights; i++)
        for (int k = 0; k < weights[i].n_parts; k++)
            bytes += ax_arena_round(ax_tensor_bytes(&weights[i].parts[k].value));
    for (int i = 0; parts && i < parts->n; i++)
        if (!parts->list[i].elsewhere)
            bytes += ax_arena_round((size_t)parts->list[i].n * ax_dtype_size(parts->list[i].dtype));
    ax_stage_create(&s->stage, s->training, "save stage", bytes < most ? bytes : most);
}

void ax_saver_free(struct ax_saver *s) {
    if (!s->pending)
        return;
    (void)finish(s);
    pthread_cond_destroy(&s->read);
    pthread_mutex_destroy(&s->mutex);
    ax_queue_free(s->q);
    ax_free(s->pending);
    *s = (struct ax_saver){0};
}

enum ax_status ax_saver_start(struct ax_saver *s, const struct ax_save_job *job) {
    const double begin = ax_clock_now();
    enum ax_status st = finish(s);
    if (st == AX_OK && s->training)
        st = ax_queue_finish(s->training);
    ax_stage_clear(&s->stage);
    s->placed = false;
    if (st == AX_OK)
        st = start(s, job);
    else
        json_decref(job->run);
    s->waited += ax_clock_now() - begin;
    return st;
}

static size_t unread_bytes(const struct ax_save_source *s) {
    return s->copied ? 0 : (size_t)(s->numel - s->read) * ax_dtype_size(s->from.dtype);
}

static const char AX_DEVICE *unread(const struct ax_save_source *s) {
    const char AX_DEVICE *live = s->from.data;
    return live + (size_t)(s->read - s->from.base) * ax_dtype_size(s->from.dtype);
}

/* From here on, the source is read from `to`, in the host's memory. */
static void redirect(struct ax_saver *s, struct ax_save_source *source, const void *to) {
    source->from.data = to;
    source->from.base = source->read;
    source->from.q = NULL;
    source->copied = true;
    s->pending[source->unit]--;
}

/* Copies what is left of the unit if there is enough memory, because the disk is slower than a
 * step. Call with the lock held, which keeps the writer from its next piece. */
static enum ax_status copy_unit(struct ax_saver *s, int unit) {
    struct ax_saver_work *w = s->work;
    struct ax_save_copy *copy = &w->copies[unit];
    size_t bytes = 0;
    for (size_t i = 0; i < w->n_sources; i++)
        bytes += w->sources[i].unit == unit ? unread_bytes(&w->sources[i]) : 0;
    if (bytes == 0 || bytes + SPARE > ax_mem_available())
        return AX_OK;
    AX_TRY(ax_alloc_huge(&copy->data, bytes));
    size_t at = 0;
    for (size_t i = 0; i < w->n_sources; i++) {
        const size_t n = w->sources[i].unit == unit ? unread_bytes(&w->sources[i]) : 0;
        if (n == 0)
            continue;
        AX_TRY(ax_queue_read(s->q, unread(&w->sources[i]), copy->data + at, n, NULL));
        redirect(s, &w->sources[i], copy->data + at);
        copy->left++;
        at += n;
    }
    return AX_OK;
}

/* The same by the device, as much as fits. */
static enum ax_status stage_unit(struct ax_saver *s, int unit) {
    struct ax_saver_work *w = s->work;
    for (size_t i = 0; i < w->n_sources; i++) {
        struct ax_save_source *source = &w->sources[i];
        const size_t n = source->unit == unit ? unread_bytes(source) : 0;
        const void *host = NULL;
        if (n > 0)
            AX_TRY(ax_stage_copy(&s->stage, unread(source), n, &host));
        if (!host)
            continue;
        redirect(s, source, host);
        source->ticket = ax_stage_ticket(&s->stage);
    }
    return AX_OK;
}

/* The current piece will be read soon; a queue serves one thread, and the stage has its own. */
static void wait_for_piece(struct ax_saver *s, int unit) {
    const bool any = s->q && !s->stage.q;
    const struct ax_saver_work *w = s->work;
    while (w->reading && (any || w->reading->unit == unit))
        pthread_cond_wait(&s->read, &s->mutex);
}

void ax_saver_before_update(struct ax_saver *s, int unit) {
    if (!s->busy)
        return;
    const double begin = ax_clock_now();
    pthread_mutex_lock(&s->mutex);
    if (s->pending[unit] > 0)
        wait_for_piece(s, unit);
    /* none now if that was the last piece, or the save has failed meanwhile */
    if (s->pending[unit] > 0 && (s->stage.q ? stage_unit : copy_unit)(s, unit) != AX_OK)
        ax_error_clear(); /* the writer, too, will fail to read, or there is no memory: wait */
    while (s->pending[unit] > 0)
        pthread_cond_wait(&s->read, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    s->waited += ax_clock_now() - begin;
}

bool ax_saver_is_due(struct ax_saver *s) {
    if (!s->busy)
        return false;
    pthread_mutex_lock(&s->mutex);
    const bool ended = s->work->ended;
    pthread_mutex_unlock(&s->mutex);
    return ended;
}

enum ax_status ax_saver_finish(struct ax_saver *s) {
    const double begin = ax_clock_now();
    const enum ax_status st = finish(s);
    s->waited += ax_clock_now() - begin;
    return st;
}
