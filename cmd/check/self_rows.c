/* Documents in a batch and alone: their logits, and what generation makes of them. */
#include <string.h>

#include "base/rng.h"
#include "cmd/check/self.h"
#include "model/generate/generate.h"
#include "model/parts/head.h"

enum { DOCS = 5, LONGEST = 48, NEW = 12 };

static const int64_t lengths[DOCS] = {23, 1, 48, 17, 31};

static void write_tokens(int32_t *tokens, int d, int64_t vocab) {
    const struct ax_rng_key key = {31, 0, (uint32_t)d};
    for (int64_t i = 0; i < lengths[d]; i++)
        tokens[i] = (int32_t)ax_rng_below(key, (uint64_t)i, (uint64_t)vocab);
}

/* Runs something over documents first … first + n. */
struct pass {
    const struct ax_self *s;
    int first, n;
    int lanes;
    int64_t pass_tokens;
    struct ax_self_values values; /* out: by document, in order */
};

/* ---- logits ---- */

static enum ax_status forward(struct pass *p, struct ax_model *m, struct ax_slot *slot) {
    struct ax_runtime *rt = m->rt;
    const int64_t vocab = m->arch.vocab_size;
    int32_t tokens[DOCS][LONGEST];
    struct ax_document docs[DOCS];
    struct ax_batch batch;
    int64_t total = 0;
    for (int d = 0; d < p->n; d++) {
        write_tokens(tokens[d], p->first + d, vocab);
        docs[d] = (struct ax_document){.n = lengths[p->first + d], .tokens = tokens[d]};
        total += docs[d].n;
    }
    ax_batch_allocate(&batch, &rt->arena.persistent, total, p->n, LONGEST, 1, 0);
    AX_TRY(ax_batch_fill(&batch, rt->q, vocab, p->n, docs));
    struct ax_pass pass = {.model = m,
                           .batch = &batch,
                           .slot = slot,
                           .recompute = AX_RECOMPUTE_INFERENCE,
                           .inv_temperature = 1};
    AX_TRY(ax_pass_begin(&pass));
    AX_TRY(ax_pass_forward_all(&pass));
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor logits = ax_tensor_2d(m->accum, NULL, total, vocab);
    logits.data = ax_stack_push(&rt->arena.scratch, "logits", ax_tensor_bytes(&logits));
    AX_TRY(ax_pass_logits(&pass, 0, total, &logits));
    AX_TRY(ax_self_take(&p->values, rt->q, &logits));
    ax_stack_release(&rt->arena.scratch, mark);
    ax_pass_end(&pass);
    return AX_OK;
}

static enum ax_status logits_body(struct ax_runtime *rt, void *ctx) {
    struct pass *p = ctx;
    struct ax_model m;
    struct ax_slot slot = {0};
    const struct ax_model_options mo = {.dtype = p->s->dtype, .max_positions = LONGEST};
    AX_TRY(ax_model_create(&m, &p->s->dense, rt, &mo));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&m, 5), st, done);
    AX_TRY_GOTO(ax_slot_create(&slot, &m, &rt->arena.slots[0]), st, done);
    st = forward(p, &m, &slot);
    ax_slot_free(&slot);
done:
    ax_model_free(&m);
    return st;
}

/* ---- generation ---- */

