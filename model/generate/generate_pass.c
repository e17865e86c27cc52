/* Lanes, and a pass of the model over their pending tokens, up to the requested logits and scores: assigns
 * sequences to lanes, reuses keys and values of other lanes, and makes room in the cache. */
#include "model/generate/generate_pass.h"

#include <string.h>

#include "base/mem.h"
#include "model/adapter/load.h"
#include "model/core/adapters.h"
#include "model/parts/head.h"

/* ---- lanes: room in the cache ---- */

/* The lane for a sequence, and the lane with which it shares tokens. */
struct ax_lane_place {
    int lane; /* −1: none yet */
    int from;
    int64_t shared;
};

/* Idle lanes keep their blocks for sequences that begin alike, until others need
 * them; where that is not enough, an active sequence waits again and is later computed again.
 *
 * This ends: the first of the active sequences is never put back while there are others, alone it has
 * room to its end, and nobody is put back unless another one has grown. Tokens that were chosen are
 * kept, and random numbers belong to positions, so nothing of this can be seen in the results. */

/* The longest one loses its last block first: what lanes begin with is more likely to be of use. */
static int longest_idle(const struct ax_generator *d) {
    int longest = -1;
    int64_t most = 0;
    for (int i = 0; i < d->o.n_seqs; i++)
        if (!d->lanes[i].seq && d->cache.length[i] > most) {
            longest = i;
            most = d->cache.length[i];
        }
    return longest;
}

/* Makes n blocks free, if necessary by taking them from idle lanes; false if those do not
 * suffice. */
static bool make_room(struct ax_generator *d, int64_t n) {
    while (d->cache.n_free < n) {
        const int lane = longest_idle(d);
        if (lane < 0)
            return false;
        ax_kvcache_shorten(&d->cache, lane);
    }
    return true;
}

/* Notes the first n blocks of a lane as held. */
static void hold_blocks(const struct ax_generator *d, int lane, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        d->work->held[d->cache.table[lane * d->cache.columns + i]] = true;
}

/* Blocks of a sequence of n tokens, and one to grow. */
static int64_t blocks_to_grow(const struct ax_generator *d, int64_t n) {
    const int64_t blocks = ax_kvcache_blocks(n);
    return blocks < d->cache.columns ? blocks + 1 : blocks;
}

/* True if the blocks suffice for the sequence and all active ones to continue for a block each, or
 * to their ends. */
static bool has_room_for(const struct ax_generator *d, const struct ax_sequence *s,
                         const struct ax_lane_place *p) {
    const struct ax_kvcache *c = &d->cache;
    const int64_t shared = p->shared / AX_KV_BLOCK;
    int64_t needs = blocks_to_grow(d, ax_sequence_length(s)) - shared, others = c->n_blocks;
    memset(d->work->held, 0, (size_t)c->n_blocks * sizeof *d->work->held);
    hold_blocks(d, p->from, shared);
    for (int i = 0; i < d->o.n_seqs; i++) {
        const struct ax_lane *l = &d->lanes[i];
        if (!l->seq)
            continue;
        const int64_t own = ax_kvcache_blocks(c->length[i]);
        hold_blocks(d, i, own);
        needs += blocks_to_grow(d, l->known) - own;
    }
    for (int64_t i = 0; i < c->n_blocks; i++)
        others -= d->work->held[i];
    return others >= needs;
}

/* Puts the last of the active sequences back into the queue; its lane becomes idle. */
static void put_back(struct ax_generator *d) {
    struct ax_lane *last = NULL;
    int active = 0;
    for (int i = 0; i < d->o.n_seqs; i++) {
        struct ax_lane *l = &d->lanes[i];
        active += l->seq != NULL;
        if (l->seq && (!last || ax_sequence_before(last->seq, l->seq)))
            last = l;
    }
    AX_ASSERT(active > 1);
    ax_lanes_enqueue(d, last->seq);
    last->seq = NULL;
    d->counters.put_back++;
}

