/* Reads sequences into a pass until it is full; runs it forward; scores the tokens that are trained
 * on, a window at a time. Scores stay on the device for AX_SCORE_PASSES passes; then the host reads
 * them, with one wait, and sums in token order. Where the device's memory is the host's, nobody
 * waits, and the memory of one window is enough. */
#include "optim/evaluate.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/score.h"

/* Rows of logits computed at a time. Always this many, so that a run's memory equals its plan. */
#define WINDOW 128

/* A token that is trained on: its document, and where its score is. */
struct scored {
    int32_t label, doc, window, row;
    float weight;
};

struct evaluation {
    struct ax_model *m;
    const struct ax_eval_options *o;
    struct ax_batch batch;
    struct ax_slot slot;
    struct ax_scorer scorer;
    struct ax_results results;
    bool near; /* the device's memory is the host's */
    /* the pass being built, on the host */
    int n_docs;
    int64_t n_tokens;
    struct ax_document *docs; /* [max_docs] */
    int32_t *tokens, *labels; /* [tokens] */
    float *weight;            /* [tokens] */
    int64_t rows;             /* loader rows read so far */
    /* the passes whose scores have not been read */
    int n_passes;
    int64_t n_documents, n_scored, n_windows;
    int64_t n_added;                    /* of n_scored */
    struct ax_eval_document *documents; /* [AX_SCORE_PASSES · max_docs], then those of this pass */
    struct scored *scored;              /* [cap_scored], as many as were needed */
    struct ax_scores *windows;          /* [cap_windows], likewise */
    int64_t cap_scored, cap_windows;
    struct ax_eval_result *sum;
    double nll;
};

/* ---- memory ---- */

static enum ax_status create(struct evaluation *e) {
    struct ax_model *m = e->m;
    const size_t T = (size_t)e->o->tokens, D = (size_t)e->o->max_docs, passes = AX_SCORE_PASSES;
    AX_TRY(ax_slot_create(&e->slot, m, &m->rt->arena.slots[0]));
    ax_batch_allocate(&e->batch, &m->rt->arena.scratch, e->o->tokens, e->o->max_docs, e->o->max_len,
                      1, 0);
    ax_scorer_create(&e->scorer, m, &m->rt->arena.scratch,
                     e->o->tokens < WINDOW ? e->o->tokens : WINDOW);
    e->near = !ax_queue_has_host_tier(m->rt->q);
    ax_results_create(&e->results, e->near ? NULL : m->rt->q, &m->rt->arena.scratch,
                      e->near ? ax_scores_bytes(&e->scorer, e->scorer.window)
                              : passes * ax_scores_bytes(&e->scorer, e->o->tokens));
    AX_TRY(ax_alloc(&e->docs, D, sizeof *e->docs));
    AX_TRY(ax_alloc(&e->tokens, T, sizeof *e->tokens));
    AX_TRY(ax_alloc(&e->labels, T, sizeof *e->labels));
    AX_TRY(ax_alloc(&e->weight, T, sizeof *e->weight));
    return ax_alloc(&e->documents, passes * D, sizeof *e->documents);
}

static void destroy(struct evaluation *e) {
    ax_stack_release(&e->m->rt->arena.scratch, 0);
    ax_stack_release(&e->m->rt->arena.slots[0], 0);
    ax_slot_free(&e->slot);
    ax_free(e->docs);
    ax_free(e->documents);
    ax_free(e->tokens);
    ax_free(e->labels);
    ax_free(e->weight);
    ax_free(e->scored);
    ax_free(e->windows);
    ax_results_free(&e->results);
}

/* ---- scoring ---- */

/* Scores rows [first, first + window) of those that the batch lists: the tokens that are trained on,
 * in order, then the others. */
static enum ax_status score_window(struct evaluation *e, struct ax_pass *p, int64_t first) {
    const struct ax_tensor rows = ax_tensor_rows(&e->batch.rows, first, e->scorer.window),
                           labels = ax_tensor_rows(&e->batch.labels, first, e->scorer.window);
    if (e->n_windows == e->cap_windows) {
        const int64_t cap = 2 * e->cap_windows + 8;
        AX_TRY(ax_regrow(&e->windows, (size_t)e->cap_windows, (size_t)cap, sizeof *e->windows));
        e->cap_windows = cap;
    }
    return ax_scorer_run(&e->scorer, p, &rows, &labels, &e->results, &e->windows[e->n_windows++]);
}

