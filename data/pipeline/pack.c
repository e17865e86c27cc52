#include "data/pipeline/pack.h"

#include <string.h>

#include "base/mem.h"
#include "data/pipeline/pack_fit.h"

static enum ax_status add_piece(struct ax_pack *p, struct ax_pack_piece piece) {
    if (p->n_pieces == p->cap_pieces) {
        const size_t cap = p->cap_pieces ? 2 * p->cap_pieces : 256;
        AX_TRY(ax_regrow(&p->pieces, p->cap_pieces, cap, sizeof *p->pieces));
        p->cap_pieces = cap;
    }
    p->pieces[p->n_pieces++] = piece;
    return AX_OK;
}

/* Ends the sequence that holds all pieces since the last one. */
static enum ax_status end_sequence(struct ax_pack *p) {
    if (p->n + 2 > p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 256;
        AX_TRY(ax_regrow(&p->firsts, p->cap, cap, sizeof *p->firsts));
        p->cap = cap;
    }
    p->firsts[++p->n] = p->n_pieces;
    return AX_OK;
}

static enum ax_status pack_plain(struct ax_pack *p, const uint32_t *lengths, size_t n) {
    for (size_t i = 0; i < n; i++) {
        AX_TRY(add_piece(p, (struct ax_pack_piece){(uint32_t)i, 0, lengths[i]}));
        AX_TRY(end_sequence(p));
    }
    return AX_OK;
}

static enum ax_status pack_in_order(struct ax_pack *p, const struct ax_pack_options *o,
                                    const uint32_t *lengths, size_t n) {
    int64_t used = 0;
    int64_t docs = 0;
    for (size_t i = 0; i < n; i++) {
        if (docs > 0 && (used + lengths[i] > o->capacity || docs == o->max_docs)) {
            AX_TRY(end_sequence(p));
            used = docs = 0;
        }
        AX_TRY(add_piece(p, (struct ax_pack_piece){(uint32_t)i, 0, lengths[i]}));
        used += lengths[i];
        docs++;
    }
    return docs > 0 ? end_sequence(p) : AX_OK;
}

/* max_docs holds here too: a sequence of very many small examples is cut early. */
static enum ax_status pack_wrapped(struct ax_pack *p, const struct ax_pack_options *o,
                                   const uint32_t *lengths, size_t n) {
    int64_t used = 0;
    int64_t docs = 0;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t from = 0; from < lengths[i];) {
            const uint32_t left = lengths[i] - from;
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

/* Numbers the sequences anew, by the order of their first examples. at[] has room for n_sequences
 * and is zero before and after. */
static void renumber(uint32_t *sequence, size_t n, size_t *at, size_t n_sequences) {
    size_t named = 0;
    for (size_t i = 0; i < n; i++) {
        if (at[sequence[i]] == 0)
            at[sequence[i]] = ++named;
        sequence[i] = (uint32_t)(at[sequence[i]] - 1);
    }
    memset(at, 0, n_sequences * sizeof *at);
}

/* From "sequence of each example" to the examples of each sequence, in their order. */
static enum ax_status pack_fit(struct ax_pack *p, const struct ax_pack_options *o,
                               const uint32_t *lengths, size_t n) {
    uint32_t *sequence = NULL;
    size_t *at = NULL;
    size_t n_sequences = 0;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&sequence, n, sizeof *sequence), st, done);
    AX_TRY_GOTO(ax_pack_fit(o, lengths, n, sequence, &n_sequences), st, done);
    for (size_t i = 0; i < n; i++)
        AX_TRY_GOTO(add_piece(p, (struct ax_pack_piece){0}), st, done);
    AX_TRY_GOTO(ax_alloc(&at, n_sequences + 1, sizeof *at), st, done);
    renumber(sequence, n, at, n_sequences);
    for (size_t i = 0; i < n; i++)
        at[sequence[i] + 1]++;
    for (size_t r = 0; r < n_sequences; r++)
        at[r + 1] += at[r];
    for (size_t i = 0; i < n; i++)
        p->pieces[at[sequence[i]]++] = (struct ax_pack_piece){(uint32_t)i, 0, lengths[i]};
    for (size_t r = 0; r < n_sequences; r++) {
        p->n_pieces = at[r]; /* now the end of sequence r */
        AX_TRY_GOTO(end_sequence(p), st, done);
    }
done:
    ax_free(sequence);
    ax_free(at);
    return st;
}

enum ax_status ax_pack_chunk(struct ax_pack *out, const struct ax_pack_options *o,
                             const uint32_t *lengths, size_t n) {
    AX_ASSERT(n <= UINT32_MAX && o->capacity > 0 && o->max_docs > 0);
    out->n_pieces = out->n = 0;
    if (!out->firsts) {
        AX_TRY(ax_alloc(&out->firsts, 256, sizeof *out->firsts));
        out->cap = 256;
    }
    out->firsts[0] = 0;
    for (size_t i = 0; i < n && o->mode != AX_PACK_WRAP; i++)
        AX_ASSERT((int64_t)lengths[i] <= o->capacity);
    switch (o->mode) {
    case AX_PACK_PLAIN:
        return pack_plain(out, lengths, n);
    case AX_PACK_FIT:
        return pack_fit(out, o, lengths, n);
    case AX_PACK_IN_ORDER:
        return pack_in_order(out, o, lengths, n);
    case AX_PACK_WRAP:
        break;
    }
    return pack_wrapped(out, o, lengths, n);
}

void ax_pack_free(struct ax_pack *p) {
    ax_free(p->pieces);
    ax_free(p->firsts);
    *p = (struct ax_pack){0};
}

int64_t ax_pack_padded(int64_t used, int64_t multiple) {
    return multiple > 1 ? (used + multiple - 1) / multiple * multiple : used;
}
