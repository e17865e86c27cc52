/* The loss of on-policy distillation on answers that the model has sampled: they become examples, of which an
 * evaluation reads those tokens that the model has sampled. Where a teacher has log-probs of these alone, the loss is
 * the reverse divergence as they estimate it. */
#include <math.h>

#include "base/mem.h"
#include "optim/evaluate/evaluate.h"
#include "optim/train/run.h"

struct answers {
    struct ax_examples set;
    struct ax_corpus corpus;
    struct ax_corpus_source source;
    struct ax_example_source examples;
    struct ax_loader *loader;
};

static enum ax_status add_answer(struct answers *a, const struct ax_rollout *r, int64_t i,
                                 int32_t *labels) {
    const struct ax_completion *c = &r->list[i];
    const int32_t *ids = r->ids + c->start;
    for (int64_t k = 0; k < c->n; k++)
        labels[k] = k >= c->n_prompt && ax_rollout_is_sampled(r, c->start + k) && !c->lost
                        ? ids[k]
                        : AX_NO_LABEL;
    const struct ax_example x = {.tokens = ids, .labels = labels, .n = (size_t)c->n};
    AX_TRY(ax_examples_add(&a->set, &x));
    return ax_corpus_add(&a->corpus,
                         (struct ax_example_ref){.index = (uint32_t)i, .n = (uint32_t)c->n});
}

static enum ax_status add_answers(struct answers *a, const struct ax_rollout *r) {
    int32_t *labels;
    enum ax_status st = AX_OK;
    AX_TRY(ax_examples_add_file(&a->set, "sampled answers"));
    AX_TRY(ax_alloc(&labels, (size_t)(r->o->max_prompt + r->o->max_new), sizeof *labels));
    for (int64_t i = 0; st == AX_OK && i < r->n; i++)
        st = add_answer(a, r, i, labels);
    ax_free(labels);
    return st;
}

static enum ax_status open_answers(struct answers *a, const struct ax_rollout *r,
                                   const struct ax_eval_options *o) {
    const struct ax_loader_options lo = {
        .pack = {
            .mode = AX_PACK_FIT, .capacity = o->tokens, .max_docs = o->max_docs, .chunk = r->n}};
    a->corpus.sets = &a->set;
    a->source.chunk = r->n;
    AX_TRY(add_answers(a, r));
    ax_corpus_source_init(&a->source, &a->corpus, &a->examples);
    return ax_loader_new(&a->loader, &a->examples, &lo);
}

static void close_answers(struct answers *a) {
    ax_loader_free(a->loader);
    ax_corpus_source_free(&a->source);
    ax_corpus_free(&a->corpus);
    ax_examples_free(&a->set);
}

enum ax_status ax_train_evaluate_sampled(struct ax_train *t, const struct ax_rollout *r,
                                         const struct ax_eval_options *o,
                                         struct ax_eval_result *out) {
    struct answers a = {0};
    enum ax_status st = open_answers(&a, r, o);
    if (st == AX_OK)
        st = ax_evaluate(&t->step.model, a.loader, o, out);
    close_answers(&a);
    /* of training, which computes it where tokens are drawn */
    out->measures[AX_DISTILL_ENTROPY] = NAN;
    return st;
}

void ax_train_evaluate_taught(const struct ax_rollout *r, struct ax_eval_result *out) {
    double nll = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const struct ax_completion *c = &r->list[i];
        for (int64_t at = c->start + c->n_prompt; at < c->start + c->n && !c->lost; at++)
            nll -= ax_rollout_is_sampled(r, at) ? (double)r->logprobs[at] : 0;
        out->tokens += c->n;
        out->trained += c->lost ? 0 : c->sampled;
    }
    out->documents = out->rows = r->n;
    out->weight = (double)out->trained;
    out->loss = ax_figures_get(&r->figures, "kd_loss");
    out->perplexity = exp(nll / out->weight);
    for (int i = 0; i < AX_MEASURES; i++)
        out->measures[i] = NAN;
}
