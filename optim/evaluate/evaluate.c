/* Reads sequences into a pass until it is full; runs it forward; scores the tokens that are trained
 * on, a window at a time. Scores stay on the device for AX_SCORE_PASSES passes; then the host reads
 * them, with one wait, and sums in token order. Where the device's memory is the host's, nobody
 * waits, and the memory of one window is enough.
 *
 * On a mesh every rank reads all sequences. The data ranks take the passes in turn: a round is one
 * pass of each, with as many windows as the longest needs; in the last one some have no documents.
 * Each rank scores its part of a sequence, on the stage with the head; what a document's tokens sum
 * to is then summed over the ranks. */
#include "optim/evaluate/evaluate.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/generate/score.h"
#include "model/teacher.h"
#include "optim/evaluate/references.h"

/* ---- the documents of a pass, on the host ---- */

struct text {
    int n_docs;
    /* tokens in this pass; the evaluation's number of its first document */
    int64_t n_tokens, first_document;
    int64_t n_whole;          /* tokens of this pass if each document had its own prompt */
    struct ax_document *docs; /* [max_docs] */
    int32_t *tokens, *labels; /* [tokens] */
    float *weight, *share;    /* [tokens] */
    /* the two of a pair share their prompt, which n_tokens counts once */
    bool pairs_share;
    int share_column;                 /* −1: all shares are 1 */
    const struct ax_columns *columns; /* columns with a value per document; or NULL */
    /* columns with a value per label, copied for the batch; or NULL */
    const struct ax_columns *stored;
    uint32_t *values; /* [columns][tokens][a column's width] */
    int64_t cap;      /* tokens */
};

/* A shared token costs an index of keys for each document. */
#define WORTH_IT 8

static enum ax_status create_text(struct text *t, const struct ax_eval_options *o) {
    const size_t T = (size_t)o->tokens;
    AX_TRY(ax_alloc(&t->docs, (size_t)o->max_docs, sizeof *t->docs));
    AX_TRY(ax_alloc(&t->tokens, T, sizeof *t->tokens));
    AX_TRY(ax_alloc(&t->labels, T, sizeof *t->labels));
    AX_TRY(ax_alloc(&t->share, T, sizeof *t->share));
    t->columns = o->documents ? o->documents->columns : NULL;
    t->share_column = o->documents ? o->documents->share : -1;
    t->stored = o->distill ? ax_distill_columns(o->distill) : NULL;
    t->cap = o->tokens;
    t->pairs_share = o->pairs_share;
    AX_TRY(ax_alloc(&t->values, T * ax_columns_width(t->stored, ax_columns_count(t->stored)),
                    sizeof *t->values));
    return ax_alloc(&t->weight, T, sizeof *t->weight);
}

static void free_text(struct text *t) {
    ax_free(t->docs);
    ax_free(t->tokens);
    ax_free(t->labels);
    ax_free(t->weight);
    ax_free(t->share);
    ax_free(t->values);
}

/* True if token i is scored. */
static bool is_scored(const struct text *t, int64_t i) {
    return t->labels[i] >= 0 && t->weight[i] > 0;
}

static float share_of(const struct text *t, const struct ax_document *from, int64_t k) {
    float share = 1;
    if (t->share_column >= 0)
        memcpy(&share, &from->columns[t->share_column][k], sizeof share);
    return share;
}

/* What is stored for the labels; there is none for the last token. */
static void copy_stored(const struct text *t, const struct ax_document *from,
                        struct ax_document *to) {
    for (int c = 0; c < ax_columns_count(t->stored); c++) {
        const size_t width = ax_column_width(t->stored, c);
        uint32_t *values = t->values + ax_columns_width(t->stored, c) * (size_t)t->cap +
                           (size_t)t->n_tokens * width;
        if (from->columns[c])
            memcpy(values, from->columns[c], (size_t)(from->n - 1) * width * sizeof *values);
        to->columns[c] = values;
    }
}

/* Copies document i of a sequence, for which there must be room; returns the members of its result
 * that are known before it is scored. */