/* ---- lanes: assigning ---- */

/* Sharing fewer tokens than this with another lane is not worth the calls. */
#define FEW 16

static enum ax_status create_lanes(struct ax_generator *d) {
    const size_t cap = (size_t)d->cap, V = (size_t)d->model->arch.vocab_size;
    AX_TRY(ax_alloc(&d->lanes, (size_t)d->o.n_seqs, sizeof *d->lanes));
    for (int i = 0; i < d->o.n_seqs; i++) {
        struct ax_lane *l = &d->lanes[i];
        AX_TRY(ax_alloc(&l->ids, cap, sizeof *l->ids));
        if (!d->o.varied && !ax_sampling_penalises(&d->o.sampling))
            continue;
        AX_TRY(ax_alloc(&l->context, cap, sizeof *l->context));
        AX_TRY(ax_alloc(&l->seen, (V + 63) / 64, sizeof *l->seen));
    }
    return AX_OK;
}

static void free_lanes(struct ax_generator *d) {
    for (int i = 0; d->lanes && i < d->o.n_seqs; i++) {
        ax_free(d->lanes[i].ids);
        ax_free(d->lanes[i].context);
        ax_free(d->lanes[i].seen);
    }
    ax_free(d->lanes);
}

/* Adds a token to the context, once. */
static void note_token(struct ax_lane *l, int32_t id) {
    if (!l->seen || l->seen[id / 64] >> (id % 64) & 1)
        return;
    l->seen[id / 64] |= (uint64_t)1 << (id % 64);
    l->context[l->n_context++] = id;
}

/* True if a sequence must compute all its keys again when its row length changes, because keys
 * depend on it: with longrope, at the original length. */
static bool lane_remakes(const struct ax_generator *d) {
    return d->model->arch.rope.kind == AX_ROPE_LONGROPE;
}

/* The sequence length that rope assumes for a lane with this many tokens. The frequencies of
 * dynamic rope depend on the sequence's length once that exceeds max_position_embeddings, so
 * sequences of different lengths share neither passes nor keys. Other rope kinds always use the
 * same length. */
static int64_t lane_row_length(const struct ax_generator *d, int64_t known) {
    return ax_rope_length(&d->model->arch.rope, known);
}

void ax_lane_push(struct ax_generator *d, struct ax_lane *l, int32_t id) {
    AX_ASSERT(l->known < d->cap);
    l->ids[l->known++] = id;
    note_token(l, id);
    const int64_t lane = l - d->lanes;
    if (lane_remakes(d) && lane_row_length(d, l->known) != lane_row_length(d, l->known - 1))
        while (d->cache.length[lane] > 0)
            ax_kvcache_shorten(&d->cache, lane);
}

/* True if the lane or the prompt is so long that its keys depend on the sequence's length. */
static bool keys_differ(const struct ax_generator *d, const struct ax_lane *l,
                        const struct ax_sequence *s) {
    const int64_t least = lane_row_length(d, 0);
    return lane_row_length(d, l->known) != least ||
           lane_row_length(d, ax_sequence_length(s)) != least;
}

static int32_t token_of(const struct ax_sequence *s, int64_t i) {
    return i < s->n_prompt ? s->prompt[i] : s->tokens[i - s->n_prompt];
}

/* Tokens of a sequence without its last, or those that are scored, which must go through the model for their
 * logits: what it may share with others. */
static int64_t shareable_tokens(const struct ax_sequence *s) {
    return ax_sequence_length(s) - (s->n_scored > 0 ? s->n_scored : 1);
}

static int adapter_of(const struct ax_generator *d, const struct ax_sequence *s) {
    return d->o.adapters ? s->adapter : AX_ADAPTER_NONE;
}

