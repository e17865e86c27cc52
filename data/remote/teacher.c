#include "data/remote/teacher.h"

#include <string.h>

#include "base/mem.h"

/* Bytes of an answer: a token's entry with its text, and the rest. */
#define ENTRY_BYTES ((uint64_t)512)
#define REST_BYTES  ((uint64_t)1 << 20)

/* ---- asking ---- */

static uint64_t most_bytes(int k, int64_t n, const struct ax_remote_text *texts) {
    uint64_t tokens = 0;
    for (int64_t i = 0; i < n; i++)
        tokens += (uint64_t)texts[i].n;
    return REST_BYTES + tokens * (uint64_t)(k + 1) * ENTRY_BYTES;
}

/* Texts of request i. */
static int64_t texts_of(const struct ax_remote_teacher *t, int64_t n, int64_t i) {
    const int64_t left = n - i * t->o.prompts;
    return left < t->o.prompts ? left : t->o.prompts;
}

static enum ax_status read_answers(const struct ax_remote_teacher *t, int64_t n,
                                   const struct ax_remote_text *texts,
                                   const struct ax_endpoint_request *requests, int64_t n_requests) {
    for (int64_t i = 0; i < n_requests; i++) {
        const enum ax_status st = ax_prompt_logprobs_read(
            requests[i].answer, t->o.k, t->o.vocab, texts_of(t, n, i), texts + i * t->o.prompts);
        if (st != AX_OK)
            return ax_error_prefix(st, "%s%s", t->server.root, requests[i].path);
    }
    return AX_OK;
}

/* Reads n > 0 texts, whose answers are all in memory together. */
static enum ax_status read_together(const struct ax_remote_teacher *t, int64_t n,
                                    const struct ax_remote_text *texts,
                                    const struct ax_endpoint_look *look) {
    const int64_t n_requests = (n - 1) / t->o.prompts + 1;
    struct ax_endpoint_request *requests;
    char **bodies = NULL;
    enum ax_status st;
    AX_TRY(ax_alloc(&requests, (size_t)n_requests, sizeof *requests));
    AX_TRY_GOTO(ax_alloc(&bodies, (size_t)n_requests, sizeof *bodies), st, done);
    for (int64_t i = 0; i < n_requests; i++) {
        const struct ax_remote_text *own = texts + i * t->o.prompts;
        const int64_t k = texts_of(t, n, i);
        AX_TRY_GOTO(ax_remote_teacher_body(t, k, own, &bodies[i]), st, done);
        requests[i] = (struct ax_endpoint_request){
            .path = "/v1/completions", .body = bodies[i], .max_bytes = most_bytes(t->o.k, k, own)};
    }
    AX_TRY_GOTO(ax_endpoint_ask(&t->server, n_requests, requests, look), st, done);
    st = read_answers(t, n, texts, requests, n_requests);
done:
    for (int64_t i = 0; i < n_requests; i++) {
        json_decref(requests[i].answer);
        if (bodies)
            ax_free(bodies[i]);
    }
    ax_free(bodies);
    ax_free(requests);
    return st;
}

/* Texts of as many requests as are sent at the same time: a token's entries take kilobytes as JSON. */
static int64_t texts_together(const struct ax_remote_teacher *t, int64_t n) {
    const int64_t requests = t->server.o.concurrency;
    return t->o.prompts < n / requests ? t->o.prompts * requests : n;
}

enum ax_status ax_remote_teacher_read(const struct ax_remote_teacher *t, int64_t n,
                                      const struct ax_remote_text *texts,
                                      const struct ax_endpoint_look *look) {
    for (int64_t i = 0, count; i < n; i += count) {
        count = texts_together(t, n - i);
        AX_TRY(read_together(t, count, texts + i, look));
    }
    return AX_OK;
}

/* ---- opening ---- */

/* *most: tokens of a text and what is generated; 0: the server does not say. */
static enum ax_status open_model(struct ax_remote_teacher *t, int64_t *most) {
    AX_TRY(ax_endpoint_model(&t->server, t->o.model, &t->model, most));
    t->name = json_string(t->model);
    return t->name ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a teacher's name");
}

static enum ax_status check_length(const struct ax_remote_teacher *t, int64_t most) {
    if (most > 0 && most < t->o.longest + t->one)
        return ax_error(AX_ERR_CONFIG,
                        "%s: \"%s\" reads up to %lld tokens, and texts have up to %lld: lower "
                        "sequence_len, or let the server have a longer context",
                        t->server.root, t->model, (long long)most - t->one,
                        (long long)t->o.longest);
    return AX_OK;
}

static enum ax_status open_teacher(struct ax_remote_teacher *t) {
    int64_t most;
    AX_TRY(ax_endpoint_open(&t->server, &t->o.server));
    t->o.server = t->server.o;
    AX_TRY(open_model(t, &most));
    AX_TRY(ax_remote_vocabulary_check(t));
    return check_length(t, most);
}

enum ax_status ax_remote_teacher_open(struct ax_remote_teacher **out,
                                      const struct ax_remote_teacher_options *o) {
    struct ax_remote_teacher *t;
    AX_TRY(ax_alloc(&t, 1, sizeof *t));
    t->o = *o;
    const enum ax_status st = open_teacher(t);
    if (st == AX_OK)
        *out = t;
    else
        ax_remote_teacher_close(t);
    return st;
}

void ax_remote_teacher_close(struct ax_remote_teacher *t) {
    if (!t)
        return;
    json_decref(t->name);
    ax_free(t->model);
    ax_endpoint_close(&t->server);
    ax_free(t);
}

const char *ax_remote_teacher_model(const struct ax_remote_teacher *t) {
    return t->model;
}