/* Makes room for the scored tokens of this pass. */
static enum ax_status grow_scored(struct evaluation *e) {
    int64_t cap = e->n_scored + e->n_tokens;
    if (cap <= e->cap_scored)
        return AX_OK;
    cap = cap > 2 * e->cap_scored ? cap : 2 * e->cap_scored;
    AX_TRY(ax_regrow(&e->scored, (size_t)e->cap_scored, (size_t)cap, sizeof *e->scored));
    e->cap_scored = cap;
    return AX_OK;
}

/* Lists the pass's tokens that are trained on, in order. */
static int64_t list_scored(struct evaluation *e) {
    struct scored *list = e->scored + e->n_scored;
    int64_t n = 0, end = e->n_docs > 0 ? e->docs[0].n : 0;
    int doc = 0;
    for (int64_t t = 0; t < e->n_tokens; t++) {
        while (t >= end)
            end += e->docs[++doc].n;
        if (e->labels[t] >= 0 && e->weight[t] > 0)
            list[n++] = (struct scored){.label = e->labels[t],
                                        .doc = (int32_t)e->n_documents + doc,
                                        .weight = e->weight[t]};
    }
    return n;
}

static void add_token(struct evaluation *e, const struct scored *t) {
    struct ax_eval_document *d = &e->documents[t->doc];
    const struct ax_scores *w = &e->windows[t->window];
    const double weight = (double)t->weight;
    d->nll -= weight * ax_results_get(&e->results, &w->logprob, t->row);
    d->weight += weight;
    d->trained++;
    d->correct += (int32_t)ax_results_get(&e->results, &w->best, t->row) == t->label;
}

/* Reads the scores since the last time, up to those of token `end`. */
static enum ax_status add_tokens(struct evaluation *e, int64_t end) {
    if (e->n_added == end)
        return AX_OK;
    AX_TRY(ax_results_read(&e->results));
    for (; e->n_added < end; e->n_added++)
        add_token(e, &e->scored[e->n_added]);
    return AX_OK;
}

/* Scores them, a window at a time; a window that would pass the end starts earlier. */
static enum ax_status score_rows(struct evaluation *e, struct ax_pass *p) {
    AX_TRY(grow_scored(e));
    const int64_t trained = list_scored(e), last = e->o->tokens - e->scorer.window;
    struct scored *list = e->scored + e->n_scored;
    for (int64_t i = 0; i < trained;) {
        const int64_t first = i < last ? i : last;
        AX_TRY(score_window(e, p, first));
        for (; i < trained && i < first + e->scorer.window; i++) {
            list[i].window = (int32_t)e->n_windows - 1;
            list[i].row = (int32_t)(i - first);
        }
        if (e->near)
            AX_TRY(add_tokens(e, e->n_scored + i));
    }
    e->n_scored += trained;
    return AX_OK;
}

/* Completes the documents of all passes since the last time. */
static enum ax_status hand_over(struct evaluation *e) {
    struct ax_eval_result *r = e->sum;
    AX_TRY(add_tokens(e, e->n_scored));
    for (int64_t i = 0; i < e->n_documents; i++) {
        const struct ax_eval_document *d = &e->documents[i];
        e->nll += d->nll;
        r->weight += d->weight;
        r->tokens += d->tokens;
        r->trained += d->trained;
        r->correct += d->correct;
        if (e->o->document)
            AX_TRY(e->o->document(e->o->ctx, d));
    }
    r->documents += e->n_documents;
    r->rows = e->rows;
    e->n_documents = e->n_scored = e->n_added = e->n_windows = e->n_passes = 0;
    return AX_OK;
}

static enum ax_status end_pass(struct evaluation *e) {
    e->n_documents += e->n_docs;
    e->n_docs = 0;
    e->n_tokens = 0;
    e->n_passes++;
    if (e->o->progress)
        e->o->progress(e->o->ctx, e->rows);
    return e->n_passes == AX_SCORE_PASSES ? hand_over(e) : AX_OK;
}

