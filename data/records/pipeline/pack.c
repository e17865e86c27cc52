/* Packing: what all modes share, then the modes in order: one after the other, wrapped, first fit, best
 * fit. */
#include "data/records/pipeline/pack.h"

#include <string.h>

#include "base/mem.h"

#define NONE UINT32_MAX

/* Appends a piece to the open sequence; ends it. */
static enum ax_status add_piece(struct ax_pack *p, struct ax_pack_piece piece) {
    AX_TRY(ax_grow(&p->pieces, p->n_pieces, &p->cap_pieces, sizeof *p->pieces));
    p->pieces[p->n_pieces++] = piece;
    return AX_OK;
}

static enum ax_status end_sequence(struct ax_pack *p) {
    if (p->n + 2 > p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 256;
        AX_TRY(ax_regrow(&p->firsts, p->cap, cap, sizeof *p->firsts));
        p->cap = cap;
    }
    p->firsts[++p->n] = p->n_pieces;
    return AX_OK;
}

/* The error for the group refs[first, end). */
static enum ax_status too_large(const struct ax_pack_options *o, const struct ax_corpus *c,
                                size_t first, size_t end) {
    char where[512];
    const struct ax_example_ref *r = &c->refs[first];
    int64_t tokens = 0;
    for (size_t i = first; i < end; i++)
        tokens += c->refs[i].n;
    return ax_error(AX_ERR_DATA,
                    "%s: a group of %zu examples with %lld tokens does not fit a %s of "
                    "%lld sequences of %lld tokens; raise sequence_len or %s",
                    ax_examples_where(&c->sets[r->set], r->index, where, sizeof where), end - first,
                    (long long)tokens, o->step > 0 ? "step" : "micro-batch",
                    (long long)ax_pack_unit(o), (long long)o->capacity,
                    o->step > 0 ? "gradient_accumulation_steps" : "micro_batch_size");
}

/* ---- in order ---- */

struct place {
    int64_t used, docs, sequence; /* within the unit */
};

/* Advances past n more tokens. */
static void advance(struct place *at, const struct ax_pack_options *o, uint32_t n) {
    if (at->docs > 0 && (at->used + n > o->capacity || at->docs == o->max_docs))
        *at = (struct place){.sequence = at->sequence + 1};
    at->used += n;
    at->docs++;
}

/* True if the examples [first, end) end before sequence `limit`. */
static bool fits(struct place at, const struct ax_pack_options *o, const struct ax_corpus *c,
                 size_t first, size_t end, int64_t limit) {
    for (size_t i = first; i < end; i++)
        advance(&at, o, c->refs[i].n);
    return at.sequence < limit;
}

/* The end of the current micro-batch. */
static int64_t batch_end(struct place at, const struct ax_pack_options *o) {
    return (at.sequence / ax_pack_batch(o) + 1) * ax_pack_batch(o);
}

/* Ends sequences of the current unit until `upto` are closed; the last ones may be empty. */
static enum ax_status close_upto(struct ax_pack *p, int64_t *closed, int64_t upto) {
    for (; *closed < upto; ++*closed)
        AX_TRY(end_sequence(p));
    return AX_OK;
}

/* Advances to sequence `to`, which begins a micro-batch or the next unit; a no-op at the start
 * of a unit. */
static enum ax_status move_on(struct ax_pack *p, const struct ax_pack_options *o, struct place *at,
                              int64_t *closed, int64_t to) {
    if (at->docs == 0 && at->sequence == 0)
        return AX_OK;
    *at = (struct place){.sequence = to};
    AX_TRY(close_upto(p, closed, to));
    if (to == ax_pack_unit(o))
        at->sequence = *closed = 0;
    return AX_OK;
}

/* A group follows the previous one if it fits into the same micro-batch, else it begins a new
 * one. If it fits into no micro-batch, it spreads over the rest of the unit or a new unit. */
