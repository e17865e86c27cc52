/* First-fit decreasing in O(n log n): a tree over the sequences holds the largest room below each
 * node, so the first sequence with enough room is found by going down. (D. S. Johnson,
 * "Near-optimal bin packing algorithms", 1973: at most 11/9 of the best number of sequences.) */
#include "data/pipeline/pack_fit.h"

#include "base/mem.h"

/* Heap order: node i has children 2i and 2i + 1; leaves from n_leaves on. */
struct room_tree {
    int64_t *room;
    size_t n_leaves;
};

static void set_room(struct room_tree *t, size_t sequence, int64_t room) {
    size_t i = t->n_leaves + sequence;
    t->room[i] = room;
    for (i /= 2; i > 0; i /= 2) {
        const int64_t left = t->room[2 * i];
        const int64_t right = t->room[2 * i + 1];
        t->room[i] = left > right ? left : right;
    }
}

/* The first sequence with at least this much room; there always is one, as every example can have a
 * sequence of its own. */
static size_t first_fit(const struct room_tree *t, int64_t need) {
    size_t i = 1;
    while (i < t->n_leaves)
        i = 2 * i + (t->room[2 * i] < need);
    return i - t->n_leaves;
}

/* Indices by falling length, equal lengths in their order: a counting sort over the lengths would
 * need room for the longest, so this is a merge sort. */
static enum ax_status sort_falling(const uint32_t *lengths, size_t n, uint32_t **order) {
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
                b[k] = j >= end || (i < middle && lengths[a[i]] >= lengths[a[j]]) ? a[i++] : a[j++];
        }
        uint32_t *swap = a;
        a = b;
        b = swap;
    }
    ax_free(b);
    *order = a;
    return AX_OK;
}

enum ax_status ax_pack_fit(const struct ax_pack_options *o, const uint32_t *lengths, size_t n,
                           uint32_t *sequence, size_t *n_sequences) {
    struct room_tree t = {.n_leaves = 1};
    uint32_t *docs = NULL; /* of each sequence */
    uint32_t *order = NULL;
    enum ax_status st;
    while (t.n_leaves < n)
        t.n_leaves *= 2;
    AX_TRY_GOTO(ax_alloc(&t.room, 2 * t.n_leaves, sizeof *t.room), st, done);
    AX_TRY_GOTO(ax_alloc(&docs, t.n_leaves, sizeof *docs), st, done);
    AX_TRY_GOTO(sort_falling(lengths, n, &order), st, done);
    for (size_t i = 0; i < 2 * t.n_leaves; i++)
        t.room[i] = o->capacity;
    *n_sequences = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t example = order[i];
        const size_t r = first_fit(&t, lengths[example]);
        const bool full = (int64_t)++docs[r] == o->max_docs;
        set_room(&t, r, full ? -1 : t.room[t.n_leaves + r] - lengths[example]);
        sequence[example] = (uint32_t)r;
        *n_sequences = r + 1 > *n_sequences ? r + 1 : *n_sequences;
    }
done:
    ax_free(t.room);
    ax_free(docs);
    ax_free(order);
    return st;
}