static enum ax_status run_pass(struct evaluation *e) {
    struct ax_model *m = e->m;
    struct ax_pass p = {.model = m,
                        .batch = &e->batch,
                        .slot = &e->slot,
                        .recompute = AX_RECOMPUTE_INFERENCE,
                        .inv_temperature = 1};
    AX_TRY(ax_batch_fill(&e->batch, m->rt->q, m->arch.vocab_size, e->n_docs, e->docs));
    AX_TRY(ax_pass_begin(&p));
    AX_TRY(ax_pass_forward_all(&p));
    if (ax_runtime_planning(m->rt))
        AX_TRY(score_window(e, &p, 0));
    else
        AX_TRY(score_rows(e, &p));
    ax_pass_end(&p);
    return end_pass(e);
}

/* ---- sequences ---- */

static void add_document(struct evaluation *e, const struct ax_packed_sequence *s, int i) {
    const struct ax_document *from = &s->docs[i];
    const size_t n = (size_t)from->n;
    int32_t *tokens = e->tokens + e->n_tokens, *labels = e->labels + e->n_tokens;
    float *weight = e->weight + e->n_tokens;
    memcpy(tokens, from->tokens, n * sizeof *tokens);
    for (size_t t = 0; t < n; t++) {
        labels[t] = from->labels ? from->labels[t] : t + 1 < n ? from->tokens[t + 1] : -1;
        weight[t] = from->weight ? from->weight[t] : 1;
    }
    e->docs[e->n_docs] = (struct ax_document){.n = from->n,
                                              .tokens = tokens,
                                              .labels = labels,
                                              .weight = weight,
                                              .first_position = from->first_position};
    e->documents[e->n_documents + e->n_docs] = (struct ax_eval_document){
        .set = ax_sequence_set(s, i), .example = ax_sequence_ref(s, i)->index, .tokens = from->n};
    e->n_docs++;
    e->n_tokens += from->n;
}

static enum ax_status add_sequence(struct evaluation *e, const struct ax_packed_sequence *s) {
    AX_ASSERT(s->n_tokens <= e->o->tokens && s->n <= e->o->max_docs);
    if (e->n_tokens + s->n_tokens > e->o->tokens || e->n_docs + s->n > e->o->max_docs)
        AX_TRY(run_pass(e));
    for (int i = 0; i < s->n; i++)
        add_document(e, s, i);
    e->rows++;
    return AX_OK;
}

static enum ax_status run(struct evaluation *e, struct ax_loader *loader) {
    AX_TRY(create(e));
    if (ax_runtime_planning(e->m->rt))
        return run_pass(e);
    ax_loader_start_epoch(loader, 0);
    while (e->o->max_rows == 0 || e->rows < e->o->max_rows) {
        struct ax_packed_sequence s;
        bool got;
        e->sum->stopped = e->o->stop && e->o->stop(e->o->ctx);
        if (e->sum->stopped)
            return AX_OK;
        AX_TRY(ax_loader_next(loader, &s, &got));
        if (!got)
            break;
        AX_TRY(add_sequence(e, &s));
    }
    if (e->n_docs > 0)
        AX_TRY(run_pass(e));
    return e->n_passes > 0 ? hand_over(e) : AX_OK;
}

enum ax_status ax_evaluate(struct ax_model *m, struct ax_loader *loader,
                           const struct ax_eval_options *o, struct ax_eval_result *out) {
    struct ax_arena *arena = &m->rt->arena;
    const enum ax_phase before = arena->phase;
    struct evaluation e = {.m = m, .o = o, .sum = out};
    const double start = ax_clock_now();
    *out = (struct ax_eval_result){0};
    ax_arena_enter(arena, AX_PHASE_EVAL);
    const enum ax_status st = run(&e, loader);
    destroy(&e);
    ax_arena_enter(arena, before);
    AX_TRY(st);
    if (!ax_runtime_planning(m->rt) && !out->stopped) {
        if (!(out->weight > 0))
            return ax_error(AX_ERR_DATA, "evaluation: none of %lld rows has a trained token",
                            (long long)out->rows);
        out->loss = e.nll / out->weight;
        out->perplexity = exp(out->loss);
        out->accuracy = (double)out->correct / (double)out->trained;
    }
    out->seconds = ax_clock_now() - start;
    return AX_OK;
}
