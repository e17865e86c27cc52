#include "cmd/serve/engine.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/threads.h"
#include "cmd/serve/round.h"
#include "model/core/adapters.h"

#define LOOK_SECONDS 0.05 /* how often an idle engine looks for signals */

void ax_serve_engine_init(struct ax_serve_engine *e) {
    e->version = -1;
    pthread_mutex_init(&e->lock, NULL);
    ax_cond_init(&e->wake);
    ax_cond_init(&e->settled);
}

/* Other ranks' jobs are their engine's. */
static void free_ended(struct ax_serve_engine *e) {
    while (e->ended) {
        struct ax_serve_job *j = e->ended;
        e->ended = j->next;
        ax_serve_job_close(j);
    }
}

void ax_serve_engine_free(struct ax_serve_engine *e) {
    free_ended(e);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->wake);
    pthread_cond_destroy(&e->settled);
}

/* ---- what the generator asks; all with the lock ---- */

/* No new jobs, and an end to those there are. */
static void begin_to_stop(struct ax_serve_engine *e) {
    ax_log_info("stopping: answers=%lld may go on for %g seconds", (long long)e->n_pending,
                e->stop_seconds);
    e->state = AX_SERVE_STOPPING;
    e->pause = AX_SERVE_GOES_ON;
    e->stop_at = ax_clock_now() + e->stop_seconds;
}

static void look_for_signals(struct ax_serve_engine *e) {
    const bool asked = e->asked_to_stop || ax_stop_requested() != AX_STOP_NONE;
    if (e->state == AX_SERVE_READY && asked)
        begin_to_stop(e);
    const bool late = e->state == AX_SERVE_STOPPING && ax_clock_now() > e->stop_at;
    for (struct ax_serve_job *j = e->running; late && j; j = j->next)
        j->leaves = true;
}

/* Jobs that wait begin to run, if they may; their sequences are linked in order. */
static struct ax_sequence *begin_jobs(struct ax_serve_engine *e) {
    struct ax_sequence *first = NULL, **last = &first;
    const bool may = e->in_rounds ? e->round_begins : e->pause == AX_SERVE_GOES_ON;
    e->round_begins = false;
    while (may && e->waiting) {
        struct ax_serve_job *j = e->waiting;
        e->waiting = j->next;
        ax_serve_job_begin(j, &last);
    }
    return first;
}

static void drop_leaving(struct ax_serve_engine *e) {
    for (struct ax_serve_job *j = e->running; j; j = j->next)
        for (int64_t i = 0; j->leaves && i < j->n_units; i++)
            j->units[i].s.leaves = true;
}

/* With the lock, while nothing is computed: those that leave do not wait for a pass. */
static enum ax_status let_leave(struct ax_serve_engine *e) {
    bool any = false;
    for (const struct ax_serve_job *j = e->running; j; j = j->next)
        any = any || j->leaves;
    if (!any)
        return AX_OK;
    drop_leaving(e);
    pthread_mutex_unlock(&e->lock);
    const enum ax_status st = ax_generator_drop_left(e->generator);
    pthread_mutex_lock(&e->lock);
    return st;
}

/* With the lock: meets the other ranks now and then. */
static enum ax_status beat(struct ax_serve_engine *e, double *last) {
    if (!e->shared || ax_clock_now() < *last + AX_SERVE_BEAT_SECONDS)
        return AX_OK;
    pthread_mutex_unlock(&e->lock);
    const enum ax_status st = ax_serve_round_beat(e);
    pthread_mutex_lock(&e->lock);
    *last = ax_clock_now();
    return st;
}

static void make_call(struct ax_serve_engine *e) {
    struct ax_serve_call *c = e->call;
    if (!c)
        return;
    pthread_mutex_unlock(&e->lock);
    ax_error_save(&c->record, c->run(c->ctx, e->generator));
    ax_error_clear();
    pthread_mutex_lock(&e->lock);
    c->done = true;
    e->call = NULL;
    pthread_cond_broadcast(&e->settled);
}

static bool may_rest(const struct ax_serve_engine *e, bool idle) {
    return e->state == AX_SERVE_READY && !e->in_rounds &&
           (e->pause == AX_SERVE_COMPUTES_NOTHING ||
            (idle && (!e->waiting || e->pause == AX_SERVE_BEGINS_NOTHING)));
}