/* Samples; where a tie may go either way, scores given tokens instead. */
static enum ax_status generate(struct pass *p, struct ax_generator *g) {
    int32_t prompts[DOCS][LONGEST], tokens[DOCS][NEW];
    double logprobs[DOCS][LONGEST];
    struct ax_sequence seqs[DOCS];
    for (int d = 0; d < p->n; d++) {
        const int doc = p->first + d;
        write_tokens(prompts[d], doc, g->model->arch.vocab_size);
        seqs[d] = (struct ax_sequence){.n_prompt = lengths[doc],
                                       .prompt = prompts[d],
                                       .stream = (uint64_t)doc,
                                       .max_new = NEW,
                                       .n_scored = p->s->by_row ? 0 : lengths[doc],
                                       .scored = prompts[d],
                                       .tokens = tokens[d],
                                       .logprobs = logprobs[d]};
    }
    AX_TRY(ax_generate(g, p->n, seqs));
    for (int d = 0; d < p->n && !ax_runtime_planning(g->model->rt); d++) {
        double ids[NEW];
        for (int64_t i = 0; i < seqs[d].n_new; i++)
            ids[i] = tokens[d][i];
        AX_TRY(ax_self_append(&p->values, seqs[d].n_new, ids));
        AX_TRY(ax_self_append(&p->values, p->s->by_row ? seqs[d].n_new : seqs[d].n_scored,
                              logprobs[d]));
    }
    return AX_OK;
}

static enum ax_status generate_body(struct ax_runtime *rt, void *ctx) {
    struct pass *p = ctx;
    struct ax_model m;
    struct ax_generator g = {0};
    const struct ax_model_options mo = {.dtype = p->s->dtype, .max_positions = LONGEST + NEW};
    const struct ax_generate_options o = {.n_seqs = p->lanes,
                                          .max_prompt = LONGEST,
                                          .max_new = NEW,
                                          .pass_tokens = p->pass_tokens,
                                          .scoring = !p->s->by_row,
                                          .sampling = {.temperature = 1, .top_p = 0.95, .seed = 4}};
    AX_TRY(ax_model_create(&m, &p->s->dense, rt, &mo));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&m, 5), st, done);
    AX_TRY_GOTO(ax_generator_create(&g, &m, &o), st, done);
    st = generate(p, &g);
done:
    ax_generator_free(&g);
    ax_model_free(&m);
    return st;
}

/* ---- comparing ---- */

static enum ax_status run(struct pass *p, ax_runtime_body body) {
    const struct ax_runtime_options ro = {
        .backend = p->s->backend, .threads = p->s->threads, .may_stay_below = true};
    return ax_runtime_run(&ro, body, p, NULL);
}

/* All documents in one go against `other`'s way, or each by itself if that is for one document. */
static enum ax_status compare(const struct ax_self *s, ax_runtime_body body, struct pass other,
                              double *figure) {
    struct pass all = {.s = s, .n = DOCS, .lanes = DOCS};
    enum ax_status st = run(&all, body);
    for (other.first = 0; other.first < DOCS && st == AX_OK; other.first += other.n)
        st = run(&other, body);
    if (st == AX_OK)
        *figure = ax_self_difference(&other.values, &all.values);
    ax_self_free_values(&all.values);
    ax_self_free_values(&other.values);
    return st;
}

enum ax_status ax_self_packed(struct ax_self *s) {
    double figure;
    AX_TRY(compare(s, logits_body, (struct pass){.s = s, .n = 1}, &figure));
    ax_self_note(s, "packed", "logits of 5 documents together and alone", figure,
                 s->by_row ? 0 : ax_self_rounding(s), "");
    return AX_OK;
}

enum ax_status ax_self_generation(struct ax_self *s) {
    const double tolerance = s->by_row ? 0 : ax_self_rounding(s);
    const char *const what[] = {
        s->by_row ? "answers in a batch and alone" : "log-probs in a batch and alone",
        s->by_row ? "answers in one pass and in pieces" : "log-probs in one pass and in pieces"};
    double figure;
    AX_TRY(compare(s, generate_body, (struct pass){.s = s, .n = 1, .lanes = 1}, &figure));
    ax_self_note(s, "generation", what[0], figure, tolerance, "");
    AX_TRY(compare(s, generate_body, (struct pass){.s = s, .n = DOCS, .lanes = 2, .pass_tokens = 5},
                   &figure));
    ax_self_note(s, "generation", what[1], figure, tolerance, "");
    return AX_OK;
}
