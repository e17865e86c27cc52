/* Implausible losses. A step whose gradient is not finite changes no weights (see the clip op);
 * this file reports it and the records that caused it, and stops the run after a few in a row. A
 * loss far above the recent ones is only reported. Where the host reads results late, the device
 * holds back the update of a step with such a loss (ax_train_watch_bound), and it is done again
 * after the records have been named. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/finite.h"
#include "optim/train/run.h"

#define BAD_STEPS      3   /* skipped steps in a row that stop the run */
#define SPIKE_AFTER    16  /* losses seen before spikes are detected */
#define SPIKE_DEVIATES 6.0 /* standard deviations above the mean of the window */
#define FAR            3.0 /* in units of scale above the window's median; see far_above */
#define FEW            8   /* with fewer losses than this, the scale is only a guess */
#define SUSPECTS       4   /* records that a report names */

/* ---- the first bad gradient ---- */

static enum ax_status first_bad_gradient(const struct ax_train *t, const char **name) {
    const struct ax_model *m = &t->step.model;
    double last = -m->n_params; /* the first of all ranks, as the largest negative index */
    for (int i = 0; i < m->n_params && last == -m->n_params; i++) {
        const struct ax_tensor grad = ax_model_grad(m, &m->params[i]);
        struct ax_nonfinite bad = {.at = -1};
        if (grad.data)
            AX_TRY(ax_tensor_first_nonfinite(t->rt->q, &grad, &bad));
        if (bad.at >= 0)
            last = -i;
    }
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, &last, 1));
    *name = last == -m->n_params ? "none" : m->params[(int)-last].name;
    return AX_OK;
}

/* ---- one document at a time ---- */

/* A document as a batch of its own: with what it shares, as another one without labels. */
struct whole {
    int n;
    struct ax_document docs[2];
};

static struct whole whole_of(const struct ax_document *docs, int i) {
    struct whole w = {0};
    if (docs[i].shared > 0) {
        w.docs[w.n] = docs[docs[i].shared_with];
        w.docs[w.n++].n = docs[i].shared;
    }
    w.docs[w.n] = docs[i];
    w.docs[w.n++].shared_with = 0;
    return w;
}

static enum ax_status document_loss(struct ax_train *t, struct ax_pass *p, const struct whole *doc,
                                    double *loss) {
    struct ax_queue *q = t->rt->q;
    AX_TRY(ax_batch_fill(p->batch, q, t->step.model.arch.vocab_size, doc->n, doc->docs));
    const double w = p->batch->weight_total;
    struct ax_step_scalars now = {.inv_weight = w > 0 ? 1 / w : 0};
    AX_TRY(ax_queue_write(q, p->scalars, &now, sizeof now));
    AX_TRY(ax_pass_begin(p));
    const enum ax_status st = ax_pass_forward_all(p);
    ax_pass_end(p);
    AX_TRY(st);
    AX_TRY(ax_queue_read(q, p->scalars, &now, sizeof now, NULL));
    *loss = now.loss;
    return AX_OK;
}

/* NaN first, then the highest. */
static bool is_worse(double a, double b) {
    return isnan(a) ? !isnan(b) : a > b;
}

static void put_suspect(struct ax_train_suspect *worst, int n, int found,
                        struct ax_train_suspect s) {
    int at = found < n ? found : n;
    while (at > 0 && is_worse(s.loss, worst[at - 1].loss)) {
        if (at < n)
            worst[at] = worst[at - 1];
        at--;
    }
    if (at < n)
        worst[at] = s;
}

/* The most documents of the data ranks' micro-batches number m. */
static int most_docs(const struct ax_train_sequences *r, int m) {
    int most = 0;
    for (int rank = 0; rank < r->ranks; rank++)
        most = r->all_docs[m * r->ranks + rank] > most ? r->all_docs[m * r->ranks + rank] : most;
    return most;
}

/* The loss of every document of the step, in losses[micro-batch][cap_docs], on every rank. A data
 * rank with fewer documents than others runs empty passes. */