static enum ax_status pack_in_order(struct ax_pack *p, const struct ax_pack_options *o,
                                    const struct ax_corpus *c) {
    const int64_t unit = ax_pack_unit(o);
    struct place at = {0};
    int64_t closed = 0;
    for (size_t i = 0; i < c->n;) {
        const size_t end = ax_corpus_group_end(c, i);
        if (!fits(at, o, c, i, end, batch_end(at, o)))
            AX_TRY(move_on(p, o, &at, &closed, batch_end(at, o)));
        if (!fits(at, o, c, i, end, unit))
            AX_TRY(move_on(p, o, &at, &closed, unit));
        if (!fits(at, o, c, i, end, unit))
            return too_large(o, c, i, end);
        for (; i < end; i++) {
            advance(&at, o, c->refs[i].n);
            AX_TRY(close_upto(p, &closed, at.sequence));
            AX_TRY(add_piece(p, (struct ax_pack_piece){(uint32_t)i, 0, c->refs[i].n}));
        }
    }
    return at.docs > 0 ? close_upto(p, &closed, unit) : AX_OK;
}

/* ---- wrapped ---- */

/* max_docs applies here too: a sequence of very many small examples ends early. */
static enum ax_status pack_wrapped(struct ax_pack *p, const struct ax_pack_options *o,
                                   const struct ax_corpus *c) {
    int64_t used = 0;
    int64_t docs = 0;
    for (size_t i = 0; i < c->n; i++) {
        for (uint32_t from = 0; from < c->refs[i].n;) {
            const uint32_t left = c->refs[i].n - from;
            const int64_t room = o->capacity - used;
            const uint32_t take = (int64_t)left < room ? left : (uint32_t)room;
            AX_TRY(add_piece(p, (struct ax_pack_piece){(uint32_t)i, from, take}));
            from += take;
            used += take;
            docs++;
            if (used == o->capacity || docs == o->max_docs) {
                AX_TRY(end_sequence(p));
                used = docs = 0;
            }
        }
    }
    return docs > 0 ? end_sequence(p) : AX_OK;
}

/* ---- the largest first ---- */

