/* Parts → a table of states, by the subset construction: a state is a set of parts that may read the next byte. Then
 * states from which no match can be written are dropped. */
#include "data/grammar/pattern.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/mem.h"

#define MOST_STATES  (1 << 15)
#define MOST_MEMBERS ((size_t)1 << 20) /* of all sets */
#define SLOTS        (2 * MOST_STATES)

struct set {
    size_t at; /* in the list of members */
    int n;
};

struct builder {
    const struct ax_parts *parts;
    struct ax_pattern *p;
    struct set *sets; /* of the states */
    size_t n_sets, cap_sets, cap_rows;
    int32_t *members;
    size_t n_members, cap_members;
    int32_t *slots; /* states by the hashes of their sets; 0: free */
    /* the set that is made, and parts that are still to be followed, [parts] each */
    int32_t *made, *open;
    int n_made;
    uint32_t *seen, round; /* [parts]: the round in which a part was met */
    size_t work;
};

static enum ax_status refuse_size(void) {
    return ax_error(AX_ERR_DATA, "the expression has too many states; make its repeats shorter");
}

/* ---- sets ---- */

/* Adds the parts that may read a byte from here, and the end. */
static void follow(struct builder *b, int32_t part) {
    size_t n = 0;
    b->open[n++] = part;
    while (n > 0) {
        const int32_t i = b->open[--n];
        const struct ax_part *x = &b->parts->list[i];
        b->work++;
        if (b->seen[i] == b->round)
            continue;
        b->seen[i] = b->round;
        if (x->kind == AX_PART_BYTE || x->kind == AX_PART_END) {
            b->made[b->n_made++] = i;
            continue;
        }
        b->open[n++] = x->next;
        if (x->kind == AX_PART_FORK)
            b->open[n++] = x->other;
    }
}

static int by_number(const void *x, const void *y) {
    const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return (a > b) - (a < b);
}

static enum ax_status add_state(struct builder *b, int *state) {
    struct ax_pattern *p = b->p;
    const size_t n = (size_t)b->n_made, row = (size_t)p->n_classes;
    if (b->n_sets == MOST_STATES || (b->n_sets + 1) * row > AX_PATTERN_ENTRIES ||
        b->n_members + n > MOST_MEMBERS)
        return refuse_size();
    AX_TRY(ax_grow(&b->sets, b->n_sets, &b->cap_sets, sizeof *b->sets));
    if (b->cap_rows < b->cap_sets) {
        AX_TRY(ax_regrow(&p->next, b->cap_rows * row, b->cap_sets * row, sizeof *p->next));
        AX_TRY(ax_regrow(&p->is, b->cap_rows, b->cap_sets, sizeof *p->is));
        b->cap_rows = b->cap_sets;
    }
    if (b->n_members + n > b->cap_members) {
        const size_t cap = 2 * (b->n_members + n);
        AX_TRY(ax_regrow(&b->members, b->cap_members, cap, sizeof *b->members));
        b->cap_members = cap;
    }
    *state = (int)b->n_sets;
    b->sets[b->n_sets++] = (struct set){b->n_members, b->n_made};
    if (n > 0)
        memcpy(b->members + b->n_members, b->made, n * sizeof *b->made);
    b->n_members += n;
    for (size_t i = 0; i < n; i++)
        if (b->parts->list[b->made[i]].kind == AX_PART_END)
            p->is[*state] |= AX_PATTERN_ENDS;
    return AX_OK;
}

/* The state of the set that has been made, a new one if there is none; 0: it is empty. */
static enum ax_status find_state(struct builder *b, int *state) {
    const size_t n = (size_t)b->n_made;
    *state = 0;
    if (n == 0)
        return AX_OK;
    qsort(b->made, n, sizeof *b->made, by_number);
    size_t slot = ax_hash64(b->made, n * sizeof *b->made, 0) % SLOTS;
    for (; b->slots[slot] != 0; slot = (slot + 1) % SLOTS) {
        const struct set *s = &b->sets[b->slots[slot]];
        *state = b->slots[slot];
        if (s->n == b->n_made && memcmp(b->members + s->at, b->made, n * sizeof *b->made) == 0)
            return AX_OK;
    }
    AX_TRY(add_state(b, state));
    b->slots[slot] = *state;
    return AX_OK;
}