static enum ax_status probe_each(struct ax_train *t, struct ax_pass *p, double *losses) {
    const struct ax_train_sequences *r = &t->sequences;
    for (int m = 0; m < r->n_batches; m++) {
        for (int i = 0; i < most_docs(r, m); i++) {
            const bool has = i < r->n_docs[m];
            const struct whole doc =
                has ? whole_of(r->docs + m * r->cap_docs, i) : (struct whole){0};
            double loss;
            AX_TRY(document_loss(t, p, &doc, &loss));
            if (has)
                losses[(m * r->ranks + r->own) * r->cap_docs + i] = loss;
        }
    }
    const int64_t n = (int64_t)r->n_batches * r->ranks * r->cap_docs;
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_LOSS, AX_SUM, losses, n));
    return ax_runtime_combine(t->rt, AX_ROLE_PP, AX_SUM, losses, n);
}

static bool same_record(const struct ax_train_origin *a, const struct ax_train_origin *b) {
    return a->line == b->line && strcmp(a->file, b->file) == 0;
}

/* The documents of a record, such as a pair's answers, are one suspect, as bad as its worst. One without a loss, as of
 * a reward model, whose scores are compared, is none. */
static enum ax_status probe_all(struct ax_train *t, struct ax_pass *p,
                                struct ax_train_suspect *worst, int n, int *found) {
    const struct ax_train_sequences *r = &t->sequences;
    const int n_batches = r->n_batches * r->ranks;
    double *losses;
    *found = 0;
    AX_TRY(ax_alloc(&losses, (size_t)(n_batches * r->cap_docs), sizeof *losses));
    const enum ax_status st = probe_each(t, p, losses);
    for (int b = 0; st == AX_OK && b < n_batches; b++) {
        for (int i = 0; i < r->all_docs[b];) {
            const struct ax_train_origin *from = &r->origins[b * r->cap_docs + i];
            struct ax_train_suspect s = {.from = *from, .loss = losses[b * r->cap_docs + i]};
            while (++i < r->all_docs[b] && same_record(from, &r->origins[b * r->cap_docs + i]))
                if (is_worse(losses[b * r->cap_docs + i], s.loss))
                    s.loss = losses[b * r->cap_docs + i];
            if (s.loss != 0)
                put_suspect(worst, n, (*found)++, s);
        }
    }
    ax_free(losses);
    return st;
}

enum ax_status ax_train_probe(struct ax_train *t, struct ax_train_suspect *worst, int n,
                              int *found) {
    struct ax_arena *arena = &t->rt->arena;
    struct ax_step_scalars saved;
    struct ax_batch batch;
    AX_TRY(ax_queue_read(t->rt->q, t->step.scalars, &saved, sizeof saved, NULL));
    const enum ax_phase phase = arena->phase;
    ax_arena_enter(arena, AX_PHASE_EVAL);
    const size_t mark = ax_stack_mark(&arena->scratch);
    const struct ax_mesh *mesh = &t->rt->mesh;
    const int64_t longest = t->step.o.max_len;
    ax_batch_allocate(&batch, &arena->scratch, ax_mesh_round_tokens(mesh, longest, 1), 2, longest,
                      mesh->size[AX_ROLE_CP], mesh->coord[AX_ROLE_CP]);
    ax_batch_cut(&batch, &arena->scratch, t->step.model.arch.chunk);
    if (t->step.o.alike > 1)
        ax_batch_share(&batch, &arena->scratch, 2 * longest, 2);
    ax_batch_add_columns(&batch, &arena->scratch, t->step.o.objective->columns);
    const struct ax_head_objective *own = &t->step.o.objective->head;
    struct ax_pass p = {.model = &t->step.model,
                        .batch = &batch,
                        .slot = &t->step.slots[0],
                        .scalars = t->step.scalars,
                        .recompute = AX_RECOMPUTE_INFERENCE,
                        /* of a loss that sees all rows first, or a teacher, what its tokens are */
                        .objective = !own->linear || own->distill ? &ax_objective_sft.head : own,
                        .inv_temperature = 1};
    enum ax_status st;
    if (ax_runtime_planning(t->rt)) {
        const struct whole none = {0};
        double loss;
        st = document_loss(t, &p, &none, &loss);
        *found = 0;
    } else {
        st = probe_all(t, &p, worst, n, found);
    }
    ax_stack_release(&arena->scratch, mark);
    ax_arena_enter(arena, phase);
    AX_TRY(st);
    return ax_queue_write(t->rt->q, t->step.scalars, &saved, sizeof saved);
}

