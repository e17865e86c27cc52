/* Texts → tokens: read make_item first. Tokens → answers: read run_task first; requests run in chunks,
 * as sequences of a generator. Tasks with different sampling run one after the other, each kind with
 * its own generator. */
#include "optim/evaluate/tasks/requests.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/term.h"
#include "data/text/tokenizer/encode.h"

struct maker {
    struct ax_task_requests *r;
    const struct ax_task_prompts *p;
};

/* ---- tokens ---- */

static bool begins(const char *s, size_t n, const char *with) {
    return with && *with && n >= strlen(with) && memcmp(s, with, strlen(with)) == 0;
}

/* Appends the tokens of a text and those that the tokenizer adds; without the latter if the text
 * already begins with `given`, the text of one of them. */
static enum ax_status encode(const struct ax_task_requests *r, const char *s, size_t n,
                             const char *given, struct ax_encoding *out) {
    const struct ax_encode_options o = {.add_special_tokens = !begins(s, n, given)};
    return ax_tokenizer_encode(r->tokenizer, s, n, &o, out);
}

static enum ax_status token_text(const struct ax_tokenizer *t, int32_t id, char **out) {
    struct ax_buf text = {0};
    AX_TRY(ax_buf_append(&text, "", 0));
    const enum ax_status st = id >= 0 ? ax_tokenizer_decode(t, &id, 1, false, &text) : AX_OK;
    *out = text.data;
    return st;
}

/* ---- requests ---- */

static enum ax_status add(struct ax_task_requests *r, size_t item, size_t at, size_t n_context) {
    if (r->n == r->cap) {
        const size_t cap = r->cap > 0 ? 2 * r->cap : 256;
        AX_TRY(ax_regrow(&r->list, r->cap, cap, sizeof *r->list));
        r->cap = cap;
    }
    const int64_t n = (int64_t)(r->ids.n - at - n_context);
    r->list[r->n++] = (struct ax_task_request){
        .item = item, .at = at, .n_context = (int64_t)n_context, .n_continuation = n};
    return AX_OK;
}

static enum ax_status push(struct ax_encoding *e, const int32_t *ids, size_t n) {
    AX_TRY(ax_encoding_reserve(e, n, false));
    memcpy(e->ids + e->n, ids, n * sizeof *ids);
    e->n += n;
    return AX_OK;
}

static enum ax_status add_scored(struct ax_task_requests *r, size_t item, size_t at,
                                 size_t n_context) {
    const size_t n = r->ids.n - at - n_context;
    if (n == 0)
        return ax_error(AX_ERR_DATA, "the answer has no tokens of its own to score");
    if ((int64_t)n > r->max_length)
        return ax_error(AX_ERR_DATA,
                        "the answer has %zu tokens, more than the %lld that the model "
                        "can take; raise --max-length, if the model allows",
                        n, (long long)r->max_length);
    return add(r, item, at, n_context);
}

/* A text without context follows the prefix token, which is not repeated if the text begins with
 * it. */
static enum ax_status add_alone(struct ax_task_requests *r, size_t item, const char *s, size_t n) {
    const struct ax_encode_options plain = {0};
    const size_t at = r->ids.n;
    AX_TRY(push(&r->ids, &r->prefix, 1));
    AX_TRY(ax_tokenizer_encode(r->tokenizer, s, n, &plain, &r->ids));
    if (r->ids.n > at + 1 && r->ids.ids[at + 1] == r->prefix) {
        memmove(r->ids.ids + at, r->ids.ids + at + 1, (r->ids.n - at - 1) * sizeof *r->ids.ids);
        r->ids.n--;
    }
    return add_scored(r, item, at, 1);
}

/* Spaces at the end of the context belong to the continuation. Its tokens are those of the joined
 * text beyond as many as the context has. */
