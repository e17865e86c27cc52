/* The run: looks at each micro-batch with the weights of its step, then steps.
 *
 * The reference logs a loss per micro-batch; the product's step adds them up on the device. So the
 * objective is wrapped, and what the sum was when each micro-batch's turn came is read on the way. */
#include "base/mem.h"
#include "kernels/transfer.h"
#include "model/adapter/load.h"
#include "tests/goldens/run.h"

/* The step's sums, as they were. */
struct sums {
    double loss, aux;
    struct ax_step_measures measures;
};

struct replay {
    struct ax_run *r;
    struct ax_step step;
    struct ax_head_objective inner; /* the product's */
    int k, n;                       /* this step's first micro-batch, and how many it has */
    int turn;                       /* of them, whose turn came */
    struct sums *sums;              /* [n_microbatches + 1], when their turn came, and at the end */
    double *loss, *aux;             /* [n_microbatches] */
    struct ax_step_measures *measures;
    struct ax_run_start start;
    int64_t num_tokens;
    struct ax_run_tokens tokens;
};

static enum ax_status read_sums(struct replay *t, struct sums *out) {
    struct ax_step_scalars now;
    AX_TRY(ax_queue_read(t->step.rt->q, t->step.scalars, &now, sizeof now, NULL));
    out->loss = now.loss;
    out->aux = now.aux_loss;
    return ax_queue_read(t->step.rt->q, t->step.measures, &out->measures, sizeof out->measures,
                         NULL);
}

/* Mean over the documents of what the model's log-probs exceed the reference's by. */
static double kl_of(const struct ax_run_micro *m) {
    double sum = 0;
    for (int64_t t = 0; t < m->tokens; t++)
        sum += m->logprob[t] - m->reference[t];
    return m->n > 0 ? sum / m->n : 0;
}

/* The reference takes means over a micro-batch, and a mean of these; the product's are over the
 * step. */
static enum ax_status divide_by_micro(struct replay *t, const struct ax_batch *b, int k) {
    const struct ax_run_family *family = t->r->family;
    const bool pairs = t->r->objective.per == AX_PER_PAIR;
    const double documents = (double)(pairs ? b->n_docs / 2 : b->n_docs);
    struct ax_run_divisors d = {.weight = family->each ? b->weight_total : documents * t->n};
    if (family->divide)
        d = family->divide(t->r, k, t->n);
    const double inv_weight = 1 / d.weight, tokens = (double)b->side_trained[0] * t->n;
    const double kl = t->r->mismatched ? kl_of(&t->r->mismatched[k]) : 0;
    struct ax_queue *q = t->step.rt->q;
    struct ax_step_measures now;
    if (!family->divide && !family->each && !family->mean)
        return AX_OK;
    AX_TRY(ax_queue_read(q, t->step.measures, &now, sizeof now, NULL));
    now.kl = kl;
    now.tokens = tokens;
    now.entropy_tokens = d.entropy_tokens;
    now.entropy_cut = d.entropy_cut;
    AX_TRY(ax_queue_write(q, &t->step.scalars->inv_weight, &inv_weight, sizeof inv_weight));
    return ax_queue_write(q, t->step.measures, &now, sizeof now);
}

static enum ax_status compare_divergences(struct replay *t, int m, const struct ax_head_chunk *c) {
    double *got;
    AX_TRY(ax_alloc(&got, (size_t)c->n, sizeof *got));
    enum ax_status st = ax_tensor_read(t->step.rt->q, &c->divergence, AX_F64, got);
    if (st == AX_OK)
        st = ax_run_compare_divergences(t->r, t->k + m, c->first, c->n, got);
    ax_free(got);
    return st;
}

static enum ax_status token_grad(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    struct replay *t = ctx;
    const int m = (int)(p->batch - t->step.batches);
    if (!ax_runtime_planning(t->step.rt) && m == t->turn && m < t->n) {
        AX_TRY(read_sums(t, &t->sums[m]));
        AX_TRY(divide_by_micro(t, p->batch, t->k + m));
        t->turn++;
    }
    if (!ax_runtime_planning(t->step.rt) && m < t->n && c->divergence.data)
        AX_TRY(compare_divergences(t, m, c));
    return t->inner.token_grad(t->inner.ctx, p, c);
}