static struct ax_eval_document add_text(struct text *t, const struct ax_packed_sequence *s, int i) {
    const struct ax_document *from = &s->docs[i];
    const int64_t shared = t->pairs_share ? ax_pair_shared(s, i) : 0, n = from->n - shared;
    int32_t *tokens = t->tokens + t->n_tokens, *labels = t->labels + t->n_tokens;
    float *weight = t->weight + t->n_tokens, *share = t->share + t->n_tokens;
    struct ax_eval_document d = {
        .set = ax_sequence_set(s, i), .example = ax_sequence_ref(s, i)->index, .tokens = from->n};
    memcpy(tokens, from->tokens + shared, (size_t)n * sizeof *tokens);
    for (int64_t k = 0; k < n; k++) {
        const int64_t at = shared + k;
        labels[k] = from->labels ? from->labels[at] : k + 1 < n ? from->tokens[at + 1] : -1;
        weight[k] = from->weight ? from->weight[at] : 1;
        if (is_scored(t, t->n_tokens + k)) {
            d.weight += (double)weight[k];
            d.trained++;
            share[k] = share_of(t, from, at);
            d.sums.answer += share[k] != 0;
        }
    }
    d.sums.tokens = (double)d.trained;
    for (int c = 0; c < ax_columns_count(t->columns); c++)
        if (t->columns->list[c].of == AX_OF_EXAMPLE)
            d.columns[c] = from->columns[c][0];
    struct ax_document *to = &t->docs[t->n_docs];
    *to = (struct ax_document){.n = n,
                               .tokens = tokens,
                               .labels = labels,
                               .weight = weight,
                               .first_position = from->first_position + shared,
                               .shared = shared,
                               .shared_with = t->n_docs - (shared > 0)};
    t->n_docs++;
    copy_stored(t, from, to);
    t->n_tokens += n;
    t->n_whole += from->n;
    return d;
}

int64_t ax_pair_shared(const struct ax_packed_sequence *s, int i) {
    const struct ax_document *a = i % 2 == 1 ? &s->docs[i - 1] : NULL, *b = &s->docs[i];
    int64_t n = 0;
    while (a && n + 1 < a->n && n + 1 < b->n && a->tokens[n] == b->tokens[n] && a->labels[n] < 0 &&
           b->labels[n] < 0)
        n++;
    return n >= WORTH_IT ? n : 0;
}

/* ---- the loss of an objective on documents ---- */

/* All of them are kept as sums, and the loss is computed once, at the end. */
struct kept {
    int n, cap;
    struct ax_document_sums *sums;     /* [cap] */
    uint32_t *columns[AX_COLUMNS_MAX]; /* [cap] each */
    /* tokens of the first and of the second documents of pairs */
    double side_tokens[2];
};

static enum ax_status grow_kept(struct kept *e) {
    const size_t from = (size_t)e->cap, to = 2 * from + 64;
    AX_TRY(ax_regrow(&e->sums, from, to, sizeof *e->sums));
    for (int c = 0; c < AX_COLUMNS_MAX; c++)
        AX_TRY(ax_regrow(&e->columns[c], from, to, sizeof *e->columns[c]));
    e->cap = (int)to;
    return AX_OK;
}

static enum ax_status keep_sums(struct kept *e, const struct ax_eval_document *d) {
    if (e->n == e->cap)
        AX_TRY(grow_kept(e));
    e->sums[e->n] = d->sums;
    for (int c = 0; c < AX_COLUMNS_MAX; c++)
        e->columns[c][e->n] = d->columns[c];
    e->side_tokens[e->n % 2] += d->sums.tokens;
    e->n++;
    return AX_OK;
}

/* Sets loss, perplexity and measures. */
static enum ax_status documents_loss(const struct kept *e, const struct ax_documents_objective *o,
                                     double kl, struct ax_eval_result *out) {
    const double weight = o->per == AX_PER_PAIR ? e->n / 2 : e->n;
    struct ax_documents d = {.n = e->n,
                             .sums = e->sums,
                             .kl = kl,
                             .inv_weight = weight > 0 ? 1 / weight : 0,
                             .inv_tokens = e->side_tokens[0] > 0 ? 1 / e->side_tokens[0] : 0};
    struct ax_documents_loss loss = {0};
    for (int c = 0; c < AX_COLUMNS_MAX; c++)
        d.columns[c] = e->columns[c];
    AX_TRY(ax_alloc(&loss.gradient, (size_t)e->n, sizeof *loss.gradient));
    o->loss(o->options, &d, &loss);
    ax_free(loss.gradient);
    struct ax_step_measures measures = {0};
    memcpy(measures.sum, loss.sum, sizeof measures.sum);
    memcpy(measures.of, loss.of, sizeof measures.of);
    ax_measures_mean(o, &measures, out->measures);
    out->loss = loss.loss;
    out->perplexity = NAN;
    out->accuracy = loss.pairs > 0 ? loss.right / loss.pairs : NAN;
    return AX_OK;
}

