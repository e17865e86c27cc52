#include "cmd/serve/round.h"

#include <string.h>

#include "base/stop.h"

/* ---- meeting ---- */

/* *words: 0 if the ranks go on waiting, else 1 + how many bytes rank 0 has to tell; other ranks say 0. */
static enum ax_status meet(struct ax_serve_engine *e, double *words) {
    double v[] = {*words, ax_stop_requested() != AX_STOP_NONE ? 1 : 0};
    AX_TRY(ax_runtime_combine(e->generator->model->rt, AX_ROLE_WORLD, AX_MAX, v, 2));
    *words = v[0];
    e->asked_to_stop = e->asked_to_stop || v[1] > 0;
    return AX_OK;
}

enum ax_status ax_serve_round_beat(struct ax_serve_engine *e) {
    double none = 0;
    return meet(e, &none);
}

enum ax_status ax_serve_round_tell(struct ax_serve_engine *e, struct ax_buf *what) {
    double words = 1 + (double)what->len;
    AX_TRY(meet(e, &words));
    return what->len > 0 ? ax_team_share(e->team, what->data, (int64_t)what->len) : AX_OK;
}

static enum ax_status wait_for_pass(struct ax_serve_engine *e, struct ax_buf *what) {
    double words = 0;
    while (words == 0)
        AX_TRY(meet(e, &words));
    const size_t n = (size_t)words - 1;
    if (n == 0)
        return AX_OK;
    AX_TRY(ax_alloc(&what->data, n + 1, 1));
    what->len = n;
    what->cap = n + 1;
    return ax_team_share(e->team, what->data, (int64_t)n);
}

/* ---- what is told: a head, numbers of jobs that leave, and jobs that begin ---- */

struct head {
    uint64_t leaving, beginning;
};

/* The lengths of the prompts, their ids, and the body follow. */
struct job_head {
    uint64_t chat, stream, prompts, ids, body;
};

static enum ax_status put_job(const struct ax_serve_job *j, struct ax_buf *out) {
    const struct ax_serve_request *r = &j->r;
    const struct job_head head = {.chat = r->chat,
                                  .stream = j->stream,
                                  .prompts = (uint64_t)r->n_prompts,
                                  .ids = r->ids.n,
                                  .body = j->body.len};
    AX_TRY(ax_buf_append(out, &head, sizeof head));
    for (int64_t i = 0; i < r->n_prompts; i++)
        AX_TRY(ax_buf_append(out, &r->prompts[i].n, sizeof r->prompts[i].n));
    AX_TRY(ax_buf_append(out, r->ids.ids, r->ids.n * sizeof *r->ids.ids));
    return ax_buf_append(out, j->body.data, j->body.len);
}

static bool begins_to_leave(const struct ax_serve_job *j) {
    return j->leaves && !j->units[0].s.leaves;
}

enum ax_status ax_serve_round_put(struct ax_serve_engine *e, uint64_t first, struct ax_buf *out) {
    struct head head = {0};
    for (const struct ax_serve_job *j = e->running; j; j = j->next) {
        head.leaving += begins_to_leave(j);
        head.beginning += j->number >= first;
    }
    if (head.leaving + head.beginning == 0)
        return AX_OK;
    AX_TRY(ax_buf_append(out, &head, sizeof head));
    for (const struct ax_serve_job *j = e->running; j; j = j->next)
        if (begins_to_leave(j))
            AX_TRY(ax_buf_append(out, &j->number, sizeof j->number));
    for (struct ax_serve_job *j = e->running; j; j = j->next) {
        if (j->number < first)
            continue;
        AX_TRY(put_job(j, out));
        ax_buf_free(&j->body);
    }
    return AX_OK;
}

/* ---- what is heard ---- */

struct reader {
    const char *at;
    size_t left;
};

/* The next n values of `size` bytes, at an address that may not be aligned. */
static enum ax_status take(struct reader *r, uint64_t n, size_t size, const char **out) {
    if (n > r->left / size)
        return ax_error(AX_ERR_PEER,
                        "rank 0 tells of requests in %zu bytes too few; all ranks "
                        "must run the same build",
                        (size_t)n * size - r->left);
    *out = r->at;
    r->at += n * size;
    r->left -= (size_t)n * size;
    return AX_OK;
}

static enum ax_status take_copy(struct reader *r, void *out, size_t size) {
    const char *from;
    AX_TRY(take(r, 1, size, &from));
    memcpy(out, from, size);
    return AX_OK;
}

static enum ax_status read_job(struct ax_serve_job *j, const struct job_head *head,
                               struct reader *r) {
    struct ax_serve_body body = {.chat = head->chat > 0,
                                 .len = (size_t)head->body,
                                 .n_prompts = (size_t)head->prompts,
                                 .n_ids = (size_t)head->ids};
    AX_TRY(take(r, head->prompts, sizeof(int64_t), &body.lengths));
    AX_TRY(take(r, head->ids, sizeof(int32_t), &body.ids));
    AX_TRY(take(r, head->body, 1, &body.text));
    j->stream = head->stream;
    AX_TRY(ax_serve_request_read(&j->r, &j->engine->models, &body));
    return ax_serve_job_lay_out(j);
}

static enum ax_status hear_job(struct ax_serve_engine *e, struct reader *r,
                               struct ax_sequence ***last) {
    struct job_head head;
    struct ax_serve_job *j;
    AX_TRY(take_copy(r, &head, sizeof head));
    AX_TRY(ax_serve_job_create(&j, e));
    const enum ax_status st = read_job(j, &head, r);
    if (st != AX_OK) {
        ax_serve_job_close(j);
        return ax_error_prefix(st, "a request that rank 0 has read");
    }
    pthread_mutex_lock(&e->lock);
    ax_serve_job_count(j);
    ax_serve_job_begin(j, last);
    pthread_mutex_unlock(&e->lock);
    return AX_OK;
}

static void mark_leaving(struct ax_serve_engine *e, uint64_t number) {
    pthread_mutex_lock(&e->lock);
    for (struct ax_serve_job *j = e->running; j; j = j->next)
        j->leaves = j->leaves || j->number == number;
    pthread_mutex_unlock(&e->lock);
}

static enum ax_status hear_all(struct ax_serve_engine *e, struct reader *r,
                               struct ax_sequence ***last) {
    struct head head;
    struct reader numbers = {0};
    uint64_t number;
    AX_TRY(take_copy(r, &head, sizeof head));
    AX_TRY(take(r, head.leaving, sizeof number, &numbers.at));
    numbers.left = (size_t)head.leaving * sizeof number;
    for (uint64_t i = 0; i < head.beginning; i++)
        AX_TRY(hear_job(e, r, last));
    for (uint64_t i = 0; i < head.leaving; i++) {
        AX_TRY(take_copy(&numbers, &number, sizeof number));
        mark_leaving(e, number);
    }
    return AX_OK;
}

enum ax_status ax_serve_round_hear(struct ax_serve_engine *e, struct ax_sequence ***last) {
    struct ax_buf what = {0};
    enum ax_status st = wait_for_pass(e, &what);
    struct reader r = {what.data, what.len};
    if (st == AX_OK && what.len > 0)
        st = hear_all(e, &r, last);
    ax_buf_free(&what);
    return st;
}