/* Indices by descending size (a merge sort); equal sizes keep their order. Free *order with ax_free. */
static enum ax_status sort_falling(const int64_t *sizes, size_t n, uint32_t **order) {
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

/* A tree in heap order: node i has children 2i and 2i + 1, leaves from n_leaves (a power of 2) on; a
 * node has the largest value below it. */
struct room_tree {
    int64_t *room; /* [2·n_leaves] */
    size_t n_leaves;
};
static void set_room(struct room_tree *t, size_t leaf, int64_t room) {
    size_t i = t->n_leaves + leaf;
    t->room[i] = room;
    for (i /= 2; i > 0; i /= 2) {
        const int64_t left = t->room[2 * i];
        const int64_t right = t->room[2 * i + 1];
        t->room[i] = left > right ? left : right;
    }
}

/* The first leaf from `start` on with at least this value; n_leaves if there is none. */
static size_t find_room(const struct room_tree *t, size_t start, int64_t need) {
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

/* ---- first fit ----
 *
 * First-fit decreasing in O(n log n): a tree over the micro-batches stores the largest free space
 * below each node, so one descent finds the first that fits. (D. S. Johnson, "Near-optimal bin
 * packing algorithms", 1973: at most 11/9 of the optimal number of bins.)
 *
 * A group is placed in a micro-batch with space for all its examples: if the total space
 * suffices but an example does not fit, the next micro-batch is tried. A group that does not fit
 * an empty micro-batch is placed in several new ones of a unit, if the options have units. */

/* A sequence of a micro-batch. */
struct bin {
    int64_t used, docs;
};

struct fit {
    const struct ax_pack_options *o;
    const struct ax_corpus *c;
    size_t batch;    /* sequences of a micro-batch */
    size_t per_unit; /* micro-batches that a group may take */
    /* of micro-batches in use; −1: the number of examples is at its limit */
    struct room_tree tree;
    struct bin *bins;   /* [n_leaves][batch] */
    struct bin *trial;  /* [per_unit][batch] */
    uint32_t *sequence; /* [c->n] the result */
    size_t n_batches;   /* number in use */
};

static void count_room(struct fit *f, size_t leaf) {
    const struct bin *bins = f->bins + leaf * f->batch;
    int64_t room = 0;
    bool open = false;
    for (size_t s = 0; s < f->batch; s++) {
        const bool full = bins[s].docs == f->o->max_docs;
        room += full ? 0 : f->o->capacity - bins[s].used;
        open = open || !full;
    }
    set_room(&f->tree, leaf, open ? room : -1);
}

/* Tries to place these examples, longest first, in `count` micro-batches from `leaf` on, each in
 * the first sequence with enough space. */
static bool place_members(struct fit *f, size_t leaf, size_t count, const uint32_t *members,
                          size_t n) {
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
    return place_members(f, leaf, f->per_unit - begun, members, n) ||
           (begun > 0 && place_members(f, leaf + f->per_unit - begun, f->per_unit, members, n));
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
        leaf = find_room(&f->tree, leaf, size);
        const bool fresh = leaf >= f->n_batches;
        if (leaf < f->tree.n_leaves && place_members(f, leaf, 1, members, n))
            return AX_OK;
        if (fresh)
            return place_over_unit(f, members, n) ? AX_OK : too_large(f->o, f->c, first, end);
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
    AX_TRY_GOTO(sort_falling(sizes, n, &order), st, done);
    for (size_t g = 0; g < n; g++)
        AX_TRY_GOTO(place_group(f, firsts[order[g]], members, sizes[order[g]]), st, done);
done:
    ax_free(order);
    ax_free(members);
    ax_free(sizes);
    return st;
}

/* sequence[i] = the sequence of example i; sequences are numbered in the order in which they were opened.
 * *n_sequences = their number. */
static enum ax_status assign_first_fit(const struct ax_pack_options *o, const struct ax_corpus *c,
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
    st = place_all(&f, firsts, n);
    *n_sequences = (f.n_batches + f.per_unit - 1) / f.per_unit * f.per_unit * f.batch;
done:
    ax_free(f.tree.room);
    ax_free(f.bins);
    ax_free(f.trial);
    ax_free(firsts);
    return st;
}

/* Renumbers the units in the order of their first examples. at[] has an element per sequence and
 * is zero before and after. */
static void renumber(uint32_t *sequence, size_t n, size_t unit, size_t *at, size_t n_sequences) {
    size_t named = 0;
    for (size_t i = 0; i < n; i++) {
        size_t *name = &at[sequence[i] / unit];
        if (*name == 0)
            *name = ++named;
        sequence[i] = (uint32_t)((*name - 1) * unit + sequence[i] % unit);
    }
    memset(at, 0, n_sequences * sizeof *at);
}

/* Converts "sequence of each example" to the examples of each sequence, in order. */
static enum ax_status pack_fit(struct ax_pack *p, const struct ax_pack_options *o,
                               const struct ax_corpus *c) {
    const size_t n = c->n;
    uint32_t *sequence = NULL;
    size_t *at = NULL;
    size_t n_sequences = 0;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&sequence, n, sizeof *sequence), st, done);
    AX_TRY_GOTO(assign_first_fit(o, c, sequence, &n_sequences), st, done);
    for (size_t i = 0; i < n; i++)
        AX_TRY_GOTO(add_piece(p, (struct ax_pack_piece){0}), st, done);
    AX_TRY_GOTO(ax_alloc(&at, n_sequences + 1, sizeof *at), st, done);
    renumber(sequence, n, (size_t)ax_pack_unit(o), at, n_sequences);
    for (size_t i = 0; i < n; i++)
        at[sequence[i] + 1]++;
    for (size_t r = 0; r < n_sequences; r++)
        at[r + 1] += at[r];
    for (size_t i = 0; i < n; i++)
        p->pieces[at[sequence[i]]++] = (struct ax_pack_piece){(uint32_t)i, 0, c->refs[i].n};
    for (size_t r = 0; r < n_sequences; r++) {
        p->n_pieces = at[r]; /* by now the end of sequence r */
        AX_TRY_GOTO(end_sequence(p), st, done);
    }
done:
    ax_free(sequence);
    ax_free(at);
    return st;
}