static void free_kept(struct kept *e) {
    ax_free(e->sums);
    for (int c = 0; c < AX_COLUMNS_MAX; c++)
        ax_free(e->columns[c]);
}

/* ---- an evaluation ---- */

/* Rows of logits computed at a time. Always this many, so that a run's memory equals its plan. */
#define WINDOW 128

/* A token that is trained on: its document, and where its score is. */
struct scored {
    int32_t label, doc, window, row;
    float weight, share;
};

/* What a document's tokens add up to, on all ranks. */
enum { NLL, CORRECT, ANSWER_LOGPROB, PLAIN_NLL, LOGIT, DIVERGENCE, SUMS };

struct evaluation {
    struct ax_model *m;
    const struct ax_eval_options *o;
    struct ax_batch batch;
    struct ax_slot slot;
    struct ax_scorer scorer;
    struct ax_teacher_states taught; /* of the pass */
    struct ax_results results;
    bool near;             /* the device's memory is the host's */
    struct text next, own; /* the pass being built, and this rank's of the round */
    int64_t rows;          /* loader rows read so far */
    /* the round being built: its passes so far, and the windows of its longest */
    int in_round;
    int64_t round_windows;
    /* the passes whose scores have not been read */
    int n_passes;
    int64_t n_documents, n_scored, n_windows;
    int64_t n_added;                    /* of n_scored */
    struct ax_eval_document *documents; /* [AX_SCORE_PASSES · ranks · max_docs], of all ranks */
    double *sums;                       /* [as many][SUMS] */
    struct kept kept;                   /* of an objective on documents */
    struct scored *scored;              /* [cap_scored], as many as were needed */
    struct ax_scores *windows;          /* [cap_windows], likewise */
    int64_t cap_scored, cap_windows;
    struct ax_eval_result *sum;
    double nll, divergence;
};

/* ---- memory ---- */

static int data_ranks(const struct evaluation *e) {
    return e->m->rt->mesh.size[AX_ROLE_BATCH];
}

/* True on the stage that scores. */
static bool has_head(const struct evaluation *e) {
    return ax_chunks_have(&e->m->chunks, e->m->n_units - 1);
}

static enum ax_status create_evaluation(struct evaluation *e) {
    struct ax_model *m = e->m;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const struct ax_mesh *mesh = &m->rt->mesh;
    const size_t documents = (size_t)(AX_SCORE_PASSES * data_ranks(e) * e->o->max_docs);
    AX_TRY(ax_slot_create(&e->slot, m, &m->rt->arena.slots[0]));
    ax_batch_allocate(&e->batch, scratch, ax_mesh_round_tokens(mesh, e->o->tokens, 1),
                      e->o->max_docs, e->o->max_len, mesh->size[AX_ROLE_CP],
                      mesh->coord[AX_ROLE_CP]);
    ax_batch_cut(&e->batch, scratch, m->arch.chunk);
    if (e->o->pairs_share)
        ax_batch_share(&e->batch, scratch, e->o->tokens, 2);
    e->batch.n_labels = m->arch.n_labels;
    if (e->o->distill)
        ax_batch_add_columns(&e->batch, scratch, ax_distill_columns(e->o->distill));
    if (e->o->teacher)
        e->taught = ax_teacher_take(e->o->teacher, scratch, e->batch.T);
    if (has_head(e)) {
        const int64_t T = e->batch.T;
        ax_scorer_create(&e->scorer, m, scratch, T < WINDOW ? T : WINDOW);
        if (e->o->distill)
            ax_scorer_add_teacher(&e->scorer, e->o->teacher ? &e->taught : NULL, e->o->distill,
                                  scratch);
        e->near = !ax_queue_has_host_tier(m->rt->q);
        ax_results_create(&e->results, e->near ? NULL : m->rt->q, scratch,
                          e->near ? ax_scores_bytes(&e->scorer, e->scorer.window)
                                  : AX_SCORE_PASSES * ax_scores_bytes(&e->scorer, T));
    }
    if (ax_runtime_planning(m->rt))
        return AX_OK; /* a plan reads no text, and may be of more than this machine has */
    AX_TRY(create_text(&e->next, e->o));
    AX_TRY(create_text(&e->own, e->o));
    AX_TRY(ax_alloc(&e->sums, SUMS * documents, sizeof *e->sums));
    return ax_alloc(&e->documents, documents, sizeof *e->documents);
}