/* ---- states ---- */

/* Bytes fall into classes where a part's range begins or ends. */
static void find_classes(const struct ax_parts *parts, struct ax_pattern *p) {
    bool begins[257] = {false};
    for (size_t i = 0; i < parts->n; i++)
        if (parts->list[i].kind == AX_PART_BYTE)
            begins[parts->list[i].lo] = begins[parts->list[i].hi + 1] = true;
    for (int byte = 0; byte < 256; byte++) {
        p->n_classes += byte > 0 && begins[byte];
        p->class_of[byte] = (uint8_t)p->n_classes;
    }
    p->n_classes++;
}

static enum ax_status step(struct builder *b, int state, int class, int byte) {
    const struct set s = b->sets[state];
    int to;
    b->round++;
    b->n_made = 0;
    for (int i = 0; i < s.n; i++) {
        const struct ax_part *x = &b->parts->list[b->members[s.at + (size_t)i]];
        b->work++;
        if (x->kind == AX_PART_BYTE && byte >= x->lo && byte <= x->hi)
            follow(b, x->next);
    }
    if (b->work > AX_PATTERN_WORK)
        return refuse_size();
    AX_TRY(find_state(b, &to));
    b->p->next[(size_t)state * (size_t)b->p->n_classes + (size_t) class] = (uint16_t)to;
    return AX_OK;
}

static enum ax_status find_states(struct builder *b, int32_t first) {
    struct ax_pattern *p = b->p;
    int state;
    AX_TRY(add_state(b, &state)); /* none, whose set is empty */
    b->round++;
    follow(b, first);
    AX_TRY(find_state(b, &state));
    AX_ASSERT(state == AX_PATTERN_FIRST);
    for (; (size_t)state < b->n_sets; state++)
        for (int byte = 0; byte < 256; byte++)
            if (byte == 0 || p->class_of[byte] != p->class_of[byte - 1])
                AX_TRY(step(b, state, p->class_of[byte], byte));
    p->n_states = (int)b->n_sets;
    return AX_OK;
}

static enum ax_status build(struct builder *b, int32_t first) {
    const size_t n = b->parts->n;
    find_classes(b->parts, b->p);
    AX_TRY(ax_alloc(&b->slots, SLOTS, sizeof *b->slots));
    AX_TRY(ax_alloc(&b->made, n, sizeof *b->made));
    AX_TRY(ax_alloc(&b->open, 2 * n + 1, sizeof *b->open));
    AX_TRY(ax_alloc(&b->seen, n, sizeof *b->seen));
    return find_states(b, first);
}

/* ---- what can be written ---- */

/* Classes with a byte after which a match can go on token by token. A byte in the middle of a character can always come:
 * either all of them are tokens, or characters are tokens as wholes. */
static void find_writable(const struct ax_pattern *p, const bool alone[256], bool writable[256]) {
    memset(writable, 0, 256 * sizeof *writable);
    for (int byte = 0; byte < 256; byte++)
        if (alone[byte] || (byte & 0xC0) == 0x80)
            writable[p->class_of[byte]] = true;
}

/* Edges between states, by the state that they lead to: 2·state + 1 for the byte that begins a character, 2·state for others. */
struct edges {
    int32_t *first; /* [states + 1] */
    int32_t *from;
    int32_t *open,
        *next; /* states whose edges are still to be followed, for this many characters and one more */
};

