/* Finds the tokens of a turn by comparison. Text between two special tokens is tokenized
 * independently of its surroundings, so only the stretch between the special tokens around the turn
 * is compared; the real one's tokens are already in the full conversation. */
#include "data/records/format/chat_find.h"

#include <string.h>

static size_t common_start(struct ax_text a, struct ax_text b) {
    const size_t n = a.n < b.n ? a.n : b.n;
    size_t i = 0;
    while (i < n && a.s[i] == b.s[i])
        i++;
    return i;
}

/* The length of the common end, which does not reach into the first `start` bytes of either
 * text. */
static size_t common_end(struct ax_text a, struct ax_text b, size_t start) {
    const size_t n = (a.n < b.n ? a.n : b.n) - start;
    size_t i = 0;
    while (i < n && a.s[a.n - 1 - i] == b.s[b.n - 1 - i])
        i++;
    return i;
}

struct tokens {
    const int32_t *ids;
    size_t n;
};

static bool differ(struct tokens a, struct tokens b, size_t *start, size_t *end) {
    const size_t n = a.n < b.n ? a.n : b.n;
    size_t front = 0;
    size_t back = 0;
    while (front < n && a.ids[front] == b.ids[front])
        front++;
    while (back < n && a.ids[a.n - 1 - back] == b.ids[b.n - 1 - back])
        back++;
    *start = front;
    *end = a.n - back;
    return front < n && back<n && * end> * start;
}

/* First token that begins at or after byte `at`. */
static size_t first_token(const struct ax_encoding *e, size_t at) {
    size_t low = 0;
    for (size_t high = e->n; low < high;) {
        const size_t middle = low + (high - low) / 2;
        if (e->spans[middle].start < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Last special token in the first `limit` bytes; e->n = none. */
static size_t special_before(const struct ax_format *f, const struct ax_encoding *e, size_t limit) {
    for (size_t i = first_token(e, limit); i > 0; i--)
        if (e->spans[i - 1].end <= limit && ax_tokenizer_is_special(f->tok, e->ids[i - 1]))
            return i - 1;
    return e->n;
}

/* First special token in bytes [from, limit); e->n = none. */
static size_t special_after(const struct ax_format *f, const struct ax_encoding *e, size_t from,
                            size_t limit) {
    for (size_t i = first_token(e, from); i < e->n && e->spans[i].end <= limit; i++)
        if (ax_tokenizer_is_special(f->tok, e->ids[i]))
            return i;
    return e->n;
}

static enum ax_status encode_from(const struct ax_format *f, struct ax_text text, size_t from,
                                  struct ax_encoding *e, struct tokens *out) {
    AX_TRY(ax_format_encode(f, (struct ax_text){text.s + from, text.n - from}, false, e));
    *out = (struct tokens){e->ids, e->n};
    return AX_OK;
}

enum ax_status ax_chat_find_turn(const struct ax_format *f, struct ax_format_work *w,
                                 const struct ax_text *whole, const struct ax_turn_pair *pair,
                                 size_t *start, size_t *end, bool *found) {
    const struct ax_encoding *all = &w->full;
    const struct ax_text real = pair->real;
    struct ax_text other = pair->other;
    const size_t same = common_start(real, other);
    const size_t known = common_start(real, *whole); /* bytes whose tokens are already in `all` */
    const size_t left = special_before(f, all, same < known ? same : known);
    const size_t first = left < all->n ? left : 0;
    const size_t from = left < all->n ? all->spans[left].start : 0;
    const size_t tail = common_end(real, other, same);
    const size_t right = special_after(f, all, real.n - tail, known);
    struct tokens a;
    struct tokens b;
    if (right < all->n) {
        a = (struct tokens){all->ids + first, right + 1 - first};
        other.n -= real.n - all->spans[right].end; /* up to the same special token */
    } else if (known == whole->n && known == real.n) {
        a = (struct tokens){all->ids + first, all->n - first};
    } else {
        AX_TRY(encode_from(f, real, from, &w->part, &a));
    }
    AX_TRY(encode_from(f, other, from, &w->other, &b));
    *found = differ(a, b, start, end);
    *start += first;
    *end += first;
    return AX_OK;
}
