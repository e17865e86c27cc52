/* First-fit decreasing in O(n log n): a tree over the micro-batches stores the largest free space
 * below each node, so one descent finds the first that fits. (D. S. Johnson, "Near-optimal bin
 * packing algorithms", 1973: at most 11/9 of the optimal number of bins.)
 *
 * A group is placed in a micro-batch with space for all its examples: if the total space
 * suffices but an example does not fit, the next micro-batch is tried. A group that does not fit
 * an empty micro-batch is placed in several new ones of a unit, if the options have units. */
#include <string.h>

#include "data/records/pipeline/pack_impl.h"

/* A sequence of a micro-batch. */
struct bin {
    int64_t used, docs;
};

struct fit {
    const struct ax_pack_options *o;
    const struct ax_corpus *c;
    size_t batch;             /* sequences of a micro-batch */
    size_t per_unit;          /* micro-batches that a group may take */
    struct ax_room_tree tree; /* of micro-batches; −1: the number of examples is at its limit */
    struct bin *bins;         /* [n_leaves][batch] */
    struct bin *trial;        /* [per_unit][batch] */
    uint32_t *sequence;       /* [c->n] the result */
    size_t n_batches;         /* number in use */
};

void ax_room_set(struct ax_room_tree *t, size_t leaf, int64_t room) {
    size_t i = t->n_leaves + leaf;
    t->room[i] = room;
    for (i /= 2; i > 0; i /= 2) {
        const int64_t left = t->room[2 * i];
        const int64_t right = t->room[2 * i + 1];
        t->room[i] = left > right ? left : right;
    }
}

size_t ax_room_find(const struct ax_room_tree *t, size_t start, int64_t need) {
    size_t i = start > 0 ? start + t->n_leaves : 1;
    if (start >= t->n_leaves)
        return t->n_leaves;
    while (t->room[i] < need) { /* goes up, then to the right neighbor */
        while (i & 1)
            i /= 2;
        if (i == 0)
            return t->n_leaves;
        i++;
    }
    while (i < t->n_leaves)
        i = 2 * i + (t->room[2 * i] < need);
    return i - t->n_leaves;
}

/* A merge sort. */
enum ax_status ax_pack_sort_falling(const int64_t *sizes, size_t n, uint32_t **order) {
    uint32_t *a;
    uint32_t *b = NULL;
    AX_TRY(ax_alloc(&a, n, sizeof *a));
    enum ax_status st = ax_alloc(&b, n, sizeof *b);
    if (st != AX_OK) {
        ax_free(a);
        return st;
    }
    for (size_t i = 0; i < n; i++)
        a[i] = (uint32_t)i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t start = 0; start < n; start += 2 * width) {
            const size_t middle = start + width < n ? start + width : n;
            const size_t end = start + 2 * width < n ? start + 2 * width : n;
            size_t i = start;
            size_t j = middle;
            for (size_t k = start; k < end; k++)
                b[k] = j >= end || (i < middle && sizes[a[i]] >= sizes[a[j]]) ? a[i++] : a[j++];
        }
        uint32_t *swap = a;
        a = b;
        b = swap;
    }
    ax_free(b);
    *order = a;
    return AX_OK;
}

static void count_room(struct fit *f, size_t leaf) {
    const struct bin *bins = f->bins + leaf * f->batch;
    int64_t room = 0;
    bool open = false;
    for (size_t s = 0; s < f->batch; s++) {
        const bool full = bins[s].docs == f->o->max_docs;
        room += full ? 0 : f->o->capacity - bins[s].used;
        open = open || !full;
    }
    ax_room_set(&f->tree, leaf, open ? room : -1);
}

/* Tries to place these examples, longest first, in `count` micro-batches from `leaf` on, each in
 * the first sequence with enough space. */
static bool place(struct fit *f, size_t leaf, size_t count, const uint32_t *members, size_t n) {
    struct bin *bins = f->bins + leaf * f->batch;
    const size_t n_bins = count * f->batch;
    size_t last = 0;
    memcpy(f->trial, bins, n_bins * sizeof *bins);
    for (size_t k = 0; k < n; k++) {
        const int64_t need = f->c->refs[members[k]].n;
        size_t s = 0;
        while (s < n_bins &&
               (f->trial[s].used + need > f->o->capacity || f->trial[s].docs == f->o->max_docs))
            s++;
        if (s == n_bins)
            return false;
        f->trial[s].used += need;
        f->trial[s].docs++;
        f->sequence[members[k]] = (uint32_t)(leaf * f->batch + s);
        last = s / f->batch > last ? s / f->batch : last;
    }
    memcpy(bins, f->trial, n_bins * sizeof *bins);
    for (size_t i = 0; i <= last; i++)
        count_room(f, leaf + i);
    f->n_batches = leaf + last + 1 > f->n_batches ? leaf + last + 1 : f->n_batches;
    return true;
}