static enum ax_status find_edges(const struct ax_pattern *p, const bool writable[256],
                                 struct edges *e) {
    const size_t n = (size_t)p->n_states, row = (size_t)p->n_classes;
    bool begins[256] = {false};
    AX_TRY(ax_alloc(&e->first, n + 2, sizeof *e->first));
    AX_TRY(ax_alloc(&e->from, n * row, sizeof *e->from));
    AX_TRY(ax_alloc(&e->open, n * row + n, sizeof *e->open));
    AX_TRY(ax_alloc(&e->next, n * row + n, sizeof *e->next));
    for (int byte = 0; byte < 256; byte++)
        begins[p->class_of[byte]] = (byte & 0xC0) != 0x80;
    for (size_t i = 0; i < n * row; i++) /* counts, two places on: below they become beginnings */
        e->first[p->next[i] + 2] += writable[i % row];
    for (size_t s = 2; s <= n + 1; s++)
        e->first[s] += e->first[s - 1];
    for (size_t i = 0; i < n * row; i++)
        if (writable[i % row])
            e->from[e->first[p->next[i] + 1]++] = (int32_t)(2 * (i / row)) + begins[i % row];
    return AX_OK;
}

/* Characters that the shortest end of a match has, from its end on. */
static void find_least(struct ax_pattern *p, struct edges *e) {
    size_t n = 0, n_next = 0;
    for (int s = 0; s < p->n_states; s++) {
        p->least[s] = AX_PATTERN_NEVER;
        if (p->is[s] & AX_PATTERN_ENDS)
            e->open[n++] = s;
    }
    for (uint16_t least = 0; n > 0; least++) {
        while (n > 0) {
            const int32_t to = e->open[--n];
            if (p->least[to] != AX_PATTERN_NEVER)
                continue;
            p->least[to] = p->longest = least;
            for (int32_t i = e->first[to]; i < e->first[to + 1]; i++)
                if (e->from[i] % 2 != 0)
                    e->next[n_next++] = e->from[i] / 2;
                else
                    e->open[n++] = e->from[i] / 2;
        }
        int32_t *const follows = e->next;
        e->next = e->open;
        e->open = follows;
        n = n_next;
        n_next = 0;
    }
}

static void drop_others(struct ax_pattern *p) {
    const size_t row = (size_t)p->n_classes;
    for (size_t i = 0; i < (size_t)p->n_states * row; i++) {
        if (p->least[p->next[i]] == AX_PATTERN_NEVER)
            p->next[i] = 0;
        if (p->next[i] != 0)
            p->is[i / row] |= AX_PATTERN_GOES_ON;
    }
}

static enum ax_status trim(struct ax_pattern *p, const bool alone[256]) {
    struct edges e = {0};
    bool writable[256];
    find_writable(p, alone, writable);
    enum ax_status st = ax_alloc(&p->least, (size_t)p->n_states, sizeof *p->least);
    if (st == AX_OK)
        st = find_edges(p, writable, &e);
    if (st == AX_OK) {
        find_least(p, &e);
        drop_others(p);
        if (p->least[AX_PATTERN_FIRST] == AX_PATTERN_NEVER)
            st = ax_error(AX_ERR_DATA, "no text that the vocabulary can write matches the "
                                       "expression");
        else if (!(p->is[AX_PATTERN_FIRST] & AX_PATTERN_GOES_ON))
            st = ax_error(AX_ERR_DATA, "only the empty text matches the expression");
    }
    ax_free(e.first);
    ax_free(e.from);
    ax_free(e.open);
    ax_free(e.next);
    return st;
}

/* ---- an expression ---- */

enum ax_status ax_pattern_compile(struct ax_pattern **out, const char *text, size_t n, bool whole,
                                  const bool alone[256]) {
    struct ax_parts parts = {0};
    struct builder b = {.parts = &parts};
    int32_t first;
    *out = NULL;
    AX_TRY(ax_alloc(&b.p, 1, sizeof *b.p));
    enum ax_status st = ax_pattern_read(&parts, text, n, whole, &first);
    if (st == AX_OK)
        st = build(&b, first);
    b.p->work = b.work;
    if (st == AX_OK)
        st = trim(b.p, alone);
    ax_free(parts.list);
    ax_free(b.sets);
    ax_free(b.members);
    ax_free(b.slots);
    ax_free(b.made);
    ax_free(b.open);
    ax_free(b.seen);
    if (st != AX_OK)
        ax_pattern_free(b.p);
    else
        *out = b.p;
    return st;
}

void ax_pattern_free(struct ax_pattern *p) {
    if (!p)
        return;
    ax_free(p->next);
    ax_free(p->is);
    ax_free(p->least);
    ax_free(p);
}