/* What part a micro-batch has in the routers' balancing loss: its weight in the step's loss. */
static double balance_share(const struct replay *t, int m, double step_weight) {
    const struct ax_run *r = t->r;
    const double own = t->step.batches[m].weight_total;
    if (r->family->divide)
        step_weight = r->family->divide(r, t->k + m, t->n).weight;
    return r->objective.per == AX_PER_TOKEN ? own / step_weight : 1.0 / t->n;
}

/* Fills the step's batches; there may be fewer in the last one. A loss per token weights the routers'
 * balancing loss of a micro-batch by its tokens, too, but not in the reference. */
static enum ax_status fill(struct replay *t, int step) {
    struct ax_run *r = t->r;
    struct ax_step *s = &t->step;
    double weight = 0;
    for (int m = 0; m < s->o.n_microbatches; m++) {
        const int k = r->first[step] + m;
        const struct ax_run_micro none = {0},
                                  *micro = k < r->first[step + 1] ? &r->micro[k] : &none;
        AX_TRY(ax_batch_fill(&s->batches[m], s->rt->q, s->model.arch.vocab_size, micro->n,
                             micro->docs));
        weight += s->batches[m].weight_total;
    }
    t->k = r->first[step];
    t->n = r->first[step + 1] - t->k;
    for (int m = 0; m < t->n && s->o.balance_coef > 0; m++)
        s->passes[m].balance_coef = s->o.balance_coef / (balance_share(t, m, weight) * t->n);
    return AX_OK;
}

/* Of each micro-batch: what it added to the sums, in the reference's terms. */
static enum ax_status split(struct replay *t, struct ax_run_step *got) {
    const double aux_coef = t->step.o.balance_coef / t->n;
    AX_TRY(read_sums(t, &t->sums[t->n]));
    *got = (struct ax_run_step){
        .result = got->result, .loss = t->loss, .aux = t->aux, .measures = t->measures};
    for (int m = 0; m < t->n; m++) {
        const struct sums *before = &t->sums[m], *after = &t->sums[m + 1];
        t->aux[m] = (after->aux - before->aux) / balance_share(t, m, got->result.weight_total);
        const double loss = after->loss - before->loss + aux_coef * t->aux[m];
        got->total += loss;
        t->loss[m] = t->r->family->mean ? loss * t->n : loss;
        for (int i = 0; i < AX_MEASURES; i++) {
            t->measures[m].sum[i] = after->measures.sum[i] - before->measures.sum[i];
            t->measures[m].of[i] = after->measures.of[i] - before->measures.of[i];
        }
    }
    return AX_OK;
}

/* The log-probs that completions are off-policy from: of the weights that they come up with. */
static enum ax_status find_old(struct replay *t, int k) {
    const struct ax_run_rollouts *o = &t->r->rollouts;
    if (!t->r->policy.o.old || !ax_run_is_new(t->r, k))
        return AX_OK;
    for (int j = 0; j < o->batches && k + j < t->r->n_micro; j++) {
        AX_TRY(ax_run_look(t->r, &t->step.model, &t->r->micro[k + j]));
        for (int at = k + j; at < k + o->batches * o->iterations && at < t->r->n_micro;
             at += o->batches)
            for (int64_t i = 0; i < t->r->micro[at].tokens; i++) {
                t->r->micro[at].old[i] = t->r->micro[k + j].logprob[i];
                t->r->micro[at].old_values[i] = (float)t->r->micro[at].old[i];
            }
    }
    return AX_OK;
}

