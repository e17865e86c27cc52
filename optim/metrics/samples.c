#include "optim/metrics/samples.h"

#include "base/mem.h"
#include "base/stop.h"

/* Few lanes and small passes, because steps do not need the memory of the KV cache and of
 * passes. */
#define LANES       4
#define PASS_TOKENS 64

static bool stop_now(void *ctx) {
    (void)ctx;
    return ax_stop_requested() != AX_STOP_NONE;
}

static enum ax_status allocate(const struct ax_samples *s, struct ax_sequence **seqs,
                               int32_t **tokens) {
    const size_t n = (size_t)s->n, most = (size_t)s->max_new;
    AX_TRY(ax_alloc(seqs, n, sizeof **seqs));
    AX_TRY(ax_alloc(tokens, n * most, sizeof **tokens));
    for (size_t i = 0; i < n; i++)
        (*seqs)[i] = (struct ax_sequence){.stream = i, .tokens = *tokens + i * most};
    return AX_OK;
}

static enum ax_status generate(struct ax_model *m, const struct ax_samples *s,
                               struct ax_sequence *seqs) {
    struct ax_generator g;
    const struct ax_generate_options o = {.n_seqs = s->n < LANES ? s->n : LANES,
                                          .max_prompt = s->max_prompt,
                                          .max_new = s->max_new,
                                          .pass_tokens = PASS_TOKENS,
                                          .n_stop = s->n_stop,
                                          .stop = s->stop,
                                          .sampling = s->sampling,
                                          .stop_now = stop_now};
    AX_TRY(ax_generator_create(&g, m, &o));
    const enum ax_status st = ax_generate(&g, s->n, seqs);
    ax_generator_free(&g);
    return st;
}

enum ax_status ax_samples_run(struct ax_model *m, const struct ax_samples *s,
                              void (*done)(void *ctx, int i, const struct ax_sequence *answer),
                              void *ctx) {
    struct ax_arena *arena = &m->rt->arena;
    const enum ax_phase before = arena->phase;
    const bool planning = ax_runtime_planning(m->rt);
    struct ax_sequence *seqs = NULL;
    int32_t *tokens = NULL;
    enum ax_status st;
    AX_TRY_GOTO(allocate(s, &seqs, &tokens), st, done);
    for (int i = 0; !planning && i < s->n; i++) {
        seqs[i].n_prompt = s->prompts[i].n;
        seqs[i].prompt = s->prompts[i].ids;
    }
    st = generate(m, s, seqs);
    ax_arena_enter(arena, before);
    for (int i = 0; st == AX_OK && !planning && i < s->n; i++)
        if (seqs[i].finish != AX_FINISH_CALLER)
            done(ctx, i, &seqs[i]);
done:
    ax_free(tokens);
    ax_free(seqs);
    return st;
}
