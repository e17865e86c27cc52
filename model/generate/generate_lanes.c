/* Assigns sequences to lanes, reuses keys and values of other lanes, and makes room in the cache. */
#include "model/generate/generate_lanes.h"

#include <string.h>

#include "base/mem.h"

/* ---- room in the cache ---- */

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

bool ax_lanes_make_room(struct ax_generator *d, int64_t n) {
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

void ax_lanes_put_back(struct ax_generator *d) {
    struct ax_generate_queue *u = &d->work->queue;
    struct ax_lane *last = NULL;
    int active = 0;
    for (int i = 0; i < d->o.n_seqs; i++) {
        struct ax_lane *l = &d->lanes[i];
        active += l->seq != NULL;
        if (l->seq && (!last || l->seq > last->seq))
            last = l;
    }
    AX_ASSERT(active > 1);
    u->waiting[last->seq - u->seqs] = true;
    u->n_waiting++;
    last->seq = NULL;
    d->counters.put_back++;
}

/* ---- assigning ---- */

/* Sharing fewer tokens than this with another lane is not worth the calls. */
#define FEW 16

enum ax_status ax_lanes_create(struct ax_generator *d) {
    const size_t cap = (size_t)d->cap, V = (size_t)d->model->arch.vocab_size;
    AX_TRY(ax_alloc(&d->lanes, (size_t)d->o.n_seqs, sizeof *d->lanes));
    for (int i = 0; i < d->o.n_seqs; i++) {
        struct ax_lane *l = &d->lanes[i];
        AX_TRY(ax_alloc(&l->ids, cap, sizeof *l->ids));
        if (!ax_sampling_penalises(&d->o.sampling))
            continue;
        AX_TRY(ax_alloc(&l->context, cap, sizeof *l->context));
        AX_TRY(ax_alloc(&l->seen, (V + 63) / 64, sizeof *l->seen));
    }
    return AX_OK;
}

void ax_lanes_free(struct ax_generator *d) {
    for (int i = 0; d->lanes && i < d->o.n_seqs; i++) {
        ax_free(d->lanes[i].ids);
        ax_free(d->lanes[i].context);
        ax_free(d->lanes[i].seen);
    }
    ax_free(d->lanes);
}

/* Adds a token to the context, once. */
static void note(struct ax_lane *l, int32_t id) {
    if (!l->seen || l->seen[id / 64] >> (id % 64) & 1)
        return;
    l->seen[id / 64] |= (uint64_t)1 << (id % 64);
    l->context[l->n_context++] = id;
}

void ax_lane_push(struct ax_generator *d, struct ax_lane *l, int32_t id) {
    AX_ASSERT(l->known < d->cap);
    l->ids[l->known++] = id;
    note(l, id);
    const int64_t lane = l - d->lanes;
    if (ax_lane_remakes(d) &&
        ax_lane_row_length(d, l->known) != ax_lane_row_length(d, l->known - 1))
        while (d->cache.length[lane] > 0)
            ax_kvcache_shorten(&d->cache, lane);
}

bool ax_lane_remakes(const struct ax_generator *d) {
    return d->model->arch.rope.kind == AX_ROPE_LONGROPE;
}

int64_t ax_lane_row_length(const struct ax_generator *d, int64_t known) {
    return ax_rope_length(&d->model->arch.rope, known);
}

/* True if the lane or the prompt is so long that its keys depend on the sequence's length. */
static bool keys_differ(const struct ax_generator *d, const struct ax_lane *l,
                        const struct ax_sequence *s) {
    const int64_t least = ax_lane_row_length(d, 0);
    return ax_lane_row_length(d, l->known) != least ||
           ax_lane_row_length(d, ax_sequence_length(s)) != least;
}

static int32_t token_of(const struct ax_sequence *s, int64_t i) {
    return i < s->n_prompt ? s->prompt[i] : s->tokens[i - s->n_prompt];
}

/* Number of leading tokens that the sequence shares with the first n of the lane, without its last,
 * or those that are scored, which must go through the model for their logits. */
static int64_t common(const struct ax_generator *d, const struct ax_lane *l, int64_t n,
                      const struct ax_sequence *s) {
    if (keys_differ(d, l, s))
        return 0;
    const int64_t rest = ax_sequence_length(s) - (s->n_scored > 0 ? s->n_scored : 1);
    const int64_t most = n < rest ? n : rest;
    int64_t i = 0;
    while (i < most && l->ids[i] == token_of(s, i))
        i++;
    return i;
}

static struct ax_lane_place find_place(const struct ax_generator *d, const struct ax_sequence *s) {
    struct ax_lane_place p = {.lane = -1};
    int64_t in_lane = -1, least = 0, elsewhere = 0, coming = 0;
    int from = 0;
    for (int i = 0; i < d->o.n_seqs; i++) {
        const struct ax_lane *l = &d->lanes[i];
        const int64_t length = d->cache.length[i], n = common(d, l, length, s);
        if (n > elsewhere) {
            elsewhere = n;
            from = i;
        }
        const int64_t soon = l->seq ? common(d, l, l->known, s) : 0;
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

static enum ax_status check(const struct ax_generator *d, int64_t index,
                            const struct ax_sequence *s) {
    if (s->n_prompt < 1 || s->n_prompt > d->o.max_prompt)
        return ax_error(AX_ERR_DATA, "generation: prompt %lld has %lld tokens; expected 1 to %lld",
                        (long long)index, (long long)s->n_prompt, (long long)d->o.max_prompt);
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

static enum ax_status settle(struct ax_generator *d, struct ax_sequence *s,
                             struct ax_lane_place p) {
    struct ax_lane *l = &d->lanes[p.lane];
    const int64_t before = d->cache.shared;
    AX_TRY(ax_kvcache_fork(&d->cache, d->model->rt->q, p.from, p.lane, p.shared));
    l->seq = s;
    l->known = l->n_context = 0;
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
    struct ax_generate_queue *u = &d->work->queue;
    for (int64_t i = 0; u->n_waiting > 0 && i < u->n && any_idle(d); i++) {
        if (!u->waiting[i])
            continue;
        if (!ax_lanes_make_room(d, 1)) /* a copy of the last block that is shared */
            break;
        const struct ax_lane_place p = find_place(d, &u->seqs[i]);
        if (p.lane < 0)
            continue;
        AX_TRY(check(d, i, &u->seqs[i]));
        if (!has_room_for(d, &u->seqs[i], &p))
            break;
        AX_TRY(settle(d, &u->seqs[i], p));
        u->waiting[i] = false;
        u->n_waiting--;
    }
    return AX_OK;
}
