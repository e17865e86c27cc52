/* Greedy decoding: one pass over all prompts, then one token per sequence and pass. */
#include "model/generate.h"

#include <string.h>

#include "base/mem.h"

enum ax_status ax_generator_create(struct ax_generator *d, struct ax_model *m,
                                   const struct ax_generate_options *o) {
    *d = (struct ax_generator){.o = *o, .model = m};
    struct ax_arena *arena = &m->rt->arena;
    ax_arena_enter(arena, AX_PHASE_ROLLOUT);
    struct ax_stack *stack = &arena->scratch;
    const int64_t n = o->n_seqs, cap = o->max_prompt + o->max_new;
    const struct ax_kvcache_options co = {.dtype = m->dtype,
                                          .n_seqs = n,
                                          .cap = cap,
                                          .n_layers = m->arch.n_layers,
                                          .n_kv_heads = m->arch.n_kv_heads,
                                          .head_dim = m->arch.head_dim,
                                          .T = n * o->max_prompt};
    enum ax_status st;
    AX_TRY_GOTO(ax_kvcache_create(&d->cache, stack, &co), st, fail);
    AX_TRY_GOTO(ax_slot_create(&d->slot, m, &arena->slots[0]), st, fail);
    ax_batch_allocate(&d->prefill, stack, n * o->max_prompt, n, o->max_prompt, 1, 0);
    ax_batch_allocate(&d->next, stack, n, n, 1, 1, 0);
    d->logits = ax_tensor_2d(m->accum, NULL, n, m->arch.vocab_size);
    d->ids = ax_tensor_1d(AX_I32, NULL, n);
    d->stats = ax_tensor_2d(m->accum, NULL, n, AX_SOFTMAX_STATS);
    d->columns = ax_tensor_2d(m->accum, NULL, 3, n);
    struct ax_tensor *all[] = {&d->logits, &d->ids, &d->stats, &d->columns};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        all[i]->data = ax_stack_push(stack, "decode logits", ax_tensor_bytes(all[i]));
    return AX_OK;
fail:
    ax_generator_free(d);
    return st;
}

void ax_generator_free(struct ax_generator *d) {
    if (!d->model)
        return;
    ax_stack_release(&d->model->rt->arena.scratch, 0);
    ax_kvcache_free(&d->cache);
    ax_slot_free(&d->slot);
    *d = (struct ax_generator){0};
}

/* Chosen ids of the first n logits rows, and their log-probs into columns row 0. */
static enum ax_status choose(struct ax_generator *d, int64_t n, int32_t *ids, double *logprobs) {
    struct ax_queue *q = d->model->rt->q;
    const struct ax_tensor logits = ax_tensor_rows(&d->logits, 0, n);
    const struct ax_tensor index = ax_tensor_rows(&d->ids, 0, n);
    const struct ax_tensor stats = ax_tensor_rows(&d->stats, 0, n);
    struct ax_tensor out[3];
    for (int i = 0; i < 3; i++)
        out[i] = ax_tensor_1d(d->columns.dtype, ax_tensor_row(&d->columns, i), n);
    AX_TRY(ax_run_argmax(q, &(struct ax_argmax){logits, index}));
    AX_TRY(ax_run_softmax_stats(
        q, &(struct ax_softmax_stats){
               .logits = logits, .labels = index, .stats = stats, .inv_temperature = 1}));
    const struct ax_softmax_merge merge = {
        .stats = ax_tensor_3d(stats.dtype, stats.data, 1, n, AX_SOFTMAX_STATS),
        .labels = index,
        .logprob = out[0],
        .lse = out[1],
        .entropy = out[2]};
    AX_TRY(ax_run_softmax_merge(q, &merge));
    AX_TRY(ax_queue_read(q, index.data, ids, (size_t)n * sizeof *ids, NULL));
    unsigned char raw[8];
    for (int64_t i = 0; i < n; i++) {
        const size_t size = ax_dtype_size(out[0].dtype);
        AX_TRY(ax_queue_read(q, ax_tensor_row(&out[0], i), raw, size, NULL));
        logprobs[i] = ax_load(out[0].dtype, raw, 0);
    }
    return AX_OK;
}

/* Logits of each non-empty document's last token, in order; rows that lie together go together. */
static enum ax_status last_logits(struct ax_generator *d, struct ax_pass *p, int n,
                                  const struct ax_document *docs, int64_t *chosen) {
    int64_t end = 0, run_first = 0, run = 0;
    *chosen = 0;
    for (int s = 0; s <= n; s++) {
        end += s < n ? docs[s].n : 0;
        if (s < n && docs[s].n == 0)
            continue;
        if (run > 0 && (s == n || end - 1 != run_first + run)) {
            struct ax_tensor out = ax_tensor_rows(&d->logits, *chosen, run);
            AX_TRY(ax_pass_logits(p, run_first, run, &out));
            *chosen += run;
            run = 0;
        }
        if (run++ == 0)
            run_first = end - 1;
    }
    return AX_OK;
}