/* Places the group in new micro-batches of the current unit, or of a new unit if the rest of
 * this one is too small. */
static bool place_over_unit(struct fit *f, const uint32_t *members, size_t n) {
    const size_t begun = f->n_batches % f->per_unit, leaf = f->n_batches;
    return place(f, leaf, f->per_unit - begun, members, n) ||
           (begun > 0 && place(f, leaf + f->per_unit - begun, f->per_unit, members, n));
}

/* Places a group in the first micro-batch that can take all of it. */
static enum ax_status place_group(struct fit *f, size_t first, uint32_t *members, int64_t size) {
    const size_t end = ax_corpus_group_end(f->c, first);
    size_t n = 0;
    for (size_t i = first; i < end; i++) {
        size_t k = n++;
        for (; k > 0 && f->c->refs[members[k - 1]].n < f->c->refs[i].n; k--)
            members[k] = members[k - 1];
        members[k] = (uint32_t)i;
    }
    for (size_t leaf = 0;; leaf++) {
        leaf = ax_room_find(&f->tree, leaf, size);
        const bool fresh = leaf >= f->n_batches;
        if (leaf < f->tree.n_leaves && place(f, leaf, 1, members, n))
            return AX_OK;
        if (fresh)
            return place_over_unit(f, members, n) ? AX_OK
                                                  : ax_pack_too_large(f->o, f->c, first, end);
    }
}

static enum ax_status place_all(struct fit *f, const uint32_t *firsts, size_t n) {
    uint32_t *order = NULL;
    uint32_t *members = NULL;
    int64_t *sizes = NULL;
    size_t largest = 1;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&sizes, n, sizeof *sizes), st, done);
    for (size_t g = 0; g < n; g++) {
        const size_t end = g + 1 < n ? firsts[g + 1] : f->c->n;
        for (size_t i = firsts[g]; i < end; i++)
            sizes[g] += f->c->refs[i].n;
        largest = end - firsts[g] > largest ? end - firsts[g] : largest;
    }
    AX_TRY_GOTO(ax_alloc(&members, largest, sizeof *members), st, done);
    AX_TRY_GOTO(ax_pack_sort_falling(sizes, n, &order), st, done);
    for (size_t g = 0; g < n; g++)
        AX_TRY_GOTO(place_group(f, firsts[order[g]], members, sizes[order[g]]), st, done);
done:
    ax_free(order);
    ax_free(members);
    ax_free(sizes);
    return st;
}

enum ax_status ax_pack_fit(const struct ax_pack_options *o, const struct ax_corpus *c,
                           uint32_t *sequence, size_t *n_sequences) {
    struct fit f = {.o = o,
                    .c = c,
                    .batch = (size_t)ax_pack_batch(o),
                    .per_unit = (size_t)(ax_pack_unit(o) / ax_pack_batch(o)),
                    .tree = {.n_leaves = 1},
                    .sequence = sequence};
    uint32_t *firsts = NULL;
    size_t n;
    enum ax_status st;
    AX_TRY_GOTO(ax_corpus_groups(c, 0, &firsts, &n), st, done);
    /* a group over a unit uses at most one micro-batch per example, and leaves fewer than that
     * empty */
    while (f.tree.n_leaves < (f.per_unit > 1 ? 2 * c->n + f.per_unit : n))
        f.tree.n_leaves *= 2;
    AX_TRY_GOTO(ax_alloc(&f.tree.room, 2 * f.tree.n_leaves, sizeof *f.tree.room), st, done);
    AX_TRY_GOTO(ax_alloc(&f.bins, f.tree.n_leaves * f.batch, sizeof *f.bins), st, done);
    AX_TRY_GOTO(ax_alloc(&f.trial, f.per_unit * f.batch, sizeof *f.trial), st, done);
    for (size_t i = 0; i < 2 * f.tree.n_leaves; i++)
        f.tree.room[i] = o->capacity * (int64_t)f.batch;
    st = place_all(&f, firsts, n);
    *n_sequences = (f.n_batches + f.per_unit - 1) / f.per_unit * f.per_unit * f.batch;
done:
    ax_free(f.tree.room);
    ax_free(f.bins);
    ax_free(f.trial);
    ax_free(firsts);
    return st;
}