/* Number of leading tokens of these that the sequence shares with the first n of the lane. */
static int64_t common_tokens(const struct ax_generator *d, const struct ax_lane *l, int64_t n,
                             const struct ax_sequence *s) {
    if (keys_differ(d, l, s) || l->adapter != adapter_of(d, s) || l->salt != s->salt)
        return 0;
    const int64_t rest = shareable_tokens(s), most = n < rest ? n : rest;
    int64_t i = 0;
    while (i < most && l->ids[i] == token_of(s, i))
        i++;
    return i;
}

/* Those that a lane will have when its sequence's tokens have gone through the model. */
static int64_t coming_tokens(const struct ax_generator *d, const struct ax_lane *l,
                             const struct ax_sequence *s) {
    const int64_t n = l->seq ? common_tokens(d, l, l->known, s) : 0;
    if (d->cache.states.n_layers == 0)
        return n;
    return l->keep_at <= n ? l->keep_at : 0;
}

static struct ax_lane_place find_place(const struct ax_generator *d, const struct ax_sequence *s) {
    struct ax_lane_place p = {.lane = -1};
    int64_t in_lane = -1, least = 0, elsewhere = 0, coming = 0;
    int from = 0;
    for (int i = 0; i < d->o.n_seqs; i++) {
        const struct ax_lane *l = &d->lanes[i];
        const int64_t length = d->cache.length[i];
        const int64_t n = ax_kvcache_place(&d->cache, i, common_tokens(d, l, length, s));
        if (n > elsewhere) {
            elsewhere = n;
            from = i;
        }
        const int64_t soon = coming_tokens(d, l, s);
        coming = soon > coming ? soon : coming;
        /* among idle lanes, the one that shares most, then the one that loses least */
        if (!l->seq && (n > in_lane || (n == in_lane && length < least))) {
            p.lane = p.from = i;
            p.shared = in_lane = n;
            least = length;
        }
    }
    if (elsewhere >= p.shared + FEW) {
        p.from = from;
        p.shared = elsewhere;
    }
    if (coming >= p.shared + FEW) /* more is being computed in another lane: wait for it */
        p.lane = -1;
    return p;
}

static enum ax_status check_sequence(const struct ax_generator *d, const struct ax_sequence *s) {
    const int64_t index = s->place, most = d->o.long_prompts ? d->cap - 1 : d->o.max_prompt;
    if (s->n_prompt < 1 || s->n_prompt > most)
        return ax_error(AX_ERR_DATA, "generation: prompt %lld has %lld tokens; expected 1 to %lld",
                        (long long)index, (long long)s->n_prompt, (long long)most);
    AX_ASSERT(!d->o.long_prompts || s->n_prompt + s->max_new <= d->cap);
    AX_ASSERT(s->n_scored <= s->n_prompt && (s->n_scored == 0 || d->o.scoring));
    for (int64_t i = 0; i < s->n_prompt; i++)
        if (s->prompt[i] < 0 || s->prompt[i] >= d->model->arch.vocab_size)
            return ax_error(AX_ERR_DATA,
                            "generation: prompt %lld, token %lld: id %d is outside the vocabulary "
                            "of %lld",
                            (long long)index, (long long)i, s->prompt[i],
                            (long long)d->model->arch.vocab_size);
    for (int64_t i = 0; i < s->n_scored; i++)
        if (s->scored[i] < 0 || s->scored[i] >= d->model->arch.vocab_size)
            return ax_error(AX_ERR_DATA,
                            "generation: prompt %lld is continued by id %d, which is outside the "
                            "vocabulary of %lld",
                            (long long)index, s->scored[i], (long long)d->model->arch.vocab_size);
    return AX_OK;
}

/* Keeps the place at which others may go on, when the lane has come to it. */
static enum ax_status keep_place(struct ax_generator *d, int lane) {
    return d->cache.length[lane] == d->lanes[lane].keep_at
               ? ax_kvcache_keep(&d->cache, d->model->rt->q, lane)
               : AX_OK;
}