/* One pass over `batch` with the given documents, and the choice for each that is not empty. */
static enum ax_status advance(struct ax_generator *d, struct ax_batch *batch, int n,
                              const struct ax_document *docs, int32_t *ids, double *logprobs) {
    struct ax_model *m = d->model;
    int64_t *n_new = NULL;
    struct ax_pass p = {.model = m,
                        .batch = batch,
                        .slot = &d->slot,
                        .recompute = AX_RECOMPUTE_INFERENCE,
                        .inv_temperature = 1,
                        .cache = &d->cache};
    enum ax_status st;
    AX_TRY(ax_alloc(&n_new, (size_t)d->o.n_seqs, sizeof *n_new));
    for (int s = 0; s < n; s++)
        n_new[s] = docs[s].n;
    AX_TRY_GOTO(ax_batch_fill(batch, m->rt->q, m->arch.vocab_size, n, docs), st, done);
    AX_TRY_GOTO(ax_kvcache_advance(&d->cache, m->rt->q, n_new), st, done);
    AX_TRY_GOTO(ax_pass_begin(&p), st, done);
    AX_TRY_GOTO(ax_pass_forward_all(&p), st, done);
    int64_t chosen;
    AX_TRY_GOTO(last_logits(d, &p, n, docs, &chosen), st, done);
    ax_pass_end(&p);
    st = choose(d, chosen, ids, logprobs);
done:
    ax_free(n_new);
    return st;
}

static bool is_stop(const struct ax_generate_options *o, int32_t token) {
    for (int i = 0; i < o->n_stop; i++)
        if (o->stop[i] == token)
            return true;
    return false;
}

/* Hands the choices to the sequences still going; the next pass's document of each. */
static int hand_out(const struct ax_generator *d, int n, struct ax_sequence *seqs,
                    struct ax_document *docs, const int32_t *ids, const double *logprobs) {
    int going = 0, chosen = 0;
    for (int s = 0; s < n; s++) {
        struct ax_sequence *seq = &seqs[s];
        if (docs[s].n == 0)
            continue;
        const int64_t k = seq->n_new++;
        seq->tokens[k] = ids[chosen];
        if (seq->logprobs)
            seq->logprobs[k] = logprobs[chosen];
        chosen++;
        const bool done = seq->n_new == d->o.max_new || is_stop(&d->o, seq->tokens[k]);
        docs[s] = (struct ax_document){
            .n = !done, .tokens = &seq->tokens[k], .first_position = seq->n_prompt + k};
        going += !done;
    }
    return going;
}

enum ax_status ax_generate_greedy(struct ax_generator *d, int n, struct ax_sequence *seqs) {
    AX_ASSERT(n <= d->o.n_seqs);
    const bool planning = ax_runtime_planning(d->model->rt);
    struct ax_document *docs = NULL;
    int32_t *ids = NULL;
    double *logprobs = NULL;
    enum ax_status st;
    const size_t cap = (size_t)d->o.n_seqs;
    AX_TRY_GOTO(ax_alloc(&docs, cap, sizeof *docs), st, done);
    AX_TRY_GOTO(ax_alloc(&ids, cap, sizeof *ids), st, done);
    AX_TRY_GOTO(ax_alloc(&logprobs, cap, sizeof *logprobs), st, done);
    memset(d->cache.length, 0, cap * sizeof *d->cache.length);
    for (int s = 0; s < n; s++) {
        docs[s] = (struct ax_document){.n = seqs[s].n_prompt, .tokens = seqs[s].prompt};
        seqs[s].n_new = 0;
        if (seqs[s].n_prompt < 1 || seqs[s].n_prompt > d->o.max_prompt)
            AX_TRY_GOTO(ax_error(AX_ERR_DATA,
                                 "generation: prompt %d has %lld tokens; 1 to %lld fit", s,
                                 (long long)seqs[s].n_prompt, (long long)d->o.max_prompt),
                        st, done);
    }
    AX_TRY_GOTO(advance(d, &d->prefill, n, docs, ids, logprobs), st, done);
    int going = hand_out(d, n, seqs, docs, ids, logprobs);
    while (going > 0) {
        AX_TRY_GOTO(advance(d, &d->next, n, docs, ids, logprobs), st, done);
        going = planning ? 0 : hand_out(d, n, seqs, docs, ids, logprobs);
    }
done:
    ax_free(docs);
    ax_free(ids);
    ax_free(logprobs);
    return st;
}
