/* Grows a struct ax_encoding by one token at a time. */
#ifndef AX_DATA_TEXT_TOKENIZER_ENCODE_H
#define AX_DATA_TEXT_TOKENIZER_ENCODE_H

#include "base/mem.h"
#include "data/text/tokenizer/tokenizer.h"

/* Reserves room for `more` tokens and their spans. */
static inline enum ax_status ax_encoding_reserve(struct ax_encoding *e, size_t more, bool spans) {
    size_t need = e->n + more;
    if (need > e->cap) {
        size_t cap = e->cap * 2 > need ? e->cap * 2 : need < 64 ? 64 : need;
        AX_TRY(ax_regrow(&e->ids, e->n, cap, sizeof *e->ids));
        e->cap = cap;
    }
    if (spans && need > e->cap_spans) {
        AX_TRY(ax_regrow(&e->spans, e->n < e->cap_spans ? e->n : e->cap_spans, e->cap,
                         sizeof *e->spans));
        e->cap_spans = e->cap;
    }
    return AX_OK;
}

static inline enum ax_status ax_encoding_push(struct ax_encoding *e, int32_t id, bool spans,
                                              size_t start, size_t end) {
    if (e->n == e->cap || (spans && e->n >= e->cap_spans))
        AX_TRY(ax_encoding_reserve(e, 1, spans));
    e->ids[e->n] = id;
    if (spans)
        e->spans[e->n] = (struct ax_span){start, end};
    e->n++;
    return AX_OK;
}

#endif