static enum ax_status add_pair(struct ax_task_requests *r, size_t item,
                               const struct ax_buf *context, const struct ax_buf *continuation) {
    const size_t n = context->len, kept = ax_python_rstrip(context->data, n), at = r->ids.n;
    struct ax_buf whole = {0};
    struct ax_encoding ids = {0};
    enum ax_status st;
    if (n == 0)
        return add_alone(r, item, continuation->data, continuation->len);
    AX_TRY_GOTO(ax_buf_append(&whole, context->data, n), st, done);
    AX_TRY_GOTO(ax_buf_append(&whole, continuation->data, continuation->len), st, done);
    AX_TRY_GOTO(encode(r, context->data, kept, r->prefix_text, &r->ids), st, done);
    const size_t n_context = r->ids.n - at;
    AX_TRY_GOTO(encode(r, whole.data, whole.len, r->prefix_text, &ids), st, done);
    if (n_context == 0) /* only spaces, and the tokenizer adds no tokens */
        AX_TRY_GOTO(push(&r->ids, &r->prefix, 1), st, done);
    if (ids.n > n_context)
        AX_TRY_GOTO(push(&r->ids, ids.ids + n_context, ids.n - n_context), st, done);
    st = add_scored(r, item, at, n_context > 0 ? n_context : 1);
done:
    ax_buf_free(&whole);
    ax_encoding_free(&ids);
    return st;
}

/* Windows of max_length tokens, each of which predicts the tokens after those of the previous one.
 * The first begins with the prefix; the last starts earlier, so that it is full. */
static enum ax_status add_windows(struct ax_task_requests *r, size_t item, const char *s,
                                  size_t n) {
    struct ax_encoding ids = {0};
    const size_t most = (size_t)r->max_length;
    enum ax_status st = encode(r, s, n, r->prefix_text, &ids);
    for (size_t done = 0; done < ids.n && st == AX_OK;) {
        const size_t left = ids.n - done, count = left < most ? left : most, end = done + count;
        const size_t from = end > most ? end - most - 1 : 0, at = r->ids.n;
        if (done == 0)
            st = push(&r->ids, &r->prefix, 1);
        if (st == AX_OK)
            st = push(&r->ids, ids.ids + (done == 0 ? 0 : from), end - (done == 0 ? 0 : from));
        if (st == AX_OK)
            st = add(r, item, at, r->ids.n - at - count);
        done = end;
    }
    ax_encoding_free(&ids);
    return st;
}

/* ---- records ---- */

/* The delimiter between a question and its choices: with a chat template none, except after a
 * gen_prefix that does not end in a space. */
static const char *delimiter(const struct ax_task *t, bool chat) {
    const char *begin = t->gen_prefix.text;
    const bool open = begin && *begin && !ax_python_space_last(begin, strlen(begin));
    return !chat || open ? t->target_delimiter : "";
}

enum ax_status ax_task_continuation(const struct ax_task_prompts *p, size_t item, size_t choice,
                                    struct ax_buf *out) {
    const struct ax_task_item *x = &p->items[item];
    AX_TRY(ax_buf_puts(out, delimiter(p->task, p->chat)));
    return ax_python_str(out, p->several ? x->target : json_array_get(x->choices, choice));
}

static bool has_metric(const struct ax_task *t, enum ax_task_metric_kind kind) {
    for (size_t i = 0; i < t->n_metrics; i++)
        if (t->metrics[i].kind == kind)
            return true;
    return false;
}

/* Each choice after its context and, for mutual information, also without context. */
static enum ax_status add_choices(struct maker *m, size_t i) {
    const struct ax_task_item *item = &m->p->items[i];
    const bool alone = has_metric(m->p->task, AX_METRIC_ACC_MUTUAL_INFO);
    const size_t n = json_array_size(item->choices);
    for (size_t k = 0; k < n * (1 + alone); k++) {
        struct ax_buf text = {0};
        enum ax_status st = ax_task_continuation(m->p, i, k % n, &text);
        if (st == AX_OK && k >= n)
            st = add_alone(m->r, i, text.data, text.len);
        else if (st == AX_OK)
            st = add_pair(m->r, i, &item->contexts[m->p->several ? k : 0], &text);
        ax_buf_free(&text);
        AX_TRY(st);
    }
    return AX_OK;
}

