/* Best-fit decreasing, as TRL's pack_dataset does it, down to which of several equal sequences takes
 * an example: the one that has had so much space for longest. Space is a number of tokens, so there
 * is a queue of sequences for each, and a tree says which queues are not empty. */
#include "data/records/pipeline/pack_impl.h"

#define NONE UINT32_MAX

struct queue {
    uint32_t head, tail; /* sequences */
};

struct best {
    const struct ax_pack_options *o;
    struct ax_pack_piece *pieces;
    size_t n;
    struct queue *queues; /* [capacity + 1], by space */
    struct ax_room_tree filled;
    uint32_t *after;    /* [n] the next sequence in the queue */
    uint32_t *docs;     /* [n] of a sequence */
    uint32_t *sequence; /* [n] of a piece */
    size_t n_sequences;
};

/* The pieces of all examples, or the first of each. */
static enum ax_status cut(struct best *b, const struct ax_corpus *c) {
    const uint32_t capacity = b->o->capacity < UINT32_MAX ? (uint32_t)b->o->capacity : UINT32_MAX;
    size_t cap = 0;
    for (size_t i = 0; i < c->n; i++) {
        for (uint32_t from = 0; from < c->refs[i].n; from += capacity) {
            const uint32_t left = c->refs[i].n - from;
            if (b->n == cap) {
                AX_TRY(ax_regrow(&b->pieces, cap, 2 * cap + 64, sizeof *b->pieces));
                cap = 2 * cap + 64;
            }
            b->pieces[b->n++] =
                (struct ax_pack_piece){(uint32_t)i, from, left < capacity ? left : capacity};
            if (left <= capacity || b->o->mode == AX_PACK_BEST)
                break;
        }
    }
    return AX_OK;
}

static void push(struct best *b, uint32_t s, int64_t space) {
    struct queue *q = &b->queues[space];
    if (space == 0 || b->docs[s] == b->o->max_docs)
        return;
    b->after[s] = NONE;
    if (q->head == NONE)
        q->head = s;
    else
        b->after[q->tail] = s;
    q->tail = s;
    ax_room_set(&b->filled, (size_t)space, 1);
}

static uint32_t pop(struct best *b, size_t space) {
    struct queue *q = &b->queues[space];
    const uint32_t s = q->head;
    q->head = b->after[s];
    if (q->head == NONE)
        ax_room_set(&b->filled, space, 0);
    return s;
}

static void place(struct best *b, uint32_t piece) {
    const int64_t need = b->pieces[piece].n;
    const size_t found = ax_room_find(&b->filled, (size_t)need, 1);
    const bool open = found <= (size_t)b->o->capacity;
    const uint32_t s = open ? pop(b, found) : (uint32_t)b->n_sequences++;
    b->sequence[piece] = s;
    b->docs[s]++;
    push(b, s, (open ? (int64_t)found : b->o->capacity) - need);
}

/* Sequences in the order in which they were opened, pieces in that in which they were placed. */
static enum ax_status write(struct ax_pack *p, const struct best *b, const uint32_t *order) {
    size_t *at;
    AX_TRY(ax_alloc(&at, b->n_sequences + 1, sizeof *at));
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < b->n && st == AX_OK; i++) {
        at[b->sequence[i] + 1]++;
        st = ax_pack_add_piece(p, (struct ax_pack_piece){0});
    }
    for (size_t s = 0; s < b->n_sequences; s++)
        at[s + 1] += at[s];
    for (size_t i = 0; i < b->n && st == AX_OK; i++)
        p->pieces[at[b->sequence[order[i]]]++] = b->pieces[order[i]];
    for (size_t s = 0; s < b->n_sequences && st == AX_OK; s++) {
        p->n_pieces = at[s]; /* by now the end of sequence s */
        st = ax_pack_end_sequence(p);
    }
    ax_free(at);
    return st;
}

static enum ax_status allocate(struct best *b) {
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

enum ax_status ax_pack_best(struct ax_pack *p, const struct ax_pack_options *o,
                            const struct ax_corpus *c) {
    struct best b = {.o = o};
    int64_t *sizes = NULL;
    uint32_t *order = NULL;
    enum ax_status st;
    AX_TRY_GOTO(cut(&b, c), st, done);
    AX_TRY_GOTO(allocate(&b), st, done);
    AX_TRY_GOTO(ax_alloc(&sizes, b.n, sizeof *sizes), st, done);
    for (size_t i = 0; i < b.n; i++)
        sizes[i] = b.pieces[i].n;
    AX_TRY_GOTO(ax_pack_sort_falling(sizes, b.n, &order), st, done);
    for (size_t i = 0; i < b.n; i++)
        place(&b, order[i]);
    AX_TRY_GOTO(write(p, &b, order), st, done);
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
