/* Requests → scores and answers: read ax_text_requests_generate first. They run in chunks, as sequences of a generator. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/term.h"
#include "model/text/text_requests.h"

#define CHUNK      1024 /* sequences per call of the generator */
#define MAX_LANES  64
#define MIN_LANES  4
#define CACHE_SIZE ((int64_t)256 << 20) /* bytes of keys and values for all lanes, approximately */

struct run {
    struct ax_text_requests *r;
    int64_t done;
    size_t first;             /* sequence 0 of the current chunk is this request */
    struct ax_sequence *seqs; /* [CHUNK] */
};

/* ---- answers ---- */

/* Stops at a stop text within the last tokens: as many as it has on its own, plus two. */
static enum ax_status watch(void *ctx, struct ax_sequence *s, bool *stop) {
    const struct ax_text_requests *r = ((const struct run *)ctx)->r;
    struct ax_buf text = {0};
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < r->n_until && st == AX_OK && !*stop; i++) {
        const int64_t most = r->until_tokens[i] + 2, n = s->n_new < most ? s->n_new : most;
        text.len = 0;
        st = ax_tokenizer_decode(r->tokenizer, s->tokens + s->n_new - n, (size_t)n, false, &text);
        *stop = st == AX_OK && text.len > 0 &&
                memmem(text.data, text.len, r->until[i], strlen(r->until[i]));
    }
    ax_buf_free(&text);
    return st;
}

static enum ax_status keep_answer(const struct ax_text_requests *r, struct ax_buf *text,
                                  const struct ax_sequence *s) {
    AX_TRY(ax_buf_append(text, "", 0));
    AX_TRY(ax_tokenizer_decode(r->tokenizer, s->tokens, (size_t)s->n_new, true, text));
    for (size_t i = 0; i < r->n_until; i++) {
        const char *until = r->until[i];
        char *cut = *until ? memmem(text->data, text->len, until, strlen(until)) : NULL;
        if (cut)
            text->len = (size_t)(cut - text->data);
    }
    text->data[text->len] = '\0';
    return AX_OK;
}

/* ---- scores ---- */

static void keep_score(struct ax_text_request *q, const struct ax_sequence *s) {
    q->greedy = s->greedy;
    q->loglikelihood = 0;
    for (int64_t i = 0; i < s->n_scored; i++)
        q->loglikelihood += s->logprobs[i];
}

/* ---- sequences ---- */

static enum ax_status note(void *ctx, struct ax_sequence *s) {
    struct run *u = ctx;
    const size_t at = u->first + (size_t)(s - u->seqs);
    u->done++;
    if (!u->r->quiet)
        ax_term_progress("requests", u->done, (int64_t)u->r->n);
    if (u->r->answers)
        return keep_answer(u->r, &u->r->answers[at], s);
    keep_score(&u->r->list[at], s);
    return AX_OK;
}

static enum ax_status prepare(const struct run *u, struct ax_sequence *s, size_t at) {
    const struct ax_text_requests *r = u->r;
    const struct ax_text_request *q = &r->list[at];
    *s = (struct ax_sequence){.stream = at};
    s->prompt = ax_text_requests_fed(r, q, &s->n_prompt);
    if (!r->answers) {
        s->n_scored = q->n_continuation;
        s->scored = r->ids.ids + q->at + q->n_context;
        return ax_alloc(&s->logprobs, (size_t)s->n_scored, sizeof *s->logprobs);
    }
    s->max_new = r->generation->max_tokens;
    return ax_alloc(&s->tokens, (size_t)s->max_new, sizeof *s->tokens);
}

static enum ax_status run_chunk(struct run *u, struct ax_generator *g, size_t n) {
    enum ax_status st = AX_OK;
    memset(u->seqs, 0, CHUNK * sizeof *u->seqs);
    for (size_t i = 0; i < n && st == AX_OK; i++)
        st = prepare(u, &u->seqs[i], u->first + i);
    if (st == AX_OK)
        st = ax_generate(g, (int64_t)n, u->seqs);
    for (size_t i = 0; i < n; i++) {
        ax_free(u->seqs[i].logprobs);
        ax_free(u->seqs[i].tokens);
    }
    return st;
}