/* Lists the records with the highest losses: "a.jsonl:7 (loss nan), a.jsonl:9 (loss 12.3) and 14
 * more". */
static enum ax_status name_rows(struct ax_train *t, struct ax_buf *text) {
    struct ax_train_suspect worst[SUSPECTS];
    int n;
    AX_TRY(ax_train_probe(t, worst, SUSPECTS, &n));
    if (n == 0)
        return ax_buf_puts(text, "none has a loss of its own");
    for (int i = 0; i < n && i < SUSPECTS; i++)
        AX_TRY(ax_buf_printf(text, "%s%s:%llu (loss %.4g)", i ? ", " : "", worst[i].from.file,
                             (unsigned long long)worst[i].from.line, worst[i].loss));
    return n > SUSPECTS ? ax_buf_printf(text, " and %d more", n - SUSPECTS) : AX_OK;
}

/* ---- checking a step ---- */

static enum ax_status watch_nonfinite(struct ax_train *t, const struct ax_step_result *r) {
    struct ax_buf rows = {0};
    const char *tensor;
    AX_TRY(ax_train_check_weights(t)); /* else records would be blamed for a damaged weight */
    AX_TRY(first_bad_gradient(t, &tensor));
    const int64_t step = t->done + 1, bad = ++t->watch.bad_in_a_row;
    enum ax_status st = name_rows(t, &rows);
    if (st == AX_OK && bad >= BAD_STEPS)
        st = ax_error(
            AX_ERR_DIVERGED,
            "step %lld: loss %g, gradient norm %g, for the %lldrd step in a row; first "
            "bad gradient: %s; records: %s. Inspect these records, lower learning_rate, or "
            "resume from an earlier checkpoint",
            (long long)step, r->loss, r->grad_norm, (long long)bad, tensor, rows.data);
    else if (st == AX_OK)
        ax_metrics_event(t->metrics, AX_EVENT_WARNING, step,
                         "loss %g, gradient norm %g: the step is skipped; first bad gradient: %s; "
                         "records: %s",
                         r->loss, r->grad_norm, tensor, rows.data);
    ax_buf_free(&rows);
    return st;
}

