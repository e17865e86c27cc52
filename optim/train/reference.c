/* Log-probs of the reference, before the first step; and KTO's estimate from them (reference.h). */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "optim/train/run.h"

/* ---- mismatched answers: which record has which ---- */

static const struct ax_mismatch_places *find(const struct ax_mismatch *x,
                                             const struct ax_examples *set) {
    for (size_t i = 0; i < x->n_places; i++)
        if (x->places[i].set == set)
            return &x->places[i];
    return NULL;
}

static enum ax_status put_place(struct ax_mismatch *x, const struct ax_mismatch_of *of,
                                uint32_t at) {
    const struct ax_mismatch_places *p = find(x, of->set);
    if (!p) {
        struct ax_mismatch_places fresh = {.set = of->set};
        AX_TRY(ax_regrow(&x->places, x->n_places, x->n_places + 1, sizeof *x->places));
        AX_TRY(ax_alloc(&fresh.at, of->set->n, sizeof *fresh.at));
        memset(fresh.at, 0xff, of->set->n * sizeof *fresh.at);
        x->places[x->n_places++] = fresh;
        p = &x->places[x->n_places - 1];
    }
    p->at[of->example] = at;
    return AX_OK;
}

/* ---- mismatched answers: making them ---- */

/* A record's prompt and answer: the answer is what has labels, and ends the record. */
struct parts {
    struct ax_mismatch_of of;
    int32_t *tokens; /* owned; prompt, then answer */
    int64_t prompt, n;
};

static enum ax_status take_parts(struct parts *p, const struct ax_packed_sequence *s, int i) {
    const struct ax_document *d = &s->docs[i];
    *p = (struct parts){.of = {ax_sequence_set(s, i), ax_sequence_ref(s, i)->index}, .n = d->n};
    while (p->prompt + 1 < d->n && d->labels[p->prompt] < 0)
        p->prompt++;
    p->prompt++; /* labels are shifted: the first is of the token after */
    AX_TRY(ax_alloc(&p->tokens, (size_t)d->n, sizeof *p->tokens));
    memcpy(p->tokens, d->tokens, (size_t)d->n * sizeof *p->tokens);
    return AX_OK;
}

static enum ax_status add_mixed(struct ax_mismatch *x, const struct parts *prompt,
                                const struct parts *answer, int64_t max_len) {
    const int64_t all = prompt->prompt + answer->n - answer->prompt;
    const int64_t n = all < max_len ? all : max_len;
    int32_t *ids; /* [2][n]: tokens, labels */
    const uint32_t zero = 0;
    struct ax_example e = {.n = (size_t)n};
    for (int c = 0; c < AX_COLUMNS_MAX; c++)
        e.columns[c] = &zero;
    AX_TRY(ax_alloc(&ids, 2 * (size_t)n, sizeof *ids));
    for (int64_t t = 0; t < n; t++) {
        const bool own = t < prompt->prompt;
        ids[t] = own ? prompt->tokens[t] : answer->tokens[answer->prompt + t - prompt->prompt];
        ids[n + t] = own ? AX_NO_LABEL : ids[t];
    }
    e.tokens = ids;
    e.labels = ids + n;
    enum ax_status st = put_place(x, &prompt->of, (uint32_t)x->set.n);
    if (st == AX_OK)
        st = ax_examples_add(&x->set, &e);
    ax_free(ids);
    return st;
}

/* Each document with the next one's answer, the last with the first one's. */
struct walk {
    struct parts first, last;
    bool any;
};

static enum ax_status add_next(struct ax_mismatch *x, struct walk *w, struct parts *next,
                               int64_t max_len) {
    if (!w->any) {
        w->first = *next;
        w->last = *next;
        w->any = true;
        return AX_OK;
    }
    const enum ax_status st = add_mixed(x, &w->last, next, max_len);
    if (w->last.tokens != w->first.tokens)
        ax_free(w->last.tokens);
    w->last = *next;
    return st;
}

static enum ax_status walk(struct ax_mismatch *x, struct walk *w, struct ax_loader *loader,
                           int64_t rows, int64_t max_len) {
    for (int64_t row = 0; rows == 0 || row < rows; row++) {
        struct ax_packed_sequence s;
        bool got;
        AX_TRY(ax_loader_next(loader, &s, &got));
        if (!got)
            break;
        for (int i = 0; i < s.n; i++) {
            struct parts next;
            AX_TRY(take_parts(&next, &s, i));
            AX_TRY(add_next(x, w, &next, max_len));
        }
    }
    return w->any ? add_mixed(x, &w->last, &w->first, max_len) : AX_OK;
}

/* ---- mismatched answers: scoring ---- */

struct scored {
    struct ax_corpus corpus;
    struct ax_corpus_source source;
    struct ax_example_source examples;
    struct ax_loader *loader;
};

