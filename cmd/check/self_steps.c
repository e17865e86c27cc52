/* The same training steps, computed in two ways. */
#include <stdio.h>

#include "base/rng.h"
#include "cmd/check/self.h"
#include "optim/step/step.h"

enum { STEPS = 3, DOCS = 8, LONGEST = 40 };

/* Both halves have as many tokens. */
static const int64_t lengths[DOCS] = {23, 1, 17, 40, 40, 17, 1, 23};

struct way {
    const struct ax_self *s;
    int threads, n_micro, steps;
    enum ax_recompute recompute;
    struct ax_self_values
        values; /* out: loss, norm, gradients of the last step; weights after it */
};

/* Document d of a step; about a third of its tokens are not trained. */
static void write_document(int32_t *tokens, int32_t *labels, int d, int step, int64_t vocab) {
    const struct ax_rng_key key = {29, (uint32_t)step, (uint32_t)d};
    for (int64_t i = 0; i < lengths[d]; i++) {
        tokens[i] = (int32_t)ax_rng_below(key, 2 * (uint64_t)i, (uint64_t)vocab);
        labels[i] = ax_rng_below(key, 2 * (uint64_t)i + 1, 3) == 0 ? -1 : tokens[i];
    }
}

static enum ax_status fill(struct ax_step *s, int step) {
    const int each = DOCS / s->o.n_microbatches;
    int32_t tokens[DOCS][LONGEST], labels[DOCS][LONGEST];
    struct ax_document docs[DOCS];
    for (int d = 0; d < DOCS; d++) {
        write_document(tokens[d], labels[d], d, step, s->model.arch.vocab_size);
        docs[d] = (struct ax_document){.n = lengths[d], .tokens = tokens[d], .labels = labels[d]};
    }
    for (int m = 0; m < s->o.n_microbatches; m++)
        AX_TRY(ax_batch_fill(&s->batches[m], s->rt->q, s->model.arch.vocab_size, each,
                             docs + m * each));
    return AX_OK;
}

static enum ax_status take(struct way *w, struct ax_step *s, bool gradients) {
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_param *p = &s->model.params[i];
        const struct ax_tensor t =
            gradients ? ax_model_grad(&s->model, p) : ax_model_value(&s->model, p);
        AX_TRY(ax_self_take(&w->values, s->rt->q, &t));
    }
    return AX_OK;
}

static enum ax_status one_step(struct way *w, struct ax_step *s, int step) {
    const bool last = step + 1 == w->steps;
    struct ax_step_result r;
    AX_TRY(fill(s, step));
    AX_TRY(ax_step_gradients(s, &r));
    if (last && !ax_runtime_planning(s->rt)) {
        AX_TRY(ax_self_append(&w->values, 2, (double[]){r.loss, r.grad_norm}));
        AX_TRY(take(w, s, true));
    }
    AX_TRY(ax_step_update(s, 1e-2, &r));
    return last && w->steps > 1 ? take(w, s, false) : AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct way *w = ctx;
    struct ax_step_options o = {.model.dtype = w->s->dtype,
                                .recompute = w->recompute,
                                .optimizer = &ax_optimizer_adamw,
                                .objective = &ax_objective_sft,
                                .max_norm = 1,
                                .n_microbatches = w->n_micro,
                                .n_docs = DOCS / w->n_micro,
                                .max_len = LONGEST};
    o.opt = (struct ax_optimizer_options){
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
    for (int d = 0; d < o.n_docs; d++)
        o.tokens += lengths[d];
    struct ax_step s;
    enum ax_status st;
    AX_TRY(ax_step_create(&s, rt, &w->s->dense, &o));
    AX_TRY_GOTO(ax_model_init_random(&s.model, 5), st, done);
    for (int step = 0; step < w->steps; step++)
        AX_TRY_GOTO(one_step(w, &s, step), st, done);
done:
    ax_step_free(&s);
    return st;
}

/* *figure: how far the second way is from the first. */
static enum ax_status compare(struct way *a, struct way *b, double *figure) {
    struct way *const ways[] = {a, b};
    enum ax_status st = AX_OK;
    for (int i = 0; i < 2 && st == AX_OK; i++) {
        const struct ax_runtime_options ro = {.backend = ways[i]->s->backend,
                                              .threads = ways[i]->threads};
        st = ax_runtime_run(&ro, body, ways[i], NULL);
    }
    if (st == AX_OK)
        *figure = ax_self_difference(&b->values, &a->values);
    ax_self_free_values(&a->values);
    ax_self_free_values(&b->values);
    return st;
}

static struct way usual(const struct ax_self *s) {
    return (struct way){
        .s = s, .threads = s->threads, .n_micro = 2, .steps = STEPS, .recompute = AX_RECOMPUTE_OFF};
}

enum ax_status ax_self_threads(struct ax_self *s) {
    char compared[64];
    double figure;
    if (!s->by_row) {
        ax_self_skip(s, "threads", "a GPU computes, whatever the number of threads");
        return AX_OK;
    }
    struct way one = usual(s), all = usual(s);
    one.threads = 1;
    AX_TRY(compare(&one, &all, &figure));
    snprintf(compared, sizeof compared, "%d steps on 1 and %d threads", STEPS, s->threads);
    ax_self_note(s, "threads", compared, figure, 0, "");
    return AX_OK;
}

enum ax_status ax_self_recompute(struct ax_self *s) {
    for (int mode = AX_RECOMPUTE_SELECTIVE; mode <= AX_RECOMPUTE_ON; mode++) {
        char compared[64];
        double figure;
        struct way off = usual(s), on = usual(s);
        on.recompute = (enum ax_recompute)mode;
        AX_TRY(compare(&off, &on, &figure));
        snprintf(compared, sizeof compared, "%d steps with off and %s", STEPS,
                 ax_recompute_name(on.recompute));
        ax_self_note(s, "recompute", compared, figure, 0, "");
    }
    return AX_OK;
}

/* The same sums in another order, of products that on a GPU are rounded in another way. */
enum ax_status ax_self_accumulation(struct ax_self *s) {
    struct way two = usual(s), one = usual(s);
    double figure;
    two.steps = one.steps = 1;
    one.n_micro = 1;
    AX_TRY(compare(&two, &one, &figure));
    const double sums = s->dtype == AX_F64 ? 1e-12 : 1e-5;
    ax_self_note(s, "accumulation", "gradients of 2 micro-batches and of one", figure,
                 s->by_row ? sums : ax_self_rounding(s), "");
    return AX_OK;
}