/* ---- best fit ----
 *
 * Best-fit decreasing, as TRL's pack_dataset does it, down to which of several equal sequences takes
 * an example: the one that has had so much space for longest. Space is a number of tokens, so there
 * is a queue of sequences for each, and a tree says which queues are not empty. */

struct queue {
    uint32_t head, tail; /* sequences */
};

struct best {
    const struct ax_pack_options *o;
    struct ax_pack_piece *pieces;
    size_t n;
    struct queue *queues; /* [capacity + 1], by space */
    struct room_tree filled;
    uint32_t *after;    /* [n] the next sequence in the queue */
    uint32_t *docs;     /* [n] of a sequence */
    uint32_t *sequence; /* [n] of a piece */
    size_t n_sequences;
};

/* The pieces of all examples, or the first of each. */
static enum ax_status cut_examples(struct best *b, const struct ax_corpus *c) {
    const uint32_t capacity = b->o->capacity < UINT32_MAX ? (uint32_t)b->o->capacity : UINT32_MAX;
    size_t cap = 0;
    for (size_t i = 0; i < c->n; i++) {
        for (uint32_t from = 0; from < c->refs[i].n; from += capacity) {
            const uint32_t left = c->refs[i].n - from;
            AX_TRY(ax_grow(&b->pieces, b->n, &cap, sizeof *b->pieces));
            b->pieces[b->n++] =
                (struct ax_pack_piece){(uint32_t)i, from, left < capacity ? left : capacity};
            if (left <= capacity || b->o->mode == AX_PACK_BEST)
                break;
        }
    }
    return AX_OK;
}

static void push_sequence(struct best *b, uint32_t s, int64_t space) {
    struct queue *q = &b->queues[space];
    if (space == 0 || b->docs[s] == b->o->max_docs)
        return;
    b->after[s] = NONE;
    if (q->head == NONE)
        q->head = s;
    else
        b->after[q->tail] = s;
    q->tail = s;
    set_room(&b->filled, (size_t)space, 1);
}

static uint32_t pop_sequence(struct best *b, size_t space) {
    struct queue *q = &b->queues[space];
    const uint32_t s = q->head;
    q->head = b->after[s];
    if (q->head == NONE)
        set_room(&b->filled, space, 0);
    return s;
}

static void place_piece(struct best *b, uint32_t piece) {
    const int64_t need = b->pieces[piece].n;
    const size_t found = find_room(&b->filled, (size_t)need, 1);
    const bool open = found <= (size_t)b->o->capacity;
    const uint32_t s = open ? pop_sequence(b, found) : (uint32_t)b->n_sequences++;
    b->sequence[piece] = s;
    b->docs[s]++;
    push_sequence(b, s, (open ? (int64_t)found : b->o->capacity) - need);
}

/* Sequences in the order in which they were opened, pieces in that in which they were placed. */
static enum ax_status write_best(struct ax_pack *p, const struct best *b, const uint32_t *order) {
    size_t *at;
    AX_TRY(ax_alloc(&at, b->n_sequences + 1, sizeof *at));
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < b->n && st == AX_OK; i++) {
        at[b->sequence[i] + 1]++;
        st = add_piece(p, (struct ax_pack_piece){0});
    }
    for (size_t s = 0; s < b->n_sequences; s++)
        at[s + 1] += at[s];
    for (size_t i = 0; i < b->n && st == AX_OK; i++)
        p->pieces[at[b->sequence[order[i]]]++] = b->pieces[order[i]];
    for (size_t s = 0; s < b->n_sequences && st == AX_OK; s++) {
        p->n_pieces = at[s]; /* by now the end of sequence s */
        st = end_sequence(p);
    }
    ax_free(at);
    return st;
}