static enum ax_status settle_on_lane(struct ax_generator *d, struct ax_sequence *s,
                                     struct ax_lane_place p) {
    struct ax_lane *l = &d->lanes[p.lane];
    const int64_t before = d->cache.shared;
    AX_TRY(ax_kvcache_fork(&d->cache, d->model->rt->q, p.from, p.lane, p.shared));
    l->seq = s;
    l->adapter = adapter_of(d, s);
    l->drafted = false;
    l->salt = s->salt;
    if (!s->begun) /* later, what it has computed itself is shared, too */
        s->n_shared = p.shared;
    s->begun = true;
    l->known = l->n_context = 0;
    l->keep_at = shareable_tokens(s);
    AX_TRY(keep_place(d, p.lane));
    if (l->seen)
        memset(l->seen, 0, ((size_t)d->model->arch.vocab_size + 63) / 64 * sizeof *l->seen);
    for (int64_t i = 0; i < ax_sequence_length(s); i++)
        ax_lane_push(d, l, token_of(s, i));
    s->greedy = true;
    d->counters.shared_tokens += p.shared;
    d->counters.shared_blocks += d->cache.shared - before;
    return AX_OK;
}

static bool any_idle(const struct ax_generator *d) {
    for (int i = 0; i < d->o.n_seqs; i++)
        if (!d->lanes[i].seq)
            return true;
    return false;
}

/* In their order: one that there is no room for lets those after it wait, too. */
enum ax_status ax_lanes_admit(struct ax_generator *d) {
    struct ax_sequence **at = &d->work->queue.first;
    while (*at && any_idle(d)) {
        struct ax_sequence *s = *at;
        if (!make_room(d, 1)) /* a copy of the last block that is shared */
            break;
        const struct ax_lane_place p = find_place(d, s);
        if (p.lane < 0) {
            at = &s->next;
            continue;
        }
        AX_TRY(check_sequence(d, s));
        if (!has_room_for(d, s, &p))
            break;
        *at = s->next;
        AX_TRY(settle_on_lane(d, s, p));
    }
    return AX_OK;
}

/* ---- memory of a pass ---- */

static enum ax_status create_work(struct ax_generator *d) {
    const size_t T = (size_t)d->o.pass_tokens, S = (size_t)d->o.n_seqs;
    AX_TRY(ax_alloc(&d->work, 1, sizeof *d->work));
    struct ax_generate_work *w = d->work;
    AX_TRY(ax_alloc(&w->tokens, T, sizeof *w->tokens));
    AX_TRY(ax_alloc(&w->positions, T, sizeof *w->positions));
    AX_TRY(ax_alloc(&w->cu, S + 1, sizeof *w->cu));
    AX_TRY(ax_alloc(&w->lane, S, sizeof *w->lane));
    AX_TRY(ax_alloc(&w->n, S, sizeof *w->n));
    AX_TRY(ax_alloc(&w->pending, S, sizeof *w->pending));
    AX_TRY(ax_alloc(&w->given, S, sizeof *w->given));
    AX_TRY(ax_alloc(&w->ids, (size_t)d->row_cap, sizeof *w->ids));
    AX_TRY(ax_alloc(&w->held, (size_t)d->cache.n_blocks, sizeof *w->held));
    if (d->o.drafts)
        AX_TRY(ax_alloc(&w->next, T, sizeof *w->next));
    if (d->o.adapters)
        AX_TRY(ax_alloc(&w->busy, (size_t)d->model->bank->n + 1, sizeof *w->busy));
    return ax_alloc(&w->row, (size_t)d->row_cap, sizeof *w->row);
}

static void free_work(struct ax_generator *d) {
    struct ax_generate_work *w = d->work;
    if (!w)
        return;
    ax_free(w->tokens);
    ax_free(w->positions);
    ax_free(w->cu);
    ax_free(w->lane);
    ax_free(w->n);
    ax_free(w->pending);
    ax_free(w->given);
    ax_free(w->ids);
    ax_free(w->held);
    ax_free(w->next);
    ax_free(w->busy);
    ax_free(w->row);
    ax_free(w);
}