static enum ax_status one_step(struct replay *t, int step) {
    struct ax_run *r = t->r;
    const bool planning = ax_runtime_planning(t->step.rt);
    const int first = r->first[step], end = r->first[step + 1];
    struct ax_run_step got;
    for (int k = first; k < end; k++) {
        AX_TRY(find_old(t, k));
        AX_TRY(ax_run_look(r, &t->step.model, &r->micro[k]));
        if (r->mismatched)
            AX_TRY(ax_run_look(r, &t->step.model, &r->mismatched[k]));
        if (!planning)
            AX_TRY(ax_run_compare_tokens(r, step, k, &t->tokens));
        t->num_tokens += r->micro[k].tokens;
    }
    AX_TRY(fill(t, step));
    t->turn = 0;
    AX_TRY(ax_step_run(&t->step, ax_lr_at(&r->lr, step), &got.result));
    if (planning)
        return AX_OK;
    if (got.result.skipped)
        return ax_error(AX_ERR_FAILED, "step %d was skipped: loss %g, gradient norm %g", step + 1,
                        got.result.loss, got.result.grad_norm);
    AX_TRY(split(t, &got));
    got.num_tokens = t->num_tokens;
    return ax_run_compare_step(r, step, &got);
}

/* The reference is the model at the start: a new adapter adds nothing to the base. */
static enum ax_status find_reference(struct replay *t, struct ax_model *model,
                                     struct ax_run_micro *m) {
    AX_TRY(ax_run_look(t->r, model, m));
    for (int i = 0; i < m->n; i++) {
        const int64_t first = ax_run_micro_first(m, i);
        double sum = 0;
        for (int64_t at = first; at < first + m->docs[i].n; at++) {
            m->reference[at] = m->logprob[at];
            m->reference_values[at] = (float)m->logprob[at];
            sum += (double)m->share[at] * m->logprob[at];
        }
        m->reference_sum[i] = (float)sum;
    }
    return AX_OK;
}

static enum ax_status find_references(struct replay *t, struct ax_model *model) {
    const int n = ax_runtime_planning(model->rt) ? 1 : t->r->n_micro;
    for (int k = 0; k < n; k++) {
        AX_TRY(find_reference(t, model, &t->r->micro[k]));
        if (t->r->mismatched)
            AX_TRY(find_reference(t, model, &t->r->mismatched[k]));
    }
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct replay *t = ctx;
    struct ax_run *r = t->r;
    const bool planning = ax_runtime_planning(rt);
    AX_TRY(ax_step_create(&t->step, rt, &r->arch, &r->step));
    struct ax_model *m = &t->step.model;
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load(m, &r->hf), st, done);
    if (r->teacher.dir)
        AX_TRY_GOTO(ax_model_load(&ax_step_teacher(&t->step)->model, &r->teacher), st, done);
    if (r->adapter.dir)
        AX_TRY_GOTO(ax_adapter_load(m, &r->adapter), st, done);
    if (r->family->head && !planning)
        AX_TRY_GOTO(ax_run_start_head(r, m), st, done);
    if (!planning)
        AX_TRY_GOTO(ax_run_start_read(&t->start, m), st, done);
    if (r->policy.o.beta != 0 || (r->objective.documents && r->objective.documents->reference >= 0))
        AX_TRY_GOTO(find_references(t, m), st, done);
    t->num_tokens = 0;
    for (int step = 0; step < (planning ? 1 : r->n_steps); step++)
        AX_TRY_GOTO(one_step(t, step), st, done);
    if (planning)
        goto done;
    ax_run_compare_share(r, &t->tokens);
    AX_TRY_GOTO(ax_run_compare_final(r, m, &t->start), st, done);
done:
    ax_step_free(&t->step);
    return st;
}

enum ax_status ax_run_replay(struct ax_run *r) {
    const size_t n = (size_t)r->step.n_microbatches;
    const struct ax_runtime_options ro = {.backend = r->o->backend, .threads = r->o->threads};
    struct replay t = {.r = r, .inner = r->objective.head};
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&t.sums, n + 1, sizeof *t.sums), st, done);
    AX_TRY_GOTO(ax_alloc(&t.loss, n, sizeof *t.loss), st, done);
    AX_TRY_GOTO(ax_alloc(&t.aux, n, sizeof *t.aux), st, done);
    AX_TRY_GOTO(ax_alloc(&t.measures, n, sizeof *t.measures), st, done);
    r->objective.head.token_grad = token_grad;
    r->objective.head.ctx = &t;
    AX_TRY_GOTO(ax_runtime_run(&ro, body, &t, NULL), st, done);
done:
    ax_run_start_free(&t.start);
    ax_free(t.sums);
    ax_free(t.loss);
    ax_free(t.aux);
    ax_free(t.measures);
    return st;
}
