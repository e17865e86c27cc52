/* What ranks tell each other at the end: stages the log-probs of their sequences, data ranks all of theirs. */
#include "model/generate/generate_share.h"

#include <string.h>

#include "base/mem.h"

/* Numbers that the data ranks tell each other at a time. */
#define SHARED_NUMBERS ((int64_t)1 << 18)

static int data_ranks(const struct ax_generator *d) {
    return ax_runtime_planning(d->model->rt) ? 1 : d->model->rt->mesh.size[AX_ROLE_LOSS];
}

void ax_generate_deal(const struct ax_generator *d, int64_t n, int64_t *first, int64_t *own) {
    const int ranks = data_ranks(d);
    ax_split_range(n, ranks, ranks > 1 ? d->model->rt->mesh.coord[AX_ROLE_LOSS] : 0, first, own);
}

/* All sequences, and which of them this rank had; the ranks that tell each other. */
struct share {
    struct ax_generator *d;
    int64_t n, first, own;
    struct ax_sequence *seqs; /* [n] */
    enum ax_role role;
};

static bool is_own(const struct share *s, int64_t i) {
    return i >= s->first && i < s->first + s->own;
}

/* What is told of each sequence; the counters follow. */
enum { N_NEW, FINISH, HEADER };

void ax_generate_put_counters(const struct ax_generate_counters *now,
                              const struct ax_generate_counters *before,
                              double v[AX_GENERATE_COUNTERS]) {
    v[0] = (double)(now->passes - before->passes);
    v[1] = (double)(now->tokens - before->tokens);
    v[2] = (double)(now->prompt_tokens - before->prompt_tokens);
    v[3] = (double)(now->shared_tokens - before->shared_tokens);
    v[4] = (double)(now->decode_passes - before->decode_passes);
    v[5] = (double)(now->decode_tokens - before->decode_tokens);
    v[6] = now->decode_seconds - before->decode_seconds;
    v[7] = now->prompt_seconds - before->prompt_seconds;
    v[8] = (double)(now->shared_blocks - before->shared_blocks);
    v[9] = (double)(now->put_back - before->put_back);
    v[10] = (double)(now->drafts - before->drafts);
    v[11] = (double)(now->accepted - before->accepted);
    v[12] = now->wait_seconds - before->wait_seconds;
}

void ax_generate_take_counters(struct ax_generate_counters *c,
                               const struct ax_generate_counters *before,
                               const double v[AX_GENERATE_COUNTERS], int ranks) {
    *c = *before;
    c->passes += (int64_t)v[0];
    c->tokens += (int64_t)v[1];
    c->prompt_tokens += (int64_t)v[2];
    c->shared_tokens += (int64_t)v[3];
    c->decode_passes += (int64_t)v[4];
    c->decode_tokens += (int64_t)v[5];
    c->decode_seconds += v[6] / ranks;
    c->prompt_seconds += v[7] / ranks;
    c->shared_blocks += (int64_t)v[8];
    c->put_back += (int64_t)v[9];
    c->drafts += (int64_t)v[10];
    c->accepted += (int64_t)v[11];
    c->wait_seconds += v[12] / ranks;
}

/* Lengths and ends of all sequences, and the counters. */
static enum ax_status share_ends(const struct share *s, const struct ax_generate_counters *before) {
    struct ax_generator *d = s->d;
    double *all;
    AX_TRY(ax_alloc(&all, (size_t)s->n * HEADER + AX_GENERATE_COUNTERS, sizeof *all));
    for (int64_t i = s->first; i < s->first + s->own; i++) {
        all[i * HEADER + N_NEW] = (double)s->seqs[i].n_new;
        all[i * HEADER + FINISH] = s->seqs[i].finish;
    }
    ax_generate_put_counters(&d->counters, before, all + s->n * HEADER);
    const enum ax_status st = ax_runtime_combine(d->model->rt, s->role, AX_SUM, all,
                                                 s->n * HEADER + AX_GENERATE_COUNTERS);
    for (int64_t i = 0; i < s->n && st == AX_OK; i++) {
        s->seqs[i].n_new = (int64_t)all[i * HEADER + N_NEW];
        s->seqs[i].finish = (enum ax_finish)all[i * HEADER + FINISH];
    }
    if (st == AX_OK)
        ax_generate_take_counters(&d->counters, before, all + s->n * HEADER, data_ranks(d));
    ax_free(all);
    return st;
}