static void allocate_pass(struct ax_generator *d, struct ax_stack *stack) {
    const struct ax_model *m = d->model;
    const int64_t n = d->row_cap;
    ax_batch_allocate(&d->batch, stack, d->o.pass_tokens, d->o.n_seqs, d->cap, 1, 0);
    if (d->o.drafts)
        d->batch.ahead.tokens = ax_stack_take(stack, "decode next tokens",
                                              ax_tensor_1d(AX_I32, NULL, d->o.pass_tokens));
    d->logits = ax_tensor_2d(m->accum, NULL, n, m->lm_head->local_shape[0]);
    d->hidden = ax_tensor_2d(m->dtype, NULL, n, m->arch.hidden_size);
    d->logits = ax_stack_take(stack, "decode logits", d->logits);
    d->hidden = ax_stack_take(stack, "decode hidden", d->hidden);
    d->rows = ax_stack_take(stack, "decode rows", ax_tensor_1d(AX_I32, NULL, n));
}

enum ax_status ax_generate_pass_create(struct ax_generator *d, struct ax_stack *stack) {
    allocate_pass(d, stack);
    if (d->o.scoring)
        AX_TRY(ax_lane_scores_create(d, stack));
    AX_TRY(create_lanes(d));
    return create_work(d);
}

void ax_generate_pass_free(struct ax_generator *d) {
    free_work(d);
    free_lanes(d);
    ax_lane_scores_free(d);
}

/* ---- a pass: what goes in ---- */

static void add_piece(struct ax_generator *d, int lane, int64_t n) {
    struct ax_generate_work *w = d->work;
    const int64_t from = d->cache.length[lane];
    memcpy(w->tokens + w->n_tokens, d->lanes[lane].ids + from, (size_t)n * sizeof *w->tokens);
    for (int64_t i = 0; i < n; i++)
        w->positions[w->n_tokens + i] = (int32_t)(from + i);
    w->n_tokens += n;
    w->lane[w->n_docs] = lane;
    w->n[w->n_docs++] = n;
    w->cu[w->n_docs] = (int32_t)w->n_tokens;
}

/* A draft follows the lane's last token. */
static int64_t with_draft(const struct ax_generator *d, int lane, int64_t n) {
    const struct ax_lane *l = &d->lanes[lane];
    return n == 1 && l->drafted ? 2 : n;
}

/* Tokens of the lane that come next, of one length for rope: that of the prompt, or of the sequence
 * when a token had been chosen, as that was when it went through the model for the first time. With states,
 * a pass ends where a place is to be kept. */
static int64_t pending_tokens(const struct ax_generator *d, int lane, int64_t *row_length) {
    const struct ax_lane *l = &d->lanes[lane];
    const int64_t start = d->cache.length[lane];
    if (!l->seq)
        return 0;
    if (lane_remakes(d)) {
        *row_length = lane_row_length(d, l->known);
        return l->known - start;
    }
    int64_t end = start < l->seq->n_prompt ? l->seq->n_prompt : start + 1;
    *row_length = lane_row_length(d, end);
    while (end < l->known && lane_row_length(d, end + 1) == *row_length)
        end++;
    if (d->cache.states.n_layers > 0 && start < l->keep_at && l->keep_at < end)
        end = l->keep_at;
    return end - start;
}

/* How many passes an adapter has while others wait. Changing it is cheap, unless an adapter replaces matrices
 * of the base, which are then read again. */
#define TURN 8

/* For which adapters there are pending tokens. */
static enum ax_status note_adapters(struct ax_generator *d) {
    double *busy = d->work->busy;
    int64_t length;
    if (!d->o.adapters)
        return AX_OK;
    memset(busy, 0, (size_t)(d->model->bank->n + 1) * sizeof *busy);
    for (int i = 0; i < d->o.n_seqs; i++)
        if (pending_tokens(d, i, &length) > 0)
            busy[d->lanes[i].adapter + 1] = 1;
    return ax_generate_agree_on_adapters(d);
}

