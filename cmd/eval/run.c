/* Loss and accuracy: optim/evaluate on a model created for inference. */
#include "base/term.h"
#include "cmd/eval/eval.h"

/* Per pass if the examples are short: enough to keep the matrix products busy. */
#define PASS_TOKENS 1024
#define PASS_DOCS   64

static enum ax_status note_document(void *ctx, const struct ax_eval_document *d) {
    struct ax_eval *e = ctx;
    AX_ASSERT(e->n_scored < e->q.n && e->q.list[e->n_scored].ref.index == d->example);
    e->q.list[e->n_scored++].score = *d;
    return AX_OK;
}

static void show_rows(void *ctx, int64_t rows_done) {
    const struct ax_eval *e = ctx;
    ax_term_progress("rows", rows_done, (int64_t)e->q.n);
}

static enum ax_status turn(struct ax_eval *e, struct ax_eval_turn *t, struct ax_model *m,
                           const struct ax_eval_options *o) {
    const bool planning = ax_runtime_planning(m->rt);
    e->n_scored = 0;
    if (m->bank)
        AX_TRY(ax_adapter_bank_use(m, t->adapter));
    AX_TRY(ax_evaluate(m, e->loader, o, &t->result));
    const bool samples = e->pass_options.samples > 0, best = e->best.args.n > 0;
    if (e->solve && (!samples || best))
        AX_TRY(ax_questions_solve(&e->q, m, &t->greedy));
    if (e->solve && samples)
        AX_TRY(ax_questions_sample(&e->q, &e->pass_options, m, &t->pass));
    return e->per_row && !planning && !best ? ax_eval_print_rows(e, t) : AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct ax_eval *e = ctx;
    struct ax_model m;
    const int64_t n = (int64_t)e->q.n;
    const struct ax_eval_options o = {
        .tokens = e->q.longest > PASS_TOKENS ? e->q.longest : PASS_TOKENS,
        .max_docs = n < PASS_DOCS ? n : PASS_DOCS,
        .max_len = e->q.longest,
        .max_rows = n,
        .document = note_document,
        .progress = ax_runtime_planning(rt) ? NULL : show_rows,
        .ctx = e,
    };
    const int64_t answers = e->solve ? ax_questions_positions(&e->q) : 0;
    struct ax_adapter_bank bank;
    const struct ax_model_options mo = {.dtype = e->dtype,
                                        .max_positions =
                                            answers > e->q.longest ? answers : e->q.longest,
                                        .base_store = e->store,
                                        .folder = &e->hf,
                                        .bank = ax_adapters_bank(&e->adapters, &bank)};
    enum ax_status st;
    AX_TRY(ax_model_create(&m, &e->arch, rt, &mo));
    AX_TRY_GOTO(ax_model_load(&m, &e->hf), st, done);
    AX_TRY_GOTO(ax_model_make_panels(&m), st, done);
    if (mo.bank)
        AX_TRY_GOTO(ax_adapter_bank_load(&m, &e->hf), st, done);
    for (int i = 0; i < e->n_turns; i++)
        AX_TRY_GOTO(turn(e, &e->turns[i], &m, &o), st, done);
done:
    ax_model_free(&m);
    return st;
}

enum ax_status ax_eval_run(struct ax_eval *e) {
    struct ax_arena_plan plan;
    const struct ax_runtime_options ro = ax_ranks_runtime(&e->ranks, (int)e->threads);
    AX_TRY(ax_runtime_run(&ro, body, e, &plan));
    e->arena_bytes = ax_arena_plan_total(&plan);
    AX_TRY(ax_eval_samples_write(e));
    if (e->best.args.n == 0)
        return AX_OK;
    ax_hf_close(&e->hf); /* the scorer's turn */
    AX_TRY(ax_eval_best_run(e));
    return e->per_row ? ax_eval_print_rows(e, &e->turns[0]) : AX_OK;
}
