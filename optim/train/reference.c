/* Log-probs of the reference, before the first step. */
#include "base/clock.h"
#include "base/log.h"
#include "base/stop.h"
#include "optim/train/run.h"

static bool asked_to_stop(void *ctx) {
    (void)ctx;
    return ax_stop_requested() != AX_STOP_NONE;
}

static void show_referred(void *ctx, int64_t rows_done) {
    struct ax_train *t = ctx;
    ax_metrics_doing(t->metrics, "reference", rows_done, 0);
}

/* Mismatched answers, and what the reference thinks of them. */
static enum ax_status mix_answers(struct ax_train *t, const struct ax_eval_options *train,
                                  const struct ax_eval_options *eval) {
    const struct ax_train_options *o = t->o;
    struct ax_model *m = &t->step.model;
    const int64_t own = o->data.eval_doc_tokens;
    struct ax_eval_options all = *train;
    all.max_rows = 0;
    AX_TRY(ax_mismatch_create(&t->refs.mismatch, m, o->data.train, train->max_rows,
                              o->data.doc_tokens, &all));
    return o->data.eval ? ax_mismatch_create(&t->refs.eval_mismatch, m, o->data.eval, 0,
                                             own > 0 ? own : o->data.doc_tokens, eval)
                        : AX_OK;
}

/* The records of the step that t->sequences has. */
enum ax_status ax_train_estimate_kl(struct ax_train *t) {
    struct ax_train_sequences *r = &t->sequences;
    const struct ax_eval_options o = ax_train_reference_options(t->o);
    struct ax_mismatch_of *of;
    size_t n = 0;
    if (!o.documents || !o.documents->mismatches)
        return AX_OK;
    AX_TRY(ax_alloc(&of, (size_t)(r->n_batches * r->ranks * r->cap_docs), sizeof *of));
    for (int b = 0; b < r->n_batches * r->ranks; b++)
        for (int i = 0; i < r->all_docs[b]; i++)
            of[n++] = r->examples[b * r->cap_docs + i];
    const enum ax_status st = ax_mismatch_kl(&t->refs.mismatch, &t->step.model, of, n, &o, &r->kl);
    ax_free(of);
    return st;
}

/* Those of the evaluation. */
enum ax_status ax_train_eval_kl(struct ax_train *t, double *kl) {
    const struct ax_mismatch *x = &t->refs.eval_mismatch;
    const struct ax_eval_options o = ax_train_eval_options(t->o);
    *kl = 0;
    return x->set.n > 0 ? ax_mismatch_kl(x, &t->step.model, NULL, x->set.n, &o, kl) : AX_OK;
}

/* The model is the reference now: it is as the run found it. Sequences that the run will not reach are
 * left out. */
enum ax_status ax_train_refer(struct ax_train *t) {
    const struct ax_train_options *o = t->o;
    const int ranks = t->mesh.size[AX_ROLE_BATCH];
    struct ax_eval_options train = ax_train_reference_options(o), eval = ax_train_eval_options(o);
    train.progress = eval.progress = show_referred;
    train.stop = eval.stop = asked_to_stop;
    train.ctx = eval.ctx = t;
    train.max_rows = t->schedule.total * ax_train_sequences_per_step(o, ranks);
    ax_log_info("computing the log-probs of the reference, which is the model as it is now%s",
                o->references.cache ? ", unless an earlier run kept them" : "");
    struct ax_model *m = &t->step.model;
    if (o->references.cache) {
        t->refs.store = o->references;
        t->refs.store.team = &t->team;
        t->refs.logprobs.store = t->refs.mismatch.references.store =
            t->refs.eval_mismatch.references.store = &t->refs.store;
    }
    const double start = ax_clock_now();
    enum ax_status st = ax_references_compute(&t->refs.logprobs, m, o->data.train, &train);
    if (st == AX_OK && o->data.eval)
        st = ax_references_compute(&t->refs.logprobs, m, o->data.eval, &eval);
    if (st == AX_OK)
        ax_log_info("the log-probs of the reference took %.1f s", ax_clock_now() - start);
    if (st == AX_OK && o->step.objective->documents->mismatches)
        st = mix_answers(t, &train, &eval);
    if (st == AX_INTERRUPTED && ax_stop_requested() != AX_STOP_INTERRUPT)
        return ax_error(AX_SAVED_REQUEUE,
                        "asked to stop before the first step; nothing to save yet");
    return st;
}

void ax_train_references_free(struct ax_train_references *r) {
    ax_references_free(&r->logprobs);
    ax_mismatch_free(&r->mismatch);
    ax_mismatch_free(&r->eval_mismatch);
}