/* The loss above which a step is a spike. A policy's says nothing: it is 0 but for clipping. */
static double spike_above(const struct ax_train *t) {
    const struct ax_train_watch *w = &t->watch;
    const int64_t n = ax_train_watch_size(w);
    double sum = 0, squares = 0;
    if (n < SPIKE_AFTER || ax_train_has_rollout(t->o))
        return INFINITY;
    for (int64_t i = 0; i < n; i++)
        sum += w->window[i];
    const double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (w->window[i] - mean) * (w->window[i] - mean);
    return fmax(mean + SPIKE_DEVIATES * sqrt(squares / (double)n), mean + 0.1 * fabs(mean));
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The loss above which a step is far off, for any objective: FAR scales above the median of recent
 * losses. The scale is the largest of the median's magnitude, the spread of the middle 80 %, and a
 * value that is small for any loss. Infinite before the first loss. */
static double far_above(const struct ax_train_watch *w) {
    double sorted[AX_WATCH_WINDOW];
    const int64_t n = ax_train_watch_size(w);
    if (n == 0)
        return INFINITY;
    memcpy(sorted, w->window, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    const double median = sorted[(n - 1) / 2];
    const double spread = sorted[(n - 1) * 9 / 10] - sorted[(n - 1) / 10];
    const double floor = n < FEW ? 4 : 1;
    return median + FAR * fmax(floor, fmax(fabs(median), spread));
}

static enum ax_status say_spike(struct ax_train *t, double loss) {
    struct ax_buf rows = {0};
    const enum ax_status st = name_rows(t, &rows);
    if (st == AX_OK)
        ax_metrics_event(t->metrics, AX_EVENT_WARNING, t->done + 1,
                         "loss %.4g is more than %g deviations above the last ones; records: %s",
                         loss, SPIKE_DEVIATES, rows.data);
    ax_buf_free(&rows);
    return st;
}

/* True if this step counts: only logged steps do, as documented for the key. */
static bool is_watched(const struct ax_train *t) {
    return t->o->watchdog_patience > 0 && (t->done + 1) % t->schedule.logging_steps == 0;
}

static enum ax_status watch_threshold(struct ax_train *t, double loss, double limit) {
    const struct ax_train_options *o = t->o;
    struct ax_train_watch *w = &t->watch;
    if (!is_watched(t))
        return AX_OK;
    w->above_in_a_row = loss > limit ? w->above_in_a_row + 1 : 0;
    const int64_t left = o->watchdog_patience - w->above_in_a_row;
    if (w->above_in_a_row == 0 || (left > 0 && w->above_in_a_row > 1))
        return AX_OK;
    struct ax_buf rows = {0};
    enum ax_status st = name_rows(t, &rows);
    if (st == AX_OK && left <= 0)
        st =
            ax_error(AX_ERR_DIVERGED,
                     "loss_watchdog_threshold: the loss was above %.4g%s in %lld logged steps in a "
                     "row, %.4g in step %lld; records: %s. Lower learning_rate, or resume from an "
                     "earlier checkpoint",
                     limit, isnan(o->watchdog) ? ", far outside its recent range," : "",
                     (long long)o->watchdog_patience, loss, (long long)(t->done + 1), rows.data);
    else if (st == AX_OK)
        ax_metrics_event(t->metrics, AX_EVENT_WARNING, t->done + 1,
                         "loss %.4g is above %.4g%s: training stops if the next %lld logged losses "
                         "are too; records: %s",
                         loss, limit, isnan(o->watchdog) ? ", far outside its recent range" : "",
                         (long long)left, rows.data);
    ax_buf_free(&rows);
    return st;
}

/* Rewards have a check of their own (ax_train_worth_end). */
enum ax_status ax_train_watch_trained(const struct ax_train *t) {
    const struct ax_train_watch *w = &t->watch;
    if (w->untrained == 0 || w->untrained < w->steps || t->out->resumed_from > 0 ||
        t->worth.steps > 0)
        return AX_OK;
    return ax_error(AX_ERR_DATA,
                    "datasets: no token of %lld step%s was trained on, so nothing was learned; see "
                    "roles_to_train, roles and train_on_inputs",
                    (long long)w->steps, w->steps == 1 ? "" : "s");
}

enum ax_status ax_train_watch_step(struct ax_train *t, const struct ax_step_result *r) {
    struct ax_train_watch *w = &t->watch;
    w->steps++;
    if (!(r->weight_total > 0)) {
        w->untrained++;
        ax_metrics_event(t->metrics, AX_EVENT_WARNING, t->done + 1,
                         "no token of this step is trained: it is skipped");
        return AX_OK;
    }
    if (!isfinite(r->loss) || !isfinite(r->grad_norm))
        return watch_nonfinite(t, r);
    w->bad_in_a_row = 0;
    const double recent = far_above(w);
    const bool is_far = r->loss > recent;
    if (r->loss > spike_above(t) && !(is_far && isnan(t->o->watchdog) && is_watched(t)))
        AX_TRY(say_spike(t, r->loss));
    if (!is_far) /* losses of a diverging run must not enter the window */
        w->window[w->n++ % AX_WATCH_WINDOW] = r->loss;
    return watch_threshold(t, r->loss, isnan(t->o->watchdog) ? recent : t->o->watchdog);
}

double ax_train_watch_bound(const struct ax_train *t) {
    const double spike = spike_above(t);
    if (!is_watched(t))
        return spike;
    return fmin(spike, isnan(t->o->watchdog) ? far_above(&t->watch) : t->o->watchdog);
}

void ax_train_watch_end(const struct ax_train *t) {
    const long long bad = (long long)t->watch.bad_in_a_row;
    char last[64] = "no loss was finite";
    if (bad == 0)
        return;
    if (isfinite(t->out->loss))
        snprintf(last, sizeof last, "the last finite loss is %.4f", t->out->loss);
    ax_metrics_event(t->metrics, AX_EVENT_WARNING, t->done,
                     "the run ends with %lld skipped step%s, with a loss or gradient norm that is "
                     "not finite: %s; evaluate the model before using it, or lower learning_rate",
                     bad, bad == 1 ? "" : "s", last);
}