static enum ax_status add_target(struct maker *m, size_t i, bool rolling) {
    const struct ax_task_item *item = &m->p->items[i];
    struct ax_buf text = {0};
    AX_TRY(ax_buf_append(&text, "", 0));
    enum ax_status st = item->target ? ax_python_str(&text, item->target) : AX_OK;
    if (st == AX_OK)
        st = rolling ? add_windows(m->r, i, text.data, text.len)
                     : add_pair(m->r, i, &item->contexts[0], &text);
    ax_buf_free(&text);
    return st;
}

static enum ax_status add_prompt(struct maker *m, size_t i) {
    const struct ax_buf *s = &m->p->items[i].contexts[0];
    const size_t at = m->r->ids.n;
    AX_TRY(encode(m->r, s->data, s->len, m->r->bos_text, &m->r->ids));
    if (m->r->ids.n == at)
        return ax_error(AX_ERR_DATA, "the prompt has no tokens");
    return add(m->r, i, at, m->r->ids.n - at);
}

static enum ax_status make_item(struct maker *m, size_t i) {
    switch (m->p->task->output) {
    case AX_TASK_MULTIPLE_CHOICE:
        return add_choices(m, i);
    case AX_TASK_GENERATE:
        return add_prompt(m, i);
    default:
        return add_target(m, i, m->p->task->output == AX_TASK_ROLLING);
    }
}

/* ---- all records ---- */

static enum ax_status find_special(struct ax_task_requests *r) {
    const int32_t bos = ax_tokenizer_special_id(r->tokenizer, AX_BOS),
                  eos = ax_tokenizer_special_id(r->tokenizer, AX_EOS);
    r->prefix = bos >= 0 ? bos : eos;
    AX_TRY(token_text(r->tokenizer, r->prefix, &r->prefix_text));
    return ax_strdup(&r->bos_text, bos >= 0 ? ax_tokenizer_special(r->tokenizer, AX_BOS) : "");
}

static enum ax_status count_until(struct ax_task_requests *r) {
    const struct ax_encode_options plain = {0};
    struct ax_encoding ids = {0};
    enum ax_status st = ax_alloc(&r->until_tokens, r->n_until, sizeof *r->until_tokens);
    for (size_t i = 0; i < r->n_until && st == AX_OK; i++) {
        ids.n = 0;
        st = ax_tokenizer_encode(r->tokenizer, r->until[i], strlen(r->until[i]), &plain, &ids);
        r->until_tokens[i] = (int64_t)ids.n;
    }
    ax_encoding_free(&ids);
    return st;
}

/* The task's stop texts, and the end of sequence if it is not among them. */
static enum ax_status list_until(struct ax_task_requests *r, const struct ax_task_generation *g) {
    char *eos;
    AX_TRY(token_text(r->tokenizer, ax_tokenizer_special_id(r->tokenizer, AX_EOS), &eos));
    enum ax_status st = ax_alloc(&r->until, g->n_until + 1, sizeof(char *));
    bool known = *eos == '\0';
    for (size_t i = 0; i < g->n_until && st == AX_OK; i++) {
        known = known || strcmp(g->until[i], eos) == 0;
        st = ax_strdup(&r->until[r->n_until++], g->until[i]);
    }
    if (st == AX_OK && !known)
        st = ax_strdup(&r->until[r->n_until++], eos);
    ax_free(eos);
    AX_TRY(st);
    r->samples = g->temperature > 0 ? (size_t)r->prompts->task->repeats : 1;
    return count_until(r);
}