static enum ax_status allocate_best(struct best *b) {
    const size_t spaces = (size_t)b->o->capacity + 1;
    b->filled.n_leaves = 1;
    while (b->filled.n_leaves < spaces)
        b->filled.n_leaves *= 2;
    AX_TRY(ax_alloc(&b->filled.room, 2 * b->filled.n_leaves, sizeof *b->filled.room));
    AX_TRY(ax_alloc(&b->queues, spaces, sizeof *b->queues));
    for (size_t i = 0; i < spaces; i++)
        b->queues[i].head = NONE;
    AX_TRY(ax_alloc(&b->after, b->n, sizeof *b->after));
    AX_TRY(ax_alloc(&b->docs, b->n, sizeof *b->docs));
    return ax_alloc(&b->sequence, b->n, sizeof *b->sequence);
}

static enum ax_status pack_best(struct ax_pack *p, const struct ax_pack_options *o,
                                const struct ax_corpus *c) {
    struct best b = {.o = o};
    int64_t *sizes = NULL;
    uint32_t *order = NULL;
    enum ax_status st;
    AX_TRY_GOTO(cut_examples(&b, c), st, done);
    AX_TRY_GOTO(allocate_best(&b), st, done);
    AX_TRY_GOTO(ax_alloc(&sizes, b.n, sizeof *sizes), st, done);
    for (size_t i = 0; i < b.n; i++)
        sizes[i] = b.pieces[i].n;
    AX_TRY_GOTO(sort_falling(sizes, b.n, &order), st, done);
    for (size_t i = 0; i < b.n; i++)
        place_piece(&b, order[i]);
    AX_TRY_GOTO(write_best(p, &b, order), st, done);
done:
    ax_free(b.pieces);
    ax_free(b.filled.room);
    ax_free(b.queues);
    ax_free(b.after);
    ax_free(b.docs);
    ax_free(b.sequence);
    ax_free(sizes);
    ax_free(order);
    return st;
}

/* ---- all modes ---- */

enum ax_status ax_pack_chunk(struct ax_pack *out, const struct ax_pack_options *o,
                             const struct ax_corpus *c) {
    struct ax_pack_options plain = *o;
    AX_ASSERT(c->n <= UINT32_MAX && o->capacity > 0 && o->max_docs > 0);
    out->n_pieces = out->n = 0;
    if (!out->firsts) {
        AX_TRY(ax_alloc(&out->firsts, 256, sizeof *out->firsts));
        out->cap = 256;
    }
    out->firsts[0] = 0;
    for (size_t i = 0; i < c->n; i++)
        AX_ASSERT(o->mode >= AX_PACK_WRAP ? !c->refs[i].joined
                                          : (int64_t)c->refs[i].n <= o->capacity);
    switch (o->mode) {
    case AX_PACK_PLAIN:
        plain.max_docs = o->group > 0 ? o->group : 1;
        return pack_in_order(out, &plain, c);
    case AX_PACK_FIT:
        return pack_fit(out, o, c);
    case AX_PACK_IN_ORDER:
        return pack_in_order(out, o, c);
    case AX_PACK_BEST:
    case AX_PACK_BEST_SPLIT:
        return pack_best(out, o, c);
    case AX_PACK_WRAP:
        break;
    }
    return pack_wrapped(out, o, c);
}

bool ax_pack_sorts(enum ax_pack_mode mode) {
    return mode == AX_PACK_FIT || mode == AX_PACK_BEST || mode == AX_PACK_BEST_SPLIT;
}

void ax_pack_free(struct ax_pack *p) {
    ax_free(p->pieces);
    ax_free(p->firsts);
    *p = (struct ax_pack){0};
}

int64_t ax_pack_padded(int64_t used, int64_t multiple) {
    return multiple > 1 ? (used + multiple - 1) / multiple * multiple : used;
}