/* ---- on a generator ---- */

static enum ax_status run_chunks(struct run *u, struct ax_generator *g) {
    g->o.token = watch;
    g->o.done = note;
    g->o.ctx = u;
    for (; u->first < u->r->n; u->first += CHUNK) {
        const size_t left = u->r->n - u->first;
        AX_TRY(run_chunk(u, g, left < CHUNK ? left : CHUNK));
    }
    return AX_OK;
}

enum ax_status ax_text_requests_generate(struct ax_text_requests *r, struct ax_generator *g,
                                         struct ax_text_requests_counters *counters) {
    struct run u = {.r = r};
    if (r->generation)
        AX_TRY(ax_alloc(&r->answers, r->n, sizeof *r->answers));
    AX_TRY(ax_alloc(&u.seqs, CHUNK, sizeof *u.seqs));
    const enum ax_status st = run_chunks(&u, g);
    ax_free(u.seqs);
    counters->requests += u.done;
    counters->prompt_tokens += g->counters.prompt_tokens;
    counters->shared_tokens += g->counters.shared_tokens;
    counters->generated_tokens += g->counters.tokens;
    return st;
}

struct ax_sampling ax_text_requests_sampling(const struct ax_text_requests *r, uint64_t seed) {
    const struct ax_text_generation *g = r->generation;
    if (!g || g->temperature == 0)
        return (struct ax_sampling){.seed = seed};
    return (struct ax_sampling){
        .seed = seed, .temperature = g->temperature, .top_p = g->top_p, .top_k = g->top_k};
}

/* ---- on a model that is loaded for them ---- */

struct loaded {
    struct ax_text_requests *r;
    const struct ax_text_model *model;
    int adapter;
    struct ax_text_requests_counters *counters;
};

static enum ax_status body(struct ax_generator *g, void *ctx) {
    const struct loaded *l = ctx;
    AX_TRY(ax_text_model_use(l->model, g, l->adapter));
    return ax_text_requests_generate(l->r, g, l->counters);
}

static int64_t lanes_for(const struct ax_text_model *model, int64_t tokens) {
    const int64_t token = ax_kv_token_bytes(&model->arch, 1, model->dtype);
    const int64_t n = CACHE_SIZE / (token * tokens);
    return n < MIN_LANES ? MIN_LANES : n > MAX_LANES ? MAX_LANES : n;
}

enum ax_status ax_text_requests_run(struct ax_text_requests *r, struct ax_text_model *model,
                                    const struct ax_text_requests_options *o,
                                    struct ax_text_requests_counters *counters) {
    struct loaded l = {.r = r, .model = model, .adapter = o->adapter, .counters = counters};
    struct ax_generate_options go = {
        .scoring = true, .max_new = r->generation ? r->generation->max_tokens : 1, .max_prompt = 1};
    const double start = ax_clock_now();
    if (r->n == 0)
        return AX_OK;
    for (size_t i = 0; i < r->n; i++) {
        int64_t n;
        (void)ax_text_requests_fed(r, &r->list[i], &n);
        go.max_prompt = n > go.max_prompt ? n : go.max_prompt;
    }
    const int64_t lanes = o->lanes > 0 ? o->lanes : lanes_for(model, go.max_prompt + go.max_new);
    go.n_seqs = (int)(lanes < (int64_t)r->n ? lanes : (int64_t)r->n);
    const double penalty = model->sampling.repetition_penalty;
    model->sampling = ax_text_requests_sampling(r, o->seed);
    model->sampling.repetition_penalty = penalty;
    const enum ax_status st = ax_text_model_run(model, &go, false, body, &l);
    counters->seconds += ax_clock_now() - start;
    return st;
}
