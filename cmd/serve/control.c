#include "cmd/serve/control.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "base/threads.h"
#include "cmd/serve/serve.h"

#define LOOK_SECONDS 0.05 /* how often a client that waits is looked at */

static enum ax_status check_allowed(const struct ax_serve *s, struct ax_exchange *x) {
    if (s->control)
        return AX_OK;
    x->status = 404;
    return ax_error(AX_ERR_UNSUPPORTED, "%s is for servers started with --allow-control",
                    x->route->path);
}

/* ---- aborting ---- */

static bool is_id(const char *id, const char *given) {
    const char *dash = strchr(id, '-');
    return strcmp(id, given) == 0 || (dash && strcmp(dash + 1, given) == 0);
}

/* With the lock: aborts the jobs with this id, or with NULL all; says how many. */
static int abort_jobs(struct ax_serve_engine *e, const char *id) {
    struct ax_serve_job *const lists[] = {e->waiting, e->running};
    int n = 0;
    for (int k = 0; k < 2; k++)
        for (struct ax_serve_job *j = lists[k]; j; j = j->next)
            if (!j->leaves && (!id || is_id(j->id, id))) {
                ax_serve_job_abort(j);
                n++;
            }
    return n;
}

/* ---- pausing ---- */

enum mode { ABORT, WAIT, KEEP, MODES };
static const char *const modes[MODES] = {"abort", "wait", "keep"};

static enum ax_status read_mode(const struct ax_exchange *x, enum mode *mode) {
    const char *given = ax_http_argument(x, "mode");
    int i = 0;
    while (given && i < MODES && strcmp(given, modes[i]) != 0)
        i++;
    *mode = (enum mode)i;
    return i < MODES ? AX_OK
                     : ax_error(AX_ERR_CONFIG, "mode: expected abort, wait or keep, got \"%.40s\"",
                                given);
}

static enum ax_status read_clear(const struct ax_exchange *x, bool *clear) {
    const char *given = ax_http_argument(x, "clear_cache");
    *clear = !given || strcmp(given, "true") == 0;
    return *clear || strcmp(given, "false") == 0
               ? AX_OK
               : ax_error(AX_ERR_CONFIG, "clear_cache: expected true or false, got \"%.40s\"",
                          given);
}

static bool has_settled(const struct ax_serve_engine *e) {
    return e->pause == AX_SERVE_COMPUTES_NOTHING ? e->rests : !e->running;
}

/* With the lock; the client may go. */
static enum ax_status wait_until_settled(struct ax_serve_engine *e, struct ax_exchange *x,
                                         enum ax_serve_pause pause) {
    while (e->state == AX_SERVE_READY && e->pause == pause && !has_settled(e)) {
        (void)ax_cond_wait_until(&e->settled, &e->lock, ax_clock_now() + LOOK_SECONDS);
        if (ax_http_gone(x))
            return ax_error(AX_ERR_PEER, "the client has gone");
    }
    if (e->state != AX_SERVE_READY || e->pause == pause)
        return AX_OK;
    x->status = 409;
    return ax_error(AX_ERR_FAILED, "another request has changed the pause");
}

static enum ax_status pause_engine(struct ax_serve_engine *e, struct ax_exchange *x,
                                   enum mode mode) {
    const enum ax_serve_pause pause =
        mode == KEEP ? AX_SERVE_COMPUTES_NOTHING : AX_SERVE_BEGINS_NOTHING;
    enum ax_status st = AX_OK;
    pthread_mutex_lock(&e->lock);
    if (e->state == AX_SERVE_READY) {
        e->pause = pause;
        e->rests = false;
        if (mode == ABORT)
            (void)abort_jobs(e, NULL);
        pthread_cond_signal(&e->wake);
        st = wait_until_settled(e, x, pause);
    }
    if (st == AX_OK && e->state != AX_SERVE_READY)
        st = ax_serve_unready(e->state, &x->status);
    pthread_mutex_unlock(&e->lock);
    return st;
}

static enum ax_status forget_idle(void *ctx, struct ax_generator *g) {
    (void)ctx;
    ax_generator_forget_idle(g, NULL);
    return AX_OK;
}

