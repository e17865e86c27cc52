/* What a model says of a micro-batch's scored tokens: the product's forward pass and scorer, and
 * the logits' mean, which only the reference logs. */
#include <math.h>

#include "base/mem.h"
#include "tests/goldens/run.h"
#include "kernels/transfer.h"
#include "model/generate/score.h"

#define WINDOW 64

struct look {
    struct ax_run_micro *m;
    struct ax_model *model;
    struct ax_batch batch;
    struct ax_slot slot;
    struct ax_scorer scorer;
    struct ax_results results;
    double *entropy, *logits; /* of a window */
    double temperature;       /* of log-probs and entropy; 0: 1 */
    int64_t at;               /* the next token of the micro-batch */
};

static double mean(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

/* Of softmax(z/temperature). */
static void soften(const double *z, int64_t n, double temperature, int32_t label, double *logprob,
                   double *entropy) {
    double max = -INFINITY, sum = 0, weighted = 0;
    for (int64_t i = 0; i < n; i++)
        max = fmax(max, z[i] / temperature);
    for (int64_t i = 0; i < n; i++) {
        const double p = exp(z[i] / temperature - max);
        sum += p;
        weighted += p * (z[i] / temperature - max);
    }
    *entropy = log(sum) - weighted / sum;
    *logprob = z[label] / temperature - max - log(sum);
}

/* The rows of a batch with a label are its tokens with a label, in order. */
static int64_t next_scored(struct look *l) {
    while (l->m->labels[l->at] < 0)
        l->at++;
    return l->at++;
}

/* Keeps rows [from, end) of the window. */
static enum ax_status keep(struct look *l, const struct ax_scores *scores, int64_t from,
                           int64_t end) {
    struct ax_queue *q = l->model->rt->q;
    const int64_t V = l->scorer.logits.shape[1];
    AX_TRY(ax_results_read(&l->results));
    AX_TRY(ax_tensor_read(q, &l->scorer.entropy, AX_F64, l->entropy));
    AX_TRY(ax_tensor_read(q, &l->scorer.logits, AX_F64, l->logits));
    for (int64_t i = from; i < end; i++) {
        const int64_t t = next_scored(l);
        l->m->logprob[t] = ax_results_get(&l->results, &scores->logprob, i);
        l->m->entropy[t] = l->entropy[i];
        if (l->temperature > 0)
            soften(l->logits + i * V, V, l->temperature, l->m->labels[t], &l->m->logprob[t],
                   &l->m->entropy[t]);
        l->m->mean_logit[t] = mean(l->logits + i * V, V);
        l->m->top1[t] = ax_scores_best(&l->scorer, &l->results, scores, i) == l->m->labels[t];
    }
    return AX_OK;
}

/* Scores the rows with a label, a window at a time; one that would pass the end starts earlier. */
static enum ax_status score(struct look *l, struct ax_pass *p) {
    const bool planning = ax_runtime_planning(l->model->rt);
    const int64_t window = l->scorer.window, last = l->batch.T - window;
    const int64_t n = planning ? 1 : l->m->scored;
    for (int64_t done = 0; done < n;) {
        const int64_t first = done < last ? done : last;
        const int64_t end = first + window < n ? first + window : n;
        const struct ax_tensor rows = ax_tensor_rows(&l->batch.rows, first, window),
                               labels = ax_tensor_rows(&l->batch.labels, first, window);
        struct ax_scores scores;
        AX_TRY(ax_scorer_run(&l->scorer, p, &rows, &labels, &l->results, &scores));
        if (!planning)
            AX_TRY(keep(l, &scores, done - first, end - first));
        done = end;
    }
    return AX_OK;
}

static enum ax_status run(struct look *l, const struct ax_run_sizes *sizes) {
    struct ax_model *m = l->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    AX_TRY(ax_slot_create(&l->slot, m, &m->rt->arena.slots[0]));
    ax_batch_allocate(&l->batch, scratch, sizes->tokens, sizes->docs, sizes->longest, 1, 0);
    ax_batch_cut(&l->batch, scratch, m->arch.chunk);
    ax_scorer_create(&l->scorer, m, scratch, sizes->tokens < WINDOW ? sizes->tokens : WINDOW);
    ax_results_create(&l->results, ax_queue_has_host_tier(m->rt->q) ? m->rt->q : NULL, scratch,
                      ax_scores_bytes(&l->scorer, l->scorer.window));
    const size_t window = (size_t)l->scorer.window;
    AX_TRY(ax_alloc(&l->entropy, window, sizeof *l->entropy));
    AX_TRY(ax_alloc(&l->logits, window * (size_t)l->scorer.logits.shape[1], sizeof *l->logits));
    AX_TRY(ax_batch_fill(&l->batch, m->rt->q, m->arch.vocab_size, l->m->n, l->m->docs));
    struct ax_pass p = {.model = m,
                        .batch = &l->batch,
                        .slot = &l->slot,
                        .recompute = AX_RECOMPUTE_INFERENCE,
                        .inv_temperature = 1};
    AX_TRY(ax_pass_begin(&p));
    AX_TRY(ax_pass_forward_all(&p));
    AX_TRY(score(l, &p));
    ax_pass_end(&p);
    return AX_OK;
}

enum ax_status ax_run_look(const struct ax_run *r, struct ax_model *model, struct ax_run_micro *m) {
    struct ax_arena *arena = &model->rt->arena;
    const enum ax_phase before = arena->phase;
    const struct ax_run_sizes sizes = ax_run_sizes(r);
    const double temperature =
        r->objective.temperature > 0 ? r->objective.temperature : r->distill.temperature;
    struct look l = {.m = m, .model = model, .temperature = temperature};
    ax_arena_enter(arena, AX_PHASE_EVAL);
    const enum ax_status st = run(&l, &sizes);
    ax_results_free(&l.results);
    ax_slot_free(&l.slot);
    ax_free(l.entropy);
    ax_free(l.logits);
    ax_stack_release(&arena->scratch, 0);
    ax_stack_release(&arena->slots[0], 0);
    ax_arena_enter(arena, before);
    return st;
}
