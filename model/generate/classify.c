#include "model/generate/classify.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/transfer.h"
#include "model/parts/head.h"
#include "model/pass.h"

#define WINDOW 256 /* rows of logits computed at a time; always as many, as planned */

struct classify {
    struct ax_model *m;
    struct ax_batch batch;
    struct ax_slot slot;
    struct ax_tensor hidden, logits; /* of a window */
    double *window;                  /* [WINDOW][n_labels] */
};

static struct ax_tensor take(struct ax_stack *stack, enum ax_dtype dtype, int64_t rows,
                             int64_t cols) {
    return ax_stack_take(stack, "classified tokens", ax_tensor_2d(dtype, NULL, rows, cols));
}

static enum ax_status create(struct classify *c, const struct ax_classify_options *o) {
    struct ax_model *m = c->m;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    AX_TRY(ax_slot_create(&c->slot, m, &m->rt->arena.slots[0]));
    ax_batch_allocate(&c->batch, scratch, ax_mesh_round_tokens(&m->rt->mesh, o->tokens, 1),
                      o->max_docs, o->max_len, 1, 0);
    ax_batch_cut(&c->batch, scratch, m->arch.chunk);
    c->batch.n_labels = m->arch.n_labels;
    const int64_t rows = c->batch.T < WINDOW ? c->batch.T : WINDOW;
    c->hidden = take(scratch, m->dtype, rows, m->arch.hidden_size);
    c->logits = take(scratch, m->accum, rows, m->arch.n_labels);
    return ax_alloc(&c->window, (size_t)(rows * m->arch.n_labels), sizeof *c->window);
}

static void destroy(struct classify *c) {
    ax_stack_release(&c->m->rt->arena.scratch, 0);
    ax_stack_release(&c->m->rt->arena.slots[0], 0);
    ax_slot_free(&c->slot);
    ax_free(c->window);
}

/* Logits of n rows that the batch lists, from row `first`. */
static enum ax_status read_rows(struct classify *c, struct ax_pass *p, int64_t first, int64_t n,
                                double *out) {
    const int64_t window = c->logits.shape[0], last = c->batch.T - window;
    const int64_t from = first < last ? first : last, labels = c->m->arch.n_labels;
    const struct ax_tensor rows = ax_tensor_rows(&c->batch.rows, from, window);
    AX_TRY(ax_pass_logits_of(p, &rows, &c->hidden, &c->logits));
    if (!out) /* while planning */
        return AX_OK;
    AX_TRY(ax_tensor_read(c->m->rt->q, &c->logits, AX_F64, c->window));
    for (int64_t i = 0; i < n * labels; i++)
        out[i] = c->window[(first - from) * labels + i];
    return AX_OK;
}

/* *written: values of `out` so far. `windows`: of the rank that has most, as all gather the head. */
static enum ax_status run_pass(struct classify *c, int n, const struct ax_document *docs,
                               int64_t windows, double *out, int64_t *written) {
    struct ax_model *m = c->m;
    struct ax_pass p = {.model = m,
                        .batch = &c->batch,
                        .slot = &c->slot,
                        .recompute = AX_RECOMPUTE_INFERENCE,
                        .inv_temperature = 1};
    AX_TRY(ax_batch_fill(&c->batch, m->rt->q, m->arch.vocab_size, n, docs));
    const int64_t scored = c->batch.trained, window = c->logits.shape[0];
    AX_TRY(ax_pass_begin(&p));
    AX_TRY(ax_pass_forward_all(&p));
    for (int64_t w = 0; w < windows; w++) {
        const int64_t i = w * window, left = scored > i ? scored - i : 0;
        const int64_t rows = left < window ? left : window;
        double *to = out ? out + *written : NULL;
        *written += rows * m->arch.n_labels;
        if (ax_model_has_head(m))
            AX_TRY(read_rows(c, &p, i, rows, to));
        else if (to)
            memset(to, 0, (size_t)(rows * m->arch.n_labels) * sizeof *to);
    }
    ax_pass_end(&p);
    return AX_OK;
}

/* Documents of the next pass. */
static int next_pass(const struct ax_classify_options *o, int n, const struct ax_document *docs) {
    int64_t tokens = 0;
    int k = 0;
    while (k < n && k < o->max_docs && tokens + docs[k].n <= o->tokens)
        tokens += docs[k++].n;
    return k;
}

/* Windows of a pass; 0: of no documents. */
static int64_t windows_of(const struct classify *c, int n, const struct ax_document *docs) {
    const int64_t window = c->logits.shape[0];
    int64_t labels = 0;
    for (int d = 0; d < n; d++)
        for (int64_t t = 0; t < docs[d].n; t++)
            labels += docs[d].labels[t] >= 0;
    return n > 0 && labels == 0 ? 1 : (labels + window - 1) / window;
}

/* Only one stage of a pipeline has the head; the others have zeros. */
static enum ax_status tell_stages(struct ax_runtime *rt, double *out, int64_t n) {
    return rt->mesh.size[AX_ROLE_PP] > 1 ? ax_runtime_combine(rt, AX_ROLE_PP, AX_SUM, out, n)
                                         : AX_OK;
}

static enum ax_status run(struct classify *c, const struct ax_classify_options *o, int n,
                          const struct ax_document *docs, double *out) {
    int64_t written = 0;
    AX_TRY(create(c, o));
    if (ax_runtime_planning(c->m->rt))
        return run_pass(c, 0, NULL, 1, NULL, &written);
    for (int i = 0, k;; i += k) {
        k = next_pass(o, n - i, docs + i);
        AX_ASSERT(k > 0 || i == n);
        double all[] = {(double)windows_of(c, k, docs + i), o->stop_now && o->stop_now(o->ctx)};
        if (o->shared)
            AX_TRY(ax_runtime_combine(c->m->rt, AX_ROLE_WORLD, AX_MAX, all, 2));
        if (all[1] > 0)
            return ax_error(AX_INTERRUPTED, "asked to stop");
        if (all[0] == 0)
            return tell_stages(c->m->rt, out, written);
        AX_TRY(run_pass(c, k, docs + i, (int64_t)all[0], out, &written));
    }
}

enum ax_status ax_classify(struct ax_model *m, const struct ax_classify_options *o, int n,
                           const struct ax_document *docs, double *out) {
    struct classify c = {.m = m};
    const enum ax_phase before = m->rt->arena.phase;
    AX_ASSERT(m->arch.classifier);
    ax_arena_enter(&m->rt->arena, AX_PHASE_EVAL);
    const enum ax_status st = run(&c, o, n, docs, out);
    destroy(&c);
    ax_arena_enter(&m->rt->arena, before);
    return st;
}
