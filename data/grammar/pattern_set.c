/* Parts, and sets of characters as parts that read the bytes of their UTF-8. */
#include <stdlib.h>

#include "base/mem.h"
#include "base/text/unicode.h"
#include "data/grammar/pattern.h"

#define MOST_CHARACTER 0x10FFFFU

enum ax_status ax_parts_add(struct ax_parts *p, struct ax_part part, int32_t *at) {
    if (p->n == AX_PATTERN_PARTS)
        return ax_error(AX_ERR_DATA,
                        "the expression has more than %d parts, repeated ones counted each time",
                        AX_PATTERN_PARTS);
    AX_TRY(ax_grow(&p->list, p->n, &p->cap, sizeof *p->list));
    *at = (int32_t)p->n;
    p->list[p->n++] = part;
    return AX_OK;
}

void ax_char_set_add(struct ax_char_set *s, uint32_t lo, uint32_t hi) {
    s->ranges[s->n++] = (struct ax_char_range){lo, hi};
}

/* ---- classes ---- */

static const struct {
    char letter, inverse;
    int n;
    struct ax_char_range ranges[4];
} classes[] = {
    {'d', 'D', 1, {{'0', '9'}}},
    {'w', 'W', 4, {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
    {'s', 'S', 2, {{'\t', '\r'}, {' ', ' '}}},
};
#define N_CLASSES (sizeof classes / sizeof *classes)

static void add_all(struct ax_char_set *s, const struct ax_char_range *ranges, int n) {
    for (int i = 0; i < n; i++)
        ax_char_set_add(s, ranges[i].lo, ranges[i].hi);
}

bool ax_char_set_add_class(struct ax_char_set *s, char letter) {
    for (size_t i = 0; i < N_CLASSES; i++) {
        struct ax_char_set own = {.n = 0};
        if (letter != classes[i].letter && letter != classes[i].inverse)
            continue;
        add_all(&own, classes[i].ranges, classes[i].n);
        if (letter == classes[i].inverse)
            ax_char_set_invert(&own);
        add_all(s, own.ranges, own.n);
        return true;
    }
    return false;
}

/* ---- normal form ---- */

static int by_start(const void *x, const void *y) {
    const struct ax_char_range *a = x, *b = y;
    return (a->lo > b->lo) - (a->lo < b->lo);
}

/* In order, with something between one range and the next. */
static void merge(struct ax_char_set *s) {
    int n = 0;
    qsort(s->ranges, (size_t)s->n, sizeof *s->ranges, by_start);
    for (int i = 0; i < s->n; i++) {
        struct ax_char_range *last = n > 0 ? &s->ranges[n - 1] : NULL;
        if (!last || s->ranges[i].lo > last->hi + 1)
            s->ranges[n++] = s->ranges[i];
        else if (s->ranges[i].hi > last->hi)
            last->hi = s->ranges[i].hi;
    }
    s->n = n;
}

void ax_char_set_invert(struct ax_char_set *s) {
    uint32_t from = 0;
    int n = 0;
    merge(s);
    for (int i = 0; i < s->n; i++) { /* the gap before a range takes the place of an earlier one */
        const struct ax_char_range r = s->ranges[i];
        if (r.lo > from)
            s->ranges[n++] = (struct ax_char_range){from, r.lo - 1};
        from = r.hi + 1;
    }
    if (from <= MOST_CHARACTER)
        s->ranges[n++] = (struct ax_char_range){from, MOST_CHARACTER};
    s->n = n;
}

/* ---- UTF-8 ---- */

struct writer {
    struct ax_parts *parts;
    size_t from;   /* the set's first part */
    int32_t first; /* what reads the ranges so far */
    int32_t last;
};

/* A part for a byte, one that is there if it can be: characters that end alike share their ends. */
static enum ax_status add_byte(struct writer *w, uint8_t lo, uint8_t hi, int32_t next,
                               int32_t *at) {
    const struct ax_part *list = w->parts->list;
    for (size_t i = w->from; i < w->parts->n; i++)
        if (list[i].kind == AX_PART_BYTE && list[i].lo == lo && list[i].hi == hi &&
            list[i].next == next) {
            *at = (int32_t)i;
            return AX_OK;
        }
    return ax_parts_add(
        w->parts, (struct ax_part){AX_PART_BYTE, lo, hi, .next = next, .other = AX_NO_PART}, at);
}

/* Characters whose bytes are any of ranges, one for each place. */
static enum ax_status add_bytes(struct writer *w, uint32_t lo, uint32_t hi) {
    char from[4], to[4];
    const size_t n = ax_utf8_encode(lo, from);
    int32_t at = w->last;
    AX_ASSERT(ax_utf8_encode(hi, to) == n);
    for (size_t i = n; i-- > 0;)
        AX_TRY(add_byte(w, (uint8_t)from[i], (uint8_t)to[i], at, &at));
    if (w->first == AX_NO_PART)
        w->first = at;
    else
        AX_TRY(ax_parts_add(w->parts, (struct ax_part){AX_PART_FORK, .next = at, .other = w->first},
                            &w->first));
    return AX_OK;
}

/* Splits characters of n bytes, so that the bytes of each place are a range whatever those of the others are. */
static enum ax_status add_length(struct writer *w, uint32_t lo, uint32_t hi, int n) {
    for (int i = 1; i < n; i++) {
        const uint32_t m = (1U << (6 * i)) - 1;
        if ((lo & ~m) == (hi & ~m))
            continue;
        if ((lo & m) != 0) {
            AX_TRY(add_length(w, lo, lo | m, n));
            return add_length(w, (lo | m) + 1, hi, n);
        }
        if ((hi & m) != m) {
            AX_TRY(add_length(w, lo, (hi & ~m) - 1, n));
            return add_length(w, hi & ~m, hi, n);
        }
    }
    return add_bytes(w, lo, hi);
}

/* Characters with the same number of bytes; surrogates have none. */
static const struct {
    uint32_t lo, hi;
    int n;
} lengths[] = {
    {0, 0x7F, 1},
    {0x80, 0x7FF, 2},
    {0x800, 0xD7FF, 3},
    {0xE000, 0xFFFF, 3},
    {0x10000, MOST_CHARACTER, 4},
};

enum ax_status ax_char_set_parts(struct ax_char_set *s, struct ax_parts *p,
                                 struct ax_piece *piece) {
    const struct ax_part join = {AX_PART_JOIN, .next = AX_NO_PART, .other = AX_NO_PART};
    struct writer w = {.parts = p, .from = p->n, .first = AX_NO_PART};
    AX_TRY(ax_parts_add(p, join, &w.last));
    merge(s);
    for (int i = 0; i < s->n; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            const uint32_t lo = s->ranges[i].lo > lengths[k].lo ? s->ranges[i].lo : lengths[k].lo,
                           hi = s->ranges[i].hi < lengths[k].hi ? s->ranges[i].hi : lengths[k].hi;
            if (lo <= hi)
                AX_TRY(add_length(&w, lo, hi, lengths[k].n));
        }
    if (w.first != AX_NO_PART)
        *piece = (struct ax_piece){w.first, w.last};
    return AX_OK;
}