/* With the lock: tells counters, makes calls, and waits where there is nothing to compute. */
static enum ax_status rest(struct ax_serve_engine *e, bool idle) {
    double last = ax_clock_now();
    e->counters = e->generator->counters;
    look_for_signals(e);
    make_call(e);
    while (may_rest(e, idle)) {
        e->rests = true;
        pthread_cond_broadcast(&e->settled);
        (void)ax_cond_wait_until(&e->wake, &e->lock, ax_clock_now() + LOOK_SECONDS);
        AX_TRY(beat(e, &last));
        look_for_signals(e);
        AX_TRY(let_leave(e));
        make_call(e);
    }
    e->rests = false;
    return AX_OK;
}

/* The next pass of an engine that takes jobs. */
static enum ax_status lead(struct ax_serve_engine *e, bool idle, struct ax_sequence **joining) {
    struct ax_buf what = {0};
    pthread_mutex_lock(&e->lock);
    enum ax_status st = rest(e, idle);
    if (st == AX_OK) {
        const uint64_t first = e->begun;
        *joining = begin_jobs(e);
        if (e->shared)
            st = ax_serve_round_put(e, first, &what);
        drop_leaving(e);
    }
    pthread_mutex_unlock(&e->lock);
    if (st == AX_OK && e->shared)
        st = ax_serve_round_tell(e, &what);
    ax_buf_free(&what);
    return st;
}

/* The next pass of another rank's. */
static enum ax_status follow(struct ax_serve_engine *e, struct ax_sequence **joining) {
    struct ax_sequence **last = joining;
    free_ended(e);
    AX_TRY(ax_serve_round_hear(e, &last));
    pthread_mutex_lock(&e->lock);
    drop_leaving(e);
    pthread_mutex_unlock(&e->lock);
    return AX_OK;
}

static enum ax_status on_more(void *ctx, bool idle, struct ax_sequence **joining) {
    struct ax_serve_engine *e = ctx;
    return e->follows ? follow(e, joining) : lead(e, idle, joining);
}

static bool ends_with(const struct ax_serve_choice *c, int32_t id) {
    const struct ax_serve_request *r = &c->job->r;
    const struct ax_stop_tokens *own = &c->job->r.model->side->stop;
    const struct ax_serve_tools *tools = c->job->r.model->tools;
    for (int i = 0; i < own->n && !r->ignore_eos; i++)
        if (own->ids[i] == id)
            return true;
    for (int i = 0; i < tools->n_stop && !r->ignore_eos && r->tools; i++)
        if (tools->stop[i] == id)
            return true;
    return false;
}

/* The tokenizer's EOS is no stop_reason, even if it is one of stop_token_ids (as in vLLM). */
static int32_t eos_of(const struct ax_serve_choice *c) {
    return ax_tokenizer_special_id(c->job->r.model->side->tokenizer, AX_EOS);
}

/* *stop: the token ends the answer, and its own text is not part of it. */
static enum ax_status take_token(struct ax_serve_choice *c, int32_t id, bool *stop) {
    const struct ax_serve_request *r = &c->job->r;
    if (c->call_at == SIZE_MAX && id == c->job->r.model->tools->mark)
        c->call_at = c->text.len;
    const bool ends = ends_with(c, id);
    for (int i = 0; i < r->n_stop_ids && !(ends && id == eos_of(c)); i++)
        if (r->stop_ids[i] == id) {
            c->stop_id = id;
            *stop = true;
        }
    *stop = *stop || ends;
    c->stream.n_stop = c->n_tokens > r->bias.min_new ? r->n_stops : 0;
    if (!*stop || r->include_stop)
        AX_TRY(ax_text_stream_step(&c->stream, id, &c->text));
    if (!*stop && r->constraint.n > 0) {
        AX_TRY(ax_serve_place_step(&c->place, &r->constraint, id, &c->complete));
        *stop = c->complete;
    }
    if (c->stream.stopped) {
        c->stop_text = c->stream.by;
        *stop = true;
        if (r->include_stop)
            AX_TRY(ax_buf_puts(&c->text, c->stop_text));
    }
    return AX_OK;
}

/* An answer that has ended has all of its text: a stream may send both immediately. */
static enum ax_status end_choice(struct ax_serve_choice *c, const char *finish) {
    c->finish = finish;
    return ax_text_stream_finish(&c->stream, &c->text);
}