/* The adapter of the next pass: the active one to the end of its turn, then the one after it. */
static int next_adapter(const struct ax_generator *d) {
    if (!d->o.adapters)
        return AX_ADAPTER_NONE;
    const int active = d->model->bank->active, n = d->model->bank->n + 1;
    const double *busy = d->work->busy + 1;
    if (d->work->turn > 0 && busy[active] > 0)
        return active;
    for (int k = 1; k <= n; k++) {
        const int adapter = (active + 1 + k) % n - 1; /* those from AX_ADAPTER_NONE on */
        if (busy[adapter] > 0)
            return adapter;
    }
    return active;
}

static enum ax_status use_adapter(struct ax_generator *d, int adapter) {
    struct ax_generate_work *w = d->work;
    if (!d->o.adapters)
        return AX_OK;
    w->turn = adapter == d->model->bank->active && w->turn > 0 ? w->turn - 1 : TURN - 1;
    return ax_adapter_bank_use(d->model, adapter);
}

/* The shortest of the sequences with pending tokens: it may catch up with the others and then share
 * passes with them. */
static int64_t shortest_row(const struct ax_generator *d, int adapter) {
    int64_t least = INT64_MAX, length;
    for (int i = 0; i < d->o.n_seqs; i++)
        if (d->lanes[i].adapter == adapter && pending_tokens(d, i, &length) > 0 && length < least)
            least = length;
    return least;
}

/* Active sequences first, one token each and its draft, which always fit; then prompts share what is left. All
 * for one adapter, and of one length if rope depends on it. */
static void collect_pieces(struct ax_generator *d, int adapter) {
    struct ax_generate_work *w = d->work;
    w->n_docs = w->n_tokens = 0;
    w->cu[0] = 0;
    w->row_length = shortest_row(d, adapter);
    for (int i = 0; i < d->o.n_seqs; i++) {
        int64_t length = 0;
        const int64_t n = pending_tokens(d, i, &length), left = d->o.pass_tokens - w->n_tokens;
        const bool fits = length == w->row_length && d->lanes[i].adapter == adapter;
        const int64_t all = with_draft(d, i, n);
        w->pending[i] = fits && n > 1 ? n : 0;
        if (fits && n == 1 && left > 0)
            add_piece(d, i, all < left ? all : left);
    }
    ax_lanes_share_pass(d, d->o.pass_tokens - w->n_tokens, w->pending, w->given);
    for (int i = 0; i < d->o.n_seqs; i++)
        if (w->given[i] > 0)
            add_piece(d, i, w->given[i]);
}

static int64_t blocks_needed(const struct ax_generator *d) {
    const struct ax_generate_work *w = d->work;
    int64_t n = 0;
    for (int64_t i = 0; i < w->n_docs; i++)
        n += ax_kvcache_needs(&d->cache, w->lane[i], w->n[i]);
    return n;
}

static enum ax_status collect_in_room(struct ax_generator *d) {
    AX_TRY(note_adapters(d));
    const int adapter = next_adapter(d);
    collect_pieces(d, adapter);
    while (!make_room(d, blocks_needed(d))) {
        put_back(d);
        collect_pieces(d, adapter);
    }
    return use_adapter(d, adapter);
}

/* For planning: T tokens, spread over as many lanes as they reach. */
static void collect_planned(struct ax_generator *d, int64_t T) {
    struct ax_generate_work *w = d->work;
    const int64_t S = d->o.n_seqs < T ? d->o.n_seqs : T;
    w->n_docs = w->n_tokens = w->row_length = 0;
    memset(d->cache.length, 0, (size_t)d->o.n_seqs * sizeof *d->cache.length);
    for (int i = 0; i < S; i++)
        add_piece(d, i, T / S + (i < T % S));
}