static void destroy_evaluation(struct evaluation *e) {
    ax_stack_release(&e->m->rt->arena.scratch, 0);
    ax_stack_release(&e->m->rt->arena.slots[0], 0);
    ax_slot_free(&e->slot);
    free_text(&e->next);
    free_text(&e->own);
    ax_free(e->documents);
    free_kept(&e->kept);
    ax_free(e->sums);
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
    if (e->o->distill)
        e->scorer.stored =
            ax_distill_stored_rows(e->o->distill, &e->batch, first, e->scorer.window);
    return ax_scorer_run(&e->scorer, p, &rows, &labels, &e->results, &e->windows[e->n_windows++]);
}

/* Makes room for the scored tokens of this pass. */
static enum ax_status grow_scored(struct evaluation *e) {
    int64_t cap = e->n_scored + e->own.n_tokens;
    if (cap <= e->cap_scored)
        return AX_OK;
    cap = cap > 2 * e->cap_scored ? cap : 2 * e->cap_scored;
    AX_TRY(ax_regrow(&e->scored, (size_t)e->cap_scored, (size_t)cap, sizeof *e->scored));
    e->cap_scored = cap;
    return AX_OK;
}

/* Lists the tokens of this rank's part of its pass that are trained on, in order. */
static int64_t list_scored(struct evaluation *e) {
    const struct text *own = &e->own;
    struct scored *list = e->scored + e->n_scored;
    int64_t n = 0, row, end = own->n_docs > 0 ? own->docs[0].n : 0;
    int doc = 0;
    for (int64_t t = 0; t < own->n_tokens; t++) {
        while (t >= end)
            end += own->docs[++doc].n;
        if (ax_batch_part_of(&e->batch, t, &row) == e->batch.part && is_scored(own, t))
            list[n++] = (struct scored){.label = own->labels[t],
                                        .doc = (int32_t)own->first_document + doc,
                                        .weight = own->weight[t],
                                        .share = own->share[t]};
    }
    return n;
}

/* Windows of the pass's part with the most tokens that are trained on. */
static int64_t count_windows(const struct evaluation *e, const struct text *t) {
    int64_t most = 0, row;
    for (int part = 0; part < e->batch.parts; part++) {
        int64_t n = 0;
        for (int64_t i = 0; i < t->n_tokens; i++)
            n += ax_batch_part_of(&e->batch, i, &row) == part && is_scored(t, i);
        most = n > most ? n : most;
    }
    const int64_t window = e->batch.T < WINDOW ? e->batch.T : WINDOW;
    return (most + window - 1) / window;
}

static void add_token(struct evaluation *e, const struct scored *t) {
    const struct ax_scores *w = &e->windows[t->window];
    const double logprob = ax_results_get(&e->results, &w->logprob, t->row);
    double *sums = &e->sums[SUMS * t->doc];
    sums[NLL] -= (double)t->weight * logprob;
    sums[CORRECT] += ax_scores_best(&e->scorer, &e->results, w, t->row) == t->label;
    sums[ANSWER_LOGPROB] += t->share != 0 ? (double)t->share * logprob : 0;
    sums[PLAIN_NLL] -= logprob;
    sums[DIVERGENCE] +=
        w->divergence.data ? (double)t->weight * ax_results_get(&e->results, &w->divergence, t->row)
                           : 0;
    sums[LOGIT] += w->logit.data ? ax_results_get(&e->results, &w->logit, t->row) : 0;
}

/* Reads the scores since the last time, up to those of token `end`. Windows that only others of the
 * round needed are dropped. */
static enum ax_status add_tokens(struct evaluation *e, int64_t end) {
    if (e->n_added == end)
        ax_results_drop(&e->results);
    else
        AX_TRY(ax_results_read(&e->results));
    for (; e->n_added < end; e->n_added++)
        add_token(e, &e->scored[e->n_added]);
    return AX_OK;
}

/* Scores them, a window at a time; a window that would pass the end starts earlier. Others of the
 * round may have more windows. */