/* A loader of the given ones of `set`. */
static enum ax_status open_scored(struct scored *s, const struct ax_examples *set,
                                  const uint32_t *at, size_t n, const struct ax_eval_options *o) {
    const struct ax_loader_options lo = {.pack = {.mode = AX_PACK_FIT,
                                                  .capacity = o->tokens,
                                                  .max_docs = o->max_docs,
                                                  .chunk = (int64_t)n}};
    *s = (struct scored){.corpus = {.sets = set}, .source = {.chunk = (int64_t)n}};
    for (size_t i = 0; i < n; i++)
        AX_TRY(ax_corpus_add(&s->corpus,
                             (struct ax_example_ref){.index = at[i], .n = set->list[at[i]].n}));
    ax_corpus_source_init(&s->source, &s->corpus, &s->examples);
    return ax_loader_new(&s->loader, &s->examples, &lo);
}

static void close_scored(struct scored *s) {
    ax_loader_free(s->loader);
    ax_corpus_source_free(&s->source);
    ax_corpus_free(&s->corpus);
}

static enum ax_status refer(struct ax_mismatch *x, struct ax_model *m,
                            const struct ax_eval_options *o) {
    struct scored s = {0};
    uint32_t *all;
    AX_TRY(ax_alloc(&all, x->set.n, sizeof *all));
    for (size_t i = 0; i < x->set.n; i++)
        all[i] = (uint32_t)i;
    enum ax_status st = open_scored(&s, &x->set, all, x->set.n, o);
    if (st == AX_OK)
        st = ax_references_compute(&x->references, m, s.loader, o);
    close_scored(&s);
    ax_free(all);
    return st;
}

enum ax_status ax_mismatch_create(struct ax_mismatch *x, struct ax_model *m,
                                  struct ax_loader *loader, int64_t rows, int64_t max_len,
                                  const struct ax_eval_options *o) {
    struct ax_loader_state at;
    struct walk w = {0};
    x->set.columns = o->documents->columns;
    AX_TRY(ax_examples_add_file(&x->set, "mismatched answers"));
    ax_loader_save(loader, &at);
    ax_loader_start_epoch(loader, 0);
    enum ax_status st = walk(x, &w, loader, rows, max_len);
    if (w.last.tokens != w.first.tokens)
        ax_free(w.last.tokens);
    ax_free(w.first.tokens);
    if (st == AX_OK)
        st = ax_loader_restore(loader, &at);
    return st == AX_OK ? refer(x, m, o) : st;
}

struct sum {
    const struct ax_references *references;
    double log_ratio;
    int64_t n;
};

static enum ax_status add_ratio(void *ctx, const struct ax_eval_document *d) {
    struct sum *sum = ctx;
    const float reference = ax_references_get(sum->references, d->set, d->example);
    sum->log_ratio += (double)((float)d->sums.logprob - reference);
    sum->n++;
    return AX_OK;
}

enum ax_status ax_mismatch_kl(const struct ax_mismatch *x, struct ax_model *m,
                              const struct ax_mismatch_of *of, size_t n,
                              const struct ax_eval_options *o, double *kl) {
    struct sum sum = {.references = &x->references};
    struct ax_eval_options own = *o;
    struct ax_eval_result r;
    struct scored s = {0};
    uint32_t *at;
    own.document = add_ratio;
    own.progress = NULL;
    own.stop = NULL;
    own.ctx = &sum;
    *kl = 0;
    AX_TRY(ax_alloc(&at, n, sizeof *at));
    for (size_t i = 0; i < n; i++) {
        const struct ax_mismatch_places *p = of ? find(x, of[i].set) : NULL;
        at[i] = p ? p->at[of[i].example] : of ? UINT32_MAX : (uint32_t)i;
        AX_ASSERT(at[i] < x->set.n);
    }
    enum ax_status st = open_scored(&s, &x->set, at, n, o);
    if (st == AX_OK)
        st = ax_evaluate(m, s.loader, &own, &r);
    if (st == AX_OK && sum.n > 0)
        *kl = sum.log_ratio / (double)sum.n;
    close_scored(&s);
    ax_free(at);
    return st;
}

void ax_mismatch_free(struct ax_mismatch *x) {
    for (size_t i = 0; i < x->n_places; i++)
        ax_free(x->places[i].at);
    ax_free(x->places);
    ax_references_free(&x->references);
    ax_examples_free(&x->set);
    *x = (struct ax_mismatch){0};
}

/* ---- the reference of a run ---- */

static bool asked_to_stop(void *ctx) {
    (void)ctx;
    return ax_stop_requested() != AX_STOP_NONE;
}

static void show_referred(void *ctx, int64_t rows_done) {
    struct ax_train *t = ctx;
    ax_metrics_doing(t->metrics, "reference", rows_done, t->refs.rows);
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
    const int64_t rows = t->schedule.n_epochs > 0 ? t->schedule.sequences[0] : 0;
    t->refs.rows = rows < train.max_rows ? rows : train.max_rows;
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
    t->refs.rows = 0;
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
