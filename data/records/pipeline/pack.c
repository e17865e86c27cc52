#include "data/records/pipeline/pack.h"

#include <string.h>

#include "base/mem.h"
#include "data/records/pipeline/pack_impl.h"

enum ax_status ax_pack_add_piece(struct ax_pack *p, struct ax_pack_piece piece) {
    if (p->n_pieces == p->cap_pieces) {
        const size_t cap = p->cap_pieces ? 2 * p->cap_pieces : 256;
        AX_TRY(ax_regrow(&p->pieces, p->cap_pieces, cap, sizeof *p->pieces));
        p->cap_pieces = cap;
    }
    p->pieces[p->n_pieces++] = piece;
    return AX_OK;
}

enum ax_status ax_pack_end_sequence(struct ax_pack *p) {
    if (p->n + 2 > p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 256;
        AX_TRY(ax_regrow(&p->firsts, p->cap, cap, sizeof *p->firsts));
        p->cap = cap;
    }
    p->firsts[++p->n] = p->n_pieces;
    return AX_OK;
}

enum ax_status ax_pack_too_large(const struct ax_pack_options *o, const struct ax_corpus *c,
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
        AX_TRY(ax_pack_end_sequence(p));
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
            return ax_pack_too_large(o, c, i, end);
        for (; i < end; i++) {
            advance(&at, o, c->refs[i].n);
            AX_TRY(close_upto(p, &closed, at.sequence));
            AX_TRY(ax_pack_add_piece(p, (struct ax_pack_piece){(uint32_t)i, 0, c->refs[i].n}));
        }
    }
    return at.docs > 0 ? close_upto(p, &closed, unit) : AX_OK;
}

/* ---- the others ---- */

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
            AX_TRY(ax_pack_add_piece(p, (struct ax_pack_piece){(uint32_t)i, from, take}));
            from += take;
            used += take;
            docs++;
            if (used == o->capacity || docs == o->max_docs) {
                AX_TRY(ax_pack_end_sequence(p));
                used = docs = 0;
            }
        }
    }
    return docs > 0 ? ax_pack_end_sequence(p) : AX_OK;
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
    AX_TRY_GOTO(ax_pack_fit(o, c, sequence, &n_sequences), st, done);
    for (size_t i = 0; i < n; i++)
        AX_TRY_GOTO(ax_pack_add_piece(p, (struct ax_pack_piece){0}), st, done);
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
        AX_TRY_GOTO(ax_pack_end_sequence(p), st, done);
    }
done:
    ax_free(sequence);
    ax_free(at);
    return st;
}

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
        return ax_pack_best(out, o, c);
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