static enum ax_status clear_cache(struct ax_serve *s, struct ax_exchange *x) {
    struct ax_serve_call call = {.run = forget_idle};
    const enum ax_status st = ax_serve_engine_call(&s->engine, &call);
    if (st == AX_ERR_FAILED)
        x->status = 503;
    return st;
}

enum ax_status ax_serve_pause(void *ctx, struct ax_exchange *x) {
    struct ax_serve *s = ctx;
    enum mode mode;
    bool clear;
    AX_TRY(check_allowed(s, x));
    AX_TRY(read_mode(x, &mode));
    AX_TRY(read_clear(x, &clear));
    ax_http_wait(x);
    AX_TRY(pause_engine(&s->engine, x, mode));
    if (clear)
        AX_TRY(clear_cache(s, x));
    return ax_reply_json(x, 200, json_pack("{ss}", "status", "paused"));
}

enum ax_status ax_serve_resume(void *ctx, struct ax_exchange *x) {
    struct ax_serve *s = ctx;
    AX_TRY(check_allowed(s, x));
    pthread_mutex_lock(&s->engine.lock);
    s->engine.pause = AX_SERVE_GOES_ON;
    pthread_cond_signal(&s->engine.wake);
    pthread_cond_broadcast(&s->engine.settled);
    pthread_mutex_unlock(&s->engine.lock);
    return ax_reply_json(x, 200, json_pack("{ss}", "status", "resumed"));
}

enum ax_status ax_serve_is_paused(void *ctx, struct ax_exchange *x) {
    struct ax_serve *s = ctx;
    AX_TRY(check_allowed(s, x));
    pthread_mutex_lock(&s->engine.lock);
    const bool paused = s->engine.pause != AX_SERVE_GOES_ON;
    pthread_mutex_unlock(&s->engine.lock);
    return ax_reply_json(x, 200, json_pack("{sb}", "is_paused", paused));
}

/* ---- requests, the cache ---- */

enum ax_status ax_serve_abort_requests(void *ctx, struct ax_exchange *x) {
    struct ax_serve *s = ctx;
    struct ax_json_doc doc;
    json_int_t n = 0;
    AX_TRY(check_allowed(s, x));
    AX_TRY(ax_json_parse(&doc, "body", x->body.len > 0 ? x->body.data : "", x->body.len));
    const json_t *ids = json_object_get(doc.root, "request_ids");
    bool fine = json_is_array(ids);
    for (size_t i = 0; fine && i < json_array_size(ids); i++)
        fine = json_is_string(json_array_get(ids, i));
    pthread_mutex_lock(&s->engine.lock);
    for (size_t i = 0; fine && i < json_array_size(ids); i++)
        n += abort_jobs(&s->engine, json_string_value(json_array_get(ids, i)));
    pthread_mutex_unlock(&s->engine.lock);
    ax_json_free(&doc);
    if (fine)
        return ax_reply_json(x, 200, json_pack("{sI}", "aborted", n));
    snprintf(x->param, sizeof x->param, "request_ids");
    return ax_error(AX_ERR_DATA, "request_ids: expected a list of ids of answers");
}

enum ax_status ax_serve_reset_cache(void *ctx, struct ax_exchange *x) {
    struct ax_serve *s = ctx;
    AX_TRY(check_allowed(s, x));
    AX_TRY(clear_cache(s, x));
    return ax_reply_json(x, 200, json_pack("{ss}", "status", "reset"));
}

/* ---- weights ---- */

enum ax_status ax_serve_weight_info(void *ctx, struct ax_exchange *x) {
    struct ax_serve *s = ctx;
    pthread_mutex_lock(&s->engine.lock);
    const int64_t version = s->engine.version;
    pthread_mutex_unlock(&s->engine.lock);
    return ax_reply_json(
        x, 200,
        json_pack("{so}", "weight_version", version < 0 ? json_null() : json_integer(version)));
}

enum ax_status ax_serve_no_weights(void *ctx, struct ax_exchange *x) {
    (void)ctx;
    x->status = 404;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s: weights are not sent to this server. Adapters are loaded by "
                    "/v1/load_lora_adapter, and a run answers with its own weights if its "
                    "configuration has `serve`",
                    x->route->path);
}
