/* Room in the cache. Idle lanes keep their blocks for sequences that begin alike, until others need
 * them; where that is not enough, an active sequence waits again and is later computed again.
 *
 * This ends: the first of the active sequences is never put back while there are others, alone it has
 * room to its end, and nobody is put back unless another one has grown. Tokens that were chosen are
 * kept, and random numbers belong to positions, so nothing of this can be seen in the results. */
#include <string.h>

#include "model/generate/generate_lanes.h"

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
static void hold(const struct ax_generator *d, int lane, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        d->work->held[d->cache.table[lane * d->cache.columns + i]] = true;
}

/* Blocks of a sequence of n tokens, and one to grow. */
static int64_t blocks_to_grow(const struct ax_generator *d, int64_t n) {
    const int64_t blocks = ax_kvcache_blocks(n);
    return blocks < d->cache.columns ? blocks + 1 : blocks;
}

bool ax_lanes_have_room(const struct ax_generator *d, const struct ax_sequence *s,
                        const struct ax_lane_place *p) {
    const struct ax_kvcache *c = &d->cache;
    const int64_t shared = p->shared / AX_KV_BLOCK;
    int64_t needs = blocks_to_grow(d, ax_sequence_length(s)) - shared, others = c->n_blocks;
    memset(d->work->held, 0, (size_t)c->n_blocks * sizeof *d->work->held);
    hold(d, p->from, shared);
    for (int i = 0; i < d->o.n_seqs; i++) {
        const struct ax_lane *l = &d->lanes[i];
        if (!l->seq)
            continue;
        const int64_t own = ax_kvcache_blocks(c->length[i]);
        hold(d, i, own);
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
