/* Runs one model after the other on the same batch. */
#include "model/convert/merge_probe.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/adapter/load.h"
#include "model/parts/head.h"
#include "model/pass.h"

enum { DOCS = 2, LENGTH = 24, TOKENS = DOCS * LENGTH };

struct answer {
    const struct ax_merge_probe *probe;
    const struct ax_hf *hf;
    const struct ax_peft *peft; /* NULL: without */
    float *logits;              /* [TOKENS][V], of a classifier its labels */
};

static enum ax_status fill(struct ax_batch *batch, struct ax_queue *q, int64_t vocab) {
    int32_t tokens[TOKENS];
    struct ax_document docs[DOCS];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] =
            (int32_t)ax_rng_below((struct ax_rng_key){.seed = 1}, (uint64_t)i * 4, (uint64_t)vocab);
    for (int d = 0; d < DOCS; d++)
        docs[d] = (struct ax_document){.n = LENGTH, .tokens = tokens + d * LENGTH};
    return ax_batch_fill(batch, q, vocab, DOCS, docs);
}

static enum ax_status run_pass(struct ax_pass *p, float *out) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_tensor logits =
        ax_tensor_2d(AX_F32, NULL, TOKENS, ax_arch_head_rows(&p->model->arch));
    AX_TRY(ax_pass_begin(p));
    AX_TRY(ax_pass_forward_all(p));
    logits.data = ax_stack_push(&rt->arena.scratch, "logits", ax_tensor_bytes(&logits));
    AX_TRY(ax_pass_logits(p, 0, TOKENS, &logits));
    AX_TRY(ax_queue_read(rt->q, logits.data, out, ax_tensor_bytes(&logits), NULL));
    ax_stack_release(&rt->arena.scratch, 0);
    ax_pass_end(p);
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    const struct answer *a = ctx;
    struct ax_model m;
    struct ax_batch batch;
    struct ax_slot slot = {0};
    const struct ax_model_options o = {
        .dtype = AX_F32, .max_positions = LENGTH, .adapter = a->peft ? &a->peft->config : NULL};
    AX_TRY(ax_model_create(&m, a->probe->arch, rt, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load(&m, a->hf), st, done);
    if (a->peft)
        AX_TRY_GOTO(ax_adapter_load(&m, a->peft), st, done);
    AX_TRY_GOTO(ax_slot_create(&slot, &m, &rt->arena.slots[0]), st, done);
    ax_batch_allocate(&batch, &rt->arena.persistent, TOKENS, DOCS, LENGTH, 1, 0);
    AX_TRY_GOTO(fill(&batch, rt->q, m.arch.vocab_size), st, done);
    ax_arena_enter(&rt->arena, AX_PHASE_EVAL);
    struct ax_pass p = {.model = &m,
                        .batch = &batch,
                        .slot = &slot,
                        .recompute = AX_RECOMPUTE_INFERENCE,
                        .inv_temperature = 1};
    AX_TRY_GOTO(run_pass(&p, a->logits), st, done);
done:
    ax_slot_free(&slot);
    ax_model_free(&m);
    return st;
}

static enum ax_status answer(const struct ax_merge_probe *p, const struct ax_hf *hf,
                             const struct ax_peft *peft, float *logits) {
    struct answer a = {p, hf, peft, logits};
    const struct ax_runtime_options o = {.backend = "cpu", .threads = p->threads};
    return ax_runtime_run(&o, body, &a, NULL);
}

static int64_t count(const struct ax_merge_probe *p) {
    return TOKENS * ax_arch_head_rows(p->arch);
}

/* A NaN counts as an infinite difference. */
static double largest_difference(const struct ax_merge_probe *p) {
    double worst = 0;
    for (int64_t i = 0; i < count(p); i++) {
        const double d = fabs((double)p->adapter[i] - (double)p->other[i]);
        worst = d <= worst ? worst : isnan(d) ? INFINITY : d;
    }
    return worst;
}

enum ax_status ax_merge_probe_start(struct ax_merge_probe *p, const struct ax_hf *base) {
    AX_TRY(ax_alloc(&p->adapter, (size_t)count(p), sizeof *p->adapter));
    AX_TRY(ax_alloc(&p->other, (size_t)count(p), sizeof *p->other));
    AX_TRY(answer(p, base, p->peft, p->adapter));
    AX_TRY(answer(p, base, NULL, p->other));
    p->effect = largest_difference(p);
    for (int64_t i = 0; i < count(p); i++)
        p->largest = fmax(p->largest, fabs((double)p->adapter[i]));
    return AX_OK;
}

enum ax_status ax_merge_probe_merged(struct ax_merge_probe *p, const struct ax_hf *merged) {
    AX_TRY(answer(p, merged, NULL, p->other));
    p->error = largest_difference(p);
    return AX_OK;
}

void ax_merge_probe_free(struct ax_merge_probe *p) {
    ax_free(p->adapter);
    ax_free(p->other);
}
