#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/free_space.h"
#include "ckpt/state/saver_work.h"

/* Memory that copies of units leave free. */
#define SPARE ((uint64_t)512 << 20)

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

static enum ax_status fill(void *ctx, int64_t first, int64_t n, void *out) {
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
                                      .mesh = job->mesh,
                                      .n_parts = w->n_saved,
                                      .parts = w->saved,
                                      .state = w->tensors + job->n_weights,
                                      .run = job->run};
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
    enum ax_status st = ax_saver_work_make(s->work, fill);
    if (st == AX_OK)
        st = ax_worker_start(&s->worker, run, s->work);
    s->busy = st == AX_OK;
    if (st != AX_OK) {
        memset(s->pending, 0, (size_t)s->n_units * sizeof *s->pending);
        ax_saver_work_free(s->work);
        s->work = NULL;
    }
    return st;
}

static enum ax_status finish(struct ax_saver *s) {
    if (!s->busy)
        return AX_OK;
    const enum ax_status st = ax_worker_join(&s->worker);
    ax_saver_work_free(s->work);
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
    /* the current piece will be read soon; a queue serves one thread */
    while (w->reading && (s->q || w->reading->unit == unit))
        pthread_cond_wait(&s->read, &s->mutex);
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
    while (w->reading && w->reading->unit == unit)
        pthread_cond_wait(&s->read, &s->mutex);
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

void ax_saver_before_update(struct ax_saver *s, int unit) {
    if (!s->busy)
        return;
    const double begin = ax_clock_now();
    pthread_mutex_lock(&s->mutex);
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