/* Tokens of one document, at most: a plan covers passes of one document too. */
static int64_t most_tokens(const struct ax_generator *d) {
    const struct ax_generate_work *w = d->work;
    int64_t most = ax_runtime_planning(d->model->rt) ? w->T : 1;
    for (int64_t i = 0; i < w->n_docs; i++)
        most = w->n[i] > most ? w->n[i] : most;
    return most;
}

static enum ax_status send_pass(struct ax_generator *d) {
    const struct ax_generate_work *w = d->work;
    struct ax_queue *q = d->model->rt->q;
    struct ax_batch *b = &d->batch;
    for (int64_t t = w->n_tokens; t < w->T; t++)
        w->tokens[t] = w->positions[t] = 0;
    b->T = w->T;
    b->max_queries = most_tokens(d);
    b->n_tokens = w->n_tokens;
    b->n_docs = w->n_docs;
    b->max_position = w->row_length - 1;
    b->tokens.shape[0] = b->positions.shape[0] = w->T;
    b->cu_seqlens.shape[0] = b->runs[0].cu_q.shape[0] = b->runs[0].cu_k.shape[0] = w->n_docs + 1;
    const size_t bytes = (size_t)w->T * sizeof *w->tokens;
    AX_TRY(ax_queue_write(q, b->tokens.data, w->tokens, bytes));
    AX_TRY(ax_queue_write(q, b->positions.data, w->positions, bytes));
    AX_TRY(ax_queue_write(q, b->cu_seqlens.data, w->cu, (size_t)(w->n_docs + 1) * sizeof *w->cu));
    return ax_kvcache_advance(&d->cache, q, w->T, w->n_docs, w->lane, w->n);
}

/* ---- a pass: what comes out ---- */

const struct ax_sampling *ax_lane_sampling(const struct ax_generator *d, int lane) {
    const struct ax_sequence *s = d->lanes[lane].seq;
    return s && s->sampling ? s->sampling : &d->sampler.o;
}

static bool same_sampling(const struct ax_sampling *a, const struct ax_sampling *b) {
    return a == b ||
           (a->temperature == b->temperature && a->top_k == b->top_k && a->top_p == b->top_p &&
            a->min_p == b->min_p && a->repetition_penalty == b->repetition_penalty &&
            a->seed == b->seed && a->truncated == b->truncated && a->raw == b->raw);
}

static bool has_bias(const struct ax_generator *d, int lane) {
    const struct ax_sequence *s = d->lanes[lane].seq;
    return s && s->bias;
}

bool ax_lanes_choose_alike(const struct ax_generator *d, int a, int b) {
    return a == b || (!has_bias(d, a) && !has_bias(d, b) &&
                      same_sampling(ax_lane_sampling(d, a), ax_lane_sampling(d, b)));
}

void ax_lanes_add_row(struct ax_generator *d, int32_t *lanes, int lane, int32_t row) {
    struct ax_generate_work *w = d->work;
    int64_t at = w->n_rows;
    while (at > 0 && !ax_lanes_choose_alike(d, lanes[at - 1], lane))
        at--;
    at = at == 0 ? w->n_rows : at;
    memmove(lanes + at + 1, lanes + at, (size_t)(w->n_rows - at) * sizeof *lanes);
    memmove(w->row + at + 1, w->row + at, (size_t)(w->n_rows - at) * sizeof *w->row);
    lanes[at] = lane;
    w->row[at] = row;
    w->n_rows++;
}

/* Requests logits for the last row of every document that ends where its lane's tokens end, unless
 * it is scored. */