static enum ax_status on_token(void *ctx, struct ax_sequence *s, bool *stop) {
    struct ax_serve_engine *e = ctx;
    struct ax_serve_choice *c = ((struct ax_serve_unit *)s)->choice;
    pthread_mutex_lock(&e->lock);
    c->n_tokens = s->n_new;
    enum ax_status st = take_token(c, s->tokens[s->n_new - 1], stop);
    if (st == AX_OK && *stop)
        st = end_choice(c, c->place.broken ? "abort" : "stop");
    if (c->job->r.stream)
        pthread_cond_signal(&c->job->changed);
    pthread_mutex_unlock(&e->lock);
    return st;
}

static enum ax_status on_done(void *ctx, struct ax_sequence *s) {
    struct ax_serve_engine *e = ctx;
    struct ax_serve_unit *u = (struct ax_serve_unit *)s;
    struct ax_serve_choice *c = u->choice;
    enum ax_status st = AX_OK;
    pthread_mutex_lock(&e->lock);
    if (c && !c->finish)
        st = end_choice(c, s->finish == AX_FINISH_CALLER ? "abort" : "length");
    e->left += u->job->leaves;
    ax_serve_unit_end(u->job);
    pthread_mutex_unlock(&e->lock);
    return st;
}

static bool with_adapters(const struct ax_serve_models *all) {
    for (int i = 0; i < all->n; i++)
        if (all->list[i].adapter != AX_ADAPTER_NONE)
            return true;
    return false;
}

void ax_serve_engine_options(struct ax_serve_engine *e, struct ax_generate_options *o) {
    o->varied = o->scoring = true;
    o->adapters = with_adapters(&e->models);
    o->more = on_more;
    o->token = on_token;
    o->done = on_done;
    o->ctx = e;
}

void ax_serve_engine_open(struct ax_serve_engine *e, struct ax_generator *g) {
    g->o.n_stop = 0; /* answers differ in what ends them */
    pthread_mutex_lock(&e->lock);
    e->generator = g;
    e->lanes = (int64_t)g->o.n_seqs * g->model->rt->mesh.size[AX_ROLE_LOSS];
    e->state = AX_SERVE_READY;
    pthread_mutex_unlock(&e->lock);
}

bool ax_serve_engine_pending(struct ax_serve_engine *e, bool last) {
    pthread_mutex_lock(&e->lock);
    if (e->state == AX_SERVE_LOADING)
        e->state = AX_SERVE_READY;
    if (e->state == AX_SERVE_READY && last)
        begin_to_stop(e);
    const bool any = e->waiting != NULL;
    pthread_mutex_unlock(&e->lock);
    return any;
}

enum ax_status ax_serve_engine_answer(struct ax_serve_engine *e, struct ax_generator *g,
                                      struct ax_team *team, int64_t version) {
    pthread_mutex_lock(&e->lock);
    e->generator = g;
    e->team = team;
    e->lanes = (int64_t)g->o.n_seqs * g->model->rt->mesh.size[AX_ROLE_LOSS];
    e->version = version;
    e->round_begins = true;
    g->counters = e->counters; /* they go on */
    pthread_mutex_unlock(&e->lock);
    return ax_generate(g, 0, NULL);
}

enum ax_status ax_serve_engine_run(struct ax_serve_engine *e) {
    const enum ax_status st = ax_generate(e->generator, 0, NULL);
    ax_serve_engine_end(e);
    return st;
}

void ax_serve_engine_end(struct ax_serve_engine *e) {
    pthread_mutex_lock(&e->lock);
    e->state = AX_SERVE_ENDED;
    ax_serve_jobs_fail(e);
    e->call = NULL;
    pthread_cond_broadcast(&e->settled);
    pthread_mutex_unlock(&e->lock);
}

enum ax_status ax_serve_engine_call(struct ax_serve_engine *e, struct ax_serve_call *call) {
    enum ax_status st;
    call->done = false;
    pthread_mutex_lock(&e->lock);
    while (e->call && e->state == AX_SERVE_READY) /* another's */
        pthread_cond_wait(&e->settled, &e->lock);
    if (e->state == AX_SERVE_READY)
        e->call = call;
    pthread_cond_signal(&e->wake);
    while (!call->done && e->call == call)
        pthread_cond_wait(&e->settled, &e->lock);
    if (call->done)
        st = ax_error_restore(&call->record);
    else
        st = ax_serve_unready(e->state, NULL);
    pthread_mutex_unlock(&e->lock);
    return st;
}
