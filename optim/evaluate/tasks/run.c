/* Tokens → answers: read run_task first; requests run in chunks, as sequences of a generator. Tasks with
 * different sampling run one after the other, each kind with its own generator. */
#include "optim/evaluate/tasks/requests.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/term.h"

/* The largest number of tokens fed for a request. */
static int64_t task_requests_longest(const struct ax_task_requests *r) {
    int64_t longest = 1, n;
    for (size_t i = 0; i < r->n; i++) {
        (void)ax_task_request_fed(r, &r->list[i], &n);
        longest = n > longest ? n : longest;
    }
    return longest;
}

/* ---- running: a chunk ---- */

#define CHUNK      1024 /* sequences per call of the generator */
#define MAX_LANES  64
#define MIN_LANES  4
#define CACHE_SIZE ((int64_t)256 << 20) /* bytes of keys and values for all lanes, approximately */

struct run {
    struct ax_task_requests *const *list;
    size_t n;
    const struct ax_task_generation *sampling; /* of the current tasks; NULL: greedy */
    const struct ax_text_model *model;
    const struct ax_task_run_options *o;
    struct ax_task_run_counters *counters;
    int64_t done, total;
    /* the current chunk */
    struct ax_task_requests *r;
    size_t first;             /* sequence 0 is sample first % samples of request first / samples */
    struct ax_sequence *seqs; /* [CHUNK] */
};

static size_t samples_of(const struct ax_task_requests *r) {
    return r->answers ? r->samples : 1;
}

/* ---- generation ---- */