static void move_numbers(double *list, double *numbers, int64_t n, bool out) {
    if (numbers && n > 0)
        memcpy(out ? numbers : list, out ? list : numbers, (size_t)n * sizeof *list);
}

/* A sequence's tokens, log-probs and entropies, and whether the tokens were the likeliest, as numbers; returns how
 * many. */
static int64_t move(struct ax_sequence *s, double *numbers, bool out) {
    const bool scored = s->n_scored > 0;
    const int64_t n_tokens = scored ? 0 : s->n_new;
    const int64_t n_logprobs = scored ? s->n_scored : s->logprobs ? s->n_new : 0;
    const int64_t n_entropies = !scored && s->entropies ? s->n_new : 0;
    for (int64_t k = 0; numbers && k < n_tokens; k++)
        if (out)
            numbers[k] = s->tokens[k];
        else
            s->tokens[k] = (int32_t)numbers[k];
    move_numbers(s->logprobs, numbers ? numbers + n_tokens : NULL, n_logprobs, out);
    move_numbers(s->entropies, numbers ? numbers + n_tokens + n_logprobs : NULL, n_entropies, out);
    const int64_t n = n_tokens + n_logprobs + n_entropies;
    if (numbers && out)
        numbers[n] = s->greedy;
    else if (numbers)
        s->greedy = numbers[n] > 0;
    return n + 1;
}

/* Does this rank know what became of sequence i? */
static bool knows(const struct share *s, int64_t i) {
    return s->role == AX_ROLE_PP ? ax_model_has_head(s->d->model) : is_own(s, i);
}

static enum ax_status share_piece(const struct share *s, int64_t from, int64_t to, int64_t count) {
    double *all;
    int64_t at = 0;
    AX_TRY(ax_alloc(&all, (size_t)count, sizeof *all));
    for (int64_t i = from; i < to; i++)
        at += move(&s->seqs[i], knows(s, i) ? all + at : NULL, true);
    const enum ax_status st = ax_runtime_combine(s->d->model->rt, s->role, AX_SUM, all, count);
    at = 0;
    for (int64_t i = from; i < to && st == AX_OK; i++)
        at += move(&s->seqs[i], knows(s, i) ? NULL : all + at, false);
    ax_free(all);
    return st;
}

/* Of sequences [first, end). */
static enum ax_status share_pieces(const struct share *s, int64_t first, int64_t end) {
    for (int64_t from = first, to; from < end; from = to) {
        int64_t count = 0;
        for (to = from; to < end && (to == from || count < SHARED_NUMBERS); to++)
            count += move(&s->seqs[to], NULL, true);
        AX_TRY(share_piece(s, from, to, count));
    }
    return AX_OK;
}

/* Others' sequences reach the callbacks as if they had been generated here. */
static enum ax_status tell(const struct share *s) {
    const struct ax_generate_options *o = &s->d->o;
    for (int64_t i = 0; i < s->n; i++) {
        struct ax_sequence *seq = &s->seqs[i];
        const int64_t n_new = seq->n_new;
        bool ignored = false;
        if (is_own(s, i))
            continue;
        for (int64_t k = 1; o->token && seq->n_scored == 0 && k <= n_new; k++) {
            seq->n_new = k;
            AX_TRY(o->token(o->ctx, seq, &ignored));
        }
        if (o->done)
            AX_TRY(o->done(o->ctx, seq));
    }
    return AX_OK;
}

/* A stage without the head knows the results of its sequences now. */
static enum ax_status tell_own(const struct share *s) {
    const struct ax_generate_options *o = &s->d->o;
    for (int64_t i = s->first; o->done && i < s->first + s->own; i++)
        AX_TRY(o->done(o->ctx, &s->seqs[i]));
    return AX_OK;
}

enum ax_status ax_generate_share(struct ax_generator *d, int64_t n, struct ax_sequence *seqs,
                                 const struct ax_generate_counters *before) {
    struct share s = {.d = d, .n = n, .seqs = seqs, .role = AX_ROLE_PP};
    ax_generate_deal(d, n, &s.first, &s.own);
    if (d->model->rt->mesh.size[AX_ROLE_PP] > 1)
        AX_TRY(share_pieces(&s, s.first, s.first + s.own));
    if (!ax_model_has_head(d->model))
        AX_TRY(tell_own(&s));
    if (data_ranks(d) == 1)
        return AX_OK;
    s.role = AX_ROLE_LOSS;
    AX_TRY(share_ends(&s, before));
    AX_TRY(share_pieces(&s, 0, n));
    return tell(&s);
}