static void list_rows(struct ax_generator *d, int32_t *lanes) {
    struct ax_generate_work *w = d->work;
    const bool planning = ax_runtime_planning(d->model->rt);
    w->n_rows = 0;
    for (int64_t i = 0; i < w->n_docs; i++) {
        const int lane = w->lane[i];
        const struct ax_lane *l = &d->lanes[lane];
        const int64_t end = d->cache.length[lane] + w->n[i];
        if (!planning && (end < l->known || l->seq->n_scored > 0))
            continue;
        if (planning ? d->o.drafts && w->n[i] > 1 : end > l->known)
            ax_lanes_add_row(d, lanes, lane, w->cu[i + 1] - 2);
        ax_lanes_add_row(d, lanes, lane, w->cu[i + 1] - 1);
    }
}

enum ax_status ax_lanes_make_logits(struct ax_generator *d, ax_logits_of_rows *make) {
    struct ax_generate_work *w = d->work;
    const int64_t n = w->n_rows > 0 ? w->n_rows : 1;
    const struct ax_tensor logits = ax_tensor_rows(&d->logits, 0, n);
    const struct ax_tensor rows = ax_tensor_rows(&d->rows, 0, n);
    if (w->n_rows == 0)
        w->row[0] = 0;
    AX_TRY(ax_queue_write(d->model->rt->q, rows.data, w->row, ax_tensor_bytes(&rows)));
    return make(&d->pass, &rows, &d->hidden, &logits);
}

static enum ax_status forward_pass(struct ax_generator *d, const struct ax_pass_need *need) {
    struct ax_pass *p = &d->pass;
    *p = (struct ax_pass){.model = d->model,
                          .batch = &d->batch,
                          .slot = &d->slot,
                          .recompute = AX_RECOMPUTE_INFERENCE,
                          .inv_temperature =
                              d->o.score_temperature > 0 ? 1 / d->o.score_temperature : 1,
                          .sampling = d->o.sampling,
                          .cache = &d->cache};
    AX_TRY(ax_pass_begin(p));
    AX_TRY(ax_pass_forward_all(p));
    if (need->logits && ax_model_has_head(d->model))
        AX_TRY(ax_lanes_make_logits(d, ax_pass_logits_of));
    AX_TRY(ax_lane_scores_run(d, p, need->windows));
    if (!d->o.drafts)
        ax_pass_end(p);
    for (int64_t i = 0; !ax_runtime_planning(d->model->rt) && i < d->work->n_docs; i++)
        AX_TRY(keep_place(d, d->work->lane[i]));
    return AX_OK;
}

/* The most of the likeliest tokens that a sequence of the pass asks for. */
static int64_t most_likeliest(const struct ax_generator *d) {
    int64_t most = 0;
    for (int i = 0; i < d->o.n_seqs; i++)
        if (d->lanes[i].seq && d->lanes[i].seq->n_best > most)
            most = d->lanes[i].seq->n_best;
    return most;
}

enum ax_status ax_generate_run_pass(struct ax_generator *d, int64_t planned, int64_t *n_rows,
                                    int32_t *lanes, bool *ends) {
    struct ax_generate_work *w = d->work;
    if (planned > 0)
        collect_planned(d, planned);
    else
        AX_TRY(collect_in_room(d));
    list_rows(d, lanes);
    struct ax_pass_need *need = &w->need;
    *need = (struct ax_pass_need){.tokens = w->n_tokens,
                                  .stop = planned == 0 && d->o.stop_now && d->o.stop_now(d->o.ctx),
                                  .logits = w->n_rows > 0,
                                  .windows = ax_lane_scores_list(d),
                                  .starved = planned == 0 && d->o.waits && d->o.waits(d->o.ctx),
                                  .best = most_likeliest(d)};
    need->rows = w->n_rows + (d->scores ? d->scores->n_listed : 0);
    AX_TRY(ax_generate_agree(d, need));
    *n_rows = w->n_rows;
    w->T = need->tokens;
    *ends = need->tokens == 0 || need->stop;
    if (*ends)
        return AX_OK;
    AX_TRY(send_pass(d));
    return forward_pass(d, need);
}