/* Stops at a stop text within the last tokens: as many as it has on its own, plus two. */
static enum ax_status watch(void *ctx, struct ax_sequence *s, bool *stop) {
    const struct run *u = ctx;
    const struct ax_task_requests *r = u->r;
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

static enum ax_status keep_answer(const struct ax_task_requests *r, struct ax_task_answer *a,
                                  const struct ax_sequence *s) {
    struct ax_buf *text = &a->text;
    a->tokens = s->tokens;
    a->n = s->n_new;
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

static void keep_score(struct ax_task_request *q, const struct ax_sequence *s) {
    q->greedy = s->greedy;
    q->loglikelihood = 0;
    for (int64_t i = 0; i < s->n_scored; i++)
        q->loglikelihood += s->logprobs[i];
}

/* ---- sequences ---- */

static enum ax_status note(void *ctx, struct ax_sequence *s) {
    struct run *u = ctx;
    const size_t at = u->first + (size_t)(s - u->seqs);
    ax_term_progress("requests", ++u->done, u->total);
    if (u->r->answers)
        return keep_answer(u->r, &u->r->answers[at], s);
    keep_score(&u->r->list[at], s);
    return AX_OK;
}

static enum ax_status prepare(struct run *u, struct ax_sequence *s, size_t at) {
    const struct ax_task_requests *r = u->r;
    const struct ax_task_request *q = &r->list[at / samples_of(r)];
    *s = (struct ax_sequence){.stream = at};
    s->prompt = ax_task_request_fed(r, q, &s->n_prompt);
    if (!r->answers) {
        s->n_scored = q->n_continuation;
        s->scored = r->ids.ids + q->at + q->n_context;
        return ax_alloc(&s->logprobs, (size_t)s->n_scored, sizeof *s->logprobs);
    }
    s->max_new = r->generation->max_tokens;
    return ax_alloc(&s->tokens, (size_t)s->max_new, sizeof *s->tokens);
}

/* Frees the sequences' memory, except tokens that now belong to an answer. */
static void clear(struct run *u, size_t n) {
    for (size_t i = 0; i < n; i++) {
        ax_free(u->seqs[i].logprobs);
        if (u->r->answers && !u->r->answers[u->first + i].tokens)
            ax_free(u->seqs[i].tokens);
    }
}

static enum ax_status run_task(struct run *u, struct ax_generator *g) {
    const size_t n = u->r->n * samples_of(u->r);
    for (u->first = 0; u->first < n; u->first += CHUNK) {
        const size_t count = n - u->first < CHUNK ? n - u->first : CHUNK;
        enum ax_status st = AX_OK;
        size_t ready = 0;
        memset(u->seqs, 0, CHUNK * sizeof *u->seqs);
        while (ready < count && st == AX_OK) {
            st = prepare(u, &u->seqs[ready], u->first + ready);
            ready++;
        }
        if (st == AX_OK)
            st = ax_generate(g, (int64_t)count, u->seqs);
        clear(u, ready);
        AX_TRY(st);
    }
    return AX_OK;
}

/* ---- all tasks ---- */

/* True if this task runs with the current sampling. Scoring runs with greedy generation. */
static bool belongs(const struct run *u, const struct ax_task_requests *r) {
    const struct ax_task_generation *g = r->generation, *s = u->sampling;
    if (!r->answers || !(g->temperature > 0))
        return !s;
    return s && s->temperature == g->temperature && s->top_p == g->top_p && s->top_k == g->top_k;
}

static enum ax_status body(struct ax_generator *g, void *ctx) {
    struct run *u = ctx;
    AX_TRY(ax_text_model_use(u->model, g, u->o->adapter));
    g->o.token = watch;
    g->o.done = note;
    g->o.ctx = u;
    for (size_t i = 0; i < u->n; i++) {
        u->r = u->list[i];
        if (belongs(u, u->r))
            AX_TRY(run_task(u, g));
    }
    u->counters->prompt_tokens += g->counters.prompt_tokens;
    u->counters->shared_tokens += g->counters.shared_tokens;
    u->counters->generated_tokens += g->counters.tokens;
    return AX_OK;
}

static int64_t lanes_for(const struct run *u, int64_t tokens, int64_t sequences) {
    const int64_t token = ax_kv_token_bytes(&u->model->arch, 1, u->model->dtype);
    int64_t n = CACHE_SIZE / (token * tokens);
    n = n < MIN_LANES ? MIN_LANES : n > MAX_LANES ? MAX_LANES : n;
    n = u->o->lanes > 0 ? u->o->lanes : n;
    return n < sequences ? n : sequences;
}

static enum ax_status run_group(struct run *u, struct ax_text_model *model) {
    struct ax_generate_options o = {.scoring = true, .max_new = 1, .max_prompt = 1};
    int64_t sequences = 0;
    for (size_t i = 0; i < u->n; i++) {
        const struct ax_task_requests *r = u->list[i];
        const int64_t longest = task_requests_longest(r);
        if (!belongs(u, r))
            continue;
        sequences += (int64_t)(r->n * samples_of(r));
        o.max_prompt = longest > o.max_prompt ? longest : o.max_prompt;
        if (r->answers && r->generation->max_tokens > o.max_new)
            o.max_new = r->generation->max_tokens;
    }
    if (sequences == 0)
        return AX_OK;
    o.n_seqs = (int)lanes_for(u, o.max_prompt + o.max_new, sequences);
    model->sampling = (struct ax_sampling){.repetition_penalty = model->sampling.repetition_penalty,
                                           .seed = u->o->seed};
    if (u->sampling) {
        model->sampling.temperature = u->sampling->temperature;
        model->sampling.top_p = u->sampling->top_p;
        model->sampling.top_k = u->sampling->top_k;
    }
    return ax_text_model_run(model, &o, false, body, u);
}

/* True if no task before this one has the same sampling. */
static bool is_first(const struct run *u, size_t i) {
    struct run of = *u;
    of.sampling = u->list[i]->generation;
    for (size_t k = 0; k < i; k++)
        if (belongs(&of, u->list[k]))
            return false;
    return true;
}

static enum ax_status run_all(struct run *u, struct ax_text_model *model) {
    AX_TRY(run_group(u, model));
    for (size_t i = 0; i < u->n; i++) {
        const struct ax_task_requests *r = u->list[i];
        if (!r->answers || !(r->generation->temperature > 0) || !is_first(u, i))
            continue;
        u->sampling = r->generation;
        AX_TRY(run_group(u, model));
    }
    return AX_OK;
}

enum ax_status ax_task_run(struct ax_text_model *model, struct ax_task_requests *const *list,
                           size_t n, const struct ax_task_run_options *o,
                           struct ax_task_run_counters *counters) {
    struct run u = {.list = list, .n = n, .model = model, .o = o, .counters = counters};
    const double start = ax_clock_now();
    *counters = (struct ax_task_run_counters){0};
    for (size_t i = 0; i < n; i++)
        u.total += (int64_t)(list[i]->n * samples_of(list[i]));
    AX_TRY(ax_alloc(&u.seqs, CHUNK, sizeof *u.seqs));
    const enum ax_status st = run_all(&u, model);
    ax_free(u.seqs);
    counters->requests = u.done;
    counters->seconds = ax_clock_now() - start;
    return st;
}