static enum ax_status score_rows(struct evaluation *e, struct ax_pass *p) {
    AX_TRY(grow_scored(e));
    const int64_t trained = list_scored(e), last = e->batch.T - e->scorer.window;
    struct scored *list = e->scored + e->n_scored;
    int64_t i = 0;
    for (int64_t w = 0; w < e->round_windows; w++) {
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

/* What an objective on documents wants of document d. */
static enum ax_status keep_document(struct evaluation *e, struct ax_eval_document *d,
                                    const double *sums) {
    const struct ax_documents_objective *o = e->o->documents;
    d->sums.logprob = sums[ANSWER_LOGPROB];
    d->sums.nll = sums[PLAIN_NLL];
    d->sums.lse = sums[LOGIT];
    d->sums.entropy = d->sums.logit = NAN; /* not known: measures of them are left out */
    if (o->reference >= 0 && e->o->references) {
        const float reference = ax_references_get(e->o->references, d->set, d->example);
        memcpy(&d->columns[o->reference], &reference, sizeof reference);
    }
    return keep_sums(&e->kept, d);
}

/* Completes the documents of all passes since the last time. */
static enum ax_status hand_over(struct evaluation *e) {
    struct ax_eval_result *r = e->sum;
    struct ax_runtime *rt = e->m->rt;
    AX_TRY(add_tokens(e, e->n_scored));
    AX_TRY(ax_runtime_combine(rt, AX_ROLE_LOSS, AX_SUM, e->sums, SUMS * e->n_documents));
    AX_TRY(ax_runtime_combine(rt, AX_ROLE_PP, AX_SUM, e->sums, SUMS * e->n_documents));
    for (int64_t i = 0; i < e->n_documents; i++) {
        struct ax_eval_document *d = &e->documents[i];
        const double *sums = &e->sums[SUMS * i];
        d->nll = sums[NLL];
        d->correct = (int64_t)sums[CORRECT];
        d->divergence = sums[DIVERGENCE];
        e->nll += d->nll;
        e->divergence += d->divergence;
        r->weight += d->weight;
        r->tokens += d->tokens;
        r->trained += d->trained;
        r->correct += d->correct;
        if (e->o->documents)
            AX_TRY(keep_document(e, d, sums));
        if (e->o->document)
            AX_TRY(e->o->document(e->o->ctx, d));
    }
    r->documents += e->n_documents;
    r->rows = e->rows;
    memset(e->sums, 0, SUMS * (size_t)e->n_documents * sizeof *e->sums);
    e->n_documents = e->n_scored = e->n_added = e->n_windows = e->n_passes = 0;
    return AX_OK;
}

/* True if any rank is asked to stop. */
static enum ax_status ask_to_stop(const struct evaluation *e, bool *stop) {
    double asked = e->o->stop && e->o->stop(e->o->ctx) ? 1 : 0;
    AX_TRY(ax_runtime_combine(e->m->rt, AX_ROLE_WORLD, AX_MAX, &asked, 1));
    *stop = asked > 0;
    return AX_OK;
}

/* Fills the columns of this rank's documents with what a server says of them. */
static enum ax_status ask_teacher(struct evaluation *e) {
    const struct ax_document **docs;
    AX_TRY(ax_alloc(&docs, (size_t)e->own.n_docs, sizeof *docs));
    for (int i = 0; i < e->own.n_docs; i++)
        docs[i] = &e->own.docs[i];
    const enum ax_status st =
        ax_asked_fill(e->m->rt, e->o->remote, e->o->distill, e->own.n_docs, docs, &e->sum->stopped);
    ax_free(docs);
    return st;
}

/* Runs this rank's pass of the round. */
static enum ax_status run_round(struct evaluation *e) {
    struct ax_model *m = e->m;
    const bool planning = ax_runtime_planning(m->rt);
    struct ax_pass p = {.model = m,
                        .batch = &e->batch,
                        .slot = &e->slot,
                        .recompute = AX_RECOMPUTE_INFERENCE,
                        .inv_temperature = 1};
    if (!planning)
        AX_TRY(ask_to_stop(e, &e->sum->stopped));
    if (!planning && e->o->remote && !e->sum->stopped)
        AX_TRY(ask_teacher(e));
    if (e->sum->stopped)
        return AX_OK;
    AX_TRY(ax_batch_fill(&e->batch, m->rt->q, m->arch.vocab_size, e->own.n_docs, e->own.docs));
    if (e->o->teacher)
        AX_TRY(ax_teacher_read(&e->taught, &e->batch));
    AX_TRY(ax_pass_begin(&p));
    AX_TRY(ax_pass_forward_all(&p));
    if (planning && has_head(e))
        AX_TRY(score_window(e, &p, 0));
    else if (has_head(e))
        AX_TRY(score_rows(e, &p));
    ax_pass_end(&p);
    e->own.n_docs = e->in_round = 0;
    e->own.n_tokens = e->round_windows = 0;
    e->n_passes++;
    if (planning)
        return AX_OK;
    if (e->o->progress)
        e->o->progress(e->o->ctx, e->rows);
    return e->n_passes == AX_SCORE_PASSES ? hand_over(e) : AX_OK;
}

/* The pass is built: gives it to the data rank whose turn it is. */
static enum ax_status end_pass(struct evaluation *e) {
    const int64_t windows = count_windows(e, &e->next);
    e->round_windows = windows > e->round_windows ? windows : e->round_windows;
    e->next.first_document = e->n_documents;
    e->n_documents += e->next.n_docs;
    if (e->in_round == e->m->rt->mesh.coord[AX_ROLE_BATCH]) {
        const struct text built = e->next;
        e->next = e->own;
        e->own = built;
    }
    e->next.n_docs = 0;
    e->next.n_tokens = e->next.n_whole = 0;
    return ++e->in_round == data_ranks(e) ? run_round(e) : AX_OK;
}

/* ---- sequences ---- */

static enum ax_status add_sequence(struct evaluation *e, const struct ax_packed_sequence *s) {
    AX_ASSERT(s->n_tokens <= e->o->tokens && s->n <= e->o->max_docs);
    if (e->next.n_whole + s->n_tokens > e->o->tokens || e->next.n_docs + s->n > e->o->max_docs)
        AX_TRY(end_pass(e));
    for (int i = 0; i < s->n; i++)
        e->documents[e->n_documents + e->next.n_docs] = add_text(&e->next, s, i);
    e->rows++;
    return AX_OK;
}

static enum ax_status run_evaluation(struct evaluation *e, struct ax_loader *loader) {
    AX_TRY(create_evaluation(e));
    if (ax_runtime_planning(e->m->rt))
        return run_round(e);
    ax_loader_start_epoch(loader, 0);
    while (e->o->max_rows == 0 || e->rows < e->o->max_rows) {
        struct ax_packed_sequence s;
        bool got;
        AX_TRY(ax_loader_next(loader, &s, &got));
        if (!got)
            break;
        AX_TRY(add_sequence(e, &s));
        if (e->sum->stopped)
            return AX_OK;
    }
    if (e->next.n_docs > 0)
        AX_TRY(end_pass(e));
    if (e->in_round > 0)
        AX_TRY(run_round(e));
    return e->n_passes > 0 && !e->sum->stopped ? hand_over(e) : AX_OK;
}

static enum ax_status conclude(const struct evaluation *e, struct ax_eval_result *out) {
    if (!(out->weight > 0))
        return ax_error(AX_ERR_DATA, "evaluation: none of %lld rows has a trained token",
                        (long long)out->rows);
    out->loss = e->nll / out->weight;
    out->perplexity = exp(out->loss);
    out->accuracy = (double)out->correct / (double)out->trained;
    if (e->o->distill) {
        out->measures[AX_DISTILL_NLL] = out->loss;
        out->measures[AX_DISTILL_DIVERGENCE] = e->divergence / out->weight;
        out->loss = e->o->distill->nll_weight * out->measures[AX_DISTILL_NLL] +
                    e->o->distill->divergence_weight * out->measures[AX_DISTILL_DIVERGENCE];
    } else if (!e->o->documents) {
        out->measures[0] = out->accuracy; /* of a process reward model, its only one */
    }
    return e->o->documents ? documents_loss(&e->kept, e->o->documents, e->o->kl, out) : AX_OK;
}

enum ax_status ax_evaluate(struct ax_model *m, struct ax_loader *loader,
                           const struct ax_eval_options *o, struct ax_eval_result *out) {
    struct ax_arena *arena = &m->rt->arena;
    const enum ax_phase before = arena->phase;
    struct evaluation e = {.m = m, .o = o, .sum = out};
    const double start = ax_clock_now();
    *out = (struct ax_eval_result){0};
    ax_arena_enter(arena, AX_PHASE_EVAL);
    enum ax_status st = run_evaluation(&e, loader);
    if (st == AX_OK && !ax_runtime_planning(m->rt) && !out->stopped)
        st = conclude(&e, out);
    destroy_evaluation(&e);
    ax_arena_enter(arena, before);
    AX_TRY(st);
    out->seconds = ax_clock_now() - start;
    return AX_OK;
}