static enum ax_status prepare_requests(struct ax_task_requests *r) {
    const struct ax_task *t = r->prompts->task;
    AX_TRY(find_special(r));
    AX_TRY(ax_alloc(&r->first, r->prompts->docs.n + 1, sizeof *r->first));
    if (r->prefix < 0 && t->output != AX_TASK_GENERATE)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "the tokenizer has neither a bos_token nor an eos_token to begin with");
    if (t->output != AX_TASK_GENERATE)
        return AX_OK;
    if (t->generation.max_tokens >= r->max_length)
        return ax_error(AX_ERR_CONFIG,
                        "%s: max_gen_toks is %lld, which leaves no tokens for a prompt in the "
                        "model's %lld tokens",
                        t->name, (long long)t->generation.max_tokens, (long long)r->max_length);
    return list_until(r, &t->generation);
}

static enum ax_status make_all(struct maker *m) {
    struct ax_task_requests *r = m->r;
    char where[512];
    AX_TRY(prepare_requests(r));
    for (size_t i = 0; i < m->p->docs.n; i++) {
        r->first[i] = r->n;
        const enum ax_status st = make_item(m, i);
        if (st != AX_OK)
            return ax_error_prefix(st, "%s",
                                   ax_task_docs_where(&m->p->docs, i, where, sizeof where));
    }
    r->first[m->p->docs.n] = r->n;
    if (m->p->task->output == AX_TASK_GENERATE)
        AX_TRY(ax_alloc(&r->answers, r->n * r->samples, sizeof *r->answers));
    return AX_OK;
}

enum ax_status ax_task_requests_make(struct ax_task_requests *r, const struct ax_task_prompts *p,
                                     const struct ax_text_side *side, int64_t max_length) {
    *r = (struct ax_task_requests){
        .prompts = p, .tokenizer = side->tokenizer, .max_length = max_length};
    struct maker m = {.r = r, .p = p};
    const enum ax_status st = make_all(&m);
    if (st != AX_OK)
        ax_task_requests_free(r);
    return st;
}

void ax_task_requests_free(struct ax_task_requests *r) {
    for (size_t i = 0; r->answers && i < r->n * r->samples; i++) {
        ax_free(r->answers[i].tokens);
        ax_buf_free(&r->answers[i].text);
    }
    for (size_t i = 0; i < r->n_until; i++)
        ax_free(r->until[i]);
    ax_free(r->until);
    ax_free(r->until_tokens);
    ax_free(r->answers);
    ax_free(r->list);
    ax_free(r->first);
    ax_free(r->prefix_text);
    ax_free(r->bos_text);
    ax_encoding_free(&r->ids);
    *r = (struct ax_task_requests){0};
}

const int32_t *ax_task_request_fed(const struct ax_task_requests *r,
                                   const struct ax_task_request *q, int64_t *n) {
    const bool scored = q->n_continuation > 0; /* the last token is only predicted */
    const int64_t all = q->n_context + q->n_continuation - scored;
    const int64_t most =
        scored ? r->max_length : r->max_length - r->prompts->task->generation.max_tokens;
    *n = all < most ? all : most;
    return r->ids.ids + q->at + (all - *n);
}

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
    s->max_new = r->prompts->task->generation.max_tokens;
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
    const struct ax_task_generation *g = &r->prompts->task->generation, *s = u->sampling;
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
        if (r->answers && r->prompts->task->generation.max_tokens > o.max_new)
            o.max_new = r->prompts->task->generation.max_tokens;
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
    of.sampling = &u->list[i]->prompts->task->generation;
    for (size_t k = 0; k < i; k++)
        if (belongs(&of, u->list[k]))
            return false;
    return true;
}

static enum ax_status run_all(struct run *u, struct ax_text_model *model) {
    AX_TRY(run_group(u, model));
    for (size_t i = 0; i < u->n; i++) {
        const struct ax_task_requests *r = u->list[i];
        if (!r->answers || !(r->prompts->task->generation.temperature > 0) || !is_first(u, i))
            continue;
        u->sampling = &r->prompts->task->generation;
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
